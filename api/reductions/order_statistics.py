"""Order statistics along a dimension: the k-th value, medians, and the most frequent element.

NaN is greater than every number, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias, overload

import numpy as np

from .._generated import ops
from ..arguments.aliases import resolve_axis_aliases
from ..arguments.out import copy_to_out
from ..autograd.function import Function, FunctionCtx
from ..creation import factories
from ..indexing.gathering import masked_select
from ..indexing.subscripts import get
from ..runtime import dtypes, layout, views
from ..runtime.dispatch import call, call_multiple
from ..runtime.errors import IndexOutOfRange, NotSupported
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .paired_results import require_single_out, store_pair
from .sorting import Ordered, sort_along, to_int, top_along

__all__ = ["kthvalue", "median", "mode", "nanmedian"]

_sort_along, _search_sorted = registry["sort_along"], registry["search_sorted"]
_gather = registry["gather"]
_TOPK_MIN_RATIO = 8  # kthvalue uses top-k if there are at least this many times k elements, else a full sort
# From this many elements on, `median` on `cpu` selects with a sample, which has `_SAMPLE_NUMEL` elements.
_SAMPLED_MEDIAN_MIN_NUMEL, _SAMPLE_NUMEL = 1 << 16, 4096

_Out: TypeAlias = Tensor | Sequence[Tensor] | None
"""Where results go: one tensor, or two for values and indices."""


def _gather_along(input: Tensor, index: Tensor, dim: int, keepdim: bool, where: str, out: _Out) -> Ordered:
    """Gather the elements at `index`, which has size 1 along `dim`. Gradients go to these elements."""
    if not input.meta.ndim:
        value = ops.add(input, 0) if input.needs_grad else input.clone()
        return Ordered(*store_pair((value, views.reshape(index, ())), out, where))
    # The values get the strides of the index, which may be a slice of all sorted positions.
    index = views.contiguous(index)
    values: Tensor = call(_gather, (input, index), (dim,))
    if not keepdim:
        shape = index.meta.shape[:dim] + index.meta.shape[dim + 1 :]
        values, index = views.reshape(values, shape), views.reshape(index, shape)
    return Ordered(*store_pair((values, index), out, where))


def _normalize_nonempty_dim(input: Tensor, dim: int, where: str) -> int:
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
    axis_index, count = _normalize_nonempty_dim(input, dim, "kthvalue"), to_int(k, "kthvalue", "k")
    size = input.meta.shape[axis_index] if input.meta.ndim else 1
    if not 1 <= count <= size:
        raise IndexOutOfRange(
            f"kthvalue: selected number k out of range: k is {count}, dimension {axis_index} has {size} elements"
        )
    flat = input.detach()
    if _TOPK_MIN_RATIO * count <= size:
        _, positions = top_along(flat, count, axis_index, False)
    else:
        _, positions = sort_along(flat, axis_index, False)
    index = call(registry["narrow"], (positions,), (axis_index, count - 1, 1)) if input.meta.ndim else positions
    return _gather_along(input, index, axis_index, keepdim, "kthvalue", out)


def _median(
    input: Tensor, dim: int | None, keepdim: bool, out: _Out, axis: int | None, keepdims: bool | None, where: str,
    skip_nan: bool,
) -> Tensor | Ordered:  # fmt: skip
    """Compute `median` or `nanmedian`. skip_nan: ignore NaN; otherwise a row with a NaN has NaN as its median."""
    _reject_bool(input, where)
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases(where, dim, None, axis, keepdim, keepdims)
    if dim is None:
        output: Tensor = _Middle.apply(views.reshape(input, (-1,)), skip_nan)
        if keepdim:
            output = views.reshape(output, (1,) * input.meta.ndim)
        single_out = require_single_out(out, where)
        return output if single_out is None else copy_to_out(output, single_out, where)
    axis_index = _normalize_nonempty_dim(input, dim, where)
    index = _median_along(input.detach(), axis_index, skip_nan)[1]
    return _gather_along(input, index, axis_index, keepdim, where, out)


def _median_along(input: Tensor, dim: int, skip_nan: bool) -> tuple[Tensor, Tensor]:
    """Return the lower median along `dim`, with size 1 there, and its index."""
    values, positions = sort_along(input, dim, False)
    if not input.meta.ndim or 0 in input.meta.shape:
        shape = tuple(1 if d == dim else n for d, n in enumerate(input.meta.shape))
        if not input.meta.ndim:
            return values, positions
        return views.reshape(values, shape), views.reshape(positions, shape)
    size = input.meta.shape[dim]
    if input.meta.dtype.kind != "f":
        middle = (dim, (size - 1) // 2, 1)
        return call(registry["narrow"], (values,), middle), call(registry["narrow"], (positions,), middle)
    nan_count = ops.sum(ops.isnan(values), dim, True)
    if skip_nan:
        rank = ops.floor_divide(ops.clamp_min(ops.sub(size - 1, nan_count), 0), 2)
    else:
        rank = ops.where(ops.eq(nan_count, 0), (size - 1) // 2, ops.sub(size, nan_count))
    return call(_gather, (values, rank), (dim,)), call(_gather, (positions, rank), (dim,))


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
    sample = call_multiple(_sort_along, (get(input, slice(None, None, size // _SAMPLE_NUMEL)),), (0, False))[0]
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
    ordered, _ = call_multiple(_sort_along, (candidates,), (0, False))
    return views.reshape(call(registry["narrow"], (ordered,), (0, rank, 1)), ())


class _Middle(Function):
    """The median of a vector. All elements equal to it share its gradient, as in PyTorch."""

    @staticmethod
    def forward(ctx: FunctionCtx, input: Tensor, skip_nan: bool) -> Tensor:
        if not input.meta.numel:
            empty_value = math.nan if input.meta.dtype.kind == "f" else np.iinfo(input.meta.dtype.numpy).min
            return factories.full((), empty_value, dtype=input.meta.dtype, device=input.meta.device)
        value = _vector_median(input, skip_nan)
        ctx.save_for_backward(input, value)
        return value.clone()

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        input, value = (t.detach() for t in ctx.saved_tensors if t is not None)
        is_median = ops.logical_or(ops.eq(input, value), ops.logical_and(ops.isnan(input), ops.isnan(value)))
        share = ops.true_divide(grad, ops.sum(is_median).to(grad.meta.dtype))
        return ops.where(is_median, share, 0.0), None


@overload
def median(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | None = None, keepdims: bool | None = None
) -> Tensor: ...
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
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: _Out = None, axis: int | None = None,
    keepdims: bool | None = None,
) -> Tensor | Ordered:  # fmt: skip
    """Return the median; of an even number of elements, the lower of the two middle ones. NaN if there is a NaN.

    Without `dim`, the elements equal to the median share its gradient. The median of an empty tensor is NaN, or the
    smallest value of an integer dtype.

    Args:
        input: Tensor of any dtype but bool.
        dim: Dimension to reduce; None reduces all elements.
        keepdim: Whether to keep the reduced dimensions with size 1.
        out: Tensor to write the result to; with `dim`, two tensors.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        A tensor with one element, 0-d without `keepdim`; with `dim`, `(values, indices)`.

    Example:
        >>> wg.median(wg.tensor([3, 1, 2, 4]))
        tensor(2)
    """
    return _median(input, dim, keepdim, out, axis, keepdims, "median", False)


@overload
def nanmedian(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | None = None, keepdims: bool | None = None
) -> Tensor: ...
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
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: _Out = None, axis: int | None = None,
    keepdims: bool | None = None,
) -> Tensor | Ordered:  # fmt: skip
    """Return the median of the elements that are not NaN; NaN where all are. See `median`.

    Args:
        input: Tensor of any dtype but bool.
        dim: The dimension; None: all elements.
        keepdim: Whether reduced dimensions stay, with size 1.
        out: Tensor to write the result to; with `dim`, two tensors.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        A tensor with one element, 0-d without `keepdim`; with `dim`, a pair of `values` and int64 `indices`.

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
        _, index = call_multiple(_sort_along, (input.detach(),), (0, False))
        return _gather_along(input, index, 0, keepdim, "mode", out)
    last = input.meta.ndim - 1
    flat = views.contiguous(call(registry["transpose"], (input.detach(),), (axis_index, last)))
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


METHODS = {name: globals()[name] for name in __all__}
