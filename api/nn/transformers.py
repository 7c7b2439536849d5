"""Multi-head attention and the Transformer (Vaswani et al. 2017, arXiv 1706.03762). `_heads` has the computation."""

from __future__ import annotations

import copy
from collections.abc import Callable

from .._generated import ops as _ops
from ..amp.autocast_mode import is_autocast_enabled
from ..arguments.types import TensorOptions
from ..creation.factories import empty, full
from ..linear_algebra.triangles import triu
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dispatch import is_recorded
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, AttentionShapeError, DomainError, ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
from . import init
from ._heads import Heads, additive_mask, attend_heads
from .activations import GELU, ReLU
from .containers import ModuleList
from .dropouts import Dropout
from .layers import Linear
from .module import Module
from .normalization import LayerNorm
from .parameter import Parameter

__all__ = [
    "MultiheadAttention",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = str | Callable[[Tensor], Tensor]


class NonDynamicallyQuantizableLinear(Linear):
    """`Linear` under the name that PyTorch prints for attention's output projection."""


class MultiheadAttention(Module):
    """Multi-head attention with input and output projections (Vaswani et al. 2017, section 3.2.2).

    `forward` takes query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim); with `batch_first` the batch N comes
    first, and N may be missing. It returns (output, weights or None). See `functional.multi_head_attention_forward` for
    the masks.

    Args:
        embed_dim: Features of query and output.
        num_heads: Number of heads, a divisor of `embed_dim`.
        dropout: Probability of dropping an attention weight in training.
        bias: Add biases in the projections.
        add_bias_kv: Append a learned position to key and value.
        add_zero_attn: Append a position of zeros to key and value.
        kdim: Features of the key; None means `embed_dim`.
        vdim: Features of the value; None means `embed_dim`.
        batch_first: Whether the batch is the first dimension.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Raises:
        ArgumentError: If `embed_dim` or `num_heads` is not positive.
        AttentionShapeError: If `num_heads` does not divide `embed_dim`.

    Example:
        >>> x = wg.ones(2, 7, 8)
        >>> output, weights = wg.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
        >>> output.shape, weights.shape
        (weftgrad.Size([2, 7, 8]), weftgrad.Size([2, 7, 7]))
    """

    in_proj_weight: Parameter  # None with `kdim` or `vdim`, and the three weights are None without them
    q_proj_weight: Parameter
    k_proj_weight: Parameter
    v_proj_weight: Parameter
    in_proj_bias: Parameter  # None without `bias`
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        if embed_dim <= 0 or num_heads <= 0:
            raise ArgumentError(
                f"MultiheadAttention: embed_dim and num_heads must be positive, not {embed_dim} and {num_heads}"
            )
        if embed_dim % num_heads:
            raise AttentionShapeError(
                f"MultiheadAttention: embed_dim {embed_dim} must be divisible by num_heads {num_heads}"
            )
        super().__init__()
        tensor_options: TensorOptions = {"device": device, "dtype": dtype}
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads, self.dropout, self.batch_first = num_heads, dropout, batch_first
        self.head_dim = embed_dim // num_heads
        has_separate_weights = not self._qkv_same_embed_dim
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            weight = Parameter(empty(embed_dim, width, **tensor_options)) if has_separate_weights else None
            self.register_parameter(f"{name}_proj_weight", weight)
        self.register_parameter(
            "in_proj_weight",
            None if has_separate_weights else Parameter(empty(3 * embed_dim, embed_dim, **tensor_options)),
        )
        self.register_parameter("in_proj_bias", Parameter(empty(3 * embed_dim, **tensor_options)) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **tensor_options)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, Parameter(empty(1, 1, embed_dim, **tensor_options)) if add_bias_kv else None)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw projections from Xavier's uniform and `bias_k`, `bias_v` from Xavier's normal distribution.

        Set biases to 0.
        """
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        qkv_weights = None
        if not self._qkv_same_embed_dim:
            qkv_weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        heads = Heads(
            self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.out_proj.weight, self.out_proj.bias, qkv_weights,
        )  # fmt: skip
        return attend_heads(
            (query, key, value), heads, self.dropout if self.training else 0.0, key_padding_mask, attn_mask,
            need_weights, average_attn_weights, is_causal, batch_first=self.batch_first,
        )  # fmt: skip


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

    `forward` takes and returns (S, N, d_model), or (N, S, d_model) with `batch_first`, or (S, d_model).

    Args:
        d_model: Features.
        nhead: Number of attention heads.
        dim_feedforward: Features of the hidden layer.
        dropout: Dropout probability.
        activation: `"relu"`, `"gelu"` or a function of a tensor.
        layer_norm_eps: `eps` of the layer norms.
        batch_first: Whether the batch is the first dimension.
        norm_first: Normalize the input of each part instead of the sum (Xiong et al. 2020, arXiv 2002.04745).
        bias: Add biases in linear layers and norms.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Raises:
        DomainError: If `activation` is another string.

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

    `forward` takes tgt (T, N, d_model) and memory (S, N, d_model). The arguments are `TransformerEncoderLayer`'s.

    Args:
        d_model: Features.
        nhead: Number of attention heads.
        dim_feedforward: Features of the hidden layer.
        dropout: Dropout probability.
        activation: `"relu"`, `"gelu"` or a function of a tensor.
        layer_norm_eps: `eps` of the layer norms.
        batch_first: Whether the batch is the first dimension.
        norm_first: Normalize the input of each part instead of the sum (Xiong et al. 2020, arXiv 2002.04745).
        bias: Add biases in linear layers and norms.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Raises:
        DomainError: If `activation` is another string.

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


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer, then `norm`.

    Unless `is_causal` is passed, `forward` compares a mask with the causal one, and the host waits for the result.

    Args:
        encoder_layer: The layer to copy.
        num_layers: Number of copies.
        norm: Module after the last layer, or None.
        enable_nested_tensor: In evaluation without gradients, zero padded positions before `norm`, as PyTorch's nested
            tensors do, if PyTorch has a fast path for the layer and padding is at the end of each sample.
        mask_check: Check on the host that padding is at the end.

    Example:
        >>> layer = wg.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> wg.nn.TransformerEncoder(layer, 2)(wg.ones(2, 7, 8)).shape
        weftgrad.Size([2, 7, 8])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        super().__init__()
        self.layers = _clone_layers(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        self.use_nested_tensor = enable_nested_tensor and _has_fast_path(encoder_layer)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        causal = _is_causal(mask, is_causal, _sequence_length(src, self.layers))
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=causal, src_key_padding_mask=src_key_padding_mask)
        if src_key_padding_mask is not None and mask is None and self._zeroes_padding(src):
            padded = _ops.ne(src_key_padding_mask, 0)
            if not self.mask_check or _is_padding_at_end(padded):
                x = _ops.where(_ops.unsqueeze(padded, -1), 0.0, x)
        return x if self.norm is None else self.norm(x)

    def _zeroes_padding(self, src: Tensor) -> bool:
        """Return whether PyTorch would use nested tensors here, so that padded positions are zero."""
        if (
            not self.use_nested_tensor
            or self.layers[0].training
            or src.meta.ndim != 3
            or is_autocast_enabled(src.meta.device.type)
        ):
            return False
        return not is_recorded(src, *self.layers[0].parameters())


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer, then `norm`.

    `tgt_is_causal` is like `is_causal` of `TransformerEncoder`.

    Args:
        decoder_layer: The layer to copy.
        num_layers: Number of copies.
        norm: Module after the last layer.

    Example:
        >>> layer = wg.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
        >>> wg.nn.TransformerDecoder(layer, 2)(wg.ones(2, 5, 8), wg.ones(2, 7, 8)).shape
        weftgrad.Size([2, 5, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = _clone_layers(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        causal = _is_causal(tgt_mask, tgt_is_causal, _sequence_length(tgt, self.layers))
        x = tgt
        for layer in self.layers:
            x = layer(
                x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder, and a decoder that attends to the encoder's output (Vaswani et al. 2017).

    `forward` takes src (S, N, d_model) and tgt (T, N, d_model) and returns tgt's shape; with `batch_first` the batch N
    comes first, and N may be missing. Most arguments are `TransformerEncoderLayer`'s.

    Args:
        d_model: Features.
        nhead: Number of attention heads.
        num_encoder_layers: Layers of the encoder.
        num_decoder_layers: Layers of the decoder.
        dim_feedforward: Features of the hidden layers.
        dropout: Dropout probability.
        activation: `"relu"`, `"gelu"` or a function of a tensor.
        custom_encoder: Encoder to use instead of a `TransformerEncoder`; None creates one.
        custom_decoder: Decoder to use instead of a `TransformerDecoder`; None creates one.
        layer_norm_eps: `eps` of the layer norms.
        batch_first: Whether the batch is the first dimension.
        norm_first: Normalize the input of each part instead of the sum.
        bias: Add biases in linear layers and norms.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)(wg.ones(2, 7, 8), wg.ones(2, 5, 8)).shape
        weftgrad.Size([2, 5, 8])
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = F.relu,
        custom_encoder: Module | None = None, custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__()
        tensor_options: TensorOptions = {"device": device, "dtype": dtype}
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **tensor_options)

        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(
                TransformerEncoderLayer(*options, **tensor_options), num_encoder_layers, norm()
            )
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(*options, **tensor_options), num_decoder_layers, norm()
            )
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        """Draw all parameters of more than one dimension from Xavier's uniform distribution."""
        for parameter in self.parameters():
            if parameter.meta.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        shapes = f"src has shape {list(src.meta.shape)} and tgt {list(tgt.meta.shape)}"
        batch = 0 if self.batch_first else 1
        if src.meta.ndim == 3 and src.meta.shape[batch] != tgt.meta.shape[batch]:
            raise ShapeError(f"Transformer: {shapes}; their batch sizes (dimension {batch}) must be equal")
        if src.meta.shape[-1] != self.d_model or tgt.meta.shape[-1] != self.d_model:
            raise ShapeError(f"Transformer: {shapes}; the last dimension must be d_model, {self.d_model}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ) -> Tensor:
        """Return the causal mask of shape `(sz, sz)`: -inf above the diagonal (True for bool), 0 elsewhere.

        Args:
            sz: Number of positions.
            device: Device of the mask; None: the default device.
            dtype: Dtype of the mask; None: the default dtype.

        Returns:
            Tensor of shape `(sz, sz)`.

        Example:
            >>> wg.nn.Transformer.generate_square_subsequent_mask(3)
            tensor([[0., -inf, -inf],
                    [0., 0., -inf],
                    [0., 0., 0.]])
        """
        return triu(full((sz, sz), float("-inf"), dtype=dtype, device=device), 1)


def _activation_function(activation: Activation) -> Callable[[Tensor], Tensor]:
    """Return the function of a name. Raise `DomainError` unless it is relu, gelu or a callable."""
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise DomainError(f"activation is 'relu', 'gelu' or a function of a tensor, not {activation!r}")
    return F.relu if activation == "relu" else F.gelu


def _clone_layers(module: Module, count: int) -> ModuleList:
    """Return copies of a layer, which do not share parameters but begin with the same values."""
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _has_fast_path(layer: Module) -> bool:
    """Return whether PyTorch has a fused kernel for this layer, for which it creates nested tensors."""
    if not isinstance(layer, TransformerEncoderLayer):
        return False
    attention, activation = layer.self_attn, layer.activation
    has_known_activation = activation in (F.relu, F.gelu) or isinstance(activation, (ReLU, GELU))
    return (
        has_known_activation and not layer.norm_first and attention.batch_first and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None and layer.norm1.eps == layer.norm2.eps and attention.num_heads % 2 == 0
    )  # fmt: skip


def _is_padding_at_end(padded: Tensor) -> bool:
    """Return whether no sample of `padded`, (N, S), has a real position after a padded one. The host waits."""
    current, following = (_ops.narrow(padded, 1, k, padded.meta.shape[1] - 1) for k in (0, 1))
    return bool(_ops.all(_ops.logical_or(following, _ops.logical_not(current))))


def _sequence_length(x: Tensor, layers: ModuleList) -> int | None:
    """Return the number of positions of `x`. A custom layer without `batch_first` is assumed to take (S, N, E)."""
    if x.meta.ndim == 2:
        return x.meta.shape[0]
    attention = getattr(layers[0], "self_attn", None) if len(layers) else None
    return x.meta.shape[1 if getattr(attention, "batch_first", False) else 0]


def _is_causal(mask: Tensor | None, is_causal: bool | None, size: int | None) -> bool:
    """Return `is_causal` if it is not None, else whether `mask` is the causal mask, for which the host waits."""
    if is_causal is not None or mask is None:
        return is_causal is True
    if size is None or mask.meta.shape != (size, size):
        return False
    scores_mask = additive_mask(mask, mask.meta.dtype if mask.meta.dtype.kind == "f" else dtypes.float32)
    assert scores_mask is not None
    causal_mask = Transformer.generate_square_subsequent_mask(
        size, device=mask.meta.device, dtype=scores_mask.meta.dtype
    )
    return bool(_ops.all(_ops.eq(scores_mask, causal_mask)))
