"""Composite ops: an expression that calls other ops. They have no kernel; gradients flow through the called ops.

The expression is Python syntax, checked against a whitelist like everything in a spec: parameters, literals, tuples,
operators, and calls of ops by plain name with positional or keyword arguments.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..fields import Fields, Unread
from ..model import Op, SpecError
from ..signature import check_name
from . import Derived, OutputRow, Rendered

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["FIELDS", "REQUIRED", "UNREAD", "called_ops", "check", "derive", "python_body", "render"]

FIELDS: Fields = {
    "out": ((str,), "an expression over other ops"),
    "let": ((dict,), "named intermediate values"),
}
REQUIRED = ("out",)
UNREAD: Unread = {
    "grad": ((str, dict), "leave `grad` out; gradients flow through the ops that it calls"),
    "result": ((str,), "leave `result` out; the ops that it calls say it"),
    "dtypes": ((str,), "leave `dtypes` out; the ops that it calls say it"),
}

_MAX_CHARACTERS, _MAX_PARTS = 4000, 2000  # parts are nodes of the syntax tree
_NODES = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.keyword,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.USub, ast.UAdd,
)  # fmt: skip


def check(op: Op) -> None:
    """Raise `SpecError` if an expression has a node that is not on the whitelist."""
    python_body(op)


def _parse_tree(op: Op, field: str, text: str, names: set[str]) -> ast.Expression:
    """Parse an expression of `field`, in which `names` are the known values. Raise `SpecError` for anything else."""
    if len(text) > _MAX_CHARACTERS:
        raise SpecError(f"an expression is at most {_MAX_CHARACTERS} characters", field=field)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(f"{text[:80]!r} is not an expression", field=field) from None
    callees = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    if sum(1 for _ in ast.walk(tree)) > _MAX_PARTS:
        raise SpecError(f"an expression has at most {_MAX_PARTS} parts", field=field)
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise SpecError(f"{type(node).__name__} is not part of composite expressions", field=field)
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            raise SpecError("an op is called by its plain name", field=field)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in names:
                raise SpecError(f"{node.func.id!r} is a value here, and cannot be called", field=field)
            check_name(node.func.id, "the op called")
        if isinstance(node, ast.keyword):
            if node.arg is None:
                raise SpecError("** is not part of composite expressions", field=field)
            check_name(node.arg, "the argument")
        if isinstance(node, (ast.BinOp, ast.UnaryOp)) and not _is_valid_arithmetic(node):
            raise SpecError("arithmetic needs a parameter or an op in it; write the number", field=field)
        if isinstance(node, ast.Name) and node not in callees and node.id not in names:
            raise SpecError(f"unknown name {node.id!r}", field=field, suggestion=f"known: {', '.join(sorted(names))}")
        if isinstance(node, ast.Constant) and not isinstance(node.value, (bool, int, float, str, type(None))):
            raise SpecError(f"a literal must be a number, a string or None, not {node.value!r}", field=field)
        if isinstance(node, ast.Constant) and (
            len(str(node.value)) > 100 if isinstance(node.value, str) else _exceeds_limits(node.value)
        ):
            raise SpecError("a literal is at most 100 characters, or 64 bits, and finite", field=field)
        if isinstance(node, ast.BinOp) and any(
            isinstance(s, (ast.Tuple, ast.Constant)) and not _is_number(s) for s in (node.left, node.right)
        ):
            raise SpecError("arithmetic is for tensors and numbers", field=field)
    return tree


def _is_valid_arithmetic(node: ast.AST) -> bool:
    """Return True if arithmetic contains a name or a call, or is a signed number such as `-1`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        return _is_number(node.operand)
    return any(isinstance(n, (ast.Name, ast.Call)) for n in ast.walk(node))


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _exceeds_limits(value: object) -> bool:
    """Return True for an int of more than 64 bits, and a float that is not finite or nearly so large."""
    if type(value) is int:
        return abs(value) >= 2**64
    return isinstance(value, float) and not abs(value) < 2.0**1000


def python_body(op: Op, callable_names: Mapping[str, str] | None = None) -> list[str]:
    """Return the statements of the op's function: one per `let`, and the return.

    Args:
        callable_names: op -> its name in the generated module. Calling anything else raises `SpecError`, so that a spec
            cannot reach other Python functions.
    """
    lines = []
    for key, tree in _parse_trees(op):
        for node in ast.walk(tree):
            if callable_names is not None and isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id not in callable_names:
                    matches = difflib.get_close_matches(node.func.id, callable_names, 1)
                    hint = f"did you mean {matches[0]!r}?" if matches else None
                    raise SpecError(f"no op is called {node.func.id!r}", field=key or "out", suggestion=hint)
                node.func = ast.Name(callable_names[node.func.id], ast.Load())
        lines.append(f"{key} = {ast.unparse(tree)}" if key else f"return {ast.unparse(tree)}")
    return lines


def _parse_trees(op: Op) -> list[tuple[str, ast.Expression]]:
    """Return the expressions of the op: those of `let` by name, then that of `out` under an empty name."""
    names = {p.name for p in op.params}
    trees = []
    for key, text in op.mapping_field("let").items():
        check_name(key, "the let value")
        if key in names:
            raise SpecError(f"the name {key!r} is taken", field=f"let.{key}")
        trees.append((key, _parse_tree(op, f"let.{key}", str(text), names)))
        names.add(key)
    if set(op.outputs) != {"out"}:
        raise SpecError("a composite op has one result", field="out")
    return [*trees, ("", _parse_tree(op, "out", op.outputs["out"], names))]


def called_ops(op: Op) -> set[str]:
    """Return the names of the ops that the expression calls."""
    nodes = [n for _, tree in _parse_trees(op) for n in ast.walk(tree)]
    return {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def render(op: Op, environment: Environment) -> Rendered:
    """Return a record with the function's body and no kernel."""
    return Rendered((OutputRow(),), {}, {"body": tuple(python_body(op))})


def derive(op: Op) -> dict[str, Derived]:
    """Return nothing: gradients flow through the called ops."""
    return {}
