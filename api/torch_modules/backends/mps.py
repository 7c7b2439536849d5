"""Switches of Apple's Metal backend, which does not exist here."""

from __future__ import annotations

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """Return False: there is no Metal backend.

    Returns:
        False.

    Example:
        >>> wg.backends.mps.is_available()
        False
    """
    return False


def is_built() -> bool:
    """Return False: there is no Metal backend.

    Returns:
        False.

    Example:
        >>> wg.backends.mps.is_built()
        False
    """
    return False
