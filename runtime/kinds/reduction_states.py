"""States and iteration spaces of reductions, which the planners for OpenCL and for Triton share.

A reduction accumulates in a *state*: one or more fields, such as value and index. So does a scan (`scan.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from .. import dtypes
from ..backends.protocol import Slot
from ..dtypes import DType
from ..program import iota
from ..schedules import Choice, choose
from . import Request

__all__ = [
    "LIMITS", "WIDE", "IterationSpace", "is_bool", "output_dtype", "schedule", "state_bytes", "state_slot",
    "vector_defines",
]  # fmt: skip

WIDE = frozenset(("float", "double", "int", "long"))  # element types whose vectors can hold indices
LIMITS = {
    "float": ("(-INFINITY)", "INFINITY"),
    "double": ("(-(double)INFINITY)", "((double)INFINITY)"),
    "char": ("(-128)", "127"),
    "uchar": ("0", "255"),
    "short": ("(-32768)", "32767"),
    "int": ("(-2147483647 - 1)", "2147483647"),
    "long": ("(-0x7fffffffffffffffL - 1)", "0x7fffffffffffffffL"),
}
_STATE_DTYPES = {"float": "float32", "double": "float64", "long": "int64", "int": "int32", "short": "int16",
                 "char": "int8", "uchar": "uint8"}  # fmt: skip
_STATE_BYTES = {"float": 4, "double": 8, "long": 8, "int": 4, "short": 2, "char": 1, "uchar": 1}


def schedule(request: Request, space: IterationSpace) -> Choice:
    """Return the schedule parameters of a reduction; the same for the forms with and without gradient outputs."""
    main, sizes = request.tensors[space.main_input][1], {"results": space.results, "count": space.count}
    return choose(request, "reduction", sizes, main.dtype.name, request.record.called)


def output_dtype(request: Request, rule: str, state_dtype: DType) -> DType:
    """Return the dtype of a result by its rule (see `records.Output`), given the dtype of the states."""
    if rule in ("promote", "float", "accumulate"):
        return state_dtype
    if rule == "index":
        return dtypes.int64
    if rule == "truth":  # PyTorch's rule: masks of uint8 are older than bool
        return dtypes.uint8 if request.tensors[0][1].dtype is dtypes.uint8 else dtypes.bool_
    if rule.startswith("like:"):
        operand_name = rule.removeprefix("like:")
        return next(m.dtype for o, m in request.tensors if o.name == operand_name)
    return dtypes.BY_NAME[rule]


@dataclass(frozen=True, slots=True)
class IterationSpace:
    """Iteration space of a reduction after merging dimensions. Both ranks are at least 1.

    Attributes:
        outer_sizes: sizes of the result's dimensions.
        outer_strides: strides along them, of every input, then every output.
        reduced_sizes: sizes of the reduced dimensions.
        reduced_strides: strides along them, of every input.
        main_input: position of the largest input, whose memory order decides the iteration order.
        results: number of results.
        count: number of elements that each result combines.
    """

    outer_sizes: tuple[int, ...]
    outer_strides: tuple[tuple[int, ...], ...]
    reduced_sizes: tuple[int, ...]
    reduced_strides: tuple[tuple[int, ...], ...]
    main_input: int
    results: int = field(init=False)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "results", prod(self.outer_sizes))
        object.__setattr__(self, "count", prod(self.reduced_sizes))


def is_bool(request: Request) -> bool:
    """Return True if all value operands are bool."""
    return all(m.dtype is dtypes.bool_ for o, m in request.tensors if o.type == "value")


def state_slot(type: str, element: str) -> Slot:
    """Return the kernel parameter for partial states of one field: `value`, `mask` or `index`."""
    return Slot({"value": _STATE_DTYPES[element], "mask": "bool", "index": "int64"}[type], type)


def state_bytes(type: str, element: str) -> int:
    """Return the bytes of one field of a state."""
    return {"value": _STATE_BYTES[element], "mask": 1, "index": 8}[type]


def vector_defines(lanes: int) -> list[tuple[str, str]]:
    """Return the macros of a kernel with vectors of `lanes` elements."""
    return [("VECTOR", "1"), ("IOTA", iota("L", lanes)), ("ROW_IOTA", iota("M", lanes))]
