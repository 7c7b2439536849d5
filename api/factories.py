"""Making tensors: from data, filled, in sequence. Names and arguments as PyTorch's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from . import _hosting
from ._checks import number_for, only_tensors, whole_number
from ._making import blank, finished, kept, shape_of
from .runtime import dtypes
from .runtime.device import device as to_device
from .runtime.device import meta
from .runtime.dispatch import call, call_into
from .runtime.dispatch import empty as _empty
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, UnsupportedDType
from .runtime.layout import strides_like
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = [
    "arange", "as_tensor", "asarray", "empty", "empty_like", "empty_strided", "eye", "from_dlpack", "from_numpy",
    "frombuffer", "full", "full_like", "linspace", "logspace", "ones", "ones_like", "scalar_tensor", "tensor", "zeros",
    "zeros_like",
]  # fmt: skip


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested sequences, an array or a tensor.

    Python floats become the default dtype, ints int64; arrays and NumPy's numbers keep theirs. Raises `ArgumentError`
    for ragged data and for numbers that an integer dtype does not hold (an array's wrap around).
    """
    if isinstance(data, Tensor):
        made = _copy(data, dtype, device)
    else:
        array = _as_array(data)
        wanted = dtypes.parse(dtype) if dtype is not None else _dtype_of(array, data)
        if wanted.kind in "ui" and array.size and not isinstance(data, (np.ndarray, np.generic)):
            for extreme in (array.min(), array.max()):  # an array wraps around, a number is an error
                number_for(extreme, wanted, "tensor")
        made = _hosting.from_host(array, wanted, to_device(device))
    return finished(made, "tensor", requires_grad, pin_memory=pin_memory)


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
        return _hosting.host_array(data)
    return [_host_lists(x) for x in data] if isinstance(data, (list, tuple)) else data


def _dtype_of(array: np.ndarray[Any, Any], data: Any) -> DType:
    if isinstance(data, (np.ndarray, np.generic)):
        return dtypes.from_numpy(array.dtype)
    if array.dtype.kind == "f":
        found = {dtypes.from_numpy(t) if isinstance(t, np.dtype) else dtypes.default_dtype() for t in _real_types(data)}
        return reduce(dtypes.promote, found) if found else dtypes.default_dtype()
    return dtypes.from_numpy(array.dtype) if array.size else dtypes.default_dtype()


def _real_types(data: Any) -> set[Any]:
    """What the floating numbers in nested sequences are: `float`, and the dtypes of NumPy's."""
    if not isinstance(data, (list, tuple)):
        return {getattr(data, "dtype", float)}
    found: set[Any] = set()
    for kind in set(map(type, data)):
        if issubclass(kind, (list, tuple)):
            found.update(*(_real_types(x) for x in data if isinstance(x, kind)))
        elif issubclass(kind, (np.generic, np.ndarray)):
            found.update(x.dtype for x in data if isinstance(x, kind) and x.dtype.kind == "f")
        elif issubclass(kind, float):
            found.add(float)
    return found


def _copy(source: Tensor, dtype: Any, device: Any) -> Tensor:
    return source.detach().to(device=device, dtype=dtype, copy=True)  # type: ignore[attr-defined,no-any-return]


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without a copy where dtype and device allow it."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)  # type: ignore[attr-defined,no-any-return]
    on_host = to_device(device).type == "cpu"
    if isinstance(data, np.ndarray) and dtype is None and on_host and _can_share(data):
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


