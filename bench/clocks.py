"""Two ways to time calls: by the host's clock, or between two events on a device that is kept busy ahead of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Clock", "DeviceClock", "WallClock"]


class Clock(Protocol):
    """Times calls. pause: seconds of quiet before a sample. most: calls a sample may have. host: seconds that the host
    took to queue a call of the last sample."""

    pause: float
    most: int
    host: float

    def time(self, call: Callable[[], Any], n: int) -> tuple[float, bool]:
        """Seconds that `n` calls took, and whether the device may have waited for the host meanwhile."""
        ...


class WallClock:
    """The host's clock, from the first call until `wait` returns: what a program waits."""

    most = 5000

    def __init__(self, wait: Callable[[], Any], pause: float = 0.0):
        self.wait = wait
        self.pause = pause
        self.host = 0.0

    def time(self, call: Callable[[], Any], n: int) -> tuple[float, bool]:
        begin = time.perf_counter()
        for _ in range(n):
            call()
        self.host = (time.perf_counter() - begin) / n
        self.wait()
        return time.perf_counter() - begin, False


class DeviceClock:
    """The device's clock, between an event before the calls and one behind them: what the kernels take.

    Work (`fill`) that lasts longer than the host needs to queue all calls goes ahead, so that they run without gaps
    however long the host takes for one. Where it did not last, the sample is taken again with more, twice.
    """

    pause = 0.0
    most = 100  # a driver holds some thousand launches, and blocks the host at more

    def __init__(self, event: Callable[[], Any], fill: Callable[[], Any], wait: Callable[[], Any]):
        self.event = event
        self.fill = fill
        self.wait = wait
        self.host = 20e-6  # seconds that the host takes for a call: what the sample before took
        self._fill_time = 0.0

    def time(self, call: Callable[[], Any], n: int) -> tuple[float, bool]:
        if not self._fill_time:
            self._between(self.fill, 1, 0)
            self._fill_time = max(self._between(self.fill, 8, 0)[0] / 8, 1e-6)
        seconds, late = 0.0, True
        for _ in range(3):
            ahead = min(500, 1 + math.ceil(1.5 * n * self.host / self._fill_time))
            seconds, late = self._between(call, n, ahead)
            if not late:
                break
        return seconds, late

    def _between(self, call: Callable[[], Any], n: int, ahead: int) -> tuple[float, bool]:
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
