"""Pack lists of tensors for collectives: the tensors' values one after the other in host memory."""

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
    """Return for each tensor a copy on the host for the collective to write to."""
    return [HostCopy(tensor, reads=False, writes=True) for tensor in tensors]


def host_vector(dtype: DType, numel: int) -> Tensor:
    """Return a new vector on `cpu`."""
    return empty(meta(dtype, (numel,), None, device("cpu")))


def host_buffer(like: Tensor, count: int) -> Tensor:
    """Return a new tensor on `cpu` for `count` tensors of the dtype and shape of `like`: `(count, *shape)`."""
    return empty(meta(like.meta.dtype, (count, *like.meta.shape), None, device("cpu")))


def pack(tensors: Sequence[Tensor], like: Tensor) -> Tensor:
    """Return a new tensor on `cpu` with the values of `tensors`, which have the dtype and shape of `like`."""
    buffer = host_buffer(like, len(tensors))
    with no_grad():
        for position, item in enumerate(tensors):
            buffer[position].copy_(item)
    return buffer


def unpack(steps: Steps, outputs: Sequence[HostCopy], buffer: Tensor | None) -> Steps:
    """Run steps that fill `buffer`, then store its entries to the tensors of `outputs`. None: there is nothing."""
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
    """Copy parts into a flat tensor one after the other if `is_pack`, otherwise from it into the parts."""
    start = 0
    with no_grad():
        for part in parts:
            end = start + part.meta.numel
            if is_pack:
                flat[start:end].copy_(reshape(part, (part.meta.numel,)))
            else:
                part.copy_(reshape(flat[start:end], part.meta.shape))
            start = end
