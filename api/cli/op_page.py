"""An op's page of `weftgrad show`, and the list of all ops."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from .._generated import ops as generated
from ..codegen.expr import canonical, topological
from ..codegen.generate import own_specs
from ..codegen.kinds import pointwise, rowwise
from ..codegen.loader import op_from_mapping
from ..codegen.model import Op, SpecError
from ..codegen.reference import DTYPE_TEXT
from ..runtime import dtypes
from ..runtime.errors import WeftgradError
from ..runtime.records import OpRecord, registry
from .kernel_text import schedules_of
from .python_functions import called_ops, public_functions, signature_text
from .terminal import Style

__all__ = ["GROUPS", "op_list", "op_page"]

_WIDTH = 118
_LABEL = 12
GROUPS = {
    "pointwise": "each element of the result from the operands' elements at its index",
    "reduction": "one result from the elements along some dimensions",
    "rowwise": "rows along a dimension, with sums and extremes of each row",
    "scan": "running results along a dimension",
    "contraction": "matrix products",
    "window": "pooling, and the patches that windows cover",
    "sort": "sorting and selection along a dimension",
    "index": "gather, scatter and lookups by index tensors",
    "random": "random numbers",
    "custom": "convolution, attention, padding, distances, resampling: kernels with planners of their own",
    "composite": "expressions over other ops",
    "view": "other shapes and strides of the same memory; no kernel",
}
# Characters of all formulas on a page, and of one; a formula of a second derivative has up to 10,000.
_MAX_FORMULAS, _MAX_FORMULA = 1200, 400
_TRIVIAL = ("const", "name", "detach")


# An op


def op_page(record: OpRecord, style: Style, spec_file: str = "") -> Iterator[str]:
    """Yield the lines of an op's page: signature, formula, derivative, saved tensors, cost, dtypes, kernels.

    Args:
        record: The op.
        style: Colours.
        spec_file: Path of the file with the op's spec, for commands that the page names; "" for weftgrad's own ops.
    """
    spec = record.spec
    head = str(spec.get("op", record.name))
    if record.name in generated.FUNCTIONS:
        head = signature_text(record.name, generated.FUNCTIONS[record.name][0])
    for line in textwrap.wrap(head, _WIDTH, subsequent_indent="    "):
        yield style("heading", line)
    yield from _wrapped("", (str(spec.get("doc", "")).strip().split("\n\n") or [""])[0])
    yield ""
    yield from _field(style, "kind", f"{record.kind}: {GROUPS.get(record.kind, 'registered from outside the package')}")
    names = [alias for alias, name in generated.ALIASES.items() if name == record.name]
    names += [f"{record.name}_ (in place)"] if f"{record.name}_" in generated.INPLACE else []
    names += [f"operator {spec['operator']}"] if spec.get("operator") else []
    yield from _field(style, "also", ", ".join(names))
    formulas = list(_formulas(record))
    for label, text in formulas:
        yield from _field(style, label, _cut(text, len(formulas)))
    yield from _field(style, "example", " ".join(str(spec.get("example", "")).split()))
    yield from _derivatives(record, style)
    yield from _field(style, "cost", _cost(record))
    results = [f"{o.name}: {_RESULT_TEXT.get(o.result, o.result)}" for o in record.outputs if not o.saved]
    yield from _field(style, "dtypes", f"{DTYPE_TEXT[record.dtypes]}; result {'; '.join(results)}")
    policies = dict(zip(("cpu", "gpu"), record.autocast, strict=False))
    policy_text = ", ".join(f"{device}: {policy}" for device, policy in policies.items() if policy)
    yield from _field(style, "autocast", policy_text)
    for target in record.texts:
        yield from _field(style, target, f"schedules {', '.join(schedules_of(record, target))}")
    yield from _field(style, "spec", spec_file or _spec_location(record))
    yield ""
    command = f"weftgrad show {spec_file} " if spec_file else "weftgrad show "
    commands = [f"{record.name} --kernel --device cpu --dtype float32",
                f"{record.name} --kernel --device cuda    (no GPU is needed)"] if record.texts else []  # fmt: skip
    commands += dict.fromkeys(rule.op for rule in registry.gradients(record).values() if rule.op)
    for position, arguments in enumerate(commands):  # not wrapped: each is one line to copy
        label = "" if position or not record.texts else "next"
        yield f"{style('heading', label.ljust(_LABEL)) if label else ' ' * _LABEL}{command}{arguments}"
    users = [name for name, other in public_functions().items() if record.name in called_ops(other)]
    if users:
        yield from _field(style, "called by", ", ".join(sorted(users)[:8]))


_RESULT_TEXT = {
    "promote": "the operands' promoted dtype", "float": "floating (integers become the default dtype)",
    "index": "int64", "accumulate": "the operand's dtype (integers become int64)", "truth": "bool (uint8 for uint8)",
}  # fmt: skip


def _formulas(record: OpRecord) -> Iterator[tuple[str, str]]:
    """Yield the label and text of each line of the formula."""
    spec = record.spec
    let, reduce = spec.get("let"), spec.get("reduce")
    for name, text in let.items() if isinstance(let, Mapping) else ():
        yield "formula", f"{name} = {text}"
    if isinstance(reduce, Mapping):
        for part in ("let", "identity", "map", "combine", "finish"):
            value = reduce.get(part)
            values = value if isinstance(value, Mapping) else {"": value}
            text = "; ".join(f"{name} = {v}" if name else str(v) for name, v in values.items())
            if value is not None:
                yield "formula", f"{part:8} {text}"
        return
    out = spec.get("out")
    outputs = out if isinstance(out, Mapping) else {record.outputs[0].name if record.outputs else "out": out}
    for name, text in outputs.items():
        if text is not None:
            yield "formula", f"{name} = {text}"
    if spec.get("epilogue"):
        yield "formula", f"then {spec['epilogue']}, with acc the product"
    if out is None:
        kind_fields = {k: v for k, v in spec.items() if k in (record.kind, "template", "plan")}
        yield "formula", ", ".join(f"{k}: {v}" for k, v in kind_fields.items()) or "see the first lines"


def _derivatives(record: OpRecord, style: Style) -> Iterator[str]:
    """Yield the gradient of each operand, and what a call saves for them."""
    try:
        rules = registry.gradients(record)
    except (SpecError, WeftgradError) as error:
        yield from _field(style, "derivative", f"none: {error}")
        return
    if not rules:
        yield from _field(style, "derivative", "none")
        return
    saved: dict[str, None] = {}
    for operand, rule in rules.items():
        saved |= dict.fromkeys(n for n in rule.operands if not n.startswith("grad"))
        if rule.op is None:
            text = "grad" if rule.function is None else f"computed by {_qualified(rule.function)}"
        else:
            derivative = registry[rule.op]
            names = [o.name for o in derivative.operands]
            arguments = ", ".join(a if a == b else f"{b}={a}" for a, b in zip(rule.operands, names, strict=False))
            formula = _cut(_derivative_formula(derivative, rule.result), len(rules))
            text = f"{formula}    by {rule.op}({arguments})"
        yield from _field(style, "derivative", f"d {operand} = {text}")
    operands = {o.name: o for o in record.operands}
    described = [f"{n} ({'operand' if n in operands else 'result'})" for n in saved]
    yield from _field(style, "saved", ", ".join(described) or "nothing")


def _derivative_formula(record: OpRecord, result: int | None) -> str:
    spec = record.spec
    formula = spec.get("out", spec.get("reduce", ""))
    if isinstance(formula, Mapping) and result is not None and "out" in spec:
        formula = list(formula.values())[result]
    if isinstance(formula, Mapping):
        single = len(formula) == 1
        formula = "; ".join(str(text) if single else f"{name}: {text}" for name, text in formula.items())
    return str(formula)


def _qualified(function: Callable[..., object]) -> str:
    function = getattr(function, "func", function)
    return f"{function.__module__}.{function.__qualname__}".replace(".<locals>", "")


def _cost(record: OpRecord) -> str:
    """Return bytes and operations of a call: per element where the kind has one operation count per element."""
    op = op_from_mapping(record.spec)
    if record.kind in ("view", "composite"):
        return "no kernel: a view shares its memory" if record.kind == "view" else "the sum of the ops it calls"
    reads = [o for o in record.operands if o.role not in ("scalar", "number")]
    sizes = [_itemsize(o.type, "") for o in reads]
    written = [_itemsize(o.type, o.result) for o in record.outputs]
    if record.kind in ("pointwise", "random", "rowwise"):
        read_bytes = sum(s for s, o in zip(sizes, reads, strict=True) if o.scope == "full")
        written_bytes = sum(s for s, o in zip(written, record.outputs, strict=True) if o.scope == "full")
        text = f"{read_bytes} B read and {written_bytes} B written per element in float32"
        return f"{text}; {_operations(record, op)}" if record.kind != "random" else text
    if record.kind == "contraction":
        letters = "".join(dict.fromkeys(c for c in str(record.spec["out"]) if c.isalpha()))
        equation = record.spec["out"]
        return f"2·{'·'.join(letters)} FLOP per product ({equation}); each operand read and the result written once"
    if record.kind == "reduction":
        return f"{sum(sizes)} B read per element in float32; results are written once"
    return "each operand is read, and each result written, at least once"


def _itemsize(type_name: str, result: str) -> int:
    if result in dtypes.BY_NAME:
        return dtypes.BY_NAME[result].itemsize
    widths = {"index": 8, "mask": 1}
    return widths.get(result, widths.get(type_name, 4))


def _operations(record: OpRecord, op: Op) -> str:
    """Return the operations per element of the canonical expression, counted once where it repeats."""
    try:
        if record.kind == "rowwise":
            roots = [result.expr for result in rowwise.results(op).values()]
        else:
            roots = list(pointwise.expressions(op).values())
    except (SpecError, KeyError):
        return ""
    nodes = topological([canonical(root) for root in roots])
    counts = Counter(node.fn for node in nodes if node.fn not in _TRIVIAL and node.scope in ("full", "column"))
    counts += Counter(node.fn for node in nodes if node.fn.startswith("row_"))
    total = sum(counts.values())
    listed = ", ".join(f"{n} {name}" if n > 1 else name for name, n in sorted(counts.items()))
    return f"{total} operation{'s' * (total != 1)} per element: {listed}" if total else "no arithmetic"


def _spec_location(record: OpRecord) -> str:
    """Return the file and line of the op's spec entry; for a derivative, of the op that it was derived from."""
    owner = registry.owner(record.name)
    for path in own_specs():
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            match = re.match(r'- op: "?(\w+)\(', line)
            if match and match[1] == record.name:
                return f"codegen/specs/{path.name}:{number}"
    return owner or "derived from the op's formula"


