"""The load that other programs put on the machine's cores while something is measured.

Linux counts in `/proc/stat` how long the cores were busy, and how long a hypervisor gave them to other virtual
machines. What this process and its descendants did not use of that time, other programs did. Load is their time / the
time that passed: 0.5 if they kept half of a core busy. Counters have ticks of 10 ms, so the load of less than some
tenths of a second is rough. On systems without `/proc` the load is unknown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["LoadMeter", "is_loaded", "load_now", "read_counters"]

_PROC = Path("/proc")
_BUSY_COLUMNS = (1, 2, 3, 6, 7, 8)  # of a line of /proc/stat: user, nice, system, irq, softirq, steal
Counters = tuple[float, float, float]
"""Seconds: all cores' busy time, this process's and its descendants' processor time, the wall clock."""


class LoadMeter:
    """Measures the load between `start` and `stop`, which may be called several times: intervals add up.

    Args:
        read: returns the counters, or None if the system has none; tests replace it.
    """

    def __init__(self, read: Callable[[], Counters | None] | None = None):
        self._read = read or read_counters
        self._begin: Counters | None = None
        self._others_seconds = self._wall_seconds = 0.0

    def start(self) -> None:
        """Begin an interval."""
        self._begin = self._read()

    def stop(self) -> None:
        """End the interval."""
        end, begin = self._read(), self._begin
        if begin is not None and end is not None:
            busy, own, wall = (b - a for a, b in zip(begin, end, strict=True))
            self._others_seconds += busy - own
            self._wall_seconds += wall
        self._begin = None

    @property
    def load(self) -> float | None:
        """The cores that other programs used, on average; None if it is unknown."""
        return max(0.0, round(self._others_seconds / self._wall_seconds, 2)) if self._wall_seconds else None


def is_loaded(load: float | None, cores: int | None = None) -> bool:
    """Return True if times are uncertain under a load: from a quarter of a core on, or 1/32 of many cores.

    Args:
        load: the cores that other programs use; None if unknown.
        cores: the machine's cores; None for this machine's.
    """
    return load is not None and load >= max(0.25, (cores or os.cpu_count() or 1) / 32)


def load_now(seconds: float = 0.5) -> float | None:
    """Return the load over the next `seconds`, in which this process sleeps; None if it is unknown."""
    meter = LoadMeter()
    meter.start()
    time.sleep(seconds)
    meter.stop()
    return meter.load


def read_counters() -> Counters | None:
    """Return the counters; None on systems without `/proc/stat`."""
    try:
        words = (_PROC / "stat").read_text(encoding="ascii").partition("\n")[0].split()
        ticks_per_second = os.sysconf("SC_CLK_TCK")
        busy = sum(int(words[i]) for i in _BUSY_COLUMNS)
        return busy / ticks_per_second, _own_ticks() / ticks_per_second, time.perf_counter()
    except (OSError, ValueError, IndexError):
        return None


def _own_ticks() -> int:
    """Return the ticks that this process and all its descendants used, those that have ended included."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # the process has just ended
            continue
        pid = int(folder.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))  # in user mode, in the kernel, and the same of children that ended
    total, remaining = 0, [os.getpid()]
    while remaining:
        pid = remaining.pop()
        total += ticks.get(pid, 0)
        remaining += children.get(pid, ())
    return total
