"""Gradients of reductions: pointwise ops of the incoming gradient, operands and results, `COUNT` and `INDEX`."""

from __future__ import annotations

from collections.abc import Mapping

from ..expr import Expr, Operand, canonical, free_names, gradient, rebuild, substitute, to_text, variable
from ..model import Op
from . import Derived, named_result, seed_name
from .reduction_spec import ELEMENT_COUNT, Reduction, parse_reduction, spec_error, with_visible_outputs
from .spec_expressions import operand_table, parse_field

__all__ = ["COUNT", "INDEX", "derive", "spec_gradients"]

COUNT = "n_reduced"  # the name of the number of reduced elements
INDEX = "index_reduced"  # the name of an element's position among them


def _gradient_operands(op: Op, reduction: Reduction) -> dict[str, Operand]:
    operands = operand_table(op)
    operands |= {k: Operand(e.type, "full") for k, e in reduction.finish.items()}
    operands |= {seed_name(op, k): Operand("value", "full") for k in op.outputs if reduction.finish[k].type == "value"}
    return operands | {COUNT: ELEMENT_COUNT, INDEX: Operand("index", "full")}


def spec_gradients(op: Op, reduction: Reduction) -> dict[str, Expr]:
    """Parse the gradients that the spec's `grad` field states. Raises `SpecError`."""
    op = with_visible_outputs(op, reduction)
    operands = _gradient_operands(op, reduction)
    texts = op.grad if isinstance(op.grad, Mapping) else {}
    for key in texts:
        if key not in {p.name for p in op.operands if p.is_tensor}:
            raise spec_error(op, "grad", f"{key!r} is no tensor parameter")
    return {k: parse_field(op, f"grad.{k}", v, operands) for k, v in texts.items()}


def derive(op: Op) -> dict[str, Derived]:
    """Return one pointwise gradient op per tensor operand of type value: from the spec's `grad`; for sums, derived."""
    if op.grad == "none":
        return {}
    reduction = parse_reduction(op)
    op = with_visible_outputs(op, reduction)
    differentiable = [p.name for p in op.operands if p.is_tensor and p.type == "value"]
    gradients = {k: canonical(e) for k, e in spec_gradients(op, reduction).items()}
    missing = [w for w in differentiable if w not in gradients]
    if missing:
        gradients.update(_derive_gradients(op, reduction, missing))
    # No gradient reaches an operand that is only compared, or whose stated gradient is 0. Its gradient is None.
    return {
        w: _gradient_op(op, reduction, w, gradients[w]) if w in gradients and not _is_zero(gradients[w])
        else Derived((), None)
        for w in differentiable
    }  # fmt: skip


def _is_zero(expr: Expr) -> bool:
    return expr.fn == "const" and expr.value == 0


def _derive_gradients(op: Op, reduction: Reduction, parameters: list[str]) -> dict[str, Expr]:
    """Apply the chain rule through finish, sum and map. Raises `SpecError` if `combine` is not a sum."""
    combine = reduction.combine.get("acc")
    is_sum = combine is not None and combine.fn == "add" and {a.value for a in combine.args} == {"a", "b"}
    if not (reduction.single and is_sum):
        raise spec_error(op, "grad", "only `combine: a + b` is derived; give the gradient, or `grad: none`")
    full = Operand("value", "full")
    seeds = {k: variable(seed_name(op, k), full) for k in op.outputs}
    finish = {k: canonical(reduction.finish[k]) for k in op.outputs}
    grad_state = gradient(finish, seeds, ["acc"]).get("acc")
    if grad_state is None:
        return {}
    # Backward has the results but not the state: replace the expression of a result by the result.
    results = {e: variable(k, full) for k, e in finish.items()}
    grad_state = rebuild([grad_state], results.get)[grad_state]
    renamed = {"n": variable(COUNT, ELEMENT_COUNT), "index": variable(INDEX, Operand("index", "full"))}
    gradients = gradient({"acc": canonical(reduction.map["acc"])}, {"acc": grad_state}, parameters)
    gradients = {k: canonical(substitute(e, renamed)) for k, e in gradients.items()}
    if any("acc" in free_names(e) for e in gradients.values()):
        message = "the gradient needs the state before `finish`, which is not saved; give the gradient"
        raise spec_error(op, "grad", message)
    return gradients


def _gradient_op(op: Op, reduction: Reduction, parameter: str, expr: Expr) -> Derived:
    seeds = [seed_name(op, k) for k in op.outputs]
    used = free_names(expr)
    order = [*seeds, *(p.name for p in op.operands), *reduction.finish, COUNT, INDEX]
    operands = tuple(n for n in order if n in used)
    if to_text(expr) in seeds:
        return Derived(operands, None)
    spec = {
        "op": f"{op.name}_grad_{parameter}({', '.join(_declare_operand(op, reduction, n) for n in operands)})",
        "kind": "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": named_result(operands, to_text(expr)),
    }
    if parameter in operands and sum(p.is_tensor for p in op.operands) > 1:  # else converted later, if they differ
        spec["result"] = f"like:{parameter}"
    return Derived(operands, spec)


def _declare_operand(op: Op, reduction: Reduction, operand: str) -> str:
    annotation = {COUNT: ": float", INDEX: ": Index"}.get(operand, "")
    if operand in reduction.finish:
        annotation = {"mask": ": Mask", "index": ": Index"}.get(reduction.finish[operand].type, "")
    for p in op.params:
        if p.name == operand:
            annotation = {"scalar": ": float", "number": ": float"}.get(p.role, "")
            annotation = {"mask": ": Mask", "index": ": Index"}.get(p.type, annotation)
    return f"{operand}{annotation}"
