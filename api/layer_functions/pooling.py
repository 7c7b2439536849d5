"""Average, max, power-average (Lp) and adaptive pooling, and max unpooling.

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
from collections.abc import Sequence
from typing import Any, Literal, overload

from .._generated import ops
from ..autograd import Function
from ..creation.factories import zeros
from ..indexing.bounds import check_bounds
from ..runtime import dtypes, views
from ..runtime.dispatch import call, is_recorded
from ..runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .resample_tables import Resample, averages

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool1d_with_indices", "max_pool2d",
    "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip

Ints = tuple[int, ...]
Size = int | Sequence[int]


def _to_int(value: Any, where: str, name: str) -> int:
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
        sizes = tuple(_to_int(v, where, name) for v in value)
    else:
        sizes = (_to_int(value, where, name),)
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
    where: str, rank: int, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
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
    where: str, rank: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None = None,
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
    divisor = 0 if divisor_override is None else _to_int(divisor_override, where, "divisor_override")
    op = "average_windows_whole" if is_integer else "average_windows"
    statics = (output_sizes, kernel, strides, pad_sizes, bool(count_include_pad), divisor)
    return call(registry[op], (input,), statics)


def avg_pool1d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
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
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the mean of each window of `(N, C, H, W)` or `(C, H, W)`.

    Args:
        input: Floating or int64 tensor; int64 means are rounded towards 0.
        kernel_size: Window size. The module's docstring explains it, stride, padding and ceil_mode.
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
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
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
    where: str, rank: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[Tensor, Tensor]:
    statics = _check_window_args(where, rank, input, kernel_size, stride, padding, dilation, ceil_mode)
    return call(registry["max_windows"], (input,), statics)


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
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
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
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
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
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
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def max_pool1d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, *, return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def max_pool1d(
    input: Tensor, kernel_size: Size, stride: Size | None, padding: Size, dilation: Size, ceil_mode: bool,
    return_indices: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def max_pool1d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
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
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def max_pool2d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, *, return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def max_pool2d(
    input: Tensor, kernel_size: Size, stride: Size | None, padding: Size, dilation: Size, ceil_mode: bool,
    return_indices: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def max_pool2d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maximum of each window of `(N, C, H, W)` or `(C, H, W)`.

    Padding is never the maximum. A window with a NaN gives NaN. Of several equal maxima, the first one gets the
    gradient.

    Args:
        input: Integer or floating tensor.
        kernel_size: Window size. The module's docstring explains it, stride, padding, dilation and ceil_mode.
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
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def max_pool3d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, *, return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def max_pool3d(
    input: Tensor, kernel_size: Size, stride: Size | None, padding: Size, dilation: Size, ceil_mode: bool,
    return_indices: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def max_pool3d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
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


# Adaptive pooling -----------------------------------------------------------------------------------------------------


def _adaptive_size(where: str, rank: int, input: Tensor, output_size: Any, kinds: str = "uif") -> Ints:
    """Return the spatial sizes of the output. None in `output_size` stands for the input's size."""
    input_sizes = spatial_sizes(input, rank, where, kinds)
    is_sequence = isinstance(output_size, (tuple, list))
    if is_sequence and len(output_size) != rank:
        raise ShapeError(f"{where}: output_size is one integer or {rank} of them, not {tuple(output_size)!r}")
    sizes_or_none = output_size if is_sequence else (output_size,) * rank
    sizes = tuple(
        n if v is None else _to_int(v, where, "output_size") for v, n in zip(sizes_or_none, input_sizes, strict=True)
    )
    if min(sizes) < 0:
        raise ShapeError(f"{where}: output_size must not be negative, but it is {output_size!r}")
    return sizes


