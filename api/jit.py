"""What PyTorch's programs ask of TorchScript: functions stay what they are, and nothing is scripted or traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from .runtime.errors import ArgumentError

__all__ = [
    "Final", "annotate", "export", "ignore", "is_scripting", "is_tracing", "script", "script_if_tracing", "unused",
]  # fmt: skip

_Called = TypeVar("_Called", bound=Callable[..., Any])


def script(obj: _Called, optimize: Any = None, example_inputs: Any = None) -> _Called:
    """`obj` as it is, a function, a class or a module: its ops are compiled kernels already, and are not fused.

    Raises `ArgumentError` for what cannot be called. What it gives has no `save`: use `weftgrad.save` of a state_dict.
    """
    if not callable(obj):
        raise ArgumentError(f"jit.script: takes a function, a class or a module, not {type(obj).__name__}")
    return obj


def script_if_tracing(fn: _Called) -> _Called:
    """`fn` as it is."""
    return fn


def export(fn: _Called) -> _Called:
    """`fn` as it is."""
    return fn


def ignore(drop: Any = False, **options: Any) -> Any:
    """The decorated function as it is; with or without arguments."""
    return drop if callable(drop) else lambda fn: fn


def unused(fn: _Called) -> _Called:
    """`fn` as it is."""
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """`the_value`."""
    return the_value


def is_scripting() -> bool:
    """False."""
    return False


def is_tracing() -> bool:
    """False."""
    return False
