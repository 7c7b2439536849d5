"""Records of ops, which generated modules create, and the registry of all ops.

A record has everything that a call needs: operand roles, result dtypes, kernel texts for each target, and gradient
rules. It also contains the spec it came from, so that derivatives that were not generated ahead can be derived in the
running process in the same way (`derive`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import starmap
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

__all__ = [
    "Detail", "OpRecord", "Operand", "Output", "Registry", "Rule", "Text", "make_record", "registry", "spec_difference",
]  # fmt: skip

# Fields of a spec that say nothing about what the op computes.
_PROSE_FIELDS = frozenset(("doc", "example", "reference", "sample"))
_MAX_DIFFERENCES, _MAX_VALUE = 3, 80  # fields that a message shows, and characters of a value


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
            `accumulate` (integers become int64), `truth` (bool, but uint8 of an operand of uint8), `like:NAME` (that
            operand's dtype) or the name of a dtype.
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
        op: Name of the record that computes it. None: the first of `operands` is the gradient; without operands there
            is none. "!": no gradient is known.
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

    Args:
        source: The text; None: that of `file`.
        functions: Names of the math functions.
        file: Path of the text, which is read when the first plan needs it.
    """

    __slots__ = ("_file", "_source", "functions")

    def __init__(self, source: str | None, functions: tuple[str, ...] = (), file: str = ""):
        self._source = source
        self._file = file
        self.functions = functions

    @property
    def source(self) -> str:
        if self._source is None:
            self._source = Path(self._file).read_text(encoding="utf-8")
        return self._source


class Detail(TypedDict, total=False):
    """Properties of an op that only its kind reads; each kind has some of them.

    Attributes:
        action: index: what happens at an element, such as `add`, `write` or `count`.
        column_vectors: reduction: vectors of columns that a CPU kernel reduces at once.
        draws: random: numbers of the generator that an element needs.
        element: random: the type in which numbers are computed: `long`, `real` or `widest`.
        empty: reduction: `error` if there is no result for no elements, else `identity`.
        equation: contraction: the terms, such as `bij,bjk->bik`.
        factors: contraction: names of the operands that are multiplied, if the op has other operands, too.
        fields: reduction, scan: the types of the state that is combined.
        flag_position: multi-tensor ops: the position of the operand with one element per tensor.
        gradient: window: the op that computes the gradient, `gather`, or empty.
        index: index: the pattern of addresses, such as `gather` or `bags`.
        has_index: reduction, scan, window: `map` reads `index`, the position of an element; window: or an operand is
            an index.
        is_running_sum: scan: the op only adds, so its gradient is the same scan in the opposite direction.
        caches_row: rowwise: kernels cache the row's elements.
        layout: pointwise: `contiguous` or `channels_last` if the operands' strides do not decide the result's.
        multi_tensor: reduction: there are kernels that reduce many tensors together.
        over: window: what a work-item iterates over: `windows`, `covering` or `taps`.
        overwritten: multi-tensor ops: positions of the operands that are overwritten.
        plan: custom: the module of `kinds` with the planner.
        product_positions: gates of recurrent layers: positions of the operands that are products.
        reads_count: window: `map` reads `n`, the element count of a window.
        rows: rowwise: the static argument that says what a row is, `dim` or `normalized_shape`.
        rules: the module of `autograd` with the gradient rules.
        seeds: reduction: names of the incoming gradients, if they are not those of `seed_name`.
        sort: sort: `order`, `top`, `search` or `bins`.
        summed: window: results are plain sums of the elements, in any order.
        view: view: the function of `kinds.view.GEOMETRY`.
        wraps: pointwise: integers outside the compute dtype's range wrap around; otherwise they raise an error.
    """

    action: str
    column_vectors: int
    draws: int
    element: str
    empty: str
    equation: str
    factors: tuple[str, ...]
    fields: tuple[str, ...]
    flag_position: int
    gradient: str
    index: str
    has_index: bool
    is_running_sum: bool
    caches_row: bool
    layout: str
    multi_tensor: bool
    over: str
    overwritten: tuple[int, ...]
    plan: str
    product_positions: tuple[int, ...]
    reads_count: bool
    rows: str
    rules: str
    seeds: tuple[str, ...]
    sort: str
    summed: bool
    view: str
    wraps: bool


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
        name=name, kind=kind, operands=tuple(starmap(_operand, operands)), outputs=tuple(starmap(_output, outputs)),
        statics=tuple(statics), dtypes=dtypes, texts=texts or {}, gradients=gradients, detail=detail or Detail(),
        variants=variants or {}, spec=spec or {}, autocast=autocast, bare=bare, called=called,
    )  # fmt: skip


