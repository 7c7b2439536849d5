"""Making tensors: from data, filled, in sequence. Names and arguments as PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _hosting
from ._checks import number_for, whole_number
from .runtime import dtypes
from .runtime.device import device as to_device
from .runtime.device import meta
from .runtime.dispatch import call_into
from .runtime.dispatch import empty as _empty
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, ShapeError
from .runtime.layout import strides_like
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = [
    "arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "from_dlpack", "from_numpy", "full",
    "full_like", "linspace", "logspace", "ones", "ones_like", "scalar_tensor", "tensor", "zeros", "zeros_like",
]  # fmt: skip


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested sequences, an array or a tensor.

    Python floats become the default dtype, ints int64; arrays keep theirs. Raises `ArgumentError` for ragged data and
    for numbers that an integer dtype does not hold (an array's wrap around).
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
    return _leaf(made, requires_grad)


def _leaf(made: Tensor, requires_grad: bool) -> Tensor:
    if requires_grad:
        made.requires_grad_(True)  # type: ignore[attr-defined]
    return made


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
        return dtypes.default_dtype()
    return dtypes.from_numpy(array.dtype) if array.size else dtypes.default_dtype()


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


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A `cpu` tensor that shares the memory of `array`. Raises `ArgumentError` where it cannot."""
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"from_numpy: takes a numpy.ndarray, not {type(array).__name__}")
    return _hosting.adopt(array)


def from_dlpack(source: Any) -> Tensor:
    """A tensor over the memory of any object with `__dlpack__` on the host."""
    if isinstance(source, Tensor):
        return source
    array = np.from_dlpack(source)
    return _hosting.adopt(array if array.flags.writeable else array.copy())


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    found = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    for n in found:
        if type(n) is not int or n < 0:
            break
    else:
        return found
    try:
        shape = tuple(int(n.__index__()) for n in found)
    except AttributeError:
        raise ArgumentError(f"a shape is made of ints, not {found!r}") from None
    if any(n < 0 for n in shape):
        raise ShapeError(f"sizes must not be negative: {list(shape)}")
    return shape


def empty(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Tensor:
    """An uninitialised tensor."""
    layout = meta(dtypes.parse(dtype or dtypes.default_dtype()), _shape(size), None, to_device(device))
    return _leaf(_empty(layout), requires_grad)


def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """An uninitialised tensor of given strides."""
    wanted = dtypes.parse(dtype or dtypes.default_dtype())
    return _leaf(_empty(meta(wanted, _shape((tuple(size),)), tuple(stride), to_device(device))), requires_grad)


def full(
    size: Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of `fill_value` in every place; its dtype is that of the number unless given."""
    if isinstance(fill_value, (Tensor, np.generic)):
        fill_value = fill_value.item()  # type: ignore[union-attr]
    if not isinstance(size, (tuple, list)):
        raise ArgumentError(f"full: size must be a tuple of ints, not {size!r}")
    if not isinstance(fill_value, (bool, int, float)):
        raise ArgumentError(f"full: the value must be a number, not {fill_value!r}")
    wanted = dtypes.parse(dtype) if dtype is not None else dtypes.of_number(fill_value)
    return _full(_shape((tuple(size),)), fill_value, wanted, device, requires_grad)


def _full(shape: tuple[int, ...], value: Any, dtype: DType, device: Any, requires_grad: bool) -> Tensor:
    return _leaf(_filled(_empty(meta(dtype, shape, None, to_device(device))), value), requires_grad)


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


def zeros(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Tensor:
    """A tensor of zeros."""
    return _full(_shape(size), 0, dtypes.parse(dtype or dtypes.default_dtype()), device, requires_grad)


def ones(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Tensor:
    """A tensor of ones."""
    return _full(_shape(size), 1, dtypes.parse(dtype or dtypes.default_dtype()), device, requires_grad)


def empty_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Tensor:
    """An uninitialised tensor of the same shape, and strides if they are dense."""
    wanted = input.meta.dtype if dtype is None else dtypes.parse(dtype)
    where = input.meta.device if device is None else to_device(device)
    return _leaf(_empty(meta(wanted, input.meta.shape, strides_like(input.meta), where)), requires_grad)


def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Tensor:
    """`fill_value` in the shape of `input`."""
    return _leaf(_filled(empty_like(input, dtype=dtype, device=device), fill_value), requires_grad)


def zeros_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Tensor:
    """Zeros in the shape of `input`."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Tensor:
    """Ones in the shape of `input`."""
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def scalar_tensor(value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A 0-d tensor."""
    return full((), value, dtype=dtype or dtypes.default_dtype(), device=device)


def _endpoint(value: Any, where: str) -> bool | int | float:
    """A number, or the only element of a tensor or of an array."""
    found = value.item() if isinstance(value, (Tensor, np.generic, np.ndarray)) else value  # type: ignore[union-attr]
    if not isinstance(found, (bool, int, float)) or not math.isfinite(found):
        raise ArgumentError(f"{where}: takes finite numbers, not {value!r}")
    return found


def arange(
    start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """start, start + step, … below end. Integers if all of them are."""
    if end is None:
        start, end = 0, start
    start, end, step = (_endpoint(x, "arange") for x in (start, end, step))
    if step == 0:
        raise ArgumentError("arange: the step must not be 0")
    if (end - start) * step < 0:
        raise ArgumentError(f"arange: steps of {step!r} do not lead from {start!r} to {end!r}")
    count = math.ceil((end - start) / step)
    integral = all(isinstance(x, int) for x in (start, end, step))
    wanted = dtypes.parse(dtype) if dtype is not None else dtypes.int64 if integral else dtypes.default_dtype()
    values = start + step * np.arange(count, dtype=np.int64 if integral else np.float64)
    return _leaf(_hosting.from_host(values, wanted, to_device(device)), requires_grad)


def linspace(
    start: float, end: float, steps: int, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """`steps` values from start to end inclusive, evenly spaced."""
    if steps < 0:
        raise ArgumentError(f"linspace: steps must not be negative, got {steps}")
    wanted = dtypes.parse(dtype) if dtype is not None else dtypes.default_dtype()
    return _leaf(_hosting.from_host(np.linspace(start, end, steps), wanted, to_device(device)), requires_grad)


def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """base to the power of `linspace(start, end, steps)`."""
    wanted = dtypes.parse(dtype) if dtype is not None else dtypes.default_dtype()
    return _hosting.from_host(np.logspace(start, end, steps, base=base), wanted, to_device(device))


def eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones on the diagonal of an n by m matrix of zeros."""
    rows, columns = (whole_number(k, "eye", name) for k, name in ((n, "n"), (n if m is None else m, "m")))
    wanted = dtypes.parse(dtype) if dtype is not None else dtypes.default_dtype()
    return _leaf(_hosting.from_host(np.eye(rows, columns), wanted, to_device(device)), requires_grad)
