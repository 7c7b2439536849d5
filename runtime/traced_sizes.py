"""Sizes that record how a planner computes with them.

A planner is a pure function of sizes, strides and properties that have few values (dtypes, ranks, flags). Run on `Size`
objects in place of integers, it takes the same branches as on the integers, because each `Size` knows its value. The
`Trace` records every comparison and its outcome as a guard, and every result of arithmetic as an expression. For other
sizes with which all guards have the same outcome, the planner would take the same branches, so evaluating the
expressions gives its result. `plan_functions` writes guards and expressions as a Python function.

What cannot be recorded either pins a size to its value by a guard (`range(size)`, `str(size)`), or raises `TypeError`
(hashing, operators that `Size` does not define), and then there is no family. Two things do neither, so planners must
avoid them: testing whether a size is an `int`, and comparing layouts by `is`, `==` or `in`. Layouts are interned, but
traced ones are not. Planners compare shapes, strides and dtypes instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from typing import cast

__all__ = ["Expression", "Number", "PackedSizes", "Size", "Trace", "recorded", "text_of", "value_of"]

Number = int | float
_INFINITY = float("inf")

_OPERATORS: dict[str, Callable[..., Number]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "/": operator.truediv, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_,
    "**": operator.pow,
}  # fmt: skip


def text_of(operand: Size | Number) -> str:
    """Return the Python expression of an operand: the name of a size, or a literal."""
    if isinstance(operand, Size):
        return operand.name
    literal = int.__repr__(operand) if isinstance(operand, int) else float.__repr__(operand)  # no `True`, no `np.…`
    if literal[-1] in "fn":  # inf, nan
        return f"float('{literal}')"
    return f"({literal})" if literal.startswith("-") else literal


class Size:
    """A number in a traced planner: a size or stride of the call, or the result of arithmetic with them.

    Attributes:
        trace: The trace that records it.
        name: Its name in the generated function.
        value: Its value in the call that is traced.
        low, high: Bounds of its value in all calls of the family.
        expression: Operator and operands, or None for an argument.
    """

    __slots__ = ("expression", "high", "low", "name", "trace", "value")

    __hash__ = None  # type: ignore[assignment]  # dicts never compare keys whose hashes differ, so no guard would record that they differ

    def __init__(
        self, trace: Trace, name: str, value: Number, low: Number, high: Number, expression: Expression | None
    ):
        self.trace = trace
        self.name = name
        self.value = value
        self.low = low
        self.high = high
        self.expression = expression

    # arithmetic

    def __add__(self, other: object) -> Size | Number:
        return self.trace.compute("+", self, other)

    def __radd__(self, other: object) -> Size | Number:
        return self.trace.compute("+", other, self)

    def __sub__(self, other: object) -> Size | Number:
        return self.trace.compute("-", self, other)

    def __rsub__(self, other: object) -> Size | Number:
        return self.trace.compute("-", other, self)

    def __mul__(self, other: object) -> Size | Number:
        return self.trace.compute("*", self, other)

    def __rmul__(self, other: object) -> Size | Number:
        return self.trace.compute("*", other, self)

    def __floordiv__(self, other: object) -> Size | Number:
        return self.trace.compute("//", self, other)

    def __rfloordiv__(self, other: object) -> Size | Number:
        return self.trace.compute("//", other, self)

    def __mod__(self, other: object) -> Size | Number:
        return self.trace.compute("%", self, other)

    def __rmod__(self, other: object) -> Size | Number:
        return self.trace.compute("%", other, self)

    def __truediv__(self, other: object) -> Size | Number:
        return self.trace.compute("/", self, other)

    def __rtruediv__(self, other: object) -> Size | Number:
        return self.trace.compute("/", other, self)

    def __lshift__(self, other: object) -> Size | Number:
        return self.trace.compute("<<", self, other)

    def __rlshift__(self, other: object) -> Size | Number:
        return self.trace.compute("<<", other, self)

    def __rshift__(self, other: object) -> Size | Number:
        return self.trace.compute(">>", self, other)

    def __and__(self, other: object) -> Size | Number:
        return self.trace.compute("&", self, other)

    def __or__(self, other: object) -> Size | Number:
        return self.trace.compute("|", self, other)

    def __pow__(self, other: object) -> Size | Number:
        return self.trace.compute("**", self, other)

    def __rpow__(self, other: object) -> Size | Number:
        return self.trace.compute("**", other, self)

    def __neg__(self) -> Size | Number:
        return self.trace.negate(self)

    def __abs__(self) -> Size | Number:
        return -self if self < 0 else self

    def bit_length(self) -> Size | Number:
        return self.trace.call(int.bit_length, (self,))

    # comparisons

    def __eq__(self, other: object) -> bool:
        return self is other or self.trace.compare("==", self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: object) -> bool:
        return self.trace.compare("<", self, other)

    def __gt__(self, other: object) -> bool:
        return self.trace.compare("<", other, self)

    def __le__(self, other: object) -> bool:
        return not self > other

    def __ge__(self, other: object) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return self != 0

    # conversions, which pin the size to its value

    def __index__(self) -> int:
        return operator.index(self.trace.pin(self))  # type: ignore[arg-type]  # raises TypeError for a float

    def __int__(self) -> int:
        return int(self.trace.pin(self))

    def __float__(self) -> float:
        return float(self.trace.pin(self))

    def __repr__(self) -> str:
        return repr(self.trace.pin(self))

    def __format__(self, spec: str) -> str:
        return format(self.trace.pin(self), spec)


Expression = tuple[str | Callable[..., Number], tuple[Size | Number, ...]]
"""An operator (`neg` for a sign) or a recorded function, and its operands."""

Guard = tuple[str, Size | Number, Size | Number, bool]
"""`==` or `<`, what it compares, and its outcome."""


class PackedSizes:
    """What `layout.pack_longs` returns in a traced planner: numbers that the generated function packs."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: tuple[Size | Number, ...]):
        self.numbers = numbers


