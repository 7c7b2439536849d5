"""Functions whose arguments need control flow around the generated ops. Names and arguments are PyTorch's.

This module has arithmetic, comparison and dtype information.
`METHODS` lists the functions that are also methods of Tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeGuard, overload

import numpy as np

from .._generated import ops
from ..arguments.out import copy_to_out
from ..arguments.types import MemoryFormat, Operand
from ..creation.factories import full_like
from ..runtime import dtypes
from ..runtime.dispatch import call, call_into
from ..runtime.dtypes import DType, DTypeLike
from ..runtime.errors import ArgumentError, DTypeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "add",
    "allclose",
    "can_cast",
    "clamp",
    "clip",
    "clone",
    "div",
    "divide",
    "equal",
    "finfo",
    "iinfo",
    "is_floating_point",
    "is_nonzero",
    "is_tensor",
    "isclose",
    "isneginf",
    "isposinf",
    "isreal",
    "nan_to_num",
    "numel",
    "polygamma",
    "promote_types",
    "result_type",
    "round",
    "rsub",
    "sub",
    "subtract",
    "where",
]


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
            quotient = ops.trunc(ops.true_divide(input, other))
            return quotient if out is None else out.copy_(quotient)
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


def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the n-th derivative of digamma, element by element; n = 0 is digamma itself.

    Args:
        n: Order of the derivative, at least 0.
        input: Tensor; integers become the default floating dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ArgumentError: `n` is negative or not an integer.

    Example:
        >>> wg.polygamma(1, wg.tensor([1.0]))
        tensor([1.6449])
    """
    order = _order(n)
    return ops.polygamma(input, order, out=out) if order else ops.digamma(input, out=out)


def polygamma_(self: Tensor, n: int) -> Tensor:
    """Compute `polygamma` in place.

    Args:
        n: Order of the derivative, at least 0.

    Returns:
        This tensor.

    Raises:
        ArgumentError: `n` is negative or not an integer.

    Example:
        >>> wg.tensor([1.0]).polygamma_(1)
        tensor([1.6449])
    """
    _order(n)
    return self.copy_(polygamma(n, self))


def _order(n: object) -> float:
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ArgumentError(f"polygamma: n is the order of a derivative, an integer from 0 on, not {n!r}")
    return float(n)


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
        return clone(input) if out is None else copy_to_out(input, out, "nan_to_num")
    largest = finfo(input.meta.dtype).max
    output = ops.where(ops.eq(input, -math.inf), -largest if neginf is None else neginf, input)
    output = ops.where(ops.eq(input, math.inf), largest if posinf is None else posinf, output)
    return ops.where(ops.isnan(input), 0.0 if nan is None else nan, output, out=out)


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