def _cut(text: str, count: int) -> str:
    """Return a formula, cut if it is longer than one of `count` formulas may be."""
    max_length = min(_MAX_FORMULA, _MAX_FORMULAS // count)
    return text if len(text) <= max_length else f"{text[:max_length].rpartition(' ')[0]} … ({len(text)} characters)"


def _field(style: Style, label: str, text: str) -> Iterator[str]:
    """Yield a labelled text in lines of at most 118 columns; nothing without text."""
    if text:
        yield from _wrapped(style("heading", label.ljust(_LABEL)), text)


def _wrapped(label: str, text: str) -> Iterator[str]:
    indent = " " * _LABEL if label else ""
    lines = textwrap.wrap(" ".join(text.split(" ")), _WIDTH - len(indent), break_long_words=False) or [""]
    yield f"{label}{lines[0]}"
    yield from (indent + line for line in lines[1:])


# All ops


def op_list(style: Style) -> Iterator[str]:
    """Yield the lines of the list of all public ops, by group, and the names of the Python functions."""
    public = [name for name, (_, namespace, _) in generated.FUNCTIONS.items() if namespace != "hidden"]
    for kind, about in GROUPS.items():
        records = [registry[name] for name in sorted(public) if name in registry and registry[name].kind == kind]
        if not records:
            continue
        yield style("heading", f"{kind}: {about}")
        width = max(len(r.name) for r in records)
        for record in records:
            summary = (str(record.spec.get("doc", "")).strip().splitlines() or [""])[0]
            line = f"  {record.name:{width}}  {summary}"
            yield line if len(line) <= _WIDTH else f"{line[: _WIDTH - 2].rpartition(' ')[0]} …"
        yield ""
    functions = sorted(public_functions())
    yield style("heading", f"{len(functions)} functions in Python; `weftgrad show NAME` names the ops that one calls")
    yield from textwrap.wrap(", ".join(functions), _WIDTH, initial_indent="  ", subsequent_indent="  ")
