"""There is one process here; programs that ask, as PyTorch's users do before they use several, are told so."""

from __future__ import annotations

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False
