"""Advanced indices: combine the tensors, lists and masks of `x[items]` into one tensor of positions.

`resolve_advanced` applies the basic items (ints, slices, None, `...`) first. They give a view of `x` that still has
every element of the dimensions that advanced items index. The advanced items then become row-major positions in those
dimensions, as if they were flattened into one. `subscripts` reads or writes at these positions.

A single index tensor is passed to the op unchanged. The op's kernel counts negative indices from the end, and also
checks the range on devices where kernels can report an index out of range (the miss word of `runtime.deferred`).

Several index tensors are combined into one: each after the first takes one launch. If an index is out of range, the
launch stores a code (`_decode_miss`) in place of a position. So one check of the combined tensor suffices.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from types import EllipsisType
from typing import SupportsIndex, TypeAlias, TypeGuard

import numpy as np

from ..runtime import dtypes, host_data, layout
from ..runtime.device import Device
from ..runtime.dispatch import call
from ..runtime.dtypes import Array
from ..runtime.errors import IndexKindError, IndexOutOfRange, IndexShapeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from .assignment import on_device, positions, upload
from .bounds import CHECKED, Check, check_bounds, check_range, checked, prepare_check, prepare_judged_check

__all__ = [
    "FULL_SLICE", "Static", "check_mask", "dimension_name", "is_int", "is_mask", "mask_tensor", "resolve_advanced",
    "to_bound", "to_step",
]  # fmt: skip

_Bounds: TypeAlias = tuple[int | None, int | None, int | None]
Static: TypeAlias = int | _Bounds | None
"""A static argument of `index_view`: an int, (start, stop, step) of a slice, or None for a new dimension."""
_Mask: TypeAlias = Tensor | Array | np.bool_
_PreparedItem: TypeAlias = int | slice | EllipsisType | Tensor | Array | None
"""An item of an index after `_normalize_item`."""

_index_view = registry["index_view"]
FULL_SLICE: _Bounds = (None, None, None)


def to_bound(value: SupportsIndex | None) -> int | None:
    """Return the start or stop of a slice as an int or None. Raises `IndexKindError` for other types."""
    if value is None:
        return None
    if not hasattr(value, "__index__"):
        raise IndexKindError(f"a slice takes ints and None, not {type(value).__name__} {value!r}")
    return value.__index__()


def to_step(value: SupportsIndex | None) -> int | None:
    """Return the step of a slice as an int or None.

    Raises:
        IndexKindError: The step is neither an int nor None.
        ShapeError: The step is below 1.
    """
    step = to_bound(value)
    if step is not None and step < 1:
        raise ShapeError(f"the step of a slice must be positive, not {step}; use flip() to reverse a dimension")
    return step


def is_int(item: object) -> TypeGuard[SupportsIndex]:
    """Return True for an int, a NumPy integer, or a 0-d integer tensor or array. Bools and uint8 are masks."""
    if isinstance(item, (bool, np.bool_)):
        return False
    if isinstance(item, Tensor):
        return item.meta.ndim == 0 and item.meta.dtype.kind in "ui" and item.meta.dtype is not dtypes.uint8
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind in "ui" and item.dtype != np.uint8
    return isinstance(item, (int, np.integer)) or (hasattr(item, "__index__") and not isinstance(item, (list, tuple)))


@dataclass(slots=True)
class _AdvancedIndex:
    """The positions that one advanced item selects in one or more adjacent dimensions of the view.

    Attributes:
        dim: The first of these dimensions.
        ndim: The number of these dimensions: that of a mask's dimensions, else 1.
        size: Product of the sizes of these dimensions.
        index: Row-major positions in these dimensions, in [0, size). If `axis` is not -1: a tensor whose range has not
            been checked, so that indices may also be negative or out of range.
        axis: The dimension of the indexed tensor, for error messages, if `index` has not been checked; else -1.
    """

    dim: int
    ndim: int
    size: int
    index: Array | Tensor
    axis: int = -1


def dimension_name(dim: int) -> str:
    """Return how error messages name the index of a dimension."""
    return f"index of dimension {dim}"


def resolve_advanced(tensor: Tensor, items: tuple[object, ...]) -> tuple[Tensor, int, int, Tensor, Check]:
    """Split an index into a view by its basic items and positions by its advanced items.

    Args:
        tensor: The indexed tensor.
        items: The index, with at least one advanced item.

    Returns:
        (view, first, ndim, index, check). The advanced items index the `ndim` adjacent dimensions of `view` from
        `first` on; if these are not adjacent in `tensor`, they are the first ones of `view`. `index` is an integer
        tensor of row-major positions in these dimensions, and `check` calls the op that uses the positions.

    Raises:
        IndexOutOfRange: There are too many items, a position is out of range, or a mask has another shape.
        IndexKindError: An item has a type or a dtype that cannot index.
        IndexShapeError: The advanced items do not broadcast.
        ShapeError: The step of a slice is below 1.
    """
    view, advanced = _split_items(tensor, items)
    dims = [d for entry in advanced for d in range(entry.dim, entry.dim + entry.ndim)]
    first = dims[0]
    if any(b != a + 1 for a, b in pairwise(dims)):
        other_dims = [d for d in range(view.meta.ndim) if d not in dims]
        view = call(registry["permute"], (view,), ((*dims, *other_dims),))
        first = 0
    index, check = _combine_positions(advanced, tensor.meta.device)
    return view, first, len(dims), index, check


def _split_items(tensor: Tensor, items: tuple[object, ...]) -> tuple[Tensor, list[_AdvancedIndex]]:
    """Return the view that the basic items select, and for each advanced item the positions in the view."""
    normalized_items: list[_PreparedItem] = [
        item if item is None or isinstance(item, (slice, EllipsisType)) else _normalize_item(item) for item in items
    ]
    consumed_dims = sum(_consumed_dims(item) for item in normalized_items)
    tensor_shape = tensor.meta.shape
    if consumed_dims > len(tensor_shape):
        raise IndexOutOfRange(f"too many indices: {consumed_dims} for a tensor of {len(tensor_shape)} dimensions")
    if sum(item is Ellipsis for item in normalized_items) > 1:
        raise IndexOutOfRange("an index has at most one '...'")
    statics: list[Static] = []
    advanced: list[_AdvancedIndex] = []
    axis = view_axis = 0  # the next dimension of the tensor, and of the view
    for item in normalized_items:
        if item is None:
            statics.append(None)
            view_axis += 1
        elif isinstance(item, EllipsisType):
            statics += [FULL_SLICE] * (len(tensor_shape) - consumed_dims)
            axis, view_axis = axis + len(tensor_shape) - consumed_dims, view_axis + len(tensor_shape) - consumed_dims
        elif isinstance(item, slice):
            statics.append((to_bound(item.start), to_bound(item.stop), to_step(item.step)))
            axis, view_axis = axis + 1, view_axis + 1
        elif isinstance(item, int):
            statics.append(item)
            axis += 1
        elif is_mask(item):
            shape = _shape(item)
            check_mask(shape, tensor_shape, axis)
            if shape:
                statics += [FULL_SLICE] * len(shape)
                advanced.append(_AdvancedIndex(view_axis, len(shape), prod(shape), _true_positions(item)))
            else:  # a single bool indexes a new dimension of size 1: True takes its element, False none
                statics.append(None)
                advanced.append(_AdvancedIndex(view_axis, 1, 1, np.zeros(int(bool(item)), np.int64)))
            axis, view_axis = axis + len(shape), view_axis + max(len(shape), 1)
        else:
            statics.append(FULL_SLICE)
            size = tensor_shape[axis]
            if isinstance(item, Tensor):
                advanced.append(_AdvancedIndex(view_axis, 1, size, item, axis))
            else:
                advanced.append(_AdvancedIndex(view_axis, 1, size, _wrap_negatives(item, size, axis)))
            axis, view_axis = axis + 1, view_axis + 1
    is_identity = all(s == FULL_SLICE for s in statics)
    return (tensor if is_identity else call(_index_view, (tensor,), tuple(statics))), advanced


def _consumed_dims(item: _PreparedItem) -> int:
    """Return the number of dimensions of the tensor that an item consumes."""
    if item is None or isinstance(item, EllipsisType):
        return 0
    return len(_shape(item)) if not isinstance(item, (int, slice)) and is_mask(item) else 1


def _shape(index: _Mask) -> tuple[int, ...]:
    return index.meta.shape if isinstance(index, Tensor) else index.shape


def _normalize_item(item: object) -> int | Array | Tensor:
    """Convert an index item to an int, or to an integer or bool array or tensor."""
    if is_int(item):
        return int(item.__index__())
    if isinstance(item, Tensor):
        if item.meta.dtype.kind == "f":
            raise IndexKindError(
                f"an index must hold integers or bools, not {item.meta.dtype.name}; convert it with .long()"
            )
        return _as_bool_tensor(item) if item.meta.dtype is dtypes.uint8 else item
    if isinstance(item, np.ndarray) and item.dtype == np.uint8:
        return _as_bool_array(item)
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
    if not array.size and not isinstance(item, np.ndarray):  # NumPy makes a float64 array of []
        array = array.astype(np.int64)
    if array.dtype.kind not in "uib":
        raise IndexKindError(f"an index must hold integers or bools, not {array.dtype}")
    return array if array.dtype.kind == "b" else array.astype(np.int64)


def is_mask(item: object) -> TypeGuard[_Mask]:
    """Return True for a bool or uint8 tensor or array."""
    if isinstance(item, Tensor):
        return item.meta.dtype is dtypes.bool_ or item.meta.dtype is dtypes.uint8
    return isinstance(item, (np.ndarray, np.bool_)) and item.dtype in (np.bool_, np.uint8)


# A uint8 mask is true where it is not 0, as in PyTorch. (In NumPy, uint8 arrays are positions.)
_UINT8_WARNING = "uint8 tensors as indices are masks, as in PyTorch; convert them with .bool()"


def _as_bool_tensor(mask: Tensor) -> Tensor:
    if mask.meta.dtype is dtypes.bool_:
        return mask
    warnings.warn(_UINT8_WARNING, stacklevel=5)
    return call(registry["ne"], (mask, 0))


def _as_bool_array(mask: Array | np.bool_) -> Array:
    if mask.dtype == np.bool_:
        return np.asarray(mask)
    warnings.warn(_UINT8_WARNING, stacklevel=5)
    return np.asarray(mask != 0)


def check_mask(shape: tuple[int, ...], tensor_shape: tuple[int, ...], axis: int) -> None:
    """Raise `IndexOutOfRange` unless a mask has the sizes of a tensor's dimensions from `axis` on."""
    sizes = tensor_shape[axis : axis + len(shape)]
    if tuple(shape) != sizes:
        raise IndexOutOfRange(
            f"a mask of shape {list(shape)} indexes dimensions of sizes {list(sizes)} of a tensor of shape "
            f"{list(tensor_shape)}; the sizes must be equal"
        )


