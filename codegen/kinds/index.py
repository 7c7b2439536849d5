"""Index ops: read or write elements at positions that an integer tensor holds.

    index: the access pattern, one of PATTERNS

There are two ways to index. `gather` and `scatter` index along one dimension: element i of the index tensor replaces
one coordinate of its own position. `take` and `put` index into `count` merged dimensions. `spread` is a scatter_add
into zeros, the gradient of a gather. Where several elements are written to one position, the last one wins, or they
are added, multiplied, or reduced to their maximum or minimum. All ops of a pattern share their kernels. Gradients are
index ops again (`runtime.autograd.index_rules`). `bags` maps each position to the bag it lies in, from the bags'
offsets. `bag_sums` sums the rows that `take` would read, for each bag.
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
    "index": ((str,), "the access pattern"),
}
REQUIRED = ("index",)
DEFAULT_DTYPES = "all"
UNREAD: Unread = {
    "grad": ((dict,), "the gradient cannot be a formula: leave `grad` out, or write grad: none"),
    "result": ((str,), "leave `result` out; the result has the dtype of the first operand"),
}

_WRITES = (("input", "value"), ("index", "index"), ("source", "value"))
# How a written element is combined with the stored one: suffix of the pattern's name -> action of its kernels.
WRITE_MODES = {"": "write", "_add": "add", "_multiply": "multiply", "_maximum": "maximum", "_minimum": "minimum"}
# pattern -> (operands: name and type in order, required static arguments, action of its kernels)
PATTERNS: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...], str]] = {
    "gather": ((("input", "value"), ("index", "index")), ("dim",), "read"),
    "take": ((("input", "value"), ("index", "index")), ("dim", "count"), "read"),
    "spread": ((("source", "value"), ("index", "index")), ("shape", "dim"), "add"),
    "spread_taken": ((("source", "value"), ("index", "index")), ("shape", "dim", "count"), "add"),
    "bags": ((("offsets", "index"),), ("total",), "bags"),
    "bag_sums": (
        (("input", "value"), ("index", "index"), ("offsets", "index")),
        ("bags", "skipped", "mean"),
        "bag_sums",
    ),
    "mask_counts": ((("input", "mask"),), (), "count"),
    "mask_positions": ((("input", "mask"), ("offsets", "index")), ("total",), "list"),
}
for _suffix, _action in WRITE_MODES.items():
    PATTERNS[f"scatter{_suffix}"] = (_WRITES, ("dim",), _action)
    PATTERNS[f"put{_suffix}"] = (_WRITES, ("dim", "count"), _action)


def check(op: Op) -> None:
    """Raise `SpecError` for an unknown pattern or operands that do not fit it."""
    pattern = op.text_field("index")
    if pattern not in PATTERNS:
        raise SpecError(f"unknown pattern {pattern!r}", field="index", suggestion=f"one of {', '.join(PATTERNS)}")
    operands, statics, _ = PATTERNS[pattern]
    operand_types = tuple(p.type for p in op.operands)
    if operand_types != tuple(type for _, type in operands):
        operand_list = ", ".join(f"{n}{ {'index': ': Index', 'mask': ': Mask'}.get(t, '') }" for n, t in operands)
        raise SpecError(f"the pattern {pattern!r} takes the operands ({operand_list})", field="op")
    missing = [s for s in statics if s not in {p.name for p in op.statics}]
    if missing:
        raise SpecError(f"the pattern {pattern!r} needs the parameter {missing[0]!r}", field="op")


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of the pattern."""
    pattern = op.text_field("index")
    _, _, action = PATTERNS[pattern]
    text = environment.get_template("opencl/index.cl.j2").render(op=op.name, pattern=pattern, action=action)
    functions = (action,) if action in ("maximum", "minimum") else ()
    is_listing = action in ("count", "list", "bags")
    output = OutputRow(type="index", result="index", differentiable=False) if is_listing else OutputRow(
        result=f"like:{op.operands[0].name}", differentiable=op.grad != "none"
    )  # fmt: skip
    sources = {
        "opencl": Source(text, functions),
        "triton": triton.source("index.py.j2", environment, functions, op=op.name, pattern=pattern, action=action),
    }
    return Rendered((output,), sources, {"index": pattern, "action": action})


def derive(op: Op) -> dict[str, Derived]:
    """Return nothing: the runtime has the gradients of index ops."""
    return {}
