"""Batch normalization, under PyTorch's module path."""

from __future__ import annotations

from ..batch_normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm, _BatchNorm
from ..batch_normalization import _ChannelNorm as _NormBase

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "SyncBatchNorm",
    "_BatchNorm",
    "_NormBase",
]
