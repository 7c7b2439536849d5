"""Numbers that depend on dynamic dimensions, and expressions for them.

The exporter runs a model several times, with other sizes in the dynamic dimensions each time. A number that is the same
in all runs is a constant. Another one is a `Size`: it has the value of each run. Arithmetic acts on each run's value,
so that code for shapes works with sizes as with ints. A comparison must have the same outcome in all runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import DynamicSizeError

__all__ = ["Formula", "Int", "Size", "Varying", "as_int", "find_formula", "merge", "product"]

_MAX_DIVISOR = 16


class Size:
    """A number that depends on dynamic dimensions, with its value in each run."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[int, ...]):
        self.values = values

    def __repr__(self) -> str:
        return f"Size({' or '.join(map(str, self.values))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.values)

    def __add__(self, other: Int) -> Int:
        return _combine(operator.add, self, other)

    def __radd__(self, other: Int) -> Int:
        return _combine(operator.add, other, self)

    def __sub__(self, other: Int) -> Int:
        return _combine(operator.sub, self, other)

    def __rsub__(self, other: Int) -> Int:
        return _combine(operator.sub, other, self)

    def __mul__(self, other: Int) -> Int:
        return _combine(operator.mul, self, other)

    def __rmul__(self, other: Int) -> Int:
        return _combine(operator.mul, other, self)

    def __floordiv__(self, other: Int) -> Int:
        return _combine(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Int) -> Int:
        return _combine(operator.floordiv, other, self)

    def __mod__(self, other: Int) -> Int:
        return _combine(operator.mod, self, other)

    def __rmod__(self, other: Int) -> Int:
        return _combine(operator.mod, other, self)

    def __neg__(self) -> Int:
        return _combine(operator.sub, 0, self)

    def __lt__(self, other: Int) -> bool:
        return self._compare(operator.lt, other, "<")

    def __le__(self, other: Int) -> bool:
        return self._compare(operator.le, other, "<=")

    def __gt__(self, other: Int) -> bool:
        return self._compare(operator.gt, other, ">")

    def __ge__(self, other: Int) -> bool:
        return self._compare(operator.ge, other, ">=")

    def __bool__(self) -> bool:
        return self._compare(operator.ne, 0, "!=")

    def _compare(self, function: Callable[[int, int], bool], other: Int, symbol: str) -> bool:
        outcomes = {function(*pair) for pair in zip(self.values, _values(other, len(self.values)), strict=True)}
        if len(outcomes) > 1:
            raise DynamicSizeError(f"whether {self} {symbol} {other} depends on a dynamic dimension")
        return outcomes.pop()


@dataclass(frozen=True, slots=True)
class Varying:
    """An argument that differs between the runs and is no whole number, with its value in each run."""

    values: tuple[object, ...]

    def size(self, function: Callable[[float], float]) -> Int | None:
        """Return the size that is `function` of the argument in each run; None if these are no whole numbers."""
        if not all(isinstance(value, float) and value for value in self.values):
            return None
        numbers = [function(float(value)) for value in self.values]  # type: ignore[arg-type]
        whole_numbers = [round(number) for number in numbers]
        is_close = all(abs(n - w) <= 1e-9 * abs(n) for n, w in zip(numbers, whole_numbers, strict=True))
        return merge(whole_numbers) if is_close else None


Int: TypeAlias = int | Size
"""A number, or one that depends on dynamic dimensions."""


def _values(number: Int, count: int) -> tuple[int, ...]:
    return number.values if isinstance(number, Size) else (number,) * count


def _combine(function: Callable[[int, int], int], a: Int, b: Int) -> Int:
    count = len(a.values if isinstance(a, Size) else b.values)  # type: ignore[union-attr]  # one of them is a Size
    return merge([function(*pair) for pair in zip(_values(a, count), _values(b, count), strict=True)])


def merge(values: Sequence[int]) -> Int:
    """Return the number that has these values in the runs: an int if they are equal, else a `Size`."""
    return values[0] if all(v == values[0] for v in values) else Size(tuple(values))


def product(numbers: Sequence[Int]) -> Int:
    """Return the product of numbers; 1 for none."""
    result: Int = 1
    for number in numbers:
        result = result * number
    return result


def as_int(number: Int, meaning: str) -> int:
    """Return `number` if it is constant.

    Args:
        number: The number.
        meaning: What it is, for the message.

    Raises:
        DynamicSizeError: It depends on a dynamic dimension.
    """
    if isinstance(number, Size):
        raise DynamicSizeError(f"{meaning} is {number}, which depends on a dynamic dimension, and must be constant")
    return number


@dataclass(frozen=True)
class Formula:
    """`constant`, plus the sum of `factor * product of the dimensions` over `terms`, divided by `divisor`.

    Attributes:
        constant: The term without dimensions.
        terms: Factor and names of dimensions of each term.
        divisor: What the sum is divided by, rounded down.
    """

    constant: int
    terms: tuple[tuple[int, tuple[str, ...]], ...]
    divisor: int = 1

    def text(self, labels: Mapping[str, str]) -> str:
        """Return the formula with the names of the dimensions in `labels`."""
        parts = ["*".join([str(factor)] * (factor != 1) + [labels[n] for n in names]) for factor, names in self.terms]
        total = " + ".join([*parts, *([str(self.constant)] if self.constant else [])]).replace("+ -", "- ")
        if self.divisor == 1:
            return total
        return f"({total})//{self.divisor}" if len(parts) > 1 or self.constant else f"{total}//{self.divisor}"

    def value(self, dims: Mapping[str, int]) -> int:
        """Return the value for the given sizes of the dimensions."""
        total = self.constant
        for factor, names in self.terms:
            total += factor * math.prod(dims[name] for name in names)
        return total // self.divisor


def find_formula(size: Size, runs: Sequence[Mapping[str, int]]) -> Formula | None:
    """Express a size by the dynamic dimensions, or return None.

    The runs determine the coefficients, and one more run checks them: run 0 has the first sizes, run k another size
    in the k-th dimension only, and the last run a third size in every dimension.

    Args:
        size: The size.
        runs: The sizes of the dynamic dimensions in each run.
    """
    first, base = runs[0], size.values[0]
    slopes: dict[str, tuple[int, int]] = {}  # numerator and denominator
    for name, run, value in zip(first, runs[1:], size.values[1:], strict=False):
        if value != base:
            slopes[name] = (value - base, run[name] - first[name])
    candidates: list[Formula] = []
    if slopes and all(rise % run == 0 for rise, run in slopes.values()):
        factors = {name: rise // run for name, (rise, run) in slopes.items()}
        constant = base - sum(factor * first[name] for name, factor in factors.items())
        candidates.append(Formula(constant, tuple((factor, (name,)) for name, factor in factors.items())))
    names = tuple(slopes)
    volume = math.prod(first[name] for name in names)
    if len(names) > 1 and base % volume == 0:
        candidates.append(Formula(0, ((base // volume, names),)))
    moved = [name for name in first if any(run[name] != first[name] for run in runs)]
    for name in (names or moved) if len(names) < 2 else ():  # half of a dimension, rounded down or up
        for divisor in range(2, _MAX_DIVISOR + 1):
            candidates += [Formula(constant, ((1, (name,)),), divisor) for constant in (0, divisor - 1)]
    for formula in candidates:
        if all(formula.value(run) == value for run, value in zip(runs, size.values, strict=True)):
            return formula
    return None
