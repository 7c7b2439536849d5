"""Convolution layers: weights, argument checks, and padding modes for `layer_functions/convolutions.py`.

Weights and biases start from U(-b, b) with b = 1 / sqrt(fan_in), as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..arguments.types import IntOrInts
from ..creation.factories import empty
from ..layer_functions.convolutions import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from ..layer_functions.padding import pad
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """Base class of convolutions.

    The weight has the shape (out_channels, in_channels / groups, *kernel_size), that of a transposed convolution
    (in_channels, out_channels / groups, *kernel_size).

    Attributes:
        dimensions: Number of spatial dimensions.
        transposed: Whether it is a transposed convolution.
    """

    dimensions = 2
    transposed = False
    padding: str | tuple[int, ...]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: str | IntOrInts = 0,
        dilation: IntOrInts = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        name, ndim = type(self).__name__, self.dimensions
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(f"{name}: {in_channels} and {out_channels} channels do not fall into {groups} groups")
        if padding_mode not in _PADDING_MODES:
            raise ArgumentError(f"{name}: padding_mode is one of {', '.join(_PADDING_MODES)}, not {padding_mode!r}")
        if self.transposed and padding_mode != "zeros":
            raise ArgumentError(f"{name}: padding_mode of a transposed convolution is 'zeros', not {padding_mode!r}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _as_int_tuple(name, "kernel_size", kernel_size, ndim, 1)
        self.stride = _as_int_tuple(name, "stride", stride, ndim, 1)
        self.dilation = _as_int_tuple(name, "dilation", dilation, ndim, 1)
        self.output_padding: tuple[int, ...] = (0,) * ndim
        self.padding_mode = padding_mode
        if isinstance(padding, str) and not self.transposed:
            if padding not in ("same", "valid"):
                raise ArgumentError(f"{name}: padding is numbers, 'same' or 'valid', not {padding!r}")
            if padding == "same" and self.stride != (1,) * ndim:
                raise ArgumentError(f"{name}: padding='same' needs a stride of 1, not {self.stride}")
            self.padding = padding
        else:
            self.padding = _as_int_tuple(name, "padding", padding, ndim, 0)
        leading_channels, trailing_channels = (
            (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        )
        self.weight = Parameter(
            empty(leading_channels, trailing_channels // groups, *self.kernel_size, device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias from U(-b, b) with b = 1 / sqrt(fan_in); without a fan_in, the bias is 0."""
        if not self.weight.meta.numel:
            if self.bias is not None:
                init.zeros_(self.bias)
            return
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(init.fan_in_and_fan_out(self.weight)[0])
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        defaults: dict[str, int | tuple[int, ...]] = {
            "padding": (0,) * self.dimensions, "dilation": (1,) * self.dimensions,
            "output_padding": (0,) * self.dimensions, "groups": 1,
        }  # fmt: skip
        text += "".join(f", {k}={getattr(self, k)}" for k, v in defaults.items() if getattr(self, k) != v)
        text += "" if self.bias is not None else ", bias=False"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}")


