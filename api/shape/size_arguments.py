"""Read arguments that are sizes, counts or dimensions: `2, 3` or `(2, 3)`, of Python's or NumPy's integers."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.errors import ArgumentError

__all__ = ["to_int", "to_ints"]


def to_int(value: object, where: str) -> int:
    """Return an argument as an int. Raises `ArgumentError` unless it is an integer."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{where}: takes ints, not {value!r}")
    return int(value.__index__())


def to_ints(args: Sequence[object], where: str) -> tuple[int, ...]:
    """Return arguments, which are integers, or one tuple or list of integers, as a tuple.

    Args:
        args: The arguments.
        where: The calling function, for the message.

    Raises:
        ArgumentError: One is no integer.
    """
    only = args[0] if len(args) == 1 else None
    if type(only) is int:  # the common case, a few hundred nanoseconds faster
        return (only,)
    values: Sequence[object] = only if isinstance(only, (tuple, list)) else args
    numbers = []
    for value in values:
        if type(value) is int:
            numbers.append(value)
        elif isinstance(value, (bool, float)) or not hasattr(value, "__index__"):
            raise ArgumentError(f"{where}: takes ints, not {tuple(values)!r}")
        else:
            numbers.append(int(value.__index__()))
    return tuple(numbers)
