"""Linear systems: solutions by LU, of triangular matrices and of Cholesky factors; inverses; tensors as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ..arguments.out import copy_to_out
from ..creation import factories
from ..runtime import views
from ..runtime.dispatch import call, is_recorded
from ..runtime.errors import ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape import reshaping
from ..tensor_methods.argument_checks import only_tensors
from .factorizations import permutation_of
from .matrix_batches import (
    call_multiple,
    check_matrices,
    copy_results,
    expand_batch,
    leading_shape,
    raise_on_failure,
    to_batch,
    transpose,
)

__all__ = [
    "cholesky_inverse", "cholesky_solve", "inv", "inv_ex", "lu_solve", "solve", "solve_ex", "solve_triangular",
    "tensorinv", "tensorsolve",
]  # fmt: skip


class InverseResult(NamedTuple):
    """The inverses and the codes that `inv_ex` returns."""

    inverse: Tensor
    info: Tensor


class SolveResult(NamedTuple):
    """The solutions and the codes that `solve_ex` returns."""

    result: Tensor
    info: Tensor


def _describe_inverse(position: int) -> str:
    return (
        f"The diagonal element {position} is zero, the inversion could not be completed because the input matrix is "
        "singular."
    )


def _describe_solution(position: int) -> str:
    return "The solver failed because the input matrix is singular."


def _check_sizes(where: str, A: Tensor, B: Tensor, left: bool) -> None:
    """Raise `ShapeError` unless B has as many rows (`left`) or columns as A."""
    n, (rows, columns) = A.meta.shape[-1], B.meta.shape[-2:]
    if (rows if left else columns) != n:
        equation = "AX = B" if left else "XA = B"
        raise ShapeError(
            f"{where}: incompatible shapes of A and B for the equation {equation} ({n}x{n} and {rows}x{columns}); B "
            f"must have {n} {'rows' if left else 'columns'}"
        )


def _solve(where: str, A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    """Return the solutions and the codes of the factorization of A."""
    only_tensors(where, A, B)
    is_vector = B.meta.ndim == 1 or (A.meta.ndim - 1 == B.meta.ndim and B.meta.shape == A.meta.shape[:-1])
    right = call(registry["unsqueeze"], (B,), (-1,)) if is_vector else B
    check_matrices(where, True, A=A, B=right)
    if is_vector and not left:
        raise ShapeError(f"{where}: a vector B solves AX = B; use left=True, or B.unsqueeze(-2)")
    _check_sizes(where, A, right, left)
    shape = A.meta.shape
    packed, _, permutation, info = call_multiple("lu_factorize", to_batch(A.detach()))
    lead = leading_shape(where, A, right)
    packed = expand_batch(views.reshape(packed, shape), lead)
    permutation = expand_batch(views.reshape(permutation, shape[:-1]), lead, 1)
    right = expand_batch(right if left else transpose(right), lead)
    solution = call(registry["factored_solve"], (expand_batch(A, lead), packed, permutation, right), (not left,))
    solution = views.reshape(solution, (*lead, *solution.meta.shape[1:]))
    if not left:
        solution = transpose(solution)
    if is_vector:
        solution = call(registry["squeeze"], (solution,), (-1,))
    return solution, views.reshape(info, shape[:-2])


def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """Return the solution X of the linear systems A X = B.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64.
        B: Right-hand sides `(..., n, k)`, or vectors: `(n,)`, or `(..., n)` with the batch of `A`. Batches broadcast.
        left: Whether to solve A X = B; False: X A = B, for `B` of shape `(..., k, n)`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `B`, with the broadcast batch.

    Raises:
        LinAlgError: A matrix is singular (a `RuntimeError`).
        ArgumentError: An operand or `out` is no tensor.
        ShapeError: The matrices are not square, or `B` does not fit, or `out` has another shape.
        DTypeError: The dtypes differ, or are neither float32 nor float64 (half types: `UnsupportedDType`), or `out`
            cannot hold the result.
        GradientError: `out` is passed, and an operand or `out` requires a gradient.

    Example:
        >>> wg.linalg.solve(wg.tensor([[2.0, 0.0], [1.0, 4.0]]), wg.tensor([2.0, 9.0]))
        tensor([1., 2.])
    """
    solution, info = _solve("linalg.solve", A, B, left)
    raise_on_failure("linalg.solve", info, _describe_solution)
    return solution if out is None else copy_to_out(solution, out, "linalg.solve")


def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Sequence[Tensor] | None = None
) -> SolveResult:
    """Return the solution as `solve` does, and a code for each matrix instead of an error.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64.
        B: Right-hand sides, as for `solve`.
        left: Whether to solve A X = B, and not X A = B.
        check_errors: Whether to raise an error as `solve` does. Without it, the call does not wait for the device.
        out: Two tensors to write the results to.

    Returns:
        `result`, and `info`, int32 with the batch of `A`: 0, or i if the i-th pivot is the first zero.

    Raises:
        LinAlgError: A matrix is singular, and `check_errors` is set.
        ArgumentError: An operand is no tensor, or `out` not two tensors.
        ShapeError: The matrices are not square, or `B` does not fit, or a tensor of `out` has another shape.
        DTypeError: The dtypes differ, or are neither float32 nor float64 (half types: `UnsupportedDType`), or `out`
            cannot hold the result.
        GradientError: `out` is passed, and an operand or a tensor of `out` requires a gradient.

    Example:
        >>> wg.linalg.solve_ex(wg.tensor([[1.0, 2.0], [2.0, 4.0]]), wg.tensor([1.0, 1.0])).info
        tensor(2, dtype=weftgrad.int32)
    """
    results = _solve("linalg.solve_ex", A, B, left)
    if check_errors:
        raise_on_failure("linalg.solve_ex", results[1], _describe_solution)
    return SolveResult(*(results if out is None else copy_results("linalg.solve_ex", results, out)))


def _inverse(where: str, A: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inverses and the codes of the factorization."""
    check_matrices(where, True, A=A)
    shape = A.meta.shape
    matrices = to_batch(A)
    packed, _, permutation, info = call_multiple("lu_factorize", matrices.detach())
    identity = factories.eye(shape[-1], dtype=A.meta.dtype, device=A.meta.device).expand(matrices.meta.shape)
    inverse = call(registry["factored_solve"], (matrices, packed, permutation, identity), (False,))
    return views.reshape(inverse, shape), views.reshape(info, shape[:-2])


