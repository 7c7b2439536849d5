"""Differentiable maps from any matrix to one with orthonormal columns, for `parametrizations.orthogonal`."""

from __future__ import annotations

import math

import numpy as np

from ..._generated import ops
from ...creation.factories import eye, zeros
from ...random import randn
from ...runtime import host_data
from ...runtime.dtypes import Array
from ...runtime.errors import NotSupported, ShapeError
from ...runtime.tensor import Tensor
from ...shape.joining import cat
from ..module import Module

__all__ = ["MAPS", "Orthogonal", "matrix_exp"]

MAPS = ("matrix_exp", "cayley", "householder")
_SERIES_TERMS = 14  # of the exponential series; at norm 1/2 the terms left out add up to less than 2.5e-17


class Orthogonal(Module):
    """Map X of shape (..., n, k) to Q of that shape with orthonormal columns (rows if n < k).

    With `use_trivialization`, Q = base @ map(X), where the buffer `base` is an orthogonal matrix. So Q can start at any
    orthogonal matrix (Lezcano-Casado 2019, arXiv 1909.09501). `base` is None until `right_inverse` sets it, which
    happens when the parametrization is registered.

    Args:
        weight: The parameter, of the shape of X and a floating-point dtype.
        orthogonal_map: One of `MAPS`.
        use_trivialization: Whether to have a base.

    Example:
        >>> from weftgrad.nn.utils._orthogonal import Orthogonal
        >>> X = wg.tensor([[0.0, 0.0], [1.0, 0.0]])
        >>> Q = Orthogonal(X, 'matrix_exp', use_trivialization=False)(X)
        >>> wg.allclose(Q.T @ Q, wg.eye(2), atol=1e-6)
        True
    """

    base: Tensor  # no such attribute without trivialization

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool = True):
        super().__init__()
        self.shape = tuple(weight.meta.shape)
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        """Return Q of the shape of `X`."""
        is_wide = X.meta.shape[-2] < X.meta.shape[-1]
        X = X.mT if is_wide else X
        Q = _householder(X) if self.orthogonal_map == "householder" else self._map_skew_part(X)
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if is_wide else Q

    def _map_skew_part(self, X: Tensor) -> Tensor:
        """Map A = L - L^T, with L the lower triangle of X, to e^A or to its Cayley transform (1 - A/2)^-1 (1 + A/2).

        Both are orthogonal because A is skew-symmetric. A tall X is filled up with zero columns to a square.
        """
        n, k = X.meta.shape[-2:]
        X = X.tril()
        if n != k:
            X = cat([X, _convert_like(zeros(*X.meta.shape[:-1], n - k), X)], -1)
        A = ops.sub(X, X.mT)
        if self.orthogonal_map == "matrix_exp":
            return matrix_exp(A)[..., :k]
        identity = _convert_like(eye(n), A)
        return _solve_by_newton(ops.sub(identity, A * 0.5), ops.add(identity, A * 0.5))[..., :k]

    def right_inverse(self, Q: Tensor) -> Tensor:
        """Return an X that the map sends to `Q`.

        With a base, `Q` becomes the base (after orthonormalization), and X is minus the identity, which every map
        sends to the identity. Otherwise X has the Householder vectors of `Q`.

        Args:
            Q: Tensor of the weight's shape. Its columns (rows if it is wide) should be orthonormal.

        Returns:
            Tensor of the same shape.

        Raises:
            ShapeError: `Q` does not have the weight's shape.
            NotSupported: The map has no base and is not `householder`.
        """
        if tuple(Q.meta.shape) != self.shape:
            raise ShapeError(f"orthogonal: takes shape {list(self.shape)}, not {list(Q.meta.shape)}")
        is_wide = Q.meta.shape[-2] < Q.meta.shape[-1]
        tall_matrix = Q.mT if is_wide else Q
        if hasattr(self, "base"):
            self.base = _complete_basis(tall_matrix)
            minus_identity = np.zeros(self.shape)
            diagonal = np.arange(min(self.shape[-2:]))
            minus_identity[..., diagonal, diagonal] = -1
            return _from_host(minus_identity, Q)
        if self.orthogonal_map != "householder":
            raise NotSupported(f"orthogonal: {self.orthogonal_map} without a base cannot be set to a value")
        vectors = _householder_vectors(tall_matrix)
        return vectors.mT.contiguous() if is_wide else vectors


def _complete_basis(tall_matrix: Tensor) -> Tensor:
    """Return orthogonal matrices `(..., n, n)` whose first k columns are those of `tall_matrix`, `(..., n, k)`.

    If those are not orthonormal, they are orthonormalized from the first to the last. The other columns are random.
    """
    n, k = tall_matrix.meta.shape[-2:]
    square_matrix = tall_matrix
    if n != k:
        random_columns = _convert_like(randn(*tall_matrix.meta.shape[:-1], n - k), tall_matrix)
        square_matrix = cat([tall_matrix, random_columns], -1)
    q, r = np.linalg.qr(host_data.host_array(square_matrix).astype(np.float64))
    # LAPACK chooses the signs of r's diagonal. Orthonormal columns only stay as they are if it is positive.
    signs = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
    return _from_host(q * signs[..., None, :], tall_matrix)


