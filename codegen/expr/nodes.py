"""The one node class of the expression language: immutable, typed, and shared.

Nodes are hash-consed: building the same node twice gives the same object, so `is` means "equal", a tree with repeated
parts is a DAG with one node for each, and memo tables can be keyed by the node itself. A node carries its type and
scope from birth, for the leaves it is made of carry theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

Type: TypeAlias = Literal["value", "mask", "index"]
Scope: TypeAlias = Literal["full", "column", "row", "scalar"]
Constant: TypeAlias = int | float | bool


class ExprError(Exception):
    """What is wrong with an expression, where, and what may have been meant.

    Attributes: `message`; `text`, the expression; `column`, counted from 1 in `text` (None if no place is to blame);
    `suggestion`, a name that was perhaps meant, or None.
    """

    def __init__(self, message: str, text: str = "", column: int | None = None, suggestion: str | None = None) -> None:
        super().__init__(message, text, column, suggestion)
        self.message = message
        self.text = text
        self.column = column
        self.suggestion = suggestion

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= 200 else self.text[:197] + "..."
        place = f" at column {self.column}" if self.column is not None else ""
        where = f"{place} of {shown!r}" if shown else place
        hint = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"{self.message}{where}{hint}"


@dataclass(frozen=True, slots=True)
class Operand:
    """What a name stands for.

    `type`: `value` (a number of the compute type), `mask` (a truth value) or `index` (an int64).
    `scope`: `full` (one an element), `column` (one a position in the row), `row` (one a row), `scalar` (one for all).
    """

    type: Type = "value"
    scope: Scope = "full"


class Expr:
    """A constant, a name, or a function of the vocabulary applied to expressions.

    Made by `const`, `name` and `call`, never directly; equal expressions are the same object.

    Attributes: `fn` ("const", "name" or a vocabulary function), `args`, `value` (the constant, or the name's text;
    else None), `type`, `scope`.
    """

    __slots__ = ("__weakref__", "args", "fn", "scope", "type", "value")

    fn: str
    args: tuple[Expr, ...]
    value: Constant | str | None
    type: Type
    scope: Scope

    def __new__(cls) -> Expr:
        raise TypeError("an Expr is made by parse, const, name or call")

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
    """The one node with these parts. No checks: `call` is the way to apply a function."""
    # repr tells 1 from 1.0 and True, 0.0 from -0.0, and makes one key of all NaNs.
    key = (fn, args, value.__class__, repr(value), type, scope)
    with _lock:
        found = _table.get(key)
        if found is None:
            found = object.__new__(Expr)
            for slot, part in (("fn", fn), ("args", args), ("value", value), ("type", type), ("scope", scope)):
                object.__setattr__(found, slot, part)
            _table[key] = found
        return found


def const(value: Constant, type: Type | None = None) -> Expr:
    """A constant: a bool is a mask; a number is a `value`, or an `index` if it is an int and `type` says so."""
    if type is None:
        type = "mask" if isinstance(value, bool) else "value"
    if isinstance(value, bool) != (type == "mask") or (type == "index" and not isinstance(value, int)):
        raise TypeError(f"the constant {value!r} is no {type}")
    return intern("const", (), value, type, "scalar")


def name(text: str, operand: Operand) -> Expr:
    """The value of the operand called `text`."""
    return intern("name", (), text, operand.type, operand.scope)


def join(scopes: Iterable[Scope]) -> Scope:
    """The scope of a function of arguments with these scopes: one a position and one a row make one an element."""
    found = set(scopes) - {"scalar"}
    if not found:
        return "scalar"
    return found.pop() if len(found) == 1 else "full"


def topological(roots: Iterable[Expr], known: Container[Expr] = ()) -> list[Expr]:
    """Every node of these expressions once, arguments before their users, in an order that depends on nothing else.

    Nodes in `known`, and what only they use, are left out, and not even looked at.
    """
    order: list[Expr] = []
    seen: set[Expr] = set()
    # A loop, not recursion: derivatives of derivatives are deeper than the stack.
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, finished = stack.pop()
        if finished:
            order.append(node)
        elif node not in seen and node not in known:
            seen.add(node)
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args) if arg not in seen)
    return order


def size(exprs: Iterable[Expr] | Mapping[str, Expr]) -> int:
    """The number of different nodes in these expressions together."""
    return len(topological(exprs.values() if isinstance(exprs, Mapping) else exprs))


def free_names(*exprs: Expr) -> tuple[str, ...]:
    """The names these expressions use, sorted."""
    return tuple(sorted({str(node.value) for node in topological(exprs) if node.fn == "name"}))


def is_const(node: Expr, value: Constant) -> bool:
    """Whether `node` is the numeric constant `value`, written as an int or a float (a mask is no number)."""
    return node.fn == "const" and node.type != "mask" and node.value == value
