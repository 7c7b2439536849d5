"""The encoder and decoder layers of a Transformer (Vaswani et al. 2017, arXiv 1706.03762, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .._generated import ops as _ops
from ..arguments.types import TensorOptions
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import DomainError
from ..runtime.tensor import Tensor
from . import functional as F
from .dropouts import Dropout
from .layers import Linear
from .module import Module
from .multihead_attention import MultiheadAttention
from .normalization import LayerNorm

__all__ = ["Activation", "TransformerDecoderLayer", "TransformerEncoderLayer"]

Activation: TypeAlias = str | Callable[[Tensor], Tensor]


class _TransformerLayer(Module):
    """Base of encoder and decoder layers: feed-forward part, norms, dropouts and self-attention."""

    self_attn: MultiheadAttention
    activation: Callable[[Tensor], Tensor]
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

    def _init_feed_forward(
        self,
        d_model: int,
        dim_feedforward: int,
        dropout: float,
        bias: bool,
        norm_first: bool,
        tensor_options: TensorOptions,
    ) -> None:
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **tensor_options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **tensor_options)
        self.norm_first = norm_first

    def _init_norms_and_dropouts(
        self, d_model: int, num_norms: int, dropout: float, eps: float, bias: bool, tensor_options: TensorOptions
    ) -> None:
        for index in range(1, num_norms + 1):
            setattr(self, f"norm{index}", LayerNorm(d_model, eps=eps, bias=bias, **tensor_options))
        for index in range(1, num_norms + 1):
            setattr(self, f"dropout{index}", Dropout(dropout))

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        """Apply self-attention and dropout."""
        output = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal, need_weights=False
        )[0]
        return self.dropout1(output)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward network, each with a residual connection and layer normalization.

    `forward(src, src_mask, src_key_padding_mask, is_causal)` takes and returns a floating-point tensor of shape
    `(S, N, d_model)`, of `(N, S, d_model)` with `batch_first`, or of `(S, d_model)`. `src_mask` has the shape `(S, S)`
    or `(N * nhead, S, S)`, `src_key_padding_mask` `(N, S)`. Bool masks are True where NOT to attend, floating-point
    ones are added to the scores, as in `functional.multi_head_attention_forward`.

    Args:
        d_model: Number of features of input and output.
        nhead: Number of attention heads; it divides `d_model`.
        dim_feedforward: Features of the hidden layer.
        dropout: Dropout probability.
        activation: `"relu"`, `"gelu"` or a function of a tensor.
        layer_norm_eps: `eps` of the layer norms.
        batch_first: Whether the batch is the first dimension.
        norm_first: Whether to normalize the input of each part instead of the residual sum (Xiong et al. 2020, arXiv
            2002.04745).
        bias: Whether linear layers and norms have biases.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Raises:
        DomainError: `activation` is another string.

    Example:
        >>> wg.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(wg.ones(2, 7, 8)).shape
        weftgrad.Size([2, 7, 8])
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__()
        tensor_options: TensorOptions = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **tensor_options)
        self._init_feed_forward(d_model, dim_feedforward, dropout, bias, norm_first, tensor_options)
        self._init_norms_and_dropouts(d_model, 2, dropout, layer_norm_eps, bias, tensor_options)
        self.activation = _activation_function(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = src
        if self.norm_first:
            x = _ops.add(x, self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal))
            return _ops.add(x, self._ff_block(self.norm2(x)))
        x = self.norm1(_ops.add(x, self._sa_block(x, src_mask, src_key_padding_mask, is_causal)))
        return self.norm2(_ops.add(x, self._ff_block(x)))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._feed_forward(x))


class TransformerDecoderLayer(_TransformerLayer):
    """An encoder layer with attention to `memory`, the encoder's output, between self-attention and feed-forward.

    `forward(tgt, memory, ...)` takes `tgt` of shape `(T, N, d_model)` and `memory` of `(S, N, d_model)`, with
    `batch_first` of `(N, T, d_model)` and `(N, S, d_model)`, and returns a tensor of the shape of `tgt`. `tgt_mask` has
    the shape `(T, T)`, `memory_mask` `(T, S)`, `tgt_key_padding_mask` `(N, T)` and `memory_key_padding_mask` `(N, S)`.
    Bool masks are True where NOT to attend, floating-point ones are added to the scores.

    Args:
        d_model: Number of features of input and output.
        nhead: Number of attention heads; it divides `d_model`.
        dim_feedforward: Features of the hidden layer.
        dropout: Dropout probability.
        activation: `"relu"`, `"gelu"` or a function of a tensor.
        layer_norm_eps: `eps` of the layer norms.
        batch_first: Whether the batch is the first dimension.
        norm_first: Whether to normalize the input of each part instead of the residual sum (Xiong et al. 2020, arXiv
            2002.04745).
        bias: Whether linear layers and norms have biases.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Raises:
        DomainError: `activation` is another string.

    Example:
        >>> wg.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)(wg.ones(2, 5, 8), wg.ones(2, 7, 8)).shape
        weftgrad.Size([2, 5, 8])
    """

    norm3: LayerNorm
    dropout3: Dropout

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__()
        tensor_options: TensorOptions = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **tensor_options)
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **tensor_options
        )
        self._init_feed_forward(d_model, dim_feedforward, dropout, bias, norm_first, tensor_options)
        self._init_norms_and_dropouts(d_model, 3, dropout, layer_norm_eps, bias, tensor_options)
        self.activation = _activation_function(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        self_attention_args = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        memory_args = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = _ops.add(x, self._sa_block(self.norm1(x), *self_attention_args))
            x = _ops.add(x, self._mha_block(self.norm2(x), *memory_args))
            return _ops.add(x, self._ff_block(self.norm3(x)))
        x = self.norm1(_ops.add(x, self._sa_block(x, *self_attention_args)))
        x = self.norm2(_ops.add(x, self._mha_block(x, *memory_args)))
        return self.norm3(_ops.add(x, self._ff_block(x)))

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        """Apply attention to `mem` and dropout."""
        output = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal, need_weights=False
        )[0]
        return self.dropout2(output)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._feed_forward(x))


def _activation_function(activation: Activation) -> Callable[[Tensor], Tensor]:
    """Return the function of a name. Raise `DomainError` unless it is relu, gelu or a callable."""
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise DomainError(f"activation is 'relu', 'gelu' or a function of a tensor, not {activation!r}")
    return F.relu if activation == "relu" else F.gelu
