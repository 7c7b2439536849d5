"""Functions that sort, search in sorted tensors, and find unique elements."""

from __future__ import annotations

from typing import NamedTuple

from ..reductions import searching, sorting, unique_elements
from ..runtime import dtypes
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ._operands import check_tensors, promote

__all__ = [
    "argsort", "searchsorted", "sort", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip


class UniqueAll(NamedTuple):
    """Unique elements, and where and how often they are.

    Attributes:
        values: The elements, in ascending order.
        indices: Position of the first of each in the flattened tensor.
        inverse_indices: Position in `values` of each element of the tensor.
        counts: How often each is there.
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Unique elements, and how often they are there.

    Attributes:
        values: The elements, in ascending order.
        counts: How often each is there.
    """

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Unique elements, and where they are.

    Attributes:
        values: The elements, in ascending order.
        inverse_indices: Position in `values` of each element of the tensor.
    """

    values: Tensor
    inverse_indices: Tensor


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the positions that sort a tensor along an axis. NaN counts as the greatest number.

    Args:
        x: Tensor.
        axis: The axis.
        descending: Whether the greatest comes first.
        stable: Whether equal elements keep their order; they do anyway.

    Returns:
        Tensor of dtype int64.

    Example:
        >>> wg.array_api.argsort(wg.tensor([3, 1, 2]))
        tensor([1, 2, 0])
    """
    check_tensors("argsort", x)
    return sorting.argsort(x, axis, descending, stable=True)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the elements in order along an axis. NaN counts as the greatest number.

    Args:
        x: Tensor.
        axis: The axis.
        descending: Whether the greatest comes first.
        stable: Whether equal elements keep their order; they do anyway.

    Returns:
        Tensor of the same shape.

    Example:
        >>> wg.array_api.sort(wg.tensor([3, 1, 2]), descending=True)
        tensor([3, 2, 1])
    """
    check_tensors("sort", x)
    return sorting.sort(x, axis, descending, stable=True)[0]


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Return the positions in a sorted vector at which elements can be inserted.

    Args:
        x1: Sorted vector.
        x2: Tensor of the elements.
        side: Position before (`left`) or after (`right`) equal elements.
        sorter: Positions that sort `x1`, if it is not sorted.

    Returns:
        Tensor of dtype int64 and the shape of `x2`.

    Example:
        >>> wg.array_api.searchsorted(wg.tensor([1, 3, 5]), wg.tensor([3, 9]))
        tensor([1, 3])
    """
    check_tensors("searchsorted", x1, x2)
    if x1.meta.ndim != 1:
        raise ArgumentError(f"searchsorted: the sorted tensor is a vector, not of shape {list(x1.meta.shape)}")
    sequence, values = promote("searchsorted", x1, x2)
    assert isinstance(sequence, Tensor)  # as it was before
    positions = None if sorter is None else sorter.to(dtypes.int64)
    return searching.searchsorted(sequence, values, side=side, sorter=positions)


def unique_all(x: Tensor, /) -> UniqueAll:
    """Return unique elements, where they are, and how often. Each NaN is unique.

    Args:
        x: Tensor; it is flattened.

    Returns:
        The fields `values`, `indices`, `inverse_indices` and `counts`.

    Example:
        >>> wg.array_api.unique_all(wg.tensor([5, 3, 5])).indices
        tensor([1, 0])
    """
    values, inverse, counts = _unique(x)
    flat = inverse.reshape(-1)
    # The first of each group in the order of a stable sort.
    order = sorting.argsort(flat, stable=True)
    starts = counts.cumsum(0) - counts
    return UniqueAll(values, order[starts], inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return unique elements, and how often they are there. Each NaN is unique.

    Args:
        x: Tensor; it is flattened.

    Returns:
        The fields `values` and `counts`.

    Example:
        >>> wg.array_api.unique_counts(wg.tensor([5, 3, 5])).counts
        tensor([1, 2])
    """
    values, _, counts = _unique(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return unique elements, and where they are. Each NaN is unique.

    Args:
        x: Tensor; it is flattened.

    Returns:
        The fields `values` and `inverse_indices`.

    Example:
        >>> wg.array_api.unique_inverse(wg.tensor([5, 3, 5])).inverse_indices
        tensor([1, 0, 1])
    """
    values, inverse, _ = _unique(x)
    return UniqueInverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """Return unique elements, in ascending order. Each NaN is unique.

    Args:
        x: Tensor; it is flattened.

    Returns:
        Vector.

    Example:
        >>> wg.array_api.unique_values(wg.tensor([5, 3, 5]))
        tensor([3, 5])
    """
    check_tensors("unique_values", x)
    return unique_elements.unique(x)


def _unique(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    check_tensors("unique", x)
    values, inverse, counts = unique_elements.unique(x, return_inverse=True, return_counts=True)
    return values, inverse.reshape(x.meta.shape), counts
