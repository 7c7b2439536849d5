"""Decide from interleaved timing samples whether a candidate is faster than a baseline.

Other programs on the machine slow some samples down, in bursts; they never speed one up. So the baseline and the
candidate are timed alternately, and both series are cut into blocks of consecutive samples. Only the minimum of each
block counts, because one undisturbed sample per block is enough. A faster candidate must reach a minimum speedup and
pass a sign test over the blocks (which assumes nothing about the distribution of the times).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Evidence", "compare_samples", "sign_test_p_value"]

_BLOCKS = 12  # minimum per series (the maximum is 23); a series with fewer samples has one sample per block


@dataclass(frozen=True, slots=True)
class Evidence:
    """The comparison of a baseline with a candidate.

    Attributes:
        baseline_seconds: The shortest sample of the baseline.
        candidate_seconds: The shortest sample of the candidate.
        gain: Speedup of the candidate, such as 1.03. It is the smaller of two ratios of baseline to candidate: of their
            shortest samples, and the median over blocks of the ratio of block minima.
        wins: Number of blocks in which the candidate's minimum was shorter.
        blocks: Number of blocks.
        noise: Relative difference between two series of the baseline; 0 if there is only one series.
    """

    baseline_seconds: float
    candidate_seconds: float
    gain: float
    wins: int
    blocks: int
    noise: float = 0.0

    def is_faster(self, min_gain: float, max_p_value: float) -> bool:
        """Return True if the candidate is significantly faster than the baseline.

        Args:
            min_gain: Required relative speedup, such as 0.03 for 3%. If `noise` is larger, `noise` is required.
            max_p_value: Largest accepted p-value of the sign test.
        """
        return self.gain >= 1 + max(min_gain, self.noise) and sign_test_p_value(self.wins, self.blocks) <= max_p_value


def sign_test_p_value(wins: int, blocks: int) -> float:
    """Return the probability of at least `wins` wins in `blocks` blocks if baseline and candidate are equally fast."""
    return sum(math.comb(blocks, k) for k in range(wins, blocks + 1)) / 2**blocks


def compare_samples(
    baseline: Sequence[float], candidate: Sequence[float], baseline_repeat: Sequence[float] = ()
) -> Evidence:
    """Compare samples, in seconds, that were taken alternately.

    Args:
        baseline: Samples of the baseline.
        candidate: Samples of the candidate; as many as of the baseline.
        baseline_repeat: A second series of the baseline, measured in the same alternation, to estimate the noise.
    """
    minima = list(zip(_block_minima(baseline), _block_minima(candidate), strict=True))
    baseline_seconds, candidate_seconds = min(baseline), min(candidate)
    median_ratio = statistics.median(a / b for a, b in minima)
    noise = 0.0
    if baseline_repeat:
        repeat_ratio = statistics.median(
            a / c for a, c in zip(_block_minima(baseline), _block_minima(baseline_repeat), strict=True)
        )
        noise = max(abs(repeat_ratio - 1), abs(baseline_seconds / min(baseline_repeat) - 1))
        baseline_seconds = min(baseline_seconds, *baseline_repeat)
    return Evidence(
        baseline_seconds,
        candidate_seconds,
        min(baseline_seconds / candidate_seconds, median_ratio),
        sum(b < a for a, b in minima),
        len(minima),
        noise,
    )


def _block_minima(times: Sequence[float]) -> list[float]:
    """Return the minimum of each block of consecutive samples. The last block also has the remainder."""
    size = max(1, len(times) // _BLOCKS)
    count = len(times) // size
    return [min(times[i * size : (i + 1) * size if i + 1 < count else None]) for i in range(count)]
