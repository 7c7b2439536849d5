"""Backends by device type. Each is imported when a device of its type is first used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import DeviceError, DriverNotFound, NotSupported

if TYPE_CHECKING:
    from ..device import Device
    from .cuda_api import DeviceInfo
    from .protocol import Driver

__all__ = ["available", "best_device", "cuda_devices", "open_driver"]


def open_driver(device: Device) -> Driver:
    """Open `device`. Raises `DriverNotFound` where its driver is missing, `UnknownDevice` where the index is."""
    if device.type == "cpu":
        from .cpu import CpuDriver

        return CpuDriver(device)
    if device.type == "opencl":
        from .opencl import OpenCLDriver

        return OpenCLDriver(device)
    if device.type == "interpreter":
        from .interpreter import InterpreterDriver

        return InterpreterDriver(device)
    if device.type == "cuda":
        from .cuda import CudaDriver

        return CudaDriver(device)
    raise NotSupported(f"the {device.type} backend is not part of this version; use 'cpu', 'opencl:<n>' or 'cuda:<n>'")


def available() -> list[Device]:
    """The devices present: `cpu`, then every CUDA device, then every OpenCL device, then `interpreter`."""
    from ..device import device

    found = [device("cpu"), *(device(f"cuda:{info.index}") for info in cuda_devices())]
    try:
        from . import opencl

        found += [device(f"opencl:{i}") for i in range(len(opencl.devices()))]
    except DriverNotFound:
        pass
    return [*found, device("interpreter")] if _has_interpreter() else found


def _has_interpreter() -> bool:
    """Whether a Triton is installed that the interpreter runs with; told without importing it."""
    from ..triton.compile import compiler_version
    from .interpreter import check_version

    try:
        check_version(compiler_version())
    except DriverNotFound:
        return False
    return True


def best_device() -> Device:
    """The first of `accelerators`, else `cpu`."""
    from ..device import device

    return next(iter(accelerators()), device("cpu"))


def accelerators() -> list[Device]:
    """The CUDA devices that kernels run on; without one, the OpenCL devices that are GPUs.

    Looks for GPUs only where their drivers' files are: neither a library nor a compiler is loaded where none can be.
    """
    from ..device import device

    found = []
    for info in cuda_devices():
        from . import cuda

        if cuda.runs_on(info):
            found.append(device(f"cuda:{info.index}"))
    if not found and _may_have_gpu():
        try:
            from . import opencl

            found = [device(f"opencl:{i}") for i, each in enumerate(opencl.devices()) if each.is_gpu]
        except DriverNotFound:
            pass
    return found


def cuda_devices() -> tuple[DeviceInfo, ...]:
    """NVIDIA's GPUs; empty where there is no driver, or no bindings to it."""
    from . import cuda_api

    if not cuda_api.may_exist():
        return ()
    try:
        return cuda_api.devices()
    except DeviceError:
        return ()


def _may_have_gpu() -> bool:
    """Whether asking OpenCL is worth its import: some vendor's ICD is installed or named."""
    if os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OCL_ICD_FILENAMES"):
        return True
    try:
        return any(not name.startswith("pocl") for name in os.listdir("/etc/OpenCL/vendors"))
    except OSError:
        return os.name != "posix"
