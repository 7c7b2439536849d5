"""What was found, tried in the program it was found for: there, operands lie in the caches or not as other calls left
them, and other work is about.

    with Trial(keys) as trial:                 # keys: of choices that are kept
        run()
    for key, evidence in trial.evidence().items(): ...

Calls take the shipped schedule and the kept one by turns, each timed; so the program is run once, not once for each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from .. import schedules
from ..context import forget_plans
from ..kinds import Request
from .evidence import Evidence, weigh
from .measure import Call

__all__ = ["Trial"]

_WARM = 4  # calls before the first that counts: they build, and touch memory first
_MOST = 400  # calls of one kind that are timed


@dataclass(slots=True)
class _Turns:
    """One call's turns. times: of the shipped schedule and of the kept one. count: calls so far, timed or not."""

    keys: frozenset[str]
    times: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    count: int = 0


class Trial:
    """While it lasts, calls with a kept choice of one of `keys` take turns. One thread at a time is timed."""

    def __init__(self, keys: Collection[str]):
        self._keys = frozenset(keys)
        self._turns: list[_Turns] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._before = schedules.on_plan
        schedules.on_plan = self._seen
        forget_plans()
        return self

    def __exit__(self, *_: object) -> None:
        schedules.on_plan = self._before
        forget_plans()

    def evidence(self, fewest: int) -> dict[str, list[tuple[Evidence, float]]]:
        """By key, for each call that it is kept for and that was made often enough for `fewest` pairs: what its turns
        tell, and the seconds that all such calls would take as shipped."""
        found: dict[str, list[tuple[Evidence, float]]] = {}
        for turns in self._turns:
            one, other = turns.times
            pairs = min(len(one), len(other))
            if pairs >= fewest:
                what = weigh(one[:pairs], other[:pairs])
                for key in turns.keys:
                    found.setdefault(key, []).append((what, what.before * turns.count))
        return found

    def _seen(self, plan: Any, request: Request, operands: Sequence[Any]) -> None:
        if plan.run is None:
            return
        call = Call.of(request, operands)
        shipped, _ = call.plan()
        kept, asked = call.plan(tuned=True)
        keys = self._keys & {question.key for question in asked}
        if not keys or shipped == kept or shipped.outputs != kept.outputs:
            return
        turns = _Turns(keys)
        with self._lock:
            self._turns.append(turns)
        driver = request.device.driver
        plan.run = _by_turns(driver.launcher(shipped.steps, shipped.scratch), plan.run, turns, self._lock, driver)


def _by_turns(
    shipped: Callable[..., None], kept: Callable[..., None], turns: _Turns, lock: threading.Lock, driver: Any
) -> Callable[..., None]:
    def run(tensors: list[Any], numbers: Iterable[Any], stream: Any) -> None:
        number = turns.count
        turns.count += 1
        # Shipped, kept, kept, shipped: pairs of calls one after the other, with either in front.
        turn = (number + 1) // 2 % 2
        chosen = (shipped, kept)[turn]
        if number >= _WARM + _MOST or getattr(driver, "captures", False) or not lock.acquire(blocking=False):
            return chosen(tensors, numbers, stream)
        try:
            stream.synchronize()
            begin = time.perf_counter()
            chosen(tensors, numbers, stream)
            stream.synchronize()
            if number >= _WARM:
                turns.times[turn].append(time.perf_counter() - begin)
        finally:
            lock.release()
        return None

    return run
