"""`torch.compiler` and `torch.compile`, so that PyTorch code that uses them runs: functions are returned unchanged.

Nothing is traced, because calls already run compiled kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from ..runtime.errors import ArgumentError

__all__ = ["allow_in_graph", "compile", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting", "reset"]

_Function = TypeVar("_Function", bound=Callable[..., object])


@overload
def compile(
    model: _Function, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str | Callable[..., object] = "eager", mode: str | None = None, options: dict[str, object] | None = None,
    disable: bool = False, name: str | None = None,
) -> _Function: ...  # fmt: skip
@overload
def compile(
    model: None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str | Callable[..., object] = "eager", mode: str | None = None, options: dict[str, object] | None = None,
    disable: bool = False, name: str | None = None,
) -> Callable[[_Function], _Function]: ...  # fmt: skip
def compile(
    model: _Function | None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str | Callable[..., object] = "eager", mode: str | None = None, options: dict[str, object] | None = None,
    disable: bool = False, name: str | None = None,
) -> _Function | Callable[[_Function], _Function]:  # fmt: skip
    """Return `model`, a function or a module, unchanged, like PyTorch's backend "eager".

    Args:
        model: The function or module.
        fullgraph: Ignored.
        dynamic: Ignored.
        backend: Ignored.
        mode: Ignored.
        options: Ignored.
        disable: Ignored.
        name: Ignored.

    Returns:
        `model`; a decorator if it is None.

    Raises:
        ArgumentError: If `model` is not callable.

    Example:
        >>> wg.compile(wg.sqrt) is wg.sqrt
        True
    """
    if model is None:
        return compile
    if not callable(model):
        raise ArgumentError(f"compile: takes a function or a module, not {type(model).__name__}")
    return model


@overload
def disable(fn: _Function, recursive: bool = True, *, reason: str | None = None) -> _Function: ...
@overload
def disable(
    fn: None = None, recursive: bool = True, *, reason: str | None = None
) -> Callable[[_Function], _Function]: ...
def disable(
    fn: _Function | None = None, recursive: bool = True, *, reason: str | None = None
) -> _Function | Callable[[_Function], _Function]:
    """Return `fn` unchanged; without it, a decorator.

    Args:
        fn: The function.
        recursive: Ignored.
        reason: Ignored.

    Returns:
        `fn`, or a decorator.

    Example:
        >>> wg.compiler.disable(wg.sqrt) is wg.sqrt
        True
    """
    return disable if fn is None else fn


def allow_in_graph(fn: _Function) -> _Function:
    """Return `fn` unchanged.

    Args:
        fn: The function.

    Returns:
        `fn`.

    Example:
        >>> wg.compiler.allow_in_graph(wg.sqrt) is wg.sqrt
        True
    """
    return fn


def is_compiling() -> bool:
    """Return False: nothing is compiled or exported.

    Returns:
        False.

    Example:
        >>> wg.compiler.is_compiling()
        False
    """
    return False


def is_dynamo_compiling() -> bool:
    """Return False: nothing is compiled or exported.

    Returns:
        False.

    Example:
        >>> wg.compiler.is_dynamo_compiling()
        False
    """
    return False


def is_exporting() -> bool:
    """Return False: nothing is compiled or exported.

    Returns:
        False.

    Example:
        >>> wg.compiler.is_exporting()
        False
    """
    return False


def reset() -> None:
    """Do nothing: there is no compiler cache.

    Example:
        >>> wg.compiler.reset()
    """
