"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..factories import ones, zeros
from ..runtime import dtypes
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
from .module import Module
from .parameter import Parameter

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "LayerNorm", "RMSNorm"]


class LayerNorm(Module):
    """Trailing dimensions shifted to mean 0 and scaled to variance 1, then weight and bias (Ba et al. 2016)."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        made = {"device": device, "dtype": dtype}
        self.register_parameter(
            "weight", Parameter(ones(self.normalized_shape, **made)) if elementwise_affine else None
        )
        self.register_parameter(
            "bias", Parameter(zeros(self.normalized_shape, **made)) if elementwise_affine and bias else None
        )

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """Trailing dimensions divided by the root of their mean square, then weight (Zhang and Sennrich 2019)."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        made = Parameter(ones(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", made)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Groups of channels of each sample normalised, then a weight and bias a channel (Wu and He 2018)."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", Parameter(ones(num_channels, device=device, dtype=dtype)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_channels, device=device, dtype=dtype)) if affine else None)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class _BatchNorm(Module):
    """Channels normalised over a batch; running statistics serve evaluation."""

    allowed: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        made = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(num_features, **made)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features, **made)) if affine else None)
        self.register_buffer("running_mean", zeros(num_features, **made) if track_running_stats else None)
        self.register_buffer("running_var", ones(num_features, **made) if track_running_stats else None)
        self.register_buffer(
            "num_batches_tracked", zeros((), dtype=dtypes.int64, device=device) if track_running_stats else None
        )

    def forward(self, input: Tensor) -> Tensor:
        if input.meta.ndim not in self.allowed or input.meta.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}({self.num_features}): got an input of shape {list(input.meta.shape)}"
            )
        momentum = 0.1 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked.item()
        mean, var = (
            (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
        )
        return F.batch_norm(input, mean, var, self.weight, self.bias, self.training, momentum, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"


class BatchNorm1d(_BatchNorm):
    """Channels of (N, C) or (N, C, L) normalised over a batch (Ioffe and Szegedy 2015)."""

    allowed = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Channels of (N, C, H, W) normalised over a batch (Ioffe and Szegedy 2015)."""

    allowed = (4,)


class InstanceNorm2d(Module):
    """Each channel of each sample normalised (Ulyanov et al. 2016)."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.register_parameter("weight", Parameter(ones(num_features, device=device, dtype=dtype)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features, device=device, dtype=dtype)) if affine else None)

    def forward(self, input: Tensor) -> Tensor:
        return F.instance_norm(input, None, None, self.weight, self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"


class InstanceNorm1d(InstanceNorm2d):
    """Each channel of each sample normalised."""
