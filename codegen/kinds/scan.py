"""Scan: for every element along one dimension, what all elements up to it make together.

    scan:       as `reduce` of a reduction: identity, map, combine, finish and let, over states of one field or several
    signature:  `dim: int` is the dimension; `reverse: bool` goes from its end; `dtype` is what states are computed in

`a` of `combine` stands before `b` on the way along the dimension. `combine` must be associative, but need not be
commutative; the identity must change nothing on either side. `index` is an element's position, also in reverse. Fields
are numbers: truth values are counted with where(mask, 1, 0). Gradients are functions of the runtime
(`runtime.autograd.scan_rules`): a sum's is the sum from the other end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..expr import Block, Expr, canonical, emit_opencl, free_names, size, to_text
from ..model import Op, SpecError
from . import Derived, OutputRow, Rendered, Source
from .pointwise import functions
from .reduction import Reduction, reduction_of, spelled_identity, triton_source

__all__ = ["check", "derive", "render", "scan_of"]


def scan_of(op: Op) -> Reduction:
    """What `op` says, checked. Raises `SpecError` naming the field."""
    try:
        found = reduction_of(replace(op, fields={**op.fields, "reduce": op.fields.get("scan")}))
    except SpecError as error:
        message = error.message.replace("a reduction needs `reduce:`", "a scan needs `scan:`")
        raise _error(op, re.sub(r"^reduce\b", "scan", error.field), message, error.suggestion) from None
    for field, expr in found.map.items():
        if expr.type == "mask":
            raise _error(op, f"scan.map.{field}", "a field is a number", "count truth values with where(mask, 1, 0)")
    if "n" in free_names(*found.finish.values()):
        raise _error(op, "scan.finish", "there is no `n` in a scan: every result is made of another number of elements")
    if found.saved:
        raise _error(op, "scan.save", "a scan keeps nothing for its gradient")
    return found


def _error(op: Op, field: str, message: str, suggestion: str | None = None) -> SpecError:
    return SpecError(message, file=op.file, line=op.line, field=field, suggestion=suggestion)


def check(op: Op) -> None:
    """Raise `SpecError` where the scan is wrong."""
    found = scan_of(op)
    if not any(p.is_tensor for p in op.operands):
        raise _error(op, "op", "a scan needs a tensor operand")
    if not any(p.name == "dim" and p.annotation == "int" for p in op.statics):
        raise _error(op, "op", "a scan goes along one dimension", "give the signature a parameter `dim: int`")
    for p in op.statics:
        if p.name not in ("dim", "reverse", "dtype"):
            raise _error(op, "op", f"a scan has no parameter {p.name!r}", "it may have dim, reverse and dtype")
    used = set(free_names(*found.map.values(), *found.finish.values()))
    for p in op.operands:
        if p.name not in used:
            raise _error(op, "scan", f"parameter {p.name!r} is used by no expression")
    if isinstance(op.grad, Mapping):
        raise _error(op, "grad", "a scan's gradient is not given by a formula", "grad: none, or nothing")


def render(op: Op, environment: Any) -> Rendered:
    """Kernels of all schedules."""
    found = scan_of(op)
    combine_names = {n: f"{s}.{f}" for f in found.map for s, n in zip(_STATES, found.operands(f), strict=True)}
    state_names = {f: f"state.{f}" for f in found.map}
    parts: dict[str, dict[str, Block]] = {}
    for part, exprs, names in (
        ("map", found.map, {}),
        ("combine", found.combine, combine_names),
        ("finish", found.finish, state_names),
    ):
        settled = {k: canonical(e) for k, e in exprs.items()}
        parts[part] = {
            target: emit_opencl(settled, dialect, wrap=True, names=names)
            for target, dialect in (("vector", "vector"), ("scalar", "row"))
        }
    blocks = [b for part in parts.values() for b in part.values()]
    for block in blocks:
        if block.index_functions:
            shown = ", ".join(block.index_functions)
            raise _error(op, "scan", f"{shown} of an index cannot be scanned", "write it with where")
    light = found.single and size(found.combine) <= 6 and size(found.map) <= 16
    text = environment.get_template("opencl/scan.cl.j2").render(
        op=op.name,
        title=_title(op, found),
        inputs=[(p.name, p.type) for p in op.operands if p.is_tensor],
        scalars=[p.name for p in op.operands if not p.is_tensor],
        fields=[(f, e.type, spelled_identity(found.identity[f])) for f, e in found.map.items()],
        outputs=[(k, e.type) for k, e in found.finish.items()],
        indexed=found.indexed,
        several=4 if light else 1,
        **parts,
    )
    detail: dict[str, Any] = {
        "fields": tuple(e.type for e in found.map.values()),
        "indexed": found.indexed,
        "adds": _adds(op, found),
    }
    sources = {"opencl": Source(text, functions(*blocks)), "triton": _triton(op, found, environment)}
    return Rendered(tuple(_output(op, k, e) for k, e in found.finish.items()), sources, detail)


_STATES = ("first", "second")


def _adds(op: Op, found: Reduction) -> bool:
    """Whether the op is the plain running sum of its operand, whose gradient is the same from the other end."""
    if not found.single or len(op.operands) != 1:
        return False
    combine, finish = found.combine["acc"], tuple(found.finish.values())
    added = combine.fn == "add" and {a.value for a in combine.args} == {"a", "b"}
    plain = to_text(found.map["acc"]) == op.operands[0].name and [to_text(e) for e in finish] == ["acc"]
    return added and plain and any(p.name == "reverse" for p in op.statics)


def _triton(op: Op, found: Reduction, environment: Any) -> Source:
    return triton_source(op, found, environment, "scan.py.j2", title=_title(op, found), indexed=found.indexed)


def _title(op: Op, found: Reduction) -> str:
    def shown(exprs: Mapping[str, Expr]) -> str:
        return "; ".join(f"{k} = {to_text(e)}" for k, e in exprs.items())

    text = f"map {shown(found.map)}, combine {shown(found.combine)}, finish {shown(found.finish)}"
    return f"{op.name}({', '.join(p.name for p in op.params)}): {text[:400]}"


def _output(op: Op, output: str, expr: Expr) -> OutputRow:
    result = {"mask": "bool", "index": "index"}.get(expr.type, op.result)
    return OutputRow(output, expr.type, result, "full", expr.type == "value" and op.grad != "none")


def derive(op: Op) -> dict[str, Derived]:
    """Nothing: gradients of scans are functions of the runtime."""
    return {}
