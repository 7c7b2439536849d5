"""What a program really calls: which layouts, how often, and what share of the time they take.

    with Recording() as recording:
        run()
    for use in recording.uses(): ...

Every plan made meanwhile counts its launches, whoever launches it (also what keeps plans of its own, as recurrent
layers do), and now and then waits to time one. That a device is waited for makes the program slower, not other.

Tuning for what was recorded is the idea of Adaptive Neural Compilation (Bunel, Desmaison, Kohli, Torr and Kumar 2016):
adapt a program to the distribution of its inputs. There, a program is learned that is right on the inputs that occur
and fast on them; here every schedule is right on all inputs, and which is fast on those that occur is measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from .. import schedules
from ..context import forget_plans
from ..errors import ArgumentError
from ..kinds import Request
from ..schedules import Question
from .measure import Call

__all__ = ["Recording", "Use"]


@dataclass(slots=True)
class Use:
    """One call of a program. count: how often it was made. seconds: what one takes, the least of those timed; 0
    where none was. asked: what may be chosen for it."""

    call: Call
    count: int = 0
    seconds: float = 0.0
    asked: tuple[Question, ...] = field(default=())

    @property
    def total(self) -> float:
        """Seconds of all of them."""
        return self.count * self.seconds


class Recording:
    """While it lasts, plans of all threads are made anew and counted."""

    def __init__(self) -> None:
        self._uses: dict[tuple[Any, ...], Use] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if schedules.on_plan is not None and not schedules.tunes_misses():
            raise ArgumentError("a recording of calls goes on already; one at a time")
        self._before = schedules.on_plan
        schedules.on_plan = self._seen
        forget_plans()
        return self

    def __exit__(self, *_: object) -> None:
        schedules.on_plan = self._before
        forget_plans()

    def uses(self) -> list[Use]:
        """What was called at least once, with what takes the most time in front."""
        with self._lock:
            found = [use for use in self._uses.values() if use.count]
        return sorted(found, key=lambda use: -use.total)

    def _seen(self, plan: Any, request: Request, operands: Sequence[Any]) -> None:
        if plan.run is None:
            return
        call = Call.of(request, operands)
        key = (call.record, tuple(map(_part, call.operands)), call.statics, call.into)
        with self._lock:
            use = self._uses.get(key)
            if use is None:
                _, asked = call.plan(tuned=True)
                use = self._uses[key] = Use(call, asked=tuple(asked))
        plan.run = _counted(plan.run, use, request.device.driver)


def _part(operand: Any) -> Any:
    """Numbers of one type are one call: plans do not depend on their values."""
    return type(operand) if isinstance(operand, int | float) else operand


def _counted(run: Callable[..., None], use: Use, driver: Any) -> Callable[..., None]:
    def counted(tensors: list[Any], numbers: Iterable[Any], stream: Any) -> None:
        use.count += 1
        timed = use.count <= 4 or use.count & (use.count - 1) == 0  # a few, and then ever fewer
        if not timed or getattr(driver, "captures", False):
            return run(tensors, numbers, stream)
        stream.synchronize()
        begin = time.perf_counter()
        run(tensors, numbers, stream)
        stream.synchronize()
        took = time.perf_counter() - begin
        use.seconds = min(use.seconds, took) if use.count > 2 else took  # the first call of all may build
        return None

    return counted
