"""Window: each element of a result from the elements of a window that slides over up to three spatial dimensions.

    window:
      over:     what a result is made from: `windows` (the elements in a window: pooling), `covering` (the windows that
                an element is in: the transpose, gathered instead of scattered) or `taps` (each element of each window
                apart: the columns of a convolution)
      identity: as of a reduction; `first` is the place of the window's first element
      map:      an element's contribution; `index` is the place, in its plane, of the element that is read (of the
                result under `covering`), `n` how many elements the window counts that is read (under `covering`)
      combine:  two states into one, the first of which comes before the second
      finish:   the result from the state; `n` is how many elements the window counts
    gradient: the op that computes the gradient of the first operand, from `grad` and from results that it names; or
              `gather`: the gradient is read at the op's `indices`

Sizes are static arguments: `size` (of the result's spatial dimensions), `kernel` (None: windows of an adaptive pool,
which follow from the sizes), `stride`, `padding`, `dilation`, and where an op has them `counted` (whether padding
counts as elements) and `divisor` (what `n` is, 0: counted). States meet in the order of the elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .. import triton
from ..expr import Operand, canonical, emit_opencl, emit_triton, free_names, to_text
from ..model import Op, SpecError
from ..signature import check_name
from . import Derived, OutputRow, Rendered, Source
from .pointwise import functions
from .reduction import LIMITS, Reduction, reduction_of, spelled_identity

__all__ = ["WALKS", "check", "derive", "render"]

WALKS = ("windows", "covering", "taps")
_STATICS = ("size", "kernel", "stride", "padding", "dilation", "counted", "divisor")
_N = Operand("value", "scalar")


def _parsed(op: Op) -> tuple[Reduction, str, frozenset[str]]:
    """What `op` says: its states, what it goes over, and the fields that begin with the window's first place."""
    given = op.fields["window"]
    over = given.get("over")
    if over not in WALKS:
        known = f"one of {', '.join(WALKS)}"
        raise SpecError(f"unknown walk {str(over)[:40]!r}", field="window.over", suggestion=known)
    parts = {k: v for k, v in given.items() if k != "over"}
    if not {"identity", "map", "combine"} <= set(parts):
        raise SpecError("needs identity, map and combine", field="window")
    identity, firsts = parts.get("identity"), frozenset[str]()
    if isinstance(identity, Mapping):
        firsts = frozenset(k for k, v in identity.items() if v == "first")
        parts["identity"] = {k: 0 if k in firsts else v for k, v in identity.items()}
    more = {"n": _N} if over == "covering" else {}
    try:
        found = reduction_of(replace(op, fields={**op.fields, "reduce": parts}), more)
    except SpecError as error:
        field = error.field.replace("reduce", "window", 1)
        raise SpecError(error.message, field=field, suggestion=error.suggestion) from None
    for field in sorted(firsts):
        if found.map[field].type != "index":
            raise SpecError("`first` is a place; this field is no index", field=f"window.identity.{field}")
    return found, over, firsts


def check(op: Op) -> None:
    """Raise `SpecError` where the op is wrong."""
    found, over, _ = _parsed(op)
    if not op.operands or not all(p.role == "tensor" for p in op.operands):
        raise SpecError("a window op has tensor operands, and static arguments", field="op")
    names = [p.name for p in op.statics]
    unknown = [n for n in names if n not in _STATICS]
    missing = [n for n in _STATICS[:4] if n not in names]
    if unknown or missing:
        wrong = f"does not take {unknown[0]!r}" if unknown else f"needs the parameter {missing[0]!r}"
        raise SpecError(f"a window op {wrong}", field="op", suggestion=f"static arguments: {', '.join(_STATICS)}")
    used = set(free_names(*found.map.values(), *found.finish.values()))
    for p in op.operands:
        if p.name not in used:
            raise SpecError(f"parameter {p.name!r} is used by no expression", field="window")
    if over == "covering" and [e.type for e in found.finish.values()] != ["value"]:
        raise SpecError("what goes over `covering` has one result, a value", field="window.finish")
    if "gradient" in op.fields:
        check_name(str(op.fields["gradient"]), "the gradient")


