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
    """The driver's allocator, as a backend provides it. Called with the budget's lock held; must not use a pool."""

    def allocate(self, nbytes: int) -> Memory:
        """Return a handle to new memory, aligned as the backend's kernels need. Raises `MemoryError`."""

    def release(self, handle: Memory) -> None:
        """Free memory. Called right after `synchronize`, so no earlier launch is still running."""

    def synchronize(self) -> None:
        """Wait for everything launched on the device, on every stream."""

    # A source may also have `trim()`, called once after a batch of releases: for allocators such as malloc that keep
    # freed memory in the process.


class Event(Protocol):
    """A point in a stream's queue."""

    def query(self) -> bool:
        """Return True if the work before the event is done."""

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""


class Budget:
    """The memory that a device's pools may hold together, and the lock that they share.

    Attributes:
        limit: Bytes; None for no limit except the driver's.
        reserved: Bytes held from the driver now. At most `limit`, unless it was set below what live tensors hold.
        pools: Weak references to the device's pools.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.reserved = 0
        self.pools: WeakSet[Pool] = WeakSet()
        # One lock per device, not per pool: when memory runs out, a pool empties the others, and two pools that did so
        # at once would deadlock. It is reentrant, because a garbage collection inside `allocate` may run a finalizer
        # that allocates. `is_searching` tells this inner call that the outer one is changing the lists.
        self.lock = threading.RLock()
        self.is_searching = False
        # Segments that belong to no pool any more, to be released later. Any thread may append without the lock.
        self.pending_release: deque[tuple[MemorySource, Memory, int]] = deque()
        with _budgets_lock:
            _budgets.add(self)

    def set_limit(self, limit: int | None) -> None:
        """Set the limit in bytes, or None. If more is reserved, cached memory is freed; live tensors keep theirs."""
        if limit is not None and limit < 0:
            raise ArgumentError(f"a memory limit is a number of bytes or None, not {limit}")
        with self.lock:
            self.limit = limit
            if limit is not None and self.reserved > limit:
                self.empty_cache()

    def empty_cache(self) -> int:
        """Wait for the device, release the cached segments of all pools, and return the number of bytes released."""
        with self.lock:
            if self.is_searching:
                return 0
            self.is_searching = True
            try:
                return self._release_cached(list(self.pools))
            finally:
                self.is_searching = False

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
        batch = [self.pending_release.popleft() for _ in range(len(self.pending_release))]
        if not batch:
            return 0
        released = attempted = 0
        sources = dict.fromkeys(source for source, _, _ in batch)
        try:
            for source in sources:
                source.synchronize()
            for source, handle, size in batch:
                attempted += 1
                try:
                    source.release(handle)
                except Exception:
                    # The driver may still hold the memory: it stays counted, is not reused, and is released later.
                    _log.exception("releasing a segment of %d bytes failed; it will be tried again", size)
                    self.pending_release.append((source, handle, size))
                else:
                    self.reserved -= size
                    released += size
        finally:
            self.pending_release.extend(batch[attempted:])
        for source in sources:
            if hasattr(source, "trim"):
                source.trim()
        return released


# A child of os.fork() has only the thread that forked: a lock that another thread held would stay locked forever. So
# all locks are taken before a fork.
_budgets: WeakSet[Budget] = WeakSet()
_budgets_lock = threading.RLock()
_locked_budgets: list[Budget] = []


def _before_fork() -> None:
    _budgets_lock.acquire()
    _locked_budgets[:] = _budgets
    for budget in _locked_budgets:
        budget.lock.acquire()


def _after_fork() -> None:
    for budget in _locked_budgets:
        budget.lock.release()
    _locked_budgets.clear()
    _budgets_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
