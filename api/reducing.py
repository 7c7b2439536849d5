"""Reductions whose arguments need control flow: extremes, moments, norms.

`axis` and `keepdims` are NumPy's names for `dim` and `keepdim`, which PyTorch takes as well (`runtime.spelling`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._generated import ops
from .runtime import dtypes, layout, views
from .runtime.errors import ArgumentError, DTypeError
from .runtime.spelling import REQUIRED, spelled, store
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


class AminmaxResult(NamedTuple):
    """Smallest and largest values."""

    min: Tensor
    max: Tensor


def max(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None, out: Any = None, axis: Any = None,
    keepdims: bool | None = None,
) -> Any:  # fmt: skip
    """The largest element; with `dim`, (values, indices) along it; with a tensor, the elementwise maximum.

    `out` receives the result: two tensors where it is (values, indices).
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled("max", dim, None, axis, keepdim, keepdims)
    if other is None and isinstance(dim, Tensor):
        other = dim
    if other is not None:
        return ops.maximum(input, other, out=out)
    if dim is None:
        return ops.amax(input, out=out)
    return MaxResult(*_both(ops.max_dim(input, dim, keepdim), out, "max"))


def min(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None, out: Any = None, axis: Any = None,
    keepdims: bool | None = None,
) -> Any:  # fmt: skip
    """The smallest element; with `dim`, (values, indices) along it; with a tensor, the elementwise minimum.

    `out` receives the result: two tensors where it is (values, indices).
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled("min", dim, None, axis, keepdim, keepdims)
    if other is None and isinstance(dim, Tensor):
        other = dim
    if other is not None:
        return ops.minimum(input, other, out=out)
    if dim is None:
        return ops.amin(input, out=out)
    return MinResult(*_both(ops.min_dim(input, dim, keepdim), out, "min"))


def _both(found: Any, out: Any, where: str) -> Any:
    """Two results, written to the two tensors of `out` where it is given."""
    if out is None:
        return found
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(f"{where}: has two results, so out takes two tensors, not {type(out).__name__}")
    return [store(result, to, where) for result, to in zip(found, out, strict=True)]


def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: Any = None, axis: int | None = None,
    keepdims: bool | None = None,
) -> AminmaxResult:  # fmt: skip
    """The smallest and the largest element, of the tensor or along `dim`: (min, max)."""
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled("aminmax", dim, None, axis, keepdim, keepdims)
    return AminmaxResult(*_both((ops.amin(input, dim, keepdim), ops.amax(input, dim, keepdim)), out, "aminmax"))


def var(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None, out: Tensor | None = None, axis: Any = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Variance along `dim`: the sum of squared deviations divided by n - correction (default 1: Bessel's)."""
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled("var", dim, None, axis, keepdim, keepdims)
    found = _moments(input, dim, unbiased, keepdim, correction, "var")[0]
    return found if out is None else store(found, out, "var")


def std(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None, out: Tensor | None = None, axis: Any = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Square root of the variance (see `var`)."""
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled("std", dim, None, axis, keepdim, keepdims)
    found = ops.sqrt(_moments(input, dim, unbiased, keepdim, correction, "std")[0])
    return found if out is None else store(found, out, "std")


def var_mean(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None, axis: Any = None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Variance and mean (see `var`)."""
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled("var_mean", dim, None, axis, keepdim, keepdims)
    return _moments(input, dim, unbiased, keepdim, correction, "var_mean")


def std_mean(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None, axis: Any = None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Standard deviation and mean (see `var`)."""
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled("std_mean", dim, None, axis, keepdim, keepdims)
    variance, mean = _moments(input, dim, unbiased, keepdim, correction, "std_mean")
    return ops.sqrt(variance), mean


def _moments(
    input: Tensor, dim: Any, unbiased: bool | None, keepdim: bool, correction: float | None, where: str
) -> tuple[Tensor, Tensor]:
    if isinstance(dim, bool):  # var(input, unbiased)
        dim, unbiased = None, dim
    if input.meta.dtype.kind != "f":
        raise DTypeError(f"{where}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    dims = layout.normalize_dims(None if dim == () else dim, input.meta.ndim, where)
    count = 1
    for d in dims:
        count *= input.meta.shape[d]
    mean = ops.mean(input, dims, True)
    deviation = ops.sub(input, mean)
    total = ops.sum(ops.square(deviation), dims, keepdim)
    kept = mean if keepdim else views.reshape(mean, total.meta.shape)
    freedom = count - correction
    return ops.true_divide(total, float(freedom) if freedom > 0 else 0.0), kept


def logsumexp(
    input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Tensor | None = None,
    axis: int | Sequence[int] | None = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """log(sum(exp(input))) along `dim` without overflow."""
    if dim is None or axis is not None or keepdims is not None:
        dim, keepdim = spelled("logsumexp", dim, REQUIRED, axis, keepdim, keepdims)
    found = _logsumexp(input, dim, keepdim)
    return found if out is None else store(found, out, "logsumexp")


def _logsumexp(input: Tensor, dim: Any, keepdim: bool) -> Tensor:
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


def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Tensor | None = None, dtype: Any = None
) -> Tensor:
    """The p-norm along `dim` (2, 1, inf, -inf, 0 or any number; "fro" is 2), of the input converted to `dtype`."""
    if dtype is not None:
        input = input.to(dtype)  # type: ignore[attr-defined]
    if input.meta.dtype.kind != "f":
        raise DTypeError(f"norm: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    found = _norm(input, p, dim, keepdim)
    return found if out is None else store(found, out, "norm")


def _norm(input: Tensor, p: Any, dim: Any, keepdim: bool) -> Tensor:
    if isinstance(p, str) and p != "fro":
        raise ArgumentError(f"norm: p is a number or 'fro', not {p!r}")
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