def mask_tensor(mask: _Mask, like: Tensor) -> Tensor:
    """Return a mask as a bool tensor. An array is copied to the device of `like`."""
    if isinstance(mask, Tensor):
        return _as_bool_tensor(mask)
    return host_data.from_host(_as_bool_array(mask), dtypes.bool_, like.meta.device)


def _true_positions(mask: _Mask) -> Array | Tensor:
    """Return the row-major positions of a mask's true elements. For a tensor, the host waits for their number."""
    return positions(mask) if isinstance(mask, Tensor) else np.flatnonzero(mask)


def _wrap_negatives(index: Array, size: int, dim: int) -> Array:
    """Check the range of `index`, and return it with `size` added to negative positions.

    Args:
        index: Integer positions.
        size: Size of the indexed dimension.
        dim: The indexed dimension, for the error message.

    Raises:
        IndexOutOfRange: A position is not in [-size, size).
    """
    if index.size:
        lowest = int(index.min())
        check_range(lowest, int(index.max()), size, dimension_name(dim), -size)
        if lowest < 0:
            return np.where(index < 0, index + size, index)
    return index


def _combine_positions(items: Sequence[_AdvancedIndex], device: Device) -> tuple[Tensor, Check]:
    """Broadcast the indices of several dimensions, and combine them into one integer tensor of row-major positions.

    Args:
        items: The index of each dimension or group of dimensions, outermost first.
        device: Device of the result.

    Returns:
        The positions, and the check that calls the op which uses them.

    Raises:
        IndexOutOfRange: An index that is checked at once is out of range.
        IndexShapeError: The indices do not broadcast.
    """
    first = items[0]
    if len(items) == 1:
        if first.axis < 0 or not isinstance(first.index, Tensor):
            return _as_int64(first.index, device), CHECKED
        where = dimension_name(first.axis)
        if first.index.meta.device is device:
            return first.index, prepare_check(first.index, first.size, where, negative=True)
        may_be_negative = check_bounds(first.index, first.size, where, negative=True) < 0
        return on_device(first.index, device), checked(may_be_negative)
    try:
        shape = layout.broadcast([_shape(item.index) for item in items], "indices")
    except ShapeError as error:
        raise IndexShapeError(str(error)) from None
    is_deferred = device.type != "cpu" and _all_unchecked_are_on(items, device)
    # If not deferred, this checks all ranges now. Negative indices remain, and the launches count them from the end.
    may_be_negative = is_deferred or _check_tensors(items)
    combined = first.index
    for number, item in enumerate(items[1:], 1):
        inner = item.index
        if isinstance(combined, np.ndarray) and isinstance(inner, np.ndarray):
            combined = combined * item.size + inner
            continue
        operands = (_as_int64(combined, device), _as_int64(inner, device))
        if not may_be_negative:
            combined = call(registry["linear_index"], (*operands, item.size))
        elif number == 1 and isinstance(first.index, Tensor):
            arguments = (first.size, item.size, _VALUE_LIMIT, _CODE_BASE)
            combined = call(registry["linear_index_pair"], (*operands, *arguments))
        else:
            combined = call(registry["linear_index_next"], (*operands, item.size, number, _VALUE_LIMIT, _CODE_BASE))
    if isinstance(combined, np.ndarray):
        return upload(np.broadcast_to(combined, shape), device), CHECKED
    combined = on_device(combined, device)
    if not is_deferred:
        return combined, CHECKED
    sizes, axes = tuple(item.size for item in items), tuple(item.axis for item in items)
    where = f"index of {axes} of {sizes}"
    return combined, prepare_judged_check(combined, prod(sizes), where, _code_judge(sizes, axes))


