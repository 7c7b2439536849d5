"""NumPy's arrays and scalars in a pickle: what a pickle may name for them, checked before NumPy allocates anything."""

from __future__ import annotations

import math
import pickle
import re
from typing import Any

import numpy as np

from ..runtime.dtypes import Array
from .allowed_globals import is_trusted
from .restricted_pickle import Constructor, is_shape

__all__ = ["ALL_NUMPY_GLOBALS", "NUMPY_GLOBALS", "set_numpy_state"]

_NUMBER_CODE = re.compile(r"[<>=|]?(b1|[iu][1248]|f(2|4|8|16)|c(8|16|32))")
_OTHER_CODE = re.compile(r"[<>=|]?(O8?|[USV][0-9]{1,9}|[mM]8)")
_ALIGNED = 0x80  # the flag of a record whose fields are aligned as in C
_TIME_UNIT = re.compile(r"[A-Za-zµμ]{1,7}")
_BYTE_ORDERS = ("<", ">", "=", "|")


def _new_dtype(code: object, align: object = False, copy: object = False) -> np.dtype[Any]:
    if type(code) is not str or not _NUMBER_CODE.fullmatch(code):
        raise pickle.UnpicklingError("an array's dtype is no number")
    return np.dtype(code, copy=True)  # a copy: the pickle sets its byte order


def _new_dtype_of_all(code: object, align: object = False, copy: object = False) -> np.dtype[Any]:
    if type(code) is not str or not (_NUMBER_CODE.fullmatch(code) or _OTHER_CODE.fullmatch(code)):
        raise pickle.UnpicklingError("an array's dtype is unknown")
    return np.dtype(code, align=align is True, copy=True)


def _new_scalar(dtype: object, content: object) -> Any:
    if not isinstance(dtype, np.dtype) or type(content) is not bytes or len(content) != dtype.itemsize:
        raise pickle.UnpicklingError("a scalar of NumPy's has another size than its dtype")
    if dtype.hasobject:
        raise pickle.UnpicklingError("a scalar of NumPy's holds an object")
    return np.frombuffer(content, dtype)[0] if content else np.zeros(1, dtype)[0]


def _new_array(kind: object, shape: object, code: object) -> Array:
    """Return an empty array; `set_numpy_state` gives it its content."""
    if shape != (0,):
        raise pickle.UnpicklingError("an array is not empty before its state is set")
    if isinstance(kind, type) and issubclass(kind, np.ndarray) and is_trusted(kind):
        return np.ndarray.__new__(kind, (0,), np.int8)
    return np.empty(0, np.int8)


def _array_of_bytes(content: object, dtype: object, shape: object, order: object) -> Array:
    _check_size(content, dtype, shape)
    if order not in ("C", "F"):
        raise pickle.UnpicklingError("an array's order is neither C nor F")
    return np.frombuffer(content, dtype).reshape(shape, order=order).copy(order="K")  # type: ignore[call-overload]


def _check_size(content: object, dtype: object, shape: object) -> None:
    """Raise `UnpicklingError` unless `content` has the bytes of an array of this shape."""
    if not is_shape(shape) or not isinstance(dtype, np.dtype) or not isinstance(content, (bytes, bytearray)):
        raise pickle.UnpicklingError("an array's description makes no sense")
    if dtype.hasobject:
        raise pickle.UnpicklingError("an array of objects has bytes instead of objects")
    count = math.prod(shape)
    if count * dtype.itemsize != len(content) or (count and not dtype.itemsize):
        raise pickle.UnpicklingError("an array has another size than its shape says")


def set_numpy_state(value: Array | np.dtype[Any], state: object) -> None:
    """Set an array's shape, dtype and content, or a dtype's byte order, fields and unit, from a pickle.

    NumPy takes a state without checks: a wrong one turns bytes into pointers.

    Raises:
        UnpicklingError: The state is not one that NumPy writes.
    """
    if type(state) is not tuple:
        raise pickle.UnpicklingError("the state of an array is no tuple")
    if isinstance(value, np.dtype):
        value.__setstate__(_check_dtype_state(value, state))  # type: ignore[attr-defined]  # NumPy does not declare it
        return
    if len(state) != 5 or state[0] != 1 or not isinstance(state[2], np.dtype) or type(state[3]) is not bool:
        raise pickle.UnpicklingError("an array's description makes no sense")
    if type(state[2]) is type(np.dtype("O")):  # by its type number; flags could come from a file
        if type(state[4]) is not list or not is_shape(state[1]) or math.prod(state[1]) != len(state[4]):
            raise pickle.UnpicklingError("an array has another size than its shape says")
    else:
        _check_size(state[4], state[2], state[1])
    np.ndarray.__setstate__(value, (*state[:2], _copy_dtype(state[2]), *state[3:]))


