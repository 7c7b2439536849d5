"""Collects the functions that build and rearrange tensors, for the package's namespace and for Tensor."""

from __future__ import annotations

from typing import Any

from . import assembling, cutting, matrices, repeating, shapes, shuffling, triangles
from .assembling import *  # noqa: F403
from .contracting import einsum, tensordot
from .cutting import *  # noqa: F403
from .distances import cdist, cosine_similarity, pairwise_distance, pdist
from .matrices import *  # noqa: F403
from .repeating import *  # noqa: F403
from .runtime.errors import ShapeError
from .runtime.tensor import Tensor
from .shuffling import *  # noqa: F403
from .triangles import *  # noqa: F403

__all__ = ["cdist", "cosine_similarity", "einsum", "pairwise_distance", "pdist", "tensordot"]
for _source in (assembling, cutting, matrices, repeating, shuffling, triangles):
    __all__ += _source.__all__

_METHODS: dict[str, Any] = {"adjoint": shapes.adjoint}
for _source in (assembling, cutting, matrices, repeating, triangles):
    _METHODS |= _source.METHODS


def _matrix_transpose(self: Tensor) -> Tensor:
    """Swap the last two dimensions; mH is the same, since all dtypes are real."""
    if self.meta.ndim == 1:
        raise ShapeError("mT, mH: a vector has no last two dimensions; use .unsqueeze() first")
    return shapes.adjoint(self)


def _conjugate_transpose(self: Tensor) -> Tensor:
    """Return the transpose of a matrix, which is also its conjugate transpose, since all dtypes are real."""
    if self.meta.ndim not in (0, 2):
        raise ShapeError(f"H: takes a matrix, not shape {list(self.meta.shape)}; use .mH for batches of matrices")
    return shapes.adjoint(self)


def install() -> None:
    """Add the methods and the properties H, mH and mT to `Tensor`."""
    for name, function in _METHODS.items():
        setattr(Tensor, name, function)
    for name, function in (("H", _conjugate_transpose), ("mH", _matrix_transpose), ("mT", _matrix_transpose)):
        setattr(Tensor, name, property(function))
