"""Triton: the body of a `@triton.jit` function over blocks of elements.

A value is a tensor of the compute type `C` (a constexpr), a mask one of int1, an index one of int32 or int64. Operators
between a tensor and a Python number keep the tensor's type, so constants are written plainly there; where two constants
meet, or where a constant is an argument or a result, one has to say its type. A function is `wg_NAME`, generic in the
type of its arguments (`templates/triton/math`).

Names a text may use beside its operands: `C`; `WG_BOOL`, a constexpr, which says that values are truth values (0 or
1), if `bitwise_not` is among the functions; `wg_index`, `wg_offset` and `wg_key` if it draws random numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from .emit import ATOM, Block, Dialect, Piece, emit
from .nodes import Expr, ExprError
from .vocabulary import functions

_CALLED = re.compile(r"\bwg_(\w+)\(")
_PLAIN = range(128)  # what every integer type holds
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
        """A constant as a tensor of its type, for where no other operand gives it one."""
        if node.type == "mask":
            return Piece(f"tl.full((), {node.value}, tl.int1)")
        if node.type == "index":
            return Piece(f"tl.full((), {_number(node.value)}, tl.int64)")
        if _is_minus_zero(node.value):
            return Piece("wg_neg(tl.full((), 0, C))")
        if isinstance(node.value, float) or node.value in _PLAIN:
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
            raise ExprError(f"{node.fn} is no function of one element: cut the expression with row_stages first")
        if functions()[node.fn].random:
            place = f"wg_index, wg_offset + {node.args[0].value}, wg_key"
            return Piece(f"wg_{node.fn}({place})" if node.fn == "bits" else f"wg_{node.fn}({place}, C)")
        pieces = self._with_types(node, args)
        if node.fn == "bitwise_not" and node.type == "value":
            return Piece(f"wg_bitwise_not({pieces[0].text}, WG_BOOL)")
        if node.fn == "to_mask":
            return Piece(f"{self.inside(pieces[0], 5)} != 0", self.infix["!="])
        return super().apply(node, pieces)

    def _with_types(self, node: Expr, args: Sequence[Piece]) -> Sequence[Piece]:
        """The arguments, constants as tensors where what they stand in does not give them the type of another."""
        spelled = self.spelling(node)
        first, *rest = node.args
        if spelled not in self.infix and spelled != "tl.where":
            return [self.typed(arg) if arg.fn == "const" else piece for arg, piece in zip(node.args, args, strict=True)]
        if spelled == "tl.where":
            first, rest = rest[0], rest[1:]
        if first.fn != "const" or any(arg.fn != "const" for arg in rest):
            return args
        return [self.typed(arg) if arg is first else piece for arg, piece in zip(node.args, args, strict=True)]


def _fits(node: Expr) -> bool:
    """Whether Triton takes this number beside any tensor it may meet; it refuses one that the tensor cannot hold."""
    if isinstance(node.value, float):
        return True
    assert isinstance(node.value, int)
    return -_INT32 <= node.value < _INT32 if node.type == "index" else node.value in _PLAIN


def _is_minus_zero(value: object) -> bool:
    """Triton makes 0.0 of the constant -0.0."""
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0


def _number(value: object) -> str:
    if isinstance(value, float):
        if not math.isfinite(value):
            return f'float("{value}")'
        if value in _PLAIN:
            return str(int(value))  # the same beside floating-point numbers, and no promotion beside integers
    return repr(value)


_TRITON = _Triton()


def emit_triton(outputs: Mapping[str, Expr], *, local: str = "t", names: Mapping[str, str] | None = None) -> Block:
    """Print `outputs` as statements and expressions of a `@triton.jit` function (see the module).

    Operands are plain names, respelled by `names`; what they name are tensors: of type C for a value, int1 for a mask,
    int32 or int64 for an index. So is every output, which may have fewer dimensions than the operands if it is
    constant. `functions` lists the `wg_*` functions called, without the prefix.
    Raises ExprError for a row reduction: cut the expression with `row_stages` first.
    """
    block = emit(outputs, _TRITON, local=local, names=names)
    constant = {output: _TRITON.typed(node).text for output, node in outputs.items() if node.fn == "const"}
    values = {**block.values, **constant}
    called = {name for text in (*block.statements, *values.values()) for name in _CALLED.findall(text)}
    return Block(block.statements, values, tuple(sorted(called)))
