"""Unique elements, membership, binary search and histograms.

The shape of some results depends on values: `unique`, `unique_consecutive`, `bincount`, and `histc` and `histogram`
without a range wait for the device, as in PyTorch. Sums are computed in the order of the elements, so the same call
gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from .._generated import ops
from ..arguments.out import copy_to_out
from ..creation import factories, from_data, sequences
from ..indexing.bounds import check_bounds
from ..indexing.gathering import nonzero
from ..pointwise.functions import result_type
from ..runtime import dtypes, layout, views
from ..runtime.dispatch import call, call_multiple
from ..runtime.errors import ArgumentError, DomainError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from ..tensor_methods.argument_checks import only_tensors, to_integer

__all__ = [
    "bincount", "bucketize", "histc", "histogram", "isin", "searchsorted", "unique", "unique_consecutive",
]  # fmt: skip

_sort_along, _search_sorted = registry["sort_along"], registry["search_sorted"]
_take_at, _spread, _scatter = registry["take_at"], registry["spread"], registry["scatter"]
_narrow = registry["narrow"]

# On OpenCL devices, inputs of at least this many elements are counted in 8 parts in parallel, which are then summed.
# Triton's kernels count them in one launch.
_SHARED_COUNT_MIN_NUMEL, _COUNT_SHARES = 1 << 15, 8


def _flatten(tensor: Tensor) -> Tensor:
    return views.reshape(tensor.detach(), (-1,))


def _to_dtype(tensor: Tensor, dtype: dtypes.DType) -> Tensor:
    return tensor.to(dtype)


def _arange(count: int, like: Tensor) -> Tensor:
    return sequences.arange(count, device=like.meta.device)


# Unique elements ------------------------------------------------------------------------------------------------------


@overload
def unique(
    input: Tensor, sorted: bool = True, return_inverse: Literal[False] = False, return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def unique(
    input: Tensor, sorted: bool = True, *, return_inverse: Literal[True], return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, ...]: ...  # fmt: skip
@overload
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, *, return_counts: Literal[True],
    dim: int | None = None,
) -> tuple[Tensor, ...]: ...  # fmt: skip
@overload
def unique(
    input: Tensor, sorted: bool, return_inverse: bool, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]: ...
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Return the sorted unique elements, or the unique slices along `dim`. The host waits for their number.

    Args:
        input: Any tensor. Every NaN counts as unique.
        sorted: Ignored; the result is always sorted.
        return_inverse: Whether to return also the index of each element in the result: in the shape of `input`, or a
            vector along `dim`.
        return_counts: Whether to return also how often each element occurs.
        dim: Dimension whose slices are compared; None compares the elements.

    Returns:
        The unique elements, or a tuple with them, the inverse and the counts (int64).

    Raises:
        ShapeError: Slices along `dim` are empty.
        IndexOutOfRange: The dimension does not exist.

    Example:
        >>> wg.unique(wg.tensor([2, 1, 2]))
        tensor([1, 2])
    """
    only_tensors("unique", input)
    if dim is None:
        values, order = call_multiple(_sort_along, (_flatten(input),), (0, False))
        return _unique_elements(values, order, input.meta.shape, return_inverse, return_counts)
    rows, axis = _slices(input, dim, "unique")
    order = _arange(rows.meta.shape[0], rows)
    for column in reversed(range(rows.meta.shape[1])):  # stable sorts from the last key to the first
        keys = call(_take_at, (ops.select(rows, 1, column), order), (0, 1))
        order = call(_take_at, (order, call_multiple(_sort_along, (keys,), (0, False))[1]), (0, 1))
    return _unique_slices(input, rows, axis, order, return_inverse, return_counts)


@overload
def unique_consecutive(
    input: Tensor, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: int | None = None
) -> Tensor: ...
@overload
def unique_consecutive(
    input: Tensor, return_inverse: Literal[True], return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, ...]: ...
