"""Rowwise: ops over rows of length n, the elements along `dim` or the trailing dimensions of `normalized_shape`.

    let:   named values, in order; each may use the earlier ones
    out:   an expression, or a mapping from result names to expressions
    rows:  dim or normalized_shape, the static parameter that says what a row is (default: dim)

Expressions may use sum, mean, max, min and prod of a row, its length `n`, and `index`, the position in it. A result
that varies along the row has the input's shape; one that does not has one element a row. Two words at the outside of a
result say otherwise: `broadcast(x)` has the input's shape whatever x is, and `column_sum(x)` is summed over the rows
and has one element a position, as a `Row` operand has; its partial sums go through scratch memory.

Derivatives recompute row statistics (a mean, a maximum) where the forward pass had them too: a row that was just read
is in the cache, and one more sweep over it costs less than a result more in every forward call. Results are reused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..expr import (
    MOST_DERIVATIVES_OF_A_PRODUCT,
    ROW,
    Block,
    Expr,
    ExprError,
    OpenCL,
    Operand,
    RowProgram,
    Scope,
    call,
    canonical,
    emit_opencl,
    free_names,
    gradient,
    has_product,
    name,
    parse,
    rebuild,
    row_stages,
    substitute,
    to_text,
    topological,
)
from ..model import Op, Param, SpecError
from ..signature import c_names, check_name
from . import Derived, OutputRow, Rendered, Source, named_result, seed_name
from .pointwise import functions, operand_table
from .row_dialects import ACROSS, SPREAD
from .row_text import shared_parts, short_name
from .rowwise_triton import triton_source

__all__ = ["Result", "check", "derive", "render", "results", "variant"]

_CHEAP = frozenset(("add", "sub", "mul", "neg", "where", "to_value", "detach", "name", "const"))
_WIDE = ("full", "column")
_WRAPPERS = ("broadcast", "column_sum")


@dataclass(frozen=True, slots=True)
class Result:
    """One result: its expression, and whether there is one an element (`full`), a row, or a position (`column`)."""

    expr: Expr
    scope: Scope


# Reading a spec


def results(op: Op) -> dict[str, Result]:
    """The results of `op`, lets written out. Raises `SpecError` naming the field."""
    table, lets = _lets(op)
    found = {}
    for output, text in op.outputs.items():
        field = f"out.{output}" if len(op.outputs) > 1 else "out"
        inner, wrapper = _unwrapped(text)
        expr = substitute(_parsed(op, field, inner, table), lets)
        scope: Scope = "full" if wrapper == "broadcast" or expr.scope in _WIDE else "row"
        found[output] = Result(expr, "column" if wrapper == "column_sum" else scope)
    return found


def _lets(op: Op) -> tuple[dict[str, Operand], dict[str, Expr]]:
    """The names that results may use, and the lets among them as expressions of operands."""
    table = operand_table(op)
    lets: dict[str, Expr] = {}
    given = op.fields.get("let") or {}
    for key, text in given.items():
        if key in table or key in op.outputs:
            raise SpecError(
                f"{key!r} is a parameter or a result already", file=op.file, line=op.line, field=f"let.{key}"
            )
        check_name(key, "the let value")
        lets[key] = substitute(_parsed(op, f"let.{key}", _text(text), table), lets)
        table[key] = Operand(lets[key].type, lets[key].scope)
    return table, lets


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _parsed(op: Op, field: str, text: str, table: Mapping[str, Operand]) -> Expr:
    try:
        return parse(text, operands=table, row=True)
    except ExprError as error:
        raise SpecError(
            error.message + (f" at column {error.column}" if error.column is not None else ""),
            file=op.file, line=op.line, field=field,
            suggestion=error.suggestion and f"did you mean {error.suggestion!r}?",
        ) from None  # fmt: skip


def _unwrapped(text: str) -> tuple[str, str]:
    """What `broadcast(...)` or `column_sum(...)` is around, and which it is."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(" ".join(text.split()), mode="eval").body
        called = tree.func if isinstance(tree, ast.Call) and len(tree.args) == 1 and not tree.keywords else None
        if isinstance(called, ast.Name) and called.id in _WRAPPERS:
            return ast.unparse(tree.args[0]), called.id  # type: ignore[attr-defined]
    return text, ""


def row_argument(op: Op) -> str:
    """The static parameter that says what a row is."""
    return str(op.fields.get("rows", "dim"))


