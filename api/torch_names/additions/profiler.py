"""Functions of `torch.profiler` that query PyTorch's own tracer, Kineto."""

from __future__ import annotations

__all__ = ["kineto_available"]


def kineto_available() -> bool:
    """Return False: weftgrad's profiler has a tracer of its own."""
    return False
