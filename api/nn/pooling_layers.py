"""Average, max and Lp pooling layers, and max unpooling. The functions of `nn.functional` have the formulas.

`stride=None` means `kernel_size`. `ceil_mode` adds a window that only partly overlaps the input.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..arguments.types import IntOrInts
from ..layer_functions.spatial_arguments import repeat_number
from ..runtime.tensor import Tensor
from . import functional as F
from ._pooling_layer import PoolingLayer
from .adaptive_pooling_layers import *  # noqa: F403 (pickled modules of version 0.2 name this module)
from .folding import *  # noqa: F403 (pickled modules of version 0.2 name this module)

__all__ = [
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d",
    "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _MaxPool(PoolingLayer):
    repr_fields = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
        dilation: IntOrInts = 1, return_indices: bool = False, ceil_mode: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool1d(_MaxPool):
    """The maximum over windows of `(N, C, L)` or `(C, L)`.

    Args:
        kernel_size: Size of the window.
        stride: Step of the window; None means `kernel_size`.
        padding: Positions of -inf added at each end.
        dilation: Distance of window elements.
        return_indices: Also return the positions of the maxima, which `MaxUnpool1d` needs.
        ceil_mode: Round the output size up.

    Example:
        >>> wg.nn.MaxPool1d(2)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 5])
    """

    function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """The maximum over windows of `(N, C, H, W)` or `(C, H, W)`.

    Args:
        kernel_size: Size of the window; one int for both dimensions, or two (height, width).
        stride: Step of the window, likewise; None means `kernel_size`.
        padding: Positions of -inf added at each end, likewise.
        dilation: Distance of window elements, likewise.
        return_indices: Also return the positions of the maxima, which `MaxUnpool2d` needs.
        ceil_mode: Round the output size up.

    Example:
        >>> wg.nn.MaxPool2d(2)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 5, 5])
    """

    function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """The maximum over windows of `(N, C, D, H, W)` or `(C, D, H, W)`.

    Args:
        kernel_size: Size of the window; one int for all dimensions, or three (depth, height, width).
        stride: Step of the window, likewise; None means `kernel_size`.
        padding: Positions of -inf added at each end, likewise.
        dilation: Distance of window elements, likewise.
        return_indices: Also return the positions of the maxima, which `MaxUnpool3d` needs.
        ceil_mode: Round the output size up.

    Example:
        >>> wg.nn.MaxPool3d(2)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 5, 5, 5])
    """

    function = "max_pool3d"


class AvgPool1d(PoolingLayer):
    """The mean over windows of `(N, C, L)` or `(C, L)`.

    Args:
        kernel_size: Size of the window.
        stride: Step of the window; None means `kernel_size`.
        padding: Zeros added at each end.
        ceil_mode: Round the output size up.
        count_include_pad: Count the padding in the divisor.

    Example:
        >>> wg.nn.AvgPool1d(2)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 5])
    """

    repr_fields = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.kernel_size = repeat_number(kernel_size, 1)
        self.stride = repeat_number(kernel_size if stride is None else stride, 1)
        self.padding = repeat_number(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPool(PoolingLayer):
    repr_fields = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
    ):  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class AvgPool2d(_AvgPool):
    """The mean over windows of `(N, C, H, W)` or `(C, H, W)`.

    Args:
        kernel_size: Size of the window; one int for both dimensions, or two (height, width).
        stride: Step of the window, likewise; None means `kernel_size`.
        padding: Zeros added at each end, likewise.
        ceil_mode: Round the output size up.
        count_include_pad: Count the padding in the divisor.
        divisor_override: Divisor of each window's sum; None: the number of its elements.

    Example:
        >>> wg.nn.AvgPool2d(2)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 5, 5])
    """

    function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """The mean over windows of `(N, C, D, H, W)` or `(C, D, H, W)`.

    Args:
        kernel_size: Size of the window; one int for all dimensions, or three (depth, height, width).
        stride: Step of the window, likewise; None means `kernel_size`.
        padding: Zeros added at each end, likewise.
        ceil_mode: Round the output size up.
        count_include_pad: Count the padding in the divisor.
        divisor_override: Divisor of each window's sum; None: the number of its elements.

    Example:
        >>> wg.nn.AvgPool3d(2)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 5, 5, 5])
    """

    function = "avg_pool3d"


class _LPPool(PoolingLayer):
    repr_fields = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None, ceil_mode: bool = False
    ):
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool):
    """The p-norm, (sum of x**p) ** (1/p), over windows of `(N, C, L)` or `(C, L)`; p is `norm_type`.

    Args:
        norm_type: The order p.
        kernel_size: Size of the window; one int.
        stride: Step of the window, likewise; None means `kernel_size`.
        ceil_mode: Round the output size up.

    Example:
        >>> wg.nn.LPPool1d(2, 2)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 5])
    """

    function = "lp_pool1d"


class LPPool2d(_LPPool):
    """The p-norm, (sum of x**p) ** (1/p), over windows of `(N, C, H, W)` or `(C, H, W)`; p is `norm_type`.

    Args:
        norm_type: The order p.
        kernel_size: Size of the window; one int for both dimensions, or two (height, width).
        stride: Step of the window, likewise; None means `kernel_size`.
        ceil_mode: Round the output size up.

    Example:
        >>> wg.nn.LPPool2d(2, 2)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 5, 5])
    """

    function = "lp_pool2d"


class LPPool3d(_LPPool):
    """The p-norm, (sum of x**p) ** (1/p), over windows of `(N, C, D, H, W)` or `(C, D, H, W)`; p is `norm_type`.

    Args:
        norm_type: The order p.
        kernel_size: Size of the window; one int for all dimensions, or three (depth, height, width).
        stride: Step of the window, likewise; None means `kernel_size`.
        ceil_mode: Round the output size up.

    Example:
        >>> wg.nn.LPPool3d(2, 2)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 5, 5, 5])
    """

    function = "lp_pool3d"


class _MaxUnpool(PoolingLayer):
    repr_fields = ("kernel_size", "stride", "padding")
    rank = 1

    def __init__(self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0):
        super().__init__()
        self.kernel_size = repeat_number(kernel_size, self.rank)
        self.stride = repeat_number(kernel_size if stride is None else stride, self.rank)
        self.padding = repeat_number(padding, self.rank)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return getattr(F, self.function)(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """The partial inverse of `MaxPool1d`: put maxima back at their indices, zeros elsewhere.

    Args:
        kernel_size: Size of the window; one int.
        stride: Step of the window, likewise; None means `kernel_size`.
        padding: Positions that pooling added at each end, likewise.

    Example:
        >>> maxima, indices = wg.nn.MaxPool1d(2, return_indices=True)(wg.ones(8, 3, 10))
        >>> wg.nn.MaxUnpool1d(2)(maxima, indices).shape
        weftgrad.Size([8, 3, 10])
    """

    function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """The partial inverse of `MaxPool2d`: put maxima back at their indices, zeros elsewhere.

    Args:
        kernel_size: Size of the window; one int for both dimensions, or two (height, width).
        stride: Step of the window, likewise; None means `kernel_size`.
        padding: Positions that pooling added at each end, likewise.

    Example:
        >>> maxima, indices = wg.nn.MaxPool2d(2, return_indices=True)(wg.ones(8, 3, 10, 10))
        >>> wg.nn.MaxUnpool2d(2)(maxima, indices).shape
        weftgrad.Size([8, 3, 10, 10])
    """

    function = "max_unpool2d"
    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """The partial inverse of `MaxPool3d`: put maxima back at their indices, zeros elsewhere.

    Args:
        kernel_size: Size of the window; one int for all dimensions, or three (depth, height, width).
        stride: Step of the window, likewise; None means `kernel_size`.
        padding: Positions that pooling added at each end, likewise.

    Example:
        >>> maxima, indices = wg.nn.MaxPool3d(2, return_indices=True)(wg.ones(8, 3, 10, 10, 10))
        >>> wg.nn.MaxUnpool3d(2)(maxima, indices).shape
        weftgrad.Size([8, 3, 10, 10, 10])
    """

    function = "max_unpool3d"
    rank = 3
