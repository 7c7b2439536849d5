"""Instance normalization, under PyTorch's module path."""

from __future__ import annotations

from ..batch_normalization import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, _InstanceNorm

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "_InstanceNorm",
]
