"""Element types, and the rules by which two of them meet (PyTorch's promotion, `torch.result_type`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import DTypeError

__all__ = [
    "BY_NAME",
    "DType",
    "accumulator",
    "bfloat16",
    "bool_",
    "default_dtype",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "holds",
    "int8",
    "int16",
    "int32",
    "int64",
    "of_number",
    "parse",
    "promote",
    "raw",
    "set_default_dtype",
    "uint8",
]


class DType:
    """One element type. Compared by identity; `repr` is how users spell it.

    `kind` is `b` (bool), `u` (unsigned), `i` (signed) or `f` (floating). `compute` is the type kernels calculate in:
    half types in float32, everything else in itself. NumPy has no bfloat16: such arrays hold its raw bits as uint16.
    """

    __slots__ = ("compute", "itemsize", "kind", "name", "numpy", "order", "storage")

    def __init__(self, name: str, kind: str, itemsize: int, storage: str, order: int, compute: str | None = None):
        self.name = name
        self.kind = kind
        self.itemsize = itemsize
        self.storage = storage  # how OpenCL C stores an element
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

    def __reduce__(self) -> tuple[Any, ...]:
        return parse, (self.name,)

    def __deepcopy__(self, memo: object) -> DType:
        return self


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
    """The type of floats made from Python numbers (`get_default_dtype`)."""
    return _default


def set_default_dtype(dtype: DType) -> None:
    """Set the type of floats made from Python numbers; must be a floating type."""
    global _default
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise DTypeError(f"the default dtype must be a floating type, not {dtype!r}")
    _default = dtype


def parse(value: Any) -> DType:
    """A `DType` from one, from its name, from a NumPy dtype, or from `bool`, `int`, `float` (as PyTorch reads them)."""
    if isinstance(value, DType):
        return value
    if value is bool:
        return bool_
    if value is int:
        return int64
    if value is float:
        return float64
    if isinstance(value, str) and (found := BY_NAME.get(value) or _ALIASES.get(value)):
        return found
    try:
        return from_numpy(np.dtype(value))
    except TypeError:
        raise DTypeError(f"{value!r} is not a dtype; there are {', '.join(BY_NAME)}") from None


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The type that stores a NumPy dtype's elements."""
    found = BY_NAME.get(dtype.name)
    if found is None or not dtype.isnative:
        raise DTypeError(f"arrays of {dtype} are not supported; convert to one of {', '.join(BY_NAME)} first")
    return found


def of_number(value: bool | int | float) -> DType:
    """The type a Python number has by itself."""
    if isinstance(value, bool):
        return bool_
    return int64 if isinstance(value, int) else _default


def promote(a: DType, b: DType) -> DType:
    """The smallest type that holds both, by PyTorch's table: int with float is that float, uint8 with int8 is int16."""
    if a is b:
        return a
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
    """PyTorch's result type of operands given as (dtype, priority).

    Priority 0 is a tensor with dimensions, 1 a 0-d tensor, 2 a Python number. A later group takes part only when its
    category (bool, integer, float) is above that of the groups before it.
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


def raw(dtype: DType) -> DType:
    """The integers as which elements of `dtype` are moved where nothing is computed."""
    return _RAW[dtype.itemsize]


def holds(dtype: DType, result: DType) -> bool:
    """Whether results of dtype `result` may be written to memory of `dtype`: not floats to integers, nor either to
    bool."""
    return _CATEGORY[result.kind] <= _CATEGORY[dtype.kind]


def accumulator(dtype: DType) -> DType:
    """The type `sum` and `prod` give: integers and bool grow to int64, floating types stay."""
    return dtype if dtype.kind == "f" else int64
