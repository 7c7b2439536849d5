"""Cutting an expression with row reductions into passes over the row.

A reduction can run in one sweep once the reductions inside its argument are known. So reductions are grouped by how
deeply they are nested; what is computed from their results, one a row, is named, computed once between two sweeps, and
not once an element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .nodes import Expr, Operand, free_names, name, topological
from .vocabulary import call, functions

_NARROW = ("row", "scalar")


@dataclass(frozen=True, slots=True)
class Reduction:
    """`name` is the result; `fn` is row_sum, row_max, row_min or row_prod of `argument` over the row."""

    name: str
    fn: str
    argument: Expr


@dataclass(frozen=True, slots=True)
class Let:
    """A value that is one a row (or one for all), with the names of earlier ones."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Stage:
    """One sweep over the row, which computes `reductions` together; then `lets`, in order, from all results so far.

    Without reductions (the first stage only) there is no sweep.
    """

    reductions: tuple[Reduction, ...]
    lets: tuple[Let, ...]


@dataclass(frozen=True, slots=True)
class RowProgram:
    """Stages in order, then a last sweep that computes `outputs`; an output of scope `row` needs no sweep."""

    stages: tuple[Stage, ...]
    outputs: Mapping[str, Expr]


def row_stages(outputs: Mapping[str, Expr]) -> RowProgram:
    """Cut `outputs` into passes: no expression of the result has a row reduction.

    Reductions are named `r0`, `r1`, ... and lets `w0`, ..., passing over names that operands have.
    """
    order = topological(outputs.values())
    wanted = _boundary(order, outputs)
    taken = set(free_names(*outputs.values()))
    reduced, computed = _fresh("r", taken), _fresh("w", taken)
    new: dict[Expr, Expr] = {}
    level: dict[Expr, int] = {}
    reductions: dict[int, list[Reduction]] = {}
    lets: dict[int, list[Let]] = {}
    for node in order:
        args = [new[arg] for arg in node.args]
        result = call(node.fn, *args) if args else node
        depth = max((level[arg] for arg in node.args), default=0)
        if args and functions()[node.fn].row:
            depth += 1
            found = Reduction(reduced(), node.fn, args[0])
            reductions.setdefault(depth, []).append(found)
            result = name(found.name, Operand("value", "row"))
        elif node.fn == "detach":
            result = args[0]  # it has done its work
        elif node in wanted:
            let = Let(computed(), result)
            lets.setdefault(depth, []).append(let)
            result = name(let.name, Operand(node.type, node.scope))
        new[node], level[node] = result, depth
    stages = [Stage(tuple(reductions.get(depth, ())), tuple(lets.get(depth, ())))
              for depth in sorted(reductions.keys() | lets.keys())]  # fmt: skip
    return RowProgram(tuple(stages), {output: new[expr] for output, expr in outputs.items()})


def _boundary(order: list[Expr], outputs: Mapping[str, Expr]) -> set[Expr]:
    """Computed values that are one a row, or one for all, and that a sweep or an output uses."""
    used = set(outputs.values())
    for node in order:
        if node.args and (node.scope not in _NARROW or functions()[node.fn].row):
            used.update(node.args)
    return {node for node in used if node.args and node.scope in _NARROW and not functions()[node.fn].row}


def _fresh(prefix: str, taken: set[str]) -> Callable[[], str]:
    numbers = iter(range(1_000_000))
    return lambda: next(text for number in numbers if (text := f"{prefix}{number}") not in taken)
