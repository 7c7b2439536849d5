"""What batch, group and instance norm share: statistics over some dimensions of the input, and what undoes them.

Forward is a reduction (two where a device has no float64, or the input is of it) and one kernel that scales; backward
is one reduction that gives both sums that the input's gradient needs, which are the gradients of weight and bias too,
and one kernel that makes the input's gradient (Ioffe and Szegedy, "Batch Normalization", 2015, section 3; Wu and He,
"Group Normalization", 2018). Where the backward pass is recorded, it takes the statistics anew from the input, by ops
that are differentiated as any others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from .._generated import ops as _ops
from ..autograd import Function
from ..runtime import dtypes
from ..runtime.device import meta
from ..runtime.dispatch import call, call_into, empty, is_recorded
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..runtime.views import reshape

__all__ = ["Layout", "Standardize", "StandardizeFixed"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a call's input falls into statistics and weights.

    shape: what the input is viewed in. axes: its dimensions that statistics are taken over. per: the shape in which
    weight and bias, one a channel, broadcast against it.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    per: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many elements a statistic has."""
        return prod(self.shape[d] for d in self.axes)


class Standardize(Function):
    """The input standardised by statistics of its own: `apply(input, weight, bias, layout, eps, running, momentum)`.

    weight, bias: one a channel, or None. running: None, or running mean and variance, which move by `momentum`.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, layout: Layout, eps: float,
        running: tuple[Tensor, Tensor] | None, momentum: float,
    ) -> Tensor:  # fmt: skip
        x = _seen(input, layout.shape)
        ctx.mean, variance, ctx.rstd = _statistics(x, layout.axes, eps)
        if running is not None and input.meta.numel:
            _move(running, ctx.mean, variance, layout, momentum)
        ctx.save_for_backward(input, weight)
        ctx.layout, ctx.eps, ctx.biased = layout, eps, bias
        operands = (x, ctx.mean, ctx.rstd, _shaped(weight, layout, 1.0), _shaped(bias, layout, 0.0))
        if layout.shape == input.meta.shape:
            return call(registry["standardize"], operands)  # type: ignore[no-any-return]
        out = empty(meta(input.meta.dtype, input.meta.shape, None, input.meta.device))
        call_into(registry["standardize"], operands, (), (_seen(out, layout.shape),), in_place=False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        layout: Layout = ctx.layout
        x, upstream = _seen(input, layout.shape), _seen(grad, layout.shape)
        way = _composed if _recorded(input, grad, weight) else _launched
        slope, *sums = way(ctx, upstream, x, _shaped(weight, layout, 1.0))
        found: list[Tensor | None] = [None] * 7
        if slope is not None:
            found[0] = _narrow(_seen(slope, input.meta.shape), input)
        _of_parameters(ctx, found, weight, *sums)
        return tuple(found)


def _launched(ctx: Any, grad: Tensor, x: Tensor, weight: Any) -> tuple[Tensor | None, Tensor, Tensor]:
    """The input's gradient, and the sums that weight's and bias's are made of, by kernels for it."""
    layout: Layout = ctx.layout
    shared = tuple(d for d in layout.axes if layout.per[d] == 1)
    slopes, shifts = _ops.standardize_sums(grad, x, ctx.mean, ctx.rstd, shared, True)
    if not ctx.needs_input_grad[0]:
        return None, slopes, shifts
    operands, part = (grad, x, ctx.mean, ctx.rstd, weight), 1.0 / max(layout.count, 1)
    if slopes.meta.shape == ctx.mean.meta.shape:
        return _ops.standardize_slope(*operands, slopes, shifts, part), slopes, shifts
    inner = tuple(d for d in layout.axes if d not in shared)
    one = weight if isinstance(weight, Tensor) else _ops.full_like_as(shifts, 1.0)
    first, second = _ops.weighted_sums(slopes, shifts, one, inner, True)
    return _ops.standardize_slope_inside(*operands, first, second, part), slopes, shifts


