"""Distributions of absolute values, whose base distribution is symmetric around 0."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ..runtime.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform

__all__ = ["FoldedDistribution"]


class FoldedDistribution(TransformedDistribution):
    """The distribution of `|x|` for x with a density that is symmetric around 0: twice that density, above 0.

    Args:
        base_distribution: That of x, with a parameter `scale`.
        validate_args: See `Distribution`.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive}
    support: Constraint = constraints.nonnegative
    base_dist: Any

    def __init__(self, base_distribution: Any, validate_args: bool | None = None):
        super().__init__(base_distribution, AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale of the base distribution."""
        scale: Tensor = self.base_dist.scale
        return scale

    @property
    def mode(self) -> Tensor:
        return self.scale * 0

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        log_density: Tensor = self.base_dist.log_prob(value) + math.log(2)
        return log_density.masked_fill(value < 0, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        probability: Tensor = 2 * self.base_dist.cdf(value) - 1
        return probability

    def icdf(self, value: Tensor) -> Tensor:
        quantile: Tensor = self.base_dist.icdf((value + 1) / 2)
        return quantile

    def entropy(self) -> Tensor:
        entropy: Tensor = self.base_dist.entropy() - math.log(2)
        return entropy
