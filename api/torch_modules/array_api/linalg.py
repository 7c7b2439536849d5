"""The extension `linalg` of the array API standard: those of its functions that exist."""

from __future__ import annotations

from .. import linalg
from .._generated import ops
from ..linear_algebra import special_products
from ..pointwise import composites
from ..runtime.dtypes import DType
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from ._linear_algebra import matmul, matrix_transpose, promote_tensors, tensordot, vecdot
from ._operands import Axes, check_tensors

__all__ = [
    "cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "outer", "tensordot", "trace",
    "vecdot", "vector_norm",
]  # fmt: skip


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the vector products of vectors with three components.

    Args:
        x1: Tensor with size 3 along the axis.
        x2: Tensor whose shape broadcasts with that of `x1`.
        axis: The axis.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.linalg.cross(wg.tensor([1, 0, 0]), wg.tensor([0, 1, 0]))
        tensor([0, 0, 1])
    """
    first, second = promote_tensors("cross", x1, x2)
    return special_products.cross(first, second, axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return the diagonals of matrices.

    Args:
        x: Tensor of shape `(..., M, N)`.
        offset: The diagonal: positive numbers are above the main one.

    Returns:
        A view of shape `(..., K)`.

    Example:
        >>> wg.array_api.linalg.diagonal(wg.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    check_tensors("diagonal", x)
    return linalg.diagonal(x, offset=offset)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """Return norms of matrices.

    Args:
        x: Tensor of shape `(..., M, N)` and a floating dtype.
        keepdims: Whether the two axes stay, with size 1.
        ord: `fro`: the root of the sum of squares; 1 and -1: the greatest and the least sum of a column's absolute
            values; inf and -inf: of a row's. 2, -2 and `nuc` need singular values, which are not there.

    Returns:
        Tensor of shape `(...)`.

    Raises:
        NotSupported: The norm needs singular values.

    Example:
        >>> wg.array_api.linalg.matrix_norm(wg.tensor([[3.0, 0.0], [0.0, 4.0]]))
        tensor(5.)
    """
    check_tensors("matrix_norm", x)
    return linalg.matrix_norm(x, "fro" if ord is None else ord, keepdim=keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Return powers of square matrices.

    Args:
        x: Tensor of shape `(..., M, M)` and a floating dtype.
        n: The exponent, not negative.

    Returns:
        Tensor of the same shape.

    Example:
        >>> wg.array_api.linalg.matrix_power(wg.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
        tensor([[1., 3.],
                [0., 1.]])
    """
    check_tensors("matrix_power", x)
    return composites.matrix_power(x, n)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the products of each element of a vector with each of another.

    Args:
        x1: Vector of N elements.
        x2: Vector of M elements.

    Returns:
        Tensor of shape `(N, M)`.

    Raises:
        ShapeError: One is no vector.

    Example:
        >>> wg.array_api.linalg.outer(wg.tensor([1, 2]), wg.tensor([3, 4]))
        tensor([[3, 4],
                [6, 8]])
    """
    first, second = promote_tensors("outer", x1, x2)
    if first.meta.ndim != 1 or second.meta.ndim != 1:
        raise ShapeError(f"outer: takes vectors, not shapes {list(x1.meta.shape)} and {list(x2.meta.shape)}")
    return ops.mul(first.unsqueeze(1), second)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """Return the sums of the diagonals of matrices.

    Args:
        x: Tensor of shape `(..., M, N)`.
        offset: The diagonal: positive numbers are above the main one.
        dtype: Dtype of the result; None: int64 for integers, else that of `x`.

    Returns:
        Tensor of shape `(...)`.

    Example:
        >>> wg.array_api.linalg.trace(wg.tensor([[1, 2], [3, 4]]))
        tensor(5)
    """
    return ops.sum(diagonal(x, offset=offset), -1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Return norms of vectors: the root of degree `ord` of the sum of absolute values to that power.

    Args:
        x: Tensor of a floating dtype.
        axis: The axes; None: the flattened tensor.
        keepdims: Whether reduced axes stay, with size 1.
        ord: The degree; inf and -inf: the greatest and the least absolute value; 0: the number of nonzero elements.

    Returns:
        Tensor without the axes.

    Example:
        >>> wg.array_api.linalg.vector_norm(wg.tensor([3.0, 4.0]))
        tensor(5.)
    """
    check_tensors("vector_norm", x)
    if axis == ():
        return vector_norm(x.unsqueeze(-1), axis=-1, keepdims=False, ord=ord)
    return linalg.vector_norm(x, ord, axis, keepdims)
