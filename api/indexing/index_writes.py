"""Write slices at positions along one dimension (`index_add` and others), and elements at flat positions (`put`).

Values are written, added or multiplied in the order of the indices, without atomics, so the same call gives the same
bits. If several writes go to one position, the last one wins. `scattering` has an index for each element.
"""

from __future__ import annotations

from .._generated import ops
from ..arguments.aliases import accept_axis
from ..arguments.out import copy_to_out
from ..arguments.types import Operand
from ..runtime import layout, views
from ..runtime.autocast import autocast_operands
from ..runtime.errors import DTypeError, IndexOutOfRange, IndexShapeError, ShapeError
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .advanced_indices import dimension_name
from .assignment import at_least_1d, clone, copy_if_aliased, record_empty_write, tensor_value
from .bounds import Check, prepare_check
from .index_reductions import check_reduce, reduce_into

__all__ = ["index_add", "index_copy", "index_fill", "index_reduce", "put"]

_put_at, _put_add_at = registry["put_at"], registry["put_add_at"]


def _check_slices(
    input: Tensor, dim: int, index: Tensor, source: Operand, where: str, negative: bool = False
) -> tuple[int, Tensor, Tensor, Check]:
    """Check the operands of an index_* write. Return dimension, index, source, and the bounds check that calls the op.

    Dimension `dim` of the source is as long as the index. negative: negative indices count from the end.
    """
    only_tensors(where, input, index)
    axis = layout.normalize_dim(dim, input.meta.ndim, where)
    if index.meta.ndim > 1:
        raise IndexShapeError(f"{where}: index must be a vector, not of shape {list(index.meta.shape)}")
    positions, shape = at_least_1d(index), input.meta.shape or (1,)
    check = prepare_check(positions, shape[axis], dimension_name(axis) if negative else where, negative=negative)
    expected_shape = shape[:axis] + positions.meta.shape + shape[axis + 1 :]
    if not isinstance(source, Tensor):
        return axis, positions, tensor_value(source, input, expected_shape), check
    if source.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: input is {input.meta.dtype.name} and source {source.meta.dtype.name}; convert one with .to()"
        )
    source = at_least_1d(source)
    if source.meta.shape != expected_shape:
        error = IndexOutOfRange if where.startswith("index_copy") else ShapeError
        raise error(f"{where}: source must have shape {list(expected_shape)}, not {list(source.meta.shape)}")
    return axis, positions, source, check


def _update_slices_in_place(
    op: OpRecord, self: Tensor, dim: int, index: Tensor, source: Operand, where: str, negative: bool = False
) -> Tensor:
    axis, positions, slices, check = _check_slices(self, dim, index, source, where, negative)
    if slices.meta.numel:
        positions, slices = copy_if_aliased(positions, self), copy_if_aliased(slices, self)
        check.run_in_place(op, (at_least_1d(self), positions, slices), (axis, 1))
    else:
        check()
        record_empty_write(self, slices)
    return self


def _update_slices(
    op: OpRecord, input: Tensor, dim: int, index: Tensor, source: Tensor, where: str, out: Tensor | None
) -> Tensor:
    axis, positions, slices, check = _check_slices(input, dim, index, source, where)
    output = check.run(op, (at_least_1d(input), positions, slices), (axis, 1))
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
    if isinstance(value, Tensor):
        if value.meta.ndim:
            raise ShapeError(
                f"index_fill_: value must be a number or a 0-d tensor, not of shape {list(value.meta.shape)}"
            )
        value = tensor_value(value, self, shape[:axis_index] + at_least_1d(index).meta.shape + shape[axis_index + 1 :])
    return _update_slices_in_place(_put_at, self, dim, index, value, "index_fill_", negative=True)


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


def _index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool, where: str, in_place: bool
) -> Tensor:
    only_tensors(where, input, index, source)
    check_reduce(reduce, ("prod", "mean", "amax", "amin"), input, where)
    axis, positions, slices, check = _check_slices(input, dim, index, source, where)
    check()
    if not slices.meta.numel:
        output = input if in_place else clone(input)
        record_empty_write(output, slices)
        return output
    slices = copy_if_aliased(slices, input) if in_place else slices
    output = reduce_into(at_least_1d(input), positions, slices, (axis, 1), reduce, include_self, in_place)
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
            f"put_: source has {source.meta.numel} elements, index {index.meta.numel}; there must be one for each "
            "position"
        )
    if source.meta.dtype is not self.meta.dtype:
        raise DTypeError(
            f"put_: self is {self.meta.dtype.name} and source {source.meta.dtype.name}; convert one with .to()"
        )
    check = prepare_check(index, self.meta.numel, dimension_name(0), negative=True)
    if source.meta.numel:
        values = views.reshape(copy_if_aliased(source, self), index.meta.shape)
        operands = (self, copy_if_aliased(index, self), values)
        check.run_in_place(_put_add_at if accumulate else _put_at, operands, (0, self.meta.ndim))
    else:
        check()
        record_empty_write(self, source)
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
        "index_reduce_", "put", "put_",
    )
}  # fmt: skip
