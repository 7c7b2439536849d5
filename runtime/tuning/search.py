"""Search the schedule space of one call, starting from the shipped schedule.

1.  Hill climbing: the candidates are all schedules that differ from the best one so far in a single parameter. This
    repeats while it finds faster ones. Then random candidates from the whole space follow until the time is up.
    Schedules that lead to equal plans count as one candidate.
2.  Candidates race by successive halving (Jamieson and Talwalkar 2016): each gets a few samples, clearly slower ones
    drop out, the others get twice as many, until one is left. A winner must give the results of the shipped schedule.
3.  Fresh samples must confirm the final winner. The shipped schedule, the winner and the shipped schedule again
    alternate, first in the memory of the search and then in newly allocated memory. The winner must be faster
    significantly often, and by more than the two series of the shipped schedule differ (`evidence`).
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .. import schedules
from ..errors import WeftgradError
from ..kinds import Planned
from ..schedules import Choice, Question, Space
from . import store
from .evidence import compare_samples
from .measure import Call, Trials, differ

__all__ = ["Outcome", "candidates", "keep_outcomes", "neighbours", "tune"]

_MIN_GAIN = 0.03  # relative speedup that the winner must have
_MAX_P_VALUE = 0.002  # of the sign test; small, because among many calls some candidates win by luck
_DROP_RATIOS = (1.6, 1.25, 1.12, 1.06)  # by round: candidates slower than this multiple of the best are dropped
_FIRST_ROUND_SAMPLES = 3  # samples per candidate in the first round
_SHIPPED_SAMPLES = 10  # samples of the shipped schedule if nothing faster was found
_CONFIRMING_TURNS = 40  # turns of samples in each of the two memories that confirm a winner
_HOPELESS_TURNS = 6  # a winner that wins none of the first turns is given up
_RANDOM_CANDIDATES = 24  # random candidates per race
_BUILD_BATCH = 6  # plans whose kernels are built together


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one search.

    Attributes:
        call: The call.
        choices: By key, the schedule to use; None for the shipped one.
        baseline_seconds: Time per call with the shipped schedule.
        candidate_seconds: Time per call with `choices`.
        tried: Number of candidates that ran.
        wrong: Number of candidates whose results differed.
        failed: Number of candidates that could not be planned, built or run.
    """

    call: Call
    choices: Mapping[str, Choice | None]
    baseline_seconds: float
    candidate_seconds: float
    tried: int
    wrong: int
    failed: int

    @property
    def gain(self) -> float:
        """The speedup over the shipped schedule."""
        return self.baseline_seconds / self.candidate_seconds


@dataclass(slots=True, eq=False)
class _Contender:
    choices: Mapping[str, Choice]  # by name of the space
    run: Callable[..., None]
    times: list[float] = field(default_factory=list)
    is_correct: bool | None = None

    @property
    def min_seconds(self) -> float:
        return min(self.times)


def neighbours(space: Space, choice: Choice, names: Mapping[str, object]) -> Iterator[Choice]:
    """Yield every allowed choice that differs from `choice` in one parameter.

    The parameters take turns, so that a search that ends early has varied all of them.
    """
    alternatives = [[(name, v) for v in values if v != choice[name]] for name, (_, values) in space.parameters.items()]
    for changes in itertools.zip_longest(*alternatives):
        for name, value in filter(None, changes):
            neighbour = {**choice, name: value}
            if space.allows(neighbour, names):
                yield neighbour


def candidates(space: Space, names: Mapping[str, object]) -> Iterator[Choice]:
    """Yield every allowed choice of a space."""
    parameters = list(space.parameters)
    for values in itertools.product(*(values for _, values in space.parameters.values())):
        choice = dict(zip(parameters, values, strict=True))
        if space.allows(choice, names):
            yield choice


def tune(call: Call, seconds: float) -> Outcome | None:
    """Search the schedules of `call`. The caller makes sure that nothing else runs on the device.

    Args:
        call: The call.
        seconds: Time limit. The build of a last kernel and the confirmation may exceed it.

    Returns:
        The outcome, or None if the call has no schedule to choose.
    """
    planned, questions = call.plan()
    if not questions or not planned.steps:
        return None
    return _Search(call, planned, questions, seconds).outcome()