def _composed(ctx: Any, grad: Tensor, x: Tensor, weight: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The same by ops that are recorded, from statistics that they take anew."""
    axes = ctx.layout.axes
    x, grad = (_ops.copy(t, dtype=_wide(t)) if _wide(t) else t for t in (x, grad))
    centred = _ops.sub(x, _ops.mean(x, axes, True))
    rstd = _ops.rsqrt(_ops.add(_ops.mean(_ops.square(centred), axes, True), ctx.eps))
    standard = _ops.mul(centred, rstd)
    weighted = _ops.mul(grad, weight)
    common = _ops.add(
        _ops.mean(weighted, axes, True), _ops.mul(standard, _ops.mean(_ops.mul(weighted, standard), axes, True))
    )
    return _ops.mul(rstd, _ops.sub(weighted, common)), _ops.mul(grad, standard), grad


def _statistics(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and 1 / sqrt(variance + eps) along `axes`, which stay with size 1."""
    if x.meta.dtype.itemsize <= 4 and x.meta.device.driver.capabilities.fp64:
        return call(registry["moments"], (x, eps), (axes, True, dtypes.float64))  # type: ignore[no-any-return]
    mean = _ops.mean(x, axes, True, dtype=_wide(x))
    variance, rstd = _ops.deviation(x, mean, axes, True, eps=eps)
    return mean, variance, rstd


def _wide(input: Tensor) -> Any:
    """The dtype of statistics, where that is not the input's."""
    return dtypes.float32 if input.meta.dtype.itemsize == 2 else None


_VIEW = registry["view"]


def _seen(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor` in `shape`. Most are small and contiguous: of those nothing has to be found out."""
    if tensor.meta.shape == shape:
        return tensor
    return call(_VIEW, (tensor,), (shape,)) if tensor.meta.contiguous else reshape(tensor, shape)  # type: ignore[no-any-return]


def _shaped(parameter: Tensor | None, layout: Layout, otherwise: float) -> Any:
    return otherwise if parameter is None else _seen(parameter, layout.per)


def _recorded(*read: Tensor | None) -> bool:
    """Whether a backward pass that reads these is to be differentiated itself."""
    return is_recorded(*read)


def _narrow(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor if tensor.meta.dtype is like.meta.dtype else _ops.copy(tensor, dtype=like.meta.dtype)


def _of_parameters(ctx: Any, found: list[Tensor | None], weight: Tensor | None, slopes: Tensor, shifts: Tensor) -> None:
    """Put the gradients of weight and bias in their places: sums over all that has one weight, from partial ones."""
    for place, like, sums in ((1, weight, slopes), (2, ctx.biased, shifts)):
        if like is not None and ctx.needs_input_grad[place]:
            rest = tuple(d for d, (n, m) in enumerate(zip(sums.meta.shape, ctx.layout.per, strict=True)) if n != m)
            total = _ops.sum(sums, rest, True) if rest else sums
            found[place] = _narrow(_seen(total, like.meta.shape), like)


def _move(running: tuple[Tensor, Tensor], mean: Tensor, variance: Tensor, layout: Layout, momentum: float) -> None:
    """Running statistics after a batch: of several statistics a channel (instances), their mean counts."""
    channels = running[0].meta.shape
    if mean.meta.numel != running[0].meta.numel:
        mean, variance = (_ops.mean(statistic, (0,), True) for statistic in (mean, variance))
    count = layout.count
    unbiased = momentum * (count / (count - 1) if count > 1 else float("nan"))
    operands = (*running, _seen(mean, channels), _seen(variance, channels))
    call_into(registry["move_statistics"], (*operands, momentum, 1.0 - momentum, unbiased), (), running, in_place=False)


class StandardizeFixed(Function):
    """The input standardised by statistics that are given: `apply(input, weight, bias, mean, variance, layout, eps)`.

    All but the input are one a channel; `layout` has no axes. The statistics are constants, as in PyTorch.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
        layout: Layout, eps: float,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(input, weight, mean, variance)
        ctx.layout, ctx.eps, ctx.biased = layout, eps, bias
        at, spread = _seen(mean, layout.per), _seen(variance, layout.per)
        scale, shift = _shaped(weight, layout, 1.0), _shaped(bias, layout, 0.0)
        return _ops.standardize_fixed(input, at, spread, scale, shift, eps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, *statistics = ctx.saved_tensors
        layout: Layout = ctx.layout
        mean, variance = (_seen(statistic, layout.per) for statistic in statistics)
        rstd, scale = _ops.rsqrt(_ops.add(variance, ctx.eps)), _shaped(weight, layout, 1.0)
        recorded = _recorded(input, grad, weight)
        found: list[Tensor | None] = [None] * 7
        if ctx.needs_input_grad[0]:
            found[0] = (
                _narrow(_ops.mul(_ops.mul(grad, scale), rstd), input)
                if recorded
                else _ops.standardize(grad, 0.0, rstd, scale, 0.0)
            )
        if any(ctx.needs_input_grad[1:3]):
            if recorded:
                slopes, shifts = _ops.mul(grad, _ops.mul(_ops.sub(input, mean), rstd)), grad
            else:
                shared = tuple(d for d, n in enumerate(layout.per) if n == 1)
                slopes, shifts = _ops.standardize_sums(grad, input, mean, rstd, shared, True)
            _of_parameters(ctx, found, weight, slopes, shifts)
        return tuple(found)