# Most records share their operands and outputs with others: `input, tensor, value, full` is in a third of them.
_operand = cache(Operand)
_output = cache(Output)


def _rule(op: str | None, names: Sequence[str], sum_op: str | None, result: int | None = None) -> Rule:
    return Rule(op, tuple(names), sum_op, result=result)


def spec_difference(spec: Mapping[str, object], other: Mapping[str, object]) -> str:
    """Return which fields of two specs differ, and their values; "" if both specs define the same op.

    Prose and test inputs (`doc`, `example`, `reference`, `sample`) do not count.
    """
    fields = [field for field in {**spec, **other} if spec.get(field) != other.get(field)]
    texts = [
        f"{field} is {_value_text(spec, field)} here, {_value_text(other, field)} there"
        for field in fields
        if field not in _PROSE_FIELDS
    ]
    return "; ".join(texts[:_MAX_DIFFERENCES])


def _value_text(spec: Mapping[str, object], field: str) -> str:
    if field not in spec:
        return "missing"
    text = str(spec[field])
    return repr(text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]} …")


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

    def add_package(self, records: Sequence[OpRecord], owner: str) -> None:
        """Register the records of a package that was generated from a user's spec; if one conflicts, register none.

        An op that is registered with the same spec is the same op: its record stays. A package that is imported again
        replaces its own records.

        Args:
            records: Its ops and their derivatives.
            owner: Where they come from, for messages of errors.

        Raises:
            ArgumentError: A name belongs to an op with another spec: replacing it would change that op's derivatives.
        """
        new_records = [r for r in records if self._owners.get(r.name) == owner or not self._has_equal(r, owner)]
        self._owners.update((record.name, owner) for record in new_records)
        self._records.update((record.name, record) for record in new_records)

    def _has_equal(self, record: OpRecord, owner: str) -> bool:
        """Return True if an op of the same name and spec is registered. Raises `ArgumentError` for another spec."""
        if record.name not in self._records:
            return False
        if detail := self.conflict(record.name, record.spec):
            message = f"an op named {record.name!r} exists already{detail}"
            raise ArgumentError(f"{owner}: {message}; choose another name, or generate both with one version")
        return True

    def conflict(self, name: str, spec: Mapping[str, object]) -> str:
        """Return where the op `name` comes from and how it differs from `spec`, as the end of a message.

        "" if the registered op has the same spec, or there is none.
        """
        record = self._records.get(name)
        if record is None:
            return ""
        difference = spec_difference(spec, record.spec) if record.spec else "it has no spec"
        source = self._owners.get(name, "weftgrad itself, or among the derivatives of other ops")
        return f", in {source} ({difference})" if difference else ""

    def claim(self, names: Sequence[str], owner: str) -> None:
        """Reserve op names for `owner`, a user's spec. `conflict` must have been asked before."""
        self._owners.update(dict.fromkeys(names, owner))

    def owner(self, name: str) -> str:
        """Return the owner of the spec that an op comes from; "" for weftgrad's own, and what this process derived."""
        return self._owners.get(name, "")

    def specs(self) -> dict[str, Mapping[str, object]]:
        """Return the specs of all registered ops by name."""
        return {name: record.spec for name, record in self._records.items() if record.spec}

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
