"""The caching allocator: one implementation, whatever the memory and the driver.

A backend brings a `MemorySource`; a device has one `Budget`; each of its streams has a `Pool`, which hands out
`Block`s. The algorithm is in the docstring of `Pool`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from .blocks import Block, Runs, Segment
from .budget import Budget, Event, MemorySource
from .errors import ArgumentError, OutOfMemoryError
from .memory_stats import BlockInfo, PoolStats, SegmentInfo
from .rehearsal import Plan, Rehearsal

__all__ = ["Block", "Budget", "Event", "MemorySource", "Pool", "Segment"]

_log = logging.getLogger(__name__)

_ROUND = 512  # bytes; every offset and every size is a multiple
_PAGE = 4 << 10  # segments are multiples
_LEAST = 64 << 10  # the least segment
_SEGMENT_CAP = {True: 2 << 20, False: 20 << 20}  # how far segments grow beyond a request, by small
_GROWTH = 8  # a new segment is an eighth of what the pool has of its kind, or the request itself if that is larger
_SMALL = 64 << 10  # the largest request that small segments serve,
_SMALL_SHARE = 1024  # and no more than this part of what the pool holds
_PATIENCE = 512  # allocations without a new segment before merging turns lazy
_SLACK = 1.3  # times the peak in use, beyond which free segments go back and growth is no more than a request
_TRIMS = 3  # times they do at one peak, so that a program that repeats itself comes to rest


class Pool:
    """Blocks of one stream's memory, reused without asking the driver.

    The algorithm is that of PyTorch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp) with the exact-size
    free lists of CuPy's memory pool (cupy/cuda/memory.pyx) in front, which are what Doug Lea's malloc calls fast bins.

    1.  Sizes are rounded up to 512 bytes. Memory comes from the driver in segments, each a gapless chain of blocks.
    2.  `free` appends the block to a deque and does nothing else. It runs in finalizers: on any thread, between any two
        steps of anything, so it takes no lock. Everything else holds the lock of the budget and drains the deque first.
    3.  A drained block goes to the bin of its exact size, and `allocate` takes the last one out of the bin. A program
        that repeats its sizes never gets further than this. Memory is reused at once: work on one stream runs in order,
        so what is launched next on the block runs after everything launched on it before. No launch is ever counted.
    4.  If the bin is empty, all bins are, into one sorted list, merging each block with its free neighbours. Best fit:
        the smallest block in the list that is large enough, of the oldest segment and the lowest offset among equals.
        Its front is handed out, the remainder stays. PyTorch hands out a large block whole if less than 1 MiB would
        remain; here it is always cut, since bins need exact sizes.
    5.  Once the pool has not grown for a while (512 allocations, twice as many after each relapse), best fit comes
        before merging, which follows only if nothing fits. Merging first leaves the fewest holes, which is what counts
        while the pool grows; but it empties the bins, so most requests of a program that repeats itself would miss.
        Merging last lets the bins fill with just the blocks the program needs. Either way everything is merged before
        the driver is asked, so that no laziness costs memory.
    6.  If nothing fits, the driver is asked for a segment. PyTorch's are of 2 MiB for requests up to 1 MiB, else of
        20 MiB. These grow up to that, being an eighth of what the pool has, because a model of 1 MiB should not hold
        22; a request above that gets a segment of its own, rounded up by at most a sixteenth. Small requests have
        segments apart, so that long-lived ones do not pin large segments, but small is relative too: up to 1/1024 of
        what is held, at most 64 KiB. With a fixed 1 MiB, small models reserve 1.5 times what they use.
        If the pool would come to hold more than 1.3 times its peak in use, its free segments go back first (pieces of
        the wrong size, left from growing), and the new one is no larger than it must be. They go three times at one
        peak at most: a program that repeats itself comes to rest, even one that cannot do with 1.3.
    7.  A training loop repeats itself from its second step on, and that one needs more than the first. So what an
        optimizer's first step takes is recorded (`rehearsal`), and what the next one will take is computed and asked
        of the driver at once, which no later step has to do then. Until the pool must grow after all, sizes of which
        there would be too many blocks have no bins but are merged at the next search, and best fit looks in both kinds
        of segments before anything is merged.
    8.  If the driver has no more, or the budget's limit would be passed: a segment of just the request; then wait for
        blocks that other streams use (`record_stream`) and try best fit; then wait for the device, give back this
        pool's free segments and ask again; then those of all pools of the budget, and ask again; then best fit among
        the blocks of the other kind; then `OutOfMemoryError`.

    A block that a second stream reads is announced with `record_stream`: when freed it goes to no bin before the
    events recorded on that stream are complete. Segments go back to the driver only after the device has finished.

    source: where segments come from. budget: the device's. stream: whose work uses the blocks, told in `snapshot`.
    device_name: for messages.
    """

    __slots__ = (
        "__dict__", "__weakref__", "_allocated", "_allocated_peak", "_allocations", "_bins", "_budget",
        "_driver_allocations", "_driver_frees", "_freed", "_lazy_from", "_lock", "_loose", "_marked", "_patience",
        "_plan", "_reserved", "_reserved_peak", "_retries", "_runs", "_segments", "_serial", "_source", "_sweep_at",
        "_trimmed_peak", "_trims", "_waiting", "device_name", "free", "rehearsal", "stream",
    )  # fmt: skip

    free: Callable[[Block], None]
    """Take a block back, once. From any thread and any finalizer: never waits, never raises."""

    def __init__(self, source: MemorySource, budget: Budget, stream: Any = None, device_name: str = "") -> None:
        self._segments: dict[Segment, None] = {}  # ordered set
        self._budget = budget
        self._source = source
        self.stream = stream
        self.device_name = device_name
        self._lock = budget.lock
        self._freed: deque[Block] = deque()
        self.free = self._freed.append  # no Python frame: 2 in the class docstring is literally true
        self._bins: dict[int, list[Block]] = {}
        self._runs = Runs()
        self._loose: list[Block] = []  # freed, and merged at the next search
        self._plan: Plan | None = None
        self.rehearsal: Rehearsal | None = None
        self._marked: list[Block] = []  # freed, and their events not made yet
        self._waiting: list[tuple[Block, list[Event]]] = []  # freed, and their events not complete
        self._serial = 0
        self._reserved = {True: 0, False: 0}
        self._patience = _PATIENCE
        self._lazy_from = 0  # the allocation from which on merging is lazy
        self._sweep_at = 64  # the number of bins at which forgotten ones are swept
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
        for segment in getattr(self, "_segments", ()):  # in a finalizer: no lock, so no driver either
            self._budget.leaving.append((self._source, segment.handle, segment.size))

    def allocate(self, nbytes: int) -> Block:
        """A block of at least `nbytes` > 0 bytes for work on this pool's stream; its content is undefined.

        Raises `OutOfMemoryError` when cached memory was given up and it still does not fit.
        """
        with self._lock:
            # `_drain`, written out: the call would be a sixth of the time.
            freed = self._freed
            while freed:
                block = freed.popleft()
                if block.requested:
                    block.requested = 0
                    self._allocated -= block.size
                    block.bin.append(block)
                else:
                    _log.error("%r was freed twice", block)
            bin = self._bins.get((nbytes + 511) & -512)
            block = bin.pop() if bin else self._search(nbytes)
            block.requested = nbytes
            self._allocations += 1
            allocated = self._allocated = self._allocated + block.size
            if allocated > self._allocated_peak:
                self._allocated_peak = allocated
            return block

    def record_stream(self, block: Block, mark: Event | Callable[[], Event]) -> None:
        """Keep `block`, once freed, from reuse until another stream's work on it is done.

        mark: an event already recorded behind that work, or a function that records one. The function is called when
        the pool next looks for memory after the block was freed, on whatever thread that is.
        """
        with self._lock:
            if block.marks is None:
                block.marks = []
                block.bin = self._marked
            if mark not in block.marks:
                block.marks.append(mark)

    def empty_cache(self) -> int:
        """Wait for the device and give free segments back to the driver; the number of bytes that went."""
        budget = self._budget
        with self._lock:
            if budget.searching:
                return 0
            budget.searching = True
            try:
                return budget._release_cached([self])
            finally:
                budget.searching = False

    def stats(self) -> PoolStats:
        """Counters now. Blocks count as free from the moment they were freed."""
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
        """Every segment with its blocks, oldest first."""
        with self._lock:
            self._drain()
            waiting = {*self._marked, *(block for block, _ in self._waiting)}
            infos = []
            for segment in list(self._segments):
                blocks = []
                at: Block | None = segment.first
                while at is not None:
                    state = "in use" if at.requested else "waiting" if at in waiting else "cached"
                    blocks.append(BlockInfo(at.offset, at.size, at.requested, state))  # type: ignore[arg-type]
                    at = at.next
                infos.append(SegmentInfo(segment.size, segment.small, self.stream, tuple(blocks)))
            return infos

    def reset_peak(self) -> None:
        """Let both peaks begin again at what is held now."""
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
            at: Block | None = segment.first
            while at is not None:
                blocks.append(at)
                at = at.next
        return blocks

    def _search(self, nbytes: int) -> Block:
        """Steps 4 to 7: a block whose size is not in its bin."""
        if nbytes <= 0:
            raise ArgumentError(f"a block has at least one byte, not {nbytes}: empty tensors own none")
        size = (nbytes + _ROUND - 1) & -_ROUND
        budget = self._budget
        if budget.searching:
            # A finalizer allocates, and a search further up this thread's stack is changing the lists: keep off.
            block = self._new_segment(size, size)
            if block is None:
                raise self._out_of_memory(nbytes)
        else:
            budget.searching = True
            try:
                block = self._find(size) or self._find_after_freeing(size)
                if block is None:
                    raise self._out_of_memory(nbytes)
            finally:
                budget.searching = False
        block.bin = self._home(size)
        return block

    def _home(self, size: int) -> list[Block]:
        """Where a block of `size` goes when freed: its bin, or the list of what is merged at the next search."""
        plan = self._plan
        return self._bins.setdefault(size, []) if plan is None or plan.bins(size) else self._loose

    def _find(self, size: int) -> Block | None:
        if self._marked or self._waiting:
            self._settle(wait=False)
            bin = self._bins.get(size)
            if bin:
                return bin.pop()
        while self._loose:
            self._runs.join(self._loose.pop())
        lazy = self._plan is not None or self._allocations >= self._lazy_from
        block = self._fit(size) if lazy else None
        if block is None:
            self._merge()
            block = self._fit(size)
        if block is None:
            self._plan = None
            self._trim(size)
            if self._budget.leaving:  # segments of streams that are gone
                self._budget._release_cached([])
            grown = self._segment_size(size)
            block = self._new_segment(grown, size)
            if block is None and grown > size:
                block = self._new_segment(size, size)
        return block

    def _fit(self, size: int) -> Block | None:
        small = self._is_small(size)
        block = self._runs.best_fit(size, small)
        return self._runs.best_fit(size, not small) if block is None and self._plan is not None else block

    def _is_small(self, size: int) -> bool:
        if self._plan is not None:
            return size <= self._plan.small
        return size <= min(_SMALL, (self._reserved[True] + self._reserved[False]) // _SMALL_SHARE)

    def _trim(self, size: int) -> None:
        """Before growing: give free segments back if more than `_SLACK` times the peak would be held otherwise."""
        peak = max(self._allocated_peak, self._allocated + size)
        if peak > self._trimmed_peak:
            self._trimmed_peak, self._trims = peak, 0
        held = self._reserved[True] + self._reserved[False]
        if self._trims < _TRIMS and held + self._segment_size(size) > _SLACK * peak:
            self._trims += self._budget._release_cached([self]) > 0

    def _find_after_freeing(self, size: int) -> Block | None:
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
            others = list(budget.pools)
            for pool in others:
                pool._drain()
                pool._settle(wait=True)
            if not budget._release_cached(others):
                self._source.synchronize()  # drivers put releases off while work is queued
            block = self._new_segment(size, size)
        if block is None:  # another thread may have freed something while this one waited
            self._drain()
            self._merge()
            block = self._runs.best_fit(size, small)
        return block or self._runs.best_fit(size, not small)

    def _merge(self) -> None:
        """Empty the bins into the sorted list, merging neighbours."""
        join = self._runs.join
        for bin in [self._loose, *self._bins.values()]:
            while bin:
                join(bin.pop())
        if len(self._bins) >= self._sweep_at:
            self._sweep_bins()
            self._sweep_at = 64 + 2 * len(self._bins)

    def _sweep_bins(self) -> None:
        """Forget the bins of sizes no live block has: sizes that never come again (ragged batches) would pile up."""
        old, self._bins = self._bins, {}
        for block in self._blocks():
            if block.requested and block.marks is None:
                block.bin = self._home(block.size)
        for size, bin in old.items():  # a finalizer that allocated meanwhile may have drained into them
            for block in bin:
                block.bin = self._bins.setdefault(size, [])
                block.bin.append(block)

    def _settle(self, wait: bool) -> None:
        """Put freed blocks into their bins whose events are complete; with `wait`, wait for those that are not."""
        while self._marked:
            block = self._marked.pop()
            marks, block.marks = block.marks or [], None
            events: list[Event] = []
            try:
                for mark in marks:
                    events.append(mark if hasattr(mark, "query") else mark())  # type: ignore[operator,arg-type]
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
                    left = []
                else:
                    left = [event for event in events if not event.query()]
            except Exception:
                _log.exception("asking an event failed; waiting for the device instead")
                self._source.synchronize()
                left = []
            if left:
                self._waiting.append((block, left))
            else:
                block.bin = self._home(block.size)
                block.bin.append(block)

    def _segment_size(self, size: int) -> int:
        small = self._is_small(size)
        ahead = min(self._reserved[small] // _GROWTH, _SEGMENT_CAP[small])
        peak = max(self._allocated_peak, self._allocated + size)
        room = int(_SLACK * peak) - self._reserved[True] - self._reserved[False]
        segment = max(size, min(ahead, room), _LEAST)
        step = max(_PAGE, 1 << (segment.bit_length() - 5))
        return -(-segment // step) * step

    def _new_segment(self, segment_size: int, size: int, small: bool | None = None) -> Block | None:
        """The first `size` bytes of a new segment; None if the limit or the driver says no."""
        budget = self._budget
        if budget.limit is not None and budget.reserved + segment_size > budget.limit:
            return None
        budget.reserved += segment_size  # first, so that a finalizer that allocates meanwhile sees it taken
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
        """Hand segments that are one free block to the budget, to be released."""
        for segment in list(self._segments):
            block = segment.first
            if block.merged and block.next is None:
                self._runs.remove(block)
                del self._segments[segment]
                del segment.first  # breaks the cycle of segment and block, which only a garbage collection would find
                self._reserved[segment.small] -= segment.size
                self._driver_frees += 1
                self._budget.leaving.append((self._source, segment.handle, segment.size))

    def _out_of_memory(self, nbytes: int) -> OutOfMemoryError:
        budget = self._budget
        in_use = 0
        for pool in list(budget.pools):
            pool._drain()
            in_use += pool._allocated
        return OutOfMemoryError(nbytes, in_use, budget.reserved - in_use, budget.limit, self.device_name)
