"""Layers that infer their number of input features or channels from the first input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..arguments.types import IntOrInts
from ..creation.factories import zeros
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, DomainError, ShapeError
from ..runtime.tensor import Tensor
from .batch_normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _ChannelNorm,
)
from .convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .layers import Linear
from .module import Module
from .parameter import Parameter, UninitializedBuffer, UninitializedParameter, is_lazy

if TYPE_CHECKING:
    from ._types import Argument

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class LazyModuleMixin(Module):
    """Mixin for a module with `UninitializedParameter`s; write `class Lazy(LazyModuleMixin, Layer)`.

    `initialize_parameters(*args, **kwargs)` is called with the arguments of the first call, before `forward`, and gives
    the parameters their shapes. Loading a state dict does so as well. After the first call the module's class becomes
    `cls_to_become`.

    Args:
        *args: Arguments of the other base class.
        **kwargs: Arguments of the other base class.

    Raises:
        DomainError: From the first call, if `initialize_parameters` left a parameter without a shape.

    Example:
        >>> layer = wg.nn.LazyLinear(2)
        >>> output = layer(wg.ones(5, 4))
        >>> type(layer).__name__, layer.in_features
        ('Linear', 4)
    """

    cls_to_become: ClassVar[type | None] = None

    def __init__(self, *args: Argument, **kwargs: Argument):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _lazy_load_hook(self, state_dict: Mapping[str, object], prefix: str, *_: object) -> None:
        for name, tensor in self._own_tensors():
            value = state_dict.get(prefix + name)
            if isinstance(value, (Tensor, np.ndarray)) and is_lazy(tensor) and not is_lazy(value):
                tensor.materialize(value.shape)

    def _own_tensors(self) -> list[tuple[str, Tensor | None]]:
        return [*self._parameters.items(), *self._buffers.items()]

    def initialize_parameters(self, *args: Argument, **kwargs: Argument) -> None:
        """Set shapes and values of the parameters from the arguments of the first call.

        Args:
            *args: Positional arguments of the first call.
            **kwargs: Keyword arguments of the first call.

        Raises:
            NotImplementedError: If a subclass does not define the method.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no initialize_parameters(...)")

    def has_uninitialized_params(self) -> bool:
        """Return whether a parameter or buffer has no shape yet.

        Returns:
            Python bool.

        Example:
            >>> wg.nn.LazyLinear(2).has_uninitialized_params()
            True
        """
        return any(is_lazy(tensor) for _, tensor in self._own_tensors())

    def _infer_parameters(
        self, module: LazyModuleMixin, args: tuple[object, ...], kwargs: dict[str, object] | None = None
    ) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise DomainError(
                f"{type(module).__name__}: initialize_parameters left a parameter without a shape; call materialize() "
                "on each"
            )
        for name in ("_initialize_hook", "_load_hook"):
            getattr(module, name).remove()
            delattr(module, name)
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def reset_parameters(self) -> None:
        """Draw new values, if the parameters have shapes."""
        if not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` that takes `in_features` from the last dimension of the first input.

    Args:
        out_features: Size of the last dimension of the result.
        bias: Whether to add a bias.
        device: Device of the parameters.
        dtype: Dtype of the parameters.

    Example:
        >>> wg.nn.LazyLinear(2)(wg.ones(5, 4)).shape
        weftgrad.Size([5, 2])
    """

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new values of weight and bias, if `in_features` is known."""
        if self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Set `in_features` from `input`.

        Args:
            input: First input, of shape `(*, in_features)`.
        """
        if self.has_uninitialized_params():
            self.in_features = input.meta.shape[-1]
            _materialize(self.weight, self.bias, (self.out_features, self.in_features), self.out_features)
            self.reset_parameters()
        elif not self.in_features:  # loaded before the first call
            self.in_features = self.weight.meta.shape[-1]


class _LazyConvolution(LazyModuleMixin):
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
        _materialize(self.weight, self.bias, weight_shape, self.out_channels)
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

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int.
        stride: Step of the kernel; one int.
        padding: Positions added at each end, one int; or `"same"` or `"valid"`.
        dilation: Distance of kernel elements; one int.
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        padding_mode: `"zeros"`, `"reflect"`, `"replicate"` or `"circular"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.LazyConv1d(6, 3)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 6, 8])
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyForwardConvolution, Conv2d):
    """`Conv2d` that takes `in_channels` from the first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int for both dimensions, or two (height, width).
        stride: Step of the kernel; one int for both dimensions, or two (height, width).
        padding: Positions added at each end, one int for both dimensions, or two (height, width); or `"same"` or
            `"valid"`.
        dilation: Distance of kernel elements; one int for both dimensions, or two (height, width).
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        padding_mode: `"zeros"`, `"reflect"`, `"replicate"` or `"circular"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.LazyConv2d(6, 3)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 6, 8, 8])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyForwardConvolution, Conv3d):
    """`Conv3d` that takes `in_channels` from the first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int for all dimensions, or three (depth, height, width).
        stride: Step of the kernel; one int for all dimensions, or three (depth, height, width).
        padding: Positions added at each end, one int for all dimensions, or three (depth, height, width); or `"same"`
            or `"valid"`.
        dilation: Distance of kernel elements; one int for all dimensions, or three (depth, height, width).
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        padding_mode: `"zeros"`, `"reflect"`, `"replicate"` or `"circular"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.LazyConv3d(6, 3)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 6, 8, 8, 8])
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposedConvolution, ConvTranspose1d):
    """`ConvTranspose1d` that takes `in_channels` from the first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int.
        stride: Step of the kernel; one int.
        padding: Positions that the result loses at each end; one int.
        output_padding: Positions added at one end of the result; one int.
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        dilation: Distance of kernel elements; one int.
        padding_mode: Must be `"zeros"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.LazyConvTranspose1d(6, 3)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 6, 12])
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposedConvolution, ConvTranspose2d):
    """`ConvTranspose2d` that takes `in_channels` from the first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int for both dimensions, or two (height, width).
        stride: Step of the kernel; one int for both dimensions, or two (height, width).
        padding: Positions that the result loses at each end; one int for both dimensions, or two (height, width).
        output_padding: Positions added at one end of the result; one int for both dimensions, or two (height, width).
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        dilation: Distance of kernel elements; one int for both dimensions, or two (height, width).
        padding_mode: Must be `"zeros"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.LazyConvTranspose2d(6, 3)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 6, 12, 12])
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposedConvolution, ConvTranspose3d):
    """`ConvTranspose3d` that takes `in_channels` from the first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel; one int for all dimensions, or three (depth, height, width).
        stride: Step of the kernel; one int for all dimensions, or three (depth, height, width).
        padding: Positions that the result loses at each end; one int for all dimensions, or three (depth, height,
            width).
        output_padding: Positions added at one end of the result; one int for all dimensions, or three (depth, height,
            width).
        groups: Groups of channels that are convolved separately.
        bias: Add a bias per output channel.
        dilation: Distance of kernel elements; one int for all dimensions, or three (depth, height, width).
        padding_mode: Must be `"zeros"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.LazyConvTranspose3d(6, 3)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 6, 12, 12, 12])
    """

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin, _ChannelNorm):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = zeros((), dtype=dtypes.int64, device=device)

    def reset_parameters(self) -> None:
        """Reset weight to 1, bias to 0 and the running statistics, if `num_features` is known."""
        if self.num_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Set `num_features` from `input` of shape `(N, C, ...)`.

        Args:
            input: First input.
        """
        if self.has_uninitialized_params():
            self.num_features = input.meta.shape[1]
            _materialize(self.weight, self.bias, (self.num_features,), self.num_features)
            for buffer in (self.running_mean, self.running_var):
                if is_lazy(buffer):
                    buffer.materialize((self.num_features,))
            self.reset_parameters()
        elif not self.num_features:  # loaded before the first call
            self.num_features = input.meta.shape[1]


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """`BatchNorm1d` that takes `num_features` from the first input's channels.

    Args:
        eps: Added to the variance.
        momentum: Weight of a batch in the running statistics; None averages all batches equally.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.LazyBatchNorm1d()(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 10])
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """`BatchNorm2d` that takes `num_features` from the first input's channels.

    Args:
        eps: Added to the variance.
        momentum: Weight of a batch in the running statistics; None averages all batches equally.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.LazyBatchNorm2d()(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10])
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """`BatchNorm3d` that takes `num_features` from the first input's channels.

    Args:
        eps: Added to the variance.
        momentum: Weight of a batch in the running statistics; None averages all batches equally.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.LazyBatchNorm3d()(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10, 10])
    """

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """`InstanceNorm1d` that takes `num_features` from the first input's channels.

    Args:
        eps: Added to the variance.
        momentum: Weight of an input in the running statistics.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.LazyInstanceNorm1d()(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 10])
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """`InstanceNorm2d` that takes `num_features` from the first input's channels.

    Args:
        eps: Added to the variance.
        momentum: Weight of an input in the running statistics.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.LazyInstanceNorm2d()(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10])
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """`InstanceNorm3d` that takes `num_features` from the first input's channels.

    Args:
        eps: Added to the variance.
        momentum: Weight of an input in the running statistics.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.LazyInstanceNorm3d()(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10, 10])
    """

    cls_to_become = InstanceNorm3d


def _materialize(weight: Tensor | None, bias: Tensor | None, weight_shape: tuple[int, ...], bias_size: int) -> None:
    for tensor, shape in ((weight, weight_shape), (bias, (bias_size,))):
        if is_lazy(tensor):
            tensor.materialize(shape)
