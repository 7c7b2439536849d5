"""Scatter and index writes: write, add or reduce values at positions of index tensors.

Indices are checked by `bounds.check_bounds`. Values are written, added or multiplied in the order of the indices,
without atomics, so the same call gives the same bits. If several writes go to one position, the last one wins.
`gathering` has the functions that read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._generated import ops
from ..arguments.aliases import accept_axis
from ..arguments.out import copy_to_out
from ..arguments.types import Number, Operand
from ..runtime import dtypes, layout, views
from ..runtime.autocast import autocast_operands
from ..runtime.dispatch import call, call_into
from ..runtime.dtypes import DType
from ..runtime.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRange,
    IndexShapeError,
    NotSupported,
    ShapeError,
)
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .assignment import clone, copy_if_aliased, tensor_value
from .bounds import Check, prepare_check
from .subscripts import without_negatives

__all__ = [
    "index_add", "index_copy", "index_fill", "index_reduce", "put", "scatter", "scatter_add", "scatter_reduce",
]  # fmt: skip

_index_view = registry["index_view"]
_put_at, _put_add_at = registry["put_at"], registry["put_add_at"]
# PyTorch's names of reductions, and the ops that compute them.
_REDUCTION_OPS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}
_SCATTER_OPS = {None: "scatter", "add": "scatter_add", "multiply": "scatter_multiply"}


def _at_least_1d(tensor: Tensor) -> Tensor:
    """Return `tensor`, viewed as a vector of one element if it is 0-d."""
    return tensor if tensor.meta.ndim else views.reshape(tensor, (1,))


# Scatter: one index for each element ----------------------------------------------------------------------------------


def _check_scatter(input: Tensor, dim: int, index: Tensor, src: Any, where: str) -> tuple[Tensor, Tensor, int, Check]:
    """Check the operands of a scatter op. Return the index, a source of its shape, the dimension, and the bounds check.

    Call the check before an in-place write, and after the launch of any other op.
    """
    only_tensors(where, input, index)
    axis = layout.normalize_dim(dim, input.meta.ndim, where)
    positions = _at_least_1d(index)
    check = prepare_check(positions, _at_least_1d(input).meta.shape[axis], where)
    shape = positions.meta.shape
    if not isinstance(src, Tensor):
        return positions, tensor_value(src, input, shape), axis, check
    if src.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: input is {input.meta.dtype.name} and src {src.meta.dtype.name}; convert one with .to()"
        )
    source = _at_least_1d(src)
    if not positions.meta.numel:
        return positions, tensor_value(0, input, shape), axis, check
    if source.meta.ndim != len(shape) or any(n > m for n, m in zip(shape, source.meta.shape, strict=True)):
        raise ShapeError(
            f"{where}: src of shape {list(src.meta.shape)} does not hold a value for every index of shape {list(shape)}"
        )
    if source.meta.shape != shape:
        source = call(_index_view, (source,), tuple((0, n, None) for n in shape))
    return positions, source, axis, check


def _scatter_in_place(op: str, self: Tensor, dim: int, index: Tensor, src: Any, where: str) -> Tensor:
    positions, source, axis, check = _check_scatter(self, dim, index, src, where)
    check()
    if source.meta.numel:
        target = _at_least_1d(self)
        call_into(registry[op], (target, positions, copy_if_aliased(source, self)), (axis,), (target,), in_place=True)
    return self


def _scatter(op: str, input: Tensor, dim: int, index: Tensor, src: Any, where: str, out: Tensor | None) -> Tensor:
    positions, source, axis, check = _check_scatter(input, dim, index, src, where)
    if positions.meta.numel:
        output = check.run(registry[op], (_at_least_1d(input), positions, source), (axis,))
        output = output if input.meta.ndim else views.reshape(output, ())
    else:
        output = clone(input)
    return output if out is None else copy_to_out(output, out, where)


def _select_scatter_op(src: Operand | None, value: Number | None, reduce: str | None, where: str) -> tuple[str, Any]:
    """Return the op for `reduce`, and the value to write."""
    if reduce not in _SCATTER_OPS:
        raise NotSupported(f"{where}: reduce must be 'add' or 'multiply', not {reduce!r}; see scatter_reduce")
    if (src is None) == (value is None):
        raise ArgumentError(f"{where}: give src, a tensor or a number, or value, a number")
    return _SCATTER_OPS[reduce], value if src is None else src


@accept_axis
def scatter_(
    self: Tensor, dim: int, index: Tensor, src: Operand | None = None, *, value: Number | None = None,
    reduce: str | None = None,
) -> Tensor:  # fmt: skip
    """Write `src` in place: `self[i][index[i][j][k]][k] = src[i][j][k]` for 3 dimensions and `dim=1`.

    Args:
        dim: The dimension that `index` indexes.
        index: Integer tensor with as many dimensions as `self`.
        src: Tensor at least as large as `index` in every dimension, or a number.
        value: A number, instead of `src`.
        reduce: None to overwrite (the last write wins), "add" or "multiply".

    Returns:
        This tensor.

    Raises:
        IndexOutOfRange: An index is out of range.
        ShapeError: `src` has no value for some index.
        DTypeError: `src` has another dtype than `self`.

    Example:
        >>> wg.zeros(3).scatter_(0, wg.tensor([0, 2]), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    op, source = _select_scatter_op(src, value, reduce, "scatter_")
    return _scatter_in_place(op, self, dim, index, source, "scatter_")


@accept_axis
def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add `src` in place: `self[i][index[i][j][k]][k] += src[i][j][k]` for 3 dimensions and `dim=1`.

    Values are added in the order of the indices, so the same call gives the same bits. See `scatter_`.

    Args:
        dim: The dimension that `index` indexes.
        index: Integer tensor with as many dimensions as this tensor.
        src: Tensor of this tensor's dtype, at least as large as `index` in every dimension.

    Returns:
        This tensor.

    Raises:
        IndexOutOfRange: An index is out of range.
        ShapeError: `src` has no value for some index.
        DTypeError: `src` has another dtype.

    Example:
        >>> wg.zeros(3).scatter_add_(0, wg.tensor([2, 2]), wg.tensor([5.0, 6.0]))
        tensor([ 0.,  0., 11.])
    """
    only_tensors("scatter_add_", src)
    return _scatter_in_place("scatter_add", self, dim, index, src, "scatter_add_")


@accept_axis
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Operand | None = None, *, value: Number | None = None,
    reduce: str | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return a copy of `input` with `src` written at `index`; see `scatter_`.

    Args:
        input: Tensor of any dtype, with as many dimensions as `index`.
        dim: The dimension; negative values count from the last.
        index: int64 tensor with as many dimensions as `input`.
        src: Tensor with at least the sizes of `index`.
        value: Number to write instead of `src`.
        reduce: None, `add` or `multiply`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.scatter(wg.zeros(3), 0, wg.tensor([0, 2]), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    op, source = _select_scatter_op(src, value, reduce, "scatter")
    return _scatter(op, input, dim, index, source, "scatter", out)


@accept_axis
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return a copy of `input` with `src` added at `index`; see `scatter_add_`.

    Args:
        input: Tensor of any dtype, with as many dimensions as `index`.
        dim: The dimension; negative values count from the last.
        index: int64 tensor with as many dimensions as `input`.
        src: Tensor with at least the sizes of `index`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.scatter_add(wg.zeros(3), 0, wg.tensor([2, 2]), wg.tensor([5.0, 6.0]))
        tensor([ 0.,  0., 11.])
    """
    only_tensors("scatter_add", input, src)
    input, src = autocast_operands(registry["scatter_add"], input, src)
    return _scatter("scatter_add", input, dim, index, src, "scatter_add", out)


# Index writes: whole slices along one dimension -----------------------------------------------------------------------


def _check_slices(input: Tensor, dim: int, index: Tensor, source: Any, where: str) -> tuple[int, Tensor, Tensor, Check]:
    """Check the operands of an index_* write. Return dimension, index, source and the bounds check.

    Dimension `dim` of the source is as long as the index. For the bounds check see `_check_scatter`.
    """
    only_tensors(where, input, index)
    axis = layout.normalize_dim(dim, input.meta.ndim, where)
    if index.meta.ndim > 1:
        raise IndexShapeError(f"{where}: index must be a vector, not of shape {list(index.meta.shape)}")
    positions, shape = _at_least_1d(index), input.meta.shape or (1,)
    check = prepare_check(positions, shape[axis], where)
    expected_shape = shape[:axis] + positions.meta.shape + shape[axis + 1 :]
    if not isinstance(source, Tensor):
        return axis, positions, tensor_value(source, input, expected_shape), check
    if source.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: input is {input.meta.dtype.name} and source {source.meta.dtype.name}; convert one with .to()"
        )
    source = _at_least_1d(source)
    if source.meta.shape != expected_shape:
        error = IndexOutOfRange if where.startswith("index_copy") else ShapeError
        raise error(f"{where}: source must have shape {list(expected_shape)}, not {list(source.meta.shape)}")
    return axis, positions, source, check


