"""Give MPI the memory of tensors.

MPI reads and writes contiguous tensors on `cpu` in place (`is_direct`). For all other tensors the callers make a tensor
by `empty_like_on_host`, copy to it before the call, and back after it.
"""

from __future__ import annotations

from typing import Any

from ..runtime import dtypes
from ..runtime.device import device, meta
from ..runtime.dispatch import empty
from ..runtime.dtypes import DType
from ..runtime.errors import NotSupported, ShapeError
from ..runtime.layout import has_internal_overlap
from ..runtime.tensor import Tensor
from .reduce_ops import mpi_datatype

__all__ = ["check_tensor", "check_writable", "empty_like_on_host", "is_direct", "is_half", "mark_written", "mpi_buffer"]

_HALF = (dtypes.float16, dtypes.bfloat16)


def check_tensor(name: str, tensor: object) -> Tensor:
    """Return the argument of the collective `name`.

    Raises:
        TypeError: It is no tensor.
        NotSupported: It is a tensor without values, on `meta`.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expects a tensor, not {type(tensor).__name__}")
    if tensor.meta.device.type == "meta":
        raise NotSupported(f"{name}: a tensor on device meta has no values; use Module.to_empty, and load its values")
    return tensor


def check_writable(tensor: Tensor) -> None:
    """Raise `ShapeError` if a collective cannot write its result to a tensor, because elements share memory."""
    layout = tensor.meta
    if has_internal_overlap(layout):
        raise ShapeError(
            f"cannot write the result of a collective to a tensor of shape {list(layout.shape)} with strides "
            f"{list(layout.strides)}: several indices are the same element; call .clone() first"
        )


def is_direct(tensor: Tensor) -> bool:
    """Return whether MPI can read and write the tensor's memory itself."""
    return tensor.meta.contiguous and tensor.meta.device.type == "cpu"


def is_half(dtype: DType) -> bool:
    """Return whether the dtype is float16 or bfloat16. MPI has no arithmetic for them: it moves their bits."""
    return dtype in _HALF


def mpi_buffer(mpi: Any, tensor: Tensor) -> list[Any]:
    """Wait for the launches on the tensor's device, then return its memory as a buffer for mpi4py.

    Args:
        mpi: The module `mpi4py.MPI`.
        tensor: A tensor for which `is_direct` holds.

    Returns:
        `[memory, datatype]`, the form in which mpi4py's methods take buffers. It does not keep the tensor alive.
    """
    layout = tensor.meta
    layout.device.driver.synchronize()
    nbytes = layout.numel * layout.dtype.itemsize
    address = (tensor.storage.buffer or 0) + tensor.start if nbytes else 0
    return [mpi.buffer.fromaddress(address, nbytes), mpi_datatype(mpi, layout.dtype)]


def mark_written(tensor: Tensor) -> None:
    """Increment the version of the tensor's memory, so that backward refuses a value saved before MPI's write."""
    tensor.storage.version += 1


def empty_like_on_host(tensor: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return a new contiguous tensor on `cpu` of the dtype, and by default of the shape, of `tensor`."""
    layout = tensor.meta
    return empty(meta(layout.dtype, layout.shape if shape is None else shape, None, device("cpu")))
