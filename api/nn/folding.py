"""`Unfold`, which extracts windows of images, and `Fold`, which adds them up. `nn.functional` has the formulas."""

from __future__ import annotations

from ..arguments.types import IntOrInts
from ..runtime.tensor import Tensor
from . import functional as F
from ._pooling_layer import PoolingLayer

__all__ = ["Fold", "Unfold"]


class Fold(PoolingLayer):
    """Sum overlapping columns `(N, C * kernel elements, windows)` into images `(N, C, *output_size)`: col2im.

    Args:
        output_size: Spatial size of the images.
        kernel_size: Size of the windows.
        dilation: Distance between the elements of a window.
        padding: Elements added at both ends of each spatial dimension.
        stride: Distance between windows.

    Example:
        >>> wg.nn.Fold((4, 4), (2, 2), stride=2)(wg.ones(1, 12, 4)).shape
        weftgrad.Size([1, 3, 4, 4])
    """

    repr_fields = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, output_size: IntOrInts, kernel_size: IntOrInts, dilation: IntOrInts = 1,
        padding: IntOrInts = 0, stride: IntOrInts = 1,
    ):  # fmt: skip
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class Unfold(PoolingLayer):
    """Extract the windows of `(N, C, H, W)` as columns `(N, C * kernel elements, windows)`: im2col.

    Args:
        kernel_size: Size of the windows.
        dilation: Distance between the elements of a window.
        padding: Elements added at both ends of each spatial dimension.
        stride: Distance between windows.

    Example:
        >>> wg.nn.Unfold((2, 2), stride=2)(wg.ones(1, 3, 4, 4)).shape
        weftgrad.Size([1, 12, 4])
    """

    repr_fields = ("kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, kernel_size: IntOrInts, dilation: IntOrInts = 1, padding: IntOrInts = 0,
        stride: IntOrInts = 1,
    ):  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
