"""Copy tensors between devices."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .. import autograd
from ..runtime import host_data
from ..runtime.context import current_stream
from ..runtime.device import Device, meta
from ..runtime.dispatch import call, empty, is_recorded
from ..runtime.layout import dense_strides, memory_order
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..runtime.views import contiguous

__all__ = ["transfer"]


def transfer(source: Tensor, target: Device) -> Tensor:
    """Copy `source` to another device, without gaps and in its memory order; gradients are copied back."""
    if is_recorded(source):
        return _Transfer.apply(source, target)
    if not source.meta.contiguous:
        order = memory_order(source.meta.shape, [source.meta.strides])
        copy = transfer(contiguous(call(registry["permute"], (source,), (tuple(reversed(order)),))), target)
        strides = dense_strides(source.meta.shape, order)
        return Tensor(copy.storage, meta(source.meta.dtype, source.meta.shape, strides, target), copy.start)
    layout = meta(source.meta.dtype, source.meta.shape, None, target)
    output = empty(layout)
    if not layout.numel:
        return output
    if target.type == source.meta.device.type == "cuda":  # without the host, and without waiting
        from ..runtime.backends.cuda import CudaDriver, CudaStream  # lazy: start-up

        source_stream, target_stream = current_stream(source.meta.device), current_stream(target)
        assert isinstance(source_stream, CudaStream)
        assert isinstance(target_stream, CudaStream)
        assert isinstance(target.driver, CudaDriver)
        target.driver.receive(contiguous(source), output.storage, source_stream, target_stream)
    else:
        target.driver.write(output.storage, 0, np.ascontiguousarray(host_data.to_host(source)), current_stream(target))
    return output


class _TransferContext(Protocol):
    """What `_Transfer.forward` stores for `backward`."""

    source_device: Device


class _Transfer(autograd.Function):
    """Autograd function of a copy between devices."""

    @staticmethod
    def forward(ctx: _TransferContext, source: Tensor, target: Device) -> Tensor:
        ctx.source_device = source.meta.device
        return transfer(source.detach(), target)

    @staticmethod
    def backward(ctx: _TransferContext, grad: Tensor) -> tuple[Tensor, None]:
        return grad.to(device=ctx.source_device), None
