"""The argument of `ModuleDict` and `ParameterDict`: names and values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar, runtime_checkable

from ..runtime.errors import ArgumentError
from ._errors import NameConflict

__all__ = ["named_entries"]

_Value = TypeVar("_Value")


_CovariantValue = TypeVar("_CovariantValue", covariant=True)


@runtime_checkable
class _Items(Protocol[_CovariantValue]):
    """A mapping, or an object like one, such as a `ParameterDict`."""

    def keys(self) -> Iterable[str]: ...
    def items(self) -> Iterable[tuple[str, _CovariantValue]]: ...


def named_entries(entries: _Items[_Value] | Iterable[tuple[str, _Value]], caller: str) -> list[tuple[str, _Value]]:
    """Return the entries of a mapping, or of an iterable of pairs, as a list.

    Raises:
        ArgumentError: If `entries` is neither. It is also a `TypeError` and a `ValueError`.
    """
    if isinstance(entries, _Items):
        return list(entries.items())
    if not isinstance(entries, Iterable):
        raise ArgumentError(f"{caller}: takes a mapping or pairs of name and value, not {type(entries).__name__}")
    checked = []
    for i, pair in enumerate(entries):
        try:
            name, value = () if isinstance(pair, str) else pair  # the two letters of a text are no pair
        except (TypeError, ValueError):
            raise ArgumentError(f"{caller}: element {i} is {pair!r}, not a pair of name and value") from None
        if not isinstance(name, str):
            raise NameConflict(f"{caller}: a name is a string, not {name!r}")
        checked.append((name, value))
    return checked
