"""Pointwise: each element of the results from the operands' elements at the same index.

out: an expression, or a mapping from result names to expressions
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .. import triton
from ..expr import (
    Block,
    Expr,
    ExprError,
    Operand,
    canonical,
    emit_opencl,
    emit_triton,
    free_names,
    gradient,
    name,
    parse,
    rebuild,
    size,
    to_text,
)
from ..model import Op, Param, SpecError
from ..signature import c_names
from . import Derived, OutputRow, Rendered, Source, named_result, seed_name

__all__ = ["check", "derive", "expressions", "operand_table", "render", "triton_source"]


def operand_table(op: Op) -> dict[str, Operand]:
    """The names that expressions of `op` may use."""
    return {p.name: Operand(p.type, p.scope) for p in op.operands}


def expressions(op: Op, **options: bool) -> dict[str, Expr]:
    """The results' expressions. Raises `SpecError` naming the field."""
    table = operand_table(op)
    found = {}
    for output, text in op.outputs.items():
        found[output] = parsed(op, f"out.{output}" if len(op.outputs) > 1 else "out", text, table, **options)
    return found


def parsed(op: Op, field: str, text: str, table: Mapping[str, Operand], **options: bool) -> Expr:
    """`text` of `field` as an expression. Raises `SpecError`."""
    try:
        return parse(text, operands=table, **options)
    except ExprError as error:
        raise SpecError(
            error.message + (f" at column {error.column}" if error.column is not None else ""),
            file=op.file, line=op.line, field=field,
            suggestion=error.suggestion and f"did you mean {error.suggestion!r}?",
        ) from None  # fmt: skip


def check(op: Op) -> None:
    """Raise `SpecError` where an expression is wrong."""
    found = expressions(op)
    if not any(p.is_tensor for p in op.operands):
        raise SpecError("a pointwise op needs a tensor operand", file=op.file, line=op.line, field="op")
    used = set(free_names(*found.values()))
    for p in op.operands:
        if p.name not in used and p.role != "static" and not op.fields.get("unused"):
            raise SpecError(f"parameter {p.name!r} is used by no expression", file=op.file, line=op.line, field="out")
    if isinstance(op.grad, Mapping):
        grad_expressions(op)
    overwritten(op)
    flag(op)
    products(op)


def overwritten(op: Op) -> tuple[int, ...]:
    """Of a multi-tensor op, the place among the tensors of the operand that each result is written over; else nothing.

    A result `new_NAME` is written over NAME, a lone `out` over the first tensor. Raises `SpecError` for others.
    """
    if not op.fields.get("multi_tensor"):
        return ()
    names = [p.name for p in op.operands if p.is_tensor and p.type == "value"]
    if len(names) < sum(p.is_tensor for p in op.operands):
        raise SpecError("operands of a multi-tensor op are values", file=op.file, line=op.line, field="multi_tensor")
    found = []
    for output in op.outputs:
        name = names[0] if len(op.outputs) == 1 else output.removeprefix("new_")
        if name not in names:
            raise SpecError(
                f"result {output!r} of a multi-tensor op is written over no operand: it is called new_ and an operand",
                file=op.file, line=op.line, field="out",
            )  # fmt: skip
        found.append(names.index(name))
    return tuple(found)


def flag(op: Op) -> int | None:
    """Of a multi-tensor op, the place among the tensors of the operand that has one element. Raises `SpecError`."""
    if "flag" not in op.fields:
        return None
    names = [p.name for p in op.operands if p.is_tensor]
    wanted = op.fields["flag"]
    if wanted not in names[1:] or names.index(wanted) not in overwritten(op):
        message = f"{wanted!r} is no operand behind the first that a multi-tensor op writes over"
        raise SpecError(message, file=op.file, line=op.line, field="flag")
    return names.index(wanted)


def products(op: Op) -> tuple[int, ...]:
    """Of a step of a recurrence, the operands that are a matrix product with an earlier step's result, by place: there
    is a schedule that computes them as well, and goes on to the next step. Raises `SpecError`."""
    names = [p.name for p in op.operands]
    wanted = op.fields.get("product", {}).get("op", ())
    for each in wanted:
        if each not in names:
            raise SpecError(f"{each!r} is no operand", file=op.file, line=op.line, field="product.op")
    return tuple(names.index(each) for each in wanted)