class Trace:
    """Guards and expressions of one run of a planner.

    Equal expressions are one `Size`. A comparison whose outcome follows from earlier guards or from bounds adds none.

    Attributes:
        guards: Comparisons in the order in which the planner made them, with their outcomes.
    """

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self._sizes: dict[tuple[object, ...], Size] = {}
        self._outcomes: dict[tuple[str, str, str], bool] = {}

    def argument(self, name: str, value: int) -> int:
        """Return a `Size` for an argument of the generated function.

        Args:
            name: Its name in the generated function.
            value: Its value in the traced call.

        Returns:
            For a value above 1, a `Size` that is above 1 in all calls of the family; for one below 0, a `Size` that is
            below 0. The values 0 and 1 themselves, because planners treat them specially. The type is that of the sizes
            which planners expect.
        """
        if 0 <= value <= 1:
            return value
        low, high = (2, _INFINITY) if value > 1 else (-_INFINITY, -1)
        return cast("int", Size(self, name, value, low, high, None))

    def compute(self, symbol: str, a: object, b: object) -> Size | Number:
        """Return the result of an operator: a number if that is certain, else a `Size`."""
        if not isinstance(a, (Size, int, float)) or not isinstance(b, (Size, int, float)):
            return NotImplemented
        a, b = _unwrap_pinned(a), _unwrap_pinned(b)
        if not isinstance(a, Size) and not isinstance(b, Size):
            return _OPERATORS[symbol](a, b)
        if (simple := _simplify(symbol, a, b)) is not None:
            return simple
        if symbol in "+*" and text_of(b) < text_of(a):
            a, b = b, a
        return self._record(symbol, (a, b), _OPERATORS[symbol](value_of(a), value_of(b)), _bounds(symbol, a, b))

    def negate(self, size: Size) -> Size:
        """Return `-size`."""
        if size.expression is not None and size.expression[0] == "neg":
            (operand,) = size.expression[1]
            assert isinstance(operand, Size)
            return operand
        return self._record("neg", (size,), -size.value, (-size.high, -size.low))

    def call(self, function: Callable[..., Number], operands: tuple[Size | Number, ...]) -> Size:
        """Return the result of a function of sizes, as one expression."""
        return self._record(function, operands, function(*map(value_of, operands)), (-_INFINITY, _INFINITY))

    def _record(
        self, symbol: str | Callable[..., Number], operands: tuple[Size | Number, ...], value: Number,
        bounds: tuple[Number, Number],
    ) -> Size:  # fmt: skip
        """Return the size of an expression. Equal expressions are one size."""
        key = (symbol, *map(text_of, operands))
        size = self._sizes.get(key)
        if size is None:
            name = f"v{len(self._sizes)}"
            size = self._sizes[key] = Size(self, name, value, bounds[0], bounds[1], (symbol, operands))
        return size

    def compare(self, symbol: str, a: object, b: object) -> bool:
        """Return the outcome of `a == b` or `a < b`, and record it as a guard unless it is certain."""
        if not isinstance(a, (Size, int, float)) or not isinstance(b, (Size, int, float)):
            return NotImplemented
        a_low, a_high = bounds_of(a)
        b_low, b_high = bounds_of(b)
        if a_high < b_low:
            return symbol == "<"
        if b_high < a_low or (symbol == "<" and b_high <= a_low):
            return False
        if a_low == a_high == b_low == b_high:
            return symbol == "=="
        key = (symbol, text_of(a), text_of(b))
        outcome = self._outcomes.get(key)
        if outcome is None:
            value_a, value_b = value_of(a), value_of(b)
            outcome = value_a == value_b if symbol == "==" else value_a < value_b
            self.guards.append((symbol, a, b, outcome))
            self._outcomes[key] = outcome
            if symbol == "==":
                self._outcomes[symbol, key[2], key[1]] = outcome
            _narrow_bounds(symbol, a, b, outcome)
        return outcome

    def pin(self, size: Size) -> Number:
        """Return the size's value, and record a guard that it has this value."""
        self.compare("==", size, size.value)
        return size.value


