"""Sort ops: sort along a dimension, top-k, and binary search in a sorted sequence.

    sort: the operation, one of PATTERNS

Order is total: NaN is greater than every number and equal to itself, -0.0 is equal to 0.0, and equal elements keep
their order, ascending or descending (the sort is stable). Gradients are scattered to the elements' original positions
(`runtime.autograd.sort_rules`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import triton
from ..fields import Fields, Unread
from ..model import Op, SpecError
from . import Derived, OutputRow, Rendered, Source

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["DEFAULT_DTYPES", "FIELDS", "PATTERNS", "REQUIRED", "UNREAD", "check", "derive", "render"]

FIELDS: Fields = {
    "sort": ((str,), "the operation: order, top or search"),
}
REQUIRED = ("sort",)
DEFAULT_DTYPES = "all"
UNREAD: Unread = {
    "grad": ((dict,), "the gradient cannot be a formula: leave `grad` out, or write grad: none"),
    "result": ((str,), "leave `result` out; values keep their dtype, and positions are int64"),
}

# pattern -> (operand names in order, required static arguments)
PATTERNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "order": (("input",), ("dim", "descending")),
    "top": (("input",), ("k", "dim", "largest")),
    "search": (("sequence", "values"), ("right", "total")),
    "bins": (("sequence", "values"), ()),
}


def check(op: Op) -> None:
    """Raise `SpecError` for an unknown pattern or operands that do not fit it."""
    pattern = op.text_field("sort")
    if pattern not in PATTERNS:
        raise SpecError(f"unknown pattern {pattern!r}", field="sort", suggestion=f"one of {', '.join(PATTERNS)}")
    operands, statics = PATTERNS[pattern]
    if [(p.type, p.role) for p in op.operands] != [("value", "tensor")] * len(operands):
        raise SpecError(f"the pattern {pattern!r} takes the operands ({', '.join(operands)})", field="op")
    missing = [s for s in statics if s not in {p.name for p in op.statics}]
    if missing:
        raise SpecError(f"the pattern {pattern!r} needs the parameter {missing[0]!r}", field="op")


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of the pattern. `order` and `top` share theirs."""
    pattern = op.text_field("sort")
    action = "search" if pattern in ("search", "bins") else "order"
    if action == "search":
        outputs: tuple[OutputRow, ...] = (OutputRow(type="index", result="index", differentiable=False),)
    else:
        outputs = (
            OutputRow("values", result=f"like:{op.operands[0].name}", differentiable=op.grad != "none"),
            OutputRow("indices", "index", "index", differentiable=False),
        )
    sources = {
        "opencl": Source(environment.get_template("opencl/sort.cl.j2").render(action=action)),
        "triton": triton.source("sort.py.j2", environment, action=action),
    }
    return Rendered(outputs, sources, {"sort": pattern, "rules": "sort_rules"})


def derive(op: Op) -> dict[str, Derived]:
    """Return nothing: the runtime has the gradients."""
    return {}
