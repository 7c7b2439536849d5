"""Gamma samples with gradients by implicit reparameterisation.

Of a sample z = exp(w) with distribution function F(z; a), the derivative with respect to the concentration a is
-(dF/da) / (dF/dz) at a fixed probability (Figurnov et al., "Implicit reparameterization gradients", 2018). With the
density p(z) = z**(a - 1) exp(-z) / gamma(a), and in the logarithm of the sample,

    dw/da = -1 / (z p(z)) * integral of p(t) (log t - digamma(a)) for t from 0 to z.

Small concentrations and samples use the power series of the integral. Others use Gauss-Legendre quadrature from z
outwards, to where the density has fallen by exp(-36). Against 50 digits the relative error is below 1e-12 in float64.
"""

from __future__ import annotations

import math

import numpy as np

from ..autograd.function import Function, FunctionCtx, once_differentiable
from ..runtime.tensor import Tensor
from .rejection import sample_log_gamma
from .utils import sampling_dtype

__all__ = ["limit_samples", "log_gamma_derivative", "log_standard_gamma"]

_SERIES_MAX_CONCENTRATION = 10.0
_SERIES_MAX_SAMPLE = 2.0  # the series is also used up to `concentration + 0.5`, where its terms have one sign
_SERIES_TERMS = 60
_LOG_RANGE = 36.0  # exp(-36) is 2e-16
_NODES = 40


class _LogStandardGamma(Function):
    """Draw logarithms of gamma samples with rate 1, with gradients."""

    @staticmethod
    def forward(ctx: FunctionCtx, concentration: Tensor, min_log_sample: float, is_share: bool) -> Tensor:
        log_sample = sample_log_gamma(concentration)
        if is_share:
            log_sample = log_sample.maximum(log_sample.logsumexp(-1, True) + min_log_sample)
        else:
            log_sample = log_sample.clamp(min=min_log_sample)
        ctx.save_for_backward(concentration, log_sample)
        return log_sample

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        concentration, log_sample = ctx.saved_tensors
        assert concentration is not None
        assert log_sample is not None
        return grad * log_gamma_derivative(concentration, log_sample), None, None


class _LimitedSamples(Function):
    """Clamp samples from below, and give the gradient to all of them."""

    @staticmethod
    def forward(ctx: FunctionCtx, samples: Tensor, low: float) -> Tensor:
        return samples.clamp(min=low)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def limit_samples(samples: Tensor, low: float) -> Tensor:
    """Return samples that are at least `low`; those that are raised keep the gradient, as in PyTorch."""
    limited: Tensor = _LimitedSamples.apply(samples, low)
    return limited


def log_standard_gamma(concentration: Tensor, min_log_sample: float = -math.inf, *, is_share: bool = False) -> Tensor:
    """Draw logarithms of gamma samples with rate 1 and gradients with respect to the concentration.

    Args:
        concentration: Positive floating tensor of any shape.
        min_log_sample: Smaller logarithms are raised to it, and have the gradient of a sample there.
        is_share: Whether `min_log_sample` is relative to the sum of the samples along the last dimension.

    Returns:
        Tensor of the same shape; float32 for 16-bit dtypes, else of the same dtype. Gradients have no gradients.
    """
    concentration = concentration.to(sampling_dtype(concentration.dtype))
    log_sample: Tensor = _LogStandardGamma.apply(concentration, min_log_sample, is_share)
    return log_sample


def log_gamma_derivative(concentration: Tensor, log_sample: Tensor) -> Tensor:
    """Return the derivative of the logarithm of a gamma sample with respect to the concentration.

    Args:
        concentration: Positive tensor.
        log_sample: Logarithm of a sample with rate 1, of the same shape.

    Returns:
        Tensor of the same shape.
    """
    sample = log_sample.exp()
    in_series = (concentration < _SERIES_MAX_CONCENTRATION) & (
        (sample < _SERIES_MAX_SAMPLE) | (sample < concentration + 0.5)
    )
    result = log_sample * 0
    if bool(in_series.any()):
        small = sample.clamp(max=_SERIES_MAX_CONCENTRATION + 0.5)
        result = _by_series(concentration, small, log_sample).where(in_series, result)
    if not bool(in_series.all()):
        large = sample.clamp(min=1e-3)
        result = result.where(in_series, _by_quadrature(concentration, large, log_sample))
    return result


def _by_series(a: Tensor, z: Tensor, log_z: Tensor) -> Tensor:
    """Sum -z**n gamma(a) / gamma(a + n + 1) * (log z - digamma(a + n + 1)) over n from 0 on."""
    term = 1 / a
    digamma = (a + 1).digamma()
    total = term * (log_z - digamma)
    for n in range(1, _SERIES_TERMS):
        step = 1 / (a + n)
        term = term * z * step
        digamma = digamma + step
        total = total + term * (log_z - digamma)
    return -total


def _by_quadrature(a: Tensor, z: Tensor, log_z: Tensor) -> Tensor:
    """Integrate over v = log(t / z), from 0 to the end where exp(a v - z (exp(v) - 1)) is below exp(-36).

    Below the mean the integral runs to the left. Above it runs to the right, with the opposite sign, because the
    integral over all t is 0.
    """
    is_left = z < a
    distance = (z - a).abs()
    # Both ends are beyond the exact ones: 1 - exp(-s) <= s / (1 + s / 2), and exp(r) - 1 >= r + r**2 / 2.
    b = 2 * distance - _LOG_RANGE
    left = -((b.square() + 8 * _LOG_RANGE * a).sqrt() - b) / (2 * a)
    right = ((distance.square() + 2 * _LOG_RANGE * z).sqrt() - distance) / z
    end = left.where(is_left, right)
    total = z * 0
    score_at_sample = log_z - a.digamma()
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        v = end * ((node + 1) / 2)
        exponent = (a - z) * v - z * (v.expm1() - v)
        total = total + exponent.exp() * (score_at_sample + v) * (weight / 2)
    return total * end  # on both sides: leftwards `end` is negative, which is the sign of -integral
