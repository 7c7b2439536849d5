"""Whether one of two ways is faster: samples taken in turns, and what they are evidence of.

A machine that others use too makes samples longer, never shorter, in bursts that last for many of them. So samples of
both ways come in pairs, one right after the other, with either in front by turns, and what counts is how many pairs
one wins (a sign test, which asks nothing of how times are distributed) and by how much, in minima and in pairs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Evidence", "chance", "weigh"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What pairs of samples tell. before, after: seconds, the least of each. gain: times that the second way is faster,
    the lesser of the ratio of minima and the median ratio of pairs. wins: pairs that it won. noise: the part by which
    samples of the first way differ from each other where they should not."""

    before: float
    after: float
    gain: float
    wins: int
    pairs: int
    noise: float = 0.0

    def faster(self, least: float, doubt: float) -> bool:
        """Whether it is faster at least by the part `least`, and by more than noise, and would win as many pairs by
        chance with a probability of `doubt` at most."""
        return self.gain >= 1 + max(least, self.noise) and chance(self.wins, self.pairs) <= doubt


def chance(wins: int, pairs: int) -> float:
    """The probability of that many wins or more where both are equally fast."""
    return sum(math.comb(pairs, k) for k in range(wins, pairs + 1)) / 2**pairs


def weigh(one: Sequence[float], other: Sequence[float], again: Sequence[float] = ()) -> Evidence:
    """What pairs of samples tell; again: more samples of the first way, taken in the same turns."""
    before, after = min(one), min(other)
    pairs = list(zip(one, other, strict=True))
    ratios = statistics.median(a / b for a, b in pairs)
    noise = 0.0
    if again:
        between = statistics.median(a / c for a, c in zip(one, again, strict=True))
        noise = max(abs(between - 1), abs(1 / between - 1), abs(before / min(again) - 1))
        before = min(before, *again)
    return Evidence(before, after, min(before / after, ratios), sum(b < a for a, b in pairs), len(pairs), noise)
