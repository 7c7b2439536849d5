"""Rendering: from `Op`s to what the runtime registers, and to the text of generated modules."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from .expr import ExprError
from .kinds import Derived, Rendered, kind_module
from .loader import op_from_mapping
from .model import MISSING, Op, SpecError, SpecErrors
from .signature import c_names, parse_signature

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
    """One gradient rule: `runtime.records.Rule`'s fields. `target` None: the gradient is the incoming one;
    `sum_target`: the reduction with the same map, for an operand that was broadcast; `result`: which of the target's
    results it is, where it has several."""

    target: str | None
    operands: tuple[str, ...]
    sum_target: str | None = None
    result: int | None = None

    @property
    def literal(self) -> tuple[Any, ...]:
        """What a record is made from."""
        plain = (self.target, self.operands, self.sum_target)
        return plain if self.result is None else (*plain, self.result)


@dataclass(frozen=True, slots=True)
class RecordData:
    """Everything an `OpRecord` is made from, in literals. variants, bare: as in `OpRecord`, by name; `called` too."""

    op: Op
    rendered: Rendered
    rules: Mapping[str, RuleData] | None
    variants: Mapping[tuple[bool, ...], str] = field(default_factory=dict)
    bare: str = ""
    called: str = ""


@dataclass(slots=True)
class Generated:
    """The records of a set of ops with their derivatives, by name, in order of making.

    taken: names that no derived op may have, because others have them: of ops yet to come, or of another set.
    """

    records: dict[str, RecordData] = field(default_factory=dict)
    taken: Container[str] = ()
    _shapes: dict[Any, str] = field(default_factory=dict)

    def add(self, op: Op, order: int, *, named: bool = False, known: bool = False) -> str:
        """Render `op` and, down to `order` derivatives, its gradients; the name of its record.

        A derived op whose kernel would be that of an op already there becomes that op: `grad * other` is `mul`.
        Only an op that is `named` by its spec has the name it asks for; a derived one takes the next that is free.
        known: only the gradients are wanted, what runs in the op's stead is there.
        """
        derived_already = self._shapes.get(_shape(op))
        if not named and op.file == "<derived>" and derived_already is not None:
            return derived_already
        if op.name in self.records or (not named and op.name in self.taken):
            op = replace(op, name=self._free_name(op.name))
        try:
            rendered = kind_module(op.kind).render(op, environment())
        except ExprError as error:
            raise SpecErrors([SpecError(error.message, file=op.file, line=op.line, field="out")]) from None
        self._shapes.setdefault(_shape(op), op.name)
        self.records[op.name] = RecordData(op, rendered, None)
        variants = {} if known else self._variants(op, order)
        bare = "" if known else self._bare(op)
        try:
            rules = self._rules(op, order) if order > 0 else None
        except (ExprError, SpecError) as error:
            if not named:
                raise
            told = f"a derivative cannot be written out: {str(error).removeprefix('<derived>: ')}"
            hint = "give a shorter formula in grad, or grad: none"
            raise SpecErrors([SpecError(told, file=op.file, line=op.line, field="grad", suggestion=hint)]) from None
        self.records[op.name] = RecordData(op, rendered, rules, variants, bare)
        return op.name

    def _rules(self, op: Op, order: int) -> dict[str, RuleData]:
        found: dict[str, RuleData] = {}
        derived: Mapping[str, Derived] = kind_module(op.kind).derive(op)
        shared: dict[int, str] = {}  # the record of an entry that several operands share
        for parameter, rule in derived.items():
            target = summed = None
            if rule.spec is not None and rule.result is not None:
                if id(rule.spec) not in shared:
                    shared[id(rule.spec)] = self.add(op_from_mapping(rule.spec), order - 1)
                result = list(rule.spec["out"]).index(rule.result)
                found[parameter] = RuleData(shared[id(rule.spec)], rule.operands, None, result)
                continue
            if rule.spec is not None:
                target = self.add(op_from_mapping(rule.spec), order - 1)
                if order > 1 and op.kind == "pointwise" and sum(p.is_tensor for p in op.operands) > 1:
                    summed = self._summed(target, rule.spec)
            found[parameter] = RuleData(target, rule.operands, summed)
        return found

    def _summed(self, target: str, spec: Mapping[str, Any]) -> str | None:
        """The reduction that computes a pointwise gradient and sums it over broadcast dimensions, in one pass."""
        name = f"{target}_sum"
        if name in self.records:
            return name
        if spec.get("unused"):
            return None
        if not isinstance(spec["out"], str) or c_names(p.name for p in parse_signature(str(spec["op"]))[1]):
            return None  # a reduction's operands keep their names in kernels; summing afterwards is as right
        signature = str(spec["op"]).partition("(")[2].rpartition(")")[0]
        if "grad" not in {p.name for p in parse_signature(str(spec["op"]))[1]} or "grad" not in str(spec["out"]):
            return None
        entry = {
            "op": f"{name}({signature}, dim: tuple[int, ...], keepdim: bool)",
            "kind": "reduction",
            "doc": f"{target}, summed over dimensions along which an operand was broadcast.",
            "dtypes": "float",
            "reduce": {"identity": 0, "map": spec["out"], "combine": "a + b", "finish": "acc"},
        }
        return self.add(op_from_mapping(entry), 0)

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
            found[present] = self._instead(op, make(op, absent), order)
        return found

    def _bare(self, op: Op) -> str:
        """The op without results that only its gradients read, for calls that nothing is derived from; "" if none."""
        make = getattr(kind_module(op.kind), "bare", None)
        made = make and make(op)
        return self._instead(op, made, 0) if made else ""

    def _instead(self, op: Op, other: Op, order: int) -> str:
        """Add what the runtime takes in `op`'s stead, and speaks of by its name."""
        added = self.add(other, order)
        self.records[added] = replace(self.records[added], called=op.name)
        return added

    def _free_name(self, name: str) -> str:
        number = 2
        while f"{name}_v{number}" in self.records or f"{name}_v{number}" in self.taken:
            number += 1
        return f"{name}_v{number}"


