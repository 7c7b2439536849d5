"""Functions composed of other ops: sums without NaN, of products; softmax in a dtype; powers, limited norms.

Nothing is read on the host; gradients are those of the parts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import factories, joining, reducing, scanning
from ._checks import only_tensors
from ._generated import ops
from .products import fused
from .runtime import dtypes, layout, views
from .runtime.autocast import alike
from .runtime.dispatch import call
from .runtime.errors import DomainError, DTypeError, GradientError, ShapeError, UnsupportedDType
from .runtime.records import registry
from .runtime.spelling import spelled, store, with_axis
from .runtime.tensor import Tensor

__all__ = [
    "addbmm", "addr", "frexp", "heaviside", "ldexp", "log_softmax", "nanmean", "nansum", "nextafter", "renorm",
    "softmax", "vander",
]  # fmt: skip


class FrexpResult(NamedTuple):
    """Mantissas and exponents."""

    mantissa: Tensor
    exponent: Tensor


# Sums -----------------------------------------------------------------------------------------------------------------


def nansum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Tensor | None = None,
    axis: Any = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The sum along `dim` of what is not NaN; integers and bool are summed in int64. The gradient of NaN is 0."""
    only_tensors("nansum", input)
    dim, keepdim = spelled("nansum", dim, None, axis, keepdim, keepdims)
    found = ops.sum(_numbers(input), dim, keepdim, dtype=dtype)
    return found if out is None else store(found, out, "nansum")


def nanmean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Tensor | None = None,
    axis: Any = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The mean along `dim` of what is not NaN; NaN where there is nothing else.

    Raises `DTypeError`, a `RuntimeError`, for integers, and for a `dtype` that is not floating.
    """
    only_tensors("nanmean", input)
    dim, keepdim = spelled("nanmean", dim, None, axis, keepdim, keepdims)
    wanted = None if dtype is None else dtypes.parse(dtype)
    for each in (input.meta.dtype, wanted):
        if each is not None and each.kind != "f":
            raise DTypeError(f"nanmean: takes and gives floating dtypes, not {each.name}; convert with .float()")
    total = ops.sum(_numbers(input), dim, keepdim, dtype=wanted)
    found = ops.true_divide(total, ops.sum(ops.eq(input, input), dim, keepdim))
    return found if out is None else store(found, out, "nanmean")


def _numbers(input: Tensor) -> Tensor:
    return ops.where(ops.isnan(input), 0, input) if input.meta.dtype.kind == "f" else input


@with_axis
def softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Exponentials along `dim` divided by their sum, of the input converted to `dtype`.

    Raises `UnsupportedDType` for integers.
    """
    return _along(ops.softmax, input, dim, dtype, out)


@with_axis
def log_softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of `softmax`, without underflow."""
    return _along(ops.log_softmax, input, dim, dtype, out)


def _along(function: Any, input: Tensor, dim: int, dtype: Any, out: Tensor | None) -> Tensor:
    if dtype is not None:
        only_tensors(function.__name__, input)
        input = input.to(dtype=dtype)  # type: ignore[attr-defined]
    found: Tensor = function(input, dim)
    return found if out is None else store(found, out, function.__name__)


# Sums of products -----------------------------------------------------------------------------------------------------


def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * input + alpha * the sum of batch1[b] @ batch2[b] over the batch: (b, n, m) and (b, m, p) to (n, p).

    One product of matrices with rows of b * m elements. For beta = 0, NaN in `input` does not count.
    """
    only_tensors("addbmm", input, batch1, batch2)
    first, second = batch1.meta.shape, batch2.meta.shape
    if len(first) != 3 or len(second) != 3 or first[0] != second[0] or first[2] != second[1]:
        raise ShapeError(f"addbmm: takes (b, n, m) and (b, m, p), not shapes {list(first)} and {list(second)}")
    rows = views.reshape(call(registry["permute"], (batch1,), ((1, 0, 2),)), (first[1], first[0] * first[2]))
    columns = views.reshape(batch2, (first[0] * first[2], second[2]))
    if fused(beta, alpha, input, rows, columns, 2, 2):
        found = ops.addmm_product(input, rows, columns, beta, alpha)
    else:
        found = _plus(input, ops.mm(rows, columns), beta, alpha, "addbmm")
    return found if out is None else store(found, out, "addbmm")


