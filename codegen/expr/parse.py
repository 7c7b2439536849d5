"""Parse the text of an expression. A spec is untrusted data: only the syntax listed here is accepted."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from .nodes import Expr, ExprError, Operand, const, variable
from .vocabulary import ROW_LENGTH, Function, call, counted, functions, power

MAX_TEXT, MAX_DEPTH, MAX_NODES = 10_000, 100, 5_000
_INTEGER_LIMIT = 2**64

CONSTANTS: Mapping[str, float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}
ROW_NAMES: Mapping[str, Operand] = {"n": ROW_LENGTH, "index": Operand("index", "full")}
RANDOM_NAMES: Mapping[str, Operand] = {"index": Operand("index", "full")}
_REDUCTIONS = ("sum", "mean", "max", "min", "prod")
_RESERVED = {"inf", "nan"}  # the printed form of constants, so no operand may have these names

# What to write for functions that users know from PyTorch, NumPy and SciPy under another name.
_REPLACEMENTS: Mapping[str, str] = {
    "absolute": "abs", "arccos": "acos", "arcsin": "asin", "arctan": "atan", "arctan2": "atan2",
    "clamp": "minimum(maximum(x, low), high)", "clip": "minimum(maximum(x, low), high)", "expit": "logistic",
    "floor_divide": "floor_div", "gelu": "0.5 * x * erfc(-x * 0.5 ** 0.5)", "ln": "log", "logsigmoid": "-softplus(-x)",
    "norm": "sqrt(sum(x * x))", "power": "pow", "relu": "maximum(x, 0)", "remainder": "mod", "sigmoid": "logistic",
    "silu": "x * logistic(x)", "var": "mean(square(x - mean(x)))",
}  # fmt: skip

_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floor_div", ast.Mod: "mod",
    ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor",
    ast.LShift: "lshift", ast.RShift: "rshift",
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], str] = {ast.USub: "neg", ast.Invert: "bitwise_not", ast.Not: "logical_not"}
_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip


def parse(text: str, *, operands: Mapping[str, Operand], row: bool = False, random: bool = False) -> Expr:
    """Parse `text`, an expression in Python syntax.

    Args:
        operands: the names that it may use, besides `inf`, `nan`, `pi` and `e`.
        row: `sum`, `mean`, `max`, `min` and `prod` of one argument reduce the row; `n` is its length and `index` the
            position in it.
        random: `uniform(k)`, `normal(k)` and `bits(k)` draw numbers; `index` is the element's position in row-major
            order.

    Raises:
        ExprError: `text` is no expression of the language. It has the column of the error.
    """
    extra_operands = ROW_NAMES if row else RANDOM_NAMES if random else {}
    for reserved_name in sorted((_RESERVED | set(extra_operands)) & set(operands)):
        raise ExprError(f"the name {reserved_name!r} has a meaning of its own here and cannot be an operand", text)
    syntax_tree = _syntax(text)
    return _Reader(text, {**extra_operands, **operands}, row, random).read(syntax_tree, 0)


def _syntax(text: str) -> ast.expr:
    if not isinstance(text, str):
        raise ExprError(f"expected the text of an expression, found {text!r}")
    if len(text) > MAX_TEXT:
        raise ExprError(f"the expression has {len(text)} characters, more than {MAX_TEXT}", text)
    if "#" in text:
        raise ExprError("a comment has no place in an expression", text, text.index("#") + 1)
    # Folded YAML has line breaks, which mean nothing. ast rejects leading blanks, but columns count them.
    line = " ".join(text.splitlines()) if text.splitlines() else text
    indent = len(line) - len(line.lstrip())
    try:
        return ast.parse(line.strip(), mode="eval").body
    except SyntaxError as error:
        column = (error.offset or len(line.strip()) + 1) + indent  # no offset: the text ends too early
        raise ExprError(f"not an expression: {error.msg}", text, column) from None
    except (RecursionError, MemoryError):
        raise ExprError("the expression is nested too deeply", text) from None
    except ValueError as error:
        raise ExprError(f"not an expression: {error}", text) from None


class _Reader:
    """Converts a Python syntax tree into an expression. Rejects all syntax that has no method here."""

    def __init__(self, text: str, operands: Mapping[str, Operand], row: bool, random: bool) -> None:
        self.text = text
        self.line = " ".join(text.splitlines()).strip().encode()
        self.indent = len(text) - len(text.lstrip())
        self.operands = operands
        self.row = row
        self.random = random
        self.nodes = 0

    def read(self, tree: ast.expr, depth: int) -> Expr:
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise self.error("the expression is nested too deeply", tree)
        if self.nodes > MAX_NODES:
            raise self.error(f"the expression has more than {MAX_NODES} parts", tree)
        visit: Callable[[ast.expr, int], Expr] | None = getattr(self, f"_{type(tree).__name__.lower()}", None)
        if visit is None:
            raise self.error(f"{type(tree).__name__} is not part of the expression language", tree)
        try:
            return visit(tree, depth + 1)
        except ExprError as error:
            if error.text:
                raise
            raise self.error(error.message, tree, error.suggestion) from None

    def error(self, message: str, tree: ast.expr, suggestion: str | None = None) -> ExprError:
        # col_offset of ast counts bytes of UTF-8.
        column = len(self.line[: tree.col_offset].decode(errors="ignore")) + self.indent + 1
        return ExprError(message, self.text, column, suggestion)

    def _constant(self, tree: ast.Constant, depth: int) -> Expr:
        value = tree.value
        if not isinstance(value, (bool, int, float)):
            raise self.error(f"a constant is a number, True or False, not {type(value).__name__}", tree)
        if isinstance(value, int) and value >= _INTEGER_LIMIT:
            raise self.error("the integer does not fit 64 bits", tree)
        return const(value)

    def _name(self, tree: ast.Name, depth: int) -> Expr:
        if tree.id in self.operands:
            return variable(tree.id, self.operands[tree.id])
        if tree.id in CONSTANTS:
            return const(CONSTANTS[tree.id])
        if tree.id in functions():
            raise self.error(f"{tree.id!r} is a function: call it", tree)
        raise self.error(f"unknown name {tree.id!r}", tree, _closest_name(tree.id, [*self.operands, *CONSTANTS]))

    def _binop(self, tree: ast.BinOp, depth: int) -> Expr:
        left, right = self.read(tree.left, depth), self.read(tree.right, depth)
        if isinstance(tree.op, ast.Pow):
            return power(left, right)
        if type(tree.op) not in _BINARY:
            raise self.error(f"the operator {type(tree.op).__name__} is not part of the expression language", tree)
        return call(_BINARY[type(tree.op)], left, right)

    def _unaryop(self, tree: ast.UnaryOp, depth: int) -> Expr:
        operand = self.read(tree.operand, depth)
        return operand if isinstance(tree.op, ast.UAdd) else call(_UNARY[type(tree.op)], operand)

    def _compare(self, tree: ast.Compare, depth: int) -> Expr:
        sides = [self.read(side, depth) for side in (tree.left, *tree.comparators)]
        result: Expr | None = None
        for op, left, right in zip(tree.ops, sides, sides[1:], strict=False):
            if type(op) not in _COMPARE:
                raise self.error(f"the comparison {type(op).__name__} is not part of the expression language", tree)
            link = call(_COMPARE[type(op)], left, right)
            result = link if result is None else call("logical_and", result, link)
        assert result is not None
        return result

    def _boolop(self, tree: ast.BoolOp, depth: int) -> Expr:
        fn = "logical_and" if isinstance(tree.op, ast.And) else "logical_or"
        result, *rest = (self.read(value, depth) for value in tree.values)
        for value in rest:
            result = call(fn, result, value)
        return result

    def _ifexp(self, tree: ast.IfExp, depth: int) -> Expr:
        return call("where", *(self.read(part, depth) for part in (tree.test, tree.body, tree.orelse)))

    def _call(self, tree: ast.Call, depth: int) -> Expr:
        if not isinstance(tree.func, ast.Name):
            suggestion = f"{tree.func.attr}(...)" if isinstance(tree.func, ast.Attribute) else None
            raise self.error("only a function's plain name can be called", tree, suggestion)
        if tree.keywords or any(isinstance(arg, ast.Starred) for arg in tree.args):
            raise self.error("arguments are given by position", tree)
        function_name = tree.func.id
        function = self.function(function_name, len(tree.args), tree)
        args = [self.read(arg, depth) for arg in tree.args]
        if function is None:  # mean is a sum divided by n
            return call("div", call("row_sum", *args), variable("n", self.operands["n"]))
        return call(function.name, *args)

    def function(self, function_name: str, argument_count: int, tree: ast.Call) -> Function | None:
        """Return the called function, a row reduction by its short name; None for `mean`."""
        vocabulary = functions()
        if function_name in ("max", "min") and argument_count == 2:
            return vocabulary[f"{function_name}imum"]
        if function_name in _REDUCTIONS:
            if not self.row:
                raise self.error(f"{function_name} reduces a row, and there is no row here", tree)
            if argument_count != 1:
                raise self.error(f"{function_name} takes 1 argument, the row, got {argument_count}", tree)
            return None if function_name == "mean" else vocabulary[f"row_{function_name}"]
        function = vocabulary.get(function_name)
        if function is None or function.row or (function.random and not self.random):
            suggestion = _REPLACEMENTS.get(function_name) or _closest_name(function_name, self.callable_names())
            raise self.error(f"unknown function {function_name!r}", tree, suggestion)
        if argument_count != len(function.args):
            raise self.error(f"{function_name} takes {counted(len(function.args))}, got {argument_count}", tree)
        return function

    def callable_names(self) -> list[str]:
        names = [f.name for f in functions().values() if not f.row and (self.random or not f.random)]
        return names + list(_REDUCTIONS if self.row else ("max", "min"))


def _closest_name(word: str, candidates: list[str]) -> str | None:
    return next(iter(get_close_matches(word, candidates, n=1)), None)