def clone(input: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """Return a copy; gradients flow back to `input`.

    Args:
        input: Tensor of any dtype.
        memory_format: Accepted for compatibility with PyTorch.

    Returns:
        Tensor of the shape and dtype of `input`, with memory of its own.

    Example:
        >>> wg.clone(wg.tensor([1, 2]))
        tensor([1, 2])
    """
    return call(registry["copy"], (input,), (None,))


def numel(input: Tensor) -> int:
    """Return the number of elements.

    Args:
        input: Tensor of any dtype.

    Returns:
        Python int.

    Example:
        >>> wg.numel(wg.ones(2, 3))
        6
    """
    only_tensors("numel", input)
    return input.meta.numel


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return True if `value` is a Tensor.

    Args:
        value: An object of any type.

    Returns:
        Python bool.

    Example:
        >>> wg.is_tensor(1.0)
        False
    """
    return isinstance(value, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """Return True if the dtype is floating.

    Args:
        input: Tensor of any dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.is_floating_point(wg.tensor([1]))
        False
    """
    only_tensors("is_floating_point", input)
    return input.meta.dtype.is_floating_point


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


def result_type(first: Operand, second: Operand) -> DType:
    """Return the dtype that arithmetic with two operands (tensors or numbers) promotes to.

    Args:
        first: Tensor or number.
        second: Tensor or number.

    Returns:
        The dtype.

    Raises:
        ArgumentError: An operand is neither a tensor nor a number.

    Example:
        >>> wg.result_type(wg.tensor([1]), 1.0)
        weftgrad.float32
    """
    ranked: list[tuple[DType, int]] = []
    for operand in (first, second):
        if isinstance(operand, Tensor):
            ranked.append((operand.meta.dtype, 0 if operand.meta.ndim else 1))
            continue
        number = operand.item() if isinstance(operand, np.generic) else operand
        if not isinstance(number, (bool, int, float)):
            raise ArgumentError(f"result_type: takes tensors and numbers, not {type(operand).__name__}")
        ranked.append((dtypes.number_dtype(number), 2))
    return dtypes.promote_operands(ranked)


def promote_types(first: DType, second: DType) -> DType:
    """Return the dtype that two dtypes promote to.

    Args:
        first: Dtype.
        second: Dtype.

    Returns:
        The dtype.

    Example:
        >>> wg.promote_types(wg.int32, wg.float16)
        weftgrad.float16
    """
    return dtypes.promote(first, second)


def can_cast(source: DType, target: DType) -> bool:
    """Return True if `source` may be cast to `target` without going down in category: bool, integer, floating.

    Args:
        source: Dtype.
        target: Dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.can_cast(wg.float64, wg.int32)
        False
    """
    order = {"b": 0, "u": 1, "i": 1, "f": 2}
    return order[source.kind] <= order[target.kind]


class finfo:
    """The limits of a floating dtype.

    Args:
        dtype: The dtype; None: the default dtype.

    Attributes:
        max: Largest finite number; `min` is its negative.
        eps: Difference between 1 and the next larger number.
        tiny: Smallest positive normal number, also called `smallest_normal`.
        resolution: Decimal resolution, such as 1e-6 for float32.
        bits: Size of an element.
        dtype: Name of the dtype.

    Raises:
        DTypeError: The dtype is not floating.

    Example:
        >>> wg.finfo(wg.float16).max, wg.finfo(wg.float16).eps
        (65504.0, 0.0009765625)
    """

    def __init__(self, dtype: DTypeLike | None = None):
        parsed = dtypes.default_dtype() if dtype is None else dtypes.parse(dtype)
        if parsed.kind != "f":
            raise DTypeError(f"finfo: takes floating dtypes, not {parsed.name}; use iinfo")
        if parsed is dtypes.bfloat16:
            self.max, self.eps, self.tiny, self.bits = 3.3895313892515355e38, 0.0078125, 1.1754943508222875e-38, 16
        else:
            limits = np.finfo(parsed.numpy)
            self.max, self.eps, self.tiny = float(limits.max), float(limits.eps), float(limits.tiny)
            self.bits = parsed.itemsize * 8
        self.min, self.smallest_normal, self.dtype = -self.max, self.tiny, parsed.name
        self.resolution = 10.0 ** math.ceil(math.log10(self.eps))  # the decimal resolution, 1e-6 for float32

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{n}={getattr(self, n):.6g}' for n in names)}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer dtype.

    Args:
        dtype: The dtype.

    Attributes:
        max: Largest number.
        min: Smallest number.
        bits: Size of an element.
        dtype: Name of the dtype.

    Raises:
        DTypeError: The dtype is no integer dtype.

    Example:
        >>> wg.iinfo(wg.int8)
        iinfo(min=-128, max=127, dtype=int8)
    """

    def __init__(self, dtype: DTypeLike):
        parsed = dtypes.parse(dtype)
        if parsed.kind not in "ui":
            raise DTypeError(f"iinfo: takes integer dtypes, not {parsed.name}")
        limits = np.iinfo(parsed.numpy)
        self.max, self.min, self.bits, self.dtype = int(limits.max), int(limits.min), parsed.itemsize * 8, parsed.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


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


def _polygamma(self: Tensor, n: int) -> Tensor:
    return polygamma(n, self)


def _where(self: Tensor, condition: Tensor, other: Operand) -> Tensor:
    return where(condition, self, other)


_polygamma.__name__, _polygamma.__doc__ = "polygamma", polygamma.__doc__
_where.__name__, _where.__doc__ = "where", where.__doc__

METHODS: dict[str, Callable[..., object]] = {
    name: globals()[name]
    for name in (
        "add", "add_", "allclose", "clamp", "clamp_", "clip", "div", "div_", "divide", "equal", "isclose",
        "isneginf", "isposinf", "nan_to_num", "polygamma_", "round", "sub", "sub_", "subtract",
    )
}  # fmt: skip
METHODS |= {"polygamma": _polygamma, "where": _where}
