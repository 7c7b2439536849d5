"""Compare tuned with shipped schedules inside the program they were tuned for.

The search times a call alone. In the program, other calls decide which operands are in the caches, and other work runs
beside it.

    with Trial(keys) as trial:                 # keys of tuned choices
        run()
    for key, evidence in trial.evidence(8).items(): ...

Each call alternates between the shipped and the tuned schedule, and is timed. So one run of the program is enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from .. import schedules
from ..context import forget_plans
from ..kinds import Request
from .evidence import Evidence, compare_samples
from .measure import Call

if TYPE_CHECKING:
    from ..backends.protocol import Driver, Stream
    from ..call_types import Launcher
    from ..dispatch import Plan

__all__ = ["Trial"]

_WARM_UP_CALLS = 4  # untimed: they build kernels and touch memory for the first time
_MAX_TIMED_CALLS = 400  # per kind of call


@dataclass(slots=True)
class _Alternation:
    """The timings of one call. times: seconds with the shipped and with the tuned schedule. count: calls so far."""

    keys: frozenset[str]
    times: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    count: int = 0


class Trial:
    """A context in which calls with a tuned choice of one of `keys` alternate. One thread at a time is timed."""

    def __init__(self, keys: Collection[str]):
        self._keys = frozenset(keys)
        self._alternations: list[_Alternation] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._previous_hook = schedules.on_plan
        schedules.on_plan = self._on_plan
        forget_plans()
        return self

    def __exit__(self, *_: object) -> None:
        schedules.on_plan = self._previous_hook
        forget_plans()

    def evidence(self, min_pairs: int) -> dict[str, list[tuple[Evidence, float]]]:
        """Return the evidence for each key.

        Args:
            min_pairs: Calls with fewer pairs of shipped and tuned timings are left out.

        Returns:
            By key, for each call that uses it: the evidence, and the estimated seconds that all its launches take with
            the shipped schedule.
        """
        evidence_by_key: dict[str, list[tuple[Evidence, float]]] = {}
        for alternation in self._alternations:
            shipped_times, tuned_times = alternation.times
            pairs = min(len(shipped_times), len(tuned_times))
            if pairs >= min_pairs:
                evidence = compare_samples(shipped_times[:pairs], tuned_times[:pairs])
                for key in alternation.keys:
                    evidence_by_key.setdefault(key, []).append(
                        (evidence, evidence.baseline_seconds * alternation.count)
                    )
        return evidence_by_key

    def _on_plan(self, plan: Plan, request: Request, operands: Sequence[object]) -> None:
        if plan.run is None:
            return
        call = Call.from_request(request, operands)
        shipped, _ = call.plan()
        tuned, questions = call.plan(tuned=True)
        keys = self._keys & {question.key for question in questions}
        if not keys or shipped == tuned or shipped.outputs != tuned.outputs:
            return
        alternation = _Alternation(keys)
        with self._lock:
            self._alternations.append(alternation)
        driver = request.device.driver
        plan.run = _alternate(
            driver.launcher(shipped.steps, shipped.scratch), plan.run, alternation, self._lock, driver
        )


def _alternate(
    shipped: Launcher,
    tuned: Launcher,
    alternation: _Alternation,
    lock: threading.Lock,
    driver: Driver,
) -> Launcher:
    def run(tensors: Sequence[object], numbers: Sequence[object], stream: Stream) -> None:
        call_index = alternation.count
        alternation.count += 1
        # The order is shipped, tuned, tuned, shipped: consecutive calls form pairs, and each schedule leads in half.
        turn = (call_index + 1) // 2 % 2
        launch = (shipped, tuned)[turn]
        if (
            call_index >= _WARM_UP_CALLS + _MAX_TIMED_CALLS
            or getattr(driver, "captures", False)
            or not lock.acquire(blocking=False)
        ):
            return launch(tensors, numbers, stream)
        try:
            stream.synchronize()
            begin = time.perf_counter()
            launch(tensors, numbers, stream)
            stream.synchronize()
            if call_index >= _WARM_UP_CALLS:
                alternation.times[turn].append(time.perf_counter() - begin)
        finally:
            lock.release()
        return None

    return run
