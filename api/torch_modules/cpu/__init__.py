"""`weftgrad.cpu`: the device `cpu`, with the names of `torch.cpu`."""

from __future__ import annotations

from ..execution import streams
from ..runtime.device import DeviceLike
from ..runtime.device import device as to_device
from . import amp

__all__ = ["amp", "current_device", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """Return True: there is always a CPU.

    Returns:
        True.

    Example:
        >>> wg.cpu.is_available()
        True
    """
    return True


def device_count() -> int:
    """Return 1: all cores are one device.

    Returns:
        1.

    Example:
        >>> wg.cpu.device_count()
        1
    """
    return 1


def current_device() -> str:
    """Return `"cpu"`.

    Returns:
        Text.

    Example:
        >>> wg.cpu.current_device()
        'cpu'
    """
    return "cpu"


def synchronize(device: DeviceLike | None = None) -> None:
    """Wait until all work on the CPU is done.

    Args:
        device: Ignored.

    Example:
        >>> wg.cpu.synchronize()
    """
    streams.synchronize(to_device("cpu"))
