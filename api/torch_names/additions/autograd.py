"""Functions of `torch.autograd` that query PyTorch's own profiler, which does not exist here."""

from __future__ import annotations

__all__ = ["_disable_profiler", "_profiler_enabled"]


def _profiler_enabled() -> bool:
    """Return False: PyTorch's profiler never runs."""
    return False


def _disable_profiler() -> None:
    """Do nothing: PyTorch's profiler never runs."""
