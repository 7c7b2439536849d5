"""Tables, under the path that PyTorch has them at."""

from __future__ import annotations

from ..embeddings import Embedding, EmbeddingBag

__all__ = ["Embedding", "EmbeddingBag"]
