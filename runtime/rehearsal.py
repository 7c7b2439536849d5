"""Record the first training step's allocations, and reserve the memory that later steps need.

The second step of a training loop needs more memory than the first. The optimizer's state, allocated at the end of the
first step, and tensors that the loop still holds when it starts over (a batch, a loss) are in use beside the
activations, and lie in holes that the activations needed. So the pool of an optimizer's parameters records allocations
and frees, from the construction of the optimizer to the end of its first step. Then it simulates the next step, with
the blocks that are in use now:

1.  Each size gets a bin with as many blocks as are in use at once. If all bins together would take too much (more than
    1.1 times the peak, and for small pools more than 1.2 times or 1 MiB above it), the largest sizes have no bins and
    share runs of memory by best fit; as few sizes as keep the limit. A simulation tells how much memory the shared runs
    need. (Bins of one exact size are Doug Lea's fast bins. Best fit is close to the optimum if few sizes alternate:
    Wilson et al., "Dynamic Storage Allocation", 1995.)
2.  Free segments go back to the driver. Blocks are cut from the holes of the other segments as far as possible. One
    driver allocation provides the rest. A spare segment of 1/64 of the step's peak serves small allocations that were
    not recorded.

The next step then finds each block in its bin or in a shared run, and so does every later step. `pool` describes the
allocator.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from .blocks import Block
    from .pool import Pool

__all__ = ["Plan", "Rehearsal", "rehearse"]

_BLOCK_ALIGNMENT, _SEGMENT_QUANTUM = 512, 4 << 10  # bytes, as in the pool
_SPARE_DIVISOR = 64  # the spare segment has 1 / _SPARE_DIVISOR of a step's peak
_MIN_SPARE_BYTES = 16 << 10
_MAX_HELD_RATIO = 1.1  # if the pool would hold more than this multiple of the peak in use, large sizes lose their bins
_MAX_SMALL_HELD_RATIO = 1.2  # the same for small pools, whose ops are short beside a search of runs
_NEGLIGIBLE_BYTES = 1 << 20  # of bins beyond the peak of a small pool: sharing would save little
_MAX_BOUND_TRIALS = 8  # bounds on the binned size that are tried, from all sizes in bins to none
_MAX_EVENTS = 1 << 16  # a program that has not stepped after this many allocations and frees is no longer recorded


@dataclass(frozen=True, slots=True)
class Plan:
    """How a prepared pool serves requests.

    Attributes:
        max_binned_size: Sizes up to this many bytes have bins.
        binned_sizes: Larger sizes that have bins, too.
        max_spare_request: The largest request in bytes that the spare segment serves first.
    """

    max_binned_size: int
    binned_sizes: frozenset[int]
    max_spare_request: int

    def has_bin(self, size: int) -> bool:
        """Return True if blocks of `size` have a bin. Other freed blocks are merged with their neighbours."""
        return size <= self.max_binned_size or size in self.binned_sizes


def rehearse(pool: Pool, participant: object) -> Rehearsal:
    """Record the allocations and frees of `pool` until all participants have ended their first step.

    Args:
        pool: The pool.
        participant: An optimizer. It is referenced weakly.

    Returns:
        The pool's rehearsal; participants share it.
    """
    with pool._lock:
        rehearsal = pool.rehearsal
        if rehearsal is None:
            rehearsal = pool.rehearsal = Rehearsal(pool)
            vars(pool)["allocate"] = rehearsal.allocate  # shadows the method: pools that do not record need no test
        rehearsal.participants.add(participant)
        return rehearsal


class Rehearsal:
    """The record of a pool. An event is the number of an allocation, or ~number when its block is freed."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.participants: WeakSet[object] = WeakSet()
        self.events: list[int] = []
        self.sizes: list[int] = []
        self.live_blocks: dict[Block, int] = {}
        self.persistent: set[Block] = set()
        self.transient_gradients: list[set[Block]] = []  # one set per optimizer
        self.kept_gradients: set[Block] = set()

    def allocate(self, nbytes: int) -> Block:
        """`Pool.allocate`, recorded."""
        pool = self.pool
        with pool._lock:
            freed = pool._freed
            drained = []
            while freed:
                drained.append(freed.popleft())
                self._note_free(drained[-1])
            freed.extend(drained)
            block = type(pool).allocate(pool, nbytes)
            self._note_free(block)  # another call may have drained it unseen
            self.live_blocks[block] = len(self.sizes)
            self.events.append(len(self.sizes))
            self.sizes.append(block.size)
            if len(self.events) > _MAX_EVENTS or not self.participants:
                self._end()
            return block

    def provide(self, sizes: Iterable[int]) -> None:
        """Reserve one segment with blocks of exactly these sizes in bytes.

        For long-lived blocks that are allocated next: in a segment of their own they leave no holes.
        """
        pool, budget = self.pool, self.pool._budget
        rounded = [(size + _BLOCK_ALIGNMENT - 1) & -_BLOCK_ALIGNMENT for size in sizes if size]
        with pool._lock:
            if rounded and not budget.is_changing_lists:
                budget.is_changing_lists = True
                try:
                    total = -(-sum(rounded) // _SEGMENT_QUANTUM) * _SEGMENT_QUANTUM
                    block = pool._new_segment(total, total, False)
                    if block is not None:
                        self._carve(block, rounded)
                finally:
                    budget.is_changing_lists = False

    def leave(self, participant: object) -> None:
        """Remove a participant. The recording ends with the last one."""
        with self.pool._lock:
            self.participants.discard(participant)
            if not self.participants:
                self._end()

    def end_step(
        self, participant: object, persistent: Iterable[Block], gradients: Iterable[Block], keeps_gradients: bool
    ) -> None:
        """Prepare the pool for the next step, after the first step of `participant`.

        All other blocks in use count as freed once the next step has allocated their successors.

        Args:
            participant: The optimizer whose step has ended.
            persistent: Blocks of parameters and optimizer state, which stay in use.
            gradients: Blocks of the gradients.
            keeps_gradients: True if the gradients stay allocated and are added to; False if they are freed before the
                next step computes new ones.
        """
        pool, budget = self.pool, self.pool._budget
        with pool._lock:
            if pool.rehearsal is not self or budget.is_changing_lists:
                return
            self.persistent.update(persistent)
            if keeps_gradients:
                self.kept_gradients.update(gradients)
            else:
                self.transient_gradients.append(set(gradients))
            budget.is_changing_lists = True
            try:
                self._prepare()
            finally:
                budget.is_changing_lists = False
            self.leave(participant)

    # --- With the budget's lock held. ---------------------------------------------------------------------------------

    def _end(self) -> None:
        vars(self.pool).pop("allocate", None)
        self.pool.rehearsal = None
        self.participants.clear()

    def _note_free(self, block: Block) -> None:
        number = self.live_blocks.pop(block, None)
        if number is not None:
            self.events.append(~number)

    def _prepare(self) -> None:
        pool = self.pool
        pool._plan = None
        pool._budget._release_cached([pool])
        for block in [b for b in self.live_blocks if not b.requested]:
            self._note_free(block)
        persistent_allocations = {number for block, number in self.live_blocks.items() if block in self.persistent}
        events = [e for e in self.events if (e if e >= 0 else ~e) not in persistent_allocations]
        held_blocks = [block for block, number in self.live_blocks.items() if number not in persistent_allocations]
        gradients = [
            [self.live_blocks[b] for b in held_blocks if b in gradient_blocks]
            for gradient_blocks in self.transient_gradients
        ]
        reallocated = {self.live_blocks[b] for b in held_blocks if b not in self.kept_gradients}.difference(*gradients)
        kept_sizes = [b.size for b in held_blocks if b in self.kept_gradients]
        counts, peak = _demand(events, self.sizes, reallocated, gradients, kept_sizes)
        plan, needed, shared = self._choose(events, counts, peak, Counter(b.size for b in held_blocks))
        runs = pool._runs
        missing = []
        for size in needed:
            free_block = runs.best_fit(size, True) or runs.best_fit(size, False)
            if free_block is None:
                missing.append(size)
            else:
                self._carve(free_block, [size])
        total = -(-(sum(missing) + shared) // _SEGMENT_QUANTUM) * _SEGMENT_QUANTUM
        if total:
            segment_block = pool._new_segment(total, total, False)
            if segment_block is None:  # out of memory: go on without a plan
                return
            self._carve(segment_block, missing)
        spare = pool._new_segment(4 * plan.max_spare_request, 4 * plan.max_spare_request, True)
        if spare is not None:
            runs.insert(spare)
        pool._plan = plan
        for block in held_blocks:
            if block.marks is None:
                block.bin = pool._bin_of(block.size)
        # Trim free segments only if the pool grows beyond the peak that the plan expects.
        pool._trimmed_peak = max(pool._trimmed_peak, peak + pool._allocated - sum(b.size for b in held_blocks))

    def _choose(
        self, events: Sequence[int], counts: Counter[int], peak: int, held_counts: Counter[int]
    ) -> tuple[Plan, list[int], int]:
        """Choose the plan that needs the least memory, or the first that is within the limit.

        Args:
            events: The recorded events, without persistent blocks.
            counts: By size, the number of blocks in use at once.
            peak: The most bytes in use at once.
            held_counts: By size, the number of blocks in use now.

        Returns:
            The plan, the sizes of the blocks that its bins lack, and the bytes that the sizes without bins share.
        """
        pool = self.pool
        max_spare_request = (
            -(-max(_MIN_SPARE_BYTES, peak // _SPARE_DIVISOR) // _SEGMENT_QUANTUM) * _SEGMENT_QUANTUM // 4
        )
        lists = [[run[0] for run in pool._runs.lists[kind]] for kind in (True, False)]
        reserved = pool._reserved[True] + pool._reserved[False]
        needed_bytes = pool._allocated + peak - sum(size * n for size, n in held_counts.items())
        small_limit = min(_MAX_SMALL_HELD_RATIO * needed_bytes, needed_bytes + _NEGLIGIBLE_BYTES)
        max_bytes = max(_NEGLIGIBLE_BYTES, _MAX_HELD_RATIO * needed_bytes, small_limit)
        sizes = [0, *sorted(counts)]
        best: tuple[float, Plan, list[int], int] | None = None
        for i in range(_MAX_BOUND_TRIALS):
            max_binned_size = sizes[(len(sizes) - 1) * (_MAX_BOUND_TRIALS - 1 - i) // (_MAX_BOUND_TRIALS - 1)]
            plan = Plan(max_binned_size, frozenset(held_counts), max_spare_request)
            needed = sorted(
                (s for s in counts if plan.has_bin(s) for _ in range(counts[s] - held_counts[s])), reverse=True
            )
            free_runs = [list(runs) for runs in lists]
            missing_bytes = sum(size for size in needed if not any(_take_best_fit(runs, size) for runs in free_runs))
            shared_bytes = _shared_bytes(free_runs[1], events, self.sizes, plan)
            if best is None or reserved + missing_bytes + shared_bytes < best[0]:
                best = reserved + missing_bytes + shared_bytes, plan, needed, shared_bytes
            if best[0] <= max_bytes:
                break
        assert best is not None
        return best[1:]

    def _carve(self, block: Block, sizes: Iterable[int]) -> None:
        """Cut a free block that is in no list into blocks of `sizes`, and put these into their bins."""
        pool = self.pool
        remainder: Block | None = block
        for size in sizes:
            assert remainder is not None
            front, remainder = remainder, None
            if front.size > size:
                pool._runs.cut(front, size)
                remainder = front.next
                assert remainder is not None
                pool._runs.remove(remainder)
            front.bin = pool._bins.setdefault(size, [])
            front.bin.append(front)
        if remainder is not None:
            pool._runs.insert(remainder)


def _demand(
    events: Iterable[int], sizes: Sequence[int], reallocated: set[int], gradients: Sequence[Sequence[int]],
    kept_sizes: Iterable[int],
) -> tuple[Counter[int], int]:  # fmt: skip
    """Simulate the next step: the blocks of each size in use at once, and the most bytes in use.

    Args:
        events: The recorded events.
        sizes: Bytes of each allocation.
        reallocated: Allocations whose old blocks are freed as soon as the next step has allocated the new ones.
        gradients: Lists of allocations whose old blocks are freed before the first of the list is allocated again.
        kept_sizes: Sizes of blocks that are in use during the whole step.
    """
    in_use = Counter([sizes[i] for i in chain(reallocated, *gradients)])
    in_use.update(kept_sizes)
    max_in_use = Counter(in_use)
    bytes_in_use = peak = sum(size * n for size, n in in_use.items())
    gradients_by_first = {min(allocations): allocations for allocations in gradients if allocations}
    for event in events:
        freed = [~event] if event < 0 else gradients_by_first.get(event, [])
        for number in freed:
            in_use[sizes[number]] -= 1
            bytes_in_use -= sizes[number]
        if event >= 0:
            size = sizes[event]
            in_use[size] += 1
            bytes_in_use += size
            max_in_use[size] = max(max_in_use[size], in_use[size])
            peak = max(peak, bytes_in_use)
            if event in reallocated:
                in_use[size] -= 1
                bytes_in_use -= size
    return max_in_use, peak


def _take_best_fit(runs: list[int], size: int) -> bool:
    """Take `size` bytes from the smallest run that has them. `runs` are sorted sizes. Return False if none has."""
    index = bisect_left(runs, size)
    if index == len(runs):
        return False
    remainder = runs.pop(index) - size
    if remainder:
        insort(runs, remainder)
    return True


def _shared_bytes(holes: Sequence[int], events: Sequence[int], sizes: Sequence[int], plan: Plan) -> int:
    """Return the bytes that sizes without bins need in addition to `holes`, found by trying steps of an eighth."""
    events = [e for e in events if not plan.has_bin(sizes[e if e >= 0 else ~e])]
    if not events:
        return 0
    runs = _HeapModel(holes, 1 << 62)
    runs.play(events, sizes)
    size = runs.end
    while True:
        size = -(-size // _SEGMENT_QUANTUM) * _SEGMENT_QUANTUM
        if not size or _HeapModel(holes, size).play(events, sizes):
            return size
        size += max(_SEGMENT_QUANTUM, size >> 3)


class _HeapModel:
    """A simulated best-fit heap: separate `holes`, followed by a run of `size` bytes. end: bytes used of that run."""

    def __init__(self, holes: Iterable[int], size: int) -> None:
        self.free: list[tuple[int, int]] = []  # (size, offset), sorted
        self.begins: dict[int, int] = {}  # sizes of the free runs, by their first byte
        self.ends: dict[int, int] = {}  # the same, by the byte after the last
        offset = 0
        for hole in holes:
            self._free(offset, hole)
            offset += hole + 1
        self.heap_start = offset
        self.end = 0
        if size:
            self._free(offset, size)

    def play(self, events: Iterable[int], sizes: Sequence[int]) -> bool:
        """Run the events; return True if every allocation fits."""
        offsets: dict[int, int] = {}
        for event in events:
            if event < 0:
                self._free(offsets.pop(~event), sizes[~event])
                continue
            size = sizes[event]
            index = bisect_left(self.free, (size,))
            if index == len(self.free):
                return False
            run, offset = self.free.pop(index)
            del self.begins[offset], self.ends[offset + run]
            if run > size:
                self._free(offset + size, run - size)
            offsets[event] = offset
            self.end = max(self.end, offset + size - self.heap_start)
        return True

    def _free(self, offset: int, size: int) -> None:
        right_size = self.begins.pop(offset + size, 0)
        if right_size:
            del self.ends[offset + size + right_size]
            del self.free[bisect_left(self.free, (right_size, offset + size))]
            size += right_size
        left_size = self.ends.pop(offset, 0)
        if left_size:
            offset -= left_size
            del self.begins[offset]
            del self.free[bisect_left(self.free, (left_size, offset))]
            size += left_size
        self.begins[offset] = size
        self.ends[offset + size] = size
        insort(self.free, (size, offset))
