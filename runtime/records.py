"""What generated modules hand to the runtime: frozen records of ops, and the registry that holds them.

A record is everything a call needs: operand roles, result types, kernel texts a target, and how the gradient is
made. It also carries the spec it came from, so that a derivative that was not generated ahead can be derived in the
running process by the same road (`codegen.derive`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .errors import ArgumentError, NotSupported

__all__ = ["OpRecord", "Operand", "Output", "Registry", "Rule", "Text", "make_record", "registry"]

_EMPTY: Mapping[Any, Any] = MappingProxyType({})
# Kinds whose gradients are functions of the runtime: module of `autograd` and function of a record.
_RUNTIME_RULES = {"view": ("view_rules", "view_rules"), "index": ("index_rules", "index_rules"),
                  "window": ("window_rules", "window_rules"), "scan": ("scan_rules", "scan_rules")}  # fmt: skip

# Ops of the package whose gradients are, beside the op that was derived, a function of the runtime: the module.
_RULES_OF_OPS = {"prod": "product_rules"}


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor or number that a kernel reads.

    role: `tensor`, `optional`, `list`, `scalar` (a number, weak in promotion), `number` (cast to the compute type,
    no part in promotion).
    type: `value` (converted to the compute type and part of promotion), `mask` (read as a truth value), `index`
    (int64), `raw` (kept as it is).
    scope: `full`, `column` (one a position in the row) or `row` (one a row); only rowwise ops use the last two.
    """

    name: str
    role: str = "tensor"
    type: str = "value"
    scope: str = "full"


