"""The memory of tensors as MPI's buffers: host memory in place, other memory through a copy on the host."""

from __future__ import annotations

from typing import Any

from ..runtime import dtypes
from ..runtime.device import device, meta
from ..runtime.dispatch import empty
from ..runtime.dtypes import DType
from ..runtime.tensor import Tensor
from .reduce_ops import mpi_datatype

__all__ = ["check_tensor", "empty_like_on_host", "is_direct", "is_half", "mark_written", "mpi_buffer"]

_HALF = (dtypes.float16, dtypes.bfloat16)


def check_tensor(name: str, tensor: object) -> Tensor:
    """Return the argument of a collective; raise `TypeError` if it is no tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expects a tensor, not {type(tensor).__name__}")
    return tensor


def is_direct(tensor: Tensor) -> bool:
    """Return whether MPI can read and write the tensor's memory itself."""
    return tensor.meta.contiguous and tensor.meta.device.type == "cpu"


def is_half(dtype: DType) -> bool:
    """Return whether MPI has no arithmetic for the dtype."""
    return dtype in _HALF


def mpi_buffer(mpi: Any, tensor: Tensor) -> list[Any]:
    """Return the buffer of a contiguous tensor in host memory, for mpi4py. Waits for launches that use it."""
    layout = tensor.meta
    driver = layout.device.driver
    driver.synchronize()
    nbytes = layout.numel * layout.dtype.itemsize
    address = (tensor.storage.buffer or 0) + tensor.start if nbytes else 0
    return [mpi.buffer.fromaddress(address, nbytes), mpi_datatype(mpi, layout.dtype)]


def mark_written(tensor: Tensor) -> None:
    """Count a write, so that backward refuses an older value that it has saved."""
    tensor.storage.version += 1


def empty_like_on_host(tensor: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return a new contiguous tensor on `cpu` of the dtype, and by default of the shape, of `tensor`."""
    layout = tensor.meta
    return empty(meta(layout.dtype, layout.shape if shape is None else shape, None, device("cpu")))