def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * input + alpha * vec1[i] * vec2[j]: (n,) and (m,) to (n, m).

    For beta = 0, NaN in `input` does not count.
    """
    only_tensors("addr", input, vec1, vec2)
    if vec1.meta.ndim != 1 or vec2.meta.ndim != 1:
        raise ShapeError(f"addr: takes two vectors, not shapes {list(vec1.meta.shape)} and {list(vec2.meta.shape)}")
    column = call(registry["unsqueeze"], (vec1,), (1,))
    found = _plus(input, ops.mul(column, vec2), beta, alpha, "addr")
    return found if out is None else store(found, out, "addr")


def _plus(input: Tensor, product: Tensor, beta: Any, alpha: Any, where: str) -> Tensor:
    if layout.broadcast([input.meta.shape, product.meta.shape], where) != product.meta.shape:
        raise ShapeError(
            f"{where}: input of shape {list(input.meta.shape)} does not expand to {list(product.meta.shape)}"
        )
    input = alike(input, product)
    kind = dtypes.promote(input.meta.dtype, product.meta.dtype).kind
    for name, value in (("beta", beta), ("alpha", alpha)):
        if kind in "iu" and isinstance(value, float):
            raise DTypeError(f"{where}: {name} must not be a floating number for integers, such as {value}")
    if alpha != 1:
        product = ops.mul(product, alpha)
    if beta == 0:
        return product
    return ops.add(input if beta == 1 else ops.mul(input, beta), product)


# Elements -------------------------------------------------------------------------------------------------------------


def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """0 where `input` is negative or NaN, 1 where it is positive, `values` where it is 0; shapes broadcast.

    Raises `DTypeError`, a `RuntimeError`, unless both have one dtype; `GradientError` where a gradient is wanted.
    """
    only_tensors("heaviside", input, values)
    if input.meta.dtype is not values.meta.dtype:
        raise DTypeError(
            f"heaviside: input is {input.meta.dtype.name} and values {values.meta.dtype.name}; convert one with .to()"
        )
    from .autograd import is_grad_enabled

    if is_grad_enabled() and (input.requires_grad or values.requires_grad):  # type: ignore[attr-defined]
        raise GradientError("heaviside: has no derivative; call it under no_grad() or of .detach()")
    positive = ops.gt(input, 0).to(input.meta.dtype)  # type: ignore[attr-defined]
    found = ops.where(ops.eq(input, 0), values, positive)
    return found if out is None else store(found, out, "heaviside")


def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """input * 2 ** other; integers give the default floating dtype, as in PyTorch."""
    only_tensors("ldexp", input, other)
    power = ops.exp2(other)
    if input.meta.dtype.kind == "f" and other.meta.dtype.kind != "f":
        power = power.to(dtypes.promote(input.meta.dtype, dtypes.default_dtype()))  # type: ignore[attr-defined]
    found = ops.mul(input, power)
    return found if out is None else store(found, out, "ldexp")


# The integers of a dtype's width, and the bits of its infinity.
_BITS = {
    "float16": (dtypes.int16, 0x7C00), "bfloat16": (dtypes.int16, 0x7F80), "float32": (dtypes.int32, 0x7F800000),
    "float64": (dtypes.int64, 0x7FF0000000000000),
}  # fmt: skip


def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The number next to `input` on the way to `other`; `other` where they are equal, NaN where either is.

    Works on the numbers' bits, whose order as integers is theirs. Raises `UnsupportedDType` for integers, and
    `GradientError` where a gradient is wanted.
    """
    from .autograd import is_grad_enabled
    from .functions import result_type

    only_tensors("nextafter", input, other)
    wanted = result_type(input, other)
    if wanted.name not in _BITS:
        raise UnsupportedDType(f"nextafter: takes floating dtypes, not {wanted.name}; convert with .to()")
    if is_grad_enabled() and (input.requires_grad or other.requires_grad):  # type: ignore[attr-defined]
        raise GradientError("nextafter: has no derivative; call it under no_grad() or of .detach()")
    integers, infinite = _BITS[wanted.name]
    least = -(1 << (8 * integers.itemsize - 1))
    start, end = (x.to(wanted).contiguous().view(integers) for x in (input, other))  # type: ignore[attr-defined]

    def place(bits: Any) -> Any:
        return ops.where(ops.lt(bits, 0), ops.sub(least, bits), bits)

    at, to = place(start), place(end)
    up, minus = ops.lt(at, to), ops.lt(start, 0)
    farther = ops.logical_xor(up, minus)  # from 0
    moved = ops.where(farther, ops.add(start, 1), ops.sub(start, 1))
    from_zero = ops.where(up, ops.add(at, 1), least + 1)
    found: Any = ops.where(ops.eq(at, to), end, ops.where(ops.eq(at, 0), from_zero, moved))
    for bits in (end, start):
        found = ops.where(ops.gt(ops.bitwise_and(bits, -1 - least), infinite), bits, found)
    found = found.view(wanted)
    return found if out is None else store(found, out, "nextafter")


