"""The shared computation of batch, group and instance norm: statistics over some dimensions, and their gradients.

Forward is one reduction (two if the device has no float64, or the input is float64) and one kernel that normalizes.
Backward is one reduction, which computes the two sums that the input's gradient needs and which are also the gradients
of weight and bias, and one kernel for the input's gradient (Ioffe and Szegedy 2015, section 3; Wu and He 2018). If the
backward pass is itself recorded, it recomputes the statistics by differentiable ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from .._generated import ops as _ops
from ..autograd import Function
from ..runtime import dtypes
from ..runtime.autograd.rules import reshape_unshared
from ..runtime.context import state
from ..runtime.device import meta
from ..runtime.dispatch import call, call_into, call_multiple, empty, is_recorded
from ..runtime.dtypes import DType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..runtime.views import reshape

if TYPE_CHECKING:
    from ..autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        """What both functions store for backward."""

        layout: Layout
        eps: float
        bias_param: Tensor | None

    class _StandardizeContext(_Context):
        saved_tensors: tuple[Tensor, Tensor | None]
        mean: Tensor
        rstd: Tensor

    class _FixedContext(_Context):
        saved_tensors: tuple[Tensor, Tensor | None, Tensor, Tensor]


__all__ = ["Layout", "RunningStatistics", "StandardizeFixed", "local_statistics", "move_running_stats", "standardize"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How statistics and parameters relate to the input.

    Attributes:
        shape: Shape in which the input is viewed.
        axes: Dimensions of that shape over which statistics are computed.
        param_shape: Shape in which weight and bias broadcast against it.
        groups: Groups of channels that each have a statistic for each sample; 0: statistics of other elements.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    param_shape: tuple[int, ...]
    groups: int = 0

    @property
    def count(self) -> int:
        """Number of elements per statistic."""
        return prod(self.shape[d] for d in self.axes)


class RunningStatistics(NamedTuple):
    """What a layer stores and a call in training updates in place.

    Attributes:
        mean: Running mean, one element per channel.
        variance: Running variance, one element per channel.
        batches: Number of batches, one int64, which grows by 1; None: not counted by this call.
    """

    mean: Tensor
    variance: Tensor
    batches: Tensor | None = None


def standardize(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, layout: Layout, eps: float,
    running: RunningStatistics | None = None, momentum: float = 0.0,
) -> Tensor:  # fmt: skip
    """Normalize `input` by its own statistics, multiply by `weight` and add `bias`.

    Args:
        input: Floating-point tensor.
        weight: Factor with one element per channel; None: 1.
        bias: Summand with one element per channel; None: 0.
        layout: How statistics and parameters relate to the input.
        eps: Added to the variance.
        running: Statistics to update in place; None: none.
        momentum: Weight of the input's statistics in the update.

    Returns:
        Tensor of the shape and dtype of `input`.
    """
    if is_recorded(input, weight, bias):
        return Standardize.apply(input, weight, bias, layout, eps, running, momentum)
    return _normalize(input, weight, bias, layout, eps, running, momentum)[0]


def _normalize(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, layout: Layout, eps: float,
    running: RunningStatistics | None, momentum: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the normalized input, the mean, and 1 / sqrt(variance + eps); see `standardize`."""
    if layout.groups and weight is not None and bias is not None and running is None and _is_fused(input, weight, bias):
        output, mean, rstd = call_multiple(registry["normalize_groups"], (input, weight, bias, eps), (layout.groups,))
        return output, mean, rstd
    x = _view_as(input, layout.shape)
    if running is not None and running.batches is not None and _counts_in_one_call(x, running, running.batches):
        mean, rstd = _track_batch(x, running, running.batches, layout, momentum, eps)
    else:
        mean, variance, rstd = _statistics(x, layout.axes, eps)
        if running is not None and input.meta.numel:
            _update_running_stats(running, mean, variance, layout, momentum)
        if running is not None and running.batches is not None:
            running.batches.add_(1)
    operands = (x, mean, rstd, _param_or_default(weight, layout, 1.0), _param_or_default(bias, layout, 0.0))
    if layout.shape == input.meta.shape or x.meta.contiguous:
        return reshape_unshared(call(registry["standardize"], operands), input.meta.shape), mean, rstd
    output = empty(meta(input.meta.dtype, input.meta.shape, None, input.meta.device))
    call_into(registry["standardize"], operands, (), (_view_as(output, layout.shape),), in_place=False)
    return output, mean, rstd


