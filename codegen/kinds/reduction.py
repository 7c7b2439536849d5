"""Reductions: one or several results from all elements along some dimensions.

    reduce:
      identity: the neutral element of `combine`: a number, true or false, `lowest` or `highest` of the dtype
      map:      the state of one element, from the operands; `index` is its position among the reduced elements
      combine:  merges two states, called `a` and `b`
      finish:   the result from the final state, called `acc`; `n` is the number of reduced elements
      save:     the last results, if only the gradient reads them: callers do not get them, and a call without gradient
                skips them if every `combine` is independent of the order (`bare`)
    empty: `error` if a reduction of no elements has no result; the default, `identity`, gives finish(identity)
    multi_tensor: also kernels that reduce the elements of many tensors together (`runtime.multi_reduction`)

If the state has several fields, `identity`, `map` and `combine` are mappings from field to expression. `combine` then
reads `a_FIELD` and `b_FIELD`, and `finish` reads the fields and may map several results. `let:` in `reduce` names
subexpressions of `combine`.

`combine` must be associative and commutative: the schedule chooses the order, which is the same at every call. To
break ties, keep `index` in a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..expr import Expr, free_names, size
from ..fields import Fields
from ..model import Op
from . import OutputRow, Rendered, Source, result_rule, seed_name
from .pointwise import math_functions
from .reduction_bare import bare
from .reduction_gradients import derive, spec_gradients
from .reduction_kernels import opencl_identity, opencl_parts, reduction_text, triton_source
from .reduction_spec import Reduction, parse_reduction, spec_error, with_visible_outputs

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["FIELDS", "REQUIRED", "bare", "check", "derive", "render"]

FIELDS: Fields = {
    "reduce": ((dict,), "identity, map, combine, finish (and let)"),
    "empty": ((str,), "`error` or `identity`: reducing nothing"),
    "multi_tensor": ((bool,), "also kernels that reduce many tensors to one result, as if they were one tensor"),
}
REQUIRED = ("reduce",)


def check(op: Op) -> None:
    """Raise `SpecError` if the reduction is wrong."""
    reduction = parse_reduction(op)
    if not any(p.is_tensor for p in op.operands):
        raise spec_error(op, "op", "a reduction needs a tensor operand")
    used_names = set(free_names(*reduction.map.values(), *reduction.finish.values()))
    for p in op.operands:
        if p.name not in used_names:
            raise spec_error(op, "reduce", f"parameter {p.name!r} is used by no expression")
    empty = op.text_field("empty", "identity")
    if empty not in ("identity", "error"):
        raise spec_error(op, "empty", f"found {empty!r}; it is `identity` or `error`")
    if isinstance(op.grad, Mapping):
        spec_gradients(op, reduction)
    if op.fields.get("multi_tensor"):
        is_plain = all(p.type == "value" for p in op.operands if p.is_tensor) and not reduction.reads_index
        if not is_plain or [p.name for p in op.statics] != ["dim", "keepdim"] or len(reduction.finish) > 1:
            message = (
                "a multi-tensor reduction has operands that are values, the statics dim and keepdim, and one result"
            )
            raise spec_error(op, "multi_tensor", message, "leave `index`, `dtype` and further results out")


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of all schedules."""
    reduction = parse_reduction(op)
    parts = opencl_parts(reduction)
    blocks = [b for part in parts.values() for b in part.values()]
    for block in blocks:
        if block.index_functions:
            function_names = ", ".join(block.index_functions)
            raise spec_error(op, "reduce", f"{function_names} of an index cannot be reduced", "write it with where")
    # A simple state leaves registers for several independent accumulators, which hide the latency of an addition.
    is_simple = reduction.single and size(reduction.combine) <= 6 and size(reduction.map) <= 16
    is_light = is_simple or (len(reduction.map) <= 2 and size(reduction.combine) <= 16)
    column_vectors = 8 if is_simple else 4 if is_light else 2
    text = environment.get_template("opencl/reduction.cl.j2").render(
        op=op.name,
        title=_title(op, reduction),
        inputs=[(p.name, p.type) for p in op.operands if p.is_tensor],
        scalars=[p.name for p in op.operands if not p.is_tensor],
        fields=[(f, e.type, opencl_identity(reduction.identity[f])) for f, e in reduction.map.items()],
        outputs=[(k, e.type) for k, e in reduction.finish.items()],
        reads_index=reduction.reads_index,
        accumulators=4 if is_light else 2,
        column_vectors=column_vectors,
        multi_tensor=bool(op.fields.get("multi_tensor")),
        **parts,
    )
    outputs = tuple(_output(op, k, e, k in reduction.saved) for k, e in reduction.finish.items())
    detail: dict[str, object] = {
        "fields": tuple(e.type for e in reduction.map.values()),
        "has_index": reduction.reads_index,
        "empty": op.text_field("empty", "identity"),
        "column_vectors": column_vectors,
    }
    if op.fields.get("multi_tensor"):
        detail["multi_tensor"] = True
    if reduction.saved:
        visible_op = with_visible_outputs(op, reduction)
        detail["seeds"] = (
            *(seed_name(visible_op, k) for k in visible_op.outputs),
            *(f"grad_{k}" for k in reduction.saved),
        )
    sources = {
        "opencl": Source(text, math_functions(*blocks)),
        "triton": triton_source(
            op,
            reduction,
            environment,
            "reduction.py.j2",
            title=_title(op, reduction),
            multi_tensor=bool(op.fields.get("multi_tensor")),
        ),
    }
    return Rendered(outputs, sources, detail)


def _title(op: Op, reduction: Reduction) -> str:
    text = reduction_text(reduction)
    return f"{op.name}({', '.join(p.name for p in op.params)}): {text[:400]}"


def _output(op: Op, output: str, expr: Expr, saved: bool) -> OutputRow:
    differentiable = expr.type == "value" and op.grad != "none" and not saved and op.result != "index"
    return OutputRow(output, expr.type, result_rule(op, expr.type), "full", differentiable, saved)
