"""Gathering and scattering along a dimension, embedding, and masks: what PyTorch has as functions of index tensors.

Indices are checked before anything is launched (`indexing.check_bounds`). Writes and sums are made in the order of the
indices, without atomics: the same call gives the same bits, and of several writes to one place the last one stays.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ._checks import only_tensors
from ._generated import ops
from .indexing import (
    apart,
    check_bounds,
    clone,
    get,
    index_put,
    positions,
    tensor_value,
    upload,
    without_negatives,
)  # fmt: skip
from .joining import stack
from .runtime import dtypes, layout, views
from .runtime.device import meta
from .runtime.dispatch import call, call_into, empty
from .runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from .runtime.records import registry
from .runtime.spelling import spelled_dim, store
from .runtime.tensor import Tensor

__all__ = [
    "argwhere", "embedding", "gather", "index_add", "index_copy", "index_fill", "index_put", "index_select",
    "masked_scatter", "masked_select", "nonzero", "one_hot", "scatter", "scatter_add", "take", "take_along_dim",
]  # fmt: skip

_index_view = registry["index_view"]
_take_at, _put_at, _put_add_at = registry["take_at"], registry["put_at"], registry["put_add_at"]


def _vector(tensor: Tensor) -> Tensor:
    """`tensor`, a 0-d one as a vector of one."""
    return tensor if tensor.meta.ndim else views.reshape(tensor, (1,))


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i][j][k] = input[i][index[i][j][k]][k] for dim = 1, and so for every dimension.

    `index` (integers) has as many dimensions as `input`, and none longer except `dim`. Raises `IndexOutOfRange`.
    """
    only_tensors("gather", input, index)
    at = layout.normalize_dim(dim, input.meta.ndim, "gather")
    whole, places = _vector(input), _vector(index)
    check_bounds(places, whole.meta.shape[at], "gather")
    found = call(registry["gather"], (whole, places), (at,))
    return views.reshape(found, index.meta.shape) if not index.meta.ndim else found


