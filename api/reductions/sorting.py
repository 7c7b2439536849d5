"""Sorting, top-k and order statistics along a dimension: medians, quantiles, modes.

NaN is greater than every number, as in PyTorch. Sorting is always stable, so the same call gives the same indices on
every device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from .._generated import ops
from ..arguments.aliases import resolve_axis_alias, resolve_axis_aliases
from ..arguments.out import copy_to_out
from ..autograd import Function
from ..creation import factories
from ..indexing.gathering import masked_select
from ..indexing.subscripts import get
from ..runtime import dtypes, layout, views
from ..runtime.dispatch import call, call_multiple
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, DomainError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "nanquantile", "quantile", "sort", "topk",
]  # fmt: skip

_sort_along, _top_along, _search_sorted = registry["sort_along"], registry["top_along"], registry["search_sorted"]
_gather = registry["gather"]
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")
_TOPK_MIN_RATIO = 8  # kthvalue uses top-k if there are at least this many times k elements, else a full sort
# From this many elements on, `median` on `cpu` selects with a sample, which has `_SAMPLE_NUMEL` elements.
_SAMPLED_MEDIAN_MIN_NUMEL, _SAMPLE_NUMEL = 1 << 16, 4096


class Ordered(NamedTuple):
    """Elements, and their int64 indices along the dimension."""

    values: Tensor
    indices: Tensor


def _store_pair(results: Any, out: Sequence[Tensor] | None, where: str) -> Ordered:
    """Return two results, or copy them to the two tensors of `out`."""
    if out is None:
        return Ordered(*results)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(f"{where}: has two results, so out takes two tensors, not {type(out).__name__}")
    return Ordered(*(copy_to_out(result, target, where) for result, target in zip(results, out, strict=True)))


def _detach(tensor: Tensor) -> Tensor:
    return tensor.detach()


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None,
    out: Sequence[Tensor] | None = None, axis: int | None = None,
) -> Ordered:  # fmt: skip
    """Sort along `dim`. NaN is greater than every number.

    Args:
        input: Any tensor.
        dim: The dimension to sort.
        descending: Whether the largest element comes first.
        stable: Accepted for compatibility with PyTorch; sorting is always stable.
        out: Two tensors to write the results to.
        axis: NumPy's name for `dim`.

    Returns:
        `(values, indices)`: the sorted elements, through which gradients flow, and their int64 indices along `dim`.

    Raises:
        IndexOutOfRange: The dimension does not exist.
        ArgumentError: `stable` is not a bool.

    Example:
        >>> wg.sort(wg.tensor([3, 1, 2]))
        Ordered(values=tensor([1, 2, 3]), indices=tensor([1, 2, 0]))
    """
    only_tensors("sort", input)
    dim = resolve_axis_alias("sort", dim, -1, axis)
    if stable not in (None, True, False):
        raise ArgumentError(f"sort: stable must be a bool, not {stable!r}")
    axis_index = layout.normalize_dim(dim, input.meta.ndim, "sort")
    return _store_pair(call_multiple(_sort_along, (input,), (axis_index, bool(descending))), out, "sort")


def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False, out: Tensor | None = None,
    axis: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the int64 indices that sort `input` along `dim`; see `sort`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        descending: Whether the largest element comes first.
        stable: Whether equal elements keep their order.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        int64 tensor of the shape of `input`.

    Example:
        >>> wg.argsort(wg.tensor([3, 1, 2]))
        tensor([1, 2, 0])
    """
    only_tensors("argsort", input)
    output = sort(_detach(input), dim, descending, stable=stable, axis=axis).indices
    return output if out is None else copy_to_out(output, out, "argsort")


