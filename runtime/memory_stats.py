"""Statistics of memory pools, and the limit on the memory of a process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from . import control_groups

__all__ = ["BlockInfo", "PoolStats", "SegmentInfo", "default_limit", "host_memory"]

_SHARE = 0.9  # of the available memory; the rest is for the interpreter, driver buffers and compiled kernels


class PoolStats(NamedTuple):
    """Counters of one pool, or sums over a device's pools. Sizes are bytes, blocks rounded up to 512.

    A sum of peaks is an upper bound of the peak of the sum: streams need not peak at the same time.
    """

    allocated: int = 0  # bytes of the blocks in use
    allocated_peak: int = 0
    requested: int = 0  # bytes that callers requested for those blocks, before rounding
    reserved: int = 0  # bytes of the segments held from the driver
    reserved_peak: int = 0
    cached: int = 0  # reserved - allocated
    waiting: int = 0  # the part of cached that another stream may still be using
    allocations: int = 0  # number of blocks handed out
    driver_allocations: int = 0  # number of segments allocated by the driver
    driver_frees: int = 0  # number of segments released
    retries: int = 0  # number of times that cached memory was released because memory ran out

    @staticmethod
    def total(stats: Iterable[PoolStats]) -> PoolStats:
        """Return the sum of each field."""
        return PoolStats(*map(sum, zip(*stats, strict=True)))


class BlockInfo(NamedTuple):
    """One block of a segment. requested is 0 unless it is in use. State `waiting`: free, but not reusable yet."""

    offset: int
    size: int
    requested: int
    state: Literal["in use", "cached", "waiting"]


class SegmentInfo(NamedTuple):
    """One driver allocation and its blocks, in order of offset and without gaps."""

    size: int
    small: bool
    stream: object
    blocks: tuple[BlockInfo, ...]


def default_limit(device_memory: int | None = None, is_host_memory: bool = True) -> int:
    """Return the default limit in bytes for a device's pools: 90% of the smallest bound.

    The bounds are the device's size, and where its memory is the host's the limits of this process's control groups and
    the machine's memory. Drivers over host memory overcommit. Beyond the limit of a control group the process is killed
    without an exception, so the pool must know the limit.

    Args:
        device_memory: The device's size in bytes, None or 0 if the driver reports none.
        is_host_memory: Whether the device allocates from the host's memory. A GPU with its own does not: 24 GB on it
            are 24 GB in a container of 8 GB, too.
    """
    if device_memory and not is_host_memory:
        return int(device_memory * _SHARE)
    bound = host_memory()
    if device_memory:
        bound = min(bound, device_memory)
    return int(bound * _SHARE)


def host_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process can use.

    That is the machine's memory, or less if a control group (v1 or v2) or the limit of the process's address space
    (`ulimit -v`) is lower.
    """
    bounds = control_groups.memory_limits(root)
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        bounds.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ImportError, ValueError, OSError):
        import resource  # lazy: POSIX only

        bounds.append(resource.getrlimit(resource.RLIMIT_AS)[0])  # negative if unlimited
    return min((bound for bound in bounds if bound > 0), default=1 << 63)
