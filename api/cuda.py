"""`weftgrad.cuda`: what programs ask before they choose a device."""

from __future__ import annotations

from .streams import (
    Event,
    Stream,
    current_stream,
    empty_cache,
    max_memory_allocated,
    memory_allocated,
    memory_reserved,
    stream,
    synchronize,
)

__all__ = [
    "Event", "Stream", "current_stream", "device_count", "empty_cache", "is_available", "max_memory_allocated",
    "memory_allocated", "memory_reserved", "stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether a CUDA device can be used: not in this version, which has the OpenCL backend only."""
    return False


def device_count() -> int:
    """The number of CUDA devices."""
    return 0
