"""Reduction: one result, or several, from all elements along some dimensions.

    reduce:
      identity: what changes nothing: a number, true or false, `lowest` or `highest` of the type
      map:      an element's contribution, from the operands; `index` is its place among those reduced
      combine:  two states into one. `a` and `b` are the states
      finish:   the result from the state, called `acc`; `n` is how many elements were reduced
      save:     the last of several results, where only the gradient reads them: callers do not see them, and calls
                that nothing is derived from do not compute them where the rest is extremes (`bare`)
    empty: `error` where there is no result for no elements; the default, `identity`, gives finish(identity)

A state of several fields gives mappings from field to expression, `a_FIELD` and `b_FIELD` in `combine`, the fields
themselves in `finish`, which may map several results. `let:` in `reduce` names parts of `combine`.

`combine` must be associative and commutative: elements meet in an order of the schedule's own, the same at every call.
Ties are told apart by a field that holds `index`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

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
from ..model import Op, SpecError
from ..signature import check_name
from . import Derived, OutputRow, Rendered, Source, named_result, seed_name
from .pointwise import functions, operand_table, parsed

__all__ = [
    "COUNT",
    "INDEX",
    "LIMITS",
    "Reduction",
    "bare",
    "check",
    "derive",
    "reduction_of",
    "render",
    "spelled_identity",
    "triton_source",
]

COUNT = "n_reduced"  # what gradients call the number of elements reduced
INDEX = "index_reduced"  # and an element's place among them
LIMITS = {"lowest": "LOWEST", "highest": "HIGHEST"}
_PARTS = ("identity", "map", "combine", "finish")
_EVEN = ("maximum", "minimum", "logical_and", "logical_or")  # of what these combine, any order gives the same bits
_N = Operand("value", "scalar")


@dataclass(frozen=True)
class Reduction:
    """A `reduce:` field, parsed. Mappings are by field, `finish` by result; an identity is a constant or a limit."""

    identity: Mapping[str, Expr | str]
    map: Mapping[str, Expr]
    combine: Mapping[str, Expr]
    finish: Mapping[str, Expr]
    single: bool
    saved: tuple[str, ...] = ()

    def operands(self, field: str) -> tuple[str, str]:
        """What `combine` calls the two states' `field`."""
        return ("a", "b") if self.single else (f"a_{field}", f"b_{field}")

    @property
    def indexed(self) -> bool:
        return "index" in free_names(*self.map.values())


def reduction_of(op: Op, more: Mapping[str, Operand] = MappingProxyType({})) -> Reduction:
    """What `op` says, checked. Raises `SpecError` naming the field. more: what `map` may speak of beside operands."""
    given = op.fields.get("reduce")
    if not isinstance(given, Mapping) or not set(_PARTS) - {"finish"} <= set(given):
        raise _error(op, "reduce", "a reduction needs `reduce:` with identity, map and combine")
    unknown = set(given) - {*_PARTS, "let", "save"}
    if unknown:
        raise _error(op, "reduce", f"unknown fields {', '.join(sorted(map(str, unknown)))}")
    single = not isinstance(given["map"], Mapping)
    texts = {part: _texts(op, part, given[part], single) for part in ("identity", "map", "combine")}
    for part in ("identity", "combine"):
        if set(texts[part]) != set(texts["map"]):
            raise _error(op, f"reduce.{part}", f"has fields {sorted(texts[part])}, map has {sorted(texts['map'])}")
    table = operand_table(op)
    for field in texts["map"]:
        if field in table or field in ("a", "b", "n", "index"):
            raise _error(op, "reduce.map", f"the field {field!r} has the name of a parameter or of the language")
    mapped = {
        f: _parse(op, f"reduce.map.{f}", t, {**table, **more, "index": Operand("index", "full")})
        for f, t in texts["map"].items()
    }
    states = {f: Operand(e.type, "full") for f, e in mapped.items()}
    scalars = {p.name: table[p.name] for p in op.operands if not p.is_tensor}
    found = Reduction({}, mapped, {}, {}, single)
    pairs = {n: states[f] for f in states for n in found.operands(f)}
    combined = _combined(op, texts["combine"], given.get("let", {}), pairs)
    finish = given.get("finish", "acc" if single else {f: f for f in states})
    finished = {
        k: _parse(op, f"reduce.finish.{k}", t, {**states, **scalars, "n": _N})
        for k, t in (finish if isinstance(finish, Mapping) else {"out": finish}).items()
    }
    for result in finished:
        check_name(result, "the result")
        if result in table:
            raise _error(op, "reduce.finish", f"the result {result!r} has the name of a parameter")
    identity = {f: _identity(op, f, t, states[f]) for f, t in texts["identity"].items()}
    for field, expr in combined.items():
        if expr.type != states[field].type:
            raise _error(
                op, f"reduce.combine.{field}", f"gives a {expr.type}, but map gives a {states[field].type}",
                "use `or`, `and` for truth values, where(mask, 1, 0) to count them",
            )  # fmt: skip
    saved = given.get("save", [])
    if not isinstance(saved, list) or (saved and saved != list(finished)[1:][-len(saved) :]):
        raise _error(op, "reduce.save", f"lists the last of the results {', '.join(finished)}, after one that is seen")
    return Reduction(identity, mapped, combined, finished, single, tuple(saved))


