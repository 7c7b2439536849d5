"""What follows from singular values: ranks, condition numbers, pseudoinverses."""

from __future__ import annotations

import math
from typing import Any

from .._generated import ops
from ..arguments.out import copy_to_out
from ..autograd.function import Function, FunctionCtx
from ..creation import factories
from ..pointwise import comparison
from ..runtime import dtypes, views
from ..runtime.tensor import Tensor
from .matrix_batches import check_matrices, to_batch, transpose
from .products import matmul
from .spectra import eigh, eigvalsh, svd, svdvals

__all__ = ["matrix_rank", "pinv"]

_EPSILON = {dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}


def _threshold(A: Tensor, values: Tensor, atol: Any, rtol: Any) -> Tensor:
    """Return max(atol, rtol times the greatest of `values` `(..., k)`), with a last dimension of size 1."""
    if rtol is None:
        has_absolute = isinstance(atol, Tensor) or (atol is not None and atol > 0)
        rtol = 0.0 if has_absolute else _EPSILON[A.meta.dtype] * max(A.meta.shape[-2:])
    largest = ops.amax(values, -1, True)
    absolute, relative = (ops.unsqueeze(x, -1) if isinstance(x, Tensor) else x for x in (atol or 0.0, rtol))
    return ops.maximum(ops.mul(largest, relative), factories.full_like(largest, 0.0).add(absolute))


def matrix_rank(
    A: Tensor, tol: float | Tensor | None = None, hermitian: bool = False, *, atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the number of singular values above max(atol, rtol times the greatest). The call waits for the device.

    Args:
        A: Matrices `(..., m, n)`, float32 or float64.
        tol: The same as `atol`, NumPy's name.
        hermitian: Whether the matrices are symmetric: magnitudes of eigenvalues are counted.
        atol: Absolute threshold; default 0.
        rtol: Relative threshold; by default the spacing of floats at 1 times max(m, n), or 0 if `atol` is positive.
        out: Tensor to write the result to.

    Returns:
        int64 tensor of shape `(...)`.

    Raises:
        LinAlgError: `A` has elements that are not finite.
        ShapeError: `A` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.matrix_rank(wg.tensor([[1.0, 2.0], [2.0, 4.0]]))
        tensor(1)
    """
    check_matrices("linalg.matrix_rank", hermitian, A=A)
    A = A.detach()
    if not A.meta.numel:
        rank = factories.zeros(A.meta.shape[:-2], dtype=dtypes.int64, device=A.meta.device)
    else:
        values = ops.abs(eigvalsh(A)) if hermitian else svdvals(A)
        rank = ops.sum(ops.gt(values, _threshold(A, values, tol if atol is None else atol, rtol)), -1)
    return rank if out is None else copy_to_out(rank, out, "linalg.matrix_rank")


class _PseudoInverse(Function):
    """The pseudoinverse of `(B, m, n)`: singular values up to a threshold count as 0."""

    @staticmethod
    def forward(ctx: FunctionCtx, A: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
        if hermitian:
            values, vectors = eigh(A)
            left, right, magnitudes = vectors, transpose(vectors), ops.abs(values)
        else:
            left, values, right = svd(A, False)
            magnitudes = values
        is_kept = ops.gt(magnitudes, _threshold(A, magnitudes, atol, rtol))
        inverted = comparison.where(is_kept, ops.reciprocal(values), 0.0)
        inverse = matmul(ops.mul(transpose(right), ops.unsqueeze(inverted, -2)), transpose(left))
        ctx.save_for_backward(A, inverse)
        return inverse

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        """Return -P^T G P^T + (I - A P) G^T P P^T + P^T P G^T (I - P A) (Golub and Pereyra 1973, equation 4.12)."""
        saved: Any = ctx.saved_tensors
        (A, P), (G,) = saved, grads
        if G is None:
            return None, None, None, None
        adjoint = transpose(P)
        first = matmul(matmul(adjoint, G), adjoint)
        second = matmul(matmul(transpose(G), P), adjoint)
        second = ops.sub(second, matmul(A, matmul(P, second)))
        third = matmul(matmul(adjoint, P), transpose(G))
        third = ops.sub(third, matmul(matmul(third, P), A))
        return ops.sub(ops.add(second, third), first), None, None, None


def pinv(
    A: Tensor, rcond: float | Tensor | None = None, hermitian: bool = False, *, atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the pseudoinverse (Moore-Penrose) of matrices. The call waits for the device.

    Args:
        A: Matrices `(..., m, n)`, float32 or float64.
        rcond: The same as `rtol`, NumPy's name.
        hermitian: Whether the matrices are symmetric.
        atol: Singular values up to max(atol, rtol times the greatest) count as 0; default 0.
        rtol: By default the spacing of floats at 1 times max(m, n), or 0 if `atol` is positive.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(..., n, m)`.

    Raises:
        LinAlgError: `A` has elements that are not finite.
        ShapeError: `A` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.pinv(wg.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    check_matrices("linalg.pinv", hermitian, A=A)
    *lead, m, n = A.meta.shape
    if not A.meta.numel:
        inverse = factories.zeros((*lead, n, m), dtype=A.meta.dtype, device=A.meta.device)
    else:
        count = math.prod(lead)
        thresholds = (
            views.reshape(ops.expand(x, tuple(lead)), (count,)) if isinstance(x, Tensor) else x
            for x in (atol, rcond if rtol is None else rtol)
        )
        inverse = views.reshape(_PseudoInverse.apply(to_batch(A), *thresholds, hermitian), (*lead, n, m))
    return inverse if out is None else copy_to_out(inverse, out, "linalg.pinv")
