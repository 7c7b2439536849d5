"""Derivatives: reverse mode over the shared DAG, one visit a node, so that a gradient costs a small multiple of its
function, and a third derivative stays printable.

The rules of `functions.yaml` are linear in `g`, the gradient that arrives. That is used twice: a `g` that a `where`
has blanked in one branch is taken out, sent through the rule, and blanked again, so that 0 never meets the infinity
of the branch not taken; and contributions blanked in opposite branches join into one `where`.

Scopes say where to sum: what is one a row, used by something that is one an element, gets the row's sum of the
gradients; the other way round a gradient is simply broadcast, which needs no node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from .canonical import Memo, canonical
from .nodes import Expr, ExprError, Operand, Scope, const, is_const, topological
from .parse import parse
from .vocabulary import call, functions, substitute

MOST_DERIVATIVES_OF_A_PRODUCT = 3
_WIDE: frozenset[Scope] = frozenset(("full", "column"))
Contributions = list[tuple[Expr, bool]]  # a gradient, and whether there is one an element (else one a row)


def gradient(outputs: Mapping[str, Expr], seeds: Mapping[str, Expr], wrt: Sequence[str]) -> dict[str, Expr]:
    """The gradients of operands, as canonical expressions over the operands and whatever the seeds name.

    `seeds` has the gradient that arrives for each output, of the output's scope; an output without one counts for
    nothing. The result lacks a name of `wrt` that no gradient reaches. For an operand of scope `row` the result is
    summed over the row already. For `column` it is a summand for each element, whatever its scope. For `scalar` it is a
    summand for each element if its scope is `full` or `column`, for each row if it is `row`.
    Raises ExprError if a function on the way has no derivative.
    """
    return _Reverse(outputs, set(wrt)).run(outputs, seeds, wrt)


class _Reverse:
    def __init__(self, outputs: Mapping[str, Expr], wrt: set[str]) -> None:
        self.memo: Memo = {}
        self.roots = {output: self.settle(expr) for output, expr in outputs.items()}
        self.order = topological(self.roots.values())
        self.active = _active(self.order, wrt)
        self.arrived: dict[Expr, Contributions] = {node: [] for node in self.order if node in self.active}

    def settle(self, expr: Expr) -> Expr:
        return canonical(expr, self.memo)

    def run(self, outputs: Mapping[str, Expr], seeds: Mapping[str, Expr], wrt: Sequence[str]) -> dict[str, Expr]:
        for output, root in self.roots.items():
            seed = seeds.get(output)
            if seed is not None and root in self.active and not is_const(seed, 0):
                self.send(root, self.settle(seed), root.scope in _WIDE or seed.scope in _WIDE)
        found: dict[str, Expr] = {}
        for node in reversed(self.order):
            if not self.arrived.get(node):
                continue
            g, wide = self.total(node)
            if node.fn == "name":
                found[str(node.value)] = self.settle(g)
            else:
                self.spread(node, g, wide or node.scope in _WIDE)
        return {operand: found[operand] for operand in wrt if operand in found}

    def send(self, node: Expr, g: Expr, wide: bool) -> None:
        """Let a gradient arrive at `node` from something that is one an element (`wide`) or one a row."""
        if node.scope == "row" and wide:
            g, wide = self.settle(_row_total(g)), False
        self.arrived[node].append((g, wide))

    def total(self, node: Expr) -> tuple[Expr, bool]:
        """The sum of what arrived. Only at a scalar can both sorts arrive: then those of elements are summed first.

        So they are, too, where they are alike all over the row: the text would not say that they count n times.
        """
        arrived = self.arrived[node]
        mixed = node.scope == "scalar" and any(not wide or g.scope == "row" for g, wide in arrived)
        parts = Counter(self.settle(_row_total(g)) if mixed and wide else g for g, wide in arrived)
        result: Expr = const(0)
        for part, times in parts.items():
            term = part if times == 1 else _guarded(part, partial(call, "mul", const(times)))
            result = self.settle(_plus(result, self.settle(term)))
        return result, arrived[0][1] and not mixed

    def spread(self, node: Expr, g: Expr, wide: bool) -> None:
        if node.fn in _ROW_RULES:
            self.send(node.args[0], self.settle(_guarded(g, partial(_ROW_RULES[node.fn], node))), True)
            return
        rules = functions()[node.fn].grad
        if rules is None:
            raise ExprError(f"{node.fn} has no derivative")
        for parameter, arg in zip(functions()[node.fn].args, node.args, strict=True):
            if arg in self.active and parameter in rules:
                self.send(arg, self.settle(_guarded(g, partial(_apply, node, parameter))), wide)


def _active(order: Sequence[Expr], wrt: set[str]) -> set[Expr]:
    """The nodes through which a gradient can flow to a wanted operand."""
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
def _rule(fn: str, parameter: str) -> Expr:
    """The derivative of a function by one of its parameters, times `g`."""
    function = functions()[fn]
    operands = {"g": Operand(), "y": Operand()}
    for arg, takes in zip(function.args, function.takes, strict=True):
        operands[arg] = Operand("mask" if takes == "mask" else "value")
    return parse((function.grad or {})[parameter], operands=operands)


def _apply(node: Expr, parameter: str, g: Expr) -> Expr:
    parts = dict(zip(functions()[node.fn].args, node.args, strict=True))
    return substitute(_rule(node.fn, parameter), {**parts, "y": node, "g": g})


def _guarded(g: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """`rule(g)` for a rule linear in `g`; zero where a `where` has made `g` zero, whatever the rule's factors are."""
    guards = []
    while g.fn == "where" and (is_const(g.args[1], 0) or is_const(g.args[2], 0)):
        first = is_const(g.args[2], 0)
        guards.append((g.args[0], first))
        g = g.args[1 if first else 2]
    result = rule(g)
    for condition, first in reversed(guards):
        result = call("where", condition, *((result, const(0)) if first else (const(0), result)))
    return result


