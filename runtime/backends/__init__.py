"""Backends by device type. Each is imported when a device of its type is first used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import DriverNotFound, NotSupported

if TYPE_CHECKING:
    from ..device import Device
    from .protocol import Driver

__all__ = ["available", "best_device", "open_driver"]


def open_driver(device: Device) -> Driver:
    """Open `device`. Raises `DriverNotFound` where its driver is missing, `UnknownDevice` where the index is."""
    if device.type == "cpu":
        from .opencl_cpu import CpuDriver

        return CpuDriver(device)
    if device.type == "opencl":
        from .opencl import OpenCLDriver

        return OpenCLDriver(device)
    raise NotSupported(f"the {device.type} backend is not part of this version; use 'cpu' or 'opencl:<n>'")


def available() -> list[Device]:
    """The devices present: `cpu`, then every OpenCL device."""
    from ..device import device

    found = [device("cpu")]
    try:
        from . import opencl

        found += [device(f"opencl:{i}") for i in range(len(opencl.devices()))]
    except DriverNotFound:
        pass
    return found


def best_device() -> Device:
    """An OpenCL GPU if one is present, else `cpu`. Looks for GPUs only where an ICD other than a CPU's may exist."""
    from ..device import device

    if _may_have_gpu():
        try:
            from . import opencl

            for i, info in enumerate(opencl.devices()):
                if info.is_gpu:
                    return device(f"opencl:{i}")
        except DriverNotFound:
            pass
    return device("cpu")


def _may_have_gpu() -> bool:
    """Whether asking OpenCL is worth its import: some vendor's ICD is installed or named."""
    if os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OCL_ICD_FILENAMES"):
        return True
    try:
        return any(not name.startswith("pocl") for name in os.listdir("/etc/OpenCL/vendors"))
    except OSError:
        return os.name != "posix"
