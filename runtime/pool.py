"""The caching allocator, shared by all backends.

A backend provides a `MemorySource`. A device has one `Budget`. Each of its streams has a `Pool`, which hands out
`Block`s. The docstring of `Pool` describes the algorithm.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

from .blocks import Block, Runs, Segment
from .budget import Budget, Event, MemorySource
from .errors import ArgumentError, OutOfMemoryError
from .memory_stats import BlockInfo, PoolStats, SegmentInfo
from .rehearsal import Plan, Rehearsal

__all__ = ["Block", "Budget", "Event", "MemorySource", "Pool", "Segment"]

_log = logging.getLogger(__name__)

_BLOCK_ALIGNMENT = 512  # bytes; every block's offset and size is a multiple
_SEGMENT_QUANTUM = 4 << 10  # bytes; every segment's size is a multiple
_MIN_SEGMENT_BYTES = 64 << 10
_MAX_SEGMENT_GROWTH = {True: 2 << 20, False: 20 << 20}  # by `small`, in bytes; a larger request sets its own size
_GROWTH_DIVISOR = 8  # a new segment has 1/8 of the pool's bytes of its kind, or the size of a larger request
# A small request has at most _MAX_SMALL_REQUEST bytes and at most 1 / _SMALL_REQUEST_DIVISOR of the reserved bytes.
_MAX_SMALL_REQUEST = 64 << 10
_SMALL_REQUEST_DIVISOR = 1024
_EAGER_MERGES = 512  # after this many allocations without a new segment, merging becomes lazy
_MAX_RESERVED_RATIO = 1.3  # before reserving more than this multiple of the peak in use, release free segments
_MAX_TRIMS_PER_PEAK = 3  # at most this many such releases until the peak rises, so that repeating programs stop


class PoolStream(Protocol):
    """What the pool's owner may ask of the stream that uses the pool."""

    def synchronize(self) -> None: ...


