"""Reductions whose arguments need control flow: extremes, moments, norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._generated import ops
from .runtime import dtypes, layout, views
from .runtime.errors import DTypeError
from .runtime.tensor import Tensor

__all__ = [
    "MaxResult",
    "MinResult",
    "aminmax",
    "logsumexp",
    "max",
    "min",
    "norm",
    "std",
    "std_mean",
    "var",
    "var_mean",
]


class MaxResult(NamedTuple):
    """Largest values and their positions."""

    values: Tensor
    indices: Tensor


class MinResult(NamedTuple):
    """Smallest values and their positions."""

    values: Tensor
    indices: Tensor


def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The largest element; with `dim`, (values, indices) along it; with a tensor, the elementwise maximum."""
    return _extreme(input, dim, keepdim, other, ops.maximum, ops.amax, ops.max_dim, MaxResult)


def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The smallest element; with `dim`, (values, indices) along it; with a tensor, the elementwise minimum."""
    return _extreme(input, dim, keepdim, other, ops.minimum, ops.amin, ops.min_dim, MinResult)


def _extreme(input: Tensor, dim: Any, keepdim: bool, other: Any, both: Any, whole: Any, along: Any, result: Any) -> Any:
    if other is None and isinstance(dim, Tensor):
        other = dim
    if other is not None:
        return both(input, other)
    return whole(input) if dim is None else result(*along(input, dim, keepdim))


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element, of the tensor or along `dim`."""
    return ops.amin(input, dim, keepdim), ops.amax(input, dim, keepdim)


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Variance along `dim`: the sum of squared deviations divided by n - correction (default 1: Bessel's)."""
    return _moments(input, dim, unbiased, keepdim, correction)[0]


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Square root of the variance (see `var`)."""
    return ops.sqrt(var(input, dim, unbiased, keepdim, correction=correction))


def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Variance and mean (see `var`)."""
    return _moments(input, dim, unbiased, keepdim, correction)


def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean (see `var`)."""
    variance, mean = _moments(input, dim, unbiased, keepdim, correction)
    return ops.sqrt(variance), mean


def _moments(
    input: Tensor, dim: Any, unbiased: bool | None, keepdim: bool, correction: float | None
) -> tuple[Tensor, Tensor]:
    if isinstance(dim, bool):  # var(input, unbiased)
        dim, unbiased = None, dim
    if input.meta.dtype.kind != "f":
        raise DTypeError(f"var: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    dims = layout.normalize_dims(None if dim == () else dim, input.meta.ndim, "var")
    count = 1
    for d in dims:
        count *= input.meta.shape[d]
    mean = ops.mean(input, dims, True)
    deviation = ops.sub(input, mean)
    total = ops.sum(ops.square(deviation), dims, keepdim)
    kept = mean if keepdim else views.reshape(mean, total.meta.shape)
    freedom = count - correction
    return ops.true_divide(total, float(freedom) if freedom > 0 else 0.0), kept


def logsumexp(input: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) along `dim` without overflow."""
    dims = layout.normalize_dims(dim, input.meta.ndim, "logsumexp")
    if input.meta.dtype.kind != "f":
        input = input.to(dtypes.default_dtype())  # type: ignore[attr-defined]
    if len(dims) == 1:
        return ops.logsumexp_row(input, dims[0], keepdim)
    kept = [d for d in range(input.meta.ndim) if d not in dims]
    moved = ops.permute(input, (*kept, *dims))
    flat = views.reshape(moved, (*moved.meta.shape[: len(kept)], -1))
    found = ops.logsumexp_row(flat, -1, False)
    if not keepdim:
        return found
    return views.reshape(found, tuple(1 if d in dims else n for d, n in enumerate(input.meta.shape)))


def norm(input: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The p-norm along `dim` (2, 1, inf, -inf, 0 or any number; "fro" is 2)."""
    if p in (2, 2.0, "fro", None):
        return ops.euclidean_norm(input, dim, keepdim)
    size = ops.abs(input)
    if p == math.inf:
        return ops.amax(size, dim, keepdim)
    if p == -math.inf:
        return ops.amin(size, dim, keepdim)
    if p == 1:
        return ops.sum(size, dim, keepdim)
    if p == 0:
        return ops.sum(ops.ne(input, 0).to(input.meta.dtype), dim, keepdim)  # type: ignore[attr-defined]
    return ops.pow(ops.sum(ops.pow(size, p), dim, keepdim), 1.0 / p)
