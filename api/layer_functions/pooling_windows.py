"""The windows of pooling: checks of their arguments, and their number along each dimension."""

from __future__ import annotations

from ..arguments.types import IntOrInts
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from .spatial_arguments import Ints, spatial_sizes, window_sizes

__all__ = ["check_window_arguments"]


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


def check_window_arguments(
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
