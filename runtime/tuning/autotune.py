"""Tune calls on their first plan (`WEFTGRAD_TUNE=1`).

A call without a tuned schedule is tuned when it is first planned, for at most half a second
(`WEFTGRAD_TUNE_SECONDS`). The result is stored in the user's file, so the next process need not search. It is used from
the next call on; the call that was tuned runs with the plan it has.

Nothing is tuned while a graph is captured, a profiler records, a benchmark runs (`schedules.frozen`), another thread
tunes, or if the stream is not the device's default one. Such a call runs with the schedules that are known, and is
tuned when it is next planned. A message on stderr announces the first tuning, and another one at exit sums up.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import schedules, tracing
from ..context import state
from ..errors import ArgumentError, WeftgradError
from ..kinds import Request
from . import search, store
from .measure import Call

if TYPE_CHECKING:
    from ..backends.protocol import Driver
    from ..dispatch import Plan

__all__ = ["may_tune", "seconds", "tune"]

_lock = threading.Lock()


class _ProgressReport:
    """Messages on stderr: a program that stands still for seconds in its first step should say why."""

    def __init__(self) -> None:
        self.has_started = False
        self.calls = self.improved = 0
        self.seconds_spent = 0.0

    def begin(self) -> None:
        if self.has_started:
            return
        self.has_started = True
        atexit.register(self.print_summary)
        cache_path = store.path()
        print(
            f"weftgrad: WEFTGRAD_TUNE=1: calls are tuned when they are first planned, up to {seconds():g} s each and "
            f"what building takes; what is found is kept in {cache_path or 'this process alone, as the cache is off'}",
            file=sys.stderr, flush=True,
        )  # fmt: skip

    def add(self, outcome: search.Outcome, seconds: float) -> None:
        self.calls += 1
        self.improved += any(outcome.choices.values())
        self.seconds_spent += seconds

    def print_summary(self) -> None:
        print(
            f"weftgrad: tuned {self.calls} calls in {self.seconds_spent:.1f} s; "
            f"of {self.improved} something faster was found",
            file=sys.stderr,
        )


_report = _ProgressReport()


def seconds() -> float:
    """Return the time limit of one search, in seconds (`WEFTGRAD_TUNE_SECONDS`).

    Raises:
        ArgumentError: The environment variable is not a positive number.
    """
    setting = os.environ.get("WEFTGRAD_TUNE_SECONDS", "0.5")
    try:
        limit = float(setting)
    except ValueError:
        limit = -1.0
    if not 0 < limit < float("inf"):
        raise ArgumentError(f"WEFTGRAD_TUNE_SECONDS={setting}: give seconds, as in 0.5")
    return limit


def may_tune(driver: Driver) -> bool:
    """Return True if this thread may be interrupted now to time kernels on the device."""
    if schedules.is_frozen() or tracing.current is not None or getattr(driver, "captures", False):
        return False
    streams = state().streams
    return streams is None or streams.get(driver.device) in (None, driver.default_stream)


def tune(plan: Plan, request: Request, operands: Sequence[object]) -> None:
    """Tune the call of a new plan if it has schedules to choose that were not tuned before (`schedules.on_plan`)."""
    driver = request.device.driver
    if plan.run is None or not may_tune(driver) or not _lock.acquire(blocking=False):
        return
    try:
        call = Call.from_request(request, operands)
        _, questions = call.plan(tuned=True)
        tuned = schedules.tuned_choices(schedules.device_key(driver))
        if all(question.key in tuned for question in questions):
            return
        # Ignore a lack of memory for the trials, or a lost device context: the call itself raises the latter.
        with contextlib.suppress(WeftgradError, MemoryError):
            _report.begin()
            begin = time.perf_counter()
            outcome = search.tune(call, seconds())
            if outcome is not None:
                search.keep_outcomes([outcome])
                _report.add(outcome, time.perf_counter() - begin)
    finally:
        _lock.release()
