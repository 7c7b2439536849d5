"""Reductions: one or several results from all elements along some dimensions.

    reduce:
      identity: the neutral element of `combine`: a number, true or false, `lowest` or `highest` of the dtype
      map:      the state of one element, from the operands; `index` is its position among the reduced elements
      combine:  merges two states, called `a` and `b`
      finish:   the result from the final state, called `acc`; `n` is the number of reduced elements
      save:     the last results, if only the gradient reads them: callers do not get them, and a call without gradient
                skips them if every `combine` is independent of the order (`bare`)
    empty: `error` if a reduction of no elements has no result; the default, `identity`, gives finish(identity)

If the state has several fields, `identity`, `map` and `combine` are mappings from field to expression. `combine` then
reads `a_FIELD` and `b_FIELD`, and `finish` reads the fields and may map several results. `let:` in `reduce` names
subexpressions of `combine`.

`combine` must be associative and commutative: the schedule chooses the order, which is the same at every call. To
break ties, keep `index` in a field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .. import triton
from ..expr import (
    Block,
    Expr,
    Operand,
    canonical,
    const,
    emit_opencl,
    emit_triton,
    free_names,
    gradient,
    name,
    size,
    substitute,
    to_text,
    topological,
)
from ..expr.vocabulary import rebuild
from ..fields import Fields
from ..model import Op, SpecError
from ..signature import check_name
from . import Derived, OutputRow, Rendered, Source, named_result, seed_name
from .pointwise import math_functions, operand_table, parse_field

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "COUNT",
    "FIELDS",
    "INDEX",
    "LIMITS",
    "REQUIRED",
    "Reduction",
    "bare",
    "check",
    "derive",
    "opencl_identity",
    "parse_reduction",
    "render",
    "triton_source",
]

FIELDS: Fields = {
    "reduce": ((dict,), "identity, map, combine, finish (and let)"),
    "empty": ((str,), "`error` or `identity`: reducing nothing"),
}
REQUIRED = ("reduce",)

COUNT = "n_reduced"  # the name of the number of reduced elements in gradients
INDEX = "index_reduced"  # the name of an element's position among them in gradients
LIMITS = {"lowest": "LOWEST", "highest": "HIGHEST"}
_PARTS = ("identity", "map", "combine", "finish")
_ORDER_INDEPENDENT = ("maximum", "minimum", "logical_and", "logical_or")  # same bits in any order
_N = Operand("value", "scalar")


@dataclass(frozen=True)
class Reduction:
    """A parsed `reduce:` field. Keys are state fields, of `finish` results. An identity is a constant or a limit."""

    identity: Mapping[str, Expr | str]
    map: Mapping[str, Expr]
    combine: Mapping[str, Expr]
    finish: Mapping[str, Expr]
    single: bool
    saved: tuple[str, ...] = ()

    def operands(self, field: str) -> tuple[str, str]:
        """Return the names in `combine` of `field` of the two states."""
        return ("a", "b") if self.single else (f"a_{field}", f"b_{field}")

    @property
    def indexed(self) -> bool:
        return "index" in free_names(*self.map.values())


def parse_reduction(op: Op, extra_operands: Mapping[str, Operand] = MappingProxyType({})) -> Reduction:
    """Parse and check the `reduce:` field of `op`.

    Args:
        extra_operands: names that `map` may use besides the op's operands.

    Raises:
        SpecError: names the field that is wrong.
    """
    spec = op.fields.get("reduce")
    if not isinstance(spec, Mapping) or not set(_PARTS) - {"finish"} <= set(spec):
        raise _error(op, "reduce", "a reduction needs `reduce:` with identity, map and combine")
    unknown = set(spec) - {*_PARTS, "let", "save"}
    if unknown:
        raise _error(op, "reduce", f"unknown fields {', '.join(sorted(map(str, unknown)))}")
    single = not isinstance(spec["map"], Mapping)
    part_texts = {part: _part_texts(op, part, spec[part], single) for part in ("identity", "map", "combine")}
    for part in ("identity", "combine"):
        if set(part_texts[part]) != set(part_texts["map"]):
            raise _error(
                op, f"reduce.{part}", f"has fields {sorted(part_texts[part])}, map has {sorted(part_texts['map'])}"
            )
    table = operand_table(op)
    for field in part_texts["map"]:
        if field in table or field in ("a", "b", "n", "index"):
            raise _error(op, "reduce.map", f"the field {field!r} has the name of a parameter or of the language")
    map_exprs = {
        f: _parse(op, f"reduce.map.{f}", text, {**table, **extra_operands, "index": Operand("index", "full")})
        for f, text in part_texts["map"].items()
    }
    state_operands = {f: Operand(e.type, "full") for f, e in map_exprs.items()}
    scalars = {p.name: table[p.name] for p in op.operands if not p.is_tensor}
    reduction = Reduction({}, map_exprs, {}, {}, single)
    pairs = {operand: state_operands[f] for f in state_operands for operand in reduction.operands(f)}
    combine_exprs = _parse_combine(op, part_texts["combine"], spec.get("let", {}), pairs)
    finish = spec.get("finish", "acc" if single else {f: f for f in state_operands})
    finish_exprs = {
        k: _parse(op, f"reduce.finish.{k}", text, {**state_operands, **scalars, "n": _N})
        for k, text in (finish if isinstance(finish, Mapping) else {"out": finish}).items()
    }
    for result in finish_exprs:
        check_name(result, "the result")
        if result in table:
            raise _error(op, "reduce.finish", f"the result {result!r} has the name of a parameter")
    identity = {f: _parse_identity(op, f, text, state_operands[f]) for f, text in part_texts["identity"].items()}
    for field, expr in combine_exprs.items():
        if expr.type != state_operands[field].type:
            raise _error(
                op, f"reduce.combine.{field}", f"gives a {expr.type}, but map gives a {state_operands[field].type}",
                "use `or`, `and` for truth values, where(mask, 1, 0) to count them",
            )  # fmt: skip
    saved = spec.get("save", [])
    if not isinstance(saved, list) or (saved and saved != list(finish_exprs)[1:][-len(saved) :]):
        raise _error(
            op, "reduce.save", f"must list the last of the results {', '.join(finish_exprs)}, after one that is visible"
        )
    return Reduction(identity, map_exprs, combine_exprs, finish_exprs, single, tuple(saved))


def _part_texts(op: Op, part: str, spec: Any, single: bool) -> dict[str, Any]:
    if isinstance(spec, Mapping) == single:
        raise _error(op, f"reduce.{part}", "map, identity and combine are all expressions, or all mappings by field")
    texts = {"acc": spec} if single else dict(spec)
    for field in texts:
        check_name(str(field), "the field")
    return texts


def _parse_combine(
    op: Op, texts: Mapping[str, Any], let_texts: Any, state_operands: Mapping[str, Operand]
) -> dict[str, Expr]:
    table, values = dict(state_operands), dict[str, Expr]()
    if not isinstance(let_texts, Mapping):
        raise _error(op, "reduce.let", "a mapping from names to expressions")
    for let, text in let_texts.items():
        check_name(str(let), "the let value")
        if let in table:
            raise _error(op, "reduce.let", f"the name {let!r} is taken")
        values[let] = substitute(_parse(op, f"reduce.let.{let}", text, table), values)
        table[let] = Operand(values[let].type, values[let].scope)
    return {f: substitute(_parse(op, f"reduce.combine.{f}", t, table), values) for f, t in texts.items()}


def _parse_identity(op: Op, field: str, text: Any, state: Operand) -> Expr | str:
    if isinstance(text, str) and text in LIMITS:
        if state.type != "value":
            raise _error(op, f"reduce.identity.{field}", f"{text} is for values; this field is a {state.type}")
        return text
    expr = canonical(_parse(op, f"reduce.identity.{field}", text, {}))
    if expr.fn != "const":
        raise _error(op, f"reduce.identity.{field}", "a number, true, false, lowest or highest")
    if (expr.type == "mask") != (state.type == "mask"):
        raise _error(
            op, f"reduce.identity.{field}", f"{to_text(expr)} is no {state.type}", "truth values have true or false"
        )
    return const(expr.value, "index") if state.type == "index" else expr  # type: ignore[arg-type]


def _parse(op: Op, field: str, text: Any, table: Mapping[str, Operand]) -> Expr:
    return parse_field(op, _spec_field(field), text if isinstance(text, str) else repr(text), table)


def _error(op: Op, field: str, message: str, suggestion: str | None = None) -> SpecError:
    return SpecError(message, file=op.file, line=op.line, field=_spec_field(field), suggestion=suggestion)


def _spec_field(path: str) -> str:
    """Return the path as written in the spec, without the implicit names of a single state and a single result."""
    return path.removesuffix(".acc").removesuffix(".out")


def _with_visible_outputs(op: Op, reduction: Reduction) -> Op:
    """Return `op` with the results that callers get as `outputs`: gradients are named after them."""
    return replace(op, outputs={k: to_text(e) for k, e in reduction.finish.items() if k not in reduction.saved})


def check(op: Op) -> None:
    """Raise `SpecError` if the reduction is wrong."""
    reduction = parse_reduction(op)
    if not any(p.is_tensor for p in op.operands):
        raise _error(op, "op", "a reduction needs a tensor operand")
    used_names = set(free_names(*reduction.map.values(), *reduction.finish.values()))
    for p in op.operands:
        if p.name not in used_names:
            raise _error(op, "reduce", f"parameter {p.name!r} is used by no expression")
    if op.fields.get("empty", "identity") not in ("identity", "error"):
        raise _error(op, "empty", f"found {op.fields['empty']!r}; it is `identity` or `error`")
    if isinstance(op.grad, Mapping):
        _spec_gradients(op, reduction)


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of all schedules."""
    reduction = parse_reduction(op)
    states = {"first": 0, "second": 1}
    combine_names = {n: f"{s}.{f}" for f in reduction.map for s, n in zip(states, reduction.operands(f), strict=True)}
    state_names = {f: f"state.{f}" for f in reduction.map}
    parts: dict[str, dict[str, Block]] = {}
    for part, exprs, names in (
        ("map", reduction.map, {}),
        ("combine", reduction.combine, combine_names),
        ("finish", reduction.finish, state_names),
    ):
        canonical_exprs = {k: canonical(e) for k, e in exprs.items()}
        parts[part] = {
            target: emit_opencl(canonical_exprs, dialect, wrap=True, names=names)
            for target, dialect in (("vector", "vector"), ("scalar", "row"))
        }
    blocks = [b for part in parts.values() for b in part.values()]
    for block in blocks:
        if block.index_functions:
            function_names = ", ".join(block.index_functions)
            raise _error(op, "reduce", f"{function_names} of an index cannot be reduced", "write it with where")
    # A simple state leaves registers for several independent accumulators, which hide the latency of an addition.
    is_simple = reduction.single and size(reduction.combine) <= 6 and size(reduction.map) <= 16
    is_light = is_simple or (len(reduction.map) <= 2 and size(reduction.combine) <= 16)
    text = environment.get_template("opencl/reduction.cl.j2").render(
        op=op.name,
        title=_title(op, reduction),
        inputs=[(p.name, p.type) for p in op.operands if p.is_tensor],
        scalars=[p.name for p in op.operands if not p.is_tensor],
        fields=[(f, e.type, opencl_identity(reduction.identity[f])) for f, e in reduction.map.items()],
        outputs=[(k, e.type) for k, e in reduction.finish.items()],
        indexed=reduction.indexed,
        accumulators=4 if is_light else 2,
        columns=8 if is_simple else 4 if is_light else 2,
        **parts,
    )
    outputs = tuple(_output(op, k, e, k in reduction.saved) for k, e in reduction.finish.items())
    detail: dict[str, Any] = {
        "fields": tuple(e.type for e in reduction.map.values()),
        "indexed": reduction.indexed,
        "empty": op.fields.get("empty", "identity"),
        "columns": 8 if is_simple else 4 if is_light else 2,
    }
    if reduction.saved:
        visible_op = _with_visible_outputs(op, reduction)
        detail["seeds"] = (
            *(seed_name(visible_op, k) for k in visible_op.outputs),
            *(f"grad_{k}" for k in reduction.saved),
        )
    sources = {
        "opencl": Source(text, math_functions(*blocks)),
        "triton": triton_source(op, reduction, environment, "reduction.py.j2", title=_title(op, reduction)),
    }
    return Rendered(outputs, sources, detail)


