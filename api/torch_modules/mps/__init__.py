"""`torch.mps` for programs that ask whether it is available: there is no backend for Apple's Metal."""

from __future__ import annotations

from ..backends.mps import is_available

__all__ = ["device_count", "is_available"]


def device_count() -> int:
    """Return 0: there are no such devices.

    Returns:
        0.

    Example:
        >>> wg.mps.device_count()
        0
    """
    return 0
