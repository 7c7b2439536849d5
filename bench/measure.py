"""Timing that survives a shared machine: contenders interleaved in one process, reported as ratios.

Every contender is a function that does its work `n` times and then waits. Before each sample there is a pause in
which the other runtimes' spinning threads go idle, and one untimed call. A ratio compares minima with minima and
medians with medians of the same run; a single absolute time means little here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Timing", "compare", "host_cost"]

_PAUSE = 0.06  # seconds; OpenBLAS spins for 2^26 cycles, which 20 ms do not cover


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds a call: the least, the median, and the 20th and 80th percentile of the samples."""

    least: float
    median: float
    p20: float
    p80: float
    samples: int


def compare(
    contenders: Mapping[str, Callable[[int], None]], *, rounds: int = 5, sample: float = 0.01
) -> dict[str, Timing]:
    """Time all contenders in turn. A sample lasts about `sample` seconds and there are 3 a round."""
    counts: dict[str, int] = {}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for name, run in contenders.items():
        run(2)
        begin = time.perf_counter()
        run(3)
        counts[name] = max(1, min(5000, int(sample * 3 / (time.perf_counter() - begin))))
    for _ in range(rounds):
        for name, run in contenders.items():
            time.sleep(_PAUSE)
            count = counts[name]
            run(1)
            for _ in range(3):
                begin = time.perf_counter()
                run(count)
                times[name].append((time.perf_counter() - begin) / count)
    return {name: _summary(values) for name, values in times.items()}


def host_cost(run: Callable[[], object], settle: Callable[[], object], *, calls: int = 100, rounds: int = 30) -> Timing:
    """Seconds a call takes on the host while work is pipelined: `run` makes `calls` calls, `settle` waits, untimed."""
    for _ in range(3):
        run()
    settle()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) / calls)
        settle()
    return _summary(times)


def _summary(values: list[float]) -> Timing:
    ordered = sorted(values)
    last = len(ordered) - 1
    return Timing(ordered[0], statistics.median(ordered), ordered[last // 5], ordered[last * 4 // 5], len(ordered))
