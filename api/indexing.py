"""Indexing and assignment: slices, ints, None and `...` are one view; integer tensors and masks gather and scatter.

`x[items]` is taken in two steps. Everything basic becomes one view, in which the dimensions that tensors, lists and
masks index are whole. Then these become one integer tensor of positions in those dimensions counted as one, and
`take_at` reads, or `put_at` writes, the slices at its positions. Results have the dimensions of the index where the
indexed ones were, or in front if these were not neighbours, as PyTorch places them. (An int beside an index tensor is
a basic index, as in PyTorch; NumPy counts it among the tensors.)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from . import _hosting
from ._generated import ops
from .runtime import dtypes, layout, views
from .runtime.context import _local
from .runtime.context import current_stream as _current_stream
from .runtime.device import Device, Meta, meta
from .runtime.dispatch import call, call_into, empty
from .runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from .runtime.records import registry
from .runtime.tensor import Extra, Tensor

__all__ = [
    "argwhere", "embedding", "gather", "index_add", "index_copy", "index_fill", "index_put",
    "index_select", "masked_scatter", "masked_select", "nonzero", "one_hot", "scatter", "scatter_add", "take",
    "take_along_dim",
]  # fmt: skip

_index_view = registry["index_view"]
_take_at, _put_at, _put_add_at = registry["take_at"], registry["put_at"], registry["put_add_at"]
_WHOLE = (None, None, None)
_rows: dict[Meta, tuple[int, int, Meta]] = {}  # of a layout: how many rows, bytes between them, a row's layout
_MOST_ROWS = 4096


# Tensor[...] --------------------------------------------------------------------------------------------------------


def get(tensor: Tensor, item: Any) -> Tensor:
    """`tensor[item]`. Raises `IndexOutOfRange`, which names the index, the dimension and its size."""
    if type(item) is int:
        return _row(tensor, item)
    items = item if isinstance(item, tuple) else (item,)
    statics = _basic(tensor, items)
    if statics is not None:
        return call(_index_view, (tensor,), statics)  # type: ignore[no-any-return]
    view, dim, count, index = _resolve(tensor, items)
    return call(_take_at, (view, index), (dim, count))  # type: ignore[no-any-return]


def set(tensor: Tensor, item: Any, value: Any) -> None:
    """`tensor[item] = value`, in place: `value` (a number, a tensor, host data) is broadcast and converted; where an
    index names a place twice, the last write stays."""
    items = item if isinstance(item, tuple) else (item,)
    statics = _basic(tensor, items)
    if statics is not None:
        target = call(_index_view, (tensor,), statics)
        value = _value(value, target, target.meta.shape)
        if not isinstance(value, Tensor):
            target.fill_(value)
        elif target.meta.numel:
            call_into(registry["copy"], (_apart(value, target),), (None,), (target,), in_place=True)
        return
    if len(items) == 1 and _is_mask(items[0]) and _single(value):
        mask = _mask_tensor(items[0], tensor)
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
        raise IndexOutOfRange(f"index {index if index >= size else index - size} is out of range for dimension 0 of size {size}")
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
    """Whether an item stands for one int: NumPy ints, and 0-d integer tensors and arrays (whose value is waited for)."""
    if isinstance(item, (bool, np.bool_)):
        return False
    if isinstance(item, Tensor):
        return item.meta.ndim == 0 and item.meta.dtype.kind in "ui"
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind in "ui"
    return isinstance(item, (int, np.integer)) or (hasattr(item, "__index__") and not isinstance(item, (list, tuple)))


class _Item(NamedTuple):
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
    if any(b != a + 1 for a, b in zip(dims, dims[1:], strict=False)):
        rest = [d for d in range(view.meta.ndim) if d not in dims]
        view = call(registry["permute"], (view,), ((*dims, *rest),))
        first = 0
    index = _positions([(each.index, each.size) for each in found], tensor.meta.device)
    return view, first, len(dims), index


def _split(tensor: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, list[_Item]]:
    prepared = [item if item is None or item is Ellipsis or isinstance(item, slice) else _prepared(item) for item in items]
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
            shape = tuple(item.shape)
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
            found.append(_Item(out, 1, whole[at], _checked(item, whole[at], at)))
            at, out = at + 1, out + 1
    plain = all(s == _WHOLE for s in statics)
    return (tensor if plain else call(_index_view, (tensor,), tuple(statics))), found


def _takes(item: Any) -> int:
    """How many dimensions of the tensor an item stands for."""
    if item is None or item is Ellipsis:
        return 0
    return len(item.shape) if not isinstance(item, (int, slice)) and _is_mask(item) else 1


def _prepared(item: Any) -> int | np.ndarray[Any, Any] | Tensor:
    """An index item as an int, an array of integers or truth values, or a tensor of them."""
    if _is_int(item):
        return int(item.__index__())
    if isinstance(item, Tensor):
        if item.meta.dtype.kind == "f":
            raise DTypeError(f"an index must hold integers or bools, not {item.meta.dtype.name}; convert it with .long()")
        return item
    if isinstance(item, (list, tuple)) and any(isinstance(x, Tensor) for x in item):
        item = [_hosting.host_array(x) if isinstance(x, Tensor) else x for x in item]
    if not isinstance(item, (bool, np.bool_, np.ndarray, list, tuple, range)):
        raise ArgumentError(
            f"an index is made of ints, slices, None, '...', integer and bool tensors, arrays and lists, not {type(item).__name__}"
        )
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise ArgumentError(f"an index cannot be made from {item!r}: {error}") from None
    if not array.size and not isinstance(item, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "uib":
        raise DTypeError(f"an index must hold integers or bools, not {array.dtype}")
    return array if array.dtype.kind == "b" else array.astype(np.int64)


def _is_mask(item: Any) -> bool:
    if isinstance(item, Tensor):
        return item.meta.dtype is dtypes.bool_
    return isinstance(item, (np.ndarray, np.bool_)) and item.dtype == np.bool_


def _check_mask(shape: tuple[int, ...], whole: tuple[int, ...], at: int) -> None:
    if tuple(shape) != whole[at : at + len(shape)]:
        raise IndexOutOfRange(
            f"a mask of shape {list(shape)} does not match dimensions {at} to {at + len(shape) - 1} of a tensor of shape {list(whole)}"
        )


def _mask_tensor(mask: Any, like: Tensor) -> Tensor:
    return mask if isinstance(mask, Tensor) else _hosting.from_host(np.asarray(mask), dtypes.bool_, like.meta.device)


def _true_positions(mask: Any) -> np.ndarray[Any, Any] | Tensor:
    return positions(mask) if isinstance(mask, Tensor) else np.flatnonzero(mask)


def _checked(index: Any, size: int, dim: int) -> np.ndarray[Any, Any] | Tensor:
    """`index` without negative positions. Raises `IndexOutOfRange`."""
    where = f"index of dimension {dim}"
    if isinstance(index, Tensor):
        if check_bounds(index, size, where, negative=True) < 0:
            index = call(registry["wrap_index"], (index, size))
        return index
    if index.size:
        least = int(index.min())
        _check_range(least, int(index.max()), size, where, -size)
        if least < 0:
            return np.where(index < 0, index + size, index)
    return index  # type: ignore[no-any-return]


def _positions(items: Sequence[tuple[Any, int]], device: Device) -> Tensor:
    """One tensor of positions from the indices of several dimensions and their sizes, broadcast against each other."""
    found, _ = items[0]
    if len(items) == 1:
        return _wide(found, device)
    shape = layout.broadcast([tuple(i.meta.shape) if isinstance(i, Tensor) else i.shape for i, _ in items], "indices")
    for index, size in items[1:]:
        if isinstance(found, np.ndarray) and isinstance(index, np.ndarray):
            found = found * size + index
        else:
            found = call(registry["linear_index"], (_wide(found, device), _wide(index, device), size))
    if isinstance(found, np.ndarray):
        return _upload(np.broadcast_to(found, shape), device)
    return _on(found, device)


def _upload(array: np.ndarray[Any, Any], device: Device) -> Tensor:
    """An int64 array as a tensor."""
    made = empty(meta(dtypes.int64, array.shape, None, device))
    if array.size:
        device.driver.write(made.storage, 0, np.ascontiguousarray(array), _current_stream(device))
    return made


def _wide(index: Any, device: Device) -> Tensor:
    """`index` as int64 on `device`."""
    if isinstance(index, Tensor):
        index = _on(index, device)
        return index if index.meta.dtype is dtypes.int64 else call(registry["copy"], (index,), (dtypes.int64,))  # type: ignore[no-any-return]
    return _upload(index, device)


def _on(tensor: Tensor, device: Device) -> Tensor:
    return tensor if tensor.meta.device is device else tensor.to(device=device)  # type: ignore[attr-defined,no-any-return]


def check_bounds(index: Tensor, size: int, where: str, *, negative: bool = False) -> int:
    """The smallest index. Raises `IndexOutOfRange` unless all are in [0, size), or in [-size, size) if `negative`.

    The host waits for the index and looks at its extremes before anything is launched: a kernel cannot raise, and an
    error that comes later would name neither the call nor the index. This is the price of indexing by a tensor. (A
    kernel given a place outside of its tensor reads 0 and writes nothing, so memory is safe without this.)
    """
    if index.meta.dtype.kind not in "ui":
        raise DTypeError(f"{where}: an index must hold integers, not {index.meta.dtype.name}; convert it with .long()")
    if not index.meta.numel:
        return 0
    if index.meta.device.type == "cpu":
        least, most = _extremes(index, size)
    else:
        low, high = call(registry["index_bounds"], (index.detach(),))  # type: ignore[attr-defined]
        least, most = int(low.item()), int(high.item())
    _check_range(least, most, size, where, -size if negative else 0)
    return least


def _extremes(index: Tensor, size: int) -> tuple[int, int]:
    """The smallest and the largest index in host memory."""
    layout = index.meta
    if layout.contiguous:
        driver = layout.device.driver
        driver.synchronize()
        start = index.start - index.storage.start
        values = driver.host_view(index.storage)[start : start + layout.nbytes].view(layout.dtype.numpy)
        if layout.dtype is dtypes.int64:  # negative ones are huge without a sign, so one pass finds that all are good
            most = int(values.view(np.uint64).max())
            if most < size:
                return 0, most
    else:
        values = _hosting.to_host(index)
    return int(values.min()), int(values.max())


def _check_range(least: int, most: int, size: int, where: str, low: int) -> None:
    if least < low or most >= size:
        wrong = least if least < low else most
        reason = f" (negative indices are not counted from the end here)" if low == 0 and -size <= wrong < 0 else ""
        raise IndexOutOfRange(f"{where}: index {wrong} is out of range for a dimension of size {size}{reason}")


# Assignment -----------------------------------------------------------------------------------------------------------


def _put(tensor: Tensor, items: tuple[Any, ...], value: Any, accumulate: bool) -> None:
    view, dim, count, index = _resolve(tensor, items)
    shape = view.meta.shape
    wanted = shape[:dim] + index.meta.shape + shape[dim + count :]
    source = _tensor_value(value, view, wanted)
    if source.meta.numel:
        record = _put_add_at if accumulate else _put_at
        call_into(record, (view, index, _apart(source, tensor)), (dim, count), (view,), in_place=True)


def _single(value: Any) -> bool:
    """Whether a value is one number or a tensor of one element."""
    if isinstance(value, Tensor):
        return value.meta.ndim == 0
    return isinstance(value, (bool, int, float, np.generic))


def _value(value: Any, like: Tensor, shape: tuple[int, ...]) -> Any:
    """What is assigned: a Python number as it is, anything else as a tensor of `shape` on the device of `like`."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, Tensor):
        from .factories import tensor

        value = tensor(value, device=like.meta.device)
    value = _on(value, like.meta.device)
    lead = value.meta.ndim - len(shape)
    if lead > 0 and all(n == 1 for n in value.meta.shape[:lead]):
        value = views.reshape(value, value.meta.shape[lead:])
    if value.meta.shape == shape:
        return value
    try:
        return call(registry["expand"], (value,), (shape,))
    except ShapeError:
        raise ShapeError(
            f"assignment: a value of shape {list(value.meta.shape)} does not broadcast to the indexed shape {list(shape)}"
        ) from None


