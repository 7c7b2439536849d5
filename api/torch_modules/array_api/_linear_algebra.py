"""Functions of linear algebra that belong to the standard itself; `linalg` has those of its extension."""

from __future__ import annotations

from collections.abc import Sequence

from .._generated import ops
from ..linear_algebra import contractions, products
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from ..shape import reshaping
from ._operands import check_tensors, promote

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def promote_tensors(name: str, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """Return two tensors in their common dtype."""
    check_tensors(name, x1, x2)
    first, second = promote(name, x1, x2)
    assert isinstance(first, Tensor)  # as they were before
    assert isinstance(second, Tensor)
    return first, second


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the product of matrices.

    Args:
        x1: Tensor of shape `(..., M, K)`, or a vector `(K,)`.
        x2: Tensor of shape `(..., K, N)`, or a vector `(K,)`.

    Returns:
        Tensor of shape `(..., M, N)`, without the axes that vectors do not have.

    Raises:
        ShapeError: The shapes do not fit, or a tensor has no axis.

    Example:
        >>> wg.array_api.matmul(wg.ones(2, 3), wg.ones(3))
        tensor([3., 3.])
    """
    return products.matmul(*promote_tensors("matmul", x1, x2))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return the transposes of matrices.

    Args:
        x: Tensor of shape `(..., M, N)`.

    Returns:
        A view of shape `(..., N, M)`.

    Raises:
        ShapeError: `x` has fewer than two axes.

    Example:
        >>> wg.array_api.matrix_transpose(wg.ones(2, 3)).shape
        weftgrad.Size([3, 2])
    """
    check_tensors("matrix_transpose", x)
    if x.meta.ndim < 2:
        raise ShapeError(f"matrix_transpose: takes two axes or more, not shape {list(x.meta.shape)}")
    return ops.transpose(x, -2, -1)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sums of products over axes of both tensors.

    Args:
        x1: Tensor.
        x2: Tensor.
        axes: How many of the last axes of `x1` and the first of `x2` to sum over, or the axes of both.

    Returns:
        Tensor with the other axes of `x1`, then those of `x2`.

    Example:
        >>> wg.array_api.tensordot(wg.ones(2, 3), wg.ones(3, 4), axes=1).shape
        weftgrad.Size([2, 4])
    """
    first, second = promote_tensors("tensordot", x1, x2)
    return contractions.tensordot(first, second, axes if isinstance(axes, int) else [list(part) for part in axes])


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the scalar products of vectors along an axis.

    Args:
        x1: Tensor.
        x2: Tensor whose shape broadcasts with that of `x1`, and has the same size along the axis.
        axis: The axis, counted from the end: it is negative.

    Returns:
        Tensor without the axis.

    Raises:
        ShapeError: The sizes along the axis differ.

    Example:
        >>> wg.array_api.vecdot(wg.tensor([1, 2]), wg.tensor([3, 4]))
        tensor(11)
    """
    first, second = promote_tensors("vecdot", x1, x2)
    if first.meta.shape[axis] != second.meta.shape[axis]:
        raise ShapeError(
            f"vecdot: sizes along axis {axis} of shapes {list(x1.meta.shape)} and {list(x2.meta.shape)} differ"
        )
    # A product of matrices computes in the tensors' dtype and broadcasts the other axes.
    rows, columns = reshaping.movedim(first, axis, -1), reshaping.movedim(second, axis, -1)
    return products.matmul(rows.unsqueeze(-2), columns.unsqueeze(-1)).squeeze((-2, -1))
