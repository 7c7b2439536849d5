"""Print expressions as OpenCL C, in three dialects.

`scalar` computes one element at a time. `vector` computes `LANES` elements at once: a truth value is 0 or -1 per lane,
and per-row and scalar operands are broadcast to all lanes. `row` computes values that all elements of a row share;
kernels in both other dialects contain such text.

The kernel that the text becomes part of defines its types: `V` for a value, `M` for a mask and `L` for an index; in the
dialect `row`, `C`, `int` and `long`. A function is `wg_NAME`, overloaded by the types of its arguments.
`WG_CONVERT(x, T)` converts each lane (`vector` only).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from .emit import Block, Dialect, Piece, emit
from .nodes import Expr, ExprError, Type
from .vocabulary import functions

_TERNARY, _UNARY = 1, 12  # precedences, as those of `OpenCL.infix`
_PROMOTING_FUNCTIONS = ("add", "sub", "mul", "neg", "bitwise_not", "lshift")  # C computes int8 and int16 as int


@dataclass(frozen=True)
class OpenCL(Dialect):
    """OpenCL C.

    Attributes:
        value, mask, index: the types of values, masks and indices in the text.
        lanes: values are vectors.
        wrap: cast the results of `_PROMOTING_FUNCTIONS` back to the type of values.
    """

    value: str = "V"
    mask: str = "M"
    index: str = "L"
    lanes: bool = False
    wrap: bool = False

    target = "opencl"
    function_prefix = "wg_"
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
            true_text = "-1" if self.lanes else "1"
            return Piece(f"({self.mask})({true_text if node.value else '0'})", _UNARY)
        assert isinstance(node.value, (int, float))
        return Piece(f"({self.type(node.type)})({_number_literal(node.value)})", _UNARY)

    def operand(self, node: Expr, name: str) -> Piece:
        if not self.lanes or node.scope in ("full", "column"):
            return Piece(name)
        # OpenCL C broadcasts a scalar operand only in operators, not in a ternary or a call.
        scalar_text = f"{name} ? -1 : 0" if node.type == "mask" else name
        return Piece(f"({self.type(node.type)})({scalar_text})", _UNARY)

    def declare(self, node: Expr, local: str, text: str) -> str:
        return f"const {self.type(node.type)} {local} = {text};"

    def spelling(self, node: Expr) -> str:
        # The format strings of `functions.yaml` cast to V.
        return super().spelling(node).replace("(V)", f"({self.value})")

    def apply(self, node: Expr, args: Sequence[Piece]) -> Piece:
        if functions()[node.fn].row:
            raise ExprError(f"{node.fn} reduces a row: split the expression with row_stages first")
        if functions()[node.fn].random:
            draw_number = node.args[0].value
            return Piece(f"wg_{node.fn}({draw_number})", calls=node.fn)
        print_call = {"where": self._where, "to_value": self._to_value, "to_mask": self._to_mask,
                      "index_to_value": self._index_to_value}.get(node.fn, self._spelled_call)  # fmt: skip
        piece = print_call(node, args)
        if self.lanes and node.type == "mask" and node.args[0].type == "index":
            # Comparing vectors of long gives a vector of long, but the lanes of a mask are as wide as those of a value.
            return self._convert(piece, self.mask)
        if self.wrap and node.type == "value" and node.fn in _PROMOTING_FUNCTIONS:
            return Piece(f"({self.value})({piece.text})", _UNARY)
        return piece

    def inside(self, piece: Piece, binding: int) -> str:
        # Compilers warn about the precedence of bit operators, shifts and logic. So only arithmetic inside any operator
        # and comparisons inside `&&` go without parentheses.
        and_binding = self.infix["&&"]
        is_arithmetic = piece.binding >= self.infix["+"]
        is_comparison = piece.binding in (self.infix["=="], self.infix["<"])
        is_clear = is_arithmetic or (is_comparison and binding in (and_binding, and_binding + 1))
        return piece.text if is_clear and piece.binding >= binding else f"({piece.text})"

    def _spelled_call(self, node: Expr, args: Sequence[Piece]) -> Piece:
        """Print a function by its spelling in `functions.yaml`, or as a call of `wg_NAME`."""
        piece = super().apply(node, args)
        is_library_call = self.spelling(node) == f"wg_{node.fn}"
        return Piece(piece.text, piece.binding, node.fn) if is_library_call else piece

    def _convert(self, piece: Piece, target_type: str) -> Piece:
        text = f"WG_CONVERT({piece.text}, {target_type})" if self.lanes else f"({target_type})({piece.text})"
        return Piece(text, _UNARY)

    def _choice(self, condition: Piece, if_true: Piece, if_false: Piece) -> Piece:
        texts = [self.inside(piece, _TERNARY + 1) for piece in (condition, if_true, if_false)]
        return Piece("{} ? {} : {}".format(*texts), _TERNARY)

    def _where(self, node: Expr, args: Sequence[Piece]) -> Piece:
        condition, if_true, if_false = args
        if self.lanes and node.type == "index":
            # The lanes of the condition must be as wide as those that it selects from.
            condition = self._convert(condition, self.index)
        return self._choice(condition, if_true, if_false)

    def _to_value(self, node: Expr, args: Sequence[Piece]) -> Piece:
        return self._choice(args[0], Piece(f"({self.value})(1)", _UNARY), Piece(f"({self.value})(0)", _UNARY))

    def _to_mask(self, node: Expr, args: Sequence[Piece]) -> Piece:
        zero = f"({self.type(node.args[0].type)})(0)"
        binding = self.infix["!="]
        return Piece(f"{self.inside(args[0], binding + 1)} != {zero}", binding)

    def _index_to_value(self, node: Expr, args: Sequence[Piece]) -> Piece:
        return self._convert(args[0], self.value)


def _number_literal(value: int | float) -> str:
    """Return a number as a C expression of type int, long, ulong or double, without outer parentheses.

    C has no negative literals: `-2147483648` negates a long, so the smallest int is `-2147483647 - 1`. An integer that
    no C type holds becomes a double.
    """
    if isinstance(value, float):
        if math.isnan(value):
            return "NAN"
        return repr(value) if math.isfinite(value) else "INFINITY" if value > 0 else "-INFINITY"
    for bits, suffix in ((32, ""), (64, "L")):
        smallest = -(2 ** (bits - 1))
        if value == smallest:
            return f"{value + 1}{suffix} - 1{suffix}"
        if smallest < value < -smallest:
            return f"{value}{suffix}"
    return f"{value}UL" if value > 0 else repr(float(value))


OPENCL_SCALAR = OpenCL()
OPENCL_VECTOR = OpenCL(lanes=True)
OPENCL_ROW = OpenCL(value="C", mask="int", index="long")
_DIALECTS: Mapping[str, OpenCL] = {"scalar": OPENCL_SCALAR, "vector": OPENCL_VECTOR, "row": OPENCL_ROW}


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
        outputs: name -> expression.
        dialect: `scalar`, `vector` or `row` (see the module's docstring), or an `OpenCL` object.
        wrap: cast integer results that C promotes to int back to their type. Vectors are not promoted.
        local: prefix of the locals.
        names: operand -> its name in the text. Operands of scope `full` and `column` have the types `V`, `M` or `L`,
            those of scope `row` and `scalar` the types `C`, `int` or `long`.

    Returns:
        The text, and the functions of the math library that it calls.

    Raises:
        ExprError: the expression has a row reduction; split it with `row_stages` first.
    """
    printer = _DIALECTS[dialect] if isinstance(dialect, str) else dialect
    if wrap and not printer.lanes:
        printer = replace(printer, wrap=True)
    return emit(outputs, printer, local=local, names=names)