def bare(op: Op) -> dict[str, Any] | None:
    """Return the spec of `op` without the results that only its gradient reads, for calls without gradient.

    Return None if the op saves no such results, if a parameter would be unused, or if the bits of the other results
    could change: schedules depend on the size of the state, so the order of combination may differ, and a call must
    give the same bits with and without a gradient.
    """
    reduction = parse_reduction(op)
    finish = {k: e for k, e in reduction.finish.items() if k not in reduction.saved}
    fields = _needed_fields(reduction, finish.values())
    combine = {f: reduction.combine[f] for f in fields}
    used_names = free_names(*(reduction.map[f] for f in fields), *finish.values())
    if not reduction.saved or not all(e.fn in _ORDER_INDEPENDENT for e in combine.values()):
        return None
    if not {p.name for p in op.operands} <= set(used_names) or "acc" in used_names:
        return None
    texts: dict[str, Any]
    if len(fields) == 1:  # schedules use more accumulators for a state without fields
        (only,) = fields
        names = dict(zip(reduction.operands(only), ("a", "b"), strict=True))
        texts = {
            "identity": _identity_text(reduction.identity[only]),
            "map": to_text(reduction.map[only]),
            "combine": to_text(_rename_operands(combine[only], names)),
            "finish": {k: to_text(_rename_operands(e, {only: "acc"})) for k, e in finish.items()},
        }
    else:
        texts = {
            "identity": {f: _identity_text(reduction.identity[f]) for f in fields},
            "map": {f: to_text(reduction.map[f]) for f in fields},
            "combine": {f: to_text(e) for f, e in combine.items()},
            "finish": {k: to_text(e) for k, e in finish.items()},
        }
    signature = f"{op.name}_bare({str(op.spec['op']).partition('(')[2]}"
    base_spec = {k: v for k, v in op.spec.items() if k not in ("grad", "reference", "alias")}
    return {**base_spec, "op": signature, "reduce": texts, "grad": "none"}


