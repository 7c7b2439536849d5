"""Layer, group and RMS normalization, under PyTorch's module path."""

from __future__ import annotations

from ..normalization import GroupNorm, LayerNorm, LocalResponseNorm, RMSNorm

__all__ = ["GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]
