"""Window ops (pooling, unfold): each result element reduces a window that slides over one to three spatial dimensions.

    window:
      over:     the elements that a result element reduces: `windows` (the elements of one window: pooling), `covering`
                (the windows that contain an element: the transpose, gathered instead of scattered) or `taps` (no
                reduction, each element of each window is a result: im2col)
      identity: as in a reduction; `first` is the position of the window's first element
      map:      the state of one element; `index` is the position, in its plane, of the element that is read (under
                `covering`: of the result element), `n` the element count of the window that is read (`covering` only)
      combine:  merges two states, of which the first comes first in memory order
      finish:   the result from the final state; `n` is the element count of the window
    gradient: the op that computes the gradient of the first operand; its first operand is `grad`, and further operands
              are results of this op, found by name. Or `gather`: the gradient is read at the op's `indices`

Geometry is static arguments: `size` (the result's spatial dimensions), `kernel` (None: adaptive pooling, where windows
follow from the sizes), `stride`, `padding`, `dilation`, and optionally `counted` (whether padding counts as elements)
and `divisor` (the value of `n`; 0: the element count). States are combined in the order of the elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import triton
from ..expr import canonical, emit_triton, free_names
from ..fields import Fields, Unread
from ..model import Op, SpecError
from ..signature import check_name
from . import Derived, OutputRow, Rendered, Source, result_rule
from .pointwise import math_functions
from .reduction_kernels import opencl_identity, opencl_parts, reduction_text
from .reduction_spec import ELEMENT_COUNT, LIMITS, Reduction, parse_reduction

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["FIELDS", "REQUIRED", "UNREAD", "WALKS", "check", "derive", "render"]

FIELDS: Fields = {
    "window": ((dict,), "over, identity, map, combine, finish (and let)"),
    "gradient": ((str,), "the op that is the gradient of the first operand"),
}
REQUIRED = ("window",)
UNREAD: Unread = {"grad": ((dict,), "the gradient cannot be a formula: leave `grad` out, or write grad: none")}

WALKS = ("windows", "covering", "taps")
_STATICS = ("size", "kernel", "stride", "padding", "dilation", "counted", "divisor")


def _parse_window(op: Op) -> tuple[Reduction, str, frozenset[str]]:
    """Parse the `window:` field: the reduction, its `over`, and the fields whose identity is the first position."""
    spec = op.mapping_field("window")
    walk = spec.get("over")
    if not isinstance(walk, str) or walk not in WALKS:
        choices = f"one of {', '.join(WALKS)}"
        raise SpecError(f"unknown walk {str(walk)[:40]!r}", field="window.over", suggestion=choices)
    parts = {k: v for k, v in spec.items() if k != "over"}
    if not {"identity", "map", "combine"} <= set(parts):
        raise SpecError("needs identity, map and combine", field="window")
    identity, first_fields = parts.get("identity"), frozenset[str]()
    if isinstance(identity, Mapping):
        first_fields = frozenset(k for k, v in identity.items() if v == "first")
        parts["identity"] = {k: 0 if k in first_fields else v for k, v in identity.items()}
    extra_operands = {"n": ELEMENT_COUNT} if walk == "covering" else {}
    try:
        reduction = parse_reduction(replace(op, fields={**op.fields, "reduce": parts}), extra_operands)
    except SpecError as error:
        field = error.field.replace("reduce", "window", 1)
        raise SpecError(error.message, field=field, suggestion=error.suggestion) from None
    for field in sorted(first_fields):
        if reduction.map[field].type != "index":
            raise SpecError("`first` is a position, but this field is no index", field=f"window.identity.{field}")
    return reduction, walk, first_fields


def check(op: Op) -> None:
    """Raise `SpecError` if the op is wrong."""
    reduction, walk, _ = _parse_window(op)
    if not op.operands or not all(p.role == "tensor" for p in op.operands):
        raise SpecError("a window op has tensor operands, and static arguments", field="op")
    names = [p.name for p in op.statics]
    unknown = [n for n in names if n not in _STATICS]
    missing = [n for n in _STATICS[:4] if n not in names]
    if unknown or missing:
        problem = f"does not take {unknown[0]!r}" if unknown else f"needs the parameter {missing[0]!r}"
        raise SpecError(f"a window op {problem}", field="op", suggestion=f"static arguments: {', '.join(_STATICS)}")
    used_names = set(free_names(*reduction.map.values(), *reduction.finish.values()))
    for p in op.operands:
        if p.name not in used_names:
            raise SpecError(f"parameter {p.name!r} is used by no expression", field="window")
    if walk == "covering" and [e.type for e in reduction.finish.values()] != ["value"]:
        raise SpecError("an op over `covering` has one result, a value", field="window.finish")
    if "gradient" in op.fields:
        check_name(op.text_field("gradient"), "the gradient")


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of all schedules."""
    reduction, walk, first_fields = _parse_window(op)
    parts = opencl_parts(reduction)
    blocks = [b for part in parts.values() for b in part.values()]
    for block in blocks:
        if block.index_functions:
            calls = ", ".join(block.index_functions)
            raise SpecError(f"{calls} of an index cannot be computed here", field="window", suggestion="use where")
    reads_count = "n" in free_names(*reduction.map.values())
    template_values: dict[str, object] = {
        "op": op.name,
        "title": _title(op, reduction, walk),
        "over": walk,
        "reads_count": reads_count,
        "summed": walk == "windows" and len(op.operands) == 1 and _is_plain_sum(reduction),
        "outputs": [(k, e.type) for k, e in reduction.finish.items()],
    }
    text = environment.get_template("opencl/window.cl.j2").render(
        inputs=[(p.name, p.type) for p in op.operands],
        fields=[
            (f, e.type, "first" if f in first_fields else opencl_identity(reduction.identity[f]))
            for f, e in reduction.map.items()
        ],
        **template_values,
        **parts,
    )
    sources = {
        "opencl": Source(text, math_functions(*blocks)),
        "triton": _triton(op, reduction, first_fields, environment, template_values),
    }
    has_index = reduction.reads_index or any(p.type == "index" for p in op.operands)
    detail = {
        "over": walk, "reads_count": reads_count, "summed": template_values["summed"],
        "has_index": has_index, "gradient": op.text_field("gradient"),
    }  # fmt: skip
    return Rendered(tuple(_output(op, k, e.type) for k, e in reduction.finish.items()), sources, detail)


