"""Indexing and assignment: slices, ints, None and `...` are one view; integer tensors and masks gather and scatter.

`x[items]` is taken in two steps. Everything basic becomes one view, in which the dimensions that tensors, lists and
masks index are whole. Then these become one integer tensor of positions in those dimensions counted as one, and
`take_at` reads, or `put_at` writes, the slices at its positions. Results have the dimensions of the index where the
indexed ones were, or in front if these were not neighbours, as PyTorch places them. (An int beside an index tensor is
a basic index, as in PyTorch; NumPy counts it among the tensors.)
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from . import _hosting
from .bounds import check_bounds, check_range
from .runtime import dtypes, layout, views
from .runtime.context import _local
from .runtime.device import Device, Meta, meta
from .runtime.dispatch import call, call_into
from .runtime.errors import IndexKindError, IndexOutOfRange, IndexShapeError, ShapeError
from .runtime.records import registry
from .runtime.tensor import Extra, Tensor
from .values import apart, clone, is_single, masked_fill_, on_device, positions, tensor_value, upload, value_of

__all__ = [
    "METHODS", "apart", "check_bounds", "clone", "get", "index_put", "index_put_", "masked_fill_", "on_device",
    "positions", "set", "tensor_value", "upload", "without_negatives",
]  # fmt: skip

_index_view = registry["index_view"]
_take_at, _put_at, _put_add_at = registry["take_at"], registry["put_at"], registry["put_add_at"]
_WHOLE = (None, None, None)
_rows: dict[Meta, tuple[int, int, Meta]] = {}  # of a layout: how many rows, bytes between them, a row's layout
_MOST_ROWS = 4096
_LEAST_LIST = 32  # items from which on a list is an array, whatever is in it, as in PyTorch


# Tensor[...] --------------------------------------------------------------------------------------------------------


def get(tensor: Tensor, item: Any) -> Tensor:
    """`tensor[item]`. Raises `IndexOutOfRange`, which names the index, the dimension and its size."""
    if type(item) is int:
        return _row(tensor, item)
    items = item if isinstance(item, tuple) else (item,)
    statics = _basic(tensor, items)
    if statics is not None:
        return call(_index_view, (tensor,), statics)  # type: ignore[no-any-return]
    if _is_legacy(item):
        return get(tensor, tuple(item))
    view, dim, count, index = _resolve(tensor, items)
    return call(_take_at, (view, index), (dim, count))  # type: ignore[no-any-return]


def _is_legacy(item: Any) -> bool:
    """Whether a list stands for a tuple: a short one with sequences, tensors, slices, None or `...` in it."""
    parts = (list, tuple, Tensor, np.ndarray, slice, type(None), type(Ellipsis))
    if type(item) is not list or len(item) >= _LEAST_LIST or not any(isinstance(each, parts) for each in item):
        return False
    warnings.warn(
        "a list of sequences or slices as an index is taken for a tuple, as in PyTorch; write x[tuple(items)], or "
        "x[tensor(items)] for an array of places",
        stacklevel=4,
    )
    return True


def set(tensor: Tensor, item: Any, value: Any) -> None:
    """`tensor[item] = value`, in place: `value` (a number, a tensor, host data) is broadcast and converted; where an
    index names a place twice, the last write stays."""
    items = item if isinstance(item, tuple) else (item,)
    statics = _basic(tensor, items)
    if statics is not None:
        target = call(_index_view, (tensor,), statics)
        value = value_of(value, target, target.meta.shape)
        if not isinstance(value, Tensor):
            target.fill_(value)
        elif target.meta.numel:
            call_into(registry["copy"], (apart(value, target),), (None,), (target,), in_place=True)
        return
    if _is_legacy(item):
        set(tensor, tuple(item), value)
        return
    if len(items) == 1 and _is_mask(items[0]) and is_single(value):
        mask = _mask_tensor(_as_mask(items[0]), tensor)
        _check_mask(mask.meta.shape, tensor.meta.shape, 0)
        masked_fill_(tensor, views.reshape(mask, mask.meta.shape + (1,) * (tensor.meta.ndim - mask.meta.ndim)), value)
        return
    _put(tensor, items, value, False)


def _row(tensor: Tensor, index: int) -> Tensor:
    """`tensor[index]` without a plan an index: loops over a data set would fill the table of plans."""
    state = _local.state
    extra = tensor.extra
    if state.mode is not None or tensor.needs or (extra is not None and extra.base is not None):
        return call(_index_view, (tensor,), _basic(tensor, (index,)))  # type: ignore[no-any-return,arg-type]
    found = _rows.get(tensor.meta)
    if found is None:
        found = _new_row(tensor.meta, index)
    size, stride, row = found
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


def _new_row(whole: Meta, index: int) -> tuple[int, int, Meta]:
    if not whole.ndim:
        raise IndexOutOfRange(f"index {index} of a 0-d tensor, which has no dimensions; use .item()")
    if len(_rows) >= _MOST_ROWS:
        _rows.clear()
    row = meta(whole.dtype, whole.shape[1:], whole.strides[1:], whole.device)
    found = _rows[whole] = (whole.shape[0], whole.strides[0] * whole.dtype.itemsize, row)
    return found


def _basic(tensor: Tensor, items: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Statics of the `index_view` op: ints, (start, stop, step), None, with `...` spelled out; None if an item is a
    tensor, a list or a mask."""
    found: list[Any] = []
    dots = -1
    used = 0
    for item in items:
        kind = type(item)
        if kind is int:
            found.append(item)
            used += 1
        elif kind is slice:
            start, stop, step = item.start, item.stop, item.step
            if (start is None or type(start) is int) and (stop is None or type(stop) is int) and step is None:
                found.append((start, stop, None))
            else:
                found.append((_bound(start), _bound(stop), _bound(step)))
            used += 1
        elif item is None:
            found.append(None)
        elif item is Ellipsis:
            if dots >= 0:
                raise IndexOutOfRange("an index has at most one '...'")
            dots = len(found)
        elif _is_int(item):
            found.append(item.__index__())
            used += 1
        else:
            return None
    left = tensor.meta.ndim - used
    if left < 0:
        raise IndexOutOfRange(f"too many indices: {used} for a tensor of {tensor.meta.ndim} dimensions")
    if dots >= 0:
        found[dots:dots] = [_WHOLE] * left
    return tuple(found)


