"""Backends by device type. A backend is imported when a device of its type is first used."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..device import Device, add_device_type, device
from ..errors import DeviceError, DriverNotFound
from . import cuda_api

if TYPE_CHECKING:
    from .protocol import Driver

__all__ = ["available", "best_device", "cuda_devices", "open_driver", "register_backend"]


def open_driver(target: Device) -> Driver:
    """Open `target`.

    Raises:
        DriverNotFound: its driver is not installed.
        UnknownDevice: there is no device of this index.
    """
    return _openers[target.type](target)


def register_backend(device_type: str, open_device: Callable[[Device], Driver], *, is_numbered: bool = True) -> None:
    """Register a backend: `device(device_type)` then names devices that `open_device` opens at their first use.

        register_backend("npu", NpuDriver)
        x = weftgrad.ones(3, device="npu:0")

    Args:
        device_type: The type of its devices, as in the names of devices.
        open_device: Open a device: return its driver (see `protocol.Driver`). Capabilities name the style whose
            schedules its kernels have, and `Driver.target` their language; see `styles` and `targets`.
        is_numbered: There may be several devices.

    Raises:
        ValueError: There is a backend for this type already, or its name is not an identifier of lower-case letters.
    """
    add_device_type(device_type, is_numbered=is_numbered)
    _openers[device_type] = open_device


def _open_cpu(target: Device) -> Driver:
    from .cpu import CpuDriver  # lazy: start-up

    return CpuDriver(target)


def _open_opencl(target: Device) -> Driver:
    from .opencl import OpenCLDriver  # lazy: optional dependency (pyopencl)

    return OpenCLDriver(target)


def _open_interpreter(target: Device) -> Driver:
    from .interpreter import InterpreterDriver  # lazy: start-up

    return InterpreterDriver(target)


def _open_cuda(target: Device) -> Driver:
    from .cuda import CudaDriver  # lazy: optional dependency (cuda)

    return CudaDriver(target)


def _open_meta(target: Device) -> Driver:
    from .meta import MetaDriver  # lazy: start-up

    return MetaDriver(target)


_openers: dict[str, Callable[[Device], Driver]] = {
    "cpu": _open_cpu, "opencl": _open_opencl, "interpreter": _open_interpreter, "cuda": _open_cuda,
    "meta": _open_meta,
}  # fmt: skip


def available() -> list[Device]:
    """List the available devices: `cpu`, then CUDA devices, then OpenCL devices, then `interpreter`."""
    present_devices = [device("cpu"), *(device(f"cuda:{info.index}") for info in cuda_devices())]
    try:
        from . import opencl  # lazy: optional dependency (pyopencl)

        present_devices += [device(f"opencl:{i}") for i in range(len(opencl.devices()))]
    except DriverNotFound:
        pass
    return [*present_devices, device("interpreter")] if _has_interpreter() else present_devices


def _has_interpreter() -> bool:
    """Return True if a Triton version that the interpreter supports is installed, without importing it."""
    # lazy: start-up
    from ..triton.compile import compiler_version
    from .interpreter import check_version

    try:
        check_version(compiler_version())
    except DriverNotFound:
        return False
    return True


def best_device() -> Device:
    """Return the first of `accelerators`, or `cpu` without one."""
    return next(iter(accelerators()), device("cpu"))


def accelerators() -> list[Device]:
    """List the CUDA devices that can run kernels; without one, the OpenCL devices that are GPUs.

    A library or compiler is loaded only if the driver's files exist.
    """
    gpus = []
    for info in cuda_devices():
        from . import cuda  # lazy: optional dependency (cuda)

        if cuda.runs_on(info):
            gpus.append(device(f"cuda:{info.index}"))
    if not gpus and _may_have_gpu():
        try:
            from . import opencl  # lazy: optional dependency (pyopencl)

            gpus = [device(f"opencl:{i}") for i, device_info in enumerate(opencl.devices()) if device_info.is_gpu]
        except DriverNotFound:
            pass
    return gpus


def cuda_devices() -> tuple[cuda_api.DeviceInfo, ...]:
    """List NVIDIA's GPUs; empty without a driver or its Python bindings."""
    if not cuda_api.may_exist():
        return ()
    try:
        return cuda_api.devices()
    except DeviceError:
        return ()


def _may_have_gpu() -> bool:
    """Return True if an OpenCL driver other than PoCL may be installed, so that importing pyopencl is worthwhile."""
    if os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OCL_ICD_FILENAMES"):
        return True
    try:
        return any(not name.startswith("pocl") for name in os.listdir("/etc/OpenCL/vendors"))
    except OSError:
        return os.name != "posix"
