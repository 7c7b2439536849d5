"""Intel's GPUs are devices of OpenCL here (`opencl:0`); PyTorch's own backend for them does not exist."""

from __future__ import annotations

__all__ = ["device_count", "is_available"]


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0
