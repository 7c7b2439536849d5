"""NumPy's names for arguments, as PyTorch takes them, and results copied to where the caller wants them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from . import dtypes
from .dispatch import call_into, fit, is_recorded
from .errors import ArgumentError, DTypeError, GradientError, ShapeError
from .records import registry
from .tensor import Tensor

__all__ = ["REQUIRED", "spelled", "spelled_dim", "store", "with_axis"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

REQUIRED: Any = object()  # the default of a `dim` that has none


def spelled_dim(where: str, dim: Any, default: Any, axis: Any) -> Any:
    """`dim`, which may be given as `axis` too. Raises `ArgumentError` where both are given, or neither and one must be.

    default: what `dim` is where it was not given; `REQUIRED` for one that has to be, which then is None.
    """
    absent = None if default is REQUIRED else default
    if axis is None:
        if dim is None and default is REQUIRED:
            raise ArgumentError(f"{where}: give dim, the dimension to work along")
        return dim
    if dim is not absent and dim != absent:
        raise ArgumentError(f"{where}: dim and axis are two names of one argument; give one of them")
    return axis


def spelled(where: str, dim: Any, default: Any, axis: Any, keepdim: bool, keepdims: bool | None) -> tuple[Any, bool]:
    """`dim` and `keepdim`, which may be given as `axis` and `keepdims` too (see `spelled_dim`)."""
    if keepdims is not None:
        if keepdim:
            raise ArgumentError(f"{where}: keepdim and keepdims are two names of one argument; give one of them")
        keepdim = keepdims
    return spelled_dim(where, dim, default, axis), keepdim


def with_axis(function: _Function) -> _Function:
    """`function`, whose second parameter is `dim`, with `axis` as another name of it; `ArgumentError` for both."""

    @wraps(function)
    def run(*given: Any, **named: Any) -> Any:
        if "axis" in named:
            if "dim" in named or len(given) > 1:
                raise ArgumentError(
                    f"{function.__name__}: dim and axis are two names of one argument; give one of them"
                )
            named["dim"] = named.pop("axis")
        return function(*given, **named)

    return run  # type: ignore[return-value]


def store(result: Tensor, out: Tensor, where: str) -> Tensor:
    """Copy `result` to `out`, for functions whose kernels cannot write there, under the rules of all `out=`.

    One without elements gets memory for the result.

    Raises `ShapeError`, `DTypeError`, `GradientError`.
    """
    if not isinstance(out, Tensor):
        raise ArgumentError(f"{where}: out must be a tensor, not {type(out).__name__}")
    if is_recorded(result, out):
        raise GradientError(f"{where}(out=...): out= does not record gradients; use it under no_grad()")
    fit(out, result.meta.shape)
    if out.meta.shape != result.meta.shape:
        raise ShapeError(
            f"{where}: the result has shape {list(result.meta.shape)}, out has {list(out.meta.shape)}; make them equal"
        )
    if not dtypes.holds(out.meta.dtype, result.meta.dtype):
        raise DTypeError(
            f"{where}: the result is {result.meta.dtype.name} and cannot be written to {out.meta.dtype.name}; "
            f"make out with dtype={result.meta.dtype.name}"
        )
    call_into(registry["copy"], (result,), (None,), (out,), in_place=False)
    return out
