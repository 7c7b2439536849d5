"""Functions of floating-point numbers composed of other ops: exponents, neighbours, steps, and norms of slices.

They do not read values on the host, and their gradients follow from the ops they call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .._generated import ops
from ..arguments.out import copy_to_out
from ..autograd import is_grad_enabled
from ..reductions import statistics
from ..runtime import dtypes, layout
from ..runtime.errors import DomainError, DTypeError, GradientError, ShapeError, UnsupportedDType
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ..tensor_methods.in_place import in_place_method
from .type_info import result_type

__all__ = ["frexp", "heaviside", "ldexp", "nextafter", "renorm"]

# For each floating dtype: the integer dtype of the same width, and the bit pattern of infinity.
_FLOAT_BITS = {
    "float16": (dtypes.int16, 0x7C00), "bfloat16": (dtypes.int16, 0x7F80), "float32": (dtypes.int32, 0x7F800000),
    "float64": (dtypes.int64, 0x7FF0000000000000),
}  # fmt: skip


class FrexpResult(NamedTuple):
    """The mantissas and the exponents that `frexp` returns."""

    mantissa: Tensor
    exponent: Tensor


def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return 0 where `input` is negative or NaN, 1 where it is positive, and `values` where it is 0; shapes broadcast.

    Args:
        input: Tensor of any dtype.
        values: Tensor of the same dtype, whose shape broadcasts with that of `input`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape.

    Raises:
        DTypeError: The dtypes differ (a `RuntimeError`).
        GradientError: An operand requires grad; the function has no derivative.

    Example:
        >>> wg.heaviside(wg.tensor([-1.0, 0.0, 2.0]), wg.tensor(0.5))
        tensor([0.0000, 0.5000, 1.0000])
    """
    only_tensors("heaviside", input, values)
    if input.meta.dtype is not values.meta.dtype:
        raise DTypeError(
            f"heaviside: input is {input.meta.dtype.name} and values {values.meta.dtype.name}; convert one with .to()"
        )
    if is_grad_enabled() and (input.requires_grad or values.requires_grad):
        raise GradientError("heaviside: has no derivative; call it under no_grad() or of .detach()")
    positive = ops.gt(input, 0).to(input.meta.dtype)
    output = ops.where(ops.eq(input, 0), values, positive)
    return output if out is None else copy_to_out(output, out, "heaviside")


def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `input * 2 ** other`; integers give the default floating dtype, as in PyTorch.

    Args:
        input: Tensor of any dtype.
        other: Tensor of exponents, whose shape broadcasts with that of `input`.
        out: Tensor to write the result to.

    Returns:
        Floating tensor of the broadcast shape.

    Example:
        >>> wg.ldexp(wg.tensor([1.0, 3.0]), wg.tensor([2, -1]))
        tensor([4.0000, 1.5000])
    """
    only_tensors("ldexp", input, other)
    power = ops.exp2(other)
    if input.meta.dtype.kind == "f" and other.meta.dtype.kind != "f":
        power = power.to(dtypes.promote(input.meta.dtype, dtypes.default_dtype()))
    output = ops.mul(input, power)
    return output if out is None else copy_to_out(output, out, "ldexp")


def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the next representable number after `input` in the direction of `other`.

    The result is `other` where both are equal, and NaN where either is NaN. Bit patterns of floating numbers, read as
    sign-magnitude integers, are ordered as the numbers are, so that neighbours differ by 1.

    Args:
        input: Floating tensor.
        other: Floating tensor, whose shape broadcasts with that of `input`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape and the promoted dtype.

    Raises:
        UnsupportedDType: The dtype is not floating.
        GradientError: An operand requires grad; the function has no derivative.

    Example:
        >>> wg.nextafter(wg.tensor([1.0]), wg.tensor([2.0])) - 1 == wg.finfo(wg.float32).eps
        tensor([True])
    """
    only_tensors("nextafter", input, other)
    result_dtype = result_type(input, other)
    if result_dtype.name not in _FLOAT_BITS:
        raise UnsupportedDType(f"nextafter: takes floating dtypes, not {result_dtype.name}; convert with .to()")
    if is_grad_enabled() and (input.requires_grad or other.requires_grad):
        raise GradientError("nextafter: has no derivative; call it under no_grad() or of .detach()")
    integers, infinity_bits = _FLOAT_BITS[result_dtype.name]
    sign_bit = -(1 << (8 * integers.itemsize - 1))
    start_bits, end_bits = (x.to(result_dtype).contiguous().view(integers) for x in (input, other))
    output = ops.neighbour_bits(start_bits, end_bits, sign_bit, infinity_bits)
    output = output.view(result_dtype)
    return output if out is None else copy_to_out(output, out, "nextafter")


