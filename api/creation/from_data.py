"""Create tensors from Python numbers and sequences, NumPy arrays, buffers and other libraries' tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

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

__all__ = ["as_tensor", "asarray", "from_numpy", "frombuffer", "tensor"]


@describe(OPTIONS)
def tensor(
    data: object, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create a leaf tensor with a copy of `data`.

    Args:
        data: A number, nested sequences of numbers, a NumPy array, or a tensor. A sequence may also have one-element
            tensors, which count as numbers.
        dtype: Dtype of the result. None: the default dtype for Python floats, int64 for ints, bool for bools, and the
            dtype of a tensor, NumPy array or NumPy scalar.

    Returns:
        Tensor of the shape of `data`.

    Raises:
        ArgumentError: The nested sequences have different lengths, a sequence has a tensor with several elements, or a
            Python number is out of the range of an integer dtype (elements of NumPy arrays wrap around instead).

    Example:
        >>> wg.tensor([[1, 2], [3, 4]])
        tensor([[1, 2],
                [3, 4]])
        >>> wg.tensor(0.5)
        tensor(0.5000)
    """
    if isinstance(data, Tensor):
        output = data.detach().to(device=device, dtype=dtype, copy=True)
    else:
        array = _as_array(data)
        target_dtype = dtypes.parse(dtype) if dtype is not None else _dtype_of(array, data)
        if target_dtype.kind in "ui" and array.size and not isinstance(data, (np.ndarray, np.generic)):
            # NumPy arrays wrap around silently, as in PyTorch; Python numbers out of range are an error.
            for extreme in (array.min(), array.max()):
                to_dtype_number(extreme, target_dtype, "tensor")
        output = host_data.from_host(array, target_dtype, to_device(device))
    return finalize_output(output, "tensor", requires_grad, pin_memory=pin_memory)


def _as_array(data: object) -> Array:
    """Return the data as an array. Raises `ArgumentError` if no tensor can hold it."""
    if isinstance(data, (list, tuple)) and _has_tensor(data):
        data = _replace_tensors(data)
    try:
        array = np.asarray(data)
    except (ValueError, TypeError, OverflowError) as error:
        remedy = "; convert it with .float() first" if _is_foreign(type(data)) and "BFloat16" in str(error) else ""
        raise ArgumentError(f"tensor: cannot make one from {type(data).__name__}: {error}{remedy}") from None
    # NumPy converts Python integers beyond int64 to uint64, and those beyond uint64 to objects.
    is_uint64 = array.dtype == np.uint64 and not isinstance(data, (np.ndarray, np.generic))
    is_beyond_64_bits = array.dtype == object and array.size and all(isinstance(x, (int, float)) for x in array.flat)
    if is_uint64 or is_beyond_64_bits:
        raise ArgumentError("tensor: an integer is out of the range of int64; write it as a float")
    if array.dtype.kind in "OUSV" and array.dtype.name != "bfloat16":  # objects, texts, bytes, records; not ml_dtypes'
        raise ArgumentError(f"tensor: cannot make one from {type(data).__name__} with elements of {array.dtype}")
    return array


def _has_tensor(data: Iterable[object]) -> bool:
    return any(isinstance(x, Tensor) or (isinstance(x, (list, tuple)) and _has_tensor(x)) for x in data)


def _replace_tensors(data: object) -> object:
    """Return nested sequences with each tensor replaced by a 0-d array. Raises `ArgumentError` for larger tensors."""
    if isinstance(data, Tensor):
        if data.meta.numel != 1:
            raise ArgumentError(
                f"tensor: a sequence may have tensors of one element, but one has shape {list(data.shape)}; join "
                "tensors with stack() or cat()"
            )
        return host_data.host_array(data.detach()).reshape(())
    return [_replace_tensors(x) for x in data] if isinstance(data, (list, tuple)) else data


def _dtype_of(array: Array, data: object) -> DType:
    """Return the dtype of `tensor(data)` if the caller requests none; `array` is `data` as an array."""
    if isinstance(data, (np.ndarray, np.generic)) or _is_foreign(type(data)):
        return dtypes.from_numpy(array.dtype)
    if array.dtype.kind == "f":
        return reduce(dtypes.promote, _float_dtypes(data) or {dtypes.default_dtype()})
    return dtypes.from_numpy(array.dtype) if array.size else dtypes.default_dtype()


def _is_foreign(data_type: type) -> bool:
    """Return True for another library's tensors, which NumPy converts to arrays of their dtype."""
    return hasattr(data_type, "__array__") and not issubclass(data_type, (np.ndarray, np.generic, Tensor))


