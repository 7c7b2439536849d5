"""The time of a run: how long it may take, how many rounds a row gets of it, and how much is left."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import IO

from ..runtime.errors import ArgumentError

__all__ = ["Allowance", "Progress", "parse_seconds"]


def parse_seconds(text: str) -> float:
    """Return the seconds of `90`, `90s`, `10m` or `1h`. Raise ArgumentError for any other text."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if match is None or not float(match[1]) > 0:
        raise ArgumentError(f"bench: --time takes a time as 90s, 10m or 1h, not {text!r}")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


class Allowance:
    """A time budget: decides how many rounds of samples the next row gets.

    Model: preparing, checking and compiling take half of the time of a row with all rounds. Rows get fewer rounds, but
    at least one, as soon as the remaining rows would exceed the budget. When the time is up, they get none.
    """

    def __init__(self, seconds: float | None, now: Callable[[], float] = time.monotonic):
        self._now = now
        self.end = None if seconds is None else now() + seconds
        self._full: list[float] = []  # seconds that rows took, as if they had had all rounds

    def rounds(self, max_rounds: int, rows: int) -> int:
        """Return the rounds for the next of `rows` remaining rows, at most `max_rounds`."""
        if self.end is None:
            return max_rounds
        seconds_left = self.end - self._now()
        if seconds_left <= 0:
            return 0
        if not self._full:
            return max_rounds
        share = seconds_left / max(1, rows) / (sum(self._full) / len(self._full))
        return max(1, min(max_rounds, math.floor((2 * share - 1) * max_rounds)))

    def share(self, rows: int) -> float | None:
        """Return the seconds for the next of `rows` remaining rows if all get the same; None without a budget."""
        return None if self.end is None else max(0.0, self.end - self._now()) / max(1, rows)

    def record(self, seconds: float, rounds: int, max_rounds: int) -> None:
        """Record the seconds that a row with `rounds` rounds took."""
        self._full.append(seconds * 2 * max_rounds / (max_rounds + rounds))

    def left(self, rows: int) -> float | None:
        """Estimate the seconds for the remaining `rows` rows from the finished ones; None before the first."""
        if not self._full:
            return None
        needed = rows * sum(self._full) / len(self._full)
        return needed if self.end is None else min(needed, max(0.0, self.end - self._now()))


class Progress:
    """A progress line with the current row and the remaining time. Silent if the stream is no terminal."""

    def __init__(self, total: int, stream: IO[str]):
        self.total, self.done = total, 0
        self._stream = stream if stream.isatty() else None

    def show(self, name: str, left: float | None) -> None:
        """Show the row that is measured now and the estimated seconds left."""
        if self._stream is not None:
            left_text = "" if left is None else f", {_duration(left)} left"
            self._stream.write(f"\r\x1b[K[{self.done + 1}/{self.total}{left_text}] {name[:60]}")
            self._stream.flush()

    def clear(self) -> None:
        """Erase the line, before other output."""
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _duration(seconds: float) -> str:
    """Format seconds as `1 h 05 min`, `2 min` or `40 s`."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    return f"{math.ceil(seconds / 60)} min" if seconds > 90 else f"{math.ceil(seconds)} s"
