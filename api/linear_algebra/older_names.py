"""Linear algebra under PyTorch's names from before `torch.linalg`: functions of the namespace, methods of Tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..arguments.out import copy_to_out
from ..creation import factories
from ..runtime.tensor import Tensor
from . import factorizations, ranks, solving, spectra
from .determinants import det, logdet, slogdet
from .factorizations import lu_unpack
from .matrix_batches import copy_results, transpose
from .matrix_functions import householder_product, matrix_exp
from .solving import cholesky_inverse, cholesky_solve

__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu_solve", "lu_unpack", "matrix_exp",
    "orgqr", "pinverse", "slogdet", "svd",
]  # fmt: skip


orgqr = householder_product


class _SVDResult(NamedTuple):
    """The singular vectors and values that `svd` returns."""

    U: Tensor
    S: Tensor
    V: Tensor


def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the Cholesky factor of symmetric positive-definite matrices, as `linalg.cholesky` does.

    Args:
        input: Matrices `(..., n, n)`, float32 or float64.
        upper: Whether to return U, input = U^T U, and not L, input = L L^T.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        LinAlgError: A matrix is not positive-definite (a `RuntimeError`).
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.cholesky(wg.tensor([[4.0, 2.0], [2.0, 5.0]]), upper=True)
        tensor([[2., 1.],
                [0., 2.]])
    """
    return factorizations.cholesky(input, upper=upper, out=out)


def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse of square matrices, as `linalg.inv` does.

    Args:
        input: Matrices `(..., n, n)`, float32 or float64.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        LinAlgError: A matrix is singular (a `RuntimeError`).
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.inverse(wg.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    return solving.inv(input, out=out)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the solution X of A X = b from the factorization of A, as `linalg.lu_solve` does.

    Args:
        b: Right-hand sides `(..., n, k)`. Batches broadcast.
        LU_data: Packed factors `(..., n, n)` from `linalg.lu_factor`.
        LU_pivots: Pivots `(..., n)`, int32.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `b`, with the broadcast batch.

    Raises:
        ArgumentError: The pivots are not int32.
        ShapeError: The shapes do not fit.
        DTypeError: The dtypes differ, or are neither float32 nor float64.

    Example:
        >>> wg.lu_solve(wg.tensor([[2.0], [9.0]]), *wg.linalg.lu_factor(wg.tensor([[2.0, 0.0], [1.0, 4.0]])))
        tensor([[1.],
                [2.]])
    """
    solution = solving.lu_solve(LU_data, LU_pivots, b)
    return solution if out is None else copy_to_out(solution, out, "lu_solve")


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """Return the pseudoinverse (Moore-Penrose) of matrices, as `linalg.pinv` does.

    Args:
        input: Matrices `(..., m, n)`, float32 or float64.
        rcond: Singular values up to `rcond` times the greatest count as 0.

    Returns:
        Tensor of shape `(..., n, m)`.

    Raises:
        LinAlgError: `input` has elements that are not finite.
        ShapeError: `input` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.pinverse(wg.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    return ranks.pinv(input, rtol=rcond)


def svd(
    input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Sequence[Tensor] | None = None
) -> _SVDResult:
    """Return the singular value decomposition, input = U diag(S) V^T. `linalg.svd` returns V^T.

    Args:
        input: Matrices `(..., m, n)`, float32 or float64.
        some: Whether U and V have min(m, n) columns; else they are square.
        compute_uv: Whether to compute U and V; without it they are square and zero.
        out: Three tensors to write the results to.

    Returns:
        `U`, `S`, from the greatest, and `V`.

    Raises:
        LinAlgError: `input` has elements that are not finite.
        ShapeError: `input` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.svd(wg.tensor([[3.0, 0.0], [0.0, 4.0]])).S
        tensor([4., 3.])
    """
    if compute_uv:
        U, S, Vh = spectra.svd(input, not some)
        results = U, S, transpose(Vh)
    else:
        S = spectra.svdvals(input)
        *lead, m, n = input.meta.shape
        U, V = (factories.zeros(*lead, k, k, dtype=S.meta.dtype, device=S.meta.device) for k in (m, n))
        results = U, S, V
    return _SVDResult(*(results if out is None else copy_results("svd", results, out)))


METHODS = {
    "cholesky": cholesky, "cholesky_inverse": cholesky_inverse, "cholesky_solve": cholesky_solve, "det": det,
    "inverse": inverse, "logdet": logdet, "lu_solve": lu_solve, "matrix_exp": matrix_exp, "orgqr": orgqr,
    "pinverse": pinverse,
    "slogdet": slogdet, "svd": svd,
}  # fmt: skip
