"""Create tensors: from data, filled with a value, or as a sequence. Names and arguments are PyTorch's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, overload

import numpy as np

from ..runtime import dtypes, host_data
from ..runtime.device import device as to_device
from ..runtime.device import meta
from ..runtime.dispatch import call, call_into
from ..runtime.dispatch import empty as _empty
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, UnsupportedDType
from ..runtime.layout import strides_like
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors, to_dtype_number, to_integer
from .options import allocate_output, finalize_output, resolve_dtype_and_device, shape_of

__all__ = [
    "arange", "as_tensor", "asarray", "empty", "empty_like", "empty_strided", "eye", "from_dlpack", "from_numpy",
    "frombuffer", "full", "full_like", "linspace", "logspace", "ones", "ones_like", "scalar_tensor", "tensor", "zeros",
    "zeros_like",
]  # fmt: skip


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """Create a leaf tensor with a copy of `data`.

    Args:
        data: A number, nested sequences, a NumPy array, or a tensor.
        dtype: Dtype of the result. By default Python floats get the default dtype, ints int64; arrays and NumPy scalars
            keep theirs.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.

    Returns:
        Tensor of the shape of `data`.

    Raises:
        ArgumentError: The data is ragged, or a Python number does not fit the integer dtype (array elements wrap).

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


def _as_array(data: Any) -> np.ndarray[Any, Any]:
    if isinstance(data, (list, tuple)) and _has_tensor(data):
        data = _host_lists(data)
    try:
        array = np.asarray(data)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(f"tensor: cannot make one from {type(data).__name__}: {error}") from None
    numbers = array.dtype == object and array.size and all(isinstance(x, (bool, int, float)) for x in array.flat)
    if numbers or (array.dtype == np.uint64 and not isinstance(data, (np.ndarray, np.generic))):
        raise ArgumentError("tensor: an integer is beyond the range of int64; write it as a float")
    if array.dtype == object or array.dtype.kind in "USV":
        raise ArgumentError(f"tensor: cannot make one from {type(data).__name__} with elements of {array.dtype}")
    return array


def _has_tensor(data: Any) -> bool:
    return any(isinstance(x, Tensor) or (isinstance(x, (list, tuple)) and _has_tensor(x)) for x in data)


def _host_lists(data: Any) -> Any:
    if isinstance(data, Tensor):
        return host_data.host_array(data)
    return [_host_lists(x) for x in data] if isinstance(data, (list, tuple)) else data


def _dtype_of(array: np.ndarray[Any, Any], data: Any) -> DType:
    if isinstance(data, (np.ndarray, np.generic)):
        return dtypes.from_numpy(array.dtype)
    if array.dtype.kind == "f":
        float_dtypes = {
            dtypes.from_numpy(t) if isinstance(t, np.dtype) else dtypes.default_dtype() for t in _float_types(data)
        }
        return reduce(dtypes.promote, float_dtypes) if float_dtypes else dtypes.default_dtype()
    return dtypes.from_numpy(array.dtype) if array.size else dtypes.default_dtype()


def _float_types(data: Any) -> set[Any]:
    """Return the types of the floating numbers in nested sequences: `float`, and dtypes of NumPy scalars and arrays."""
    if not isinstance(data, (list, tuple)):
        return {getattr(data, "dtype", float)}
    float_types: set[Any] = set()
    for value_type in set(map(type, data)):
        if issubclass(value_type, (list, tuple)):
            float_types.update(*(_float_types(x) for x in data if isinstance(x, value_type)))
        elif issubclass(value_type, (np.generic, np.ndarray)):
            float_types.update(x.dtype for x in data if isinstance(x, value_type) and x.dtype.kind == "f")
        elif issubclass(value_type, float):
            float_types.add(float)
    return float_types


def _copy_tensor(source: Tensor, dtype: Any, device: Any) -> Tensor:
    return source.detach().to(device=device, dtype=dtype, copy=True)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Convert `data` to a tensor; share its memory where dtype and device allow that.

    Args:
        data: A tensor, a NumPy array, nested sequences, or a number.
        dtype: Dtype of the result; None: that of a tensor or array, else chosen by the numbers, as in `tensor`.
        device: Device of the result.

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


