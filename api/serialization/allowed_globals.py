"""The classes and functions that the user lets `load` accept, and the present modules of names that have moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

__all__ = [
    "add_safe_globals", "clear_safe_globals", "current_module", "get_safe_globals", "is_trusted", "safe_globals",
    "trusted_global",
]  # fmt: skip

# The present module of each name that has moved. Files of earlier versions have the old module.
_MOVED = {
    ("weftgrad.conversion", "_unpickle"): "weftgrad.tensor_methods.conversion",
    ("weftgrad.methods", "Size"): "weftgrad.tensor_methods.size",
    ("weftgrad.tensor_methods.methods", "Size"): "weftgrad.tensor_methods.size",
}
_trusted_globals: list[Callable[..., object]] = []


def current_module(module: str, name: str) -> str:
    """Return the module that has `name` now, for a module and a name in a file."""
    return _MOVED.get((module, name), module)


def trusted_global(module: str, name: str) -> Callable[..., object] | None:
    """Return the class or function of this name that the user added, or None."""
    return next((g for g in _trusted_globals if (g.__module__, g.__qualname__) == (module, name)), None)


def is_trusted(value: object) -> bool:
    """Return True if `value` is a class or function that the user added."""
    return any(value is trusted for trusted in _trusted_globals)


def add_safe_globals(safe_globals: Sequence[Callable[..., object]]) -> None:
    """Allow these classes and functions in files that `load` reads with `weights_only=True`.

    Args:
        safe_globals: Classes and functions.

    Example:
        >>> import decimal
        >>> wg.serialization.add_safe_globals([decimal.Decimal])
        >>> decimal.Decimal in wg.serialization.get_safe_globals()
        True
        >>> wg.serialization.clear_safe_globals()
    """
    _trusted_globals.extend(g for g in safe_globals if g not in _trusted_globals)


def get_safe_globals() -> list[Callable[..., object]]:
    """Return the classes and functions that `add_safe_globals` added.

    Returns:
        List of classes and functions.

    Example:
        >>> wg.serialization.get_safe_globals()
        []
    """
    return list(_trusted_globals)


def clear_safe_globals() -> None:
    """Remove everything that `add_safe_globals` added.

    Example:
        >>> wg.serialization.clear_safe_globals()
        >>> wg.serialization.get_safe_globals()
        []
    """
    _trusted_globals.clear()


@contextmanager
def safe_globals(safe_globals: Sequence[Callable[..., object]]) -> Iterator[None]:
    """Call `add_safe_globals` for the duration of a `with` block.

    Args:
        safe_globals: Classes and functions.

    Returns:
        Context manager; it restores the earlier list at the end.

    Example:
        >>> from fractions import Fraction
        >>> with wg.serialization.safe_globals([Fraction]):
        ...     wg.serialization.get_safe_globals()
        ...
        [<class 'fractions.Fraction'>]
    """
    previous = list(_trusted_globals)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _trusted_globals[:] = previous
