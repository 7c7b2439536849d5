"""The Transformer (Vaswani et al. 2017, arXiv 1706.03762): stacks of `transformer_layers`, and the whole network."""

from __future__ import annotations

import copy

from .._generated import ops as _ops
from ..amp.autocast_mode import is_autocast_enabled
from ..arguments.types import TensorOptions
from ..creation.factories import full
from ..linear_algebra.triangles import triu
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dispatch import is_recorded
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
from . import init
from ._attention_heads import additive_mask
from .activations import GELU
from .containers import ModuleList
from .module import Module
from .multihead_attention import MultiheadAttention, NonDynamicallyQuantizableLinear  # noqa: F401 (see `activations`)
from .normalization import LayerNorm
from .rectified_units import ReLU
from .transformer_layers import Activation, TransformerDecoderLayer, TransformerEncoderLayer

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerEncoder",
]


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
