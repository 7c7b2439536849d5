"""Memory that is only numbers: a source for tests of the pool, with failures to order.

Needs nothing and runs no kernels. `launch` says that work uses a segment; releasing one whose work was not waited for,
releasing twice, or calling from two threads at once is noted in `violations`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FakeEvent", "FakeSegment", "FakeSource"]

_PAGE = 1 << 12


@dataclass(frozen=True, slots=True)
class FakeSegment:
    """Addresses `[address, address + size)`; those of two segments never overlap, not even over time."""

    address: int
    size: int


class FakeSource:
    """A device's memory of `capacity` bytes.

    fail_allocations, fail_releases: which calls fail, counted from 1; they raise `MemoryError` and `RuntimeError`.
    on_allocate: called in the middle of every allocation, for instance to collect garbage there.
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
        """Raises `MemoryError` past the capacity, or when told to."""
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
        """Raises `RuntimeError` when told to; the segment then stays."""
        self.release_calls += 1
        if self.release_calls in self.fail_releases:
            raise RuntimeError(f"release {self.release_calls} was told to fail")
        if handle not in self.live:
            self.violations.append(f"{handle} released twice")
        if handle in self.busy:
            self.violations.append(f"{handle} released while work uses it")
        self.live.discard(handle)

    def synchronize(self) -> None:
        """All launched work is done."""
        self.synchronize_calls += 1
        self.busy.clear()

    def launch(self, segment: FakeSegment) -> None:
        """Work that uses `segment` is queued, and stays so until `synchronize`."""
        self.busy.add(segment)


class FakeEvent:
    """An event that completes when told to, or when waited for."""

    def __init__(self, done: bool = False) -> None:
        self.done = done
        self.waits = 0

    def query(self) -> bool:
        """Whether it is complete."""
        return self.done

    def synchronize(self) -> None:
        """Complete it."""
        self.waits += 1
        self.done = True
