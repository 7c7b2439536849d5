"""Pooling layers with a given output size. The functions of `nn.functional` have the formulas."""

from __future__ import annotations

from ..layer_functions.adaptive_pooling import AdaptiveSize
from ..runtime.tensor import Tensor
from . import functional as F
from ._pooling_layer import PoolingLayer

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
]  # fmt: skip


class _AdaptiveAvgPool(PoolingLayer):
    repr_fields = ("output_size",)

    def __init__(self, output_size: AdaptiveSize):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean over windows of `(N, C, L)` or `(C, L)`, sized so that the output has `output_size` elements.

    Args:
        output_size: Number of elements of the output.

    Example:
        >>> wg.nn.AdaptiveAvgPool1d(1)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 1])
    """

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean over windows of `(N, C, H, W)` or `(C, H, W)`, sized for `output_size`; None keeps a size.

    Args:
        output_size: Size of the output: one int for both dimensions, or two; None keeps a size.

    Example:
        >>> wg.nn.AdaptiveAvgPool2d(1)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 1, 1])
    """

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean over windows of `(N, C, D, H, W)` or `(C, D, H, W)`, sized for `output_size`; None keeps a size.

    Args:
        output_size: Size of the output: one int for all dimensions, or three; None keeps a size.

    Example:
        >>> wg.nn.AdaptiveAvgPool3d(1)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 1, 1, 1])
    """

    function = "adaptive_avg_pool3d"


class _AdaptiveMaxPool(PoolingLayer):
    repr_fields = ("output_size",)

    def __init__(self, output_size: AdaptiveSize, return_indices: bool = False):
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maximum over windows of `(N, C, L)` or `(C, L)`, sized so that the output has `output_size` elements.

    Args:
        output_size: Number of elements of the output.
        return_indices: Also return the positions of the maxima.

    Example:
        >>> wg.nn.AdaptiveMaxPool1d(1)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 1])
    """

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maximum over windows of `(N, C, H, W)` or `(C, H, W)`, sized for `output_size`; None keeps a size.

    Args:
        output_size: Size of the output: one int for both dimensions, or two; None keeps a size.
        return_indices: Also return the positions of the maxima.

    Example:
        >>> wg.nn.AdaptiveMaxPool2d(1)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 1, 1])
    """

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maximum over windows of `(N, C, D, H, W)` or `(C, D, H, W)`, sized for `output_size`; None keeps a size.

    Args:
        output_size: Size of the output: one int for all dimensions, or three; None keeps a size.
        return_indices: Also return the positions of the maxima.

    Example:
        >>> wg.nn.AdaptiveMaxPool3d(1)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 1, 1, 1])
    """

    function = "adaptive_max_pool3d"