def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse of square matrices.

    To multiply by an inverse, `solve` is faster and more accurate.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `A`.

    Raises:
        LinAlgError: A matrix is singular (a `RuntimeError`).
        ArgumentError: An operand or `out` is no tensor.
        ShapeError: The matrices are not square, or `out` has another shape.
        DTypeError: The dtype is neither float32 nor float64 (half types: `UnsupportedDType`), or `out` cannot hold the
            result.
        GradientError: `out` is passed, and an operand or `out` requires a gradient.

    Example:
        >>> wg.linalg.inv(wg.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    inverse, info = _inverse("linalg.inv", A)
    raise_on_failure("linalg.inv", info, _describe_inverse)
    return inverse if out is None else copy_to_out(inverse, out, "linalg.inv")


def inv_ex(A: Tensor, *, check_errors: bool = False, out: Sequence[Tensor] | None = None) -> InverseResult:
    """Return the inverse as `inv` does, and a code for each matrix instead of an error.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64.
        check_errors: Whether to raise an error as `inv` does. Without it, the call does not wait for the device.
        out: Two tensors to write the results to.

    Returns:
        `inverse`, of the shape of `A`, and `info`, int32 of shape `(...)`: 0, or i if the i-th pivot is the first zero.

    Raises:
        LinAlgError: A matrix is singular, and `check_errors` is set.
        ArgumentError: An operand is no tensor, or `out` not two tensors.
        ShapeError: The matrices are not square, or a tensor of `out` has another shape.
        DTypeError: The dtype is neither float32 nor float64 (half types: `UnsupportedDType`), or `out` cannot hold the
            result.
        GradientError: `out` is passed, and an operand or a tensor of `out` requires a gradient.

    Example:
        >>> wg.linalg.inv_ex(wg.tensor([[0.0, 0.0], [0.0, 4.0]])).info
        tensor(1, dtype=weftgrad.int32)
    """
    results = _inverse("linalg.inv_ex", A)
    if check_errors:
        raise_on_failure("linalg.inv_ex", results[1], _describe_inverse)
    return InverseResult(*(results if out is None else copy_results("linalg.inv_ex", results, out)))


def _substitute(matrices: Tensor, right: Tensor, lower: bool, unit: bool) -> Tensor:
    """Solve triangular systems `(B, n, n)` for right-hand sides `(B, n, k)`."""
    return call(registry["triangle_solve"], (matrices, right), (lower, unit))


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Tensor | None = None
) -> Tensor:
    """Return the solution X of A X = B for triangular matrices A. A zero on the diagonal gives inf or NaN.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64. Only one triangle is read.
        B: Right-hand sides `(..., n, k)`. Batches broadcast.
        upper: Whether to read the upper triangle, and not the lower one.
        left: Whether to solve A X = B; False: X A = B, for `B` of shape `(..., k, n)`.
        unitriangular: Whether to take the diagonal as 1 without reading it.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `B`, with the broadcast batch.

    Raises:
        ArgumentError: An operand or `out` is no tensor.
        ShapeError: The matrices are not square, or `B` does not fit, or `out` has another shape.
        DTypeError: The dtypes differ, or are neither float32 nor float64 (half types: `UnsupportedDType`), or `out`
            cannot hold the result.
        GradientError: `out` is passed, and an operand or `out` requires a gradient.

    Example:
        >>> wg.linalg.solve_triangular(wg.tensor([[2.0, 0.0], [1.0, 4.0]]), wg.tensor([[2.0], [9.0]]), upper=False)
        tensor([[1.],
                [2.]])
    """
    where = "linalg.solve_triangular"
    check_matrices(where, True, A=A, B=B)
    _check_sizes(where, A, B, left)
    lead = leading_shape(where, A, B)
    matrices, right = (expand_batch(x if left else transpose(x), lead) for x in (A, B))
    solution = _substitute(matrices, right, upper != left, unitriangular)
    solution = views.reshape(solution, (*lead, *solution.meta.shape[1:]))
    if not left:
        solution = transpose(solution)
    return solution if out is None else copy_to_out(solution, out, where)


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Tensor | None = None
) -> Tensor:
    """Return the solution X of A X = B from the factorization that `lu_factor` returns. A zero pivot gives inf or NaN.

    Args:
        LU: Packed factors `(..., n, n)`.
        pivots: Pivots `(..., n)`, int32.
        B: Right-hand sides `(..., n, k)`. Batches broadcast.
        left: Whether to solve A X = B; False: X A = B, for `B` of shape `(..., k, n)`.
        adjoint: Whether to solve with the transposed A.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `B`, with the broadcast batch.

    Raises:
        ArgumentError: The pivots are not int32, or an operand or `out` is no tensor.
        ShapeError: The shapes do not fit, or `out` has another shape.
        DTypeError: The dtypes differ, or are neither float32 nor float64 (half types: `UnsupportedDType`), or `out`
            cannot hold the result.
        GradientError: `out` is passed, and an operand or `out` requires a gradient.

    Example:
        >>> LU, pivots = wg.linalg.lu_factor(wg.tensor([[2.0, 0.0], [1.0, 4.0]]))
        >>> wg.linalg.lu_solve(LU, pivots, wg.tensor([[2.0], [9.0]]))
        tensor([[1.],
                [2.]])
    """
    where = "linalg.lu_solve"
    check_matrices(where, True, LU=LU, B=B)
    shape = LU.meta.shape
    permutation = permutation_of(where, pivots, shape[-1])
    if pivots.meta.shape != shape[:-1]:
        raise ShapeError(
            f"{where}: pivots of shape {list(pivots.meta.shape)} do not fit LU of shape {list(shape)}; pass both "
            "results of linalg.lu_factor"
        )
    _check_sizes(where, LU, B, left)
    lead = leading_shape(where, LU, B)
    packed, permutation = expand_batch(LU, lead), expand_batch(permutation, lead, 1)
    right = expand_batch(B if left else transpose(B), lead)
    is_transposed = adjoint == left
    if is_recorded(packed):
        solution = _solve_by_factors(packed, permutation, right, is_transposed)
    else:
        packed, permutation = views.contiguous(packed), views.contiguous(permutation)
        solution = call(registry["factored_solve"], (packed, packed, permutation, right), (is_transposed,))
    solution = views.reshape(solution, (*lead, *solution.meta.shape[1:]))
    if not left:
        solution = transpose(solution)
    return solution if out is None else copy_to_out(solution, out, where)


