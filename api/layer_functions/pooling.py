"""Average and power-average (Lp) pooling; `max_pooling`, `adaptive_pooling` and `unpooling` have the rest.

Inputs are `(N, C, *spatial)` or `(C, *spatial)` with one to three spatial dimensions. These arguments are one int, or
one int for each spatial dimension:

- `kernel_size`: elements of a window.
- `dilation`: distance between neighbouring elements of a window.
- `stride`: distance between neighbouring windows (default: `kernel_size`).
- `padding`: elements added on both sides, at most half of `kernel_size`.

`ceil_mode` allows a last window that reaches over the end. Along a dimension of size n there are
`(n + 2 * padding - dilation * (kernel_size - 1) - 1) / stride + 1` windows, rounded down, or up with `ceil_mode`. The
gradient of an element is summed over its windows in a fixed order, so the same call gives the same bits.
"""

from __future__ import annotations

import math

from .._generated import ops
from ..arguments.types import IntOrInts
from ..runtime import dtypes
from ..runtime.dispatch import call
from ..runtime.errors import ShapeError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .max_pooling import max_pool
from .pooling_windows import check_window_arguments
from .spatial_arguments import to_size, window_sizes

__all__ = ["avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d"]


# Average pooling ------------------------------------------------------------------------------------------------------


