"""Batch and instance norms that infer their number of channels from the first input."""

from __future__ import annotations

from ..creation.factories import zeros
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.tensor import Tensor
from ._lazy_module import LazyModuleMixin, materialize
from .batch_normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _ChannelNorm,
)
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]  # fmt: skip


class _LazyNorm(LazyModuleMixin, _ChannelNorm):
    inferred_argument = "num_features"

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
            materialize(self.weight, self.bias, (self.num_features,), self.num_features)
            for buffer in (self.running_mean, self.running_var):
                if is_lazy(buffer):
                    buffer.materialize((self.num_features,))
            self.reset_parameters()
        elif not self.num_features:  # loaded before the first call
            self.num_features = input.meta.shape[1]


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """`BatchNorm1d` that takes `num_features` from the first input's channels.

    The other arguments are those of `BatchNorm1d`.

    Example:
        >>> wg.nn.LazyBatchNorm1d()(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 10])
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """`BatchNorm2d` that takes `num_features` from the first input's channels.

    The other arguments are those of `BatchNorm2d`.

    Example:
        >>> wg.nn.LazyBatchNorm2d()(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10])
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """`BatchNorm3d` that takes `num_features` from the first input's channels.

    The other arguments are those of `BatchNorm3d`.

    Example:
        >>> wg.nn.LazyBatchNorm3d()(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10, 10])
    """

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """`InstanceNorm1d` that takes `num_features` from the first input's channels.

    The other arguments are those of `InstanceNorm1d`.

    Example:
        >>> wg.nn.LazyInstanceNorm1d()(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 10])
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """`InstanceNorm2d` that takes `num_features` from the first input's channels.

    The other arguments are those of `InstanceNorm2d`.

    Example:
        >>> wg.nn.LazyInstanceNorm2d()(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10])
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """`InstanceNorm3d` that takes `num_features` from the first input's channels.

    The other arguments are those of `InstanceNorm3d`.

    Example:
        >>> wg.nn.LazyInstanceNorm3d()(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10, 10])
    """

    cls_to_become = InstanceNorm3d
