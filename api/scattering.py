"""Writing at places that index tensors name: along a dimension, or whole slices; replacing, adding, or reducing.

Indices are checked as `bounds.check_bounds` says. Writes, sums and products are made in the order of the indices,
without atomics: the same call gives the same bits, and of several writes to one place the last one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._checks import only_tensors
from ._generated import ops
from .bounds import Check, bounds_check
from .indexing import without_negatives
from .runtime import dtypes, layout, views
from .runtime.autocast import as_for
from .runtime.dispatch import call, call_into
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from .runtime.records import OpRecord, registry
from .runtime.spelling import store, with_axis
from .runtime.tensor import Tensor
from .values import apart, clone, tensor_value

__all__ = [
    "index_add", "index_copy", "index_fill", "index_reduce", "put", "scatter", "scatter_add", "scatter_reduce",
]  # fmt: skip

_index_view = registry["index_view"]
_put_at, _put_add_at = registry["put_at"], registry["put_add_at"]
# What PyTorch calls a way to reduce, and the op that does it.
_REDUCING = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}
_WRITING = {None: "scatter", "add": "scatter_add", "multiply": "scatter_multiply"}


def _vector(tensor: Tensor) -> Tensor:
    """`tensor`, a 0-d one as a vector of one."""
    return tensor if tensor.meta.ndim else views.reshape(tensor, (1,))


# An index for every element, along one dimension ----------------------------------------------------------------------


def _scattered(input: Tensor, dim: int, index: Tensor, src: Any, where: str) -> tuple[Tensor, Tensor, int, Check]:
    """Operands of scatter ops, checked: the index, a source in its shape, the dimension, and what checks the index: to
    be called before anything is written in place, and after the launch of anything else."""
    only_tensors(where, input, index)
    at = layout.normalize_dim(dim, input.meta.ndim, where)
    places = _vector(index)
    check = bounds_check(places, _vector(input).meta.shape[at], where)
    shape = places.meta.shape
    if not isinstance(src, Tensor):
        return places, tensor_value(src, input, shape), at, check
    if src.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: input is {input.meta.dtype.name} and src {src.meta.dtype.name}; convert one with .to()"
        )
    source = _vector(src)
    if not places.meta.numel:
        return places, tensor_value(0, input, shape), at, check
    if source.meta.ndim != len(shape) or any(n > m for n, m in zip(shape, source.meta.shape, strict=True)):
        raise ShapeError(
            f"{where}: src of shape {list(src.meta.shape)} does not hold a value for every index of shape {list(shape)}"
        )
    if source.meta.shape != shape:
        source = call(_index_view, (source,), tuple((0, n, None) for n in shape))
    return places, source, at, check


def _scatter_into(op: str, self: Tensor, dim: int, index: Tensor, src: Any, where: str) -> Tensor:
    places, source, at, check = _scattered(self, dim, index, src, where)
    check()
    if source.meta.numel:
        target = _vector(self)
        call_into(registry[op], (target, places, apart(source, self)), (at,), (target,), in_place=True)
    return self


def _scatter(op: str, input: Tensor, dim: int, index: Tensor, src: Any, where: str, out: Tensor | None) -> Tensor:
    places, source, at, check = _scattered(input, dim, index, src, where)
    if places.meta.numel:
        found = check.around(registry[op], (_vector(input), places, source), (at,))
        found = found if input.meta.ndim else views.reshape(found, ())
    else:
        found = clone(input)
    return found if out is None else store(found, out, where)


def _written(src: Any, value: Any, reduce: str | None, where: str) -> tuple[str, Any]:
    """The op of scatter's forms, and what is written."""
    if reduce not in _WRITING:
        raise NotSupported(f"{where}: reduce must be 'add' or 'multiply', not {reduce!r}; see scatter_reduce")
    if (src is None) == (value is None):
        raise ArgumentError(f"{where}: give src, a tensor or a number, or value, a number")
    return _WRITING[reduce], value if src is None else src


