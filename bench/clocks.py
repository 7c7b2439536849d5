"""Two clocks: the host's wall clock, and device events recorded behind filler work that keeps the device busy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .library_types import Event

__all__ = ["Clock", "DeviceClock", "WallClock"]


class Clock(Protocol):
    """Times calls.

    pause: idle seconds before a sample. max_calls: limit of calls per sample. sample_seconds: aimed length of a sample.
    max_samples: limit of samples per round. host: seconds per call that the host took to queue the last sample.
    """

    pause: float
    max_calls: int
    sample_seconds: float
    max_samples: int
    host: float

    def time(self, call: Callable[[], object], n: int) -> tuple[float, bool]:
        """Return the seconds that `n` calls took, and whether the device may have waited for the host in between."""
        ...


class WallClock:
    """Measure wall time from the first call until `wait` returns: the latency that a program sees.

    On a busy machine the scheduler takes a core away every few milliseconds. Many samples that are shorter than that
    have a minimum without an interruption; a few long ones do not.
    """

    max_calls = 5000
    sample_seconds, max_samples = 0.002, 12

    def __init__(self, wait: Callable[[], object], pause: float = 0.0):
        self.wait = wait
        self.pause = pause
        self.host = 0.0

    def time(self, call: Callable[[], object], n: int) -> tuple[float, bool]:
        begin = time.perf_counter()
        for _ in range(n):
            call()
        self.host = (time.perf_counter() - begin) / n
        self.wait()
        return time.perf_counter() - begin, False


class DeviceClock:
    """Measure device time between an event before the calls and an event after them: the time of the kernels.

    Filler work (`fill`) runs first and lasts longer than the host needs to queue all calls, so that the kernels run
    without gaps even if the host is slow. If the filler ends too early, the sample is repeated with more of it, up to
    two times.
    """

    pause = 0.0
    sample_seconds, max_samples = 0.01, 3  # other programs on the host's cores do not slow the device
    max_calls = 100  # a driver queues some thousand launches and blocks the host when the queue is full

    def __init__(self, event: Callable[[], Event], fill: Callable[[], object], wait: Callable[[], object]):
        self.event = event
        self.fill = fill
        self.wait = wait
        self.host = 20e-6  # seconds that the host takes to queue a call, from the previous sample
        self._fill_time = 0.0

    def time(self, call: Callable[[], object], n: int) -> tuple[float, bool]:
        if not self._fill_time:
            self._between(self.fill, 1, 0)
            self._fill_time = max(self._between(self.fill, 8, 0)[0] / 8, 1e-6)
        seconds, is_late = 0.0, True
        for _ in range(3):
            ahead = min(500, 1 + math.ceil(1.5 * n * self.host / self._fill_time))
            seconds, is_late = self._between(call, n, ahead)
            if not is_late:
                break
        return seconds, is_late

    def _between(self, call: Callable[[], object], n: int, ahead: int) -> tuple[float, bool]:
        begin, end = self.event(), self.event()
        self.wait()
        for _ in range(ahead):
            self.fill()
        begin.record()
        start = time.perf_counter()
        for _ in range(n):
            call()
        self.host = (time.perf_counter() - start) / n
        late = bool(begin.query())
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3, late
