"""Activations, under PyTorch's module path."""

from __future__ import annotations

from .. import activations, rectified_units
from ..activations import *
from ..multihead_attention import MultiheadAttention
from ..rectified_units import *

__all__ = [*activations.__all__, *rectified_units.__all__, "MultiheadAttention"]
