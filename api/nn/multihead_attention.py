"""Multi-head attention as a layer (Vaswani et al. 2017, arXiv 1706.03762). `_attention_heads` has the computation."""

from __future__ import annotations

from ..arguments.types import TensorOptions
from ..creation.factories import empty
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, AttentionShapeError
from ..runtime.tensor import Tensor
from . import init
from ._attention_heads import Heads, attend_heads
from .layers import Linear
from .module import Module
from .parameter import Parameter

__all__ = ["MultiheadAttention"]


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
