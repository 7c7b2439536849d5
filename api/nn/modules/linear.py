"""Linear layers, under PyTorch's module path."""

from __future__ import annotations

from ..layers import Bilinear, Identity, Linear
from ..lazy import LazyLinear

__all__ = [
    "Bilinear",
    "Identity",
    "LazyLinear",
    "Linear",
]