def render(op: Op, environment: Any) -> Rendered:
    """Kernels of all schedules, in both dialects."""
    found = {k: canonical(e) for k, e in expressions(op).items()}
    spelled = c_names([*(p.name for p in op.operands), *found])
    blocks = {d: emit_opencl(found, d, wrap=True, names=spelled) for d in ("vector", "row")}
    outputs = tuple(_output(op, k, e) for k, e in found.items())
    text = environment.get_template("opencl/pointwise.cl.j2").render(
        op=op.name,
        title=title(op, found),
        inputs=[(spelled.get(p.name, p.name), p.type) for p in op.operands if p.is_tensor],
        unused={spelled.get(p.name, p.name) for p in op.operands} - set(spelled_names(found, spelled)),
        scalars=[(spelled.get(p.name, p.name), i) for i, p in enumerate(op.operands) if not p.is_tensor],
        outputs=[(k, e.type) for k, e in found.items()],
        vector=blocks["vector"],
        scalar=blocks["row"],
        into=overwritten(op),
        flag=flag(op),
        products=products(op),
    )
    detail: dict[str, Any] = {"layout": op.fields["layout"]} if "layout" in op.fields else {}
    if overwritten(op):
        detail["over"] = overwritten(op)
    if flag(op) is not None:
        detail["flag"] = flag(op)
    if products(op):
        detail["products"] = products(op)
    sources = {
        "opencl": Source(text, functions(*blocks.values())),
        "triton": triton_source(op, found, op.operands, environment),
    }
    return Rendered(outputs, sources, detail)


def triton_source(
    op: Op, found: Mapping[str, Expr], operands: Sequence[Param], environment: Any, *, random: bool = False,
    seeded: bool = False,
) -> Source:  # fmt: skip
    """The Triton kernels that compute `found` of `operands`. random: elements have an index; seeded: they draw."""
    spelled = triton.python_names([*(p.name for p in operands), *found, *(["index"] if random else [])])
    block = emit_triton(found, names=spelled)
    return triton.source(
        "pointwise.py.j2",
        environment,
        block.functions,
        op=op.name,
        title=title(op, found),
        inputs=[(spelled.get(p.name, p.name), p.type) for p in operands if p.is_tensor],
        used=set(spelled_names(found, spelled)),
        scalars=[(spelled.get(p.name, p.name), i) for i, p in enumerate(operands) if not p.is_tensor],
        outputs=[(k, e.type) for k, e in found.items()],
        block=block,
        random=random,
        seeded=seeded,
        place=spelled.get("index", "index") if random and "index" in free_names(*found.values()) else None,
        into=() if random else overwritten(op),
        flag=None if random else flag(op),
    )


def spelled_names(found: Mapping[str, Expr], spelled: Mapping[str, str]) -> list[str]:
    """The operands that `found` reads, as kernels spell them."""
    return [spelled.get(n, n) for n in free_names(*found.values())]


def functions(*blocks: Block) -> tuple[str, ...]:
    """The math functions that any of `blocks` calls."""
    return tuple(sorted({f for b in blocks for f in b.functions}))


def title(op: Op, found: Mapping[str, Expr]) -> str:
    """The op in one line, for the head of its kernels."""
    shown = "; ".join(f"{k} = {to_text(e)}" for k, e in found.items())
    return f"{op.name}({', '.join(p.name for p in op.params)}): {shown[:400]}"


def _output(op: Op, output: str, expr: Expr) -> OutputRow:
    result = {"mask": "bool", "index": "index"}.get(expr.type, op.result)
    differentiable = expr.type == "value" and op.grad != "none"
    return OutputRow(output, expr.type, result, "full", differentiable)


def grad_expressions(op: Op) -> dict[str, Expr]:
    """The gradients that the spec gives, parsed."""
    table = operand_table(op)
    for output in op.outputs:
        table[output] = Operand("value", "full")
        seed = seed_name(op, output)
        table[seed] = Operand("value", "full")
    given = op.grad if isinstance(op.grad, Mapping) else {}
    for key in given:
        if key not in {p.name for p in op.operands}:
            raise SpecError(f"{key!r} is no parameter", file=op.file, line=op.line, field="grad")
    return {k: parsed(op, f"grad.{k}", v, table) for k, v in given.items()}


def derive(op: Op) -> dict[str, Derived]:
    """A pointwise op a tensor operand of type value: given by the spec, or derived from its expressions."""
    if op.grad == "none":
        return {}
    found = _gradients(op)
    if op.fields.get("together"):
        return _together(op, found)
    return {w: _flat(op, w) if (expr := found[w]) is None else _derived(op, w, expr) for w in found}


