"""Indexing and index assignment: `x[items]` and `x[items] = value`.

Indexing has two steps. First, all basic items (ints, slices, None, `...`) become one view, in which the dimensions
indexed by tensors, lists and masks stay whole. Then those advanced items are combined into one integer tensor of
positions in the indexed dimensions, flattened (`advanced_indices`); `take_at` reads and `put_at` writes the slices at
these positions.

The dimensions of the index replace the indexed ones, or come first if these are not adjacent, as in PyTorch. (An int
next to an index tensor is a basic index, as in PyTorch; NumPy treats it as advanced.)
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from ..arguments.types import Index, Operand
from ..runtime import views
from ..runtime.context import _local
from ..runtime.device import Meta, meta
from ..runtime.dispatch import call, call_into
from ..runtime.errors import IndexOutOfRange
from ..runtime.records import registry
from ..runtime.tensor import Extra, Tensor
from .advanced_indices import (
    FULL_SLICE,
    Static,
    check_mask,
    is_int,
    is_mask,
    mask_tensor,
    resolve_advanced,
    to_bound,
    to_step,
)
from .assignment import (
    assignment_value,
    clone,
    copy_if_aliased,
    is_single,
    masked_fill_,
    record_empty_write,
    tensor_value,
)

__all__ = ["get", "index_put", "index_put_", "set"]

_index_view = registry["index_view"]
_take_at, _put_at, _put_add_at = registry["take_at"], registry["put_at"], registry["put_add_at"]
# For each layout: number of rows, bytes between rows, layout of a row.
_row_layouts: dict[Meta, tuple[int, int, Meta]] = {}
_MAX_ROW_LAYOUTS = 4096
_MIN_ARRAY_LIST_LENGTH = 32  # a list of this length is always an array, as in PyTorch


# Tensor[...] ----------------------------------------------------------------------------------------------------------


def get(tensor: Tensor, item: Index) -> Tensor:
    """Return `tensor[item]`. Raises `IndexOutOfRange` with the index, the dimension and its size."""
    if type(item) is int:
        return _select_row(tensor, item)
    items = item if isinstance(item, tuple) else (item,)
    statics = _basic_statics(tensor, items)
    if statics is not None:
        return call(_index_view, (tensor,), statics)
    if _is_tuple_like(item):
        return get(tensor, tuple(item))
    view, dim, count, index, check = resolve_advanced(tensor, items)
    return check.run(_take_at, (view, index), (dim, count))


def _is_tuple_like(item: object) -> TypeGuard[list[Index]]:
    """Return True if a list is treated as a tuple: it is short and has sequences, tensors, slices, None or `...`."""
    parts = (list, tuple, Tensor, np.ndarray, slice, type(None), type(Ellipsis))
    if (
        type(item) is not list
        or len(item) >= _MIN_ARRAY_LIST_LENGTH
        or not any(isinstance(entry, parts) for entry in item)
    ):
        return False
    warnings.warn(
        "a list of sequences or slices as an index is taken for a tuple, as in PyTorch; write x[tuple(items)], or "
        "x[tensor(items)] for an array of positions",
        stacklevel=4,
    )
    return True


def set(tensor: Tensor, item: Index, value: object) -> None:
    """Do `tensor[item] = value` in place.

    `value` (a number, a tensor, or host data) is broadcast and converted. If an index names a position twice, the last
    write wins.
    """
    items = item if isinstance(item, tuple) else (item,)
    statics = _basic_statics(tensor, items)
    if statics is not None:
        target: Tensor = call(_index_view, (tensor,), statics)
        source = assignment_value(value, target, target.meta.shape)
        if not isinstance(source, Tensor):
            target.fill_(source)
        elif target.meta.numel:
            call_into(registry["copy"], (copy_if_aliased(source, target),), (None,), (target,), in_place=True)
        else:
            record_empty_write(tensor, source)
        return
    if _is_tuple_like(item):
        set(tensor, tuple(item), value)
        return
    if len(items) == 1 and is_mask(items[0]) and is_single(value):
        mask = mask_tensor(items[0], tensor)
        check_mask(mask.meta.shape, tensor.meta.shape, 0)
        masked_fill_(tensor, views.reshape(mask, mask.meta.shape + (1,) * (tensor.meta.ndim - mask.meta.ndim)), value)
        return
    _put_slices(tensor, items, value, False)


def _select_row(tensor: Tensor, index: int) -> Tensor:
    """Return `tensor[index]` without an `index_view` plan: a loop over a data set would fill the plan cache."""
    state = _local.state
    extra = tensor.extra
    if state.mode is not None or tensor.needs_grad or (extra is not None and extra.base is not None):
        return get(tensor, (index,))
    cached = _row_layouts.get(tensor.meta)
    if cached is None:
        cached = _cache_row(tensor.meta, index)
    size, stride, row = cached
    if index < 0:
        index += size
    if not 0 <= index < size:
        raise IndexOutOfRange(
            f"index {index if index >= size else index - size} is out of range for dimension 0 of size {size}"
        )
    out = Tensor(tensor.storage, row, tensor.start + index * stride)
    if extra is None:
        extra = tensor.extra = Extra()
    out.extra = Extra(tensor, extra.rewrites)
    return out


def _cache_row(parent: Meta, index: int) -> tuple[int, int, Meta]:
    if not parent.ndim:
        raise IndexOutOfRange(f"index {index} of a 0-d tensor, which has no dimensions; use .item()")
    if len(_row_layouts) >= _MAX_ROW_LAYOUTS:
        _row_layouts.clear()
    row = meta(parent.dtype, parent.shape[1:], parent.strides[1:], parent.device)
    cached = _row_layouts[parent] = (parent.shape[0], parent.strides[0] * parent.dtype.itemsize, row)
    return cached


def _basic_statics(tensor: Tensor, items: tuple[object, ...]) -> tuple[Static, ...] | None:
    """Return the static arguments of the `index_view` op: ints, (start, stop, step) and None, with `...` expanded.

    The result is None if an item is a tensor, a list or a mask.
    """
    statics: list[Static] = []
    ellipsis_position = -1
    consumed_dims = 0
    for item in items:
        if type(item) is int:
            statics.append(item)
            consumed_dims += 1
        elif item is None:
            statics.append(None)
        elif item is ...:
            if ellipsis_position >= 0:
                raise IndexOutOfRange("an index has at most one '...'")
            ellipsis_position = len(statics)
        elif type(item) is slice:
            start, stop, step = item.start, item.stop, item.step
            if (start is None or type(start) is int) and (stop is None or type(stop) is int) and step is None:
                statics.append((start, stop, None))
            else:
                statics.append((to_bound(start), to_bound(stop), to_step(step)))
            consumed_dims += 1
        elif is_int(item):
            statics.append(item.__index__())
            consumed_dims += 1
        else:
            return None
    remaining_dims = tensor.meta.ndim - consumed_dims
    if remaining_dims < 0:
        raise IndexOutOfRange(f"too many indices: {consumed_dims} for a tensor of {tensor.meta.ndim} dimensions")
    if ellipsis_position >= 0:
        statics[ellipsis_position:ellipsis_position] = [FULL_SLICE] * remaining_dims
    return tuple(statics)


# Assignment -----------------------------------------------------------------------------------------------------------


def _put_slices(tensor: Tensor, items: tuple[object, ...], value: object, accumulate: bool) -> None:
    view, dim, count, index, check = resolve_advanced(tensor, items)
    shape = view.meta.shape
    slices_shape = shape[:dim] + index.meta.shape + shape[dim + count :]
    source = tensor_value(value, view, slices_shape)
    if source.meta.numel:
        record = _put_add_at if accumulate else _put_at
        operands = (view, copy_if_aliased(index, tensor), copy_if_aliased(source, tensor))
        check.run_in_place(record, operands, (dim, count))
    else:
        check()
        record_empty_write(tensor, source)


def index_put_(self: Tensor, indices: Sequence[Index], values: Operand, accumulate: bool = False) -> Tensor:
    """Do `self[indices] = values` in place.

    Args:
        indices: Indices of the first dimensions, such as int64 or bool tensors.
        values: Number, or a tensor that broadcasts to the indexed shape.
        accumulate: Add instead, once for each time a position occurs.

    Returns:
        This tensor.

    Example:
        >>> wg.zeros(3).index_put_((wg.tensor([1, 1]),), wg.tensor([5.0, 6.0]), accumulate=True)
        tensor([ 0., 11.,  0.])
    """
    items = tuple(indices)
    if _basic_statics(self, items) is None:
        _put_slices(self, items, values, accumulate)
    elif accumulate:
        target = get(self, items)
        call_into(
            registry["add"], (target, tensor_value(values, target, target.meta.shape)), (), (target,), in_place=True
        )
    else:
        set(self, items, values)
    return self


def index_put(input: Tensor, indices: Sequence[Index], values: Operand, accumulate: bool = False) -> Tensor:
    """Return a copy of `input` with `values` at `indices`; see `index_put_`.

    Args:
        input: Tensor of any dtype.
        indices: Indices of the first dimensions, such as int64 or bool tensors.
        values: Number, or a tensor that broadcasts to the indexed shape.
        accumulate: Add instead, once for each time a position occurs.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.index_put(wg.zeros(3), (wg.tensor([0, 2]),), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    return index_put_(clone(input), indices, values, accumulate)


METHODS = {"index_put": index_put, "index_put_": index_put_, "masked_fill_": masked_fill_}
