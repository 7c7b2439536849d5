"""Memory of GPUs: free memory, and the counters of the memory pools."""

from __future__ import annotations

from ..execution import streams
from ..runtime.backends import cuda_devices
from ..runtime.device import DeviceLike
from ..runtime.device import device as to_device
from .devices import describe_device, describe_gpu, is_available, open_driver, resolve_device

__all__ = [
    "empty_cache", "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_reserved", "memory_stats", "reset_peak_memory_stats",
]  # fmt: skip


@describe_gpu
def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """Return the (free, total) bytes of a GPU's memory, counting all processes.

    Returns:
        Two ints.

    Example:
        >>> if wg.cuda.is_available():
        ...     free, total = wg.cuda.mem_get_info()
        ...
    """
    return open_driver(device).memory_info()


@describe_device
def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """Return the counters of a GPU's memory pools; an empty dict without a GPU.

    Returns:
        Dict from names to numbers.

    Example:
        >>> wg.cuda.is_available() or wg.cuda.memory_stats() == {}
        True
    """
    return streams.memory_stats(resolve_device(device)) if is_available() else {}


@describe_device
def memory_allocated(device: DeviceLike | None = None) -> int:
    """Return the number of bytes that tensors use.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.memory_allocated() >= 0
        True
    """
    return memory_stats(device).get("allocated", 0)


@describe_device
def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """Return the peak of `memory_allocated` since the last `reset_peak_memory_stats`.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.max_memory_allocated() >= 0
        True
    """
    return memory_stats(device).get("allocated_peak", 0)


@describe_device
def memory_reserved(device: DeviceLike | None = None) -> int:
    """Return the number of bytes allocated from the driver, whether tensors use them or the pools cache them.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.memory_reserved() >= 0
        True
    """
    return memory_stats(device).get("reserved", 0)


@describe_device
def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """Return the peak of `memory_reserved` since the last `reset_peak_memory_stats`.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.max_memory_reserved() >= 0
        True
    """
    return memory_stats(device).get("reserved_peak", 0)


@describe_gpu
def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Reset the peak counters to the current values.

    Example:
        >>> if wg.cuda.is_available():
        ...     wg.cuda.reset_peak_memory_stats()
        ...
    """
    streams.reset_peak_memory_stats(resolve_device(device))


def empty_cache() -> None:
    """Return the cached memory of every opened GPU to its driver.

    Example:
        >>> wg.cuda.empty_cache()
    """
    for info in cuda_devices():
        gpu = to_device(f"cuda:{info.index}")
        if gpu._driver is not None:
            streams.empty_cache(gpu)