def _equal_windows(input: Tensor, output_sizes: Ints) -> tuple[Ints | None, Ints]:
    """Return kernel and strides of adaptive windows.

    If the output's sizes divide the input's, all windows have the same size. Otherwise the kernel is None, by which the
    ops recognise adaptive windows, and the strides have no meaning.
    """
    input_sizes = input.meta.shape[-len(output_sizes) :]
    if min(output_sizes) < 1 or any(n % m for n, m in zip(input_sizes, output_sizes, strict=True)):
        return None, (1,) * len(output_sizes)
    kernel = tuple(n // m for n, m in zip(input_sizes, output_sizes, strict=True))
    return kernel, kernel


def _adaptive_avg_pool(where: str, rank: int, input: Tensor, output_size: Any) -> Tensor:
    size = _adaptive_size(where, rank, input, output_size, "f")
    if all(n == 1 for n in size):
        return ops.mean(input, tuple(range(-rank, 0)), True)
    statics = (size, *_equal_windows(input, size), (0,) * rank, False, 0)
    needs_grad = is_recorded(input) and 0 not in (*input.meta.shape, *size)
    if needs_grad and input.meta.device.driver.capabilities.takes_runs:
        return _AdaptiveAverage.apply(input, statics)
    return call(registry["average_windows"], (input,), statics)


class _AdaptiveAverage(Function):
    """Average over adaptive windows on a CPU.

    The gradient is resampled along one dimension after the other, with tables of weights. That is cheaper on CPUs than
    one kernel that searches the windows of every element.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, statics: tuple[Any, ...]) -> Tensor:
        ctx.shape, ctx.size = input.meta.shape, statics[0]
        return call(registry["average_windows"], (input,), statics)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        first_spatial = len(ctx.shape) - len(ctx.size)
        passes = ((dim, averages(ctx.shape[dim], n).transposed) for dim, n in enumerate(ctx.size, start=first_spatial))
        return Resample.apply(grad, tuple(passes)), None


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
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


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
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


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
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


def _adaptive_max_pool(where: str, rank: int, input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    size = _adaptive_size(where, rank, input, output_size)
    if all(n == 1 for n in size) and input.meta.numel:  # one window: reduce the flattened plane with vector loads
        batch_shape = input.meta.shape[:-rank]
        values, positions = call(registry["max_plane"], (views.reshape(input, (*batch_shape, -1)),), (-1, False))
        return views.reshape(values, (*batch_shape, *size)), views.reshape(positions, (*batch_shape, *size))
    statics = (size, *_equal_windows(input, size), (0,) * rank, (1,) * rank)
    return call(registry["max_windows"], (input,), statics)


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
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
    input: Tensor, output_size: Any, return_indices: bool = False
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
    input: Tensor, output_size: Any, return_indices: bool = False
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
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool1d(
    input: Tensor, output_size: Any, return_indices: bool
) -> Tensor | tuple[Tensor, Tensor]: ...
def adaptive_max_pool1d(
    input: Tensor, output_size: Any, return_indices: bool = False
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
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool2d(
    input: Tensor, output_size: Any, return_indices: bool
) -> Tensor | tuple[Tensor, Tensor]: ...
def adaptive_max_pool2d(
    input: Tensor, output_size: Any, return_indices: bool = False
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
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool3d(
    input: Tensor, output_size: Any, return_indices: bool
) -> Tensor | tuple[Tensor, Tensor]: ...
def adaptive_max_pool3d(
    input: Tensor, output_size: Any, return_indices: bool = False
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


# Power-average (Lp) pooling -------------------------------------------------------------------------------------------


def _lp_pool(
    where: str, rank: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
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
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
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
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
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
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
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


# Max unpooling --------------------------------------------------------------------------------------------------------


class _Unpooled(Function):
    """Scatter elements of shape `(..., count)` into zeros of shape `(..., length)`.

    As in PyTorch, every element gets the gradient at its position, even if another element with the same position
    overwrote it. Where windows of the pooling overlapped, such elements are the same maximum.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, indices: Tensor, length: int) -> Tensor:
        ctx.save_for_backward(indices)
        output = zeros((*input.meta.shape[:-1], length), dtype=input.meta.dtype, device=input.meta.device)
        return call(registry["scatter"], (output, indices, input), (input.meta.ndim - 1,))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (indices,) = ctx.saved_tensors
        return call(registry["gather"], (grads[0], indices), (grads[0].meta.ndim - 1,)), None, None


