"""Indexing and index assignment: `x[items]` and `x[items] = value`.

Indexing has two steps. First, all basic items (ints, slices, None, `...`) become one view, in which the dimensions
indexed by tensors, lists and masks are kept whole. Then those advanced items are combined into one integer tensor of
positions in the indexed dimensions, flattened; `take_at` reads and `put_at` writes the slices at these positions.

The dimensions of the index replace the indexed ones, or come first if these are not adjacent, as in PyTorch. (An int
next to an index tensor is a basic index, as in PyTorch; NumPy treats it as advanced.)
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, TypeGuard, overload

import numpy as np

from ..arguments.types import Index, Operand
from ..runtime import dtypes, host_data, layout, views
from ..runtime.context import _local
from ..runtime.device import Device, Meta, meta
from ..runtime.dispatch import call, call_into
from ..runtime.dtypes import Array
from ..runtime.errors import IndexKindError, IndexOutOfRange, IndexShapeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Extra, Tensor
from .assignment import (
    assignment_value,
    clone,
    copy_if_aliased,
    is_single,
    masked_fill_,
    on_device,
    positions,
    tensor_value,
    upload,
)
from .bounds import check_bounds, check_range

__all__ = [
    "METHODS", "check_bounds", "clone", "copy_if_aliased", "get", "index_put", "index_put_", "masked_fill_",
    "on_device",
    "positions", "set", "tensor_value", "upload", "without_negatives",
]  # fmt: skip

_index_view = registry["index_view"]
_take_at, _put_at, _put_add_at = registry["take_at"], registry["put_at"], registry["put_add_at"]
_FULL_SLICE = (None, None, None)
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
    if _is_legacy(item):
        return get(tensor, tuple(item))
    view, dim, count, index = _resolve_advanced(tensor, items)
    return call(_take_at, (view, index), (dim, count))


def _is_legacy(item: Any) -> TypeGuard[list[Any]]:
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
        "x[tensor(items)] for an array of places",
        stacklevel=4,
    )
    return True


def set(tensor: Tensor, item: Index, value: Any) -> None:
    """Do `tensor[item] = value` in place.

    `value` (a number, a tensor, or host data) is broadcast and converted. If an index names a position twice, the last
    write wins.
    """
    items = item if isinstance(item, tuple) else (item,)
    statics = _basic_statics(tensor, items)
    if statics is not None:
        target = call(_index_view, (tensor,), statics)
        value = assignment_value(value, target, target.meta.shape)
        if not isinstance(value, Tensor):
            target.fill_(value)
        elif target.meta.numel:
            call_into(registry["copy"], (copy_if_aliased(value, target),), (None,), (target,), in_place=True)
        return
    if _is_legacy(item):
        set(tensor, tuple(item), value)
        return
    if len(items) == 1 and _is_mask(items[0]) and is_single(value):
        mask = _mask_tensor(_as_mask(items[0]), tensor)
        _check_mask(mask.meta.shape, tensor.meta.shape, 0)
        masked_fill_(tensor, views.reshape(mask, mask.meta.shape + (1,) * (tensor.meta.ndim - mask.meta.ndim)), value)
        return
    _put_slices(tensor, items, value, False)


def _select_row(tensor: Tensor, index: int) -> Tensor:
    """Return `tensor[index]` without an `index_view` plan: a loop over a data set would fill the plan cache."""
    state = _local.state
    extra = tensor.extra
    if state.mode is not None or tensor.needs or (extra is not None and extra.base is not None):
        statics = _basic_statics(tensor, (index,))
        assert statics is not None
        return call(_index_view, (tensor,), statics)
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


def _basic_statics(tensor: Tensor, items: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the static arguments of the `index_view` op: ints, (start, stop, step) and None, with `...` expanded.

    The result is None if an item is a tensor, a list or a mask.
    """
    statics: list[Any] = []
    ellipsis_position = -1
    consumed_dims = 0
    for item in items:
        item_type = type(item)
        if item_type is int:
            statics.append(item)
            consumed_dims += 1
        elif item_type is slice:
            start, stop, step = item.start, item.stop, item.step
            if (start is None or type(start) is int) and (stop is None or type(stop) is int) and step is None:
                statics.append((start, stop, None))
            else:
                statics.append((_to_bound(start), _to_bound(stop), _to_bound(step)))
            consumed_dims += 1
        elif item is None:
            statics.append(None)
        elif item is Ellipsis:
            if ellipsis_position >= 0:
                raise IndexOutOfRange("an index has at most one '...'")
            ellipsis_position = len(statics)
        elif _is_int(item):
            statics.append(item.__index__())
            consumed_dims += 1
        else:
            return None
    remaining_dims = tensor.meta.ndim - consumed_dims
    if remaining_dims < 0:
        raise IndexOutOfRange(f"too many indices: {consumed_dims} for a tensor of {tensor.meta.ndim} dimensions")
    if ellipsis_position >= 0:
        statics[ellipsis_position:ellipsis_position] = [_FULL_SLICE] * remaining_dims
    return tuple(statics)