def recorded(function: Callable[..., int]) -> Callable[..., int]:
    """Decorate a function so that a trace records a call as one expression, and not its branches.

    This is for functions with many branches, each of which would lead to a family of its own.

    Args:
        function: A pure function of integers, given by position.

    Returns:
        The decorated function. Without a `Size` among its operands it calls `function`.
    """

    @wraps(function)
    def record_call(*operands: Size | int) -> int:
        trace = next((operand.trace for operand in operands if isinstance(operand, Size)), None)
        if trace is None:
            return function(*operands)
        numbers = tuple([o if isinstance(o, Size) else operator.index(o) for o in operands])
        return cast("int", trace.call(function, numbers))

    return record_call


def value_of(operand: Size | Number) -> Number:
    """Return the value of an operand in the traced call."""
    return operand.value if isinstance(operand, Size) else operand


def bounds_of(operand: Size | Number) -> tuple[Number, Number]:
    """Return the lowest and the highest value of an operand in all calls of the family."""
    return (operand.low, operand.high) if isinstance(operand, Size) else (operand, operand)


def _unwrap_pinned(operand: Size | Number) -> Size | Number:
    """Return the value of a size that is pinned to it; return other operands unchanged."""
    return operand.low if isinstance(operand, Size) and operand.low == operand.high else operand


def _is_whole(operand: Size | Number) -> bool:
    return isinstance(value_of(operand), int)


def _simplify(symbol: str, a: Size | Number, b: Size | Number) -> Size | Number | None:
    """Return the result of an operator on integers where no expression is needed, or None."""
    if not _is_whole(a) or not _is_whole(b):
        return None
    if a is b and bounds_of(a)[0] > 0 and symbol in ("//", "%"):
        return 1 if symbol == "//" else 0
    if symbol in "+*" and not isinstance(a, Size):
        a, b = b, a
    if isinstance(b, Size):
        return None
    if (b == 0 and symbol in ("+", "-", "<<", ">>")) or (b == 1 and symbol in ("*", "//")):
        return a
    if (b == 0 and symbol == "*") or (b == 1 and symbol == "%"):
        return 0
    return None


def _bounds(symbol: str, a: Size | Number, b: Size | Number) -> tuple[Number, Number]:
    """Return bounds of the result of an operator on integers."""
    (a_low, a_high), (b_low, b_high) = bounds_of(a), bounds_of(b)
    if not (_is_whole(a) and _is_whole(b)):
        return -_INFINITY, _INFINITY
    if symbol == "+":
        return a_low + b_low, a_high + b_high
    if symbol == "-":
        return a_low - b_high, a_high - b_low
    if symbol == "*" and a_low >= 0 and b_low >= 0:
        return a_low * b_low, (a_high * b_high if a_high and b_high else 0)
    if symbol == "//" and b_low == b_high and b_low > 0:
        return (a_low // b_low if a_low > -_INFINITY else a_low), (a_high // b_low if a_high < _INFINITY else a_high)
    if symbol == "%" and b_low > 0:
        return 0, b_high - 1
    return -_INFINITY, _INFINITY


def _narrow_bounds(symbol: str, a: Size | Number, b: Size | Number, outcome: bool) -> None:
    """Store what a guard says about the bounds of integers."""
    if not (_is_whole(a) and _is_whole(b)):
        return
    if symbol == "==" and outcome:
        low, high = max(bounds_of(a)[0], bounds_of(b)[0]), min(bounds_of(a)[1], bounds_of(b)[1])
        for size in (a, b):
            if isinstance(size, Size):
                size.low, size.high = low, high
    elif symbol == "<":
        lower, upper = (a, b) if outcome else (b, a)  # lower < upper, or lower <= upper
        gap = 1 if outcome else 0
        if isinstance(lower, Size):
            lower.high = min(lower.high, bounds_of(upper)[1] - gap)
        if isinstance(upper, Size):
            upper.low = max(upper.low, bounds_of(lower)[0] + gap)
