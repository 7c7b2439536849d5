"""A device's share of memory: one `Budget` over the pools of its streams, and the lock they share."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from .errors import ArgumentError
from .memory_stats import PoolStats

if TYPE_CHECKING:
    from .pool import Pool

__all__ = ["Budget", "Event", "MemorySource"]

_log = logging.getLogger(__name__)


class MemorySource(Protocol):
    """What a backend gives. It is called with the budget's lock held, and must not allocate from a pool."""

    def allocate(self, nbytes: int) -> Any:
        """A handle to fresh memory, aligned as the backend's kernels need; `MemoryError` if there is none."""

    def release(self, handle: Any) -> None:
        """Give memory back. Called right after `synchronize`: nothing that was launched before is still running."""

    def synchronize(self) -> None:
        """Wait for everything launched on the device, on every stream."""

    # A source may also have `trim()`, which is called once after a batch of releases: for drivers whose allocator keeps
    # freed memory in the process.


class Event(Protocol):
    """A point in a stream's work."""

    def query(self) -> bool:
        """Whether the work before it is done."""

    def synchronize(self) -> None:
        """Wait until it is."""


class Budget:
    """How much a device's pools may hold from its driver together, and the lock they share.

    limit: bytes, `None` for no limit but the driver's. reserved: bytes held now, never above the limit, except after
    the limit was set below what live tensors hold. pools: the device's pools, weakly.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.reserved = 0
        self.pools: WeakSet[Pool] = WeakSet()
        # One lock a device and not one a pool: when memory runs out a pool empties the others, and two pools that
        # did so at once would wait for each other. Reentrant, because a garbage collection inside `allocate` may run
        # a finalizer that allocates; `searching` tells that call that the lists are being changed further up.
        self.lock = threading.RLock()
        self.searching = False
        # Segments no pool has any more, to be released at the next occasion. Any thread may append without the lock.
        self.leaving: deque[tuple[MemorySource, Any, int]] = deque()
        with _budgets_lock:
            _budgets.add(self)

    def set_limit(self, limit: int | None) -> None:
        """Change the limit; below what is reserved, cached memory is freed first. Live tensors keep theirs."""
        if limit is not None and limit < 0:
            raise ArgumentError(f"a memory limit is a number of bytes or None, not {limit}")
        with self.lock:
            self.limit = limit
            if limit is not None and self.reserved > limit:
                self.empty_cache()

    def empty_cache(self) -> int:
        """Wait for the device and give its pools' cached segments back; the number of bytes that went."""
        with self.lock:
            if self.searching:
                return 0
            self.searching = True
            try:
                return self._release_cached(list(self.pools))
            finally:
                self.searching = False

    def stats(self) -> PoolStats:
        """The pools' counters, summed."""
        with self.lock:
            return PoolStats.total(pool.stats() for pool in list(self.pools))

    def _release_cached(self, pools: list[Pool]) -> int:
        """Release what `pools` have free in whole segments, and what had left pools before; bytes."""
        for pool in pools:
            pool._drain()
            pool._settle(wait=False)
            pool._merge()
            pool._retire_segments()
        batch = [self.leaving.popleft() for _ in range(len(self.leaving))]
        if not batch:
            return 0
        released = done = 0
        sources = dict.fromkeys(source for source, _, _ in batch)
        try:
            for source in sources:
                source.synchronize()
            for source, handle, size in batch:
                done += 1
                try:
                    source.release(handle)
                except Exception:
                    # Its memory may still be taken, so it stays counted; nobody gets it again, and it is tried again.
                    _log.exception("releasing a segment of %d bytes failed; it will be tried again", size)
                    self.leaving.append((source, handle, size))
                else:
                    self.reserved -= size
                    released += size
        finally:
            self.leaving.extend(batch[done:])
        for source in sources:
            if hasattr(source, "trim"):
                source.trim()
        return released


# A child made by os.fork() has only the thread that forked: a lock another thread held would stay locked for good.
_budgets: WeakSet[Budget] = WeakSet()
_budgets_lock = threading.RLock()
_held: list[Budget] = []


def _before_fork() -> None:
    _budgets_lock.acquire()
    _held[:] = _budgets
    for budget in _held:
        budget.lock.acquire()


def _after_fork() -> None:
    for budget in _held:
        budget.lock.release()
    _held.clear()
    _budgets_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
