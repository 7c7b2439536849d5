"""NumPy's argument names `axis` and `keepdims`, which PyTorch accepts for `dim` and `keepdim`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar, overload

from ..runtime.errors import ArgumentError

__all__ = ["REQUIRED", "accept_axis", "resolve_axis_alias", "resolve_axis_aliases"]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Dim = TypeVar("_Dim")


class _Required:
    """The type of `REQUIRED`, by which type checkers know that the resolved `dim` is not None."""


REQUIRED: Final = _Required()
"""Stands for the default of a `dim` that the caller must pass."""


@overload
def resolve_axis_alias(where: str, dim: _Dim | None, default: _Required, axis: _Dim | None) -> _Dim: ...
@overload
def resolve_axis_alias(where: str, dim: _Dim, default: _Dim, axis: _Dim | None) -> _Dim: ...
def resolve_axis_alias(
    where: str, dim: _Dim | None, default: _Dim | _Required | None, axis: _Dim | None
) -> _Dim | None:
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


@overload
def resolve_axis_aliases(
    where: str, dim: _Dim | None, default: _Required, axis: _Dim | None, keepdim: bool, keepdims: bool | None
) -> tuple[_Dim, bool]: ...
@overload
def resolve_axis_aliases(
    where: str, dim: _Dim, default: _Dim, axis: _Dim | None, keepdim: bool, keepdims: bool | None
) -> tuple[_Dim, bool]: ...
def resolve_axis_aliases(
    where: str, dim: _Dim | None, default: _Dim | _Required | None, axis: _Dim | None, keepdim: bool,
    keepdims: bool | None,
) -> tuple[_Dim | None, bool]:  # fmt: skip
    """Return `dim` and `keepdim`, which the caller may have passed as `axis` and `keepdims`.

    See `resolve_axis_alias`.
    """
    if keepdims is not None:
        if keepdim:
            raise ArgumentError(f"{where}: keepdim and keepdims are two names of one argument; give one of them")
        keepdim = keepdims
    if isinstance(default, _Required):
        return resolve_axis_alias(where, dim, default, axis), keepdim
    return resolve_axis_alias(where, dim, default, axis), keepdim


def accept_axis(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let `function`, whose second parameter is `dim`, accept `axis` as well. Passing both raises `ArgumentError`."""

    @wraps(function)
    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if "axis" in kwargs:
            if "dim" in kwargs or len(args) > 1:
                raise ArgumentError(
                    f"{function.__name__}: dim and axis are two names of one argument; give one of them"
                )
            kwargs["dim"] = kwargs.pop("axis")
        return function(*args, **kwargs)

    return run
