"""Whether one of two ways is faster: samples taken in turns, and what they are evidence of.

A machine that others use too makes samples longer, never shorter, by bursts. So samples of both ways come in turns, and
what is compared is the least of each in a stretch of turns: one turn without a burst is enough to know it. What counts
is how many stretches one wins (a sign test, which asks nothing of how times are distributed) and by how much.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Evidence", "chance", "weigh"]

_STRETCHES = 12  # into which many samples are cut


@dataclass(frozen=True, slots=True)
class Evidence:
    """What samples in turns tell. before, after: seconds, the least of each way. gain: times that the second is faster,
    the lesser of the ratio of these and the median ratio of stretches. wins: stretches, of so many, in which its least
    was less. noise: the part by which the first way differs from itself, where it was there twice in each turn."""

    before: float
    after: float
    gain: float
    wins: int
    stretches: int
    noise: float = 0.0

    def faster(self, least: float, doubt: float) -> bool:
        """Whether it is faster at least by the part `least`, and by more than noise, and would win as many stretches
        by chance with a probability of `doubt` at most."""
        return self.gain >= 1 + max(least, self.noise) and chance(self.wins, self.stretches) <= doubt


def chance(wins: int, stretches: int) -> float:
    """The probability of that many wins or more where both are equally fast."""
    return sum(math.comb(stretches, k) for k in range(wins, stretches + 1)) / 2**stretches


def weigh(one: Sequence[float], other: Sequence[float], again: Sequence[float] = ()) -> Evidence:
    """What samples of two ways tell that were taken in turns; again: the first way's once more, in the same turns."""
    pairs = list(zip(_least(one), _least(other), strict=True))
    before, after = min(one), min(other)
    ratio = statistics.median(a / b for a, b in pairs)
    noise = 0.0
    if again:
        between = statistics.median(a / c for a, c in zip(_least(one), _least(again), strict=True))
        noise = max(abs(between - 1), abs(before / min(again) - 1))
        before = min(before, *again)
    return Evidence(before, after, min(before / after, ratio), sum(b < a for a, b in pairs), len(pairs), noise)


def _least(times: Sequence[float]) -> list[float]:
    """The least of each stretch."""
    size = max(1, len(times) // _STRETCHES)
    count = len(times) // size
    return [min(times[i * size : (i + 1) * size if i + 1 < count else None]) for i in range(count)]
