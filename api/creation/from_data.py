"""Create tensors from Python numbers and sequences, NumPy arrays, buffers and other libraries' tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..arguments.descriptions import OPTIONS, describe
from ..runtime import dtypes, host_data
from ..runtime.device import DeviceLike
from ..runtime.device import device as to_device
from ..runtime.dtypes import Array, DType, DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import to_dtype_number
from .options import finalize_output

if TYPE_CHECKING:
    from array import array
    from mmap import mmap

__all__ = ["as_tensor", "asarray", "from_dlpack", "from_numpy", "frombuffer", "tensor"]


class SupportsDLPack(Protocol):
    """An object with memory that other libraries can read by the DLPack protocol."""

    def __dlpack__(self, *, stream: None = None) -> Any: ...  # a PyCapsule, which has no name in Python 3.11


@describe(OPTIONS)
def tensor(
    data: object, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create a leaf tensor with a copy of `data`.

    Args:
        data: A number, nested sequences, a NumPy array, or a tensor. Tensors of one element in a sequence are numbers.
        dtype: Dtype of the result. By default Python floats get the default dtype, ints int64; arrays and NumPy scalars
            keep theirs.

    Returns:
        Tensor of the shape of `data`.

    Raises:
        ArgumentError: The data is ragged, has a tensor of several elements in a list, or a Python number does not fit
            the integer dtype (array elements wrap).

    Example:
        >>> wg.tensor([[1, 2], [3, 4]])
        tensor([[1, 2],
                [3, 4]])
        >>> wg.tensor(0.5)
        tensor(0.5000)
    """
    if isinstance(data, Tensor):
        output = _copy_tensor(data, dtype, device)
    else:
        array = _as_array(data)
        target_dtype = dtypes.parse(dtype) if dtype is not None else _dtype_of(array, data)
        if target_dtype.kind in "ui" and array.size and not isinstance(data, (np.ndarray, np.generic)):
            for extreme in (array.min(), array.max()):  # an array wraps around, a number is an error
                to_dtype_number(extreme, target_dtype, "tensor")
        output = host_data.from_host(array, target_dtype, to_device(device))
    return finalize_output(output, "tensor", requires_grad, pin_memory=pin_memory)


def _as_array(data: object) -> Array:
    """Return the data as an array, or raise `ArgumentError` if no tensor can hold it."""
    if isinstance(data, (list, tuple)) and _has_tensor(data):
        data = _host_lists(data)
    try:
        array = np.asarray(data)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(f"tensor: cannot make one from {type(data).__name__}: {error}") from None
    # NumPy stores integers of more than 63 bits as uint64, and of more than 64 bits as objects.
    are_numbers = array.dtype == object and array.size and all(isinstance(x, (bool, int, float)) for x in array.flat)
    if are_numbers or (array.dtype == np.uint64 and not isinstance(data, (np.ndarray, np.generic))):
        raise ArgumentError("tensor: an integer is out of the range of int64; write it as a float")
    if array.dtype == object or array.dtype.kind in "USV":
        raise ArgumentError(f"tensor: cannot make one from {type(data).__name__} with elements of {array.dtype}")
    return array


def _has_tensor(data: Iterable[object]) -> bool:
    return any(isinstance(x, Tensor) or (isinstance(x, (list, tuple)) and _has_tensor(x)) for x in data)


def _host_lists(data: object) -> object:
    """Return nested sequences with their tensors replaced by arrays."""
    if isinstance(data, Tensor):
        if data.meta.numel != 1:
            raise ArgumentError(
                f"tensor: takes only tensors of one element in a list, as numbers; this one has shape "
                f"{list(data.shape)}: join it with the others by stack() or cat()"
            )
        return host_data.host_array(data.detach()).reshape(())
    return [_host_lists(x) for x in data] if isinstance(data, (list, tuple)) else data


def _dtype_of(array: Array, data: object) -> DType:
    """Return the dtype of the result for `data` without a requested one; `array` is `data` as an array."""
    if isinstance(data, (np.ndarray, np.generic)):
        return dtypes.from_numpy(array.dtype)
    if array.dtype.kind == "f":
        float_dtypes = {
            t if isinstance(t, DType) else dtypes.from_numpy(t) if isinstance(t, np.dtype) else dtypes.default_dtype()
            for t in _float_types(data)
        }
        return reduce(dtypes.promote, float_dtypes) if float_dtypes else dtypes.default_dtype()
    return dtypes.from_numpy(array.dtype) if array.size else dtypes.default_dtype()


def _float_types(data: object) -> set[object]:
    """Return the types of the floating numbers in nested sequences: `float`, and dtypes of tensors and NumPy data."""
    if not isinstance(data, (list, tuple)):
        return {getattr(data, "dtype", float)}
    float_types: set[object] = set()
    for value_type in set(map(type, data)):
        if issubclass(value_type, (list, tuple)):
            float_types.update(*(_float_types(x) for x in data if isinstance(x, value_type)))
        elif issubclass(value_type, (np.generic, np.ndarray)):
            float_types.update(x.dtype for x in data if isinstance(x, value_type) and x.dtype.kind == "f")
        elif issubclass(value_type, Tensor):
            float_types.update(x.meta.dtype for x in data if isinstance(x, value_type) and x.meta.dtype.kind == "f")
        elif issubclass(value_type, float):
            float_types.add(float)
    return float_types


