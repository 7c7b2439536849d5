"""The Triton kernels of a rowwise op: functions of an element and of a row, and the calls that the template makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import triton
from ..expr import Block, Expr, RowProgram, emit_triton, free_names
from ..model import Op
from . import Source
from .pointwise import functions

__all__ = ["triton_source"]


def triton_source(
    op: Op, title: str, scopes: Mapping[str, tuple[str, str]], program: RowProgram, environment: Any
) -> Source:
    """Kernels of both schedules. `scopes`: (type, scope) of each result; `program`: what computes them, in sweeps."""
    return _Maker(op, program).source(title, scopes, environment)


class _Maker:
    """Prints each part as a function of the names that it uses, and spells its call in the kernels' locals."""

    def __init__(self, op: Op, program: RowProgram) -> None:
        self.op, self.program = op, program
        self.inputs = [p for p in op.operands if p.is_tensor]
        self.numbers = {p.name: i for i, p in enumerate(op.operands) if p.role in ("scalar", "number")}
        kept = [r.name for s in program.stages for r in s.reductions] + [v.name for s in program.stages for v in s.lets]
        self.locals = {p.name: f"v{k}" for k, p in enumerate(self.inputs)}
        self.locals |= {n: f"numbers[NUMBER_{i}].to(C)" for n, i in self.numbers.items()}
        self.locals |= {"n": "length", "index": "position", **{name: name for name in kept}}
        self.spelled = triton.python_names(self.locals)
        self.made: list[tuple[str, list[str], Block, list[str]]] = []

    def function(self, suffix: str, exprs: Mapping[str, Expr]) -> str | None:
        """Define the function that computes `exprs`, and give its call; None where there is nothing to compute."""
        if not exprs:
            return None
        used = set(free_names(*exprs.values()))
        names = [n for n in self.locals if n in used]
        block = emit_triton(exprs, names=self.spelled)
        called = f"{self.op.name}_{suffix}"
        self.made.append((called, [self.spelled.get(n, n) for n in names], block, list(exprs)))
        return f"{called}({', '.join([*(self.locals[n] for n in names), 'C'])})"

    def source(self, title: str, scopes: Mapping[str, tuple[str, str]], environment: Any) -> Source:
        stages = []
        for number, stage in enumerate(self.program.stages):
            sweep = self.function(f"sweep{number}", {r.name: r.argument for r in stage.reductions})
            folds = [(r.name, r.fn.removeprefix("row_")) for r in stage.reductions]
            # One after another: a let may use the one before it.
            lets = [(v.name, self.function(f"let_{v.name}", {v.name: v.expr})) for v in stage.lets]
            stages.append((sweep, folds, lets))
        wide = {k: e for k, e in self.program.outputs.items() if scopes[k][1] != "row"}
        narrow = {k: e for k, e in self.program.outputs.items() if scopes[k][1] == "row"}
        final, row = self.function("value", wide), self.function("row", narrow)
        count = len(self.inputs)
        return triton.source(
            "rowwise.py.j2",
            environment,
            functions(*(block for _, _, block, _ in self.made)),
            op=self.op.name,
            title=title,
            inputs=[(k, p.type, p.scope) for k, p in enumerate(self.inputs)],
            outputs=[(count + i, *kind) for i, kind in enumerate(scopes.values())],
            numbers=list(self.numbers.values()),
            defined=self.made,
            stages=stages,
            final=final,
            row=row,
        )
