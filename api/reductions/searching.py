"""Binary search in sorted sequences, and membership, which uses it."""

from __future__ import annotations

import numpy as np

from .._generated import ops
from ..arguments.out import copy_to_out
from ..creation import factories
from ..indexing.bounds import check_bounds
from ..pointwise.type_info import result_type
from ..runtime import dtypes, views
from ..runtime.device import Device
from ..runtime.dispatch import call, call_multiple
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, DomainError, DTypeError, NotSupported, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["bucketize", "isin", "searchsorted"]

_sort_along, _search_sorted, _take_at = registry["sort_along"], registry["search_sorted"], registry["take_at"]


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


def _search(
    sequence: Tensor, queries: Tensor | float, right: bool, int32: bool, out: Tensor | None, where: str
) -> Tensor:
    if isinstance(queries, np.generic):
        queries = queries.item()
    if isinstance(queries, bool) or not isinstance(queries, (Tensor, int, float)):
        raise ArgumentError(f"{where}: takes a tensor or a number, not {type(queries).__name__}")
    dtype = result_type(sequence, queries)
    if dtype is dtypes.bool_:
        raise NotSupported(f"{where}: does not take bool, as PyTorch does not; convert with .to(uint8)")
    values = _to_tensor(queries, dtype, sequence.meta.device).detach()
    a, b = sequence.meta, values.meta
    if a.ndim > 1 and (not b.ndim or a.shape[:-1] != b.shape[:-1]):
        raise ShapeError(
            f"{where}: the sequence must be a vector, or agree with the values in all dimensions but the last; it has "
            f"shape {list(a.shape)}, they have {list(b.shape)}"
        )
    positions: Tensor = call(
        _search_sorted, (views.contiguous(sequence.to(dtype)), views.contiguous(values)), (right, False)
    )
    if int32:
        positions = positions.to(dtypes.int32)
    return positions if out is None else copy_to_out(positions, out, where)


def _to_tensor(value: Tensor | float, dtype: DType, device: Device) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(dtype)
    return factories.full((), value, dtype=dtype, device=device)


def _wrapped(operand: Tensor | float, dtype: DType) -> Tensor | float:
    """Return `operand`; an integer that the integer dtype `dtype` does not hold loses its upper bits."""
    if not isinstance(operand, int) or dtype.kind not in "ui":
        return operand
    limits = np.iinfo(dtype.numpy)
    return (operand - int(limits.min)) % 2**limits.bits + int(limits.min)


def isin(
    elements: Tensor | float, test_elements: Tensor | float, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Return a bool tensor: whether each of `elements` is in `test_elements`.

    Elements are compared in the promoted dtype, where integers beyond its range wrap around; NaN equals nothing.

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
    if isinstance(elements, Tensor):
        device = elements.meta.device
    elif isinstance(test_elements, Tensor):
        device = test_elements.meta.device
    else:
        raise ArgumentError("isin: at least one of elements and test_elements must be a tensor")
    for operand in (elements, test_elements):
        if isinstance(operand, bool) or (isinstance(operand, Tensor) and operand.meta.dtype is dtypes.bool_):
            raise DTypeError("isin: does not take bool, as PyTorch does not; convert with .to(uint8)")
    dtype = result_type(elements, test_elements)
    queries, candidates = (_to_tensor(_wrapped(t, dtype), dtype, device).detach() for t in (elements, test_elements))
    if not candidates.meta.numel:
        return factories.full(queries.meta.shape, bool(invert), dtype=dtypes.bool_, device=queries.meta.device)
    if candidates.meta.numel == 1:
        candidate = views.reshape(candidates, ())
        return ops.ne(queries, candidate) if invert else ops.eq(queries, candidate)
    values, _ = call_multiple(_sort_along, (views.reshape(candidates, (-1,)),), (0, False))
    positions = call(_search_sorted, (values, views.contiguous(queries)), (False, True))
    nearest = call(_take_at, (values, ops.clamp_max(positions, candidates.meta.numel - 1)), (0, 1))
    return ops.ne(queries, nearest) if invert else ops.eq(queries, nearest)
