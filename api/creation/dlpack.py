"""Exchange memory with other libraries by DLPack, with and without a version, also of devices and dtypes NumPy lacks.

NumPy's own functions make and read the capsules: their deleters are C functions, which other libraries may call at any
time, without the interpreter's lock and while it ends. NumPy sees memory of a GPU, and bfloat16, as something that it
knows (`_rewritten`): an array over an address that nobody reads, and uint16.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from ..runtime import dtypes, host_data
from ..runtime.context import current_stream
from ..runtime.device import Device, DeviceLike, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import empty, refresh_views
from ..runtime.dtypes import Array, DType
from ..runtime.errors import ArgumentError, DTypeError, ExchangeError
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor

__all__ = ["SupportsDLPack", "cuda_array_interface", "dlpack_device", "from_dlpack", "to_dlpack"]

_CPU, _CUDA, _CUDA_HOST, _OPENCL = 1, 2, 3, 4
_DEVICE_TYPES = {"cpu": _CPU, "interpreter": _CPU, "cuda": _CUDA, "opencl": _OPENCL}
_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_CODES = {"i": _SIGNED, "u": _UNSIGNED, "f": _FLOAT, "b": _BOOL}
_CODE_NAMES = {
    _SIGNED: "int",
    _UNSIGNED: "uint",
    _FLOAT: "float",
    _BFLOAT: "bfloat",
    _COMPLEX: "complex",
    _BOOL: "bool",
}
_READ_ONLY, _COPIED = 1, 2  # flags of versioned capsules; copied memory is the consumer's alone
_VERSIONED, _UNVERSIONED = b"dltensor_versioned", b"dltensor"
_NUMPY_HAS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class SupportsDLPack(Protocol):
    """An object with memory that other libraries can read by the DLPack protocol."""

    def __dlpack__(self, *, stream: None = None) -> Any: ...  # a PyCapsule, which has no name in Python 3.11


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor),
    )  # fmt: skip


_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _content(capsule: object) -> _Managed | _ManagedVersioned:
    """Return the structure that a capsule owns. Raises `ExchangeError` if it is none, or was consumed."""
    if _capsule_is_valid(capsule, _VERSIONED):
        content = _ManagedVersioned.from_address(_capsule_pointer(capsule, _VERSIONED))
        if content.major > 1:
            raise ExchangeError(f"from_dlpack: the memory has DLPack version {content.major}; up to 1 is known")
        return content
    if _capsule_is_valid(capsule, _UNVERSIONED):
        return _Managed.from_address(_capsule_pointer(capsule, _UNVERSIONED))
    raise ExchangeError("from_dlpack: __dlpack__ returned no DLPack capsule, or one that was consumed before")


class _Producer:
    """An object that hands over a capsule, whatever it is asked for."""

    def __init__(self, capsule: object):
        self._capsule = capsule

    def __dlpack__(self, **options: object) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CPU, 0)


class _Memory:
    """Memory as NumPy sees it: an address, which need not be one of the host, with the object that owns it."""

    def __init__(self, owner: object, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType):
        self.owner = owner
        kind = np.dtype(np.int16) if dtype is dtypes.bfloat16 else dtype.numpy
        self.__array_interface__ = {
            "shape": shape, "typestr": kind.str, "data": (address, False), "strides": strides, "version": 3,
        }  # fmt: skip


# Export ---------------------------------------------------------------------------------------------------------------


def dlpack_device(tensor: Tensor) -> tuple[int, int]:
    """Return DLPack's type and number of the device that has a tensor's memory.

    Raises:
        ExchangeError: DLPack has no type for it.
    """
    device = tensor.meta.device
    if device.type not in _DEVICE_TYPES:
        raise ExchangeError(f"__dlpack_device__: DLPack has no name for the device {device}")
    kind = _DEVICE_TYPES[device.type]
    return kind, 0 if kind == _CPU or device.index is None else device.index


def to_dlpack(
    tensor: Tensor, stream: int | None = None, max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None, copy: bool | None = None,
) -> Any:  # fmt: skip  # a PyCapsule, which has no name in Python 3.11
    """Return a DLPack capsule of a tensor's memory (`Tensor.__dlpack__`).

    Args:
        tensor: The tensor.
        stream: On a CUDA device, the consumer's stream; -1: do not wait. On other devices None or -1.
        max_version: The highest version that the consumer reads. From (1, 0) on, the capsule has a version and flags.
        dl_device: Type and number of the device that is to have the memory: the tensor's, or that of the host.
        copy: Whether to copy. None: if the device requires it. False: raise an error instead.

    Raises:
        ExchangeError: The tensor requires grad, or its memory cannot be handed over as the arguments demand.
    """
    refresh_views(tensor)
    if tensor.needs_grad:
        raise ExchangeError("__dlpack__: the tensor requires grad; use .detach()")
    own_device = dlpack_device(tensor)
    target = own_device if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if target not in (own_device, (_CPU, 0)) or target[0] == _OPENCL:
        remedy = "use .cpu(), or ask for dl_device=(1, 0)" if own_device[0] == _OPENCL else "use .to(device)"
        raise ExchangeError(f"__dlpack__: memory of {tensor.meta.device} cannot be handed over as {target}; {remedy}")
    if target != own_device and copy is False:
        raise ExchangeError(f"__dlpack__: memory of {tensor.meta.device} must be copied to the host; pass copy=None")
    if own_device[0] != _CUDA and stream not in (None, -1):
        raise ExchangeError(f"__dlpack__: the device {tensor.meta.device} has no stream {stream}; pass None")
    is_versioned = max_version is not None and max_version[0] >= 1
    if target[0] == _CPU:
        array = host_data.to_host(tensor)  # a copy, unless the memory is on the host
        is_copy = tensor.meta.device.driver.host_view(tensor.storage) is None if tensor.meta.numel else copy
        if copy and not is_copy:
            array, is_copy = array.copy(), True
    else:
        array, is_copy = _device_array(tensor, stream, bool(copy)), bool(copy)
    return _capsule(array, tensor.meta.dtype, target, is_versioned, bool(is_copy))


def cuda_array_interface(tensor: Tensor) -> dict[str, object]:
    """Return the description of a CUDA tensor's memory for Numba, CuPy and others (`__cuda_array_interface__`).

    Raises:
        AttributeError: The tensor is on another device, so that it has no such attribute.
        ExchangeError: The tensor requires grad, or its dtype is bfloat16, which the protocol lacks.
    """
    layout = tensor.meta
    if layout.device.type != "cuda":
        raise AttributeError(f"__cuda_array_interface__: the tensor is on {layout.device}; only those on cuda have it")
    refresh_views(tensor)
    if tensor.needs_grad:
        raise ExchangeError("__cuda_array_interface__: the tensor requires grad; use .detach()")
    if layout.dtype is dtypes.bfloat16:
        raise ExchangeError("__cuda_array_interface__: it has no bfloat16; use from_dlpack, or .float()")
    address = int(tensor.storage.buffer) + tensor.start if layout.numel else 0
    is_dense = tensor.is_contiguous()
    return {
        "shape": tuple(layout.shape), "typestr": layout.dtype.numpy.str, "data": (address, False),
        "strides": None if is_dense else tuple(s * layout.dtype.itemsize for s in layout.strides), "version": 3,
        "stream": _stream_handle(layout.device),
    }  # fmt: skip


def _stream_handle(device: Device) -> int:
    """Return the driver's number of this thread's stream for a CUDA device."""
    stream = current_stream(device)
    assert hasattr(stream, "handle")  # CUDA's
    return int(stream.handle)


def _device_array(tensor: Tensor, stream: int | None, copy: bool) -> Array:
    """Return an array over a CUDA device's memory, which is complete for work on any stream."""
    if copy:
        tensor = tensor.clone()
    if stream != -1:
        # The consumer's stream is a number of the driver, which it may have destroyed when an event is waited for.
        current_stream(tensor.meta.device).synchronize()
    if not tensor.meta.numel:
        return np.empty(tensor.meta.shape, tensor.meta.dtype.numpy)
    layout = tensor.meta
    address = int(tensor.storage.buffer) + tensor.start
    strides = tuple(s * layout.dtype.itemsize for s in layout.strides)
    return np.asarray(_Memory(tensor.storage, address, layout.shape, strides, layout.dtype))