def _gradients(op: Op) -> dict[str, Expr | None]:
    """The gradient of each operand that has one, over operands, results and seeds; None where it is flat."""
    wanted = [p.name for p in op.operands if p.is_tensor and p.type == "value"]
    given = grad_expressions(op) if isinstance(op.grad, Mapping) else {}
    found: dict[str, Expr | None] = dict(given)
    missing = [w for w in wanted if w not in found]
    if missing:
        outputs = {k: canonical(e) for k, e in expressions(op).items() if e.type == "value"}
        seeds = {k: name(seed_name(op, k), Operand("value", "full")) for k in outputs}
        for parameter in missing if outputs else ():
            with suppress(ExprError):  # a function without derivative: asking for this gradient is an error then
                arrived = gradient(outputs, seeds, [parameter])
                found[parameter] = _reusing(arrived[parameter], outputs) if parameter in arrived else None
    return {w: found[w] for w in wanted if w in found}


def _together(op: Op, found: Mapping[str, Expr | None]) -> dict[str, Derived]:
    """One op whose results are all the gradients, each once however many operands have it."""
    seeds = [seed_name(op, k) for k in op.outputs]
    exprs = {w: e for w, e in found.items() if e is not None and to_text(e) not in seeds}
    used = free_names(*exprs.values())
    operands = tuple(n for n in (*seeds, *(p.name for p in op.operands), *op.outputs) if n in used)
    taken = {*operands, *seeds}
    results: dict[Expr, str] = {}
    for parameter, expr in exprs.items():
        if expr not in results:
            results[expr] = _free(f"d_{parameter}", taken)
            taken.add(results[expr])
    shown = ", ".join(_declared(op, n) for n in operands)
    spec = {
        "op": f"{op.name}_grad({shown})",
        "kind": "pointwise",
        "doc": f"Gradients of {op.name} with respect to {', '.join(exprs)}.",
        "dtypes": "float",
        "together": True,
        "out": {result: to_text(expr) for expr, result in results.items()},
    }
    if "grad" in op.fields.get("product", {}):
        spec["product"] = {"op": op.fields["product"]["grad"]}
    shared = {w: Derived(operands, spec, results[e]) for w, e in exprs.items()}
    return {
        w: shared[w] if w in shared else _flat(op, w) if e is None else _derived(op, w, e) for w, e in found.items()
    }


def _free(name: str, taken: Container[str]) -> str:
    """`name`, or the first of `name2`, ... that is not taken."""
    free, order = name, 1
    while free in taken:
        order += 1
        free = f"{name}{order}"
    return free


def _flat(op: Op, parameter: str) -> Derived:
    """The gradient of what is constant almost everywhere: zeros; of another gradient nothing, which is cheaper."""
    if op.file == "<derived>":
        return Derived((), None)
    seed = seed_name(op, next(iter(op.outputs)))
    spec = {
        "op": f"{op.name}_grad_{parameter}({seed})",
        "kind": "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}: 0.",
        "dtypes": "float",
        "unused": True,
        "out": "0",
    }
    return Derived((seed,), spec)


def _reusing(expr: Expr, outputs: Mapping[str, Expr]) -> Expr:
    """`expr` with the op's results in place of what computes them, where that makes it smaller: exp' is `out`."""
    results = {e: name(k, Operand("value", "full")) for k, e in outputs.items() if e.args}
    stated = rebuild([expr], results.get)[expr]
    return stated if size([stated]) < size([expr]) and len(free_names(stated)) <= len(free_names(expr)) else expr


def _derived(op: Op, parameter: str, expr: Expr) -> Derived:
    seeds = [seed_name(op, k) for k in op.outputs]
    used = free_names(expr)
    order = [*seeds, *(p.name for p in op.operands), *op.outputs]
    operands = tuple(n for n in order if n in used)
    if to_text(expr) in seeds:
        return Derived(operands, None)
    shown = ", ".join(_declared(op, n) for n in operands)
    spec = {
        "op": f"{op.name}_grad_{parameter}({shown})",
        "kind": "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": named_result(operands, to_text(expr)),
    }
    return Derived(operands, spec)


def _declared(op: Op, operand: str) -> str:
    for p in op.params:
        if p.name == operand:
            known = {"scalar": ": float", "number": ": float"}.get(p.role, "")
            known = {"mask": ": Mask", "index": ": Index"}.get(p.type, known)
            return f"{operand}{known}"
    return operand
