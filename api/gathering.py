"""Gathering along a dimension, selecting and masks: what PyTorch has as functions that read where a tensor says.

Indices are checked as `bounds.check_bounds` says. `scattering` has the functions that write.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from .bounds import bounds_check
from .embeddings import embedding as _embedding
from .embeddings import embedding_renorm_
from .indexing import get, index_put, without_negatives
from .joining import stack
from .runtime import dtypes, layout, views
from .runtime.device import meta
from .runtime.dispatch import call, call_into, empty
from .runtime.errors import ArgumentError, DTypeError, ShapeError
from .runtime.records import registry
from .runtime.spelling import spelled_dim, store, with_axis
from .runtime.tensor import Tensor
from .values import apart, on_device, positions, tensor_value

__all__ = [
    "argwhere", "embedding", "embedding_renorm_", "gather", "index_put", "index_select", "masked_fill",
    "masked_scatter", "masked_select", "narrow",
    "nonzero", "select", "take", "take_along_dim",
]  # fmt: skip

_take_at, _put_at = registry["take_at"], registry["put_at"]


def _vector(tensor: Tensor) -> Tensor:
    """`tensor`, a 0-d one as a vector of one."""
    return tensor if tensor.meta.ndim else views.reshape(tensor, (1,))


@with_axis
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """out[i][j][k] = input[i][index[i][j][k]][k] for dim = 1, and so for every dimension.

    `index` (integers) has as many dimensions as `input`, and none longer except `dim`. Raises `IndexOutOfRange`.
    """
    only_tensors("gather", input, index)
    at = layout.normalize_dim(dim, input.meta.ndim, "gather")
    whole, places = _vector(input), _vector(index)
    check = bounds_check(places, whole.meta.shape[at], "gather")
    found = check.around(registry["gather"], (whole, places), (at,))
    found = views.reshape(found, index.meta.shape) if not index.meta.ndim else found
    return found if out is None else store(found, out, "gather")


def take_along_dim(
    input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """`gather` with shapes broadcast beside `dim`; of the flattened input without `dim`. Negative indices count from
    the end. Raises `IndexOutOfRange`."""
    only_tensors("take_along_dim", input, indices)
    if axis is not None:
        dim = spelled_dim("take_along_dim", dim, None, axis)
    found = _taken_along(input, indices, dim)
    return found if out is None else store(found, out, "take_along_dim")


def _taken_along(input: Tensor, indices: Tensor, dim: int | None) -> Tensor:
    if dim is None:
        places = without_negatives(views.reshape(indices, (-1,)), input.meta.numel, 0)
        return call(registry["gather"], (views.reshape(input, (-1,)), places), (0,))  # type: ignore[no-any-return]
    at = layout.normalize_dim(dim, input.meta.ndim, "take_along_dim")
    if indices.meta.ndim != input.meta.ndim:
        raise ShapeError(f"take_along_dim: input has {input.meta.ndim} dimensions, indices {indices.meta.ndim}")
    a, b = input.meta.shape, indices.meta.shape
    beside = layout.broadcast([a[:at] + (1,) + a[at + 1 :], b[:at] + (1,) + b[at + 1 :]], "take_along_dim")
    input = call(registry["expand"], (input,), (beside[:at] + (a[at],) + beside[at + 1 :],))
    indices = call(registry["expand"], (indices,), (beside[:at] + (b[at],) + beside[at + 1 :],))
    indices = without_negatives(indices, a[at], at)  # type: ignore[assignment]
    return call(registry["gather"], (input, indices), (at,))  # type: ignore[no-any-return]


@with_axis
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The slices of `input` at the positions `index` (a vector of integers) of dimension `dim`.

    Raises `IndexOutOfRange`, `ShapeError`.
    """
    only_tensors("index_select", input, index)
    at = layout.normalize_dim(dim, input.meta.ndim, "index_select")
    if index.meta.ndim > 1:
        raise ShapeError(f"index_select: index must be a vector, not of shape {list(index.meta.shape)}")
    whole, places = _vector(input), _vector(index)
    if not input.meta.ndim and places.meta.numel != 1:
        raise ShapeError(f"index_select: a 0-d tensor has one element, and index asks for {places.meta.numel}")
    check = bounds_check(places, whole.meta.shape[at], "index_select")
    found = check.around(_take_at, (whole, places), (at, 1))
    found = views.reshape(found, ()) if not input.meta.ndim else found
    return found if out is None else store(found, out, "index_select")


@with_axis
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at `index` of a dimension, which is dropped: a view."""
    return ops.select(input, dim, index)


@with_axis
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A dimension cut to `length` elements from `start`, an int or a 0-d integer tensor (whose value the host waits
    for): a view."""
    return ops.narrow(input, dim, start.__index__() if isinstance(start, Tensor) else start, length)


def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elements of the flattened `input`, in the shape of `index`; negative positions count from the end."""
    only_tensors("take", input, index)
    index = without_negatives(index, input.meta.numel, 0)  # type: ignore[assignment]
    found = call(_take_at, (input, index), (0, input.meta.ndim))
    return found if out is None else store(found, out, "take")


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """`nn.functional.embedding` with the arguments of PyTorch's `torch.embedding`; a `padding_idx` of -1 is none."""
    skipped = None if padding_idx == -1 else padding_idx
    return _embedding(indices, weight, skipped, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


# Masks ----------------------------------------------------------------------------------------------------------------


def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Any:
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
    listed = (
        stack(columns, 1) if shape else empty(meta(dtypes.int64, (found.meta.shape[0], 0), None, input.meta.device))
    )
    return listed if out is None else store(listed, out, "nonzero")


def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not 0: int64 (count, dimensions)."""
    return nonzero(input)  # type: ignore[no-any-return]


def _masked(input: Tensor, mask: Tensor, where: str) -> tuple[Tensor, Tensor]:
    only_tensors(where, input, mask)
    if mask.meta.dtype is not dtypes.bool_:
        raise DTypeError(f"{where}: the mask must be bool, not {mask.meta.dtype.name}; convert it with .bool()")
    shape = layout.broadcast((input.meta.shape, mask.meta.shape), where)
    return tuple(t if t.meta.shape == shape else call(registry["expand"], (t,), (shape,)) for t in (input, mask))  # type: ignore[return-value]


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`input` with `value`, a number or a 0-d tensor, where `mask` (bool) holds; both are broadcast."""
    if not isinstance(input, Tensor):
        raise ArgumentError("masked_fill: input must be a tensor; make one with tensor()")
    only_tensors("masked_fill", mask)
    if mask.meta.dtype is not dtypes.bool_:
        raise DTypeError(f"masked_fill: the mask must be bool, not {mask.meta.dtype.name}; convert it with .bool()")
    if isinstance(value, Tensor):
        if value.meta.ndim:
            raise ShapeError(
                f"masked_fill: value must be a number or a 0-d tensor, not of shape {list(value.meta.shape)}"
            )
        value = on_device(value, input.meta.device)
    return call(registry["masked_fill"], (input, mask, value))  # type: ignore[no-any-return]


def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where `mask` holds, as a vector; both are broadcast. The host waits for their number."""
    whole, truth = _masked(input, mask, "masked_select")
    found = call(_take_at, (whole, positions(truth)), (0, whole.meta.ndim))
    return found if out is None else store(found, out, "masked_select")


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
        "argwhere", "gather", "index_select", "masked_fill", "masked_scatter", "masked_scatter_", "masked_select",
        "narrow", "nonzero", "select", "take", "take_along_dim",
    )
}  # fmt: skip
