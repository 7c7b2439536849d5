"""Printing: what all targets share. A dialect says how its language spells things; nothing here knows a language.

An expression is a DAG. A node used more than once is printed once, as a local variable; the rest is nested text with
the parentheses that precedence asks for. The order is that of `topological`, so the same expressions give the same
text in every process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .nodes import Expr, ExprError, free_names, topological
from .vocabulary import functions

ATOM = 100  # binds tighter than any operator
_MAX_TEXT = 1_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """Printed expressions.

    `statements` declare the locals, in order; `values` gives each output's text, which may use them; `functions` are
    the vocabulary functions that the text calls and a header must define, sorted; `index_functions` those it calls with
    indices.
    """

    statements: tuple[str, ...]
    values: Mapping[str, str]
    functions: tuple[str, ...]
    index_functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Printed text and how tightly it binds; `calls` is a function that it needs defined."""

    text: str
    binding: int = ATOM
    calls: str | None = None


class Dialect:
    """How one language spells expressions. A new target is a subclass with its tables.

    `target` is the key in `functions.yaml`, `default` what stands before a function's name if the file does not spell
    it; `locals` whether shared parts become variables; `infix` and `prefix` give the binding of its operators, higher
    is tighter.
    """

    target = ""
    default = ""
    locals = True
    infix: ClassVar[Mapping[str, int]] = {}
    prefix: ClassVar[Mapping[str, int]] = {}
    comparisons: frozenset[str] = frozenset()  # operators that must not stand beside each other unparenthesised

    def literal(self, node: Expr) -> Piece:
        """A constant."""
        raise NotImplementedError

    def operand(self, node: Expr, spelled: str) -> Piece:
        """The name of an operand, called `spelled` in the text."""
        return Piece(spelled)

    def declare(self, node: Expr, local: str, text: str) -> str:
        """The statement that gives `local` its value."""
        raise NotImplementedError

    def spelling(self, node: Expr) -> str:
        """The operator, function or template for a node's function."""
        return functions()[node.fn].spelling.get(self.target, self.default + node.fn)

    def apply(self, node: Expr, args: Sequence[Piece]) -> Piece:
        """A function's text, given its arguments'."""
        function = functions()[node.fn]
        spelled = self.spelling(node)
        if "{" in spelled:
            # A template parenthesises itself, and what it puts its arguments between may be an operator.
            texts = {arg: self.inside(piece, ATOM) for arg, piece in zip(function.args, args, strict=True)}
            return Piece(spelled.format(**texts)) if spelled != "{a}" else args[0]
        if len(args) == 2 and spelled in self.infix:
            binding = self.infix[spelled]
            tight = binding + 1 if spelled in self.comparisons else binding
            return Piece(f"{self.inside(args[0], tight)} {spelled} {self.inside(args[1], binding + 1)}", binding)
        if len(args) == 1 and spelled in self.prefix:
            binding = self.prefix[spelled]
            inner = self.inside(args[0], binding)
            if inner.startswith(spelled):
                inner = f"({inner})"  # `--x` is another operator
            return Piece(f"{spelled} {inner}" if spelled.isalpha() else f"{spelled}{inner}", binding)
        return Piece(f"{spelled}({', '.join(piece.text for piece in args)})")

    def inside(self, piece: Piece, binding: int) -> str:
        """The text where something binds with this strength."""
        return piece.text if piece.binding >= binding else f"({piece.text})"


def emit(
    outputs: Mapping[str, Expr],
    dialect: Dialect,
    *,
    local: str = "t",
    names: Mapping[str, str] | None = None,
) -> Block:
    """Print `outputs` in one block, sharing common parts as locals `t0`, `t1`, ... that avoid the operands' names.

    `names` respells operands. Raises ExprError if a text grows past a million characters (only without locals).
    """
    spelled = names or {}
    order = topological(outputs.values())
    uses = Counter(arg for node in order for arg in node.args) + Counter(outputs.values())
    taken = {spelled.get(free, free) for free in free_names(*outputs.values())}
    fresh = _fresh(local, taken)
    pieces: dict[Expr, Piece] = {}
    statements: list[str] = []
    needed: dict[bool, set[str]] = {False: set(), True: set()}
    for node in order:
        piece = _print(node, dialect, pieces, spelled)
        if len(piece.text) > _MAX_TEXT:
            raise ExprError("the expression is too long to write out")
        if piece.calls:
            needed[node.args[0].type == "index" and not functions()[node.fn].random].add(piece.calls)
        if dialect.locals and uses[node] > 1 and node.args and not _transparent(node, dialect):
            variable = fresh()
            statements.append(dialect.declare(node, variable, piece.text))
            piece = Piece(variable)
        pieces[node] = piece
    values = {output: pieces[node].text for output, node in outputs.items()}
    return Block(tuple(statements), values, tuple(sorted(needed[False])), tuple(sorted(needed[True])))


def _print(node: Expr, dialect: Dialect, pieces: Mapping[Expr, Piece], spelled: Mapping[str, str]) -> Piece:
    if node.fn == "const":
        return dialect.literal(node)
    if node.fn == "name":
        return dialect.operand(node, spelled.get(str(node.value), str(node.value)))
    return dialect.apply(node, [pieces[arg] for arg in node.args])


def _transparent(node: Expr, dialect: Dialect) -> bool:
    """Whether the node prints as its argument, which then is the local, if any."""
    return dialect.spelling(node) == "{a}"


def _fresh(prefix: str, taken: set[str]) -> Callable[[], str]:
    numbers = iter(range(1_000_000))
    return lambda: next(text for number in numbers if (text := f"{prefix}{number}") not in taken)


class _Spec(Dialect):
    """The language of the specs itself."""

    target = "spec"
    locals = False
    infix: ClassVar[Mapping[str, int]] = {
        "or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4,
        "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10,
    }  # fmt: skip
    prefix: ClassVar[Mapping[str, int]] = {"not": 3, "-": 11, "~": 11}
    comparisons = frozenset(("==", "!=", "<", "<=", ">", ">="))

    def literal(self, node: Expr) -> Piece:
        text = repr(node.value)
        return Piece(text, self.prefix["-"] if text.startswith("-") else ATOM)

    def spelling(self, node: Expr) -> str:
        function = functions()[node.fn]
        return function.symbol or function.row or function.name

    def apply(self, node: Expr, args: Sequence[Piece]) -> Piece:
        if functions()[node.fn].takes == ("literal",):
            return Piece(f"{node.fn}({args[0].text})")
        return super().apply(node, args)


_SPEC = _Spec()


def to_text(expr: Expr) -> str:
    """The expression in the language of the specs: `parse(to_text(e), ...)` is `e` again.

    Shared parts are written out each time; raises ExprError if that makes more than a million characters.
    """
    return emit({"": expr}, _SPEC).values[""]
