"""Convolutions, under PyTorch's module path."""

from __future__ import annotations

from ..convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..convolutions import _Convolution as _ConvNd
from ..convolutions import _Transposed as _ConvTransposeNd

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "_ConvNd",
    "_ConvTransposeNd",
]