def _update_slices_in_place(op: OpRecord, self: Tensor, dim: int, index: Tensor, source: Any, where: str) -> Tensor:
    axis, positions, slices, check = _check_slices(self, dim, index, source, where)
    check()
    if slices.meta.numel:
        target = _at_least_1d(self)
        call_into(op, (target, positions, copy_if_aliased(slices, self)), (axis, 1), (target,), in_place=True)
    return self


def _update_slices(
    op: OpRecord, input: Tensor, dim: int, index: Tensor, source: Tensor, where: str, out: Tensor | None
) -> Tensor:
    axis, positions, slices, check = _check_slices(input, dim, index, source, where)
    output = check.run(op, (_at_least_1d(input), positions, slices), (axis, 1))
    output = output if input.meta.ndim else views.reshape(output, ())
    return output if out is None else copy_to_out(output, out, where)


def _scale_source(source: Tensor, alpha: Operand, where: str) -> Tensor:
    only_tensors(where, source)
    return source if alpha == 1 else ops.mul(source, alpha)


@accept_axis
def index_add_(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Operand = 1) -> Tensor:
    """Add `alpha` times the slices of `source` to the slices at `index` of `dim`, in place, in index order.

    Args:
        dim: The dimension; negative values count from the last.
        index: Integer vector of positions along `dim`.
        source: Tensor of this tensor's dtype, whose slices along `dim` are added.
        alpha: Factor of `source`.

    Returns:
        This tensor.

    Raises:
        IndexOutOfRange: A position is out of range.
        ShapeError: `source` has another shape than the slices.
        DTypeError: `source` has another dtype.

    Example:
        >>> wg.zeros(3).index_add_(0, wg.tensor([2, 2]), wg.tensor([5.0, 6.0]))
        tensor([ 0.,  0., 11.])
    """
    return _update_slices_in_place(
        _put_add_at, self, dim, index, _scale_source(source, alpha, "index_add_"), "index_add_"
    )


