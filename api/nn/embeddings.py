"""Embedding layers: lookups in a table of vectors, optionally reduced over bags of indices."""

from __future__ import annotations

from ..creation.factories import empty
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, NotSupported, ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class _EmbeddingTable(Module):
    """Base class with a table (num_embeddings, embedding_dim) drawn from N(0, 1). Row `padding_idx` starts as 0."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, max_norm: float | None,
        norm_type: float, scale_grad_by_freq: bool, sparse: bool, weight: Tensor | None, freeze: bool,
        device: DeviceLike | None, dtype: DTypeLike | None,
    ):  # fmt: skip
        super().__init__()
        name = type(self).__name__
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(f"{name}: padding_idx {padding_idx} is not below num_embeddings {num_embeddings}")
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
        """Draw the table from N(0, 1)."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.data[self.padding_idx])

    def _describe(self, **extra_options: object) -> str:
        defaults = {
            "padding_idx": (self.padding_idx, None), "max_norm": (self.max_norm, None),
            "norm_type": (self.norm_type, 2.0), "scale_grad_by_freq": (self.scale_grad_by_freq, False),
        }  # fmt: skip
        options = {name: value for name, (value, default) in defaults.items() if value != default} | extra_options
        if extra_options and "padding_idx" in options:
            options["padding_idx"] = options.pop("padding_idx")  # PyTorch prints it after the mode
        return ", ".join([str(self.num_embeddings), str(self.embedding_dim), *(f"{k}={v}" for k, v in options.items())])


class Embedding(_EmbeddingTable):
    """A table of vectors that is looked up by integer indices; see `functional.embedding`.

    Args:
        num_embeddings: Rows of the table.
        embedding_dim: Features of a row.
        padding_idx: Row that starts as 0 and gets no gradient.
        max_norm: Rows with a larger norm are scaled down to it when they are looked up.
        norm_type: Order of that norm.
        scale_grad_by_freq: Divide gradients by the frequency of the row in the batch.
        sparse: Must be False.
        _weight: Table to use instead of a new one.
        _freeze: Whether `_weight` gets no gradient.
        device: Device of the table; None: the default device.
        dtype: Dtype of the table; None: the default dtype.

    Shape:
        Input `(*)` of integers to `(*, embedding_dim)`.

    Raises:
        ArgumentError: If `padding_idx` is not below `num_embeddings`.
        NotSupported: If `sparse`.
        ShapeError: If `_weight` has another shape.

    Example:
        >>> wg.nn.Embedding(10, 3)(wg.tensor([[1, 2]])).shape
        weftgrad.Size([1, 2, 3])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
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
        """Return an embedding with the table `embeddings`, which is not learned if `freeze`.

        Args:
            embeddings: Table of shape `(num_embeddings, embedding_dim)`, whose memory the layer shares.
            freeze: Whether the table gets no gradient.
            padding_idx: Row that gets no gradient.
            max_norm: Rows with a larger norm are scaled down to it when they are looked up.
            norm_type: Order of that norm.
            scale_grad_by_freq: Divide gradients by the frequency of the row in the batch.
            sparse: Must be False.

        Returns:
            `Embedding`.

        Raises:
            ShapeError: If `embeddings` is not a matrix.
            NotSupported: If `sparse`.

        Example:
            >>> layer = wg.nn.Embedding.from_pretrained(wg.tensor([[1.0, 2.0], [3.0, 4.0]]))
            >>> layer(wg.tensor([1, 0]))
            tensor([[3., 4.],
                    [1., 2.]])
        """
        rows, features = _table_shape(embeddings, "Embedding")
        return cls(
            rows, features, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        return self._describe()


class EmbeddingBag(_EmbeddingTable):
    """Sums, means or maxima of table rows over bags of indices; see `functional.embedding_bag`.

    Args:
        num_embeddings: Rows of the table.
        embedding_dim: Features of a row.
        max_norm: Rows with a larger norm are scaled down to it when they are looked up.
        norm_type: Order of that norm.
        scale_grad_by_freq: Divide gradients by the frequency of the row in the batch.
        mode: `"sum"`, `"mean"` or `"max"`.
        sparse: Must be False.
        _weight: Table to use instead of a new one.
        include_last_offset: The last offset is the length of the input.
        padding_idx: Index that is skipped.
        device: Device of the table; None: the default device.
        dtype: Dtype of the table; None: the default dtype.

    Shape:
        Input `(B, N)`, or `(N)` with offsets `(B)`, to `(B, embedding_dim)`.

    Raises:
        ArgumentError: If `padding_idx` is not below `num_embeddings`.
        NotSupported: If `sparse`.
        ShapeError: If `_weight` has another shape.

    Example:
        >>> wg.nn.EmbeddingBag(10, 3)(wg.tensor([[1, 2], [3, 4]])).shape
        weftgrad.Size([2, 3])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
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
        """Return an embedding bag with the table `embeddings`, which is not learned if `freeze`.

        Args:
            embeddings: Table of shape `(num_embeddings, embedding_dim)`, whose memory the layer shares.
            freeze: Whether the table gets no gradient.
            max_norm: Rows with a larger norm are scaled down to it when they are looked up.
            norm_type: Order of that norm.
            scale_grad_by_freq: Divide gradients by the frequency of the row in the batch.
            mode: `"sum"`, `"mean"` or `"max"`.
            sparse: Must be False.
            include_last_offset: The last offset is the length of the input.
            padding_idx: Index that is skipped.

        Returns:
            `EmbeddingBag`.

        Raises:
            ShapeError: If `embeddings` is not a matrix.
            NotSupported: If `sparse`.

        Example:
            >>> bag = wg.nn.EmbeddingBag.from_pretrained(wg.tensor([[1.0, 2.0], [3.0, 4.0]]))
            >>> bag(wg.tensor([[0, 1]]))
            tensor([[2., 3.]])
        """
        rows, features = _table_shape(embeddings, "EmbeddingBag")
        bag = cls(
            rows, features, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset,
            padding_idx,
        )  # fmt: skip
        bag.weight.requires_grad_(not freeze)
        return bag

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return self._describe(mode=repr(self.mode))


def _table_shape(table: Tensor, caller: str) -> tuple[int, int]:
    if table.meta.ndim != 2:
        raise ShapeError(f"{caller}: the table must be a matrix, not of shape {list(table.meta.shape)}")
    rows, features = table.meta.shape
    return rows, features
