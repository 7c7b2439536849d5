"""Functions of the expression language (`codegen/functions.yaml`) as nodes.

Functions that ONNX lacks are composed, in a way that does not lose digits where the obvious formula would: `expm1(x)`
is `2 * sinh(x / 2) * exp(x / 2)`, and `log1p(x)` is corrected for the rounding of `1 + x` (W. Kahan).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...runtime import dtypes
from ...runtime.dtypes import DType
from .graph import Graph, Value

__all__ = ["FUNCTIONS", "Arguments"]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a function.

    Attributes:
        graph: Gets the nodes.
        values: The arguments.
        dtype: The dtype of the arguments.
        compute: The dtype of numbers in the expression.
    """

    graph: Graph
    values: list[Value]
    dtype: DType
    compute: DType

    def op(self, op_type: str, *inputs: Value, **attributes: object) -> Value:
        """Add a node; without inputs, of the arguments."""
        return self.graph.op(op_type, *(inputs or self.values), **attributes)

    def number(self, value: float) -> Value:
        """Return a constant of the arguments' dtype."""
        return self.graph.number(value, self.dtype)

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"

    @property
    def is_bool(self) -> bool:
        return self.dtype is dtypes.bool_


Function = Callable[[Arguments], "Value | None"]
"""Adds the nodes of a function; None if there is no way to express it for the dtype."""


def _node(op_type: str, *, bools: str | None = None, ints: str | None = "", floats: bool = True) -> Function:
    """Return the function of one node.

    Args:
        op_type: The operator.
        bools: The operator for truth values; None if there is none.
        ints: The operator for integers; "" for the same, None if there is none.
        floats: Whether it takes floating numbers.
    """

    def add(a: Arguments) -> Value | None:
        if a.is_bool:
            return None if bools is None else a.op(bools)
        if not a.is_float:
            return None if ints is None else a.op(ints or op_type)
        return a.op(op_type) if floats else None

    return add


def _unchanged_int(op_type: str) -> Function:
    """Return the function of a rounding, which integers do not need."""
    return lambda a: a.op(op_type) if a.is_float else a.values[0]


def _compare(op_type: str) -> Function:
    """Return an ordering, for which truth values are numbers."""

    def add(a: Arguments) -> Value:
        if a.is_bool:
            return a.op(op_type, *(a.graph.cast(v, dtypes.bool_, dtypes.int32) for v in a.values))
        return a.op(op_type)

    return add


def _floor_div(a: Arguments) -> Value | None:
    x, y = a.values
    if a.is_float:
        return a.op("Floor", a.op("Div", x, y))
    # Div rounds towards zero. What Mod leaves, with the sign of the divisor, makes the quotient exact.
    return None if a.is_bool else a.op("Div", a.op("Sub", x, a.op("Mod", x, y)), y)


def _mod(a: Arguments) -> Value | None:
    x, y = a.values
    if a.is_float:
        return a.op("Sub", x, a.op("Mul", a.op("Floor", a.op("Div", x, y)), y))
    return None if a.is_bool else a.op("Mod", x, y)


def _square(a: Arguments) -> Value | None:
    return None if a.is_bool else a.op("Mul", a.values[0], a.values[0])


def _hypot(a: Arguments) -> Value:
    """Scale by the larger one, so that squares do not overflow."""
    x, y = (a.op("Abs", v) for v in a.values)
    high, low = a.op("Max", x, y), a.op("Min", x, y)
    is_zero = a.op("Equal", high, a.number(0))
    ratio = a.op("Div", low, a.op("Where", is_zero, a.number(1), high))
    return a.op("Mul", high, a.op("Sqrt", a.op("Add", a.op("Mul", ratio, ratio), a.number(1))))


def _signbit(a: Arguments) -> Value | None:
    (x,) = a.values
    negative = a.op("Less", x, a.number(0))
    if not a.is_float:
        return negative
    minus_zero = a.op("And", a.op("Equal", x, a.number(0)), a.op("Less", a.op("Reciprocal", x), a.number(0)))
    return a.op("Or", negative, minus_zero)


def _copysign(a: Arguments) -> Value | None:
    x, y = a.values
    size = a.op("Abs", x)
    is_negative = _signbit(Arguments(a.graph, [y], a.dtype, a.compute))
    assert is_negative is not None
    return a.op("Where", is_negative, a.op("Neg", size), size)


def _trunc(a: Arguments) -> Value:
    (x,) = a.values
    if not a.is_float:
        return x
    return a.op("Where", a.op("Less", x, a.number(0)), a.op("Ceil", x), a.op("Floor", x))


def _expm1(a: Arguments) -> Value:
    half = a.op("Mul", a.values[0], a.number(0.5))
    return a.op("Mul", a.op("Mul", a.op("Sinh", half), a.op("Exp", half)), a.number(2))


def _log1p(a: Arguments) -> Value:
    (x,) = a.values
    one = a.number(1)
    shifted = a.op("Add", x, one)
    difference = a.op("Sub", shifted, one)
    is_small = a.op("Equal", difference, a.number(0))
    is_infinite = a.op("IsInf", shifted)
    divisor = a.op("Where", a.op("Or", is_small, is_infinite), one, difference)
    logarithm = a.op("Log", shifted)
    corrected = a.op("Mul", logarithm, a.op("Div", x, divisor))
    return a.op("Where", is_small, x, a.op("Where", is_infinite, logarithm, corrected))


