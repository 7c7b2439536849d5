"""The search of a call's schedules: from the shipped choice, ever further as long as that is faster.

Around the best choice so far, all that differ from it in one parameter are candidates; then, while the budget lasts,
some drawn from the whole space. Those whose plans are alike are one candidate. Candidates race by successive halving
(Jamieson and Talwalkar 2016): a few samples each, the clearly slower ones drop out, the others get twice as many, until
one is left. What wins is believed if its results are those of the shipped schedule, and kept if fresh samples confirm
it: the shipped schedule, the best and the shipped one once more in turns, in the memory of the search and in other. It
must win turns significantly often, and by more than the shipped one differs from itself (`evidence`).
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import schedules
from ..errors import WeftgradError
from ..kinds import Planned
from ..schedules import Choice, Question, Space
from . import store
from .evidence import weigh
from .measure import Call, Trials, differ

__all__ = ["Outcome", "candidates", "keep", "neighbours", "tune"]

_GAIN = 0.03  # the part by which the best choice must be faster at least
_DOUBT = 0.002  # the probability at most that it wins so many turns by chance: of many calls, some will be lucky
_DROP = (1.6, 1.25, 1.12, 1.06)  # times the best from which a candidate is dropped, by round
_FIRST = 3  # samples of a candidate in the first round
_LAST = 10  # samples of what is shipped where nothing better was found
_TURNS = 40  # of samples in each of two places that confirm a choice
_HOPE = 6  # turns of which a choice that is to be confirmed wins one at least
_DRAWN = 24  # candidates from the whole space
_BATCH = 6  # kernels that are built together


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found for one call. choices: by key, what to keep (None: the shipped one). before, after: seconds a
    call. tried: candidates that ran; wrong: whose results differed; failed: that could not be planned or built."""

    call: Call
    choices: Mapping[str, Choice | None]
    before: float
    after: float
    tried: int
    wrong: int
    failed: int

    @property
    def gain(self) -> float:
        """How many times faster it got."""
        return self.before / self.after


@dataclass(slots=True, eq=False)
class _Contender:
    choices: Mapping[str, Choice]  # by space
    run: Callable[..., None]
    times: list[float] = field(default_factory=list)
    right: bool | None = None

    @property
    def least(self) -> float:
        return min(self.times)


def neighbours(space: Space, choice: Choice, names: Mapping[str, Any]) -> Iterator[Choice]:
    """Every allowed choice that differs from `choice` in one parameter: in turns over the parameters, so that a search
    that ends early has looked at all of them."""
    others = [[(name, v) for v in values if v != choice[name]] for name, (_, values) in space.parameters.items()]
    for turn in itertools.zip_longest(*others):
        for name, value in filter(None, turn):
            changed = {**choice, name: value}
            if space.allows(changed, names):
                yield changed


def candidates(space: Space, names: Mapping[str, Any]) -> Iterator[Choice]:
    """Every allowed choice of a space."""
    parameters = list(space.parameters)
    for values in itertools.product(*(values for _, values in space.parameters.values())):
        choice = dict(zip(parameters, values, strict=True))
        if space.allows(choice, names):
            yield choice


def tune(call: Call, seconds: float) -> Outcome | None:
    """Search for `seconds` at most (building one more kernel may go over it); None where there is nothing to choose.

    The caller sees to it that nothing else runs on the device.
    """
    planned, asked = call.plan()
    if not asked or not planned.steps:
        return None
    return _Search(call, planned, asked, seconds).outcome()


