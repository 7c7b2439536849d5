"""What a pool tells about itself, and how much memory a process may take."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from . import control_groups

__all__ = ["BlockInfo", "PoolStats", "SegmentInfo", "default_limit", "host_memory"]

_SHARE = 0.9  # of the memory there is; the rest is for the interpreter, the driver's own buffers and compiled kernels


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Counters of one pool, or sums over a device's pools. Sizes are bytes, blocks rounded up to 512.

    A sum of peaks is an upper bound of the peak of the sum: streams need not peak at the same time.
    """

    allocated: int = 0  # in blocks that are in use now
    allocated_peak: int = 0
    requested: int = 0  # what callers asked for those blocks, before rounding
    reserved: int = 0  # in segments held from the driver
    reserved_peak: int = 0
    cached: int = 0  # reserved - allocated
    waiting: int = 0  # the part of cached that another stream may still be using
    allocations: int = 0  # blocks handed out
    driver_allocations: int = 0  # segments taken from the driver
    driver_frees: int = 0  # segments given back
    retries: int = 0  # times memory ran out and cached memory was given up to go on

    @staticmethod
    def total(parts: Iterable[PoolStats]) -> PoolStats:
        """The field-wise sum."""
        rows = list(parts)
        return PoolStats(*(sum(getattr(row, field.name) for row in rows) for field in fields(PoolStats)))


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One block of a segment. requested is 0 unless the block is in use; waiting: free, but not yet to be reused."""

    offset: int
    size: int
    requested: int
    state: Literal["in use", "cached", "waiting"]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One driver allocation and the blocks it is cut into, in order of offset and without gaps."""

    size: int
    small: bool
    stream: object
    blocks: tuple[BlockInfo, ...]


def default_limit(device_memory: int | None = None) -> int:
    """What pools over host memory may reserve at most, in bytes: nine tenths of the least of what bounds it.

    Those bounds are the device's own size (`device_memory`, where the driver tells one), the limits of this process's
    control groups, and the machine's memory. Drivers over host memory overcommit: past the limit of a control group
    the process is killed and nothing raises, so the pool has to know it.
    """
    bound = host_memory()
    if device_memory is not None:
        bound = min(bound, device_memory)
    return int(bound * _SHARE)


def host_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory this process can have.

    That is the machine's memory, or less where a control group (v1 or v2) or the limit of the process's address space
    (`ulimit -v`) says so.
    """
    bounds = control_groups.memory_limits(root)
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        bounds.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ImportError, ValueError, OSError):
        import resource  # of POSIX

        bounds.append(resource.getrlimit(resource.RLIMIT_AS)[0])  # negative where there is none
    return min((bound for bound in bounds if bound > 0), default=1 << 63)
