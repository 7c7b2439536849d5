"""The extension `linalg` of the array API standard: those of its functions that exist."""

from __future__ import annotations

from .. import linalg
from .._generated import ops
from ..linear_algebra import matrix_batches, special_products
from ..linear_algebra.determinants import SlogdetResult
from ..linear_algebra.orthogonalization import QRResult
from ..linear_algebra.spectra import EighResult, SVDResult
from ..pointwise import composites
from ..runtime.dtypes import DType
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from ._linear_algebra import matmul, matrix_transpose, promote_tensors, tensordot, vecdot
from ._operands import Axes, check_tensors

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return the Cholesky factors L of symmetric positive-definite matrices, x = L L^T.

    Args:
        x: Tensor of shape `(..., M, M)`, float32 or float64.
        upper: Whether to return L^T.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        LinAlgError: A matrix is not positive-definite.
        ShapeError: The matrices are not square.

    Example:
        >>> wg.array_api.linalg.cholesky(wg.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]])
    """
    check_tensors("cholesky", x)
    return linalg.cholesky(x, upper=upper)


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


def det(x: Tensor, /) -> Tensor:
    """Return the determinants of square matrices.

    Args:
        x: Tensor of shape `(..., M, M)`, float32 or float64.

    Returns:
        Tensor of shape `(...)`.

    Raises:
        ShapeError: The matrices are not square.

    Example:
        >>> wg.array_api.linalg.det(wg.tensor([[2.0, 1.0], [1.0, 3.0]]))
        tensor(5.)
    """
    check_tensors("det", x)
    return linalg.det(x)


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


def eigh(x: Tensor, /) -> EighResult:
    """Return eigenvalues and eigenvectors of symmetric matrices.

    Args:
        x: Tensor of shape `(..., M, M)`, float32 or float64, of which the lower triangle is read.

    Returns:
        `eigenvalues` `(..., M)`, from the least, and `eigenvectors` `(..., M, M)`, whose columns are the vectors.

    Raises:
        ShapeError: The matrices are not square.

    Example:
        >>> wg.array_api.linalg.eigh(wg.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        tensor([1., 2.])
    """
    check_tensors("eigh", x)
    return linalg.eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """Return the eigenvalues of symmetric matrices, from the least.

    Args:
        x: Tensor of shape `(..., M, M)`, float32 or float64, of which the lower triangle is read.

    Returns:
        Tensor of shape `(..., M)`.

    Raises:
        ShapeError: The matrices are not square.

    Example:
        >>> wg.array_api.linalg.eigvalsh(wg.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([1., 2.])
    """
    check_tensors("eigvalsh", x)
    return linalg.eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """Return the inverses of square matrices.

    Args:
        x: Tensor of shape `(..., M, M)`, float32 or float64.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        LinAlgError: A matrix is singular.
        ShapeError: The matrices are not square.

    Example:
        >>> wg.array_api.linalg.inv(wg.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    check_tensors("inv", x)
    return linalg.inv(x)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """Return norms of matrices.

    Args:
        x: Tensor of shape `(..., M, N)` and a floating dtype.
        keepdims: Whether the two axes stay, with size 1.
        ord: `fro`: the root of the sum of squares; 1 and -1: the greatest and the least sum of a column's absolute
            values; inf and -inf: of a row's; 2 and -2: the greatest and the least singular value; `nuc`: their sum.

    Returns:
        Tensor of shape `(...)`.

    Example:
        >>> wg.array_api.linalg.matrix_norm(wg.tensor([[3.0, 0.0], [0.0, 4.0]]))
        tensor(5.)
    """
    check_tensors("matrix_norm", x)
    return linalg.matrix_norm(x, "fro" if ord is None else ord, keepdim=keepdims)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return the number of singular values above `rtol` times the greatest.

    Args:
        x: Tensor of shape `(..., M, N)`, float32 or float64.
        rtol: Threshold, of shape `(...)`; by default the spacing of floats at 1 times max(M, N).

    Returns:
        int64 tensor of shape `(...)`.

    Raises:
        LinAlgError: `x` has elements that are not finite.

    Example:
        >>> wg.array_api.linalg.matrix_rank(wg.tensor([[1.0, 2.0], [2.0, 4.0]]))
        tensor(1)
    """
    check_tensors("matrix_rank", x)
    return linalg.matrix_rank(x, rtol=rtol)


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


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Return the pseudoinverses (Moore-Penrose) of matrices.

    Args:
        x: Tensor of shape `(..., M, N)`, float32 or float64.
        rtol: Singular values up to `rtol` times the greatest count as 0; by default the spacing of floats at 1 times
            max(M, N).

    Returns:
        Tensor of shape `(..., N, M)`.

    Raises:
        LinAlgError: `x` has elements that are not finite.

    Example:
        >>> wg.array_api.linalg.pinv(wg.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    check_tensors("pinv", x)
    return linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """Return the QR factorization, x = Q R.

    Args:
        x: Tensor of shape `(..., M, N)`, float32 or float64.
        mode: "reduced": Q has min(M, N) columns; "complete": M columns.

    Returns:
        `Q`, whose columns are orthonormal, and `R`, upper triangular.

    Raises:
        ArgumentError: `mode` is unknown.

    Example:
        >>> wg.array_api.linalg.qr(wg.tensor([[3.0, 1.0], [4.0, 2.0]])).R
        tensor([[-5.0000, -2.2000],
                [ 0.0000,  0.4000]])
    """
    check_tensors("qr", x)
    return linalg.qr(x, mode)


def slogdet(x: Tensor, /) -> SlogdetResult:
    """Return the signs of determinants, and the logarithms of their magnitudes.

    Args:
        x: Tensor of shape `(..., M, M)`, float32 or float64.

    Returns:
        `sign` and `logabsdet`, of shape `(...)`.

    Raises:
        ShapeError: The matrices are not square.

    Example:
        >>> wg.array_api.linalg.slogdet(wg.tensor([[0.0, 1.0], [1.0, 0.0]]))
        SlogdetResult(sign=tensor(-1.), logabsdet=tensor(0.))
    """
    check_tensors("slogdet", x)
    return linalg.slogdet(x)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the solutions of linear systems, x1 X = x2.

    Args:
        x1: Tensor of shape `(..., M, M)`, float32 or float64.
        x2: A vector `(M,)`, or a tensor of shape `(..., M, K)` whose other axes broadcast with those of `x1`.

    Returns:
        Tensor of shape `(..., M)` for a vector, else `(..., M, K)`.

    Raises:
        LinAlgError: A matrix is singular.
        ShapeError: The shapes do not fit.

    Example:
        >>> wg.array_api.linalg.solve(wg.tensor([[2.0, 0.0], [1.0, 4.0]]), wg.tensor([2.0, 9.0]))
        tensor([1., 2.])
    """
    first, second = promote_tensors("solve", x1, x2)
    if second.meta.ndim == 1:
        return linalg.solve(first, second.unsqueeze(-1)).squeeze(-1)
    lead = matrix_batches.leading_shape("solve", first, second)  # PyTorch takes (..., M) for vectors
    return linalg.solve(first.expand(*lead, *first.meta.shape[-2:]), second.expand(*lead, *second.meta.shape[-2:]))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Return the singular value decomposition, x = U diag(S) Vh.

    Args:
        x: Tensor of shape `(..., M, N)`, float32 or float64.
        full_matrices: Whether U and Vh are square.

    Returns:
        `U`, `S`, from the greatest, and `Vh`.

    Raises:
        LinAlgError: `x` has elements that are not finite.

    Example:
        >>> wg.array_api.linalg.svd(wg.tensor([[3.0, 0.0], [0.0, 4.0]])).S
        tensor([4., 3.])
    """
    check_tensors("svd", x)
    return linalg.svd(x, full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """Return the singular values of matrices, from the greatest.

    Args:
        x: Tensor of shape `(..., M, N)`, float32 or float64.

    Returns:
        Tensor of shape `(..., min(M, N))`.

    Raises:
        LinAlgError: `x` has elements that are not finite.

    Example:
        >>> wg.array_api.linalg.svdvals(wg.tensor([[3.0, 0.0], [0.0, 4.0]]))
        tensor([4., 3.])
    """
    check_tensors("svdvals", x)
    return linalg.svdvals(x)


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