def _texts(op: Op, part: str, given: Any, single: bool) -> dict[str, Any]:
    if isinstance(given, Mapping) == single:
        raise _error(op, f"reduce.{part}", "map, identity and combine are all expressions, or all mappings by field")
    texts = {"acc": given} if single else dict(given)
    for field in texts:
        check_name(str(field), "the field")
    return texts


def _combined(op: Op, texts: Mapping[str, Any], lets: Any, pairs: Mapping[str, Operand]) -> dict[str, Expr]:
    table, values = dict(pairs), dict[str, Expr]()
    if not isinstance(lets, Mapping):
        raise _error(op, "reduce.let", "a mapping from names to expressions")
    for let, text in lets.items():
        check_name(str(let), "the let value")
        if let in table:
            raise _error(op, "reduce.let", f"the name {let!r} is taken")
        values[let] = substitute(_parse(op, f"reduce.let.{let}", text, table), values)
        table[let] = Operand(values[let].type, values[let].scope)
    return {f: substitute(_parse(op, f"reduce.combine.{f}", t, table), values) for f, t in texts.items()}


def _identity(op: Op, field: str, text: Any, state: Operand) -> Expr | str:
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
    return parsed(op, _field(field), text if isinstance(text, str) else repr(text), table)


def _error(op: Op, field: str, message: str, suggestion: str | None = None) -> SpecError:
    return SpecError(message, file=op.file, line=op.line, field=_field(field), suggestion=suggestion)


def _field(path: str) -> str:
    """The field as the spec has it: names that were filled in for the only state and the only result left out."""
    return path.removesuffix(".acc").removesuffix(".out")


def _with_results(op: Op, found: Reduction) -> Op:
    """`op` with the results that callers see, as the other kinds have them: gradients are named after these."""
    return replace(op, outputs={k: to_text(e) for k, e in found.finish.items() if k not in found.saved})


def check(op: Op) -> None:
    """Raise `SpecError` where the reduction is wrong."""
    found = reduction_of(op)
    if not any(p.is_tensor for p in op.operands):
        raise _error(op, "op", "a reduction needs a tensor operand")
    used = set(free_names(*found.map.values(), *found.finish.values()))
    for p in op.operands:
        if p.name not in used:
            raise _error(op, "reduce", f"parameter {p.name!r} is used by no expression")
    if op.fields.get("empty", "identity") not in ("identity", "error"):
        raise _error(op, "empty", f"found {op.fields['empty']!r}; it is `identity` or `error`")
    if isinstance(op.grad, Mapping):
        _given_gradients(op, found)


