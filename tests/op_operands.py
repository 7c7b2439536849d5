"""Operands and rows of tables of test cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class OperandSpec:
    """An operand: its shape, layout and values.

    Attributes:
        shape: The shape.
        layout: The memory layout, see `op_running.with_layout`.
        holds: What the values are. `value`: any numbers. `index`: integers in [low, high). `ordered`: the same, sorted.
            `mask`: bools. `chance`: probabilities in [0, 1). `partner`: element i is an integer in [0, i].
        low: The smallest index.
        high: The end of the range of indices.
        dtype: The dtype; None: that of the case.
    """

    shape: tuple[int, ...]
    layout: str = "contiguous"
    holds: str = "value"
    low: int = 0
    high: int = 0
    dtype: str | None = None


def arg(*shape: int, layout: str = "contiguous", holds: str = "value") -> OperandSpec:
    return OperandSpec(shape, layout, holds)


def idx(high: int, *shape: int, low: int = 0, layout: str = "contiguous", dtype: str = "int64") -> OperandSpec:
    return OperandSpec(shape, layout, "index", low, high, dtype)


def ordered(high: int, *shape: int, layout: str = "contiguous", dtype: str = "int64") -> OperandSpec:
    return OperandSpec(shape, layout, "ordered", 0, high, dtype)


class Row(NamedTuple):
    """A call of an op.

    Attributes:
        op: Name of the op.
        operands: Its tensors, in order; None for an optional one that is left out.
        named: Its numbers and static arguments, by name.
        checks_gradients: Whether its derivatives are compared with finite differences.
    """

    op: str
    operands: tuple[OperandSpec | None, ...]
    named: dict[str, Any]
    checks_gradients: bool = True
