"""Composite: an expression over other ops. Gradients flow through its parts; no kernel of its own.

The expression is Python syntax against a whitelist, as everything in a spec: parameters, literals, tuples, operators,
and calls of ops by plain name with positional or keyword arguments.
"""

from __future__ import annotations

import ast
from typing import Any

from ..model import Op, SpecError
from . import Derived, OutputRow, Rendered

__all__ = ["called_ops", "check", "derive", "python_body", "render"]

_NODES = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.keyword,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.USub, ast.UAdd,
)  # fmt: skip


def check(op: Op) -> None:
    """Raise `SpecError` where an expression has more than the whitelist."""
    python_body(op)


def _tree(op: Op, field: str, text: str, names: set[str]) -> ast.Expression:
    if len(text) > 4000:
        raise SpecError("an expression is at most 4000 characters", field=field)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(f"{text[:80]!r} is not an expression", field=field) from None
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise SpecError(f"{type(node).__name__} is not part of composite expressions", field=field)
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            raise SpecError("an op is called by its plain name", field=field)
        if isinstance(node, ast.Name) and node not in called and node.id not in names:
            raise SpecError(f"unknown name {node.id!r}", field=field, suggestion=f"known: {', '.join(sorted(names))}")
        if isinstance(node, ast.Constant) and not isinstance(node.value, (bool, int, float, str, type(None))):
            raise SpecError(f"a literal must be a number, a string or None, not {node.value!r}", field=field)
        if isinstance(node, ast.Constant) and len(repr(node.value)) > 100:
            raise SpecError("a literal is at most 100 characters", field=field)
    return tree


def python_body(op: Op) -> list[str]:
    """The function's statements: one a `let`, and the return."""
    names = {p.name for p in op.params}
    lines = []
    for key, text in op.fields.get("let", {}).items():
        lines.append(f"{key} = {ast.unparse(_tree(op, f'let.{key}', str(text), names))}")
        names.add(key)
    lines.append(f"return {ast.unparse(_tree(op, 'out', op.outputs['out'], names))}")
    return lines


def called_ops(op: Op) -> set[str]:
    """Names of the ops that the expression calls."""
    trees = [ast.parse(line.removeprefix("return ").partition(" = ")[2] or line.removeprefix("return ")) for line in python_body(op)]
    return {n.func.id for t in trees for n in ast.walk(t) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def render(op: Op, environment: Any) -> Rendered:
    """No kernel."""
    return Rendered((OutputRow(),), {}, {"body": tuple(python_body(op))})


def derive(op: Op) -> dict[str, Derived]:
    """Gradients flow through the parts."""
    return {}
