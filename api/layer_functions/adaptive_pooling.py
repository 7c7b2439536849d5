"""Average and max pooling over as many windows as `output_size` says, spread evenly over the input.

With m windows along a dimension of size n, window i covers the elements floor(i * n / m) to ceil((i + 1) * n / m) - 1.
If m divides n along every dimension, all windows have the same size, and the calls are those of `pooling`. Otherwise
the kernels compute the bounds of every window by this formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from .._generated import ops
from ..autograd import Function
from ..runtime import views
from ..runtime.dispatch import call, call_multiple, is_recorded
from ..runtime.errors import ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from .resample_tables import Resample, averages
from .spatial_arguments import Ints, spatial_sizes, to_size

if TYPE_CHECKING:
    from ..autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        shape: Ints
        size: Ints


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices",
]  # fmt: skip

AdaptiveSize: TypeAlias = int | Sequence[int | None] | None
"""One size of the output for all spatial dimensions, or one for each; None stands for the input's size."""


def _adaptive_size(where: str, rank: int, input: Tensor, output_size: object, kinds: str = "uif") -> Ints:
    """Return the spatial sizes of the output. None in `output_size` stands for the input's size."""
    input_sizes = spatial_sizes(input, rank, where, kinds)
    requested_sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    if len(requested_sizes) != rank:
        raise ShapeError(f"{where}: output_size is one integer or {rank} of them, not {tuple(requested_sizes)!r}")
    sizes = tuple(
        n if m is None else to_size(m, where, "output_size") for m, n in zip(requested_sizes, input_sizes, strict=True)
    )
    if min(sizes) < 0:
        raise ShapeError(f"{where}: output_size must not be negative, but it is {output_size!r}")
    return sizes


def _equal_windows(input: Tensor, output_sizes: Ints) -> tuple[Ints | None, Ints]:
    """Return the kernel size and the strides that are equivalent to adaptive windows.

    They exist if the output's sizes divide the input's. Otherwise the kernel size is None, which tells the ops to
    compute adaptive windows, and the strides have no meaning.
    """
    input_sizes = input.meta.shape[-len(output_sizes) :]
    if min(output_sizes) < 1 or any(n % m for n, m in zip(input_sizes, output_sizes, strict=True)):
        return None, (1,) * len(output_sizes)
    kernel = tuple(n // m for n, m in zip(input_sizes, output_sizes, strict=True))
    return kernel, kernel


def _adaptive_avg_pool(where: str, rank: int, input: Tensor, output_size: AdaptiveSize) -> Tensor:
    size = _adaptive_size(where, rank, input, output_size, "f")
    if all(n == 1 for n in size):
        return ops.mean(input, tuple(range(-rank, 0)), True)
    # size, kernel, stride, padding, count_include_pad, divisor (0: the number of elements)
    statics = (size, *_equal_windows(input, size), (0,) * rank, False, 0)
    needs_grad = is_recorded(input) and 0 not in (*input.meta.shape, *size)
    if needs_grad and input.meta.device.driver.capabilities.takes_runs:
        return _AdaptiveAverage.apply(input, size, statics)
    return call(registry["average_windows"], (input,), statics)


class _AdaptiveAverage(Function):
    """Average over adaptive windows on a CPU.

    Backward resamples the gradient along one dimension after the other, by tables of weights. That is cheaper on CPUs
    than one kernel that looks for the windows of every element.
    """

    @staticmethod
    def forward(ctx: _Context, input: Tensor, size: Ints, statics: tuple[object, ...]) -> Tensor:
        ctx.shape, ctx.size = input.meta.shape, size
        return call(registry["average_windows"], (input,), statics)

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None, None]:
        first_spatial = len(ctx.shape) - len(ctx.size)
        passes = ((dim, averages(ctx.shape[dim], n).transposed) for dim, n in enumerate(ctx.size, start=first_spatial))
        return Resample.apply(grad, tuple(passes)), None, None


