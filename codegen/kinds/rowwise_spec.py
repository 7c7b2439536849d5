"""Read the spec of a rowwise op: its results, named values and gradients as expressions."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ..expr import Expr, Operand, Scope, canonical, substitute
from ..fields import expression_text
from ..model import Op, SpecError
from ..signature import check_name
from . import seed_name
from .pointwise import operand_table, parse_field

__all__ = [
    "WIDE", "Result", "gradient_table", "let_texts", "parse_lets", "parse_row_expr", "results",
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
    table, lets = parse_lets(op)
    parsed_results = {}
    for output, text in op.outputs.items():
        field = f"out.{output}" if len(op.outputs) > 1 else "out"
        inner, wrapper = split_wrapper(text)
        expr = substitute(parse_row_expr(op, field, inner, table), lets)
        scope: Scope = "full" if wrapper == "broadcast" or expr.scope in WIDE else "row"
        parsed_results[output] = Result(expr, "column" if wrapper == "column_sum" else scope)
    return parsed_results


def parse_lets(op: Op) -> tuple[dict[str, Operand], dict[str, Expr]]:
    """Return the names that results may use, and the lets as expressions of operands."""
    table = operand_table(op)
    lets: dict[str, Expr] = {}
    for key, text in let_texts(op).items():
        if key in table or key in op.outputs:
            raise SpecError(
                f"{key!r} is a parameter or a result already", file=op.file, line=op.line, field=f"let.{key}"
            )
        check_name(key, "the let value")
        lets[key] = substitute(parse_row_expr(op, f"let.{key}", text, table), lets)
        table[key] = Operand(lets[key].type, lets[key].scope)
    return table, lets


def let_texts(op: Op) -> dict[str, str]:
    """Return the text of each named value, in order."""
    return {key: expression_text(value) for key, value in op.mapping_field("let").items()}


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
    table, _ = parse_lets(op)
    for output, result in results(op).items():
        table[output] = Operand(result.expr.type, result.scope)
        table[seed_name(op, output)] = Operand("value", result.scope)
    return table


def spec_gradients(op: Op) -> dict[str, Expr]:
    """Parse the gradients in the spec's `grad`, with lets expanded."""
    table = gradient_table(op)
    _, lets = parse_lets(op)
    texts = op.grad if isinstance(op.grad, Mapping) else {}
    for key in texts:
        if key not in {p.name for p in op.operands}:
            raise SpecError(f"{key!r} is no parameter", file=op.file, line=op.line, field="grad")
    return {k: canonical(substitute(parse_row_expr(op, f"grad.{k}", v, table), lets)) for k, v in texts.items()}