@overload
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, *, return_counts: Literal[True], dim: int | None = None
) -> tuple[Tensor, ...]: ...
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """Return the elements, or slices along `dim`, that differ from their predecessor; see `unique`.

    Args:
        input: Tensor of any dtype.
        return_inverse: Whether to return the position of each element in the result.
        return_counts: Whether to return how often each element occurs in its run.
        dim: The dimension whose slices are compared; None: the elements of the flattened tensor.

    Returns:
        Tensor, or a tuple with the requested int64 tensors.

    Example:
        >>> wg.unique_consecutive(wg.tensor([2, 2, 1, 2]))
        tensor([2, 1, 2])
    """
    only_tensors("unique_consecutive", input)
    if dim is None:
        return _unique_elements(_flatten(input), None, input.meta.shape, return_inverse, return_counts)
    rows, axis = _slices(input, dim, "unique_consecutive")
    return _unique_slices(input, rows, axis, None, return_inverse, return_counts)


def _slices(input: Tensor, dim: int, where: str) -> tuple[Tensor, int]:
    """Return a matrix with one row for each slice along `dim`, and the normalized dimension."""
    if not input.meta.ndim:
        raise IndexOutOfRange(f"{where}: dimension {dim} of a tensor that has none")
    axis = layout.normalize_dim(dim, input.meta.ndim, where)
    shape = input.meta.shape
    if 0 in shape[:axis] + shape[axis + 1 :] and shape[axis]:
        raise ShapeError(f"{where}: there are 0 sized dimensions beside dimension {axis} of shape {list(shape)}")
    order = (axis, *(d for d in range(input.meta.ndim) if d != axis))
    permuted = call(registry["permute"], (input.detach(),), (order,))
    return views.reshape(permuted, (shape[axis], math.prod(shape[:axis] + shape[axis + 1 :]))), axis


def _unique_elements(
    values: Tensor, order: Tensor | None, shape: tuple[int, ...], inverse: bool, counts: bool
) -> Tensor | tuple[Tensor, ...]:
    """Return the unique elements of a vector with equal elements adjacent.

    order: original positions of the elements.
    """
    count = values.meta.shape[0]
    changes = ops.ne(_row_range(values, 1, count), _row_range(values, 0, count - 1)) if count > 1 else None
    starts = _run_starts(changes, count, values)
    outputs = [call(_take_at, (values, starts), (0, 1))]
    return _unique_outputs(outputs, starts, order, count, shape, inverse, counts)


def _unique_slices(
    input: Tensor, rows: Tensor, axis: int, order: Tensor | None, inverse: bool, counts: bool
) -> Tensor | tuple[Tensor, ...]:
    count = rows.meta.shape[0]
    ordered_rows = rows if order is None or not rows.meta.numel else call(_take_at, (rows, order), (0, 1))
    changes = None
    if count > 1:
        changes = ops.any(ops.ne(_row_range(ordered_rows, 1, count), _row_range(ordered_rows, 0, count - 1)), 1)
    starts = _run_starts(changes, count, rows)
    source_rows = starts if order is None else call(_take_at, (order, starts), (0, 1))
    distinct = call(_take_at, (input.detach(), source_rows), (axis, 1)) if count else input.clone()
    return _unique_outputs([distinct], starts, order, count, (count,), inverse, counts)


def _row_range(tensor: Tensor, first: int, last: int) -> Tensor:
    return call(_narrow, (tensor,), (0, first, last - first))


def _run_starts(changes: Tensor | None, count: int, like: Tensor) -> Tensor:
    """Return the starts of runs. changes: whether each element but the first differs from its predecessor."""
    first = _arange(min(count, 1), like)
    if changes is None:
        return first
    return cat([first, ops.add(nonzero(changes, as_tuple=True)[0], 1)])


