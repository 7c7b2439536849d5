"""Triton kernels of rowwise ops: helper functions per element and per row, and the calls that the template makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import triton
from ..expr import Block, Expr, RowProgram, emit_triton, free_names
from ..model import Op
from . import Source
from .pointwise import math_functions

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["triton_source"]


def triton_source(
    op: Op, title: str, scopes: Mapping[str, tuple[str, str]], program: RowProgram, environment: Environment
) -> Source:
    """Render the kernels of both schedules.

    Args:
        op: the op.
        title: the comment at the top of the kernels.
        scopes: (type, scope) of each result.
        program: the expressions of the results, split into sweeps over the row.
        environment: the Jinja2 environment with the templates.
    """
    return _TritonRenderer(op, program).source(title, scopes, environment)


class _TritonRenderer:
    """Print each part of the program as a function of the names it uses, and its call with the kernel's locals.

    Attributes:
        op: The op.
        program: Its expressions, split into sweeps over the row.
        inputs: The tensor operands.
        numbers: Position of each scalar operand, by name.
        locals: The kernel's Python expression for each name of the spec.
        kernel_names: Names of the spec that are not valid in Triton, and what replaces them.
        definitions: (name, parameters, body, results) of each printed function, in order.
    """

    def __init__(self, op: Op, program: RowProgram) -> None:
        self.op, self.program = op, program
        self.inputs = [p for p in op.operands if p.is_tensor]
        self.numbers = {p.name: i for i, p in enumerate(op.operands) if p.role in ("scalar", "number")}
        row_values = [r.name for s in program.stages for r in s.reductions] + [
            v.name for s in program.stages for v in s.lets
        ]
        self.locals = {p.name: f"v{k}" for k, p in enumerate(self.inputs)}
        self.locals |= {n: f"numbers[NUMBER_{i}].to(C)" for n, i in self.numbers.items()}
        self.locals |= {"n": "length", "index": "position", **{name: name for name in row_values}}
        self.kernel_names = triton.python_names(self.locals)
        self.definitions: list[tuple[str, list[str], Block, list[str]]] = []

    def function(self, suffix: str, exprs: Mapping[str, Expr]) -> str | None:
        """Define the function that computes `exprs` and return its call; None if `exprs` is empty."""
        if not exprs:
            return None
        used_names = set(free_names(*exprs.values()))
        names = [n for n in self.locals if n in used_names]
        block = emit_triton(exprs, names=self.kernel_names)
        function_name = f"{self.op.name}_{suffix}"
        self.definitions.append((function_name, [self.kernel_names.get(n, n) for n in names], block, list(exprs)))
        return f"{function_name}({', '.join([*(self.locals[n] for n in names), 'C'])})"

    def source(self, title: str, scopes: Mapping[str, tuple[str, str]], environment: Environment) -> Source:
        """Render the template with the calls of all parts; see `triton_source`."""
        stages = []  # for each sweep: its call, the (name, fold) of its reductions, and the values computed after it
        for number, stage in enumerate(self.program.stages):
            sweep = self.function(f"sweep{number}", {r.name: r.argument for r in stage.reductions})
            folds = [(r.name, r.fn.removeprefix("row_")) for r in stage.reductions]
            # One function per let: a let may use earlier ones.
            lets = [(v.name, self.function(f"let_{v.name}", {v.name: v.expr})) for v in stage.lets]
            stages.append((sweep, folds, lets))
        elementwise = {k: e for k, e in self.program.outputs.items() if scopes[k][1] != "row"}
        per_row = {k: e for k, e in self.program.outputs.items() if scopes[k][1] == "row"}
        elementwise_call, row_call = self.function("value", elementwise), self.function("row", per_row)
        input_count = len(self.inputs)
        return triton.source(
            "rowwise.py.j2",
            environment,
            math_functions(*(block for _, _, block, _ in self.definitions)),
            op=self.op.name,
            title=title,
            inputs=[(k, p.type, p.scope) for k, p in enumerate(self.inputs)],
            outputs=[(input_count + i, *kind) for i, kind in enumerate(scopes.values())],
            numbers=list(self.numbers.values()),
            defined=self.definitions,
            stages=stages,
            final=elementwise_call,
            row=row_call,
        )