def render(op: Op, environment: Any) -> Rendered:
    """Kernels of all schedules."""
    found, over, firsts = _parsed(op)
    states = {"first": 0, "second": 1}
    combined = {n: f"{s}.{f}" for f in found.map for s, n in zip(states, found.operands(f), strict=True)}
    parts: dict[str, Any] = {}
    for part, exprs, names in (
        ("map", found.map, {}),
        ("combine", found.combine, combined),
        ("finish", found.finish, {f: f"state.{f}" for f in found.map}),
    ):
        settled = {k: canonical(e) for k, e in exprs.items()}
        parts[part] = {
            dialect: emit_opencl(settled, target, wrap=True, names=names)
            for dialect, target in (("vector", "vector"), ("scalar", "row"))
        }
    blocks = [b for part in parts.values() for b in part.values()]
    for block in blocks:
        if block.index_functions:
            shown = ", ".join(block.index_functions)
            raise SpecError(f"{shown} of an index cannot be computed here", field="window", suggestion="use where")
    sized = "n" in free_names(*found.map.values())
    described: dict[str, Any] = {
        "op": op.name,
        "title": _title(op, found, over),
        "over": over,
        "sized": sized,
        "summed": over == "windows" and len(op.operands) == 1 and _adds(found),
        "outputs": [(k, e.type) for k, e in found.finish.items()],
    }
    text = environment.get_template("opencl/window.cl.j2").render(
        inputs=[(p.name, p.type) for p in op.operands],
        fields=[
            (f, e.type, "first" if f in firsts else spelled_identity(found.identity[f])) for f, e in found.map.items()
        ],
        **described,
        **parts,
    )
    sources = {"opencl": Source(text, functions(*blocks)), "triton": _triton(op, found, firsts, environment, described)}
    indexed = found.indexed or any(p.type == "index" for p in op.operands)
    detail = {
        "over": over, "sized": sized, "summed": described["summed"], "indexed": indexed,
        "gradient": str(op.fields.get("gradient", "")),
    }  # fmt: skip
    return Rendered(tuple(_output(op, k, e.type) for k, e in found.finish.items()), sources, detail)


def _adds(found: Reduction) -> bool:
    """Whether a window's result is made from one sum of values, none of which is told apart by its place."""
    combine = found.combine.get("acc")
    if combine is None or combine.fn != "add" or {a.value for a in combine.args} != {"a", "b"}:
        return False
    return found.single and combine.type == "value" and not found.indexed and len(found.finish) == 1


def _triton(
    op: Op, found: Reduction, firsts: frozenset[str], environment: Any, described: Mapping[str, Any]
) -> Source:
    """The Triton kernel."""
    pairs = [found.operands(f) for f in found.map]
    inputs = [(p.name, p.type) for p in op.operands]
    spelled = triton.python_names([*(n for n, _ in inputs), *found.map, *(n for p in pairs for n in p)])
    settled = [{k: canonical(e) for k, e in part.items()} for part in (found.map, found.combine, found.finish)]
    blocks = [emit_triton(part, names=spelled) for part in settled]
    identities = {f: i if isinstance(i, str) else triton.number(i.value) for f, i in found.identity.items()}
    return triton.source(
        "window.py.j2",
        environment,
        functions(*blocks),
        inputs=[(spelled.get(n, n), t) for n, t in inputs],
        fields=[
            (spelled.get(f, f), e.type, "first" if f in firsts else LIMITS.get(i := identities[f], i))
            for f, e in found.map.items()
        ],
        pairs=[(spelled.get(a, a), spelled.get(b, b)) for a, b in pairs],
        limited=any(isinstance(i, str) for i in found.identity.values()),
        map=blocks[0],
        combine=blocks[1],
        finish=blocks[2],
        **described,
    )


def _title(op: Op, found: Reduction, over: str) -> str:
    def shown(exprs: Mapping[str, Any]) -> str:
        return "; ".join(f"{k} = {to_text(e)}" for k, e in exprs.items())

    text = f"over {over}: map {shown(found.map)}, combine {shown(found.combine)}, finish {shown(found.finish)}"
    return f"{op.name}({', '.join(p.name for p in op.operands)}): {text[:400]}"


def _output(op: Op, output: str, type: str) -> OutputRow:
    result = {"mask": "bool", "index": "index"}.get(type, op.result)
    return OutputRow(output, type, result, "full", type == "value" and op.grad != "none")


def derive(op: Op) -> dict[str, Derived]:
    """The runtime knows the gradients (`runtime.autograd.window_rules`)."""
    return {}
