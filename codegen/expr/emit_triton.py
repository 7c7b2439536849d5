"""Print expressions as the body of a `@triton.jit` function on blocks of elements.

A value is a tensor of the compute type `C` (a constexpr), a mask a tensor of int1, an index a tensor of int32 or int64.
A function is `wg_NAME`, generic in the type of its arguments (`templates/triton/math`).

An operator on a tensor and a Python number keeps the tensor's type, so a constant beside a tensor is printed as a
number. A constant is printed as a typed tensor where nothing else determines its type: beside another constant, as an
argument of a function, and as an output.

Besides its operands, a text may use these names of the kernel:

    C                              the compute type
    WG_BOOL                        for `bitwise_not`: a constexpr, true if values are truth values (0 or 1)
    wg_index, wg_offset, wg_key    for random numbers: the counter and the key of the generator
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from .emit import ATOM, Block, Dialect, Piece, emit
from .nodes import Expr, ExprError
from .vocabulary import functions

_CALL_PATTERN = re.compile(r"\bwg_(\w+)\(")  # a call of a library function
_SMALL_INTEGERS = range(128)  # every integer dtype can hold them
_INDEX_OPERATORS = {"neg": "-", "bitwise_not": "~"}  # for values these are functions


class _Triton(Dialect):
    """The body of a `@triton.jit` function."""

    target = "triton"
    function_prefix = "wg_"
    infix: ClassVar[Mapping[str, int]] = {
        "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "|": 5, "^": 6, "&": 7, "+": 9, "-": 9, "*": 10,
    }  # fmt: skip
    prefix: ClassVar[Mapping[str, int]] = {"-": 11, "~": 11}
    comparisons = frozenset(("==", "!=", "<", "<=", ">", ">="))

    def literal(self, node: Expr) -> Piece:
        if isinstance(node.value, bool) or _is_minus_zero(node.value) or not _fits_every_tensor(node):
            return self.typed_literal(node)
        text = _number_literal(node.value)
        return Piece(text, self.prefix["-"] if text.startswith("-") else ATOM)

    def typed_literal(self, node: Expr) -> Piece:
        """Print a constant as a typed tensor, for a position where no other operand determines its type."""
        if node.type == "mask":
            return Piece(f"tl.full((), {node.value}, tl.int1)")
        if node.type == "index":
            return Piece(f"tl.full((), {_number_literal(node.value)}, tl.int64)")
        if _is_minus_zero(node.value):
            return Piece("wg_neg(tl.full((), 0, C))")
        if isinstance(node.value, float) or node.value in _SMALL_INTEGERS:
            return Piece(f"tl.full((), {_number_literal(node.value)}, C)")
        return Piece(f"wg_integer({node.value}, C)")

    def declare(self, node: Expr, local: str, text: str) -> str:
        return f"{local} = {text}"

    def spelling(self, node: Expr) -> str:
        if node.type == "index" and node.fn in _INDEX_OPERATORS:
            return _INDEX_OPERATORS[node.fn]
        return super().spelling(node)

    def apply(self, node: Expr, args: Sequence[Piece]) -> Piece:
        if functions()[node.fn].row:
            raise ExprError(f"{node.fn} reduces a row: split the expression with row_stages first")
        if functions()[node.fn].random:
            draw_number = node.args[0].value
            counter = f"wg_index, wg_offset + {draw_number}, wg_key"
            return Piece(f"wg_{node.fn}({counter})" if node.fn == "bits" else f"wg_{node.fn}({counter}, C)")
        pieces = self._type_constants(node, args)
        if node.fn == "bitwise_not" and node.type == "value":
            return Piece(f"wg_bitwise_not({pieces[0].text}, WG_BOOL)")
        if node.fn == "to_mask":
            binding = self.infix["!="]
            return Piece(f"{self.inside(pieces[0], binding + 1)} != 0", binding)
        return super().apply(node, pieces)

    def _type_constants(self, node: Expr, args: Sequence[Piece]) -> list[Piece]:
        """Return the arguments, with constants as typed tensors where no other operand determines their type."""
        spelling = self.spelling(node)
        if spelling in self.infix or spelling == "tl.where":
            operands = node.args[1:] if spelling == "tl.where" else node.args
            has_tensor = any(arg.fn != "const" for arg in operands)
            untyped_constants = () if has_tensor else operands[:1]  # one typed operand determines the type of both
        else:
            untyped_constants = tuple(arg for arg in node.args if arg.fn == "const")
        return [
            self.typed_literal(arg) if arg in untyped_constants else piece
            for arg, piece in zip(node.args, args, strict=True)
        ]


def _fits_every_tensor(node: Expr) -> bool:
    """Return True if every tensor of the node's type can hold the number: Triton rejects others beside a tensor."""
    if isinstance(node.value, float):
        return True
    assert isinstance(node.value, int)
    return -(2**31) <= node.value < 2**31 if node.type == "index" else node.value in _SMALL_INTEGERS


def _is_minus_zero(value: object) -> bool:
    """Return True for -0.0, which Triton would turn into 0.0."""
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0


def _number_literal(value: object) -> str:
    """Return a number's literal in Triton."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return f'float("{value}")'
        if value in _SMALL_INTEGERS:
            return str(int(value))  # `2.0` beside an integer tensor would make a float tensor
    return repr(value)


_TRITON = _Triton()


def emit_triton(outputs: Mapping[str, Expr], *, local: str = "t", names: Mapping[str, str] | None = None) -> Block:
    """Print `outputs` as statements and expressions of a `@triton.jit` function (see the module's docstring).

    Args:
        outputs: name -> expression. The value of a constant output is a 0-d tensor.
        local: prefix of the locals.
        names: operand -> its name in the text.

    Returns:
        The text, and the functions of the math library that it calls, without the prefix `wg_`.

    Raises:
        ExprError: the expression has a row reduction; split it with `row_stages` first.
    """
    block = emit(outputs, _TRITON, local=local, names=names)
    constants = {output: _TRITON.typed_literal(node).text for output, node in outputs.items() if node.fn == "const"}
    values = {**block.values, **constants}
    function_names = {name for text in (*block.statements, *values.values()) for name in _CALL_PATTERN.findall(text)}
    return Block(block.statements, values, tuple(sorted(function_names)))
