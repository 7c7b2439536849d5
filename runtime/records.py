"""Records of ops, which generated modules create, and the registry of all ops.

A record has everything that a call needs: operand roles, result dtypes, kernel texts for each target, and gradient
rules. It also contains the spec it came from, so that derivatives that were not generated ahead can be derived in the
running process in the same way (`derive`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from .errors import ArgumentError, NotSupported

if TYPE_CHECKING:
    from .call_types import GradientFunction

    # Literals of the generated modules; the last field is left out where it is False or None.
    _OutputFields = tuple[str, str, str, str, bool] | tuple[str, str, str, str, bool, bool]
    _RuleFields = (
        tuple[str | None, Sequence[str], str | None] | tuple[str | None, Sequence[str], str | None, int | None]
    )

__all__ = ["Detail", "OpRecord", "Operand", "Output", "Registry", "Rule", "Text", "make_record", "registry"]


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor or number that a kernel reads.

    Attributes:
        role: `tensor`, `optional` (a tensor or None), `absent` (None, in the variant of an op without the optional
            operand), `list` (several tensors), `scalar` (a number, weak in promotion) or `number` (cast to the compute
            type, no part in promotion).
        type: `value` (converted to the compute type, part of promotion), `mask` (read as a truth value), `index`
            (int64) or `raw` (bits that are only copied).
        scope: `full`, `column` (one element per position in a row) or `row` (one element per row). Only rowwise ops use
            the last two.
    """

    name: str
    role: str = "tensor"
    type: str = "value"
    scope: str = "full"


@dataclass(frozen=True, slots=True)
class Output:
    """One result.

    Attributes:
        result: The dtype rule: `promote`, `float` (integers become the default float), `bool`, `index` (int64),
            `accumulate` (integers become int64), `like:NAME` (that operand's dtype) or the name of a dtype.
        saved: True if only gradients read the result, and callers do not see it.
    """

    name: str = "out"
    type: str = "value"
    result: str = "promote"
    scope: str = "full"
    differentiable: bool = True
    saved: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """How the gradient of one operand is computed.

    Attributes:
        op: Name of the record that computes it.
        operands: The operands of `op`: `grad`, or names of the op's operands and outputs.
        sum_op: Name of a reduction that computes the gradient and sums it, for an operand that was broadcast.
        result: Which result of `op` it is, if one op computes the gradients of several operands.
        function: Computes the gradient with ops instead; called as `function(node, values, position)`.
    """

    op: str | None = None
    operands: tuple[str, ...] = ()
    sum_op: str | None = None
    function: GradientFunction | None = None
    result: int | None = None


