"""Tensors joined: a copy a tensor, or one for 16 with few elements, and one recorded call. What cuts is in `cutting`,
what repeats in `repeating`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from math import prod
from operator import attrgetter
from typing import Any

from ._checks import only_tensors
from .assembling import recording
from .runtime import dtypes, layout, views
from .runtime.context import _local
from .runtime.device import Meta, meta
from .runtime.dispatch import call, call_into, empty
from .runtime.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from .runtime.kinds.join import MOST
from .runtime.records import registry
from .runtime.spelling import spelled_dim, store
from .runtime.tensor import Tensor

__all__ = [
    "cat", "column_stack", "concat", "concatenate", "dstack", "hstack", "meshgrid", "row_stack", "stack", "vstack",
]  # fmt: skip


# Elements a tensor, and rows of the result, up to which one launch for many tensors takes less time than one for each:
# copies of short rows, which are not made in vectors, meet a launch's 0.6 us at some hundred rows.
_FEW, _FEW_ROWS = 4096, 256

_ONLY_TENSORS = {Tensor}
_layout, _needs = attrgetter("meta"), attrgetter("needs")


# Joining ------------------------------------------------------------------------------------------------------------


def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """`tensors` one behind the other along `dim`; shapes are equal beside it, dtypes are promoted.

    A vector of no elements joins anything, as in PyTorch.
    """
    if axis is not None:
        dim = spelled_dim("cat", dim, 0, axis)
    given = _listed(tensors, "cat")
    layouts = set(map(_layout, given))  # which are interned, and mostly one
    shown = given if len(layouts) == 1 else [t for t in given if t.meta.shape != (0,)] or given
    first = shown[0].meta.shape
    if not first:
        raise ShapeError("cat: 0-d tensors cannot be joined; use stack()")
    at = layout.normalize_dim(dim, len(first), "cat")
    length = first[at] * len(given)
    if len(layouts) > 1:
        length = 0
        for tensor in shown:
            shape = tensor.meta.shape
            if len(shape) != len(first) or shape[:at] != first[:at] or shape[at + 1 :] != first[at + 1 :]:
                raise ShapeError(
                    f"cat: shapes must be equal except in dimension {at}: {list(first)} and {list(shape)}"
                )
            length += shape[at]
    found = _join(shown, at, (*first[:at], length, *first[at + 1 :]), given, layouts, stacked=False)
    return found if out is None else store(found, out, "cat")


def _listed(tensors: Any, where: str) -> list[Tensor]:
    listed = isinstance(tensors, (list, tuple))
    given = list(tensors) if listed or (isinstance(tensors, Iterable) and not isinstance(tensors, Tensor)) else []
    if not given and listed:
        raise ShapeError(f"{where}: takes at least one tensor")
    types = set(map(type, given))
    if types != _ONLY_TENSORS and not (types and all(issubclass(each, Tensor) for each in types)):
        shown = (
            type(tensors).__name__ if not given else f"one with {', '.join(sorted({type(t).__name__ for t in given}))}"
        )
        raise ArgumentError(f"{where}: takes a sequence of tensors, at least one, not {shown}")
    return given


concat = concatenate = cat


def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """`tensors` of one shape side by side in a new dimension `dim`."""
    if axis is not None:
        dim = spelled_dim("stack", dim, 0, axis)
    given = _listed(tensors, "stack")
    layouts = set(map(_layout, given))
    shape = given[0].meta.shape
    at = layout.normalize_dim(dim, len(shape) + 1, "stack")
    if len(layouts) > 1:
        for tensor in given:
            if tensor.meta.shape != shape:
                raise ShapeError(f"stack: shapes must be equal: {list(shape)} and {list(tensor.meta.shape)}")
    found = _join(given, at, (*shape[:at], len(given), *shape[at:]), given, layouts, stacked=True)
    return found if out is None else store(found, out, "stack")


def _join(
    tensors: list[Tensor], dim: int, shape: tuple[int, ...], named: list[Tensor], layouts: set[Meta], *, stacked: bool
) -> Tensor:
    """A new tensor of `shape`, each of `tensors` copied to its place along `dim`. named: all that were given, empty
    vectors too, and their `layouts`."""
    dtype, device = named[0].meta.dtype, tensors[0].meta.device
    if len(layouts) > 1:
        dtype = reduce(dtypes.promote, (t.meta.dtype for t in named))
        if any(t.meta.device is not device for t in tensors):
            raise DeviceError(f"cat: tensors on different devices ({', '.join(str(t.meta.device) for t in tensors)})")
    out = empty(meta(dtype, shape, None, device))
    few = out.meta.numel <= _FEW * len(tensors) and prod(shape[:dim]) <= _FEW_ROWS
    state = _local.state
    recorded = state.grad
    state.grad = False
    try:
        if few and len(layouts) == 1 and named[0].meta.contiguous:
            _join_few(tensors, dim, out, stacked)
        else:
            _join_each(tensors, dim, out, stacked)
    finally:
        state.grad = recorded
    out.storage.version = 0
    if not recorded or dtype.kind != "f" or True not in map(_needs, named):
        return out
    return _recorded(tensors, dim, out, named, stacked)


def _join_few(tensors: list[Tensor], dim: int, out: Tensor, stacked: bool) -> None:
    """Write `tensors`, contiguous and of one layout, to their places in `out`, as many by a launch as one takes.

    Of several layouts each order of them would be planned anew, as lengths of sentences in a batch come.
    """
    join, statics, layout, at = registry["join"], (dim, stacked), out.meta, out.start
    if not layout.numel:
        return
    if len(tensors) <= MOST:
        call_into(join, tensors, statics, (out,), in_place=False)
        return
    shape, strides = layout.shape, layout.strides
    for begin in range(0, len(tensors), MOST):
        group = tensors[begin : begin + MOST]
        length = len(group) if stacked else len(group) * group[0].meta.shape[dim]
        place = meta(layout.dtype, (*shape[:dim], length, *shape[dim + 1 :]), strides, layout.device)
        call_into(join, group, statics, (Tensor(out.storage, place, at),), in_place=False)
        at += length * strides[dim] * layout.dtype.itemsize


def _join_each(tensors: list[Tensor], dim: int, out: Tensor, stacked: bool) -> None:
    """Copy each of `tensors` to its place in `out`."""
    layout = out.meta
    strides, dtype = layout.strides, layout.dtype
    own = strides[:dim] + strides[dim + 1 :] if stacked else strides
    step = strides[dim] * dtype.itemsize
    at, storage, copy, known = out.start, out.storage, registry["copy"], None
    for tensor in tensors:
        source = tensor.meta
        if source is not known:  # layouts are interned: the next tensor's is mostly the same
            known, place = source, meta(dtype, source.shape, own, layout.device)
            further = step if stacked else step * source.shape[dim]
        if source.numel:
            call_into(copy, (tensor,), (None,), (Tensor(storage, place, at),), in_place=False)
        at += further


def _recorded(tensors: list[Tensor], dim: int, out: Tensor, named: list[Tensor], stacked: bool) -> Tensor:
    """One node for the whole: each tensor's gradient is its piece of the result's; one that was left out has none."""
    functions: list[Callable[[Tensor], Tensor]] = []
    start = 0
    for tensor in tensors:
        length = 1 if stacked else tensor.meta.shape[dim]
        name, statics = ("select", (dim, start)) if stacked else ("narrow", (dim, start, length))
        functions.append(partial(_piece, name, statics))
        start += length
    others = [t for t in named if all(t is not given for given in tensors)]
    functions += [partial(_nothing, t.meta) for t in others]
    return recording("cat", out, [*tensors, *others], functions)


def _piece(name: str, statics: tuple[int, ...], grad: Tensor) -> Tensor:
    return call(registry[name], (grad,), statics)  # type: ignore[no-any-return]


def _nothing(layout: Meta, grad: Tensor) -> Tensor:
    return empty(meta(grad.meta.dtype, layout.shape, None, layout.device))


def _at_least(tensors: Sequence[Tensor], ndim: int, where: str) -> list[Tensor]:
    found = []
    for t in _listed(tensors, where):
        shape = t.meta.shape
        if ndim == 3 and len(shape) < 3:
            shape = (1, *shape, 1) if len(shape) == 1 else (*shape, *(1,) * (3 - len(shape)))
        elif len(shape) < ndim:
            shape = (*(1,) * (ndim - len(shape)), *shape)
        found.append(views.reshape(t, shape))
    return found


def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along dimension 1; vectors along dimension 0."""
    given = _at_least(tensors, 1, "hstack")
    return cat(given, 0 if given[0].meta.ndim == 1 else 1, out=out)


