"""`torch.distributed` for programs that ask whether it is available: it is not."""

from __future__ import annotations

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """Return False: there is one process only.

    Returns:
        False.

    Example:
        >>> wg.distributed.is_available()
        False
    """
    return False


def is_initialized() -> bool:
    """Return False: there is one process only.

    Returns:
        False.

    Example:
        >>> wg.distributed.is_initialized()
        False
    """
    return False