def _is_plain_sum(reduction: Reduction) -> bool:
    """Return True if the result is one sum of values that does not depend on their positions."""
    combine = reduction.combine.get("acc")
    if combine is None or combine.fn != "add" or {a.value for a in combine.args} != {"a", "b"}:
        return False
    return reduction.single and combine.type == "value" and not reduction.reads_index and len(reduction.finish) == 1


def _triton(
    op: Op, reduction: Reduction, first_fields: frozenset[str], environment: Environment,
    template_values: Mapping[str, object],
) -> Source:  # fmt: skip
    """Render the Triton kernel."""
    pairs = [reduction.operands(f) for f in reduction.map]
    inputs = [(p.name, p.type) for p in op.operands]
    kernel_names = triton.python_names([*(n for n, _ in inputs), *reduction.map, *(n for p in pairs for n in p)])
    canonical_parts = [
        {k: canonical(e) for k, e in part.items()} for part in (reduction.map, reduction.combine, reduction.finish)
    ]
    blocks = [emit_triton(part, names=kernel_names) for part in canonical_parts]
    identities = {f: i if isinstance(i, str) else triton.number(i.value) for f, i in reduction.identity.items()}
    return triton.source(
        "window.py.j2",
        environment,
        math_functions(*blocks),
        inputs=[(kernel_names.get(n, n), t) for n, t in inputs],
        fields=[
            (kernel_names.get(f, f), e.type, "first" if f in first_fields else LIMITS.get(i := identities[f], i))
            for f, e in reduction.map.items()
        ],
        pairs=[(kernel_names.get(a, a), kernel_names.get(b, b)) for a, b in pairs],
        limited=any(isinstance(i, str) for i in reduction.identity.values()),
        map=blocks[0],
        combine=blocks[1],
        finish=blocks[2],
        **template_values,
    )


def _title(op: Op, reduction: Reduction, walk: str) -> str:
    text = f"over {walk}: {reduction_text(reduction)}"
    return f"{op.name}({', '.join(p.name for p in op.operands)}): {text[:400]}"


def _output(op: Op, output: str, type: str) -> OutputRow:
    return OutputRow(output, type, result_rule(op, type), "full", type == "value" and op.grad != "none")


def derive(op: Op) -> dict[str, Derived]:
    """Return nothing: the runtime has the gradients (`runtime.autograd.window_rules`)."""
    return {}