def _float_dtypes(data: object) -> set[DType]:
    """Return the dtypes of the floating numbers in nested sequences. A Python float has the default dtype."""
    if not isinstance(data, (list, tuple)):
        dtype = getattr(data, "dtype", None)
        return {dtypes.from_numpy(dtype) if isinstance(dtype, np.dtype) else dtypes.default_dtype()}
    float_dtypes: set[DType] = set()
    for item_type in set(map(type, data)):  # types first: a long list of floats is read only once
        if issubclass(item_type, (list, tuple)):
            float_dtypes.update(*(_float_dtypes(x) for x in data if isinstance(x, item_type)))
        elif issubclass(item_type, (np.generic, np.ndarray)):
            numpy_dtypes = {x.dtype for x in data if isinstance(x, item_type) and x.dtype.kind == "f"}
            float_dtypes.update(map(dtypes.from_numpy, numpy_dtypes))
        elif issubclass(item_type, Tensor):
            float_dtypes.update(x.meta.dtype for x in data if isinstance(x, item_type) and x.meta.dtype.kind == "f")
        elif issubclass(item_type, float):
            float_dtypes.add(dtypes.default_dtype())
        elif _is_foreign(item_type):
            numpy_dtypes = {np.asarray(x).dtype for x in data if isinstance(x, item_type)}
            float_dtypes.update(dtypes.from_numpy(dtype) for dtype in numpy_dtypes if dtype.kind == "f")
    return float_dtypes


@describe(OPTIONS)
def as_tensor(data: object, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Convert `data` to a tensor; share its memory where dtype and device allow that.

    Args:
        data: A tensor, a NumPy array, nested sequences of numbers, or a number.
        dtype: Dtype of the result. None: as in `tensor`.

    Returns:
        `data` itself if it is a tensor with this dtype and device. For a writable NumPy array, a `cpu` device and no
        `dtype`, a tensor that shares the array's memory. Else a copy.

    Raises:
        ArgumentError: As in `tensor`.

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
    """Convert `obj` to a tensor.

    Args:
        obj: A tensor, a NumPy array, nested sequences of numbers, or a number.
        dtype: Dtype of the result. None: as in `tensor`.
        copy: Whether to copy the memory. None: copy if it cannot be shared. False: raise an error if it cannot be
            shared.

    Returns:
        Tensor of the shape of `obj`.

    Raises:
        ArgumentError: `copy` is False and the memory cannot be shared, or as in `tensor`.

    Example:
        >>> wg.asarray((1, 2), dtype=wg.float32)
        tensor([1., 2.])
    """
    output = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)
    is_shared = output is obj or (isinstance(obj, np.ndarray) and np.shares_memory(obj, output.numpy()))
    if copy is False and not is_shared:
        raise ArgumentError(f"asarray: the memory of {type(obj).__name__} cannot be shared; do not pass copy=False")
    return finalize_output(output, "asarray", requires_grad)


def from_numpy(array: Array) -> Tensor:
    """Create a `cpu` tensor that shares the memory of `array`.

    A read-only array is copied, with a warning.

    Args:
        array: Array of bool, uint8, a signed integer dtype, float16, float32 or float64.

    Returns:
        Tensor of the shape, dtype and strides of `array`.

    Raises:
        ArgumentError: `array` is not a NumPy array, or a stride is negative or not a multiple of the element's size.
        DTypeError: No tensor has the dtype of `array`.

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
    return _share_or_copy(array, "from_numpy")


def _share_or_copy(array: Array, where: str) -> Tensor:
    """Return a tensor that shares the memory of `array`, or has a copy of it, with a warning, if it is read-only."""
    if not array.flags.writeable:
        warnings.warn(f"{where}: the memory is not writable, so the tensor is a copy", UserWarning, stacklevel=3)
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
        buffer: An object with the buffer protocol, such as bytes, a bytearray, a memoryview or an `array.array`.
        dtype: Dtype of the elements.
        count: Number of elements; -1 for all.
        offset: Bytes to skip at the start.
        requires_grad: Whether to record operations on the result.

    Returns:
        Vector of the buffer's elements.

    Raises:
        ArgumentError: `buffer` is not a buffer, or it is too short for `count` and `offset`.

    Example:
        >>> wg.frombuffer(bytearray([1, 2, 3]), dtype=wg.uint8, offset=1)
        tensor([2, 3], dtype=weftgrad.uint8)
    """
    target_dtype = dtypes.parse(dtype)
    is_bfloat16 = target_dtype is dtypes.bfloat16
    try:
        # NumPy has no bfloat16.
        array = np.frombuffer(buffer, np.dtype(np.int16) if is_bfloat16 else target_dtype.numpy, count, offset)
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"frombuffer: {error}") from None
    output = _share_or_copy(array, "frombuffer")
    return finalize_output(output.view(target_dtype) if is_bfloat16 else output, "frombuffer", requires_grad)
