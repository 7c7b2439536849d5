"""Element types and PyTorch's type promotion (`torch.result_type`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np

from .context import forget_plans
from .errors import DTypeError, UnsupportedDType

__all__ = [
    "BY_NAME",
    "Array",
    "DType",
    "DTypeLike",
    "NamedDType",
    "accumulator",
    "bfloat16",
    "bits_dtype",
    "bool_",
    "can_store",
    "default_dtype",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "int8",
    "int16",
    "int32",
    "int64",
    "named_dtype",
    "number_dtype",
    "parse",
    "promote",
    "set_default_dtype",
    "uint8",
]

Array: TypeAlias = np.ndarray
"""A NumPy array of any shape and dtype."""


class DType:
    """An element type. Compared by identity.

    Args:
        name: Name, such as `float32`.
        kind: `b` (bool), `u` (unsigned), `i` (signed) or `f` (floating).
        itemsize: Bytes of an element.
        storage: The OpenCL C type of an element in memory.
        order: Rank in type promotion.
        compute: The OpenCL C type in which kernels calculate; None: `storage`.

    Attributes:
        kind: `b` (bool), `u` (unsigned), `i` (signed) or `f` (floating).
        storage: The OpenCL C type of an element in memory.
        compute: The OpenCL C type in which kernels calculate: float for half types, else `storage`.
        numpy: The NumPy dtype. NumPy has no bfloat16, so arrays hold its bits as uint16.
        order: Rank in type promotion.

    Example:
        >>> wg.float16.itemsize, wg.float16.is_floating_point
        (2, True)
    """

    __slots__ = ("compute", "itemsize", "kind", "name", "numpy", "order", "storage")

    def __init__(self, name: str, kind: str, itemsize: int, storage: str, order: int, compute: str | None = None):
        self.name = name
        self.kind = kind
        self.itemsize = itemsize
        self.storage = storage
        self.order = order
        self.compute = compute or storage
        self.numpy = np.dtype({"bfloat16": "uint16"}.get(name, name))

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return False

    @property
    def is_signed(self) -> bool:
        return self.kind in "if"

    def __repr__(self) -> str:
        return f"weftgrad.{self.name}"

    def __reduce__(self) -> tuple[Callable[..., DType], tuple[str | int, ...]]:
        return parse, (self.name,)

    def __deepcopy__(self, memo: object) -> DType:
        return self


class NamedDType(DType):
    """An element type of PyTorch that no kernel computes, such as complex64: a name to compare, look up and refuse.

    Args:
        name: Name, such as `complex64`.
        kind: As in `DType`, or `c` (complex).
        itemsize: Bytes of an element.
    """

    __slots__ = ()

    def __init__(self, name: str, kind: str, itemsize: int):
        self.name = name
        self.kind = kind
        self.itemsize = itemsize
        self.order = -1
        self.storage = self.compute = ""
        self.numpy = np.dtype(name if hasattr(np, name) else f"V{itemsize}")

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_signed(self) -> bool:
        return self.kind in "ifc"

    def __reduce__(self) -> tuple[Callable[..., DType], tuple[str | int, ...]]:
        return named_dtype, (self.name, self.kind, self.itemsize)

    def unsupported(self) -> UnsupportedDType:
        """Return the exception for a tensor of this dtype, to be raised."""
        return UnsupportedDType(
            f"{self.name}: there are no tensors of this dtype here, only its name; use one of {', '.join(BY_NAME)}"
        )


@cache
def named_dtype(name: str, kind: str, itemsize: int) -> NamedDType:
    """Return the dtype of this name that no kernel computes: one object for each name."""
    return NamedDType(name, kind, itemsize)


DTypeLike: TypeAlias = DType | str | type[bool] | type[int] | type[float] | np.dtype[np.generic] | type[np.generic]
"""What `parse` accepts: a dtype, its name, Python's `bool`, `int` and `float`, or a NumPy dtype."""

bool_ = DType("bool", "b", 1, "uchar", 0)
uint8 = DType("uint8", "u", 1, "uchar", 1)
int8 = DType("int8", "i", 1, "char", 2)
int16 = DType("int16", "i", 2, "short", 3)
int32 = DType("int32", "i", 4, "int", 4)
int64 = DType("int64", "i", 8, "long", 5)
float16 = DType("float16", "f", 2, "ushort", 6, "float")
bfloat16 = DType("bfloat16", "f", 2, "ushort", 6, "float")
float32 = DType("float32", "f", 4, "float", 7)
float64 = DType("float64", "f", 8, "double", 8)

