"""Upper and lower triangles of matrices, and the indices of their elements."""

from __future__ import annotations

from .._generated import ops
from ..arguments.out import copy_to_out
from ..arguments.types import Layout
from ..creation.factories import ones
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dispatch import call, call_into
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import DTypeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors, to_integer

__all__ = ["tril", "tril_indices", "triu", "triu_indices"]


def _triangle(where: str, input: Tensor, diagonal: int, lower: bool, out: Tensor | None) -> Tensor:
    only_tensors(where, input)
    if input.meta.ndim < 2:
        raise ShapeError(f"{where}: takes matrices, not a tensor of shape {list(input.meta.shape)}")
    statics = (int(diagonal.__index__()), lower)
    if out is input:
        return call_into(registry["triangle"], (input,), statics, (input,), in_place=True)
    output = call(registry["triangle"], (input,), statics)
    return output if out is None else copy_to_out(output, out, where)


def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Keep the elements on and below a diagonal of the last two dimensions; set the others to 0.

    Args:
        input: Tensor of shape `(..., m, n)`.
        diagonal: Diagonal: 0 is the main one, positive ones lie above it.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.tril(wg.tensor([[1, 2], [3, 4]]))
        tensor([[1, 0],
                [3, 4]])
    """
    return _triangle("tril", input, diagonal, True, out)


def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Keep the elements on and above a diagonal of the last two dimensions; set the others to 0.

    Args:
        input: Tensor of shape `(..., m, n)`.
        diagonal: Diagonal: 0 is the main one, positive ones lie above it.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.triu(wg.tensor([[1, 2], [3, 4]]))
        tensor([[1, 2],
                [0, 4]])
    """
    return _triangle("triu", input, diagonal, False, out)


def _tril_(self: Tensor, diagonal: int = 0) -> Tensor:
    """Set the elements above a diagonal of the last two dimensions to 0, in place.

    Args:
        diagonal: Diagonal: 0 is the main one, positive ones lie above it.

    Returns:
        This tensor.

    Example:
        >>> wg.ones(2, 2).tril_()
        tensor([[1., 0.],
                [1., 1.]])
    """
    return _triangle("tril_", self, diagonal, True, self)


def _triu_(self: Tensor, diagonal: int = 0) -> Tensor:
    """Set the elements below a diagonal of the last two dimensions to 0, in place.

    Args:
        diagonal: Diagonal: 0 is the main one, positive ones lie above it.

    Returns:
        This tensor.

    Example:
        >>> wg.ones(2, 2).triu_()
        tensor([[1., 1.],
                [0., 1.]])
    """
    return _triangle("triu_", self, diagonal, False, self)


def _check_size(n: object, where: str) -> int:
    size = to_integer(n, where, "a size", -(2**63))
    if size < 0:
        raise ShapeError(f"{where}: a matrix has no {n} rows or columns")
    return size


def _triangle_indices(
    where: str, row: int, col: int, offset: int, lower: bool, dtype: DTypeLike | None, device: DeviceLike | None
) -> Tensor:
    height, width = (_check_size(n, where) for n in (row, col))
    index_dtype = dtypes.int64 if dtype is None else dtypes.parse(dtype)
    if index_dtype.name not in ("int32", "int64"):
        raise DTypeError(f"{where}: indices are int32 or int64, not {index_dtype.name}")
    mask = _triangle(where, ones(height, width, dtype=dtypes.bool_, device=device), offset, lower, None)
    indices = ops.contiguous_copy(ops.transpose(mask.nonzero(), 0, 1))
    return indices if index_dtype is dtypes.int64 else indices.to(index_dtype)


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = dtypes.int64, device: DeviceLike | None = None,
    layout: Layout | None = None,
) -> Tensor:  # fmt: skip
    """Return the row and column indices `(2, n)` of the lower triangle of a `(row, col)` matrix, row by row.

    Args:
        row: Number of rows.
        col: Number of columns.
        offset: Diagonal: 0 is the main one, positive ones lie above it.
        dtype: Dtype of the result.
        device: Device of the result.
        layout: Accepted for compatibility with PyTorch.

    Returns:
        Tensor of shape `(2, n)`.

    Example:
        >>> wg.tril_indices(2, 2)
        tensor([[0, 1, 1],
                [0, 0, 1]])
    """
    return _triangle_indices("tril_indices", row, col, offset, True, dtype, device)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = dtypes.int64, device: DeviceLike | None = None,
    layout: Layout | None = None,
) -> Tensor:  # fmt: skip
    """Return the row and column indices `(2, n)` of the upper triangle of a `(row, col)` matrix, row by row.

    Args:
        row: Number of rows.
        col: Number of columns.
        offset: Diagonal: 0 is the main one, positive ones lie above it.
        dtype: Dtype of the result.
        device: Device of the result.
        layout: Accepted for compatibility with PyTorch.

    Returns:
        Tensor of shape `(2, n)`.

    Example:
        >>> wg.triu_indices(2, 2)
        tensor([[0, 0, 1],
                [0, 1, 1]])
    """
    return _triangle_indices("triu_indices", row, col, offset, False, dtype, device)


METHODS = {"tril": tril, "tril_": _tril_, "triu": triu, "triu_": _triu_}
for _name in ("tril_", "triu_"):
    METHODS[_name].__name__ = _name