@accept_axis
def index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Copy the slices of `source` to the slices at `index` of `dim`, in place; the last write wins.

    Args:
        dim: The dimension; negative values count from the last.
        index: Integer vector of positions along `dim`.
        source: Tensor of this tensor's dtype, whose slices along `dim` are copied.

    Returns:
        This tensor.

    Raises:
        IndexOutOfRange: A position is out of range, or `source` has another shape than the slices.
        DTypeError: `source` has another dtype.

    Example:
        >>> wg.zeros(3).index_copy_(0, wg.tensor([0, 2]), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    only_tensors("index_copy_", source)
    return _update_slices_in_place(_put_at, self, dim, index, source, "index_copy_")


@accept_axis
def index_fill_(self: Tensor, dim: int, index: Tensor, value: Operand) -> Tensor:
    """Fill the slices at `index` with a number or a 0-d tensor, in place; negative indices count from the end.

    Args:
        dim: The dimension; negative values count from the last.
        index: Integer vector of positions along `dim`; negative ones count from the end.
        value: Number, or a tensor of shape `()`.

    Returns:
        This tensor.

    Raises:
        IndexOutOfRange: A position is out of range.
        ShapeError: `value` is a tensor with dimensions.

    Example:
        >>> wg.zeros(3).index_fill_(0, wg.tensor([0, -1]), 7)
        tensor([7., 0., 7.])
    """
    only_tensors("index_fill_", self, index)
    axis_index = layout.normalize_dim(dim, self.meta.ndim, "index_fill_")
    shape = self.meta.shape or (1,)
    index = without_negatives(index, shape[axis_index], axis_index)
    if isinstance(value, Tensor):
        if value.meta.ndim:
            raise ShapeError(
                f"index_fill_: value must be a number or a 0-d tensor, not of shape {list(value.meta.shape)}"
            )
        value = tensor_value(value, self, shape[:axis_index] + _at_least_1d(index).meta.shape + shape[axis_index + 1 :])
    return _update_slices_in_place(_put_at, self, dim, index, value, "index_fill_")


@accept_axis
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Operand = 1, out: Tensor | None = None
) -> Tensor:
    """Return a copy of `input` with the slices of `source` added at `index`; see `index_add_`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        index: int64 vector of positions along `dim`.
        source: Tensor whose slices along `dim` are used.
        alpha: Factor of `source`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.index_add(wg.zeros(3), 0, wg.tensor([2, 2]), wg.tensor([5.0, 6.0]))
        tensor([ 0.,  0., 11.])
    """
    return _update_slices(_put_add_at, input, dim, index, _scale_source(source, alpha, "index_add"), "index_add", out)


