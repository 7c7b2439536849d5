"""Scatter: write, add or reduce values at positions, with one index for each value.

Indices are checked by `bounds.check_bounds`. Values are written, added or multiplied in the order of the indices,
without atomics, so the same call gives the same bits. If several writes go to one position, the last one wins.
`index_writes` writes whole slices, and `gathering` reads.
"""

from __future__ import annotations

from ..arguments.aliases import accept_axis
from ..arguments.out import copy_to_out
from ..arguments.types import Number, Operand
from ..runtime import layout, views
from ..runtime.autocast import autocast_operands
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .assignment import at_least_1d, clone, copy_if_aliased, record_empty_write, tensor_value
from .bounds import Check, prepare_check
from .index_reductions import check_reduce, reduce_into

__all__ = ["scatter", "scatter_add", "scatter_reduce"]

_index_view = registry["index_view"]
_SCATTER_OPS = {None: "scatter", "add": "scatter_add", "multiply": "scatter_multiply"}


def _check_scatter(
    input: Tensor, dim: int, index: Tensor, src: Operand, where: str
) -> tuple[Tensor, Tensor, int, Check]:
    """Check the operands of a scatter op.

    Returns:
        The index, a source of its shape, the dimension, and the bounds check, which calls the op.
    """
    only_tensors(where, input, index)
    axis = layout.normalize_dim(dim, input.meta.ndim, where)
    positions = at_least_1d(index)
    check = prepare_check(positions, at_least_1d(input).meta.shape[axis], where)
    shape = positions.meta.shape
    if not isinstance(src, Tensor):
        return positions, tensor_value(src, input, shape), axis, check
    if src.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: input is {input.meta.dtype.name} and src {src.meta.dtype.name}; convert one with .to()"
        )
    source = at_least_1d(src)
    if not positions.meta.numel:
        nothing = call(registry["narrow"], (views.reshape(source, (-1,)),), (0, 0, 0))
        return positions, views.reshape(nothing, shape), axis, check
    if source.meta.ndim != len(shape) or any(n > m for n, m in zip(shape, source.meta.shape, strict=True)):
        raise ShapeError(
            f"{where}: src of shape {list(src.meta.shape)} does not hold a value for every index of shape {list(shape)}"
        )
    if source.meta.shape != shape:
        source = call(_index_view, (source,), tuple((0, n, None) for n in shape))
    return positions, source, axis, check


def _scatter_in_place(op: str, self: Tensor, dim: int, index: Tensor, src: Operand, where: str) -> Tensor:
    positions, source, axis, check = _check_scatter(self, dim, index, src, where)
    if source.meta.numel:
        positions, source = copy_if_aliased(positions, self), copy_if_aliased(source, self)
        check.run_in_place(registry[op], (at_least_1d(self), positions, source), (axis,))
    else:
        check()
        record_empty_write(self, source)
    return self


def _scatter(op: str, input: Tensor, dim: int, index: Tensor, src: Operand, where: str, out: Tensor | None) -> Tensor:
    positions, source, axis, check = _check_scatter(input, dim, index, src, where)
    if positions.meta.numel:
        output = check.run(registry[op], (at_least_1d(input), positions, source), (axis,))
        output = output if input.meta.ndim else views.reshape(output, ())
    else:
        output = clone(input)
        record_empty_write(output, source)
    return output if out is None else copy_to_out(output, out, where)


def _select_scatter_op(
    src: Operand | None, value: Number | None, reduce: str | None, where: str
) -> tuple[str, Operand]:
    """Return the op for `reduce`, and the value to write."""
    if reduce not in _SCATTER_OPS:
        raise NotSupported(f"{where}: reduce must be 'add' or 'multiply', not {reduce!r}; see scatter_reduce")
    source = value if src is None else src
    if source is None or (src is not None and value is not None):
        raise ArgumentError(f"{where}: give src, a tensor or a number, or value, a number")
    return _SCATTER_OPS[reduce], source


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


# Reductions -----------------------------------------------------------------------------------------------------------


def _scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool, where: str, in_place: bool
) -> Tensor:
    only_tensors(where, input, index, src)
    check_reduce(reduce, ("sum", "prod", "mean", "amax", "amin"), input, where)
    positions, source, axis, check = _check_scatter(input, dim, index, src, where)
    check()
    if not source.meta.numel:
        output = input if in_place else clone(input)
        record_empty_write(output, source)
        return output
    source = copy_if_aliased(source, input) if in_place else source
    output = reduce_into(at_least_1d(input), positions, source, (axis,), reduce, include_self, in_place)
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
        input: Tensor of any dtype.
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


METHODS = {
    name: globals()[name]
    for name in ("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_")
}
