"""Average, max and power-average (Lp) pooling; `adaptive_pooling` and `unpooling` have the rest.

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
from typing import Any, Literal, overload

from .._generated import ops
from ..arguments.types import IntOrInts
from ..runtime import dtypes
from ..runtime.dispatch import call, call_multiple
from ..runtime.errors import ArgumentError, ShapeError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices",
]  # fmt: skip

Ints = tuple[int, ...]


def to_size(value: Any, where: str, name: str) -> int:
    """Return `value` as an int. Raises `ArgumentError` with the names of function and argument for other types."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{where}: {name} is an integer, or one a dimension, not {value!r}")
    return int(value.__index__())


def window_sizes(value: Any, rank: int, where: str, name: str, minimum: int, *, allow_single: bool = True) -> Ints:
    """Return `value` as `rank` ints, each at least `minimum` (0 or 1).

    With `allow_single`, a sequence of one int stands for all dimensions, as an int always does.
    """
    if isinstance(value, (tuple, list)):
        if len(value) != rank and not (allow_single and len(value) == 1):
            raise ShapeError(f"{where}: {name} is one integer or {rank} of them, not {tuple(value)!r}")
        sizes = tuple(to_size(v, where, name) for v in value)
    else:
        sizes = (to_size(value, where, name),)
    if min(sizes) < minimum:
        requirement = {0: "must not be negative", 1: "must be greater than zero"}[minimum]
        raise ShapeError(f"{where}: {name} {requirement}, but it is {value!r}")
    return sizes * rank if len(sizes) < rank else sizes


def spatial_sizes(input: Any, rank: int, where: str, kinds: str = "uif") -> Ints:
    """Check an input and return its spatial sizes. Only the batch may be empty. `kinds` lists allowed `DType.kind`s."""
    only_tensors(where, input)
    if input.meta.dtype.kind not in kinds:
        raise UnsupportedDType(f"{where}: does not take {input.meta.dtype.name}; convert the input with .to()")
    shape: Ints = input.meta.shape
    if len(shape) not in (rank + 1, rank + 2) or 0 in shape[-rank - 1 :]:
        raise ShapeError(
            f"{where}: expected (N, C, …) or (C, …) with {rank} spatial dimensions, none but N empty; the input has "
            f"shape {list(shape)}"
        )
    return shape[-rank:]