def _bound(value: Any) -> Any:
    return None if value is None else value.__index__()


def _is_int(item: Any) -> bool:
    """Whether an item stands for one int: also NumPy's, and 0-d integer tensors and arrays (a value to wait for)."""
    if isinstance(item, (bool, np.bool_)):
        return False
    if isinstance(item, Tensor):
        return item.meta.ndim == 0 and item.meta.dtype.kind in "ui" and item.meta.dtype is not dtypes.uint8
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind in "ui" and item.dtype != np.uint8
    return isinstance(item, (int, np.integer)) or (hasattr(item, "__index__") and not isinstance(item, (list, tuple)))


@dataclass(frozen=True, slots=True)
class _Item:
    """One index that is no view: the `count` dimensions of the view from `dim` on, of `size` positions in all."""

    dim: int
    count: int
    size: int
    index: np.ndarray[Any, Any] | Tensor


def _resolve(tensor: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, int, int, Tensor]:
    """The view in which whole dimensions are indexed, the first of them, their number, and positions in them."""
    view, found = _split(tensor, items)
    dims = [d for each in found for d in range(each.dim, each.dim + each.count)]
    first = dims[0] if dims else found[0].dim
    if any(b != a + 1 for a, b in pairwise(dims)):
        rest = [d for d in range(view.meta.ndim) if d not in dims]
        view = call(registry["permute"], (view,), ((*dims, *rest),))
        first = 0
    index = _positions([(each.index, each.size) for each in found], tensor.meta.device)
    return view, first, len(dims), index


def _split(tensor: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, list[_Item]]:
    prepared = [
        item if item is None or item is Ellipsis or isinstance(item, slice) else _prepared(item) for item in items
    ]
    used = sum(_takes(item) for item in prepared)
    whole = tensor.meta.shape
    if used > len(whole):
        raise IndexOutOfRange(f"too many indices: {used} for a tensor of {len(whole)} dimensions")
    if sum(item is Ellipsis for item in prepared) > 1:
        raise IndexOutOfRange("an index has at most one '...'")
    statics: list[Any] = []
    found: list[_Item] = []
    at = out = 0  # the next dimension of the tensor, and of the view
    for item in prepared:
        if item is None:
            statics.append(None)
            out += 1
        elif item is Ellipsis:
            statics += [_WHOLE] * (len(whole) - used)
            at, out = at + len(whole) - used, out + len(whole) - used
        elif isinstance(item, slice):
            statics.append((_bound(item.start), _bound(item.stop), _bound(item.step)))
            at, out = at + 1, out + 1
        elif isinstance(item, int):
            statics.append(item)
            at += 1
        elif _is_mask(item):
            shape = _shape(item)
            _check_mask(shape, whole, at)
            if shape:
                statics += [_WHOLE] * len(shape)
                found.append(_Item(out, len(shape), prod(shape), _true_positions(item)))
            else:  # one truth value: a new dimension that is there or empty
                statics.append(None)
                found.append(_Item(out, 1, 1, np.zeros(int(bool(item)), np.int64)))
            at, out = at + len(shape), out + max(len(shape), 1)
        else:
            statics.append(_WHOLE)
            found.append(_Item(out, 1, whole[at], without_negatives(item, whole[at], at)))
            at, out = at + 1, out + 1
    plain = all(s == _WHOLE for s in statics)
    return (tensor if plain else call(_index_view, (tensor,), tuple(statics))), found


def _takes(item: Any) -> int:
    """How many dimensions of the tensor an item stands for."""
    if item is None or item is Ellipsis:
        return 0
    return len(_shape(item)) if not isinstance(item, (int, slice)) and _is_mask(item) else 1


def _shape(index: np.ndarray[Any, Any] | Tensor) -> tuple[int, ...]:
    return index.meta.shape if isinstance(index, Tensor) else index.shape


