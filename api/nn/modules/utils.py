"""Functions that repeat a number once per dimension, under PyTorch's module path and names, which user code imports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TypeVar

__all__ = ["_ntuple", "_pair", "_quadruple", "_single", "_triple"]

_Value = TypeVar("_Value")


def _ntuple(n: int, name: str = "parse") -> Callable[[_Value | Iterable[_Value]], tuple[_Value, ...]]:
    """Return a function that repeats a number `n` times and converts other iterables to tuples."""

    def parse(x: _Value | Iterable[_Value]) -> tuple[_Value, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair = _ntuple(1, "_single"), _ntuple(2, "_pair")
_triple, _quadruple = _ntuple(3, "_triple"), _ntuple(4, "_quadruple")
