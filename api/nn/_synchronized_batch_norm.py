"""Batch norm over the samples of all ranks of a process group.

Forward gathers the ranks' means, variances and counts by one collective and combines them (Chan, Golub and LeVeque
1979, formula 2.1): var = sum n_i (var_i + (mean_i - mean)^2) / n, which loses no digits if the mean is large. Backward
sums the two sums that the input's gradient needs over the ranks, by one collective. The gradients of weight and bias
are those of this rank's samples, because `DistributedDataParallel` averages them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from .. import distributed as dist
from .._generated import ops as _ops
from ..autograd import Function
from ..autograd.function import once_differentiable
from ..creation.factories import empty
from ..creation.from_data import tensor
from ..runtime import dtypes
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from ._standardize import local_statistics, move_running_stats
from .parameter import Parameter

if TYPE_CHECKING:
    from ..autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        """What backward needs."""

        saved_tensors: tuple[Tensor, Tensor | None, Tensor, Tensor]
        group: Any
        count: float
        has_bias: bool


__all__ = ["synchronized_batch_norm"]


def synchronized_batch_norm(
    input: Tensor,
    weight: Parameter | None,
    bias: Parameter | None,
    running: tuple[Tensor, Tensor] | None,
    momentum: float,
    eps: float,
    group: Any,
) -> Tensor:
    """Normalize each channel by the statistics of all ranks' inputs.

    Args:
        input: `(N, C, *)`, floating-point. N and the sizes after C may differ between ranks, and N may be 0.
        weight: Factor per channel, `(C)`, or None.
        bias: Summand per channel, `(C)`, or None.
        running: Running mean and variance to update in place, or None.
        momentum: Weight of these statistics in the update.
        eps: Added to the variance.
        group: The process group; None for all ranks.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: All ranks together have fewer than two values per channel.
    """
    return _SynchronizedBatchNorm.apply(input, weight, bias, running, momentum, eps, group)


class _SynchronizedBatchNorm(Function):
    """`synchronized_batch_norm` with its gradient."""

    @staticmethod
    def forward(
        ctx: _Context, input: Tensor, weight: Tensor | None, bias: Tensor | None,
        running: tuple[Tensor, Tensor] | None, momentum: float, eps: float, group: Any,
    ) -> Tensor:  # fmt: skip
        mean, variance, count = _gather_statistics(input, group)
        if count < 2:
            raise ShapeError(
                f"SyncBatchNorm: training needs more than one value per channel in all ranks together, got {count:g}"
            )
        rstd = _ops.rsqrt(_ops.add(variance, eps))
        if running is not None:
            move_running_stats(running, mean, variance, momentum, count)
        shape = _param_shape(input)
        ctx.save_for_backward(input, weight, mean, rstd)
        ctx.group, ctx.count, ctx.has_bias = group, count, bias is not None
        scale = 1.0 if weight is None else weight.view(shape)
        shift = 0.0 if bias is None else bias.view(shape)
        return _ops.standardize(input, mean.view(shape), rstd.view(shape), scale, shift)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, mean, rstd = ctx.saved_tensors
        shape, channels = _param_shape(input), mean.meta.numel
        axes = (0, *range(2, input.meta.ndim))
        mean, rstd = mean.view(shape), rstd.view(shape)
        slopes, shifts = _ops.standardize_sums(grad, input, mean, rstd, axes, True)
        grads: list[Tensor | None] = [None] * 7
        if weight is not None and ctx.needs_input_grad[1]:
            grads[1] = slopes.view(channels).to(weight.dtype, copy=True)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            grads[2] = shifts.view(channels).to(weight.dtype if weight is not None else input.dtype, copy=True)
        if ctx.needs_input_grad[0]:
            sums = empty(2, channels, dtype=slopes.dtype, device=slopes.device)
            sums[0].copy_(slopes.view(channels))
            sums[1].copy_(shifts.view(channels))
            dist.all_reduce(sums, group=ctx.group)
            scale = 1.0 if weight is None else weight.view(shape)
            slopes, shifts = sums[0].view(shape), sums[1].view(shape)
            grads[0] = _ops.standardize_slope(grad, input, mean, rstd, scale, slopes, shifts, 1.0 / ctx.count)
        return tuple(grads)


def _param_shape(input: Tensor) -> tuple[int, ...]:
    return (1, input.meta.shape[1], *[1] * (input.meta.ndim - 2))


def _gather_statistics(input: Tensor, group: Any) -> tuple[Tensor, Tensor, float]:
    """Return mean and biased variance per channel of all ranks' inputs, and the number of values per channel."""
    shape = input.meta.shape
    channels, count = shape[1], shape[0] * prod(shape[2:])
    statistics_dtype = dtypes.float64 if input.meta.dtype is dtypes.float64 else dtypes.float32
    own = empty(2 * channels + 1, dtype=statistics_dtype, device=input.meta.device)
    if count:
        mean, variance = local_statistics(input, (0, *range(2, len(shape))))
        own[:channels].copy_(mean.view(channels))
        own[channels:-1].copy_(variance.view(channels))
    else:
        own.zero_()
    own[-1:].copy_(tensor([float(count)], dtype=statistics_dtype, device=input.meta.device))
    world_size = dist.get_world_size(group)
    of_ranks = empty(world_size, 2 * channels + 1, dtype=statistics_dtype, device=input.meta.device)
    dist.all_gather_into_tensor(of_ranks, own, group=group)
    counts = of_ranks[:, -1:]
    total = float(counts.sum().item())
    weights = counts / max(total, 1.0)
    means, variances = of_ranks[:, :channels], of_ranks[:, channels:-1]
    mean = (means * weights).sum(0)
    variance = ((variances + (means - mean).square()) * weights).sum(0)
    return mean, variance, total
