"""Singular values and vectors, and eigenvalues and eigenvectors of symmetric matrices, by one-sided Jacobi rotations.

The op `orthogonalize_rows` rotates the rows of a matrix until they are orthogonal: W = G A. Then the lengths of the
rows of W are the singular values of A, and A = G^T W has the singular vectors (Golub and Van Loan, Matrix
Computations, section 8.6.3). For a symmetric A, A + c I with c = ||A|| is positive semidefinite, so that its singular
vectors are the eigenvectors of A.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._generated import ops
from ..arguments.out import copy_to_out
from ..autograd.function import Function, FunctionCtx
from ..creation import factories, sequences
from ..pointwise import comparison
from ..reductions.sorting import sort_along
from ..runtime import views
from ..runtime.errors import ArgumentError, LinAlgError
from ..runtime.tensor import Tensor
from ..shape import joining
from .matrix_batches import call_multiple, check_matrices, copy_results, to_batch, transpose
from .products import matmul
from .triangles import tril, triu

__all__ = ["SVDResult", "eigh", "eigvalsh", "svd", "svdvals"]


class EighResult(NamedTuple):
    """The eigenvalues and eigenvectors that `eigh` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """The singular vectors and values that `svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _take_rows(matrices: Tensor, rows: Tensor) -> Tensor:
    """Return rows of matrices `(B, n, m)` in the order `rows` `(B, k)`."""
    index = ops.expand(ops.unsqueeze(rows, -1), (*rows.meta.shape, matrices.meta.shape[-1]))
    return ops.gather(matrices, 1, index)


def _identity_like(matrices: Tensor) -> Tensor:
    return factories.eye(matrices.meta.shape[-1], dtype=matrices.meta.dtype, device=matrices.meta.device)


def _or_one(scale: Tensor) -> Tensor:
    """Return `scale` with 1 in place of 0."""
    return comparison.where(ops.eq(scale, 0), 1.0, scale)


def _orthogonal_rows(matrices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the singular values of `(B, n, m)`, n <= m, from the greatest; unit rows, or zero rows; and G."""
    scale = _or_one(ops.amax(ops.abs(matrices), (1, 2), True))  # squares neither overflow nor vanish
    rows, rotation = call_multiple("orthogonalize_rows", ops.true_divide(matrices, scale))
    lengths = ops.sqrt(ops.sum(ops.mul(rows, rows), 2))
    lengths, order = sort_along(lengths, 1, True)
    rows, rotation = _take_rows(rows, order), _take_rows(rotation, order)
    unit_rows = ops.true_divide(rows, ops.unsqueeze(_or_one(lengths), -1))
    return ops.mul(lengths, ops.squeeze(scale, -1)), unit_rows, rotation


def _complete_rows(unit_rows: Tensor, rank: Tensor, count: int) -> Tensor:
    """Return `count` orthonormal rows: the first `rank` `(B,)` ones, and others that are orthogonal to them.

    The rows of the projector to the rest of the space, made orthogonal, are a basis of that.
    """
    projector = ops.sub(_identity_like(unit_rows), matmul(transpose(unit_rows), unit_rows))
    _, basis, _ = _orthogonal_rows(projector)
    position = sequences.arange(count, device=unit_rows.meta.device)
    rank = ops.unsqueeze(rank, -1)
    further = _take_rows(basis, ops.clamp_min(ops.sub(position, rank), 0))
    batch, k, n = unit_rows.meta.shape
    zeros = factories.zeros(batch, count - k, n, dtype=unit_rows.meta.dtype, device=unit_rows.meta.device)
    padded = joining.cat([unit_rows, zeros], 1) if count > k else unit_rows
    return comparison.where(ops.unsqueeze(ops.lt(position, rank), -1), padded, further)


