"""OpenCL's devices and what they can do. The only file that imports pyopencl; others take `cl` from here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..context import state
from ..errors import DriverNotFound, ForkError
from . import pocl, processor
from .overrides import override
from .protocol import Capabilities

# PoCL reads these when its platform is first loaded: the device with a worker a core, and workers that stay there.
os.environ.setdefault("POCL_DEVICES", "pthread")
os.environ.setdefault("POCL_AFFINITY", "1")
pocl.private_cache()

try:
    import pyopencl as cl
except ImportError as error:  # pragma: no cover - exercised in a subprocess without it
    raise DriverNotFound(
        f"OpenCL needs pyopencl, which does not import ({error}): pip install pyopencl"
    ) from error

__all__ = ["DeviceInfo", "capabilities_of", "check_fork", "cl", "devices", "identity_of"]

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True
    state().plans = {}  # what was planned would launch; planning anew asks `check_fork`


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_fork() -> None:
    """OpenCL drivers do not survive a fork: PoCL hangs at the first call. Say so instead."""
    if _forked:
        raise ForkError(
            "this process was forked after an OpenCL device was opened, and OpenCL does not work in such a child; "
            "start workers with multiprocessing's 'spawn' or 'forkserver' method"
        )


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One OpenCL device as listed."""

    handle: Any
    platform: str
    name: str
    is_gpu: bool


@cache
def devices() -> tuple[DeviceInfo, ...]:
    """All OpenCL devices, GPUs first. Raises `DriverNotFound` where there is no platform at all."""
    check_fork()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DriverNotFound(
            f"no OpenCL platform is installed ({error}): pip install pocl-binary-distribution for one on the CPU"
        ) from error
    found = []
    for platform in platforms:
        try:
            members = platform.get_devices()
        except cl.Error:
            continue
        for handle in members:
            if "Portable" in platform.name:
                pocl.correct_processor(handle)
            found.append(DeviceInfo(handle, platform.name, handle.name.strip(), bool(handle.type & cl.device_type.GPU)))
    if not found:
        raise DriverNotFound("OpenCL platforms are installed, none has a device: pip install pocl-binary-distribution")
    return tuple(sorted(found, key=lambda info: not info.is_gpu))


def identity_of(info: DeviceInfo) -> str:
    """Platform, device and driver with their versions: what timings hold for."""
    platform, handle = info.handle.platform, info.handle
    parts = (platform.name, platform.version, handle.name, handle.driver_version)
    return ", ".join(" ".join(part.split()) for part in parts)


def capabilities_of(info: DeviceInfo) -> Capabilities:
    """What schedules are chosen by, from what the driver says; `WEFTGRAD_CAPABILITIES` overrides fields for tests,
    as in `style=gpu,fp64=0,max_group=64,local_memory=16384`."""
    handle, extensions, is_pocl = info.handle, info.handle.extensions.split(), "Portable" in info.platform
    instructions = processor.best_instruction_set()
    if instructions == "avx512" and is_pocl and not processor.llvm_knows_avx512(handle.version):
        instructions = "avx2"
    lanes, registers = processor.vectors(instructions)
    found = Capabilities(
        style="gpu" if info.is_gpu else "cpu",
        cores=handle.max_compute_units,
        lanes=4 if info.is_gpu else lanes,
        fp64="cl_khr_fp64" in extensions,
        fp16="cl_khr_fp16" in extensions,
        max_group=min(handle.max_work_group_size, 256 if info.is_gpu else 4096),
        local_memory=handle.local_mem_size,
        builtins=not is_pocl,
        memory=handle.global_mem_size,
        stream=processor.stream_threshold(), stream_rows=processor.stream_rows_threshold(),
        ahead=info.is_gpu or not processor.from_amd(),
        registers=registers,
    )
    return override(found, os.environ.get("WEFTGRAD_CAPABILITIES", ""))
