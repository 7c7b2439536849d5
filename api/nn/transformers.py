"""Multi-head attention and the Transformer (Vaswani et al., "Attention is all you need", 2017): layers and stacks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from .._generated import ops as _ops
from ..amp.autocast_mode import is_autocast_enabled
from ..factories import empty, full
from ..runtime import dtypes
from ..runtime.dispatch import is_recorded
from ..runtime.errors import ArgumentError, AttentionShapeError, DomainError, ShapeError
from ..runtime.tensor import Tensor
from ..triangles import triu
from . import functional as F
from . import init
from ._heads import Heads, additive, attended
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
    """`Linear` under the name that PyTorch prints for the projection of attention's result."""


class MultiheadAttention(Module):
    """Attention in `num_heads` parts of `embed_dim` features, between projections of its operands and its result.

    kdim, vdim: features of key and value, `embed_dim` unless given. dropout: of probabilities, in training. bias: of
    the projections. add_bias_kv: one more, learned position of key and value; add_zero_attn: one of zeros.
    batch_first: operands are (N, L, E), not (L, N, E). Call: `(query, key, value, key_padding_mask=None,
    need_weights=True, attn_mask=None, average_attn_weights=True, is_causal=False)`; see
    `functional.multi_head_attention_forward`. Without weights nothing of the size of the scores is stored.
    """

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
        device: Any = None,
        dtype: Any = None,
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
        made = {"device": device, "dtype": dtype}
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads, self.dropout, self.batch_first = num_heads, dropout, batch_first
        self.head_dim = embed_dim // num_heads
        apart = not self._qkv_same_embed_dim
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            weight = Parameter(empty(embed_dim, width, **made)) if apart else None
            self.register_parameter(f"{name}_proj_weight", weight)
        self.register_parameter("in_proj_weight", None if apart else Parameter(empty(3 * embed_dim, embed_dim, **made)))
        self.register_parameter("in_proj_bias", Parameter(empty(3 * embed_dim, **made)) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **made)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, Parameter(empty(1, 1, embed_dim, **made)) if add_bias_kv else None)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Projections from Glorot's uniform distribution, biases 0, the added positions from his normal one."""
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
        separate = None
        if not self._qkv_same_embed_dim:
            separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        heads = Heads(
            self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.out_proj.weight, self.out_proj.bias, separate,
        )  # fmt: skip
        return attended(
            (query, key, value), heads, self.dropout if self.training else 0.0, key_padding_mask, attn_mask,
            need_weights, average_attn_weights, is_causal, batch_first=self.batch_first,
        )  # fmt: skip


class _Layer(Module):
    """What layers of encoder and decoder share: the feed-forward part, and where normalisation stands."""

    def _feed_forward(
        self, d_model: int, width: int, dropout: float, bias: bool, norm_first: bool, made: dict[str, Any]
    ) -> None:
        self.linear1 = Linear(d_model, width, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(width, d_model, bias=bias, **made)
        self.norm_first = norm_first

    def _finish(self, d_model: int, norms: int, dropout: float, eps: float, bias: bool, made: dict[str, Any]) -> None:
        for n in range(1, norms + 1):
            setattr(self, f"norm{n}", LayerNorm(d_model, eps=eps, bias=bias, **made))
        for n in range(1, norms + 1):
            setattr(self, f"dropout{n}", Dropout(dropout))

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        """Attention of a sequence to itself."""
        found = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal, need_weights=False
        )[0]
        return self.dropout1(found)  # type: ignore[no-any-return]

    def _fed(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))  # type: ignore[no-any-return]


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two linear maps with an activation between them; each is added to its
    input, and the sum is normalised (with `norm_first` the input is, Xiong et al. 2020).

    Call: `(src, src_mask=None, src_key_padding_mask=None, is_causal=False)`; src is (S, N, d_model), (N, S, d_model)
    with `batch_first`, or (S, d_model), and so is the result. Masks as in `MultiheadAttention`.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self._feed_forward(d_model, dim_feedforward, dropout, bias, norm_first, made)
        self._finish(d_model, 2, dropout, layer_norm_eps, bias, made)
        self.activation = _activation(activation)

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
        return self.norm2(_ops.add(x, self._ff_block(x)))  # type: ignore[no-any-return]

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._fed(x))  # type: ignore[no-any-return]