class _ForwardConvolution(_Convolution):
    """Base class of convolutions that are not transposed."""

    def _convolve(self, function: Callable[..., Tensor], input: Tensor) -> Tensor:
        """Call a convolution function, after padding the input where the mode is not "zeros"."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = pad(input, self._padding_amounts(), self.padding_mode), (0,) * self.dimensions
        return function(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _padding_amounts(self) -> list[int]:
        """Return the padding as `functional.pad` expects it, the last dimension first."""
        amounts: list[int] = []
        for d in reversed(range(self.dimensions)):
            if isinstance(self.padding, str):
                total = self.dilation[d] * (self.kernel_size[d] - 1) if self.padding == "same" else 0
                amounts += [total // 2, total - total // 2]
            else:
                amounts += [self.padding[d]] * 2
        return amounts


class Conv1d(_ForwardConvolution):
    """A 1-D convolution (cross-correlation); see `nn.functional.conv1d`.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step of the kernel.
        padding: Positions added at each end, or `"same"` or `"valid"`.
        dilation: Distance between neighbouring kernel elements.
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        padding_mode: `"zeros"`, `"reflect"`, `"replicate"` or `"circular"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Shape:
        `(N, in_channels, L)` or `(in_channels, L)` to `(N, out_channels, L_out)` or `(out_channels, L_out)`, with
        `L_out = (L + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1`.

    Raises:
        ArgumentError: If `groups` does not divide the numbers of channels, or an argument is out of range.

    Example:
        >>> wg.nn.Conv1d(3, 6, 3, padding=1)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 6, 10])
    """

    dimensions = 1

    def forward(self, input: Tensor) -> Tensor:
        return self._convolve(conv1d, input)


class Conv2d(_ForwardConvolution):
    """A 2-D convolution (cross-correlation); see `nn.functional.conv2d`.

    Numeric arguments are one number for both dimensions or one per dimension (height, width).

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step of the kernel.
        padding: Positions added at each end, or `"same"` or `"valid"`.
        dilation: Distance between neighbouring kernel elements.
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        padding_mode: `"zeros"`, `"reflect"`, `"replicate"` or `"circular"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Shape:
        `(N, in_channels, H, W)` or `(in_channels, H, W)` to `(N, out_channels, H_out, W_out)` or without N, with
        `H_out = (H + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1`.

    Raises:
        ArgumentError: If `groups` does not divide the numbers of channels, or an argument is out of range.

    Example:
        >>> wg.nn.Conv2d(3, 6, 3, padding=1)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 6, 10, 10])
    """

    dimensions = 2

    def forward(self, input: Tensor) -> Tensor:
        return self._convolve(conv2d, input)


class Conv3d(_ForwardConvolution):
    """A 3-D convolution (cross-correlation); see `nn.functional.conv3d`.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int for all dimensions, or three (depth, height, width).
        stride: Step of the kernel; one int for all dimensions, or three (depth, height, width).
        padding: Positions added at each end, one int for all dimensions, or three (depth, height, width); or `"same"`
            or `"valid"`.
        dilation: Distance between neighbouring kernel elements; one int for all dimensions, or three (depth,
            height, width).
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        padding_mode: `"zeros"`, `"reflect"`, `"replicate"` or `"circular"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Shape:
        `(N, in_channels, D, H, W)` or `(in_channels, D, H, W)` to `(N, out_channels, D_out, H_out, W_out)` or without
        N.

    Raises:
        ArgumentError: If `groups` does not divide the numbers of channels, or an argument is out of range.

    Example:
        >>> wg.nn.Conv3d(3, 6, 3, padding=1)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 6, 10, 10, 10])
    """

    dimensions = 3

    def forward(self, input: Tensor) -> Tensor:
        return self._convolve(conv3d, input)


class _Transposed(_Convolution):
    """Base class of transposed convolutions, whose constructor has another order of arguments."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: IntOrInts = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self.output_padding = _as_int_tuple(type(self).__name__, "output_padding", output_padding, self.dimensions, 0)

    def _convolve(self, function: Callable[..., Tensor], input: Tensor, output_size: Sequence[int] | None) -> Tensor:
        output_padding = self.output_padding if output_size is None else self._output_padding_for(input, output_size)
        return function(
            input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation
        )

    def _output_padding_for(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """Return the output_padding for which the result has the size `output_size`."""
        name, ndim, requested = type(self).__name__, self.dimensions, tuple(output_size)
        padding = _as_int_tuple(name, "padding", self.padding, ndim, 0)
        full_ndim = ndim + 2 if input.meta.ndim == ndim + 2 else ndim + 1
        if len(requested) == full_ndim:
            requested = requested[-ndim:]
        if len(requested) != ndim:
            raise ArgumentError(f"{name}: output_size must have {ndim} or {full_ndim} numbers, not {len(requested)}")
        min_sizes = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.meta.shape[-ndim:], self.stride, padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        max_sizes = [n + s - 1 for n, s in zip(min_sizes, self.stride, strict=True)]
        if any(not a <= n <= b for a, n, b in zip(min_sizes, requested, max_sizes, strict=True)):
            raise ArgumentError(
                f"{name}: output_size is {list(requested)}, but sizes from {min_sizes} to {max_sizes} are possible"
            )
        return tuple(n - a for n, a in zip(requested, min_sizes, strict=True))


class ConvTranspose1d(_Transposed):
    """A 1-D transposed convolution, the adjoint of `Conv1d`; see `nn.functional.conv_transpose1d`.

    `forward(input, output_size)` computes `output_padding` from the requested size.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int.
        stride: Step of the kernel; one int.
        padding: Positions that the result loses at each end; one int.
        output_padding: Positions added at one end of the result; one int.
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        dilation: Distance between neighbouring kernel elements; one int.
        padding_mode: Must be `"zeros"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Shape:
        `(N, in_channels, L)` to `(N, out_channels, L_out)`, with `L_out = (L - 1) * stride - 2 * padding + dilation *
        (kernel_size - 1) + output_padding + 1`.

    Raises:
        ArgumentError: If `groups` does not divide the numbers of channels, or an argument is out of range.

    Example:
        >>> wg.nn.ConvTranspose1d(3, 6, 2, stride=2)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 6, 20])
    """

    dimensions = 1

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._convolve(conv_transpose1d, input, output_size)


class ConvTranspose2d(_Transposed):
    """A 2-D transposed convolution, the adjoint of `Conv2d`; see `nn.functional.conv_transpose2d`.

    `forward(input, output_size)` computes `output_padding` from the requested size.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int for both dimensions, or two (height, width).
        stride: Step of the kernel; one int for both dimensions, or two (height, width).
        padding: Positions that the result loses at each end; one int for both dimensions, or two (height, width).
        output_padding: Positions added at one end of the result; one int for both dimensions, or two (height, width).
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        dilation: Distance between neighbouring kernel elements; one int for both dimensions, or two (height, width).
        padding_mode: Must be `"zeros"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Shape:
        `(N, in_channels, H, W)` to `(N, out_channels, H_out, W_out)`, with `H_out = (H - 1) * stride - 2 * padding +
        dilation * (kernel_size - 1) + output_padding + 1`.

    Raises:
        ArgumentError: If `groups` does not divide the numbers of channels, or an argument is out of range.

    Example:
        >>> wg.nn.ConvTranspose2d(3, 6, 2, stride=2)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 6, 20, 20])
    """

    dimensions = 2

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._convolve(conv_transpose2d, input, output_size)


class ConvTranspose3d(_Transposed):
    """A 3-D transposed convolution, the adjoint of `Conv3d`; see `nn.functional.conv_transpose3d`.

    `forward(input, output_size)` computes `output_padding` from the requested size.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int for all dimensions, or three (depth, height, width).
        stride: Step of the kernel; one int for all dimensions, or three (depth, height, width).
        padding: Positions that the result loses at each end; one int for all dimensions, or three (depth, height,
            width).
        output_padding: Positions added at one end of the result; one int for all dimensions, or three (depth, height,
            width).
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        dilation: Distance between neighbouring kernel elements; one int for all dimensions, or three (depth,
            height, width).
        padding_mode: Must be `"zeros"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Raises:
        ArgumentError: If `groups` does not divide the numbers of channels, or an argument is out of range.

    Example:
        >>> wg.nn.ConvTranspose3d(3, 6, 2, stride=2)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 6, 20, 20, 20])
    """

    dimensions = 3

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._convolve(conv_transpose3d, input, output_size)


def _as_int_tuple(name: str, argument: str, value: object, ndim: int, minimum: int) -> tuple[int, ...]:
    """Return one integer per dimension, from one number or a sequence.

    Raise `ArgumentError` for values below `minimum`.
    """
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    values = values * ndim if len(values) == 1 else values
    integers = tuple(n for n in values if isinstance(n, int) and not isinstance(n, bool) and n >= minimum)
    if len(integers) != ndim or len(values) != ndim:
        raise ArgumentError(f"{name}: {argument} must be {ndim} integers of at least {minimum}, or one, not {value!r}")
    return integers