def _count_windows(
    where: str, input_sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Ints:
    """Return the number of windows along each dimension. Raise `ShapeError` if there are none."""
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise ShapeError(
            f"{where}: padding must be at most half of the kernel's size, but padding is {list(padding)} and "
            f"kernel_size {list(kernel)}"
        )
    counts = []
    for n, k, s, p, d in zip(input_sizes, kernel, stride, padding, dilation, strict=True):
        count = (n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (count - 1) * s >= n + p:  # the last window would begin after the input and its padding
            count -= 1
        counts.append(count)
    if min(counts) < 1:
        raise ShapeError(
            f"{where}: the input's spatial size {list(input_sizes)} is too small: windows of {list(kernel)} with "
            f"dilation {list(dilation)} and padding {list(padding)} would give an output of size {counts}"
        )
    return tuple(counts)


def _check_window_args(
    where: str, rank: int, input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None, padding: IntOrInts,
    dilation: IntOrInts, ceil_mode: bool,
) -> tuple[Ints, Ints, Ints, Ints, Ints]:  # fmt: skip
    """Check the arguments. Return output sizes, kernel, strides, padding and dilations, `rank` ints each."""
    input_sizes = spatial_sizes(input, rank, where)
    kernel = window_sizes(kernel_size, rank, where, "kernel_size", 1)
    uses_kernel_stride = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    strides = kernel if uses_kernel_stride else window_sizes(stride, rank, where, "stride", 1)
    pads, dilations = (
        window_sizes(padding, rank, where, "padding", 0),
        window_sizes(dilation, rank, where, "dilation", 1),
    )
    output_sizes = _count_windows(where, input_sizes, kernel, strides, pads, dilations, ceil_mode)
    return output_sizes, kernel, strides, pads, dilations


# Average pooling ------------------------------------------------------------------------------------------------------


def _avg_pool(
    where: str, rank: int, input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None,
    padding: IntOrInts, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    output_sizes, kernel, strides, pad_sizes, _ = _check_window_args(
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
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        ceil_mode: Whether a last window may end beyond the input.
        count_include_pad: Whether padding counts in the mean.

    Returns:
        Tensor with the spatial sizes of the windows' positions.

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
        input: Floating or int64 tensor; int64 means are rounded towards 0.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        ceil_mode: Whether a last window may end beyond the input.
        count_include_pad: If True, padding counts as zeros. If False, the mean is over the input's elements only.
        divisor_override: Number by which the window sums are divided, instead of the number of elements.

    Returns:
        Tensor with the spatial sizes of the windows' positions.

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
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        ceil_mode: Whether a last window may end beyond the input.
        count_include_pad: Whether padding counts in the mean.
        divisor_override: Divisor of each window's sum; None: the number of its elements.

    Returns:
        Tensor with the spatial sizes of the windows' positions.

    Example:
        >>> wg.nn.functional.avg_pool3d(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), (1, 2, 2))
        tensor([[[[3.]]]])
    """
    return _avg_pool(
        "avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


# Max pooling ----------------------------------------------------------------------------------------------------------


def _max_pool(
    where: str, rank: int, input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None,
    padding: IntOrInts, dilation: IntOrInts, ceil_mode: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    statics = _check_window_args(where, rank, input, kernel_size, stride, padding, dilation, ceil_mode)
    values, positions = call_multiple(registry["max_windows"], (input,), statics)
    return values, positions


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
    return _max_pool("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode)


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
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode)


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
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode)


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
        Tensor with the spatial sizes of the windows' positions; with `return_indices` a tuple with the int64 positions.

    Example:
        >>> wg.nn.functional.max_pool1d(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 2)
        tensor([[3., 6.]])
    """
    maxima_and_indices = max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return maxima_and_indices if return_indices else maxima_and_indices[0]


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
        Tensor with the spatial sizes of the windows' positions; with `return_indices` a tuple with the int64 positions.

    Example:
        >>> wg.nn.functional.max_pool2d(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 2)
        tensor([[[6.]]])
    """
    maxima_and_indices = max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return maxima_and_indices if return_indices else maxima_and_indices[0]


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
        Tensor with the spatial sizes of the windows' positions; with `return_indices` a tuple with the int64 positions.

    Example:
        >>> wg.nn.functional.max_pool3d(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), (1, 2, 2))
        tensor([[[[6.]]]])
    """
    maxima_and_indices = max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return maxima_and_indices if return_indices else maxima_and_indices[0]


# Power-average (Lp) pooling -------------------------------------------------------------------------------------------


def _lp_pool(
    where: str, rank: int, input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None,
    ceil_mode: bool,
) -> Tensor:  # fmt: skip
    """Return (sum of x^p over each window)^(1/p), or for p = inf the largest |x|, for p = -inf the smallest."""
    only_tensors(where, input)
    if math.isinf(norm_type):
        magnitude = ops.abs(input) if norm_type > 0 else ops.neg(ops.abs(input))
        largest, _ = _max_pool(where, rank, magnitude, kernel_size, stride, 0, 1, ceil_mode)
        return largest if norm_type > 0 else ops.neg(largest)
    mean = _avg_pool(where, rank, ops.pow(input, norm_type), kernel_size, stride, 0, ceil_mode, True)
    count = math.prod(window_sizes(kernel_size, rank, where, "kernel_size", 1))
    # As in PyTorch, the mean is multiplied by the full window size even if the window reaches over the end, and a
    # negative sum keeps its sign.
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
        Tensor with the spatial sizes of the windows' positions.

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
        Tensor with the spatial sizes of the windows' positions.

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
        Tensor with the spatial sizes of the windows' positions.

    Example:
        >>> wg.nn.functional.lp_pool3d(wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]]), 1, (1, 2, 2))
        tensor([[[[12.]]]])
    """
    return _lp_pool("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)
