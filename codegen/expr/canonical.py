"""Stable forms: the same meaning, without the overflow and cancellation of the way a formula is usually written.

Rewrites are exact, or better conditioned than what they replace. Those that suit real numbers only start from a
function whose result is real anyway (exp, log, sqrt, division), so that nothing changes for integers. Nothing of the
form `x * 0` is dropped: x may be infinite.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from .nodes import Expr, const, is_const, topological
from .vocabulary import call, power

_LARGEST = 2**64

_FOLD: Mapping[str, Callable[..., object]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "neg": operator.neg, "abs": abs, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "pow": math.pow,
    "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "logical_and": operator.and_, "logical_or": operator.or_, "logical_xor": operator.xor,
    "logical_not": operator.not_, "to_value": int, "to_mask": bool, "index_to_value": int,
    "detach": lambda value: value,
}  # fmt: skip

Memo = dict[Expr, Expr]


def canonical(expr: Expr, memo: Memo | None = None) -> Expr:
    """The stable form of `expr`: logistic, softplus, log1p, expm1 and rsqrt recognised, constants folded, and masks
    selecting (with `where`) instead of being multiplied by. `memo` carries finished nodes from call to call.
    """
    done: Memo = {} if memo is None else memo
    if expr in done:
        return done[expr]
    for node in topological([expr], done):
        args = [done[arg] for arg in node.args]
        unchanged = all(old is arg for old, arg in zip(node.args, args, strict=True))
        done[node] = _settle(node if unchanged else call(node.fn, *args), done)
    return done[expr]


def _settle(node: Expr, done: Memo) -> Expr:
    """Apply rules until none does; the arguments are canonical already."""
    for _ in range(100):  # every rule makes progress; the bound is for a rule that would not
        better = _better(node)
        if better is None or better is node:
            return node
        # A rule may build several nodes; all but the outermost are new here and may have better forms themselves.
        args = [done.get(arg) or canonical(arg, done) for arg in better.args]
        node = call(better.fn, *args) if any(a is not b for a, b in zip(args, better.args, strict=True)) else better
    return node


def _better(node: Expr) -> Expr | None:
    if not node.args:
        return None
    folded = _folded(node)
    if folded is not None:
        return folded
    rule = _RULES.get(node.fn)
    return rule(*node.args) if rule is not None else None


def _folded(node: Expr) -> Expr | None:
    """The value of a function of constants, in double precision, if it has a finite one."""
    function = _FOLD.get(node.fn)
    values = [arg.value for arg in node.args if arg.fn == "const"]
    if function is None or len(values) != len(node.args):
        return None
    try:
        result = function(*values)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(result, bool):
        return const(result)
    if not isinstance(result, (int, float)) or not math.isfinite(result):
        return None
    if isinstance(result, int) and abs(result) >= _LARGEST:
        return None
    return const(result, node.type if isinstance(result, int) else "value")


# Each rule is given the arguments and answers with a better expression, or None. Node patterns read inside out.


def _inner(node: Expr, fn: str) -> Expr | None:
    """The argument, if `node` is this function of one."""
    return node.args[0] if node.fn == fn else None


def _one_plus(node: Expr) -> Expr | None:
    """u of `1 + u` or `u + 1`."""
    if node.fn != "add":
        return None
    a, b = node.args
    return b if is_const(a, 1) else a if is_const(b, 1) else None


def _opposite(node: Expr) -> Expr:
    return _inner(node, "neg") or call("neg", node)


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
    for x, other in ((a, b), (b, a)):
        if is_const(other, 1):
            return x
        if is_const(other, -1):
            return call("neg", x)
        if other.fn == "to_value":
            return call("where", other.args[0], x, const(0))
        if x.fn == "neg":
            return call("neg", call("mul", *((x.args[0], b) if x is a else (a, x.args[0]))))
    if a.fn == "const" and b.fn == "mul" and b.args[0].fn == "const" and _real(a, b.args[0]):
        return call("mul", call("mul", a, b.args[0]), b.args[1])
    if b.fn == "const" and a.fn != "const":
        return call("mul", b, a)  # constants first, where they meet
    return None


def _real(*constants: Expr) -> bool:
    """Whether these multiply to a moderate number, so that regrouping can neither overflow nor underflow."""
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
    grown = _one_plus(b)
    if grown is not None and grown.fn == "exp":
        if a is grown:
            return call("logistic", *grown.args)
        return call("mul", a, call("logistic", _opposite(grown.args[0])))
    return None


def _log(u: Expr) -> Expr | None:
    rest = _one_plus(u)
    if rest is not None:
        return call("log1p", rest)
    if u.fn == "sub" and is_const(u.args[0], 1):
        return call("log1p", call("neg", u.args[1]))
    if u.fn == "logistic":
        return call("neg", call("softplus", _opposite(u.args[0])))
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
    # Only these: `not a < b` is not `a >= b` if one is NaN.
    opposite = {"eq": "ne", "ne": "eq"}.get(m.fn)
    return _inner(m, "logical_not") or (call(opposite, *m.args) if opposite else None)


_RULES: Mapping[str, Callable[..., Expr | None]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": lambda x: _inner(x, "neg"),
    "reciprocal": lambda x: call("div", const(1), x),
    "pow": lambda a, b: power(a, b),
    "log": _log,
    "log1p": lambda u: call("softplus", *u.args) if u.fn == "exp" else None,
    "where": _where,
    "logical_not": _logical_not,
    "to_mask": lambda x: _inner(x, "to_value"),
    "detach": lambda x: None if x.type == "value" else x,
}
