"""The printer that all target languages share. A `Dialect` holds the syntax of one language.

An expression is a DAG. A node used more than once becomes a local variable. All other nodes become nested text, with
the parentheses that precedence requires. The order is that of `topological`, so the same expressions print the same
text in every process. Dialects: `emit_opencl.py`, `emit_triton.py`, `emit_numpy.py`, and the spec language below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .nodes import Expr, ExprError, free_names, topological, unused_names
from .vocabulary import functions

ATOM = 100  # binds tighter than any operator
_MAX_TEXT = 1_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """Printed expressions.

    Attributes:
        statements: declarations of the locals, in order.
        values: output -> text, which may use the locals.
        functions: the vocabulary functions that the text calls and a header must define, sorted.
        index_functions: those that it calls with indices.
    """

    statements: tuple[str, ...]
    values: Mapping[str, str]
    functions: tuple[str, ...]
    index_functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Printed text, the precedence of its outermost operator, and the library function that it calls, if any."""

    text: str
    binding: int = ATOM
    calls: str | None = None


class Dialect:
    """The syntax of one language. A new target is a subclass with its tables.

    Attributes:
        target: the key of the language in `functions.yaml`.
        function_prefix: prefix of a function's name if the file has no spelling for it.
        locals: whether shared subexpressions become variables.
        infix, prefix: operator -> precedence; a higher one binds tighter.
    """

    target = ""
    function_prefix = ""
    locals = True
    infix: ClassVar[Mapping[str, int]] = {}
    prefix: ClassVar[Mapping[str, int]] = {}
    comparisons: frozenset[str] = frozenset()  # operators that need parentheses when nested

    def literal(self, node: Expr) -> Piece:
        """Print a constant."""
        raise NotImplementedError

    def operand(self, node: Expr, name: str) -> Piece:
        """Print an operand, called `name` in the text."""
        return Piece(name)

    def declare(self, node: Expr, local: str, text: str) -> str:
        """Return the statement that declares `local`."""
        raise NotImplementedError

    def spelling(self, node: Expr) -> str:
        """Return the operator, function name or format string for a node's function."""
        return functions()[node.fn].spelling.get(self.target, self.function_prefix + node.fn)

    def apply(self, node: Expr, args: Sequence[Piece]) -> Piece:
        """Print a function applied to printed arguments."""
        function = functions()[node.fn]
        spelling = self.spelling(node)
        if "{" in spelling:
            # A format string brings its own outer parentheses, but may put its arguments next to an operator.
            texts = {arg: self.inside(piece, ATOM) for arg, piece in zip(function.args, args, strict=True)}
            return Piece(spelling.format(**texts)) if spelling != "{a}" else args[0]
        if len(args) == 2 and spelling in self.infix:
            binding = self.infix[spelling]
            tight = binding + 1 if spelling in self.comparisons else binding
            return Piece(f"{self.inside(args[0], tight)} {spelling} {self.inside(args[1], binding + 1)}", binding)
        if len(args) == 1 and spelling in self.prefix:
            binding = self.prefix[spelling]
            inner = self.inside(args[0], binding)
            if inner.startswith(spelling):
                inner = f"({inner})"  # `--x` would be a decrement
            return Piece(f"{spelling} {inner}" if spelling.isalpha() else f"{spelling}{inner}", binding)
        return Piece(f"{spelling}({', '.join(piece.text for piece in args)})")

    def inside(self, piece: Piece, binding: int) -> str:
        """Return the text of `piece`, parenthesised if it binds less tightly than `binding`."""
        return piece.text if piece.binding >= binding else f"({piece.text})"


def emit(
    outputs: Mapping[str, Expr],
    dialect: Dialect,
    *,
    local: str = "t",
    names: Mapping[str, str] | None = None,
) -> Block:
    """Print `outputs` in one block, sharing common parts as locals `t0`, `t1`, ... that avoid the operands' names.

    `names` maps operands to other names. Raises ExprError if a text exceeds a million characters (only without locals).
    """
    kernel_names = names or {}
    order = topological(outputs.values())
    uses = Counter(arg for node in order for arg in node.args) + Counter(outputs.values())
    used_names = {kernel_names.get(free, free) for free in free_names(*outputs.values())}
    local_names = unused_names(local, used_names)
    pieces: dict[Expr, Piece] = {}
    statements: list[str] = []
    called_functions: dict[bool, set[str]] = {False: set(), True: set()}
    for node in order:
        piece = _print(node, dialect, pieces, kernel_names)
        if len(piece.text) > _MAX_TEXT:
            raise ExprError("the expression is too long to write out")
        if piece.calls:
            called_functions[node.args[0].type == "index" and not functions()[node.fn].random].add(piece.calls)
        if dialect.locals and uses[node] > 1 and node.args and not _transparent(node, dialect):
            variable = next(local_names)
            statements.append(dialect.declare(node, variable, piece.text))
            piece = Piece(variable)
        pieces[node] = piece
    values = {output: pieces[node].text for output, node in outputs.items()}
    return Block(
        tuple(statements), values, tuple(sorted(called_functions[False])), tuple(sorted(called_functions[True]))
    )


def _print(node: Expr, dialect: Dialect, pieces: Mapping[Expr, Piece], kernel_names: Mapping[str, str]) -> Piece:
    if node.fn == "const":
        return dialect.literal(node)
    if node.fn == "name":
        return dialect.operand(node, kernel_names.get(str(node.value), str(node.value)))
    return dialect.apply(node, [pieces[arg] for arg in node.args])


def _transparent(node: Expr, dialect: Dialect) -> bool:
    """Return True if the node prints as its argument, which may be a local itself."""
    return dialect.spelling(node) == "{a}"


class _Spec(Dialect):
    """The spec language."""

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
    """Print the expression in the spec language: `parse(to_text(e), ...)` is `e` again.

    Shared parts are printed at each use. Raises ExprError if the text exceeds a million characters.
    """
    return emit({"": expr}, _SPEC).values[""]
