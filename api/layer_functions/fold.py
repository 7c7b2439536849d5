"""`fold` and `unfold` (im2col and col2im): sliding windows of images as matrix columns, and their sums."""

from __future__ import annotations

import math

from .._generated import ops
from ..arguments.types import IntOrInts
from ..runtime import dtypes
from ..runtime.dispatch import call
from ..runtime.errors import ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .spatial_arguments import Ints, spatial_sizes, window_sizes

__all__ = ["fold", "unfold"]


def _blocks(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    """Return the number of windows along each dimension."""
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def _block_geometry(
    where: str, kernel_size: IntOrInts, dilation: IntOrInts, padding: IntOrInts, stride: IntOrInts
) -> tuple[Ints, Ints, Ints, Ints]:
    """Check and return kernel, stride, padding and dilation, two integers each."""
    kernel, dilations, pad_sizes, strides = (
        window_sizes(value, 2, where, name, minimum, allow_single=False)
        for value, name, minimum in (
            (kernel_size, "kernel_size", 1), (dilation, "dilation", 1), (padding, "padding", 0), (stride, "stride", 1)
        )
    )  # fmt: skip
    return kernel, strides, pad_sizes, dilations


def unfold(
    input: Tensor,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Tensor:
    """Return every sliding window of `input` as a column (im2col).

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`, of any dtype.
        kernel_size: Window size: one int, or `(KH, KW)`. The other sizes take one int or two as well.
        dilation: Distance between neighbouring elements of a window.
        padding: Rows and columns of zeros added on each side.
        stride: Distance between neighbouring windows.

    Returns:
        `(N, C * KH * KW, L)` or `(C * KH * KW, L)` for `L` windows.

    Raises:
        ShapeError: No window fits.

    Example:
        >>> wg.nn.functional.unfold(wg.ones(1, 3, 4, 4), (2, 2), stride=2).shape
        weftgrad.Size([1, 12, 4])
    """
    kernel, strides, pad_sizes, dilations = _block_geometry("unfold", kernel_size, dilation, padding, stride)
    size = spatial_sizes(input, 2, "unfold", "buif")
    window_counts = _blocks(size, kernel, strides, pad_sizes, dilations)
    if min(window_counts) < 1:
        raise ShapeError(
            f"unfold: no window of {list(kernel)} with dilation {list(dilations)} and padding {list(pad_sizes)} fits "
            f"the input's spatial size {list(size)}"
        )
    return call(registry["window_columns"], (input,), (window_counts, kernel, strides, pad_sizes, dilations))


def fold(
    input: Tensor,
    output_size: IntOrInts,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Tensor:
    """Add the columns of `unfold` back into images (col2im). Elements that lie in several windows are summed.

    Args:
        input: `(N, C * KH * KW, L)` or `(C * KH * KW, L)`.
        output_size: `(H, W)` of the result, or one int for both.
        kernel_size: Size of the window, one int or two.
        dilation: Distance of the window's elements, one int or two.
        padding: Rows and columns around the images that windows cover too, one int or two.
        stride: Distance between windows, one int or two.

    Returns:
        `(N, C, H, W)` or `(C, H, W)`.

    Raises:
        ShapeError: The number of columns `L` is not the number of windows.

    Example:
        >>> wg.nn.functional.fold(wg.ones(1, 12, 4), (4, 4), (2, 2), stride=2).shape
        weftgrad.Size([1, 3, 4, 4])
    """
    only_tensors("fold", input)
    size = window_sizes(output_size, 2, "fold", "output_size", 1, allow_single=False)
    kernel, strides, pad_sizes, dilations = _block_geometry("fold", kernel_size, dilation, padding, stride)
    shape = input.meta.shape
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise ShapeError(f"fold: expected (N, C * kernel, windows), only N may be empty; the input has {list(shape)}")
    if shape[-2] % math.prod(kernel):
        raise ShapeError(f"fold: {shape[-2]} rows are no multiple of the {math.prod(kernel)} elements of a window")
    window_counts = _blocks(size, kernel, strides, pad_sizes, dilations)
    if min(window_counts) < 1 or shape[-1] != math.prod(window_counts):
        raise ShapeError(
            f"fold: an output of {list(size)} has {list(window_counts)} windows of {list(kernel)}, not {shape[-1]} "
            "columns"
        )
    statics = (size, kernel, strides, pad_sizes, dilations)
    if input.meta.dtype is dtypes.bool_:  # whether any is true
        return ops.ne(call(registry["window_sums"], (input.to(dtypes.int32),), statics), 0)
    return call(registry["window_sums"], (input,), statics)
