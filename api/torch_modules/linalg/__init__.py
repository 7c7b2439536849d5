"""Linear algebra under the names of `torch.linalg`: products, norms, factorizations and linear systems."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .._generated import ops
from ..arguments.out import copy_to_out
from ..arguments.types import Dims
from ..linear_algebra.determinants import det, slogdet
from ..linear_algebra.factorizations import cholesky, cholesky_ex, lu, lu_factor, lu_factor_ex
from ..linear_algebra.least_squares import lstsq
from ..linear_algebra.matrix_batches import check_matrices
from ..linear_algebra.matrix_functions import householder_product, matrix_exp
from ..linear_algebra.orthogonalization import qr
from ..linear_algebra.products import matmul
from ..linear_algebra.ranks import matrix_rank, pinv
from ..linear_algebra.solving import (
    inv,
    inv_ex,
    lu_solve,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from ..linear_algebra.special_products import cross as _cross
from ..linear_algebra.special_products import multi_dot
from ..linear_algebra.spectra import eigh, eigvalsh, svd, svdvals
from ..linear_algebra.vandermonde import powers_of
from ..pointwise.comparison import where
from ..pointwise.composites import matrix_power
from ..reductions.statistics import norm as _norm
from ..runtime import dtypes, layout, views
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import DomainError, DTypeError, LinAlgError, ShapeError
from ..runtime.overriding import add_functions
from ..runtime.tensor import Tensor
from ..shape import reshaping
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Return the cross product along `dim`, which has size 3; other dimensions broadcast.

    Args:
        input: Tensor with size 3 in dimension `dim`.
        other: Tensor with size 3 in dimension `dim`.
        dim: The dimension of the vectors.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.linalg.cross(wg.tensor([1, 0, 0]), wg.tensor([0, 1, 0]))
        tensor([0, 0, 1])
    """
    return _cross(input, other, dim, out=out)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return a view of the diagonal of two dimensions; the diagonal is its last dimension.

    Args:
        A: Tensor of at least 2 dimensions.
        offset: Diagonal: 0 is the main one, positive values lie above it.
        dim1: First dimension of the matrices.
        dim2: Second dimension of the matrices.

    Returns:
        A view of `A`.

    Example:
        >>> wg.linalg.diagonal(wg.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    return ops.diagonal(A, offset, dim1, dim2)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Return the dot products along `dim`; other dimensions broadcast.

    Args:
        x: Tensor of any dtype; integers and bool give int64.
        y: Tensor that broadcasts with `x`.
        dim: The dimension of the vectors.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape without `dim`.

    Example:
        >>> wg.linalg.vecdot(wg.tensor([[1, 2], [3, 4]]), wg.tensor([10, 1]))
        tensor([12, 34])
    """
    output = ops.sum(ops.mul(x, y), dim)
    return output if out is None else copy_to_out(output, out, "vecdot")


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Return the powers 0 to N - 1 along a new last dimension: `(..., n)` to `(..., n, N)`, with N = n by default.

    Args:
        x: Tensor of shape `(..., n)`; one without dimensions is a vector of one element. Not bool.
        N: Number of powers, at least 2; None: n.

    Returns:
        Tensor of shape `(..., n, N)`.

    Raises:
        DTypeError: If `x` is bool.
        ShapeError: If `N` is below 2, or None for an `x` without dimensions.

    Example:
        >>> wg.linalg.vander(wg.tensor([2, 3]), N=3)
        tensor([[1, 2, 4],
                [1, 3, 9]])
    """
    only_tensors("vander", x)
    if x.meta.dtype is dtypes.bool_:
        raise DTypeError("vander: does not take bool, as PyTorch does not; convert with .to(int64)")
    if N is None if not x.meta.ndim else N is not None and N < 2:
        raise ShapeError(f"vander: N must be 2 or more, got {N} for shape {list(x.meta.shape)}")
    if not x.meta.ndim:
        x = x.reshape(1)
    return powers_of(x, x.meta.shape[-1] if N is None else N)


def vector_norm(
    x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the vector norm (sum of |x| ** ord) ** (1 / ord) along `dim`.

    Args:
        x: Floating tensor.
        ord: Order; inf and -inf give the largest and smallest magnitude, 0 the number of nonzero elements.
        dim: Dimension or dimensions to reduce; None reduces all.
        keepdim: Whether to keep the reduced dimensions with size 1.
        dtype: Dtype to convert `x` to first.
        out: Tensor to write the result to.

    Returns:
        Tensor without the reduced dimensions, unless `keepdim`.

    Raises:
        DTypeError: The dtype is not floating (a `RuntimeError`).

    Example:
        >>> wg.linalg.vector_norm(wg.tensor([3.0, 4.0]))
        tensor(5.)
    """
    return _apply_to_floating("vector_norm", x, dtype, out, lambda x: _norm(x, ord, dim, keepdim))


def matrix_norm(
    A: Tensor, ord: float | str = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *,
    dtype: DTypeLike | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the norm of the matrices in two dimensions.

    Args:
        A: Floating tensor with at least two dimensions.
        ord: "fro" (root of the sum of squares), 1 or -1 (largest or smallest absolute column sum), inf or -inf (the
            same for rows), 2 or -2 (greatest or least singular value), "nuc" (sum of the singular values).
        dim: The two dimensions.
        keepdim: Whether to keep them with size 1.
        dtype: Dtype to convert `A` to first.
        out: Tensor to write the result to.

    Returns:
        Tensor without the two dimensions, unless `keepdim`.

    Raises:
        ShapeError: Fewer than two dimensions (a `RuntimeError`).
        DomainError: `ord` is unknown.
        DTypeError: The dtype is not floating.

    Example:
        >>> wg.linalg.matrix_norm(wg.tensor([[1.0, 2.0], [3.0, 4.0]]), 1)
        tensor(6.)
    """
    only_tensors("matrix_norm", A)
    if A.meta.ndim < 2 or len(tuple(dim)) != 2:
        raise ShapeError(f"matrix_norm: takes at least 2 dimensions, and two for dim, not {list(A.meta.shape)}, {dim}")
    if ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise DomainError(f"matrix_norm: ord is 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, not {ord!r}")
    rows, columns = (layout.normalize_dim(d, A.meta.ndim, "matrix_norm") for d in dim)
    return _apply_to_floating("matrix_norm", A, dtype, out, lambda A: _matrix_norm(A, ord, rows, columns, keepdim))


def _matrix_norm(A: Tensor, ord: float | str, rows: int, columns: int, keepdim: bool) -> Tensor:
    if ord == "fro":
        return _norm(A, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        values = svdvals(reshaping.movedim(A, (rows, columns), (-2, -1)))
        norms = ops.sum(values, -1) if ord == "nuc" else (ops.amax if ord == 2 else ops.amin)(values, -1)
        if keepdim:
            norms = views.reshape(norms, tuple(1 if d in (rows, columns) else n for d, n in enumerate(A.meta.shape)))
        return norms
    summed, remaining_dim = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = ops.sum(ops.abs(A), summed, True)
    norms = (ops.amax if float(ord) > 0 else ops.amin)(sums, remaining_dim, True)
    if keepdim:
        return norms
    return views.reshape(norms, tuple(n for d, n in enumerate(A.meta.shape) if d not in (rows, columns)))


def cond(A: Tensor, p: float | str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return the condition number of matrices: the norm of A times the norm of its inverse.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64; for `p` of None, 2 and -2 `(..., m, n)`.
        p: Order of the norm, as for `matrix_norm`. None is 2: the greatest singular value over the least.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(...)`; inf for singular matrices.

    Raises:
        LinAlgError: `A` has elements that are not finite, and `p` is None, 2 or -2.
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.cond(wg.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor(2.)
    """
    check_matrices("linalg.cond", p not in (None, 2, -2), A=A)
    if p in (None, 2, -2):
        values = svdvals(A)
        greatest, least = ops.select(values, -1, 0), ops.select(values, -1, -1)
        number = ops.true_divide(least, greatest) if p == -2 else ops.true_divide(greatest, least)
    else:
        inverse, info = inv_ex(A)
        product = ops.mul(matrix_norm(A, p), matrix_norm(inverse, p)) if p != "nuc" else _nuclear_condition(A)
        number = where(ops.eq(info, 0), product, math.inf)
    return number if out is None else copy_to_out(number, out, "linalg.cond")


def _nuclear_condition(A: Tensor) -> Tensor:
    """Return the sum of the singular values times that of their reciprocals: the inverse may not be finite."""
    values = svdvals(A)
    return ops.mul(ops.sum(values, -1), ops.sum(ops.reciprocal(values), -1))


def norm(
    A: Tensor, ord: float | str | None = None, dim: Dims = None, keepdim: bool = False, *,
    dtype: DTypeLike | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return `vector_norm` for one dimension or without `ord`, and `matrix_norm` for two dimensions.

    Args:
        A: Floating tensor.
        ord: Order; None: the root of the sum of squares.
        dim: Dimension or dimensions to reduce; None: all.
        keepdim: Whether to keep the reduced dimensions with size 1.
        dtype: Dtype to convert `A` to first.
        out: Tensor to write the result to.

    Returns:
        Tensor without the reduced dimensions, unless `keepdim`.

    Raises:
        ShapeError: `ord` is used with more than two dimensions (a `RuntimeError`).
        DTypeError: The dtype is not floating.

    Example:
        >>> wg.linalg.norm(wg.tensor([[3.0, 4.0], [6.0, 8.0]]), dim=1)
        tensor([ 5., 10.])
    """
    only_tensors("norm", A)
    dims = (dim,) if isinstance(dim, int) else None if dim is None else tuple(dim)
    if ord is None:
        return vector_norm(A, 2, dims, keepdim, dtype=dtype, out=out)
    count = A.meta.ndim if dims is None else len(dims)
    if count == 1 and not isinstance(ord, str):
        return vector_norm(A, ord, dims, keepdim, dtype=dtype, out=out)
    if count != 2:
        raise ShapeError(f"norm: ord={ord!r} is for one dimension or for two; name them by dim, not {dim}")
    return matrix_norm(A, ord, (0, 1) if dims is None else dims, keepdim, dtype=dtype, out=out)


def _apply_to_floating(
    where: str, x: Tensor, dtype: DTypeLike | None, out: Tensor | None, function: Callable[[Tensor], Tensor]
) -> Tensor:
    only_tensors(where, x)
    if x.meta.dtype.kind != "f":
        raise DTypeError(f"{where}: takes floating dtypes, not {x.meta.dtype.name}; convert with .float()")
    if dtype is not None:
        x = x.to(dtype)
    output = function(x)
    return output if out is None else copy_to_out(output, out, where)


add_functions({name: globals()[name] for name in __all__ if name != "LinAlgError"})
