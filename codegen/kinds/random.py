"""Random ops: pointwise expressions with random numbers. `uniform(k)`, `normal(k)`, `bits(k)` draw them.

    out: an expression, as in a pointwise op, or a mapping from result names to expressions

`index` is the element's position in row-major order. The signature ends in two parameters annotated `Seed`: the key of
the Philox generator and the call's offset in its stream. Draw k of the element at row-major position i uses the counter
(i, offset + k). A value depends on nothing else, so backward draws the same numbers again from the same two integers
instead of saving them. An op that draws nothing but uses `index` lacks these parameters.

Compute types: 64-bit integers for an op that draws `bits`. Any other op that draws computes in float64 for float64 and
in float32 for other dtypes. An op that only uses `index` computes in 64-bit integers for integer dtypes and, if the
device has it, in float64 for floats. Results are then converted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..expr import Expr, ExprError, Operand, canonical, emit_opencl, free_names, gradient, to_text, variable
from ..expr.nodes import topological
from ..fields import OUT, Fields, Unread
from ..model import Op, SpecError
from ..signature import c_names
from . import Derived, OutputRow, Rendered, Source, result_rule, seed_name
from .pointwise import title, triton_source
from .spec_expressions import parse_field

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["DEFAULT_DTYPES", "FIELDS", "REQUIRED", "UNREAD", "check", "derive", "render"]

FIELDS: Fields = {
    "out": OUT,
}
REQUIRED = ("out",)
DEFAULT_DTYPES = "all"
UNREAD: Unread = {"grad": ((dict,), "leave `grad` out, and it is derived, or write grad: none")}

_DRAW_FUNCTIONS = ("uniform", "normal", "bits")
_INDEX = "index"


def _parse_expressions(op: Op) -> dict[str, Expr]:
    table = {p.name: Operand(p.type, p.scope) for p in op.operands if p.role != "seed"}
    return {
        k: parse_field(op, f"out.{k}" if len(op.outputs) > 1 else "out", v, table, random=True)
        for k, v in op.outputs.items()
    }


def _count_draws(exprs: dict[str, Expr]) -> dict[str, int]:
    """Return the number of draws of each random function: one more than its largest argument."""
    draw_counts: dict[str, int] = {}
    for node in topological(exprs.values()):
        if node.fn in _DRAW_FUNCTIONS:
            number = node.args[0].value
            assert isinstance(number, int)
            draw_counts[node.fn] = max(draw_counts.get(node.fn, 0), number + 1)
    return draw_counts


def check(op: Op) -> None:
    """Raise `SpecError` if the signature or an expression is wrong."""
    seeds = [p for p in op.params if p.role == "seed"]
    exprs = _parse_expressions(op)
    draw_counts = _count_draws(exprs)
    if not draw_counts and _INDEX not in free_names(*exprs.values()):
        raise SpecError("draws nothing", file=op.file, line=op.line, field="out", suggestion="call uniform(0)")
    if seeds and not draw_counts:
        raise SpecError("draws nothing: it takes no seed", file=op.file, line=op.line, field="op")
    if draw_counts and (len(seeds) != 2 or tuple(op.operands[-2:]) != tuple(seeds)):
        raise SpecError(
            "a random op ends in two parameters: seed: Seed, offset: Seed", file=op.file, line=op.line, field="op"
        )
    if not any(p.is_tensor for p in op.operands):
        raise SpecError("a random op needs a tensor that gives the shape", file=op.file, line=op.line, field="op")
    if "bits" in draw_counts and len(draw_counts) > 1:
        raise SpecError("bits and uniform or normal do not mix in one op", file=op.file, line=op.line, field="out")


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of a pointwise op, with the element's index as an additional argument."""
    exprs = {k: canonical(e) for k, e in _parse_expressions(op).items()}
    operands = [p for p in op.operands if p.role != "seed"]
    kernel_names = c_names([*(p.name for p in operands), *exprs, _INDEX])
    draw_counts, uses_index = _count_draws(exprs), _INDEX in free_names(*exprs.values())
    blocks = {d: emit_opencl(exprs, d, wrap=True, names=kernel_names) for d in ("vector", "row")}
    text = environment.get_template("opencl/pointwise.cl.j2").render(
        op=op.name,
        title=title(op, exprs),
        inputs=[(kernel_names.get(p.name, p.name), p.type) for p in operands if p.is_tensor],
        scalars=[(kernel_names.get(p.name, p.name), i) for i, p in enumerate(operands) if not p.is_tensor],
        outputs=[(k, e.type) for k, e in exprs.items()],
        vector=blocks["vector"],
        scalar=blocks["row"],
        random=True,
        seeded=bool(draw_counts),
        index_name=kernel_names.get(_INDEX, _INDEX) if uses_index else None,
    )
    functions = {f for b in blocks.values() for f in (*b.functions, *b.index_functions)}
    outputs = tuple(OutputRow(k, e.type, result_rule(op, e.type), "full", op.grad != "none") for k, e in exprs.items())
    element = "long" if "bits" in draw_counts else "real" if draw_counts else "widest"
    detail = {"draws": max(draw_counts.values(), default=0), "element": element}
    sources = {
        "opencl": Source(text, tuple(sorted(functions))),
        "triton": triton_source(op, exprs, operands, environment, random=True, seeded=bool(draw_counts)),
    }
    return Rendered(outputs, sources, detail)


def derive(op: Op) -> dict[str, Derived]:
    """Return a random gradient op for each tensor of type value. It draws the same numbers as the forward call.

    In a derived op, an operand that is only compared, such as the input of a leaky unit, has no gradient. That is no
    error.
    """
    if op.grad == "none":
        return {}
    outputs = {k: canonical(e) for k, e in _parse_expressions(op).items() if e.type == "value"}
    seeds = {k: variable(seed_name(op, k), Operand("value", "full")) for k in outputs}
    gradients: dict[str, Derived] = {}
    for parameter in (p.name for p in op.operands if p.is_tensor and p.type == "value"):
        with suppress(ExprError):
            gradient_expr = gradient(outputs, seeds, [parameter]).get(parameter)
            if gradient_expr is not None and gradient_expr.fn != "const":
                gradients[parameter] = _gradient_op(op, parameter, gradient_expr)
            elif op.is_derived:
                gradients[parameter] = Derived((), None)
    return gradients


def _gradient_op(op: Op, parameter: str, expr: Expr) -> Derived:
    used_names = free_names(expr)
    seed_params = [p.name for p in op.params if p.role == "seed"] if _count_draws({"out": expr}) else []
    candidates = [*(seed_name(op, k) for k in op.outputs), *(p.name for p in op.operands)]
    operands = tuple([n for n in candidates if n in used_names] + seed_params)
    annotations = {"scalar": ": float", "number": ": float", "seed": ": Seed"}
    parameter_list = ", ".join(
        n + next((annotations.get(p.role, "") for p in op.params if p.name == n), "") for n in operands
    )
    spec = {
        "op": f"{op.name}_grad_{parameter}({parameter_list})",
        "kind": "random" if seed_params or _INDEX in used_names else "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": to_text(expr),
    }
    return Derived(operands, spec)
