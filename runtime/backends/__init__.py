"""Backends by device type. A backend is imported when a device of its type is first used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..device import Device, device
from ..errors import DeviceError, DriverNotFound, NotSupported

if TYPE_CHECKING:
    from .cuda_api import DeviceInfo
    from .protocol import Driver

__all__ = ["available", "best_device", "cuda_devices", "open_driver"]


def open_driver(target: Device) -> Driver:
    """Open `target`.

    Raises:
        DriverNotFound: its driver is not installed.
        UnknownDevice: there is no device of this index.
    """
    if target.type == "cpu":
        from .cpu import CpuDriver  # lazy: start-up

        return CpuDriver(target)
    if target.type == "opencl":
        from .opencl import OpenCLDriver  # lazy: optional dependency (pyopencl)

        return OpenCLDriver(target)
    if target.type == "interpreter":
        from .interpreter import InterpreterDriver  # lazy: start-up

        return InterpreterDriver(target)
    if target.type == "cuda":
        from .cuda import CudaDriver  # lazy: optional dependency (cuda)

        return CudaDriver(target)
    raise NotSupported(f"the {target.type} backend is not part of this version; use 'cpu', 'opencl:<n>' or 'cuda:<n>'")


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


def cuda_devices() -> tuple[DeviceInfo, ...]:
    """List NVIDIA's GPUs; empty without a driver or its Python bindings."""
    from . import cuda_api  # lazy: start-up

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
