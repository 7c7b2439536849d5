"""Split an expression with row reductions into sweeps over the row.

A reduction needs the results of the reductions inside its argument. So reductions are grouped by nesting depth, one
sweep per depth. Per-row values computed from their results become lets, computed once between two sweeps instead of
once per element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .nodes import Expr, Operand, free_names, name, topological, unused_names
from .vocabulary import call, functions

_NARROW = ("row", "scalar")


@dataclass(frozen=True, slots=True)
class Reduction:
    """A row reduction: `name` is its result, `fn` is row_sum, row_max, row_min or row_prod of `argument`."""

    name: str
    fn: str
    argument: Expr


@dataclass(frozen=True, slots=True)
class Let:
    """A per-row or scalar value. `expr` may use the names of earlier lets and reductions."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Stage:
    """One sweep over the row that computes `reductions`, then `lets`, in order.

    The first stage may have no reductions: then there is no sweep.
    """

    reductions: tuple[Reduction, ...]
    lets: tuple[Let, ...]


@dataclass(frozen=True, slots=True)
class RowProgram:
    """Stages in order, then a final sweep that computes `outputs`. An output of scope `row` needs no sweep."""

    stages: tuple[Stage, ...]
    outputs: Mapping[str, Expr]


def row_stages(outputs: Mapping[str, Expr]) -> RowProgram:
    """Split `outputs` into stages whose expressions have no row reductions.

    Reductions are named `r0`, `r1`, ... and lets `w0`, `w1`, ..., skipping names of operands.
    """
    order = topological(outputs.values())
    named_nodes = _boundary_values(order, outputs)
    used_names = set(free_names(*outputs.values()))
    reduction_names, let_names = unused_names("r", used_names), unused_names("w", used_names)
    rewritten: dict[Expr, Expr] = {}
    depth_of: dict[Expr, int] = {}
    reductions: dict[int, list[Reduction]] = {}
    lets: dict[int, list[Let]] = {}
    for node in order:
        args = [rewritten[arg] for arg in node.args]
        result = call(node.fn, *args) if args else node
        depth = max((depth_of[arg] for arg in node.args), default=0)
        if args and functions()[node.fn].row:
            depth += 1
            reduction = Reduction(next(reduction_names), node.fn, args[0])
            reductions.setdefault(depth, []).append(reduction)
            result = name(reduction.name, Operand("value", "row"))
        elif node.fn == "detach":
            result = args[0]  # detach only matters for gradients
        elif node in named_nodes:
            let = Let(next(let_names), result)
            lets.setdefault(depth, []).append(let)
            result = name(let.name, Operand(node.type, node.scope))
        rewritten[node], depth_of[node] = result, depth
    stages = [Stage(tuple(reductions.get(depth, ())), tuple(lets.get(depth, ())))
              for depth in sorted(reductions.keys() | lets.keys())]  # fmt: skip
    return RowProgram(tuple(stages), {output: rewritten[expr] for output, expr in outputs.items()})


def _boundary_values(order: list[Expr], outputs: Mapping[str, Expr]) -> set[Expr]:
    """Return the computed per-row and scalar values that a sweep or an output uses."""
    used = set(outputs.values())
    for node in order:
        if node.args and (node.scope not in _NARROW or functions()[node.fn].row):
            used.update(node.args)
    return {node for node in used if node.args and node.scope in _NARROW and not functions()[node.fn].row}
