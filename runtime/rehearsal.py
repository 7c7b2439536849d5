"""What a program's first step takes from a pool, and how the pool gets ready for the next one.

A training loop's second step needs more than its first: the optimizer's state, made last, and whatever a loop still
holds when it begins anew (a batch, a loss) are in use beside the activations, and lie in holes that these needed. So
a pool whose blocks belong to an optimizer's parameters records what is allocated and freed, from when the optimizer
is made until its first step is done. That is played again in numbers, with what is in use then in its place:

1.  A size has as many blocks as are in use at once, unless those of all sizes together are too much (more than a
    tenth above the peak, and than 1 MiB). Then sizes above some bound, each used for moments, share runs of memory by
    best fit, as few as keeps to that; the memory this takes is found by doing it. (Sizes apart are what Doug Lea calls
    fast bins; best fit is close to the optimum where few sizes take turns, Wilson et al., "Dynamic Storage
    Allocation", 1995.)
2.  Free segments go back to the driver. Blocks are cut from the holes of the others as far as they reach, and for the
    rest the driver is asked, once, and for a sixtieth beyond: what was not rehearsed has a segment of its own.

The next step then finds every block in its bin, or its run, and each later one does the same again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from .blocks import Block
    from .pool import Pool

__all__ = ["Plan", "Rehearsal", "rehearse"]

_ROUND, _PAGE = 512, 4 << 10  # as in the pool
_SPARE = 64  # the part of a step's peak that is held for what was not rehearsed,
_LEAST_SPARE = 16 << 10  # and no less
_ABOVE = 1.1  # times the peak in use: the memory that bins may take,
_LITTLE = 1 << 20  # or so many bytes: sharing runs saves little there, and what fits in numbers may miss by little
_BOUNDS = 8  # tried, from all sizes in bins to none
_LONGEST = 1 << 16  # events; a program that has not stepped by then is not recorded any longer


@dataclass(frozen=True, slots=True)
class Plan:
    """How a pool that is ready goes on. bound: sizes up to it have bins, and those of `own`; small: the largest
    request that the spare segment serves first."""

    bound: int
    own: frozenset[int]
    small: int

    def bins(self, size: int) -> bool:
        """Whether blocks of `size` have a bin; others are merged with their neighbours."""
        return size <= self.bound or size in self.own


def rehearse(pool: Pool, who: Any) -> Rehearsal:
    """Record what `pool` gives and takes back until `who`, and whoever else asked, tells that its first step ended."""
    with pool._lock:
        found = pool.rehearsal
        if found is None:
            found = pool.rehearsal = Rehearsal(pool)
            vars(pool)["allocate"] = found.allocate  # nothing to ask where nothing is recorded
        found.expected.add(who)
        return found


class Rehearsal:
    """A pool's record. Events are numbers of allocations, in order; ~number where that block is freed."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.expected: WeakSet[Any] = WeakSet()
        self.events: list[int] = []
        self.sizes: list[int] = []
        self.live: dict[Block, int] = {}
        self.lasting: set[Block] = set()
        self.passing: list[set[Block]] = []  # an optimizer's gradients each
        self.kept: set[Block] = set()

    def allocate(self, nbytes: int) -> Block:
        """`Pool.allocate`, recorded."""
        pool = self.pool
        with pool._lock:
            freed = pool._freed
            seen = []
            while freed:
                seen.append(freed.popleft())
                self._note_free(seen[-1])
            freed.extend(seen)
            block = type(pool).allocate(pool, nbytes)
            self._note_free(block)  # where somebody else drained it
            self.live[block] = len(self.sizes)
            self.events.append(len(self.sizes))
            self.sizes.append(block.size)
            if len(self.events) > _LONGEST or not self.expected:
                self._end()
            return block

    def provide(self, sizes: Iterable[int]) -> None:
        """A segment of just these many bytes each, for what will be allocated next and stay: it makes no holes."""
        pool, budget = self.pool, self.pool._budget
        rounded = [(size + _ROUND - 1) & -_ROUND for size in sizes if size]
        with pool._lock:
            if rounded and not budget.searching:
                budget.searching = True
                try:
                    total = -(-sum(rounded) // _PAGE) * _PAGE
                    block = pool._new_segment(total, total, False)
                    if block is not None:
                        self._carve(block, rounded)
                finally:
                    budget.searching = False

    def leave(self, who: Any) -> None:
        """Expect `who` no longer."""
        with self.pool._lock:
            self.expected.discard(who)
            if not self.expected:
                self._end()

    def ended(self, who: Any, lasting: Iterable[Block], gradients: Iterable[Block], kept: bool) -> None:
        """The first step of `who` is done: get ready for the next.

        lasting: parameters and state, which stay. gradients: which go before the next step makes its own, or are `kept`
        and added to. What else is in use stays until the next step has made its like.
        """
        pool, budget = self.pool, self.pool._budget
        with pool._lock:
            if pool.rehearsal is not self or budget.searching:
                return
            self.lasting.update(lasting)
            if kept:
                self.kept.update(gradients)
            else:
                self.passing.append(set(gradients))
            budget.searching = True
            try:
                self._prepare()
            finally:
                budget.searching = False
            self.leave(who)

    # --- With the budget's lock held. ---------------------------------------------------------------------------------

    def _end(self) -> None:
        vars(self.pool).pop("allocate", None)
        self.pool.rehearsal = None
        self.expected.clear()

    def _note_free(self, block: Block) -> None:
        number = self.live.pop(block, None)
        if number is not None:
            self.events.append(~number)

    def _prepare(self) -> None:
        pool = self.pool
        pool._plan = None
        pool._budget._release_cached([pool])
        for block in [b for b in self.live if not b.requested]:
            self._note_free(block)
        stay = {number for block, number in self.live.items() if block in self.lasting}
        events = [e for e in self.events if (e if e >= 0 else ~e) not in stay]
        held = [block for block, number in self.live.items() if number not in stay]
        gradients = [[self.live[b] for b in held if b in own] for own in self.passing]
        again = {self.live[b] for b in held if b not in self.kept}.difference(*gradients)
        beside = [b.size for b in held if b in self.kept]
        counts, peak = _demand(events, self.sizes, again, gradients, beside)
        plan, needed, shared = self._choose(events, counts, peak, Counter(b.size for b in held))
        runs = pool._runs
        rest = []
        for size in needed:
            found = runs.best_fit(size, True) or runs.best_fit(size, False)
            if found is None:
                rest.append(size)
            else:
                self._carve(found, [size])
        total = -(-(sum(rest) + shared) // _PAGE) * _PAGE
        if total:
            made = pool._new_segment(total, total, False)
            if made is None:  # there is no such memory: go on as ever
                return
            self._carve(made, rest)
        spare = pool._new_segment(4 * plan.small, 4 * plan.small, True)
        if spare is not None:
            runs.insert(spare)
        pool._plan = plan
        for block in held:
            if block.marks is None:
                block.bin = pool._home(block.size)
        # The peak to come, from which on more would be held than it is worth.
        pool._trimmed_peak = max(pool._trimmed_peak, peak + pool._allocated - sum(b.size for b in held))

    def _choose(
        self, events: Sequence[int], counts: Counter[int], peak: int, have: Counter[int]
    ) -> tuple[Plan, list[int], int]:
        """The plan, the sizes of blocks that its bins lack, and the bytes that all other sizes share."""
        pool = self.pool
        small = -(-max(_LEAST_SPARE, peak // _SPARE) // _PAGE) * _PAGE // 4
        lists = [[run[0] for run in pool._runs.lists[kind]] for kind in (True, False)]
        held = pool._reserved[True] + pool._reserved[False]
        most = max(_LITTLE, _ABOVE * (pool._allocated + peak - sum(size * n for size, n in have.items())))
        sizes = [0, *sorted(counts)]
        best: tuple[float, Plan, list[int], int] | None = None
        for i in range(_BOUNDS):
            bound = sizes[(len(sizes) - 1) * (_BOUNDS - 1 - i) // (_BOUNDS - 1)]
            plan = Plan(bound, frozenset(have), small)
            needed = sorted((s for s in counts if plan.bins(s) for _ in range(counts[s] - have[s])), reverse=True)
            holes = [list(runs) for runs in lists]
            rest = sum(size for size in needed if not any(_take(runs, size) for runs in holes))
            shared = _shared(holes[1], events, self.sizes, plan)
            if best is None or held + rest + shared < best[0]:
                best = held + rest + shared, plan, needed, shared
            if best[0] <= most:
                break
        assert best is not None
        return best[1:]

    def _carve(self, block: Block, sizes: Iterable[int]) -> None:
        """Cut a free block that is in no list into blocks of `sizes`, in their bins."""
        pool = self.pool
        rest: Block | None = block
        for size in sizes:
            assert rest is not None
            front, rest = rest, None
            if front.size > size:
                pool._runs.cut(front, size)
                rest = front.next
                pool._runs.remove(rest)  # type: ignore[arg-type]
            front.bin = pool._bins.setdefault(size, [])
            front.bin.append(front)
        if rest is not None:
            pool._runs.insert(rest)


def _demand(
    events: Iterable[int], sizes: Sequence[int], again: set[int], gradients: Sequence[Sequence[int]],
    beside: Iterable[int],
) -> tuple[Counter[int], int]:  # fmt: skip
    """How many blocks of each size are in use at once when a step is done again, and the most bytes that are.

    again: allocations whose blocks of the step before are freed once they were made anew. gradients: those whose
    blocks of the step before are freed before the first of its list is made anew. beside: sizes in use all the while.
    """
    now = Counter([sizes[i] for i in chain(again, *gradients)])
    now.update(beside)
    most = Counter(now)
    held = peak = sum(size * n for size, n in now.items())
    first = {min(own): own for own in gradients if own}
    for event in events:
        gone = [~event] if event < 0 else first.get(event, [])
        for number in gone:
            now[sizes[number]] -= 1
            held -= sizes[number]
        if event >= 0:
            size = sizes[event]
            now[size] += 1
            held += size
            most[size] = max(most[size], now[size])
            peak = max(peak, held)
            if event in again:
                now[size] -= 1
                held -= size
    return most, peak


def _take(runs: list[int], size: int) -> bool:
    """Best fit among sizes of runs, sorted; whether one was found."""
    at = bisect_left(runs, size)
    if at == len(runs):
        return False
    rest = runs.pop(at) - size
    if rest:
        insort(runs, rest)
    return True


def _shared(holes: Sequence[int], events: Sequence[int], sizes: Sequence[int], plan: Plan) -> int:
    """The least bytes, in steps of an eighth, that sizes without bins need beside `holes` to fit in."""
    events = [e for e in events if not plan.bins(sizes[e if e >= 0 else ~e])]
    if not events:
        return 0
    runs = _Runs(holes, 1 << 62)
    runs.play(events, sizes)
    size = runs.end
    while True:
        size = -(-size // _PAGE) * _PAGE
        if not size or _Runs(holes, size).play(events, sizes):
            return size
        size += max(_PAGE, size >> 3)


class _Runs:
    """Best fit in numbers: `holes` apart from each other, then a run of `size` bytes. end: how far that was used."""

    def __init__(self, holes: Iterable[int], size: int) -> None:
        self.free: list[tuple[int, int]] = []  # size, offset; sorted
        self.begins: dict[int, int] = {}  # of free runs, their sizes
        self.ends: dict[int, int] = {}
        at = 0
        for hole in holes:
            self._put(at, hole)
            at += hole + 1
        self.first = at
        self.end = 0
        if size:
            self._put(at, size)

    def play(self, events: Iterable[int], sizes: Sequence[int]) -> bool:
        """Whether everything fits."""
        at: dict[int, int] = {}
        for event in events:
            if event < 0:
                self._put(at.pop(~event), sizes[~event])
                continue
            size = sizes[event]
            i = bisect_left(self.free, (size,))
            if i == len(self.free):
                return False
            run, offset = self.free.pop(i)
            del self.begins[offset], self.ends[offset + run]
            if run > size:
                self._put(offset + size, run - size)
            at[event] = offset
            self.end = max(self.end, offset + size - self.first)
        return True

    def _put(self, offset: int, size: int) -> None:
        after = self.begins.pop(offset + size, 0)
        if after:
            del self.ends[offset + size + after]
            del self.free[bisect_left(self.free, (after, offset + size))]
            size += after
        before = self.ends.pop(offset, 0)
        if before:
            offset -= before
            del self.begins[offset]
            del self.free[bisect_left(self.free, (before, offset))]
            size += before
        self.begins[offset] = size
        self.ends[offset + size] = size
        insort(self.free, (size, offset))