def render(op: Op, environment: Any) -> Rendered:
    """Kernels of all schedules."""
    found = reduction_of(op)
    states = {"first": 0, "second": 1}
    combine_names = {n: f"{s}.{f}" for f in found.map for s, n in zip(states, found.operands(f), strict=True)}
    state_names = {f: f"state.{f}" for f in found.map}
    parts: dict[str, dict[str, Block]] = {}
    for part, exprs, names in (
        ("map", found.map, {}),
        ("combine", found.combine, combine_names),
        ("finish", found.finish, state_names),
    ):
        settled = {k: canonical(e) for k, e in exprs.items()}
        parts[part] = {
            target: emit_opencl(settled, dialect, wrap=True, names=names)
            for target, dialect in (("vector", "vector"), ("scalar", "row"))
        }
    blocks = [b for part in parts.values() for b in part.values()]
    for block in blocks:
        if block.index_functions:
            shown = ", ".join(block.index_functions)
            raise _error(op, "reduce", f"{shown} of an index cannot be reduced", "write it with where")
    # A simple state leaves registers for several independent ones, which hides the latency of an addition.
    simple = found.single and size(found.combine) <= 6 and size(found.map) <= 16
    light = simple or (len(found.map) <= 2 and size(found.combine) <= 16)
    text = environment.get_template("opencl/reduction.cl.j2").render(
        op=op.name,
        title=_title(op, found),
        inputs=[(p.name, p.type) for p in op.operands if p.is_tensor],
        scalars=[p.name for p in op.operands if not p.is_tensor],
        fields=[(f, e.type, spelled_identity(found.identity[f])) for f, e in found.map.items()],
        outputs=[(k, e.type) for k, e in found.finish.items()],
        indexed=found.indexed,
        accumulators=4 if light else 2,
        columns=8 if simple else 4 if light else 2,
        **parts,
    )
    outputs = tuple(_output(op, k, e, k in found.saved) for k, e in found.finish.items())
    detail: dict[str, Any] = {
        "fields": tuple(e.type for e in found.map.values()),
        "indexed": found.indexed,
        "empty": op.fields.get("empty", "identity"),
        "columns": 8 if simple else 4 if light else 2,
    }
    if found.saved:
        seen = _with_results(op, found)
        detail["seeds"] = (*(seed_name(seen, k) for k in seen.outputs), *(f"grad_{k}" for k in found.saved))
    sources = {
        "opencl": Source(text, functions(*blocks)),
        "triton": triton_source(op, found, environment, "reduction.py.j2", title=_title(op, found)),
    }
    return Rendered(outputs, sources, detail)


def bare(op: Op) -> Op | None:
    """`op` without what only its gradients read, for calls that nothing is derived from.

    None where all is seen, where elements that meet in another order may give other bits (schedules go by how much a
    state holds, and a call has the same bits with a gradient and without), or where a parameter would be left unused.
    """
    from ..loader import op_from_mapping

    found = reduction_of(op)
    finish = {k: e for k, e in found.finish.items() if k not in found.saved}
    fields = _reached(found, finish.values())
    combine = {f: found.combine[f] for f in fields}
    used = free_names(*(found.map[f] for f in fields), *finish.values())
    if not found.saved or not all(e.fn in _EVEN for e in combine.values()):
        return None
    if not {p.name for p in op.operands} <= set(used) or "acc" in used:
        return None
    texts: dict[str, Any]
    if len(fields) == 1:  # schedules hold a state without fields in more registers
        (only,) = fields
        pair = dict(zip(found.operands(only), ("a", "b"), strict=True))
        texts = {
            "identity": _spelled(found.identity[only]),
            "map": to_text(found.map[only]),
            "combine": to_text(_renamed(combine[only], pair)),
            "finish": {k: to_text(_renamed(e, {only: "acc"})) for k, e in finish.items()},
        }
    else:
        texts = {
            "identity": {f: _spelled(found.identity[f]) for f in fields},
            "map": {f: to_text(found.map[f]) for f in fields},
            "combine": {f: to_text(e) for f, e in combine.items()},
            "finish": {k: to_text(e) for k, e in finish.items()},
        }
    signature = f"{op.name}_bare({str(op.spec['op']).partition('(')[2]}"
    kept = {k: v for k, v in op.spec.items() if k not in ("grad", "reference", "alias")}
    made = op_from_mapping({**kept, "op": signature, "reduce": texts, "grad": "none"})
    return replace(made, file=op.file, line=op.line)


