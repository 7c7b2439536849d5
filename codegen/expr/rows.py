"""Split an expression with row reductions into sweeps over the row.

A reduction needs the results of the reductions inside its argument. So reductions are grouped by nesting depth, one
sweep per depth. Values that are the same for a whole row and are computed from these results, such as `1 / sum`, become
named values (`Let`): they are computed once between two sweeps instead of once per element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .nodes import Expr, Operand, free_names, topological, unused_names, variable
from .vocabulary import call, functions

_ROW_SCOPES = ("row", "scalar")  # scopes of expressions with one value for a whole row


@dataclass(frozen=True, slots=True)
class Reduction:
    """A row reduction.

    Attributes:
        name: the name of its result.
        fn: `row_sum`, `row_max`, `row_min` or `row_prod`.
        argument: the expression that is reduced.
    """

    name: str
    fn: str
    argument: Expr


@dataclass(frozen=True, slots=True)
class Let:
    """A named per-row or scalar value. `expr` may use the names of earlier lets and reductions."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Stage:
    """One sweep over the row that computes `reductions`, followed by the computation of `lets`, in order.

    Only the first stage may have no reductions: then it has no sweep.
    """

    reductions: tuple[Reduction, ...]
    lets: tuple[Let, ...]


@dataclass(frozen=True, slots=True)
class RowProgram:
    """Stages in order, then a final sweep that computes those of `outputs` that differ within a row."""

    stages: tuple[Stage, ...]
    outputs: Mapping[str, Expr]


def row_stages(outputs: Mapping[str, Expr]) -> RowProgram:
    """Split expressions into stages, so that no expression contains a row reduction.

    Args:
        outputs: name -> expression.

    Returns:
        The stages, and the outputs as expressions of their results. Reductions are named `r0`, `r1`, ... and lets `w0`,
        `w1`, ..., skipping names of operands.
    """
    order = topological(outputs.values())
    let_nodes = _nodes_to_name(order, outputs)
    used_names = set(free_names(*outputs.values()))
    reduction_names, let_names = unused_names("r", used_names), unused_names("w", used_names)
    rewritten: dict[Expr, Expr] = {}
    depths: dict[Expr, int] = {}
    reductions: dict[int, list[Reduction]] = {}  # by depth
    lets: dict[int, list[Let]] = {}  # by depth
    for node in order:
        args = [rewritten[arg] for arg in node.args]
        result = call(node.fn, *args) if args else node
        depth = max((depths[arg] for arg in node.args), default=0)
        if _is_reduction(node):
            depth += 1
            reduction = Reduction(next(reduction_names), node.fn, args[0])
            reductions.setdefault(depth, []).append(reduction)
            result = variable(reduction.name, Operand("value", "row"))
        elif node.fn == "detach":
            result = args[0]  # it only stops gradients, which are derived before
        elif node in let_nodes:
            let = Let(next(let_names), result)
            lets.setdefault(depth, []).append(let)
            result = variable(let.name, Operand(node.type, node.scope))
        rewritten[node] = result
        depths[node] = depth
    stages = [Stage(tuple(reductions.get(depth, ())), tuple(lets.get(depth, ())))
              for depth in sorted(reductions.keys() | lets.keys())]  # fmt: skip
    return RowProgram(tuple(stages), {output: rewritten[expr] for output, expr in outputs.items()})


def _nodes_to_name(order: list[Expr], outputs: Mapping[str, Expr]) -> set[Expr]:
    """Return the computed values with one value for a whole row that a sweep or an output uses: the future lets."""
    used_nodes = set(outputs.values())
    for node in order:
        if node.scope not in _ROW_SCOPES or _is_reduction(node):
            used_nodes.update(node.args)
    return {node for node in used_nodes if node.args and node.scope in _ROW_SCOPES and not _is_reduction(node)}


def _is_reduction(node: Expr) -> bool:
    return bool(node.args and functions()[node.fn].row)
