"""Gather, select and mask: functions that read elements at the positions of an index tensor or a mask.

Indices are checked by `bounds.check_bounds`. `scattering` and `index_writes` have the functions that write.
"""

from __future__ import annotations

from math import prod
from typing import Literal, overload

from .._generated import ops
from ..arguments.aliases import accept_axis, resolve_axis_alias
from ..arguments.out import copy_to_out
from ..arguments.types import Operand
from ..layer_functions.embeddings import embedding as _embedding
from ..layer_functions.embeddings import embedding_renorm_
from ..runtime import dtypes, layout, views
from ..runtime.device import meta
from ..runtime.dispatch import call, call_into, empty
from ..runtime.errors import ArgumentError, DTypeError, IndexShapeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape.joining import stack
from ..tensor_methods.argument_checks import only_tensors, to_dtype_number
from .advanced_indices import dimension_name
from .assignment import at_least_1d, copy_if_aliased, on_device, positions, record_empty_write, tensor_value
from .bounds import prepare_check
from .subscripts import get, index_put

__all__ = [
    "argwhere", "embedding", "embedding_renorm_", "gather", "index_put", "index_select", "masked_fill",
    "masked_scatter", "masked_select", "narrow",
    "nonzero", "select", "take", "take_along_dim",
]  # fmt: skip

_take_at, _put_at = registry["take_at"], registry["put_at"]


@accept_axis
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """Return `out[i][j][k] = input[i][index[i][j][k]][k]` (for 3 dimensions and `dim=1`).

    Args:
        input: Tensor of any dtype.
        dim: The dimension to index.
        index: Integer tensor with as many dimensions as `input`, none of them longer except `dim`. An empty one may
            have any shape.
        sparse_grad: Accepted for compatibility with PyTorch.
        out: Tensor to write the result to.

    Returns:
        A tensor of the shape of `index`.

    Raises:
        IndexOutOfRange: An index is out of range.

    Example:
        >>> wg.gather(wg.tensor([[1, 2], [3, 4]]), 1, wg.tensor([[0], [1]]))
        tensor([[1],
                [4]])
    """
    only_tensors("gather", input, index)
    axis_index = layout.normalize_dim(dim, input.meta.ndim, "gather")
    source, index_vector = at_least_1d(input), at_least_1d(index)
    if not index.meta.numel and index.meta.dtype.kind in "ui":  # of any shape
        empty = views.reshape(views.reshape(input, (-1,))[:0], index.meta.shape)  # it has a gradient
        return empty if out is None else copy_to_out(empty, out, "gather")
    check = prepare_check(index_vector, source.meta.shape[axis_index], "gather")
    output = check.run(registry["gather"], (source, index_vector), (axis_index,))
    output = views.reshape(output, index.meta.shape) if not index.meta.ndim else output
    return output if out is None else copy_to_out(output, out, "gather")


