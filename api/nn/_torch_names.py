"""Layer functions with the names and argument orders that PyTorch has in `torch` itself."""

from __future__ import annotations

from collections.abc import Sequence

from .._generated import ops as _ops
from ..creation.factories import full, zeros
from ..runtime.dispatch import call
from ..runtime.dtypes import int64
from ..runtime.errors import ArgumentError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from . import _torch_losses
from . import functional as F
from ._torch_losses import *  # noqa: F403
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
    *_torch_losses.__all__,
    "alpha_dropout", "alpha_dropout_", "batch_norm", "celu", "celu_", "cosine_similarity", "dropout", "dropout_",
    "embedding_bag", "feature_alpha_dropout", "feature_alpha_dropout_", "feature_dropout", "feature_dropout_",
    "group_norm", "hardshrink", "instance_norm", "layer_norm", "pairwise_distance", "prelu", "rms_norm", "rrelu",
    "rrelu_", "selu_", "threshold", "threshold_",
]  # fmt: skip


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """If `train`, zero each element with probability `p` and divide the remaining ones by `1 - p`.

    Args:
        input: Floating tensor.
        p: Probability with which an element becomes 0.
        train: Whether to drop elements; False returns `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.dropout(wg.ones(2), 0.5, False)
        tensor([1., 1.])
    """
    return F.dropout(input, p, train)


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` in place.

    Args:
        input: Tensor, which is changed.
        p: Probability with which an element becomes 0.
        train: Whether to drop elements.

    Returns:
        `input`.

    Example:
        >>> wg.dropout_(wg.ones(2), 0.5, False)
        tensor([1., 1.])
    """
    return F.dropout(input, p, train, True)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """If `train`, apply dropout that preserves mean 0 and variance 1; see `nn.functional.alpha_dropout`.

    Args:
        input: Floating tensor.
        p: Probability with which an element is dropped.
        train: Whether to drop elements; False returns `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.alpha_dropout(wg.ones(2), 0.5, False)
        tensor([1., 1.])
    """
    return F.alpha_dropout(input, p, train)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`alpha_dropout` in place.

    Args:
        input: Tensor, which is changed.
        p: Probability with which an element is dropped.
        train: Whether to drop elements.

    Returns:
        `input`.

    Example:
        >>> wg.alpha_dropout_(wg.ones(2), 0.5, False)
        tensor([1., 1.])
    """
    return F.alpha_dropout(input, p, train, True)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Apply dropout to whole channels, that is, to dimensions 0 and 1 together.

    Args:
        input: Tensor of shape `(N, C, *)`.
        p: Probability with which a channel becomes 0.
        train: Whether to drop channels; False returns `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.feature_dropout(wg.ones(1, 2), 0.5, False)
        tensor([[1., 1.]])
    """
    return F.feature_dropout(input, p, train)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_dropout` in place.

    Args:
        input: Tensor of shape `(N, C, *)`, which is changed.
        p: Probability with which a channel becomes 0.
        train: Whether to drop channels.

    Returns:
        `input`.

    Example:
        >>> wg.feature_dropout_(wg.ones(1, 2), 0.5, False)
        tensor([[1., 1.]])
    """
    return F.feature_dropout(input, p, train, True)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Apply `alpha_dropout` to whole channels.

    Args:
        input: Tensor of shape `(N, C, *)`.
        p: Probability with which a channel is dropped.
        train: Whether to drop channels; False returns `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.feature_alpha_dropout(wg.ones(1, 2), 0.5, False)
        tensor([[1., 1.]])
    """
    return F.feature_alpha_dropout(input, p, train)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_alpha_dropout` in place.

    Args:
        input: Tensor of shape `(N, C, *)`, which is changed.
        p: Probability with which a channel is dropped.
        train: Whether to drop channels.

    Returns:
        `input`.

    Example:
        >>> wg.feature_alpha_dropout_(wg.ones(1, 2), 0.5, False)
        tensor([[1., 1.]])
    """
    return F.feature_alpha_dropout(input, p, train, True)


def layer_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """Call `nn.functional.layer_norm`; `cudnn_enable` has no effect.

    Args:
        input: Tensor of shape `(*, *normalized_shape)`.
        normalized_shape: Shape of the last dimensions, which are normalized together.
        weight: Factor of each element, of shape `normalized_shape`; None: 1.
        bias: Summand of each element, of shape `normalized_shape`; None: 0.
        eps: Added to the variance.
        cudnn_enable: Ignored.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.layer_norm(wg.tensor([1.0, 2.0, 3.0]), (3,))
        tensor([-1.2247,  0.0000,  1.2247])
    """
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """Call `nn.functional.group_norm`; `cudnn_enabled` has no effect.

    Args:
        input: Tensor of shape `(N, C, *)`.
        num_groups: Number of groups of channels that are normalized together.
        weight: Factor of each channel; None: 1.
        bias: Summand of each channel; None: 0.
        eps: Added to the variance.
        cudnn_enabled: Ignored.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.group_norm(wg.tensor([[1.0, 2.0, 3.0]]), 1)
        tensor([[-1.2247,  0.0000,  1.2247]])
    """
    return F.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """Call `nn.functional.batch_norm`, whose arguments have another order; `cudnn_enabled` has no effect.

    Args:
        input: Tensor of shape `(N, C, *)`.
        weight: Factor of each channel; None: 1.
        bias: Summand of each channel; None: 0.
        running_mean: Running mean of each channel, or None; updated in training.
        running_var: Running variance of each channel, or None; updated in training.
        training: Normalize by the batch's mean and variance instead of the running ones.
        momentum: Weight of the batch in the running statistics.
        eps: Added to the variance.
        cudnn_enabled: Ignored.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> mean, var = wg.tensor([1.0]), wg.tensor([4.0])
        >>> wg.batch_norm(wg.tensor([[2.0], [5.0]]), None, None, mean, var, False, 0.1, 0.0, True)
        tensor([[0.5000],
                [2.0000]])
    """
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """Call `nn.functional.instance_norm`, whose arguments have another order; `cudnn_enabled` has no effect.

    Args:
        input: Tensor of shape `(N, C, *)`.
        weight: Factor of each channel; None: 1.
        bias: Summand of each channel; None: 0.
        running_mean: Running mean of each channel, or None.
        running_var: Running variance of each channel, or None.
        use_input_stats: Normalize by the mean and variance of each channel of each sample instead of the running ones.
        momentum: Weight of the input in the running statistics.
        eps: Added to the variance.
        cudnn_enabled: Ignored.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.instance_norm(wg.tensor([[[1.0, 2.0, 3.0]]]), None, None, None, None, True, 0.1, 1e-5, True)
        tensor([[[-1.2247,  0.0000,  1.2247]]])
    """
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


_BAG_MODES = ("sum", "mean", "max")


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute sums, means or maxima of bags of embedding rows, as `nn.functional.embedding_bag`.

    Args:
        weight: Table of shape `(rows, features)`.
        indices: 1-D indices of all bags.
        offsets: Start of each bag in `indices`.
        scale_grad_by_freq: Divide gradients by the frequency of the row in the batch.
        mode: 0 for "sum", 1 for "mean", 2 for "max".
        sparse: See `nn.functional.embedding_bag`.
        per_sample_weights: Weight of each index, for mode 0.
        include_last_offset: The last offset is the length of `indices`.
        padding_idx: Index that is skipped.

    Returns:
        (output, bag of each index, size of each bag, max_indices). For mode 2, `max_indices` is the row that each
        feature comes from; otherwise it is empty. The last three are int64.

    Raises:
        ArgumentError: If `mode` is another number.

    Example:
        >>> weight = wg.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> wg.embedding_bag(weight, wg.tensor([0, 1, 1]), wg.tensor([0, 2]))[0]
        tensor([[4., 6.],
                [3., 4.]])
    """
    if mode not in (0, 1, 2):
        raise ArgumentError(f"embedding_bag: mode is 0 (sum), 1 (mean) or 2 (max), not {mode!r}")
    output = F.embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, _BAG_MODES[mode], sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    num_indices, num_bags = indices.meta.numel, output.meta.shape[0]
    if not num_indices:
        empty = zeros(0, dtype=int64, device=indices.meta.device)
        return output, empty, zeros(num_bags, dtype=int64, device=indices.meta.device), empty
    bag_of_index = call(registry["bag_of"], (offsets,), (num_indices,))
    skipped = bag_of_index if padding_idx is None else _ops.where(_ops.eq(indices, padding_idx), -1, bag_of_index)
    ones = call(registry["full_like_as"], (bag_of_index, 1), (int64,))
    sizes = call(registry["spread_at"], (ones, skipped), ((num_bags,), 0, 1))
    rows = zeros(0, dtype=int64, device=indices.meta.device)
    if mode == 2:
        rows_taken = call(registry["take_at"], (weight.detach(), indices), (0, 1))
        maxima = call(registry["take_at"], (output.detach(), bag_of_index), (0, 1))
        row_or_minus_one = _ops.where(_ops.eq(rows_taken, maxima), indices.unsqueeze(1), -1)
        initial = full(output.meta.shape, -1, dtype=int64, device=indices.meta.device)
        rows = call(registry["put_maximum_at"], (initial, skipped, row_or_minus_one), (0, 1))
    return output, bag_of_index, sizes, rows