class Text:
    """Kernel source for one target, with all schedules, and the math functions that it calls.

    `source` is the text, or the path of a file that is read when the first plan needs it.
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


class Detail(TypedDict, total=False):
    """Properties of an op that only its kind reads; each kind has some of them.

    Attributes:
        adds: scan: the op only adds, so its gradient is the same scan in the opposite direction.
        columns: reduction: accumulators that a CPU kernel keeps for each vector of columns.
        does: index: what happens at an element, such as `add`, `write` or `count`.
        draws: random: numbers of the generator that an element needs.
        element: random: the type in which numbers are computed: `long`, `real` or `widest`.
        empty: reduction: `error` if there is no result for no elements, else `identity`.
        equation: contraction: the terms, such as `bij,bjk->bik`.
        factors: contraction: names of the operands that are multiplied, if the op has other operands, too.
        fields: reduction, scan: the types of the state that is combined.
        flag: multi-tensor ops: the position of the operand with one element per tensor.
        gradient: window: the op that computes the gradient, `gather`, or empty.
        index: index: the pattern of addresses, such as `gather` or `bags`.
        indexed: reduction, scan, window: the op also returns the position of the element that it selects.
        keep: rowwise: kernels cache the row's elements.
        layout: pointwise: `contiguous` if the result has no strides of its own.
        over: window: what a work-item iterates over; multi-tensor ops: positions of the operands that are overwritten.
        plan: custom: the module of `kinds` with the planner.
        products: gates of recurrent layers: positions of the operands that are products.
        rows: rowwise: the static argument that says what a row is, `dim` or `normalized_shape`.
        rules: the module of `autograd` with the gradient rules.
        seeds: reduction: names of the incoming gradients, if they are not those of `seed_name`.
        sized: window: the op has an argument `size`.
        sort: sort: `order`, `top`, `search` or `bins`.
        summed: window: windows are summed.
        view: view: the function of `kinds.view.GEOMETRY`.
    """

    adds: bool
    columns: int
    does: str
    draws: int
    element: str
    empty: str
    equation: str
    factors: tuple[str, ...]
    fields: tuple[str, ...]
    flag: int
    gradient: str
    index: str
    indexed: bool
    keep: bool
    layout: str
    over: str | tuple[int, ...]
    plan: str
    products: tuple[int, ...]
    rows: str
    rules: str
    seeds: tuple[str, ...]
    sized: bool
    sort: str
    summed: bool
    view: str


@dataclass(frozen=True, slots=True, eq=False)
class OpRecord:
    """One op, as the runtime sees it.

    Attributes:
        statics: Names of the static arguments.
        texts: Kernel texts by target.
        gradients: Gradient rules by operand; None if they have not been derived yet.
        detail: Properties that only the op's kind reads.
        variants: By the presence of each optional operand, the op to run instead.
        spec: The spec from which the record was generated.
        autocast: The autocast policies for `cpu` and for other devices; empty if autocast ignores the op.
        bare: The op without saved results, to run instead if no gradient is recorded.
        called: The name of the op in error messages.
    """

    name: str
    kind: str
    operands: tuple[Operand, ...]
    outputs: tuple[Output, ...] = (Output(),)
    statics: tuple[str, ...] = ()
    dtypes: str = "numeric"
    texts: Mapping[str, Text] = field(default_factory=dict)
    gradients: Mapping[str, Rule] | None = None
    detail: Detail = field(default_factory=Detail)
    variants: Mapping[tuple[bool, ...], str] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)
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
    outputs: Sequence[_OutputFields],
    statics: Sequence[str] = (),
    dtypes: str = "numeric",
    detail: Detail | None = None,
    variants: Mapping[tuple[bool, ...], str] | None = None,
    rules: Mapping[str, _RuleFields] | None = None,
    spec: Mapping[str, object] | None = None,
    texts: Mapping[str, Text] | None = None,
    autocast: tuple[str, ...] = (),
    bare: str = "",
    called: str = "",
) -> OpRecord:
    """Make a record from the literals of a generated module.

    Args:
        operands: The fields of each `Operand`.
        outputs: The fields of each `Output`.
        rules: By operand, the fields of its `Rule` except the function.

    The other arguments are the fields of `OpRecord`.
    """
    gradients = None if rules is None else {k: _rule(*fields) for k, fields in rules.items()}
    return OpRecord(
        name=name, kind=kind, operands=tuple(Operand(*o) for o in operands), outputs=tuple(Output(*o) for o in outputs),
        statics=tuple(statics), dtypes=dtypes, texts=texts or {}, gradients=gradients, detail=detail or Detail(),
        variants=variants or {}, spec=spec or {}, autocast=autocast, bare=bare, called=called,
    )  # fmt: skip


def _rule(op: str | None, names: Sequence[str], sum_op: str | None, result: int | None = None) -> Rule:
    return Rule(op, tuple(names), sum_op, result=result)


class Registry:
    """All ops of the process by name, including the ops that compute gradients."""

    def __init__(self) -> None:
        self._records: dict[str, OpRecord] = {}
        self._owners: dict[str, str] = {}
        self._gradient_source: Callable[[OpRecord], Mapping[str, Rule]]

    def add(self, record: OpRecord) -> OpRecord:
        """Register `record`. It replaces a record of the same name (a reloaded user spec)."""
        self._records[record.name] = record
        return record

    def claim(self, names: Sequence[str], owner: str) -> None:
        """Reserve op names for `owner`, a package generated from a user's spec.

        Raises:
            ArgumentError: A name belongs to another owner: replacing its record would change the owner's derivatives.
        """
        for name in names:
            if name in self._records and self._owners.get(name) != owner:
                current_owner = self._owners.get(name, "weftgrad itself")
                raise ArgumentError(
                    f"{owner}: an op named {name!r} exists already, in {current_owner}; choose another name"
                )
        self._owners.update(dict.fromkeys(names, owner))

    def owner(self, name: str) -> str:
        """Return the owner of the spec that an op comes from; "" for the package's ops and for derivatives."""
        return self._owners.get(name, "")

    def __getitem__(self, name: str) -> OpRecord:
        try:
            return self._records[name]
        except KeyError:
            raise NotSupported(f"no op named {name!r} is registered") from None

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def __iter__(self) -> Iterator[OpRecord]:
        return iter(list(self._records.values()))

    def set_gradient_source(self, source: Callable[[OpRecord], Mapping[str, Rule]]) -> None:
        """Set the function that returns an op's gradient rules, `autograd.rule_lookup.gradient_rules`."""
        self._gradient_source = source

    def gradients(self, record: OpRecord) -> Mapping[str, Rule]:
        """Return the gradient rules of `record`. They are derived from its spec if they were not generated ahead."""
        return self._gradient_source(record)


registry = Registry()
