"""Functions composed of other ops: NaN-ignoring reductions, softmax with a dtype, batched products, frexp, renorm, ...

They do not read values on the host, and their gradients follow from the ops they call.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .._generated import ops
from ..arguments.aliases import accept_axis, resolve_axis_aliases
from ..arguments.out import copy_to_out
from ..creation import factories
from ..linear_algebra.products import is_fusable
from ..reductions import scans, statistics
from ..runtime import dtypes, layout, views
from ..runtime.autocast import match_autocast_dtype
from ..runtime.dispatch import call
from ..runtime.errors import DomainError, DTypeError, GradientError, ShapeError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape import joining
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "addbmm", "addr", "frexp", "heaviside", "ldexp", "log_softmax", "nanmean", "nansum", "nextafter", "renorm",
    "softmax", "vander",
]  # fmt: skip


class FrexpResult(NamedTuple):
    """The mantissas and the exponents that `frexp` returns."""

    mantissa: Tensor
    exponent: Tensor


# NaN-ignoring sums and softmax ----------------------------------------------------------------------------------------


def nansum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Tensor | None = None,
    axis: Any = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Sum along `dim`, treating NaN as 0. Integers and bool are summed in int64. The gradient of a NaN element is 0."""
    only_tensors("nansum", input)
    dim, keepdim = resolve_axis_aliases("nansum", dim, None, axis, keepdim, keepdims)
    output = ops.sum(_nan_to_zero(input), dim, keepdim, dtype=dtype)
    return output if out is None else copy_to_out(output, out, "nansum")


def nanmean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Tensor | None = None,
    axis: Any = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return the mean along `dim` of the elements that are not NaN; NaN where all are NaN.

    Raises `DTypeError`, a `RuntimeError`, if the input or `dtype` is not floating.
    """
    only_tensors("nanmean", input)
    dim, keepdim = resolve_axis_aliases("nanmean", dim, None, axis, keepdim, keepdims)
    result_dtype = None if dtype is None else dtypes.parse(dtype)
    for checked_dtype in (input.meta.dtype, result_dtype):
        if checked_dtype is not None and checked_dtype.kind != "f":
            raise DTypeError(
                f"nanmean: takes and gives floating dtypes, not {checked_dtype.name}; convert with .float()"
            )
    total = ops.sum(_nan_to_zero(input), dim, keepdim, dtype=result_dtype)
    output = ops.true_divide(total, ops.sum(ops.eq(input, input), dim, keepdim))
    return output if out is None else copy_to_out(output, out, "nanmean")


def _nan_to_zero(input: Tensor) -> Tensor:
    return ops.where(ops.isnan(input), 0, input) if input.meta.dtype.kind == "f" else input


@accept_axis
def softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Return exp(x) / sum(exp(x)) along `dim`, after converting `input` to `dtype` if that is not None.

    Raises `UnsupportedDType` for integers.
    """
    return _softmax_in_dtype(ops.softmax, input, dim, dtype, out)


