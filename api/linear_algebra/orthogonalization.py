"""QR factorization of matrices by Householder reflections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._generated import ops
from ..autograd.function import Function, FunctionCtx
from ..creation import factories
from ..runtime import views
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape import joining
from .matrix_batches import check_matrices, copy_results, to_batch, transpose
from .products import matmul
from .triangles import tril, triu

__all__ = ["QRResult", "qr"]


class QRResult(NamedTuple):
    """The factors that `qr` returns."""

    Q: Tensor
    R: Tensor


class _QR(Function):
    """The factors of `(B, m, n)`, with `columns` columns of Q."""

    @staticmethod
    def forward(ctx: FunctionCtx, A: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        results: Any = call(registry["qr_factorize"], (A,), (columns,))
        Q, packed, _ = results
        R = triu(ops.narrow(packed, 1, 0, columns))
        ctx.save_for_backward(Q, R)
        return Q, R

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        """Return (gQ + Q copyltu(R gR^T - gQ^T Q)) R^-T (Seeger et al., "Auto-differentiating linear algebra", 2017).

        copyltu(M) is the symmetric matrix with the lower triangle of M. The columns of A beyond the m-th are Q R.
        """
        saved: Any = ctx.saved_tensors
        (Q, R), (grad_Q, grad_R) = saved, grads
        (m, k), n = Q.meta.shape[1:], R.meta.shape[2]
        if k > n:
            raise GradientError(
                "linalg.qr: the factors of mode='complete' have no gradient if there are more rows than columns; use "
                "mode='reduced'"
            )
        further = None
        if n > m:
            R, beyond = ops.narrow(R, 2, 0, m), ops.narrow(R, 2, m, n - m)
            grad_R, grad_beyond = ops.narrow(grad_R, 2, 0, m), ops.narrow(grad_R, 2, m, n - m)
            grad_Q = ops.add(grad_Q, matmul(matmul(Q, beyond), transpose(grad_beyond)))
            further = matmul(Q, grad_beyond)
        product = ops.sub(matmul(R, transpose(grad_R)), matmul(transpose(grad_Q), Q))
        symmetric = ops.add(tril(product), transpose(tril(product, -1)))
        right = ops.add(grad_Q, matmul(Q, symmetric))
        gradient = transpose(call(registry["triangle_solve"], (R, transpose(right)), (False, False)))
        return gradient if further is None else joining.cat([gradient, further], 2), None


def qr(A: Tensor, mode: str = "reduced", *, out: Sequence[Tensor] | None = None) -> QRResult:
    """Return the QR factorization, A = Q R, by Householder reflections.

    Args:
        A: Matrices `(..., m, n)`, float32 or float64.
        mode: "reduced": Q has k = min(m, n) columns; "complete": m columns; "r": Q has no elements.
        out: Two tensors to write the results to.

    Returns:
        `Q` `(..., m, k)` or `(..., m, m)`, whose columns are orthonormal, and `R` `(..., k, n)` or `(..., m, n)`, upper
        triangular. Elements of its diagonal may be negative.

    Raises:
        ArgumentError: `mode` is unknown.
        ShapeError: `A` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.qr(wg.tensor([[3.0, 1.0], [4.0, 2.0]])).R
        tensor([[-5.0000, -2.2000],
                [ 0.0000,  0.4000]])
    """
    check_matrices("linalg.qr", False, A=A)
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"linalg.qr: mode is 'reduced', 'complete' or 'r', not {mode!r}")
    *lead, m, n = A.meta.shape
    columns = m if mode == "complete" else min(m, n)
    options: dict[str, Any] = {"dtype": A.meta.dtype, "device": A.meta.device}
    if A.meta.numel:
        Q, R = (views.reshape(x, (*lead, *x.meta.shape[1:])) for x in _QR.apply(to_batch(A), columns))
    else:
        Q = factories.eye(m, columns, **options).expand((*lead, m, columns))
        R = factories.zeros((*lead, columns, n), **options)
    if mode == "r":
        Q = factories.empty(0, **options)
    return QRResult(*((Q, R) if out is None else copy_results("linalg.qr", (Q, R), out)))
