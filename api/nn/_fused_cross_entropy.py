"""Cross-entropy in two launches and its gradient in one, for all devices but `cpu`.

On these devices the time is that of launches and of reading the logits.

Forward reads the logits once: `cross_entropy_total` stores each row's loss, its maximum, and the logarithm of its sum
of exponentials. `class_loss_sums` computes the mean and the sum of the losses, the number of targets that count, and
the extremes of the targets, which the host checks when they arrive. Backward reads the logits once more and writes
their gradient. If the backward pass is itself recorded, it is composed of differentiable ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._generated import ops as _ops
from ..autograd import Function
from ..creation.sequences import arange
from ..indexing.bounds import defer_class_check
from ..runtime import dtypes, views
from ..runtime.autocast import autocast_operands
from ..runtime.dispatch import call, call_multiple, is_recorded
from ..runtime.records import registry
from ..runtime.tensor import Tensor

if TYPE_CHECKING:
    from ..autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        """What forward stores for backward."""

        saved_tensors: tuple[Tensor, Tensor]
        tops: Tensor
        log_sums: Tensor
        count: Tensor
        dim: int
        ignore_index: int
        label_smoothing: float
        averages: bool


__all__ = ["fused_cross_entropy"]


def fused_cross_entropy(
    input: Tensor, target: Tensor, dim: int, ignore_index: int, label_smoothing: float, reduction: str
) -> Tensor:
    """Return the mean or the sum of the cross-entropies of logits, and check that targets are classes.

    Args:
        input: Floating-point logits with classes along `dim`, and at least one of them.
        target: Class indices, of the input's shape without `dim`.
        dim: Dimension of the classes.
        ignore_index: Target that contributes no loss.
        label_smoothing: Weight of the uniform distribution.
        reduction: `"mean"` or `"sum"`.

    Returns:
        Tensor of shape `()` and the input's dtype.

    Raises:
        IndexOutOfRange: If a target is neither a class nor `ignore_index`, when the host next waits for the device.
    """
    (input,) = autocast_operands(registry["cross_entropy_row"], input)
    args = (input, target, dim, ignore_index, label_smoothing, reduction == "mean")
    return _CrossEntropy.apply(*args) if is_recorded(input) else _forward(*args)[0]


def _forward(
    input: Tensor, target: Tensor, dim: int, ignore_index: int, label_smoothing: float, averages: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the loss, each row's maximum and logarithm of the sum of exponentials, and the number of targets."""
    operands = (input, target, float(ignore_index), label_smoothing)
    row_dtype = dtypes.float32 if input.meta.dtype.itemsize == 2 else None
    losses, tops, log_sums = call_multiple(registry["cross_entropy_total"], operands, (dim, row_dtype))
    mean, loss_sum, count, lowest, highest = call_multiple(
        registry["class_loss_sums"], (losses, target, float(ignore_index)), (input.meta.dtype,)
    )
    defer_class_check(lowest, highest, input.meta.shape[dim], ignore_index, "cross_entropy")
    return mean if averages else loss_sum, tops, log_sums, count


class _CrossEntropy(Function):
    """`fused_cross_entropy`: `apply(input, target, dim, ignore_index, label_smoothing, averages)`."""

    holds_no_result = True

    @staticmethod
    def forward(
        ctx: _Context, input: Tensor, target: Tensor, dim: int, ignore_index: int, label_smoothing: float,
        averages: bool,
    ) -> Tensor:  # fmt: skip
        loss, ctx.tops, ctx.log_sums, ctx.count = _forward(input, target, dim, ignore_index, label_smoothing, averages)
        ctx.save_for_backward(input, target)
        ctx.dim, ctx.ignore_index, ctx.label_smoothing, ctx.averages = dim, ignore_index, label_smoothing, averages
        return loss

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, target = ctx.saved_tensors
        if is_recorded(input, grad):
            return (_gradient_by_ops(ctx, grad, input, target), *(None,) * 5)
        upstream, count = (call(registry["expand"], (t,), (target.meta.shape,)) for t in (grad, ctx.count))
        operands = (
            upstream, input, target, ctx.tops, ctx.log_sums, count, float(ctx.ignore_index), ctx.label_smoothing,
            float(ctx.averages),
        )  # fmt: skip
        return (call(registry["cross_entropy_slope"], operands, (ctx.dim,)), *(None,) * 5)


def _gradient_by_ops(ctx: _Context, grad: Tensor, input: Tensor, target: Tensor) -> Tensor:
    """Return the gradient of the logits by differentiable ops: softmax minus the target distribution, times `grad`."""
    dim, smoothing = ctx.dim, ctx.label_smoothing
    classes, ndim = input.meta.shape[dim], input.meta.ndim
    numbers = views.reshape(arange(classes, device=input.meta.device), (classes, *(1,) * (ndim - 1 - dim)))
    is_target = _ops.eq(numbers, target.unsqueeze(dim))
    distribution = _ops.where(is_target, 1 - smoothing + smoothing / classes, smoothing / classes)
    scale = _ops.true_divide(grad, ctx.count) if ctx.averages else grad
    slope = _ops.mul(_ops.sub(_ops.softmax(input, dim), distribution), scale)
    gradient = _ops.where(_ops.ne(target, ctx.ignore_index).unsqueeze(dim), slope, 0.0)
    return gradient if gradient.meta.dtype is input.meta.dtype else _ops.copy(gradient, dtype=input.meta.dtype)
