"""References of random calls: NumPy arrays that stand for tensors of every dtype, promotion of dtypes, comparison.

An array of bfloat16 is a float32 array whose values are rounded to bfloat16: NumPy has no such dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38, "float64": 1.7976e308}


def numpy_dtype(name: str) -> str:
    """Return the dtype of the array that stands for a tensor of dtype `name`."""
    return "float32" if name == "bfloat16" else name


def cast(values: Any, name: str) -> Array:
    """Convert values to dtype `name`: floats are rounded to nearest even, integers wrap around."""
    with np.errstate(all="ignore"):
        array = np.asarray(values).astype(numpy_dtype(name))
        if name != "bfloat16":
            return array
        bits = array.view(np.uint32) if array.ndim else array.reshape(1).view(np.uint32)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        return np.where(np.isnan(array), array, rounded.reshape(array.shape)).astype(np.float32)


def category(name: str) -> int:
    """Return 0 for bool, 1 for integers, 2 for floating dtypes."""
    return 0 if name == "bool" else 1 if name in INTEGERS else 2


def wider(a: str, b: str) -> str:
    """Return the smallest dtype that holds all numbers of two dtypes; of an integer and a float it is the float."""
    if a == b:
        return a
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    order = (*INTEGERS, *FLOATS)
    return max(a, b, key=order.index)


def promote(operands: Sequence[tuple[str, int]]) -> str:
    """Return the dtype in which operands meet.

    Args:
        operands: The dtype of each operand, and its rank: 0 for a tensor with dimensions, 1 for one without, 2 for a
            Python number. An operand of a higher rank counts only if its category is higher.
    """
    result = ""
    for rank in (0, 1, 2):
        names = [name for name, operand_rank in operands if operand_rank == rank]
        if not names:
            continue
        common = names[0]
        for name in names[1:]:
            common = wider(common, name)
        if not result or category(common) > category(result):
            result = common
    return result


def mismatch(result: Array, expected: Any, name: str, ulps: float, scale: float) -> str:
    """Return where a result differs from the exact values; "" if it does not.

    Args:
        result: The values of the tensor; bfloat16 as float32.
        expected: The exact values, in float64, or integers.
        name: The tensor's dtype.
        ulps: How many units in the last place a value may be wrong.
        scale: Magnitude of the terms that the result is a sum of: the error may be `ulps` of its last place.
    """
    expected = np.asarray(expected)
    if result.shape != expected.shape:
        return f"shape {result.shape}, expected {expected.shape}"
    if name not in FLOATS:
        wrong = result != cast(expected, name)
    else:
        values, exact = result.astype(np.float64), expected.astype(np.float64)
        with np.errstate(all="ignore"):
            limit = ulps * EPSILON[name] * np.maximum(np.abs(exact), scale) + 1e-7 * (name == "float16")
            is_close = (values == exact) | (np.isnan(values) & np.isnan(exact)) | (np.abs(values - exact) <= limit)
            overflows = np.isinf(values) & (np.abs(exact) > 0.99 * LARGEST[name]) & (np.sign(values) == np.sign(exact))
            tiny = np.abs(values - exact) <= (1e-37 if name in ("bfloat16", "float32") else 0)
        wrong = ~(is_close | overflows | tiny)
    if not wrong.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{result[index]!r} at {index}, expected {expected[index]!r}; {int(wrong.sum())} of {result.size} differ"