def _to_bound(value: Any) -> Any:
    return None if value is None else value.__index__()


def _is_int(item: Any) -> bool:
    """Return True for an int, a NumPy integer, or a 0-d integer tensor or array (the host waits for its value)."""
    if isinstance(item, (bool, np.bool_)):
        return False
    if isinstance(item, Tensor):
        return item.meta.ndim == 0 and item.meta.dtype.kind in "ui" and item.meta.dtype is not dtypes.uint8
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind in "ui" and item.dtype != np.uint8
    return isinstance(item, (int, np.integer)) or (hasattr(item, "__index__") and not isinstance(item, (list, tuple)))


@dataclass(frozen=True, slots=True)
class _Item:
    """One advanced index: it covers `count` dimensions of the view from `dim` on, with `size` positions in total."""

    dim: int
    count: int
    size: int
    index: Array | Tensor


def _resolve_advanced(tensor: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, int, int, Tensor]:
    """Return the view, its first advanced dimension, their number, and one tensor of positions in them."""
    view, advanced = _split_items(tensor, items)
    dims = [d for entry in advanced for d in range(entry.dim, entry.dim + entry.count)]
    first = dims[0] if dims else advanced[0].dim
    if any(b != a + 1 for a, b in pairwise(dims)):
        other_dims = [d for d in range(view.meta.ndim) if d not in dims]
        view = call(registry["permute"], (view,), ((*dims, *other_dims),))
        first = 0
    index = _combine_positions([(entry.index, entry.size) for entry in advanced], tensor.meta.device)
    return view, first, len(dims), index


def _split_items(tensor: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, list[_Item]]:
    prepared = [
        item if item is None or item is Ellipsis or isinstance(item, slice) else _normalize_item(item) for item in items
    ]
    consumed_dims = sum(_consumed_dims(item) for item in prepared)
    tensor_shape = tensor.meta.shape
    if consumed_dims > len(tensor_shape):
        raise IndexOutOfRange(f"too many indices: {consumed_dims} for a tensor of {len(tensor_shape)} dimensions")
    if sum(item is Ellipsis for item in prepared) > 1:
        raise IndexOutOfRange("an index has at most one '...'")
    statics: list[Any] = []
    advanced: list[_Item] = []
    axis = view_axis = 0  # the next dimension of the tensor, and of the view
    for item in prepared:
        if item is None:
            statics.append(None)
            view_axis += 1
        elif item is Ellipsis:
            statics += [_FULL_SLICE] * (len(tensor_shape) - consumed_dims)
            axis, view_axis = axis + len(tensor_shape) - consumed_dims, view_axis + len(tensor_shape) - consumed_dims
        elif isinstance(item, slice):
            statics.append((_to_bound(item.start), _to_bound(item.stop), _to_bound(item.step)))
            axis, view_axis = axis + 1, view_axis + 1
        elif isinstance(item, int):
            statics.append(item)
            axis += 1
        elif _is_mask(item):
            shape = _shape(item)
            _check_mask(shape, tensor_shape, axis)
            if shape:
                statics += [_FULL_SLICE] * len(shape)
                advanced.append(_Item(view_axis, len(shape), prod(shape), _true_positions(item)))
            else:  # a single bool adds a dimension of size 1 or 0
                statics.append(None)
                advanced.append(_Item(view_axis, 1, 1, np.zeros(int(bool(item)), np.int64)))
            axis, view_axis = axis + len(shape), view_axis + max(len(shape), 1)
        else:
            statics.append(_FULL_SLICE)
            advanced.append(_Item(view_axis, 1, tensor_shape[axis], without_negatives(item, tensor_shape[axis], axis)))
            axis, view_axis = axis + 1, view_axis + 1
    is_identity = all(s == _FULL_SLICE for s in statics)
    return (tensor if is_identity else call(_index_view, (tensor,), tuple(statics))), advanced


def _consumed_dims(item: Any) -> int:
    """Return the number of dimensions of the tensor that an item consumes."""
    if item is None or item is Ellipsis:
        return 0
    return len(_shape(item)) if not isinstance(item, (int, slice)) and _is_mask(item) else 1


def _shape(index: Array | Tensor) -> tuple[int, ...]:
    return index.meta.shape if isinstance(index, Tensor) else index.shape