def _check_dtype_state(value: np.dtype[Any], state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the state that NumPy writes for the dtype that a state describes.

    It holds no object of the file: NumPy would use a dict of fields that the file changes afterwards.

    Raises:
        UnpicklingError: The states differ, or the dtype has another size or type number than `value`.
    """
    try:
        expected = _build_dtype(value, state)
        expected_state: tuple[Any, ...] = expected.__reduce__()[2]  # type: ignore[assignment]
        is_known = (
            type(expected) is type(value)
            and expected.itemsize == value.itemsize
            and value.names is None
            and value.subdtype is None
            and _comparable(expected_state) == _comparable(state)
        )
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        raise pickle.UnpicklingError("an array's dtype makes no sense") from error
    if not is_known:
        raise pickle.UnpicklingError("an array's dtype makes no sense")
    return expected_state


def _copy_dtype(value: np.dtype[Any]) -> np.dtype[Any]:
    """Return a copy, fields included; `np.dtype(value, copy=True)` is `value` itself for records."""
    return value.newbyteorder("|")  # keeps the order


def _comparable(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the state of a dtype without the metadata of times: it is {} or None, by the version of NumPy."""
    return (*state[:8], *(tuple(part[1]) for part in state[8:]))


def _build_dtype(value: np.dtype[Any], state: tuple[Any, ...]) -> np.dtype[Any]:
    """Return the dtype that a state describes, by NumPy's public constructors, which check it."""
    order, subdtype, names, fields = state[1:5]
    if order not in _BYTE_ORDERS:
        raise ValueError
    if value.kind in "mM" and len(state) == 9:
        metadata, (unit, count, *others) = state[8]
        unit = unit.decode() if type(unit) is bytes else unit
        if metadata or others != [1, 1] or type(count) is not int or not _TIME_UNIT.fullmatch(unit):
            raise ValueError
        return np.dtype(f"{value.kind}8" + ("" if unit == "generic" else f"[{count}{unit}]")).newbyteorder(order)
    if len(state) != 8:
        raise ValueError
    if value.kind != "V":
        return value.newbyteorder(order)
    if subdtype is not None:
        base, shape = subdtype
        if not is_shape(shape) or type(base) is not type(np.dtype(base)) or base.hasobject:
            raise ValueError
        return np.dtype((_copy_dtype(base), shape))
    if names is None:
        return np.dtype(f"V{value.itemsize}")
    if type(names) is not tuple or any(type(name) is not str for name in names) or type(fields) is not dict:
        raise ValueError
    kinds, offsets = [fields[name][0] for name in names], [fields[name][1] for name in names]
    if any(not isinstance(kind, np.dtype) or kind.hasobject for kind in kinds):
        raise ValueError
    kinds = [_copy_dtype(kind) for kind in kinds]
    description = {"names": list(names), "formats": kinds, "offsets": offsets, "itemsize": value.itemsize}
    return np.dtype(description, align=bool(state[7] & _ALIGNED))  # type: ignore[call-overload]


NUMPY_GLOBALS: dict[tuple[str, str], object] = {
    ("numpy", "dtype"): Constructor("numpy.dtype", _new_dtype),
    ("numpy", "ndarray"): Constructor("numpy.ndarray"),
}
"""What files may name in NumPy's modules, by module and name."""
for _package in ("numpy.core", "numpy._core"):  # the first is NumPy 1's
    NUMPY_GLOBALS |= {
        (f"{_package}.multiarray", "scalar"): Constructor("numpy scalar", _new_scalar),
        (f"{_package}.multiarray", "_reconstruct"): Constructor("numpy array", _new_array),
        (f"{_package}.numeric", "_frombuffer"): Constructor("numpy array", _array_of_bytes),
    }

ALL_NUMPY_GLOBALS: dict[tuple[str, str], object] = NUMPY_GLOBALS | {
    ("numpy", "dtype"): Constructor("numpy.dtype", _new_dtype_of_all)
}
"""What files of weftgrad's own format may name: texts, bytes, times, records and objects as elements too."""
