"""Embedding tables, under PyTorch's module path `nn.modules.sparse`."""

from __future__ import annotations

from ..embeddings import Embedding, EmbeddingBag

__all__ = ["Embedding", "EmbeddingBag"]
