"""Convert between tensors and host data: NumPy arrays, Python numbers, pinned memory, and bfloat16 bits."""

from __future__ import annotations

import numpy as np

from . import deferred, dtypes
from .context import current_stream
from .device import Device, device, meta
from .dispatch import empty, refresh_views
from .dtypes import Array, DType
from .errors import ArgumentError, DeviceError, GradientError
from .modes import notify_host_read
from .storage import Hold, Storage
from .tensor import Tensor
from .views import contiguous

__all__ = ["adopt", "fill", "from_host", "host_array", "is_pinned", "number", "pin_memory", "to_host", "to_numpy"]


class _Exported:
    """The base of an exported array: it keeps the storage alive, and the old memory if the storage moves."""

    def __init__(self, storage: Storage, interface: dict[str, object]):
        self.storage = storage
        if storage.owner is None:
            storage.owner = Hold()
        self.owner = storage.owner
        self.__array_interface__ = interface


def to_bfloat16(array: Array) -> Array:
    """Convert float32 values to raw bfloat16 bits (uint16), rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def from_bfloat16(bits: Array) -> Array:
    """Convert raw bfloat16 bits to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def from_host(array: Array, dtype: DType, device: Device) -> Tensor:
    """Create a tensor on `device` with a copy of `array`, converted to `dtype`."""
    if dtype is dtypes.bfloat16:
        values = to_bfloat16(array.astype(np.float32))
    elif array.dtype == dtype.numpy:
        values = array
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            values = array.astype(dtype.numpy)
    output = empty(meta(dtype, array.shape, None, device))
    if output.meta.numel:
        device.driver.write(output.storage, 0, np.ascontiguousarray(values), current_stream(device))
    return output


def fill(tensor: Tensor, number: float) -> None:
    """Set every element of a tensor in host memory, without a kernel."""
    values = np.asarray(number)
    owner = tensor.storage.owner
    to_host(tensor)[...] = to_bfloat16(values) if tensor.meta.dtype is dtypes.bfloat16 else values
    tensor.storage.owner = owner  # the array is gone, so later launches may be deferred again


