"""Normal distributions: `Normal`, `LogNormal`, `HalfNormal`, `LogisticNormal`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from .._generated.ops import ndtr, ndtri
from ..random import randn
from ..runtime.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import ExponentialFamily
from .folded import FoldedDistribution
from .transformed_distribution import Independent, TransformedDistribution
from .transforms import ExpTransform, StickBreakingTransform
from .utils import broadcast_all

__all__ = ["HalfNormal", "LogNormal", "LogisticNormal", "Normal"]

_LOG_SQRT_2PI = math.log(2 * math.pi) / 2


class Normal(ExponentialFamily):
    """The normal distribution.

    Args:
        loc: Mean, a number or a tensor.
        scale: Standard deviation, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `scale` is not positive.

    Example:
        >>> d = wg.distributions.Normal(0.0, 2.0)
        >>> d.log_prob(wg.tensor(0.0)), d.cdf(wg.tensor(0.0)), d.variance
        (tensor(-1.6121), tensor(0.5000), tensor(4.))
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
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + noise * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -((value - self.loc) / self.scale).square() / 2 - self.scale.log() - _LOG_SQRT_2PI

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ndtr((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * ndtri(value)

    def entropy(self) -> Tensor:
        return 0.5 + _LOG_SQRT_2PI + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.loc / self.variance, -0.5 / self.variance

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return -x.square() / y / 4 + (-math.pi / y).log() / 2


class LogNormal(TransformedDistribution):
    """The distribution of `exp(x)` for normal x.

    Args:
        loc: Mean of the logarithm.
        scale: Standard deviation of the logarithm, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `scale` is not positive.

    Example:
        >>> wg.distributions.LogNormal(0.0, 1.0).mean
        tensor(1.6487)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support: Constraint = constraints.positive
    base_dist: Normal

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None):
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        variance_of_log = self.scale.square()
        return variance_of_log.expm1() * (2 * self.loc + variance_of_log).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class HalfNormal(FoldedDistribution):
    """The distribution of `|x|` for normal x with mean 0.

    Args:
        scale: Standard deviation of x, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `scale` is not positive.

    Example:
        >>> wg.distributions.HalfNormal(1.0).mean
        tensor(0.7979)
    """

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None):
        super().__init__(Normal(0.0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)


class LogisticNormal(TransformedDistribution):
    """The distribution of vectors of probabilities that stick breaking makes of normal numbers.

    Args:
        loc: Mean, a tensor of shape `(*batch_shape, K)`.
        scale: Standard deviation, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `scale` is not positive.

    Example:
        >>> wg.distributions.LogisticNormal(wg.zeros(3), 1.0).sample().shape
        weftgrad.Size([4])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support: Constraint = constraints.simplex
    base_dist: Independent

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def _normal(self) -> Normal:
        normal = self.base_dist.base_dist
        assert isinstance(normal, Normal)
        return normal

    @property
    def loc(self) -> Tensor:
        """The mean of the normal numbers."""
        return self._normal.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the normal numbers."""
        return self._normal.scale