def _unique_outputs(
    outputs: list[Tensor], starts: Tensor, order: Tensor | None, count: int, shape: tuple[int, ...], inverse: bool,
    counts: bool,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    if inverse:
        groups = ops.sub(call(_search_sorted, (starts, _arange(count, starts)), (True, False)), 1)
        if order is not None and count:
            groups = call(_scatter, (groups, order, groups), (0,))
        outputs.append(views.reshape(groups, shape))
    if counts:
        ends = cat([_row_range(starts, 1, starts.meta.shape[0]), factories.full((1,), count, device=starts.meta.device)]
                   ) if count else starts  # fmt: skip
        outputs.append(ops.sub(ends, starts))
    return tuple(outputs) if len(outputs) > 1 else outputs[0]


# Membership -----------------------------------------------------------------------------------------------------------


def isin(
    elements: Tensor | float, test_elements: Tensor | float, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Return a bool tensor: whether each of `elements` is in `test_elements`.

    Elements are compared in the promoted dtype; NaN equals nothing.

    Args:
        elements: Tensor or number to look up.
        test_elements: Tensor or number to search. One of the two must be a tensor.
        assume_unique: Ignored.
        invert: Whether to return the opposite.

    Returns:
        bool tensor of the shape of `elements`.

    Raises:
        ArgumentError: Neither of the two is a tensor.
        DTypeError: One of the two is bool.

    Example:
        >>> wg.isin(wg.tensor([1, 2, 3]), wg.tensor([2, 5]))
        tensor([False,  True, False])
    """
    if not (isinstance(elements, Tensor) or isinstance(test_elements, Tensor)):
        raise ArgumentError("isin: at least one of elements and test_elements must be a tensor")
    for operand in (elements, test_elements):
        if isinstance(operand, bool) or (isinstance(operand, Tensor) and operand.meta.dtype is dtypes.bool_):
            raise DTypeError("isin: does not take bool, as PyTorch does not; convert with .to(uint8)")
    dtype = result_type(elements, test_elements)
    like = elements if isinstance(elements, Tensor) else test_elements
    queries, candidates = (_to_tensor(t, dtype, like).detach() for t in (elements, test_elements))
    if not candidates.meta.numel:
        return factories.full(queries.meta.shape, bool(invert), dtype=dtypes.bool_, device=queries.meta.device)
    if candidates.meta.numel == 1:
        candidate = views.reshape(candidates, ())
        return ops.ne(queries, candidate) if invert else ops.eq(queries, candidate)
    values, _ = call_multiple(_sort_along, (views.reshape(candidates, (-1,)),), (0, False))
    positions = call(_search_sorted, (values, views.contiguous(queries)), (False, True))
    nearest = call(_take_at, (values, ops.clamp_max(positions, candidates.meta.numel - 1)), (0, 1))
    return ops.ne(queries, nearest) if invert else ops.eq(queries, nearest)


def _to_tensor(value: Any, dtype: dtypes.DType, like: Any) -> Tensor:
    if isinstance(value, Tensor):
        return _to_dtype(value, dtype)
    return factories.full((), value, dtype=dtype, device=like.meta.device)


# Binary search --------------------------------------------------------------------------------------------------------


def searchsorted(
    sorted_sequence: Tensor, input: Tensor | float, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the insertion positions of values in a sorted sequence: the number of elements smaller than the value.

    Args:
        sorted_sequence: Sorted vector, or a tensor with the leading dimensions of `input` and sorted rows.
        input: Values to insert: a tensor, or a number for a vector.
        out_int32: Whether the result is int32 instead of int64.
        right: Whether to count equal elements too.
        side: "left" or "right", instead of `right`.
        sorter: int64 positions that sort an unsorted `sorted_sequence` along its last dimension.
        out: Tensor to write the result to.

    Returns:
        int64 tensor (int32 with `out_int32`) of the shape of `input`.

    Raises:
        ShapeError: The shapes do not fit.
        DTypeError: `sorter` is not int64.
        DomainError: `side` is invalid or contradicts `right`.
        IndexOutOfRange: A position in `sorter` is out of range.

    Example:
        >>> wg.searchsorted(wg.tensor([1, 3, 5]), wg.tensor([3, 4]))
        tensor([1, 2])
    """
    only_tensors("searchsorted", sorted_sequence)
    if side not in (None, "left", "right"):
        raise DomainError(f"searchsorted: side can only be 'left' or 'right' but got {side!r}")
    if side == "left" and right:
        raise DomainError("searchsorted: side and right can't be opposites: side is 'left', right is True")
    sequence = sorted_sequence.detach()
    if not sequence.meta.ndim:
        raise ShapeError("searchsorted: the sequence must have a dimension; it has none")
    if sorter is not None:
        only_tensors("searchsorted", sorter)
        if sorter.meta.shape != sequence.meta.shape:
            raise ShapeError(
                f"searchsorted: sequence and sorter must have the same size, not {list(sequence.meta.shape)} and "
                f"{list(sorter.meta.shape)}"
            )
        if sorter.meta.dtype is not dtypes.int64:
            raise DTypeError(
                f"searchsorted: sorter must hold int64, not {sorter.meta.dtype.name}; convert it with .long()"
            )
        check_bounds(sorter, sequence.meta.shape[-1], "searchsorted: sorter")
        sequence = call(registry["gather"], (sequence, sorter), (sequence.meta.ndim - 1,))
    return _search(sequence, input, bool(right) or side == "right", out_int32, out, "searchsorted")


def bucketize(
    input: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the index of the interval between `boundaries` (a sorted vector) that each element falls into.

    This is `searchsorted` with its two arguments swapped.

    Args:
        input: Tensor, or a number.
        boundaries: Sorted vector.
        out_int32: Whether the result is int32 instead of int64.
        right: Whether an element that equals a boundary lies in the interval that begins there.
        out: Tensor to write the result to.

    Returns:
        Integer tensor of the shape of `input`.

    Raises:
        ShapeError: `boundaries` is not a vector.

    Example:
        >>> wg.bucketize(wg.tensor([0, 3, 9]), wg.tensor([1, 3, 5]))
        tensor([0, 1, 3])
    """
    only_tensors("bucketize", boundaries)
    if boundaries.meta.ndim != 1:
        raise ShapeError(f"bucketize: boundaries must be a vector, not of shape {list(boundaries.meta.shape)}")
    return _search(boundaries.detach(), input, bool(right), out_int32, out, "bucketize")


def _search(sequence: Tensor, queries: Any, right: bool, int32: bool, out: Tensor | None, where: str) -> Tensor:
    if isinstance(queries, bool) or not isinstance(queries, (Tensor, int, float)):
        raise ArgumentError(f"{where}: takes a tensor or a number, not {type(queries).__name__}")
    dtype = result_type(sequence, queries)
    if dtype is dtypes.bool_:
        raise NotSupported(f"{where}: does not take bool, as PyTorch does not; convert with .to(uint8)")
    values = _to_tensor(queries, dtype, sequence).detach()
    a, b = sequence.meta, values.meta
    if a.ndim > 1 and (not b.ndim or a.shape[:-1] != b.shape[:-1]):
        raise ShapeError(
            f"{where}: the sequence must be a vector, or agree with the values in all dimensions but the last; it has "
            f"shape {list(a.shape)}, they have {list(b.shape)}"
        )
    positions = call(
        _search_sorted, (views.contiguous(_to_dtype(sequence, dtype)), views.contiguous(values)), (right, False)
    )
    if int32:
        positions = _to_dtype(positions, dtypes.int32)
    return positions if out is None else copy_to_out(positions, out, where)


# Histograms -----------------------------------------------------------------------------------------------------------


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count how often each integer 0, 1, 2, ... occurs in a vector. The host waits for the largest element.

    Args:
        input: Integer vector, not negative.
        weights: Vector of the same length; the result is the sum of weights for each integer, in float32 for float32
            weights and float64 for all others.
        minlength: Smallest length of the result.

    Returns:
        A vector of length `max(input.max() + 1, minlength)`; int64 without weights.

    Raises:
        DomainError: An element or `minlength` is negative.
        NotSupported: The input is not of an integer dtype.
        ShapeError: The input is not a vector, or the weights do not fit.
        ArgumentError: `minlength` is not an integer.

    Example:
        >>> wg.bincount(wg.tensor([0, 2, 2]))
        tensor([1, 0, 2])
    """
    only_tensors("bincount", input)
    if input.meta.dtype.kind not in "ui":
        raise NotSupported(f"bincount: counts integers, not {input.meta.dtype.name}; convert with .long()")
    if input.meta.ndim != 1:
        raise ShapeError(f"bincount: takes a vector, not a tensor of shape {list(input.meta.shape)}")
    if isinstance(minlength, bool) or not hasattr(minlength, "__index__"):
        raise ArgumentError(f"bincount: minlength must be an integer, not {minlength!r}")
    if minlength < 0:
        raise DomainError(f"bincount: minlength should be >= 0, not {minlength}")
    if weights is not None:
        only_tensors("bincount", weights)
        if weights.meta.shape != input.meta.shape:
            raise ShapeError(
                f"bincount: weights of shape {list(weights.meta.shape)} do not fit an input of {list(input.meta.shape)}"
            )
    size = int(minlength)
    if input.meta.numel:
        lowest, highest = (int(t.item()) for t in call_multiple(registry["index_bounds"], (input,)))
        if lowest < 0:
            raise DomainError(f"bincount: only counts integers from 0, and the input has {lowest}")
        size = max(size, highest + 1)
    elif weights is not None or not size:
        return factories.zeros(size, dtype=dtypes.int64, device=input.meta.device)
    return _sum_bins(input, size, weights if weights is None else weights.detach())


def _sum_bins(bin_indices: Tensor, size: int, weights: Tensor | None) -> Tensor:
    """Count the elements (or sum the weights) of each of `size` bins; indices out of range are ignored."""
    if weights is not None:
        source = weights if weights.meta.dtype is dtypes.float32 else _to_dtype(weights, dtypes.float64)
        return call(_spread, (source, bin_indices), ((size,), 0))
    unit = factories.full((1,), 1, dtype=dtypes.int64, device=bin_indices.meta.device)
    numel = bin_indices.meta.numel
    shares = _COUNT_SHARES
    if numel < max(_SHARED_COUNT_MIN_NUMEL, 4 * shares * size) or bin_indices.meta.device.driver.target != "opencl":
        return call(_spread, (call(registry["expand"], (unit,), (bin_indices.meta.shape,)), bin_indices), ((size,), 0))
    rows = views.reshape(call(_narrow, (bin_indices,), (0, 0, numel - numel % shares)), (shares, numel // shares))
    totals = call(_spread, (call(registry["expand"], (unit,), (rows.meta.shape,)), rows), ((shares, size), 1))
    totals = ops.sum(totals, 0)
    if numel % shares:
        remainder = call(_narrow, (bin_indices,), (0, numel - numel % shares, numel % shares))
        totals = ops.add(totals, _sum_bins(remainder, size, None))
    return totals


def _require_floating(input: Tensor, where: str) -> None:
    only_tensors(where, input)
    if input.meta.dtype.kind != "f":
        raise NotSupported(f"{where}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")


def _bin_range(input: Tensor, low: float, high: float, where: str) -> tuple[float, float]:
    """Return the range of the bins: the extremes of the input if `low == high`, else (low, high)."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DomainError(f"{where}: range of [{low}, {high}] is not finite")
    if low > high:
        raise DomainError(f"{where}: max must not be smaller than min, but they are {high} and {low}")
    if low == high and input.meta.numel:
        low, high = float(ops.amin(input).item()), float(ops.amax(input).item())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise DomainError(f"{where}: range of [{low}, {high}] is not finite; give min and max")
    if low == high:
        low, high = (low - 0.5, high + 0.5) if input.meta.numel else (low, high + 1.0)
    return low, high


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """Count the elements in each of `bins` equal intervals. Elements outside of the range are ignored.

    An element falls into bin `floor((element - min) * bins / (max - min))`; the last bin includes its upper end.

    Args:
        input: Floating tensor.
        bins: Number of bins.
        min: Lower end of the range.
        max: Upper end. If it equals `min`, the range is that of the elements, and the host waits for it.
        out: Tensor to write the result to.

    Returns:
        `(bins,)`, in the dtype of `input`.

    Raises:
        DomainError: The range or the number of bins is invalid.
        NotSupported: The dtype is not floating.

    Example:
        >>> wg.histc(wg.tensor([1.0, 2.0, 2.0]), bins=2, min=0, max=4)
        tensor([1., 2.])
    """
    _require_floating(input, "histc")
    if _check_bins(bins, "histc") and min > max:
        raise DomainError(f"histc: max must be larger than min, but they are {max} and {min}")
    flat = _flatten(input)
    low, high = _bin_range(flat, float(min), float(max), "histc")
    bin_indices = call(registry["histogram_place"], (flat, low, high, float(bins)))
    output = _to_dtype(_sum_bins(bin_indices, bins, None), input.meta.dtype)
    return output if out is None else copy_to_out(output, out, "histc")


def _check_bins(bins: Any, where: str) -> int:
    if isinstance(bins, (bool, float)) or not hasattr(bins, "__index__"):
        raise ArgumentError(f"{where}: bins must be an integer, not {bins!r}")
    if bins < 1:
        raise DomainError(f"{where}: bins must be > 0, but got {bins}")
    return to_integer(bins, where, "bins", 1)


class Histogram(NamedTuple):
    """Counts or sums of weights `(bins,)`, and the edges of the bins `(bins + 1,)`."""

    hist: Tensor
    bin_edges: Tensor


def histogram(
    input: Tensor, bins: int | Tensor = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False, out: Sequence[Tensor] | None = None,
) -> Histogram:  # fmt: skip
    """Return a histogram and its bin edges. The last bin includes its upper edge.

    Args:
        input: Floating tensor.
        bins: Number of equal bins, or a sorted vector of edges.
        range: `(low, high)` of the bins; by default the extremes of the elements, which the host waits for.
        weight: Weight of each element (default 1), of the shape and dtype of `input`.
        density: Whether to divide by the total and by the bin widths.
        out: Two tensors to write the results to.

    Returns:
        `(hist, bin_edges)`, both in the dtype of `input`.

    Raises:
        DomainError: The range or the number of bins is invalid.
        DTypeError: Dtypes differ.
        ShapeError: Edges or weights have the wrong shape.
        ArgumentError: `out` is not two tensors, or `range` is passed together with edges.

    Example:
        >>> wg.histogram(wg.tensor([1.0, 2.0, 2.0]), 2, range=(0.0, 4.0))
        Histogram(hist=tensor([1., 2.]), bin_edges=tensor([0., 2., 4.]))
    """
    _require_floating(input, "histogram")
    flat = views.contiguous(_flatten(input))
    if isinstance(bins, Tensor):
        if range is not None:
            raise ArgumentError("histogram: range is for a number of bins; these are edges")
        if bins.meta.ndim != 1 or not bins.meta.numel:
            raise ShapeError(
                f"histogram: edges must be a vector that is not empty, not of shape {list(bins.meta.shape)}"
            )
        if bins.meta.dtype is not input.meta.dtype:
            raise DTypeError(f"histogram: the input is {input.meta.dtype.name}, the edges {bins.meta.dtype.name}")
        edges = views.contiguous(bins.detach())
    else:
        _check_bins(bins, "histogram")
        if range is not None and len(range) != 2:
            raise ShapeError(f"histogram: range must be (low, high), not {range!r}")
        low, high = (0.0, 0.0) if range is None else (float(r) for r in range)
        low, high = _bin_range(flat, low, high, "histogram")
        edges = _bin_edges(low, high, int(bins), input)
    if weight is not None:
        only_tensors("histogram", weight)
        if weight.meta.shape != input.meta.shape:
            raise ShapeError(
                f"histogram: weight has shape {list(weight.meta.shape)}, the input {list(input.meta.shape)}"
            )
        if weight.meta.dtype is not input.meta.dtype:
            raise DTypeError(f"histogram: the input is {input.meta.dtype.name}, the weight {weight.meta.dtype.name}")
    hist = _histogram(flat, edges, None if weight is None else _flatten(weight), density)
    if out is None:
        return Histogram(hist, edges)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(f"histogram: has two results, so out takes two tensors, not {type(out).__name__}")
    return Histogram(copy_to_out(hist, out[0], "histogram"), copy_to_out(edges, out[1], "histogram"))


def _bin_edges(low: float, high: float, bins: int, like: Tensor) -> Tensor:
    """Return the edges of equal bins, computed from both ends in the input's precision, as PyTorch does."""
    edge_type = np.float64 if like.meta.dtype is dtypes.float64 else np.float32
    first, last, i = edge_type(low), edge_type(high), np.arange(bins + 1)
    exact_type = np.longdouble if edge_type is np.float64 else np.float64
    step = exact_type((last - first) / edge_type(bins))  # the product is not rounded before the sum
    values = np.where(i < (bins + 1) // 2, first + step * i, last - step * (bins - i))
    return from_data.tensor(values.astype(np.float64), dtype=like.meta.dtype, device=like.meta.device)


def _histogram(flat: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> Tensor:
    bins = edges.meta.numel - 1
    bin_indices = call(registry["bin_sorted"], (edges, flat))
    if weight is not None and weight.meta.dtype.itemsize == 2:
        weight = _to_dtype(weight, dtypes.float32)
    hist = _to_dtype(_sum_bins(bin_indices, bins, weight), flat.meta.dtype)
    if density:
        widths = ops.sub(call(_narrow, (edges,), (0, 1, bins)), call(_narrow, (edges,), (0, 0, bins)))
        hist = ops.true_divide(ops.true_divide(hist, ops.sum(hist)), widths)
    return hist


METHODS = {name: globals()[name] for name in ("bincount", "histc", "histogram", "unique", "unique_consecutive")}
