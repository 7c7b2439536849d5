"""Render `Op`s and their derivatives into kernel source and record data, which the runtime registers."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict

from .expr import ExprError, substitute, to_text, variable
from .kind_modules import kind_module
from .kinds import Derived, Rendered
from .kinds.pointwise import expressions
from .kinds.spec_expressions import operand_table
from .loader import op_from_mapping
from .model import DERIVED_FILE, MISSING, Op, SpecError, SpecErrors
from .signature import c_names, parse_signature

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["Generated", "RecordData", "RuleData", "environment", "render_all", "templates_folder"]


def templates_folder() -> Path:
    """Return the template folder: next to this package in a checkout, inside the package once installed."""
    checkout_folder = Path(__file__).resolve().parent.parent / "templates"
    if checkout_folder.is_dir():
        return checkout_folder
    with resources.as_file(resources.files(f"{__package__.rpartition('.')[0]}.templates")) as package_folder:
        return package_folder


@functools.cache
def environment() -> Environment:
    """Return the Jinja environment: undefined names are errors, nothing is escaped."""
    import jinja2  # lazy: start-up

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_folder()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )


@dataclass(frozen=True, slots=True)
class RuleData:
    """One gradient rule, with the fields of `runtime.records.Rule`.

    Attributes:
        target: the op that computes the gradient; None if it is the incoming gradient itself.
        operands: names of the target's arguments.
        sum_target: the reduction that also sums the gradient, for an operand that was broadcast.
        result: index of the gradient among the target's results, if it has several.
    """

    target: str | None
    operands: tuple[str, ...]
    sum_target: str | None = None
    result: int | None = None

    @property
    def literal(self) -> tuple[str | tuple[str, ...] | int | None, ...]:
        """The rule as a tuple of literals, for the text of a record."""
        plain = (self.target, self.operands, self.sum_target)
        return plain if self.result is None else (*plain, self.result)


@dataclass(frozen=True, slots=True)
class RecordData:
    """The data of an `OpRecord`, which documents `variants`, `bare` and `called`."""

    op: Op
    rendered: Rendered
    rules: Mapping[str, RuleData] | None
    variants: Mapping[tuple[bool, ...], str] = field(default_factory=dict)
    bare: str = ""
    called: str = ""


@dataclass(slots=True)
class Generated:
    """The records of a set of ops and their derivatives, by name, in the order in which they were added.

    reserved_names: names that no derived op may get: those of ops added later or of another set.
    registered_specs: the specs of the ops that are registered in this process, by name.
    """

    records: dict[str, RecordData] = field(default_factory=dict)
    reserved_names: Container[str] = ()
    registered_specs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    _shapes: dict[tuple[object, ...], str] = field(default_factory=dict)

    def add(self, op: Op, order: int, *, is_spec_op: bool = False, rules_only: bool = False) -> str:
        """Render `op` and its gradients, and return the name of its record.

        A derived op with the same kernel as an existing op is replaced by that op: `grad * other` is `mul`. One that is
        registered already, from the same spec under the same name, is not rendered again.

        Args:
            order: how many orders of derivatives to render.
            is_spec_op: the op is an entry of a spec and keeps its name. A derived op gets the next free name.
            rules_only: add only the gradients, not the variants: the op is registered already.
        """
        existing = self._shapes.get(_kernel_signature(op))
        if not is_spec_op and op.is_derived and existing is not None:
            return existing
        if not is_spec_op and op.name not in self.records and self.registered_specs.get(op.name) == op.spec:
            return op.name
        if op.name in self.records or (not is_spec_op and op.name in self.reserved_names):
            op = replace(op, name=self._free_name(op.name))
        try:
            rendered = kind_module(op.kind).render(op, environment())
        except ExprError as error:
            raise SpecErrors([SpecError(error.message, file=op.file, line=op.line, field="out")]) from None
        self._shapes.setdefault(_kernel_signature(op), op.name)
        self.records[op.name] = RecordData(op, rendered, None)
        variants = {} if rules_only else self._variants(op, order)
        bare = "" if rules_only else self._bare(op)
        try:
            rules = self._rules(op, order) if order > 0 else None
        except (ExprError, SpecError) as error:
            if not is_spec_op:
                raise
            message = f"a derivative cannot be written out: {str(error).removeprefix(f'{DERIVED_FILE}: ')}"
            hint = "give a shorter formula in grad, or grad: none"
            raise SpecErrors([SpecError(message, file=op.file, line=op.line, field="grad", suggestion=hint)]) from None
        self.records[op.name] = RecordData(op, rendered, rules, variants, bare, op.public_name)
        return op.name

    def _rules(self, op: Op, order: int) -> dict[str, RuleData]:
        rules: dict[str, RuleData] = {}
        derived: Mapping[str, Derived] = kind_module(op.kind).derive(op)
        shared: dict[int, str] = {}  # id of an entry that several operands share -> its record
        for parameter, rule in derived.items():
            target = sum_target = None
            if rule.spec is not None and rule.result is not None:
                if id(rule.spec) not in shared:
                    shared[id(rule.spec)] = self.add(op_from_mapping(rule.spec), order - 1)
                out = rule.spec["out"]
                assert isinstance(out, Mapping)
                result = list(out).index(rule.result)
                rules[parameter] = RuleData(shared[id(rule.spec)], rule.operands, None, result)
                continue
            if rule.spec is not None:
                target = self.add(op_from_mapping(rule.spec), order - 1)
                if order > 1 and op.kind == "pointwise" and sum(p.is_tensor for p in op.operands) > 1:
                    sum_target = self._summed(target, rule.spec)
            rules[parameter] = RuleData(target, rule.operands, sum_target)
        return rules

    def _summed(self, target: str, spec: Mapping[str, object]) -> str | None:
        """Add the reduction that computes a pointwise gradient and sums it over broadcast dimensions, in one pass."""
        name = f"{target}_sum"
        if name in self.records:
            return name
        if spec.get("unused"):
            return None
        signature, out = str(spec["op"]), spec["out"]
        names = [p.name for p in parse_signature(signature)[1]]
        if not isinstance(out, str) or c_names(names):
            return None  # reductions cannot rename operands; a separate sum works too
        if "grad" not in names or "grad" not in out:
            return None
        parameters = signature.partition("(")[2].rpartition(")")[0]
        entry = {
            "op": f"{name}({parameters}, dim: tuple[int, ...], keepdim: bool)",
            "kind": "reduction",
            "doc": f"{target}, summed over dimensions along which an operand was broadcast.",
            "dtypes": "float",
            "reduce": {"identity": 0, "map": out, "combine": "a + b", "finish": "acc"},
        }
        return self.add(op_from_mapping(entry), 0)

    def _variants(self, op: Op, order: int) -> dict[tuple[bool, ...], str]:
        """Add a variant of the op for each combination of missing optional operands. Kernels never test for them."""
        make_variant = getattr(kind_module(op.kind), "variant", None)
        optional = [p.name for p in op.params if p.role == "optional"]
        variants: dict[tuple[bool, ...], str] = {}
        if make_variant is None or not optional:
            return variants
        for mask in range(2 ** len(optional) - 1):
            present = tuple(bool(mask >> i & 1) for i in range(len(optional)))
            absent = {n for n, is_present in zip(optional, present, strict=True) if not is_present}
            variants[present] = self._instead(op, make_variant(op, absent), order)
        return variants

    def _bare(self, op: Op) -> str:
        """Add the op without results that only its gradient reads, for calls without gradient; "" if there are none."""
        make_bare = getattr(kind_module(op.kind), "bare", None)
        spec = make_bare and make_bare(op)
        return self._instead(op, spec, 0) if spec else ""

    def _instead(self, op: Op, spec: Mapping[str, object], order: int) -> str:
        """Add the op of `spec`, which the runtime runs instead of `op` and reports under the same name."""
        record_name = self.add(replace(op_from_mapping(spec), file=op.file, line=op.line), order)
        if record_name in self.records:  # else it is registered already
            self.records[record_name] = replace(self.records[record_name], called=op.public_name or op.name)
        return record_name

    def _free_name(self, name: str) -> str:
        suffix = 2
        while f"{name}_v{suffix}" in self.records or f"{name}_v{suffix}" in self.reserved_names:
            suffix += 1
        return f"{name}_v{suffix}"


def _kernel_signature(op: Op) -> tuple[object, ...]:
    """Return a key that is equal for ops with the same kernel, whatever the names of the op and its operands."""
    if op.kind != "pointwise":
        return (op.kind, op.name)
    table = operand_table(op)
    positional_names = {n: variable(f"operand_{i}", o) for i, (n, o) in enumerate(table.items())}
    try:
        texts = tuple(to_text(substitute(e, positional_names)) for e in expressions(op).values())
    except ExprError:  # too long to print: treat it as unique
        return (op.kind, op.name)
    roles = tuple((p.role, p.type) for p in op.operands)
    return (op.kind, texts, roles, op.result, tuple(op.outputs) == ("out",))


def render_all(
    ops: Iterable[Op],
    order: int = 2,
    reserved_names: Iterable[str] = (),
    registered_specs: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
) -> Generated:
    """Render `ops` and their derivatives.

    Args:
        order: how many orders of derivatives to render.
        reserved_names: names that derived ops must not get, besides those of `ops`.
        registered_specs: the specs of the ops that are registered in this process, by name.
    """
    spec_ops = list(ops)
    names = frozenset(reserved_names).union(op.name for op in spec_ops)
    generated = Generated(reserved_names=names, registered_specs=registered_specs)
    for op in spec_ops:
        generated.add(op, 0 if op.kind == "composite" else order, is_spec_op=True)
    return generated


class RecordLiterals(TypedDict):
    """The keyword arguments of `runtime.records.make_record` that are plain literals."""

    name: str
    kind: str
    operands: list[tuple[str, str, str, str]]
    outputs: list[tuple[str | bool, ...]]
    statics: list[str]
    dtypes: str
    autocast: tuple[str, ...]
    detail: dict[str, object]
    variants: dict[tuple[bool, ...], str]
    bare: str
    called: str
    rules: dict[str, tuple[str | tuple[str, ...] | int | None, ...]] | None
    spec: dict[str, object]


def record_literals(data: RecordData) -> RecordLiterals:
    """Return the keyword arguments of the `OpRecord` that are plain literals: all but kernel source."""
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
        "rules": None if data.rules is None else {k: r.literal for k, r in data.rules.items()},
        "spec": dict(op.spec),
    }


def default_text(value: object) -> str:
    """Return ` = DEFAULT` for a signature; empty if there is no default."""
    return "" if value is MISSING else f" = {value!r}"
