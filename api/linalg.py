"""Linear algebra under the names of `torch.linalg`: products and norms."""

from __future__ import annotations

from ._generated import ops
from .functions import matmul, norm
from .functions import norm as vector_norm
from .matrices import cross as _cross
from .matrices import multi_dot
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = ["cross", "diagonal", "matmul", "multi_dot", "norm", "vecdot", "vector_norm"]


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The vector product along `dim`, which has size 3; other dimensions broadcast."""
    return _cross(input, other, dim, out=out)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of two dimensions, as a view whose last dimension it is."""
    return ops.diagonal(A, offset, dim1, dim2)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Sums of products along `dim`; other dimensions broadcast."""
    found = ops.sum(ops.mul(x, y), dim)
    return found if out is None else store(found, out, "vecdot")
