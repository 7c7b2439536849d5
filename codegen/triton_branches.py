"""Resolve the branches of Triton source that the kernel's constants decide, and drop functions that it does not call.

    text = resolve(source, "softmax_whole", {"BLOCK": 1024, "OUTER": 1})

Triton itself takes such a branch when it compiles, so the resolved text compiles to the same kernel. The text is cut
by the line numbers of its syntax tree and not printed from the tree, so comments and line breaks stay.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

__all__ = ["called_names", "resolve"]

_DECIDABLE = (
    ast.Expression, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Constant, ast.Name, ast.operator, ast.boolop,
    ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip

Numbers = Mapping[str, int | float]


def resolve(source: str, entry: str, constants: Mapping[str, object]) -> str:
    """Return the kernel `entry` and the functions of `source` that it calls, without branches that are never taken.

    Args:
        source: The kernel's text, of which the kernel is a top-level function.
        entry: The kernel's name.
        constants: The values of the kernel's constexpr parameters. Only numbers and booleans decide a branch.
    """
    lines = source.split("\n")
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    numbers: Numbers = {name: value for name, value in constants.items() if isinstance(value, int | float)}
    needed = {entry}
    resolved: dict[str, str] = {}
    while len(resolved) < len(needed):
        for name in sorted(needed - set(resolved)):
            resolved[name] = "\n".join(_function(functions[name], lines, numbers if name == entry else {}))
            needed |= called_names(resolved[name]) & set(functions)
    return "\n\n\n".join(resolved[name] for name in functions if name in resolved) + "\n"


def called_names(source: str) -> set[str]:
    """Return the names that a text reads."""
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}


def _function(node: ast.FunctionDef, lines: Sequence[str], constants: Numbers) -> list[str]:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    assigned = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    known = {name: value for name, value in constants.items() if name not in assigned}
    return _statements(node.body, lines, first, node.end_lineno or 0, known)


def _statements(body: Sequence[ast.stmt], lines: Sequence[str], first: int, end: int, constants: Numbers) -> list[str]:
    """Return lines `first` to `end` (exclusive, from 0), with the decided branches of `body` replaced by their text."""
    output: list[str] = []
    position = first
    statement_count = 0
    for statement in body:
        last = statement.end_lineno or 0
        text = _statement(statement, lines, constants)
        output += lines[position : statement.lineno - 1]
        output += text
        statement_count += bool(text)
        position = last
    if not statement_count and body:
        output.append(" " * body[0].col_offset + "pass")
    return output + list(lines[position:end])


def _statement(statement: ast.stmt, lines: Sequence[str], constants: Numbers) -> list[str]:
    first, end = statement.lineno - 1, statement.end_lineno or 0
    if not isinstance(statement, ast.If):
        blocks = [block for block in (getattr(statement, "body", None), getattr(statement, "orelse", None)) if block]
        output: list[str] = []
        for block in blocks:
            last = block[-1].end_lineno or 0
            output += _statements(block, lines, first, last, constants)
            first = last
        return output + list(lines[first:end])
    value = _value(statement.test, constants)
    if value is None:
        output = _statements(statement.body, lines, first, statement.body[-1].end_lineno or 0, constants)
        return output + list(lines[statement.body[-1].end_lineno or 0 : end])
    branch = statement.body if value else statement.orelse
    if not branch:
        return []
    start = branch[0].lineno - 1
    if branch is statement.orelse and isinstance(branch[0], ast.If) and lines[start].lstrip().startswith("elif"):
        elif_lines = [*lines]
        elif_lines[start] = elif_lines[start].replace("elif", "if", 1)
        return _statement(branch[0], elif_lines, constants)
    while lines[start - 1].lstrip().startswith("#"):
        start -= 1
    text = _statements(branch, lines, start, branch[-1].end_lineno or 0, constants)
    excess = " " * (branch[0].col_offset - statement.col_offset)
    return [re.sub(f"^{excess}", "", line) for line in text]


def _value(test: ast.expr, constants: Numbers) -> bool | None:
    """Return a condition's value; None if the constants do not decide it."""
    if isinstance(test, ast.BoolOp):  # one operand may decide it
        values = [_value(operand, constants) for operand in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    if not names <= set(constants) or not all(isinstance(node, _DECIDABLE) for node in ast.walk(test)):
        return None
    return bool(eval(compile(ast.Expression(test), "<condition>", "eval"), {"__builtins__": {}}, dict(constants)))