# The autocast rule of index_copy. It cannot be on the op `put_at`, because index_put uses that as well.
_INDEX_COPY_RECORD = OpRecord("index_copy", "composite", (), autocast=("widest", ""))


@accept_axis
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return a copy of `input` with the slices of `source` at `index`; see `index_copy_`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        index: int64 vector of positions along `dim`.
        source: Tensor whose slices along `dim` are used.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.index_copy(wg.zeros(3), 0, wg.tensor([0, 2]), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    only_tensors("index_copy", input, source)
    input, source = autocast_operands(_INDEX_COPY_RECORD, input, source)
    return _update_slices(_put_at, input, dim, index, source, "index_copy", out)


@accept_axis
def index_fill(input: Tensor, dim: int, index: Tensor, value: Operand) -> Tensor:
    """Return a copy of `input` with the slices at `index` filled with a number; see `index_fill_`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        index: int64 vector of positions along `dim`.
        value: Number, or a tensor of shape `()`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.index_fill(wg.zeros(3), 0, wg.tensor([0, 2]), 7)
        tensor([7., 0., 7.])
    """
    only_tensors("index_fill", input)
    return index_fill_(clone(input), dim, index, value)


# Reductions -----------------------------------------------------------------------------------------------------------


def _lowest_value(dtype: DType) -> float:
    return {"f": -np.inf, "b": False}[dtype.kind] if dtype.kind in "fb" else int(np.iinfo(dtype.numpy).min)


def _highest_value(dtype: DType) -> float:
    return {"f": np.inf, "b": True}[dtype.kind] if dtype.kind in "fb" else int(np.iinfo(dtype.numpy).max)


# The neutral element of each reduction: it replaces the old values where they take no part.
_NEUTRAL: dict[str, Callable[[DType], Any]] = {
    "sum": lambda dtype: 0, "mean": lambda dtype: 0, "prod": lambda dtype: 1, "amax": _lowest_value,
    "amin": _highest_value,
}  # fmt: skip


def _reduction_op(action: str, indexes_slices: bool) -> OpRecord:
    if action == "write":
        return registry["put_at" if indexes_slices else "scatter"]
    return registry[f"put_{action}_at" if indexes_slices else f"scatter_{action}"]


def _reduce_into(
    target: Tensor,
    index: Tensor,
    source: Tensor,
    statics: tuple[int, ...],
    reduce: str,
    include_self: bool,
    in_place: bool,
) -> Tensor:
    """Reduce `source` into `target`. statics: one static argument for a scatter op, two for a put op (whole slices)."""
    indexes_slices = len(statics) == 2

    def step(record: OpRecord, operands: tuple[Any, ...], step_statics: tuple[Any, ...]) -> None:
        nonlocal target
        if in_place:
            call_into(record, (target, *operands), step_statics, (target,), in_place=True)
        else:
            target = call(record, (target, *operands), step_statics)

    if not include_self:
        neutral = tensor_value(_NEUTRAL[reduce](target.meta.dtype), target, source.meta.shape)
        step(_reduction_op("write", indexes_slices), (index, neutral), statics)
    step(_reduction_op(_REDUCTION_OPS[reduce], indexes_slices), (index, source), statics)
    if reduce == "mean":
        counts = _index_counts(target, index, statics, 1 if include_self else 0)
        counts = counts if include_self else ops.clamp_min(counts, 1)
        if target.meta.dtype.kind == "f":
            step(registry["true_divide"], (counts,), ())
        else:
            step(registry["floor_divide"], (call(registry["copy"], (counts,), (target.meta.dtype,)),), ())
    return target


def _index_counts(target: Tensor, index: Tensor, statics: tuple[int, ...], initial: int) -> Tensor:
    """Return `initial` plus the number of times that each position occurs in `index`; broadcasts with `target`."""
    like = tensor_value(initial, index, ())
    like = like if like.meta.dtype is dtypes.int64 else call(registry["copy"], (like,), (dtypes.int64,))
    ones = tensor_value(1, like, index.meta.shape)
    if len(statics) == 1:
        base = call(registry["expand"], (like,), (target.meta.shape,))
        return call(registry["scatter_add"], (base, index, ones), statics)
    axis = statics[0]
    base = call(registry["expand"], (like,), (target.meta.shape[axis : axis + 1],))
    counts = call(_put_add_at, (base, index, ones), (0, 1))
    return views.reshape(counts, (*counts.meta.shape, *(1,) * (target.meta.ndim - axis - 1)))


def _check_reduce(reduce: str, supported: tuple[str, ...], input: Tensor, where: str) -> None:
    if reduce not in supported:
        raise NotSupported(f"{where}: reduce must be one of {', '.join(supported)}, not {reduce!r}")
    if reduce == "mean" and input.meta.dtype is dtypes.bool_:
        raise NotSupported(f"{where}: bool has no mean; convert it with .to()")


def _scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool, where: str, in_place: bool
) -> Tensor:
    only_tensors(where, input, index, src)
    _check_reduce(reduce, ("sum", "prod", "mean", "amax", "amin"), input, where)
    positions, source, axis, check = _check_scatter(input, dim, index, src, where)
    check()
    if not source.meta.numel:
        return input if in_place else clone(input)
    source = copy_if_aliased(source, input) if in_place else source
    output = _reduce_into(_at_least_1d(input), positions, source, (axis,), reduce, include_self, in_place)
    return input if in_place else output if input.meta.ndim else views.reshape(output, ())