def _solve_by_factors(packed: Tensor, permutation: Tensor, right: Tensor, is_transposed: bool) -> Tensor:
    """Solve with each factor in turn, so that the factors get gradients."""
    if is_transposed:
        factors = transpose(packed)
        solution = _substitute(factors, _substitute(factors, right, True, False), False, True)
        return _take_rows(solution, permutation.argsort(-1))
    return _substitute(packed, _substitute(packed, _take_rows(right, permutation), True, True), False, False)


def _take_rows(matrices: Tensor, rows: Tensor) -> Tensor:
    """Return the rows of matrices `(B, n, k)` in the order `rows` `(B, n)`."""
    return matrices.gather(1, rows.unsqueeze(-1).expand(matrices.meta.shape))


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the solution X of A X = B from the Cholesky factor of A.

    Args:
        B: Right-hand sides `(..., n, k)`. Batches broadcast.
        L: Lower factors `(..., n, n)` with A = L L^T; upper ones, A = L^T L, if `upper`. Only this triangle is read.
        upper: Whether `L` is the upper factor.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `B`, with the broadcast batch.

    Raises:
        ArgumentError: An operand or `out` is no tensor.
        ShapeError: The factors are not square, or `B` does not fit, or `out` has another shape.
        DTypeError: The dtypes differ, or are neither float32 nor float64 (half types: `UnsupportedDType`), or `out`
            cannot hold the result.
        GradientError: `out` is passed, and an operand or `out` requires a gradient.

    Example:
        >>> wg.cholesky_solve(wg.tensor([[8.0], [9.0]]), wg.tensor([[2.0, 0.0], [1.0, 2.0]]))
        tensor([[1.3750],
                [1.2500]])
    """
    check_matrices("cholesky_solve", True, L=L, B=B)
    _check_sizes("cholesky_solve", L, B, True)
    lead = leading_shape("cholesky_solve", L, B)
    factors = expand_batch(L, lead)
    lower, upper_factors = (transpose(factors), factors) if upper else (factors, transpose(factors))
    solution = _substitute(upper_factors, _substitute(lower, expand_batch(B, lead), True, False), False, False)
    solution = views.reshape(solution, (*lead, *B.meta.shape[-2:]))
    return solution if out is None else copy_to_out(solution, out, "cholesky_solve")


def cholesky_inverse(L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse of A from its Cholesky factor.

    Args:
        L: Lower factors `(..., n, n)` with A = L L^T; upper ones, A = L^T L, if `upper`.
        upper: Whether `L` is the upper factor.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `L`.

    Raises:
        ArgumentError: An operand or `out` is no tensor.
        ShapeError: The factors are not square, or `out` has another shape.
        DTypeError: The dtype is neither float32 nor float64 (half types: `UnsupportedDType`), or `out` cannot hold the
            result.
        GradientError: `out` is passed, and an operand or `out` requires a gradient.

    Example:
        >>> wg.cholesky_inverse(wg.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([[0.2500, 0.0000],
                [0.0000, 1.0000]])
    """
    check_matrices("cholesky_inverse", True, L=L)
    identity = factories.eye(L.meta.shape[-1], dtype=L.meta.dtype, device=L.meta.device)
    inverse = cholesky_solve(identity, L, upper)
    return inverse if out is None else copy_to_out(inverse, out, "cholesky_inverse")


