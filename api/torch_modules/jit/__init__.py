"""`torch.jit`, so that PyTorch code that uses it runs: decorators return their function, `trace` a wrapper of it.

Nothing is scripted or traced, because calls already run compiled kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, overload

from ..runtime.errors import ArgumentError
from ._tracing import trace

__all__ = [
    "Final", "annotate", "export", "ignore", "is_scripting", "is_tracing", "script", "script_if_tracing", "trace",
    "unused",
]  # fmt: skip

_Function = TypeVar("_Function", bound=Callable[..., object])
_Value = TypeVar("_Value")


def script(obj: _Function, optimize: object = None, example_inputs: object = None) -> _Function:
    """Return `obj`, a function, class or module, unchanged.

    The result has no method `save`: save a state_dict with `weftgrad.save` instead.

    Args:
        obj: The function, class or module.
        optimize: Ignored.
        example_inputs: Ignored.

    Returns:
        `obj`.

    Raises:
        ArgumentError: If `obj` is not callable.

    Example:
        >>> wg.jit.script(wg.sqrt) is wg.sqrt
        True
    """
    if not callable(obj):
        raise ArgumentError(f"jit.script: takes a function, a class or a module, not {type(obj).__name__}")
    return obj


def script_if_tracing(fn: _Function) -> _Function:
    """Return `fn` unchanged.

    Args:
        fn: The function.

    Returns:
        `fn`.

    Example:
        >>> wg.jit.script_if_tracing(wg.sqrt) is wg.sqrt
        True
    """
    return fn


def export(fn: _Function) -> _Function:
    """Return `fn` unchanged.

    Args:
        fn: The function.

    Returns:
        `fn`.

    Example:
        >>> wg.jit.export(wg.sqrt) is wg.sqrt
        True
    """
    return fn


@overload
def ignore(drop: _Function) -> _Function: ...
@overload
def ignore(drop: bool = False, **options: object) -> Callable[[_Function], _Function]: ...
def ignore(drop: _Function | bool = False, **options: object) -> _Function | Callable[[_Function], _Function]:
    """Return the decorated function unchanged; usable with or without arguments.

    Args:
        drop: The function, if the decorator has no arguments; otherwise ignored.
        **options: Ignored.

    Returns:
        The function, or a decorator.

    Example:
        >>> wg.jit.ignore(wg.sqrt) is wg.sqrt
        True
    """
    return drop if callable(drop) else export


def unused(fn: _Function) -> _Function:
    """Return `fn` unchanged.

    Args:
        fn: The function.

    Returns:
        `fn`.

    Example:
        >>> wg.jit.unused(wg.sqrt) is wg.sqrt
        True
    """
    return fn


def annotate(the_type: object, the_value: _Value) -> _Value:
    """Return `the_value`.

    Args:
        the_type: Ignored.
        the_value: An object of any type.

    Returns:
        `the_value`.

    Example:
        >>> wg.jit.annotate(int, 3)
        3
    """
    return the_value


def is_scripting() -> bool:
    """Return False: nothing is scripted or traced.

    Returns:
        False.

    Example:
        >>> wg.jit.is_scripting()
        False
    """
    return False


def is_tracing() -> bool:
    """Return False: nothing is scripted or traced.

    Returns:
        False.

    Example:
        >>> wg.jit.is_tracing()
        False
    """
    return False