@accept_axis
def log_softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Return log(softmax(input)) along `dim`, without underflow."""
    return _softmax_in_dtype(ops.log_softmax, input, dim, dtype, out)


def _softmax_in_dtype(function: Any, input: Tensor, dim: int, dtype: Any, out: Tensor | None) -> Tensor:
    if dtype is not None:
        only_tensors(function.__name__, input)
        input = input.to(dtype=dtype)  # type: ignore[attr-defined]
    output: Tensor = function(input, dim)
    return output if out is None else copy_to_out(output, out, function.__name__)


# Sums of products -----------------------------------------------------------------------------------------------------


def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """Return `beta * input + alpha * sum over b of batch1[b] @ batch2[b]`.

    It is computed as one matrix product with an inner dimension of B * M. With `beta=0`, NaN in `input` is ignored.

    Args:
        input: Broadcasts to `(N, P)`.
        batch1: `(B, N, M)`.
        batch2: `(B, M, P)`.
        beta: Factor of `input`.
        alpha: Factor of the product.
        out: Tensor to write the result to.

    Raises:
        ShapeError: The shapes do not fit.
    """
    only_tensors("addbmm", input, batch1, batch2)
    shape1, shape2 = batch1.meta.shape, batch2.meta.shape
    if len(shape1) != 3 or len(shape2) != 3 or shape1[0] != shape2[0] or shape1[2] != shape2[1]:
        raise ShapeError(f"addbmm: takes (b, n, m) and (b, m, p), not shapes {list(shape1)} and {list(shape2)}")
    left = views.reshape(call(registry["permute"], (batch1,), ((1, 0, 2),)), (shape1[1], shape1[0] * shape1[2]))
    right = views.reshape(batch2, (shape1[0] * shape1[2], shape2[2]))
    if is_fusable(beta, alpha, input, left, right, 2, 2):
        output = ops.addmm_product(input, left, right, beta, alpha)
    else:
        output = _add_scaled(input, ops.mm(left, right), beta, alpha, "addbmm")
    return output if out is None else copy_to_out(output, out, "addbmm")


def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """Return `beta * input + alpha * outer(vec1, vec2)`, of shape `(n, m)` for vectors `(n,)` and `(m,)`.

    With `beta=0`, NaN in `input` is ignored.
    """
    only_tensors("addr", input, vec1, vec2)
    if vec1.meta.ndim != 1 or vec2.meta.ndim != 1:
        raise ShapeError(f"addr: takes two vectors, not shapes {list(vec1.meta.shape)} and {list(vec2.meta.shape)}")
    column = call(registry["unsqueeze"], (vec1,), (1,))
    output = _add_scaled(input, ops.mul(column, vec2), beta, alpha, "addr")
    return output if out is None else copy_to_out(output, out, "addr")


def _add_scaled(input: Tensor, product: Tensor, beta: Any, alpha: Any, where: str) -> Tensor:
    if layout.broadcast([input.meta.shape, product.meta.shape], where) != product.meta.shape:
        raise ShapeError(
            f"{where}: input of shape {list(input.meta.shape)} does not expand to {list(product.meta.shape)}"
        )
    input = match_autocast_dtype(input, product)
    kind = dtypes.promote(input.meta.dtype, product.meta.dtype).kind
    for name, value in (("beta", beta), ("alpha", alpha)):
        if kind in "iu" and isinstance(value, float):
            raise DTypeError(f"{where}: {name} must not be a floating number for integers, such as {value}")
    if alpha != 1:
        product = ops.mul(product, alpha)
    if beta == 0:
        return product
    return ops.add(input if beta == 1 else ops.mul(input, beta), product)


# Elementwise functions ------------------------------------------------------------------------------------------------


def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return 0 where `input` is negative or NaN, 1 where it is positive, and `values` where it is 0; shapes broadcast.

    Raises:
        DTypeError: The dtypes differ (a `RuntimeError`).
        GradientError: An operand requires grad; the function has no derivative.
    """
    only_tensors("heaviside", input, values)
    if input.meta.dtype is not values.meta.dtype:
        raise DTypeError(
            f"heaviside: input is {input.meta.dtype.name} and values {values.meta.dtype.name}; convert one with .to()"
        )
    from ..autograd import is_grad_enabled

    if is_grad_enabled() and (input.requires_grad or values.requires_grad):  # type: ignore[attr-defined]
        raise GradientError("heaviside: has no derivative; call it under no_grad() or of .detach()")
    positive = ops.gt(input, 0).to(input.meta.dtype)  # type: ignore[attr-defined]
    output = ops.where(ops.eq(input, 0), values, positive)
    return output if out is None else copy_to_out(output, out, "heaviside")


