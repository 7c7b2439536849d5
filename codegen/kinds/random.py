"""Random: pointwise with numbers that are an element's own. `uniform(k)`, `normal(k)` and `bits(k)` draw them,
k = 0, 1, …; `index` is the element's position in row-major order.

    out: an expression, as of a pointwise op, or a mapping from result names to expressions

The signature ends in two parameters annotated `Seed`: the key of Philox, and the call's place in the stream. Draw k of
the element at row-major position i is that of counter (i, offset + k), so a value depends on nothing else, and
backward draws the same numbers again from the same two integers instead of keeping them. An op that draws nothing, but
names `index`, has no such parameters.

An op that draws `bits` calculates in 64-bit integers, any other that draws in float64 for float64 and in float32 for
the rest; one that only names `index` in 64-bit integers for integers, and in float64, where the device has it, for
floats. Results are then converted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..expr import Expr, ExprError, Operand, canonical, emit_opencl, free_names, gradient, name, to_text
from ..expr.nodes import topological
from ..model import Op, SpecError
from ..signature import c_names
from . import Derived, OutputRow, Rendered, Source, seed_name
from .pointwise import parsed, title, triton_source

__all__ = ["check", "derive", "render"]

_DRAWS = ("uniform", "normal", "bits")
_PLACE = "index"


def _expressions(op: Op) -> dict[str, Expr]:
    table = {p.name: Operand(p.type, p.scope) for p in op.operands if p.role != "seed"}
    return {
        k: parsed(op, f"out.{k}" if len(op.outputs) > 1 else "out", v, table, random=True)
        for k, v in op.outputs.items()
    }


def _draws(found: dict[str, Expr]) -> dict[str, int]:
    """The draws that occur, each with one more than its largest number."""
    used: dict[str, int] = {}
    for node in topological(found.values()):
        if node.fn in _DRAWS:
            number = node.args[0].value
            assert isinstance(number, int)
            used[node.fn] = max(used.get(node.fn, 0), number + 1)
    return used


def check(op: Op) -> None:
    """Raise `SpecError` where the signature or an expression is wrong."""
    seeds = [p for p in op.params if p.role == "seed"]
    found = _expressions(op)
    used = _draws(found)
    if not used and _PLACE not in free_names(*found.values()):
        raise SpecError("draws nothing", file=op.file, line=op.line, field="out", suggestion="call uniform(0)")
    if seeds and not used:
        raise SpecError("draws nothing: it takes no seed", file=op.file, line=op.line, field="op")
    if used and (len(seeds) != 2 or tuple(op.operands[-2:]) != tuple(seeds)):
        raise SpecError(
            "a random op ends in two parameters: seed: Seed, offset: Seed", file=op.file, line=op.line, field="op"
        )
    if not any(p.is_tensor for p in op.operands):
        raise SpecError("a random op needs a tensor that gives the shape", file=op.file, line=op.line, field="op")
    if "bits" in used and len(used) > 1:
        raise SpecError("bits and uniform or normal do not mix in one op", file=op.file, line=op.line, field="out")


def render(op: Op, environment: Any) -> Rendered:
    """The kernels of a pointwise op, with the index of the element as one more argument."""
    found = {k: canonical(e) for k, e in _expressions(op).items()}
    operands = [p for p in op.operands if p.role != "seed"]
    spelled = c_names([*(p.name for p in operands), *found, _PLACE])
    draws, placed = _draws(found), _PLACE in free_names(*found.values())
    blocks = {d: emit_opencl(found, d, wrap=True, names=spelled) for d in ("vector", "row")}
    text = environment.get_template("opencl/pointwise.cl.j2").render(
        op=op.name,
        title=title(op, found),
        inputs=[(spelled.get(p.name, p.name), p.type) for p in operands if p.is_tensor],
        scalars=[(spelled.get(p.name, p.name), i) for i, p in enumerate(operands) if not p.is_tensor],
        outputs=[(k, e.type) for k, e in found.items()],
        vector=blocks["vector"],
        scalar=blocks["row"],
        random=True,
        seeded=bool(draws),
        place=spelled.get(_PLACE, _PLACE) if placed else None,
    )
    functions = {f for b in blocks.values() for f in (*b.functions, *b.index_functions)}
    outputs = tuple(
        OutputRow(k, e.type, {"mask": "bool", "index": "index"}.get(e.type, op.result), "full", op.grad != "none")
        for k, e in found.items()
    )
    element = "long" if "bits" in draws else "real" if draws else "widest"
    detail = {"draws": max(draws.values(), default=0), "element": element}
    sources = {
        "opencl": Source(text, tuple(sorted(functions))),
        "triton": triton_source(op, found, operands, environment, random=True, seeded=bool(draws)),
    }
    return Rendered(outputs, sources, detail)


def derive(op: Op) -> dict[str, Derived]:
    """A random op again for each tensor of type value: it draws the numbers of this one's call.

    Of a gradient, operands that only decide, as the input of a leaky unit does, have none, which is no error.
    """
    if op.grad == "none":
        return {}
    outputs = {k: canonical(e) for k, e in _expressions(op).items() if e.type == "value"}
    seeds = {k: name(seed_name(op, k), Operand("value", "full")) for k in outputs}
    found: dict[str, Derived] = {}
    for parameter in (p.name for p in op.operands if p.is_tensor and p.type == "value"):
        with suppress(ExprError):
            arrived = gradient(outputs, seeds, [parameter]).get(parameter)
            if arrived is not None and arrived.fn != "const":
                found[parameter] = _derived(op, parameter, arrived)
            elif op.file == "<derived>":
                found[parameter] = Derived((), None)
    return found


def _derived(op: Op, parameter: str, expr: Expr) -> Derived:
    used = free_names(expr)
    drawn = [p.name for p in op.params if p.role == "seed"] if _draws({"out": expr}) else []
    names = [*(seed_name(op, k) for k in op.outputs), *(p.name for p in op.operands)]
    operands = tuple([n for n in names if n in used] + drawn)
    notes = {"scalar": ": float", "number": ": float", "seed": ": Seed"}
    shown = ", ".join(n + next((notes.get(p.role, "") for p in op.params if p.name == n), "") for n in operands)
    spec = {
        "op": f"{op.name}_grad_{parameter}({shown})",
        "kind": "random" if drawn or _PLACE in used else "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": to_text(expr),
    }
    return Derived(operands, spec)
