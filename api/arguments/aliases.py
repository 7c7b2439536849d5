"""NumPy's argument names `axis` and `keepdims`, which PyTorch accepts for `dim` and `keepdim`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..runtime.errors import ArgumentError

__all__ = ["REQUIRED", "accept_axis", "resolve_axis_alias", "resolve_axis_aliases"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

REQUIRED: Any = object()  # stands for the default of a `dim` that must be given


def resolve_axis_alias(where: str, dim: Any, default: Any, axis: Any) -> Any:
    """Return `dim`, which the caller may have passed as `axis`.

    Args:
        where: The function's name, for messages.
        dim: The argument `dim`.
        default: The default of `dim`; `REQUIRED` if it must be given (then its default is None).
        axis: The argument `axis`.

    Raises:
        ArgumentError: Both are given, or neither although `dim` is required.
    """
    absent = None if default is REQUIRED else default
    if axis is None:
        if dim is None and default is REQUIRED:
            raise ArgumentError(f"{where}: give dim, the dimension to work along")
        return dim
    if dim is not absent and dim != absent:
        raise ArgumentError(f"{where}: dim and axis are two names of one argument; give one of them")
    return axis


def resolve_axis_aliases(
    where: str, dim: Any, default: Any, axis: Any, keepdim: bool, keepdims: bool | None
) -> tuple[Any, bool]:
    """Return `dim` and `keepdim`, which the caller may have passed as `axis` and `keepdims`.

    See `resolve_axis_alias`.
    """
    if keepdims is not None:
        if keepdim:
            raise ArgumentError(f"{where}: keepdim and keepdims are two names of one argument; give one of them")
        keepdim = keepdims
    return resolve_axis_alias(where, dim, default, axis), keepdim


def accept_axis(function: _Function) -> _Function:
    """Let `function`, whose second parameter is `dim`, accept `axis` as well. Passing both raises `ArgumentError`."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if "axis" in kwargs:
            if "dim" in kwargs or len(args) > 1:
                raise ArgumentError(
                    f"{function.__name__}: dim and axis are two names of one argument; give one of them"
                )
            kwargs["dim"] = kwargs.pop("axis")
        return function(*args, **kwargs)

    return run  # type: ignore[return-value]
