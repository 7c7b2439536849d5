"""What generated modules hand to the runtime: frozen records of ops, and the registry that holds them.

A record is everything a call needs: operand roles, result types, kernel texts a target, and how the gradient is
made. It also carries the spec it came from, so that a derivative that was not generated ahead can be derived in the
running process by the same road (`codegen.derive`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .errors import NotSupported

__all__ = ["OpRecord", "Operand", "Output", "Registry", "Rule", "Text", "registry"]

_EMPTY: Mapping[str, Any] = MappingProxyType({})


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
    `index` (int64), `accumulate` (integers become int64), `like:NAME` (that operand's dtype) or a dtype's name."""

    name: str = "out"
    type: str = "value"
    result: str = "promote"
    scope: str = "full"
    differentiable: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operand's gradient is computed.

    op: the record that computes it from `operands` (names among `grad`, the op's operands and its outputs).
    sum_op: the reduction with the same map, for an operand that was broadcast.
    function: for gradients that are expressions over ops, called as `function(context, grads)`.
    """

    op: str | None = None
    operands: tuple[str, ...] = ()
    sum_op: str | None = None
    function: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """Kernel source for one target: all schedules, and the math functions it calls."""

    source: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class OpRecord:
    """One op, as the runtime sees it. `detail` holds what only its kind reads."""

    name: str
    kind: str
    operands: tuple[Operand, ...]
    outputs: tuple[Output, ...] = (Output(),)
    statics: tuple[str, ...] = ()
    dtypes: str = "numeric"
    texts: Mapping[str, Text] = field(default_factory=lambda: _EMPTY)
    gradients: Mapping[str, Rule] = field(default_factory=lambda: _EMPTY)
    detail: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    variants: Mapping[tuple[bool, ...], str] = field(default_factory=lambda: _EMPTY)
    spec: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)

    def __repr__(self) -> str:
        return f"OpRecord({self.name!r}, {self.kind})"


class Registry:
    """Every op known to the process, by name. Backward ops are found here by the engine."""

    def __init__(self) -> None:
        self._records: dict[str, OpRecord] = {}
        self._derive: Callable[[OpRecord], Mapping[str, Rule]] | None = None
        self._gradients: dict[OpRecord, Mapping[str, Rule]] = {}

    def add(self, record: OpRecord) -> OpRecord:
        """Register `record`; a record of the same name is replaced (a reloaded user spec)."""
        self._records[record.name] = record
        return record

    def __getitem__(self, name: str) -> OpRecord:
        try:
            return self._records[name]
        except KeyError:
            raise NotSupported(f"no op named {name!r} is registered") from None

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def __iter__(self) -> Any:
        return iter(list(self._records.values()))

    def gradients(self, record: OpRecord) -> Mapping[str, Rule]:
        """The gradient rules of `record`, derived now from its spec if they were not generated ahead."""
        if record.gradients or not record.spec.get("derive", False):
            return record.gradients
        found = self._gradients.get(record)
        if found is None:
            from .derive import derive_rules

            found = self._gradients[record] = derive_rules(record, self)
        return found


registry = Registry()
