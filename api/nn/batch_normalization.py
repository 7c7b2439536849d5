"""Layers that normalise channels, by a batch's statistics or an instance's, and keep running ones for evaluation."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from ..autograd import no_grad
from ..factories import ones, zeros
from ..runtime import dtypes, views
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
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
    """A weight and a bias a channel, and running statistics: mean, variance, and how many batches they are of.

    momentum: how far a batch moves the running statistics; None makes them the mean over all batches. affine, bias:
    whether there is a weight, and with it a bias. track_running_stats: whether evaluation uses running statistics.
    """

    _version = 2
    num_features: int
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _ranks: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        made = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(num_features, **made)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features, **made)) if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, **made) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **made) if tracked else None)
        count = zeros((), dtype=dtypes.int64, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, of no batch."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()  # type: ignore[attr-defined]
            self.running_var.fill_(1)  # type: ignore[attr-defined]
            self.num_batches_tracked.zero_()  # type: ignore[attr-defined]

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and running statistics of no batch."""
        self.reset_running_stats()
        with no_grad():
            if self.weight is not None:
                self.weight.fill_(1)
            if self.bias is not None:
                self.bias.zero_()

    def _check_input_dim(self, input: Tensor) -> None:
        if input.meta.ndim not in self._ranks:
            wanted = " or ".join(f"{n}D" for n in self._ranks)
            raise ShapeError(
                f"{type(self).__name__}: takes {wanted} inputs, not {input.meta.ndim}D of shape "
                f"{list(input.meta.shape)}"
            )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *lists: Any) -> None:
        """Before version 2, batches were not counted."""
        version, key = local_metadata.get("version"), f"{prefix}num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *lists)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_ChannelNorm):
    def forward(self, input: Tensor) -> Tensor:
        """`input`, (N, C, ...), normalised a channel. In training the running statistics move."""
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)  # type: ignore[attr-defined]
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked.item())  # type: ignore[attr-defined]
        mean, var = self.running_mean, self.running_var
        training = self.training or (mean is None and var is None)
        if self.training and not self.track_running_stats:
            mean = var = None
        return F.batch_norm(input, mean, var, self.weight, self.bias, training, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Channels of (N, C) or (N, C, L) normalised over a batch (Ioffe and Szegedy 2015)."""

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Channels of (N, C, H, W) normalised over a batch (Ioffe and Szegedy 2015)."""

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Channels of (N, C, D, H, W) normalised over a batch (Ioffe and Szegedy 2015)."""

    _ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm of (N, C, ...) over all processes of a group; there is one process here, so over its batch."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.meta.ndim < 2:
            raise ShapeError(f"SyncBatchNorm: takes (N, C, ...), not an input of shape {list(input.meta.shape)}")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with a SyncBatchNorm in the place of every batch norm, of the same parameters and buffers."""
        found = module
        if isinstance(module, _BatchNorm):
            found = SyncBatchNorm(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group, bias=module.bias is not None,
            )  # fmt: skip
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                setattr(found, name, getattr(module, name))
            found.training = module.training
        for name, child in list(module.named_children()):
            setattr(found, name, cls.convert_sync_batchnorm(child, process_group))
        return found


class _InstanceNorm(_ChannelNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """`input`, (N, C, ...) or (C, ...), normalised a channel of a sample, or by running statistics."""
        self._check_input_dim(input)
        alone = input.meta.ndim == self._ranks[0]
        place = 0 if alone else 1
        if input.meta.shape[place] != self.num_features:
            shown = (
                f"{type(self).__name__}: {self.num_features} features, but an input of shape {list(input.meta.shape)}"
            )
            if self.affine:
                raise ShapeError(f"{shown} has {input.meta.shape[place]} channels in dimension {place}")
            warnings.warn(f"{shown}; num_features counts for nothing without affine", stacklevel=2)
        batch = views.reshape(input, (1, *input.meta.shape)) if alone else input
        own = self.training or not self.track_running_stats
        out = F.instance_norm(
            batch, self.running_mean, self.running_var, self.weight, self.bias, own, self.momentum or 0.0, self.eps
        )
        return views.reshape(out, input.meta.shape) if alone else out


class InstanceNorm1d(_InstanceNorm):
    """Channels of each sample of (N, C, L), or of (C, L), normalised (Ulyanov et al. 2016)."""

    _ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Channels of each sample of (N, C, H, W), or of (C, H, W), normalised (Ulyanov et al. 2016)."""

    _ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Channels of each sample of (N, C, D, H, W), or of (C, D, H, W), normalised (Ulyanov et al. 2016)."""

    _ranks = (4, 5)