def _can_share(array: np.ndarray[Any, Any]) -> bool:
    """Whether a tensor can lie over the memory of `array`."""
    return bool(array.flags.writeable) and all(s >= 0 and not s % array.itemsize for s in array.strides)


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """`obj` (a tensor, an array, nested sequences, a number) as a tensor, over the same memory where that is possible.

    copy: True for memory of its own in any case. Raises `ArgumentError` if it is False and a copy is needed.
    """
    made = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)
    if copy is False and not (made is obj or (isinstance(obj, np.ndarray) and np.shares_memory(obj, made.numpy()))):  # type: ignore[attr-defined]
        raise ArgumentError("asarray: the memory cannot be shared; leave copy=False away")
    return finished(made, "asarray", requires_grad)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A `cpu` tensor that shares the memory of `array`. Raises `ArgumentError` where it cannot.

    Of an array that may not be written to it has a copy, and warns.
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"from_numpy: takes a numpy.ndarray, not {type(array).__name__}")
    if not array.flags.writeable:
        warnings.warn("from_numpy: the array is not writable, so the tensor is a copy of it", UserWarning, stacklevel=2)
        array = array.copy()
    return _hosting.adopt(array)


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A `cpu` tensor of one dimension over the memory of a buffer (a bytearray, an array, a memoryview).

    count: elements, all there are by default. offset: bytes to leave out in front. Of a buffer that may not be written
    to it has a copy, and warns. Raises `ArgumentError` for a buffer that is too short.
    """
    wanted = dtypes.parse(dtype)
    if wanted.name == "bfloat16":
        return frombuffer(buffer, dtype=dtypes.int16, count=count, offset=offset).view(wanted)  # type: ignore[attr-defined,no-any-return]
    try:
        array = np.frombuffer(buffer, wanted.numpy, count, offset)
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"frombuffer: {error}") from None
    return finished(from_numpy(array), "frombuffer", requires_grad)


def from_dlpack(source: Any) -> Tensor:
    """A tensor over the memory of any object with `__dlpack__` on the host."""
    if isinstance(source, Tensor):
        return source
    array = np.from_dlpack(source)
    return _hosting.adopt(array if array.flags.writeable else array.copy())


def empty(
    *size: Any, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None, **named: Any,
) -> Tensor:  # fmt: skip
    """An uninitialised tensor. The shape is given as ints, as one sequence, or as `size=`."""
    made = blank("empty", size, named, dtype, device, out)
    return finished(made, "empty", requires_grad, None, layout, pin_memory)


def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """An uninitialised tensor of given strides."""
    wanted = dtypes.parse(dtype or dtypes.default_dtype())
    made = _empty(meta(wanted, shape_of((tuple(size),)), tuple(stride), to_device(device)))
    return finished(made, "empty_strided", requires_grad)


def full(
    size: Sequence[int], fill_value: Any, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of `fill_value` in every place; its dtype is that of the number unless given."""
    if isinstance(fill_value, (Tensor, np.generic)):
        fill_value = fill_value.item()  # type: ignore[union-attr]
    if not isinstance(size, (tuple, list)):
        raise ArgumentError(f"full: size must be a tuple of ints, not {size!r}")
    if not isinstance(fill_value, (bool, int, float)):
        raise ArgumentError(f"full: the value must be a number, not {fill_value!r}")
    wanted = dtypes.of_number(fill_value) if dtype is None and out is None else dtype
    made = _fill(blank("full", (tuple(size),), {}, wanted, device, out), fill_value, out)
    return finished(made, "full", requires_grad, None, layout, pin_memory)


def _fill(made: Tensor, value: Any, out: Tensor | None) -> Tensor:
    return _filled(made, value) if out is None else out.fill_(value)  # type: ignore[attr-defined,no-any-return]


def _filled(made: Tensor, value: Any) -> Tensor:
    if made.meta.numel:
        number = number_for(value, made.meta.dtype, "full")
        if not getattr(made.meta.device.driver, "opened", True):  # host memory: no driver is opened for a constant
            _hosting.fill(made, number)
            return made
        before = made.storage.version
        call_into(registry["fill"], (made, number), (), (made,), in_place=False)
        made.storage.version = before
    return made


def zeros(
    *size: Any, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, **named: Any,
) -> Tensor:  # fmt: skip
    """A tensor of zeros. The shape is given as ints, as one sequence, or as `size=`."""
    made = _fill(blank("zeros", size, named, dtype, device, out), 0, out)
    return finished(made, "zeros", requires_grad, None, layout, pin_memory)


def ones(
    *size: Any, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, **named: Any,
) -> Tensor:  # fmt: skip
    """A tensor of ones. The shape is given as ints, as one sequence, or as `size=`."""
    made = _fill(blank("ones", size, named, dtype, device, out), 1, out)
    return finished(made, "ones", requires_grad, None, layout, pin_memory)


def empty_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """An uninitialised tensor of the same shape, and strides if they are dense (`memory_format=contiguous_format`:
    those of a contiguous one)."""
    only_tensors("empty_like", input)
    wanted = input.meta.dtype if dtype is None else dtypes.parse(dtype)
    where = input.meta.device if device is None else to_device(device)
    strides = None if memory_format == "contiguous_format" else strides_like(input.meta)
    made = _empty(meta(wanted, input.meta.shape, strides, where))
    return finished(made, "empty_like", requires_grad, None, layout, pin_memory)


def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """`fill_value` in the shape of `input`."""
    only_tensors("full_like", input)
    made = _filled(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), fill_value)
    return finished(made, "full_like", requires_grad, None, layout, pin_memory)


def zeros_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Zeros in the shape of `input`."""
    only_tensors("zeros_like", input)
    made = _filled(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), 0)
    return finished(made, "zeros_like", requires_grad, None, layout, pin_memory)


def ones_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Ones in the shape of `input`."""
    only_tensors("ones_like", input)
    made = _filled(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), 1)
    return finished(made, "ones_like", requires_grad, None, layout, pin_memory)