def _prepared(item: Any) -> int | np.ndarray[Any, Any] | Tensor:
    """An index item as an int, an array of integers or truth values, or a tensor of them."""
    if _is_int(item):
        return int(item.__index__())
    if isinstance(item, Tensor):
        if item.meta.dtype.kind == "f":
            raise IndexKindError(
                f"an index must hold integers or bools, not {item.meta.dtype.name}; convert it with .long()"
            )
        return _as_mask(item) if item.meta.dtype is dtypes.uint8 else item  # type: ignore[no-any-return]
    if isinstance(item, np.ndarray) and item.dtype == np.uint8:
        return _as_mask(item)  # type: ignore[no-any-return]
    if isinstance(item, (list, tuple)) and any(isinstance(x, Tensor) for x in item):
        item = [_hosting.host_array(x) if isinstance(x, Tensor) else x for x in item]
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
    """A mask as bool: one of uint8 is true where it is not 0, as in PyTorch (NumPy takes it for positions)."""
    if (item.meta.dtype is dtypes.bool_) if isinstance(item, Tensor) else (item.dtype == np.bool_):
        return item
    warnings.warn("uint8 tensors as indices are masks, as in PyTorch; convert them with .bool()", stacklevel=5)
    return call(registry["ne"], (item, 0)) if isinstance(item, Tensor) else item != 0


def _check_mask(shape: tuple[int, ...], whole: tuple[int, ...], at: int) -> None:
    if tuple(shape) != whole[at : at + len(shape)]:
        raise IndexOutOfRange(
            f"a mask of shape {list(shape)} does not match dimensions {at} to {at + len(shape) - 1} of a tensor of "
            f"shape {list(whole)}"
        )


def _mask_tensor(mask: Any, like: Tensor) -> Tensor:
    return mask if isinstance(mask, Tensor) else _hosting.from_host(np.asarray(mask), dtypes.bool_, like.meta.device)


def _true_positions(mask: Any) -> np.ndarray[Any, Any] | Tensor:
    return positions(mask) if isinstance(mask, Tensor) else np.flatnonzero(mask)


def without_negatives(index: Any, size: int, dim: int) -> np.ndarray[Any, Any] | Tensor:
    """`index` without negative positions. Raises `IndexOutOfRange`."""
    where = f"index of dimension {dim}"
    if isinstance(index, Tensor):
        if check_bounds(index, size, where, negative=True) < 0:
            index = call(registry["wrap_index"], (index, size))
        return index
    if index.size:
        least = int(index.min())
        check_range(least, int(index.max()), size, where, -size)
        if least < 0:
            return np.where(index < 0, index + size, index)
    return index  # type: ignore[no-any-return]


def _positions(items: Sequence[tuple[Any, int]], device: Device) -> Tensor:
    """One tensor of positions from the indices of several dimensions and their sizes, broadcast against each other."""
    found, _ = items[0]
    if len(items) == 1:
        return _wide(found, device)
    try:
        shape = layout.broadcast([_shape(i) for i, _ in items], "indices")
    except ShapeError as error:
        raise IndexShapeError(str(error)) from None
    for index, size in items[1:]:
        if isinstance(found, np.ndarray) and isinstance(index, np.ndarray):
            found = found * size + index
        else:
            found = call(registry["linear_index"], (_wide(found, device), _wide(index, device), size))
    if isinstance(found, np.ndarray):
        return upload(np.broadcast_to(found, shape), device)
    return on_device(found, device)


def _wide(index: Any, device: Device) -> Tensor:
    """`index` as int64 on `device`."""
    if isinstance(index, Tensor):
        index = on_device(index, device)
        return index if index.meta.dtype is dtypes.int64 else call(registry["copy"], (index,), (dtypes.int64,))  # type: ignore[no-any-return]
    return upload(index, device)


# Assignment -----------------------------------------------------------------------------------------------------------


def _put(tensor: Tensor, items: tuple[Any, ...], value: Any, accumulate: bool) -> None:
    view, dim, count, index = _resolve(tensor, items)
    shape = view.meta.shape
    wanted = shape[:dim] + index.meta.shape + shape[dim + count :]
    source = tensor_value(value, view, wanted)
    if source.meta.numel:
        record = _put_add_at if accumulate else _put_at
        call_into(record, (view, index, apart(source, tensor)), (dim, count), (view,), in_place=True)


def index_put_(self: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
    """`self[indices] = values` in place; with `accumulate`, added, as often as an index names a place."""
    items = tuple(indices)
    if _basic(self, items) is None:
        _put(self, items, values, accumulate)
    elif accumulate:
        target = get(self, items)
        call_into(
            registry["add"], (target, tensor_value(values, target, target.meta.shape)), (), (target,), in_place=True
        )
    else:
        set(self, items, values)
    return self


def index_put(input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `values` at `indices` (see `index_put_`)."""
    return index_put_(clone(input), indices, values, accumulate)


METHODS = {"index_put": index_put, "index_put_": index_put_, "masked_fill_": masked_fill_}