@with_axis
def scatter_(
    self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """Write `src` (a tensor, or a number) in place: self[i][index[i][j][k]][k] = src[i][j][k] for dim = 1.

    Of several writes to one place the last one stays; `reduce` is "add" or "multiply". Raises `IndexOutOfRange`.
    """
    op, given = _written(src, value, reduce, "scatter_")
    return _scatter_into(op, self, dim, index, given, "scatter_")


@with_axis
def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add `src` in place: self[i][index[i][j][k]][k] += src[i][j][k] for dim = 1; in the order of the indices, so the
    same call gives the same bits. Raises `IndexOutOfRange`."""
    only_tensors("scatter_add_", src)
    return _scatter_into("scatter_add", self, dim, index, src, "scatter_add_")


@with_axis
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`input` with `src` written where `index` says (see `scatter_`)."""
    op, given = _written(src, value, reduce, "scatter")
    return _scatter(op, input, dim, index, given, "scatter", out)


@with_axis
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`input` with `src` added where `index` says (see `scatter_add_`)."""
    only_tensors("scatter_add", input, src)
    input, src = as_for(registry["scatter_add"], input, src)
    return _scatter("scatter_add", input, dim, index, src, "scatter_add", out)


# Slices along one dimension -------------------------------------------------------------------------------------------


def _slices(input: Tensor, dim: int, index: Tensor, source: Any, where: str) -> tuple[int, Tensor, Tensor, Check]:
    """Dimension, index and source of the index_* writes, checked: the source's `dim` is as long as the index; and what
    checks the index, as in `_scattered`."""
    only_tensors(where, input, index)
    at = layout.normalize_dim(dim, input.meta.ndim, where)
    if index.meta.ndim > 1:
        raise ShapeError(f"{where}: index must be a vector, not of shape {list(index.meta.shape)}")
    places, shape = _vector(index), input.meta.shape or (1,)
    check = bounds_check(places, shape[at], where)
    wanted = shape[:at] + places.meta.shape + shape[at + 1 :]
    if not isinstance(source, Tensor):
        return at, places, tensor_value(source, input, wanted), check
    if source.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: input is {input.meta.dtype.name} and source {source.meta.dtype.name}; convert one with .to()"
        )
    source = _vector(source)
    if source.meta.shape != wanted:
        error = IndexOutOfRange if where.startswith("index_copy") else ShapeError
        raise error(f"{where}: source must have shape {list(wanted)}, not {list(source.meta.shape)}")
    return at, places, source, check


def _index_into(op: Any, self: Tensor, dim: int, index: Tensor, source: Any, where: str) -> Tensor:
    at, places, found, check = _slices(self, dim, index, source, where)
    check()
    if found.meta.numel:
        target = _vector(self)
        call_into(op, (target, places, apart(found, self)), (at, 1), (target,), in_place=True)
    return self


def _indexed(op: Any, input: Tensor, dim: int, index: Tensor, source: Any, where: str, out: Tensor | None) -> Tensor:
    at, places, slices, check = _slices(input, dim, index, source, where)
    found = check.around(op, (_vector(input), places, slices), (at, 1))
    found = found if input.meta.ndim else views.reshape(found, ())
    return found if out is None else store(found, out, where)


def _scaled(source: Tensor, alpha: Any, where: str) -> Tensor:
    only_tensors(where, source)
    return source if alpha == 1 else ops.mul(source, alpha)


@with_axis
def index_add_(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """Add alpha times the slices of `source` to those at `index`, in place, in the order of the indices."""
    return _index_into(_put_add_at, self, dim, index, _scaled(source, alpha, "index_add_"), "index_add_")


@with_axis
def index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Write the slices of `source` to those at `index`, in place; of several writes the last one stays."""
    only_tensors("index_copy_", source)
    return _index_into(_put_at, self, dim, index, source, "index_copy_")


@with_axis
def index_fill_(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Fill the slices at `index` with a number or a 0-d tensor, in place; negative indices count from the end."""
    only_tensors("index_fill_", self, index)
    at = layout.normalize_dim(dim, self.meta.ndim, "index_fill_")
    shape = self.meta.shape or (1,)
    index = without_negatives(index, shape[at], at)  # type: ignore[assignment]
    if isinstance(value, Tensor):
        if value.meta.ndim:
            raise ShapeError(
                f"index_fill_: value must be a number or a 0-d tensor, not of shape {list(value.meta.shape)}"
            )
        value = tensor_value(value, self, shape[:at] + _vector(index).meta.shape + shape[at + 1 :])
    return _index_into(_put_at, self, dim, index, value, "index_fill_")


@with_axis
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """`input` with the slices of `source` added to those at `index` (see `index_add_`)."""
    return _indexed(_put_add_at, input, dim, index, _scaled(source, alpha, "index_add"), "index_add", out)


_COPIED = OpRecord("index_copy", "composite", (), autocast=("widest", ""))  # of `put_at`, which is index_put's as well


@with_axis
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`input` with the slices of `source` at `index` (see `index_copy_`)."""
    only_tensors("index_copy", input, source)
    input, source = as_for(_COPIED, input, source)
    return _indexed(_put_at, input, dim, index, source, "index_copy", out)


@with_axis
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`input` with a number at the slices `index` (see `index_fill_`)."""
    only_tensors("index_fill", input)
    return index_fill_(clone(input), dim, index, value)


# Reducing what meets --------------------------------------------------------------------------------------------------


def _least(dtype: DType) -> Any:
    return {"f": -np.inf, "b": False}[dtype.kind] if dtype.kind in "fb" else int(np.iinfo(dtype.numpy).min)


def _most(dtype: DType) -> Any:
    return {"f": np.inf, "b": True}[dtype.kind] if dtype.kind in "fb" else int(np.iinfo(dtype.numpy).max)


# Where what is there takes no part, it is replaced by what changes nothing.
_NEUTRAL: dict[str, Callable[[DType], Any]] = {
    "sum": lambda dtype: 0, "mean": lambda dtype: 0, "prod": lambda dtype: 1, "amax": _least, "amin": _most,
}  # fmt: skip


def _op(does: str, merged: bool) -> Any:
    if does == "write":
        return registry["put_at" if merged else "scatter"]
    return registry[f"put_{does}_at" if merged else f"scatter_{does}"]


def _reduced(
    whole: Tensor, index: Tensor, source: Tensor, statics: tuple[int, ...], reduce: str, own: bool, in_place: bool
) -> Tensor:
    """`whole` reduced with `source`; own: with what was there as well. statics: of a scatter op, or of a put op."""
    merged = len(statics) == 2

    def step(record: Any, rest: tuple[Any, ...], given: tuple[Any, ...]) -> None:
        nonlocal whole
        if in_place:
            call_into(record, (whole, *rest), given, (whole,), in_place=True)
        else:
            whole = call(record, (whole, *rest), given)

    if not own:
        neutral = tensor_value(_NEUTRAL[reduce](whole.meta.dtype), whole, source.meta.shape)
        step(_op("write", merged), (index, neutral), statics)
    step(_op(_REDUCING[reduce], merged), (index, source), statics)
    if reduce == "mean":
        counts = _counts(whole, index, statics, 1 if own else 0)
        counts = counts if own else ops.clamp_min(counts, 1)
        if whole.meta.dtype.kind == "f":
            step(registry["true_divide"], (counts,), ())
        else:
            step(registry["floor_divide"], (call(registry["copy"], (counts,), (whole.meta.dtype,)),), ())
    return whole


def _counts(whole: Tensor, index: Tensor, statics: tuple[int, ...], first: int) -> Tensor:
    """`first`, and how often `index` names each place: in a shape that broadcasts with `whole`."""
    like = tensor_value(first, index, ())
    like = like if like.meta.dtype is dtypes.int64 else call(registry["copy"], (like,), (dtypes.int64,))
    ones = tensor_value(1, like, index.meta.shape)
    if len(statics) == 1:
        base = call(registry["expand"], (like,), (whole.meta.shape,))
        return call(registry["scatter_add"], (base, index, ones), statics)  # type: ignore[no-any-return]
    at = statics[0]
    base = call(registry["expand"], (like,), (whole.meta.shape[at : at + 1],))
    found = call(_put_add_at, (base, index, ones), (0, 1))
    return views.reshape(found, (*found.meta.shape, *(1,) * (whole.meta.ndim - at - 1)))


def _check_reduce(reduce: str, known: tuple[str, ...], input: Tensor, where: str) -> None:
    if reduce not in known:
        raise NotSupported(f"{where}: reduce must be one of {', '.join(known)}, not {reduce!r}")
    if reduce == "mean" and input.meta.dtype is dtypes.bool_:
        raise NotSupported(f"{where}: bool has no mean; convert it with .to()")


def _scatter_reduced(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, own: bool, where: str, in_place: bool
) -> Tensor:
    only_tensors(where, input, index, src)
    _check_reduce(reduce, ("sum", "prod", "mean", "amax", "amin"), input, where)
    places, source, at, check = _scattered(input, dim, index, src, where)
    check()
    if not source.meta.numel:
        return input if in_place else clone(input)
    source = apart(source, input) if in_place else source
    found = _reduced(_vector(input), places, source, (at,), reduce, own, in_place)
    return input if in_place else found if input.meta.ndim else views.reshape(found, ())


@with_axis
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`input` with `src` reduced into the places that `index` names: self[i][index[i][j][k]][k] of src[i][j][k] for
    dim = 1, and so for every dimension.

    reduce: "sum", "prod", "mean" (rounded down for integers), "amax" or "amin", made in the order of the indices. What
    was there takes part, unless `include_self` is False; then places that `index` does not name stay as they are.
    Where several elements are the extreme, each gets an equal part of its gradient. Raises `IndexOutOfRange`,
    `ShapeError`, `DTypeError`, and `NotSupported` (a `RuntimeError`) for another `reduce`.
    """
    found = _scatter_reduced(input, dim, index, src, reduce, include_self, "scatter_reduce", False)
    return found if out is None else store(found, out, "scatter_reduce")


@with_axis
def scatter_reduce_(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`scatter_reduce` in place."""
    return _scatter_reduced(self, dim, index, src, reduce, include_self, "scatter_reduce_", True)


def _index_reduced(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, own: bool, where: str, in_place: bool
) -> Tensor:
    only_tensors(where, input, index, source)
    _check_reduce(reduce, ("prod", "mean", "amax", "amin"), input, where)
    at, places, slices, check = _slices(input, dim, index, source, where)
    check()
    if not slices.meta.numel:
        return input if in_place else clone(input)
    slices = apart(slices, input) if in_place else slices
    found = _reduced(_vector(input), places, slices, (at, 1), reduce, own, in_place)
    return input if in_place else found if input.meta.ndim else views.reshape(found, ())


@with_axis
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`input` with the slices of `source` reduced into those at `index` of dimension `dim`.

    reduce: "prod", "mean", "amax" or "amin", as in `scatter_reduce`.
    """
    found = _index_reduced(input, dim, index, source, reduce, include_self, "index_reduce", False)
    return found if out is None else store(found, out, "index_reduce")


@with_axis
def index_reduce_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`index_reduce` in place."""
    return _index_reduced(self, dim, index, source, reduce, include_self, "index_reduce_", True)


# Places of the flattened tensor ---------------------------------------------------------------------------------------


def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write the elements of `source` at the places `index` of the flattened tensor, in place; with `accumulate` add
    them. Negative places count from the end. Raises `IndexOutOfRange`, also for another number of elements."""
    only_tensors("put_", self, index, source)
    if index.meta.numel != source.meta.numel:
        raise IndexOutOfRange(
            f"put_: source has {source.meta.numel} elements, index {index.meta.numel}; there must be one for each place"
        )
    if source.meta.dtype is not self.meta.dtype:
        raise DTypeError(
            f"put_: self is {self.meta.dtype.name} and source {source.meta.dtype.name}; convert one with .to()"
        )
    places = without_negatives(index, self.meta.numel, 0)
    if source.meta.numel:
        values = views.reshape(apart(source, self), index.meta.shape)
        record = _put_add_at if accumulate else _put_at
        call_into(record, (self, places, values), (0, self.meta.ndim), (self,), in_place=True)
    return self


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `source` at the places `index` of the flattened tensor (see `put_`)."""
    only_tensors("put", input)
    return put_(clone(input), index, source, accumulate)


METHODS = {
    name: globals()[name]
    for name in (
        "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_", "index_reduce",
        "index_reduce_", "put", "put_", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce",
        "scatter_reduce_",
    )
}  # fmt: skip
