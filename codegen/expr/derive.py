"""Reverse-mode differentiation over the shared DAG.

Each node is visited once, so a gradient costs a small multiple of its function, and a third derivative stays short
enough to print.

The rules of `functions.yaml` are linear in `g`, the incoming gradient. This allows two simplifications. If `g` is a
`where` with a zero branch, the rule is applied to the other branch only, inside the `where`: otherwise 0 could be
multiplied by an infinity of the branch that is not selected. And two contributions with zeros in opposite branches
merge into one `where`.

Scopes tell where to sum: a per-row value used by a per-element expression gets the sum over the row of the gradients.
In the other direction the gradient is broadcast, which needs no node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from .canonical import Memo, canonical
from .nodes import Expr, ExprError, Operand, Scope, const, is_const, topological
from .parse import parse
from .vocabulary import call, functions, substitute

MAX_PRODUCT_DERIVATIVES = 3
_WIDE: frozenset[Scope] = frozenset(("full", "column"))
Contributions = list[tuple[Expr, bool]]  # (gradient, whether it is per element and not per row)


def gradient(outputs: Mapping[str, Expr], seeds: Mapping[str, Expr], wrt: Sequence[str]) -> dict[str, Expr]:
    """Differentiate `outputs` with respect to operands.

    Args:
        outputs: the expressions to differentiate.
        seeds: the incoming gradient of each output, with the output's scope. An output without seed adds nothing.
        wrt: names of operands.

    Returns:
        Canonical expressions of the operands and the names in the seeds, for the operands that a gradient reaches. For
        an operand of scope `row` the sum over the row is included. For scope `column` the caller sums over elements.
        For `scalar` the caller sums over elements if the gradient's scope is `full` or `column`, over rows if `row`.

    Raises:
        ExprError: a function has no derivative.
    """
    return _Reverse(outputs, set(wrt)).run(outputs, seeds, wrt)


class _Reverse:
    def __init__(self, outputs: Mapping[str, Expr], wrt: set[str]) -> None:
        self.memo: Memo = {}
        self.roots = {output: self.canonicalize(expr) for output, expr in outputs.items()}
        self.order = topological(self.roots.values())
        self.active = _active_nodes(self.order, wrt)
        self.contributions: dict[Expr, Contributions] = {node: [] for node in self.order if node in self.active}

    def canonicalize(self, expr: Expr) -> Expr:
        return canonical(expr, self.memo)

    def run(self, outputs: Mapping[str, Expr], seeds: Mapping[str, Expr], wrt: Sequence[str]) -> dict[str, Expr]:
        for output, root in self.roots.items():
            seed = seeds.get(output)
            if seed is not None and root in self.active and not is_const(seed, 0):
                self.add_contribution(root, self.canonicalize(seed), root.scope in _WIDE or seed.scope in _WIDE)
        gradients: dict[str, Expr] = {}
        for node in reversed(self.order):
            if not self.contributions.get(node):
                continue
            g, per_element = self.total(node)
            if node.fn == "name":
                gradients[str(node.value)] = self.canonicalize(g)
            else:
                self.propagate(node, g, per_element or node.scope in _WIDE)
        return {operand: gradients[operand] for operand in wrt if operand in gradients}

    def add_contribution(self, node: Expr, g: Expr, per_element: bool) -> None:
        """Add a contribution to the gradient of `node`. per_element: `g` has the scope of elements, not of rows."""
        if node.scope == "row" and per_element:
            g, per_element = self.canonicalize(_row_total(g)), False
        self.contributions[node].append((g, per_element))

    def total(self, node: Expr) -> tuple[Expr, bool]:
        """Return the sum of the contributions to `node`, and whether it is per element.

        Only a scalar can get both per-element and per-row contributions. Then the per-element ones are summed over the
        row first. The same holds for per-element ones with equal values all over the row: the expression alone would
        not tell that they count n times.
        """
        contributions = self.contributions[node]
        is_mixed = node.scope == "scalar" and any(
            not per_element or g.scope == "row" for g, per_element in contributions
        )
        parts = Counter(
            self.canonicalize(_row_total(g)) if is_mixed and per_element else g for g, per_element in contributions
        )
        total: Expr = const(0)
        for part, count in parts.items():
            term = part if count == 1 else _apply_under_guards(part, partial(call, "mul", const(count)))
            total = self.canonicalize(_add_gradients(total, self.canonicalize(term)))
        return total, contributions[0][1] and not is_mixed

    def propagate(self, node: Expr, g: Expr, per_element: bool) -> None:
        if node.fn in _ROW_RULES:
            self.add_contribution(
                node.args[0], self.canonicalize(_apply_under_guards(g, partial(_ROW_RULES[node.fn], node))), True
            )
            return
        rules = functions()[node.fn].grad
        if rules is None:
            raise ExprError(f"{node.fn} has no derivative")
        for parameter, arg in zip(functions()[node.fn].args, node.args, strict=True):
            if arg in self.active and parameter in rules:
                self.add_contribution(
                    arg, self.canonicalize(_apply_under_guards(g, partial(_apply_rule, node, parameter))), per_element
                )


def _active_nodes(order: Sequence[Expr], wrt: set[str]) -> set[Expr]:
    """Return the nodes on a path from an operand in `wrt` to an output."""
    active: set[Expr] = set()
    for node in order:
        if node.type != "value":
            continue
        if node.fn == "name":
            reached = node.value in wrt
        else:
            rules = functions()[node.fn].grad if node.args else {}
            passes = node.fn in _ROW_RULES or rules is None or bool(rules)
            reached = passes and any(arg in active for arg in node.args)
        if reached:
            active.add(node)
    return active


@cache
def _parse_rule(fn: str, parameter: str) -> Expr:
    """Parse the rule for one parameter of a function: its partial derivative times `g`."""
    vocabulary_function = functions()[fn]
    operands = {"g": Operand(), "y": Operand()}
    for arg, takes in zip(vocabulary_function.args, vocabulary_function.takes, strict=True):
        operands[arg] = Operand("mask" if takes == "mask" else "value")
    return parse((vocabulary_function.grad or {})[parameter], operands=operands)


def _apply_rule(node: Expr, parameter: str, g: Expr) -> Expr:
    parts = dict(zip(functions()[node.fn].args, node.args, strict=True))
    return substitute(_parse_rule(node.fn, parameter), {**parts, "y": node, "g": g})


def _apply_under_guards(g: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """Apply a rule linear in `g`. Where a `where` makes `g` zero, the result is zero even if a factor is infinite."""
    guards = []
    while g.fn == "where" and (is_const(g.args[1], 0) or is_const(g.args[2], 0)):
        first = is_const(g.args[2], 0)
        guards.append((g.args[0], first))
        g = g.args[1 if first else 2]
    result = rule(g)
    for condition, first in reversed(guards):
        result = call("where", condition, *((result, const(0)) if first else (const(0), result)))
    return result


def _add_gradients(a: Expr, b: Expr) -> Expr:
    """Add two gradients, dropping zeros."""
    if is_const(a, 0) or is_const(b, 0):
        return b if is_const(a, 0) else a
    if a.fn == b.fn == "where" and a.args[0] is b.args[0] and any(is_const(x, 0) for x in (*a.args[1:], *b.args[1:])):
        return call("where", a.args[0], _add_gradients(a.args[1], b.args[1]), _add_gradients(a.args[2], b.args[2]))
    return call("add", a, b)


def _row_total(g: Expr) -> Expr:
    """Return the sum of `g` over the row, with per-row factors moved out of the sum.

    A summand with such factors is summed separately: without them it often needs no earlier reduction, which saves one
    sweep over the row.
    """
    total = remaining = const(0)
    for term in _summands(g):
        outer, inner = _split_row_factors(term)
        if outer is None:
            remaining = _add_gradients(remaining, term)
        else:
            total = _add_gradients(total, call("mul", outer, call("row_sum", const(1) if inner is None else inner)))
    return total if is_const(remaining, 0) else _add_gradients(total, call("row_sum", remaining))


def _summands(g: Expr) -> list[Expr]:
    if g.scope in _WIDE and g.fn == "add":
        return _summands(g.args[0]) + _summands(g.args[1])
    if g.scope in _WIDE and g.fn == "sub":
        return _summands(g.args[0]) + [call("neg", term) for term in _summands(g.args[1])]
    if g.scope in _WIDE and g.fn == "neg":
        return [call("neg", term) for term in _summands(g.args[0])]
    return [g]


def _split_row_factors(g: Expr) -> tuple[Expr | None, Expr | None]:
    """Split `g` into per-row factors and per-element factors; None stands for 1."""
    if g.scope not in _WIDE:
        return g, None
    if g.fn == "neg":
        outer, inner = _split_row_factors(g.args[0])
        return call("neg", outer if outer is not None else const(1)), inner
    if g.fn == "mul":
        (outer_a, inner_a), (outer_b, inner_b) = _split_row_factors(g.args[0]), _split_row_factors(g.args[1])
        return _multiply(outer_a, outer_b), _multiply(inner_a, inner_b)
    if g.fn == "div":
        outer, inner = _split_row_factors(g.args[0])
        if g.args[1].scope not in _WIDE:
            return call("div", outer if outer is not None else const(1), g.args[1]), inner
        return outer, call("div", inner if inner is not None else const(1), g.args[1])
    return None, g


def _multiply(a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return a if b is None else b
    return call("mul", a, b)


# Gradients of row reductions. The incoming gradient is per row, the result per element.


def _sum_gradient(node: Expr, g: Expr) -> Expr:
    return g


def _extreme_gradient(node: Expr, g: Expr) -> Expr:
    """Return the gradient of row_max and row_min: tied elements share it evenly."""
    ties = call("eq", node.args[0], node)
    return call("where", ties, call("div", g, call("row_sum", call("to_value", ties))), const(0))


def _product_gradient(node: Expr, g: Expr) -> Expr:
    """Return the gradient of row_prod: the product of all other elements.

    For a nonzero element that is y / x. For a zero it is the product of the nonzero elements times the product of the
    other zeros. The latter factor is 1 or 0 but has derivatives, so it is the elementary symmetric polynomial of the
    other zeros, computed by Newton's identities from their sum and sum of squares. It covers up to three zeros:
    three derivatives of a product are exact everywhere, a fourth is not (`MAX_PRODUCT_DERIVATIVES`).
    """
    x = node.args[0]
    if _never_zero(x):
        return call("mul", g, call("div", node, x))
    is_zero = call("eq", x, const(0))
    zero_count = call("row_sum", call("to_value", is_zero))
    nonzero = call("row_prod", call("where", is_zero, const(1), x))
    zero_values = call("where", is_zero, x, const(0))
    other_zeros = call("sub", call("row_sum", zero_values), x)
    other_squares = call("sub", call("row_sum", call("mul", zero_values, zero_values)), call("mul", x, x))
    pair_products = call("mul", const(0.5), call("sub", call("mul", other_zeros, other_zeros), other_squares))
    polynomial = call("where", call("eq", zero_count, const(3)), pair_products, const(0))
    polynomial = call("where", call("eq", zero_count, const(2)), other_zeros, polynomial)
    polynomial = call("where", call("eq", zero_count, const(1)), const(1), polynomial)
    return call("mul", g, call("where", is_zero, call("mul", nonzero, polynomial), call("div", node, x)))


def _never_zero(x: Expr) -> bool:
    """Return True if `x` is `where(a == 0, c, a)` with a nonzero constant c."""
    if x.fn != "where" or x.args[1].fn != "const" or is_const(x.args[1], 0):
        return False
    condition, _, otherwise = x.args
    return condition.fn == "eq" and condition.args[0] is otherwise and is_const(condition.args[1], 0)


def has_product(expr: Expr) -> bool:
    """Return True if `expr` contains a product over the row."""
    return any(node.fn == "row_prod" for node in topological([expr]))


_ROW_RULES: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "row_sum": _sum_gradient,
    "row_max": _extreme_gradient,
    "row_min": _extreme_gradient,
    "row_prod": _product_gradient,
}
