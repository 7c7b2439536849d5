"""Print expressions as OpenCL C, in three dialects.

`scalar` computes one element at a time. `vector` computes `LANES` elements: a truth value is 0 or -1 per lane, and
per-row and scalar operands are broadcast to all lanes. `row` computes values once per row or once for all, with the
types `C`, `int` and `long`; both other dialects use it.

The text has the types `V` for a value, `M` for a mask and `L` for an index. A function is `wg_NAME`, overloaded by the
types of its arguments. `WG_CONVERT(x, T)` converts each lane (`vector` only).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .emit import Block, Dialect, Piece, emit
from .nodes import Expr, ExprError, Type
from .vocabulary import functions

_UNARY, _TERNARY = 12, 1
_PROMOTED_FUNCTIONS = ("add", "sub", "mul", "neg", "bitwise_not", "lshift")
_INT32, _INT64 = 2**31, 2**63


@dataclass(frozen=True)
class OpenCL(Dialect):
    """OpenCL C. lanes: values are vectors. wrap: cast results that C promotes (integers below 32 bits) back."""

    value: str = "V"
    mask: str = "M"
    index: str = "L"
    lanes: bool = False
    wrap: bool = False

    target = "opencl"
    default = "wg_"
    infix: ClassVar[Mapping[str, int]] = {
        "||": 2, "&&": 3, "|": 4, "^": 5, "&": 6, "==": 7, "!=": 7, "<": 8, "<=": 8, ">": 8, ">=": 8,
        "<<": 9, ">>": 9, "+": 10, "-": 10, "*": 11, "/": 11,
    }  # fmt: skip
    prefix: ClassVar[Mapping[str, int]] = {"-": _UNARY, "!": _UNARY, "~": _UNARY}
    comparisons = frozenset(("==", "!=", "<", "<=", ">", ">="))

    def type(self, expr_type: Type) -> str:
        return {"value": self.value, "mask": self.mask, "index": self.index}[expr_type]

    def literal(self, node: Expr) -> Piece:
        if isinstance(node.value, bool):
            return Piece(f"({self.mask})({(-1 if self.lanes else 1) if node.value else 0})", _UNARY)
        assert isinstance(node.value, (int, float))
        return Piece(f"({self.type(node.type)})({_number(node.value)})", _UNARY)

    def operand(self, node: Expr, name: str) -> Piece:
        if not self.lanes or node.scope in ("full", "column"):
            return Piece(name)
        # OpenCL C broadcasts a scalar operand only in operators, not in a ternary or a call.
        lane_text = f"{name} ? -1 : 0" if node.type == "mask" else name
        return Piece(f"({self.type(node.type)})({lane_text})", _UNARY)

    def declare(self, node: Expr, local: str, text: str) -> str:
        return f"const {self.type(node.type)} {local} = {text};"

    def spelling(self, node: Expr) -> str:
        return super().spelling(node).replace("(V)", f"({self.value})")

    def apply(self, node: Expr, args: Sequence[Piece]) -> Piece:
        if functions()[node.fn].row:
            raise ExprError(f"{node.fn} is no function of one element: cut the expression with row_stages first")
        if functions()[node.fn].random:
            return Piece(f"wg_{node.fn}({node.args[0].value})", calls=node.fn)
        special = {"where": self._where, "to_value": self._to_value, "to_mask": self._to_mask,
                   "index_to_value": self._index_to_value}.get(node.fn)  # fmt: skip
        piece = special(node, args) if special is not None else super().apply(node, args)
        if self.lanes and node.type == "mask" and node.args[0].type == "index":
            # Comparing vectors of long gives a vector of long.
            return self._convert(piece, self.mask)
        if self.wrap and node.type == "value" and node.fn in _PROMOTED_FUNCTIONS:
            return Piece(f"({self.value})({piece.text})", _UNARY)
        if self.spelling(node) == f"wg_{node.fn}" and special is None:
            return Piece(piece.text, piece.binding, node.fn)
        return piece

    def inside(self, piece: Piece, binding: int) -> str:
        # Compilers warn about the precedence of bit operators, shifts and logic. So only arithmetic and comparisons
        # go without parentheses inside another operator.
        needs_no_parentheses = piece.binding >= 10 or (piece.binding in (7, 8) and binding in (3, 4))
        return piece.text if needs_no_parentheses and piece.binding >= binding else f"({piece.text})"

    def _convert(self, piece: Piece, type: str) -> Piece:
        return Piece(f"WG_CONVERT({piece.text}, {type})" if self.lanes else f"({type})({piece.text})", _UNARY)

    def _choice(self, condition: Piece, if_true: Piece, if_false: Piece) -> Piece:
        return Piece(f"{self.inside(condition, 2)} ? {self.inside(if_true, 2)} : {self.inside(if_false, 2)}", _TERNARY)

    def _where(self, node: Expr, args: Sequence[Piece]) -> Piece:
        condition, a, b = args
        if self.lanes and node.type == "index":
            condition = self._convert(condition, self.index)  # the lanes of a mask must be as wide as those it selects
        return self._choice(condition, a, b)

    def _to_value(self, node: Expr, args: Sequence[Piece]) -> Piece:
        return self._choice(args[0], Piece(f"({self.value})(1)", _UNARY), Piece(f"({self.value})(0)", _UNARY))

    def _to_mask(self, node: Expr, args: Sequence[Piece]) -> Piece:
        zero = f"({self.type(node.args[0].type)})(0)"
        return Piece(f"{self.inside(args[0], 8)} != {zero}", self.infix["!="])

    def _index_to_value(self, node: Expr, args: Sequence[Piece]) -> Piece:
        return self._convert(args[0], self.value)


def _number(value: int | float) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return "NAN"
        return repr(value) if math.isfinite(value) else "INFINITY" if value > 0 else "-INFINITY"
    if -_INT32 <= value < _INT32:
        return str(value) if value > -_INT32 else f"{value + 1} - 1"
    if -_INT64 <= value < _INT64:
        return f"{value}L" if value > -_INT64 else f"{value + 1}L - 1L"
    return f"{value}UL" if value > 0 else f"{float(value)!r}"


SCALAR = OpenCL()
VECTOR = OpenCL(lanes=True)
ROW = OpenCL(value="C", mask="int", index="long")
DIALECTS: Mapping[str, OpenCL] = {"scalar": SCALAR, "vector": VECTOR, "row": ROW}


def emit_opencl(
    outputs: Mapping[str, Expr],
    dialect: str | OpenCL,
    *,
    wrap: bool = False,
    local: str = "t",
    names: Mapping[str, str] | None = None,
) -> Block:
    """Print `outputs` as OpenCL C: declarations of locals `t0`, ... and an expression for each output.

    Args:
        dialect: `scalar`, `vector` or `row` (see the module's docstring), or an `OpenCL` object.
        wrap: cast integer results that C promotes to int back to their type. Vectors need no cast.
        local: prefix of the locals.
        names: operand -> its name in the text. Operands of scope `full` and `column` have the types `V`, `M` or `L`,
            those of scope `row` and `scalar` the types `C`, `int` or `long`.

    Raises:
        ExprError: the expression has a row reduction; split it with `row_stages` first.
    """
    printer = DIALECTS[dialect] if isinstance(dialect, str) else dialect
    if wrap and not printer.lanes:
        printer = OpenCL(printer.value, printer.mask, printer.index, printer.lanes, True)
    return emit(outputs, printer, local=local, names=names)
