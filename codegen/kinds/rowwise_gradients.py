"""Derive the gradients of a rowwise op, which are rowwise ops, too, as spec entries."""

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
    variable,
)
from ..model import Op, Param
from . import Derived, named_result, seed_name
from .row_text import shared_parts, short_name
from .rowwise_spec import WIDE, results, row_argument, spec_gradients

__all__ = ["derive"]


def derive(op: Op) -> dict[str, Derived]:
    """Return the gradient op of each differentiable operand. With the field `together`, they share one op."""
    if op.grad == "none":
        return {}
    gradients = _gradient_exprs(op)
    derived: dict[str, Derived] = {}
    for parameter, expr in gradients.items():
        derived[parameter.name] = Derived((), None) if expr is None else _gradient_op(op, {parameter: expr})
    if op.fields.get("together"):
        computed = {p: e for p, e in gradients.items() if e is not None and derived[p.name].spec is not None}
        if len(computed) > 1:
            shared_op = _gradient_op(op, computed)
            derived |= {p.name: replace(shared_op, result=f"d_{p.name}") for p in computed}
    return derived


def _gradient_exprs(op: Op) -> dict[Param, Expr | None]:
    """Return the gradients of the tensor operands of type value, as the spec's `grad` has them, or derived.

    None stands for a zero gradient. An operand is left out if its gradient cannot be derived: the runtime raises an
    error if it is needed.
    """
    parameters = [p for p in op.operands if p.is_tensor and p.type == "value"]
    gradients: dict[str, Expr | None] = dict(spec_gradients(op))
    missing_names = [p.name for p in parameters if p.name not in gradients]
    outputs = {k: r for k, r in results(op).items() if r.expr.type == "value"} if missing_names else {}
    if outputs:
        seeds = {k: variable(seed_name(op, k), Operand("value", r.scope)) for k, r in outputs.items()}
        exprs = {k: canonical(r.expr) for k, r in outputs.items()}
        for name in missing_names:
            with suppress(ExprError):
                _check_product_order(op, exprs)
                gradients[name] = gradient(exprs, seeds, [name]).get(name)
    return {p: gradients[p.name] for p in parameters if p.name in gradients}


def _order(op: Op) -> int:
    """Return how often an op was derived: 0 for an op of a spec file."""
    order = op.fields.get("order", 0)
    return order if isinstance(order, int) else 0


def _check_product_order(op: Op, exprs: Mapping[str, Expr]) -> None:
    """Raise `ExprError` if the next derivative of a row product would be wrong for rows with several zeros."""
    if _order(op) >= MAX_PRODUCT_DERIVATIVES and any(has_product(e) for e in exprs.values()):
        raise ExprError(f"prod has {MAX_PRODUCT_DERIVATIVES} derivatives")


def _gradient_op(op: Op, exprs: Mapping[Param, Expr]) -> Derived:
    """Return the op that computes the gradient of one operand, or of several as results d_OPERAND."""
    parameters = list(exprs)
    seed_scopes = {seed_name(op, k): r.scope for k, r in results(op).items()}
    if len(parameters) == 1 and (seed := _seed_itself(parameters[0], exprs[parameters[0]], seed_scopes)):
        return Derived((seed,), None)
    scopes = seed_scopes | {p.name: p.scope for p in op.operands if p.role != "absent"}
    scopes |= {k: r.scope for k, r in results(op).items()}
    operands = _used_operands(op, exprs, seed_scopes, scopes)
    declarations = [_declare_operand(op, name, scopes[name]) for name in operands]
    declarations += [ast.unparse(argument) for argument in _static_arguments(op)]
    lets, texts = shared_parts(list(exprs.values()), {*scopes, *(p.name for p in op.params)})
    wrapped_texts = [_wrap_for_scope(p, e, text) for (p, e), text in zip(exprs.items(), texts, strict=True)]
    if len(parameters) == 1:
        op_name, noun = f"{op.name}_grad_{parameters[0].name}", "Gradient"
        out: object = named_result(operands, wrapped_texts[0])
    else:
        op_name, noun = f"{op.name}_grad", "Gradients"
        out = {f"d_{p.name}": text for p, text in zip(parameters, wrapped_texts, strict=True)}
    spec: dict[str, object] = {
        "op": f"{short_name(op_name)}({', '.join(declarations)})",
        "kind": "rowwise",
        "doc": f"{noun} of {op.name} with respect to {', '.join(p.name for p in parameters)}.",
        "dtypes": "float",
        "rows": row_argument(op),
        "order": _order(op) + 1,
        "out": out,
    }
    if lets:
        spec["let"] = lets
    return Derived(operands, spec)


def _seed_itself(parameter: Param, expr: Expr, seed_scopes: Mapping[str, str]) -> str | None:
    """Return the name of the seed that equals the gradient `expr`, so that nothing is computed; else None."""
    if expr.fn != "name" or parameter.scope == "column":  # a column's gradient is summed over the rows
        return None
    name = str(expr.value)
    return name if seed_scopes.get(name) == parameter.scope else None


def _used_operands(
    op: Op, exprs: Mapping[Param, Expr], seed_scopes: Mapping[str, str], scopes: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the seeds, operands and results of `op` that the gradients read: the operands of the gradient op.

    At least one of them has the rows: the kernel takes the number of rows from it.
    """
    candidates = list(dict.fromkeys([*seed_scopes, *(p.name for p in op.operands), *op.outputs]))
    used_names = set(free_names(*exprs.values()))
    if not any(scopes.get(name) == "full" for name in used_names):
        used_names.add(next(name for name in candidates if scopes.get(name) == "full"))
    return tuple(name for name in candidates if name in used_names)


def _wrap_for_scope(parameter: Param, expr: Expr, text: str) -> str:
    """Wrap the text of a gradient so that it has the scope of its operand."""
    if parameter.scope == "column":
        return f"column_sum({text})"
    return f"broadcast({text})" if parameter.scope == "full" and expr.scope not in WIDE else text


def _static_arguments(op: Op) -> list[ast.arg]:
    """Return the static parameters as the op's signature declares them."""
    tree = ast.parse(f"def {op.signature}: pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    names = {p.name for p in op.statics}
    return [a for a in (*tree.args.args, *tree.args.kwonlyargs) if a.arg in names]


def _declare_operand(op: Op, operand: str, scope: str) -> str:
    """Return the declaration of an operand in the gradient op's signature."""
    for p in op.params:
        if p.name == operand:
            if p.role in ("scalar", "number"):
                return f"{operand}: float"
            if p.type == "mask":
                return f"{operand}: Mask"
            if p.type == "index":
                return f"{operand}: {'RowIndex' if scope == 'row' else 'Index'}"
    return operand + {"row": ": PerRow", "column": ": Row"}.get(scope, "")
