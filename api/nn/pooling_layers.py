"""Pooling layers, `Fold` and `Unfold`. The functions of `nn.functional` have the formulas.

`stride=None` means `kernel_size`. `ceil_mode` adds a window that only partly overlaps the input.
"""

from __future__ import annotations

from typing import Any

from ..runtime.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "Fold", "LPPool1d", "LPPool2d", "LPPool3d",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Unfold",
]  # fmt: skip


class _Pool(Module):
    """Base class of layers that call `functional.<function>` and print the attributes `repr_fields`."""

    function = ""
    repr_fields: tuple[str, ...] = ()

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.repr_fields)


def _as_tuple(value: Any, rank: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank


class _MaxPool(_Pool):
    repr_fields = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
        ceil_mode: bool = False,
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
    """

    function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """The maximum over windows of `(N, C, H, W)` or `(C, H, W)`.

    The arguments are `MaxPool1d`'s, one or two numbers each.
    """

    function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """The maximum over windows of `(N, C, D, H, W)` or `(C, D, H, W)`.

    The arguments are `MaxPool1d`'s, one or three numbers.
    """

    function = "max_pool3d"


class AvgPool1d(_Pool):
    """The mean over windows of `(N, C, L)` or `(C, L)`.

    Args:
        kernel_size: Size of the window.
        stride: Step of the window; None means `kernel_size`.
        padding: Zeros added at each end.
        ceil_mode: Round the output size up.
        count_include_pad: Count the padding in the divisor.
    """

    repr_fields = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.kernel_size = _as_tuple(kernel_size, 1)
        self.stride = _as_tuple(kernel_size if stride is None else stride, 1)
        self.padding = _as_tuple(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class _AvgPool(_Pool):
    repr_fields = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
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

    The arguments are `AvgPool1d`'s, one or two numbers each, and `divisor_override`, used in place of the window's
    size.
    """

    function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """The mean over windows of `(N, C, D, H, W)` or `(C, D, H, W)`.

    The arguments are `AvgPool1d`'s, one or three numbers each, and `divisor_override`, used in place of the window's
    size.
    """

    function = "avg_pool3d"


class _LPPool(_Pool):
    repr_fields = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False):
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool1d(_LPPool):
    """The p-norm, (sum of x**p) ** (1/p), over windows of `(N, C, L)` or `(C, L)`; p is `norm_type`."""

    function = "lp_pool1d"


class LPPool2d(_LPPool):
    """The p-norm, (sum of x**p) ** (1/p), over windows of `(N, C, H, W)` or `(C, H, W)`; p is `norm_type`."""

    function = "lp_pool2d"


class LPPool3d(_LPPool):
    """The p-norm, (sum of x**p) ** (1/p), over windows of `(N, C, D, H, W)` or `(C, D, H, W)`; p is `norm_type`."""

    function = "lp_pool3d"


class _MaxUnpool(_Pool):
    repr_fields = ("kernel_size", "stride", "padding")
    rank = 1

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        super().__init__()
        self.kernel_size = _as_tuple(kernel_size, self.rank)
        self.stride = _as_tuple(kernel_size if stride is None else stride, self.rank)
        self.padding = _as_tuple(padding, self.rank)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return getattr(F, self.function)(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool1d(_MaxUnpool):
    """The partial inverse of `MaxPool1d`: put maxima back at their indices, zeros elsewhere."""

    function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """The partial inverse of `MaxPool2d`: put maxima back at their indices, zeros elsewhere."""

    function = "max_unpool2d"
    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """The partial inverse of `MaxPool3d`: put maxima back at their indices, zeros elsewhere."""

    function = "max_unpool3d"
    rank = 3


class _AdaptiveAvgPool(_Pool):
    repr_fields = ("output_size",)

    def __init__(self, output_size: Any):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean over windows of `(N, C, L)` or `(C, L)`, sized so that the output has `output_size` elements."""

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean over windows of `(N, C, H, W)` or `(C, H, W)`, sized for `output_size`; None keeps a size."""

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean over windows of `(N, C, D, H, W)` or `(C, D, H, W)`, sized for `output_size`; None keeps a size."""

    function = "adaptive_avg_pool3d"


class _AdaptiveMaxPool(_Pool):
    repr_fields = ("output_size",)

    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maximum over windows of `(N, C, L)` or `(C, L)`, sized so that the output has `output_size` elements."""

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maximum over windows of `(N, C, H, W)` or `(C, H, W)`, sized for `output_size`; None keeps a size."""

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maximum over windows of `(N, C, D, H, W)` or `(C, D, H, W)`, sized for `output_size`; None keeps a size."""

    function = "adaptive_max_pool3d"


class Fold(_Pool):
    """Sum overlapping columns `(N, C * kernel elements, windows)` into images `(N, C, *output_size)`: col2im."""

    repr_fields = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class Unfold(_Pool):
    """Extract the windows of `(N, C, H, W)` as columns `(N, C * kernel elements, windows)`: im2col."""

    repr_fields = ("kernel_size", "dilation", "padding", "stride")

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
