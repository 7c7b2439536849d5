"""Arithmetic whose arguments need control flow around the generated ops, such as `alpha` of `add`."""

from __future__ import annotations

import numpy as np

from .._generated import ops
from ..arguments.types import Operand
from ..runtime import dtypes
from ..runtime.dispatch import call_into
from ..runtime.errors import ArgumentError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .type_info import result_type

__all__ = ["add", "clamp", "clip", "div", "divide", "round", "rsub", "square", "sub", "subtract"]


def add(input: Operand, other: Operand, *, alpha: Tensor | float = 1, out: Tensor | None = None) -> Tensor:
    """Return `input + alpha * other`, element by element.

    Shapes broadcast: a dimension of size 1, or a missing leading one, is repeated to the other operand's size. Dtypes
    promote: an integer tensor plus a floating tensor is floating. A Python number changes the dtype only if it is of a
    higher category (bool, integer, floating). The sum of two bool tensors is their logical or.

    Args:
        input: Tensor or number of any dtype.
        other: Tensor or number; its shape broadcasts with that of `input`.
        alpha: Factor of `other`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape and the promoted dtype.

    Raises:
        ShapeError: The shapes do not broadcast.

    Example:
        >>> wg.add(wg.tensor([1, 2]), wg.tensor([[10], [20]]), alpha=2)
        tensor([[21, 22],
                [41, 42]])
    """
    return ops.add(input, other if alpha == 1 else _scale(other, alpha), out=out)


def sub(input: Operand, other: Operand, *, alpha: Tensor | float = 1, out: Tensor | None = None) -> Tensor:
    """Return `input - alpha * other`, elementwise.

    Dtypes are promoted as in `add`.

    Args:
        input: Tensor or number.
        other: Tensor or number, not bool if `input` is; its shape broadcasts with that of `input`.
        alpha: Factor of `other`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape and the promoted dtype.

    Raises:
        ShapeError: The shapes do not broadcast.
        UnsupportedDType: Both operands are bool.

    Example:
        >>> wg.sub(wg.tensor([5.0, 7.0]), 2)
        tensor([3., 5.])
    """
    return ops.sub(input, other if alpha == 1 else _scale(other, alpha), out=out)


subtract = sub


def rsub(input: Operand, other: Operand, *, alpha: Tensor | float = 1) -> Tensor:
    """Return `other - alpha * input`.

    Args:
        input: Tensor or number.
        other: Tensor or number, not bool if `input` is; its shape broadcasts with that of `input`.
        alpha: Factor of `input`.

    Returns:
        Tensor of the broadcast shape and the promoted dtype.

    Raises:
        UnsupportedDType: Both operands are bool.

    Example:
        >>> wg.rsub(wg.tensor([1.0, 2.0]), 10)
        tensor([9., 8.])
    """
    return ops.sub(other, input if alpha == 1 else _scale(input, alpha))


def _scale(value: Operand, alpha: Tensor | float) -> Tensor | float:
    if isinstance(value, Tensor):
        return ops.mul(value, alpha)
    return (value.item() if isinstance(value, np.generic) else value) * alpha


def add_(self: Tensor, other: Operand, *, alpha: Tensor | float = 1) -> Tensor:
    """Add `alpha * other` in place.

    Args:
        other: Tensor that broadcasts to this tensor's shape, or a number.
        alpha: Factor of `other`.

    Returns:
        This tensor.

    Example:
        >>> wg.ones(2).add_(wg.tensor([1.0, 2.0]), alpha=10)
        tensor([11., 21.])
    """
    if alpha == 1:
        return ops.add_(self, other)
    if isinstance(other, Tensor):
        return call_into(registry["add_scaled"], (self, other, alpha), (), (self,), in_place=True)
    return ops.add_(self, _scale(other, alpha))


