"""Timing that survives a shared machine: contenders interleaved in one process, reported as ratios.

A contender is a call and the clock that times it. Before each sample there is one untimed call and, for what runs on
the host's cores, a pause in which the other runtimes' spinning threads go idle. A ratio compares minima with minima
and medians with medians of the same run; a single absolute time means little on a shared machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..runtime.schedules import frozen
from .clocks import Clock

__all__ = ["PAUSE", "Timing", "compare", "host_cost"]

PAUSE = 0.15  # seconds; OpenBLAS's threads were seen to spin for more than 60 ms after a product, and less than 150
_SAMPLES = 3  # a round
_SLOW = 2.0  # seconds; what takes longer a call is called once more, and that is its time


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds a call: the least, the median, and the 20th and 80th percentile of the samples.

    late: in how many samples the device may have waited for the host, which then show the host's time.
    host: the least seconds that the host took to queue a call; of the whole call where nothing is queued.
    rounds: the least of each round, whose samples were taken together with the other contenders' of the round.
    """

    least: float
    median: float
    p20: float
    p80: float
    samples: int
    late: int = 0
    host: float = 0.0
    rounds: tuple[float, ...] = ()


def compare(
    contenders: Mapping[str, tuple[Callable[[], Any], Clock]], *, rounds: int = 5, sample: float = 0.01,
    pause: Callable[[], None] = lambda: None,
) -> dict[str, Timing]:  # fmt: skip
    """Time all contenders in turn. A sample lasts about `sample` seconds and there are three a round. pause: called
    between two rounds."""
    counts: dict[str, int] = {}
    times: dict[str, list[tuple[float, bool, float]]] = {name: [] for name in contenders}
    for name, (call, clock) in contenders.items():
        clock.time(call, 1)  # compiles
        once = clock.time(call, 1)
        if once[0] > _SLOW:
            times[name].append((*once, clock.host))
            continue
        took, _ = clock.time(call, 3)
        counts[name] = max(1, min(clock.most, int(sample * 3 / max(took, 1e-9))))
    with frozen():
        for done in range(rounds):
            if done:
                pause()
            for name, count in counts.items():
                call, clock = contenders[name]
                time.sleep(clock.pause)
                clock.time(call, 1)
                for _ in range(_SAMPLES):
                    seconds, late = clock.time(call, count)
                    times[name].append((seconds / count, late, clock.host))
    timings = {}
    for name, found in times.items():
        samples = [sample for sample, _, _ in found]
        rounds_least = tuple(min(samples[i : i + _SAMPLES]) for i in range(0, len(samples), _SAMPLES))
        summed = _summary(samples, sum(late for _, late, _ in found), min(host for *_, host in found))
        timings[name] = replace(summed, rounds=rounds_least)
    return timings


def host_cost(run: Callable[[], object], settle: Callable[[], object], *, calls: int = 100, rounds: int = 30) -> Timing:
    """Seconds a call takes on the host while work is pipelined: `run` makes `calls` calls, `settle` waits, untimed."""
    for _ in range(3):
        run()
    settle()
    times = []
    with frozen():
        for _ in range(rounds):
            begin = time.perf_counter()
            run()
            times.append((time.perf_counter() - begin) / calls)
            settle()
    return _summary(times)


def _summary(values: list[float], late: int = 0, host: float = 0.0) -> Timing:
    ordered = sorted(values)
    last = len(ordered) - 1
    middle = statistics.median(ordered)
    return Timing(ordered[0], middle, ordered[last // 5], ordered[last * 4 // 5], len(ordered), late, host)