def _decompose(matrices: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, S and Vh of `(B, m, n)`."""
    m, n = matrices.meta.shape[1:]
    is_tall = m > n
    values, unit_rows, rotation = _orthogonal_rows(transpose(matrices) if is_tall else matrices)
    rank = ops.sum(ops.gt(values, 0), 1)
    count = max(m, n) if full else min(m, n)
    if count > min(m, n) or _is_any_below(rank, min(m, n)):
        unit_rows = _complete_rows(unit_rows, rank, count)
    if is_tall:
        return transpose(unit_rows), values, rotation
    return transpose(rotation), values, unit_rows


def _is_any_below(rank: Tensor, count: int) -> bool:
    return rank.meta.device.type != "meta" and bool(ops.any(ops.lt(rank, count)).item())


class _SVD(Function):
    """The thin decomposition of `(B, m, n)`; `full` adds the further singular vectors, which get no gradient."""

    @staticmethod
    def forward(ctx: FunctionCtx, A: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
        U, S, Vh = _decompose(A, full)
        ctx.set_materialize_grads(False)  # zeros over gaps of equal singular values would be NaN
        ctx.save_for_backward(U, S, Vh)
        return U, S, Vh

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        """Return U [(skew(U^T gU) / E) S + S (skew(V^T gV) / E) + diag(gS)] V^T and the parts beyond k dimensions.

        E[i, j] = S[j]^2 - S[i]^2 (Townsend, "Differentiating the singular value decomposition", 2016).
        """
        saved: Any = ctx.saved_tensors
        U, S, Vh = saved
        grad_U, grad_S, grad_Vh = grads
        k = S.meta.shape[1]
        U, Vh = ops.narrow(U, 2, 0, k), ops.narrow(Vh, 1, 0, k)
        squares = ops.mul(S, S)
        gaps = ops.sub(ops.unsqueeze(squares, 1), ops.unsqueeze(squares, 2))
        gaps = ops.add(gaps, factories.eye(k, dtype=S.meta.dtype, device=S.meta.device))
        columns, rows = ops.unsqueeze(S, 1), ops.unsqueeze(S, 2)
        inner = ops.mul(
            factories.eye(k, dtype=S.meta.dtype, device=S.meta.device),
            ops.unsqueeze(grad_S, 2) if grad_S is not None else 0.0,
        )
        outer = None
        if grad_U is not None:
            grad_U = ops.narrow(grad_U, 2, 0, k)
            product = matmul(transpose(U), grad_U)
            inner = ops.add(inner, ops.mul(ops.true_divide(ops.sub(product, transpose(product)), gaps), columns))
            if U.meta.shape[1] > k:
                rest = ops.true_divide(ops.sub(grad_U, matmul(U, product)), columns)
                outer = matmul(rest, Vh)
        if grad_Vh is not None:
            grad_Vh = ops.narrow(grad_Vh, 1, 0, k)
            product = matmul(Vh, transpose(grad_Vh))
            inner = ops.add(inner, ops.mul(ops.true_divide(ops.sub(product, transpose(product)), gaps), rows))
            if Vh.meta.shape[2] > k:
                rest = ops.true_divide(ops.sub(grad_Vh, matmul(transpose(product), Vh)), rows)
                part = matmul(U, rest)
                outer = part if outer is None else ops.add(outer, part)
        gradient = matmul(matmul(U, inner), Vh)
        return gradient if outer is None else ops.add(gradient, outer), None


class _Eigh(Function):
    """Eigenvalues and eigenvectors of symmetric `(B, n, n)`, of which one triangle is read."""

    @staticmethod
    def forward(ctx: FunctionCtx, A: Tensor, upper: bool) -> tuple[Tensor, Tensor]:
        triangle = triu(A, 1) if upper else tril(A, -1)
        identity = _identity_like(A)
        symmetric = ops.add(ops.add(triangle, transpose(triangle)), ops.mul(A, identity))
        scale = _or_one(ops.amax(ops.abs(symmetric), (1, 2), True))
        symmetric = ops.true_divide(symmetric, scale)
        shift = ops.sqrt(ops.sum(ops.mul(symmetric, symmetric), (1, 2), True))
        _, _, vectors = _orthogonal_rows(ops.add(symmetric, ops.mul(identity, shift)))
        values = ops.sum(ops.mul(matmul(vectors, symmetric), vectors), 2)  # more accurate than length - shift
        values, order = sort_along(values, 1, False)
        values, vectors = ops.mul(values, ops.squeeze(scale, -1)), transpose(_take_rows(vectors, order))
        ctx.set_materialize_grads(False)  # zeros over gaps of equal eigenvalues would be NaN
        ctx.save_for_backward(values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        """Return V (diag(g) + skew(V^T gV) / 2E) V^T, E[i, j] = values[j] - values[i] (Giles 2008, section 3.1)."""
        saved: Any = ctx.saved_tensors
        values, vectors = saved
        grad_values, grad_vectors = grads
        identity = _identity_like(vectors)
        inner = ops.mul(identity, ops.unsqueeze(grad_values, 2) if grad_values is not None else 0.0)
        if grad_vectors is not None:
            gaps = ops.add(ops.sub(ops.unsqueeze(values, 1), ops.unsqueeze(values, 2)), identity)
            product = matmul(transpose(vectors), grad_vectors)
            halved = ops.mul(ops.sub(product, transpose(product)), 0.5)  # so that the gradient is symmetric
            inner = ops.add(inner, ops.true_divide(halved, gaps))
        return matmul(matmul(vectors, inner), transpose(vectors)), None


def _check_finite(where: str, A: Tensor) -> None:
    if A.meta.device.type != "meta" and not bool(ops.all(ops.isfinite(A)).item()):
        raise LinAlgError(
            f"{where}: The algorithm failed to converge because the input matrix contained non-finite values."
        )


def _svd(where: str, A: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, S and Vh of `(..., m, n)`."""
    check_matrices(where, False, A=A)
    *lead, m, n = A.meta.shape
    k = min(m, n)
    if not A.meta.numel:
        options: dict[str, Any] = {"dtype": A.meta.dtype, "device": A.meta.device}
        U, Vh = (factories.eye(size, **options) for size in ((m, n) if full else (k, k)))
        if not full:
            U, Vh = factories.zeros(m, k, **options), factories.zeros(k, n, **options)
        return (
            U.expand((*lead, *U.meta.shape)),
            factories.zeros((*lead, k), **options),
            Vh.expand((*lead, *Vh.meta.shape)),
        )
    _check_finite(where, A)
    U, S, Vh = _SVD.apply(to_batch(A), full)
    return tuple(views.reshape(x, (*lead, *x.meta.shape[1:])) for x in (U, S, Vh))  # type: ignore[return-value]


def svd(
    A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Sequence[Tensor] | None = None
) -> SVDResult:
    """Return the singular value decomposition, A = U diag(S) Vh.

    The signs of singular vectors are arbitrary, as are the vectors of equal singular values; their gradients then are
    infinite or NaN. The call waits for the device.

    Args:
        A: Matrices `(..., m, n)`, float32 or float64.
        full_matrices: Whether U and Vh are square; the further vectors get no gradient.
        driver: Accepted for compatibility with PyTorch.
        out: Three tensors to write the results to.

    Returns:
        `U` `(..., m, m)` or `(..., m, k)`, `S` `(..., k)` from the greatest, `Vh` `(..., n, n)` or `(..., k, n)`;
        k = min(m, n).

    Raises:
        LinAlgError: `A` has elements that are not finite.
        ShapeError: `A` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.svd(wg.tensor([[3.0, 0.0], [0.0, 4.0]])).S
        tensor([4., 3.])
    """
    results = _svd("linalg.svd", A, full_matrices)
    return SVDResult(*(results if out is None else copy_results("linalg.svd", results, out)))


def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """Return the singular values of matrices, from the greatest. The call waits for the device.

    Args:
        A: Matrices `(..., m, n)`, float32 or float64.
        driver: Accepted for compatibility with PyTorch.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(..., min(m, n))`.

    Raises:
        LinAlgError: `A` has elements that are not finite.
        ShapeError: `A` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.svdvals(wg.tensor([[3.0, 0.0], [0.0, 4.0]]))
        tensor([4., 3.])
    """
    _, values, _ = _svd("linalg.svdvals", A, False)
    return values if out is None else copy_to_out(values, out, "linalg.svdvals")


def _eigh(where: str, A: Tensor, uplo: str) -> tuple[Tensor, Tensor]:
    check_matrices(where, True, A=A)
    if uplo not in ("L", "U"):
        raise ArgumentError(f"{where}: expected UPLO argument to be 'L' or 'U', but got {uplo!r}")
    if not A.meta.numel:
        return factories.zeros(A.meta.shape[:-1], dtype=A.meta.dtype, device=A.meta.device), A.clone()
    values, vectors = _Eigh.apply(to_batch(A), uplo == "U")
    return views.reshape(values, A.meta.shape[:-1]), views.reshape(vectors, A.meta.shape)


def eigh(A: Tensor, UPLO: str = "L", *, out: Sequence[Tensor] | None = None) -> EighResult:
    """Return eigenvalues and eigenvectors of symmetric matrices, A = V diag(L) V^T.

    The signs of eigenvectors are arbitrary, as are the vectors of equal eigenvalues; their gradients then are infinite
    or NaN.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64, of which one triangle is read.
        UPLO: Which triangle: "L", the lower one, or "U".
        out: Two tensors to write the results to.

    Returns:
        `eigenvalues` `(..., n)`, from the least, and `eigenvectors` `(..., n, n)`, whose columns are the vectors.

    Raises:
        ArgumentError: `UPLO` is unknown.
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.eigh(wg.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        tensor([1., 2.])
    """
    results = _eigh("linalg.eigh", A, UPLO)
    return EighResult(*(results if out is None else copy_results("linalg.eigh", results, out)))


def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """Return the eigenvalues of symmetric matrices, from the least.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64, of which one triangle is read.
        UPLO: Which triangle: "L", the lower one, or "U".
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(..., n)`.

    Raises:
        ArgumentError: `UPLO` is unknown.
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.eigvalsh(wg.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([1., 2.])
    """
    values, _ = _eigh("linalg.eigvalsh", A, UPLO)
    return values if out is None else copy_to_out(values, out, "linalg.eigvalsh")
