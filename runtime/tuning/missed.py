"""`WEFTGRAD_TUNE=1`: a call whose schedule is not known yet is tuned when it is first planned, for half a second at
most (`WEFTGRAD_TUNE_SECONDS`).

What was found goes to the user's file, so that the next process need not search, and is used from the next call on: the
one that missed runs as it was planned. Nothing is tuned while a graph is captured, a profiler records or a benchmark
runs (`schedules.frozen`), on a stream that is not the device's default one, or while another thread tunes; such a call
runs by what is known, and is tuned when it is next planned. The first such call says on stderr what goes on, the
process's end what came of it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from .. import schedules, tracing
from ..context import state
from ..errors import ArgumentError, WeftgradError
from ..kinds import Request
from . import search, store
from .measure import Call

__all__ = ["may_tune", "seconds", "tune"]

_lock = threading.Lock()


class _Told:
    """What is said of it: a program that stands still for seconds at its first step should not do so in silence."""

    def __init__(self) -> None:
        self.begun = False
        self.calls = self.better = 0
        self.spent = 0.0

    def begin(self) -> None:
        if self.begun:
            return
        self.begun = True
        atexit.register(self.done)
        where = store.path()
        print(
            f"weftgrad: WEFTGRAD_TUNE=1: calls are tuned when they are first planned, up to {seconds():g} s each and "
            f"what building takes; what is found is kept in {where or 'this process alone, as the cache is off'}",
            file=sys.stderr, flush=True,
        )  # fmt: skip

    def add(self, found: search.Outcome, spent: float) -> None:
        self.calls += 1
        self.better += any(found.choices.values())
        self.spent += spent

    def done(self) -> None:
        print(
            f"weftgrad: tuned {self.calls} calls in {self.spent:.1f} s; of {self.better} something faster was found",
            file=sys.stderr,
        )


_told = _Told()


def seconds() -> float:
    """How long a miss may take. Raises `ArgumentError` where the environment names no time."""
    named = os.environ.get("WEFTGRAD_TUNE_SECONDS", "0.5")
    try:
        found = float(named)
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise ArgumentError(f"WEFTGRAD_TUNE_SECONDS={named}: give seconds, as in 0.5")
    return found


def may_tune(driver: Any) -> bool:
    """Whether this thread's work may be held up now to time kernels on a device."""
    if schedules.is_frozen() or tracing.current is not None or getattr(driver, "captures", False):
        return False
    streams = state().streams
    return streams is None or streams.get(driver.device) in (None, driver.default_stream)


def tune(plan: Any, request: Request, operands: Sequence[Any]) -> None:
    """Tune the call that a plan was just made for, if it has something to choose that was not looked at."""
    driver: Any = request.device.driver
    if not plan.planned.steps or not may_tune(driver) or not _lock.acquire(blocking=False):
        return
    try:
        call = Call.of(request, operands)
        _, asked = call.plan(tuned=True)
        known = schedules.known(schedules.device_key(driver))
        if all(question.key in known for question in asked):
            return
        # Memory that there is not beside the program's own, or a device that lost its context: the call itself says so.
        with contextlib.suppress(WeftgradError, MemoryError):
            _told.begin()
            begin = time.perf_counter()
            found = search.tune(call, seconds())
            if found is not None:
                search.keep([found])
                _told.add(found, time.perf_counter() - begin)
    finally:
        _lock.release()
