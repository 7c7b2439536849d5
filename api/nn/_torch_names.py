"""Functions of layers under the names and arguments that PyTorch gives them in `torch` itself."""

from __future__ import annotations

from typing import Any

from .._generated import ops as _ops
from ..factories import full, zeros
from ..runtime.dispatch import call
from ..runtime.dtypes import int64
from ..runtime.errors import ArgumentError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from . import functional as F
from .functional import (
    celu,
    celu_,
    cosine_similarity,
    hardshrink,
    pairwise_distance,
    prelu,
    rms_norm,
    rrelu,
    rrelu_,
    selu_,
    threshold,
    threshold_,
)

__all__ = [
    "alpha_dropout", "alpha_dropout_", "batch_norm", "celu", "celu_", "cosine_similarity", "dropout", "dropout_",
    "embedding_bag",
    "feature_alpha_dropout", "feature_alpha_dropout_", "feature_dropout", "feature_dropout_",
    "group_norm", "hardshrink", "instance_norm", "layer_norm", "pairwise_distance", "prelu", "rms_norm", "rrelu",
    "rrelu_", "selu_", "threshold", "threshold_",
]  # fmt: skip


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Each element 0 with probability p, else divided by 1 - p, if `train`."""
    return F.dropout(input, p, train)


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` in place."""
    return F.dropout(input, p, train, True)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout that keeps mean 0 and variance 1, if `train` (see `nn.functional.alpha_dropout`)."""
    return F.alpha_dropout(input, p, train)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`alpha_dropout` in place."""
    return F.alpha_dropout(input, p, train, True)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` of whole channels: of dimensions 0 and 1 together."""
    return F.feature_dropout(input, p, train)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_dropout` in place."""
    return F.feature_dropout(input, p, train, True)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`alpha_dropout` of whole channels."""
    return F.feature_alpha_dropout(input, p, train)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_alpha_dropout` in place."""
    return F.feature_alpha_dropout(input, p, train, True)


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """`nn.functional.layer_norm`; the last argument has no meaning here."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """`nn.functional.group_norm`; the last argument has no meaning here."""
    return F.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`nn.functional.batch_norm` with its arguments in another order; the last one has no meaning here."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`nn.functional.instance_norm` with its arguments in another order; the last one has no meaning here."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


_BAG_MODES = ("sum", "mean", "max")


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """`nn.functional.embedding_bag` with mode 0 "sum", 1 "mean", 2 "max" of bags of a vector of indices.

    Returns (the bags, the bag of every index, how many indices each bag has, and for "max" the row that each feature is
    from, else an empty tensor), the last three int64.
    """
    if mode not in (0, 1, 2):
        raise ArgumentError(f"embedding_bag: mode is 0 (sum), 1 (mean) or 2 (max), not {mode!r}")
    found = F.embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, _BAG_MODES[mode], sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    count, bags = indices.meta.numel, found.meta.shape[0]
    if not count:
        none = zeros(0, dtype=int64, device=indices.meta.device)
        return found, none, zeros(bags, dtype=int64, device=indices.meta.device), none
    bag = call(registry["bag_of"], (offsets,), (count,))
    skipped = bag if padding_idx is None else _ops.where(_ops.eq(indices, padding_idx), -1, bag)
    one = call(registry["full_like_as"], (bag, 1), (int64,))
    sizes = call(registry["spread_at"], (one, skipped), ((bags,), 0, 1))
    rows = zeros(0, dtype=int64, device=indices.meta.device)
    if mode == 2:
        taken = call(registry["take_at"], (weight.detach(), indices), (0, 1))  # type: ignore[attr-defined]
        highest = call(registry["take_at"], (found.detach(), bag), (0, 1))  # type: ignore[attr-defined]
        named = _ops.where(_ops.eq(taken, highest), indices.unsqueeze(1), -1)  # type: ignore[attr-defined]
        base = full(found.meta.shape, -1, dtype=int64, device=indices.meta.device)
        rows = call(registry["put_maximum_at"], (base, skipped, named), (0, 1))
    return found, bag, sizes, rows
