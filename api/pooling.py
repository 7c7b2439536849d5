"""Pooling: average, largest, power mean, adaptive; and unpooling.

Inputs are (N, C, spatial…) or (C, spatial…) with 1 to 3 spatial dimensions. Sizes are an integer, or one a dimension. A
window's size is `kernel_size`, windows begin `stride` apart (default: the kernel's size), `padding` lies around the
input (at most half of the kernel), and `ceil_mode` lets a last window reach over the end. Along a dimension of n there
are (n + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1 windows, rounded down, or up with `ceil_mode`.
Gradients are gathered over the windows that an element is in, in their order: the same call gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from ._resample_tables import Resample, averages
from .autograd import Function
from .bounds import check_bounds
from .factories import zeros
from .runtime import dtypes, views
from .runtime.dispatch import call, is_recorded
from .runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError, UnsupportedDType
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool1d_with_indices", "max_pool2d",
    "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip

Ints = tuple[int, ...]
Size = int | Sequence[int]


def _integer(value: Any, where: str, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{where}: {name} is an integer, or one a dimension, not {value!r}")
    return int(value.__index__())


def window_sizes(value: Any, rank: int, where: str, name: str, least: int, *, alone: bool = True) -> Ints:
    """`rank` integers of at least `least`. alone: a sequence of one stands for all dimensions."""
    if isinstance(value, (tuple, list)):
        if len(value) != rank and not (alone and len(value) == 1):
            raise ShapeError(f"{where}: {name} is one integer or {rank} of them, not {tuple(value)!r}")
        found = tuple(_integer(v, where, name) for v in value)
    else:
        found = (_integer(value, where, name),)
    if min(found) < least:
        shown = {0: "must not be negative", 1: "must be greater than zero"}[least]
        raise ShapeError(f"{where}: {name} {shown}, but it is {value!r}")
    return found * rank if len(found) < rank else found


def spatial_sizes(input: Any, rank: int, where: str, kinds: str = "uif") -> Ints:
    """The spatial sizes of an input, of which only the batch may be empty. kinds: of dtypes that there can be."""
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


def _windows(
    where: str, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Ints:
    """How many windows there are along each dimension. Raises `ShapeError` for none."""
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise ShapeError(
            f"{where}: padding must be at most half of the kernel's size, but padding is {list(padding)} and "
            f"kernel_size {list(kernel)}"
        )
    found = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        count = (n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (count - 1) * s >= n + p:  # the last window would begin behind the input
            count -= 1
        found.append(count)
    if min(found) < 1:
        raise ShapeError(
            f"{where}: the input's spatial size {list(size)} is too small: windows of {list(kernel)} with dilation "
            f"{list(dilation)} and padding {list(padding)} would give an output of size {found}"
        )
    return tuple(found)


def _geometry(
    where: str, rank: int, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """size of the output, kernel, stride, padding and dilation, checked."""
    size = spatial_sizes(input, rank, where)
    kernel = window_sizes(kernel_size, rank, where, "kernel_size", 1)
    default = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    step = kernel if default else window_sizes(stride, rank, where, "stride", 1)
    before, apart = window_sizes(padding, rank, where, "padding", 0), window_sizes(dilation, rank, where, "dilation", 1)
    return _windows(where, size, kernel, step, before, apart, ceil_mode), kernel, step, before, apart


# Average --------------------------------------------------------------------------------------------------------------


def _average(
    where: str, rank: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    size, kernel, step, before, _ = _geometry(where, rank, input, kernel_size, stride, padding, 1, ceil_mode)
    whole = input.meta.dtype is dtypes.int64
    if not whole and input.meta.dtype.kind != "f":
        given = input.meta.dtype.name
        raise UnsupportedDType(f"{where}: takes floating dtypes and int64, not {given}; convert with .to()")
    if divisor_override == 0:
        raise ShapeError(f"{where}: divisor_override must not be zero")
    divisor = 0 if divisor_override is None else _integer(divisor_override, where, "divisor_override")
    op = "average_windows_whole" if whole else "average_windows"
    statics = (size, kernel, step, before, bool(count_include_pad), divisor)
    return call(registry[op], (input,), statics)  # type: ignore[no-any-return]


def avg_pool1d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Means of windows of (N, C, L) or (C, L); padding counts as zeros, or with count_include_pad=False not at all."""
    return _average("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Means of windows of (N, C, H, W) or (C, H, W), or their sums divided by `divisor_override`; see `avg_pool1d`.

    Floating inputs, and int64, which is rounded towards 0.
    """
    return _average(
        "avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Means of windows of (N, C, D, H, W) or (C, D, H, W); see `avg_pool2d`."""
    return _average(
        "avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


# Largest --------------------------------------------------------------------------------------------------------------


def _largest(
    where: str, rank: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[Tensor, Tensor]:
    statics = _geometry(where, rank, input, kernel_size, stride, padding, dilation, ceil_mode)
    return call(registry["max_windows"], (input,), statics)  # type: ignore[no-any-return]


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The largest elements of windows of (N, C, L) or (C, L), and their int64 positions in L; see `max_pool2d`."""
    return _largest("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The largest elements of windows of (N, C, H, W) or (C, H, W), and their int64 positions, row * W + column."""
    return _largest("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d_with_indices(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The largest elements of windows of (N, C, D, H, W) or (C, D, H, W), and their int64 positions in their volume."""
    return _largest("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool1d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest elements of windows of (N, C, L) or (C, L); with `return_indices` a pair. See `max_pool2d`."""
    found = max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return found if return_indices else found[0]


def max_pool2d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest elements of windows of (N, C, H, W) or (C, H, W); padding is below every number.

    NaN where a window has one. Of equal elements the first one is the largest: it gets the gradient, and with
    `return_indices`, which gives a pair, it is the one named (of several NaN the last).
    """
    found = max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return found if return_indices else found[0]


def max_pool3d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest elements of windows of (N, C, D, H, W) or (C, D, H, W); with `return_indices` a pair. See
    `max_pool2d`."""
    found = max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return found if return_indices else found[0]


# Adaptive -------------------------------------------------------------------------------------------------------------


def _adaptive_size(where: str, rank: int, input: Tensor, output_size: Any, kinds: str = "uif") -> Ints:
    """The output's spatial sizes; None keeps the input's."""
    own = spatial_sizes(input, rank, where, kinds)
    listed = isinstance(output_size, (tuple, list))
    if listed and len(output_size) != rank:
        raise ShapeError(f"{where}: output_size is one integer or {rank} of them, not {tuple(output_size)!r}")
    given = output_size if listed else (output_size,) * rank
    found = tuple(n if v is None else _integer(v, where, "output_size") for v, n in zip(given, own, strict=True))
    if min(found) < 0:
        raise ShapeError(f"{where}: output_size must not be negative, but it is {output_size!r}")
    return found


def _equal_windows(input: Tensor, size: Ints) -> tuple[Ints | None, Ints]:
    """Kernel and stride of adaptive windows: of one size side by side where they divide the input, else None."""
    own = input.meta.shape[-len(size) :]
    if min(size) < 1 or any(n % m for n, m in zip(own, size, strict=True)):
        return None, (1,) * len(size)
    kernel = tuple(n // m for n, m in zip(own, size, strict=True))
    return kernel, kernel


def _adaptive_average(where: str, rank: int, input: Tensor, output_size: Any) -> Tensor:
    size = _adaptive_size(where, rank, input, output_size, "f")
    if all(n == 1 for n in size):
        return ops.mean(input, tuple(range(-rank, 0)), True)
    statics = (size, *_equal_windows(input, size), (0,) * rank, False, 0)
    wanted = is_recorded(input) and 0 not in (*input.meta.shape, *size)
    if wanted and input.meta.device.driver.capabilities.style == "cpu":
        return _AdaptiveAverage.apply(input, statics)
    return call(registry["average_windows"], (input,), statics)  # type: ignore[no-any-return]


class _AdaptiveAverage(Function):
    """Means over adaptive windows. Their gradient is one along each dimension after the other: few kernels' work, where
    an element that looks for its windows has much to find out."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, statics: tuple[Any, ...]) -> Tensor:
        ctx.shape, ctx.size = input.meta.shape, statics[0]
        return call(registry["average_windows"], (input,), statics)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        first = len(ctx.shape) - len(ctx.size)
        passes = ((first + k, averages(ctx.shape[first + k], n).transposed) for k, n in enumerate(ctx.size))
        return Resample.apply(grad, tuple(passes)), None


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means of (N, C, L) or (C, L) over `output_size` windows; see `adaptive_avg_pool2d`."""
    return _adaptive_average("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means of (N, C, H, W) or (C, H, W) over windows that make an output of `output_size` (None: the input's).

    Window i of m over n elements goes from floor(i n / m) to below ceil((i + 1) n / m).
    """
    return _adaptive_average("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means of (N, C, D, H, W) or (C, D, H, W) over windows; see `adaptive_avg_pool2d`."""
    return _adaptive_average("adaptive_avg_pool3d", 3, input, output_size)


def _adaptive_largest(where: str, rank: int, input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    size = _adaptive_size(where, rank, input, output_size)
    if all(n == 1 for n in size) and input.meta.numel:  # a row of all, read in vectors
        lead = input.meta.shape[:-rank]
        values, places = call(registry["max_plane"], (views.reshape(input, (*lead, -1)),), (-1, False))
        return views.reshape(values, (*lead, *size)), views.reshape(places, (*lead, *size))
    statics = (size, *_equal_windows(input, size), (0,) * rank, (1,) * rank)
    return call(registry["max_windows"], (input,), statics)  # type: ignore[no-any-return]


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """The largest elements of `output_size` windows of (N, C, L) or (C, L), and their int64 positions."""
    return _adaptive_largest("adaptive_max_pool1d", 1, input, output_size)


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """As `adaptive_max_pool2d`, with the int64 positions of the largest elements, row * W + column."""
    return _adaptive_largest("adaptive_max_pool2d", 2, input, output_size)


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """As `adaptive_max_pool3d`, with the int64 positions of the largest elements in their volume."""
    return _adaptive_largest("adaptive_max_pool3d", 3, input, output_size)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of `output_size` windows of (N, C, L) or (C, L); see `adaptive_max_pool2d`."""
    found = _adaptive_largest("adaptive_max_pool1d", 1, input, output_size)
    return found if return_indices else found[0]


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of (N, C, H, W) or (C, H, W) in the windows of `adaptive_avg_pool2d`; with
    `return_indices` a pair."""
    found = _adaptive_largest("adaptive_max_pool2d", 2, input, output_size)
    return found if return_indices else found[0]


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of (N, C, D, H, W) or (C, D, H, W) in windows; see `adaptive_max_pool2d`."""
    found = _adaptive_largest("adaptive_max_pool3d", 3, input, output_size)
    return found if return_indices else found[0]


# Power means ----------------------------------------------------------------------------------------------------------


def _power(
    where: str, rank: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    """(sum of x^p over the window)^(1/p), 0 where that sum is negative; the largest or smallest |x| for infinite p."""
    only_tensors(where, input)
    if math.isinf(norm_type):
        size = ops.abs(input) if norm_type > 0 else ops.neg(ops.abs(input))
        largest, _ = _largest(where, rank, size, kernel_size, stride, 0, 1, ceil_mode)
        return largest if norm_type > 0 else ops.neg(largest)
    mean = _average(where, rank, ops.pow(input, norm_type), kernel_size, stride, 0, ceil_mode, True)
    count = math.prod(window_sizes(kernel_size, rank, where, "kernel_size", 1))
    # As PyTorch has it: a window that reaches over the end counts as a whole one, and a negative sum keeps its sign.
    return ops.pow(ops.mul(ops.mul(ops.sign(mean), ops.relu(ops.abs(mean))), count), 1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) over windows of (N, C, L) or (C, L), for p = `norm_type`; see `lp_pool2d`."""
    return _power("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) over windows of (N, C, H, W) or (C, H, W), for p = `norm_type`; infinite p: the largest |x|.

    The gradient is not a number where the sum is 0, as in PyTorch.
    """
    return _power("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) over windows of (N, C, D, H, W) or (C, D, H, W), for p = `norm_type`; see `lp_pool2d`."""
    return _power("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)


# Unpooling ------------------------------------------------------------------------------------------------------------


class _Unpooled(Function):
    """Elements of (…, count) written to zeros of (…, length). As in PyTorch each gets the gradient at its place, also
    one that was written over: windows that overlap name the same element with the same value."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, indices: Tensor, length: int) -> Tensor:
        ctx.save_for_backward(indices)
        whole = zeros((*input.meta.shape[:-1], length), dtype=input.meta.dtype, device=input.meta.device)
        return call(registry["scatter"], (whole, indices, input), (input.meta.ndim - 1,))  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (indices,) = ctx.saved_tensors
        return call(registry["gather"], (grads[0], indices), (grads[0].meta.ndim - 1,)), None, None


def _unpool(
    where: str, rank: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    only_tensors(where, input, indices)
    shape = input.meta.shape
    if indices.meta.dtype is not dtypes.int64:
        raise DTypeError(f"{where}: indices must be int64, not {indices.meta.dtype.name}; convert them with .long()")
    if indices.meta.shape != shape:
        raise ShapeError(f"{where}: indices have shape {list(indices.meta.shape)}, the input {list(shape)}")
    own = spatial_sizes(input, rank, where)
    kernel = window_sizes(kernel_size, rank, where, "kernel_size", 1)
    step = kernel if stride is None else window_sizes(stride, rank, where, "stride", 1)
    before = window_sizes(padding, rank, where, "padding", 0)
    size = tuple((n - 1) * s + k - 2 * p for n, s, k, p in zip(own, step, kernel, before, strict=True))
    if output_size is not None:
        given = tuple(_integer(n, where, "output_size") for n in output_size)
        wanted = given[2:] if len(given) == rank + 2 else given
        if len(wanted) != rank:
            raise ShapeError(f"{where}: output_size has {rank} or {rank + 2} elements, not {len(given)}")
        if any(not n - s < w < n + s for n, s, w in zip(size, step, wanted, strict=True)):
            shown = ", ".join(f"{n - s + 1} to {n + s - 1}" for n, s in zip(size, step, strict=True))
            raise ShapeError(f"{where}: output_size {list(wanted)} is out of range: {shown} pool to the input")
        size = wanted
    if min(size) < 0:
        raise ShapeError(f"{where}: the output would have size {list(size)}; give an output_size or less padding")
    length = math.prod(size)
    lead = shape[:-rank]
    places = views.reshape(indices, (*lead, math.prod(own)))
    try:
        check_bounds(places, length, where)
    except IndexOutOfRange as error:  # as PyTorch's, a RuntimeError
        raise ShapeError(f"{error}: the output has {list(size)} elements a plane") from None
    flat = views.reshape(input, (*lead, math.prod(own)))
    return views.reshape(_Unpooled.apply(flat, places, length), (*lead, *size))


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The largest elements of (N, C, L) or (C, L) put back where `max_pool1d` found them; see `max_unpool2d`."""
    return _unpool("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Zeros with the elements of `input` at the places `indices` (int64, as `max_pool2d` gives them).

    Several sizes pool to the same: `output_size`, with or without N and C, chooses; (n - 1) stride + kernel_size -
    2 padding without. Of several elements for one place the last stays. Raises `ShapeError` for an index outside.
    """
    return _unpool("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The largest elements of (N, C, D, H, W) or (C, D, H, W) put back; see `max_unpool2d`."""
    return _unpool("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)
