"""Read the spec of a rowwise op: its results, named values and gradients as expressions."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ..expr import Expr, Operand, Scope, canonical, substitute
from ..model import Op, SpecError
from . import seed_name
from .spec_expressions import parse_field, parse_lets

__all__ = [
    "WIDE", "Result", "gradient_table", "parse_row_expr", "results",
    "row_argument", "spec_gradients", "split_wrapper",
]  # fmt: skip

WIDE = ("full", "column")  # scopes of expressions that vary along the row
_WRAPPERS = ("broadcast", "column_sum")


@dataclass(frozen=True, slots=True)
class Result:
    """One result: its expression, and its scope: one per element (`full`), per `row`, or per position (`column`)."""

    expr: Expr
    scope: Scope


def results(op: Op) -> dict[str, Result]:
    """Parse the results of `op`, with lets expanded. Raises `SpecError`, which names the field."""
    table, lets = parse_lets(op, row=True)
    parsed_results = {}
    for output, text in op.outputs.items():
        field = f"out.{output}" if len(op.outputs) > 1 else "out"
        inner, wrapper = split_wrapper(text)
        expr = substitute(parse_row_expr(op, field, inner, table), lets)
        scope: Scope = "full" if wrapper == "broadcast" or expr.scope in WIDE else "row"
        parsed_results[output] = Result(expr, "column" if wrapper == "column_sum" else scope)
    return parsed_results


def parse_row_expr(op: Op, field: str, text: str, table: Mapping[str, Operand]) -> Expr:
    """Parse an expression over a row, the value of the spec field `field`. Raises `SpecError`."""
    return parse_field(op, field, text, table, row=True)


def split_wrapper(text: str) -> tuple[str, str]:
    """Return the argument of an outermost `broadcast(...)` or `column_sum(...)`, and the function's name or ""."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(" ".join(text.split()), mode="eval").body
        if isinstance(tree, ast.Call) and len(tree.args) == 1 and not tree.keywords:
            callee = tree.func
            if isinstance(callee, ast.Name) and callee.id in _WRAPPERS:
                return ast.unparse(tree.args[0]), callee.id
    return text, ""


def row_argument(op: Op) -> str:
    """Return the name of the static parameter that defines a row."""
    return op.text_field("rows", "dim")


def gradient_table(op: Op) -> dict[str, Operand]:
    """Return the names that gradients of the spec may use: operands, named values, results and their gradients."""
    table, _ = parse_lets(op, row=True)
    for output, result in results(op).items():
        table[output] = Operand(result.expr.type, result.scope)
        table[seed_name(op, output)] = Operand("value", result.scope)
    return table


def spec_gradients(op: Op) -> dict[str, Expr]:
    """Parse the gradients in the spec's `grad`, with lets expanded."""
    table = gradient_table(op)
    _, lets = parse_lets(op, row=True)
    texts = op.grad if isinstance(op.grad, Mapping) else {}
    for key in texts:
        if key not in {p.name for p in op.operands}:
            raise SpecError(f"{key!r} is no parameter", file=op.file, line=op.line, field="grad")
    return {k: canonical(substitute(parse_row_expr(op, f"grad.{k}", v, table), lets)) for k, v in texts.items()}
