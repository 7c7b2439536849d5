"""Layers that convolve: their weights, and what Python decides before `functional.conv1d` and its relatives are called.

Initial values are PyTorch's: U(-b, b), b = 1 / sqrt(inputs of one output).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..convolutions import Numbers, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from ..factories import empty
from ..padding import pad
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """What convolutions share. `transposed`: weights are (in_channels, out_channels / groups, …)."""

    dimensions = 2
    transposed = False
    padding: str | tuple[int, ...]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: str | Numbers = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        name, count = type(self).__name__, self.dimensions
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(f"{name}: {in_channels} and {out_channels} channels do not fall into {groups} groups")
        if padding_mode not in _MODES:
            raise ArgumentError(f"{name}: padding_mode is one of {', '.join(_MODES)}, not {padding_mode!r}")
        if self.transposed and padding_mode != "zeros":
            raise ArgumentError(f"{name}: padding_mode of a transposed convolution is 'zeros', not {padding_mode!r}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _numbers(name, "kernel_size", kernel_size, count, 1)
        self.stride = _numbers(name, "stride", stride, count, 1)
        self.dilation = _numbers(name, "dilation", dilation, count, 1)
        self.output_padding: tuple[int, ...] = (0,) * count
        self.padding_mode = padding_mode
        if isinstance(padding, str) and not self.transposed:
            if padding not in ("same", "valid"):
                raise ArgumentError(f"{name}: padding is numbers, 'same' or 'valid', not {padding!r}")
            if padding == "same" and self.stride != (1,) * count:
                raise ArgumentError(f"{name}: padding='same' needs a stride of 1, not {self.stride}")
            self.padding = padding
        else:
            self.padding = _numbers(name, "padding", padding, count, 0)
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = Parameter(empty(first, second // groups, *self.kernel_size, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew from U(-b, b), b = 1 / sqrt(inputs of one output)."""
        if not self.weight.meta.numel:
            return
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(init.fans(self.weight)[0])
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        plain: dict[str, Any] = {
            "padding": (0,) * self.dimensions, "dilation": (1,) * self.dimensions,
            "output_padding": (0,) * self.dimensions, "groups": 1,
        }  # fmt: skip
        text += "".join(f", {k}={getattr(self, k)}" for k, v in plain.items() if getattr(self, k) != v)
        text += "" if self.bias is not None else ", bias=False"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}")


class _Straight(_Convolution):
    """A convolution that is not transposed."""

    def _apply_to(self, function: Any, input: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = pad(input, self._places(), self.padding_mode), (0,) * self.dimensions
        return function(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)  # type: ignore[no-any-return]

    def _places(self) -> list[int]:
        """How much the input is padded, as `functional.pad` takes it: the last dimension first."""
        places: list[int] = []
        for d in reversed(range(self.dimensions)):
            if isinstance(self.padding, str):
                total = self.dilation[d] * (self.kernel_size[d] - 1) if self.padding == "same" else 0
                places += [total // 2, total - total // 2]
            else:
                places += [self.padding[d]] * 2
        return places


class Conv1d(_Straight):
    """Cross-correlation of (N, in_channels, L), or (in_channels, L); see `nn.functional.conv1d`. padding_mode `zeros`,
    `reflect`, `replicate` or `circular` says what is put around the input."""

    dimensions = 1

    def forward(self, input: Tensor) -> Tensor:
        return self._apply_to(conv1d, input)


class Conv2d(_Straight):
    """Cross-correlation of (N, in_channels, H, W), or (in_channels, H, W); see `nn.functional.conv2d`. padding_mode
    `zeros`, `reflect`, `replicate` or `circular` says what is put around the input."""

    dimensions = 2

    def forward(self, input: Tensor) -> Tensor:
        return self._apply_to(conv2d, input)


class Conv3d(_Straight):
    """Cross-correlation of (N, in_channels, D, H, W), or (in_channels, D, H, W); see `nn.functional.conv3d`.
    padding_mode `zeros`, `reflect`, `replicate` or `circular` says what is put around the input."""

    dimensions = 3

    def forward(self, input: Tensor) -> Tensor:
        return self._apply_to(conv3d, input)


class _Transposed(_Convolution):
    """A transposed convolution: the arguments come in another order."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: Numbers = 0,
        output_padding: Numbers = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Numbers = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self.output_padding = _numbers(type(self).__name__, "output_padding", output_padding, self.dimensions, 0)

    def _apply_to(self, function: Any, input: Tensor, output_size: Sequence[int] | None) -> Tensor:
        more = self.output_padding if output_size is None else self._more(input, output_size)
        return function(  # type: ignore[no-any-return]
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )

    def _more(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output_padding that gives a result of `output_size`."""
        name, count, wanted = type(self).__name__, self.dimensions, tuple(output_size)
        padding = _numbers(name, "padding", self.padding, count, 0)
        whole = count + 2 if input.meta.ndim == count + 2 else count + 1
        if len(wanted) == whole:
            wanted = wanted[-count:]
        if len(wanted) != count:
            raise ArgumentError(f"{name}: output_size must have {count} or {whole} numbers, not {len(wanted)}")
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.meta.shape[-count:], self.stride, padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
        if any(not a <= n <= b for a, n, b in zip(least, wanted, most, strict=True)):
            raise ArgumentError(f"{name}: output_size is {list(wanted)}, but sizes from {least} to {most} are possible")
        return tuple(n - a for n, a in zip(wanted, least, strict=True))


class ConvTranspose1d(_Transposed):
    """The transpose of `Conv1d` as a linear map; see `nn.functional.conv_transpose1d`. `output_size`, given with the
    input, chooses output_padding."""

    dimensions = 1

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._apply_to(conv_transpose1d, input, output_size)


class ConvTranspose2d(_Transposed):
    """The transpose of `Conv2d` as a linear map; see `nn.functional.conv_transpose2d`. `output_size`, given with the
    input, chooses output_padding."""

    dimensions = 2

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._apply_to(conv_transpose2d, input, output_size)


class ConvTranspose3d(_Transposed):
    """The transpose of `Conv3d` as a linear map; see `nn.functional.conv_transpose3d`. `output_size`, given with the
    input, chooses output_padding."""

    dimensions = 3

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._apply_to(conv_transpose3d, input, output_size)


def _numbers(name: str, argument: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """One integer a dimension, of a number or as many."""
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    found = found * count if len(found) == 1 else found
    if len(found) != count or any(isinstance(n, bool) or not isinstance(n, int) or n < least for n in found):
        raise ArgumentError(f"{name}: {argument} must be {count} integers of at least {least}, or one, not {value!r}")
    return found