def _scaled(op_type: str, factor: float) -> Function:
    return lambda a: a.op("Mul", a.op(op_type), a.number(factor))


def _erfc(a: Arguments) -> Value:
    return a.op("Sub", a.number(1), a.op("Erf"))


def _ndtr(a: Arguments) -> Value:
    erf = a.op("Erf", a.op("Mul", a.values[0], a.number(math.sqrt(0.5))))
    return a.op("Mul", a.op("Add", erf, a.number(1)), a.number(0.5))


def _atan2(a: Arguments) -> Value:
    y, x = a.values
    zero, pi = a.number(0), a.number(math.pi)
    is_vertical = a.op("Equal", x, zero)
    angle = a.op("Atan", a.op("Div", y, a.op("Where", is_vertical, a.number(1), x)))
    shift = a.op("Where", a.op("Less", y, zero), a.op("Neg", pi), pi)
    shifted_angle = a.op("Where", a.op("Less", x, zero), a.op("Add", angle, shift), angle)
    vertical = a.op("Mul", a.op("Sign", y), a.number(math.pi / 2))
    return a.op("Where", is_vertical, vertical, shifted_angle)


def _isnan(a: Arguments) -> Value:
    return a.op("IsNaN") if a.is_float else a.op("Not", a.op("Equal", a.values[0], a.values[0]))


def _isinf(a: Arguments) -> Value:
    return a.op("IsInf") if a.is_float else a.op("Not", a.op("Equal", a.values[0], a.values[0]))


def _isfinite(a: Arguments) -> Value:
    if not a.is_float:
        return a.op("Equal", a.values[0], a.values[0])
    return a.op("Not", a.op("Or", a.op("IsNaN"), a.op("IsInf")))


def _to_mask(a: Arguments) -> Value:
    return a.values[0] if a.is_bool else a.graph.cast(a.values[0], a.dtype, dtypes.bool_)


FUNCTIONS: dict[str, Function] = {
    "add": _node("Add", bools="Or"), "sub": _node("Sub"), "mul": _node("Mul", bools="And"), "div": _node("Div"),
    "neg": _node("Neg"), "floor_div": _floor_div, "mod": _mod, "fmod": lambda a: a.op("Mod", fmod=1),
    "abs": _node("Abs"), "sign": _node("Sign", bools="Identity"), "square": _square,
    "reciprocal": _node("Reciprocal", ints=None), "pow": _node("Pow"), "hypot": _hypot, "copysign": _copysign,
    "floor": _unchanged_int("Floor"), "ceil": _unchanged_int("Ceil"), "trunc": _trunc, "round": _unchanged_int("Round"),
    "exp": _node("Exp"), "exp2": lambda a: a.op("Pow", a.number(2), a.values[0]), "expm1": _expm1,
    "log": _node("Log"), "log2": _scaled("Log", 1 / math.log(2)), "log10": _scaled("Log", 1 / math.log(10)),
    "log1p": _log1p, "sqrt": _node("Sqrt"), "rsqrt": lambda a: a.op("Reciprocal", a.op("Sqrt")),
    "sin": _node("Sin"), "cos": _node("Cos"), "tan": _node("Tan"), "asin": _node("Asin"), "acos": _node("Acos"),
    "atan": _node("Atan"), "atan2": _atan2, "sinh": _node("Sinh"), "cosh": _node("Cosh"), "tanh": _node("Tanh"),
    "asinh": _node("Asinh"), "acosh": _node("Acosh"), "atanh": _node("Atanh"), "erf": _node("Erf"), "erfc": _erfc,
    "logistic": _node("Sigmoid"), "softplus": _node("Softplus"), "ndtr": _ndtr,
    "eq": lambda a: a.op("Equal"), "ne": lambda a: a.op("Not", a.op("Equal")), "lt": _compare("Less"),
    "le": _compare("LessOrEqual"), "gt": _compare("Greater"), "ge": _compare("GreaterOrEqual"), "isnan": _isnan,
    "isinf": _isinf, "isfinite": _isfinite, "signbit": _signbit, "logical_and": _node("And", bools="And"),
    "logical_or": _node("Or", bools="Or"), "logical_not": _node("Not", bools="Not"),
    "logical_xor": _node("Xor", bools="Xor"), "where": lambda a: a.op("Where"),
    "maximum": _node("Max", bools="Or"), "minimum": _node("Min", bools="And"),
    "bitwise_and": _node("BitwiseAnd", bools="And", floats=False),
    "bitwise_or": _node("BitwiseOr", bools="Or", floats=False),
    "bitwise_xor": _node("BitwiseXor", bools="Xor", floats=False),
    "bitwise_not": _node("BitwiseNot", bools="Not", floats=False),
    "to_value": lambda a: a.graph.cast(a.values[0], dtypes.bool_, a.compute), "to_mask": _to_mask,
    "index_to_value": lambda a: a.graph.cast(a.values[0], dtypes.int64, a.compute), "detach": lambda a: a.values[0],
}  # fmt: skip
