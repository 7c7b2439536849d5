"""Apple's Metal has no backend here; programs that ask are told so."""

from __future__ import annotations

from .backends.mps import is_available

__all__ = ["device_count", "is_available"]


def device_count() -> int:
    """0."""
    return 0
