"""Triton kernels of rowwise ops: helper functions per element and per row, and the calls that the template makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from .. import triton
from ..expr import Block, Expr, RowProgram, Stage, emit_triton, free_names
from ..model import Op
from . import Source
from .pointwise import math_functions

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["triton_source"]

_Lets: TypeAlias = list[tuple[str, str | None]]
_StageCalls: TypeAlias = tuple[str | None, list[tuple[str, str]], _Lets]
"""A stage's sweep as a call, its (name, fold) of each reduction, and the calls of its lets."""
_PassCalls: TypeAlias = tuple[str | None, list[tuple[str, str]], _Lets, tuple[list[tuple[str, str, str | None]], _Lets]]
"""The same with the (sum, maximum, call of top) that the sweep computes as well, and the lets that follow from them."""


def triton_source(
    op: Op, title: str, types_and_scopes: Mapping[str, tuple[str, str]], program: RowProgram, environment: Environment
) -> Source:
    """Render the kernels of both schedules.

    Args:
        op: the op.
        title: the comment at the top of the kernels.
        types_and_scopes: (type, scope) of each result.
        program: the expressions of the results, split into sweeps over the row.
        environment: the Jinja2 environment with the templates.
    """
    return _TritonRenderer(op, program).source(title, types_and_scopes, environment)


def _maxima_of_exponents(previous: Stage, stage: Stage) -> dict[str, str]:
    """Return sum -> maximum if all reductions of a stage are sums of exp(x - top), and `previous` has max(x).

    `top` is any value per row. Empty if a reduction is of another form.
    """
    maxima = {r.argument: r.name for r in previous.reductions if r.fn == "row_max"}
    exponents = {r.name: _exponent(r.argument) for r in stage.reductions if r.fn == "row_sum"}
    names = {name: maxima[x] for name, x in exponents.items() if x is not None and x in maxima}
    return names if len(names) == len(stage.reductions) == len(set(names.values())) else {}


def _exponent(expr: Expr) -> Expr | None:
    """Return x if `expr` is exp(x - top) with one value `top` for a whole row, else None."""
    difference = expr.args[0] if expr.fn == "exp" else None
    if difference is None or difference.fn != "sub" or difference.args[1].scope not in ("row", "scalar"):
        return None
    return difference.args[0]


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

    def _merge_exp_sums(self, stages: list[_StageCalls]) -> list[_PassCalls]:
        """Return the sweeps of `swept`: a sum of exp(x - top) is computed in the sweep that finds the maximum of x.

        The state of a lane is the maximum so far, m, and the sum of exp(x - m), which shrinks when m grows (Milakov and
        Gimelshein 2018, arXiv 1805.02867). So a softmax reads a row once for both.
        """
        passes: list[_PassCalls] = []
        merged = False
        for number, (stage, calls) in enumerate(zip(self.program.stages, stages, strict=True)):
            maxima = {} if merged or not number else _maxima_of_exponents(self.program.stages[number - 1], stage)
            merged = bool(maxima)
            if not merged:
                passes.append((*calls, ([], [])))
                continue
            exp_sums = []
            for reduction in stage.reductions:
                top = self.function(f"top_{reduction.name}", {"top": reduction.argument.args[0].args[1]})
                exp_sums.append((reduction.name, maxima[reduction.name], top))
            passes[-1] = (*passes[-1][:3], (exp_sums, calls[2]))
        return passes

    def source(self, title: str, types_and_scopes: Mapping[str, tuple[str, str]], environment: Environment) -> Source:
        """Render the template with the calls of all parts; see `triton_source`."""
        stages: list[
            _StageCalls
        ] = []  # for each sweep: its call, the (name, fold) of its reductions, and the values computed after it
        for number, stage in enumerate(self.program.stages):
            sweep = self.function(f"sweep{number}", {r.name: r.argument for r in stage.reductions})
            folds = [(r.name, r.fn.removeprefix("row_")) for r in stage.reductions]
            # One function per let: a let may use earlier ones.
            lets = [(v.name, self.function(f"let_{v.name}", {v.name: v.expr})) for v in stage.lets]
            stages.append((sweep, folds, lets))
        passes = self._merge_exp_sums(stages)
        elementwise = {k: e for k, e in self.program.outputs.items() if types_and_scopes[k][1] != "row"}
        per_row = {k: e for k, e in self.program.outputs.items() if types_and_scopes[k][1] == "row"}
        elementwise_call, row_call = self.function("value", elementwise), self.function("row", per_row)
        input_count = len(self.inputs)
        return triton.source(
            "rowwise.py.j2",
            environment,
            math_functions(*(block for _, _, block, _ in self.definitions)),
            op=self.op.name,
            title=title,
            inputs=[(k, p.type, p.scope) for k, p in enumerate(self.inputs)],
            outputs=[(input_count + i, *kind) for i, kind in enumerate(types_and_scopes.values())],
            numbers=list(self.numbers.values()),
            defined=self.definitions,
            stages=stages,
            passes=passes,
            final=elementwise_call,
            row=row_call,
        )
