"""Variants of a rowwise op without some of its optional operands, so that kernels need not test for them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from ..expr import Expr, Operand, call, to_text, topological
from ..model import Op, SpecError
from .row_text import short_name
from .rowwise_spec import gradient_table, parse_row_expr, split_wrapper
from .spec_expressions import let_texts, parse_lets

__all__ = ["variant"]


def variant(op: Op, absent: Iterable[str]) -> dict[str, object]:
    """Return the spec of `op` without the optional operands `absent`: a missing factor is 1, a missing summand is 0.

    Their parameters remain, annotated `None`.

    Raises:
        SpecError: if an optional operand is used in another way.
    """
    missing = frozenset(absent)
    optional = [p.name for p in op.params if p.role == "optional"]
    suffix = "plain" if len(missing) == len(optional) else "without_" + "_".join(n for n in optional if n in missing)
    spec: dict[str, object] = {**op.spec, "op": _signature_without(op, missing, short_name(f"{op.name}_{suffix}"))}
    table, _ = parse_lets(op, row=True)
    lets = {key: _without(op, f"let.{key}", text, table, missing) for key, text in let_texts(op).items()}
    if lets:
        spec["let"] = lets
    out = {k: _without(op, "out", t, table, missing) for k, t in op.outputs.items()}
    spec["out"] = out if tuple(out) != ("out",) else out["out"]
    if isinstance(op.grad, Mapping):
        names = gradient_table(op)
        spec["grad"] = {k: _without(op, f"grad.{k}", t, names, missing) for k, t in op.grad.items() if k not in missing}
    return spec


def _signature_without(op: Op, missing: frozenset[str], op_name: str) -> str:
    tree = ast.parse(f"def {op.signature}: pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    for argument in (*tree.args.args, *tree.args.kwonlyargs):
        if argument.arg in missing:
            argument.annotation = ast.Constant(None)
        elif argument.annotation is not None and op.param(argument.arg).role == "optional":
            argument.annotation = ast.Name("Row" if op.param(argument.arg).scope == "column" else "Tensor")
    return f"{op_name}({ast.unparse(tree.args)})"


def _without(op: Op, field: str, text: str, table: Mapping[str, Operand], missing: frozenset[str]) -> str:
    inner, wrapper = split_wrapper(text)
    expr = parse_row_expr(op, field, inner, table)
    remaining = _drop_operands(op, field, expr, missing)
    if remaining is None:
        raise SpecError("nothing remains without the optional operands", file=op.file, line=op.line, field=field)
    return f"{wrapper}({to_text(remaining)})" if wrapper else to_text(remaining)


def _drop_operands(op: Op, field: str, expr: Expr, missing: frozenset[str]) -> Expr | None:
    """Remove the factors and summands in `missing` from `expr`; None if nothing remains."""
    rebuilt: dict[Expr, Expr | None] = {}
    for node in topological([expr]):
        if node.fn == "name" and node.value in missing:
            rebuilt[node] = None
            continue
        args = [rebuilt[arg] for arg in node.args]
        present = [arg for arg in args if arg is not None]
        if len(present) == len(args):
            rebuilt[node] = call(node.fn, *present) if args else node
        elif node.fn in ("mul", "add") and present:
            rebuilt[node] = present[0]
        elif node.fn == "sub" and present:
            rebuilt[node] = present[0] if args[1] is None else call("neg", present[0])
        else:
            raise SpecError(
                f"an optional operand must be a factor or a summand, not an argument of {node.fn}",
                file=op.file, line=op.line, field=field,
            )  # fmt: skip
    return rebuilt[expr]