def _householder_vectors(tall_matrix: Tensor) -> Tensor:
    """Return an X that `_householder` sends to `tall_matrix`, from LAPACK's `geqrf`.

    `geqrf` stores the Householder vectors below the diagonal, and the diagonal of R, whose signs `_householder` needs.
    For tau_i = 0 it means H_i = 1. `_householder` cannot: its H_i, with v_i = e_i, negates column i. The opposite sign
    on the diagonal negates it again.
    """
    packed, tau = np.linalg.qr(host_data.host_array(tall_matrix).astype(np.float64), mode="raw")
    packed = np.swapaxes(packed, -1, -2).copy()  # NumPy returns `geqrf`'s result in Fortran order
    diagonal = np.arange(packed.shape[-1])
    signs = np.sign(packed[..., diagonal, diagonal])
    packed[..., diagonal, diagonal] = np.where(tau == 0, -signs, signs)
    return _from_host(packed, tall_matrix)


def _convert_like(tensor: Tensor, reference: Tensor) -> Tensor:
    """Return `tensor` on the device of `reference`, in its dtype."""
    return tensor.to(device=reference.meta.device, dtype=reference.meta.dtype)


def _from_host(array: Array, reference: Tensor) -> Tensor:
    return host_data.from_host(np.ascontiguousarray(array), reference.meta.dtype, reference.meta.device)


def _householder(X: Tensor) -> Tensor:
    """Return the first k columns of H_1 ... H_k, with H_i = 1 - tau_i v_i v_i^T (Golub and Van Loan, section 5.1).

    v_i is zero above entry i, has 1 as entry i, and is column i of `X` below it; tau_i = 2 / |v_i|^2. Then column i is
    multiplied by entry (i, i) of `X`, truncated to an integer as in PyTorch. `right_inverse` makes it 1 or -1, and it
    gets no gradient.
    """
    n, k = X.meta.shape[-2:]
    identity = _convert_like(eye(n, k), X)
    below = X.tril(-1)
    vectors = ops.add(below, identity)
    tau = ops.mul(ops.reciprocal(ops.add(ops.sum(ops.square(below), -2), 1.0)), 2.0)
    Q = identity.expand(X.meta.shape) if X.meta.ndim > 2 else identity
    for i in reversed(range(k)):
        v = vectors[..., i : i + 1]
        Q = ops.sub(Q, ops.mul(tau[..., i : i + 1].unsqueeze(-1) * v, v.mT @ Q))
    signs = X.diagonal(0, -2, -1).detach().trunc()
    return Q * signs.unsqueeze(-2)


def matrix_exp(A: Tensor) -> Tensor:
    """Return e^A of square matrices, by scaling and squaring (Higham, "Functions of Matrices", chapter 10).

    The host waits for the largest row sum norm of the matrices, from which it chooses the number of squarings.

    Args:
        A: Floating tensor of shape `(..., n, n)`.

    Returns:
        Tensor of the same shape and dtype. It is differentiable.

    Example:
        >>> from weftgrad.nn.utils._orthogonal import matrix_exp
        >>> matrix_exp(wg.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    norm = float(A.detach().abs().sum(-1).max()) if A.meta.numel else 0.0
    squarings = max(0, math.ceil(math.log2(norm)) + 1) if math.isfinite(norm) and norm > 0 else 0
    scaled = A * 0.5**squarings
    identity = _convert_like(eye(A.meta.shape[-1]), A)
    exponential = ops.add(identity, scaled * (1.0 / _SERIES_TERMS))
    for term in range(_SERIES_TERMS - 1, 0, -1):  # Horner: 1 + x (1 + x / 2 (1 + x / 3 …))
        exponential = ops.add(identity, (scaled @ exponential) * (1.0 / term))
    for _ in range(squarings):
        exponential = exponential @ exponential
    return exponential


def _solve_by_newton(left: Tensor, right: Tensor) -> Tensor:
    """Return left^-1 right for left = 1 - A with skew A, by Newton's iteration for the inverse (Schulz 1933).

    The residual 1 - left @ inverse starts with a norm of at most 1 - 1 / norm_squared, and every step squares it. After
    log2(norm_squared) steps the norm is at most 1 / e, and 6 steps later at most e^-64.
    """
    identity = _convert_like(eye(left.meta.shape[-1]), left)
    norm_squared = float(left.detach().abs().sum(-1).max()) ** 2
    inverse = left.mT * (1.0 / norm_squared)
    for _ in range(math.ceil(math.log2(max(2.0, norm_squared))) + 6):
        inverse = inverse @ (identity * 2.0 - left @ inverse)
    return inverse @ right
