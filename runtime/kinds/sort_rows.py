"""The rows of a sort call, which the planners for OpenCL and for Triton share."""

from __future__ import annotations

from dataclasses import dataclass

from .. import dtypes
from ..dtypes import DType
from ..schedules import Choice, choose
from . import Request

__all__ = ["RANK_MAX", "Rows", "rank_levels"]

RANK_MAX = 512  # longest row, or part of a row, that is sorted by ranks
_INFINITY_BITS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one sort call.

    Attributes:
        rows, n: number of rows, and elements of a row.
        k: number of elements of each sorted row to return.
        sizes: sizes of the dimensions other than the sorted one.
        strides: strides of the input and of the results along `sizes`.
        steps: strides of the input and of the results along a row.
    """

    request: Request
    rows: int
    n: int
    k: int
    descending: bool
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], tuple[int, ...]]
    steps: tuple[int, int]
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


def rank_levels(n: int, k: int) -> list[tuple[int, int]]:
    """Return the levels of a top-k by ranks: for each, the number of elements, and of parts of `RANK_MAX` elements."""
    levels_above = []
    while n > RANK_MAX:
        parts = -(-n // RANK_MAX)
        levels_above.append((n, parts))
        n = parts * k
    return [*levels_above, (n, 1)]