def _can_share(array: np.ndarray[Any, Any]) -> bool:
    """Return True if a tensor can share the memory of `array`."""
    return bool(array.flags.writeable) and all(s >= 0 and not s % array.itemsize for s in array.strides)


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """Convert `obj` (a tensor, an array, nested sequences, a number) to a tensor.

    Args:
        obj: The data.
        dtype: Dtype of the result.
        device: Device of the result.
        copy: True always copies, None copies where needed, False never copies.
        requires_grad: Whether to record operations on the result.

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
        raise ArgumentError("asarray: the memory cannot be shared; leave copy=False away")
    return finalize_output(output, "asarray", requires_grad)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
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


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
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


def from_dlpack(source: Any) -> Tensor:
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


@overload
def empty(
    *size: int | Sequence[int], out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor: ...  # fmt: skip
@overload
def empty(
    *, size: int | Sequence[int], out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor: ...  # fmt: skip
def empty(
    *size: Any, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None, **named: Any,
) -> Tensor:  # fmt: skip
    """Create an uninitialised tensor. Pass the shape as ints, as one sequence, or as `size=`.

    Args:
        *size: The shape, as ints or as one sequence.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: the default dtype.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        memory_format: Accepted for compatibility with PyTorch.
        **named: `size=`: the shape, as a sequence.

    Returns:
        Tensor of shape `size`, whose elements are undefined.

    Example:
        >>> wg.empty(2, 3).shape
        weftgrad.Size([2, 3])
    """
    output = allocate_output("empty", size, named, dtype, device, out)
    return finalize_output(output, "empty", requires_grad, None, layout, pin_memory)


def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Create an uninitialised tensor of shape `size` with strides `stride`, in elements.

    Args:
        size: Shape.
        stride: Distance between neighbours along each dimension, in elements.
        dtype: Dtype of the result; None: the default dtype.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.

    Returns:
        Tensor of shape `size`, whose elements are undefined.

    Example:
        >>> wg.empty_strided((2, 3), (1, 2)).stride()
        (1, 2)
    """
    target_dtype = dtypes.parse(dtype or dtypes.default_dtype())
    output = _empty(meta(target_dtype, shape_of((tuple(size),)), tuple(stride), to_device(device)))
    return finalize_output(output, "empty_strided", requires_grad)


