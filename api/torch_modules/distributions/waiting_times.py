"""Distributions of positive numbers by powers and exponentials: `Exponential`, `Pareto`, `Weibull`, `Kumaraswamy`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..pointwise.type_info import finfo
from ..runtime.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution, ExponentialFamily
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform, PowerTransform
from .utils import broadcast_all, uniform_inside

__all__ = ["Exponential", "GeneralizedPareto", "Kumaraswamy", "Pareto", "Weibull"]

_EULER_GAMMA = 0.57721566490153286


class Exponential(ExponentialFamily):
    """The exponential distribution.

    Args:
        rate: Inverse of the mean, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `rate` is not positive.

    Example:
        >>> wg.distributions.Exponential(2.0).mean
        tensor(0.5000)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.positive}
    support: Constraint = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return self.rate * 0

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = self.rate.detach().new_empty(tuple(self._extended_shape(sample_shape))).exponential_()
        return noise / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return -(-natural_params[0]).log()


class Pareto(TransformedDistribution):
    """The Pareto distribution, with density `alpha * scale**alpha / x**(alpha + 1)` from `scale` on.

    Args:
        scale: Smallest value, above 0.
        alpha: Exponent, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: A parameter is not positive.

    Example:
        >>> wg.distributions.Pareto(1.0, 3.0).mean
        tensor(1.5000)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive, "alpha": constraints.positive}

    def __init__(self, scale: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None):
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        chain = [ExpTransform(), AffineTransform(0, self.scale)]
        super().__init__(base, chain, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        clone = self._get_checked_instance(Pareto, _instance)
        clone.scale = self.scale.expand(tuple(batch_shape))
        clone.alpha = self.alpha.expand(tuple(batch_shape))
        return super().expand(batch_shape, clone)

    @constraints.dependent_property
    def support(self) -> Constraint:
        """The numbers from `scale` on."""
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        return (self.scale * self.alpha / (self.alpha - 1)).masked_fill(self.alpha <= 1, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        variance = self.scale.square() * a / ((a - 1).square() * (a - 2))
        return variance.masked_fill(a <= 2, math.inf)

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + 1 / self.alpha


class GeneralizedPareto(Distribution):
    """The generalized Pareto distribution, of what exceeds a high threshold.

    Args:
        loc: Smallest value.
        scale: Scale, above 0.
        concentration: Shape parameter: 0 is the exponential distribution, below 0 the support is bounded.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `scale` is not positive.

    Example:
        >>> wg.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real,
    }  # fmt: skip
    has_rsample = True

    def __init__(
        self, loc: Tensor | float, scale: Tensor | float, concentration: Tensor | float,
        validate_args: bool | None = None,
    ):  # fmt: skip
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Constraint:
        """The numbers from `loc` on, up to `loc - scale / concentration` for a negative concentration."""
        upper = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, upper.masked_fill(self.concentration >= 0, math.inf))

    def _split(self) -> tuple[Tensor, Tensor]:
        """Return where the distribution is the exponential one, and the concentrations with 1 in these places."""
        is_exponential = self.concentration.abs() < finfo(self.concentration.dtype).eps
        return is_exponential, self.concentration.masked_fill(is_exponential, 1.0)

    @property
    def mean(self) -> Tensor:
        k = self.concentration
        return (self.loc + self.scale / (1 - k)).masked_fill(k >= 1, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        return (self.scale.square() / ((1 - k).square() * (1 - 2 * k))).masked_fill(k >= 0.5, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(uniform_inside(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self.log_survival_function(value) - self.scale.log() - self._log_ratio(value)

    def _log_ratio(self, value: Tensor) -> Tensor:
        """Return `log(1 + concentration * z)` for the standardized value z."""
        return (self.concentration * (value - self.loc) / self.scale).log1p()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """Return the logarithm of the probability of a sample above `value`.

        Args:
            value: Tensor whose shape broadcasts with `batch_shape`.

        Returns:
            Tensor of the broadcast shape.

        Example:
            >>> wg.distributions.GeneralizedPareto(0.0, 1.0, 0.0).log_survival_function(wg.tensor(2.0))
            tensor(-2.)
        """
        is_exponential, k = self._split()
        z = (value - self.loc) / self.scale
        return (-z).where(is_exponential, -self._log_ratio(value) / k)

    def log_cdf(self, value: Tensor) -> Tensor:
        """Return the logarithm of `cdf`.

        Args:
            value: Tensor whose shape broadcasts with `batch_shape`.

        Returns:
            Tensor of the broadcast shape.

        Example:
            >>> wg.distributions.GeneralizedPareto(0.0, 1.0, 0.5).log_cdf(wg.tensor(2.0))
            tensor(-0.2877)
        """
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        is_exponential, k = self._split()
        log_rest = (-value).log1p()
        return self.loc + self.scale * (-log_rest).where(is_exponential, (-k * log_rest).expm1() / k)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


class Weibull(TransformedDistribution):
    """The Weibull distribution: `scale * x ** (1 / concentration)` for exponential x.

    Args:
        scale: Scale, above 0.
        concentration: Shape parameter, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: A parameter is not positive.

    Example:
        >>> wg.distributions.Weibull(2.0, 1.0).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive, "concentration": constraints.positive,
    }  # fmt: skip
    support: Constraint = constraints.positive

    def __init__(self, scale: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(self.scale * 0 + 1, validate_args=validate_args)
        chain = [PowerTransform(1 / self.concentration), AffineTransform(0, self.scale)]
        super().__init__(base, chain, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        clone = self._get_checked_instance(Weibull, _instance)
        clone.scale = self.scale.expand(tuple(batch_shape))
        clone.concentration = self.concentration.expand(tuple(batch_shape))
        return super().expand(batch_shape, clone)

    def _moment(self, order: int) -> Tensor:
        """Return the mean of `(x / scale) ** order`."""
        return (1 + order / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        c = self.concentration
        return self.scale * ((c - 1) / c).clamp(min=0).pow(1 / c)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (self._moment(2) - self._moment(1).square())

    def entropy(self) -> Tensor:
        c = self.concentration
        return _EULER_GAMMA * (1 - 1 / c) + (self.scale / c).log() + 1


class Kumaraswamy(TransformedDistribution):
    """The Kumaraswamy distribution of probabilities: `(1 - u ** (1 / concentration0)) ** (1 / concentration1)`.

    Args:
        concentration1: First concentration, above 0.
        concentration0: Second concentration, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: A concentration is not positive.

    Example:
        >>> wg.distributions.Kumaraswamy(1.0, 3.0).mean
        tensor(0.2500)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    support: Constraint = constraints.unit_interval

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = _InsideUniform(self.concentration0)
        chain = [
            PowerTransform(1 / self.concentration0), AffineTransform(1.0, -1.0), PowerTransform(1 / self.concentration1)
        ]  # fmt: skip
        super().__init__(base, chain, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        clone = self._get_checked_instance(Kumaraswamy, _instance)
        clone.concentration1 = self.concentration1.expand(tuple(batch_shape))
        clone.concentration0 = self.concentration0.expand(tuple(batch_shape))
        return super().expand(batch_shape, clone)

    def _moment(self, order: int) -> Tensor:
        a, b = 1 + order / self.concentration1, self.concentration0
        return (b.log() + a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The most probable value; NaN where the density is largest at 0 or 1."""
        a, b = self.concentration1, self.concentration0
        mode = ((a - 1) / (a * b - 1)).clamp(min=0).pow(1 / a)
        return mode.masked_fill((a < 1) | (b < 1) | ((a == 1) & (b == 1)), math.nan)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1).square()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + _EULER_GAMMA
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - a.log() - b.log()


class _InsideUniform(Distribution):
    """The uniform distribution over (0, 1), without its ends, for transforms that are infinite there.

    Args:
        like: Tensor with the batch shape, dtype and device.
    """

    support: Constraint = constraints.unit_interval
    has_rsample = True

    def __init__(self, like: Tensor):
        self._like = like.detach()
        super().__init__(like.shape, validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> _InsideUniform:
        return _InsideUniform(self._like.expand(tuple(batch_shape)))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return uniform_inside(self._extended_shape(sample_shape), self._like)

    def log_prob(self, value: Tensor) -> Tensor:
        return value * 0

    def cdf(self, value: Tensor) -> Tensor:
        return value

    def icdf(self, value: Tensor) -> Tensor:
        return value
