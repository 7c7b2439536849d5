"""Convolutions that infer their number of input channels from the first input."""

from __future__ import annotations

from ..arguments.types import IntOrInts
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ._lazy_module import LazyModuleMixin, materialize
from .convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .parameter import Parameter, UninitializedParameter

__all__ = [
    "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]  # fmt: skip


class _LazyConvolution(LazyModuleMixin):
    inferred_argument = "in_channels"
    dimensions: int
    transposed: bool
    kernel_size: tuple[int, ...]
    in_channels: int
    out_channels: int
    groups: int
    weight: Parameter
    bias: Parameter

    def _set_uninitialized(
        self, out_channels: int, bias: bool, device: DeviceLike | None, dtype: DTypeLike | None
    ) -> None:
        self.out_channels = out_channels
        for name in ("weight", "bias") if bias else ("weight",):
            setattr(self, name, UninitializedParameter(device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Draw new values of weight and bias, if `in_channels` is known."""
        if self.in_channels:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: object, **kwargs: object) -> None:
        """Set `in_channels` from `input` of shape `(N, C, ...)` or `(C, ...)`.

        Args:
            input: First input.
            *args: Ignored.
            **kwargs: Ignored.

        Raises:
            ShapeError: If `input` has another number of dimensions.
            ArgumentError: If `groups` does not divide the numbers of channels.
        """
        if not self.has_uninitialized_params():
            if not self.in_channels:  # loaded before the first call
                self.in_channels = self.weight.meta.shape[0 if self.transposed else 1] * (
                    1 if self.transposed else self.groups
                )
            return
        name, rank, shape = type(self).__name__, self.dimensions + 1, list(input.meta.shape)
        if len(shape) not in (rank, rank + 1):
            raise ShapeError(f"{name}: takes {rank} or {rank + 1} dimensions, not shape {shape}")
        self.in_channels = shape[len(shape) - rank]
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ArgumentError(
                f"{name}: {self.in_channels} and {self.out_channels} channels do not fall into {self.groups} groups"
            )
        channels = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels, self.in_channels)
        weight_shape = (channels[0], channels[1] // self.groups, *self.kernel_size)
        materialize(self.weight, self.bias, weight_shape, self.out_channels)
        self.reset_parameters()


class _LazyForwardConvolution(_LazyConvolution):
    def __init__(
        self,
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
        super().__init__(
            0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device=device, dtype=dtype
        )
        self._set_uninitialized(out_channels, bias, device, dtype)


class _LazyTransposedConvolution(_LazyConvolution):
    def __init__(
        self,
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
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device=device,
            dtype=dtype,
        )  # fmt: skip
        self._set_uninitialized(out_channels, bias, device, dtype)


class LazyConv1d(_LazyForwardConvolution, Conv1d):
    """`Conv1d` that takes `in_channels` from the first input.

    The other arguments are those of `Conv1d`.

    Example:
        >>> wg.nn.LazyConv1d(6, 3)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 6, 8])
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyForwardConvolution, Conv2d):
    """`Conv2d` that takes `in_channels` from the first input.

    The other arguments are those of `Conv2d`.

    Example:
        >>> wg.nn.LazyConv2d(6, 3)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 6, 8, 8])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyForwardConvolution, Conv3d):
    """`Conv3d` that takes `in_channels` from the first input.

    The other arguments are those of `Conv3d`.

    Example:
        >>> wg.nn.LazyConv3d(6, 3)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 6, 8, 8, 8])
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposedConvolution, ConvTranspose1d):
    """`ConvTranspose1d` that takes `in_channels` from the first input.

    The other arguments are those of `ConvTranspose1d`.

    Example:
        >>> wg.nn.LazyConvTranspose1d(6, 3)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 6, 12])
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposedConvolution, ConvTranspose2d):
    """`ConvTranspose2d` that takes `in_channels` from the first input.

    The other arguments are those of `ConvTranspose2d`.

    Example:
        >>> wg.nn.LazyConvTranspose2d(6, 3)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 6, 12, 12])
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposedConvolution, ConvTranspose3d):
    """`ConvTranspose3d` that takes `in_channels` from the first input.

    The other arguments are those of `ConvTranspose3d`.

    Example:
        >>> wg.nn.LazyConvTranspose3d(6, 3)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 6, 12, 12, 12])
    """

    cls_to_become = ConvTranspose3d
