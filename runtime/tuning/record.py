"""Record the calls that a program makes: their layouts, how often each is made, and how long it takes.

    with Recording() as recording:
        run()
    for use in recording.uses(): ...

Every plan made during a recording counts its launches, also those of plans that recurrent layers cache themselves. Some
launches are timed, and for these the host waits for the device: the program gets slower, its results stay the same.

Tuning for the recorded calls is the idea of Adaptive Neural Compilation (Bunel, Desmaison, Kohli, Torr and Kumar 2016):
adapt a program to the distribution of its inputs. They learn a program that is correct and fast on the inputs that
occur. Here every schedule is correct on all inputs, and measurements show which is fastest on those that occur.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from .. import schedules
from ..context import forget_plans
from ..errors import ArgumentError
from ..kinds import Request
from ..schedules import Question
from . import autotune
from .measure import Call

if TYPE_CHECKING:
    from ..backends.protocol import Driver, Stream
    from ..call_types import Launcher
    from ..dispatch import Plan

__all__ = ["Recording", "Use"]


@dataclass(slots=True)
class Use:
    """One call of a program.

    Attributes:
        call: The op and the layouts of its operands.
        count: How often the program made the call.
        seconds: The shortest timed launch; 0 if none was timed.
        questions: The schedules that can be chosen for it.
    """

    call: Call
    count: int = 0
    seconds: float = 0.0
    questions: tuple[Question, ...] = field(default=())

    @property
    def total(self) -> float:
        """Estimated seconds of all launches together."""
        return self.count * self.seconds


class Recording:
    """A context that counts the launches of all threads. It drops existing plans, because only new ones are counted."""

    def __init__(self) -> None:
        self._uses: dict[tuple[object, ...], Use] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if schedules.on_plan not in (None, autotune.tune):
            raise ArgumentError("a recording of calls goes on already; one at a time")
        self._previous_hook = schedules.on_plan
        schedules.on_plan = self._on_plan
        forget_plans()
        return self

    def __exit__(self, *_: object) -> None:
        schedules.on_plan = self._previous_hook
        forget_plans()

    def uses(self) -> list[Use]:
        """Return the recorded calls, those that take the most time first."""
        with self._lock:
            uses = [use for use in self._uses.values() if use.count]
        return sorted(uses, key=lambda use: -use.total)

    def _on_plan(self, plan: Plan, request: Request, operands: Sequence[object]) -> None:
        if plan.run is None:
            return
        call = Call.from_request(request, operands)
        key = (call.record, tuple(map(_operand_key, call.operands)), call.statics, call.into)
        with self._lock:
            use = self._uses.get(key)
            if use is None:
                _, questions = call.plan(tuned=True)
                use = self._uses[key] = Use(call, questions=tuple(questions))
        plan.run = _count_launches(plan.run, use, request.device.driver)


def _operand_key(operand: object) -> object:
    """Return the type of a number, any other operand itself: plans do not depend on the values of numbers."""
    return type(operand) if isinstance(operand, int | float) else operand


def _count_launches(run: Launcher, use: Use, driver: Driver) -> Launcher:
    """Return a launcher that counts its calls in `use`, and times some of them."""

    def launch(tensors: Sequence[object], numbers: Sequence[object], stream: Stream) -> None:
        use.count += 1
        is_timed = use.count <= 4 or use.count & (use.count - 1) == 0  # the first four, then at powers of two
        if not is_timed or getattr(driver, "captures", False):
            return run(tensors, numbers, stream)
        stream.synchronize()
        begin = time.perf_counter()
        run(tensors, numbers, stream)
        stream.synchronize()
        elapsed = time.perf_counter() - begin
        use.seconds = min(use.seconds, elapsed) if use.count > 2 else elapsed  # the first call may build kernels
        return None

    return launch
