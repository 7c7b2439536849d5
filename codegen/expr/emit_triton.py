"""Print expressions as the body of a `@triton.jit` function on blocks of elements.

A value is a tensor of the compute type `C` (a constexpr), a mask a tensor of int1, an index a tensor of int32 or int64.
An operator on a tensor and a Python number keeps the tensor's type, so the constant is printed as is. If both operands
are constants, or if a constant is an argument or a result, it is printed as a typed tensor. A function is `wg_NAME`,
generic in the type of its arguments (`templates/triton/math`).

Besides its operands a text may use `C`; `WG_BOOL`, a constexpr that is true if values are truth values (0 or 1), if it
calls `bitwise_not`; and `wg_index`, `wg_offset` and `wg_key` if it draws random numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from .emit import ATOM, Block, Dialect, Piece, emit
from .nodes import Expr, ExprError
from .vocabulary import functions

_CALL_PATTERN = re.compile(r"\bwg_(\w+)\(")
_UNTYPED_INTEGERS = range(128)  # integers that every integer dtype can hold
_INT32, _INT64 = 2**31, 2**63


class _Triton(Dialect):
    target = "triton"
    default = "wg_"
    infix: ClassVar[Mapping[str, int]] = {
        "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "|": 5, "^": 6, "&": 7, "+": 9, "-": 9, "*": 10,
    }  # fmt: skip
    prefix: ClassVar[Mapping[str, int]] = {"-": 11, "~": 11}
    comparisons = frozenset(("==", "!=", "<", "<=", ">", ">="))

    def literal(self, node: Expr) -> Piece:
        if isinstance(node.value, bool) or _is_minus_zero(node.value) or not _fits(node):
            return self.typed(node)
        text = _number(node.value)
        return Piece(text, self.prefix["-"] if text.startswith("-") else ATOM)

    def typed(self, node: Expr) -> Piece:
        """Print a constant as a typed tensor, for a position where no other operand determines its type."""
        if node.type == "mask":
            return Piece(f"tl.full((), {node.value}, tl.int1)")
        if node.type == "index":
            return Piece(f"tl.full((), {_number(node.value)}, tl.int64)")
        if _is_minus_zero(node.value):
            return Piece("wg_neg(tl.full((), 0, C))")
        if isinstance(node.value, float) or node.value in _UNTYPED_INTEGERS:
            return Piece(f"tl.full((), {_number(node.value)}, C)")
        return Piece(f"wg_integer({node.value}, C)")

    def declare(self, node: Expr, local: str, text: str) -> str:
        return f"{local} = {text}"

    def spelling(self, node: Expr) -> str:
        if node.type == "index" and node.fn in ("neg", "bitwise_not"):
            return {"neg": "-", "bitwise_not": "~"}[node.fn]
        return super().spelling(node)

    def apply(self, node: Expr, args: Sequence[Piece]) -> Piece:
        if functions()[node.fn].row:
            raise ExprError(f"{node.fn} reduces a row: split the expression with row_stages first")
        if functions()[node.fn].random:
            counter = f"wg_index, wg_offset + {node.args[0].value}, wg_key"
            return Piece(f"wg_{node.fn}({counter})" if node.fn == "bits" else f"wg_{node.fn}({counter}, C)")
        pieces = self._with_types(node, args)
        if node.fn == "bitwise_not" and node.type == "value":
            return Piece(f"wg_bitwise_not({pieces[0].text}, WG_BOOL)")
        if node.fn == "to_mask":
            return Piece(f"{self.inside(pieces[0], 5)} != 0", self.infix["!="])
        return super().apply(node, pieces)

    def _with_types(self, node: Expr, args: Sequence[Piece]) -> Sequence[Piece]:
        """Return the arguments, with constants as typed tensors where no other operand determines their type."""
        spelling = self.spelling(node)
        first, *other_args = node.args
        if spelling not in self.infix and spelling != "tl.where":
            return [self.typed(arg) if arg.fn == "const" else piece for arg, piece in zip(node.args, args, strict=True)]
        if spelling == "tl.where":
            first, other_args = other_args[0], other_args[1:]
        if first.fn != "const" or any(arg.fn != "const" for arg in other_args):
            return args
        return [self.typed(arg) if arg is first else piece for arg, piece in zip(node.args, args, strict=True)]


def _fits(node: Expr) -> bool:
    """Return True if Triton accepts this number next to any tensor: it rejects numbers outside the tensor's dtype."""
    if isinstance(node.value, float):
        return True
    assert isinstance(node.value, int)
    return -_INT32 <= node.value < _INT32 if node.type == "index" else node.value in _UNTYPED_INTEGERS


def _is_minus_zero(value: object) -> bool:
    """Return True for -0.0, which Triton would turn into 0.0."""
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0


def _number(value: object) -> str:
    """Return a number's literal in Triton."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return f'float("{value}")'
        if value in _UNTYPED_INTEGERS:
            return str(int(value))  # same value next to floats, and no promotion next to integers
    return repr(value)


_TRITON = _Triton()


def emit_triton(outputs: Mapping[str, Expr], *, local: str = "t", names: Mapping[str, str] | None = None) -> Block:
    """Print `outputs` as statements and expressions of a `@triton.jit` function (see the module's docstring).

    Operands and outputs are tensors: of type C for a value, int1 for a mask, int32 or int64 for an index. A constant
    output may have fewer dimensions than the operands. `functions` of the result lists the called `wg_*` functions
    without prefix.

    Args:
        outputs: name -> expression.
        local: prefix of the locals.
        names: operand -> its name in the text.

    Raises:
        ExprError: the expression has a row reduction; split it with `row_stages` first.
    """
    block = emit(outputs, _TRITON, local=local, names=names)
    constants = {output: _TRITON.typed(node).text for output, node in outputs.items() if node.fn == "const"}
    values = {**block.values, **constants}
    function_names = {name for text in (*block.statements, *values.values()) for name in _CALL_PATTERN.findall(text)}
    return Block(block.statements, values, tuple(sorted(function_names)))