def frexp(input: Tensor, *, out: Any = None) -> FrexpResult:
    """(mantissa, exponent) with input = mantissa * 2 ** exponent, magnitudes of mantissas in [0.5, 1), exponents int32;
    0, infinities and NaN are their own mantissas, with exponent 0. Exact: only powers of two are multiplied with.

    Raises `DTypeError`, a `RuntimeError`, for integers.
    """
    only_tensors("frexp", input)
    if input.meta.dtype.kind != "f":
        raise DTypeError(f"frexp: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    wide = input.to(dtypes.float32) if input.meta.dtype.itemsize == 2 else input  # type: ignore[attr-defined]
    size = ops.abs(wide.detach())  # type: ignore[attr-defined]
    ordinary = ops.logical_and(ops.gt(size, 0), ops.lt(size, math.inf))
    near = ops.where(ordinary, ops.floor(ops.log2(ops.where(ordinary, size, 1))), -1)  # within 1 of the exponent - 1
    exponent = ops.add(near, 1)
    half = ops.floor(ops.mul(exponent, 0.5))  # in two steps, so that neither power is out of range
    scaled = ops.mul(ops.mul(wide, ops.exp2(ops.neg(half))), ops.exp2(ops.sub(half, exponent)))
    large, small = ops.ge(ops.abs(scaled.detach()), 1), ops.lt(ops.abs(scaled.detach()), 0.5)  # type: ignore[attr-defined]
    large, small = ops.logical_and(ordinary, large), ops.logical_and(ordinary, small)
    scaled = ops.where(large, ops.mul(scaled, 0.5), ops.where(small, ops.mul(scaled, 2), scaled))
    exponent = ops.where(large, ops.add(exponent, 1), ops.where(small, ops.sub(exponent, 1), exponent))
    found = FrexpResult(scaled.to(input.meta.dtype), exponent.to(dtypes.int32))  # type: ignore[attr-defined]
    if out is None:
        return found
    return FrexpResult(*(store(value, into, "frexp") for value, into in zip(found, out, strict=True)))


# Norms and powers -----------------------------------------------------------------------------------------------------


def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None) -> Tensor:
    """`input` with every slice along `dim` whose p-norm is above `maxnorm` scaled down to that.

    Raises `ShapeError` for fewer than 2 dimensions, `DomainError` for p or maxnorm out of range, `DTypeError` for
    integers, all of them `RuntimeError`s.
    """
    only_tensors("renorm", input)
    if input.meta.ndim < 2:
        raise ShapeError(f"renorm: needs at least 2 dimensions, not shape {list(input.meta.shape)}")
    if p <= 0 or maxnorm < 0:
        raise DomainError(f"renorm: p must be positive and maxnorm not negative, but they are {p} and {maxnorm}")
    at = layout.normalize_dim(dim, input.meta.ndim, "renorm")
    norms = reducing.norm(input, p, tuple(d for d in range(input.meta.ndim) if d != at), True)
    factors = ops.where(ops.gt(norms, maxnorm), ops.true_divide(maxnorm, ops.add(norms, 1e-7)), 1.0)
    found = ops.mul(input, factors)
    return found if out is None else store(found, out, "renorm")


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers 0 to N - 1 of the elements of a vector, a row each, the highest first unless `increasing`: (n,) to
    (n, N), with N the vector's length if it is not given. bool gives int64.

    Raises `ShapeError`, a `RuntimeError`, for another number of dimensions or a negative N.
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
    """The powers 0 to count - 1 along a new last dimension, each the product of the one before and `x`."""
    ones = factories.ones((*x.meta.shape, min(count, 1)), dtype=x.meta.dtype, device=x.meta.device)
    if count < 2:
        return ones
    wide = call(registry["expand"], (call(registry["unsqueeze"], (x,), (-1,)),), ((*x.meta.shape, count - 1),))
    return joining.cat([ones, scanning.cumprod(wide, -1)], -1)


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Set the elements whose indices are all alike, in place. Of matrices with more rows than columns, `wrap` begins
    anew after each diagonal and a row.

    Raises `ShapeError`, a `RuntimeError`, for fewer than 2 dimensions, or more of unequal sizes.
    """
    shape, strides = self.meta.shape, self.meta.strides
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(f"fill_diagonal_: takes a matrix, or more dimensions of one size, not shape {list(shape)}")
    least, step, start = min(shape), sum(strides), self.storage_offset()  # type: ignore[attr-defined]
    self.as_strided((least,), (step,), start).fill_(fill_value)  # type: ignore[attr-defined]
    if wrap and len(shape) == 2 and shape[0] > shape[1] + 1 and least:
        count = (self.meta.numel + least) // (least + 1) - least
        self.as_strided((count,), (step,), start + strides[0] * (shape[1] + 1)).fill_(fill_value)  # type: ignore[attr-defined]
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