def _tensor_value(value: Any, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """As `_value`, a tensor in any case, in the dtype of `like`."""
    found = _value(value, like, shape)
    if not isinstance(found, Tensor):
        found = call(registry["expand"], (_number(found, like),), (shape,))
    if found.meta.dtype is not like.meta.dtype:
        found = call(registry["copy"], (found,), (like.meta.dtype,))
    return found  # type: ignore[no-any-return]


def _number(value: Any, like: Tensor) -> Tensor:
    """A 0-d tensor of `like`'s dtype."""
    from .factories import full

    return full((), value, dtype=like.meta.dtype, device=like.meta.device)


def _apart(value: Tensor, target: Tensor) -> Tensor:
    """`value`, copied if it shares memory with `target`, so that nothing is read that was just written."""
    return call(registry["copy"], (value,), (None,)) if value.storage is target.storage else value


def index_put_(self: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
    """`self[indices] = values` in place; with `accumulate`, added, as often as an index names a place."""
    items = tuple(indices)
    if _basic(self, items) is None:
        _put(self, items, values, accumulate)
    elif accumulate:
        target = get(self, items)
        call_into(registry["add"], (target, _tensor_value(values, target, target.meta.shape)), (), (target,), in_place=True)
    else:
        set(self, items, values)
    return self


def index_put(input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `values` at `indices` (see `index_put_`)."""
    return index_put_(_clone(input), indices, values, accumulate)


def _clone(tensor: Tensor) -> Tensor:
    return call(registry["copy"], (tensor,), (None,))  # type: ignore[no-any-return]


# Along one dimension --------------------------------------------------------------------------------------------------


def _vector(tensor: Tensor) -> Tensor:
    """`tensor`, a 0-d one as a vector of one."""
    return tensor if tensor.meta.ndim else views.reshape(tensor, (1,))


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i][j][k] = input[i][index[i][j][k]][k] for dim = 1, and so for every dimension.

    `index` (integers) has as many dimensions as `input`, and none longer except `dim`. Raises `IndexOutOfRange`.
    """
    at = layout.normalize_dim(dim, input.meta.ndim, "gather")
    whole, places = _vector(input), _vector(index)
    check_bounds(places, whole.meta.shape[at], "gather")
    found = call(registry["gather"], (whole, places), (at,))
    return views.reshape(found, index.meta.shape) if not index.meta.ndim else found


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` with shapes broadcast beside `dim`; of the flattened input without `dim`."""
    if dim is None:
        return gather(views.reshape(input, (-1,)), 0, views.reshape(indices, (-1,)))
    at = layout.normalize_dim(dim, input.meta.ndim, "take_along_dim")
    if indices.meta.ndim != input.meta.ndim:
        raise ShapeError(f"take_along_dim: input has {input.meta.ndim} dimensions, indices {indices.meta.ndim}")
    a, b = input.meta.shape, indices.meta.shape
    beside = layout.broadcast([a[:at] + (1,) + a[at + 1 :], b[:at] + (1,) + b[at + 1 :]], "take_along_dim")
    input = call(registry["expand"], (input,), (beside[:at] + (a[at],) + beside[at + 1 :],))
    indices = call(registry["expand"], (indices,), (beside[:at] + (b[at],) + beside[at + 1 :],))
    return gather(input, at, indices)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` at the positions `index` (a vector of integers) of dimension `dim`."""
    at = layout.normalize_dim(dim, input.meta.ndim, "index_select")
    if index.meta.ndim > 1:
        raise ShapeError(f"index_select: index must be a vector, not of shape {list(index.meta.shape)}")
    whole, places = _vector(input), _vector(index)
    check_bounds(places, whole.meta.shape[at], "index_select")
    found = call(_take_at, (whole, places), (at, 1))
    return views.reshape(found, ()) if not input.meta.ndim else found


def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened `input`, in the shape of `index`; negative positions count from the end."""
    index = _checked(index, input.meta.numel, 0)  # type: ignore[assignment]
    return call(_take_at, (input, index), (0, input.meta.ndim))  # type: ignore[no-any-return]


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """The rows of `weight` (rows, features) at the integers `input`, of any shape: (*input.shape, features).

    Row `padding_idx` gets no gradient. Gradients are summed in the order of the indices: the same call gives the same
    bits. Raises `IndexOutOfRange`, and `NotSupported` for `max_norm`, `scale_grad_by_freq` and `sparse`.
    """
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotSupported("embedding: max_norm, scale_grad_by_freq and sparse gradients are not supported")
    if weight.meta.ndim != 2:
        raise ShapeError(f"embedding: weight must be a matrix, not of shape {list(weight.meta.shape)}")
    rows = weight.meta.shape[0]
    check_bounds(input, rows, "embedding")
    if padding_idx is None:
        return call(_take_at, (weight, input), (0, 1))  # type: ignore[no-any-return]
    if not -rows <= padding_idx < rows:
        raise IndexOutOfRange(f"embedding: padding_idx {padding_idx} is out of range for a dimension of size {rows}")
    return call(registry["embedding_rows"], (weight, input), (0, 1, padding_idx % rows))  # type: ignore[no-any-return]


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 (*tensor.shape, num_classes): 1 at the class, 0 elsewhere; -1 takes as many classes as are needed."""
    if num_classes == -1:
        if not tensor.meta.numel:
            raise ArgumentError("one_hot: of an empty tensor, give num_classes")
        num_classes = int(ops.amax(tensor).item()) + 1  # type: ignore[attr-defined]
    check_bounds(tensor, num_classes, "one_hot")
    classes = _upload(np.arange(num_classes), tensor.meta.device)
    found = ops.eq(call(registry["unsqueeze"], (tensor,), (-1,)), classes)
    return call(registry["copy"], (found,), (dtypes.int64,))  # type: ignore[no-any-return]


def _scattered(input: Tensor, dim: int, index: Tensor, src: Any, where: str) -> tuple[Tensor, Tensor, Tensor, int]:
    """Operands of scatter ops, checked: input, index, a source in the shape of the index, and the dimension."""
    at = layout.normalize_dim(dim, input.meta.ndim, where)
    places = _vector(index)
    check_bounds(places, _vector(input).meta.shape[at], where)
    shape = places.meta.shape
    if not isinstance(src, Tensor):
        return input, places, _tensor_value(src, input, shape), at
    if src.meta.dtype is not input.meta.dtype:
        raise DTypeError(f"{where}: input is {input.meta.dtype.name} and src {src.meta.dtype.name}; convert one with .to()")
    source = _vector(src)
    if source.meta.ndim != len(shape) or any(n > m for n, m in zip(shape, source.meta.shape, strict=True)):
        raise ShapeError(f"{where}: src of shape {list(src.meta.shape)} does not hold a value for every index of shape {list(shape)}")
    if source.meta.shape != shape:
        source = call(_index_view, (source,), tuple((0, n, None) for n in shape))
    return input, places, source, at


def _scatter_into(op: str, self: Tensor, dim: int, index: Tensor, src: Any, where: str) -> Tensor:
    _, places, source, at = _scattered(self, dim, index, src, where)
    if source.meta.numel:
        target = _vector(self)
        call_into(registry[op], (target, places, _apart(source, self)), (at,), (target,), in_place=True)
    return self


def scatter_(self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
    """Write `src` (a tensor, or a number) in place: self[i][index[i][j][k]][k] = src[i][j][k] for dim = 1.

    Of several writes to one place the last one stays; `reduce="add"` adds them. Raises `IndexOutOfRange`.
    """
    if reduce not in (None, "add"):
        raise NotSupported(f"scatter_: reduce={reduce!r} is not supported; there is 'add'")
    return _scatter_into("scatter_add" if reduce else "scatter", self, dim, index, value if src is None else src, "scatter")


def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add `src` in place: self[i][index[i][j][k]][k] += src[i][j][k] for dim = 1; in the order of the indices, so the
    same call gives the same bits. Raises `IndexOutOfRange`."""
    return _scatter_into("scatter_add", self, dim, index, src, "scatter_add")


def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
    """`input` with `src` written where `index` says (see `scatter_`)."""
    if reduce not in (None, "add"):
        raise NotSupported(f"scatter: reduce={reduce!r} is not supported; there is 'add'")
    if not input.meta.ndim:
        return scatter_(_clone(input), dim, index, src, value=value, reduce=reduce)
    whole, places, source, at = _scattered(input, dim, index, value if src is None else src, "scatter")
    return call(registry["scatter_add" if reduce else "scatter"], (whole, places, source), (at,))  # type: ignore[no-any-return]


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`input` with `src` added where `index` says (see `scatter_add_`)."""
    return scatter(input, dim, index, src, reduce="add")


def _slices(input: Tensor, dim: int, index: Tensor, source: Any, where: str) -> tuple[int, Tensor, Tensor]:
    """Dimension, index and source of the index_* writes, checked: the source's `dim` is as long as the index."""
    at = layout.normalize_dim(dim, input.meta.ndim, where)
    if index.meta.ndim > 1:
        raise ShapeError(f"{where}: index must be a vector, not of shape {list(index.meta.shape)}")
    places = _vector(index)
    check_bounds(places, input.meta.shape[at], where)
    wanted = input.meta.shape[:at] + places.meta.shape + input.meta.shape[at + 1 :]
    if not isinstance(source, Tensor):
        return at, places, _tensor_value(source, input, wanted)
    if source.meta.dtype is not input.meta.dtype:
        raise DTypeError(f"{where}: input is {input.meta.dtype.name} and source {source.meta.dtype.name}; convert one with .to()")
    if source.meta.shape != wanted:
        raise ShapeError(f"{where}: source must have shape {list(wanted)}, not {list(source.meta.shape)}")
    return at, places, source


def _index_into(op: Any, self: Tensor, dim: int, index: Tensor, source: Any, where: str) -> Tensor:
    at, places, found = _slices(self, dim, index, source, where)
    if found.meta.numel:
        call_into(op, (self, places, _apart(found, self)), (at, 1), (self,), in_place=True)
    return self


def index_add_(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """Add alpha times the slices of `source` to those at `index`, in place and in order: the same call, the same bits."""
    return _index_into(_put_add_at, self, dim, index, source if alpha == 1 else ops.mul(source, alpha), "index_add")


def index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Write the slices of `source` to those at `index`, in place; of several writes the last one stays."""
    return _index_into(_put_at, self, dim, index, source, "index_copy")


def index_fill_(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Fill the slices at `index` with a number or a 0-d tensor, in place."""
    if isinstance(value, Tensor):
        if value.meta.ndim:
            raise ShapeError(f"index_fill: value must be a number or a 0-d tensor, not of shape {list(value.meta.shape)}")
        at = layout.normalize_dim(dim, self.meta.ndim, "index_fill")
        value = _tensor_value(value, self, self.meta.shape[:at] + _vector(index).meta.shape + self.meta.shape[at + 1 :])
    return _index_into(_put_at, self, dim, index, value, "index_fill")


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """`input` with the slices of `source` added to those at `index` (see `index_add_`)."""
    at, places, found = _slices(input, dim, index, source if alpha == 1 else ops.mul(source, alpha), "index_add")
    return call(_put_add_at, (input, places, found), (at, 1))  # type: ignore[no-any-return]


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`input` with the slices of `source` at `index` (see `index_copy_`)."""
    at, places, found = _slices(input, dim, index, source, "index_copy")
    return call(_put_at, (input, places, found), (at, 1))  # type: ignore[no-any-return]


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`input` with a number at the slices `index` (see `index_fill_`)."""
    return index_fill_(_clone(input), dim, index, value)


# Masks ----------------------------------------------------------------------------------------------------------------


def positions(mask: Tensor) -> Tensor:
    """The linear positions of the elements that are not 0: int64, in order.

    The host waits for their number, on which the shape of everything that follows depends.
    """
    mask = views.contiguous(mask.detach())  # type: ignore[attr-defined]
    if not mask.meta.numel:
        return empty(meta(dtypes.int64, (0,), None, mask.meta.device))
    offsets = call(registry["mask_counts"], (mask,))
    total = int(get(offsets, -1).item())  # type: ignore[attr-defined]
    return call(registry["mask_positions"], (mask, offsets), (total,))  # type: ignore[no-any-return]


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not 0: int64 (count, dimensions), or with `as_tuple` a vector a dimension.

    The host waits for the count.
    """
    found = positions(input)
    shape = input.meta.shape
    step = prod(shape)
    columns = []
    for size in shape:
        step = step // size if size else 1
        column = ops.floor_divide(found, step) if step > 1 else found
        columns.append(ops.remainder(column, size) if columns else column)
    if as_tuple:
        return tuple(columns) if shape else (found,)
    from .joining import stack

    return stack(columns, 1) if shape else empty(meta(dtypes.int64, (found.meta.shape[0], 0), None, found.meta.device))


def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not 0: int64 (count, dimensions)."""
    return nonzero(input)  # type: ignore[no-any-return]


def _masked(input: Tensor, mask: Tensor, where: str) -> tuple[Tensor, Tensor]:
    if mask.meta.dtype is not dtypes.bool_:
        raise DTypeError(f"{where}: the mask must be bool, not {mask.meta.dtype.name}; convert it with .bool()")
    shape = layout.broadcast((input.meta.shape, mask.meta.shape), where)
    return tuple(t if t.meta.shape == shape else call(registry["expand"], (t,), (shape,)) for t in (input, mask))  # type: ignore[return-value]


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` holds, as a vector; both are broadcast. The host waits for their number."""
    whole, truth = _masked(input, mask, "masked_select")
    return call(_take_at, (whole, positions(truth)), (0, whole.meta.ndim))  # type: ignore[no-any-return]


def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Set the elements where `mask` (broadcast) holds to a number or a 0-d tensor, in place."""
    if isinstance(value, Tensor):
        if value.meta.ndim:
            raise ShapeError(f"masked_fill: value must be a number or a 0-d tensor, not of shape {list(value.meta.shape)}")
        value = _apart(_on(value, self.meta.device), self)
    elif isinstance(value, np.generic):
        value = value.item()
    if self.meta.numel:
        call_into(registry["masked_fill"], (self, _on(mask, self.meta.device), value), (), (self,), in_place=True)
    return self


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the first elements of `source`, in order, where `mask` holds. The host waits for their number."""
    whole, truth = _masked(input, mask, "masked_scatter")
    if source.meta.dtype is not input.meta.dtype:
        raise DTypeError(f"masked_scatter: input is {input.meta.dtype.name} and source {source.meta.dtype.name}")
    places = positions(truth)
    count = places.meta.numel
    if source.meta.numel < count:
        raise ShapeError(f"masked_scatter: the mask holds {count} times, source has {source.meta.numel} elements")
    flat = get(views.reshape(source, (-1,)), slice(0, count))
    return call(_put_at, (whole, places, flat), (0, whole.meta.ndim))  # type: ignore[no-any-return]


def masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`masked_scatter` in place."""
    _, truth = _masked(self, mask, "masked_scatter_")
    places = positions(truth)
    count = places.meta.numel
    if source.meta.numel < count:
        raise ShapeError(f"masked_scatter_: the mask holds {count} times, source has {source.meta.numel} elements")
    flat = _apart(_tensor_value(get(views.reshape(source, (-1,)), slice(0, count)), self, (count,)), self)
    if count:
        call_into(_put_at, (self, places, flat), (0, self.meta.ndim), (self,), in_place=True)
    return self


METHODS = {
    name: globals()[name]
    for name in (
        "argwhere", "gather", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_",
        "index_put", "index_put_", "index_select", "masked_fill_", "masked_scatter", "masked_scatter_", "masked_select",
        "nonzero", "scatter", "scatter_", "scatter_add", "scatter_add_", "take", "take_along_dim",
    )
}  # fmt: skip
