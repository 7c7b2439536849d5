"""Decorators of `torch.fx` that mark functions for tracing. They do nothing, because nothing is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["compatibility", "wrap"]

_Function = TypeVar("_Function", bound=Callable[..., object])


def wrap(fn_or_name: str | _Function) -> str | _Function:
    """Return the function, or its name, unchanged."""
    return fn_or_name


def compatibility(is_backward_compatible: bool) -> Callable[[_Function], _Function]:
    """Return a decorator that returns its function unchanged."""
    return lambda function: function
