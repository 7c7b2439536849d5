"""Why a time or a ratio is uncertain: load on the machine, samples that disagree; and the range of a ratio."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from .machine_load import is_loaded
from .number_text import number

if TYPE_CHECKING:
    from .report_types import HostRow, Times

__all__ = ["load_doubts", "ratio_range", "sample_doubts"]

_MAX_SPREAD = 0.2  # of a row's rounds above its minimum; more means that the samples disagree
_MIN_ROUNDS = 3  # whose middle says something about a row; a row with fewer is judged by all its samples
_MIN_SAMPLES = 6  # of which a fifth are more than the minimum itself


def load_doubts(load: float | None, cores: int | None = None) -> tuple[str, ...]:
    """Return a remark if other programs kept the machine's cores busy. cores: None for this machine's."""
    if load is None or not is_loaded(load, cores):
        return ()
    return (f"under load: others used {number(load)} cores",)


def sample_doubts(time: Times | HostRow, contender: str = "") -> tuple[str, ...]:
    """Return a remark if the minimum is far below other samples.

    In half of the rounds even the best sample has to be slower than the minimum by `_MAX_SPREAD`. Of a row with one or
    two rounds, half of all samples: three samples in a row say nothing about the next burst of load, so their minimum
    is compared with their median. Of times without rounds, four fifths of the samples.

    Args:
        time: a contender's times in seconds.
        contender: its name, for the remark; empty for our device.
    """
    rounds, samples = time.get("rounds", ()), time.get("samples", 0)
    if len(rounds) >= _MIN_ROUNDS:
        usual = statistics.median(rounds)
    elif rounds or 0 < samples < _MIN_SAMPLES:
        usual = time["median"]
    else:
        usual = time.get("p20", time["least"])
    spread = usual / time["least"] - 1
    subject = f"{contender}'s samples" if contender else "samples"
    return (f"{subject} disagree: usually {spread:.0%} slower",) if spread > _MAX_SPREAD else ()


def ratio_range(time: Times, other: Times) -> tuple[float, float]:
    """Return the least and the largest ratio other / time that the samples support.

    With three rounds or more, the ratios of the two minima of each round: samples of both contenders alternate within a
    round, so that a slow phase of the machine slows both. With fewer rounds, the ratios of p20 to p80 of the samples,
    in both directions. The ratio of the minima and that of the medians are always within the range.
    """
    ratios = [other["least"] / time["least"], other["median"] / time["median"]]
    rounds, other_rounds = time.get("rounds", ()), other.get("rounds", ())
    if len(rounds) == len(other_rounds) and len(rounds) >= _MIN_ROUNDS:
        ratios += [b / a for a, b in zip(rounds, other_rounds, strict=True)]
    else:
        ratios += [
            other.get("p20", other["median"]) / time.get("p80", time["median"]),
            other.get("p80", other["median"]) / time.get("p20", time["median"]),
        ]
    return min(ratios), max(ratios)
