"""Gradients of rowwise ops, as entries of rowwise ops."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from ..expr import (
    MAX_PRODUCT_DERIVATIVES,
    Expr,
    ExprError,
    Operand,
    canonical,
    free_names,
    gradient,
    has_product,
    name,
)
from ..model import Op, Param
from . import Derived, named_result, seed_name
from .row_text import shared_parts, short_name
from .rowwise_spec import WIDE, results, row_argument, spec_gradients

__all__ = ["derive"]


def derive(op: Op) -> dict[str, Derived]:
    """Return a rowwise gradient op per tensor operand of type value: from the spec's `grad`, or derived."""
    if op.grad == "none":
        return {}
    differentiable = [p for p in op.operands if p.is_tensor and p.type == "value"]
    gradients: dict[str, Expr | None] = dict(spec_gradients(op))
    missing = [p.name for p in differentiable if p.name not in gradients]
    if missing:
        outputs = {k: r for k, r in results(op).items() if r.expr.type == "value"}
        seeds = {k: name(seed_name(op, k), Operand("value", r.scope)) for k, r in outputs.items()}
        exprs = {k: canonical(r.expr) for k, r in outputs.items()}
        for parameter in missing if outputs else ():
            with suppress(ExprError):  # a function has no derivative: the runtime raises if this gradient is needed
                _check_order(op, exprs)
                gradients[parameter] = gradient(exprs, seeds, [parameter]).get(parameter)
    rules = {p: gradients[p.name] for p in differentiable if p.name in gradients}  # None: zero gradient
    derived = {p.name: Derived((), None) if e is None else _gradient_op(op, {p: e}) for p, e in rules.items()}
    shared_exprs = {p: e for p, e in rules.items() if e is not None and derived[p.name].spec is not None}
    if op.fields.get("together") and len(shared_exprs) > 1:
        shared = _gradient_op(op, shared_exprs)
        derived |= {p.name: replace(shared, result=f"d_{p.name}") for p in shared_exprs}
    return derived


def _order(op: Op) -> int:
    """Return the order of derivative: 0 for an op of a spec file."""
    order = op.fields.get("order", 0)
    return order if isinstance(order, int) else 0


def _check_order(op: Op, exprs: Mapping[str, Expr]) -> None:
    """Raise `ExprError` if the next derivative of a row product would be wrong for rows with several zeros."""
    if _order(op) >= MAX_PRODUCT_DERIVATIVES and any(has_product(e) for e in exprs.values()):
        raise ExprError(f"prod has {MAX_PRODUCT_DERIVATIVES} derivatives")


def _gradient_op(op: Op, exprs: Mapping[Param, Expr]) -> Derived:
    """Return the op that computes the gradient of one operand, or of several as results d_OPERAND."""
    seeds = {seed_name(op, k): r.scope for k, r in results(op).items()}
    if len(exprs) == 1:
        ((parameter, expr),) = exprs.items()
        if expr.fn == "name" and parameter.scope != "column" and seeds.get(str(expr.value)) == parameter.scope:
            return Derived((str(expr.value),), None)
    scopes = {**seeds, **{p.name: p.scope for p in op.operands if p.role != "absent"}}
    scopes |= {k: r.scope for k, r in results(op).items()}
    used_names = set(free_names(*exprs.values()))
    candidates = [*seeds, *(p.name for p in op.operands), *op.outputs]
    if not any(scopes.get(n) == "full" for n in used_names):
        used_names.add(next(n for n in candidates if scopes.get(n) == "full"))  # for the number of rows
    operands = tuple(n for n in dict.fromkeys(candidates) if n in used_names)
    statics = [ast.unparse(a) for a in _static_arguments(op)]
    parameter_list = ", ".join([*(_declare_operand(op, n, scopes[n]) for n in operands), *statics])
    lets, texts = shared_parts(list(exprs.values()), {*scopes, *(p.name for p in op.params)})
    wrapped = [_wrap_for_scope(p, e, text) for (p, e), text in zip(exprs.items(), texts, strict=True)]
    names = [p.name for p in exprs]
    op_name = f"{op.name}_grad_{names[0]}" if len(names) == 1 else f"{op.name}_grad"
    spec: dict[str, object] = {
        "op": f"{short_name(op_name)}({parameter_list})",
        "kind": "rowwise",
        "doc": f"{'Gradient' if len(names) == 1 else 'Gradients'} of {op.name} with respect to {', '.join(names)}.",
        "dtypes": "float",
        "rows": row_argument(op),
        "order": _order(op) + 1,
        "out": named_result(operands, wrapped[0])
        if len(names) == 1
        else dict(zip((f"d_{n}" for n in names), wrapped, strict=True)),
    }
    if lets:
        spec["let"] = lets
    return Derived(operands, spec)


def _wrap_for_scope(parameter: Param, expr: Expr, text: str) -> str:
    """Wrap the text of a gradient so that it has the scope of its operand."""
    if parameter.scope == "column":
        return f"column_sum({text})"
    return f"broadcast({text})" if parameter.scope == "full" and expr.scope not in WIDE else text


def _static_arguments(op: Op) -> list[ast.arg]:
    tree = ast.parse(f"def {op.signature}: pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    names = {p.name for p in op.statics}
    return [a for a in (*tree.args.args, *tree.args.kwonlyargs) if a.arg in names]


def _declare_operand(op: Op, operand: str, scope: str) -> str:
    for p in op.params:
        if p.name == operand:
            if p.role in ("scalar", "number"):
                return f"{operand}: float"
            if p.type == "mask":
                return f"{operand}: Mask"
            if p.type == "index":
                return f"{operand}: {'RowIndex' if scope == 'row' else 'Index'}"
    return operand + {"row": ": PerRow", "column": ": Row"}.get(scope, "")