def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the elements sorted along the first dimension.

    Args:
        input: Tensor of any dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.msort(wg.tensor([3, 1, 2]))
        tensor([1, 2, 3])
    """
    output = sort(input, 0).values
    return output if out is None else copy_to_out(output, out, "msort")


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *,
    out: Sequence[Tensor] | None = None, axis: int | None = None,
) -> Ordered:  # fmt: skip
    """Return the `k` largest or smallest elements along `dim`, sorted. Of equal elements the first ones are chosen.

    Args:
        input: Any tensor except bool.
        k: Number of elements.
        dim: The dimension to search.
        largest: Whether to return the largest elements.
        sorted: Ignored; the result is always sorted.
        out: Two tensors to write the results to.
        axis: NumPy's name for `dim`.

    Returns:
        `(values, indices)`, of size `k` along `dim`; the indices are int64.

    Raises:
        IndexOutOfRange: `k` is larger than the dimension.
        DTypeError: The input is bool.

    Example:
        >>> wg.topk(wg.tensor([3, 1, 2]), 2).values
        tensor([3, 2])
    """
    only_tensors("topk", input)
    dim = resolve_axis_alias("topk", dim, -1, axis)
    if input.meta.dtype is dtypes.bool_:
        raise DTypeError("topk: does not take bool, as PyTorch does not; convert with .to(uint8)")
    axis_index = layout.normalize_dim(dim, input.meta.ndim, "topk")
    count = _to_int(k, "topk", "k")
    size = input.meta.shape[axis_index] if input.meta.ndim else 1
    if not 0 <= count <= size:
        raise IndexOutOfRange(
            f"topk: selected index k out of range: k is {count}, dimension {axis_index} has {size} elements"
        )
    if not input.meta.ndim:
        count = 1
    return _store_pair(call_multiple(_top_along, (input,), (count, axis_index, bool(largest))), out, "topk")


def _to_int(value: Any, where: str, name: str) -> int:
    if isinstance(value, (bool, float)) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{where}: {name} must be an integer, not {value!r}")
    return int(value.__index__())


# Order statistics -----------------------------------------------------------------------------------------------------


def _gather_along(input: Tensor, index: Tensor, dim: int, keepdim: bool, where: str, out: Any) -> Ordered:
    """Gather the elements at `index`, which has size 1 along `dim`. Gradients go to these elements."""
    if not input.meta.ndim:
        return _store_pair((ops.add(input, 0) if input.needs else input.clone(), views.reshape(index, ())), out, where)
    values = call(_gather, (input, index), (dim,))
    if not keepdim:
        shape = index.meta.shape[:dim] + index.meta.shape[dim + 1 :]
        values, index = views.reshape(values, shape), views.reshape(index, shape)
    return _store_pair((values, index), out, where)


def _normalize_nonempty_dim(input: Tensor, dim: Any, where: str) -> int:
    """Normalize `dim`. Raises `IndexOutOfRange` if it does not exist or has no elements."""
    axis = layout.normalize_dim(dim, input.meta.ndim, where)
    if input.meta.ndim and not input.meta.shape[axis]:
        raise IndexOutOfRange(
            f"{where}: dimension {axis} of shape {list(input.meta.shape)} has no elements to choose from"
        )
    return axis


def _reject_bool(input: Tensor, where: str) -> None:
    only_tensors(where, input)
    if input.meta.dtype is dtypes.bool_:
        raise NotSupported(f"{where}: does not take bool, as PyTorch does not; convert with .to(uint8)")


def kthvalue(
    input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: Sequence[Tensor] | None = None,
    axis: int | None = None, keepdims: bool | None = None,
) -> Ordered:  # fmt: skip
    """Return the `k`-th smallest element along `dim` (k = 1: the smallest) and its int64 index.

    NaN is greater than every number.

    Args:
        input: Tensor of any dtype but bool.
        k: Rank, from 1.
        dim: The dimension; negative values count from the last.
        keepdim: Whether reduced dimensions stay, with size 1.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        A pair of `values` and int64 `indices`.

    Raises:
        IndexOutOfRange: The dimension has fewer than `k` elements.

    Example:
        >>> wg.kthvalue(wg.tensor([3, 1, 2]), 2)
        Ordered(values=tensor(2), indices=tensor(2))
    """
    _reject_bool(input, "kthvalue")
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("kthvalue", dim, -1, axis, keepdim, keepdims)
    axis_index, count = _normalize_nonempty_dim(input, dim, "kthvalue"), _to_int(k, "kthvalue", "k")
    size = input.meta.shape[axis_index] if input.meta.ndim else 1
    if not 1 <= count <= size:
        raise IndexOutOfRange(
            f"kthvalue: selected number k out of range: k is {count}, dimension {axis_index} has {size} elements"
        )
    flat = _detach(input)
    if _TOPK_MIN_RATIO * count <= size:
        _, positions = call_multiple(_top_along, (flat,), (count, axis_index, False))
    else:
        _, positions = call_multiple(_sort_along, (flat,), (axis_index, False))
    index = call(registry["narrow"], (positions,), (axis_index, count - 1, 1)) if input.meta.ndim else positions
    return _gather_along(input, index, axis_index, keepdim, "kthvalue", out)


def _median(
    input: Tensor, dim: Any, keepdim: bool, out: Any, axis: Any, keepdims: bool | None, where: str, skip_nan: bool
) -> Any:
    """Compute `median` or `nanmedian`. skip_nan: ignore NaN; otherwise a row with a NaN has NaN as its median."""
    _reject_bool(input, where)
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases(where, dim, None, axis, keepdim, keepdims)
    if dim is None:
        output = _Middle.apply(views.reshape(input, (-1,)), skip_nan)
        return output if out is None else copy_to_out(output, out, where)
    axis_index = _normalize_nonempty_dim(input, dim, where)
    return _gather_along(input, _median_along(_detach(input), axis_index, skip_nan)[1], axis_index, keepdim, where, out)


def _median_along(input: Tensor, dim: int, skip_nan: bool) -> tuple[Tensor, Tensor]:
    """Return the lower median along `dim`, with size 1 there, and its index."""
    values, positions = call_multiple(_sort_along, (input,), (dim, False))
    if not input.meta.ndim or 0 in input.meta.shape:
        shape = tuple(1 if d == dim else n for d, n in enumerate(input.meta.shape))
        return (
            (values, positions)
            if not input.meta.ndim
            else (views.reshape(values, shape), views.reshape(positions, shape))
        )
    size = input.meta.shape[dim]
    if input.meta.dtype.kind != "f":
        rank: Any = (size - 1) // 2
        median, index = (call(registry["narrow"], (t,), (dim, rank, 1)) for t in (values, positions))
        return median, index
    nan_count = ops.sum(ops.isnan(values), dim, True)
    if skip_nan:
        rank = ops.floor_divide(ops.clamp_min(ops.sub(size - 1, nan_count), 0), 2)
    else:
        rank = ops.where(ops.eq(nan_count, 0), (size - 1) // 2, ops.sub(size, nan_count))
    median, index = (call(_gather, (t, rank), (dim,)) for t in (values, positions))
    return median, index


def _vector_median(input: Tensor, skip_nan: bool) -> Tensor:
    """Return the lower median of a vector as a 0-d tensor."""
    size = input.meta.numel
    if size >= _SAMPLED_MEDIAN_MIN_NUMEL and input.meta.device.type == "cpu":  # on others the host would have to wait
        nan_count = int(ops.sum(ops.isnan(input)).item()) if input.meta.dtype.kind == "f" else 0
        if not nan_count or (skip_nan and nan_count < size):
            value = _select_by_sample(input, (size - nan_count - 1) // 2)
            if value is not None:
                return value
    return views.reshape(_median_along(input, 0, skip_nan)[0], ())


def _select_by_sample(input: Tensor, k: int) -> Tensor | None:
    """Return the element of rank `k` (from 0) of a long vector, ignoring NaN, or None if sampling fails.

    Two elements of a sorted sample almost always enclose the result, so only the elements between them are sorted
    (Floyd and Rivest, "Algorithm 489: the algorithm SELECT", 1975). The standard deviation of the rank in a sample of
    size n is at most sqrt(n) / 2; the two bounds lie four standard deviations away.
    """
    size = input.meta.numel
    sample = call(_sort_along, (get(input, slice(None, None, size // _SAMPLE_NUMEL)),), (0, False))[0]
    count = sample.meta.numel
    sample_rank, margin = k * count // size, 2 * math.isqrt(count)
    low, high = (
        call(registry["narrow"], (sample,), (0, min(max(bound, 0), count - 1), 1))
        for bound in (sample_rank - margin, sample_rank + margin)
    )
    rank = k - int(ops.sum(ops.lt(input, low)).item())
    candidates = masked_select(input, ops.logical_and(ops.ge(input, low), ops.le(input, high)))
    if not 0 <= rank < candidates.meta.numel or candidates.meta.numel > size // 2:
        return None
    return views.reshape(call(registry["narrow"], (call(_sort_along, (candidates,), (0, False))[0],), (0, rank, 1)), ())


class _Middle(Function):
    """The median of a vector. All elements equal to it share its gradient, as in PyTorch."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, skip_nan: bool) -> Tensor:
        if not input.meta.numel:
            empty_value = math.nan if input.meta.dtype.kind == "f" else np.iinfo(input.meta.dtype.numpy).min
            return factories.full((), empty_value, dtype=input.meta.dtype, device=input.meta.device)
        value = _vector_median(input, skip_nan)
        ctx.save_for_backward(input, value)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        input, value = (_detach(t) for t in ctx.saved_tensors)
        is_median = ops.logical_or(ops.eq(input, value), ops.logical_and(ops.isnan(input), ops.isnan(value)))
        share = ops.true_divide(grad, _to_dtype(ops.sum(is_median), grad.meta.dtype))
        return ops.where(is_median, share, 0.0), None


