"""Linear layers, under the path that PyTorch has them at."""

from __future__ import annotations

from ..layers import Bilinear, Identity, Linear
from ..lazy import LazyLinear

__all__ = [
    "Bilinear",
    "Identity",
    "LazyLinear",
    "Linear",
]