def check(op: Op) -> None:
    """Raise `SpecError` where the spec is wrong."""
    rows = row_argument(op)
    if rows not in ("dim", "normalized_shape"):
        raise SpecError(f"must be dim or normalized_shape, not {rows[:40]!r}", file=op.file, line=op.line, field="rows")
    if rows not in {p.name for p in op.statics}:
        wanted = "dim: int = -1" if rows == "dim" else "normalized_shape: tuple[int, ...]"
        raise SpecError(
            f"the signature lacks {rows!r}", file=op.file, line=op.line, field="op", suggestion=f"add {wanted}"
        )
    if not any(p.is_tensor and p.scope == "full" for p in op.operands):
        raise SpecError("a rowwise op needs an operand that has the rows", file=op.file, line=op.line, field="op")
    made = results(op)
    if op.file != "<derived>":
        used = set(free_names(*(r.expr for r in made.values())))
        for p in op.operands:
            if p.name not in used and p.role != "absent":
                raise SpecError(
                    f"parameter {p.name!r} is used by no expression", file=op.file, line=op.line, field="out"
                )
    if isinstance(op.grad, Mapping):
        _given_gradients(op)


# Optional operands


def variant(op: Op, absent: Iterable[str]) -> Op:
    """`op` where the optional operands `absent` are not given: as a factor such an operand is 1, as a summand 0.

    The operands stay in their places, with the annotation `None`. Raises `SpecError` where one is used otherwise.
    """
    from ..loader import op_from_mapping

    gone = frozenset(absent)
    optional = [p.name for p in op.params if p.role == "optional"]
    suffix = "plain" if len(gone) == len(optional) else "without_" + "_".join(n for n in optional if n in gone)
    spec: dict[str, Any] = {**op.spec, "op": _signature_without(op, gone, short_name(f"{op.name}_{suffix}"))}
    table, _ = _lets(op)
    kept_lets = {}
    for key, text in (op.fields.get("let") or {}).items():
        kept_lets[key] = _without(op, f"let.{key}", _text(text), table, gone)
    if kept_lets:
        spec["let"] = kept_lets
    out = {k: _without(op, "out", t, table, gone) for k, t in op.outputs.items()}
    spec["out"] = out if tuple(out) != ("out",) else out["out"]
    if isinstance(op.grad, Mapping):
        wide = _gradient_table(op)
        spec["grad"] = {k: _without(op, f"grad.{k}", t, wide, gone) for k, t in op.grad.items() if k not in gone}
    return replace(op_from_mapping(spec), file=op.file, line=op.line)


