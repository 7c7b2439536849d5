"""Rowwise ops (softmax, layer norm): a row of length n is the elements along `dim` or `normalized_shape`.

    let:   named values, in order; each may use the earlier ones
    out:   an expression, or a mapping from result names to expressions
    rows:  dim or normalized_shape, the static parameter that defines a row (default: dim)

Expressions may use sum, mean, max, min and prod of a row, its length `n`, and `index`, the position in the row. A
result that varies along the row has the input's shape; any other has one element per row. Two outermost functions
change that: `broadcast(x)` always has the input's shape, and `column_sum(x)` sums over the rows and has one element per
position in the row, like a `Row` operand. Its partial sums go through scratch memory.

Gradients reuse the op's results but recompute row statistics such as a mean: the row is in the cache then, and another
sweep over it costs less than saving one more result in every forward call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..expr import (
    MAX_PRODUCT_DERIVATIVES,
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
from ..fields import OUT, TOGETHER, Fields
from ..model import Op, Param, SpecError
from ..signature import c_names, check_name
from . import Derived, OutputRow, Rendered, Source, named_result, seed_name
from .pointwise import math_functions, operand_table
from .row_dialects import ACROSS, SPREAD
from .row_text import shared_parts, short_name
from .rowwise_triton import triton_source

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["DEFAULT_DTYPES", "FIELDS", "REQUIRED", "Result", "check", "derive", "render", "results", "variant"]

FIELDS: Fields = {
    "let": ((dict,), "named intermediate values"),
    "out": OUT,
    "save": ((list,), "values saved for backward besides those inferred"),
    "rows": ((str,), "the parameter that defines a row: dim or normalized_shape"),
    "together": TOGETHER,
    "order": ((int,), "of a derived op: the order of derivative"),
}
REQUIRED = ("out",)
DEFAULT_DTYPES = "float"

_CHEAP = frozenset(("add", "sub", "mul", "neg", "where", "to_value", "detach", "name", "const"))
_WIDE = ("full", "column")
_WRAPPERS = ("broadcast", "column_sum")


@dataclass(frozen=True, slots=True)
class Result:
    """One result: its expression, and its scope: one per element (`full`), per `row`, or per position (`column`)."""

    expr: Expr
    scope: Scope


# Reading a spec


def results(op: Op) -> dict[str, Result]:
    """Parse the results of `op`, with lets expanded. Raises `SpecError`, which names the field."""
    table, lets = _parse_lets(op)
    parsed_results = {}
    for output, text in op.outputs.items():
        field = f"out.{output}" if len(op.outputs) > 1 else "out"
        inner, wrapper = _split_wrapper(text)
        expr = substitute(_parse_expr(op, field, inner, table), lets)
        scope: Scope = "full" if wrapper == "broadcast" or expr.scope in _WIDE else "row"
        parsed_results[output] = Result(expr, "column" if wrapper == "column_sum" else scope)
    return parsed_results


def _parse_lets(op: Op) -> tuple[dict[str, Operand], dict[str, Expr]]:
    """Return the names that results may use, and the lets as expressions of operands."""
    table = operand_table(op)
    lets: dict[str, Expr] = {}
    let_texts = op.fields.get("let") or {}
    for key, text in let_texts.items():
        if key in table or key in op.outputs:
            raise SpecError(
                f"{key!r} is a parameter or a result already", file=op.file, line=op.line, field=f"let.{key}"
            )
        check_name(key, "the let value")
        lets[key] = substitute(_parse_expr(op, f"let.{key}", _text(text), table), lets)
        table[key] = Operand(lets[key].type, lets[key].scope)
    return table, lets


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _parse_expr(op: Op, field: str, text: str, table: Mapping[str, Operand]) -> Expr:
    try:
        return parse(text, operands=table, row=True)
    except ExprError as error:
        raise SpecError(
            error.message + (f" at column {error.column}" if error.column is not None else ""),
            file=op.file, line=op.line, field=field,
            suggestion=error.suggestion and f"did you mean {error.suggestion!r}?",
        ) from None  # fmt: skip


def _split_wrapper(text: str) -> tuple[str, str]:
    """Return the argument of an outermost `broadcast(...)` or `column_sum(...)`, and the function's name or ""."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(" ".join(text.split()), mode="eval").body
        callee = tree.func if isinstance(tree, ast.Call) and len(tree.args) == 1 and not tree.keywords else None
        if isinstance(callee, ast.Name) and callee.id in _WRAPPERS:
            return ast.unparse(tree.args[0]), callee.id  # type: ignore[attr-defined]
    return text, ""