def adaptive_avg_pool1d(input: Tensor, output_size: AdaptiveSize) -> Tensor:
    """Average `(N, C, L)` or `(C, L)` over `output_size` windows; see `adaptive_avg_pool2d`.

    Args:
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        output_size: Number of windows: one int, or one for each spatial dimension; None stands for the input's size.

    Returns:
        Tensor whose spatial sizes are `output_size`.

    Example:
        >>> wg.nn.functional.adaptive_avg_pool1d(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 1)
        tensor([[3.]])
    """
    return _adaptive_avg_pool("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: AdaptiveSize) -> Tensor:
    """Average `(N, C, H, W)` or `(C, H, W)` over windows that cover the input evenly.

    `output_size` is one int or `(OH, OW)`; None stands for the input's size. With m windows along a dimension of size
    n, window i covers the elements floor(i * n / m) to ceil((i + 1) * n / m) - 1.

    Args:
        input: Tensor of shape `(N, C, H, W)` or `(C, H, W)`.
        output_size: Number of windows: one int, or one for each spatial dimension; None stands for the input's size.

    Returns:
        Tensor whose spatial sizes are `output_size`.

    Example:
        >>> wg.nn.functional.adaptive_avg_pool2d(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 1)
        tensor([[[3.]]])
    """
    return _adaptive_avg_pool("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: AdaptiveSize) -> Tensor:
    """Average `(N, C, D, H, W)` or `(C, D, H, W)` over adaptive windows; see `adaptive_avg_pool2d`.

    Args:
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        output_size: Number of windows: one int, or one for each spatial dimension; None stands for the input's size.

    Returns:
        Tensor whose spatial sizes are `output_size`.

    Example:
        >>> wg.nn.functional.adaptive_avg_pool3d(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), 1)
        tensor([[[[3.]]]])
    """
    return _adaptive_avg_pool("adaptive_avg_pool3d", 3, input, output_size)


def _adaptive_max_pool(where: str, rank: int, input: Tensor, output_size: AdaptiveSize) -> tuple[Tensor, Tensor]:
    size = _adaptive_size(where, rank, input, output_size)
    if all(n == 1 for n in size) and input.meta.numel:  # one window: reduce the flattened plane with vector loads
        batch_shape = input.meta.shape[:-rank]
        values, positions = call_multiple(
            registry["max_plane"], (views.reshape(input, (*batch_shape, -1)),), (-1, False)
        )
        return views.reshape(values, (*batch_shape, *size)), views.reshape(positions, (*batch_shape, *size))
    statics = (size, *_equal_windows(input, size), (0,) * rank, (1,) * rank)  # size, kernel, stride, padding, dilation
    values, positions = call_multiple(registry["max_windows"], (input,), statics)
    return values, positions


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: AdaptiveSize, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the maxima of `output_size` windows of `(N, C, L)` or `(C, L)`, and their int64 positions.

    Args:
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        output_size: Number of windows: one int, or one for each spatial dimension; None stands for the input's size.
        return_indices: Accepted for compatibility: indices are always returned.

    Returns:
        The maxima, and their int64 positions.

    Example:
        >>> wg.nn.functional.adaptive_max_pool1d_with_indices(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 1)
        (tensor([[6.]]), tensor([[3]]))
    """
    return _adaptive_max_pool("adaptive_max_pool1d", 1, input, output_size)


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: AdaptiveSize, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Return `adaptive_max_pool2d` and the int64 positions `row * W + column` of the maxima.

    Args:
        input: Tensor of shape `(N, C, H, W)` or `(C, H, W)`.
        output_size: Number of windows: one int, or one for each spatial dimension; None stands for the input's size.
        return_indices: Accepted for compatibility: indices are always returned.

    Returns:
        The maxima, and their int64 positions.

    Example:
        >>> wg.nn.functional.adaptive_max_pool2d_with_indices(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 1)
        (tensor([[[6.]]]), tensor([[[3]]]))
    """
    return _adaptive_max_pool("adaptive_max_pool2d", 2, input, output_size)


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: AdaptiveSize, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Return `adaptive_max_pool3d` and the int64 positions of the maxima in their volume.

    Args:
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        output_size: Number of windows: one int, or one for each spatial dimension; None stands for the input's size.
        return_indices: Accepted for compatibility: indices are always returned.

    Returns:
        The maxima, and their int64 positions.

    Example:
        >>> wg.nn.functional.adaptive_max_pool3d_with_indices(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), 1)
        (tensor([[[[6.]]]]), tensor([[[[3]]]]))
    """
    return _adaptive_max_pool("adaptive_max_pool3d", 3, input, output_size)


@overload
def adaptive_max_pool1d(input: Tensor, output_size: AdaptiveSize, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool1d(
    input: Tensor, output_size: AdaptiveSize, return_indices: Literal[True]
) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool1d(
    input: Tensor, output_size: AdaptiveSize, return_indices: bool
) -> Tensor | tuple[Tensor, Tensor]: ...
def adaptive_max_pool1d(
    input: Tensor, output_size: AdaptiveSize, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the maxima of `output_size` windows of `(N, C, L)` or `(C, L)`; see `adaptive_max_pool2d`.

    Args:
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        output_size: Number of windows: one int, or one for each spatial dimension; None stands for the input's size.
        return_indices: Whether to return the maxima's positions as well.

    Returns:
        Tensor whose spatial sizes are `output_size`; with `return_indices` a tuple with the int64 positions.

    Example:
        >>> wg.nn.functional.adaptive_max_pool1d(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 1)
        tensor([[6.]])
    """
    maxima_and_indices = _adaptive_max_pool("adaptive_max_pool1d", 1, input, output_size)
    return maxima_and_indices if return_indices else maxima_and_indices[0]


@overload
def adaptive_max_pool2d(input: Tensor, output_size: AdaptiveSize, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool2d(
    input: Tensor, output_size: AdaptiveSize, return_indices: Literal[True]
) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool2d(
    input: Tensor, output_size: AdaptiveSize, return_indices: bool
) -> Tensor | tuple[Tensor, Tensor]: ...
def adaptive_max_pool2d(
    input: Tensor, output_size: AdaptiveSize, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the maxima of `(N, C, H, W)` or `(C, H, W)` over adaptive windows, and their positions if requested.

    Args:
        input: Tensor of shape `(N, C, H, W)` or `(C, H, W)`.
        output_size: Number of windows: one int, or one for each spatial dimension; None stands for the input's size.
        return_indices: Whether to return the maxima's positions as well.

    Returns:
        Tensor whose spatial sizes are `output_size`; with `return_indices` a tuple with the int64 positions.

    Example:
        >>> wg.nn.functional.adaptive_max_pool2d(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 1)
        tensor([[[6.]]])
    """
    maxima_and_indices = _adaptive_max_pool("adaptive_max_pool2d", 2, input, output_size)
    return maxima_and_indices if return_indices else maxima_and_indices[0]


@overload
def adaptive_max_pool3d(input: Tensor, output_size: AdaptiveSize, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool3d(
    input: Tensor, output_size: AdaptiveSize, return_indices: Literal[True]
) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool3d(
    input: Tensor, output_size: AdaptiveSize, return_indices: bool
) -> Tensor | tuple[Tensor, Tensor]: ...
def adaptive_max_pool3d(
    input: Tensor, output_size: AdaptiveSize, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the maxima of `(N, C, D, H, W)` or `(C, D, H, W)` over adaptive windows; see `adaptive_max_pool2d`.

    Args:
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        output_size: Number of windows: one int, or one for each spatial dimension; None stands for the input's size.
        return_indices: Whether to return the maxima's positions as well.

    Returns:
        Tensor whose spatial sizes are `output_size`; with `return_indices` a tuple with the int64 positions.

    Example:
        >>> wg.nn.functional.adaptive_max_pool3d(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), 1)
        tensor([[[[6.]]]])
    """
    maxima_and_indices = _adaptive_max_pool("adaptive_max_pool3d", 3, input, output_size)
    return maxima_and_indices if return_indices else maxima_and_indices[0]
