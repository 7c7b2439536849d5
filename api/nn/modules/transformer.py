"""Transformers, under PyTorch's module path."""

from __future__ import annotations

from ..transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer
from ..transformers import Transformer, TransformerDecoder, TransformerEncoder

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]
