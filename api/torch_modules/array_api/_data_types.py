"""Functions on dtypes: kinds, limits, promotion and casts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..pointwise.type_info import finfo as _finfo
from ..pointwise.type_info import iinfo as _iinfo
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, DTypeError
from ..runtime.tensor import Tensor
from ._operands import Scalar, check_tensors

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

_KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "", "numeric": "iuf",
}  # fmt: skip


@dataclass(frozen=True)
class _FloatLimits:
    """The limits of a floating dtype.

    Attributes:
        bits: Bits of an element.
        eps: The difference between 1 and the next number.
        max: The largest number.
        min: The smallest number, -max.
        smallest_normal: The smallest positive number with full precision.
        dtype: The dtype.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class _IntegerLimits:
    """The limits of an integer dtype.

    Attributes:
        bits: Bits of an element.
        max: The largest number.
        min: The smallest number.
        dtype: The dtype.
    """

    bits: int
    max: int
    min: int
    dtype: DType


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: DeviceLike | None = None) -> Tensor:
    """Cast a tensor to a dtype.

    Args:
        x: Tensor.
        dtype: Dtype of the result.
        copy: Whether to copy a tensor that has the dtype, and is on the device, already.
        device: Device of the result; None: that of `x`.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.astype(wg.tensor([1.5, -1.5]), wg.int8)
        tensor([ 1, -1], dtype=weftgrad.int8)
    """
    check_tensors("astype", x)
    return x.to(device=device, dtype=dtype, copy=copy)


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Return True if promotion casts one dtype to another.

    Args:
        from_: Dtype, or a tensor of it.
        to: Dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.array_api.can_cast(wg.int8, wg.int64), wg.array_api.can_cast(wg.int8, wg.uint8)
        (True, False)
    """
    source, target = _dtype("can_cast", from_), dtypes.parse(to)
    if source is target:
        return True
    # Promotion between kinds is undefined in the standard, but every kind casts to a higher one in NumPy and here.
    return dtypes.promote(source, target) is target and not (source.kind in "iu" and target.kind == "f")


def finfo(type: DType | Tensor, /) -> _FloatLimits:
    """Return the limits of a floating dtype.

    Args:
        type: Dtype, or a tensor of it.

    Returns:
        An object with the attributes `bits`, `eps`, `max`, `min`, `smallest_normal` and `dtype`.

    Example:
        >>> wg.array_api.finfo(wg.float32).eps == 2.0**-23
        True
    """
    dtype = _dtype("finfo", type)
    limits = _finfo(dtype)
    return _FloatLimits(dtype.itemsize * 8, limits.eps, limits.max, limits.min, limits.smallest_normal, dtype)


def iinfo(type: DType | Tensor, /) -> _IntegerLimits:
    """Return the limits of an integer dtype.

    Args:
        type: Dtype, or a tensor of it.

    Returns:
        An object with the attributes `bits`, `max`, `min` and `dtype`.

    Example:
        >>> wg.array_api.iinfo(wg.int8).max
        127
    """
    dtype = _dtype("iinfo", type)
    limits = _iinfo(dtype)
    return _IntegerLimits(dtype.itemsize * 8, limits.max, limits.min, dtype)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Return True if a dtype is of a kind.

    Args:
        dtype: Dtype.
        kind: A dtype; `bool`, `signed integer`, `unsigned integer`, `integral`, `real floating`, `complex floating` or
            `numeric`; or several of these.

    Returns:
        Python bool.

    Raises:
        ArgumentError: There is no such kind.

    Example:
        >>> wg.array_api.isdtype(wg.int8, ("real floating", "signed integer"))
        True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, part) for part in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in _KINDS:
        raise ArgumentError(f"isdtype: {kind!r} is no kind of dtypes; there are {', '.join(_KINDS)}")
    return dtype.kind in _KINDS[kind]


def result_type(*arrays_and_dtypes: Tensor | DType | Scalar) -> DType:
    """Return the dtype to which tensors, dtypes and numbers promote.

    A number counts less than tensors and dtypes: it changes the result only if it is of a higher kind (bool, integer,
    floating). A tensor without dimensions counts like any other.

    Args:
        *arrays_and_dtypes: At least one tensor or dtype.

    Returns:
        Dtype.

    Raises:
        ArgumentError: There is neither a tensor nor a dtype.

    Example:
        >>> wg.array_api.result_type(wg.tensor(1, dtype=wg.int8), wg.uint8, 3)
        weftgrad.int16
    """
    numbers = [v for v in arrays_and_dtypes if isinstance(v, (bool, int, float)) and not isinstance(v, np.generic)]
    others = [_dtype("result_type", v) for v in arrays_and_dtypes if not isinstance(v, (bool, int, float))]
    if not others:
        raise ArgumentError("result_type: takes at least one tensor or dtype")
    result = others[0]
    for dtype in others[1:]:
        result = dtypes.promote(result, dtype)
    ranks = {"b": 0, "u": 1, "i": 1, "f": 2}
    for number in numbers:
        dtype = dtypes.number_dtype(number)
        if ranks[dtype.kind] > ranks[result.kind]:
            result = dtype
    return result


def _dtype(name: str, value: object) -> DType:
    if isinstance(value, Tensor):
        return value.meta.dtype
    if not isinstance(value, DType):
        raise DTypeError(f"{name}: takes dtypes and tensors, not {value!r}")
    return value
