"""Index: elements read from or written to places that an integer tensor names.

    index: the access pattern, one of PATTERNS

Two pairs move data, each in a form in which an index stands for a position along one dimension at its own coordinates
(`gather`, `scatter`) and one in which it stands for a position in `count` merged dimensions (`take`, `put`). `spread`
is a scatter_add into zeros: the gradient of a gather. What meets at a place is replaced, added, multiplied, or the
larger or smaller of it stays. The kernels are the same for every op of a pattern; gradients are the patterns again, and
the runtime knows them (`runtime.autograd.index_rules`). `bags` finds which of several runs, given by where they begin,
each position lies in; `bag_sums` adds up what `take` would read for each run.
"""

from __future__ import annotations

from typing import Any

from .. import triton
from ..model import Op, SpecError
from . import Derived, OutputRow, Rendered, Source

__all__ = ["PATTERNS", "check", "derive", "render"]

_WRITES = (("input", "value"), ("index", "index"), ("source", "value"))
# How what is written meets what is there: the ending of a pattern's name, and what its kernels do.
MEETING = {"": "write", "_add": "add", "_multiply": "multiply", "_maximum": "maximum", "_minimum": "minimum"}
# pattern -> (operands: name and type in order, static arguments it must have, what its kernels do)
PATTERNS: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...], str]] = {
    "gather": ((("input", "value"), ("index", "index")), ("dim",), "read"),
    "take": ((("input", "value"), ("index", "index")), ("dim", "count"), "read"),
    "spread": ((("source", "value"), ("index", "index")), ("shape", "dim"), "add"),
    "spread_taken": ((("source", "value"), ("index", "index")), ("shape", "dim", "count"), "add"),
    "bags": ((("offsets", "index"),), ("total",), "bags"),
    "bag_sums": (
        (("input", "value"), ("index", "index"), ("offsets", "index")), ("bags", "skipped", "mean"), "bag_sums",
    ),
    "mask_counts": ((("input", "mask"),), (), "count"),
    "mask_positions": ((("input", "mask"), ("offsets", "index")), ("total",), "list"),
}
for _ending, _does in MEETING.items():
    PATTERNS[f"scatter{_ending}"] = (_WRITES, ("dim",), _does)
    PATTERNS[f"put{_ending}"] = (_WRITES, ("dim", "count"), _does)


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
    functions = (does,) if does in ("maximum", "minimum") else ()
    lists = does in ("count", "list", "bags")
    output = OutputRow(type="index", result="index", differentiable=False) if lists else OutputRow(
        result=f"like:{op.operands[0].name}", differentiable=op.grad != "none"
    )  # fmt: skip
    sources = {
        "opencl": Source(text, functions),
        "triton": triton.source("index.py.j2", environment, functions, op=op.name, pattern=pattern, does=does),
    }
    return Rendered((output,), sources, {"index": pattern, "does": does})


def derive(op: Op) -> dict[str, Derived]:
    """The runtime knows the gradients of the patterns."""
    return {}
