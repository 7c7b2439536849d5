"""A memory source for tests of the pool: addresses without memory, and failures on demand.

It needs no device and runs no kernels. `launch` marks a segment as used by queued work. Releasing a segment while work
uses it, releasing it twice, and calls from two threads at once are recorded in `violations`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FakeEvent", "FakeSegment", "FakeSource"]

_PAGE = 1 << 12


@dataclass(frozen=True, slots=True)
class FakeSegment:
    """The addresses `[address, address + size)`. Addresses are never reused."""

    address: int
    size: int


class FakeSource:
    """A device's memory of `capacity` bytes.

    fail_allocations, fail_releases: numbers of the calls that fail, from 1, with `MemoryError` and `RuntimeError`.
    on_allocate: called in the middle of every allocation, for instance to run the garbage collector.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.fail_allocations: set[int] = set()
        self.fail_releases: set[int] = set()
        self.on_allocate: Callable[[], None] | None = None
        self.allocate_calls = 0
        self.release_calls = 0
        self.synchronize_calls = 0
        self.live: set[FakeSegment] = set()
        self.busy: set[FakeSegment] = set()
        self.violations: list[str] = []
        self._next_address = _PAGE
        self._thread: int | None = None

    @property
    def held(self) -> int:
        """Bytes allocated and not released."""
        return sum(segment.size for segment in self.live)

    def allocate(self, nbytes: int) -> FakeSegment:
        """Allocate a segment. Raise `MemoryError` above the capacity, or if this call is in `fail_allocations`."""
        self.allocate_calls += 1
        call, thread = self.allocate_calls, threading.get_ident()
        if self._thread not in (None, thread):
            self.violations.append("two threads in the source at once")
        self._thread = thread
        try:
            if self.on_allocate is not None:
                self.on_allocate()
        finally:
            self._thread = None
        if call in self.fail_allocations:
            raise MemoryError(f"allocation {call} was told to fail")
        if self.capacity is not None and self.held + nbytes > self.capacity:
            raise MemoryError(f"{nbytes} bytes over the capacity")
        segment = FakeSegment(self._next_address, nbytes)
        self._next_address += -(-nbytes // _PAGE) * _PAGE + _PAGE
        self.live.add(segment)
        return segment

    def release(self, handle: FakeSegment) -> None:
        """Release a segment. Raise `RuntimeError` if this call is in `fail_releases`; the segment then stays."""
        self.release_calls += 1
        if self.release_calls in self.fail_releases:
            raise RuntimeError(f"release {self.release_calls} was told to fail")
        if handle not in self.live:
            self.violations.append(f"{handle} released twice")
        if handle in self.busy:
            self.violations.append(f"{handle} released while work uses it")
        self.live.discard(handle)

    def synchronize(self) -> None:
        """Finish all launched work."""
        self.synchronize_calls += 1
        self.busy.clear()

    def launch(self, segment: FakeSegment) -> None:
        """Mark `segment` as used by queued work, until `synchronize`."""
        self.busy.add(segment)


class FakeEvent:
    """An event that completes when `done` is set or when it is waited for."""

    def __init__(self, done: bool = False) -> None:
        self.done = done
        self.waits = 0

    def query(self) -> bool:
        """Return True if it is complete."""
        return self.done

    def synchronize(self) -> None:
        """Complete it."""
        self.waits += 1
        self.done = True