def _copy_tensor(source: Tensor, dtype: DTypeLike | None, device: DeviceLike | None) -> Tensor:
    return source.detach().to(device=device, dtype=dtype, copy=True)


@describe(OPTIONS)
def as_tensor(data: object, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Convert `data` to a tensor; share its memory where dtype and device allow that.

    Args:
        data: A tensor, a NumPy array, nested sequences, or a number.
        dtype: Dtype of the result; None: that of a tensor or array, else chosen by the numbers, as in `tensor`.

    Returns:
        `data` itself if it is such a tensor; a tensor over an array's memory if that is writable and on the host; else
        a copy.

    Example:
        >>> x = wg.tensor([1, 2])
        >>> wg.as_tensor(x) is x
        True
        >>> wg.as_tensor([1.0, 2.0])
        tensor([1., 2.])
    """
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    on_host = to_device(device).type == "cpu"
    if isinstance(data, np.ndarray) and dtype is None and on_host and _can_share(data):
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


def _can_share(array: Array) -> bool:
    """Return True if a tensor can share the memory of `array`."""
    return bool(array.flags.writeable) and all(s >= 0 and not s % array.itemsize for s in array.strides)


@describe(OPTIONS)
def asarray(
    obj: object, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Convert `obj` (a tensor, an array, nested sequences, a number) to a tensor.

    Args:
        obj: The data.
        dtype: Dtype of the result.
        copy: True always copies, None copies where needed, False never copies.

    Returns:
        Tensor of the shape of `obj`.

    Raises:
        ArgumentError: `copy` is False and the memory cannot be shared.

    Example:
        >>> wg.asarray((1, 2), dtype=wg.float32)
        tensor([1., 2.])
    """
    output = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)
    if copy is False and not (output is obj or (isinstance(obj, np.ndarray) and np.shares_memory(obj, output.numpy()))):
        raise ArgumentError("asarray: the memory cannot be shared; do not pass copy=False")
    return finalize_output(output, "asarray", requires_grad)


def from_numpy(array: Array) -> Tensor:
    """Create a `cpu` tensor that shares the memory of `array`.

    A read-only array is copied, with a warning.

    Args:
        array: Array of a dtype that tensors have.

    Returns:
        Tensor of the shape, dtype and strides of `array`.

    Raises:
        ArgumentError: Strides are negative, or no multiples of the element's size.

    Example:
        >>> import numpy as np
        >>> array = np.zeros(2)
        >>> tensor = wg.from_numpy(array)
        >>> array[0] = 5
        >>> tensor
        tensor([5., 0.], dtype=weftgrad.float64)
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"from_numpy: takes a numpy.ndarray, not {type(array).__name__}")
    if not array.flags.writeable:
        warnings.warn("from_numpy: the array is not writable, so the tensor is a copy of it", UserWarning, stacklevel=2)
        array = array.copy()
    return host_data.adopt(array)


def frombuffer(
    buffer: bytes | bytearray | memoryview | array[int] | array[float] | mmap | Array,
    *,
    dtype: DTypeLike,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """Create a 1-d `cpu` tensor that shares the memory of a buffer. A read-only buffer is copied, with a warning.

    Args:
        buffer: A bytearray, an array or a memoryview.
        dtype: Dtype of the elements.
        count: Number of elements; -1 for all.
        offset: Bytes to skip at the start.
        requires_grad: Whether to record operations on the result.

    Returns:
        Vector of the buffer's elements.

    Raises:
        ArgumentError: The buffer is too short.

    Example:
        >>> wg.frombuffer(bytearray([1, 2, 3]), dtype=wg.uint8, offset=1)
        tensor([2, 3], dtype=weftgrad.uint8)
    """
    target_dtype = dtypes.parse(dtype)
    if target_dtype.name == "bfloat16":
        return frombuffer(buffer, dtype=dtypes.int16, count=count, offset=offset).view(target_dtype)
    try:
        array = np.frombuffer(buffer, target_dtype.numpy, count, offset)
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"frombuffer: {error}") from None
    return finalize_output(from_numpy(array), "frombuffer", requires_grad)


def from_dlpack(source: Tensor | SupportsDLPack) -> Tensor:
    """Create a tensor that shares the memory of an object with `__dlpack__` on the host.

    Args:
        source: Object with `__dlpack__`, such as a NumPy array or another library's tensor, in host memory.

    Returns:
        Tensor of the shape and dtype of `source`.

    Example:
        >>> import numpy as np
        >>> wg.from_dlpack(np.arange(3))
        tensor([0, 1, 2])
    """
    if isinstance(source, Tensor):
        return source
    array = np.from_dlpack(source)
    return host_data.adopt(array if array.flags.writeable else array.copy())