def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `input * 2 ** other`; integers give the default floating dtype, as in PyTorch."""
    only_tensors("ldexp", input, other)
    power = ops.exp2(other)
    if input.meta.dtype.kind == "f" and other.meta.dtype.kind != "f":
        power = power.to(dtypes.promote(input.meta.dtype, dtypes.default_dtype()))  # type: ignore[attr-defined]
    output = ops.mul(input, power)
    return output if out is None else copy_to_out(output, out, "ldexp")


# For each floating dtype: the integer dtype of the same width, and the bit pattern of infinity.
_FLOAT_BITS = {
    "float16": (dtypes.int16, 0x7C00), "bfloat16": (dtypes.int16, 0x7F80), "float32": (dtypes.int32, 0x7F800000),
    "float64": (dtypes.int64, 0x7FF0000000000000),
}  # fmt: skip


def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the next representable number after `input` in the direction of `other`.

    The result is `other` where both are equal, and NaN where either is NaN. Bit patterns of floating numbers, read as
    sign-magnitude integers, are ordered as the numbers are, so that neighbours differ by 1.

    Raises:
        UnsupportedDType: The dtype is not floating.
        GradientError: An operand requires grad; the function has no derivative.
    """
    from ..autograd import is_grad_enabled
    from .functions import result_type

    only_tensors("nextafter", input, other)
    result_dtype = result_type(input, other)
    if result_dtype.name not in _FLOAT_BITS:
        raise UnsupportedDType(f"nextafter: takes floating dtypes, not {result_dtype.name}; convert with .to()")
    if is_grad_enabled() and (input.requires_grad or other.requires_grad):  # type: ignore[attr-defined]
        raise GradientError("nextafter: has no derivative; call it under no_grad() or of .detach()")
    integers, infinity_bits = _FLOAT_BITS[result_dtype.name]
    int_min = -(1 << (8 * integers.itemsize - 1))
    start_bits, end_bits = (x.to(result_dtype).contiguous().view(integers) for x in (input, other))  # type: ignore[attr-defined]

    def to_ordinal(bits: Any) -> Any:  # a two's complement integer in the order of the numbers; 0 for 0.0 and -0.0
        return ops.where(ops.lt(bits, 0), ops.sub(int_min, bits), bits)

    start_ordinal, end_ordinal = to_ordinal(start_bits), to_ordinal(end_bits)
    is_ascending, is_negative = ops.lt(start_ordinal, end_ordinal), ops.lt(start_bits, 0)
    moves_from_zero = ops.logical_xor(is_ascending, is_negative)
    neighbour_bits = ops.where(moves_from_zero, ops.add(start_bits, 1), ops.sub(start_bits, 1))
    smallest_bits = ops.where(is_ascending, ops.add(start_ordinal, 1), int_min + 1)
    output: Any = ops.where(
        ops.eq(start_ordinal, end_ordinal), end_bits, ops.where(ops.eq(start_ordinal, 0), smallest_bits, neighbour_bits)
    )
    for bits in (end_bits, start_bits):  # without its sign bit, NaN is greater than infinity
        output = ops.where(ops.gt(ops.bitwise_and(bits, -1 - int_min), infinity_bits), bits, output)
    output = output.view(result_dtype)
    return output if out is None else copy_to_out(output, out, "nextafter")


def frexp(input: Tensor, *, out: Any = None) -> FrexpResult:
    """Split numbers into mantissa and exponent: `input = mantissa * 2 ** exponent`.

    Mantissas have a magnitude in [0.5, 1); 0, infinities and NaN are their own mantissas, with exponent 0. The result
    is exact, because `input` is only multiplied by powers of two.

    Returns:
        `(mantissa, exponent)`: the mantissa in the dtype of `input`, the exponent in int32.

    Raises:
        DTypeError: The dtype is not floating (a `RuntimeError`).
    """
    only_tensors("frexp", input)
    if input.meta.dtype.kind != "f":
        raise DTypeError(f"frexp: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    widened = input.to(dtypes.float32) if input.meta.dtype.itemsize == 2 else input  # type: ignore[attr-defined]
    magnitude = ops.abs(widened.detach())  # type: ignore[attr-defined]
    is_finite_nonzero = ops.logical_and(ops.gt(magnitude, 0), ops.lt(magnitude, math.inf))
    # exponent - 1, with an error of at most 1, which is corrected below
    approx_log2 = ops.where(is_finite_nonzero, ops.floor(ops.log2(ops.where(is_finite_nonzero, magnitude, 1))), -1)
    exponent = ops.add(approx_log2, 1)
    # Multiply by 2 ** -exponent in two steps, because this power may be out of range.
    half_exponent = ops.floor(ops.mul(exponent, 0.5))
    scaled = ops.mul(ops.mul(widened, ops.exp2(ops.neg(half_exponent))), ops.exp2(ops.sub(half_exponent, exponent)))
    too_large, too_small = ops.ge(ops.abs(scaled.detach()), 1), ops.lt(ops.abs(scaled.detach()), 0.5)  # type: ignore[attr-defined]
    too_large, too_small = ops.logical_and(is_finite_nonzero, too_large), ops.logical_and(is_finite_nonzero, too_small)
    scaled = ops.where(too_large, ops.mul(scaled, 0.5), ops.where(too_small, ops.mul(scaled, 2), scaled))
    exponent = ops.where(too_large, ops.add(exponent, 1), ops.where(too_small, ops.sub(exponent, 1), exponent))
    result = FrexpResult(scaled.to(input.meta.dtype), exponent.to(dtypes.int32))  # type: ignore[attr-defined]
    if out is None:
        return result
    return FrexpResult(*(copy_to_out(value, target, "frexp") for value, target in zip(result, out, strict=True)))


# Norms and powers -----------------------------------------------------------------------------------------------------


def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None) -> Tensor:
    """Scale every slice `input.select(dim, i)` whose p-norm exceeds `maxnorm` down to the norm `maxnorm`.

    Raises (all of them `RuntimeError`s):
        ShapeError: Fewer than 2 dimensions.
        DomainError: `p` is not positive, or `maxnorm` is negative.
        DTypeError: The dtype is not floating.
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


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the Vandermonde matrix of a vector: row i has the powers 0 to N - 1 of `x[i]`.

    Args:
        x: Vector `(n,)`. Integers and bool give int64.
        N: Number of columns; by default n.
        increasing: Whether powers increase from left to right.

    Returns:
        `(n, N)`.

    Raises:
        ShapeError: `x` is not a vector, or `N` is negative (a `RuntimeError`).
    """
    only_tensors("vander", x)
    if x.meta.ndim != 1:
        raise ShapeError(f"vander: takes a vector, not shape {list(x.meta.shape)}")
    count = x.meta.shape[0] if N is None else N
    if count < 0:
        raise ShapeError(f"vander: N must not be negative, got {N}")
    if x.meta.dtype.kind != "f":
        x = x.to(dtypes.int64)  # type: ignore[attr-defined]
    powers = powers_of(x, count)
    return powers if increasing else powers.flip(1)  # type: ignore[attr-defined,no-any-return]