def scalar_tensor(value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A 0-d tensor."""
    return full((), value, dtype=dtype or dtypes.default_dtype(), device=device)


def _endpoint(value: Any, where: str, finite: bool = True) -> bool | int | float:
    """A number, or the only element of a tensor or of an array."""
    found = value.item() if isinstance(value, (Tensor, np.generic, np.ndarray)) else value  # type: ignore[union-attr]
    if not isinstance(found, (bool, int, float)) or not (math.isfinite(found) or not finite):
        raise ArgumentError(f"{where}: takes {'finite ' if finite else ''}numbers, not {value!r}")
    return found


def _progression(
    name: str, count: int, dtype: DType, device: Any, numbers: tuple[int | float, ...], host: Callable[..., Any]
) -> Tensor:
    """A vector of `count` elements, filled by the op `name`; host: the same of positions, to the same bits."""
    made = _empty(meta(dtype, (count,), None, device))
    if not getattr(device.driver, "opened", True):  # as for constants
        with np.errstate(all="ignore"):
            values = host(np.arange(count), *numbers)
            if dtype.kind == "f" and dtype.itemsize == 2:  # kernels round doubles to half types by way of float32
                values = values.astype(np.float32)
            return _hosting.from_host(values, dtype, device)
    if count:
        call_into(registry[name], (made, *numbers), (), (made,), in_place=False)
        made.storage.version = 0
    return made


def _spaced(i: np.ndarray[Any, Any], start: float, end: float, step: float, last: float) -> np.ndarray[Any, Any]:
    return np.where(2 * i < last, start + step * i, end - step * (last - i))


def arange(
    start: Any = None, end: Any = None, step: Any = 1, *, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """start, start + step, … below end, start being 0 unless given. Integers if all of them are.

    Floats are calculated in float64, where the device has it. Of an integer dtype start and step are rounded towards
    zero before, as in PyTorch.
    """
    if start is None and end is None:
        raise ArgumentError("arange: takes an end")
    if end is None or start is None:
        start, end = 0, start if end is None else end
    integral = type(start) is type(end) is type(step) is int
    if not integral:
        start, end, step = (_endpoint(x, "arange") for x in (start, end, step))
        integral = all(isinstance(x, int) for x in (start, end, step))
    wanted, place = kept(dtype, device, out, dtypes.int64 if integral else None)
    if wanted is dtypes.bool_:
        raise UnsupportedDType("arange: counts in integers or floats, not in bool; convert with .bool()")
    if wanted is dtypes.int64:
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        raise ArgumentError("arange: the step must not be 0")
    if (end - start) * step < 0:
        raise ArgumentError(f"arange: steps of {step!r} do not lead from {start!r} to {end!r}")
    count = -(-(end - start) // step) if wanted is dtypes.int64 else math.ceil((end - start) / step)
    fits = dtypes.float64 if wanted.kind == "f" else dtypes.int64
    numbers = (number_for(start, fits, "arange"), number_for(step, fits, "arange"))
    made = _progression("arange_fill", count, wanted, place, numbers, lambda i, start, step: start + step * i)
    return finished(made, "arange", requires_grad, out, layout, pin_memory)


def linspace(
    start: float, end: float, steps: int, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` values from start to end inclusive, evenly spaced; of an integer dtype rounded towards zero."""
    count = whole_number(steps, "linspace", "steps")
    first, last = (float(_endpoint(x, "linspace", False)) for x in (start, end))
    wanted, place = kept(dtype, device, out)
    fine = wanted
    if wanted.kind != "f":
        fine = dtypes.float64 if to_device(place).driver.capabilities.fp64 else dtypes.float32
    numbers = (first, last, (last - first) / max(count - 1, 1), float(max(count - 1, 1)))
    made = _progression("linspace_fill", count, fine, place, numbers, _spaced)
    if fine is not wanted:
        made = made.to(wanted)  # type: ignore[attr-defined]
    return finished(made, "linspace", requires_grad, out, layout, pin_memory)


def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """base to the power of `linspace(start, end, steps)`."""
    made = _hosting.from_host(np.logspace(start, end, steps, base=base), *kept(dtype, device, out))
    return finished(made, "logspace", requires_grad, out, layout, pin_memory)


def eye(
    n: int, m: int | None = None, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Ones on the diagonal of an n by m matrix of zeros."""
    rows, columns = (whole_number(k, "eye", name) for k, name in ((n, "n"), (n if m is None else m, "m")))
    wanted, place = kept(dtype, device, out)
    made = zeros(rows, columns, dtype=wanted, device=place)
    _filled(call(registry["diagonal"], (made,), (0, 0, 1)), 1)
    return finished(made, "eye", requires_grad, out, layout, pin_memory)
