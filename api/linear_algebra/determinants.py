"""Determinants of matrices and their logarithms, by LU factorization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .._generated import ops
from ..arguments.out import copy_to_out
from ..creation import factories
from ..runtime import views
from ..runtime.tensor import Tensor
from .matrix_batches import call_multiple, check_matrices, copy_results, to_batch

__all__ = ["det", "logdet", "slogdet"]


class SlogdetResult(NamedTuple):
    """The signs of determinants and the logarithms of their magnitudes, which `slogdet` returns."""

    sign: Tensor
    logabsdet: Tensor


def _determinants(where: str, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the determinants, their signs and the logarithms of their magnitudes, of shape `(...)`."""
    check_matrices(where, True, A=A)
    lead = A.meta.shape[:-2]
    if not A.meta.shape[-1]:  # the empty product
        one = factories.ones(lead, dtype=A.meta.dtype, device=A.meta.device)
        return one, one, factories.zeros(lead, dtype=A.meta.dtype, device=A.meta.device)
    matrices = to_batch(A)
    packed, pivots, _, _ = call_multiple("lu_factorize", matrices.detach())
    determinant, sign, logarithm = (
        views.reshape(x, lead) for x in call_multiple("determinants", matrices, packed, pivots)
    )
    return determinant, sign, logarithm


def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the determinants of square matrices.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(...)`.

    Raises:
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.det(wg.tensor([[2.0, 1.0], [1.0, 3.0]]))
        tensor(5.)
    """
    determinant, _, _ = _determinants("linalg.det", A)
    return determinant if out is None else copy_to_out(determinant, out, "linalg.det")


def slogdet(A: Tensor, *, out: Sequence[Tensor] | None = None) -> SlogdetResult:
    """Return the sign of the determinants of square matrices, and the logarithm of their magnitude.

    They do not overflow where the determinant itself does.

    Args:
        A: Matrices `(..., n, n)`, float32 or float64.
        out: Two tensors to write the results to.

    Returns:
        `sign`, 1, -1 or 0, and `logabsdet`, of shape `(...)`. A singular matrix gives 0 and -inf.

    Raises:
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.linalg.slogdet(wg.tensor([[0.0, 1.0], [1.0, 0.0]]))
        SlogdetResult(sign=tensor(-1.), logabsdet=tensor(0.))
    """
    _, *results = _determinants("linalg.slogdet", A)
    return SlogdetResult(*(results if out is None else copy_results("linalg.slogdet", results, out)))


def logdet(input: Tensor) -> Tensor:
    """Return the logarithm of the determinants of square matrices.

    Args:
        input: Matrices `(..., n, n)`, float32 or float64.

    Returns:
        Tensor of shape `(...)`: NaN for negative determinants, -inf for zero.

    Raises:
        ShapeError: The matrices are not square.
        DTypeError: The dtype is neither float32 nor float64.

    Example:
        >>> wg.logdet(wg.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor(0.)
    """
    _, sign, logarithm = _determinants("logdet", input)
    return ops.add(logarithm, ops.log(sign))