def row_argument(op: Op) -> str:
    """Return the name of the static parameter that defines a row."""
    return str(op.fields.get("rows", "dim"))


def check(op: Op) -> None:
    """Raise `SpecError` if the spec is wrong."""
    rows = row_argument(op)
    if rows not in ("dim", "normalized_shape"):
        raise SpecError(f"must be dim or normalized_shape, not {rows[:40]!r}", file=op.file, line=op.line, field="rows")
    if rows not in {p.name for p in op.statics}:
        parameter_text = "dim: int = -1" if rows == "dim" else "normalized_shape: tuple[int, ...]"
        raise SpecError(
            f"the signature lacks {rows!r}", file=op.file, line=op.line, field="op", suggestion=f"add {parameter_text}"
        )
    if not any(p.is_tensor and p.scope == "full" for p in op.operands):
        raise SpecError("a rowwise op needs an operand that has the rows", file=op.file, line=op.line, field="op")
    parsed_results = results(op)
    if op.file != "<derived>":
        used_names = set(free_names(*(r.expr for r in parsed_results.values())))
        for p in op.operands:
            if p.name not in used_names and p.role != "absent":
                raise SpecError(
                    f"parameter {p.name!r} is used by no expression", file=op.file, line=op.line, field="out"
                )
    if isinstance(op.grad, Mapping):
        _spec_gradients(op)


# Optional operands


def variant(op: Op, absent: Iterable[str]) -> dict[str, Any]:
    """Return the spec of `op` without the optional operands `absent`: a missing factor is 1, a missing summand is 0.

    Their parameters remain, annotated `None`.

    Raises:
        SpecError: if an optional operand is used in another way.
    """
    missing = frozenset(absent)
    optional = [p.name for p in op.params if p.role == "optional"]
    suffix = "plain" if len(missing) == len(optional) else "without_" + "_".join(n for n in optional if n in missing)
    spec: dict[str, Any] = {**op.spec, "op": _signature_without(op, missing, short_name(f"{op.name}_{suffix}"))}
    table, _ = _parse_lets(op)
    let_texts = {}
    for key, text in (op.fields.get("let") or {}).items():
        let_texts[key] = _without(op, f"let.{key}", _text(text), table, missing)
    if let_texts:
        spec["let"] = let_texts
    out = {k: _without(op, "out", t, table, missing) for k, t in op.outputs.items()}
    spec["out"] = out if tuple(out) != ("out",) else out["out"]
    if isinstance(op.grad, Mapping):
        names = _gradient_table(op)
        spec["grad"] = {k: _without(op, f"grad.{k}", t, names, missing) for k, t in op.grad.items() if k not in missing}
    return spec