def full(
    size: Sequence[int], fill_value: Any, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create a tensor of shape `size` filled with `fill_value`.

    Without `dtype`, the number's type decides the dtype.

    Args:
        size: Shape.
        fill_value: Number, or a tensor of one element.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: bool, int64 or the default dtype, by the number's type.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.

    Returns:
        Tensor of shape `size`.

    Example:
        >>> wg.full((2, 2), 7)
        tensor([[7, 7],
                [7, 7]])
    """
    if isinstance(fill_value, (Tensor, np.generic)):
        fill_value = fill_value.item()
    if not isinstance(size, (tuple, list)):
        raise ArgumentError(f"full: size must be a tuple of ints, not {size!r}")
    if not isinstance(fill_value, (bool, int, float)):
        raise ArgumentError(f"full: the value must be a number, not {fill_value!r}")
    target_dtype = dtypes.number_dtype(fill_value) if dtype is None and out is None else dtype
    output = _fill_output(allocate_output("full", (tuple(size),), {}, target_dtype, device, out), fill_value, out)
    return finalize_output(output, "full", requires_grad, None, layout, pin_memory)


def _fill_output(output: Tensor, value: Any, out: Tensor | None) -> Tensor:
    return _fill_constant(output, value) if out is None else out.fill_(value)


def _fill_constant(output: Tensor, value: Any) -> Tensor:
    if output.meta.numel:
        number = to_dtype_number(value, output.meta.dtype, "full")
        if not getattr(output.meta.device.driver, "opened", True):  # host memory: do not open a driver for a constant
            host_data.fill(output, number)
            return output
        version = output.storage.version
        call_into(registry["fill"], (output, number), (), (output,), in_place=False)
        output.storage.version = version
    return output


@overload
def zeros(
    *size: int | Sequence[int], out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def zeros(
    *, size: int | Sequence[int], out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
def zeros(
    *size: Any, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, **named: Any,
) -> Tensor:  # fmt: skip
    """Create a tensor of zeros. Pass the shape as ints, as one sequence, or as `size=`.

    Args:
        *size: The shape, as ints or as one sequence.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: the default dtype.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        **named: `size=`: the shape, as a sequence.

    Returns:
        Tensor of shape `size`.

    Example:
        >>> wg.zeros(2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    output = _fill_output(allocate_output("zeros", size, named, dtype, device, out), 0, out)
    return finalize_output(output, "zeros", requires_grad, None, layout, pin_memory)


@overload
def ones(
    *size: int | Sequence[int], out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def ones(
    *, size: int | Sequence[int], out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
def ones(
    *size: Any, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, **named: Any,
) -> Tensor:  # fmt: skip
    """Create a tensor of ones. Pass the shape as ints, as one sequence, or as `size=`.

    Args:
        *size: The shape, as ints or as one sequence.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: the default dtype.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        **named: `size=`: the shape, as a sequence.

    Returns:
        Tensor of shape `size`.

    Example:
        >>> wg.ones(2, dtype=wg.int64)
        tensor([1, 1])
    """
    output = _fill_output(allocate_output("ones", size, named, dtype, device, out), 1, out)
    return finalize_output(output, "ones", requires_grad, None, layout, pin_memory)


def empty_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Create an uninitialised tensor with the shape, dtype and device of `input`.

    It has the strides of `input` if these are dense, or row-major ones with `memory_format=contiguous_format`.

    Args:
        input: Tensor of any dtype.
        dtype: Dtype of the result; None: that of `input`.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result; None: that of `input`.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        memory_format: `contiguous_format`: row-major strides; else the strides of `input` if they are dense.

    Returns:
        Tensor of the shape of `input`, whose elements are undefined.

    Example:
        >>> wg.empty_like(wg.ones(2, 3)).shape
        weftgrad.Size([2, 3])
    """
    only_tensors("empty_like", input)
    target_dtype = input.meta.dtype if dtype is None else dtypes.parse(dtype)
    target_device = input.meta.device if device is None else to_device(device)
    strides = None if memory_format == "contiguous_format" else strides_like(input.meta)
    output = _empty(meta(target_dtype, input.meta.shape, strides, target_device))
    return finalize_output(output, "empty_like", requires_grad, None, layout, pin_memory)


def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Create a tensor with the shape, dtype and device of `input`, filled with `fill_value`.

    Args:
        input: Tensor of any dtype.
        fill_value: Number.
        dtype: Dtype of the result; None: that of `input`.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result; None: that of `input`.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        memory_format: Accepted for compatibility with PyTorch.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.full_like(wg.zeros(2), 3)
        tensor([3., 3.])
    """
    only_tensors("full_like", input)
    output = _fill_constant(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), fill_value)
    return finalize_output(output, "full_like", requires_grad, None, layout, pin_memory)


def zeros_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Create a tensor of zeros with the shape, dtype and device of `input`.

    Args:
        input: Tensor of any dtype.
        dtype: Dtype of the result; None: that of `input`.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result; None: that of `input`.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        memory_format: Accepted for compatibility with PyTorch.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.zeros_like(wg.tensor([1, 2]))
        tensor([0, 0])
    """
    only_tensors("zeros_like", input)
    output = _fill_constant(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), 0)
    return finalize_output(output, "zeros_like", requires_grad, None, layout, pin_memory)


def ones_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Create a tensor of ones with the shape, dtype and device of `input`.

    Args:
        input: Tensor of any dtype.
        dtype: Dtype of the result; None: that of `input`.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result; None: that of `input`.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        memory_format: Accepted for compatibility with PyTorch.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.ones_like(wg.tensor([1, 2]))
        tensor([1, 1])
    """
    only_tensors("ones_like", input)
    output = _fill_constant(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), 1)
    return finalize_output(output, "ones_like", requires_grad, None, layout, pin_memory)


def scalar_tensor(value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Create a 0-d tensor, of the default dtype unless `dtype` is set.

    Args:
        value: Number.
        dtype: Dtype of the result; None: the default dtype.
        device: Device of the result.

    Returns:
        Tensor of shape `()`.

    Example:
        >>> wg.scalar_tensor(3)
        tensor(3.)
    """
    return full((), value, dtype=dtype or dtypes.default_dtype(), device=device)


def _endpoint(value: Any, where: str, finite: bool = True) -> bool | int | float:
    """Return a Python number, from a number or a tensor or array of one element."""
    number = value.item() if isinstance(value, (Tensor, np.generic, np.ndarray)) else value
    if not isinstance(number, (bool, int, float)) or not (math.isfinite(number) or not finite):
        raise ArgumentError(f"{where}: takes {'finite ' if finite else ''}numbers, not {value!r}")
    return number


def _fill_progression(
    name: str, count: int, dtype: DType, device: Any, numbers: tuple[int | float, ...], host_formula: Callable[..., Any]
) -> Tensor:
    """Create a vector filled by the op `name`, or by `host_formula`, which gives the same bits without a driver."""
    output = _empty(meta(dtype, (count,), None, device))
    if not getattr(device.driver, "opened", True):  # as for constants
        with np.errstate(all="ignore"):
            values = host_formula(np.arange(count), *numbers)
            if dtype.kind == "f" and dtype.itemsize == 2:  # kernels also round doubles to half types through float32
                values = values.astype(np.float32)
            return host_data.from_host(values, dtype, device)
    if count:
        call_into(registry[name], (output, *numbers), (), (output,), in_place=False)
        output.storage.version = 0
    return output


def _linspace_values(
    i: np.ndarray[Any, Any], start: float, end: float, step: float, last: float
) -> np.ndarray[Any, Any]:
    return np.where(2 * i < last, start + step * i, end - step * (last - i))


def arange(
    start: Any = None, end: Any = None, step: Any = 1, *, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create the vector `start, start + step, ...` of the values below `end`.

    Args:
        start: First value (default 0). A single argument is the end.
        end: Upper bound, not included.
        step: Distance between values; not 0.
        out: Tensor to write the result to.
        dtype: int64 if all three numbers are integers, else the default dtype. For an integer dtype, `start` and `step`
            are rounded towards zero first, as in PyTorch. Floats are computed in float64 where the device has it.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.

    Returns:
        Vector of ceil((end - start) / step) elements.

    Raises:
        ArgumentError: The step is 0 or has the wrong sign.
        UnsupportedDType: `dtype` is bool.

    Example:
        >>> wg.arange(5)
        tensor([0, 1, 2, 3, 4])
        >>> wg.arange(1, 2, 0.25)
        tensor([1.0000, 1.2500, 1.5000, 1.7500])
    """
    if start is None and end is None:
        raise ArgumentError("arange: takes an end")
    if end is None or start is None:
        start, end = 0, start if end is None else end
    integral = type(start) is type(end) is type(step) is int
    if not integral:
        start, end, step = (_endpoint(x, "arange") for x in (start, end, step))
        integral = all(isinstance(x, int) for x in (start, end, step))
    target_dtype, target_device = resolve_dtype_and_device(dtype, device, out, dtypes.int64 if integral else None)
    if target_dtype is dtypes.bool_:
        raise UnsupportedDType("arange: counts in integers or floats, not in bool; convert with .bool()")
    if target_dtype is dtypes.int64:
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        raise ArgumentError("arange: the step must not be 0")
    if (end - start) * step < 0:
        raise ArgumentError(f"arange: steps of {step!r} do not lead from {start!r} to {end!r}")
    count = -(-(end - start) // step) if target_dtype is dtypes.int64 else math.ceil((end - start) / step)
    number_dtype = dtypes.float64 if target_dtype.kind == "f" else dtypes.int64
    numbers = (to_dtype_number(start, number_dtype, "arange"), to_dtype_number(step, number_dtype, "arange"))
    output = _fill_progression(
        "arange_fill", count, target_dtype, target_device, numbers, lambda i, start, step: start + step * i
    )
    return finalize_output(output, "arange", requires_grad, out, layout, pin_memory)


def linspace(
    start: float, end: float, steps: int, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create `steps` evenly spaced values from `start` to `end` inclusive; integer dtypes round towards zero.

    Args:
        start: First value.
        end: Last value.
        steps: Number of values.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: the default dtype.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.

    Returns:
        Vector of `steps` elements.

    Example:
        >>> wg.linspace(0, 1, 5)
        tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    count = to_integer(steps, "linspace", "steps")
    first, last = (float(_endpoint(x, "linspace", False)) for x in (start, end))
    target_dtype, target_device = resolve_dtype_and_device(dtype, device, out)
    compute_dtype = target_dtype
    if target_dtype.kind != "f":
        compute_dtype = dtypes.float64 if to_device(target_device).driver.capabilities.fp64 else dtypes.float32
    numbers = (first, last, (last - first) / max(count - 1, 1), float(max(count - 1, 1)))
    output = _fill_progression("linspace_fill", count, compute_dtype, target_device, numbers, _linspace_values)
    if compute_dtype is not target_dtype:
        output = output.to(target_dtype)
    return finalize_output(output, "linspace", requires_grad, out, layout, pin_memory)


def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create the vector `base ** linspace(start, end, steps)`.

    Args:
        start: Exponent of the first value.
        end: Exponent of the last value.
        steps: Number of values.
        base: Base of the powers.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: the default dtype.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.

    Returns:
        Vector of `steps` elements.

    Example:
        >>> wg.logspace(0, 2, 3)
        tensor([  1.,  10., 100.])
    """
    output = host_data.from_host(
        np.logspace(start, end, steps, base=base), *resolve_dtype_and_device(dtype, device, out)
    )
    return finalize_output(output, "logspace", requires_grad, out, layout, pin_memory)


def eye(
    n: int, m: int | None = None, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create an `(n, m)` matrix with ones on the diagonal and zeros elsewhere; `m` defaults to `n`.

    Args:
        n: Number of rows.
        m: Number of columns; None: `n`.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: the default dtype.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.

    Returns:
        Tensor of shape `(n, m)`.

    Example:
        >>> wg.eye(2)
        tensor([[1., 0.],
                [0., 1.]])
    """
    rows, columns = (to_integer(k, "eye", name) for k, name in ((n, "n"), (n if m is None else m, "m")))
    target_dtype, target_device = resolve_dtype_and_device(dtype, device, out)
    output = zeros(rows, columns, dtype=target_dtype, device=target_device)
    _fill_constant(call(registry["diagonal"], (output,), (0, 0, 1)), 1)
    return finalize_output(output, "eye", requires_grad, out, layout, pin_memory)
