"""Transforms that apply others to parts of a tensor, change its shape, or apply a distribution function."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ..shape.joining import cat, stack
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .transform import Transform, sum_last_dims

__all__ = [
    "CatTransform", "CumulativeDistributionTransform", "IndependentTransform", "ReshapeTransform", "StackTransform"
]  # fmt: skip


class IndependentTransform(Transform):
    """A transform whose last batch dimensions belong to the event, so that the determinants of the event are summed.

    Args:
        base_transform: The transform.
        reinterpreted_batch_ndims: Number of dimensions.
        cache_size: See `Transform`.

    Example:
        >>> exp = wg.distributions.IndependentTransform(wg.distributions.ExpTransform(), 1)
        >>> exp.log_abs_det_jacobian(wg.ones(2), wg.ones(2).exp())
        tensor(2.)
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def domain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]  # read-only here
        return self.base_transform.bijective

    @property
    def sign(self) -> Tensor | int:
        return self.base_transform.sign

    def with_cache(self, cache_size: int = 1) -> IndependentTransform:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size)

    def _call(self, x: Tensor) -> Tensor:
        _check_ndim(x, self.domain, "IndependentTransform")
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        _check_ndim(y, self.codomain, "IndependentTransform")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_last_dims(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Change the shape of events.

    Args:
        in_shape: Shape of the event in arguments.
        out_shape: Shape of the event in results, with as many elements.
        cache_size: See `Transform`.

    Raises:
        ShapeError: The shapes have different numbers of elements.

    Example:
        >>> wg.distributions.ReshapeTransform((4,), (2, 2))(wg.ones(3, 4)).shape
        weftgrad.Size([3, 2, 2])
    """

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        self.in_shape = tuple(in_shape)
        self.out_shape = tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ShapeError(f"ReshapeTransform: {self.in_shape} and {self.out_shape} differ in their elements")
        super().__init__(cache_size=cache_size)

    @property
    def domain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> ReshapeTransform:
        if self._cache_size == cache_size:
            return self
        return ReshapeTransform(self.in_shape, self.out_shape, cache_size=cache_size)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(tuple(x.shape[: x.ndim - len(self.in_shape)]))

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _replace_end(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _replace_end(shape, self.out_shape, self.in_shape)


class CatTransform(Transform):
    """Apply a transform to each piece along a dimension.

    Args:
        tseq: The transforms.
        dim: The dimension.
        lengths: Size of each piece; None: 1.
        cache_size: See `Transform`.

    Raises:
        ArgumentError: There are not as many lengths as transforms.

    Example:
        >>> D = wg.distributions
        >>> D.CatTransform([D.ExpTransform(), D.AbsTransform()], lengths=[1, 2])(wg.tensor([0.0, -1.0, 2.0]))
        tensor([1., 1., 2.])
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ):
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ArgumentError(
                f"CatTransform: {len(self.transforms)} transforms need as many lengths, not {len(self.lengths)}"
            )

    @property
    def domain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    @property
    def bijective(self) -> bool:  # type: ignore[override]  # read-only here
        return all(t.bijective for t in self.transforms)

    def with_cache(self, cache_size: int = 1) -> CatTransform:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    @property
    def length(self) -> int:
        """The size of the dimension: the sum of `lengths`."""
        return sum(self.lengths)

    def _pieces(self, value: Tensor) -> tuple[Tensor, ...]:
        return tuple(value.split(self.lengths, self.dim))

    def _call(self, x: Tensor) -> Tensor:
        return cat([t(piece) for t, piece in zip(self.transforms, self._pieces(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return cat([t.inv(piece) for t, piece in zip(self.transforms, self._pieces(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._pieces(x), self._pieces(y), strict=True)
        event_dim = self.domain.event_dim
        terms = [sum_last_dims(t.log_abs_det_jacobian(a, b), event_dim - t.domain.event_dim) for t, a, b in pairs]
        dim = self.dim - x.ndim if self.dim >= 0 else self.dim
        if dim + event_dim < 0:
            return cat(terms, dim + event_dim)
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total


class StackTransform(Transform):
    """Apply a transform to each slice of a dimension.

    Args:
        tseq: The transforms.
        dim: The dimension.
        cache_size: See `Transform`.

    Example:
        >>> D = wg.distributions
        >>> D.StackTransform([D.ExpTransform(), D.AbsTransform()])(wg.tensor([0.0, -1.0]))
        tensor([1., 1.])
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def domain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    @property
    def bijective(self) -> bool:  # type: ignore[override]  # read-only here
        return all(t.bijective for t in self.transforms)

    def with_cache(self, cache_size: int = 1) -> StackTransform:
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _call(self, x: Tensor) -> Tensor:
        return stack([t(part) for t, part in zip(self.transforms, x.unbind(self.dim), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return stack([t.inv(part) for t, part in zip(self.transforms, y.unbind(self.dim), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        triples = zip(self.transforms, x.unbind(self.dim), y.unbind(self.dim), strict=True)
        return stack([t.log_abs_det_jacobian(a, b) for t, a, b in triples], self.dim)


class CumulativeDistributionTransform(Transform):
    """The distribution function of a distribution: samples become uniform numbers.

    Args:
        distribution: A distribution with `cdf` and `icdf`.
        cache_size: See `Transform`.

    Example:
        >>> D = wg.distributions
        >>> D.CumulativeDistributionTransform(D.Normal(0.0, 1.0))(wg.tensor(0.0))
        tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Distribution, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return self.distribution.support

    def with_cache(self, cache_size: int = 1) -> CumulativeDistributionTransform:
        if self._cache_size == cache_size:
            return self
        return CumulativeDistributionTransform(self.distribution, cache_size=cache_size)

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


def _check_ndim(value: Tensor, constraint: Constraint, where: str) -> None:
    if value.ndim < constraint.event_dim:
        raise ShapeError(f"{where}: takes tensors of at least {constraint.event_dim} dimensions, not {value.ndim}")


def _replace_end(shape: Sequence[int], end: tuple[int, ...], new_end: tuple[int, ...]) -> tuple[int, ...]:
    batch_ndim = len(shape) - len(end)
    if batch_ndim < 0 or tuple(shape[batch_ndim:]) != end:
        raise ShapeError(f"ReshapeTransform: the last dimensions of {list(shape)} must be {list(end)}")
    return (*shape[:batch_ndim], *new_end)