def _all_unchecked_are_on(items: Sequence[_AdvancedIndex], device: Device) -> bool:
    """Return True if there are index tensors that have not been checked, and all of them are on `device`."""
    return {i.index.meta.device for i in items if i.axis >= 0 and isinstance(i.index, Tensor)} == {device}


def _check_tensors(items: Sequence[_AdvancedIndex]) -> bool:
    """Check the index tensors that have not been checked, and return True if an index may be negative.

    Raises:
        IndexOutOfRange: An index is out of range.
    """
    lowest = 0
    for item in items:
        if item.axis >= 0 and isinstance(item.index, Tensor):
            lowest = min(lowest, check_bounds(item.index, item.size, dimension_name(item.axis), negative=True))
    return lowest < 0


# `linear_index_pair` and `linear_index_next` store a code in place of a position if an index is out of range. The code
# consists of the number of the index tensor and of the index, clamped to [-_VALUE_LIMIT, _VALUE_LIMIT - 1].
_VALUE_LIMIT = 1 << 35
_CODE_BASE = -(1 << 42) - _VALUE_LIMIT  # codes are in [-2**43, -2**42]: a miss word of 44 bits holds them


def _decode_miss(code: int) -> tuple[int, int]:
    """Return the number of the index tensor, and its index that is out of range, from a code."""
    offset = _CODE_BASE - code + _VALUE_LIMIT
    return offset // (2 * _VALUE_LIMIT), offset % (2 * _VALUE_LIMIT) - _VALUE_LIMIT


def _code_judge(sizes: Sequence[int], axes: Sequence[int]) -> Callable[[int, int], None]:
    """Return a function that raises `IndexOutOfRange` if the smallest combined position is a code."""

    def judge(lowest: int, highest: int) -> None:
        if lowest < 0:
            number, value = _decode_miss(lowest)
            check_range(value, value, sizes[number], dimension_name(axes[number]), -sizes[number])

    return judge


def _as_int64(index: Array | Tensor, device: Device) -> Tensor:
    """Convert `index` to int64 on `device`."""
    if isinstance(index, Tensor):
        index = on_device(index, device)
        return index if index.meta.dtype is dtypes.int64 else call(registry["copy"], (index,), (dtypes.int64,))
    return upload(index, device)