class _Search:
    def __init__(self, call: Call, planned: Planned, asked: Sequence[Question], seconds: float):
        self.call, self.asked, self.shipped_plan = call, asked, planned
        self.spaces = {q.space.name: q for q in reversed(asked)}
        self.trials = Trials(call, planned)
        self.seen = {planned}
        self.built = {step.instance for step in planned.steps}
        self.wrong = self.failed = 0
        self.shipped = _Contender({name: q.answer for name, q in self.spaces.items()}, self.trials.prepare(planned))
        self.layouts = planned.outputs
        self.expected = self.trials.results(self.shipped.run)
        self.shipped.right = True
        self.calls = self.trials.calls(self.shipped.run)
        self.tried = 1
        self.building = 0.2  # seconds that a kernel takes to be built: what the last ones took, once that is known
        self.timed = False
        self.grace = max(seconds, 1.0)  # seconds behind the deadline that confirming may take
        self.deadline = time.perf_counter() + seconds  # what is shipped had to be built anyway

    def late(self) -> bool:
        return time.perf_counter() >= self.deadline

    def overdue(self) -> bool:
        return time.perf_counter() >= self.deadline + self.grace

    def outcome(self) -> Outcome:
        best = self.shipped
        while not self.late():
            better = self._race([best, *self._around(best)])
            if better is best:
                break
            best = better
        while not self.late():
            drawn = self._drawn(best)
            if not drawn:
                break
            best = self._race([best, *drawn])
        before, after = self._confirmed(best)
        kept = best if best is not self.shipped and after is not None else self.shipped
        choices: dict[str, Choice | None] = {}
        for q in self.asked:
            chosen = kept.choices[q.space.name]
            choices[q.key] = None if chosen == self.shipped.choices[q.space.name] else chosen
        return Outcome(self.call, choices, before, after or before, self.tried, self.wrong, self.failed)

    # candidates

    def _around(self, best: _Contender) -> list[_Contender]:
        wanted = [
            {**best.choices, name: choice}
            for name, q in self.spaces.items()
            for choice in neighbours(q.space, best.choices[name], q.names)
        ]
        return self._contenders(wanted)

    def _drawn(self, best: _Contender) -> list[_Contender]:
        """Some that were not tried, in an order that is the same every time."""
        wanted: list[Mapping[str, Choice]] = []
        for name, q in self.spaces.items():
            every = list(candidates(q.space, q.names))
            order = np.random.default_rng(zlib.crc32(q.key.encode())).permutation(len(every))
            wanted += [{**best.choices, name: every[i]} for i in order[: 20 * _DRAWN]]
        return self._contenders(wanted, _DRAWN)

    def _contenders(self, wanted: Sequence[Mapping[str, Choice]], most: int | None = None) -> list[_Contender]:
        """Those whose plans are new, the ones that need no kernel built first, as many as there is time to build."""
        plans: list[tuple[bool, Mapping[str, Choice], Planned]] = []
        for choices in wanted:
            try:
                planned, _ = self.call.plan(choices)
            except (WeftgradError, ArithmeticError, AssertionError):
                self.failed += 1
                continue
            if planned not in self.seen:
                self.seen.add(planned)
                builds = not {step.instance for step in planned.steps} <= self.built
                plans.append((builds, choices, planned))
                if len(plans) == most:
                    break
        found: list[_Contender] = []
        plans.sort(key=lambda each: each[0])
        ready = [each for each in plans if not each[0]]
        waiting = plans[len(ready) :]
        while ready or waiting:
            if not ready:
                left = self.deadline - time.perf_counter()
                if left < self.building:  # the next kernel would not be done in time
                    break
                # One alone at first, to see what building takes here.
                size = max(1, min(_BATCH, int(left / self.building))) if self.timed else 1
                ready, waiting = waiting[:size], waiting[size:]
                begin = time.perf_counter()
                self.trials.build([planned for _, _, planned in ready])
                found += self._warmed(ready)
                self.building = (time.perf_counter() - begin) / len(ready)
                self.timed = True
            else:
                found += self._warmed(ready)
            ready = []
        self.seen.difference_update(planned for _, _, planned in waiting)
        return found

    def _warmed(self, plans: Sequence[tuple[bool, Mapping[str, Choice], Planned]]) -> Iterator[_Contender]:
        """Contenders that have run once: a driver may do a part of building at the first launch."""
        for _, choices, planned in plans:
            self.built |= {step.instance for step in planned.steps}
            try:
                run = self.trials.prepare(planned)
                self.trials.sample(run, 1)
            except (WeftgradError, RuntimeError):
                self.failed += 1
            else:
                yield _Contender(choices, run)

    # races

    def _race(self, contenders: list[_Contender]) -> _Contender:
        """The fastest whose results are right; the first of them is, and stays unless another is faster."""
        ranked = list(contenders)
        rounds = 0
        while len(ranked) > 1 and rounds < len(_DROP):
            for _ in range(_FIRST << rounds):
                for each in list(ranked):
                    # What was built for this race is looked at once, even if building took all the time.
                    if self.late() and contenders[0].times and (each.times or self.overdue()):
                        continue
                    try:
                        each.times.append(self.trials.sample(each.run, self.calls))
                    except (WeftgradError, RuntimeError):
                        if each is contenders[0]:  # which ran before: it is the device that has failed
                            raise
                        self.failed += 1
                        ranked.remove(each)
                        contenders.remove(each)
            ranked = [each for each in ranked if each.times]
            self.tried += len(ranked) - 1 if rounds == 0 else 0
            best = min(each.least for each in ranked)
            ranked = [c for c in ranked if c.least <= _DROP[rounds] * best or c is contenders[0]]
            ranked.sort(key=lambda c: c.least)
            ranked = [c for i, c in enumerate(ranked) if i < max(2, (len(ranked) + 1) // 2) or c is contenders[0]]
            rounds += 1
        first = contenders[0]
        for each in sorted(contenders, key=lambda c: c.least if c.times else float("inf")):
            if each is first or not each.times or each.least * 1.01 >= first.least:
                break
            if self._is_right(each):
                return each
        return first

    def _is_right(self, contender: _Contender) -> bool:
        if contender.right is None:
            found = self.trials.results(contender.run)
            contender.right = not differ(self.expected, found, self.layouts)
            self.wrong += not contender.right
        return contender.right

    def _confirmed(self, best: _Contender) -> tuple[float, float | None]:
        """Seconds of the shipped choice, and of the best if it is faster beyond noise, by fresh samples."""
        if best is self.shipped:
            while len(best.times) < _FIRST or (len(best.times) < _LAST and not self.late()):
                best.times.append(self.trials.sample(best.run, self.calls))
            return best.least, None
        end = max(time.perf_counter(), self.deadline) + self.grace
        shipped: list[float] = []
        other: list[float] = []
        again: list[float] = []
        for trials in self._places():
            runs = [(shipped, self.shipped.run), (other, best.run), (again, self.shipped.run)]
            for _, run in runs:
                trials.sample(run, 1)
            for turn in range(_TURNS):
                # Whichever comes first has what the one before left in the caches, and the device as it left it.
                for times, run in runs if turn % 2 else reversed(runs):
                    times.append(trials.sample(run, self.calls))
                hopeless = len(other) == _HOPE and weigh(shipped, other).wins == 0
                if hopeless or time.perf_counter() > end:  # too few turns are no evidence
                    break
            if hopeless or time.perf_counter() > end:
                break
        found = weigh(shipped, other, again)
        return found.before, found.after if found.faster(_GAIN, _DOUBT) else None

    def _places(self) -> Iterator[Trials]:
        """Where to confirm what was found: here, and if there is room, where operands and results lie elsewhere."""
        yield self.trials
        try:
            yield Trials(self.call, self.shipped_plan)
        except MemoryError:
            yield self.trials


def entries_of(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """What the user's file keeps of an outcome (`store`)."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    facts = {"before": outcome.before, "after": outcome.after, "when": when, "call": str(outcome.call)}
    return {key: {"choice": choice, **facts} for key, choice in outcome.choices.items()}


def keep(outcomes: Sequence[Outcome]) -> bool:
    """Have outcomes used from now on, by this process and, unless the cache is off, by later ones; whether they could
    be written."""
    written = True
    by_device: dict[str, dict[str, dict[str, Any]]] = {}
    for outcome in outcomes:
        device = schedules.device_key(outcome.call.device.driver)
        by_device.setdefault(device, {}).update(entries_of(outcome))
    for device, found in by_device.items():
        written = store.merge(device, found) and written
        schedules.keep(device, {key: entry["choice"] for key, entry in found.items()})
    return written
