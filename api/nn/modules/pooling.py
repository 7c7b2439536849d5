"""Pooling, under PyTorch's module path."""

from __future__ import annotations

from .. import adaptive_pooling_layers, folding, pooling_layers
from ..adaptive_pooling_layers import *
from ..folding import *
from ..fractional import FractionalMaxPool2d, FractionalMaxPool3d
from ..pooling_layers import *

__all__ = [
    *pooling_layers.__all__, *adaptive_pooling_layers.__all__, *folding.__all__, "FractionalMaxPool2d",
    "FractionalMaxPool3d",
]  # fmt: skip
