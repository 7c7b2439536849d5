"""The functions of shape work under one roof, for the package and for Tensor."""

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
    """The last two dimensions exchanged; mH is the same, since numbers here are real."""
    if self.meta.ndim == 1:
        raise ShapeError("mT, mH: a vector has no last two dimensions; use .unsqueeze() first")
    return shapes.adjoint(self)


def _conjugate_transpose(self: Tensor) -> Tensor:
    """The transpose of a matrix: the conjugate one, since numbers here are real."""
    if self.meta.ndim not in (0, 2):
        raise ShapeError(f"H: takes a matrix, not shape {list(self.meta.shape)}; use .mH for batches of matrices")
    return shapes.adjoint(self)


def install() -> None:
    """Put the methods on `Tensor`."""
    for name, function in _METHODS.items():
        setattr(Tensor, name, function)
    for name, function in (("H", _conjugate_transpose), ("mH", _matrix_transpose), ("mT", _matrix_transpose)):
        setattr(Tensor, name, property(function))
