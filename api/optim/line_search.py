"""A line search for the strong Wolfe conditions, which `LBFGS` uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ..runtime.tensor import Tensor

__all__ = ["strong_wolfe"]


class _Point(NamedTuple):
    """A trial step length, with the loss, the gradient, and the slope of the loss along the direction there."""

    length: float
    loss: float
    grad: Tensor
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], tuple[float, Tensor, float]], length: float, largest: float, loss: float, grad: Tensor,
    slope: float, *, tolerance: float, max_tries: int, decrease: float = 1e-4, curvature: float = 0.9,
) -> tuple[float, Tensor, float, int]:  # fmt: skip
    """Find a step length that satisfies the strong Wolfe conditions (Nocedal and Wright 2006, algorithms 3.5 and 3.6).

    At length a, with slope s at 0: `loss(a) <= loss(0) + decrease * a * s` and `|slope(a)| <= curvature * |s|`. If the
    search ends without such a length, it returns the best one.

    Args:
        evaluate: Function of a length that returns (loss, gradient, slope) there.
        length: First trial length.
        largest: Largest absolute element of the direction.
        loss: Loss at length 0.
        grad: Gradient at length 0.
        slope: Slope at length 0; negative.
        tolerance: Stop when no parameter changes by this much between the bracket's ends.
        max_tries: Largest number of further trial lengths.
        decrease: Constant c1 of the sufficient decrease condition.
        curvature: Constant c2 of the curvature condition.

    Returns:
        (loss, gradient, length, calls of `evaluate`).
    """
    start = previous = _Point(0.0, loss, grad, slope)
    current = _Point(length, *evaluate(length))
    tries = 0
    while tries < max_tries:  # until two lengths bracket a minimum
        if current.loss > loss + decrease * current.length * slope or (tries > 1 and current.loss >= previous.loss):
            break
        if abs(current.slope) <= -curvature * slope:
            return current.loss, current.grad, current.length, tries + 1
        if current.slope >= 0:
            break
        min_length = current.length + 0.01 * (current.length - previous.length)
        trial_length = _cubic_minimum(previous, current, min_length, 10 * current.length)
        previous, current = current, _Point(trial_length, *evaluate(trial_length))
        tries += 1
    bracket = [start if tries == max_tries else previous, current]
    lowest = 0 if bracket[0].loss <= bracket[1].loss else 1
    was_near_end = False
    while tries < max_tries and abs(bracket[1].length - bracket[0].length) * largest >= tolerance:
        shortest, longest = sorted(p.length for p in bracket)
        trial_length = _cubic_minimum(bracket[0], bracket[1], shortest, longest)
        margin = 0.1 * (longest - shortest)
        is_near_end = min(longest - trial_length, trial_length - shortest) < margin
        if is_near_end and (was_near_end or trial_length >= longest or trial_length <= shortest):
            trial_length = (
                longest - margin if abs(trial_length - longest) < abs(trial_length - shortest) else shortest + margin
            )
            is_near_end = False
        was_near_end = is_near_end
        current = _Point(trial_length, *evaluate(trial_length))
        tries += 1
        if current.loss > loss + decrease * trial_length * slope or current.loss >= bracket[lowest].loss:
            bracket[1 - lowest] = current
            lowest = 0 if bracket[0].loss <= bracket[1].loss else 1
            continue
        meets_curvature = abs(current.slope) <= -curvature * slope
        if not meets_curvature and current.slope * (bracket[1 - lowest].length - bracket[lowest].length) >= 0:
            bracket[1 - lowest] = bracket[lowest]
        bracket[lowest] = current
        if meets_curvature:
            break
    best = bracket[lowest]
    return best.loss, best.grad, best.length, tries + 1


def _cubic_minimum(a: _Point, b: _Point, lower: float, upper: float) -> float:
    """Return the minimizer of the cubic through two points and their slopes, clamped to [lower, upper].

    The midpoint, if the cubic has no minimum. Source: Nocedal and Wright 2006, equation 3.59.
    """
    if a.length > b.length:
        a, b = b, a
    width = b.length - a.length
    if width:
        d1 = a.slope + b.slope - 3 * (b.loss - a.loss) / width
        discriminant = d1 * d1 - a.slope * b.slope
        if discriminant >= 0:
            root = math.sqrt(discriminant)
            denominator = b.slope - a.slope + 2 * root
            if denominator:
                return min(max(b.length - width * (b.slope + root - d1) / denominator, lower), upper)
    return (lower + upper) / 2