def _max_unpool(
    where: str, rank: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    only_tensors(where, input, indices)
    shape = input.meta.shape
    if indices.meta.dtype is not dtypes.int64:
        raise DTypeError(f"{where}: indices must be int64, not {indices.meta.dtype.name}; convert them with .long()")
    if indices.meta.shape != shape:
        raise ShapeError(f"{where}: indices have shape {list(indices.meta.shape)}, the input {list(shape)}")
    input_sizes = spatial_sizes(input, rank, where)
    kernel = window_sizes(kernel_size, rank, where, "kernel_size", 1)
    strides = kernel if stride is None else window_sizes(stride, rank, where, "stride", 1)
    pad_sizes = window_sizes(padding, rank, where, "padding", 0)
    size = tuple((n - 1) * s + k - 2 * p for n, s, k, p in zip(input_sizes, strides, kernel, pad_sizes, strict=True))
    if output_size is not None:
        output_shape = tuple(_to_int(n, where, "output_size") for n in output_size)
        requested_sizes = output_shape[2:] if len(output_shape) == rank + 2 else output_shape
        if len(requested_sizes) != rank:
            raise ShapeError(f"{where}: output_size has {rank} or {rank + 2} elements, not {len(output_shape)}")
        if any(not n - s < w < n + s for n, s, w in zip(size, strides, requested_sizes, strict=True)):
            size_ranges = ", ".join(f"{n - s + 1} to {n + s - 1}" for n, s in zip(size, strides, strict=True))
            raise ShapeError(
                f"{where}: output_size {list(requested_sizes)} is out of range: {size_ranges} pool to the input"
            )
        size = requested_sizes
    if min(size) < 0:
        raise ShapeError(f"{where}: the output would have size {list(size)}; give an output_size or less padding")
    length = math.prod(size)
    batch_shape = shape[:-rank]
    positions = views.reshape(indices, (*batch_shape, math.prod(input_sizes)))
    try:
        check_bounds(positions, length, where)
    except IndexOutOfRange as error:  # PyTorch raises a RuntimeError here, and no IndexError
        raise ShapeError(f"{error}: the output has {list(size)} elements a plane") from None
    flat = views.reshape(input, (*batch_shape, math.prod(input_sizes)))
    return views.reshape(_Unpooled.apply(flat, positions, length), (*batch_shape, *size))


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put the maxima of `max_pool1d`, `(N, C, L)` or `(C, L)`, back at their positions; see `max_unpool2d`.

    Args:
        input: The maxima: `(N, C, L)` or `(C, L)`.
        indices: int64 positions, as the pooling returned them.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        output_size: Spatial size of the result; None: the least one that the windows cover.

    Returns:
        Tensor of spatial size `output_size`.

    Example:
        >>> maxima, indices = wg.nn.functional.max_pool1d_with_indices(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 2)
        >>> wg.nn.functional.max_unpool1d(maxima, indices, 2)
        tensor([[0., 3., 0., 6.]])
    """
    return _max_unpool("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put the maxima of `max_pool2d` back at their positions; all other elements are 0.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`.
        indices: int64 positions from `max_pool2d`, in the shape of `input`. If several elements have the same position,
            the last one wins.
        kernel_size: The value that was passed to `max_pool2d`; the same holds for `stride` and `padding`.
        output_size: Spatial size of the result, with or without N and C. Pass it if the pooled tensor did not have the
            default size, `(n - 1) * stride + kernel_size - 2 * padding`.

    Returns:
        Tensor of spatial size `output_size`.

    Raises:
        ShapeError: An index is out of range, or pooling a result of `output_size` would not give the size of `input`.

    Example:
        >>> maxima, indices = wg.nn.functional.max_pool2d_with_indices(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 2)
        >>> wg.nn.functional.max_unpool2d(maxima, indices, 2)
        tensor([[[0., 0.],
                 [0., 6.]]])
    """
    return _max_unpool("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put the maxima of `max_pool3d`, `(N, C, D, H, W)` or `(C, D, H, W)`, back at their positions.

    See `max_unpool2d`.

    Args:
        input: The maxima: `(N, C, D, H, W)` or `(C, D, H, W)`.
        indices: int64 positions, as the pooling returned them.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        output_size: Spatial size of the result; None: the least one that the windows cover.

    Returns:
        Tensor of spatial size `output_size`.

    Example:
        >>> volume = wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]])
        >>> maxima, indices = wg.nn.functional.max_pool3d_with_indices(volume, (1, 2, 2))
        >>> wg.nn.functional.max_unpool3d(maxima, indices, (1, 2, 2))
        tensor([[[[0., 0.],
                  [0., 6.]]]])
    """
    return _max_unpool("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)
