"""Least squares by pseudoinverses and by QR factorizations."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._generated import ops
from ..creation import factories
from ..runtime import dtypes
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from .matrix_batches import check_matrices, transpose
from .orthogonalization import qr
from .products import matmul
from .ranks import matrix_rank, pinv
from .solving import solve_triangular
from .spectra import svdvals

__all__ = ["LstsqResult", "lstsq"]

_DRIVERS = ("gelsy", "gels", "gelsd", "gelss")


class LstsqResult(NamedTuple):
    """The solution that `lstsq` returns, with its residuals, and ranks and singular values of the matrices."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LstsqResult:
    """Return the X that minimizes the norm of A X - B; if several do, the one of the smallest norm.

    Derivatives hold where the rank does not change. The call waits for the device, except with the driver "gels".

    Args:
        A: Matrices `(..., m, n)`, float32 or float64.
        B: Right-hand sides `(..., m, k)`, or vectors `(..., m)` with the batch of `A`. Batches broadcast.
        rcond: Singular values up to `rcond` times the greatest count as 0; by default the spacing of floats at 1 times
            max(m, n).
        driver: "gels": by a QR factorization, for matrices of full rank. "gelsy", "gelsd" and "gelss": by singular
            values. None: "gelsy". LAPACK's names, which say here which results are computed.

    Returns:
        `solution` `(..., n, k)` or `(..., n)`; `residuals` `(..., k)`, the squared norms of the columns of A X - B,
        empty unless m > n, all ranks are n and the driver is not "gelsy"; `rank` `(...)` int64, empty for "gels";
        `singular_values` `(..., min(m, n))`, empty for "gels" and "gelsy".

    Raises:
        ShapeError: Shapes do not fit.
        DTypeError: The dtype is neither float32 nor float64, or the dtypes differ.
        ArgumentError: `driver` is unknown.
        LinAlgError: `A` has elements that are not finite.

    Example:
        >>> wg.linalg.lstsq(wg.tensor([[2.0], [0.0]]), wg.tensor([[1.0], [3.0]])).solution
        tensor([[0.5000]])
    """
    name = "linalg.lstsq"
    if driver is None:
        driver = "gelsy"
    if driver not in _DRIVERS:
        raise ArgumentError(f"{name}: driver is one of {', '.join(_DRIVERS)}, not {driver!r}")
    has_vectors = (
        isinstance(A, Tensor) and isinstance(B, Tensor) and A.meta.ndim >= 2 and B.meta.shape == A.meta.shape[:-1]
    )
    right = ops.unsqueeze(B, -1) if has_vectors else B
    check_matrices(name, False, A=A, B=right)
    m, n = A.meta.shape[-2:]
    if right.meta.shape[-2] != m:
        raise ShapeError(
            f"{name}: A of shape {list(A.meta.shape)} takes B of shape (..., {m}, k), or vectors (..., {m}), not "
            f"{list(B.meta.shape)}"
        )
    options: dict[str, Any] = {"dtype": A.meta.dtype, "device": A.meta.device}
    residuals, singular_values = factories.empty(0, **options), factories.empty(0, **options)
    rank = factories.empty(0, dtype=dtypes.int64, device=A.meta.device)
    if driver == "gels":
        Q, R = qr(A if m >= n else transpose(A))
        if m >= n:
            solution = solve_triangular(R, matmul(transpose(Q), right), upper=True)
        else:
            solution = matmul(Q, solve_triangular(transpose(R), right, upper=False))
    else:
        solution = matmul(pinv(A, rtol=rcond), right)
        rank = matrix_rank(A, rtol=rcond)
        if driver != "gelsy":
            singular_values = svdvals(A.detach())
    if m > n and driver != "gelsy" and (driver == "gels" or all(r == n for r in rank.reshape(-1).tolist())):
        residuals = ops.sum(ops.square(ops.sub(matmul(A, solution), right)), -2)
    solution = ops.squeeze(solution, -1) if has_vectors else solution
    return LstsqResult(solution, residuals, rank, singular_values)