def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse of a tensor as a linear map: from its dimensions `ind` and later to the earlier ones.

    Args:
        A: Tensor whose first `ind` sizes have the same product as the others.
        ind: How many dimensions are the rows of the map, at least 1.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `A.shape[ind:] + A.shape[:ind]`.

    Raises:
        LinAlgError: The map is singular.
        ArgumentError: An operand or `out` is no tensor.
        ShapeError: The products differ, or `ind` is not positive, or `out` has another shape.
        DTypeError: The dtype is neither float32 nor float64 (half types: `UnsupportedDType`), or `out` cannot hold the
            result.
        GradientError: `out` is passed, and an operand or `out` requires a gradient.

    Example:
        >>> wg.linalg.tensorinv(wg.eye(6).reshape(2, 3, 6), ind=2).shape
        weftgrad.Size([6, 2, 3])
    """
    only_tensors("linalg.tensorinv", A)
    shape = A.meta.shape
    rows, columns = prod(shape[:ind]), prod(shape[ind:])
    if ind < 1 or rows != columns:
        raise ShapeError(
            f"linalg.tensorinv: the sizes {list(shape[:ind])} and {list(shape[ind:])} of {list(shape)} must have one "
            f"product, and ind must be positive; pass another ind than {ind}"
        )
    inverse = views.reshape(inv(views.reshape(A, (rows, columns))), (*shape[ind:], *shape[:ind]))
    return inverse if out is None else copy_to_out(inverse, out, "linalg.tensorinv")


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return the solution X of `tensordot(A, X, X.ndim) = B`.

    Args:
        A: Tensor; after `dims` have moved to the end, its shape is that of `B` and then that of X, and both have the
            same number of elements. As in PyTorch, only the numbers of elements are checked: the first sizes of `A`
            may be another factorization of that of `B`.
        B: Right-hand side. Its elements are taken in row-major order.
        dims: Dimensions of `A` to move to the end first.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `A.shape[B.ndim:]`.

    Raises:
        LinAlgError: The system is singular.
        ArgumentError: An operand or `out` is no tensor.
        ShapeError: The shapes do not fit, or `out` has another shape.
        DTypeError: The dtypes differ, or are neither float32 nor float64 (half types: `UnsupportedDType`), or `out`
            cannot hold the result.
        GradientError: `out` is passed, and an operand or `out` requires a gradient.

    Example:
        >>> wg.linalg.tensorsolve(wg.eye(6).reshape(6, 2, 3), wg.arange(6.0))
        tensor([[0., 1., 2.],
                [3., 4., 5.]])
    """
    only_tensors("linalg.tensorsolve", A, B)
    if dims is not None:
        A = reshaping.movedim(A, tuple(dims), tuple(range(-len(tuple(dims)), 0)))
    shape = A.meta.shape[B.meta.ndim :]
    count = prod(shape)
    if B.meta.numel != count or A.meta.numel != count * count:
        raise ShapeError(
            f"linalg.tensorsolve: A of shape {list(A.meta.shape)} is no square system for B of "
            f"shape {list(B.meta.shape)}; the sizes of A after those of B must have the product of those of B"
        )
    solution = views.reshape(solve(views.reshape(A, (count, count)), views.reshape(B, (count,))), shape)
    return solution if out is None else copy_to_out(solution, out, "linalg.tensorsolve")