def _normalize_item(item: Any) -> int | Array | Tensor:
    """Convert an index item to an int, or to an integer or bool array or tensor."""
    if _is_int(item):
        return int(item.__index__())
    if isinstance(item, Tensor):
        if item.meta.dtype.kind == "f":
            raise IndexKindError(
                f"an index must hold integers or bools, not {item.meta.dtype.name}; convert it with .long()"
            )
        return _as_mask(item) if item.meta.dtype is dtypes.uint8 else item
    if isinstance(item, np.ndarray) and item.dtype == np.uint8:
        return _as_mask(item)
    if isinstance(item, (list, tuple)) and any(isinstance(x, Tensor) for x in item):
        item = [host_data.host_array(x) if isinstance(x, Tensor) else x for x in item]
    if not isinstance(item, (bool, np.bool_, np.ndarray, list, tuple, range)):
        raise IndexKindError(
            "an index is made of ints, slices, None, '...', and integer and bool tensors, arrays and lists, not "
            f"{type(item).__name__}"
        )
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise IndexKindError(f"an index cannot be made from {item!r}: {error}") from None
    if not array.size and not isinstance(item, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "uib":
        raise IndexKindError(f"an index must hold integers or bools, not {array.dtype}")
    return array if array.dtype.kind == "b" else array.astype(np.int64)


def _is_mask(item: Any) -> bool:
    if isinstance(item, Tensor):
        return item.meta.dtype is dtypes.bool_ or item.meta.dtype is dtypes.uint8
    return isinstance(item, (np.ndarray, np.bool_)) and item.dtype in (np.bool_, np.uint8)


def _as_mask(item: Any) -> Any:
    """Return a mask as bool. A uint8 mask is true where it is not 0, as in PyTorch (in NumPy, uint8 is positions)."""
    if (item.meta.dtype is dtypes.bool_) if isinstance(item, Tensor) else (item.dtype == np.bool_):
        return item
    warnings.warn("uint8 tensors as indices are masks, as in PyTorch; convert them with .bool()", stacklevel=5)
    return call(registry["ne"], (item, 0)) if isinstance(item, Tensor) else item != 0


def _check_mask(shape: tuple[int, ...], tensor_shape: tuple[int, ...], axis: int) -> None:
    if tuple(shape) != tensor_shape[axis : axis + len(shape)]:
        raise IndexOutOfRange(
            f"a mask of shape {list(shape)} does not match dimensions {axis} to {axis + len(shape) - 1} of a tensor of "
            f"shape {list(tensor_shape)}"
        )


def _mask_tensor(mask: Any, like: Tensor) -> Tensor:
    return mask if isinstance(mask, Tensor) else host_data.from_host(np.asarray(mask), dtypes.bool_, like.meta.device)


def _true_positions(mask: Array | Tensor) -> Array | Tensor:
    return positions(mask) if isinstance(mask, Tensor) else np.flatnonzero(mask)


@overload
def without_negatives(index: Tensor, size: int, dim: int) -> Tensor: ...
@overload
def without_negatives(index: Array, size: int, dim: int) -> Array: ...
def without_negatives(index: Any, size: int, dim: int) -> Array | Tensor:
    """Return `index` with negative positions wrapped. Raises `IndexOutOfRange`."""
    where = f"index of dimension {dim}"
    if isinstance(index, Tensor):
        if check_bounds(index, size, where, negative=True) < 0:
            index = call(registry["wrap_index"], (index, size))
        return index
    if index.size:
        lowest = int(index.min())
        check_range(lowest, int(index.max()), size, where, -size)
        if lowest < 0:
            return np.where(index < 0, index + size, index)
    return index


def _combine_positions(items: Sequence[tuple[Any, int]], device: Device) -> Tensor:
    """Combine (index, dimension size) pairs into one tensor of flattened positions; the indices broadcast."""
    combined, _ = items[0]
    if len(items) == 1:
        return _as_int64(combined, device)
    try:
        shape = layout.broadcast([_shape(i) for i, _ in items], "indices")
    except ShapeError as error:
        raise IndexShapeError(str(error)) from None
    for index, size in items[1:]:
        if isinstance(combined, np.ndarray) and isinstance(index, np.ndarray):
            combined = combined * size + index
        else:
            combined = call(registry["linear_index"], (_as_int64(combined, device), _as_int64(index, device), size))
    if isinstance(combined, np.ndarray):
        return upload(np.broadcast_to(combined, shape), device)
    return on_device(combined, device)


def _as_int64(index: Any, device: Device) -> Tensor:
    """Convert `index` to int64 on `device`."""
    if isinstance(index, Tensor):
        index = on_device(index, device)
        return index if index.meta.dtype is dtypes.int64 else call(registry["copy"], (index,), (dtypes.int64,))
    return upload(index, device)


# Assignment -----------------------------------------------------------------------------------------------------------


def _put_slices(tensor: Tensor, items: tuple[Any, ...], value: Any, accumulate: bool) -> None:
    view, dim, count, index = _resolve_advanced(tensor, items)
    shape = view.meta.shape
    slices_shape = shape[:dim] + index.meta.shape + shape[dim + count :]
    source = tensor_value(value, view, slices_shape)
    if source.meta.numel:
        record = _put_add_at if accumulate else _put_at
        call_into(record, (view, index, copy_if_aliased(source, tensor)), (dim, count), (view,), in_place=True)


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
