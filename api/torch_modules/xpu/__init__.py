"""`torch.xpu` for compatibility: it is never available, because Intel's GPUs are OpenCL devices here (`opencl:0`)."""

from __future__ import annotations

__all__ = ["device_count", "is_available"]


def is_available() -> bool:
    """Return False.

    Returns:
        False.

    Example:
        >>> wg.xpu.is_available()
        False
    """
    return False


def device_count() -> int:
    """Return 0: there are no such devices.

    Returns:
        0.

    Example:
        >>> wg.xpu.device_count()
        0
    """
    return 0
