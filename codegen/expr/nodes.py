"""The node class of the expression language: immutable, typed, and shared.

Nodes are hash-consed: building the same node twice gives the same object. So `is` means "equal", repeated
subexpressions make a DAG, and nodes can be keys of memo tables. A node's type and scope follow from its arguments when
it is built.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

Type: TypeAlias = Literal["value", "mask", "index"]
Scope: TypeAlias = Literal["full", "column", "row", "scalar"]
Constant: TypeAlias = int | float | bool


class ExprError(Exception):
    """An error in an expression.

    Attributes:
        message: what is wrong.
        text: the expression.
        column: where in `text`, counted from 1, or None.
        suggestion: a similar name that exists, or None.
    """

    def __init__(self, message: str, text: str = "", column: int | None = None, suggestion: str | None = None) -> None:
        super().__init__(message, text, column, suggestion)
        self.message = message
        self.text = text
        self.column = column
        self.suggestion = suggestion

    def __str__(self) -> str:
        excerpt = self.text if len(self.text) <= 200 else self.text[:197] + "..."
        column_text = f" at column {self.column}" if self.column is not None else ""
        location = f"{column_text} of {excerpt!r}" if excerpt else column_text
        hint = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"{self.message}{location}{hint}"


@dataclass(frozen=True, slots=True)
class Operand:
    """The type and scope of a name.

    Attributes:
        type: `value` (a number of the compute type), `mask` (a truth value) or `index` (an int64).
        scope: `full` (one per element), `column` (one per position in the row), `row` (one per row) or `scalar` (one
            for all).
    """

    type: Type = "value"
    scope: Scope = "full"


class Expr:
    """A constant, a name, or a function of the vocabulary applied to expressions.

    Build it with `const`, `variable` and `call`. Equal expressions are the same object.

    Attributes:
        fn: "const", "name" or a function of the vocabulary.
        args: the arguments of the function.
        value: the constant, or the text of the name; else None.
        type, scope: as in `Operand`.
    """

    __slots__ = ("__weakref__", "args", "fn", "scope", "type", "value")

    fn: str
    args: tuple[Expr, ...]
    value: Constant | str | None
    type: Type
    scope: Scope

    def __new__(cls) -> Expr:
        raise TypeError("Expr has no constructor; use parse, const, variable or call")

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError("an Expr is immutable")

    def __reduce__(self) -> tuple[object, ...]:
        return intern, (self.fn, self.args, self.value, self.type, self.scope)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __repr__(self) -> str:
        head = self.fn if self.value is None else self.value
        return f"<Expr {head} ({size([self])} nodes, {self.type}, {self.scope})>"


_table: WeakValueDictionary[tuple[object, ...], Expr] = WeakValueDictionary()
_lock = threading.Lock()


def intern(fn: str, args: tuple[Expr, ...], value: Constant | str | None, type: Type, scope: Scope) -> Expr:
    """Return the unique node with these fields, unchecked. Use `call` to apply a function."""
    # repr distinguishes 1 from 1.0 and True and 0.0 from -0.0, and gives all NaNs one key.
    key = (fn, args, value.__class__, repr(value), type, scope)
    with _lock:
        node = _table.get(key)
        if node is None:
            node = object.__new__(Expr)
            for slot, part in (("fn", fn), ("args", args), ("value", value), ("type", type), ("scope", scope)):
                object.__setattr__(node, slot, part)
            _table[key] = node
        return node


def const(value: Constant, type: Type | None = None) -> Expr:
    """Return the node of a constant.

    Args:
        value: a bool for a mask, a number for a value, an int for an index.
        type: the node's type; None: `mask` for a bool, `value` for a number.
    """
    if type is None:
        type = "mask" if isinstance(value, bool) else "value"
    if isinstance(value, bool) != (type == "mask") or (type == "index" and not isinstance(value, int)):
        raise TypeError(f"the constant {value!r} is no {type}")
    return intern("const", (), value, type, "scalar")


def variable(name: str, operand: Operand) -> Expr:
    """Return the node of the operand `name`."""
    return intern("name", (), name, operand.type, operand.scope)


def join_scopes(scopes: Iterable[Scope]) -> Scope:
    """Return the scope of a function of arguments with these scopes: `column` and `row` together give `full`."""
    varying_scopes = set(scopes) - {"scalar"}
    if not varying_scopes:
        return "scalar"
    return varying_scopes.pop() if len(varying_scopes) == 1 else "full"


def topological(roots: Iterable[Expr], known: Container[Expr] = ()) -> list[Expr]:
    """Return every node of these expressions once, arguments before users, in a deterministic order.

    Nodes in `known`, and nodes that only they use, are skipped.
    """
    order: list[Expr] = []
    visited: set[Expr] = set()
    # A loop, because higher derivatives are deeper than Python's recursion limit.
    stack = [(root, False) for root in reversed(list(roots))]  # (node, whether its arguments are in `order`)
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            order.append(node)
        elif node not in visited and node not in known:
            visited.add(node)
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args) if arg not in visited)
    return order


def size(exprs: Iterable[Expr] | Mapping[str, Expr]) -> int:
    """Return the number of distinct nodes in these expressions."""
    return len(topological(exprs.values() if isinstance(exprs, Mapping) else exprs))


def free_names(*exprs: Expr) -> tuple[str, ...]:
    """Return the names of the operands that these expressions use, sorted."""
    return tuple(sorted({str(node.value) for node in topological(exprs) if node.fn == "name"}))


def unused_names(prefix: str, used_names: Container[str]) -> Iterator[str]:
    """Yield `prefix` followed by 0, 1, ..., skipping `used_names`."""
    return (text for number in itertools.count() if (text := f"{prefix}{number}") not in used_names)


def is_const(node: Expr, value: Constant) -> bool:
    """Return True if `node` is the number `value`, as an int or a float. Masks are not numbers."""
    return node.fn == "const" and node.type != "mask" and node.value == value
