"""Draw samples by rejection and by inversion, in vectorised steps: Poisson, binomial and gamma numbers.

Every step draws candidates for all elements, and keeps those that are accepted first. The samplers accept more than
half of the candidates, so that a few steps suffice; the number of steps is bounded, and the probability that an element
is left over is below 1e-19. It would be NaN. Whether all are accepted is read on the host after each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..autograd.grad_mode import no_grad
from ..creation.factories import zeros
from ..random import rand, randn
from ..runtime import dtypes
from ..runtime.tensor import Tensor
from .utils import sampling_dtype

__all__ = ["accept_first", "sample_binomial", "sample_log_gamma", "sample_poisson"]

_MAX_STEPS = 64
_MIN_MEAN_OF_REJECTION = 10.0  # below, the transformed rejection's squeeze does not hold (Hörmann 1993)
_MAX_COUNT_OF_INVERSION = 80  # P(X > 80) < 1e-40 for a Poisson or binomial X with a mean below 10


def accept_first(
    propose: Callable[[], tuple[Tensor, Tensor]], shape: Sequence[int], like: Tensor, is_done: Tensor | None = None
) -> Tensor:
    """Return the first accepted candidate of each element.

    Args:
        propose: Returns candidates, and a bool tensor that says which are accepted; both of shape `shape`.
        shape: Shape of the result.
        like: Tensor with the dtype and device of the result.
        is_done: Elements that need no candidate; their results are NaN.

    Returns:
        Tensor of shape `shape`.
    """
    result = like.new_full(tuple(shape), math.nan)
    accepted = zeros(tuple(shape), dtype=dtypes.bool_, device=like.device) if is_done is None else is_done
    for _ in range(_MAX_STEPS):
        if bool(accepted.all()):
            break
        candidate, is_accepted = propose()
        result = candidate.where(is_accepted & accepted.logical_not(), result)
        accepted = accepted | is_accepted
    return result


def sample_log_gamma(concentration: Tensor) -> Tensor:
    """Draw logarithms of gamma samples with rate 1; the logarithm of a sample below the dtype's range is finite, too.

    The algorithm is that of Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. For
    concentrations below 1 a sample of `concentration + 1` is multiplied by `u ** (1 / concentration)`.

    Args:
        concentration: Tensor of any shape, float32 or float64; positive.

    Returns:
        Tensor of the same shape, without gradients.
    """
    with no_grad():
        is_small = concentration < 1
        d = concentration + is_small.to(concentration) - 1 / 3
        c = (9 * d).rsqrt()
        shape = tuple(concentration.shape)

        def propose() -> tuple[Tensor, Tensor]:
            x = randn(shape, dtype=d.dtype, device=d.device)
            t = c * x
            log_v = 3 * t.clamp(min=-0.9999).log1p()
            # x**2 / 2 + d - d * v + d * log(v) with v = (1 + t)**3; equal terms cancel on paper, not in floats
            bound = x.square() / 6 - d * t * t * t + d * (log_v - 3 * t)
            log_u = -_exponential(shape, d)
            return d.log() + log_v, (t > -0.9999) & (log_u < bound)

        log_sample = accept_first(propose, shape, d, concentration.isnan())
        boost = _exponential(shape, d) / concentration
        return log_sample - boost.where(is_small, boost * 0)


def sample_poisson(rate: Tensor) -> Tensor:
    """Draw Poisson counts.

    Rates below 10 invert the distribution function. Others use the transformed rejection PTRS of Hörmann, "The
    transformed rejection method for generating Poisson random variables", 1993.

    Args:
        rate: Tensor of any shape, floating; not negative.

    Returns:
        Tensor of the same shape and dtype, without gradients.
    """
    with no_grad():
        mean = rate.to(sampling_dtype(rate.dtype))
        is_small = (mean >= _MIN_MEAN_OF_REJECTION).logical_not()

        def next_ratio(count: int) -> Tensor:
            return mean / (count + 1)

        small = _invert((-mean).exp(), next_ratio, is_small)
        m = mean.clamp(min=_MIN_MEAN_OF_REJECTION)
        b = 0.931 + 2.53 * m.sqrt()
        a = 0.02483 * b - 0.059
        log_scale = (1.1239 + 1.1328 / (b - 3.4)).log()
        squeeze = 0.9277 - 3.6224 / (b - 2)

        def log_mass(count: Tensor) -> Tensor:
            return (-_deviance(count, m) - _stirling_error(count) - _log_root(count)).where(count > 0, -m)

        large = _transformed_rejection(m, a, b, m + 0.43, squeeze, log_scale, log_mass, math.inf, is_small)
        return small.where(is_small, large).to(rate.dtype)


def sample_binomial(total_count: Tensor, probs: Tensor) -> Tensor:
    """Draw binomial counts.

    Means below 10, of successes or of failures, invert the distribution function. Others use the transformed rejection
    BTRS of Hörmann, "The generation of binomial random variates", 1993.

    Args:
        total_count: Number of trials, floating, of any shape.
        probs: Probability of success, of the same shape.

    Returns:
        Tensor of the same shape and the dtype of `probs`, without gradients.
    """
    with no_grad():
        dtype = sampling_dtype(probs.dtype)
        n = total_count.to(dtype)
        p_success = probs.to(dtype)
        is_flipped = p_success > 0.5
        p = (1 - p_success).where(is_flipped, p_success)  # at most a half
        q = 1 - p
        is_small = (n * p >= _MIN_MEAN_OF_REJECTION).logical_not()
        odds = p / q

        def next_ratio(count: int) -> Tensor:
            return odds * (n - count).clamp(min=0) / (count + 1)

        small = _invert((n * (-p).log1p()).exp(), next_ratio, is_small)
        safe_n = n.where(is_small.logical_not(), n * 0 + 40)
        safe_p = p.where(is_small.logical_not(), p * 0 + 0.5)
        safe_q = 1 - safe_p
        deviation = (safe_n * safe_p * safe_q).sqrt()
        b = 1.15 + 2.53 * deviation
        a = 0.0248 * b + 0.01 * safe_p - 0.0873
        squeeze = 0.92 - 4.2 / b
        log_scale = (deviation * (2.83 + 5.1 / b)).log()
        mode = ((safe_n + 1) * safe_p).floor()

        def log_mass(count: Tensor) -> Tensor:
            rest = safe_n - count
            inner = (
                _stirling_error(safe_n) - _stirling_error(count) - _stirling_error(rest)
                - _deviance(count, safe_n * safe_p) - _deviance(rest, safe_n * safe_q)
                + _log_root(safe_n) - _log_root(count) - _log_root(rest)
            )  # fmt: skip
            inner = inner.where(count > 0, safe_n * safe_q.log())
            return inner.where(rest > 0, safe_n * safe_p.log())

        log_mass_of_mode = log_mass(mode)
        large = _transformed_rejection(
            safe_n, a, b, safe_n * safe_p + 0.5, squeeze, log_scale,
            lambda count: log_mass(count) - log_mass_of_mode, safe_n, is_small,
        )  # fmt: skip
        count = small.where(is_small, large)
        return (n - count).where(is_flipped, count).to(probs.dtype)


def _exponential(shape: Sequence[int], like: Tensor) -> Tensor:
    """Draw from the exponential distribution with mean 1."""
    return like.new_empty(tuple(shape)).exponential_()


def _invert(mass_of_zero: Tensor, next_ratio: Callable[[int], Tensor], is_needed: Tensor) -> Tensor:
    """Return the counts at which the distribution function passes uniform numbers.

    Args:
        mass_of_zero: Probability of 0.
        next_ratio: Returns the probability of `count + 1`, divided by that of `count`.
        is_needed: Bool tensor; the results of other elements do not matter.

    Returns:
        Counts, of the shape and dtype of `mass_of_zero`.
    """
    u = rand(tuple(mass_of_zero.shape), dtype=mass_of_zero.dtype, device=mass_of_zero.device)
    mass, total, result = mass_of_zero, mass_of_zero, mass_of_zero * 0
    for count in range(_MAX_COUNT_OF_INVERSION):
        is_above = u >= total
        if not bool((is_above & is_needed).any()):
            break
        result = result + is_above.to(result)
        mass = mass * next_ratio(count)
        total = total + mass
    return result


def _transformed_rejection(
    like: Tensor, a: Tensor, b: Tensor, centre: Tensor, squeeze: Tensor, log_scale: Tensor,
    log_mass: Callable[[Tensor], Tensor], upper_bound: Tensor | float, is_done: Tensor,
) -> Tensor:  # fmt: skip
    """Return counts by Hörmann's transformed rejection.

    Args:
        like: Tensor with the shape, dtype and device of the result.
        a: Curvature of the transform.
        b: Its slope.
        centre: Its centre.
        squeeze: Uniform numbers below are accepted in the middle without computing the mass.
        log_scale: Logarithm of the hat's scale.
        log_mass: Returns the logarithm of the probability of a count, up to what `log_scale` contains.
        upper_bound: The largest count.
        is_done: Elements that need no sample.

    Returns:
        Tensor of counts.
    """
    largest = like.new_tensor(upper_bound) if isinstance(upper_bound, float) else upper_bound

    def propose() -> tuple[Tensor, Tensor]:
        u = rand(tuple(like.shape), dtype=like.dtype, device=like.device) - 0.5
        v = rand(tuple(like.shape), dtype=like.dtype, device=like.device)
        us = (0.5 - u.abs()).clamp(min=1e-7)
        count = ((2 * a / us + b) * u + centre).floor()
        is_inside = (count >= 0) & (count <= largest)
        in_middle = (us >= 0.07) & (v <= squeeze)
        log_hat = v.log() + log_scale - (a / us.square() + b).log()
        is_below = log_hat <= log_mass(count.clamp(min=0).minimum(largest))
        return count, is_inside & (in_middle | is_below)

    return accept_first(propose, like.shape, like, is_done)


def _log_root(count: Tensor) -> Tensor:
    """Return log(sqrt(2 pi count)), for counts from 1 on."""
    return (2 * math.pi * count.clamp(min=1)).log() / 2


def _stirling_error(count: Tensor) -> Tensor:
    """Return log(count!) minus Stirling's approximation of it, for counts from 1 on; the error is below 6e-4."""
    inverse = 1 / count.clamp(min=1)
    square = inverse.square()
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))


def _deviance(count: Tensor, mean: Tensor) -> Tensor:
    """Return count * log(count / mean) + mean - count without cancellation, for counts from 1 on (Loader 2000)."""
    count = count.clamp(min=1)
    difference = (mean - count) / count
    return count * (difference - difference.log1p())
