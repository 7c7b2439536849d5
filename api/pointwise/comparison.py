"""Comparison and selection: closeness, infinities and NaN, and `where`."""

from __future__ import annotations

import math
from typing import overload

from .._generated import ops
from ..arguments.out import copy_to_out
from ..arguments.types import Operand
from ..creation.factories import full_like
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .type_info import finfo, result_type

__all__ = [
    "allclose", "equal", "is_nonzero", "is_same_size", "isclose", "isneginf", "isposinf", "isreal", "nan_to_num",
    "where",
]  # fmt: skip


def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Return where two tensors are close: `|input - other| <= atol + rtol * |other|`.

    Args:
        input: Tensor of any dtype but bool.
        other: Tensor whose shape broadcasts with that of `input`.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        equal_nan: Whether NaN is close to NaN. Infinities are close to themselves.

    Returns:
        Bool tensor of the broadcast shape.

    Example:
        >>> wg.isclose(wg.tensor([1.0, 2.0]), wg.tensor([1.0 + 1e-7, 2.1]))
        tensor([ True, False])
    """
    within_tolerance = ops.le(ops.abs(ops.sub(input, other)), ops.add(ops.mul(ops.abs(other), rtol), atol))
    close = ops.logical_or(ops.logical_and(within_tolerance, ops.isfinite(other)), ops.eq(input, other))
    if equal_nan:
        close = ops.logical_or(close, ops.logical_and(ops.isnan(input), ops.isnan(other)))
    return close


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Return True if all elements are close; see `isclose`.

    Args:
        input: Tensor of any dtype but bool.
        other: Tensor whose shape broadcasts with that of `input`.
        rtol: Tolerance relative to `other`.
        atol: Absolute tolerance.
        equal_nan: Whether NaN equals NaN.

    Returns:
        True if |input - other| <= atol + rtol * |other| everywhere.

    Example:
        >>> wg.allclose(wg.tensor([1.0]), wg.tensor([1.0 + 1e-9]))
        True
    """
    return bool(ops.all(isclose(input, other, rtol, atol, equal_nan)))


def equal(input: Tensor, other: Tensor) -> bool:
    """Return True if the shapes and all elements are equal.

    Args:
        input: Tensor of any dtype.
        other: Tensor of any dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.equal(wg.tensor([1, 2]), wg.tensor([1, 2]))
        True
    """
    only_tensors("equal", input, other)
    return input.meta.shape == other.meta.shape and bool(ops.all(ops.eq(input, other)))


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Return True if the shapes are equal.

    Args:
        input: Tensor of any dtype.
        other: Tensor of any dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.is_same_size(wg.ones(2, 3), wg.zeros(2, 3))
        True
    """
    return input.meta.shape == other.meta.shape


def is_nonzero(input: Tensor) -> bool:
    """Return True if the single element is not 0.

    Args:
        input: Tensor of one element.

    Returns:
        Python bool.

    Raises:
        ShapeError: For several elements.

    Example:
        >>> wg.is_nonzero(wg.tensor([0.5]))
        True
    """
    return bool(input)


def isposinf(input: Tensor) -> Tensor:
    """Return a bool tensor that is True where elements are +inf.

    Args:
        input: Tensor of any dtype.

    Returns:
        bool tensor of the shape of `input`.

    Example:
        >>> wg.isposinf(wg.tensor([1.0, float('inf')]))
        tensor([False,  True])
    """
    return ops.eq(input, math.inf)


def isneginf(input: Tensor) -> Tensor:
    """Return a bool tensor that is True where elements are -inf.

    Args:
        input: Tensor of any dtype.

    Returns:
        bool tensor of the shape of `input`.

    Example:
        >>> wg.isneginf(wg.tensor([1.0, -float('inf')]))
        tensor([False,  True])
    """
    return ops.eq(input, -math.inf)


def isreal(input: Tensor) -> Tensor:
    """Return True for every element: there are no complex dtypes.

    Args:
        input: Tensor of any dtype.

    Returns:
        bool tensor of the shape of `input`.

    Example:
        >>> wg.isreal(wg.tensor([1.0, float('nan')]))
        tensor([True, True])
    """
    return ops.eq(input, input).fill_(True)


def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None, *,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Replace NaN by `nan`, and infinities by `posinf` and `neginf` (default: the extremes of the dtype).

    Args:
        input: Tensor of any dtype.
        nan: Replaces NaN.
        posinf: Replaces +inf; None: the largest number of the dtype.
        neginf: Replaces -inf; None: the smallest number of the dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.nan_to_num(wg.tensor([1.0, float('nan')]))
        tensor([1., 0.])
    """
    if input.meta.dtype.kind != "f":
        return input.clone() if out is None else copy_to_out(input, out, "nan_to_num")
    largest = finfo(input.meta.dtype).max
    output = ops.where(ops.eq(input, -math.inf), -largest if neginf is None else neginf, input)
    output = ops.where(ops.eq(input, math.inf), largest if posinf is None else posinf, output)
    return ops.where(ops.isnan(input), 0.0 if nan is None else nan, output, out=out)


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor: ...
def where(
    condition: Tensor, input: Operand | None = None, other: Operand | None = None, *, out: Tensor | None = None
) -> Tensor | tuple[Tensor, ...]:
    """Select elements of `input` where `condition` is true, and of `other` elsewhere; shapes broadcast.

    With `condition` alone, return its nonzero indices, one vector for each dimension.

    Args:
        condition: bool tensor.
        input: Tensor or number.
        other: Tensor or number.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape and the promoted dtype.

    Example:
        >>> wg.where(wg.tensor([True, False]), wg.tensor([1, 2]), 0)
        tensor([1, 0])
    """
    only_tensors("where", condition)
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if input is None or other is None:
        raise ArgumentError("where: give both input and other, or neither")
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        dtype = result_type(input, other)
        return ops.where(condition, full_like(condition, input, dtype=dtype), other, out=out)
    return ops.where(condition, input, other, out=out)


def _where(self: Tensor, condition: Tensor, other: Operand) -> Tensor:
    """Select this tensor's elements where `condition` is true, and those of `other` elsewhere; shapes broadcast.

    Args:
        condition: bool tensor.
        other: Tensor or number.

    Returns:
        Tensor of the broadcast shape and the promoted dtype.

    Example:
        >>> wg.tensor([1, 2]).where(wg.tensor([True, False]), 0)
        tensor([1, 0])
    """
    return where(condition, self, other)


_where.__name__ = "where"
METHODS = {
    name: globals()[name]
    for name in (
        "allclose", "equal", "is_nonzero", "is_same_size", "isclose", "isneginf", "isposinf", "isreal",
        "nan_to_num",
    )
}  # fmt: skip
METHODS |= {"where": _where}
