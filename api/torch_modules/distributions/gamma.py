"""Distributions of gamma numbers and their ratios: `Gamma`, `Chi2`, `Beta`, `Dirichlet`, `StudentT` and others.

Samples have gradients with respect to the concentrations, by `gamma_gradients`. `Beta` and `Dirichlet` start from
logarithms of gamma samples, so that small concentrations do not divide 0 by 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..pointwise.incomplete_gamma import igamma
from ..pointwise.type_info import finfo
from ..random import randn
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from ..shape.joining import stack
from . import constraints
from .constraints import Constraint
from .distribution import Distribution, ExponentialFamily
from .gamma_gradients import limit_samples, log_standard_gamma
from .transformed_distribution import TransformedDistribution
from .transforms import PowerTransform
from .utils import broadcast_all

__all__ = ["Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT"]


class Gamma(ExponentialFamily):
    """The gamma distribution.

    The density is that of `rate ** a * x ** (a - 1) * exp(-rate * x) / gamma(a)` with `a = concentration`. `cdf` raises
    `GradientError` if `concentration` requires a gradient, which PyTorch does not have either: detach it.

    Args:
        concentration: Shape parameter, above 0.
        rate: Inverse of the scale, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: A parameter is not positive.

    Example:
        >>> wg.distributions.Gamma(2.0, 4.0).mean
        tensor(0.5000)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive, "rate": constraints.positive,
    }  # fmt: skip
    support: Constraint = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None):
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        tiny = finfo(self.rate.dtype).tiny
        concentration = self.concentration.expand(self._extended_shape(sample_shape))
        log_sample = log_standard_gamma(concentration, math.log(tiny))
        return limit_samples(log_sample.exp().to(self.rate.dtype) / self.rate, tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        return a * self.rate.log() + (a - 1).xlogy(value) - self.rate * value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return (x + 1).lgamma() - (x + 1) * (-y).log()


class Chi2(Gamma):
    """The distribution of the sum of `df` squared standard normal numbers.

    Args:
        df: Degrees of freedom, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `df` is not positive.

    Example:
        >>> wg.distributions.Chi2(3.0).mean
        tensor(3.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df": constraints.positive}

    def __init__(self, df: Tensor | float, validate_args: bool | None = None):
        super().__init__(0.5 * broadcast_all(df)[0], 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return 2 * self.concentration

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        clone = self._get_checked_instance(Chi2, _instance)
        clone.concentration = self.concentration.expand(tuple(batch_shape))
        clone.rate = self.rate.expand(tuple(batch_shape))
        Distribution.__init__(clone, batch_shape, validate_args=False)
        clone._validate_args = self._validate_args
        return clone


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution of vectors of probabilities.

    Args:
        concentration: Tensor of shape `(*batch_shape, K)`, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: A concentration is not positive.
        ShapeError: `concentration` has no dimension.

    Example:
        >>> wg.distributions.Dirichlet(wg.tensor([1.0, 3.0])).mean
        tensor([0.2500, 0.7500])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }
    support: Constraint = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None):
        if concentration.ndim < 1:
            raise ShapeError("Dirichlet: concentration needs at least one dimension")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        """The most probable vector; where all concentrations are at most 1, the corner of the largest one."""
        excess = (self.concentration - 1).clamp(min=0)
        total = excess.sum(-1, True)
        largest = self.concentration == self.concentration.amax(-1, True)
        corner = largest & (largest.cumsum(-1) == 1)
        return (excess / total.masked_fill(total == 0, 1.0)).where(total > 0, corner.to(excess))

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        tiny = finfo(self.concentration.dtype).tiny
        concentration = self.concentration.expand(self._extended_shape(sample_shape))
        log_sample = log_standard_gamma(concentration, math.log(tiny), is_share=True)
        return limit_samples(log_sample.softmax(-1).to(self.concentration.dtype), tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        return (a - 1).xlogy(value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, total = self.concentration, self.concentration.sum(-1)
        count = a.shape[-1]
        normalizer = a.lgamma().sum(-1) - total.lgamma()
        return normalizer - (count - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration - 1,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        return (x + 1).lgamma().sum(-1) - (x + 1).sum(-1).lgamma()


class Beta(ExponentialFamily):
    """The beta distribution of probabilities. Its distribution function is missing (`cdf` raises `NotSupported`).

    Args:
        concentration1: First concentration (alpha), above 0.
        concentration0: Second concentration (beta), above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: A concentration is not positive.

    Example:
        >>> wg.distributions.Beta(1.0, 3.0).mean
        tensor(0.2500)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    support: Constraint = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def _dirichlet(self) -> Dirichlet:
        return Dirichlet(stack([self.concentration1, self.concentration0], -1), validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        limits = finfo(self.concentration1.dtype)
        concentrations = stack([self.concentration1, self.concentration0], -1)
        concentrations = concentrations.expand((*self._extended_shape(sample_shape), 2))
        log_samples = log_standard_gamma(concentrations, math.log(limits.tiny), is_share=True)
        sample = (log_samples[..., 0] - log_samples[..., 1]).sigmoid().to(self.concentration1.dtype)
        return limit_samples(sample, limits.tiny).clamp(max=1 - limits.eps / 2)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        log_normalizer = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return (a - 1).xlogy(value) + (b - 1).xlogy(1 - value) - log_normalizer

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1 - 1, self.concentration0 - 1

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return (x + 1).lgamma() + (y + 1).lgamma() - (x + y + 2).lgamma()


class StudentT(Distribution):
    """Student's t-distribution.

    Args:
        df: Degrees of freedom, above 0.
        loc: Centre.
        scale: Scale, above 0; the standard deviation is larger.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `df` or `scale` is not positive.

    Example:
        >>> wg.distributions.StudentT(3.0).variance
        tensor(3.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "df": constraints.positive, "loc": constraints.real, "scale": constraints.positive,
    }  # fmt: skip
    support: Constraint = constraints.real
    has_rsample = True

    def __init__(
        self, df: Tensor | float, loc: Tensor | float = 0.0, scale: Tensor | float = 1.0,
        validate_args: bool | None = None,
    ):  # fmt: skip
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        df = self.df.masked_fill(self.df <= 2, 3.0)  # without a division by 0, whose gradient is NaN
        variance = (self.scale.square() * df / (df - 2)).masked_fill(self.df <= 2, math.inf)
        return variance.masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        normal = randn(shape, dtype=self.df.dtype, device=self.df.device)
        log_chi2_half = log_standard_gamma(self.df.expand(shape) / 2)
        return self.loc + self.scale * normal * ((self.df / 2).sqrt() * (-log_chi2_half / 2).exp()).to(normal.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        half = self.df / 2
        log_normalizer = self.scale.log() + (self.df * math.pi).log() / 2 + half.lgamma() - (half + 0.5).lgamma()
        return -(half + 0.5) * (y.square() / self.df).log1p() - log_normalizer

    def entropy(self) -> Tensor:
        half = self.df / 2
        log_beta = half.lgamma() + math.lgamma(0.5) - (half + 0.5).lgamma()
        digammas = (half + 0.5).digamma() - half.digamma()
        return self.scale.log() + (half + 0.5) * digammas + self.df.log() / 2 + log_beta


class FisherSnedecor(Distribution):
    """The F-distribution: the ratio of two chi-squared numbers, each divided by its degrees of freedom.

    Args:
        df1: Degrees of freedom of the numerator, above 0.
        df2: Degrees of freedom of the denominator, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: A parameter is not positive.

    Example:
        >>> wg.distributions.FisherSnedecor(2.0, 4.0).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df1": constraints.positive, "df2": constraints.positive}
    support: Constraint = constraints.positive
    has_rsample = True

    def __init__(self, df1: Tensor | float, df2: Tensor | float, validate_args: bool | None = None):
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return (self.df2 / (self.df2 - 2)).masked_fill(self.df2 <= 2, math.nan)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Tensor:
        rest = self.df2 - 2
        variance = 2 * self.df2.square() * (self.df1 + rest) / (self.df1 * rest.square() * (self.df2 - 4))
        return variance.masked_fill(self.df2 <= 4, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        log_ratio = log_standard_gamma(self.df1.expand(shape) / 2) - log_standard_gamma(self.df2.expand(shape) / 2)
        sample = log_ratio.exp().to(self.df1.dtype) * self.df2 / self.df1
        return sample.clamp(min=finfo(sample.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.df1 / 2, self.df2 / 2
        ratio = self.df1 / self.df2
        log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p() - log_beta


class InverseGamma(TransformedDistribution):
    """The distribution of `1 / x` for gamma x.

    Args:
        concentration: Shape parameter, above 0.
        rate: Scale of `1 / x`, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: A parameter is not positive.

    Example:
        >>> wg.distributions.InverseGamma(3.0, 4.0).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive, "rate": constraints.positive,
    }  # fmt: skip
    support: Constraint = constraints.positive
    base_dist: Gamma

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None):
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-1.0), validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """The shape parameter."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The scale parameter."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        return (self.rate / (self.concentration - 1)).masked_fill(self.concentration <= 1, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        has_none = self.concentration <= 2
        a = self.concentration.masked_fill(has_none, 3.0)  # without a division by 0, whose gradient is NaN
        return (self.rate.square() / ((a - 1).square() * (a - 2))).masked_fill(has_none, math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
