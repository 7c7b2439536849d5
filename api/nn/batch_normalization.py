"""Batch and instance normalization layers, with running statistics for evaluation."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from .. import distributed as dist
from ..arguments.types import TensorOptions
from ..autograd import no_grad
from ..creation.factories import ones, zeros
from ..runtime import dtypes, overriding, views
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
from ._normalization import batch_norm_with_count
from ._synchronized_batch_norm import synchronized_batch_norm
from .module import Module
from .parameter import Parameter

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "SyncBatchNorm",
]


class _ChannelNorm(Module):
    """Base class: weight and bias per channel, running mean and variance, and the number of batches they include.

    Args:
        num_features: Channels, dimension 1.
        eps: Added to the variance.
        momentum: Weight of a batch in the running statistics; None averages all batches equally.
        affine: Learn a weight per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        bias: Learn a bias per channel as well.
    """

    _version = 2
    num_features: int
    weight: Parameter  # None without `affine`
    bias: Parameter
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _allowed_ndims: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        tensor_options: TensorOptions = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(num_features, **tensor_options)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features, **tensor_options)) if affine and bias else None)
        tracks_stats = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, **tensor_options) if tracks_stats else None)
        self.register_buffer("running_var", ones(num_features, **tensor_options) if tracks_stats else None)
        count = zeros((), dtype=dtypes.int64, device=device) if tracks_stats else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Set the running mean to 0, the variance to 1 and the number of batches to 0."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set weight to 1 and bias to 0, and reset the running statistics."""
        self.reset_running_stats()
        with no_grad():
            if self.weight is not None:
                self.weight.fill_(1)
            if self.bias is not None:
                self.bias.zero_()

    def _check_input_dim(self, input: Tensor) -> None:
        if input.meta.ndim not in self._allowed_ndims:
            expected = " or ".join(f"{n}D" for n in self._allowed_ndims)
            raise ShapeError(
                f"{type(self).__name__}: takes {expected} inputs, not {input.meta.ndim}D of shape "
                f"{list(input.meta.shape)}"
            )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, object],
        prefix: str,
        local_metadata: dict[str, object],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load the state. Versions below 2 have no batch count."""
        version, key = local_metadata.get("version"), f"{prefix}num_batches_tracked"
        if not (isinstance(version, int) and version >= 2) and self.track_running_stats and key not in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_ChannelNorm):
    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`, `(N, C, *)`, per channel. In training mode, update the running statistics.

        Args:
            input: Tensor of shape `(N, C, *)`.

        Returns:
            Tensor of the same shape.

        Raises:
            ShapeError: If the number of dimensions does not fit.
        """
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        mean, var = self.running_mean, self.running_var
        counted = self.num_batches_tracked if self.training and self.track_running_stats else None
        if counted is not None:
            if self.momentum is not None and mean is not None and var is not None and not overriding.classes:
                return batch_norm_with_count(
                    input, mean, var, self.weight, self.bias, True, momentum, self.eps, counted
                )
            if self.momentum is None:
                momentum = 1.0 / (float(counted.item()) + 1.0)
        training = self.training or (mean is None and var is None)
        if self.training and not self.track_running_stats:
            mean = var = None
        result = F.batch_norm(input, mean, var, self.weight, self.bias, training, momentum, self.eps)
        if counted is not None:  # a call that is refused for its arguments counts no batch
            counted.add_(1)
        return result


