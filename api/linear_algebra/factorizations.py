"""Cholesky and LU factorizations of matrices.

One kernel launch factors a batch (`codegen/specs/linear_systems.yaml`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .._generated import ops
from ..arguments.out import copy_to_out
from ..creation import factories, sequences
from ..runtime import dtypes, views
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, NotSupported, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .matrix_batches import call_multiple, check_matrices, copy_results, raise_on_failure, to_batch, transpose
from .triangles import tril, triu

__all__ = ["cholesky", "cholesky_ex", "lu", "lu_factor", "lu_factor_ex", "lu_unpack", "permutation_of"]


class CholeskyResult(NamedTuple):
    """The Cholesky factors and the codes that `cholesky_ex` returns."""

    L: Tensor
    info: Tensor


class FactorResult(NamedTuple):
    """The packed factors and the pivots that `lu_factor` returns."""

    LU: Tensor
    pivots: Tensor


class FactorInfoResult(NamedTuple):
    """The packed factors, the pivots and the codes that `lu_factor_ex` returns."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class LUResult(NamedTuple):
    """The permutation and the factors that `lu` and `lu_unpack` return."""

    P: Tensor
    L: Tensor
    U: Tensor


def _cholesky(where: str, A: Tensor, upper: bool) -> tuple[Tensor, Tensor]:
    """Return the factors in the shape of `A`, and the codes of its batch."""
    check_matrices(where, True, A=A)
    factor, info = call_multiple("cholesky_factorize", to_batch(A if upper else transpose(A)))
    factor = views.reshape(factor, A.meta.shape)
    return factor if upper else transpose(factor), views.reshape(info, A.meta.shape[:-2])


def _describe_minor(order: int) -> str:
    return (
        "The factorization could not be completed because the input is not positive-definite (the leading minor of "
        f"order {order} is not positive-definite)."
    )


def cholesky(A: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """Return the Cholesky factor L of symmetric positive-definite matrices, A = L L^T.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64. Only one triangle is read: the upper one if `upper`.
        upper: Whether to return U = L^T.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `A`, with zeros in the other triangle.

    Raises:
        LinAlgError: A matrix is not positive-definite (a `RuntimeError`).
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.cholesky(wg.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]])
    """
    factor, info = _cholesky("linalg.cholesky", A, upper)
    raise_on_failure("linalg.cholesky", info, _describe_minor)
    return factor if out is None else copy_to_out(factor, out, "linalg.cholesky")


def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Sequence[Tensor] | None = None
) -> CholeskyResult:
    """Return the Cholesky factor as `cholesky` does, and a code for each matrix instead of an error.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64.
        upper: Whether to return U = L^T.
        check_errors: Whether to raise an error as `cholesky` does. Without it, the call does not wait for the device.
        out: Two tensors to write the results to.

    Returns:
        `L`, of the shape of `A`, and `info`, int32 of shape `(...)`: 0, or the order of the first leading minor that
        is not positive. L has NaN from there on.

    Raises:
        LinAlgError: A matrix is not positive-definite, and `check_errors` is set.
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.cholesky_ex(wg.tensor([[1.0, 2.0], [2.0, 1.0]])).info
        tensor(2, dtype=weftgrad.int32)
    """
    results = _cholesky("linalg.cholesky_ex", A, upper)
    if check_errors:
        raise_on_failure("linalg.cholesky_ex", results[1], _describe_minor)
    return CholeskyResult(*(results if out is None else copy_results("linalg.cholesky_ex", results, out)))