def powers_of(x: Tensor, count: int) -> Tensor:
    """Return the powers 0 to count - 1 of `x` along a new last dimension, by a cumulative product."""
    ones = factories.ones((*x.meta.shape, min(count, 1)), dtype=x.meta.dtype, device=x.meta.device)
    if count < 2:
        return ones
    expanded = call(registry["expand"], (call(registry["unsqueeze"], (x,), (-1,)),), ((*x.meta.shape, count - 1),))
    return joining.cat([ones, scans.cumprod(expanded, -1)], -1)


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Fill the main diagonal in place.

    Args:
        fill_value: The number to write.
        wrap: In a matrix with more rows than columns, leave one row out after the diagonal's end and start it again, as
            NumPy does.

    Raises:
        ShapeError: Fewer than 2 dimensions, or more than 2 of unequal sizes (a `RuntimeError`).
    """
    shape, strides = self.meta.shape, self.meta.strides
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(f"fill_diagonal_: takes a matrix, or more dimensions of one size, not shape {list(shape)}")
    length, step, start = min(shape), sum(strides), self.storage_offset()  # type: ignore[attr-defined]
    self.as_strided((length,), (step,), start).fill_(fill_value)  # type: ignore[attr-defined]
    if wrap and len(shape) == 2 and length:
        for row in range(shape[1] + 1, shape[0], shape[1] + 1):
            rows = min(shape[1], shape[0] - row)
            self.as_strided((rows,), (step,), start + strides[0] * row).fill_(fill_value)  # type: ignore[attr-defined]
    return self


def _in_place(function: Any) -> Any:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self.copy_(function(self, *args, **kwargs))  # type: ignore[attr-defined,no-any-return]

    method.__name__ = f"{function.__name__}_"
    method.__doc__ = f"`{function.__name__}` in place."
    return method


METHODS: dict[str, Any] = {
    "addbmm": addbmm, "addbmm_": _in_place(addbmm), "addr": addr, "addr_": _in_place(addr),
    "fill_diagonal_": fill_diagonal_, "frexp": frexp, "heaviside": heaviside, "heaviside_": _in_place(heaviside),
    "ldexp": ldexp, "ldexp_": _in_place(ldexp), "nanmean": nanmean, "nansum": nansum, "nextafter": nextafter,
    "nextafter_": _in_place(nextafter), "renorm": renorm,
    "renorm_": _in_place(renorm), "log_softmax": log_softmax, "softmax": softmax,
}  # fmt: skip