BY_NAME = {d.name: d for d in (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)}
_ALIASES = {"half": float16, "float": float32, "double": float64, "short": int16, "int": int32, "long": int64}
_RAW = {1: uint8, 2: int16, 4: int32, 8: int64}
_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}
_default = float32


def default_dtype() -> DType:
    """Return the dtype of tensors created from Python floats (`get_default_dtype`).

    Returns:
        `DType`.

    Example:
        >>> wg.get_default_dtype()
        weftgrad.float32
    """
    return _default


def set_default_dtype(dtype: DType) -> None:
    """Set the dtype of tensors created from Python floats.

    Args:
        dtype: Floating dtype.

    Raises:
        DTypeError: Unless it is a floating type.

    Example:
        >>> wg.set_default_dtype(wg.float64)
        >>> wg.tensor([0.5]).dtype
        weftgrad.float64
        >>> wg.set_default_dtype(wg.float32)
    """
    global _default
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise DTypeError(f"the default dtype must be a floating type, not {dtype!r}")
    _default = dtype
    forget_plans()  # their results may have the old one


def parse(value: object) -> DType:
    """Return the `DType` of a `DType`, a name, a NumPy dtype, or `bool`, `int`, `float` (as in PyTorch)."""
    if isinstance(value, DType):
        return value
    if value is bool:
        return bool_
    if value is int:
        return int64
    if value is float:
        return float64
    if isinstance(value, str) and (named_dtype := BY_NAME.get(value) or _ALIASES.get(value)):
        return named_dtype
    try:
        return from_numpy(np.dtype(value))  # type: ignore[call-overload]  # a TypeError if it is no dtype
    except TypeError:
        raise DTypeError(f"{value!r} is not a dtype; there are {', '.join(BY_NAME)}") from None


def from_numpy(dtype: np.dtype[np.generic]) -> DType:
    """Return the `DType` that stores elements of a NumPy dtype. Raises `DTypeError` if there is none."""
    element_type = BY_NAME.get(dtype.name)
    if element_type is None or not dtype.isnative:
        raise DTypeError(f"arrays of {dtype} are not supported; convert to one of {', '.join(BY_NAME)} first")
    return element_type


def number_dtype(value: bool | int | float) -> DType:
    """Return the dtype of a Python number."""
    if isinstance(value, bool):
        return bool_
    return int64 if isinstance(value, int) else _default


def promote(a: DType, b: DType) -> DType:
    """Return the smallest dtype that holds both, by PyTorch's table: int and float give float, uint8 and int8 int16."""
    if a is b:
        return a
    for dtype in (a, b):
        if isinstance(dtype, NamedDType):
            raise dtype.unsupported()
    if a.kind == "f" or b.kind == "f":
        if a.kind != b.kind:
            return a if a.kind == "f" else b
        if a.order == b.order:  # float16 with bfloat16
            return float32
        return a if a.order > b.order else b
    if {a, b} == {uint8, int8}:
        return int16
    return a if a.order > b.order else b


def promote_operands(operands: list[tuple[DType, int]]) -> DType:
    """Return PyTorch's result dtype of several operands.

    Args:
        operands: (dtype, priority) of each. Priority 0 is a tensor with dimensions, 1 a 0-d tensor, 2 a Python number.
            A later group takes part only if its category (bool, integer, float) is above that of the earlier groups.
    """
    result: DType | None = None
    for priority in (0, 1, 2):
        group: DType | None = None
        for dtype, p in operands:
            if p == priority:
                group = dtype if group is None else promote(group, dtype)
        if group is None:
            continue
        if result is None or _CATEGORY[group.kind] > _CATEGORY[result.kind]:
            result = group
    if result is None:
        raise DTypeError("an op needs at least one operand to have a result type")
    return result


def bits_dtype(dtype: DType) -> DType:
    """Return the integer dtype of the same size, as which kernels copy elements without computing."""
    return _RAW[dtype.itemsize]


def can_store(dtype: DType, result: DType) -> bool:
    """Return True if results of dtype `result` may be written to memory of `dtype`.

    Floats may not be written to integers, and neither to bool.
    """
    return _CATEGORY[result.kind] <= _CATEGORY[dtype.kind]


def accumulator(dtype: DType) -> DType:
    """Return the result dtype of `sum` and `prod`: int64 for integers and bool, floating types unchanged."""
    return dtype if dtype.kind == "f" else int64
