"""Max pooling. `pooling` describes the shapes and the arguments of windows."""

from __future__ import annotations

from typing import Literal, overload

from ..arguments.types import IntOrInts
from ..runtime.dispatch import call, call_multiple, is_recorded
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from .pooling_windows import check_window_arguments

__all__ = [
    "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d",
    "max_pool3d_with_indices",
]  # fmt: skip


def max_pool(
    where: str, rank: int, input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None,
    padding: IntOrInts, dilation: IntOrInts, ceil_mode: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    statics = check_window_arguments(where, rank, input, kernel_size, stride, padding, dilation, ceil_mode)
    values, positions = call_multiple(registry["max_windows"], (input,), statics)
    return values, positions


def max_pool_values(
    where: str, rank: int, input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None,
    padding: IntOrInts, dilation: IntOrInts, ceil_mode: bool,
) -> Tensor:  # fmt: skip
    """Return the maxima alone. The gradient reads their positions; without one they are not computed."""
    statics = check_window_arguments(where, rank, input, kernel_size, stride, padding, dilation, ceil_mode)
    if is_recorded(input):
        values, _ = call_multiple(registry["max_windows"], (input,), statics)
        return values
    return call(registry["max_window_values"], (input,), statics)


def max_pool1d_with_indices(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maximum of each window of `(N, C, L)` or `(C, L)`, and its int64 position in L; see `max_pool2d`.

    Args:
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a last window may end beyond the input.
        return_indices: Accepted for compatibility: indices are always returned.

    Returns:
        The maxima, and their int64 positions.

    Example:
        >>> wg.nn.functional.max_pool1d_with_indices(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 2)
        (tensor([[3., 6.]]), tensor([[1, 3]]))
    """
    return max_pool("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maximum of each window of `(N, C, H, W)` or `(C, H, W)`, and its int64 position `row * W + column`.

    Args:
        input: Tensor of shape `(N, C, H, W)` or `(C, H, W)`.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a last window may end beyond the input.
        return_indices: Accepted for compatibility: indices are always returned.

    Returns:
        The maxima, and their int64 positions.

    Example:
        >>> wg.nn.functional.max_pool2d_with_indices(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 2)
        (tensor([[[6.]]]), tensor([[[3]]]))
    """
    return max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d_with_indices(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maximum of each window, and its int64 position in the volume.

    The input is `(N, C, D, H, W)` or `(C, D, H, W)`.

    Args:
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a last window may end beyond the input.
        return_indices: Accepted for compatibility: indices are always returned.

    Returns:
        The maxima, and their int64 positions.

    Example:
        >>> wg.nn.functional.max_pool3d_with_indices(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), (1, 2, 2))
        (tensor([[[[6.]]]]), tensor([[[[3]]]]))
    """
    return max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode)


@overload
def max_pool1d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def max_pool1d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, *, return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def max_pool1d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None, padding: IntOrInts, dilation: IntOrInts,
    ceil_mode: bool, return_indices: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def max_pool1d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maximum of each window of `(N, C, L)` or `(C, L)`; see `max_pool2d`.

    Args:
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a last window may end beyond the input.
        return_indices: Whether to return the maxima's positions as well.

    Returns:
        Tensor whose spatial sizes are the numbers of windows; with `return_indices` a tuple with the int64 positions.

    Example:
        >>> wg.nn.functional.max_pool1d(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 2)
        tensor([[3., 6.]])
    """
    if return_indices:
        return max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return max_pool_values("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode)


@overload
def max_pool2d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def max_pool2d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, *, return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def max_pool2d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None, padding: IntOrInts, dilation: IntOrInts,
    ceil_mode: bool, return_indices: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def max_pool2d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maximum of each window of `(N, C, H, W)` or `(C, H, W)`.

    Padding is never the maximum. A window with a NaN gives NaN. Of several equal maxima, the first one gets the
    gradient.

    Args:
        input: Integer or floating tensor.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        dilation: Distance of the window's elements.
        ceil_mode: Whether a last window may end beyond the input.
        return_indices: Whether to return `(maxima, positions)`. Positions are int64, `row * W + column`: of the first
            of equal maxima, or of the last NaN.

    Returns:
        Tensor whose spatial sizes are the numbers of windows; with `return_indices` a tuple with the int64 positions.

    Example:
        >>> wg.nn.functional.max_pool2d(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 2)
        tensor([[[6.]]])
    """
    if return_indices:
        return max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return max_pool_values("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode)


@overload
def max_pool3d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def max_pool3d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, *, return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def max_pool3d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None, padding: IntOrInts, dilation: IntOrInts,
    ceil_mode: bool, return_indices: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def max_pool3d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maximum of each window of `(N, C, D, H, W)` or `(C, D, H, W)`; see `max_pool2d`.

    Args:
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a last window may end beyond the input.
        return_indices: Whether to return the maxima's positions as well.

    Returns:
        Tensor whose spatial sizes are the numbers of windows; with `return_indices` a tuple with the int64 positions.

    Example:
        >>> wg.nn.functional.max_pool3d(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), (1, 2, 2))
        tensor([[[[6.]]]])
    """
    if return_indices:
        return max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return max_pool_values("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode)
