"""Quantiles along a dimension, with or without NaN."""

from __future__ import annotations

import numpy as np

from .._generated import ops
from ..arguments.aliases import resolve_axis_aliases
from ..arguments.out import copy_to_out
from ..creation import factories
from ..runtime import dtypes, layout, views
from ..runtime.dispatch import call, call_multiple
from ..runtime.errors import ArgumentError, DomainError, DTypeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["nanquantile", "quantile"]

_sort_along, _gather = registry["sort_along"], registry["gather"]
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def quantile(
    input: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
    out: Tensor | None = None, axis: int | None = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return the q-quantiles along `dim`: the values at rank q * (n - 1) of n sorted elements.

    Args:
        input: float32 or float64 tensor. A row with a NaN has NaN as its quantile.
        q: Number or vector in [0, 1]; a vector adds a leading dimension to the result.
        dim: Dimension to reduce; None reduces all elements.
        keepdim: Whether to keep the dimension with size 1.
        interpolation: Value for a rank between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        Tensor without the reduced dimensions, unless `keepdim`, with a leading dimension for a vector `q`.

    Raises:
        DTypeError: The dtype is not float32 or float64, or `q` has another one.
        ShapeError: The input is empty, or `q` has several dimensions.
        DomainError: `q` or `interpolation` is invalid.

    Example:
        >>> wg.quantile(wg.tensor([1.0, 2.0, 4.0]), 0.25)
        tensor(1.5000)
    """
    return _quantile(input, q, dim, keepdim, interpolation, out, axis, keepdims, "quantile", False)


def nanquantile(
    input: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
    out: Tensor | None = None, axis: int | None = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return the quantiles of the elements that are not NaN; NaN where all are. See `quantile`.

    Args:
        input: float32 or float64 tensor.
        q: Number, or a vector of numbers, from 0 to 1.
        dim: The dimension; None: all elements.
        keepdim: Whether reduced dimensions stay, with size 1.
        interpolation: How a rank between two elements is resolved; see `quantile`.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        Tensor; several quantiles add a dimension in front.

    Example:
        >>> wg.nanquantile(wg.tensor([1.0, float('nan'), 2.0]), 0.5)
        tensor(1.5000)
    """
    return _quantile(input, q, dim, keepdim, interpolation, out, axis, keepdims, "nanquantile", True)


def _quantile(
    input: Tensor, q: Tensor | float, dim: int | None, keepdim: bool, interpolation: str, out: Tensor | None,
    axis: int | None, keepdims: bool | None, where: str, skip_nan: bool,
) -> Tensor:  # fmt: skip
    only_tensors(where, input)
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases(where, dim, None, axis, keepdim, keepdims)
    quantiles = _check_quantiles(q, input, where)
    if interpolation not in _INTERPOLATIONS:
        raise DomainError(
            f"{where}: interpolation must be one of {', '.join(_INTERPOLATIONS)}, but got {interpolation!r}"
        )
    shape = input.meta.shape
    if dim is None:
        rows, axis_index = views.reshape(input, (-1,)), 0
    else:
        axis_index = layout.normalize_dim(dim, input.meta.ndim, where)
        rows = input if input.meta.ndim else views.reshape(input, (1,))
        rows = call(registry["transpose"], (ops.unsqueeze(rows, -1),), (axis_index, -1)) if input.meta.ndim else rows
    output = _interpolate_quantiles(rows, quantiles, interpolation, skip_nan)
    # The reduced dimension has size 1 in its old position, the quantiles are last.
    if dim is not None and input.meta.ndim:
        keepdim_shape = tuple(1 if d == axis_index else n for d, n in enumerate(shape))
    else:
        keepdim_shape = (1,) * len(shape)
    result_shape = (
        keepdim_shape
        if keepdim
        else tuple(n for d, n in enumerate(keepdim_shape) if dim is not None and d != axis_index)
    )
    if output.meta.ndim > 1:
        output = call(registry["permute"], (output,), ((output.meta.ndim - 1, *range(output.meta.ndim - 1)),))
    output = views.reshape(output, quantiles.meta.shape + result_shape)
    return output if out is None else copy_to_out(output, out, where)


def _check_quantiles(q: object, input: Tensor, where: str) -> Tensor:
    """Return `q` as a tensor of the dtype of `input`. Its values are checked only on the host, where that is cheap."""
    if input.meta.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{where}: takes float32 or float64, not {input.meta.dtype.name}; convert with .float()")
    if not input.meta.numel:
        raise ShapeError(f"{where}: the input has no elements")
    if not isinstance(q, Tensor):
        if isinstance(q, bool) or not isinstance(q, (int, float, np.floating, np.integer)):
            raise ArgumentError(f"{where}: q must be a number or a tensor, not {type(q).__name__}")
        if not 0 <= q <= 1:
            raise DomainError(f"{where}: q must be in the range [0, 1], but got {q}")
        return factories.full((), float(q), dtype=input.meta.dtype, device=input.meta.device)
    if q.meta.ndim > 1:
        raise ShapeError(f"{where}: q must be a number or a vector, not of shape {list(q.meta.shape)}")
    if q.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: q is {q.meta.dtype.name} and the input {input.meta.dtype.name}; convert q with .to()"
        )
    if q.meta.device.type == "cpu" and q.meta.numel:
        is_in_range = ops.logical_and(ops.ge(q, 0), ops.le(q, 1))
        if not ops.all(is_in_range).item():
            raise DomainError(f"{where}: q must be in the range [0, 1]")
    return q


def _interpolate_quantiles(rows: Tensor, quantiles: Tensor, interpolation: str, skip_nan: bool) -> Tensor:
    """Return the quantiles along the last dimension, which they replace."""
    last = rows.meta.ndim - 1
    values, _ = call_multiple(_sort_along, (rows,), (last, False))
    size, is_nan = rows.meta.shape[last], ops.isnan(values.detach())
    q = views.reshape(quantiles, (-1,))
    if skip_nan:
        last_rank = ops.sub(size - 1, ops.sum(is_nan, last, True))
        ranks = ops.clamp_min(ops.mul(q, last_rank.to(q.meta.dtype)), 0)
    else:
        ranks = ops.where(ops.any(is_nan, last, True), float(size - 1), ops.mul(q, float(size - 1)))
    if interpolation in ("lower", "higher", "nearest"):
        ranks = {"lower": ops.floor, "higher": ops.ceil, "nearest": ops.round}[interpolation](ranks)
    below = ops.floor(ranks.detach())
    lower_values = call(_gather, (values, below.to(dtypes.int64)), (last,))
    if interpolation in ("lower", "higher", "nearest"):
        return lower_values
    weight = 0.5 if interpolation == "midpoint" else ops.sub(ranks, below)
    upper_values = call(_gather, (values, ops.ceil(ranks.detach()).to(dtypes.int64)), (last,))
    return ops.lerp(lower_values, upper_values, weight)


METHODS = {name: globals()[name] for name in __all__}