def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along dimension 0; vectors are rows."""
    return cat(_at_least(tensors, 2, "vstack"), 0, out=out)


row_stack = vstack


def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along dimension 2."""
    return cat(_at_least(tensors, 3, "dstack"), 2, out=out)


def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along dimension 1; vectors are columns."""
    given = _listed(tensors, "column_stack")
    return cat([views.reshape(t, (t.meta.numel, 1)) if t.meta.ndim < 2 else t for t in given], 1, out=out)


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Views of vectors over the grid they span; `indexing` is "ij" (matrix, what it is if not given) or "xy"
    (Cartesian).

    Raises `ShapeError` for tensors of more than one dimension, `DTypeError` for several dtypes.
    """
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)
    if indexing not in (None, "ij", "xy"):
        raise ShapeError(f"meshgrid: indexing must be 'ij' or 'xy', not {indexing!r}")
    only_tensors("meshgrid", *given)
    if not given:
        raise ShapeError("meshgrid: takes one vector or more")
    if any(t.meta.ndim > 1 for t in given):
        raise ShapeError(f"meshgrid: takes vectors, not shapes {', '.join(str(list(t.meta.shape)) for t in given)}")
    if any(t.meta.dtype is not given[0].meta.dtype for t in given):
        shown = ", ".join(dict.fromkeys(t.meta.dtype.name for t in given))
        raise DTypeError(f"meshgrid: vectors of one dtype, not of {shown}; convert them with .to()")
    shape = tuple(t.meta.numel for t in given)
    found = []
    for d, t in enumerate(given):
        lined = views.reshape(t, (1,) * d + (t.meta.numel,) + (1,) * (len(given) - d - 1))
        grid = call(registry["expand"], (lined,), (shape,))
        found.append(call(registry["transpose"], (grid,), (0, 1)) if indexing == "xy" and len(given) > 1 else grid)
    return tuple(found)


METHODS: dict[str, Any] = {}