@dataclass(frozen=True, slots=True)
class Output:
    """One result. `result` is the dtype rule: `promote`, `float` (integers become the default float), `bool`,
    `index` (int64), `accumulate` (integers become int64), `like:NAME` (that operand's dtype) or a dtype's name.
    saved: only gradients read it; callers do not see it."""

    name: str = "out"
    type: str = "value"
    result: str = "promote"
    scope: str = "full"
    differentiable: bool = True
    saved: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operand's gradient is computed.

    op: the record that computes it from `operands` (names among `grad`, the op's operands and its outputs).
    sum_op: the reduction with the same map, for an operand that was broadcast.
    result: which of the op's results it is, where one op computes the gradients of several operands.
    function: for gradients that are expressions over ops, called as `function(context, grads)`.
    """

    op: str | None = None
    operands: tuple[str, ...] = ()
    sum_op: str | None = None
    function: Callable[..., Any] | None = None
    result: int | None = None


class Text:
    """Kernel source for one target: all schedules, and the math functions it calls.

    `source` is text, or a path to it, read when the first plan needs it.
    """

    __slots__ = ("_source", "functions")

    def __init__(self, source: str | Path, functions: tuple[str, ...] = ()):
        self._source = source
        self.functions = functions

    @property
    def source(self) -> str:
        if not isinstance(self._source, str):
            self._source = self._source.read_text(encoding="utf-8")
        return self._source


@dataclass(frozen=True, slots=True, eq=False)
class OpRecord:
    """One op, as the runtime sees it. `detail` holds what only its kind reads; `gradients` is None where they have not
    been derived yet; `autocast` is what the spec says: a word for the device `cpu` and one for others, or nothing.

    variants: by which optional operands are there, the op to run instead. bare: the op to run instead where nothing is
    derived from the call: it has no saved results. called: as what errors speak of such an op.
    """

    name: str
    kind: str
    operands: tuple[Operand, ...]
    outputs: tuple[Output, ...] = (Output(),)
    statics: tuple[str, ...] = ()
    dtypes: str = "numeric"
    texts: Mapping[str, Text] = field(default_factory=lambda: _EMPTY)
    gradients: Mapping[str, Rule] | None = None
    detail: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    variants: Mapping[tuple[bool, ...], str] = field(default_factory=lambda: _EMPTY)
    spec: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    autocast: tuple[str, ...] = ()
    bare: str = ""
    called: str = ""

    def __repr__(self) -> str:
        return f"OpRecord({self.name!r}, {self.kind})"


def make_record(
    *,
    name: str,
    kind: str,
    operands: Sequence[tuple[str, str, str, str]],
    outputs: Sequence[tuple[Any, ...]],
    statics: Sequence[str] = (),
    dtypes: str = "numeric",
    detail: Mapping[str, Any] = _EMPTY,
    variants: Mapping[tuple[bool, ...], str] = _EMPTY,
    rules: Mapping[str, tuple[Any, ...]] | None = None,
    spec: Mapping[str, Any] = _EMPTY,
    texts: Mapping[str, Text] = _EMPTY,
    autocast: tuple[str, ...] = (),
    bare: str = "",
    called: str = "",
) -> OpRecord:
    """A record from the literals that a generated module holds. outputs: fields of an `Output` each. rules: by operand,
    the fields of a `Rule` apart from its function."""
    gradients = None if rules is None else {k: _rule(*fields) for k, fields in rules.items()}
    return OpRecord(
        name=name, kind=kind, operands=tuple(Operand(*o) for o in operands), outputs=tuple(Output(*o) for o in outputs),
        statics=tuple(statics), dtypes=dtypes, texts=texts, gradients=gradients, detail=detail, variants=variants,
        spec=spec, autocast=autocast, bare=bare, called=called,
    )  # fmt: skip


def _rule(op: str | None, names: Sequence[str], summed: str | None, result: int | None = None) -> Rule:
    return Rule(op, tuple(names), summed, result=result)


class Registry:
    """Every op known to the process, by name. Backward ops are found here by the engine."""

    def __init__(self) -> None:
        self._records: dict[str, OpRecord] = {}
        self._gradients: dict[OpRecord, Mapping[str, Rule]] = {}
        self._owners: dict[str, str] = {}

    def add(self, record: OpRecord) -> OpRecord:
        """Register `record`; a record of the same name is replaced (a reloaded user spec)."""
        self._records[record.name] = record
        return record

    def claim(self, names: Sequence[str], owner: str) -> None:
        """Say that `owner`, a package made from somebody's spec, is about to register ops of these names.

        Raises `ArgumentError` if one belongs to another owner: a replaced record would change its derivatives.
        """
        for name in names:
            if name in self._records and self._owners.get(name) != owner:
                whose = self._owners.get(name, "weftgrad itself")
                raise ArgumentError(f"{owner}: an op named {name!r} exists already, in {whose}; choose another name")
        self._owners.update(dict.fromkeys(names, owner))

    def owner(self, name: str) -> str:
        """Whose spec an op comes from; empty for the package's own, and for derivatives."""
        return self._owners.get(name, "")

    def __getitem__(self, name: str) -> OpRecord:
        try:
            return self._records[name]
        except KeyError:
            raise NotSupported(f"no op named {name!r} is registered") from None

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def __iter__(self) -> Any:
        return iter(list(self._records.values()))

    def gradients(self, record: OpRecord) -> Mapping[str, Rule]:
        """The gradient rules of `record`, derived now from its spec if they were not generated ahead."""
        if record.kind in _RUNTIME_RULES:
            module, function = _RUNTIME_RULES[record.kind]
            rules: Mapping[str, Rule] = getattr(import_module(f".autograd.{module}", __package__), function)(record)
            return rules
        if "rules" in record.detail:
            return import_module(f".autograd.{record.detail['rules']}", __package__).rules(record)  # type: ignore[no-any-return]
        if record.gradients is not None:
            if record.name in _RULES_OF_OPS and not self.owner(record.name):
                return import_module(f".autograd.{_RULES_OF_OPS[record.name]}", __package__).rules(record)  # type: ignore[no-any-return]
            return record.gradients
        found = self._gradients.get(record)
        if found is None:
            from .derive import derive_rules

            found = self._gradients[record] = derive_rules(record)
        return found


registry = Registry()
