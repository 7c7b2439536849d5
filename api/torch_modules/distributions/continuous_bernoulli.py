"""The continuous Bernoulli distribution, over [0, 1].

Its density is `exp(logits * x - A(logits))` with `A(y) = log((exp(y) - 1) / y)`. Near 0, where the formulas divide 0 by
0, they use Taylor series.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..tensor_methods.size import Size
from . import constraints
from .constraints import Constraint
from .distribution import ExponentialFamily
from .utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs, probs_to_logits, uniform_inside

__all__ = ["ContinuousBernoulli"]

_SERIES_MAX_LOGIT = 0.3  # the next term of each series is below 1e-9
_SERIES_MAX_LOGIT_OF_QUANTILES = 1e-2


class ContinuousBernoulli(ExponentialFamily):
    """The distribution over [0, 1] with density proportional to `probs ** x * (1 - probs) ** (1 - x)`.

    It is the likelihood of grey values for which `Bernoulli` is not normalized (Loaiza-Ganem and Cunningham, "The
    continuous Bernoulli", 2019).

    Args:
        probs: Parameter between 0 and 1; it is not the mean.
        logits: Log-odds of the parameter; either this or `probs` is passed.
        lims: Accepted for compatibility: PyTorch's range of `probs` for Taylor series.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.
        DomainError: `probs` is not between 0 and 1.

    Example:
        >>> d = wg.distributions.ContinuousBernoulli(0.5)
        >>> d.mean, d.log_prob(wg.tensor(0.25))
        (tensor(0.5000), tensor(0.))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval, "logits": constraints.real
    }  # fmt: skip
    support: Constraint = constraints.unit_interval
    has_rsample = True
    _extra_attributes = ("_lims",)

    def __init__(
        self, probs: Tensor | float | None = None, logits: Tensor | float | None = None,
        lims: tuple[float, float] = (0.499, 0.501), validate_args: bool | None = None,
    ):  # fmt: skip
        if (probs is None) == (logits is None):
            state = "neither" if probs is None else "both"
            raise ArgumentError(f"ContinuousBernoulli: takes either probs or logits, not {state}")
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
            if validate_args is not False and self._validate_args:
                self._check_parameter("probs", self.probs, constraints.unit_interval)
            self.probs = clamp_probs(self.probs)
        elif logits is not None:
            (self.logits,) = broadcast_all(logits)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds of the parameter."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter between 0 and 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    @property
    def _param(self) -> Tensor:
        parameter: Tensor = vars(self)["probs" if "probs" in vars(self) else "logits"]
        return parameter

    @property
    def param_shape(self) -> Size:
        """The shape of `probs` and `logits`."""
        return self._param.shape

    @property
    def mean(self) -> Tensor:
        y = self.logits
        in_series, safe = _split(y, _SERIES_MAX_LOGIT)
        series = 0.5 + y / 12 - y.pow(3) / 720 + y.pow(5) / 30240
        return series.where(in_series, -1 / (-safe).expm1() - 1 / safe)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def variance(self) -> Tensor:
        y = self.logits
        in_series, safe = _split(y, _SERIES_MAX_LOGIT)
        square = y.square()
        series = 1 / 12 - square / 240 + square.square() / 6048 - square.pow(3) / 172800
        decay = (-safe.abs()).exp()  # 1 / (2 sinh(y / 2))**2 without overflow
        return series.where(in_series, 1 / safe.square() - decay / (1 - decay).square())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(uniform_inside(self._extended_shape(sample_shape), self._param))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self.logits * value - self._log_normalizer(self.logits)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y, x = broadcast_all(self.logits, value)
        in_series, safe = _split(y, _SERIES_MAX_LOGIT_OF_QUANTILES)
        series = x + x * (x - 1) * y / 2 * (1 + (2 * x - 1) * y / 6)
        magnitude = safe.abs()
        decay = (-magnitude).exp()
        rising = ((-magnitude * (1 - x)).exp() - decay) / (1 - decay)
        falling = (-magnitude * x).expm1() / (-magnitude).expm1()
        return series.where(in_series, rising.where(y > 0, falling)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        y, u = broadcast_all(self.logits, value)
        in_series, safe = _split(y, _SERIES_MAX_LOGIT_OF_QUANTILES)
        series = u + y * (u - u.square()) / 2 + y.square() * (u / 6 - u.square() / 2 + u.pow(3) / 3)
        magnitude = safe.abs()
        decay = (-magnitude).exp()
        rising = 1 + (u + (1 - u) * decay).log() / magnitude
        falling = -((1 - u) + u * decay).log() / magnitude
        return series.where(in_series, rising.where(y > 0, falling))

    def entropy(self) -> Tensor:
        return self._log_normalizer(self.logits) - self.logits * self.mean

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        """Return log((exp(y) - 1) / y) = y / 2 + log(sinh(h) / h) for h = y / 2."""
        (y,) = natural_params
        in_series, safe = _split(y, _SERIES_MAX_LOGIT)
        square = y.square()
        series = square / 24 - square.square() / 2880 + square.pow(3) / 181440
        magnitude = safe.abs()
        whole = magnitude / 2 + (-(-magnitude).exp()).log1p() - magnitude.log()
        return y / 2 + series.where(in_series, whole)


def _split(y: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Return which logits are near 0, and the logits with those replaced by 1, where formulas have finite gradients."""
    in_series = y.abs() < limit
    return in_series, y.masked_fill(in_series, 1.0)