def _plus(a: Expr, b: Expr) -> Expr:
    """The sum of two gradients; zeros made by a derivative drop out."""
    if is_const(a, 0) or is_const(b, 0):
        return b if is_const(a, 0) else a
    if a.fn == b.fn == "where" and a.args[0] is b.args[0] and any(is_const(x, 0) for x in (*a.args[1:], *b.args[1:])):
        return call("where", a.args[0], _plus(a.args[1], b.args[1]), _plus(a.args[2], b.args[2]))
    return call("add", a, b)


def _row_total(g: Expr) -> Expr:
    """The sum of `g` over the row, with what is the same all over the row taken out of the sum.

    A summand whose factors leave the sum is summed by itself: without them it often needs no earlier reduction, and the
    whole takes one sweep over the row less.
    """
    total = together = const(0)
    for term in _summands(g):
        outer, inner = _split(term)
        if outer is None:
            together = _plus(together, term)
        else:
            total = _plus(total, call("mul", outer, call("row_sum", const(1) if inner is None else inner)))
    return total if is_const(together, 0) else _plus(total, call("row_sum", together))


def _summands(g: Expr) -> list[Expr]:
    if g.scope in _WIDE and g.fn == "add":
        return _summands(g.args[0]) + _summands(g.args[1])
    if g.scope in _WIDE and g.fn == "sub":
        return _summands(g.args[0]) + [call("neg", term) for term in _summands(g.args[1])]
    if g.scope in _WIDE and g.fn == "neg":
        return [call("neg", term) for term in _summands(g.args[0])]
    return [g]


def _split(g: Expr) -> tuple[Expr | None, Expr | None]:
    """Factors of `g` that are the same all over the row, and the rest (None: nothing but 1)."""
    if g.scope not in _WIDE:
        return g, None
    if g.fn == "neg":
        outer, inner = _split(g.args[0])
        return call("neg", outer if outer is not None else const(1)), inner
    if g.fn == "mul":
        (outer_a, inner_a), (outer_b, inner_b) = _split(g.args[0]), _split(g.args[1])
        return _product(outer_a, outer_b), _product(inner_a, inner_b)
    if g.fn == "div":
        outer, inner = _split(g.args[0])
        if g.args[1].scope not in _WIDE:
            return call("div", outer if outer is not None else const(1), g.args[1]), inner
        return outer, call("div", inner if inner is not None else const(1), g.args[1])
    return None, g


def _product(a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return a if b is None else b
    return call("mul", a, b)


# Reductions. What arrives is one a row and is sent on to every element.


def _of_sum(node: Expr, g: Expr) -> Expr:
    return g


def _of_extreme(node: Expr, g: Expr) -> Expr:
    """Elements that tie share evenly."""
    ties = call("eq", node.args[0], node)
    return call("where", ties, call("div", g, call("row_sum", call("to_value", ties))), const(0))


def _of_product(node: Expr, g: Expr) -> Expr:
    """The product of the others: y / x, and at a zero the product of what is not zero times that of the other zeros.

    The latter is 1, or 0, but not to differentiation: it is written as the elementary symmetric polynomial of the other
    zeros, by Newton's identities from their sum and the sum of their squares. Up to three zeros: so three derivatives
    of a product are right wherever it is zero, and a fourth is not (`MOST_DERIVATIVES_OF_A_PRODUCT`).
    """
    x = node.args[0]
    if _never_zero(x):
        return call("mul", g, call("div", node, x))
    zero = call("eq", x, const(0))
    zeros = call("row_sum", call("to_value", zero))
    nonzero = call("row_prod", call("where", zero, const(1), x))
    one = call("where", zero, x, const(0))
    others = call("sub", call("row_sum", one), x)
    squares = call("sub", call("row_sum", call("mul", one, one)), call("mul", x, x))
    pairs = call("mul", const(0.5), call("sub", call("mul", others, others), squares))
    polynomial = call("where", call("eq", zeros, const(3)), pairs, const(0))
    polynomial = call("where", call("eq", zeros, const(2)), others, polynomial)
    polynomial = call("where", call("eq", zeros, const(1)), const(1), polynomial)
    return call("mul", g, call("where", zero, call("mul", nonzero, polynomial), call("div", node, x)))


def _never_zero(x: Expr) -> bool:
    """Whether `x` is some a with another number in place of its zeros."""
    if x.fn != "where" or x.args[1].fn != "const" or is_const(x.args[1], 0):
        return False
    condition, _, otherwise = x.args
    return condition.fn == "eq" and condition.args[0] is otherwise and is_const(condition.args[1], 0)


def has_product(expr: Expr) -> bool:
    """Whether `expr` has a product over the row."""
    return any(node.fn == "row_prod" for node in topological([expr]))


_ROW_RULES: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "row_sum": _of_sum,
    "row_max": _of_extreme,
    "row_min": _of_extreme,
    "row_prod": _of_product,
}