def _needed_fields(reduction: Reduction, results: Iterable[Expr]) -> list[str]:
    """Return the state fields on which `results` depend, in the order of the state."""
    field_of_operand = {n: f for f in reduction.map for n in reduction.operands(f)}
    needed: set[str] = set()
    pending = [n for n in free_names(*results) if n in reduction.map]
    while pending:
        field = pending.pop()
        if field not in needed:
            needed.add(field)
            pending += [field_of_operand[n] for n in free_names(reduction.combine[field]) if n in field_of_operand]
    return [f for f in reduction.map if f in needed]


def _rename_operands(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Rename operands in `expr`. names: old name -> new name."""
    free = [e for e in topological([expr]) if e.fn == "name" and e.value in names]
    return substitute(expr, {str(e.value): name(names[str(e.value)], Operand(e.type, e.scope)) for e in free})


def _identity_text(identity: Expr | str) -> str:
    return identity if isinstance(identity, str) else to_text(identity)


def triton_source(
    op: Op, reduction: Reduction, environment: Environment, template: str, **template_values: Any
) -> Source:
    """Render the Triton kernels from a template that combines states.

    Args:
        template: file name in `templates/triton`.
        template_values: more variables of the template.
    """
    pairs = [reduction.operands(f) for f in reduction.map]
    scalars = [p.name for p in op.operands if not p.is_tensor]
    inputs = [(p.name, p.type) for p in op.operands if p.is_tensor]
    kernel_names = triton.python_names(
        [*(n for n, _ in inputs), *scalars, *reduction.map, *(n for p in pairs for n in p)]
    )
    canonical_parts = [
        {k: canonical(e) for k, e in part.items()} for part in (reduction.map, reduction.combine, reduction.finish)
    ]
    blocks = [emit_triton(part, names=kernel_names) for part in canonical_parts]
    uses_compute_type = any(re.search(r"\bC\b", text) for text in (*blocks[1].statements, *blocks[1].values.values()))
    values = [a for (a, _), e in zip(pairs, reduction.map.values(), strict=True) if e.type == "value"]
    identities = {f: i if isinstance(i, str) else triton.number(i.value) for f, i in reduction.identity.items()}
    return triton.source(
        template,
        environment,
        math_functions(*blocks),
        op=op.name,
        inputs=[(kernel_names.get(n, n), t) for n, t in inputs],
        scalars=[kernel_names.get(n, n) for n in scalars],
        fields=[(kernel_names.get(f, f), e.type, LIMITS.get(i := identities[f], i)) for f, e in reduction.map.items()],
        outputs=[(k, e.type) for k, e in reduction.finish.items()],
        pairs=[(kernel_names.get(a, a), kernel_names.get(b, b)) for a, b in pairs],
        typed=kernel_names.get(values[0], values[0]) if uses_compute_type and values else None,
        limited=any(isinstance(i, str) for i in reduction.identity.values()),
        map=blocks[0],
        combine=blocks[1],
        finish=blocks[2],
        **template_values,
    )


def opencl_identity(identity: Expr | str) -> str:
    """Return an identity as OpenCL text without a cast: the template casts it to the scalar or vector type."""
    if isinstance(identity, str):
        return LIMITS[identity]
    text = emit_opencl({"": identity}, "row").values[""]
    return text.partition(")")[2]


def _title(op: Op, reduction: Reduction) -> str:
    def text_of(exprs: Mapping[str, Expr]) -> str:
        return "; ".join(f"{k} = {to_text(e)}" for k, e in exprs.items())

    text = f"map {text_of(reduction.map)}, combine {text_of(reduction.combine)}, finish {text_of(reduction.finish)}"
    return f"{op.name}({', '.join(p.name for p in op.params)}): {text[:400]}"


def _output(op: Op, output: str, expr: Expr, saved: bool) -> OutputRow:
    fixed = {"mask": "bool", "index": "index"}
    differentiable = expr.type == "value" and op.grad != "none" and not saved and op.result != "index"
    return OutputRow(output, expr.type, fixed.get(expr.type, op.result), "full", differentiable, saved)


# Gradients are pointwise ops of the incoming gradient, the operands, the results, COUNT and INDEX.


def _gradient_operands(op: Op, reduction: Reduction) -> dict[str, Operand]:
    operands = operand_table(op)
    operands |= {k: Operand(e.type, "full") for k, e in reduction.finish.items()}
    operands |= {seed_name(op, k): Operand("value", "full") for k in op.outputs if reduction.finish[k].type == "value"}
    return operands | {COUNT: _N, INDEX: Operand("index", "full")}


def _spec_gradients(op: Op, reduction: Reduction) -> dict[str, Expr]:
    op = _with_visible_outputs(op, reduction)
    operands = _gradient_operands(op, reduction)
    texts = op.grad if isinstance(op.grad, Mapping) else {}
    for key in texts:
        if key not in {p.name for p in op.operands if p.is_tensor}:
            raise _error(op, "grad", f"{key!r} is no tensor parameter")
    return {k: parse_field(op, f"grad.{k}", v, operands) for k, v in texts.items()}


def derive(op: Op) -> dict[str, Derived]:
    """Return one pointwise gradient op per tensor operand of type value: from the spec's `grad`; for sums, derived."""
    if op.grad == "none":
        return {}
    reduction = parse_reduction(op)
    op = _with_visible_outputs(op, reduction)
    differentiable = [p.name for p in op.operands if p.is_tensor and p.type == "value"]
    gradients = {k: canonical(e) for k, e in _spec_gradients(op, reduction).items()}
    missing = [w for w in differentiable if w not in gradients]
    if missing:
        gradients.update(_derive_gradients(op, reduction, missing))
    # No gradient reaches an operand that is only compared. That is no error: its gradient is None.
    return {
        w: _gradient_op(op, reduction, w, gradients[w]) if w in gradients else Derived((), None) for w in differentiable
    }


def _derive_gradients(op: Op, reduction: Reduction, parameters: list[str]) -> dict[str, Expr]:
    """Apply the chain rule through finish, sum and map. Raises `SpecError` if `combine` is not a sum."""
    combine = reduction.combine.get("acc")
    is_sum = combine is not None and combine.fn == "add" and {a.value for a in combine.args} == {"a", "b"}
    if not (reduction.single and is_sum):
        raise _error(op, "grad", "only `combine: a + b` is derived; give the gradient, or `grad: none`")
    full = Operand("value", "full")
    seeds = {k: name(seed_name(op, k), full) for k in op.outputs}
    finish = {k: canonical(reduction.finish[k]) for k in op.outputs}
    grad_state = gradient(finish, seeds, ["acc"]).get("acc")
    if grad_state is None:
        return {}
    # Backward has the results but not the state: replace the expression of a result by the result.
    results = {e: name(k, full) for k, e in finish.items()}
    grad_state = rebuild([grad_state], results.get)[grad_state]
    renamed = {"n": name(COUNT, _N), "index": name(INDEX, Operand("index", "full"))}
    gradients = gradient({"acc": canonical(reduction.map["acc"])}, {"acc": grad_state}, parameters)
    gradients = {k: canonical(substitute(e, renamed)) for k, e in gradients.items()}
    if any("acc" in free_names(e) for e in gradients.values()):
        raise _error(op, "grad", "the gradient needs the state before `finish`, which is not saved; give the gradient")
    return gradients


def _gradient_op(op: Op, reduction: Reduction, parameter: str, expr: Expr) -> Derived:
    seeds = [seed_name(op, k) for k in op.outputs]
    used = free_names(expr)
    order = [*seeds, *(p.name for p in op.operands), *reduction.finish, COUNT, INDEX]
    operands = tuple(n for n in order if n in used)
    if to_text(expr) in seeds:
        return Derived(operands, None)
    spec = {
        "op": f"{op.name}_grad_{parameter}({', '.join(_declare_operand(op, reduction, n) for n in operands)})",
        "kind": "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": named_result(operands, to_text(expr)),
    }
    return Derived(operands, spec)


def _declare_operand(op: Op, reduction: Reduction, operand: str) -> str:
    annotation = {COUNT: ": float", INDEX: ": Index"}.get(operand, "")
    if operand in reduction.finish:
        annotation = {"mask": ": Mask", "index": ": Index"}.get(reduction.finish[operand].type, "")
    for p in op.params:
        if p.name == operand:
            annotation = {"scalar": ": float", "number": ": float"}.get(p.role, "")
            annotation = {"mask": ": Mask", "index": ": Index"}.get(p.type, annotation)
    return f"{operand}{annotation}"
