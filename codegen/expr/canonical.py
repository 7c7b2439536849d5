"""Rewrite expressions to numerically stable forms, without the overflow and cancellation of textbook formulas.

Rewrites are exact or better conditioned than the original. Rules that hold only for real numbers start from a function
with a real result (exp, log, sqrt, division), so that nothing changes for integers. `x * 0` is not simplified: x may be
infinite.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from .nodes import Expr, const, is_const, topological
from .vocabulary import call, power

_INTEGER_LIMIT = 2**64  # a larger integer is not folded: no integer type of a kernel holds it

# What Python computes for a function of constants.
_FOLD: Mapping[str, Callable[..., object]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "neg": operator.neg, "abs": abs, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "pow": math.pow,
    "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "logical_and": operator.and_, "logical_or": operator.or_, "logical_xor": operator.xor,
    "logical_not": operator.not_, "to_value": int, "to_mask": bool, "index_to_value": int,
    "detach": lambda value: value,
}  # fmt: skip

Memo = dict[Expr, Expr]  # node -> its stable form


def canonical(expr: Expr, memo: Memo | None = None) -> Expr:
    """Return the stable form of `expr`.

    It recognises logistic, softplus, log1p, expm1 and rsqrt, folds constants, and replaces multiplication by a mask
    with `where`. `memo` caches stable forms across calls.
    """
    memo_table: Memo = {} if memo is None else memo
    if expr in memo_table:
        return memo_table[expr]
    for node in topological([expr], memo_table):
        args = [memo_table[arg] for arg in node.args]
        unchanged = all(old is arg for old, arg in zip(node.args, args, strict=True))
        memo_table[node] = _rewrite_fully(node if unchanged else call(node.fn, *args), memo_table)
    return memo_table[expr]


def _rewrite_fully(node: Expr, memo: Memo) -> Expr:
    """Apply rules until none matches. The arguments are canonical already."""
    for _ in range(100):  # the bound stops a rule that makes no progress
        better = _rewrite(node)
        if better is None or better is node:
            return node
        # A rule may build several nodes: the new arguments may match rules themselves.
        args = [memo.get(arg) or canonical(arg, memo) for arg in better.args]
        node = call(better.fn, *args) if any(a is not b for a, b in zip(args, better.args, strict=True)) else better
    return node


def _rewrite(node: Expr) -> Expr | None:
    """Apply one rule, and return the better expression; None if no rule matches."""
    if not node.args:
        return None
    folded = _fold_constants(node)
    if folded is not None:
        return folded
    rule = _RULES.get(node.fn)
    return rule(*node.args) if rule is not None else None


def _fold_constants(node: Expr) -> Expr | None:
    """Evaluate a function of constants in double precision; None if the value is not finite."""
    function = _FOLD.get(node.fn)
    values = [arg.value for arg in node.args if arg.fn == "const"]
    if function is None or len(values) != len(node.args):
        return None
    try:
        folded = function(*values)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(folded, bool):
        return const(folded)
    if not isinstance(folded, (int, float)) or not math.isfinite(folded):
        return None
    if isinstance(folded, int) and abs(folded) >= _INTEGER_LIMIT:
        return None
    return const(folded, node.type if isinstance(folded, int) else "value")


# Each rule gets the arguments of a node and returns a better expression, or None.


def _argument_of(node: Expr, fn: str) -> Expr | None:
    """Return the argument if `node` applies the unary function `fn`, else None."""
    return node.args[0] if node.fn == fn else None


def _addend_of_one(node: Expr) -> Expr | None:
    """Return u if `node` is `1 + u` or `u + 1`, else None."""
    if node.fn != "add":
        return None
    a, b = node.args
    return b if is_const(a, 1) else a if is_const(b, 1) else None


def _negated(node: Expr) -> Expr:
    return _argument_of(node, "neg") or call("neg", node)


def _add(a: Expr, b: Expr) -> Expr | None:
    if b.fn == "neg":
        return call("sub", a, b.args[0])
    if a.fn == "neg":
        return call("sub", b, a.args[0])
    if a.fn == "exp" and is_const(b, -1):
        return call("expm1", *a.args)
    if b.fn == "exp" and is_const(a, -1):
        return call("expm1", *b.args)
    return call("mul", const(2), a) if a is b and a.fn != "const" else None


def _sub(a: Expr, b: Expr) -> Expr | None:
    if is_const(b, 0):
        return a
    if b.fn == "neg":
        return call("add", a, b.args[0])
    if a.fn == "exp" and is_const(b, 1):
        return call("expm1", *a.args)
    if b.fn == "exp" and is_const(a, 1):
        return call("neg", call("expm1", *b.args))
    return None


def _mul(a: Expr, b: Expr) -> Expr | None:
    for x, factor in ((a, b), (b, a)):
        if is_const(factor, 1):
            return x
        if is_const(factor, -1):
            return call("neg", x)
        if factor.fn == "to_value":  # a mask selects: 0 also where x is infinite or NaN
            return call("where", factor.args[0], x, const(0))
        if x.fn == "neg":
            return call("neg", call("mul", *((x.args[0], b) if x is a else (a, x.args[0]))))
    if a.fn == "const" and b.fn == "mul" and b.args[0].fn == "const" and _is_moderate_product(a, b.args[0]):
        return call("mul", call("mul", a, b.args[0]), b.args[1])
    if b.fn == "const" and a.fn != "const":
        return call("mul", b, a)  # constants first, so that they can be merged
    return None


def _is_moderate_product(*constants: Expr) -> bool:
    """Return True if the product of the constants is moderate, so that regrouping cannot overflow or underflow."""
    product = 1.0
    for node in constants:
        product *= abs(float(node.value or 0))
    return 1e-6 < product < 1e6


def _div(a: Expr, b: Expr) -> Expr | None:
    if is_const(b, 1):
        return a
    if a.fn == "neg":
        return call("neg", call("div", a.args[0], b))
    if b.fn == "neg":
        return call("neg", call("div", a, b.args[0]))
    if is_const(a, 1) and b.fn == "sqrt":
        return call("rsqrt", *b.args)
    exp_term = _addend_of_one(b)
    if exp_term is not None and exp_term.fn == "exp":
        if a is exp_term:
            return call("logistic", *exp_term.args)
        return call("mul", a, call("logistic", _negated(exp_term.args[0])))
    return None


def _log(u: Expr) -> Expr | None:
    addend = _addend_of_one(u)
    if addend is not None:
        return call("log1p", addend)
    if u.fn == "sub" and is_const(u.args[0], 1):
        return call("log1p", call("neg", u.args[1]))
    if u.fn == "logistic":
        return call("neg", call("softplus", _negated(u.args[0])))
    return None


def _where(c: Expr, a: Expr, b: Expr) -> Expr | None:
    if c.fn == "const":
        return a if c.value else b
    if a is b:
        return a
    if c.fn == "logical_not":
        return call("where", c.args[0], b, a)
    if a.fn == "where" and a.args[0] is c:
        return call("where", c, a.args[1], b)
    if b.fn == "where" and b.args[0] is c:
        return call("where", c, a, b.args[2])
    return None


def _logical_not(m: Expr) -> Expr | None:
    # Only eq and ne: `not a < b` is not `a >= b` if one is NaN.
    opposite = {"eq": "ne", "ne": "eq"}.get(m.fn)
    return _argument_of(m, "logical_not") or (call(opposite, *m.args) if opposite else None)


_RULES: Mapping[str, Callable[..., Expr | None]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": lambda x: _argument_of(x, "neg"),
    "reciprocal": lambda x: call("div", const(1), x),
    "pow": lambda a, b: power(a, b),
    "log": _log,
    "log1p": lambda u: call("softplus", *u.args) if u.fn == "exp" else None,
    "where": _where,
    "logical_not": _logical_not,
    "to_mask": lambda x: _argument_of(x, "to_value"),
    "detach": lambda x: None if x.type == "value" else x,
}
