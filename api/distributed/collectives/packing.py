"""Host memory of collectives that take lists of tensors: the list's values one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from ...autograd.grad_mode import no_grad
from ...runtime.device import device, meta
from ...runtime.dispatch import empty
from ...runtime.dtypes import DType
from ...runtime.tensor import Tensor
from ...runtime.views import reshape
from ..staging import HostCopy
from ..works import Steps

__all__ = ["copy_parts", "host_buffer", "host_vector", "output_copies", "pack", "unpack"]


def output_copies(tensors: Sequence[Tensor]) -> list[HostCopy]:
    """Return a copy on the host, to be written, for each tensor."""
    return [HostCopy(tensor, reads=False, writes=True) for tensor in tensors]


def host_vector(dtype: DType, numel: int) -> Tensor:
    """Return a new vector on `cpu`."""
    return empty(meta(dtype, (numel,), None, device("cpu")))


def host_buffer(tensor: Tensor, size: int) -> Tensor:
    """Return a new tensor on `cpu` for `size` tensors like `tensor`, one after the other."""
    return empty(meta(tensor.meta.dtype, (size, *tensor.meta.shape), None, device("cpu")))


def pack(tensors: Sequence[Tensor], tensor: Tensor) -> Tensor:
    """Return a new tensor on `cpu` with the values of `tensors`, one after the other."""
    buffer = host_buffer(tensor, len(tensors))
    with no_grad():
        for position, item in enumerate(tensors):
            buffer[position].copy_(item)
    return buffer


def unpack(steps: Steps, outputs: Sequence[HostCopy], buffer: Tensor | None) -> Steps:
    """Run steps that fill `buffer`, and distribute its entries to `outputs`."""
    yield from steps
    if buffer is None:
        return
    with no_grad():
        for position, output in enumerate(outputs):
            if output.host is output.tensor:
                output.host.copy_(buffer[position])
            else:
                output.host = buffer[position]
                output.store()


def copy_parts(flat: Tensor, parts: Sequence[Tensor], is_pack: bool) -> None:
    """Copy parts into a flat tensor one after the other, or from it."""
    start = 0
    with no_grad():
        for part in parts:
            end = start + part.meta.numel
            if is_pack:
                flat[start:end].copy_(reshape(part, (part.meta.numel,)))
            else:
                part.copy_(reshape(flat[start:end], part.meta.shape))
            start = end