def take_along_dim(
    input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """`gather` with shapes broadcast beside `dim`; of the flattened input without `dim`."""
    if axis is not None:
        dim = spelled_dim("take_along_dim", dim, None, axis)
    found = _taken_along(input, indices, dim)
    return found if out is None else store(found, out, "take_along_dim")


def _taken_along(input: Tensor, indices: Tensor, dim: int | None) -> Tensor:
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
    only_tensors("index_select", input, index)
    at = layout.normalize_dim(dim, input.meta.ndim, "index_select")
    if index.meta.ndim > 1:
        raise ShapeError(f"index_select: index must be a vector, not of shape {list(index.meta.shape)}")
    whole, places = _vector(input), _vector(index)
    check_bounds(places, whole.meta.shape[at], "index_select")
    found = call(_take_at, (whole, places), (at, 1))
    return views.reshape(found, ()) if not input.meta.ndim else found


def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened `input`, in the shape of `index`; negative positions count from the end."""
    only_tensors("take", input, index)
    index = without_negatives(index, input.meta.numel, 0)  # type: ignore[assignment]
    return call(_take_at, (input, index), (0, input.meta.ndim))  # type: ignore[no-any-return]


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """The rows of `weight` (rows, features) at the integers `input`, of any shape: (*input.shape, features).

    Row `padding_idx` gets no gradient. Gradients are summed in the order of the indices: the same call gives the same
    bits. Raises `IndexOutOfRange`, and `NotSupported` for `max_norm`, `scale_grad_by_freq` and `sparse`.
    """
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotSupported("embedding: max_norm, scale_grad_by_freq and sparse gradients are not supported")
    only_tensors("embedding", input, weight)
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
    only_tensors("one_hot", tensor)
    if num_classes == -1:
        if not tensor.meta.numel:
            raise ArgumentError("one_hot: of an empty tensor, give num_classes")
        num_classes = int(ops.amax(tensor).item()) + 1  # type: ignore[attr-defined]
    check_bounds(tensor, num_classes, "one_hot")
    classes = upload(np.arange(num_classes), tensor.meta.device)
    found = ops.eq(call(registry["unsqueeze"], (tensor,), (-1,)), classes)
    return call(registry["copy"], (found,), (dtypes.int64,))  # type: ignore[no-any-return]


def _scattered(input: Tensor, dim: int, index: Tensor, src: Any, where: str) -> tuple[Tensor, Tensor, Tensor, int]:
    """Operands of scatter ops, checked: input, index, a source in the shape of the index, and the dimension."""
    only_tensors(where, input, index)
    at = layout.normalize_dim(dim, input.meta.ndim, where)
    places = _vector(index)
    check_bounds(places, _vector(input).meta.shape[at], where)
    shape = places.meta.shape
    if not isinstance(src, Tensor):
        return input, places, tensor_value(src, input, shape), at
    if src.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: input is {input.meta.dtype.name} and src {src.meta.dtype.name}; convert one with .to()"
        )
    source = _vector(src)
    if source.meta.ndim != len(shape) or any(n > m for n, m in zip(shape, source.meta.shape, strict=True)):
        raise ShapeError(
            f"{where}: src of shape {list(src.meta.shape)} does not hold a value for every index of shape {list(shape)}"
        )
    if source.meta.shape != shape:
        source = call(_index_view, (source,), tuple((0, n, None) for n in shape))
    return input, places, source, at


def _scatter_into(op: str, self: Tensor, dim: int, index: Tensor, src: Any, where: str) -> Tensor:
    _, places, source, at = _scattered(self, dim, index, src, where)
    if source.meta.numel:
        target = _vector(self)
        call_into(registry[op], (target, places, apart(source, self)), (at,), (target,), in_place=True)
    return self


def scatter_(
    self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """Write `src` (a tensor, or a number) in place: self[i][index[i][j][k]][k] = src[i][j][k] for dim = 1.

    Of several writes to one place the last one stays; `reduce="add"` adds them. Raises `IndexOutOfRange`.
    """
    if reduce not in (None, "add"):
        raise NotSupported(f"scatter_: reduce={reduce!r} is not supported; there is 'add'")
    return _scatter_into(
        "scatter_add" if reduce else "scatter", self, dim, index, value if src is None else src, "scatter"
    )


def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add `src` in place: self[i][index[i][j][k]][k] += src[i][j][k] for dim = 1; in the order of the indices, so the
    same call gives the same bits. Raises `IndexOutOfRange`."""
    return _scatter_into("scatter_add", self, dim, index, src, "scatter_add")


def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """`input` with `src` written where `index` says (see `scatter_`)."""
    if reduce not in (None, "add"):
        raise NotSupported(f"scatter: reduce={reduce!r} is not supported; there is 'add'")
    if not input.meta.ndim:
        return scatter_(clone(input), dim, index, src, value=value, reduce=reduce)
    whole, places, source, at = _scattered(input, dim, index, value if src is None else src, "scatter")
    return call(registry["scatter_add" if reduce else "scatter"], (whole, places, source), (at,))  # type: ignore[no-any-return]


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`input` with `src` added where `index` says (see `scatter_add_`)."""
    return scatter(input, dim, index, src, reduce="add")


def _slices(input: Tensor, dim: int, index: Tensor, source: Any, where: str) -> tuple[int, Tensor, Tensor]:
    """Dimension, index and source of the index_* writes, checked: the source's `dim` is as long as the index."""
    only_tensors(where, input, index)
    at = layout.normalize_dim(dim, input.meta.ndim, where)
    if index.meta.ndim > 1:
        raise ShapeError(f"{where}: index must be a vector, not of shape {list(index.meta.shape)}")
    places = _vector(index)
    check_bounds(places, input.meta.shape[at], where)
    wanted = input.meta.shape[:at] + places.meta.shape + input.meta.shape[at + 1 :]
    if not isinstance(source, Tensor):
        return at, places, tensor_value(source, input, wanted)
    if source.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: input is {input.meta.dtype.name} and source {source.meta.dtype.name}; convert one with .to()"
        )
    if source.meta.shape != wanted:
        raise ShapeError(f"{where}: source must have shape {list(wanted)}, not {list(source.meta.shape)}")
    return at, places, source