def adopt(array: Array) -> Tensor:
    """Create a `cpu` tensor that shares the memory of `array` and keeps it alive.

    Raises `ArgumentError` if it cannot.
    """
    dtype = dtypes.from_numpy(array.dtype)
    cpu = device("cpu")
    size = dtype.itemsize
    if any(s % size for s in array.strides):
        raise ArgumentError("from_numpy: the array's strides are not multiples of its element size; copy it first")
    strides = tuple(s // size for s in array.strides)
    if any(s < 0 for s in strides):
        raise ArgumentError("from_numpy: arrays with negative strides are not supported; pass array.copy()")
    if not array.flags.writeable:
        raise ArgumentError("from_numpy: the array is not writable, and tensors are; pass array.copy()")
    layout = meta(dtype, array.shape, strides, cpu)
    if not layout.numel:
        return empty(meta(dtype, array.shape, None, cpu))
    extent = 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    flat = np.lib.stride_tricks.as_strided(array, (extent,), (size,))
    storage = cpu.driver.adopt(flat)
    return Tensor(storage, layout, storage.start)


def pin_memory(tensor: Tensor, device: Device) -> Tensor:
    """Copy a `cpu` tensor to host memory that is page-locked for the CUDA device `device`."""
    layout = tensor.meta
    if layout.device.type != "cpu" or device.type != "cuda":
        raise DeviceError(
            f"pin_memory: takes a tensor on cpu, and a CUDA device to pin it for; not one on {layout.device}, for "
            f"{device}"
        )
    if not layout.numel or is_pinned(tensor, device):
        return tensor
    driver = device.driver
    assert hasattr(driver, "pinned_array")  # CUDA's
    memory = driver.pinned_array(layout.nbytes)
    memory.view(layout.dtype.numpy).reshape(layout.shape)[...] = to_host(tensor)
    storage = layout.device.driver.adopt(memory)
    return Tensor(storage, meta(layout.dtype, layout.shape, None, layout.device), storage.start)


def is_pinned(tensor: Tensor, device: Device) -> bool:
    """Return True if the memory of a `cpu` tensor is page-locked for `device`. Does not open the device."""
    driver = device._driver
    if driver is None or not hasattr(driver, "pinned") or not tensor.meta.numel:
        return False
    memory = tensor.meta.device.driver.host_view(tensor.storage)
    return memory is not None and driver.pinned.find_block(memory) is not None


def to_host(tensor: Tensor) -> Array:
    """Return the values as a NumPy array (bfloat16: raw bits). Waits for them; shares memory if that is on the host."""
    layout = tensor.meta
    if not layout.numel:
        return np.empty(layout.shape, layout.dtype.numpy)
    driver = layout.device.driver
    memory = driver.host_view(tensor.storage)
    if memory is None:
        source = contiguous(tensor)
        flat = np.empty(layout.shape, layout.dtype.numpy)
        start = source.start - source.storage.start
        driver.read(source.storage, start, flat, current_stream(layout.device))
        deferred.check_ready(layout.device, wait=False)  # the read waited for everything queued before it
        return flat
    driver.synchronize()
    deferred.check_ready(layout.device, wait=True)
    assert hasattr(driver, "address")  # every driver with host memory has it
    size = layout.dtype.itemsize
    interface = {
        "shape": layout.shape,
        "typestr": layout.dtype.numpy.str,
        "data": (driver.address(tensor.storage) + tensor.start, False),
        "strides": tuple(s * size for s in layout.strides),
        "version": 3,
    }
    return np.asarray(_Exported(tensor.storage, interface))


def host_array(tensor: Tensor) -> Array:
    """Return the values as a NumPy array, like `to_host`, with bfloat16 converted to float32."""
    array = to_host(tensor)
    return from_bfloat16(array) if tensor.meta.dtype is dtypes.bfloat16 else array


def number(tensor: Tensor) -> bool | int | float:
    """Return the value of a tensor of one element. Waits for it."""
    layout = tensor.meta
    driver = layout.device.driver
    memory = driver.host_view(tensor.storage)
    if memory is None or layout.dtype is dtypes.bfloat16:
        return host_array(tensor).item()
    driver.synchronize()
    deferred.check_ready(layout.device, wait=True)
    offset = tensor.start - tensor.storage.start
    return memory[offset : offset + layout.dtype.itemsize].view(layout.dtype.numpy)[0].item()


def to_numpy(tensor: Tensor, *, force: bool = False) -> Array:
    """Return a NumPy array that shares the memory of the tensor (`Tensor.numpy()`).

    Args:
        tensor: The tensor.
        force: Whether to detach a tensor that requires grad, and to copy one that is not on the host.

    Raises:
        GradientError: The tensor requires grad.
        DeviceError: The tensor is not on the host.
        ArgumentError: The dtype is bfloat16, and the package ml_dtypes, which adds it to NumPy, is missing.
    """
    refresh_views(tensor)
    if tensor.needs_grad and not force:
        raise GradientError("numpy: the tensor requires grad; use .detach().numpy()")
    if tensor.meta.device.type != "cpu" and not force:
        raise DeviceError(f"numpy: the tensor is on {tensor.meta.device}; use .cpu().numpy()")
    notify_host_read(tensor)
    return to_host(tensor).view(_numpy_bfloat16()) if tensor.meta.dtype is dtypes.bfloat16 else to_host(tensor)


def _numpy_bfloat16() -> np.dtype[np.generic]:
    try:
        import ml_dtypes  # lazy: optional
    except ImportError:
        raise ArgumentError(
            "numpy: NumPy has no bfloat16; use .float().numpy(), or install the package ml_dtypes"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)
