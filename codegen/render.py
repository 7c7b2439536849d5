"""Rendering: from `Op`s to what the runtime registers, and to the text of generated modules."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from .kinds import Derived, Rendered, kind_module
from .loader import op_from_mapping
from .model import MISSING, Op

__all__ = ["Generated", "RecordData", "RuleData", "environment", "render_all", "templates_folder"]


def templates_folder() -> Path:
    """Where the templates are: beside this package in a checkout, in the installed package otherwise."""
    beside = Path(__file__).resolve().parent.parent / "templates"
    if beside.is_dir():
        return beside
    with resources.as_file(resources.files(f"{__package__.rpartition('.')[0]}.templates")) as found:
        return found


@functools.cache
def environment() -> Any:
    """The Jinja environment: undefined names are errors, nothing is escaped, templates come from one folder."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_folder()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )


@dataclass(frozen=True, slots=True)
class RuleData:
    """One gradient rule: `runtime.records.Rule`'s fields. `target` None: the gradient is the incoming one."""

    target: str | None
    operands: tuple[str, ...]
    expression: str | None = None


@dataclass(frozen=True, slots=True)
class RecordData:
    """Everything an `OpRecord` is made from, in literals."""

    op: Op
    rendered: Rendered
    rules: Mapping[str, RuleData] | None
    variants: Mapping[tuple[bool, ...], str] = field(default_factory=dict)


@dataclass(slots=True)
class Generated:
    """The records of a set of ops with their derivatives, by name, in order of making."""

    records: dict[str, RecordData] = field(default_factory=dict)
    _shapes: dict[Any, str] = field(default_factory=dict)

    def add(self, op: Op, order: int) -> str:
        """Render `op` and, down to `order` derivatives, its gradients; the name of its record.

        A derived op whose kernel would be that of an op already there becomes that op: `grad * other` is `mul`.
        """
        derived_already = self._shapes.get(_shape(op))
        if op.file == "<derived>" and derived_already is not None:
            return derived_already
        if op.name in self.records:
            op = replace(op, name=self._free_name(op.name))
        rendered = kind_module(op.kind).render(op, environment())
        self._shapes.setdefault(_shape(op), op.name)
        self.records[op.name] = RecordData(op, rendered, None)
        variants = self._variants(op, order)
        rules = self._rules(op, order) if order > 0 else None
        self.records[op.name] = RecordData(op, rendered, rules, variants)
        return op.name

    def _rules(self, op: Op, order: int) -> dict[str, RuleData]:
        found: dict[str, RuleData] = {}
        derived: Mapping[str, Derived] = kind_module(op.kind).derive(op)
        for parameter, rule in derived.items():
            target = None
            if rule.spec is not None:
                target = self.add(op_from_mapping(rule.spec), order - 1)
            found[parameter] = RuleData(target, rule.operands)
        return found

    def _variants(self, op: Op, order: int) -> dict[tuple[bool, ...], str]:
        """For each absence of optional operands, the op without them: presence is resolved before rendering."""
        make = getattr(kind_module(op.kind), "variant", None)
        optional = [p.name for p in op.params if p.role == "optional"]
        found: dict[tuple[bool, ...], str] = {}
        if make is None or not optional:
            return found
        for mask in range(2 ** len(optional) - 1):
            present = tuple(bool(mask >> i & 1) for i in range(len(optional)))
            absent = {n for n, there in zip(optional, present, strict=True) if not there}
            found[present] = self.add(make(op, absent), order)
        return found

    def _free_name(self, name: str) -> str:
        number = 2
        while f"{name}_v{number}" in self.records:
            number += 1
        return f"{name}_v{number}"


def _shape(op: Op) -> Any:
    """What makes two ops the same kernel: everything but the names of the op and its operands, and the prose."""
    if op.kind != "pointwise":
        return (op.kind, op.name)
    from .expr import substitute, to_text
    from .expr import name as variable
    from .kinds.pointwise import expressions, operand_table

    table = operand_table(op)
    renamed = {n: variable(f"operand_{i}", o) for i, (n, o) in enumerate(table.items())}
    texts = tuple(to_text(substitute(e, renamed)) for e in expressions(op).values())
    roles = tuple((p.role, p.type) for p in op.operands)
    return (op.kind, texts, roles, op.result, tuple(op.outputs) == ("out",))


def render_all(ops: Iterable[Op], order: int = 2) -> Generated:
    """Records of `ops` and of their derivatives down to `order`."""
    made = Generated()
    listed = list(ops)
    for op in listed:
        made.add(op, 0 if op.kind == "composite" else order)
    return made


def record_literals(data: RecordData) -> dict[str, Any]:
    """The keyword arguments of the `OpRecord`, apart from texts and functions: plain literals."""
    op, rendered = data.op, data.rendered
    return {
        "name": op.name,
        "kind": op.kind,
        "operands": [(p.name, p.role, p.type, p.scope) for p in op.operands],
        "outputs": [(o.name, o.type, o.result, o.scope, o.differentiable) for o in rendered.outputs],
        "statics": [p.name for p in op.statics],
        "dtypes": op.dtypes,
        "detail": dict(rendered.detail),
        "variants": dict(data.variants),
        "rules": None if data.rules is None else {k: (r.target, r.operands) for k, r in data.rules.items()},
        "spec": dict(op.spec),
    }


def default_text(value: Any) -> str:
    """A default as Python writes it; empty for none."""
    return "" if value is MISSING else f" = {value!r}"