def _lu(where: str, A: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return packed factors, pivots, permutation and codes in the shape of `A`."""
    check_matrices(where, False, A=A)
    if not pivot:
        raise NotSupported(f"{where}: LU without pivoting is not implemented; use pivot=True")
    shape = A.meta.shape
    packed, pivots, permutation, info = call_multiple("lu_factorize", to_batch(A))
    if not packed.meta.numel:  # no kernel ran
        identity = sequences.arange(shape[-2], device=A.meta.device)
        permutation = identity.expand(permutation.meta.shape)
    lead = shape[:-2]
    return (
        views.reshape(packed, shape), views.reshape(pivots, (*lead, min(shape[-2:]))),
        views.reshape(permutation, (*lead, shape[-2])), views.reshape(info, lead),
    )  # fmt: skip


def _describe_pivot(position: int) -> str:
    return (
        f"U[{position},{position}] is zero and using it on lu_solve would result in a division by zero. If you still "
        "want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
    )


def lu_factor(A: Tensor, *, pivot: bool = True, out: Sequence[Tensor] | None = None) -> FactorResult:
    """Return the LU factorization with partial pivoting in the packed form that `lu_solve` takes.

    Args:
        A: Matrices `(..., m, n)`, float32 or float64.
        pivot: Must be True.
        out: Two tensors to write the results to.

    Returns:
        `LU`, of the shape of `A`: U on and above the diagonal, and below it L, whose diagonal is 1. `pivots`, int32 of
        shape `(..., min(m, n))`: row i was exchanged with row `pivots[i] - 1`.

    Raises:
        LinAlgError: A diagonal element of U is zero (a `RuntimeError`).
        ShapeError: `A` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.
        NotSupported: `pivot` is False.

    Example:
        >>> wg.linalg.lu_factor(wg.tensor([[1.0, 2.0], [4.0, 4.0]]))
        FactorResult(LU=tensor([[4.0000, 4.0000],
                [0.2500, 1.0000]]), pivots=tensor([2, 2], dtype=weftgrad.int32))
    """
    packed, pivots, _, info = _lu("linalg.lu_factor", A, pivot)
    raise_on_failure("linalg.lu_factor", info, _describe_pivot)
    results = packed, pivots
    return FactorResult(*(results if out is None else copy_results("linalg.lu_factor", results, out)))


def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Sequence[Tensor] | None = None
) -> FactorInfoResult:
    """Return the LU factorization as `lu_factor` does, and a code for each matrix instead of an error.

    Args:
        A: Matrices `(..., m, n)`, float32 or float64.
        pivot: Must be True.
        check_errors: Whether to raise an error as `lu_factor` does. Without it, the call does not wait for the device.
        out: Three tensors to write the results to.

    Returns:
        `LU` and `pivots` as from `lu_factor`, and `info`, int32 of shape `(...)`: 0, or i if `U[i, i]`, counted from 1,
        is the first zero.

    Raises:
        LinAlgError: A diagonal element of U is zero, and `check_errors` is set.
        ShapeError: `A` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.
        NotSupported: `pivot` is False.

    Example:
        >>> wg.linalg.lu_factor_ex(wg.tensor([[1.0, 2.0], [2.0, 4.0]])).info
        tensor(2, dtype=weftgrad.int32)
    """
    packed, pivots, _, info = _lu("linalg.lu_factor_ex", A, pivot)
    if check_errors:
        raise_on_failure("linalg.lu_factor_ex", info, _describe_pivot)
    results = packed, pivots, info
    return FactorInfoResult(*(results if out is None else copy_results("linalg.lu_factor_ex", results, out)))


def lu(A: Tensor, *, pivot: bool = True, out: Sequence[Tensor] | None = None) -> LUResult:
    """Return the LU factorization with partial pivoting, A = P L U.

    Args:
        A: Matrices `(..., m, n)`, float32 or float64; they may be singular.
        pivot: Must be True.
        out: Three tensors to write the results to.

    Returns:
        `P` `(..., m, m)`, a permutation; `L` `(..., m, k)`, whose diagonal is 1; `U` `(..., k, n)`; k = min(m, n).

    Raises:
        ShapeError: `A` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.
        NotSupported: `pivot` is False.

    Example:
        >>> wg.linalg.lu(wg.tensor([[1.0, 2.0], [4.0, 4.0]])).U
        tensor([[4., 4.],
                [0., 1.]])
    """
    packed, _, permutation, _ = _lu("linalg.lu", A, pivot)
    results = _permutation_matrix(permutation, A), *_unpack(packed)
    return LUResult(*(results if out is None else copy_results("linalg.lu", results, out)))


def _permutation_matrix(permutation: Tensor, like: Tensor) -> Tensor:
    """Return P with `P[permutation[i], i] = 1`, in the dtype of `like`."""
    rows = sequences.arange(permutation.meta.shape[-1], device=like.meta.device)
    return ops.eq(rows.unsqueeze(-1), permutation.unsqueeze(-2)).to(like.meta.dtype)


def _unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Return L and U."""
    m, n = packed.meta.shape[-2:]
    count = min(m, n)
    unit = factories.eye(m, count, dtype=packed.meta.dtype, device=packed.meta.device)
    lower = ops.add(tril(ops.narrow(packed, -1, 0, count), -1), unit)
    return lower, triu(ops.narrow(packed, -2, 0, count))


def permutation_of(where: str, pivots: Tensor, rows: int) -> Tensor:
    """Return the permutation `(..., rows)` that pivots `(..., k)`, counted from 1, bring about.

    Raises:
        ArgumentError: The pivots are not int32.
        ShapeError: They have no dimension.
    """
    only_tensors(where, pivots)
    if pivots.meta.dtype is not dtypes.int32:
        raise ArgumentError(f"{where}: pivots should be a Tensor of int32, not {pivots.meta.dtype.name}; use .int()")
    if not pivots.meta.ndim:
        raise ShapeError(f"{where}: pivots have at least one dimension, as from linalg.lu_factor")
    lead, count = pivots.meta.shape[:-1], pivots.meta.shape[-1]
    if not count:
        return sequences.arange(rows, device=pivots.meta.device).expand((*lead, rows))
    batch = pivots.meta.numel // count
    flat = views.contiguous(views.reshape(pivots, (batch, count)))
    return views.reshape(call(registry["pivot_permutation"], (flat,), (rows,)), (*lead, rows))


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *,
    out: Sequence[Tensor] | None = None,
) -> LUResult:  # fmt: skip
    """Return the factors P, L and U of the packed form that `lu_factor` returns.

    Args:
        LU_data: Packed factors `(..., m, n)`.
        LU_pivots: Pivots `(..., min(m, n))`, int32.
        unpack_data: Whether to return L and U; without it they have no elements.
        unpack_pivots: Whether to return P; without it, P has no elements.
        out: Three tensors to write the results to.

    Returns:
        `P` `(..., m, m)`, `L` `(..., m, k)` and `U` `(..., k, n)`, k = min(m, n).

    Raises:
        ArgumentError: The pivots are not int32.
        ShapeError: The pivots do not fit the packed factors.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.lu_unpack(*wg.linalg.lu_factor(wg.tensor([[1.0, 2.0], [4.0, 4.0]]))).P
        tensor([[0., 1.],
                [1., 0.]])
    """
    check_matrices("lu_unpack", False, LU_data=LU_data)
    shape = LU_data.meta.shape
    permutation = permutation_of("lu_unpack", LU_pivots, shape[-2])
    if LU_pivots.meta.shape != (*shape[:-2], min(shape[-2:])):
        raise ShapeError(
            f"lu_unpack: factors of shape {list(shape)} have pivots of shape {[*shape[:-2], min(shape[-2:])]}, not "
            f"{list(LU_pivots.meta.shape)}; pass both results of linalg.lu_factor"
        )
    nothing = factories.empty(0, dtype=LU_data.meta.dtype, device=LU_data.meta.device)
    P = _permutation_matrix(permutation, LU_data) if unpack_pivots else nothing
    L, U = _unpack(LU_data) if unpack_data else (nothing, nothing)
    results = P, L, U
    return LUResult(*(results if out is None else copy_results("lu_unpack", results, out)))
