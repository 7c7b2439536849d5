"""The memory budget of a device: a limit over the pools of its streams, and the lock that they share."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from .errors import ArgumentError
from .memory_stats import PoolStats

if TYPE_CHECKING:
    from .call_types import Memory
    from .pool import Pool

__all__ = ["Budget", "Event", "MemorySource"]

_log = logging.getLogger(__name__)


class MemorySource(Protocol):
    """The driver's allocator, as a backend provides it.

    Its methods are called with the budget's lock held, while a pool's lists are being changed: they must not allocate
    from a pool or free into one.

    A source may also have a method `trim() -> None`. The budget calls it once after it has released several segments,
    for allocators such as malloc that keep freed memory in the process.
    """

    def allocate(self, nbytes: int) -> Memory:
        """Return a handle to new memory, aligned as the backend's kernels need.

        Args:
            nbytes: The size, at least 1.

        Raises:
            MemoryError: The driver refuses.
        """

    def release(self, handle: Memory) -> None:
        """Free memory that `allocate` returned. The budget calls `synchronize` before, so no launch still uses it."""

    def synchronize(self) -> None:
        """Wait for everything launched on the device, on every stream."""


class Event(Protocol):
    """A point in a stream's queue: what a pool needs to know when another stream has finished with a block."""

    def query(self) -> bool:
        """Return True if the work before the event is done."""

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""


class Budget:
    """The memory that a device's pools may hold together, and the lock that they share.

    Args:
        limit: As the attribute.

    Attributes:
        limit: Bytes; None for no limit except the driver's.
        reserved: Bytes held from the driver now. At most `limit`, unless it was set below what live tensors hold.
        pools: Weak references to the device's pools.
        lock: Guards the budget and all its pools.
        is_changing_lists: True while a thread that holds the lock changes the lists of blocks.
        pending_release: Segments to release, as (source, handle, bytes). Any thread may append without the lock.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.reserved = 0
        self.pools: WeakSet[Pool] = WeakSet()
        # One lock per device, not per pool: when memory runs out, a pool empties the others, and two pools that did so
        # at once would deadlock. It is reentrant, because a garbage collection inside `allocate` may run a finalizer
        # that allocates. The inner call sees `is_changing_lists` and leaves the lists alone.
        self.lock = threading.RLock()
        self.is_changing_lists = False
        self.pending_release: deque[tuple[MemorySource, Memory, int]] = deque()
        with _budgets_lock:
            _budgets.add(self)

    def set_limit(self, limit: int | None) -> None:
        """Set the limit. If more is reserved, release cached memory; live tensors keep theirs.

        Args:
            limit: Bytes, at least 0; None for no limit except the driver's.

        Raises:
            ArgumentError: The limit is negative.
        """
        if limit is not None and limit < 0:
            raise ArgumentError(f"a memory limit is a number of bytes or None, not {limit}")
        with self.lock:
            self.limit = limit
            if limit is not None and self.reserved > limit:
                self.empty_cache()

    def empty_cache(self) -> int:
        """Wait for the device and release the cached segments of all pools.

        Returns:
            The number of bytes released. 0 if a finalizer calls this while its thread is changing the lists.
        """
        with self.lock:
            if self.is_changing_lists:
                return 0
            self.is_changing_lists = True
            try:
                return self._release_cached(list(self.pools))
            finally:
                self.is_changing_lists = False

    def stats(self) -> PoolStats:
        """Return the sums of the pools' counters."""
        with self.lock:
            return PoolStats.total(pool.stats() for pool in list(self.pools))

    def _release_cached(self, pools: list[Pool]) -> int:
        """Release the free segments of `pools` and all of `pending_release`; return the number of bytes released."""
        for pool in pools:
            pool._drain()
            pool._settle(wait=False)
            pool._merge()
            pool._retire_segments()
        segments = [self.pending_release.popleft() for _ in range(len(self.pending_release))]
        if not segments:
            return 0
        sources = list(dict.fromkeys(source for source, _, _ in segments))  # in the order of the segments
        released = visited = 0
        try:
            for source in sources:
                source.synchronize()
            for source, handle, size in segments:
                visited += 1
                released += self._release_segment(source, handle, size)
        finally:  # after an interrupt, the other segments stay pending
            self.pending_release.extend(segments[visited:])
        for source in sources:
            if hasattr(source, "trim"):
                source.trim()
        return released

    def _release_segment(self, source: MemorySource, handle: Memory, size: int) -> int:
        """Release one segment; return its bytes, or 0 if the driver fails."""
        try:
            source.release(handle)
        except Exception:
            # The driver may still hold the memory: it stays counted, is not reused, and is released later.
            _log.exception("releasing a segment of %d bytes failed; it will be tried again", size)
            self.pending_release.append((source, handle, size))
            return 0
        self.reserved -= size
        return size


# A child of os.fork() has only the thread that forked: a lock that another thread held would stay locked forever. So
# all locks are taken before a fork.
_budgets: WeakSet[Budget] = WeakSet()
_budgets_lock = threading.RLock()
_locked_budgets: list[Budget] = []  # strong references: a budget must not vanish while its lock is held


def _lock_budgets() -> None:
    _budgets_lock.acquire()
    _locked_budgets[:] = _budgets
    for budget in _locked_budgets:
        budget.lock.acquire()


def _unlock_budgets() -> None:
    for budget in _locked_budgets:
        budget.lock.release()
    _locked_budgets.clear()
    _budgets_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock_budgets, after_in_parent=_unlock_budgets, after_in_child=_unlock_budgets)
