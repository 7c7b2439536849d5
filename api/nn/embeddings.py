"""Layers that hold a table of vectors: embeddings, and embeddings reduced over bags."""

from __future__ import annotations

from typing import Any

from ..factories import empty
from ..runtime.errors import ArgumentError, NotSupported, ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """A table (num_embeddings, embedding_dim), drawn from N(0, 1). Row `padding_idx` is 0 at first."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, max_norm: float | None,
        norm_type: float, scale_grad_by_freq: bool, sparse: bool, weight: Tensor | None, freeze: bool, device: Any,
        dtype: Any,
    ):  # fmt: skip
        super().__init__()
        name = type(self).__name__
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(f"{name}: padding_idx {padding_idx} is no row of {num_embeddings}")
        if sparse:
            raise NotSupported(f"{name}: there are no sparse gradients; leave sparse=False")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx % num_embeddings if padding_idx is not None else None
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if weight is None:
            self.weight = Parameter(empty(num_embeddings, embedding_dim, device=device, dtype=dtype))
            self.reset_parameters()
        else:
            if weight.meta.shape != (num_embeddings, embedding_dim):
                raise ShapeError(
                    f"{name}: the table has shape {list(weight.meta.shape)}, not {[num_embeddings, embedding_dim]}"
                )
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draw the table anew from N(0, 1)."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.data[self.padding_idx])  # type: ignore[attr-defined]

    def _described(self, **more: Any) -> str:
        known = {
            "padding_idx": (self.padding_idx, None), "max_norm": (self.max_norm, None),
            "norm_type": (self.norm_type, 2.0), "scale_grad_by_freq": (self.scale_grad_by_freq, False),
        }  # fmt: skip
        shown = {name: value for name, (value, usual) in known.items() if value != usual} | more
        if more and "padding_idx" in shown:
            shown["padding_idx"] = shown.pop("padding_idx")  # where PyTorch shows it: behind the mode
        return ", ".join([str(self.num_embeddings), str(self.embedding_dim), *(f"{k}={v}" for k, v in shown.items())])


class Embedding(_Table):
    """A table of vectors, looked up by integers (see `functional.embedding`).

    Row `padding_idx` is 0 at first and is not learned. `_weight`: the table, in the place of a new one.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
        _weight: Tensor | None = None, _freeze: bool = False, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
            _freeze, device, dtype,
        )  # fmt: skip

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> Embedding:  # fmt: skip
        """An embedding over a given table."""
        rows, features = _sizes(embeddings, "Embedding")
        return cls(
            rows, features, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        return self._described()


class EmbeddingBag(_Table):
    """Sums, means or maxima of a table's vectors over bags of integers (see `functional.embedding_bag`)."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
            False, device, dtype,
        )  # fmt: skip
        self.mode = mode
        self.include_last_offset = include_last_offset

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
        include_last_offset: bool = False, padding_idx: int | None = None,
    ) -> EmbeddingBag:  # fmt: skip
        """Bags over a given table."""
        rows, features = _sizes(embeddings, "EmbeddingBag")
        made = cls(
            rows, features, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset,
            padding_idx,
        )  # fmt: skip
        made.weight.requires_grad_(not freeze)
        return made

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return self._described(mode=repr(self.mode))


def _sizes(table: Tensor, where: str) -> tuple[int, int]:
    if table.meta.ndim != 2:
        raise ShapeError(f"{where}: the table must be a matrix, not of shape {list(table.meta.shape)}")
    rows, features = table.meta.shape
    return rows, features
