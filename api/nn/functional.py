"""The functions behind the layers: activations, linear maps, convolution, dropout, normalisation, losses.

Names and arguments as in PyTorch's `torch.nn.functional`. What is one op there is one generated op here; what follows
is what Python has to decide before calling one.
"""

from __future__ import annotations

from typing import Any

from .. import random as _random
from .._generated import ops as _ops
from .._generated.ops import hardshrink, logsigmoid, sigmoid, softplus, softshrink, softsign, tanh, tanhshrink
from .._generated.ops import log_softmax as _log_softmax
from .._generated.ops import softmax as _softmax
from ..columns import fold, unfold
from ..convolutions import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from ..distances import cosine_similarity, pairwise_distance, pdist
from ..embeddings import embedding, embedding_bag, one_hot
from ..functions import linear
from ..matrices import bilinear
from ..padding import pad
from ..pooling import *  # noqa: F403
from ..pooling import __all__ as _pooling_names
from ..runtime.dispatch import call, call_into
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.layout import normalize_dim
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shuffling import channel_shuffle, pixel_shuffle, pixel_unshuffle
from ._heads import multi_head_attention_forward
from ._losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    nll_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
)  # fmt: skip
from ._normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    normalize,
    rms_norm,
)
from .attention import scaled_dot_product_attention

__all__ = [
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "embedding_bag",
    "feature_dropout",
    "fold",
    "gelu",
    "glu",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "triplet_margin_loss",
    "unfold",
]
__all__ += _pooling_names

# Activations ----------------------------------------------------------------------------------------------------------

relu_ = _ops.relu_


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The positive part."""
    return _ops.relu_(input) if inplace else _ops.relu(input)


# The others take `inplace` for PyTorch's sake and compute a new tensor all the same: nothing but memory differs, and
# their gradients read the input.


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`input` where positive, negative_slope * input elsewhere."""
    return _ops.leaky_relu(input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` where positive, alpha * (exp(input) - 1) elsewhere (Clevert et al. 2015)."""
    return _ops.elu(input, alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` where positive, alpha * (exp(input / alpha) - 1) elsewhere (Barron 2017)."""
    return _ops.celu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled `elu` that keeps mean and variance (Klambauer et al. 2017)."""
    return _ops.selu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    return _ops.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)) (Misra 2019)."""
    return _ops.mish(input)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` limited to [min_val, max_val]."""
    return _ops.hardtanh(input, min_val, max_val)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * min(max(input + 3, 0), 6) / 6 (Howard et al. 2019)."""
    return _ops.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input + 3, 0), 6) / 6."""
    return _ops.hardsigmoid(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`input` where it is above the threshold, else `value`."""
    return _ops.threshold(input, threshold, value)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit: exact, or with `approximate="tanh"` by its formula (Hendrycks and Gimpel 2016)."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    return _ops.gelu_erf(input) if approximate == "none" else _ops.gelu_tanh(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """`input` limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`input` where positive, weight * input elsewhere; one weight, or one for each channel (dimension 1)."""
    if weight.meta.numel > 1 and input.meta.ndim > 1:
        weight = weight.reshape((weight.meta.numel,) + (1,) * (input.meta.ndim - 2))  # type: ignore[attr-defined]
    return _ops.prelu_slope(input, weight)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of a dimension times the sigmoid of the second (Dauphin et al. 2017)."""
    at = normalize_dim(dim, input.meta.ndim, "glu")
    size = input.meta.shape[at]
    if size % 2:
        raise ShapeError(f"glu: dimension {dim} has {size} elements, which cannot be halved")
    first, second = _ops.narrow(input, at, 0, size // 2), _ops.narrow(input, at, size // 2, size // 2)
    return _ops.mul(first, sigmoid(second))


def _implied(input: Tensor, dim: int | None) -> int:
    """The dimension that softmax takes when none is given: PyTorch's legacy rule."""
    if dim is not None:
        return dim
    return 0 if input.meta.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, *, dtype: Any = None, _stacklevel: int = 3) -> Tensor:
    """Exponentials along `dim` divided by their sum. Name `dim`: without it, it is 0 of 0, 1 or 3, else 1."""
    return _softmax(_as(input, dtype), _implied(input, dim))


def softmin(input: Tensor, dim: int | None = None, *, dtype: Any = None) -> Tensor:
    """`softmax` of -input."""
    return _softmax(_ops.neg(_as(input, dtype)), _implied(input, dim))


def log_softmax(input: Tensor, dim: int | None = None, *, dtype: Any = None, _stacklevel: int = 3) -> Tensor:
    """The logarithm of `softmax`, without underflow."""
    return _log_softmax(_as(input, dtype), _implied(input, dim))


def _as(input: Tensor, dtype: Any) -> Tensor:
    return input if dtype is None else input.to(dtype=dtype)  # type: ignore[attr-defined]


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, dim: int = -1) -> Tensor:
    """Samples of the Gumbel-softmax distribution (Jang et al. 2017); `hard` gives one-hot vectors with its gradient."""
    noise = _ops.neg(_ops.log(_random.rand_like(logits).exponential_()))  # type: ignore[attr-defined]
    soft = _softmax(_ops.true_divide(_ops.add(logits, noise), tau), dim)
    if not hard:
        return soft
    index = _ops.argmax(soft.detach(), dim, True)
    return _ops.zero_like(soft).scatter_(dim, index, value=1.0) - soft.detach() + soft


# Attention ------------------------------------------------------------------------------------------------------------


# Dropout --------------------------------------------------------------------------------------------------------------


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element 0 with probability p, else divided by 1 - p (Srivastava et al. 2014); `input` if not training.

    No mask is kept: backward draws the same numbers again.
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: p is a probability, between 0 and 1, not {p}")
    if not training or p == 0:
        return input
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    record = registry["dropout_draw"]
    seed, offset = _random.default_generator.take(int(record.detail["draws"]))
    if inplace:
        return call_into(record, (input, float(p), scale, seed, offset), (), (input,), in_place=True)
    return call(record, (input, float(p), scale, seed, offset))


def feature_dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """`dropout` of whole channels: of dimensions 0 and 1 together."""
    if not training or p == 0:
        return input
    from ..factories import ones

    kept = dropout(
        ones((*input.meta.shape[:2],) + (1,) * (input.meta.ndim - 2), dtype=input.meta.dtype, device=input.meta.device),
        p,
    )
    return _ops.mul(input, kept)


dropout1d = dropout2d = dropout3d = feature_dropout