def _shape(op: Op) -> Any:
    """What makes two ops the same kernel: everything but the names of the op and its operands, and the prose."""
    if op.kind != "pointwise":
        return (op.kind, op.name)
    from .expr import name as variable
    from .expr import substitute, to_text
    from .kinds.pointwise import expressions, operand_table

    table = operand_table(op)
    renamed = {n: variable(f"operand_{i}", o) for i, (n, o) in enumerate(table.items())}
    try:
        texts = tuple(to_text(substitute(e, renamed)) for e in expressions(op).values())
    except ExprError:  # too long to write out, so too long to be anything's twin
        return (op.kind, op.name)
    roles = tuple((p.role, p.type) for p in op.operands)
    return (op.kind, texts, roles, op.result, tuple(op.outputs) == ("out",))


def render_all(ops: Iterable[Op], order: int = 2, taken: Iterable[str] = ()) -> Generated:
    """Records of `ops` and of their derivatives down to `order`, whose names avoid those of `ops` and `taken`."""
    listed = list(ops)
    made = Generated(taken=frozenset(taken).union(op.name for op in listed))
    for op in listed:
        made.add(op, 0 if op.kind == "composite" else order, named=True)
    return made


def record_literals(data: RecordData) -> dict[str, Any]:
    """The keyword arguments of the `OpRecord`, apart from texts and functions: plain literals."""
    op, rendered = data.op, data.rendered
    return {
        "name": op.name,
        "kind": op.kind,
        "operands": [(p.name, p.role, p.type, p.scope) for p in op.operands],
        "outputs": [
            (o.name, o.type, o.result, o.scope, o.differentiable, *([True] if o.saved else []))
            for o in rendered.outputs
        ],
        "statics": [p.name for p in op.statics],
        "dtypes": op.dtypes,
        "autocast": op.autocast,
        "detail": dict(rendered.detail),
        "variants": dict(data.variants),
        "bare": data.bare,
        "called": data.called,
        "rules": None
        if data.rules is None
        else {k: r.literal for k, r in data.rules.items()},
        "spec": dict(op.spec),
    }


def default_text(value: Any) -> str:
    """A default as Python writes it; empty for none."""
    return "" if value is MISSING else f" = {value!r}"