def frexp(input: Tensor, *, out: Sequence[Tensor] | None = None) -> FrexpResult:
    """Split numbers into mantissa and exponent: `input = mantissa * 2 ** exponent`.

    Mantissas have a magnitude in [0.5, 1); 0, infinities and NaN are their own mantissas, with exponent 0. The result
    is exact, because `input` is only multiplied by powers of two.

    Args:
        input: Floating tensor.
        out: Two tensors to write the results to.

    Returns:
        `(mantissa, exponent)`: the mantissa in the dtype of `input`, the exponent in int32.

    Raises:
        DTypeError: The dtype is not floating (a `RuntimeError`).

    Example:
        >>> wg.frexp(wg.tensor([6.0]))
        FrexpResult(mantissa=tensor([0.7500]), exponent=tensor([3], dtype=weftgrad.int32))
    """
    only_tensors("frexp", input)
    if input.meta.dtype.kind != "f":
        raise DTypeError(f"frexp: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    widened = input.to(dtypes.float32) if input.meta.dtype.itemsize == 2 else input
    magnitude = ops.abs(widened.detach())
    is_finite_nonzero = ops.logical_and(ops.gt(magnitude, 0), ops.lt(magnitude, math.inf))
    # exponent - 1, with an error of at most 1, which is corrected below
    approx_log2 = ops.where(is_finite_nonzero, ops.floor(ops.log2(ops.where(is_finite_nonzero, magnitude, 1))), -1)
    exponent = ops.add(approx_log2, 1)
    # Multiply by 2 ** -exponent in two steps, because this power may be out of range.
    half_exponent = ops.floor(ops.mul(exponent, 0.5))
    scaled = ops.mul(ops.mul(widened, ops.exp2(ops.neg(half_exponent))), ops.exp2(ops.sub(half_exponent, exponent)))
    too_large, too_small = ops.ge(ops.abs(scaled.detach()), 1), ops.lt(ops.abs(scaled.detach()), 0.5)
    too_large, too_small = ops.logical_and(is_finite_nonzero, too_large), ops.logical_and(is_finite_nonzero, too_small)
    scaled = ops.where(too_large, ops.mul(scaled, 0.5), ops.where(too_small, ops.mul(scaled, 2), scaled))
    exponent = ops.where(too_large, ops.add(exponent, 1), ops.where(too_small, ops.sub(exponent, 1), exponent))
    result = FrexpResult(scaled.to(input.meta.dtype), exponent.to(dtypes.int32))
    if out is None:
        return result
    return FrexpResult(*(copy_to_out(value, target, "frexp") for value, target in zip(result, out, strict=True)))


def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None) -> Tensor:
    """Scale every slice `input.select(dim, i)` whose p-norm exceeds `maxnorm` down to the norm `maxnorm`.

    Args:
        input: Floating tensor with at least 2 dimensions.
        p: Order of the norm, above 0.
        dim: The dimension of the slices' positions; negative values count from the last.
        maxnorm: Largest norm, at least 0.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: Fewer than 2 dimensions.
        DomainError: `p` is not positive, or `maxnorm` is negative.
        DTypeError: The dtype is not floating.

    Example:
        >>> wg.renorm(wg.tensor([[3.0, 4.0], [30.0, 40.0]]), 2, 0, 7.0)
        tensor([[3.0000, 4.0000],
                [4.2000, 5.6000]])
    """
    only_tensors("renorm", input)
    if input.meta.ndim < 2:
        raise ShapeError(f"renorm: needs at least 2 dimensions, not shape {list(input.meta.shape)}")
    if p <= 0 or maxnorm < 0:
        raise DomainError(f"renorm: p must be positive and maxnorm not negative, but they are {p} and {maxnorm}")
    axis = layout.normalize_dim(dim, input.meta.ndim, "renorm")
    norms = statistics.norm(input, p, tuple(d for d in range(input.meta.ndim) if d != axis), True)
    factors = ops.where(ops.gt(norms, maxnorm), ops.true_divide(maxnorm, ops.add(norms, 1e-7)), 1.0)
    output = ops.mul(input, factors)
    return output if out is None else copy_to_out(output, out, "renorm")


_NEXTAFTER_EXAMPLE = ">>> wg.tensor([1.0]).nextafter_(wg.tensor([2.0])) == 1 + wg.finfo(wg.float32).eps\ntensor([True])"
METHODS = {
    "frexp": frexp, "heaviside": heaviside, "heaviside_": in_place_method(heaviside), "ldexp": ldexp,
    "ldexp_": in_place_method(ldexp), "nextafter": nextafter,
    "nextafter_": in_place_method(nextafter, _NEXTAFTER_EXAMPLE),
    "renorm": renorm, "renorm_": in_place_method(renorm),
}  # fmt: skip