def take_along_dim(
    input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """Gather along `dim`; the other dimensions of `input` and `indices` broadcast.

    Args:
        input: Tensor of any dtype.
        indices: int64 tensor with as many dimensions as `input`; negative indices count from the end.
        dim: The dimension; None flattens both tensors.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor of the broadcast shape, with the size of `indices` along `dim`.

    Raises:
        IndexOutOfRange: An index is out of range.
        ShapeError: The numbers of dimensions differ, or the shapes do not broadcast.

    Example:
        >>> x = wg.tensor([[3, 1], [2, 4]])
        >>> wg.take_along_dim(x, x.argsort(1), 1)
        tensor([[1, 3],
                [2, 4]])
    """
    only_tensors("take_along_dim", input, indices)
    if axis is not None:
        dim = resolve_axis_alias("take_along_dim", dim, None, axis)
    output = _take_along_dim(input, indices, dim)
    return output if out is None else copy_to_out(output, out, "take_along_dim")


def _take_along_dim(input: Tensor, indices: Tensor, dim: int | None) -> Tensor:
    if dim is None:
        flat_indices = views.reshape(indices, (-1,))
        check = prepare_check(flat_indices, input.meta.numel, dimension_name(0), negative=True)
        return check.run(registry["gather"], (views.reshape(input, (-1,)), flat_indices), (0,))
    axis = layout.normalize_dim(dim, input.meta.ndim, "take_along_dim")
    if indices.meta.ndim != input.meta.ndim:
        raise ShapeError(f"take_along_dim: input has {input.meta.ndim} dimensions, indices {indices.meta.ndim}")
    a, b = input.meta.shape, indices.meta.shape
    common_shape = layout.broadcast(
        [a[:axis] + (1,) + a[axis + 1 :], b[:axis] + (1,) + b[axis + 1 :]], "take_along_dim"
    )
    input = call(registry["expand"], (input,), (common_shape[:axis] + (a[axis],) + common_shape[axis + 1 :],))
    indices = call(registry["expand"], (indices,), (common_shape[:axis] + (b[axis],) + common_shape[axis + 1 :],))
    check = prepare_check(indices, a[axis], dimension_name(axis), negative=True)
    return check.run(registry["gather"], (input, indices), (axis,))


@accept_axis
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the slices of `input` at the positions `index` of dimension `dim`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension to index.
        index: Integer vector.
        out: Tensor to write the result to.

    Returns:
        Tensor with the size of `index` along `dim`.

    Raises:
        IndexOutOfRange: A position is out of range.
        ShapeError: `index` is not a vector.

    Example:
        >>> wg.index_select(wg.tensor([[1, 2], [3, 4]]), 1, wg.tensor([1]))
        tensor([[2],
                [4]])
    """
    only_tensors("index_select", input, index)
    axis_index = layout.normalize_dim(dim, input.meta.ndim, "index_select")
    if index.meta.ndim > 1:
        raise IndexShapeError(f"index_select: index must be a vector, not of shape {list(index.meta.shape)}")
    source, index_vector = at_least_1d(input), at_least_1d(index)
    if not input.meta.ndim and index_vector.meta.numel != 1:
        raise ShapeError(f"index_select: a 0-d tensor has one element, and index asks for {index_vector.meta.numel}")
    check = prepare_check(index_vector, source.meta.shape[axis_index], "index_select")
    output = check.run(_take_at, (source, index_vector), (axis_index, 1))
    output = views.reshape(output, ()) if not input.meta.ndim else output
    return output if out is None else copy_to_out(output, out, "index_select")


@accept_axis
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Return a view of the slice at `index` of dimension `dim`, without that dimension.

    Args:
        input: Tensor of any dtype.
        dim: The dimension.
        index: Position; negative positions count from the end.

    Returns:
        A view of `input`.

    Example:
        >>> wg.select(wg.tensor([[1, 2], [3, 4]]), 0, -1)
        tensor([3, 4])
    """
    return ops.select(input, dim, index)


@accept_axis
def narrow(input: Tensor, dim: int, start: Tensor | int, length: int) -> Tensor:
    """Return a view of `length` elements of dimension `dim`, from `start` on.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        start: An int, or a 0-d integer tensor, whose value the host waits for.
        length: Number of elements.

    Returns:
        A view of `input`.

    Example:
        >>> wg.narrow(wg.tensor([1, 2, 3, 4]), 0, 1, 2)
        tensor([2, 3])
    """
    return ops.narrow(input, dim, start.__index__() if isinstance(start, Tensor) else start, length)


def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return elements of the flattened `input`, in the shape of `index`. Negative positions count from the end.

    Args:
        input: Tensor of any dtype.
        index: int64 tensor of any shape.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `index`.

    Example:
        >>> wg.take(wg.tensor([[1, 2], [3, 4]]), wg.tensor([0, -1]))
        tensor([1, 4])
    """
    only_tensors("take", input, index)
    check = prepare_check(index, input.meta.numel, dimension_name(0), negative=True)
    output = check.run(_take_at, (input, index), (0, input.meta.ndim))
    return output if out is None else copy_to_out(output, out, "take")


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """Call `nn.functional.embedding` with the arguments of `torch.embedding`.

    Args:
        weight: Table of shape `(num_embeddings, embedding_dim)`.
        indices: Integer tensor of any shape.
        padding_idx: Row that gets no gradient; -1: none.
        scale_grad_by_freq: Divide gradients by the frequency of the row in `indices`.
        sparse: Must be False.

    Returns:
        Tensor of shape `(*indices.shape, embedding_dim)`.

    Example:
        >>> wg.embedding(wg.tensor([[1.0, 2.0], [3.0, 4.0]]), wg.tensor([1, 0]))
        tensor([[3., 4.],
                [1., 2.]])
    """
    padding_row = None if padding_idx == -1 else padding_idx
    return _embedding(indices, weight, padding_row, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


# Masks ----------------------------------------------------------------------------------------------------------------


@overload
def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Return the indices of the elements that are not 0. The host waits for their number.

    Args:
        input: Tensor of any dtype.
        out: Tensor to write the result to.
        as_tuple: Whether to return a vector for each dimension.

    Returns:
        int64 tensor of shape `(count, ndim)`; with `as_tuple`, a tuple of `ndim` vectors.

    Example:
        >>> wg.nonzero(wg.tensor([0, 5, 0, 7]))
        tensor([[1],
                [3]])
    """
    only_tensors("nonzero", input)
    linear = positions(input)
    shape = input.meta.shape
    step = prod(shape)
    columns: list[Tensor] = []
    for size in shape:
        step = step // size if size else 1
        column = ops.floor_divide(linear, step) if step > 1 else linear
        columns.append(ops.remainder(column, size) if columns else column)
    if as_tuple:
        return tuple(columns) if shape else (linear,)
    output = (
        stack(columns, 1) if shape else empty(meta(dtypes.int64, (linear.meta.shape[0], 0), None, input.meta.device))
    )
    return output if out is None else copy_to_out(output, out, "nonzero")


def argwhere(input: Tensor) -> Tensor:
    """Return the indices of the elements that are not 0: int64 `(count, ndim)`.

    Args:
        input: Tensor of any dtype.

    Returns:
        int64 tensor of shape `(count, ndim)`.

    Example:
        >>> wg.argwhere(wg.tensor([[0, 5], [7, 0]]))
        tensor([[0, 1],
                [1, 0]])
    """
    return nonzero(input)


def _broadcast_mask(input: Tensor, mask: Tensor, where: str) -> tuple[Tensor, Tensor]:
    only_tensors(where, input, mask)
    if mask.meta.dtype is not dtypes.bool_:
        raise DTypeError(f"{where}: the mask must be bool, not {mask.meta.dtype.name}; convert it with .bool()")
    shape = layout.broadcast((input.meta.shape, mask.meta.shape), where)
    return _expand(input, shape), _expand(mask, shape)


def _expand(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return tensor if tensor.meta.shape == shape else call(registry["expand"], (tensor,), (shape,))


def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """Return `input` with `value` (a number or 0-d tensor) where `mask` (bool) is true; the shapes broadcast.

    Args:
        input: Tensor of any dtype.
        mask: bool tensor.
        value: Number, or a tensor of shape `()`.

    Returns:
        Tensor of the broadcast shape and the dtype of `input`.

    Raises:
        ArgumentError: `input` is not a tensor, or its dtype does not hold the number `value`.
        DTypeError: `mask` is not bool.
        ShapeError: `value` is a tensor with dimensions.

    Example:
        >>> wg.masked_fill(wg.tensor([1, 2]), wg.tensor([True, False]), 9)
        tensor([9, 2])
    """
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
    else:
        value = to_dtype_number(value, input.meta.dtype, "masked_fill")
    return call(registry["masked_fill"], (input, mask, value))


def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the elements where `mask` is true as a vector; shapes broadcast. The host waits for their number.

    Args:
        input: Tensor of any dtype.
        mask: bool tensor.
        out: Tensor to write the result to.

    Returns:
        Vector of the dtype of `input`.

    Example:
        >>> wg.masked_select(wg.tensor([1, 2, 3]), wg.tensor([True, False, True]))
        tensor([1, 3])
    """
    expanded, expanded_mask = _broadcast_mask(input, mask, "masked_select")
    output = call(_take_at, (expanded, positions(expanded_mask)), (0, expanded.meta.ndim))
    return output if out is None else copy_to_out(output, out, "masked_select")


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Return `input` with the first elements of `source` where `mask` is true. The host waits for their number.

    Args:
        input: Tensor of any dtype.
        mask: bool tensor, which broadcasts to the shape of `input`.
        source: Tensor with at least as many elements as `mask` has true ones.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        DTypeError: `mask` is not bool, or the dtypes of `input` and `source` differ.
        ShapeError: `source` has too few elements.

    Example:
        >>> wg.masked_scatter(wg.zeros(3), wg.tensor([True, False, True]), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    expanded, expanded_mask = _broadcast_mask(input, mask, "masked_scatter")
    if source.meta.dtype is not input.meta.dtype:
        raise DTypeError(f"masked_scatter: input is {input.meta.dtype.name} and source {source.meta.dtype.name}")
    mask_positions = positions(expanded_mask)
    count = mask_positions.meta.numel
    if source.meta.numel < count:
        raise ShapeError(f"masked_scatter: the mask is true {count} times, source has {source.meta.numel} elements")
    flat = get(views.reshape(source, (-1,)), slice(0, count))
    return call(_put_at, (expanded, mask_positions, flat), (0, expanded.meta.ndim))


def masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Do `masked_scatter` in place.

    Args:
        mask: bool tensor that broadcasts to this tensor's shape.
        source: Tensor with at least as many elements as `mask` has true ones.

    Returns:
        This tensor.

    Raises:
        ShapeError: If `source` has too few elements.
        DTypeError: `mask` is not bool.

    Example:
        >>> wg.zeros(3).masked_scatter_(wg.tensor([True, False, True]), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    _, expanded_mask = _broadcast_mask(self, mask, "masked_scatter_")
    mask_positions = positions(expanded_mask)
    count = mask_positions.meta.numel
    if source.meta.numel < count:
        raise ShapeError(f"masked_scatter_: the mask is true {count} times, source has {source.meta.numel} elements")
    flat = copy_if_aliased(tensor_value(get(views.reshape(source, (-1,)), slice(0, count)), self, (count,)), self)
    if count:
        call_into(_put_at, (self, mask_positions, flat), (0, self.meta.ndim), (self,), in_place=True)
    else:
        record_empty_write(self, flat)
    return self


METHODS = {
    name: globals()[name]
    for name in (
        "argwhere", "gather", "index_select", "masked_fill", "masked_scatter", "masked_scatter_", "masked_select",
        "narrow", "nonzero", "select", "take", "take_along_dim",
    )
}  # fmt: skip
