"""Activations, under PyTorch's module path."""

from __future__ import annotations

from .. import activations
from ..activations import *
from ..transformers import MultiheadAttention

__all__ = [*activations.__all__, "MultiheadAttention"]
