"""Linear algebra under the names of `torch.linalg`: products and norms."""

from __future__ import annotations

from ._generated.ops import diagonal
from .functions import matmul, norm
from .functions import norm as vector_norm

__all__ = ["diagonal", "matmul", "norm", "vector_norm"]