class Pool:
    """The memory of one stream: blocks are reused without driver calls.

    The algorithm is that of PyTorch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp) with the exact-size
    free lists of CuPy's memory pool (cupy/cuda/memory.pyx) in front; Doug Lea's malloc calls these fast bins.

    1.  Sizes are rounded up to multiples of 512 bytes. The driver allocates segments. Each segment is a chain of blocks
        without gaps.
    2.  `free` only appends the block to a deque. It runs in finalizers, on any thread and at any point of the program,
        so it must not take a lock. All other methods hold the budget's lock and drain the deque first.
    3.  A drained block goes into the bin of its exact size, and `allocate` pops the last block of the bin. A program
        that repeats its sizes needs no more than this. Memory is reused immediately: a stream runs its work in order,
        so the next launch on the block starts after all earlier ones. No launches have to be counted.
    4.  If the bin is empty, the blocks of all bins move into one sorted list, each merged with its free neighbours.
        Best fit takes the smallest block that is large enough; among equals, the one in the oldest segment at the
        lowest offset. Its front is handed out, the remainder stays. PyTorch hands out a large block whole if less than
        1 MiB would remain; here it is always cut, because bins need exact sizes.
    5.  Merging becomes lazy if the pool has not grown for 512 allocations: best fit runs first, and blocks are merged
        only if nothing fits. (If the pool then grows, the number doubles.) Eager merging leaves the fewest holes, which
        matters while the pool grows. But it empties the bins, so that most requests of a repeating program would miss.
        Lazy merging lets the bins fill with just the blocks that the program needs. In both cases everything is merged
        before the driver is asked, so lazy merging costs no memory.
    6.  If nothing fits, the driver allocates a segment. PyTorch's segments have 2 MiB for requests up to 1 MiB, else
        20 MiB. Here 2 and 20 MiB are upper bounds: a segment has an eighth of the pool's bytes, because a model of
        1 MiB should not reserve 22 MiB. A larger request gets a segment of its own, rounded up by at most a sixteenth.
        Small requests have separate segments, so that long-lived small blocks do not pin large segments. A request is
        small up to 1/1024 of the reserved bytes, and at most 64 KiB. With a fixed 1 MiB, small models would reserve 1.5
        times the memory that they use.
        If the pool would reserve more than 1.3 times its peak in use, its free segments (pieces of the wrong size, left
        over from growth) are released first, and the new segment is as small as possible. This happens at most three
        times per peak. So a repeating program stops calling the driver, even if it needs more than 1.3 times the peak.
    7.  A training loop repeats itself from its second step on, and the second step needs more than the first. So the
        allocations of an optimizer's first step are recorded (`rehearsal`), and the memory of the next step is computed
        and allocated in advance; later steps then need no driver calls. This plan holds until the pool grows again. It
        may give the largest sizes no bins, to save memory: blocks of these sizes are merged at the next search. Best
        fit looks in small and large segments before the bins are merged.
    8.  If the driver has no memory left, or the budget's limit would be exceeded, the pool tries in turn: allocate a
        segment of just the request; wait for blocks that other streams use (`record_stream`) and try best fit; wait for
        the device, release this pool's free segments and ask the driver again; do so for all pools of the budget; try
        best fit among the segments of the other kind (small or large). Then it raises `OutOfMemoryError`.

    `record_stream` announces that a second stream reads a block. After it is freed, such a block is not reused before
    the events recorded on that stream are complete. Segments are released only after the device has finished.

    Args:
        source: The driver's allocator.
        budget: The device's budget.
        stream: The stream that uses the blocks; `snapshot` reports it.
        device_name: Name for error messages.
    """

    __slots__ = (
        "__dict__", "__weakref__", "_allocated", "_allocated_peak", "_allocations", "_bins", "_budget",
        "_driver_allocations", "_driver_frees", "_freed", "_lazy_from", "_lock", "_loose", "_marked", "_patience",
        "_plan", "_reserved", "_reserved_peak", "_retries", "_runs", "_segments", "_serial", "_source", "_sweep_at",
        "_trimmed_peak", "_trims", "_waiting", "device_name", "free", "rehearsal", "stream",
    )  # fmt: skip

    free: Callable[[Block], None]
    """Free a block. Callable from any thread and any finalizer: never waits, never raises. Free each block once."""

    def __init__(
        self, source: MemorySource, budget: Budget, stream: PoolStream | None = None, device_name: str = ""
    ) -> None:
        self._segments: dict[Segment, None] = {}  # ordered set
        self._budget = budget
        self._source = source
        self.stream = stream
        self.device_name = device_name
        self._lock = budget.lock
        self._freed: deque[Block] = deque()
        self.free = self._freed.append  # without a Python frame: see 2. in the class docstring
        self._bins: dict[int, list[Block]] = {}
        self._runs = Runs()
        self._loose: list[Block] = []  # freed blocks without a bin, merged at the next search
        self._plan: Plan | None = None
        self.rehearsal: Rehearsal | None = None
        self._marked: list[Block] = []  # freed blocks that other streams used, their events not recorded yet
        self._waiting: list[tuple[Block, list[Event]]] = []  # freed blocks whose events are not complete
        self._serial = 0
        self._reserved = {True: 0, False: 0}
        self._patience = _EAGER_MERGES
        self._lazy_from = 0  # the allocation from which on merging is lazy
        self._sweep_at = 64  # the number of bins at which unused bins are removed
        self._trims = 0
        self._trimmed_peak = 0
        self._reserved_peak = 0
        self._allocated = 0
        self._allocated_peak = 0
        self._allocations = 0
        self._driver_allocations = 0
        self._driver_frees = 0
        self._retries = 0
        with self._lock:
            budget.pools.add(self)

    def __del__(self) -> None:
        for segment in getattr(self, "_segments", ()):  # a finalizer must not lock, so it cannot call the driver
            self._budget.pending_release.append((self._source, segment.handle, segment.size))

    def allocate(self, nbytes: int) -> Block:
        """Return a block for work on this pool's stream; its content is undefined.

        Args:
            nbytes: At least 1.

        Raises:
            OutOfMemoryError: The request does not fit even after cached memory was released.
        """
        with self._lock:
            # `_drain`, inlined: the call would take a sixth of the time.
            freed = self._freed
            while freed:
                block = freed.popleft()
                if block.requested:
                    block.requested = 0
                    self._allocated -= block.size
                    block.bin.append(block)
                else:
                    _log.error("%r was freed twice", block)
            bin = self._bins.get((nbytes + 511) & -512)  # _BLOCK_ALIGNMENT as a literal, for speed
            block = bin.pop() if bin else self._search(nbytes)
            block.requested = nbytes
            self._allocations += 1
            allocated = self._allocated = self._allocated + block.size
            if allocated > self._allocated_peak:
                self._allocated_peak = allocated
            return block

    def record_stream(self, block: Block, mark: Event | Callable[[], Event]) -> None:
        """Delay the reuse of `block`, after it is freed, until another stream's work on it is done.

        Args:
            block: The block.
            mark: An event recorded after that work, or a function that records one. The pool calls the function, on any
                thread, when it next searches for memory after the block was freed.
        """
        with self._lock:
            if block.marks is None:
                block.marks = []
                block.bin = self._marked
            if mark not in block.marks:
                block.marks.append(mark)

    def empty_cache(self) -> int:
        """Wait for the device, release free segments to the driver, and return the number of bytes released."""
        budget = self._budget
        with self._lock:
            if budget.is_changing_lists:
                return 0
            budget.is_changing_lists = True
            try:
                return budget._release_cached([self])
            finally:
                budget.is_changing_lists = False

    def stats(self) -> PoolStats:
        """Return the current counters. A block counts as free as soon as `free` was called."""
        with self._lock:
            self._drain()
            reserved = sum(self._reserved.values())
            return PoolStats(
                allocated=self._allocated,
                allocated_peak=self._allocated_peak,
                requested=sum(block.requested for block in self._blocks()),
                reserved=reserved,
                reserved_peak=self._reserved_peak,
                cached=reserved - self._allocated,
                waiting=sum(block.size for block in self._marked) + sum(block.size for block, _ in self._waiting),
                allocations=self._allocations,
                driver_allocations=self._driver_allocations,
                driver_frees=self._driver_frees,
                retries=self._retries,
            )

    def snapshot(self) -> list[SegmentInfo]:
        """Return every segment with its blocks, the oldest segment first."""
        with self._lock:
            self._drain()
            waiting = {*self._marked, *(block for block, _ in self._waiting)}
            infos = []
            for segment in list(self._segments):
                blocks = []
                current: Block | None = segment.first
                while current is not None:
                    state: Literal["in use", "waiting", "cached"] = "waiting" if current in waiting else "cached"
                    if current.requested:
                        state = "in use"
                    blocks.append(BlockInfo(current.offset, current.size, current.requested, state))
                    current = current.next
                infos.append(SegmentInfo(segment.size, segment.small, self.stream, tuple(blocks)))
            return infos

    def reset_peak(self) -> None:
        """Reset the peaks of allocated and of reserved bytes to their current values."""
        with self._lock:
            self._drain()
            self._allocated_peak = self._allocated
            self._reserved_peak = sum(self._reserved.values())

    # --- Everything below runs with the budget's lock held. -----------------------------------------------------------

    def _drain(self) -> None:
        freed = self._freed
        while freed:
            block = freed.popleft()
            if block.requested:
                block.requested = 0
                self._allocated -= block.size
                block.bin.append(block)
            else:
                _log.error("%r was freed twice", block)

    def _blocks(self) -> list[Block]:
        blocks = []
        for segment in list(self._segments):
            block: Block | None = segment.first
            while block is not None:
                blocks.append(block)
                block = block.next
        return blocks

    def _search(self, nbytes: int) -> Block:
        """Find a block when its bin is empty: steps 4 to 8 of the class docstring."""
        if nbytes <= 0:
            raise ArgumentError(f"a block has at least one byte, not {nbytes}: empty tensors own none")
        size = (nbytes + _BLOCK_ALIGNMENT - 1) & -_BLOCK_ALIGNMENT
        budget = self._budget
        if budget.is_changing_lists:
            # A finalizer runs inside a search on this thread and allocates. The search is changing the lists, so use a
            # new segment instead.
            block = self._new_segment(size, size)
            if block is None:
                raise self._out_of_memory(nbytes)
        else:
            budget.is_changing_lists = True
            try:
                block = self._find(size) or self._find_after_freeing(size)
                if block is None:
                    raise self._out_of_memory(nbytes)
            finally:
                budget.is_changing_lists = False
        block.bin = self._bin_of(size)
        return block

    def _bin_of(self, size: int) -> list[Block]:
        """Return the list for freed blocks of `size`: their bin, or `_loose` if the plan gives the size no bin."""
        plan = self._plan
        return self._bins.setdefault(size, []) if plan is None or plan.has_bin(size) else self._loose

    def _find(self, size: int) -> Block | None:
        """Find a block among the free ones or in a new segment: steps 4 to 7 of the class docstring."""
        if self._marked or self._waiting:
            self._settle(wait=False)
            bin = self._bins.get(size)
            if bin:
                return bin.pop()
        while self._loose:
            self._runs.merge(self._loose.pop())
        is_merging_lazy = self._plan is not None or self._allocations >= self._lazy_from
        block = self._fit(size) if is_merging_lazy else None
        if block is None:
            self._merge()
            block = self._fit(size)
        if block is None:
            self._plan = None
            self._trim(size)
            if self._budget.pending_release:  # segments of deleted streams
                self._budget._release_cached([])
            segment_size = self._segment_size(size)
            block = self._new_segment(segment_size, size)
            if block is None and segment_size > size:
                block = self._new_segment(size, size)
        return block

    def _fit(self, size: int) -> Block | None:
        """Return the best fit among segments of the request's kind; with a plan, also of the other kind."""
        small = self._is_small(size)
        block = self._runs.best_fit(size, small)
        return self._runs.best_fit(size, not small) if block is None and self._plan is not None else block

    def _is_small(self, size: int) -> bool:
        if self._plan is not None:
            return size <= self._plan.max_spare_request
        return size <= min(_MAX_SMALL_REQUEST, (self._reserved[True] + self._reserved[False]) // _SMALL_REQUEST_DIVISOR)

    def _trim(self, size: int) -> None:
        """Release free segments if growing would reserve more than `_MAX_RESERVED_RATIO` times the peak in use."""
        peak = max(self._allocated_peak, self._allocated + size)
        if peak > self._trimmed_peak:
            self._trimmed_peak, self._trims = peak, 0
        reserved = self._reserved[True] + self._reserved[False]
        if self._trims < _MAX_TRIMS_PER_PEAK and reserved + self._segment_size(size) > _MAX_RESERVED_RATIO * peak:
            self._trims += self._budget._release_cached([self]) > 0

    def _find_after_freeing(self, size: int) -> Block | None:
        """Find a block when the driver or the budget refused a segment: step 8 of the class docstring."""
        budget = self._budget
        small = self._is_small(size)
        self._retries += 1
        if self._marked or self._waiting:
            self._settle(wait=True)
            self._merge()
            block = self._runs.best_fit(size, small)
            if block is not None:
                return block
        block = None
        if budget._release_cached([self]):
            block = self._new_segment(size, size)
        if block is None:
            pools = list(budget.pools)
            for pool in pools:
                pool._drain()
                pool._settle(wait=True)
            if not budget._release_cached(pools):
                self._source.synchronize()  # drivers delay releases while work is queued
            block = self._new_segment(size, size)
        if block is None:  # another thread may have freed something while this one waited
            self._drain()
            self._merge()
            block = self._runs.best_fit(size, small)
        return block or self._runs.best_fit(size, not small)

    def _merge(self) -> None:
        """Move the blocks of all bins into the sorted list, merged with their neighbours."""
        merge = self._runs.merge
        for bin in [self._loose, *self._bins.values()]:
            while bin:
                merge(bin.pop())
        if len(self._bins) >= self._sweep_at:
            self._sweep_bins()
            self._sweep_at = 64 + 2 * len(self._bins)

    def _sweep_bins(self) -> None:
        """Remove the bins of sizes that no block in use has. Sizes that never recur (ragged batches) would pile up."""
        old_bins, self._bins = self._bins, {}
        for block in self._blocks():
            if block.requested and block.marks is None:
                block.bin = self._bin_of(block.size)
        for size, bin in old_bins.items():  # not all empty if a finalizer that ran meanwhile drained blocks into them
            for block in bin:
                block.bin = self._bins.setdefault(size, [])
                block.bin.append(block)

    def _settle(self, wait: bool) -> None:
        """Move freed blocks that other streams used into their bins, once their events are complete.

        Args:
            wait: Wait for all events. Otherwise blocks with incomplete events stay in `_waiting`.
        """
        while self._marked:
            block = self._marked.pop()
            marks, block.marks = block.marks or [], None
            events: list[Event] = []
            try:
                for mark in marks:
                    events.append(mark() if callable(mark) else mark)
            except Exception:
                _log.exception("recording an event failed; waiting for the device instead")
                self._source.synchronize()
                events = []
            self._waiting.append((block, events))
        waiting, self._waiting = self._waiting, []
        for block, events in waiting:
            try:
                if wait:
                    for event in events:
                        event.synchronize()
                    incomplete = []
                else:
                    incomplete = [event for event in events if not event.query()]
            except Exception:
                _log.exception("asking an event failed; waiting for the device instead")
                self._source.synchronize()
                incomplete = []
            if incomplete:
                self._waiting.append((block, incomplete))
            else:
                block.bin = self._bin_of(block.size)
                block.bin.append(block)

    def _segment_size(self, size: int) -> int:
        """Return the size in bytes of a new segment for a request of `size` bytes: step 6 of the class docstring."""
        small = self._is_small(size)
        growth = min(self._reserved[small] // _GROWTH_DIVISOR, _MAX_SEGMENT_GROWTH[small])
        peak = max(self._allocated_peak, self._allocated + size)
        headroom = int(_MAX_RESERVED_RATIO * peak) - self._reserved[True] - self._reserved[False]
        segment_size = max(size, min(growth, headroom), _MIN_SEGMENT_BYTES)
        quantum = max(_SEGMENT_QUANTUM, 1 << (segment_size.bit_length() - 5))
        return -(-segment_size // quantum) * quantum

    def _new_segment(self, segment_size: int, size: int, small: bool | None = None) -> Block | None:
        """Return the first `size` bytes of a new segment; None if the budget's limit or the driver refuses it."""
        budget = self._budget
        if budget.limit is not None and budget.reserved + segment_size > budget.limit:
            return None
        budget.reserved += segment_size  # before the allocation, because a finalizer may allocate meanwhile
        try:
            handle = self._source.allocate(segment_size)
        except BaseException as error:
            budget.reserved -= segment_size
            if isinstance(error, MemoryError):
                return None
            raise
        if small is None:
            small = self._is_small(size)
        self._serial += 1
        if self._allocations >= self._lazy_from > 0:
            self._patience *= 2
        self._lazy_from = self._allocations + self._patience
        segment = Segment(handle, segment_size, small, self._serial)
        block = segment.first = Block(self, segment, 0, segment_size)
        self._segments[segment] = None
        self._driver_allocations += 1
        self._reserved[small] += segment_size
        self._reserved_peak = max(self._reserved_peak, sum(self._reserved.values()))
        self._runs.cut(block, size)
        return block

    def _retire_segments(self) -> None:
        """Move segments that consist of one free block to the budget's `pending_release`."""
        for segment in list(self._segments):
            block = segment.first
            if block.merged and block.next is None:
                self._runs.remove(block)
                del self._segments[segment]
                del segment.first  # breaks the reference cycle of segment and block
                self._reserved[segment.small] -= segment.size
                self._driver_frees += 1
                self._budget.pending_release.append((self._source, segment.handle, segment.size))

    def _out_of_memory(self, nbytes: int) -> OutOfMemoryError:
        budget = self._budget
        in_use = 0
        for pool in list(budget.pools):
            pool._drain()
            in_use += pool._allocated
        return OutOfMemoryError(nbytes, in_use, budget.reserved - in_use, budget.limit, self.device_name)
