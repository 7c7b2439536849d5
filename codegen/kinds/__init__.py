"""What each kind of op means to the generator, one module a kind.

A kind's module has three functions; everything else about a kind is its template and its planner
(`runtime/kinds/`).

    check(op)       parse the op's expressions; raise SpecError naming the field that is wrong
    render(op, environment)  -> Rendered: what the OpRecord needs beyond the signature
    derive(op)      -> {parameter name: Derived}: the gradient of each differentiable operand, as a spec entry again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from ..model import Op

__all__ = ["Derived", "OutputRow", "Rendered", "Source", "kind_module", "named_result", "seed_name"]


@dataclass(frozen=True, slots=True)
class Source:
    """Kernel text for one target, and the math functions it calls."""

    text: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One result: see `runtime.records.Output`, whose fields these are."""

    name: str = "out"
    type: str = "value"
    result: str = "promote"
    scope: str = "full"
    differentiable: bool = True
    saved: bool = False


@dataclass(frozen=True, slots=True)
class Rendered:
    """What rendering an op gives: its results, kernel text a target, and its kind's own data (literals only)."""

    outputs: tuple[OutputRow, ...]
    sources: Mapping[str, Source] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Derived:
    """The gradient of one operand. `spec` is an entry as a spec file would have it (None: the gradient is `grad`
    itself); `operands` are the names it is called with: `grad` (or `grad_NAME` of several results), the op's operands
    and its results. result: which of the entry's results it is, where several operands share an entry."""

    operands: tuple[str, ...]
    spec: Mapping[str, Any] | None
    result: str | None = None


def kind_module(kind: str) -> ModuleType:
    """The module of `kind`."""
    return import_module(f".{kind}", __name__)


def named_result(operands: Iterable[str], text: str) -> str | dict[str, str]:
    """The `out` field of a derived entry: its result is called `out`, or something else if an operand is."""
    taken = set(operands)
    if "out" not in taken:
        return text
    name, order = "result", 1
    while name in taken:
        order += 1
        name = f"result{order}"
    return {name: text}


def seed_name(op: Op, output: str | None = None) -> str:
    """The name of an incoming gradient: `grad`, or the first of `grad2`, … that is no operand (higher orders)."""
    taken = {p.name for p in op.params} | set(op.outputs)
    base = "grad" if output is None or len(op.outputs) < 2 else f"grad_{output}"
    name, order = base, 1
    while name in taken:
        order += 1
        name = f"{base}{order}"
    return name