@accept_axis
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Reduce `src` into a copy of `input` at the positions in `index`.

    Element `src[i][j][k]` goes to `[i][index[i][j][k]][k]` for 3 dimensions and `dim=1`. Values are combined in the
    order of the indices. If several elements are the maximum or minimum, each gets an equal share of the gradient.

    Args:
        input: Any tensor.
        dim: The dimension that `index` indexes.
        index: Integer tensor with as many dimensions as `input`.
        src: Tensor of the dtype of `input`, at least as large as `index` in every dimension.
        reduce: "sum", "prod", "mean" (rounded down for integers), "amax" or "amin".
        include_self: Whether the values of `input` take part. Positions that `index` does not name keep their values.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        IndexOutOfRange: An index is out of range.
        ShapeError: Shapes do not fit.
        DTypeError: The dtypes differ.
        NotSupported: `reduce` is unknown.

    Example:
        >>> wg.scatter_reduce(wg.zeros(3), 0, wg.tensor([2, 2]), wg.tensor([5.0, 6.0]), 'amax')
        tensor([0., 0., 6.])
    """
    output = _scatter_reduce(input, dim, index, src, reduce, include_self, "scatter_reduce", False)
    return output if out is None else copy_to_out(output, out, "scatter_reduce")


@accept_axis
def scatter_reduce_(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Do `scatter_reduce` in place.

    Args:
        dim: The dimension that `index` indexes.
        index: Integer tensor with as many dimensions as this tensor.
        src: Tensor of this tensor's dtype, at least as large as `index` in every dimension.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: Whether the values of this tensor take part.

    Returns:
        This tensor.

    Example:
        >>> wg.zeros(3).scatter_reduce_(0, wg.tensor([2, 2]), wg.tensor([5.0, 6.0]), 'amax')
        tensor([0., 0., 6.])
    """
    return _scatter_reduce(self, dim, index, src, reduce, include_self, "scatter_reduce_", True)


