"""Draw samples by rejection and by inversion, in vectorised steps: Poisson, binomial and gamma numbers.

Every step draws candidates for the elements that have none yet, and keeps those that are accepted. The samplers accept
more than half of the candidates, so that a few steps suffice; the number of steps is bounded, and the probability that
an element is left over is below 1e-19. It would be NaN. The host reads after each step which elements are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..autograd.grad_mode import no_grad
from ..random import rand, randn
from ..runtime.tensor import Tensor
from .utils import sampling_dtype

__all__ = ["accept_first", "sample_binomial", "sample_log_gamma", "sample_poisson"]

_MAX_STEPS = 64
_MIN_MEAN_OF_REJECTION = 10.0  # below, the transformed rejection's squeeze does not hold (Hörmann 1993)
_MAX_COUNT_OF_INVERSION = 80  # P(X > 80) < 1e-40 for a Poisson or binomial X with a mean below 10


def accept_first(
    propose: Callable[..., tuple[Tensor, Tensor]], parameters: Sequence[Tensor], is_done: Tensor
) -> Tensor:
    """Return the first accepted candidate of each element.

    Args:
        propose: Takes vectors of parameters; returns candidates, and a bool tensor that says which are accepted.
        parameters: Tensors of one shape, with the parameters of each element.
        is_done: Bool tensor of that shape: elements that need no candidate. Their results are NaN.

    Returns:
        Tensor of the shape and dtype of the parameters.
    """
    vectors = [parameter.reshape(-1) for parameter in parameters]
    result = vectors[0].new_full(tuple(vectors[0].shape), math.nan)
    remaining = is_done.reshape(-1).logical_not().nonzero().squeeze(1)
    for _ in range(_MAX_STEPS):
        if not len(remaining):
            break
        is_whole = len(remaining) == len(result)
        candidates, is_accepted = propose(*(vectors if is_whole else [v.index_select(0, remaining) for v in vectors]))
        candidates = candidates.masked_fill(is_accepted.logical_not(), math.nan)
        result = candidates if is_whole else result.index_copy(0, remaining, candidates)
        remaining = remaining.masked_select(is_accepted.logical_not())
    return result.reshape(tuple(parameters[0].shape))


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

        def propose(d: Tensor) -> tuple[Tensor, Tensor]:
            shape = tuple(d.shape)
            x = randn(shape, dtype=d.dtype, device=d.device)
            t = (9 * d).rsqrt() * x
            log_v = 3 * t.clamp(min=-0.9999).log1p()
            # x**2 / 2 + d - d * v + d * log(v) with v = (1 + t)**3; equal terms cancel on paper, not in floats
            bound = x.square() / 6 - d * t * t * t + d * (log_v - 3 * t)
            log_u = -_exponential(shape, d)
            return d.log() + log_v, (t > -0.9999) & (log_u < bound)

        log_sample = accept_first(propose, [d], concentration.isnan())
        boost = _exponential(concentration.shape, d) / concentration
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
        large = accept_first(_propose_poisson, [mean], is_small)
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
        large = accept_first(_propose_binomial, [n, p], is_small)
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


def _propose_poisson(mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return candidates of PTRS and which are accepted, for means from 10 on."""
    b = 0.931 + 2.53 * mean.sqrt()
    a = 0.02483 * b - 0.059
    log_scale = (1.1239 + 1.1328 / (b - 3.4)).log()
    count, log_hat, is_squeezed = _propose_by_quotient(a, b, mean + 0.43, 0.9277 - 3.6224 / (b - 2))
    log_mass = -_deviance(count, mean) - _stirling_error(count) - _log_root(count)
    log_mass = log_mass.where(count > 0, -mean)
    return count, (count >= 0) & (is_squeezed | (log_hat + log_scale <= log_mass))


def _propose_binomial(n: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Return candidates of BTRS and which are accepted, for `p` up to a half and `n * p` from 10 on."""
    q = 1 - p
    deviation = (n * p * q).sqrt()
    b = 1.15 + 2.53 * deviation
    a = 0.0248 * b + 0.01 * p - 0.0873
    log_scale = (deviation * (2.83 + 5.1 / b)).log()
    count, log_hat, is_squeezed = _propose_by_quotient(a, b, n * p + 0.5, 0.92 - 4.2 / b)

    def log_mass(count: Tensor) -> Tensor:
        rest = n - count
        inside = (
            _stirling_error(n) - _stirling_error(count) - _stirling_error(rest) - _deviance(count, n * p)
            - _deviance(rest, n * q) + _log_root(n) - _log_root(count) - _log_root(rest)
        )  # fmt: skip
        return inside.where(count > 0, n * q.log()).where(rest > 0, n * p.log())

    is_inside = (count >= 0) & (count <= n)
    ratio = log_mass(count.clamp(min=0).minimum(n)) - log_mass(((n + 1) * p).floor())
    return count, is_inside & (is_squeezed | (log_hat + log_scale <= ratio))


def _propose_by_quotient(a: Tensor, b: Tensor, centre: Tensor, squeeze: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return candidates of Hörmann's transformed rejection.

    Args:
        a: Curvature of the transform.
        b: Its slope.
        centre: Its centre.
        squeeze: Uniform numbers below are accepted in the middle without computing the mass.

    Returns:
        Counts, the logarithm of the height under the hat up to its scale, and which counts the squeeze accepts.
    """
    u = rand(tuple(a.shape), dtype=a.dtype, device=a.device) - 0.5
    v = rand(tuple(a.shape), dtype=a.dtype, device=a.device)
    us = (0.5 - u.abs()).clamp(min=1e-7)
    count = ((2 * a / us + b) * u + centre).floor()
    return count, v.log() - (a / us.square() + b).log(), (us >= 0.07) & (v <= squeeze)


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
