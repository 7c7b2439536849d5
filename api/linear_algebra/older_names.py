"""Linear algebra under PyTorch's names from before `torch.linalg`: functions of the namespace, methods of Tensor."""

from __future__ import annotations

from ..arguments.out import copy_to_out
from ..runtime.tensor import Tensor
from . import factorizations, solving
from .determinants import det, logdet, slogdet
from .factorizations import lu_unpack
from .solving import cholesky_inverse, cholesky_solve

__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu_solve", "lu_unpack", "slogdet",
]  # fmt: skip


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


METHODS = {
    "cholesky": cholesky, "cholesky_inverse": cholesky_inverse, "cholesky_solve": cholesky_solve, "det": det,
    "inverse": inverse, "logdet": logdet, "lu_solve": lu_solve, "slogdet": slogdet,
}  # fmt: skip
