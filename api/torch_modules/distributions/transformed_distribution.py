"""Distributions of functions of samples: `TransformedDistribution`. And batches as events: `Independent`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..autograd.grad_mode import no_grad
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .transform import ComposeTransform, Transform, sum_last_dims

__all__ = ["Independent", "TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of transformed samples of another distribution.

    Args:
        base_distribution: The distribution of the transforms' argument.
        transforms: One transform, or several in the order of their application.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: `transforms` is neither a transform nor a list of them.
        ShapeError: The base distribution's samples have too few dimensions.

    Example:
        >>> D = wg.distributions
        >>> logistic = D.TransformedDistribution(D.Uniform(0.0, 1.0), D.SigmoidTransform().inv)
        >>> logistic.log_prob(wg.tensor(0.0))
        tensor(-1.3863)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}

    def __init__(
        self, base_distribution: Distribution, transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ):  # fmt: skip
        self.transforms: list[Transform] = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ArgumentError("TransformedDistribution: transforms must be a Transform or a list of them")
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        chain = ComposeTransform(self.transforms)
        if len(base_shape) < chain.domain.event_dim:
            raise ShapeError(
                f"TransformedDistribution: the transforms take events of {chain.domain.event_dim} dimensions, and the "
                f"base distribution has shape {list(base_shape)}"
            )
        shape = chain.forward_shape(base_shape)
        expanded_base_shape = chain.inverse_shape(shape)
        if tuple(base_shape) != expanded_base_shape:
            base_batch_ndim = len(expanded_base_shape) - len(base_distribution.event_shape)
            base_distribution = base_distribution.expand(expanded_base_shape[:base_batch_ndim])
        extra_ndim = chain.domain.event_dim - len(base_distribution.event_shape)
        if extra_ndim > 0:
            base_distribution = Independent(base_distribution, extra_ndim)
        self.base_dist: Distribution = base_distribution
        event_dim = chain.codomain.event_dim + max(len(base_distribution.event_shape) - chain.domain.event_dim, 0)
        split = len(shape) - event_dim
        super().__init__(shape[:split], shape[split:], validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Constraint:
        """The constraint of the last transform's results."""
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        extra_ndim = len(self.event_shape) - support.event_dim
        return constraints.independent(support, extra_ndim) if extra_ndim > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]  # read-only here
        return self.base_dist.has_rsample

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        clone = self._get_checked_instance(type(self), _instance)
        clone.transforms = self.transforms
        shape = (*batch_shape, *self.event_shape)
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        clone.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        Distribution.__init__(clone, batch_shape, self.event_shape, validate_args=False)
        clone._validate_args = self._validate_args
        return clone

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self._transform(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._transform(self.base_dist.rsample(sample_shape))

    def _transform(self, value: Tensor) -> Tensor:
        for transform in self.transforms:
            value = transform(value)
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        event_dim = len(self.event_shape)
        log_det: Tensor | float = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            log_det = log_det - sum_last_dims(term, event_dim - transform.domain.event_dim)
            y = x
        base_log_prob = self.base_dist.log_prob(y)
        return sum_last_dims(base_log_prob, event_dim - len(self.base_dist.event_shape)) + log_det

    def _is_decreasing(self) -> Tensor | bool:
        sign: Tensor | int = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return sign < 0

    def _flip_if_decreasing(self, probability: Tensor) -> Tensor:
        """Return `1 - probability` where the transforms decrease."""
        is_decreasing = self._is_decreasing()
        if isinstance(is_decreasing, Tensor):
            return (1 - probability).where(is_decreasing, probability)
        return 1 - probability if is_decreasing else probability

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._flip_if_decreasing(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._transform(self.base_dist.icdf(self._flip_if_decreasing(value)))


class Independent(Distribution):
    """A distribution whose last batch dimensions belong to the event: `log_prob` sums over them.

    Args:
        base_distribution: The distribution.
        reinterpreted_batch_ndims: Number of batch dimensions that become part of the event.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: The distribution has fewer batch dimensions.

    Example:
        >>> D = wg.distributions
        >>> D.Independent(D.Normal(wg.zeros(2), 1.0), 1).log_prob(wg.zeros(2))
        tensor(-1.8379)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ):
        batch_ndim = len(base_distribution.batch_shape) - reinterpreted_batch_ndims
        if batch_ndim < 0:
            raise ArgumentError(
                f"Independent: {reinterpreted_batch_ndims} dimensions of batch shape "
                f"{list(base_distribution.batch_shape)}"
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__(shape[:batch_ndim], shape[batch_ndim:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        clone = self._get_checked_instance(Independent, _instance)
        new_dims = self.event_shape[: self.reinterpreted_batch_ndims]
        clone.base_dist = self.base_dist.expand((*batch_shape, *new_dims))
        clone.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        Distribution.__init__(clone, batch_shape, self.event_shape, validate_args=False)
        clone._validate_args = self._validate_args
        return clone

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]  # read-only here
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]  # read-only here
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Constraint:
        """The constraint of the base distribution, for events of more dimensions."""
        support, count = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(support, count) if count else support

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_last_dims(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_last_dims(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            return super().enumerate_support(expand)
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