def sub_(self: Tensor, other: Operand, *, alpha: Tensor | float = 1) -> Tensor:
    """Subtract `alpha * other` in place.

    Args:
        other: Tensor that broadcasts to this tensor's shape, or a number.
        alpha: Factor of `other`.

    Returns:
        This tensor.

    Example:
        >>> wg.ones(2).sub_(wg.tensor([1.0, 2.0]), alpha=10)
        tensor([ -9., -19.])
    """
    return ops.sub_(self, other) if alpha == 1 else add_(self, other, alpha=-alpha)


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """Return `input / other`, elementwise.

    Args:
        input: Tensor or number.
        other: Tensor or number; its shape broadcasts with that of `input`.
        rounding_mode: None: not rounded, and integers become the default floating dtype. "floor": rounded down.
            "trunc": rounded to zero.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape and the promoted dtype. Integers divided by 0 with rounding give 0.

    Raises:
        ArgumentError: `rounding_mode` has another value.

    Example:
        >>> wg.div(wg.tensor([-7, 7]), 2, rounding_mode="floor")
        tensor([-4,  3])
    """
    if rounding_mode is None:
        return ops.true_divide(input, other, out=out)
    if rounding_mode == "floor":
        return ops.floor_divide(input, other, out=out)
    if rounding_mode == "trunc":
        if result_type(input, other).is_floating_point:  # trunc_divide is for integers: it gives NaN for infinities
            return ops.trunc_quotient(input, other, out=out)
        return ops.trunc_divide(input, other, out=out)
    raise ArgumentError(f"div: rounding_mode must be None, 'floor' or 'trunc', not {rounding_mode!r}")


divide = div


def div_(self: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """Divide in place; see `div`.

    Args:
        other: Tensor that broadcasts to this tensor's shape, or a number.
        rounding_mode: None, "floor" or "trunc".

    Returns:
        This tensor.

    Raises:
        ArgumentError: `rounding_mode` has another value.

    Example:
        >>> wg.tensor([1.0, 3.0]).div_(2)
        tensor([0.5000, 1.5000])
    """
    if rounding_mode is None:
        return ops.true_divide_(self, other)
    return self.copy_(div(self, other, rounding_mode=rounding_mode))


def clamp(
    input: Tensor, min: Operand | None = None, max: Operand | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Limit each element to [min, max].

    Args:
        input: Tensor of any dtype.
        min: Lower bound: a number, a tensor that broadcasts, or None.
        max: Upper bound, likewise. It wins where it is below `min`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape and the promoted dtype.

    Raises:
        ArgumentError: Both bounds are None.

    Example:
        >>> wg.clamp(wg.tensor([-2.0, 0.5, 3.0]), 0, 1)
        tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None:
        if max is None:
            raise ArgumentError("clamp: give min, max or both")
        return ops.clamp_max(input, max, out=out)
    return ops.clamp_min(input, min, out=out) if max is None else ops.clamp_both(input, min, max, out=out)


clip = clamp


def clamp_(self: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit the elements to [min, max] in place; see `clamp`.

    Args:
        min: Lower bound: a number, a tensor that broadcasts, or None.
        max: Upper bound, likewise.

    Returns:
        This tensor.

    Raises:
        ArgumentError: Both bounds are None.

    Example:
        >>> wg.tensor([-2.0, 3.0]).clamp_(0, 1)
        tensor([0., 1.])
    """
    if min is None:
        if max is None:
            raise ArgumentError("clamp_: give min, max or both")
        return ops.clamp_max_(self, max)
    return ops.clamp_min_(self, min) if max is None else ops.clamp_both_(self, min, max)


def square(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the square of each element.

    Args:
        input: Tensor of any dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the same shape and dtype; int64 for bool, as powers have.

    Example:
        >>> wg.square(wg.tensor([2, -3]))
        tensor([4, 9])
    """
    only_tensors("square", input)
    return ops.square(input.to(dtypes.int64) if input.meta.dtype is dtypes.bool_ else input, out=out)


def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """Round to the nearest number of `decimals` decimals, halves to even.

    Args:
        input: Tensor of any dtype but bool.
        decimals: Number of decimals; negative values round to tens, hundreds, and so on.
        out: Tensor to write the result to.

    Returns:
        Tensor of the same shape and dtype.

    Raises:
        ArgumentError: `decimals` is not an int.

    Example:
        >>> wg.round(wg.tensor([0.5, 1.5, 2.6]))
        tensor([0., 2., 3.])
    """
    if type(decimals) is not int:
        raise ArgumentError(f"round: decimals must be an int, not {decimals!r}")
    if not decimals:
        return ops.round(input, out=out)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return ops.true_divide(ops.round(ops.mul(input, scale)), scale, out=out)
    return ops.mul(ops.round(ops.true_divide(input, scale)), scale, out=out)


METHODS = {
    name: globals()[name]
    for name in (
        "add", "add_", "clamp", "clamp_", "clip", "div", "div_", "divide", "round", "square", "sub", "sub_", "subtract",
    )
}  # fmt: skip
