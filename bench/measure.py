"""Timing that is robust on a shared machine: contenders are interleaved in one process and reported as ratios.

A contender is a call and the clock that times it. One untimed call precedes each sample. On the host's cores a pause
comes before it, in which the spinning threads of other libraries go idle. A ratio compares minima with minima and
medians with medians of the same run; a single absolute time means little on a shared machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..runtime.schedules import frozen
from .clocks import Clock

if TYPE_CHECKING:
    from .report_types import Times

__all__ = ["PAUSE", "Timing", "compare", "host_cost"]

PAUSE = 0.15  # seconds; OpenBLAS threads were measured to spin for 60 to 150 ms after a product
_MIN_SAMPLES = 3  # per round
_ROUND_SECONDS = 0.03  # that a contender's samples take together, if it takes more than the minimum of samples
_SLOW = 2.0  # seconds; a call that takes longer is timed once only


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call: minimum (`least`), median, 20th and 80th percentile of the samples.

    late: number of samples in which the device may have waited for the host, which then show the host's time.
    host: minimum of the seconds that the host took to queue a call, or to run it where nothing is queued.
    mean, deviation, largest: mean, standard deviation and maximum of the samples.
    rounds: the minimum of each round, comparable with the other contenders' minimum of the same round.
    """

    least: float
    median: float
    p20: float
    p80: float
    samples: int
    late: int = 0
    host: float = 0.0
    rounds: tuple[float, ...] = ()
    mean: float = 0.0
    deviation: float = 0.0
    largest: float = 0.0

    def as_times(self) -> Times:
        """Return the timing as reports store it."""
        return {
            "least": self.least, "median": self.median, "p20": self.p20, "p80": self.p80, "samples": self.samples,
            "late": self.late, "host": self.host, "rounds": self.rounds, "mean": self.mean, "deviation": self.deviation,
            "largest": self.largest,
        }  # fmt: skip


def compare(
    contenders: Mapping[str, tuple[Callable[[], object], Clock]], *, rounds: int = 5,
    pause: Callable[[], None] = lambda: None, single_calls: int = 0,
) -> dict[str, Timing]:  # fmt: skip
    """Time all contenders, interleaved.

    Args:
        contenders: by name, the call and its clock.
        rounds: rounds of samples. A contender has as many samples in each round as its clock allows, three or more.
        pause: called between two rounds.
        single_calls: how many single calls are the samples of a round; 0: batches of calls, as long as the clock says.

    Returns:
        The timing of each contender.
    """
    counts: dict[str, tuple[int, int]] = {}  # calls per sample, samples per round
    times: dict[str, list[tuple[float, bool, float]]] = {name: [] for name in contenders}
    for name, (call, clock) in contenders.items():
        clock.time(call, 1)  # compiles
        first_sample = clock.time(call, 1)
        if first_sample[0] > _SLOW:
            times[name].append((*first_sample, clock.host))
            continue
        if single_calls:
            counts[name] = 1, single_calls
            continue
        call_seconds = max(clock.time(call, 3)[0] / 3, 1e-9)
        calls = max(1, min(clock.max_calls, int(clock.sample_seconds / call_seconds)))
        fitting = int(_ROUND_SECONDS / (calls * call_seconds))
        counts[name] = calls, max(_MIN_SAMPLES, min(clock.max_samples, fitting))
    with frozen():
        for round_index in range(rounds):
            if round_index:
                pause()
            for name, (count, samples_per_round) in counts.items():
                call, clock = contenders[name]
                time.sleep(clock.pause)
                clock.time(call, 1)
                for _ in range(samples_per_round):
                    seconds, late = clock.time(call, count)
                    times[name].append((seconds / count, late, clock.host))
    timings = {}
    for name, measurements in times.items():
        samples = [sample for sample, _, _ in measurements]
        samples_per_round = counts[name][1] if name in counts else 1
        rounds_least = tuple(min(samples[i : i + samples_per_round]) for i in range(0, len(samples), samples_per_round))
        summed = _summary(samples, sum(late for _, late, _ in measurements), min(host for *_, host in measurements))
        timings[name] = replace(summed, rounds=rounds_least)
    return timings


def host_cost(run: Callable[[], object], settle: Callable[[], object], *, calls: int = 100, rounds: int = 30) -> Timing:
    """Measure the host's seconds per call while work is queued: `run` makes `calls` calls, `settle` waits, untimed."""
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
    times = sorted(values)
    last = len(times) - 1
    middle = statistics.median(times)
    return Timing(
        times[0], middle, times[last // 5], times[last * 4 // 5], len(times), late, host,
        mean=statistics.fmean(times), deviation=statistics.stdev(times) if last else 0.0,
        largest=times[-1],
    )  # fmt: skip