def _index_into(op: Any, self: Tensor, dim: int, index: Tensor, source: Any, where: str) -> Tensor:
    at, places, found = _slices(self, dim, index, source, where)
    if found.meta.numel:
        call_into(op, (self, places, apart(found, self)), (at, 1), (self,), in_place=True)
    return self


def index_add_(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """Add alpha times the slices of `source` to those at `index`, in place, in the order of the indices."""
    return _index_into(_put_add_at, self, dim, index, source if alpha == 1 else ops.mul(source, alpha), "index_add")


def index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Write the slices of `source` to those at `index`, in place; of several writes the last one stays."""
    return _index_into(_put_at, self, dim, index, source, "index_copy")


def index_fill_(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Fill the slices at `index` with a number or a 0-d tensor, in place."""
    if isinstance(value, Tensor):
        if value.meta.ndim:
            raise ShapeError(
                f"index_fill: value must be a number or a 0-d tensor, not of shape {list(value.meta.shape)}"
            )
        at = layout.normalize_dim(dim, self.meta.ndim, "index_fill")
        value = tensor_value(value, self, self.meta.shape[:at] + _vector(index).meta.shape + self.meta.shape[at + 1 :])
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
    return index_fill_(clone(input), dim, index, value)


# Masks ----------------------------------------------------------------------------------------------------------------


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not 0: int64 (count, dimensions), or with `as_tuple` a vector a dimension.

    The host waits for the count.
    """
    only_tensors("nonzero", input)
    found = positions(input)
    shape = input.meta.shape
    step = prod(shape)
    columns: list[Tensor] = []
    for size in shape:
        step = step // size if size else 1
        column = ops.floor_divide(found, step) if step > 1 else found
        columns.append(ops.remainder(column, size) if columns else column)
    if as_tuple:
        return tuple(columns) if shape else (found,)
    return stack(columns, 1) if shape else empty(meta(dtypes.int64, (found.meta.shape[0], 0), None, found.meta.device))


def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not 0: int64 (count, dimensions)."""
    return nonzero(input)  # type: ignore[no-any-return]


def _masked(input: Tensor, mask: Tensor, where: str) -> tuple[Tensor, Tensor]:
    only_tensors(where, input, mask)
    if mask.meta.dtype is not dtypes.bool_:
        raise DTypeError(f"{where}: the mask must be bool, not {mask.meta.dtype.name}; convert it with .bool()")
    shape = layout.broadcast((input.meta.shape, mask.meta.shape), where)
    return tuple(t if t.meta.shape == shape else call(registry["expand"], (t,), (shape,)) for t in (input, mask))  # type: ignore[return-value]


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` holds, as a vector; both are broadcast. The host waits for their number."""
    whole, truth = _masked(input, mask, "masked_select")
    return call(_take_at, (whole, positions(truth)), (0, whole.meta.ndim))  # type: ignore[no-any-return]


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
    flat = apart(tensor_value(get(views.reshape(source, (-1,)), slice(0, count)), self, (count,)), self)
    if count:
        call_into(_put_at, (self, places, flat), (0, self.meta.ndim), (self,), in_place=True)
    return self


METHODS = {
    name: globals()[name]
    for name in (
        "argwhere", "gather", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_",
        "index_select", "masked_scatter", "masked_scatter_", "masked_select",
        "nonzero", "scatter", "scatter_", "scatter_add", "scatter_add_", "take", "take_along_dim",
    )
}  # fmt: skip
