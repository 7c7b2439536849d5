"""cuDNN is not used. The switches may be set and change nothing: kernels are the same and deterministic either way."""

from __future__ import annotations

__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "is_available", "version"]

enabled = False
benchmark = False
deterministic = True
allow_tf32 = False


def is_available() -> bool:
    """False: convolutions and recurrent networks have kernels of the project's own."""
    return False


def version() -> None:
    """None: there is no cuDNN."""
    return
