"""The matrix exponential, and products of Householder reflections, composed of ops that have derivatives."""

from __future__ import annotations

import math

from .._generated import ops
from ..arguments.out import copy_to_out
from ..creation import factories, from_data
from ..pointwise import comparison
from ..runtime import dtypes, views
from ..runtime.errors import LinAlgError, ShapeError
from ..runtime.tensor import Tensor
from .matrix_batches import check_matrices, to_batch, transpose
from .products import matmul
from .solving import solve, solve_triangular
from .triangles import tril, triu

__all__ = ["householder_product", "matrix_exp"]

# Degree of the Padé approximant of exp for each dtype, and the 1-norm up to which it has the dtype's accuracy (Higham,
# "The Scaling and Squaring Method for the Matrix Exponential Revisited", 2005, table 2.3).
_PADE_DEGREES = {dtypes.float32: 7, dtypes.float64: 13}
_MAX_PADE_NORMS = {dtypes.float32: 3.925724783138660, dtypes.float64: 5.371920351148152}


def _pade_coefficients(degree: int) -> list[float]:
    """Return the coefficients of the numerator, by ascending power. The constant one is 1.

    The denominator has the same coefficients with alternating signs.
    """
    return [
        math.comb(degree, j) * math.factorial(2 * degree - j) / math.factorial(2 * degree) for j in range(degree + 1)
    ]


def _weighted_sum(powers: list[Tensor], coefficients: list[float]) -> Tensor:
    """Return the sum of the products of matrices and coefficients."""
    total = ops.mul(powers[0], coefficients[0])
    for power, coefficient in zip(powers[1:], coefficients[1:], strict=True):
        total = ops.add(total, ops.mul(power, coefficient))
    return total


def matrix_exp(A: Tensor) -> Tensor:
    """Return the exponential of matrices, the sum of A^k / k! over all k. The call waits for the device.

    It halves each matrix until a Padé approximant is accurate, evaluates the approximant, and squares the result as
    often as the matrix was halved (Higham 2005).

    Args:
        A: Matrices `(..., n, n)`, float32 or float64.

    Returns:
        Tensor of the shape of `A`.

    Raises:
        ShapeError: The matrices are not square, or `A` has less than two dimensions.
        DTypeError: The dtype is neither float32 nor float64.
        LinAlgError: `A` has elements that are not finite.

    Example:
        >>> wg.linalg.matrix_exp(wg.tensor([[0.0, 1.0], [0.0, 0.0]]))
        tensor([[1., 1.],
                [0., 1.]])
    """
    check_matrices("linalg.matrix_exp", True, A=A)
    if not A.meta.numel:
        return ops.exp(A)
    matrices, dtype = to_batch(A), A.meta.dtype
    norms = ops.amax(ops.sum(ops.abs(matrices.detach()), -2), -1).tolist()
    if not all(map(math.isfinite, norms)):
        raise LinAlgError("linalg.matrix_exp: the input has elements that are not finite; check it with isfinite()")
    # `halvings` has the number of halvings of each matrix: the least n >= 0 with norm / 2^n < _MAX_PADE_NORMS.
    halvings = [max(0, math.frexp(norm / _MAX_PADE_NORMS[dtype])[1]) for norm in norms]
    if max(halvings):
        factors = factories.empty(len(norms), 1, 1, dtype=dtype, device=A.meta.device)
        factors.copy_(from_data.tensor([[[2.0**-n]] for n in halvings], dtype=dtype))
        matrices = ops.mul(matrices, factors)
    coefficients = _pade_coefficients(_PADE_DEGREES[dtype])
    identity = factories.eye(matrices.meta.shape[-1], dtype=dtype, device=A.meta.device)
    square = matmul(matrices, matrices)
    powers = [ops.expand(identity, matrices.meta.shape), square]  # even powers of the matrices
    while len(powers) < len(coefficients) // 2:
        powers.append(matmul(powers[-1], square))
    even_terms = _weighted_sum(powers, coefficients[::2])
    odd_terms = matmul(matrices, _weighted_sum(powers, coefficients[1::2]))
    exponential = solve(ops.sub(even_terms, odd_terms), ops.add(even_terms, odd_terms))  # denominator^-1 numerator
    for n in range(max(halvings)):
        squared = matmul(exponential, exponential)
        if n >= min(halvings):  # some matrices of the batch need no further squaring
            is_squared = from_data.tensor([[[n < count]] for count in halvings]).to(A.meta.device)
            squared = comparison.where(is_squared, squared, exponential)
        exponential = squared
    return views.reshape(exponential, A.meta.shape)


def householder_product(input: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the first n columns of H_1 H_2 ... H_k, a product of Householder reflections `H_i = I - tau_i v_i v_i^T`.

    v_i is column i of `input` below the diagonal, with 1 on the diagonal and 0 above it. The product is I - V T V^T,
    where column i of V is v_i and T is upper triangular (Schreiber and Van Loan, "A Storage-Efficient WY
    Representation", 1989).

    Args:
        input: Matrices `(..., m, n)` with m >= n, float32 or float64. Only elements below the diagonal are read.
        tau: Factors `(..., k)` with k <= n, of the same dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ShapeError: m < n, k > n, or batches differ.
        DTypeError: The dtype is neither float32 nor float64, or the dtypes differ.

    Example:
        >>> wg.linalg.householder_product(wg.tensor([[0.0], [1.0]]), wg.tensor([1.0]))
        tensor([[ 0.],
                [-1.]])
    """
    name = "linalg.householder_product"
    check_matrices(name, False, input=input, tau=ops.unsqueeze(tau, -1) if isinstance(tau, Tensor) else tau)
    *lead, m, n = input.meta.shape
    *tau_lead, k = tau.meta.shape
    if m < n or k > n or lead != tau_lead:
        raise ShapeError(
            f"{name}: takes input (..., m, n) with m >= n and tau (..., k) with k <= n, not {list(input.meta.shape)} "
            f"and {list(tau.meta.shape)}"
        )
    identity = factories.eye(m, n, dtype=input.meta.dtype, device=input.meta.device)
    if not k or not input.meta.numel:
        product = ops.add(ops.mul(input, 0.0), identity)
    else:
        vectors = ops.add(tril(ops.narrow(input, -1, 0, k), -1), ops.narrow(identity, 1, 0, k))
        factors = ops.unsqueeze(tau, -1)
        # T solves (I + diag(tau) triu(V^T V, 1)) T = diag(tau), also if elements of tau are 0. So T V^T solves the
        # equation with diag(tau) V^T on the right. The first n columns of V^T suffice for those of the product.
        unit_triangular = ops.mul(triu(matmul(transpose(vectors), vectors), 1), factors)  # the unit diagonal is implied
        scaled_transpose = ops.mul(transpose(ops.narrow(vectors, -2, 0, n)), factors)
        t_times_transpose = solve_triangular(unit_triangular, scaled_transpose, upper=True, unitriangular=True)
        product = ops.sub(identity, matmul(vectors, t_times_transpose))
    return product if out is None else copy_to_out(product, out, name)