def _reached(found: Reduction, results: Iterable[Expr]) -> list[str]:
    """The fields of a state that `results` are made of, in the state's order."""
    owner = {n: f for f in found.map for n in found.operands(f)}
    reached: set[str] = set()
    waiting = [n for n in free_names(*results) if n in found.map]
    while waiting:
        field = waiting.pop()
        if field not in reached:
            reached.add(field)
            waiting += [owner[n] for n in free_names(found.combine[field]) if n in owner]
    return [f for f in found.map if f in reached]


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """`expr` with other names, by the old ones."""
    free = [e for e in topological([expr]) if e.fn == "name" and e.value in names]
    return substitute(expr, {str(e.value): name(names[str(e.value)], Operand(e.type, e.scope)) for e in free})


def _spelled(identity: Expr | str) -> str:
    return identity if isinstance(identity, str) else to_text(identity)


def triton_source(op: Op, found: Reduction, environment: Any, template: str, **more: Any) -> Source:
    """The Triton kernels, from a template of states that meet. more: what the template is given beside."""
    pairs = [found.operands(f) for f in found.map]
    scalars = [p.name for p in op.operands if not p.is_tensor]
    inputs = [(p.name, p.type) for p in op.operands if p.is_tensor]
    spelled = triton.python_names([*(n for n, _ in inputs), *scalars, *found.map, *(n for p in pairs for n in p)])
    settled = [{k: canonical(e) for k, e in part.items()} for part in (found.map, found.combine, found.finish)]
    blocks = [emit_triton(part, names=spelled) for part in settled]
    speaks = any(re.search(r"\bC\b", text) for text in (*blocks[1].statements, *blocks[1].values.values()))
    values = [a for (a, _), e in zip(pairs, found.map.values(), strict=True) if e.type == "value"]
    identities = {f: i if isinstance(i, str) else triton.number(i.value) for f, i in found.identity.items()}
    return triton.source(
        template,
        environment,
        functions(*blocks),
        op=op.name,
        inputs=[(spelled.get(n, n), t) for n, t in inputs],
        scalars=[spelled.get(n, n) for n in scalars],
        fields=[(spelled.get(f, f), e.type, LIMITS.get(i := identities[f], i)) for f, e in found.map.items()],
        outputs=[(k, e.type) for k, e in found.finish.items()],
        pairs=[(spelled.get(a, a), spelled.get(b, b)) for a, b in pairs],
        typed=spelled.get(values[0], values[0]) if speaks and values else None,
        limited=any(isinstance(i, str) for i in found.identity.values()),
        map=blocks[0],
        combine=blocks[1],
        finish=blocks[2],
        **more,
    )


def spelled_identity(identity: Expr | str) -> str:
    """An identity as OpenCL kernels have it, without a cast: the template casts to the scalar or the vector."""
    if isinstance(identity, str):
        return LIMITS[identity]
    text = emit_opencl({"": identity}, "row").values[""]
    return text.partition(")")[2]


def _title(op: Op, found: Reduction) -> str:
    def shown(exprs: Mapping[str, Expr]) -> str:
        return "; ".join(f"{k} = {to_text(e)}" for k, e in exprs.items())

    text = f"map {shown(found.map)}, combine {shown(found.combine)}, finish {shown(found.finish)}"
    return f"{op.name}({', '.join(p.name for p in op.params)}): {text[:400]}"


def _output(op: Op, output: str, expr: Expr, saved: bool) -> OutputRow:
    fixed = {"mask": "bool", "index": "index"}
    differentiable = expr.type == "value" and op.grad != "none" and not saved and op.result != "index"
    return OutputRow(output, expr.type, fixed.get(expr.type, op.result), "full", differentiable, saved)


# Gradients: pointwise ops over the incoming gradient, the operands, the results, COUNT and INDEX.


