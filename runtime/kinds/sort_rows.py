"""The rows of a sort call, which the planners for OpenCL and for Triton share."""

from __future__ import annotations

from dataclasses import dataclass

from .. import dtypes
from ..dtypes import DType
from ..schedules import Choice, choose
from . import Request

__all__ = ["Rows"]

_INFINITY_BITS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one sort call.

    Attributes:
        rows, n: number of rows, and elements of a row.
        k: number of elements of each sorted row to return.
        sizes: sizes of the dimensions other than the sorted one.
        strides: strides of the input and of the results along `sizes`.
        dim_strides: strides of the input and of the results along a row, the sorted dimension.
    """

    request: Request
    rows: int
    n: int
    k: int
    descending: bool
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], tuple[int, ...]]
    dim_strides: tuple[int, int]
    dtype: DType

    @property
    def raw(self) -> DType:
        """The dtype in which elements are copied."""
        return self.dtype if self.dtype.kind == "i" else dtypes.bits_dtype(self.dtype)

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 8 * self.dtype.itemsize

    @property
    def form(self) -> int:
        """How to compare keys: 0 unsigned, 1 signed, 2 floating."""
        return {"b": 0, "u": 0, "i": 1, "f": 2}[self.dtype.kind]

    def schedule(self) -> Choice:
        """Return the schedule parameters."""
        sizes = {"rows": self.rows, "n": self.n, "k": self.k}
        return choose(self.request, "sort", sizes, self.dtype.name, "sort")

    @property
    def infinity_bits(self) -> int:
        """The bits of infinity, to recognise NaN; 0 for integers."""
        return _INFINITY_BITS.get(self.dtype.name, 0)
