"""OpenCL kernels of rowwise ops: sweeps over the row, and what their template needs to know about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..expr import (
    OPENCL_ROW,
    Block,
    Expr,
    ExprError,
    OpenCL,
    Operand,
    RowProgram,
    emit_opencl,
    free_names,
    rebuild,
    to_text,
    topological,
    variable,
)
from ..model import Op
from ..signature import c_names
from .pointwise import math_functions
from .row_dialects import ACROSS, BROADCAST
from .rowwise_spec import WIDE, Result

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["OpenCLRenderer", "Sweep", "choose_cached_argument"]

_CHEAP = frozenset(("add", "sub", "mul", "neg", "where", "to_value", "detach", "name", "const"))
CACHED_ARGUMENT = "Kept"  # differs from all operands: their names are lower-case


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


def choose_cached_argument(results: Mapping[str, Result], program: RowProgram) -> tuple[str | None, RowProgram]:
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
            replacement = {reduction.argument: variable(CACHED_ARGUMENT, Operand("value", "full"))}
            rebuilt = rebuild(elementwise, replacement.get)
            outputs = {k: rebuilt.get(e, e) if results[k].scope != "row" else e for k, e in program.outputs.items()}
            return reduction.name, RowProgram(program.stages, outputs)
    return None, program


class OpenCLRenderer:
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
        vector = self.emit(exprs, BROADCAST)
        return Sweep(
            values=tuple((k, e.type) for k, e in exprs.items()),
            reads=tuple(k for k, p in enumerate(self.inputs) if p.scope in WIDE and p.name in used_names),
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
                "lets": self._in_order(lets, OPENCL_ROW, f"t{number}_"),
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
            final_uncached=self.sweep(recomputed) if recomputed else None,
            row=self.emit(per_row, OPENCL_ROW, "t9_") if per_row else None,
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
