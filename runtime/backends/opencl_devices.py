"""OpenCL devices and their capabilities. The only file that imports pyopencl; other files import `cl` from here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..context import state
from ..device import forbid_fork
from ..errors import DriverNotFound, ForkError
from . import pocl, processor
from .overrides import override
from .protocol import Capabilities

if TYPE_CHECKING:
    from .opencl_types import ClDevice, PyOpenCL

# PoCL reads these when its platform is loaded: use the device with one worker thread per core, pinned to its core.
os.environ.setdefault("POCL_DEVICES", "pthread")
os.environ.setdefault("POCL_AFFINITY", "1")
pocl.private_cache()

try:
    import pyopencl
except ImportError as error:  # pragma: no cover - exercised in a subprocess without it
    raise DriverNotFound(f"OpenCL needs pyopencl, which does not import ({error}): pip install pyopencl") from error
cl: PyOpenCL = pyopencl
forbid_fork()

__all__ = ["DeviceInfo", "capabilities_of", "check_fork", "cl", "devices", "has_own_memory", "identity_of"]

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True
    state().plans = {}  # cached plans would launch; planning again calls `check_fork`


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_fork() -> None:
    """Raise `ForkError` in a forked child: OpenCL drivers do not survive a fork, PoCL hangs at the first call."""
    if _forked:
        raise ForkError(
            "this process was forked after an OpenCL device was opened, and OpenCL does not work in such a child; "
            "start workers with multiprocessing's 'spawn' or 'forkserver' method"
        )


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One OpenCL device. handle: pyopencl's device object."""

    handle: ClDevice
    platform: str
    name: str
    is_gpu: bool


@cache
def devices() -> tuple[DeviceInfo, ...]:
    """List all OpenCL devices: GPUs, then the PoCL that pip installed, then others. `opencl:N` is the N-th.

    A driver that is installed later for the whole system gives this PoCL no other number, and is not used for `cpu` in
    its place.

    Raises:
        DriverNotFound: There is no platform, or none has a device.
    """
    check_fork()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DriverNotFound(
            f"no OpenCL platform is installed ({error}): pip install pocl-binary-distribution for one on the CPU"
        ) from error
    infos = []
    for platform in platforms:
        try:
            handles = platform.get_devices()
        except cl.Error:
            continue
        for handle in handles:
            if "Portable" in platform.name:
                pocl.correct_processor(handle)
            infos.append(DeviceInfo(handle, platform.name, handle.name.strip(), bool(handle.type & cl.device_type.GPU)))
    if not infos:
        raise DriverNotFound("OpenCL platforms are installed, none has a device: pip install pocl-binary-distribution")
    packages = Path(pyopencl.__file__).parents[1]
    return tuple(sorted(infos, key=lambda i: (not i.is_gpu, not pocl.is_from_wheel(i.handle.platform, packages))))


def identity_of(info: DeviceInfo) -> str:
    """Return the platform, device and driver with their versions: the key of stored timings."""
    platform, handle = info.handle.platform, info.handle
    parts = (platform.name, platform.version, handle.name, handle.driver_version)
    return ", ".join(" ".join(part.split()) for part in parts)


def has_own_memory(info: DeviceInfo) -> bool:
    """Return True if a device has memory of its own, as discrete GPUs have, and False if it uses the host's."""
    try:
        return info.is_gpu and not info.handle.host_unified_memory
    except cl.Error:  # the query is deprecated since OpenCL 2.0
        return False


def capabilities_of(info: DeviceInfo) -> Capabilities:
    """Return a device's capabilities, as its driver reports them.

    `WEFTGRAD_CAPABILITIES` overrides fields for tests, as in `style=gpu,fp64=0,max_group=64,local_memory=16384`.
    """
    handle, extensions, is_pocl = info.handle, info.handle.extensions.split(), "Portable" in info.platform
    instructions = processor.best_instruction_set()
    if instructions == "avx512" and is_pocl and not processor.llvm_knows_avx512(handle.version):
        instructions = "avx2"
    lanes, registers = processor.vector_registers(instructions)
    caps = Capabilities(
        style="gpu" if info.is_gpu else "cpu",
        cores=handle.max_compute_units,
        lanes=4 if info.is_gpu else lanes,
        fp64="cl_khr_fp64" in extensions,
        fp16="cl_khr_fp16" in extensions,
        max_group=min(handle.max_work_group_size, 256 if info.is_gpu else 4096),
        local_memory=handle.local_mem_size,
        builtins=not is_pocl,
        memory=handle.global_mem_size,
        stream=processor.stream_threshold(),
        stream_rows=processor.stream_rows_threshold(),
        ahead=info.is_gpu or not processor.is_amd(),
        registers=registers,
    )
    return override(caps, os.environ.get("WEFTGRAD_CAPABILITIES", ""))
