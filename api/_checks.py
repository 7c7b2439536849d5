"""Arguments that are no tensors, said in words: what functions look at before they read a layout."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from .runtime.dtypes import DType
from .runtime.errors import ArgumentError
from .runtime.tensor import Tensor

__all__ = ["number_for", "only_tensors", "whole_number"]


def only_tensors(where: str, *values: Any) -> None:
    """Raise `ArgumentError`, a `TypeError`, unless all `values` are tensors."""
    for value in values:
        if not isinstance(value, Tensor):
            raise ArgumentError(
                f"{where}: takes tensors, not {type(value).__name__}; make a tensor of it with tensor()"
            )


def whole_number(value: Any, where: str, name: str, least: int = 0) -> int:
    """`value` as an int of at least `least`. Raises `ArgumentError`."""
    try:
        found = int(value.__index__())
    except AttributeError:
        found = least - 1
    if found < least or isinstance(value, bool):
        raise ArgumentError(f"{where}: {name} must be an integer of at least {least}, not {value!r}")
    return found


def number_for(value: Any, dtype: DType, where: str) -> bool | int | float:
    """A number as one that `dtype` holds. Raises `ArgumentError` for what is no number, or an integer out of range."""
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
    least, most = _limits(dtype)
    if not least <= (number := int(value)) <= most:
        raise ArgumentError(f"{where}: {value!r} does not fit {dtype.name}, which holds {least} to {most}")
    return number


@cache
def _limits(dtype: DType) -> tuple[int, int]:
    """The least and the most that an integer dtype holds: NumPy takes microseconds to say it."""
    found = np.iinfo(dtype.numpy)
    return int(found.min), int(found.max)
