"""Normalizations of samples, under the path that PyTorch has them at."""

from __future__ import annotations

from ..normalization import GroupNorm, LayerNorm, LocalResponseNorm, RMSNorm

__all__ = ["GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]