def _capsule(array: Array, dtype: DType, target: tuple[int, int], is_versioned: bool, is_copy: bool) -> Any:
    options = {"max_version": (1, 0)} if is_versioned and _NUMPY_HAS_VERSIONS else {}
    capsule = array.__dlpack__(**options)  # type: ignore[arg-type]  # the stubs of older NumPy
    content = _content(capsule)
    content.tensor.device_type, content.tensor.device_id = target
    if dtype is dtypes.bfloat16:
        content.tensor.code = _BFLOAT
    elif dtype is dtypes.bool_:
        content.tensor.code = _BOOL
    if isinstance(content, _ManagedVersioned) and is_copy:
        content.flags |= _COPIED
    return capsule


# Import ---------------------------------------------------------------------------------------------------------------


def from_dlpack(
    source: Tensor | SupportsDLPack, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """Create a tensor that shares the memory of an array or of another library's tensor.

    Memory of the host and of CUDA devices is shared. Memory that is read-only, or has negative strides, is copied.

    Args:
        source: Object with `__dlpack__`, or a DLPack capsule. A tensor of ours is returned as it is.
        device: Device of the result; None: that of `source`. Memory of another device is copied.
        copy: Whether to copy the memory. None: if it cannot be shared. False: raise an error if it cannot be shared.

    Returns:
        Tensor of the shape and dtype of `source`.

    Raises:
        ExchangeError: The memory is on a device that is unknown here, or `copy` is False and it cannot be shared. It is
            a `BufferError`.
        DTypeError: No tensor has the dtype of `source`.

    Example:
        >>> import numpy as np
        >>> wg.from_dlpack(np.arange(3))
        tensor([0, 1, 2])
        >>> wg.from_dlpack(np.arange(3), copy=True)
        tensor([0, 1, 2])
    """
    if isinstance(source, Tensor):
        result, is_shared = source, True
    else:
        result, is_shared = _import(source, None if device is None else to_device(device), copy)
    if device is not None and to_device(device) != result.meta.device:
        if copy is False:
            raise ExchangeError(f"from_dlpack: the memory is on {result.meta.device}; pass copy=None to copy it")
        return result.to(to_device(device))
    return result.clone() if copy and is_shared else result


def _import(source: SupportsDLPack, target: Device | None, copy: bool | None) -> tuple[Tensor, bool]:
    """Return a tensor of the memory, and True if it shares the memory."""
    capsule = source if type(source).__name__ == "PyCapsule" else _request(source, target, copy)
    content = _content(capsule)
    memory = content.tensor
    dtype = _dtype(memory)
    strides = [memory.strides[i] for i in range(memory.ndim)] if memory.strides else None
    device_type, device_id = memory.device_type, memory.device_id
    if device_type not in (_CPU, _CUDA_HOST, _CUDA):
        raise ExchangeError(
            f"from_dlpack: memory of DLPack's device type {device_type} is unknown here; copy it to cpu"
        )
    with _rewritten(memory):
        array = np.from_dlpack(_Producer(capsule))  # NumPy's array owns the content of the capsule from here on
    if device_type == _CUDA:
        return _adopt_cuda(array, dtype, device_id), True
    flags = content.flags if isinstance(content, _ManagedVersioned) else 0
    problem = "is read-only, and tensors are not" if flags & _READ_ONLY else ""
    if strides is not None and any(s < 0 for s in strides):
        problem = "has negative strides"
    if problem and copy is False:
        raise ExchangeError(f"from_dlpack: the memory {problem}; do not pass copy=False")
    # NumPy takes memory without flags for read-only.
    array = (
        array.copy() if problem else np.asarray(_Memory(array, array.ctypes.data, array.shape, array.strides, dtype))
    )
    tensor = host_data.adopt(array)
    return tensor.view(dtype) if dtype is dtypes.bfloat16 else tensor, not problem and not flags & _COPIED


def _request(source: SupportsDLPack, target: Device | None, copy: bool | None) -> object:
    """Ask an object for its memory; one that knows no version, device or copy is asked without them."""
    try:
        device_type, device_id = source.__dlpack_device__()  # type: ignore[attr-defined]
        ask = source.__dlpack__
    except AttributeError:
        raise ArgumentError(
            f"from_dlpack: takes an object with __dlpack__ and __dlpack_device__, not {type(source).__name__}"
        ) from None
    options: dict[str, Any] = {}
    if int(device_type) == _CUDA:
        options["stream"] = _stream_handle(to_device(f"cuda:{device_id}"))
    further: dict[str, Any] = {"max_version": (1, 0)}
    if copy is not None:
        further["copy"] = copy
    if target is not None and target.type == "cpu" and int(device_type) not in (_CPU, _CUDA_HOST):
        further["dl_device"] = (_CPU, 0)
    try:
        return ask(**options, **further)
    except TypeError:  # a producer from before DLPack 1.0
        return ask(**options)


def _dtype(memory: _DLTensor) -> DType:
    if memory.lanes == 1:
        if (memory.code, memory.bits) == (_BFLOAT, 16):
            return dtypes.bfloat16
        for dtype in dtypes.BY_NAME.values():
            if dtype is not dtypes.bfloat16 and (_CODES[dtype.kind], dtype.itemsize * 8) == (memory.code, memory.bits):
                return dtype
    name = f"{_CODE_NAMES.get(memory.code, f'type {memory.code} of')}{memory.bits}"
    vector = f" in vectors of {memory.lanes}" if memory.lanes != 1 else ""
    raise DTypeError(f"from_dlpack: there are no tensors of {name}{vector}; use one of {', '.join(dtypes.BY_NAME)}")


@contextmanager
def _rewritten(memory: _DLTensor) -> Iterator[None]:
    """Describe memory as an array of the host with a dtype of NumPy's while NumPy reads it."""
    old_values = memory.device_type, memory.device_id, memory.code
    memory.device_type, memory.device_id = _CPU, 0
    if memory.code == _BFLOAT:
        memory.code = _SIGNED  # `adopt` then takes it as int16
    try:
        yield
    finally:
        memory.device_type, memory.device_id, memory.code = old_values


def _adopt_cuda(array: Array, dtype: DType, device_id: int) -> Tensor:
    """Return a tensor over the memory of a CUDA device whose address is that of `array`, which owns it."""
    device = to_device(f"cuda:{device_id}")
    strides = tuple(s // dtype.itemsize for s in array.strides)
    contents = meta(dtype, array.shape, strides, device)
    if not contents.numel:
        return empty(meta(dtype, array.shape, None, device))
    if any(s < 0 for s in strides):
        raise ExchangeError("from_dlpack: memory of a GPU with negative strides is not supported; copy it first")
    extent = 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    storage = Storage(device, extent * dtype.itemsize, None, None, array.ctypes.data, 0, array)
    return Tensor(storage, contents, 0)
