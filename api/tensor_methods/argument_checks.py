"""Checks that functions apply to their arguments first, so that a wrong type raises a clear error."""

from __future__ import annotations

import math
from functools import cache
from typing import SupportsIndex

import numpy as np

from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError
from ..runtime.overriding import defines_override
from ..runtime.tensor import Tensor

__all__ = ["no_overriding_object", "only_tensors", "to_dtype_number", "to_integer"]


def only_tensors(where: str, *values: object) -> None:
    """Raise `ArgumentError` unless all `values` are tensors."""
    for value in values:
        if not isinstance(value, Tensor):
            no_overriding_object(where, value)
            raise ArgumentError(
                f"{where}: takes tensors, not {type(value).__name__}; make a tensor of it with tensor()"
            )


def no_overriding_object(where: str, value: object) -> None:
    """Raise `ArgumentError` if `value` has a `__torch_function__`, which the function would have called later on."""
    if defines_override(type(value)):
        raise ArgumentError(
            f"{where}: {type(value).__name__} is no subclass of Tensor, so its __torch_function__ gets calls of "
            "functions that are written in Python only after `import weftgrad.overrides`"
        )


def to_integer(value: object, where: str, name: str, minimum: int = 0) -> int:
    """Return `value` as an int. Raises `ArgumentError` unless it is an integer of at least `minimum`."""
    if isinstance(value, (int, SupportsIndex)) and not isinstance(value, bool):
        number = int(value.__index__())
        if number >= minimum:
            return number
    raise ArgumentError(f"{where}: {name} must be an integer of at least {minimum}, not {value!r}")


def to_dtype_number(value: object, dtype: DType, where: str) -> bool | int | float:
    """Convert a number to `dtype`'s Python type.

    Negative integers wrap around in uint8 down to -255, as in PyTorch: -1 becomes 255.

    Raises:
        ArgumentError: `value` is no number, or an integer out of the dtype's range.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise ArgumentError(f"{where}: the value must be a number, not {value!r}")
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind == "f":
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, value)
    if not math.isfinite(value):
        raise ArgumentError(f"{where}: {dtype.name} has no {value!r}")
    lowest, highest = _integer_limits(dtype)
    if lowest == 0 and -highest <= (number := int(value)) < 0:
        return number + highest + 1
    if not lowest <= (number := int(value)) <= highest:
        raise ArgumentError(f"{where}: {value!r} does not fit {dtype.name}, which holds {lowest} to {highest}")
    return number


@cache
def _integer_limits(dtype: DType) -> tuple[int, int]:
    """Return the smallest and largest value of an integer dtype. Cached: `np.iinfo` takes microseconds."""
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)