def _avg_pool(
    where: str, rank: int, input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None,
    padding: IntOrInts, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the mean of each window over `rank` spatial dimensions; see `avg_pool2d`. where: the public function."""
    output_sizes, kernel, strides, pad_sizes, _ = check_window_arguments(
        where, rank, input, kernel_size, stride, padding, 1, ceil_mode
    )
    is_integer = input.meta.dtype is dtypes.int64
    if not is_integer and input.meta.dtype.kind != "f":
        dtype_name = input.meta.dtype.name
        raise UnsupportedDType(f"{where}: takes floating dtypes and int64, not {dtype_name}; convert with .to()")
    if divisor_override == 0:
        raise ShapeError(f"{where}: divisor_override must not be zero")
    divisor = 0 if divisor_override is None else to_size(divisor_override, where, "divisor_override")
    op = "average_windows_whole" if is_integer else "average_windows"
    statics = (output_sizes, kernel, strides, pad_sizes, bool(count_include_pad), divisor)
    return call(registry[op], (input,), statics)


def avg_pool1d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Return the mean of each window of `(N, C, L)` or `(C, L)`; see `avg_pool2d`.

    Args:
        input: Floating or int64 tensor of shape `(N, C, L)` or `(C, L)`.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        ceil_mode: Whether a last window may end beyond the input.
        count_include_pad: Whether padding counts in the mean.

    Returns:
        Tensor of the dtype of `input`, whose spatial sizes are the numbers of windows.

    Raises:
        ShapeError: The input has another number of dimensions, or is too small for a window.
        UnsupportedDType: The input is neither floating nor int64.

    Example:
        >>> wg.nn.functional.avg_pool1d(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 2)
        tensor([[2., 4.]])
    """
    return _avg_pool("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the mean of each window of `(N, C, H, W)` or `(C, H, W)`.

    Args:
        input: Floating or int64 tensor of shape `(N, C, H, W)` or `(C, H, W)`; int64 means are rounded towards 0.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        ceil_mode: Whether a last window may end beyond the input.
        count_include_pad: If True, padding counts as zeros. If False, the mean is over the input's elements only.
        divisor_override: Number by which the window sums are divided, instead of the number of elements.

    Returns:
        Tensor of the dtype of `input`, whose spatial sizes are the numbers of windows.

    Raises:
        ShapeError: The input has another number of dimensions, or is too small for a window.
        UnsupportedDType: The input is neither floating nor int64.

    Example:
        >>> wg.nn.functional.avg_pool2d(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 2)
        tensor([[[3.]]])
    """
    return _avg_pool(
        "avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the mean of each window of `(N, C, D, H, W)` or `(C, D, H, W)`; see `avg_pool2d`.

    Args:
        input: Floating or int64 tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        ceil_mode: Whether a last window may end beyond the input.
        count_include_pad: Whether padding counts in the mean.
        divisor_override: Divisor of each window's sum; None: the number of its elements.

    Returns:
        Tensor of the dtype of `input`, whose spatial sizes are the numbers of windows.

    Raises:
        ShapeError: The input has another number of dimensions, or is too small for a window.
        UnsupportedDType: The input is neither floating nor int64.

    Example:
        >>> wg.nn.functional.avg_pool3d(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), (1, 2, 2))
        tensor([[[[3.]]]])
    """
    return _avg_pool(
        "avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


# Power-average (Lp) pooling -------------------------------------------------------------------------------------------


def _lp_pool(
    where: str, rank: int, input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None,
    ceil_mode: bool,
) -> Tensor:  # fmt: skip
    """Return (sum of x^p over each window)^(1/p), or for p = inf the largest |x|, for p = -inf the smallest."""
    only_tensors(where, input)
    if math.isinf(norm_type):
        magnitude = ops.abs(input) if norm_type > 0 else ops.neg(ops.abs(input))
        largest, _ = max_pool(where, rank, magnitude, kernel_size, stride, 0, 1, ceil_mode)
        return largest if norm_type > 0 else ops.neg(largest)
    mean = _avg_pool(where, rank, ops.pow(input, norm_type), kernel_size, stride, 0, ceil_mode, True)
    count = math.prod(window_sizes(kernel_size, rank, where, "kernel_size", 1))
    # As in PyTorch, the mean is multiplied by the full window size even if the window reaches over the end. And as
    # there, sign times relu(abs) stands for the mean: they are equal, but where the mean is 0 no gradient passes.
    return ops.pow(ops.mul(ops.mul(ops.sign(mean), ops.relu(ops.abs(mean))), count), 1.0 / norm_type)


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return (sum of x^p)^(1/p) over windows of `(N, C, L)` or `(C, L)`, p = `norm_type`; see `lp_pool2d`.

    Args:
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        norm_type: The exponent p.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        ceil_mode: Whether a last window may end beyond the input.

    Returns:
        Tensor of the dtype of `input`, whose spatial sizes are the numbers of windows.

    Raises:
        ShapeError: The input has another number of dimensions, or is too small for a window.
        UnsupportedDType: The input is neither floating nor int64.

    Example:
        >>> wg.nn.functional.lp_pool1d(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 1, 2)
        tensor([[4., 8.]])
    """
    return _lp_pool("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return (sum of x^p)^(1/p) over windows of `(N, C, H, W)` or `(C, H, W)`, p = `norm_type`.

    For p = inf, this is the largest |x|. As in PyTorch, the gradient is NaN where the sum is 0.

    Args:
        input: Tensor of shape `(N, C, H, W)` or `(C, H, W)`.
        norm_type: The exponent p.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        ceil_mode: Whether a last window may end beyond the input.

    Returns:
        Tensor of the dtype of `input`, whose spatial sizes are the numbers of windows.

    Raises:
        ShapeError: The input has another number of dimensions, or is too small for a window.
        UnsupportedDType: The input is neither floating nor int64.

    Example:
        >>> wg.nn.functional.lp_pool2d(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 1, 2)
        tensor([[[12.]]])
    """
    return _lp_pool("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return (sum of x^p)^(1/p) over windows of `(N, C, D, H, W)` or `(C, D, H, W)`, p = `norm_type`.

    See `lp_pool2d`.

    Args:
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        norm_type: The exponent p.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        ceil_mode: Whether a last window may end beyond the input.

    Returns:
        Tensor of the dtype of `input`, whose spatial sizes are the numbers of windows.

    Raises:
        ShapeError: The input has another number of dimensions, or is too small for a window.
        UnsupportedDType: The input is neither floating nor int64.

    Example:
        >>> wg.nn.functional.lp_pool3d(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), 1, (1, 2, 2))
        tensor([[[[12.]]]])
    """
    return _lp_pool("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)