class TransformerDecoderLayer(_Layer):
    """An encoder's layer with attention to `memory`, an encoder's result, between its two parts.

    Call: `(tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
    tgt_is_causal=False, memory_is_causal=False)`; tgt is (T, N, d_model), memory (S, N, d_model), the result as tgt.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self._feed_forward(d_model, dim_feedforward, dropout, bias, norm_first, made)
        self._finish(d_model, 3, dropout, layer_norm_eps, bias, made)
        self.activation = _activation(activation)

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
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = _ops.add(x, self._sa_block(self.norm1(x), *own))
            x = _ops.add(x, self._mha_block(self.norm2(x), *other))
            return _ops.add(x, self._ff_block(self.norm3(x)))
        x = self.norm1(_ops.add(x, self._sa_block(x, *own)))
        x = self.norm2(_ops.add(x, self._mha_block(x, *other)))
        return self.norm3(_ops.add(x, self._ff_block(x)))  # type: ignore[no-any-return]

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        """Attention to `mem`."""
        found = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal, need_weights=False
        )[0]
        return self.dropout2(found)  # type: ignore[no-any-return]

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._fed(x))  # type: ignore[no-any-return]


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, one after the other, then `norm`.

    Call: `(src, mask=None, src_key_padding_mask=None, is_causal=None)`. A mask is compared with the causal one (the
    host waits for that) unless `is_causal` says what it is. enable_nested_tensor: in evaluation without gradients, what
    is padded is 0 before `norm`, as PyTorch's nested tensors have it, if each sample's padding is at its end (which
    `mask_check` looks at, and the host waits) and the layers are such as PyTorch has a fast path for; see
    `use_nested_tensor`. Elsewhere it is computed like the rest.
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
        self.layers = _copies(encoder_layer, num_layers)
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
        causal = _is_causal(mask, is_causal, _length(src, self.layers))
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=causal, src_key_padding_mask=src_key_padding_mask)
        if src_key_padding_mask is not None and mask is None and self._empties(src):
            padded = _ops.ne(src_key_padding_mask, 0)
            if not self.mask_check or _at_the_end(padded):
                x = _ops.where(_ops.unsqueeze(padded, -1), 0.0, x)
        return x if self.norm is None else self.norm(x)  # type: ignore[no-any-return]

    def _empties(self, src: Tensor) -> bool:
        """Whether what is padded is 0."""
        if (
            not self.use_nested_tensor
            or self.layers[0].training
            or src.meta.ndim != 3
            or is_autocast_enabled(src.meta.device.type)
        ):
            return False
        return not is_recorded(src, *self.layers[0].parameters())


class TransformerDecoder(Module):
    """`num_layers` copies of a layer, one after the other, then `norm`.

    Call: `(tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
    tgt_is_causal=None, memory_is_causal=False)`; `tgt_is_causal` as `is_causal` of `TransformerEncoder`.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        causal = _is_causal(tgt_mask, tgt_is_causal, _length(tgt, self.layers))
        x = tgt
        for layer in self.layers:
            x = layer(
                x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return x if self.norm is None else self.norm(x)  # type: ignore[no-any-return]


class Transformer(Module):
    """An encoder, and a decoder that attends to its result.

    Call: `(src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
    tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
    memory_is_causal=False)`; src is (S, N, d_model) and tgt (T, N, d_model), as the result, or (N, S, d_model) and
    (N, T, d_model) with `batch_first`, or without N.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)

        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*options, **made), num_encoder_layers, norm())
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*options, **made), num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        """Glorot's uniform distribution for all parameters of more than one dimension."""
        for parameter in self.parameters():
            if parameter.meta.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        shapes = f"src has shape {list(src.meta.shape)} and tgt {list(tgt.meta.shape)}"
        batch = 0 if self.batch_first else 1
        if src.meta.ndim == 3 and src.meta.shape[batch] != tgt.meta.shape[batch]:
            raise ShapeError(f"Transformer: {shapes}; their batches (dimension {batch}) must be of one size")
        if src.meta.shape[-1] != self.d_model or tgt.meta.shape[-1] != self.d_model:
            raise ShapeError(f"Transformer: {shapes}; the last dimension must be d_model, {self.d_model}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(  # type: ignore[no-any-return]
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask, (sz, sz): -inf above the diagonal (True for bool), 0 elsewhere."""
        return triu(full((sz, sz), float("-inf"), dtype=dtype, device=device), 1)


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    """A function of a name. Raises `DomainError` for others than relu and gelu."""
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise DomainError(f"activation is 'relu', 'gelu' or a function of a tensor, not {given!r}")
    return F.relu if given == "relu" else F.gelu


def _copies(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _has_fast_path(layer: Module) -> bool:
    """Whether PyTorch has one kernel for a layer like this, for which it makes nested tensors."""
    if not isinstance(layer, TransformerEncoderLayer):
        return False
    attention, function = layer.self_attn, layer.activation
    known = function in (F.relu, F.gelu) or isinstance(function, (ReLU, GELU))
    return (
        known and not layer.norm_first and attention.batch_first and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None and layer.norm1.eps == layer.norm2.eps and attention.num_heads % 2 == 0
    )  # fmt: skip


def _at_the_end(padded: Tensor) -> bool:
    """Whether nothing stands behind what is padded, (N, S); read by the host."""
    first, then = (_ops.narrow(padded, 1, k, padded.meta.shape[1] - 1) for k in (0, 1))
    return bool(_ops.all(_ops.logical_or(then, _ops.logical_not(first))))


def _length(x: Tensor, layers: ModuleList) -> int | None:
    """The positions of `x`; None where that depends on layers that do not say whether the batch comes first."""
    if x.meta.ndim == 2:
        return x.meta.shape[0]
    attention = getattr(layers[0], "self_attn", None) if len(layers) else None
    return x.meta.shape[1 if getattr(attention, "batch_first", False) else 0]


def _is_causal(mask: Tensor | None, given: bool | None, size: int | None) -> bool:
    """Whether a mask is the causal one; `given` if that is known."""
    if given is not None or mask is None:
        return given is True
    if size is None or mask.meta.shape != (size, size):
        return False
    floating = additive(mask, mask.meta.dtype if mask.meta.dtype.kind == "f" else dtypes.float32)
    assert floating is not None
    causal = Transformer.generate_square_subsequent_mask(size, device=mask.meta.device, dtype=floating.meta.dtype)
    return bool(_ops.all(_ops.eq(floating, causal)))
