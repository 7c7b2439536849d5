"""The generator's side of each kind of op, one module per kind.

Each module has the three functions below, and `kind_modules` finds the module of a kind. The rest of a kind is its
kernel template (`templates/`) and its planner (`runtime/kinds/`), which chooses schedules. Read `pointwise.py` first:
the other modules reuse its helpers.

    check(op)       parse the op's expressions; raise SpecError naming the field that is wrong
    render(op, environment)  -> Rendered: what the OpRecord needs beyond the signature
    derive(op)      -> {parameter name: Derived}: the gradient of each differentiable operand, as a new spec entry
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..model import Op

__all__ = ["Derived", "OutputRow", "Rendered", "Source", "named_result", "result_rule", "seed_name"]


@dataclass(frozen=True, slots=True)
class Source:
    """Kernel source for one target, and the math functions it calls."""

    text: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One result, with the fields of `runtime.records.Output`, which documents them."""

    name: str = "out"
    type: str = "value"
    result: str = "promote"
    scope: str = "full"
    differentiable: bool = True
    saved: bool = False


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered op: its results, its kernel source by target, and data for its planner (literals only)."""

    outputs: tuple[OutputRow, ...]
    sources: Mapping[str, Source] = field(default_factory=dict)
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Derived:
    """The gradient of one operand.

    Attributes:
        operands: the names of the gradient op's arguments: `grad` (`grad_NAME` if the op has several results), operands
            and results of the op.
        spec: the gradient op as an entry of a spec file; None if the gradient is `grad` itself.
        result: the name of the gradient op's result, where several operands share one gradient op.
    """

    operands: tuple[str, ...]
    spec: Mapping[str, object] | None
    result: str | None = None


def result_rule(op: Op, type: str) -> str:
    """Return the rule for the dtype of a result: indices have one dtype, masks one or two, values follow the spec."""
    return {"mask": "truth" if op.result == "truth" else "bool", "index": "index"}.get(type, op.result)


def named_result(operands: Iterable[str], text: str) -> str | dict[str, str]:
    """Return the `out` field of a derived entry. The result is called `out` unless an operand has that name."""
    used = set(operands)
    if "out" not in used:
        return text
    name, order = "result", 1
    while name in used:
        order += 1
        name = f"result{order}"
    return {name: text}


def seed_name(op: Op, output: str | None = None) -> str:
    """Return the name of the incoming gradient: `grad`, or the first of `grad2`, … that is free (higher orders)."""
    used = {p.name for p in op.params} | set(op.outputs)
    base = "grad" if output is None or len(op.outputs) < 2 else f"grad_{output}"
    name, order = base, 1
    while name in used:
        order += 1
        name = f"{base}{order}"
    return name
