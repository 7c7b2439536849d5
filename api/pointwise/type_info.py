"""Limits, promotion and categories of dtypes; `is_tensor` and `numel`."""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np

from ..arguments.types import Operand
from ..runtime import dtypes
from ..runtime.dtypes import DType, DTypeLike
from ..runtime.errors import ArgumentError, DTypeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "can_cast", "finfo", "iinfo", "is_floating_point", "is_signed", "is_tensor", "numel", "promote_types",
    "result_type",
]  # fmt: skip

_WITH_DIMENSIONS, _ZERO_DIM, _NUMBER = 0, 1, 2  # priorities of operands in `dtypes.promote_operands`


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return True if `value` is a Tensor.

    Args:
        value: An object of any type.

    Returns:
        True or False.

    Example:
        >>> wg.is_tensor(1.0)
        False
    """
    return isinstance(value, Tensor)


def numel(input: Tensor) -> int:
    """Return the number of elements.

    Args:
        input: Tensor of any dtype.

    Returns:
        The product of the sizes; 1 for a 0-d tensor.

    Raises:
        ArgumentError: `input` is not a tensor.

    Example:
        >>> wg.numel(wg.ones(2, 3))
        6
    """
    only_tensors("numel", input)
    return input.meta.numel


def is_floating_point(input: Tensor) -> bool:
    """Return True if the dtype is float16, bfloat16, float32 or float64.

    Args:
        input: Tensor of any dtype.

    Returns:
        True or False.

    Raises:
        ArgumentError: `input` is not a tensor.

    Example:
        >>> wg.is_floating_point(wg.tensor([1]))
        False
    """
    only_tensors("is_floating_point", input)
    return input.meta.dtype.is_floating_point


def is_signed(input: Tensor) -> bool:
    """Return True if the dtype can hold negative numbers.

    Args:
        input: Tensor of any dtype.

    Returns:
        True for signed integer and floating dtypes, False for bool and unsigned ones.

    Raises:
        ArgumentError: `input` is not a tensor.

    Example:
        >>> wg.is_signed(wg.tensor([1], dtype=wg.uint8))
        False
    """
    only_tensors("is_signed", input)
    return input.meta.dtype.kind in "if"


def result_type(first: Operand, second: Operand) -> DType:
    """Return the dtype of the result of arithmetic with two operands.

    Args:
        first: Tensor or number.
        second: Tensor or number.

    Returns:
        The dtype of the tensors with dimensions. 0-d tensors, and after them numbers, only change it if their category
        is higher; the categories are bool, integer, floating.

    Raises:
        ArgumentError: An operand is neither a tensor nor a number.

    Example:
        >>> wg.result_type(wg.tensor([1]), 1.0)
        weftgrad.float32
    """
    dtype_priorities: list[tuple[DType, int]] = []
    for operand in (first, second):
        if isinstance(operand, Tensor):
            priority = _WITH_DIMENSIONS if operand.meta.ndim else _ZERO_DIM
            dtype_priorities.append((operand.meta.dtype, priority))
            continue
        number = operand.item() if isinstance(operand, np.generic) else operand
        if not isinstance(number, (bool, int, float)):
            raise ArgumentError(f"result_type: takes tensors and numbers, not {type(operand).__name__}")
        dtype_priorities.append((dtypes.number_dtype(number), _NUMBER))
    return dtypes.promote_operands(dtype_priorities)


def promote_types(first: DType, second: DType) -> DType:
    """Return the dtype of the result of arithmetic with tensors of two dtypes.

    Args:
        first: The dtype of one tensor.
        second: The dtype of the other tensor.

    Returns:
        The smallest dtype of the higher category (bool, integer, floating) that can hold both; a floating dtype that
        meets an integer dtype stays as it is.

    Example:
        >>> wg.promote_types(wg.int32, wg.float16)
        weftgrad.float16
    """
    return dtypes.promote(first, second)


def can_cast(source: DType, target: DType) -> bool:
    """Return True if the category of `target` is not below that of `source`: bool, integer, floating.

    In-place operations cast their result by this rule. Signs and sizes do not matter: int64 can be cast to uint8.

    Args:
        source: The dtype to cast from.
        target: The dtype to cast to.

    Returns:
        True or False.

    Example:
        >>> wg.can_cast(wg.float64, wg.int32)
        False
    """
    return dtypes.can_store(target, source)


_FLOAT_LIMITS = {
    "bfloat16": (3.3895313892515355e38, 0.0078125, 1.1754943508222875e-38),
    "float8_e4m3fn": (448.0, 0.125, 0.015625),
    "float8_e4m3fnuz": (240.0, 0.125, 0.0078125),
    "float8_e5m2": (57344.0, 0.25, 6.103515625e-05),
    "float8_e5m2fnuz": (57344.0, 0.125, 3.0517578125e-05),
}
"""Largest number, epsilon and smallest normal number of floating types that NumPy does not have."""


class finfo:
    """The limits of a floating dtype.

    Args:
        dtype: The dtype; None: the default dtype.

    Attributes:
        max: Largest finite number.
        min: Smallest finite number, `-max`.
        eps: Difference between 1 and the next larger number.
        tiny: Smallest positive normal number.
        smallest_normal: The same as `tiny`.
        resolution: Decimal resolution: the power of ten next above `eps`, such as 1e-6 for float32.
        bits: Size of an element in bits.
        dtype: Name of the dtype.

    Raises:
        DTypeError: The dtype is not floating.

    Example:
        >>> wg.finfo(wg.float16).max, wg.finfo(wg.float16).eps
        (65504.0, 0.0009765625)
    """

    def __init__(self, dtype: DTypeLike | None = None):
        parsed = dtypes.default_dtype() if dtype is None else dtypes.parse(dtype)
        if parsed.kind != "f":
            hint = "a bool has no limits" if parsed.kind == "b" else "use iinfo"
            raise DTypeError(f"finfo: takes floating dtypes, not {parsed.name}; {hint}")
        self.bits = parsed.itemsize * 8
        if parsed.name in _FLOAT_LIMITS:
            self.max, self.eps, self.tiny = _FLOAT_LIMITS[parsed.name]
        elif isinstance(parsed, dtypes.NamedDType):
            raise DTypeError(f"finfo: there are no limits for {parsed.name}")
        else:
            limits = np.finfo(parsed.numpy)
            self.max, self.eps, self.tiny = float(limits.max), float(limits.eps), float(limits.tiny)
        self.min = -self.max
        self.smallest_normal = self.tiny
        self.resolution = 10.0 ** math.ceil(math.log10(self.eps))
        self.dtype = parsed.name

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{n}={getattr(self, n):.6g}' for n in names)}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer dtype.

    Args:
        dtype: The dtype.

    Attributes:
        max: Largest number.
        min: Smallest number.
        bits: Size of an element in bits.
        dtype: Name of the dtype.

    Raises:
        DTypeError: The dtype is not an integer dtype.

    Example:
        >>> wg.iinfo(wg.int8)
        iinfo(min=-128, max=127, dtype=int8)
    """

    def __init__(self, dtype: DTypeLike):
        parsed = dtypes.parse(dtype)
        if parsed.kind not in "ui":
            hint = "a bool has no limits" if parsed.kind == "b" else "use finfo"
            raise DTypeError(f"iinfo: takes integer dtypes, not {parsed.name}; {hint}")
        limits = np.iinfo(parsed.numpy)
        self.max = int(limits.max)
        self.min = int(limits.min)
        self.bits = parsed.itemsize * 8
        self.dtype = parsed.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


METHODS = {"is_signed": is_signed}
"""Functions that are methods of Tensor, too; `numel` and `is_floating_point` are defined with the class."""