class _Search:
    def __init__(self, call: Call, planned: Planned, questions: Sequence[Question], seconds: float):
        self.call, self.questions, self.shipped_plan = call, questions, planned
        self.spaces = {q.space.name: q for q in reversed(questions)}
        self.trials = Trials(call, planned)
        self.known_plans = {planned}
        self.built_instances = {step.instance for step in planned.steps}
        self.wrong = self.failed = 0
        self.shipped = _Contender({name: q.answer for name, q in self.spaces.items()}, self.trials.prepare(planned))
        self.layouts = planned.outputs
        self.expected = self.trials.results(self.shipped.run)
        self.shipped.is_correct = True
        self.calls_per_sample = self.trials.calls_per_sample(self.shipped.run)
        self.tried = 1
        self.build_seconds = 0.2  # build time of a kernel: a guess, replaced by the time of the last batch
        self.has_build_time = False
        self.grace_seconds = max(seconds, 1.0)  # the confirmation may exceed the deadline by this
        self.deadline = time.perf_counter() + seconds  # set here: the shipped kernels had to be built anyway

    def is_late(self) -> bool:
        return time.perf_counter() >= self.deadline

    def is_overdue(self) -> bool:
        return time.perf_counter() >= self.deadline + self.grace_seconds

    def outcome(self) -> Outcome:
        best = self.shipped
        while not self.is_late():
            winner = self._race([best, *self._neighbours_of(best)])
            if winner is best:
                break
            best = winner
        while not self.is_late():
            contenders = self._random_contenders(best)
            if not contenders:
                break
            best = self._race([best, *contenders])
        baseline_seconds, tuned_seconds = self._confirm(best)
        accepted = best if best is not self.shipped and tuned_seconds is not None else self.shipped
        choices: dict[str, Choice | None] = {}
        for q in self.questions:
            choice = accepted.choices[q.space.name]
            choices[q.key] = None if choice == self.shipped.choices[q.space.name] else choice
        return Outcome(
            self.call, choices, baseline_seconds, tuned_seconds or baseline_seconds, self.tried, self.wrong, self.failed
        )

    # candidates

    def _neighbours_of(self, best: _Contender) -> list[_Contender]:
        choice_sets = [
            {**best.choices, name: choice}
            for name, q in self.spaces.items()
            for choice in neighbours(q.space, best.choices[name], q.names)
        ]
        return self._contenders(choice_sets)

    def _random_contenders(self, best: _Contender) -> list[_Contender]:
        """Return random candidates that were not tried; the order is the same in every process."""
        choice_sets: list[Mapping[str, Choice]] = []
        for name, q in self.spaces.items():
            all_choices = list(candidates(q.space, q.names))
            order = np.random.default_rng(zlib.crc32(q.key.encode())).permutation(len(all_choices))
            choice_sets += [{**best.choices, name: all_choices[i]} for i in order[: 20 * _RANDOM_CANDIDATES]]
        return self._contenders(choice_sets, _RANDOM_CANDIDATES)

    def _contenders(
        self, choice_sets: Sequence[Mapping[str, Choice]], max_count: int | None = None
    ) -> list[_Contender]:
        """Return contenders for the choices whose plans are new, as many as there is time to build.

        Those that need no new kernel come first.
        """
        plans: list[tuple[bool, Mapping[str, Choice], Planned]] = []
        for choices in choice_sets:
            try:
                planned, _ = self.call.plan(choices)
            except (WeftgradError, ArithmeticError, AssertionError):
                self.failed += 1
                continue
            if planned not in self.known_plans:
                self.known_plans.add(planned)
                needs_build = not {step.instance for step in planned.steps} <= self.built_instances
                plans.append((needs_build, choices, planned))
                if len(plans) == max_count:
                    break
        contenders: list[_Contender] = []
        plans.sort(key=lambda plan: plan[0])
        ready = [plan for plan in plans if not plan[0]]
        waiting = plans[len(ready) :]
        while ready or waiting:
            if not ready:
                seconds_left = self.deadline - time.perf_counter()
                if seconds_left < self.build_seconds:  # the next kernel would not be ready in time
                    break
                # The first batch is a single plan, to measure the build time.
                size = max(1, min(_BUILD_BATCH, int(seconds_left / self.build_seconds))) if self.has_build_time else 1
                ready, waiting = waiting[:size], waiting[size:]
                begin = time.perf_counter()
                self.trials.build([planned for _, _, planned in ready])
                contenders += self._warm_up(ready)
                self.build_seconds = (time.perf_counter() - begin) / len(ready)
                self.has_build_time = True
            else:
                contenders += self._warm_up(ready)
            ready = []
        self.known_plans.difference_update(planned for _, _, planned in waiting)
        return contenders

    def _warm_up(self, plans: Sequence[tuple[bool, Mapping[str, Choice], Planned]]) -> Iterator[_Contender]:
        """Yield contenders that have run once: drivers may finish a build at the first launch."""
        for _, choices, planned in plans:
            self.built_instances |= {step.instance for step in planned.steps}
            try:
                run = self.trials.prepare(planned)
                self.trials.sample(run, 1)
            except (WeftgradError, RuntimeError):
                self.failed += 1
            else:
                yield _Contender(choices, run)

    # races

    def _race(self, contenders: list[_Contender]) -> _Contender:
        """Return the fastest contender with correct results.

        The first one, the incumbent, is known to be correct. It stays unless another is at least 1% faster.
        """
        ranked = list(contenders)
        rounds = 0
        while len(ranked) > 1 and rounds < len(_DROP_RATIOS):
            for _ in range(_FIRST_ROUND_SAMPLES << rounds):
                for contender in list(ranked):
                    # A contender that was built for this race gets one sample even if the build used up the time.
                    if self.is_late() and contenders[0].times and (contender.times or self.is_overdue()):
                        continue
                    try:
                        contender.times.append(self.trials.sample(contender.run, self.calls_per_sample))
                    except (WeftgradError, RuntimeError):
                        if contender is contenders[0]:  # the incumbent ran before: the device itself has failed
                            raise
                        self.failed += 1
                        ranked.remove(contender)
                        contenders.remove(contender)
            ranked = [contender for contender in ranked if contender.times]
            self.tried += len(ranked) - 1 if rounds == 0 else 0
            best = min(contender.min_seconds for contender in ranked)
            ranked = [c for c in ranked if c.min_seconds <= _DROP_RATIOS[rounds] * best or c is contenders[0]]
            ranked.sort(key=lambda c: c.min_seconds)
            ranked = [c for i, c in enumerate(ranked) if i < max(2, (len(ranked) + 1) // 2) or c is contenders[0]]
            rounds += 1
        incumbent = contenders[0]
        for contender in sorted(contenders, key=lambda c: c.min_seconds if c.times else float("inf")):
            if contender is incumbent or not contender.times or contender.min_seconds * 1.01 >= incumbent.min_seconds:
                break
            if self._is_correct(contender):
                return contender
        return incumbent

    def _is_correct(self, contender: _Contender) -> bool:
        if contender.is_correct is None:
            actual = self.trials.results(contender.run)
            contender.is_correct = not differ(self.expected, actual, self.layouts)
            self.wrong += not contender.is_correct
        return contender.is_correct

    def _confirm(self, best: _Contender) -> tuple[float, float | None]:
        """Time the shipped choice and the best one with fresh samples.

        Returns:
            Seconds of the shipped choice, and seconds of the best one, or None if it is not significantly faster.
        """
        if best is self.shipped:
            while len(best.times) < _FIRST_ROUND_SAMPLES or (len(best.times) < _SHIPPED_SAMPLES and not self.is_late()):
                best.times.append(self.trials.sample(best.run, self.calls_per_sample))
            return best.min_seconds, None
        deadline = max(time.perf_counter(), self.deadline) + self.grace_seconds
        shipped_times: list[float] = []
        best_times: list[float] = []
        shipped_repeat: list[float] = []
        for trials in self._confirming_trials():
            runs = [(shipped_times, self.shipped.run), (best_times, best.run), (shipped_repeat, self.shipped.run)]
            for _, run in runs:
                trials.sample(run, 1)
            for turn in range(_CONFIRMING_TURNS):
                # The order alternates, because each run finds the caches and the device as the previous one left them.
                for times, run in runs if turn % 2 else reversed(runs):
                    times.append(trials.sample(run, self.calls_per_sample))
                hopeless = len(best_times) == _HOPELESS_TURNS and compare_samples(shipped_times, best_times).wins == 0
                if hopeless or time.perf_counter() > deadline:  # `is_faster` rejects too few turns
                    break
            if hopeless or time.perf_counter() > deadline:
                break
        evidence = compare_samples(shipped_times, best_times, shipped_repeat)
        return evidence.baseline_seconds, evidence.candidate_seconds if evidence.is_faster(
            _MIN_GAIN, _MAX_P_VALUE
        ) else None

    def _confirming_trials(self) -> Iterator[Trials]:
        """Yield the trials of the search, then trials in newly allocated memory if the device has room."""
        yield self.trials
        try:
            yield Trials(self.call, self.shipped_plan)
        except MemoryError:
            yield self.trials


def entries_of(outcome: Outcome) -> dict[str, store.Entry]:
    """Return the entries of an outcome for the user's file (see `store`)."""
    timestamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        key: {
            "choice": choice,
            "before": outcome.baseline_seconds,
            "after": outcome.candidate_seconds,
            "when": timestamp,
            "call": str(outcome.call),
        }
        for key, choice in outcome.choices.items()
    }


def keep_outcomes(outcomes: Sequence[Outcome]) -> bool:
    """Use the outcomes from now on, in this process and, unless the cache is off, in later ones.

    Returns:
        True if all could be written to the user's file.
    """
    written = True
    by_device: dict[str, dict[str, store.Entry]] = {}
    for outcome in outcomes:
        device = schedules.device_key(outcome.call.device.driver)
        by_device.setdefault(device, {}).update(entries_of(outcome))
    for device, entries in by_device.items():
        written = store.merge(device, entries) and written
        schedules.add_tuned_choices(device, {key: entry["choice"] for key, entry in entries.items()})
    return written