def _index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool, where: str, in_place: bool
) -> Tensor:
    only_tensors(where, input, index, source)
    _check_reduce(reduce, ("prod", "mean", "amax", "amin"), input, where)
    axis, positions, slices, check = _check_slices(input, dim, index, source, where)
    check()
    if not slices.meta.numel:
        return input if in_place else clone(input)
    slices = copy_if_aliased(slices, input) if in_place else slices
    output = _reduce_into(_at_least_1d(input), positions, slices, (axis, 1), reduce, include_self, in_place)
    return input if in_place else output if input.meta.ndim else views.reshape(output, ())


@accept_axis
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Reduce the slices of `source` into a copy of `input`, at the positions `index` of dimension `dim`.

    `reduce` is "prod", "mean", "amax" or "amin"; for it and `include_self` see `scatter_reduce`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        index: int64 vector of positions along `dim`.
        source: Tensor whose slices along `dim` are used.
        reduce: Name of the reduction.
        include_self: Whether elements of `input` count.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.index_reduce(wg.zeros(3), 0, wg.tensor([2, 2]), wg.tensor([5.0, 6.0]), 'amax')
        tensor([0., 0., 6.])
    """
    output = _index_reduce(input, dim, index, source, reduce, include_self, "index_reduce", False)
    return output if out is None else copy_to_out(output, out, "index_reduce")


@accept_axis
def index_reduce_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Do `index_reduce` in place.

    Args:
        dim: The dimension; negative values count from the last.
        index: Integer vector of positions along `dim`.
        source: Tensor of this tensor's dtype, whose slices along `dim` are used.
        reduce: "prod", "mean", "amax" or "amin".
        include_self: Whether the values of this tensor take part.

    Returns:
        This tensor.

    Example:
        >>> wg.zeros(3).index_reduce_(0, wg.tensor([2, 2]), wg.tensor([5.0, 6.0]), 'amax')
        tensor([0., 0., 6.])
    """
    return _index_reduce(self, dim, index, source, reduce, include_self, "index_reduce_", True)


# Positions in the flattened tensor ------------------------------------------------------------------------------------


def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write the elements of `source` at the positions `index` of the flattened tensor, in place.

    Args:
        index: Integer tensor of any shape; negative positions count from the end.
        source: As many elements as `index`, of the dtype of `self`.
        accumulate: Whether to add instead of overwriting.

    Returns:
        This tensor.

    Raises:
        IndexOutOfRange: A position is out of range, or `source` has another number of elements.
        DTypeError: The dtypes differ.

    Example:
        >>> wg.zeros(2, 2).put_(wg.tensor([0, -1]), wg.tensor([5.0, 6.0]))
        tensor([[5., 0.],
                [0., 6.]])
    """
    only_tensors("put_", self, index, source)
    if index.meta.numel != source.meta.numel:
        raise IndexOutOfRange(
            f"put_: source has {source.meta.numel} elements, index {index.meta.numel}; there must be one for each place"
        )
    if source.meta.dtype is not self.meta.dtype:
        raise DTypeError(
            f"put_: self is {self.meta.dtype.name} and source {source.meta.dtype.name}; convert one with .to()"
        )
    positions = without_negatives(index, self.meta.numel, 0)
    if source.meta.numel:
        values = views.reshape(copy_if_aliased(source, self), index.meta.shape)
        record = _put_add_at if accumulate else _put_at
        call_into(record, (self, positions, values), (0, self.meta.ndim), (self,), in_place=True)
    return self


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Return a copy of `input` with `source` at the positions `index` of the flattened tensor; see `put_`.

    Args:
        input: Tensor of any dtype.
        index: int64 tensor of positions in the flattened tensor.
        source: Tensor with as many elements as `index`.
        accumulate: Whether to add instead of writing.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.put(wg.zeros(3), wg.tensor([0, 2]), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
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
