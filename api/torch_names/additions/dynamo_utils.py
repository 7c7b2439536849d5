"""Functions of `torch._dynamo.utils` that query PyTorch's graph compiler, which does not exist here."""

from __future__ import annotations

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type: str) -> bool:
    """Return False: calls run compiled kernels as they come."""
    return False