def _signature_without(op: Op, gone: frozenset[str], called: str) -> str:
    tree = ast.parse(f"def {op.spec['op']}: pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    for argument in (*tree.args.args, *tree.args.kwonlyargs):
        if argument.arg in gone:
            argument.annotation = ast.Constant(None)
        elif argument.annotation is not None and op.param(argument.arg).role == "optional":
            argument.annotation = ast.Name("Row" if op.param(argument.arg).scope == "column" else "Tensor")
    return f"{called}({ast.unparse(tree.args)})"


def _without(op: Op, field: str, text: str, table: Mapping[str, Operand], gone: frozenset[str]) -> str:
    inner, wrapper = _unwrapped(text)
    expr = _parsed(op, field, inner, table)
    found = _dropped(op, field, expr, gone)
    if found is None:
        raise SpecError("nothing is left of it without the optional operands", file=op.file, line=op.line, field=field)
    return f"{wrapper}({to_text(found)})" if wrapper else to_text(found)


def _dropped(op: Op, field: str, expr: Expr, gone: frozenset[str]) -> Expr | None:
    """`expr` without the factors and summands in `gone`; None if it is one of them."""
    new: dict[Expr, Expr | None] = {}
    for node in topological([expr]):
        if node.fn == "name" and node.value in gone:
            new[node] = None
            continue
        args = [new[arg] for arg in node.args]
        there = [arg for arg in args if arg is not None]
        if len(there) == len(args):
            new[node] = call(node.fn, *there) if args else node
        elif node.fn in ("mul", "add") and there:
            new[node] = there[0]
        elif node.fn == "sub" and there:
            new[node] = there[0] if args[1] is None else call("neg", there[0])
        else:
            raise SpecError(
                f"an optional operand must be a factor or a summand, not an argument of {node.fn}",
                file=op.file, line=op.line, field=field,
            )  # fmt: skip
    return new[expr]


# Rendering


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass over the row, as the template wants it.

    values: (name, type) for each value computed an element. reads: inputs by position; wide, narrow, numbers: the
    parameters of its function besides. folds: (row value's name, operator) for each reduction of `values`.
    """

    values: tuple[tuple[str, str], ...]
    reads: tuple[int, ...]
    uses_index: bool
    uses_kept: bool
    narrow: tuple[tuple[str, str], ...]
    numbers: tuple[str, ...]
    scalar: Block
    vector: Block
    unroll: int
    folds: tuple[tuple[str, str], ...] = ()


def render(op: Op, environment: Any) -> Rendered:
    """Kernels of all schedules."""
    found = {k: Result(canonical(r.expr), r.scope) for k, r in results(op).items()}
    program = row_stages({k: r.expr for k, r in found.items()})
    whole, swept = {k: program.outputs[k] for k in found}, program
    kept, program = _keep(found, program)
    maker = _Maker(op, found, program)
    text, used = maker.render(environment, kept, whole)
    outputs = tuple(
        OutputRow(k, r.expr.type, {"mask": "bool", "index": "index"}.get(r.expr.type, op.result), r.scope,
                  r.expr.type == "value" and op.grad != "none")
        for k, r in found.items()
    )  # fmt: skip
    detail: dict[str, Any] = {"rows": row_argument(op)}
    if kept is not None:
        detail["keep"] = True
    scopes = {k: (r.expr.type, r.scope) for k, r in found.items()}
    sources = {"opencl": Source(text, used), "triton": triton_source(op, maker.title(), scopes, swept, environment)}
    return Rendered(outputs, sources, detail)


def _keep(found: Mapping[str, Result], program: RowProgram) -> tuple[str | None, RowProgram]:
    """The reduction of the last sweep whose argument the results use again and which is dear: it is kept, not computed
    twice. Its name, and the program with the results that read it."""
    swept = [stage for stage in program.stages if stage.reductions]
    wide = [program.outputs[k] for k, r in found.items() if r.scope != "row"]
    if not swept or not wide or any(r.scope == "column" for r in found.values()):
        return None, program
    again = set(topological(wide))
    for reduction in swept[-1].reductions:
        dear = any(node.fn not in _CHEAP for node in topological([reduction.argument]))
        if dear and reduction.argument in again and reduction.argument.type == "value":
            stand_in = {reduction.argument: name(KEPT, Operand("value", "full"))}
            mapped = rebuild(wide, stand_in.get)
            outputs = {k: mapped.get(e, e) if found[k].scope != "row" else e for k, e in program.outputs.items()}
            return reduction.name, RowProgram(program.stages, outputs)
    return None, program


KEPT = "Kept"  # no operand is called so: their names are lower-case


class _Maker:
    """What the template needs to know about one op."""

    def __init__(self, op: Op, found: Mapping[str, Result], program: RowProgram) -> None:
        self.op, self.found, self.program = op, found, program
        self.inputs = [p for p in op.operands if p.is_tensor]
        self.numbers = {p.name: i for i, p in enumerate(op.operands) if p.role in ("scalar", "number")}
        self.spelled = c_names([*(p.name for p in op.operands), "n", "index", KEPT])
        self.blocks: list[Block] = []
        self.types: dict[str, str] = {p.name: p.type for p in self.inputs if p.scope == "row"}

    def spell(self, text: str) -> str:
        return self.spelled.get(text, text)

    def emit(self, exprs: Mapping[str, Expr], dialect: str | OpenCL, local: str = "t") -> Block:
        block = emit_opencl(exprs, dialect, names=self.spelled, local=local)
        self.blocks.append(block)
        return block

    def sweep(self, exprs: Mapping[str, Expr], folds: Sequence[tuple[str, str]] = ()) -> Sweep:
        used = set(free_names(*exprs.values()))
        rows = [p for p in self.inputs if p.scope == "row" and p.name in used]
        narrow: list[tuple[str, str]] = [(self.spell(p.name), p.type) for p in rows]
        narrow += [(n, t) for n, t in self.row_values() if n in used]
        vector = self.emit(exprs, SPREAD)
        return Sweep(
            values=tuple((k, e.type) for k, e in exprs.items()),
            reads=tuple(k for k, p in enumerate(self.inputs) if p.scope in _WIDE and p.name in used),
            uses_index="index" in used,
            uses_kept=KEPT in used,
            narrow=tuple(narrow),
            numbers=tuple(self.spell(n) for n in ("n", *self.numbers) if n in used),
            scalar=self.emit(exprs, "scalar"),
            vector=vector,
            unroll=1 if vector.functions else 2 if len(exprs) > 1 else 4,
            folds=tuple(folds),
        )

    def row_values(self) -> list[tuple[str, str]]:
        """Reductions and lets, in order, with their types."""
        return [
            *((r.name, "value") for s in self.program.stages for r in s.reductions),
            *((let.name, let.expr.type) for s in self.program.stages for let in s.lets),
        ]

    def render(self, environment: Any, kept: str | None, whole: Mapping[str, Expr]) -> tuple[str, tuple[str, ...]]:
        stages = []
        for number, stage in enumerate(self.program.stages):
            exprs = {f"y{i}": r.argument for i, r in enumerate(stage.reductions)}
            sweep = (
                self.sweep(exprs, [(r.name, r.fn.removeprefix("row_")) for r in stage.reductions]) if exprs else None
            )
            lets = {let.name: let.expr for let in stage.lets}
            types = {let.name: let.expr.type for let in stage.lets}
            keeps = next((i for i, r in enumerate(stage.reductions) if r.name == kept), None)
            stages.append({
                "sweep": sweep, "types": types, "keeps": keeps,
                "lets": self._in_order(lets, ROW, f"t{number}_"),
                "across": self._in_order(lets, ACROSS, f"t{number}_"),
            })  # fmt: skip
        again = {f"y{i}": whole[k] for i, (k, r) in enumerate(self.found.items()) if r.scope != "row"}
        wide = {f"y{i}": self.program.outputs[k] for i, (k, r) in enumerate(self.found.items()) if r.scope != "row"}
        narrow = {f"y{i}": self.program.outputs[k] for i, (k, r) in enumerate(self.found.items()) if r.scope == "row"}
        text = environment.get_template("opencl/rowwise.cl.j2").render(
            op=self.op.name,
            title=self.title(),
            inputs=[(k, self.spell(p.name), p.type, p.scope) for k, p in enumerate(self.inputs)],
            outputs=[(k, r.expr.type, r.scope) for k, r in enumerate(self.found.values(), len(self.inputs))],
            numbers=[(self.spell(n), i) for n, i in self.numbers.items()],
            length=self.spell("n"),
            index=self.spell("index"),
            kept=self.spell(KEPT),
            keep=kept is not None,
            stages=stages,
            final=self.sweep(wide) if wide else None,
            whole=self.sweep(again) if again else None,
            row=self.emit(narrow, ROW, "t9_") if narrow else None,
            across=self.emit(narrow, ACROSS, "t9_") if narrow else None,
        )
        return text, functions(*self.blocks)

    def _in_order(self, lets: Mapping[str, Expr], dialect: OpenCL, local: str) -> list[tuple[str, str, Block]]:
        return [(k, e.type, self.emit({k: e}, dialect, f"{local}{k}_")) for k, e in lets.items()]

    def title(self) -> str:
        """The op in one line."""
        shown = "; ".join(f"{k} = {_shown(r.expr)}" for k, r in self.found.items())
        return f"{self.op.name}({', '.join(p.name for p in self.op.params)}): {shown[:400]}"


def _shown(expr: Expr) -> str:
    with suppress(ExprError):
        return to_text(expr)
    return "..."


# Derivatives


def _gradient_table(op: Op) -> dict[str, Operand]:
    table, _ = _lets(op)
    for output, result in results(op).items():
        table[output] = Operand(result.expr.type, result.scope)
        table[seed_name(op, output)] = Operand("value", result.scope)
    return table


def _given_gradients(op: Op) -> dict[str, Expr]:
    """The gradients that the spec gives, parsed, lets written out."""
    table = _gradient_table(op)
    _, lets = _lets(op)
    given = op.grad if isinstance(op.grad, Mapping) else {}
    for key in given:
        if key not in {p.name for p in op.operands}:
            raise SpecError(f"{key!r} is no parameter", file=op.file, line=op.line, field="grad")
    return {k: canonical(substitute(_parsed(op, f"grad.{k}", v, table), lets)) for k, v in given.items()}


def derive(op: Op) -> dict[str, Derived]:
    """A rowwise op for each tensor operand of type value: given by the spec, or derived from its expressions."""
    if op.grad == "none":
        return {}
    wanted = [p for p in op.operands if p.is_tensor and p.type == "value"]
    found: dict[str, Expr | None] = dict(_given_gradients(op))
    missing = [p.name for p in wanted if p.name not in found]
    if missing:
        outputs = {k: r for k, r in results(op).items() if r.expr.type == "value"}
        seeds = {k: name(seed_name(op, k), Operand("value", r.scope)) for k, r in outputs.items()}
        exprs = {k: canonical(r.expr) for k, r in outputs.items()}
        for parameter in missing if outputs else ():
            with suppress(ExprError):  # a function without derivative: asking for this gradient is an error then
                _check_order(op, exprs)
                found[parameter] = gradient(exprs, seeds, [parameter]).get(parameter)
    rules = {p: found[p.name] for p in wanted if p.name in found}  # None: no gradient reaches it, and that is no error
    made = {p.name: Derived((), None) if e is None else _derived(op, {p: e}) for p, e in rules.items()}
    several = {p: e for p, e in rules.items() if e is not None and made[p.name].spec is not None}
    if op.fields.get("together") and len(several) > 1:
        shared = _derived(op, several)
        made |= {p.name: replace(shared, result=f"d_{p.name}") for p in several}
    return made


def _check_order(op: Op, exprs: Mapping[str, Expr]) -> None:
    """Raise `ExprError` where the next derivative of a product of the row would be wrong if several elements are 0."""
    if op.fields.get("order", 0) >= MOST_DERIVATIVES_OF_A_PRODUCT and any(has_product(e) for e in exprs.values()):
        raise ExprError(f"prod has {MOST_DERIVATIVES_OF_A_PRODUCT} derivatives")


def _derived(op: Op, exprs: Mapping[Param, Expr]) -> Derived:
    """The op that computes the gradient of one operand, or those of several as results d_OPERAND."""
    seeds = {seed_name(op, k): r.scope for k, r in results(op).items()}
    if len(exprs) == 1:
        ((parameter, expr),) = exprs.items()
        if expr.fn == "name" and parameter.scope != "column" and seeds.get(str(expr.value)) == parameter.scope:
            return Derived((str(expr.value),), None)
    scopes = {**seeds, **{p.name: p.scope for p in op.operands if p.role != "absent"}}
    scopes |= {k: r.scope for k, r in results(op).items()}
    used = set(free_names(*exprs.values()))
    order = [*seeds, *(p.name for p in op.operands), *op.outputs]
    if not any(scopes.get(n) == "full" for n in used):
        used.add(next(n for n in order if scopes.get(n) == "full"))  # it says how many rows there are
    operands = tuple(n for n in dict.fromkeys(order) if n in used)
    statics = [ast.unparse(a) for a in _static_arguments(op)]
    shown = ", ".join([*(_declared(op, n, scopes[n]) for n in operands), *statics])
    lets, texts = shared_parts(list(exprs.values()), {*scopes, *(p.name for p in op.params)})
    wrapped = [_wrapped(p, e, text) for (p, e), text in zip(exprs.items(), texts, strict=True)]
    names = [p.name for p in exprs]
    called = f"{op.name}_grad_{names[0]}" if len(names) == 1 else f"{op.name}_grad"
    spec: dict[str, Any] = {
        "op": f"{short_name(called)}({shown})",
        "kind": "rowwise",
        "doc": f"{'Gradient' if len(names) == 1 else 'Gradients'} of {op.name} with respect to {', '.join(names)}.",
        "dtypes": "float",
        "rows": row_argument(op),
        "order": op.fields.get("order", 0) + 1,
        "out": named_result(operands, wrapped[0])
        if len(names) == 1
        else dict(zip((f"d_{n}" for n in names), wrapped, strict=True)),
    }
    if lets:
        spec["let"] = lets
    return Derived(operands, spec)


def _wrapped(parameter: Param, expr: Expr, text: str) -> str:
    """The text of a gradient, which has the scope of its operand."""
    if parameter.scope == "column":
        return f"column_sum({text})"
    return f"broadcast({text})" if parameter.scope == "full" and expr.scope not in _WIDE else text


def _static_arguments(op: Op) -> list[ast.arg]:
    tree = ast.parse(f"def {op.spec['op']}: pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    names = {p.name for p in op.statics}
    return [a for a in (*tree.args.args, *tree.args.kwonlyargs) if a.arg in names]


def _declared(op: Op, operand: str, scope: str) -> str:
    for p in op.params:
        if p.name == operand:
            if p.role in ("scalar", "number"):
                return f"{operand}: float"
            if p.type == "mask":
                return f"{operand}: Mask"
            if p.type == "index":
                return f"{operand}: {'RowIndex' if scope == 'row' else 'Index'}"
    return operand + {"row": ": PerRow", "column": ": Row"}.get(scope, "")
