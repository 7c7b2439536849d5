"""What dtypes can hold and what they promote to, and questions about a tensor's dtype."""

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


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return True if `value` is a Tensor.

    Args:
        value: An object of any type.

    Returns:
        Python bool.

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
        Python int.

    Example:
        >>> wg.numel(wg.ones(2, 3))
        6
    """
    only_tensors("numel", input)
    return input.meta.numel


def is_floating_point(input: Tensor) -> bool:
    """Return True if the dtype is floating.

    Args:
        input: Tensor of any dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.is_floating_point(wg.tensor([1]))
        False
    """
    only_tensors("is_floating_point", input)
    return input.meta.dtype.is_floating_point


def is_signed(input: Tensor) -> bool:
    """Return True if the dtype has negative numbers.

    Args:
        input: Tensor of any dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.is_signed(wg.tensor([1], dtype=wg.uint8))
        False
    """
    return input.meta.dtype.kind in "if"


def result_type(first: Operand, second: Operand) -> DType:
    """Return the dtype that arithmetic with two operands (tensors or numbers) promotes to.

    Args:
        first: Tensor or number.
        second: Tensor or number.

    Returns:
        The dtype.

    Raises:
        ArgumentError: An operand is neither a tensor nor a number.

    Example:
        >>> wg.result_type(wg.tensor([1]), 1.0)
        weftgrad.float32
    """
    ranked: list[tuple[DType, int]] = []
    for operand in (first, second):
        if isinstance(operand, Tensor):
            ranked.append((operand.meta.dtype, 0 if operand.meta.ndim else 1))
            continue
        number = operand.item() if isinstance(operand, np.generic) else operand
        if not isinstance(number, (bool, int, float)):
            raise ArgumentError(f"result_type: takes tensors and numbers, not {type(operand).__name__}")
        ranked.append((dtypes.number_dtype(number), 2))
    return dtypes.promote_operands(ranked)


def promote_types(first: DType, second: DType) -> DType:
    """Return the dtype that two dtypes promote to.

    Args:
        first: Dtype.
        second: Dtype.

    Returns:
        The dtype.

    Example:
        >>> wg.promote_types(wg.int32, wg.float16)
        weftgrad.float16
    """
    return dtypes.promote(first, second)


def can_cast(source: DType, target: DType) -> bool:
    """Return True if `source` may be cast to `target` without going down in category: bool, integer, floating.

    Args:
        source: Dtype.
        target: Dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.can_cast(wg.float64, wg.int32)
        False
    """
    order = {"b": 0, "u": 1, "i": 1, "f": 2}
    return order[source.kind] <= order[target.kind]


class finfo:
    """The limits of a floating dtype.

    Args:
        dtype: The dtype; None: the default dtype.

    Attributes:
        max: Largest finite number; `min` is its negative.
        eps: Difference between 1 and the next larger number.
        tiny: Smallest positive normal number, also called `smallest_normal`.
        resolution: Decimal resolution, such as 1e-6 for float32.
        bits: Size of an element.
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
            raise DTypeError(f"finfo: takes floating dtypes, not {parsed.name}; use iinfo")
        if parsed is dtypes.bfloat16:
            self.max, self.eps, self.tiny, self.bits = 3.3895313892515355e38, 0.0078125, 1.1754943508222875e-38, 16
        else:
            limits = np.finfo(parsed.numpy)
            self.max, self.eps, self.tiny = float(limits.max), float(limits.eps), float(limits.tiny)
            self.bits = parsed.itemsize * 8
        self.min, self.smallest_normal, self.dtype = -self.max, self.tiny, parsed.name
        self.resolution = 10.0 ** math.ceil(math.log10(self.eps))  # the decimal resolution, 1e-6 for float32

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
        bits: Size of an element.
        dtype: Name of the dtype.

    Raises:
        DTypeError: The dtype is no integer dtype.

    Example:
        >>> wg.iinfo(wg.int8)
        iinfo(min=-128, max=127, dtype=int8)
    """

    def __init__(self, dtype: DTypeLike):
        parsed = dtypes.parse(dtype)
        if parsed.kind not in "ui":
            raise DTypeError(f"iinfo: takes integer dtypes, not {parsed.name}")
        limits = np.iinfo(parsed.numpy)
        self.max, self.min, self.bits, self.dtype = int(limits.max), int(limits.min), parsed.itemsize * 8, parsed.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


METHODS = {"is_signed": is_signed}
