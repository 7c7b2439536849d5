"""Continuous distributions of a location and a scale: `Uniform`, `Laplace`, `Cauchy`, `HalfCauchy`, `Gumbel`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from ..random import rand
from ..runtime.errors import DomainError
from ..runtime.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .folded import FoldedDistribution
from .utils import broadcast_all, uniform_inside

__all__ = ["Cauchy", "Gumbel", "HalfCauchy", "Laplace", "Uniform"]

_EULER_GAMMA = 0.57721566490153286


class Uniform(Distribution):
    """The uniform distribution over [low, high).

    Args:
        low: Lower bound.
        high: Upper bound, above `low`.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `low` is not below `high`.

    Example:
        >>> wg.distributions.Uniform(1.0, 3.0).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"low": constraints.dependent, "high": constraints.dependent}
    has_rsample = True

    def __init__(self, low: Tensor | float, high: Tensor | float, validate_args: bool | None = None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise DomainError(f"Uniform: low must be below high; they are {self.low.tolist()} and {self.high.tolist()}")

    @constraints.dependent_property
    def support(self) -> Constraint:
        """The interval from `low` to `high`."""
        return constraints.interval(*(b.item() if b.numel() == 1 else b for b in (self.low, self.high)))

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def mode(self) -> Tensor:
        return self.high * math.nan

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        is_inside = (value >= self.low) & (value < self.high)
        return is_inside.to(self.low).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Laplace(Distribution):
    """The Laplace distribution, with density `exp(-|x - loc| / scale) / (2 scale)`.

    Args:
        loc: Mean.
        scale: Mean distance from `loc`, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `scale` is not positive.

    Example:
        >>> wg.distributions.Laplace(0.0, 1.0).variance
        tensor(2.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support: Constraint = constraints.real
    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = 2 * uniform_inside(self._extended_shape(sample_shape), self.loc) - 1
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        return 0.5 - 0.5 * y.sign() * (-y.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        u = value - 0.5
        return self.loc - self.scale * u.sign() * (-2 * u.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(Distribution):
    """The Cauchy distribution. Its mean is NaN, and its variance infinite.

    Args:
        loc: Median.
        scale: Half of the width at half of the peak's height, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `scale` is not positive.

    Example:
        >>> wg.distributions.Cauchy(0.0, 1.0).cdf(wg.tensor(1.0))
        tensor(0.7500)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support: Constraint = constraints.real
    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc * math.nan

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.loc * 0 + math.inf

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(uniform_inside(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -math.log(math.pi) - self.scale.log() - ((value - self.loc) / self.scale).square().log1p()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (math.pi * (value - 0.5)).tan()

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class HalfCauchy(FoldedDistribution):
    """The distribution of `|x|` for Cauchy-distributed x with median 0.

    Args:
        scale: Scale of x, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `scale` is not positive.

    Example:
        >>> wg.distributions.HalfCauchy(1.0).cdf(wg.tensor(1.0))
        tensor(0.5000)
    """

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None):
        super().__init__(Cauchy(0.0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.inf

    @property
    def variance(self) -> Tensor:
        variance: Tensor = self.base_dist.variance
        return variance


class Gumbel(Distribution):
    """The Gumbel distribution, of maxima of many numbers.

    Args:
        loc: Mode.
        scale: Scale, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `scale` is not positive.

    Example:
        >>> wg.distributions.Gumbel(1.0, 1.0).mean
        tensor(1.5772)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support: Constraint = constraints.real
    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * _EULER_GAMMA

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(uniform_inside(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        return -y - (-y).exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (-(-(value - self.loc) / self.scale).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + _EULER_GAMMA)
