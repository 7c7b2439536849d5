"""Sorting and top-k along a dimension.

NaN is greater than every number, as in PyTorch. Sorting is always stable, so the same call gives the same indices on
every device. `order_statistics.py` and `quantiles.py` are built on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..arguments.aliases import resolve_axis_alias
from ..arguments.out import copy_to_out
from ..runtime import dtypes, layout, views
from ..runtime.dispatch import call, call_multiple
from ..runtime.errors import ArgumentError, DTypeError, IndexOutOfRange
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .paired_results import store_pair

__all__ = ["argsort", "msort", "sort", "topk"]

_sort_along, _top_along, _transpose = registry["sort_along"], registry["top_along"], registry["transpose"]
_MIN_COLUMN = 16  # elements of the shortest column that is worth a copy into a row: one cache line of float32
_MIN_NUMEL = 1 << 14  # elements of the smallest tensor whose columns are copied; smaller ones fit the L1 cache


def sort_along(input: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Return the sorted elements along a dimension, and their indices."""
    return _call_along_rows(_sort_along, input, (), dim, descending)


def top_along(input: Tensor, count: int, dim: int, largest: bool) -> tuple[Tensor, Tensor]:
    """Return the `count` largest or smallest elements along a dimension, and their indices."""
    return _call_along_rows(_top_along, input, (count,), dim, largest)


def _call_along_rows(
    record: OpRecord, input: Tensor, statics: tuple[int, ...], dim: int, descending: bool
) -> tuple[Tensor, Tensor]:
    """Call a sort op along `dim`. On CPUs, long columns are copied into rows first, and the results back.

    Each element of a column lies in a cache line of its own, so that a few columns fill the cache. Sorting the columns
    of 1024 x 1024 elements took 110 ms, sorting its rows 30 ms, and the copies to and from rows take 1 ms.

    Args:
        record: The op, `sort_along` or `top_along`.
        input: Tensor of shape `(..., n, ...)`, with `n` elements along `dim`.
        statics: The op's static arguments before `dim`.
        dim: The dimension, not negative.
        descending: Whether the largest element comes first.

    Returns:
        The values, and their int64 indices along `dim`.
    """
    meta = input.meta
    last = meta.ndim - 1
    if (
        meta.numel < _MIN_NUMEL
        or dim == last
        or meta.strides[dim] == 1
        or meta.shape[dim] < _MIN_COLUMN
        or not meta.device.driver.capabilities.takes_runs
    ):
        values, indices = call_multiple(record, (input,), (*statics, dim, descending))
        return values, indices
    rows = views.contiguous(call(_transpose, (input,), (dim, last)))
    results = call_multiple(record, (rows,), (*statics, last, descending))
    values, indices = (views.contiguous(call(_transpose, (result,), (dim, last))) for result in results)
    return values, indices


class Ordered(NamedTuple):
    """The result of `sort`, `topk`, `median` and other functions that select elements: a named tuple, as in PyTorch.

    Args:
        values: The elements in order.
        indices: Their int64 indices along the dimension, of the same shape.

    Example:
        >>> wg.sort(wg.tensor([3, 1, 2])).indices
        tensor([1, 2, 0])
    """

    values: Tensor
    indices: Tensor


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None,
    out: Sequence[Tensor] | None = None, axis: int | None = None,
) -> Ordered:  # fmt: skip
    """Sort along `dim`. NaN is greater than every number.

    Args:
        input: Tensor of any dtype.
        dim: The dimension to sort along; negative values count from the last.
        descending: Whether the largest element comes first.
        stable: Accepted for compatibility with PyTorch; sorting is always stable.
        out: Two tensors to write the values and the indices to.
        axis: NumPy's name for `dim`.

    Returns:
        `(values, indices)`, each of the shape of `input`: the sorted elements, through which gradients flow, and their
        int64 indices along `dim`.

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
    return Ordered(*store_pair(sort_along(input, axis_index, bool(descending)), out, "sort"))


def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False, out: Tensor | None = None,
    axis: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the int64 indices that sort `input` along `dim`; see `sort`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        descending: Whether the largest element comes first.
        stable: Accepted for compatibility with PyTorch; sorting is always stable.
        out: int64 tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        int64 tensor of the shape of `input`.

    Raises:
        IndexOutOfRange: The dimension does not exist.
        ArgumentError: `stable` is not a bool.

    Example:
        >>> wg.argsort(wg.tensor([3, 1, 2]))
        tensor([1, 2, 0])
    """
    only_tensors("argsort", input)
    output = sort(input.detach(), dim, descending, stable=stable, axis=axis).indices
    return output if out is None else copy_to_out(output, out, "argsort")


def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the elements sorted along the first dimension.

    Args:
        input: Tensor of any dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape and dtype of `input`, through which gradients flow.

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
        input: Tensor of any dtype but bool.
        k: Number of elements to return, at most the size of the dimension.
        dim: The dimension to search; negative values count from the last.
        largest: Whether to return the largest elements.
        sorted: Ignored; the result is always sorted.
        out: Two tensors to write the values and the indices to.
        axis: NumPy's name for `dim`.

    Returns:
        `(values, indices)`, of size `k` along `dim`: the elements, through which gradients flow, and their int64
        indices along `dim`.

    Raises:
        IndexOutOfRange: `k` is negative or larger than the dimension, or the dimension does not exist.
        ArgumentError: `k` is not an integer.
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
    count = to_int(k, "topk", "k")
    size = input.meta.shape[axis_index] if input.meta.ndim else 1
    if not 0 <= count <= size:
        raise IndexOutOfRange(
            f"topk: selected index k out of range: k is {count}, dimension {axis_index} has {size} elements"
        )
    if not input.meta.ndim:
        count = 1  # as in PyTorch: a number has one largest element, also for k = 0
    return Ordered(*store_pair(top_along(input, count, axis_index, bool(largest)), out, "topk"))


def to_int(value: object, where: str, name: str) -> int:
    """Return an argument as an int. Raises `ArgumentError` unless it is an integer."""
    if isinstance(value, (bool, float)) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{where}: {name} must be an integer, not {value!r}")
    return int(value.__index__())


METHODS = {name: globals()[name] for name in __all__}