class BatchNorm1d(_BatchNorm):
    """Batch normalization of `(N, C)` or `(N, C, L)` (Ioffe and Szegedy 2015, arXiv 1502.03167).

    y = (x - mean) / sqrt(var + eps) * weight + bias per channel, with the batch's mean and biased variance in training
    and the running ones in evaluation.

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: Weight of a batch in the running statistics; None averages all batches equally.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        bias: False learns only a weight.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.BatchNorm1d(3)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 10])
    """

    _allowed_ndims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of `(N, C, H, W)` (Ioffe and Szegedy 2015, arXiv 1502.03167).

    y = (x - mean) / sqrt(var + eps) * weight + bias per channel, with the batch's mean and biased variance in training
    and the running ones in evaluation.

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: Weight of a batch in the running statistics; None averages all batches equally.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        bias: False learns only a weight.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.BatchNorm2d(3)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10])
    """

    _allowed_ndims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of `(N, C, D, H, W)` (Ioffe and Szegedy 2015, arXiv 1502.03167).

    y = (x - mean) / sqrt(var + eps) * weight + bias per channel, with the batch's mean and biased variance in training
    and the running ones in evaluation.

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: Weight of a batch in the running statistics; None averages all batches equally.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.BatchNorm3d(3)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10, 10])
    """

    _allowed_ndims = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization of `(N, C, *)` over the samples of all processes of a group.

    In training, the statistics are those of all ranks' inputs, by one collective in forward and one in backward.
    Without a process group, with one rank, and in evaluation it is `BatchNorm`.

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: Weight of a batch in the running statistics; None averages all batches equally.
        affine: Learn weight and bias per channel.
        track_running_stats: Keep running statistics and use them in evaluation.
        process_group: The process group; None for all ranks.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.SyncBatchNorm(3)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 10])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.meta.ndim < 2:
            raise ShapeError(f"SyncBatchNorm: takes (N, C, ...), not an input of shape {list(input.meta.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`, `(N, C, *)`, per channel. In training mode, update the running statistics.

        Args:
            input: Tensor of shape `(N, C, *)`. N may differ between ranks.

        Returns:
            Tensor of the same shape.

        Raises:
            ShapeError: If the number of dimensions does not fit.
        """
        uses_input_stats = self.training or self.running_mean is None
        if not uses_input_stats or not dist.is_initialized() or dist.get_world_size(self.process_group) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        running = None
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.running_mean is not None and self.running_var is not None:
            running = self.running_mean, self.running_var
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                if self.momentum is None:
                    momentum = 1.0 / float(self.num_batches_tracked.item())
        return synchronized_batch_norm(input, self.weight, self.bias, running, momentum, self.eps, self.process_group)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replace every batch norm in `module` by a `SyncBatchNorm` with the same parameters and buffers.

        Args:
            module: The module, whose submodules are replaced in place.
            process_group: The process group; None for all ranks.

        Returns:
            `module`, or the new `SyncBatchNorm` if `module` is a batch norm itself.

        Example:
            >>> wg.nn.SyncBatchNorm.convert_sync_batchnorm(wg.nn.Sequential(wg.nn.BatchNorm1d(2)))
            Sequential(
              (0): SyncBatchNorm(2, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
            )
        """
        converted = module
        if isinstance(module, _BatchNorm):
            converted = SyncBatchNorm(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group, bias=module.bias is not None,
            )  # fmt: skip
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                setattr(converted, name, getattr(module, name))
            converted.training = module.training
        for name, child in list(module.named_children()):
            setattr(converted, name, cls.convert_sync_batchnorm(child, process_group))
        return converted


class _InstanceNorm(_ChannelNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`, `(N, C, *)` or `(C, *)`, per channel of each sample, or by running statistics.

        Args:
            input: Tensor of shape `(N, C, *)` or `(C, *)`.

        Returns:
            Tensor of the same shape.

        Raises:
            ShapeError: If the number of dimensions does not fit, or, with `affine`, the number of channels.
        """
        self._check_input_dim(input)
        is_unbatched = input.meta.ndim == self._allowed_ndims[0]
        channel_dim = 0 if is_unbatched else 1
        if input.meta.shape[channel_dim] != self.num_features:
            message = (
                f"{type(self).__name__}: {self.num_features} features, but an input of shape {list(input.meta.shape)}"
            )
            if self.affine:
                raise ShapeError(f"{message} has {input.meta.shape[channel_dim]} channels in dimension {channel_dim}")
            warnings.warn(f"{message}; num_features counts for nothing without affine", stacklevel=2)
        batch = views.reshape(input, (1, *input.meta.shape)) if is_unbatched else input
        uses_input_stats = self.training or not self.track_running_stats
        output = F.instance_norm(
            batch,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            uses_input_stats,
            self.momentum or 0.0,
            self.eps,
        )
        return views.reshape(output, input.meta.shape) if is_unbatched else output


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of `(N, C, L)` or `(C, L)` (Ulyanov et al. 2016, arXiv 1607.08022).

    Each channel of each sample is normalized to mean 0 and variance 1.

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: Weight of an input in the running statistics.
        affine: Learn weight and bias per channel; False by default.
        track_running_stats: Keep running statistics and use them in evaluation; False by default.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.InstanceNorm1d(3)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 10])
    """

    _allowed_ndims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of `(N, C, H, W)` or `(C, H, W)` (Ulyanov et al. 2016, arXiv 1607.08022).

    Each channel of each sample is normalized to mean 0 and variance 1.

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: Weight of an input in the running statistics.
        affine: Learn weight and bias per channel; False by default.
        track_running_stats: Keep running statistics and use them in evaluation; False by default.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.InstanceNorm2d(3)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10])
    """

    _allowed_ndims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of `(N, C, D, H, W)` or `(C, D, H, W)` (Ulyanov et al. 2016, arXiv 1607.08022).

    Each channel of each sample is normalized to mean 0 and variance 1.

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: Weight of an input in the running statistics.
        affine: Learn weight and bias per channel; False by default.
        track_running_stats: Keep running statistics and use them in evaluation; False by default.
        device: Device of parameters and buffers; None: the default device.
        dtype: Dtype of parameters and buffers; None: the default dtype.
        bias: False learns only a weight.

    Example:
        >>> wg.nn.InstanceNorm3d(3)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10, 10])
    """

    _allowed_ndims = (4, 5)
