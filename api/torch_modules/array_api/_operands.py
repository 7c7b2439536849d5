"""What the standard's functions share: promotion of arguments, and axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..runtime import dtypes
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor

__all__ = ["Axes", "Scalar", "check_tensors", "promote", "reduce_along"]

Scalar: TypeAlias = bool | int | float
"""A Python number, which does not change a tensor's dtype within its kind."""

Axes: TypeAlias = int | tuple[int, ...] | None
"""One axis, several, or None for all."""


def check_tensors(name: str, *values: object) -> None:
    """Raise `ArgumentError` unless all values are tensors."""
    for value in values:
        if not isinstance(value, Tensor):
            raise ArgumentError(f"{name}: takes tensors, not {type(value).__name__}; convert it with asarray()")


def promote(name: str, *values: Tensor | Scalar) -> tuple[Tensor | Scalar, ...]:
    """Return the arguments of a function with tensors in their common dtype.

    In the standard a tensor without dimensions promotes like any other. In PyTorch, and in our ops, it does so only to
    another kind of dtype.

    Args:
        name: The function, for errors.
        *values: Tensors and numbers; at least one tensor.

    Raises:
        ArgumentError: There is no tensor, or a value is neither a tensor nor a number.
    """
    tensors = [value for value in values if isinstance(value, Tensor)]
    others = [value for value in values if not isinstance(value, Tensor)]
    if not tensors or not all(isinstance(value, (bool, int, float)) for value in others):
        kinds = ", ".join(type(value).__name__ for value in values)
        raise ArgumentError(f"{name}: takes tensors and Python numbers, at least one tensor, not {kinds}")
    if len({tensor.meta.dtype for tensor in tensors}) == 1:
        return values
    common = tensors[0].meta.dtype
    for tensor in tensors[1:]:
        common = dtypes.promote(common, tensor.meta.dtype)
    return tuple(value.to(common) if isinstance(value, Tensor) else value for value in values)


def reduce_along(
    name: str,
    x: Tensor,
    axis: Axes,
    keepdims: bool,
    reduce: Callable[[Tensor, tuple[int, ...] | None, bool], Tensor],
) -> Tensor:
    """Return `reduce(tensor, dims, keepdims)` for the standard's `axis`; an empty tuple reduces no axis.

    Args:
        name: The function, for errors.
        x: The tensor.
        axis: Axes to reduce.
        keepdims: Whether reduced axes stay, with size 1.
        reduce: Takes a tensor, the dimensions to reduce or None for all, and `keepdims`.
    """
    check_tensors(name, x)
    if axis is None:
        return reduce(x, None, keepdims)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return reduce(x, axes, keepdims) if axes else reduce(x.unsqueeze(-1), (-1,), False)
