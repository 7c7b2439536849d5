"""Index: elements read from or written to places that an integer tensor names.

    index: the access pattern, one of PATTERNS

Two pairs move data, each in a form in which an index stands for a position along one dimension at its own coordinates
(`gather`, `scatter`) and one in which it stands for a position in `count` merged dimensions (`take`, `put`). `spread`
is a scatter_add into zeros: the gradient of a gather. The kernels are the same for every op of a pattern; gradients
are the patterns again, and the runtime knows them (`runtime.autograd.index_rules`).
"""

from __future__ import annotations

from typing import Any

from .. import triton
from ..model import Op, SpecError
from . import Derived, OutputRow, Rendered, Source

__all__ = ["PATTERNS", "check", "derive", "render"]

# pattern -> (operands: name and type in order, static arguments it must have, what its kernels do)
PATTERNS: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...], str]] = {
    "gather": ((("input", "value"), ("index", "index")), ("dim",), "read"),
    "take": ((("input", "value"), ("index", "index")), ("dim", "count"), "read"),
    "spread": ((("source", "value"), ("index", "index")), ("shape", "dim"), "add"),
    "spread_taken": ((("source", "value"), ("index", "index")), ("shape", "dim", "count"), "add"),
    "scatter": ((("input", "value"), ("index", "index"), ("source", "value")), ("dim",), "write"),
    "scatter_add": ((("input", "value"), ("index", "index"), ("source", "value")), ("dim",), "add"),
    "put": ((("input", "value"), ("index", "index"), ("source", "value")), ("dim", "count"), "write"),
    "put_add": ((("input", "value"), ("index", "index"), ("source", "value")), ("dim", "count"), "add"),
    "mask_counts": ((("input", "mask"),), (), "count"),
    "mask_positions": ((("input", "mask"), ("offsets", "index")), ("total",), "list"),
}


def check(op: Op) -> None:
    """Raise `SpecError` for a pattern that does not exist, or operands that it does not take."""
    pattern = op.fields["index"]
    if pattern not in PATTERNS:
        raise SpecError(f"unknown pattern {pattern!r}", field="index", suggestion=f"one of {', '.join(PATTERNS)}")
    operands, statics, _ = PATTERNS[pattern]
    found = tuple(p.type for p in op.operands)
    if found != tuple(type for _, type in operands):
        shown = ", ".join(f"{n}{ {'index': ': Index', 'mask': ': Mask'}.get(t, '') }" for n, t in operands)
        raise SpecError(f"the pattern {pattern!r} takes the operands ({shown})", field="op")
    missing = [s for s in statics if s not in {p.name for p in op.statics}]
    if missing:
        raise SpecError(f"the pattern {pattern!r} needs the parameter {missing[0]!r}", field="op")


def render(op: Op, environment: Any) -> Rendered:
    """Kernels of the pattern's schedules."""
    pattern = op.fields["index"]
    _, _, does = PATTERNS[pattern]
    text = environment.get_template("opencl/index.cl.j2").render(op=op.name, pattern=pattern, does=does)
    lists = does in ("count", "list")
    output = OutputRow(type="index", result="index", differentiable=False) if lists else OutputRow(
        result=f"like:{op.operands[0].name}", differentiable=op.grad != "none"
    )  # fmt: skip
    sources = {
        "opencl": Source(text),
        "triton": triton.source("index.py.j2", environment, op=op.name, pattern=pattern, does=does),
    }
    return Rendered((output,), sources, {"index": pattern, "does": does})


def derive(op: Op) -> dict[str, Derived]:
    """The runtime knows the gradients of the patterns."""
    return {}
