"""How far to go along a direction: a line search for the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["strong_wolfe"]


class _Point(NamedTuple):
    """A length tried, the loss and gradient there, and the loss's slope along the direction."""

    length: float
    loss: float
    grad: Any
    slope: float


def strong_wolfe(
    at: Callable[[float], tuple[float, Any, float]], length: float, largest: float, loss: float, grad: Any,
    slope: float, *, tolerance: float, most: int, decrease: float = 1e-4, curvature: float = 0.9,
) -> tuple[float, Any, float, int]:  # fmt: skip
    """(loss, gradient, length, calls of `at`) at a length that lowers the loss by `decrease` of what the slope at 0
    promises, and where the slope is at most `curvature` times as steep (Nocedal and Wright 2006, algorithms 3.5
    and 3.6); after `most` tries, or where two lengths are a step of `tolerance` apart, at the best one found.

    at: (loss, gradient, slope) at a length. largest: the largest element of the direction. loss, grad, slope: at 0.
    """
    start = before = _Point(0.0, loss, grad, slope)
    now = _Point(length, *at(length))
    tries = 0
    while tries < most:  # until two lengths have a minimum between them
        if now.loss > loss + decrease * now.length * slope or (tries > 1 and now.loss >= before.loss):
            break
        if abs(now.slope) <= -curvature * slope:
            return now.loss, now.grad, now.length, tries + 1
        if now.slope >= 0:
            break
        least = now.length + 0.01 * (now.length - before.length)
        further = _minimum(before, now, least, 10 * now.length)
        before, now = now, _Point(further, *at(further))
        tries += 1
    ends = [start if tries == most else before, now]
    low = 0 if ends[0].loss <= ends[1].loss else 1
    stuck = False
    while tries < most and abs(ends[1].length - ends[0].length) * largest >= tolerance:
        first, last = sorted(p.length for p in ends)
        further = _minimum(ends[0], ends[1], first, last)
        margin = 0.1 * (last - first)
        near = min(last - further, further - first) < margin
        if near and (stuck or further >= last or further <= first):
            further = last - margin if abs(further - last) < abs(further - first) else first + margin
            near = False
        stuck = near
        now = _Point(further, *at(further))
        tries += 1
        if now.loss > loss + decrease * further * slope or now.loss >= ends[low].loss:
            ends[1 - low] = now
            low = 0 if ends[0].loss <= ends[1].loss else 1
            continue
        done = abs(now.slope) <= -curvature * slope
        if not done and now.slope * (ends[1 - low].length - ends[low].length) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = now
        if done:
            break
    best = ends[low]
    return best.loss, best.grad, best.length, tries + 1


def _minimum(a: _Point, b: _Point, low: float, high: float) -> float:
    """Where the cubic through two points with their slopes is least, held between `low` and `high` (Nocedal and
    Wright 2006, equation 3.59); halfway between these where it has no minimum."""
    if a.length > b.length:
        a, b = b, a
    width = b.length - a.length
    if width:
        bend = a.slope + b.slope - 3 * (b.loss - a.loss) / width
        inside = bend * bend - a.slope * b.slope
        if inside >= 0:
            root = math.sqrt(inside)
            below = b.slope - a.slope + 2 * root
            if below:
                return min(max(b.length - width * (b.slope + root - bend) / below, low), high)
    return (low + high) / 2
