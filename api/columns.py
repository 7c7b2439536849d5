"""Fold and unfold: the windows of images as columns, as a convolution multiplies them, and their sums."""

from __future__ import annotations

import math
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from .pooling import Ints, Size, spatial_sizes, window_sizes
from .runtime import dtypes
from .runtime.dispatch import call
from .runtime.errors import ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["fold", "unfold"]


def _blocks(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    """How many windows there are along each dimension."""
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def _block_geometry(
    where: str, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[Ints, Ints, Ints, Ints]:
    """kernel, stride, padding and dilation of windows over images."""
    kernel, apart, before, step = (
        window_sizes(value, 2, where, name, least, alone=False)
        for value, name, least in (
            (kernel_size, "kernel_size", 1), (dilation, "dilation", 1), (padding, "padding", 0), (stride, "stride", 1)
        )
    )  # fmt: skip
    return kernel, step, before, apart


def unfold(input: Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> Tensor:
    """Every window of (N, C, H, W) or (C, H, W) as a column: (N, C * kernel height * kernel width, windows).

    Padding holds zeros. Raises `ShapeError` where no window fits.
    """
    kernel, step, before, apart = _block_geometry("unfold", kernel_size, dilation, padding, stride)
    size = spatial_sizes(input, 2, "unfold", "buif")
    found = _blocks(size, kernel, step, before, apart)
    if min(found) < 1:
        raise ShapeError(
            f"unfold: no window of {list(kernel)} with dilation {list(apart)} and padding {list(before)} fits the "
            f"input's spatial size {list(size)}"
        )
    return call(registry["window_columns"], (input,), (found, kernel, step, before, apart))  # type: ignore[no-any-return]


def fold(
    input: Tensor, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Tensor:
    """Columns (N, C * kernel height * kernel width, windows), as `unfold` gives them, added up to (N, C, *output_size).

    Elements of several windows are sums. Raises `ShapeError` where there are not as many columns as windows.
    """
    only_tensors("fold", input)
    size = window_sizes(output_size, 2, "fold", "output_size", 1, alone=False)
    kernel, step, before, apart = _block_geometry("fold", kernel_size, dilation, padding, stride)
    shape = input.meta.shape
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise ShapeError(f"fold: expected (N, C * kernel, windows), only N may be empty; the input has {list(shape)}")
    if shape[-2] % math.prod(kernel):
        raise ShapeError(f"fold: {shape[-2]} rows are no multiple of the {math.prod(kernel)} elements of a window")
    found = _blocks(size, kernel, step, before, apart)
    if min(found) < 1 or shape[-1] != math.prod(found):
        raise ShapeError(
            f"fold: an output of {list(size)} has {list(found)} windows of {list(kernel)}, not {shape[-1]} columns"
        )
    statics = (size, kernel, step, before, apart)
    if input.meta.dtype is dtypes.bool_:  # whether any is true
        return ops.ne(call(registry["window_sums"], (input.to(dtypes.int32),), statics), 0)  # type: ignore[attr-defined]
    return call(registry["window_sums"], (input,), statics)  # type: ignore[no-any-return]