class Standardize(Function):
    """`standardize` with its gradient: `apply(input, weight, bias, layout, eps, running, momentum)`."""

    holds_no_result = True

    @staticmethod
    def forward(
        ctx: _StandardizeContext, input: Tensor, weight: Tensor | None, bias: Tensor | None, layout: Layout, eps: float,
        running: RunningStatistics | None, momentum: float,
    ) -> Tensor:  # fmt: skip
        output, mean, rstd = _normalize(input, weight, bias, layout, eps, running, momentum)
        statistics_shape = tuple(1 if d in layout.axes else n for d, n in enumerate(layout.shape))
        ctx.mean, ctx.rstd = _view_as(mean, statistics_shape), _view_as(rstd, statistics_shape)
        ctx.save_for_backward(input, weight)
        ctx.layout, ctx.eps, ctx.bias_param = layout, eps, bias
        return output

    @staticmethod
    def backward(ctx: _StandardizeContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        layout = ctx.layout
        x, upstream = _view_as(input, layout.shape), _view_as(grad, layout.shape)
        by_ops = _is_differentiated(input, grad, weight)
        compute_grads = _grads_by_ops if by_ops else _grads_by_kernels
        grad_input, slopes, shifts = compute_grads(ctx, upstream, x, _param_or_default(weight, layout, 1.0))
        grads: list[Tensor | None] = [None] * 7
        if grad_input is not None:
            grads[0] = _match_dtype(reshape_unshared(grad_input, input.meta.shape), input)
        _store_param_grads(ctx, grads, weight, slopes, shifts, by_ops)
        return tuple(grads)


def _grads_by_kernels(
    ctx: _StandardizeContext, grad: Tensor, x: Tensor, weight: Tensor | float
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return the input's gradient and the sums for weight and bias, computed by the fused kernels."""
    layout = ctx.layout
    shared_axes = tuple(d for d in layout.axes if layout.param_shape[d] == 1)
    slopes, shifts = _ops.standardize_sums(grad, x, ctx.mean, ctx.rstd, shared_axes, True)
    if not ctx.needs_input_grad[0]:
        return None, slopes, shifts
    operands, reciprocal_count = (grad, x, ctx.mean, ctx.rstd, weight), 1.0 / max(layout.count, 1)
    if slopes.meta.shape == ctx.mean.meta.shape:
        return _ops.standardize_slope(*operands, slopes, shifts, reciprocal_count), slopes, shifts
    inner_axes = tuple(d for d in layout.axes if d not in shared_axes)
    weight_tensor = weight if isinstance(weight, Tensor) else _ops.full_like_as(shifts, 1.0)
    grad_sum, grad_x_sum = _ops.weighted_sums(slopes, shifts, weight_tensor, inner_axes, True)
    return _ops.standardize_slope_inside(*operands, grad_sum, grad_x_sum, reciprocal_count), slopes, shifts


def _grads_by_ops(
    ctx: _StandardizeContext, grad: Tensor, x: Tensor, weight: Tensor | float
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return the input's gradient and the terms for weight and bias by differentiable ops, from new statistics."""
    axes = ctx.layout.axes
    x, grad = (_ops.copy(t, dtype=_stats_dtype(t)) if _stats_dtype(t) else t for t in (x, grad))
    centred = _ops.sub(x, _ops.mean(x, axes, True))
    rstd = _ops.rsqrt(_ops.add(_ops.mean(_ops.square(centred), axes, True), ctx.eps))
    normalized = _ops.mul(centred, rstd)
    weighted_grad = _ops.mul(grad, weight)
    correction = _ops.add(
        _ops.mean(weighted_grad, axes, True),
        _ops.mul(normalized, _ops.mean(_ops.mul(weighted_grad, normalized), axes, True)),
    )
    return _ops.mul(rstd, _ops.sub(weighted_grad, correction)), _ops.mul(grad, normalized), grad


def _statistics(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, variance and 1 / sqrt(variance + eps) along `axes`, which keep size 1."""
    if x.meta.dtype.itemsize <= 4 and x.meta.device.driver.capabilities.fp64:
        mean, variance, rstd = call_multiple(registry["moments"], (x, eps), (axes, True, dtypes.float64))
        return mean, variance, rstd
    mean = _ops.mean(x, axes, True, dtype=_stats_dtype(x))
    variance, rstd = _ops.deviation(x, mean, axes, True, eps=eps)
    return mean, variance, rstd


def _counts_in_one_call(x: Tensor, running: RunningStatistics, batches: Tensor) -> bool:
    """Return whether the op `batch_statistics` takes a layer's input and what it stores.

    Modes that see every call know the ops of which it consists.
    """
    stored = (running.mean, running.variance, batches)
    return (
        x.meta.dtype.itemsize <= 4 and x.meta.device.driver.capabilities.fp64 and x.meta.numel > 0
        and all(t.meta.contiguous and t.meta.device == x.meta.device for t in stored)
        and batches.meta.dtype is dtypes.int64 and batches.meta.numel == 1 and not state().has_active_mode()
    )  # fmt: skip


def _track_batch(
    x: Tensor, running: RunningStatistics, batches: Tensor, layout: Layout, momentum: float, eps: float
) -> tuple[Tensor, Tensor]:
    """Return a batch's mean and 1 / sqrt(variance + eps), and update what the layer stores."""
    shape = tuple(1 if d in layout.axes else n for d, n in enumerate(layout.shape))
    statistics = meta(dtypes.float32, shape, None, x.meta.device)
    mean, rstd = empty(statistics), empty(statistics)
    stored = (running.mean, running.variance, batches)
    operands = (x, *stored, momentum, 1.0 - momentum, _unbiased_momentum(momentum, layout.count), eps)
    call_into(registry["batch_statistics"], operands, (), (mean, rstd, *stored), in_place=False)
    return mean, rstd


def local_statistics(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance along `axes`, which keep size 1."""
    mean, variance, _ = _statistics(x, axes, 1.0)
    return mean, variance


def move_running_stats(
    running: tuple[Tensor, Tensor], mean: Tensor, variance: Tensor, momentum: float, count: float
) -> None:
    """Update running mean and variance in place by those of `count` values per channel; all have shape `(C)`."""
    unbiased = momentum * count / (count - 1)
    operands = (*running, mean, variance, momentum, 1.0 - momentum, unbiased)
    call_into(registry["move_statistics"], operands, (), running, in_place=False)


def _is_fused(input: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Return whether the device has a kernel that normalizes a group of channels at once, and it takes the operands."""
    caps = input.meta.device.driver.capabilities
    return (
        caps.takes_runs and caps.fp64 and input.meta.dtype.itemsize <= 4
        and input.meta.contiguous and weight.meta.contiguous and bias.meta.contiguous
    )  # fmt: skip


def _stats_dtype(input: Tensor) -> DType | None:
    """Return the dtype of statistics, or None if it is the input's."""
    return dtypes.float32 if input.meta.dtype.itemsize == 2 else None


_VIEW = registry["view"]


def _view_as(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return `tensor` with another shape. Contiguous tensors take a faster path than `reshape`."""
    if tensor.meta.shape == shape:
        return tensor
    return call(_VIEW, (tensor,), (shape,)) if tensor.meta.contiguous else reshape(tensor, shape)


def _param_or_default(parameter: Tensor | None, layout: Layout, default: float) -> float | Tensor:
    return default if parameter is None else _view_as(parameter, layout.param_shape)


def _is_differentiated(*tensors: Tensor | None) -> bool:
    """Return whether a backward pass that reads these tensors is recorded itself."""
    return is_recorded(*tensors)


def _match_dtype(tensor: Tensor, reference: Tensor) -> Tensor:
    return tensor if tensor.meta.dtype is reference.meta.dtype else _ops.copy(tensor, dtype=reference.meta.dtype)


def _store_param_grads(
    ctx: _Context, grads: list[Tensor | None], weight: Tensor | None, slopes: Tensor, shifts: Tensor, by_ops: bool
) -> None:
    """Reduce the partial sums to the shapes of weight and bias, and store them in `grads`.

    Args:
        ctx: The function's context.
        grads: The gradients of all arguments; weight and bias are those at 1 and 2.
        weight: The weight, or None.
        slopes: Terms or partial sums of the weight's gradient.
        shifts: Terms or partial sums of the bias's gradient.
        by_ops: Whether to use differentiable ops, because backward is recorded. Otherwise one kernel adds both sums;
            then nothing else may refer to `slopes` and `shifts`.
    """
    if not any(ctx.needs_input_grad[1:3]):
        return
    sizes = zip(slopes.meta.shape, ctx.layout.param_shape, strict=True)
    reduced_axes = tuple(d for d, (n, m) in enumerate(sizes) if n != m)
    if reduced_axes and not by_ops:
        slopes, shifts = _ops.parameter_sums(slopes, shifts, reduced_axes, True)
    for index, parameter, sums in ((1, weight, slopes), (2, ctx.bias_param, shifts)):
        if parameter is not None and ctx.needs_input_grad[index]:
            total = _ops.sum(sums, reduced_axes, True) if reduced_axes and by_ops else sums
            view = _view_as if by_ops else reshape_unshared
            grads[index] = _match_dtype(view(total, parameter.meta.shape), parameter)


def _update_running_stats(
    running: RunningStatistics, mean: Tensor, variance: Tensor, layout: Layout, momentum: float
) -> None:
    """Update the running statistics. If there are several statistics per channel (instances), use their mean."""
    stored, channels = (running.mean, running.variance), running.mean.meta.shape
    if mean.meta.numel != running.mean.meta.numel:
        mean, variance = (_ops.mean(statistic, (0,), True) for statistic in (mean, variance))
    operands = (*stored, _view_as(mean, channels), _view_as(variance, channels))
    numbers = (momentum, 1.0 - momentum, _unbiased_momentum(momentum, layout.count))
    call_into(registry["move_statistics"], (*operands, *numbers), (), stored, in_place=False)


def _unbiased_momentum(momentum: float, count: int) -> float:
    """Return the weight of a biased variance of `count` elements in the running variance, which is unbiased."""
    return momentum * (count / (count - 1) if count > 1 else float("nan"))


class StandardizeFixed(Function):
    """Normalize the input by given statistics: `apply(input, weight, bias, mean, variance, layout, eps)`.

    Everything but the input has one element per channel; `layout` has no axes. The statistics get no gradient, as in
    PyTorch.
    """

    @staticmethod
    def forward(
        ctx: _FixedContext, input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
        layout: Layout, eps: float,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(input, weight, mean, variance)
        ctx.layout, ctx.eps, ctx.bias_param = layout, eps, bias
        mean_view, variance_view = _view_as(mean, layout.param_shape), _view_as(variance, layout.param_shape)
        scale, shift = _param_or_default(weight, layout, 1.0), _param_or_default(bias, layout, 0.0)
        return _ops.standardize_fixed(input, mean_view, variance_view, scale, shift, eps)

    @staticmethod
    def backward(ctx: _FixedContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, *statistics = ctx.saved_tensors
        layout = ctx.layout
        mean, variance = (_view_as(statistic, layout.param_shape) for statistic in statistics)
        rstd, scale = _ops.rsqrt(_ops.add(variance, ctx.eps)), _param_or_default(weight, layout, 1.0)
        is_differentiated = _is_differentiated(input, grad, weight)
        grads: list[Tensor | None] = [None] * 7
        if ctx.needs_input_grad[0]:
            grads[0] = (
                _match_dtype(_ops.mul(_ops.mul(grad, scale), rstd), input)
                if is_differentiated
                else _ops.standardize(grad, 0.0, rstd, scale, 0.0)
            )
        if any(ctx.needs_input_grad[1:3]):
            if is_differentiated:
                slopes, shifts = _ops.mul(grad, _ops.mul(_ops.sub(input, mean), rstd)), grad
            else:
                shared_axes = tuple(d for d, n in enumerate(layout.param_shape) if n == 1)
                slopes, shifts = _ops.standardize_sums(grad, input, mean, rstd, shared_axes, True)
            _store_param_grads(ctx, grads, weight, slopes, shifts, is_differentiated)
        return tuple(grads)
