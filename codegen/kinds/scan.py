"""Scans (prefix sums and the like): for every element along one dimension, the combination of all elements up to it.

    scan:       as `reduce` of a reduction: identity, map, combine, finish and let, over states of one or several fields
    signature:  `dim: int` is the dimension; `reverse: bool` scans from its end; `dtype` is the dtype of the states

In `combine`, `a` comes before `b` in scan order. `combine` must be associative but need not be commutative, and the
identity must be neutral on both sides. `index` is an element's position, also in reverse. Fields are numbers: count
truth values with where(mask, 1, 0). Gradients are functions of the runtime (`runtime.autograd.scan_rules`): the
gradient of a running sum is the running sum from the other end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..expr import Expr, free_names, size, to_text
from ..fields import Fields
from ..model import Op, SpecError
from . import Derived, OutputRow, Rendered, Source, result_rule
from .pointwise import math_functions
from .reduction_kernels import opencl_identity, opencl_parts, reduction_text, triton_source
from .reduction_spec import Reduction, parse_reduction

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["FIELDS", "REQUIRED", "check", "derive", "parse_scan", "render"]

FIELDS: Fields = {
    "scan": ((dict,), "identity, map, combine, finish (and let)"),
}
REQUIRED = ("scan",)


def parse_scan(op: Op) -> Reduction:
    """Parse and check the `scan:` field of `op`. Raises `SpecError`, which names the field that is wrong."""
    try:
        reduction = parse_reduction(replace(op, fields={**op.fields, "reduce": op.fields.get("scan")}))
    except SpecError as error:
        message = error.message.replace("a reduction needs `reduce:`", "a scan needs `scan:`")
        raise _error(op, re.sub(r"^reduce\b", "scan", error.field), message, error.suggestion) from None
    for field, expr in reduction.map.items():
        if expr.type == "mask":
            raise _error(op, f"scan.map.{field}", "a field is a number", "count truth values with where(mask, 1, 0)")
    if "n" in free_names(*reduction.finish.values()):
        raise _error(op, "scan.finish", "there is no `n` in a scan: each result combines another number of elements")
    if reduction.saved:
        raise _error(op, "scan.save", "a scan saves nothing for its gradient")
    return reduction


def _error(op: Op, field: str, message: str, suggestion: str | None = None) -> SpecError:
    return SpecError(message, file=op.file, line=op.line, field=field, suggestion=suggestion)


def check(op: Op) -> None:
    """Raise `SpecError` if the scan is wrong."""
    reduction = parse_scan(op)
    if not any(p.is_tensor for p in op.operands):
        raise _error(op, "op", "a scan needs a tensor operand")
    if not any(p.name == "dim" and p.annotation == "int" for p in op.statics):
        raise _error(op, "op", "a scan goes along one dimension", "give the signature a parameter `dim: int`")
    for p in op.statics:
        if p.name not in ("dim", "reverse", "dtype"):
            raise _error(op, "op", f"a scan has no parameter {p.name!r}", "it may have dim, reverse and dtype")
    used_names = set(free_names(*reduction.map.values(), *reduction.finish.values()))
    for p in op.operands:
        if p.name not in used_names:
            raise _error(op, "scan", f"parameter {p.name!r} is used by no expression")
    if isinstance(op.grad, Mapping):
        raise _error(op, "grad", "a scan's gradient is not given by a formula", "grad: none, or nothing")


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of all schedules."""
    reduction = parse_scan(op)
    parts = opencl_parts(reduction)
    blocks = [b for part in parts.values() for b in part.values()]
    for block in blocks:
        if block.index_functions:
            function_names = ", ".join(block.index_functions)
            raise _error(op, "scan", f"{function_names} of an index cannot be scanned", "write it with where")
    is_light = reduction.single and size(reduction.combine) <= 6 and size(reduction.map) <= 16
    text = environment.get_template("opencl/scan.cl.j2").render(
        op=op.name,
        title=_title(op, reduction),
        inputs=[(p.name, p.type) for p in op.operands if p.is_tensor],
        scalars=[p.name for p in op.operands if not p.is_tensor],
        fields=[(f, e.type, opencl_identity(reduction.identity[f])) for f, e in reduction.map.items()],
        outputs=[(k, e.type) for k, e in reduction.finish.items()],
        reads_index=reduction.reads_index,
        vectors_per_step=4 if is_light else 1,
        **parts,
    )
    detail: dict[str, object] = {
        "fields": tuple(e.type for e in reduction.map.values()),
        "has_index": reduction.reads_index,
        "is_running_sum": _is_running_sum(op, reduction),
    }
    sources = {"opencl": Source(text, math_functions(*blocks)), "triton": _triton(op, reduction, environment)}
    return Rendered(tuple(_output(op, k, e) for k, e in reduction.finish.items()), sources, detail)


def _is_running_sum(op: Op, reduction: Reduction) -> bool:
    """Return True for a plain running sum of the operand, whose gradient is a running sum from the other end."""
    if not reduction.single or len(op.operands) != 1:
        return False
    combine, finish = reduction.combine["acc"], tuple(reduction.finish.values())
    is_sum = combine.fn == "add" and {a.value for a in combine.args} == {"a", "b"}
    is_identity_map = to_text(reduction.map["acc"]) == op.operands[0].name and [to_text(e) for e in finish] == ["acc"]
    return is_sum and is_identity_map and any(p.name == "reverse" for p in op.statics)


def _triton(op: Op, reduction: Reduction, environment: Environment) -> Source:
    return triton_source(
        op, reduction, environment, "scan.py.j2", title=_title(op, reduction), reads_index=reduction.reads_index
    )


def _title(op: Op, reduction: Reduction) -> str:
    text = reduction_text(reduction)
    return f"{op.name}({', '.join(p.name for p in op.params)}): {text[:400]}"


def _output(op: Op, output: str, expr: Expr) -> OutputRow:
    return OutputRow(output, expr.type, result_rule(op, expr.type), "full", expr.type == "value" and op.grad != "none")


def derive(op: Op) -> dict[str, Derived]:
    """Return nothing: the runtime has the gradients of scans."""
    return {}
