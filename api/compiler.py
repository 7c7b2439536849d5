"""What PyTorch's programs ask of its compiler. Ops here are compiled kernels already, and nothing is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .runtime.errors import ArgumentError

__all__ = ["allow_in_graph", "compile", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting", "reset"]

_Called = TypeVar("_Called", bound=Callable[..., Any])


def compile(
    model: _Called | None = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "eager",
    mode: str | None = None, options: dict[str, Any] | None = None, disable: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """`model` as it is, a function or a module: what PyTorch's backend "eager" makes of it. The arguments are read and
    have no meaning here. Without a model, a decorator.

    Raises `ArgumentError` for what cannot be called.
    """
    if model is None:
        return compile
    if not callable(model):
        raise ArgumentError(f"compile: takes a function or a module, not {type(model).__name__}")
    return model


def disable(fn: _Called | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """`fn` as it is; without it, a decorator."""
    return disable if fn is None else fn


def allow_in_graph(fn: _Called) -> _Called:
    """`fn` as it is."""
    return fn


def is_compiling() -> bool:
    """False."""
    return False


def is_dynamo_compiling() -> bool:
    """False."""
    return False


def is_exporting() -> bool:
    """False."""
    return False


def reset() -> None:
    """Nothing is kept that could be forgotten."""
