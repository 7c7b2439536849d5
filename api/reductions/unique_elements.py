"""Unique elements and unique slices. The host waits for their number, on which the shape of the result depends."""

from __future__ import annotations

import math
from typing import Literal, overload

from .._generated import ops
from ..creation import factories, sequences
from ..indexing.gathering import nonzero
from ..runtime import layout, views
from ..runtime.dispatch import call, call_multiple
from ..runtime.errors import IndexOutOfRange, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["unique", "unique_consecutive"]

_sort_along, _search_sorted = registry["sort_along"], registry["search_sorted"]
_take_at, _scatter, _narrow = registry["take_at"], registry["scatter"], registry["narrow"]


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
        input: Tensor of any dtype. Every NaN counts as unique.
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
        values, order = call_multiple(_sort_along, (views.reshape(input.detach(), (-1,)),), (0, False))
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
        return _unique_elements(
            views.reshape(input.detach(), (-1,)), None, input.meta.shape, return_inverse, return_counts
        )
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


def _arange(count: int, like: Tensor) -> Tensor:
    return sequences.arange(count, device=like.meta.device)


METHODS = {name: globals()[name] for name in __all__}
