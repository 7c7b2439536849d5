"""Pooling layers, and those of windows' columns. What they compute is said in `functional`."""

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
    """A layer that calls the function `function` of `functional` and shows the attributes `shown`."""

    function = ""
    shown: tuple[str, ...] = ()

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.shown)


def _listed(value: Any, rank: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank


class _MaxPool(_Pool):
    shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

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

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self.function)(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool1d(_MaxPool):
    """The largest elements of windows of (N, C, L) or (C, L)."""

    function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """The largest elements of windows of (N, C, H, W) or (C, H, W)."""

    function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """The largest elements of windows of (N, C, D, H, W) or (C, D, H, W)."""

    function = "max_pool3d"


class AvgPool1d(_Pool):
    """The means of windows of (N, C, L) or (C, L)."""

    shown = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.kernel_size = _listed(kernel_size, 1)
        self.stride = _listed(kernel_size if stride is None else stride, 1)
        self.padding = _listed(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class _AvgPool(_Pool):
    shown = ("kernel_size", "stride", "padding")

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
        return getattr(F, self.function)(  # type: ignore[no-any-return]
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class AvgPool2d(_AvgPool):
    """The means of windows of (N, C, H, W) or (C, H, W)."""

    function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """The means of windows of (N, C, D, H, W) or (C, D, H, W)."""

    function = "avg_pool3d"


class _LPPool(_Pool):
    shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False):
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(  # type: ignore[no-any-return]
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool1d(_LPPool):
    """(sum of x^p)^(1/p) over windows of (N, C, L) or (C, L)."""

    function = "lp_pool1d"


class LPPool2d(_LPPool):
    """(sum of x^p)^(1/p) over windows of (N, C, H, W) or (C, H, W)."""

    function = "lp_pool2d"


class LPPool3d(_LPPool):
    """(sum of x^p)^(1/p) over windows of (N, C, D, H, W) or (C, D, H, W)."""

    function = "lp_pool3d"


class _MaxUnpool(_Pool):
    shown = ("kernel_size", "stride", "padding")
    rank = 1

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        super().__init__()
        self.kernel_size = _listed(kernel_size, self.rank)
        self.stride = _listed(kernel_size if stride is None else stride, self.rank)
        self.padding = _listed(padding, self.rank)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return getattr(F, self.function)(  # type: ignore[no-any-return]
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool1d(_MaxUnpool):
    """The elements that `MaxPool1d` found, back at their places in zeros."""

    function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """The elements that `MaxPool2d` found, back at their places in zeros."""

    function = "max_unpool2d"
    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """The elements that `MaxPool3d` found, back at their places in zeros."""

    function = "max_unpool3d"
    rank = 3


class _AdaptiveAvgPool(_Pool):
    shown = ("output_size",)

    def __init__(self, output_size: Any):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, self.output_size)  # type: ignore[no-any-return]


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means of (N, C, L) or (C, L) over as many windows as the output has elements."""

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means of (N, C, H, W) or (C, H, W) over as many windows as the output has elements; None keeps a size."""

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means of (N, C, D, H, W) or (C, D, H, W) over as many windows as the output has elements; None keeps a size."""

    function = "adaptive_avg_pool3d"


class _AdaptiveMaxPool(_Pool):
    shown = ("output_size",)

    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self.function)(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest elements of (N, C, L) or (C, L) in as many windows as the output has elements."""

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest elements of (N, C, H, W) or (C, H, W) in as many windows as the output has elements."""

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest elements of (N, C, D, H, W) or (C, D, H, W) in as many windows as the output has elements."""

    function = "adaptive_max_pool3d"


class Fold(_Pool):
    """Columns (N, C * kernel, windows) added up to images (N, C, *output_size)."""

    shown = ("output_size", "kernel_size", "dilation", "padding", "stride")

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
    """The windows of (N, C, H, W) or (C, H, W) as columns (N, C * kernel, windows)."""

    shown = ("kernel_size", "dilation", "padding", "stride")

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