@overload
def median(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def median(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Sequence[Tensor] | None = None, keepdims: bool | None = None
) -> Ordered: ...
@overload
def median(
    input: Tensor, *, axis: int, keepdim: bool = False, out: Sequence[Tensor] | None = None,
    keepdims: bool | None = None,
) -> Ordered: ...  # fmt: skip
def median(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None, axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor | Ordered:  # fmt: skip
    """Return the median; of an even number of elements, the lower of the two middle ones. NaN if there is a NaN.

    Without `dim`, the elements equal to the median share its gradient. The median of an empty tensor is NaN, or the
    smallest value of an integer dtype.

    Args:
        input: Any tensor except bool.
        dim: Dimension to reduce; None reduces all elements.
        keepdim: Whether to keep the dimension with size 1.
        out: Tensor to write the result to; with `dim`, two tensors.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        A 0-d tensor; with `dim`, `(values, indices)`.

    Example:
        >>> wg.median(wg.tensor([3, 1, 2, 4]))
        tensor(2)
    """
    return _median(input, dim, keepdim, out, axis, keepdims, "median", False)


@overload
def nanmedian(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def nanmedian(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Sequence[Tensor] | None = None, keepdims: bool | None = None
) -> Ordered: ...
@overload
def nanmedian(
    input: Tensor, *, axis: int, keepdim: bool = False, out: Sequence[Tensor] | None = None,
    keepdims: bool | None = None,
) -> Ordered: ...  # fmt: skip
def nanmedian(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None, axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor | Ordered:  # fmt: skip
    """Return the median of the elements that are not NaN; NaN where all are. See `median`.

    Args:
        input: Tensor of any dtype but bool.
        dim: The dimension; None: all elements.
        keepdim: Whether reduced dimensions stay, with size 1.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        The median; along a dimension, a pair of `values` and int64 `indices`.

    Example:
        >>> wg.nanmedian(wg.tensor([3.0, float('nan'), 1.0]))
        tensor(1.)
    """
    return _median(input, dim, keepdim, out, axis, keepdims, "nanmedian", True)


def mode(
    input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Sequence[Tensor] | None = None,
    axis: int | None = None, keepdims: bool | None = None,
) -> Ordered:  # fmt: skip
    """Return the most frequent element along `dim` (the smallest of several), and the index of its last occurrence.

    NaN equals nothing, so it is the result only where all elements are NaN. (In PyTorch the choice between NaN and
    numbers is unspecified.)

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        keepdim: Whether reduced dimensions stay, with size 1.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        A pair of `values` and int64 `indices`.

    Example:
        >>> wg.mode(wg.tensor([1, 2, 2]))
        Ordered(values=tensor(2), indices=tensor(2))
    """
    only_tensors("mode", input)
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("mode", dim, -1, axis, keepdim, keepdims)
    axis_index = _normalize_nonempty_dim(input, dim, "mode")
    if not input.meta.ndim:
        return _gather_along(input, call(_sort_along, (_detach(input),), (0, False))[1], 0, keepdim, "mode", out)
    last = input.meta.ndim - 1
    flat = views.contiguous(call(registry["transpose"], (_detach(input),), (axis_index, last)))
    values, positions = call_multiple(_sort_along, (flat,), (last, False))
    if 0 in input.meta.shape:
        index = call(
            registry["narrow"], (call(registry["transpose"], (positions,), (axis_index, last)),), (axis_index, 0, 1)
        )
        return _gather_along(input, index, axis_index, keepdim, "mode", out)
    run_start, run_end = (call(_search_sorted, (values, values), (right, True)) for right in (False, True))
    count = ops.sub(run_end, run_start)
    if input.meta.dtype.kind == "f":
        count = ops.where(ops.isnan(values), 1, count)
    start = ops.argmax(count, last, True)
    end = ops.sub(ops.add(start, call(_gather, (count, start), (last,))), 1)
    index = call(registry["transpose"], (call(_gather, (positions, end), (last,)),), (axis_index, last))
    return _gather_along(input, index, axis_index, keepdim, "mode", out)


# Quantiles ------------------------------------------------------------------------------------------------------------


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
    input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, out: Any, axis: Any, keepdims: bool | None,
    where: str, skip_nan: bool,
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


def _check_quantiles(q: Any, input: Tensor, where: str) -> Tensor:
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
    size, is_nan = rows.meta.shape[last], ops.isnan(_detach(values))
    q = views.reshape(quantiles, (-1,))
    if skip_nan:
        last_rank = ops.sub(size - 1, ops.sum(is_nan, last, True))
        ranks = ops.clamp_min(ops.mul(q, _to_dtype(last_rank, q.meta.dtype)), 0)
    else:
        ranks = ops.where(ops.any(is_nan, last, True), float(size - 1), ops.mul(q, float(size - 1)))
    if interpolation in ("lower", "higher", "nearest"):
        ranks = {"lower": ops.floor, "higher": ops.ceil, "nearest": ops.round}[interpolation](ranks)
    below = ops.floor(_detach(ranks))
    lower_values = call(_gather, (values, _to_dtype(below, dtypes.int64)), (last,))
    if interpolation in ("lower", "higher", "nearest"):
        return lower_values
    weight = 0.5 if interpolation == "midpoint" else ops.sub(ranks, below)
    upper_values = call(_gather, (values, _to_dtype(ops.ceil(_detach(ranks)), dtypes.int64)), (last,))
    return ops.lerp(lower_values, upper_values, weight)


def _to_dtype(tensor: Tensor, dtype: DType) -> Tensor:
    return tensor.to(dtype)


METHODS = {name: globals()[name] for name in __all__}
