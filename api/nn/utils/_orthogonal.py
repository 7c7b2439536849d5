"""Matrices with orthonormal columns as a function of any matrix, which can be differentiated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import _hosting
from ..._generated import ops
from ...factories import eye, zeros
from ...joining import cat
from ...random import randn
from ...runtime.errors import NotSupported, ShapeError
from ..module import Module

__all__ = ["MAPS", "Orthogonal", "matrix_exp"]

MAPS = ("matrix_exp", "cayley", "householder")
_TERMS = 14  # of the series: for a norm of 1/2, what is left out is below 2e-17


class Orthogonal(Module):
    """X of shape (…, n, k) to Q of that shape, with orthonormal columns (rows, if n < k). `base`: the Q of X = -1."""

    def __init__(self, weight: Any, orthogonal_map: str, use_trivialization: bool = True):
        super().__init__()
        self.shape = tuple(weight.meta.shape)
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Any) -> Any:
        wide = X.meta.shape[-2] < X.meta.shape[-1]
        X = X.mT if wide else X
        Q = _householder(X) if self.orthogonal_map == "householder" else self._of_skew(X)
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if wide else Q

    def _of_skew(self, X: Any) -> Any:
        n, k = X.meta.shape[-2:]
        X = X.tril()
        if n != k:
            X = cat([X, _like(zeros(*X.meta.shape[:-1], n - k), X)], -1)
        A: Any = ops.sub(X, X.mT)
        if self.orthogonal_map == "matrix_exp":
            return matrix_exp(A)[..., :k]
        one = _like(eye(n), A)
        return _solve(ops.sub(one, A * 0.5), ops.add(one, A * 0.5))[..., :k]

    def right_inverse(self, Q: Any) -> Any:
        """The X of a matrix: with a base, minus the identity, and `Q`, made orthonormal if it is not, in the base."""
        if tuple(Q.meta.shape) != self.shape:
            raise ShapeError(f"orthogonal: takes shape {list(self.shape)}, not {list(Q.meta.shape)}")
        wide = Q.meta.shape[-2] < Q.meta.shape[-1]
        tall = Q.mT if wide else Q
        if not hasattr(self, "base"):
            if self.orthogonal_map != "householder":
                raise NotSupported(f"orthogonal: {self.orthogonal_map} without a base cannot be set to a value")
            packed, tau = np.linalg.qr(_hosting.host_array(tall).astype(np.float64), mode="raw")
            packed = np.swapaxes(packed, -1, -2).copy()
            rows = np.arange(packed.shape[-1])
            signs = np.sign(packed[..., rows, rows])
            packed[..., rows, rows] = np.where(tau == 0, -signs, signs)
            made = _from_host(packed, Q)
            return made.mT.contiguous() if wide else made
        n, k = tall.meta.shape[-2:]
        if n != k:
            extra = _like(randn(*tall.meta.shape[:-1], n - k), Q)
            tall = cat([tall, extra], -1)
        q, r = np.linalg.qr(_hosting.host_array(tall).astype(np.float64))
        signs = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
        self.base = _from_host(q * signs[..., None, :], Q)
        made = np.zeros(self.shape)
        rows = np.arange(k)
        made[..., rows, rows] = -1
        return _from_host(made, Q)


def _like(tensor: Any, like: Any) -> Any:
    return tensor.to(device=like.meta.device, dtype=like.meta.dtype)


def _from_host(array: Any, like: Any) -> Any:
    return _hosting.from_host(np.ascontiguousarray(array), like.meta.dtype, like.meta.device)


def _householder(X: Any) -> Any:
    """The first k columns of H_1 … H_k, H_i = 1 - tau_i v_i v_iᵀ, with v_i the columns below the diagonal of `X` under
    a 1, and tau_i = 2 / |v_i|²; columns take the signs of the diagonal (Golub and Van Loan, section 5.1)."""
    n, k = X.meta.shape[-2:]
    one = _like(eye(n, k), X)
    below: Any = X.tril(-1)
    vectors: Any = ops.add(below, one)
    tau: Any = ops.mul(ops.reciprocal(ops.add(ops.sum(ops.square(below), -2), 1.0)), 2.0)
    Q: Any = one.expand(X.meta.shape) if X.meta.ndim > 2 else one
    for i in reversed(range(k)):
        v = vectors[..., i : i + 1]
        Q = ops.sub(Q, ops.mul(tau[..., i : i + 1].unsqueeze(-1) * v, v.mT @ Q))
    signs = X.diagonal(0, -2, -1).detach().trunc()
    return Q * signs.unsqueeze(-2)


def matrix_exp(A: Any) -> Any:
    """e^A of square matrices (…, n, n): the series at A / 2^s, squared s times (Higham, Functions of Matrices, ch. 10).

    The host reads the matrices' norm, for s.
    """
    size = float(A.detach().abs().sum(-1).max()) if A.meta.numel else 0.0
    squarings = max(0, math.ceil(math.log2(size)) + 1) if math.isfinite(size) and size > 0 else 0
    scaled: Any = A * 0.5**squarings
    one = _like(eye(A.meta.shape[-1]), A)
    found: Any = ops.add(one, scaled * (1.0 / _TERMS))
    for term in range(_TERMS - 1, 0, -1):  # Horner: 1 + x (1 + x / 2 (1 + x / 3 …))
        found = ops.add(one, (scaled @ found) * (1.0 / term))
    for _ in range(squarings):
        found = found @ found
    return found


def _solve(left: Any, right: Any) -> Any:
    """left⁻¹ right for left = 1 - A, A skew: by the series of the inverse, Newton's way (Schulz 1933)."""
    one = _like(eye(left.meta.shape[-1]), left)
    size = float(left.detach().abs().sum(-1).max()) ** 2  # of |L|²: the guess's error is at most 1 - 1 / size
    guess: Any = left.mT * (1.0 / size)
    for _ in range(math.ceil(math.log2(max(2.0, size))) + 6):  # which every step squares
        guess = guess @ (one * 2.0 - left @ guess)
    return guess @ right