def _signature_without(op: Op, missing: frozenset[str], op_name: str) -> str:
    tree = ast.parse(f"def {op.spec['op']}: pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    for argument in (*tree.args.args, *tree.args.kwonlyargs):
        if argument.arg in missing:
            argument.annotation = ast.Constant(None)
        elif argument.annotation is not None and op.param(argument.arg).role == "optional":
            argument.annotation = ast.Name("Row" if op.param(argument.arg).scope == "column" else "Tensor")
    return f"{op_name}({ast.unparse(tree.args)})"


def _without(op: Op, field: str, text: str, table: Mapping[str, Operand], missing: frozenset[str]) -> str:
    inner, wrapper = _split_wrapper(text)
    expr = _parse_expr(op, field, inner, table)
    remaining = _drop_operands(op, field, expr, missing)
    if remaining is None:
        raise SpecError("nothing remains without the optional operands", file=op.file, line=op.line, field=field)
    return f"{wrapper}({to_text(remaining)})" if wrapper else to_text(remaining)


def _drop_operands(op: Op, field: str, expr: Expr, missing: frozenset[str]) -> Expr | None:
    """Remove the factors and summands in `missing` from `expr`; None if nothing remains."""
    rebuilt: dict[Expr, Expr | None] = {}
    for node in topological([expr]):
        if node.fn == "name" and node.value in missing:
            rebuilt[node] = None
            continue
        args = [rebuilt[arg] for arg in node.args]
        present = [arg for arg in args if arg is not None]
        if len(present) == len(args):
            rebuilt[node] = call(node.fn, *present) if args else node
        elif node.fn in ("mul", "add") and present:
            rebuilt[node] = present[0]
        elif node.fn == "sub" and present:
            rebuilt[node] = present[0] if args[1] is None else call("neg", present[0])
        else:
            raise SpecError(
                f"an optional operand must be a factor or a summand, not an argument of {node.fn}",
                file=op.file, line=op.line, field=field,
            )  # fmt: skip
    return rebuilt[expr]


# Rendering


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass over the row, for the template.

    values: (name, type) of each value computed per element. reads: positions of the inputs it reads. narrow, numbers:
    its function's per-row parameters and numbers. folds: (name of the row value, operator) per reduction of `values`.
    """

    values: tuple[tuple[str, str], ...]
    reads: tuple[int, ...]
    uses_index: bool
    uses_cached: bool
    narrow: tuple[tuple[str, str], ...]
    numbers: tuple[str, ...]
    scalar: Block
    vector: Block
    unroll: int
    folds: tuple[tuple[str, str], ...] = ()


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of all schedules."""
    canonical_results = {k: Result(canonical(r.expr), r.scope) for k, r in results(op).items()}
    program = row_stages({k: r.expr for k, r in canonical_results.items()})
    uncached_exprs, uncached = {k: program.outputs[k] for k in canonical_results}, program
    cached_reduction, program = _choose_cached_argument(canonical_results, program)
    writer = _OpenCLRenderer(op, canonical_results, program)
    text, used = writer.render(environment, cached_reduction, uncached_exprs)
    outputs = tuple(
        OutputRow(k, r.expr.type, {"mask": "bool", "index": "index"}.get(r.expr.type, op.result), r.scope,
                  r.expr.type == "value" and op.grad != "none")
        for k, r in canonical_results.items()
    )  # fmt: skip
    detail: dict[str, Any] = {"rows": row_argument(op)}
    if cached_reduction is not None:
        detail["keep"] = True
    scopes = {k: (r.expr.type, r.scope) for k, r in canonical_results.items()}
    sources = {"opencl": Source(text, used), "triton": triton_source(op, writer.title(), scopes, uncached, environment)}
    return Rendered(outputs, sources, detail)


def _choose_cached_argument(results: Mapping[str, Result], program: RowProgram) -> tuple[str | None, RowProgram]:
    """Choose a costly argument of a reduction in the last sweep that the results use again, to cache it.

    Return the reduction's name (None: nothing to cache), and the program whose results read the cached values.
    """
    sweeps = [stage for stage in program.stages if stage.reductions]
    elementwise = [program.outputs[k] for k, r in results.items() if r.scope != "row"]
    if not sweeps or not elementwise or any(r.scope == "column" for r in results.values()):
        return None, program
    recomputed_nodes = set(topological(elementwise))
    for reduction in sweeps[-1].reductions:
        is_costly = any(node.fn not in _CHEAP for node in topological([reduction.argument]))
        if is_costly and reduction.argument in recomputed_nodes and reduction.argument.type == "value":
            replacement = {reduction.argument: name(CACHED_ARGUMENT, Operand("value", "full"))}
            rebuilt = rebuild(elementwise, replacement.get)
            outputs = {k: rebuilt.get(e, e) if results[k].scope != "row" else e for k, e in program.outputs.items()}
            return reduction.name, RowProgram(program.stages, outputs)
    return None, program


CACHED_ARGUMENT = "Kept"  # differs from all operands: their names are lower-case


class _OpenCLRenderer:
    """Computes the template's variables for one op."""

    def __init__(self, op: Op, results: Mapping[str, Result], program: RowProgram) -> None:
        self.op, self.results, self.program = op, results, program
        self.inputs = [p for p in op.operands if p.is_tensor]
        self.numbers = {p.name: i for i, p in enumerate(op.operands) if p.role in ("scalar", "number")}
        self.kernel_names = c_names([*(p.name for p in op.operands), "n", "index", CACHED_ARGUMENT])
        self.blocks: list[Block] = []
        self.types: dict[str, str] = {p.name: p.type for p in self.inputs if p.scope == "row"}

    def kernel_name(self, text: str) -> str:
        return self.kernel_names.get(text, text)

    def emit(self, exprs: Mapping[str, Expr], dialect: str | OpenCL, local: str = "t") -> Block:
        block = emit_opencl(exprs, dialect, names=self.kernel_names, local=local)
        self.blocks.append(block)
        return block

    def sweep(self, exprs: Mapping[str, Expr], folds: Sequence[tuple[str, str]] = ()) -> Sweep:
        used_names = set(free_names(*exprs.values()))
        row_inputs = [p for p in self.inputs if p.scope == "row" and p.name in used_names]
        row_parameters: list[tuple[str, str]] = [(self.kernel_name(p.name), p.type) for p in row_inputs]
        row_parameters += [(n, t) for n, t in self.row_values() if n in used_names]
        vector = self.emit(exprs, SPREAD)
        return Sweep(
            values=tuple((k, e.type) for k, e in exprs.items()),
            reads=tuple(k for k, p in enumerate(self.inputs) if p.scope in _WIDE and p.name in used_names),
            uses_index="index" in used_names,
            uses_cached=CACHED_ARGUMENT in used_names,
            narrow=tuple(row_parameters),
            numbers=tuple(self.kernel_name(n) for n in ("n", *self.numbers) if n in used_names),
            scalar=self.emit(exprs, "scalar"),
            vector=vector,
            unroll=1 if vector.functions else 2 if len(exprs) > 1 else 4,
            folds=tuple(folds),
        )

    def row_values(self) -> list[tuple[str, str]]:
        """Return the names and types of reductions and lets, in order."""
        return [
            *((r.name, "value") for s in self.program.stages for r in s.reductions),
            *((let.name, let.expr.type) for s in self.program.stages for let in s.lets),
        ]

    def render(
        self, environment: Environment, cached: str | None, uncached: Mapping[str, Expr]
    ) -> tuple[str, tuple[str, ...]]:
        stages = []
        for number, stage in enumerate(self.program.stages):
            exprs = {f"y{i}": r.argument for i, r in enumerate(stage.reductions)}
            sweep = (
                self.sweep(exprs, [(r.name, r.fn.removeprefix("row_")) for r in stage.reductions]) if exprs else None
            )
            lets = {let.name: let.expr for let in stage.lets}
            types = {let.name: let.expr.type for let in stage.lets}
            cached_index = next((i for i, r in enumerate(stage.reductions) if r.name == cached), None)
            stages.append({
                "sweep": sweep, "types": types, "cached_index": cached_index,
                "lets": self._in_order(lets, ROW, f"t{number}_"),
                "across": self._in_order(lets, ACROSS, f"t{number}_"),
            })  # fmt: skip
        recomputed = {f"y{i}": uncached[k] for i, (k, r) in enumerate(self.results.items()) if r.scope != "row"}
        full = {f"y{i}": self.program.outputs[k] for i, (k, r) in enumerate(self.results.items()) if r.scope != "row"}
        per_row = {
            f"y{i}": self.program.outputs[k] for i, (k, r) in enumerate(self.results.items()) if r.scope == "row"
        }
        text = environment.get_template("opencl/rowwise.cl.j2").render(
            op=self.op.name,
            title=self.title(),
            inputs=[(k, self.kernel_name(p.name), p.type, p.scope) for k, p in enumerate(self.inputs)],
            outputs=[(k, r.expr.type, r.scope) for k, r in enumerate(self.results.values(), len(self.inputs))],
            numbers=[(self.kernel_name(n), i) for n, i in self.numbers.items()],
            length=self.kernel_name("n"),
            index=self.kernel_name("index"),
            cached=self.kernel_name(CACHED_ARGUMENT),
            has_cache=cached is not None,
            stages=stages,
            final=self.sweep(full) if full else None,
            whole=self.sweep(recomputed) if recomputed else None,
            row=self.emit(per_row, ROW, "t9_") if per_row else None,
            across=self.emit(per_row, ACROSS, "t9_") if per_row else None,
        )
        return text, math_functions(*self.blocks)

    def _in_order(self, lets: Mapping[str, Expr], dialect: OpenCL, local: str) -> list[tuple[str, str, Block]]:
        return [(k, e.type, self.emit({k: e}, dialect, f"{local}{k}_")) for k, e in lets.items()]

    def title(self) -> str:
        """Return a one-line description of the op."""
        expr_text = "; ".join(f"{k} = {_expr_text(r.expr)}" for k, r in self.results.items())
        return f"{self.op.name}({', '.join(p.name for p in self.op.params)}): {expr_text[:400]}"


def _expr_text(expr: Expr) -> str:
    with suppress(ExprError):
        return to_text(expr)
    return "..."


# Derivatives


def _gradient_table(op: Op) -> dict[str, Operand]:
    table, _ = _parse_lets(op)
    for output, result in results(op).items():
        table[output] = Operand(result.expr.type, result.scope)
        table[seed_name(op, output)] = Operand("value", result.scope)
    return table


def _spec_gradients(op: Op) -> dict[str, Expr]:
    """Parse the gradients in the spec's `grad`, with lets expanded."""
    table = _gradient_table(op)
    _, lets = _parse_lets(op)
    texts = op.grad if isinstance(op.grad, Mapping) else {}
    for key in texts:
        if key not in {p.name for p in op.operands}:
            raise SpecError(f"{key!r} is no parameter", file=op.file, line=op.line, field="grad")
    return {k: canonical(substitute(_parse_expr(op, f"grad.{k}", v, table), lets)) for k, v in texts.items()}


def derive(op: Op) -> dict[str, Derived]:
    """Return a rowwise gradient op per tensor operand of type value: from the spec's `grad`, or derived."""
    if op.grad == "none":
        return {}
    differentiable = [p for p in op.operands if p.is_tensor and p.type == "value"]
    gradients: dict[str, Expr | None] = dict(_spec_gradients(op))
    missing = [p.name for p in differentiable if p.name not in gradients]
    if missing:
        outputs = {k: r for k, r in results(op).items() if r.expr.type == "value"}
        seeds = {k: name(seed_name(op, k), Operand("value", r.scope)) for k, r in outputs.items()}
        exprs = {k: canonical(r.expr) for k, r in outputs.items()}
        for parameter in missing if outputs else ():
            with suppress(ExprError):  # a function has no derivative: the runtime raises if this gradient is needed
                _check_order(op, exprs)
                gradients[parameter] = gradient(exprs, seeds, [parameter]).get(parameter)
    rules = {p: gradients[p.name] for p in differentiable if p.name in gradients}  # None: zero gradient
    derived = {p.name: Derived((), None) if e is None else _gradient_op(op, {p: e}) for p, e in rules.items()}
    shared_exprs = {p: e for p, e in rules.items() if e is not None and derived[p.name].spec is not None}
    if op.fields.get("together") and len(shared_exprs) > 1:
        shared = _gradient_op(op, shared_exprs)
        derived |= {p.name: replace(shared, result=f"d_{p.name}") for p in shared_exprs}
    return derived


def _check_order(op: Op, exprs: Mapping[str, Expr]) -> None:
    """Raise `ExprError` if the next derivative of a row product would be wrong for rows with several zeros."""
    if op.fields.get("order", 0) >= MAX_PRODUCT_DERIVATIVES and any(has_product(e) for e in exprs.values()):
        raise ExprError(f"prod has {MAX_PRODUCT_DERIVATIVES} derivatives")


def _gradient_op(op: Op, exprs: Mapping[Param, Expr]) -> Derived:
    """Return the op that computes the gradient of one operand, or of several as results d_OPERAND."""
    seeds = {seed_name(op, k): r.scope for k, r in results(op).items()}
    if len(exprs) == 1:
        ((parameter, expr),) = exprs.items()
        if expr.fn == "name" and parameter.scope != "column" and seeds.get(str(expr.value)) == parameter.scope:
            return Derived((str(expr.value),), None)
    scopes = {**seeds, **{p.name: p.scope for p in op.operands if p.role != "absent"}}
    scopes |= {k: r.scope for k, r in results(op).items()}
    used_names = set(free_names(*exprs.values()))
    candidates = [*seeds, *(p.name for p in op.operands), *op.outputs]
    if not any(scopes.get(n) == "full" for n in used_names):
        used_names.add(next(n for n in candidates if scopes.get(n) == "full"))  # for the number of rows
    operands = tuple(n for n in dict.fromkeys(candidates) if n in used_names)
    statics = [ast.unparse(a) for a in _static_arguments(op)]
    parameter_list = ", ".join([*(_declare_operand(op, n, scopes[n]) for n in operands), *statics])
    lets, texts = shared_parts(list(exprs.values()), {*scopes, *(p.name for p in op.params)})
    wrapped = [_wrap_for_scope(p, e, text) for (p, e), text in zip(exprs.items(), texts, strict=True)]
    names = [p.name for p in exprs]
    op_name = f"{op.name}_grad_{names[0]}" if len(names) == 1 else f"{op.name}_grad"
    spec: dict[str, Any] = {
        "op": f"{short_name(op_name)}({parameter_list})",
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


def _wrap_for_scope(parameter: Param, expr: Expr, text: str) -> str:
    """Wrap the text of a gradient so that it has the scope of its operand."""
    if parameter.scope == "column":
        return f"column_sum({text})"
    return f"broadcast({text})" if parameter.scope == "full" and expr.scope not in _WIDE else text


def _static_arguments(op: Op) -> list[ast.arg]:
    tree = ast.parse(f"def {op.spec['op']}: pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    names = {p.name for p in op.statics}
    return [a for a in (*tree.args.args, *tree.args.kwonlyargs) if a.arg in names]


def _declare_operand(op: Op, operand: str, scope: str) -> str:
    for p in op.params:
        if p.name == operand:
            if p.role in ("scalar", "number"):
                return f"{operand}: float"
            if p.type == "mask":
                return f"{operand}: Mask"
            if p.type == "index":
                return f"{operand}: {'RowIndex' if scope == 'row' else 'Index'}"
    return operand + {"row": ": PerRow", "column": ": Row"}.get(scope, "")