def _names(op: Op, found: Reduction) -> dict[str, Operand]:
    table = operand_table(op)
    table |= {k: Operand(e.type, "full") for k, e in found.finish.items()}
    table |= {seed_name(op, k): Operand("value", "full") for k in op.outputs if found.finish[k].type == "value"}
    return table | {COUNT: _N, INDEX: Operand("index", "full")}


def _given_gradients(op: Op, found: Reduction) -> dict[str, Expr]:
    op = _with_results(op, found)
    table = _names(op, found)
    given = op.grad if isinstance(op.grad, Mapping) else {}
    for key in given:
        if key not in {p.name for p in op.operands if p.is_tensor}:
            raise _error(op, "grad", f"{key!r} is no tensor parameter")
    return {k: parsed(op, f"grad.{k}", v, table) for k, v in given.items()}


def derive(op: Op) -> dict[str, Derived]:
    """A pointwise op a tensor operand of type value: given by the spec, or derived where states are added up."""
    if op.grad == "none":
        return {}
    found = reduction_of(op)
    op = _with_results(op, found)
    wanted = [p.name for p in op.operands if p.is_tensor and p.type == "value"]
    gradients = {k: canonical(e) for k, e in _given_gradients(op, found).items()}
    missing = [w for w in wanted if w not in gradients]
    if missing:
        gradients.update(_derived_gradients(op, found, missing))
    # An operand that no gradient reaches is one that only decides (a comparison): it gets none, and that is no error.
    return {w: _derived(op, found, w, gradients[w]) if w in gradients else Derived((), None) for w in wanted}


def _derived_gradients(op: Op, found: Reduction, wanted: list[str]) -> dict[str, Expr]:
    """The chain rule through finish, sum and map. Raises `SpecError` where the states are not added up."""
    combine = found.combine.get("acc")
    adds = combine is not None and combine.fn == "add" and {a.value for a in combine.args} == {"a", "b"}
    if not (found.single and adds):
        raise _error(op, "grad", "only `combine: a + b` is derived; give the gradient, or `grad: none`")
    full = Operand("value", "full")
    seeds = {k: name(seed_name(op, k), full) for k in op.outputs}
    finish = {k: canonical(found.finish[k]) for k in op.outputs}
    arriving = gradient(finish, seeds, ["acc"]).get("acc")
    if arriving is None:
        return {}
    # The state is not kept, but a result is: what the rule says of the result's own value reads that.
    results = {e: name(k, full) for k, e in finish.items()}
    arriving = rebuild([arriving], results.get)[arriving]
    renamed = {"n": name(COUNT, _N), "index": name(INDEX, Operand("index", "full"))}
    through = gradient({"acc": canonical(found.map["acc"])}, {"acc": arriving}, wanted)
    through = {k: canonical(substitute(e, renamed)) for k, e in through.items()}
    if any("acc" in free_names(e) for e in through.values()):
        raise _error(op, "grad", "the gradient needs the state behind `finish`, which is not kept; give the gradient")
    return through


def _derived(op: Op, found: Reduction, parameter: str, expr: Expr) -> Derived:
    seeds = [seed_name(op, k) for k in op.outputs]
    used = free_names(expr)
    order = [*seeds, *(p.name for p in op.operands), *found.finish, COUNT, INDEX]
    operands = tuple(n for n in order if n in used)
    if to_text(expr) in seeds:
        return Derived(operands, None)
    spec = {
        "op": f"{op.name}_grad_{parameter}({', '.join(_declared(op, found, n) for n in operands)})",
        "kind": "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": named_result(operands, to_text(expr)),
    }
    return Derived(operands, spec)


def _declared(op: Op, found: Reduction, operand: str) -> str:
    known = {COUNT: ": float", INDEX: ": Index"}.get(operand, "")
    if operand in found.finish:
        known = {"mask": ": Mask", "index": ": Index"}.get(found.finish[operand].type, "")
    for p in op.params:
        if p.name == operand:
            known = {"scalar": ": float", "number": ": float"}.get(p.role, "")
            known = {"mask": ": Mask", "index": ": Index"}.get(p.type, known)
    return f"{operand}{known}"
