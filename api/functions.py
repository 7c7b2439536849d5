"""Functions whose arguments need control flow, over the ops of the specs. Names and arguments are PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._generated import ops
from .runtime import dtypes, layout, views
from .runtime.dispatch import call, call_into
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, DTypeError, ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = [
    "MaxResult", "MinResult", "add", "addmm", "aminmax", "addmv", "allclose", "baddbmm", "broadcast_shapes",
    "broadcast_tensors", "broadcast_to", "can_cast", "clamp", "clip", "clone", "div", "divide", "equal", "flatten",
    "flip", "fliplr", "flipud", "inner", "is_floating_point", "is_nonzero", "is_tensor", "isclose", "isneginf",
    "isposinf", "isreal", "linear", "logsumexp", "matmul", "max", "min", "moveaxis", "movedim", "nan_to_num", "norm",
    "numel", "permute", "promote_types", "ravel", "reshape", "result_type", "round", "rsub", "std", "std_mean", "sub",
    "subtract", "swapaxes", "t", "trace", "unbind", "unflatten", "var", "var_mean", "view_as",
]  # fmt: skip

Dims = int | Sequence[int] | None


class MaxResult(NamedTuple):
    """Largest values and their positions."""

    values: Tensor
    indices: Tensor


class MinResult(NamedTuple):
    """Smallest values and their positions."""

    values: Tensor
    indices: Tensor


# arithmetic ---------------------------------------------------------------------------------------------------------


def add(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input + alpha * other."""
    return ops.add(input, other if alpha == 1 else _scaled(other, alpha), out=out)


def sub(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input - alpha * other."""
    return ops.sub(input, other if alpha == 1 else _scaled(other, alpha), out=out)


subtract = sub


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    return ops.sub(other, input if alpha == 1 else _scaled(input, alpha))


def _scaled(value: Any, alpha: Any) -> Any:
    return ops.mul(value, alpha) if isinstance(value, Tensor) else value * alpha


def add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """Add alpha * other in place."""
    if alpha == 1:
        return ops.add_(self, other)
    if isinstance(other, Tensor):
        return call_into(registry["add_scaled"], (self, other, alpha), (), (self,), in_place=True)  # type: ignore[no-any-return]
    return ops.add_(self, other * alpha)


def sub_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """Subtract alpha * other in place."""
    return ops.sub_(self, other) if alpha == 1 else add_(self, other, alpha=-alpha)


def div(input: Any, other: Any, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """input / other; `rounding_mode` is None, "floor" or "trunc"."""
    if rounding_mode is None:
        return ops.true_divide(input, other, out=out)
    if rounding_mode == "floor":
        return ops.floor_divide(input, other, out=out)
    if rounding_mode == "trunc":
        if result_type(input, other).is_floating_point:  # trunc_divide is for integers: it has NaN for infinities
            quotient = ops.trunc(ops.true_divide(input, other))
            return quotient if out is None else out.copy_(quotient)  # type: ignore[attr-defined,no-any-return]
        return ops.trunc_divide(input, other, out=out)
    raise ArgumentError(f"div: rounding_mode must be None, 'floor' or 'trunc', not {rounding_mode!r}")


divide = div


def div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Divide in place."""
    if rounding_mode is None:
        return ops.true_divide_(self, other)
    return self.copy_(div(self, other, rounding_mode=rounding_mode))  # type: ignore[attr-defined,no-any-return]


def clamp(input: Tensor, min: Any = None, max: Any = None, *, out: Tensor | None = None) -> Tensor:
    """input limited to [min, max]; either may be missing."""
    if min is None and max is None:
        raise ArgumentError("clamp: give min, max or both")
    if min is None:
        return ops.clamp_max(input, max, out=out)
    return ops.clamp_min(input, min, out=out) if max is None else ops.clamp_both(input, min, max, out=out)


clip = clamp


def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Limit to [min, max] in place."""
    if min is None and max is None:
        raise ArgumentError("clamp_: give min, max or both")
    if min is None:
        return ops.clamp_max_(self, max)
    return ops.clamp_min_(self, min) if max is None else ops.clamp_both_(self, min, max)


def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """The nearest number with `decimals` decimals, halves to the even one."""
    if not decimals:
        return ops.round(input, out=out)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return ops.true_divide(ops.round(ops.mul(input, scale)), scale, out=out)
    return ops.mul(ops.round(ops.true_divide(input, scale)), scale, out=out)


def nan_to_num(input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN and infinities replaced by numbers (by default the largest of the dtype)."""
    if input.meta.dtype.kind != "f":
        return clone(input)
    top = finfo(input.meta.dtype).max
    found = ops.where(ops.isnan(input), nan, input)
    found = ops.where(ops.eq(found, math.inf), top if posinf is None else posinf, found)
    return ops.where(ops.eq(found, -math.inf), -top if neginf is None else neginf, found)


def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether |input - other| <= atol + rtol * |other|, elementwise."""
    near = ops.le(ops.abs(ops.sub(input, other)), ops.add(ops.mul(ops.abs(other), rtol), atol))
    found = ops.logical_or(ops.logical_and(near, ops.isfinite(other)), ops.eq(input, other))
    if equal_nan:
        found = ops.logical_or(found, ops.logical_and(ops.isnan(input), ops.isnan(other)))
    return found


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close (see `isclose`)."""
    return bool(ops.all(isclose(input, other, rtol, atol, equal_nan)))


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    return input.meta.shape == other.meta.shape and bool(ops.all(ops.eq(input, other)))


def isposinf(input: Tensor) -> Tensor:
    """Whether elements are +inf."""
    return ops.eq(input, math.inf)


def isneginf(input: Tensor) -> Tensor:
    """Whether elements are -inf."""
    return ops.eq(input, -math.inf)


def isreal(input: Tensor) -> Tensor:
    """True everywhere: there are no complex dtypes."""
    return ops.eq(input, input).fill_(True)  # type: ignore[attr-defined,no-any-return]


# reductions ---------------------------------------------------------------------------------------------------------


def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The largest element; with `dim`, (values, indices) along it; with a tensor, the elementwise maximum."""
    return _extreme(input, dim, keepdim, other, ops.maximum, ops.amax, ops.max_dim, MaxResult)


def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The smallest element; with `dim`, (values, indices) along it; with a tensor, the elementwise minimum."""
    return _extreme(input, dim, keepdim, other, ops.minimum, ops.amin, ops.min_dim, MinResult)


def _extreme(input: Tensor, dim: Any, keepdim: bool, other: Any, both: Any, whole: Any, along: Any, result: Any) -> Any:
    if other is None and isinstance(dim, Tensor):
        other = dim
    if other is not None:
        return both(input, other)
    return whole(input) if dim is None else result(*along(input, dim, keepdim))


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element, of the tensor or along `dim`."""
    return ops.amin(input, dim, keepdim), ops.amax(input, dim, keepdim)


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Variance along `dim`: the sum of squared deviations divided by n - correction (default 1: Bessel's)."""
    return _moments(input, dim, unbiased, keepdim, correction)[0]


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Square root of the variance (see `var`)."""
    return ops.sqrt(var(input, dim, unbiased, keepdim, correction=correction))


def var_mean(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """Variance and mean (see `var`)."""
    return _moments(input, dim, unbiased, keepdim, correction)


def std_mean(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean (see `var`)."""
    variance, mean = _moments(input, dim, unbiased, keepdim, correction)
    return ops.sqrt(variance), mean


def _moments(
    input: Tensor, dim: Any, unbiased: bool | None, keepdim: bool, correction: float | None
) -> tuple[Tensor, Tensor]:
    if isinstance(dim, bool):  # var(input, unbiased)
        dim, unbiased = None, dim
    if input.meta.dtype.kind != "f":
        raise DTypeError(f"var: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    dims = layout.normalize_dims(None if dim == () else dim, input.meta.ndim, "var")
    count = 1
    for d in dims:
        count *= input.meta.shape[d]
    mean = ops.mean(input, dims, True)
    deviation = ops.sub(input, mean)
    total = ops.sum(ops.square(deviation), dims, keepdim)
    kept = mean if keepdim else views.reshape(mean, total.meta.shape)
    freedom = count - correction
    return ops.true_divide(total, float(freedom) if freedom > 0 else 0.0), kept


def logsumexp(input: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) along `dim` without overflow."""
    dims = layout.normalize_dims(dim, input.meta.ndim, "logsumexp")
    if input.meta.dtype.kind != "f":
        input = input.to(dtypes.default_dtype())  # type: ignore[attr-defined]
    if len(dims) == 1:
        return ops.logsumexp_row(input, dims[0], keepdim)
    kept = [d for d in range(input.meta.ndim) if d not in dims]
    moved = ops.permute(input, (*kept, *dims))
    flat = views.reshape(moved, (*moved.meta.shape[: len(kept)], -1))
    found = ops.logsumexp_row(flat, -1, False)
    if not keepdim:
        return found
    return views.reshape(found, tuple(1 if d in dims else n for d, n in enumerate(input.meta.shape)))


def norm(input: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The p-norm along `dim` (2, 1, inf, -inf, 0 or any number; "fro" is 2)."""
    if p in (2, 2.0, "fro", None):
        return ops.euclidean_norm(input, dim, keepdim)
    size = ops.abs(input)
    if p == math.inf:
        return ops.amax(size, dim, keepdim)
    if p == -math.inf:
        return ops.amin(size, dim, keepdim)
    if p == 1:
        return ops.sum(size, dim, keepdim)
    if p == 0:
        return ops.sum(ops.ne(input, 0).to(input.meta.dtype), dim, keepdim)  # type: ignore[attr-defined]
    return ops.pow(ops.sum(ops.pow(size, p), dim, keepdim), 1.0 / p)


# products -----------------------------------------------------------------------------------------------------------


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product by NumPy's rules: vectors, matrices, and batches of matrices whose leading dimensions broadcast."""
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        raise ArgumentError("matmul: takes two tensors")
    a, b = input.meta.ndim, other.meta.ndim
    if a == 0 or b == 0:
        raise ShapeError("matmul: both tensors need at least one dimension; use * for numbers")
    if a == 2 and b == 2:
        found = ops.mm(input, other)
    elif a == 1:
        found = ops.dot(input, other) if b == 1 else ops.vm(input, other)
    elif b == 1:
        found = ops.bmv(input, other)
    else:
        found = ops.matmul_batched(input, other)
    return found if out is None else out.copy_(found)  # type: ignore[attr-defined,no-any-return]


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    return _plus_product(input, ops.mm(mat1, mat2), beta, alpha)


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    return _plus_product(input, ops.mv(mat, vec), beta, alpha)


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2)."""
    return _plus_product(input, ops.bmm(batch1, batch2), beta, alpha)


def _plus_product(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    if beta == 0:  # NaN in input does not count then, as in BLAS
        return product if alpha == 1 else ops.mul(product, alpha)
    base = input if beta == 1 else ops.mul(input, beta)
    return ops.add(base, product if alpha == 1 else ops.mul(product, alpha))


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    if weight.meta.ndim == 1:
        found = matmul(input, weight)
    elif input.meta.ndim == 2:
        found = ops.linear_product(input, weight)
    else:  # one matrix product of all rows
        shape = input.meta.shape
        if not shape or shape[-1] != weight.meta.shape[-1]:
            raise ShapeError(
                f"linear: input {list(shape)} and weight {list(weight.meta.shape)} must agree in their last dimension"
            )
        flat = views.reshape(input, (-1, shape[-1])) if input.meta.numel else input
        found = ops.linear_product(flat, weight)
        if input.meta.numel:
            found = views.reshape(found, (*shape[:-1], weight.meta.shape[0]))
    return found if bias is None else ops.add(found, bias)


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dimension of both."""
    if not input.meta.ndim or not other.meta.ndim:
        return ops.mul(input, other)
    shape = (*input.meta.shape[:-1], *other.meta.shape[:-1])
    a = views.reshape(input, (-1, input.meta.shape[-1]))
    b = views.reshape(other, (-1, other.meta.shape[-1]))
    return views.reshape(ops.linear_product(a, b), shape)


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    return ops.sum(ops.diagonal(input))


# shapes -------------------------------------------------------------------------------------------------------------


def reshape(input: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements in another shape, copied only if strides demand it."""
    return views.reshape(input, tuple(shape))


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim to end_dim merged into one."""
    return input.flatten(start_dim, end_dim)  # type: ignore[attr-defined,no-any-return]


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension split into several."""
    return input.unflatten(dim, sizes)  # type: ignore[attr-defined,no-any-return]


def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    return views.reshape(input, (-1,))


def permute(input: Tensor, dims: Sequence[int]) -> Tensor:
    """The dimensions in another order."""
    return ops.permute(input, tuple(dims))


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; a vector itself."""
    return input.t()  # type: ignore[attr-defined,no-any-return]


swapaxes = ops.transpose


def movedim(input: Tensor, source: Dims, destination: Dims) -> Tensor:
    """Dimensions moved from `source` to `destination`; the others keep their order."""
    ndim = input.meta.ndim
    sources = [source] if isinstance(source, int) else list(source or ())
    places = [destination] if isinstance(destination, int) else list(destination or ())
    if len(sources) != len(places):
        raise ShapeError("movedim: source and destination must name as many dimensions")
    start = [layout.normalize_dim(d, ndim, "movedim") for d in sources]
    end = [layout.normalize_dim(d, ndim, "movedim") for d in places]
    if len(set(start)) != len(start) or len(set(end)) != len(end):
        raise ShapeError("movedim: a dimension appears twice")
    rest = iter([d for d in range(ndim) if d not in start])
    order = [start[end.index(d)] if d in end else next(rest) for d in range(ndim)]
    return ops.permute(input, tuple(order))


moveaxis = movedim


def flip(input: Tensor, dims: int | Sequence[int]) -> Tensor:
    """A copy with the order of elements along `dims` reversed."""
    return ops.contiguous_copy(ops.flip_view(input, (dims,) if isinstance(dims, int) else tuple(dims)))


def fliplr(input: Tensor) -> Tensor:
    """Flipped along the second dimension."""
    return flip(input, (1,))


def flipud(input: Tensor) -> Tensor:
    """Flipped along the first dimension."""
    return flip(input, (0,))


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along a dimension."""
    return input.unbind(dim)  # type: ignore[attr-defined,no-any-return]


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """A view in the shape of `other`."""
    return input.view_as(other)  # type: ignore[attr-defined,no-any-return]


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """Expanded to `size` without copying."""
    return ops.expand(input, tuple(size))


def broadcast_shapes(*shapes: Sequence[int] | int) -> Any:
    """The shape that all of `shapes` broadcast to."""
    from .methods import Size

    return Size(layout.broadcast([(s,) if isinstance(s, int) else tuple(s) for s in shapes], "broadcast_shapes"))


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    shape = layout.broadcast([x.meta.shape for x in tensors], "broadcast_tensors")
    return tuple(ops.expand(x, shape) for x in tensors)


# facts --------------------------------------------------------------------------------------------------------------


def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy; gradients flow back to `input`."""
    return call(registry["copy"], (input,), (None,))  # type: ignore[no-any-return]


def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.meta.numel


def is_tensor(value: Any) -> bool:
    """Whether `value` is a Tensor."""
    return isinstance(value, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is floating."""
    return input.meta.dtype.is_floating_point


def is_nonzero(input: Tensor) -> bool:
    """The truth of a tensor of one element."""
    return bool(input)


def result_type(first: Any, second: Any) -> DType:
    """The dtype in which two operands (tensors or numbers) would meet."""
    return dtypes.promote_operands(
        [(x.meta.dtype, 0 if x.meta.ndim else 1) if isinstance(x, Tensor) else (dtypes.of_number(x), 2) for x in (first, second)]
    )


def promote_types(first: DType, second: DType) -> DType:
    """The smallest dtype that holds both."""
    return dtypes.promote(first, second)


def can_cast(source: DType, target: DType) -> bool:
    """Whether values of `source` may be written to `target`: never from a higher category to a lower."""
    order = {"b": 0, "u": 1, "i": 1, "f": 2}
    return order[source.kind] <= order[target.kind]


class finfo:
    """The limits of a floating dtype."""

    def __init__(self, dtype: Any = None):
        import numpy as np

        found = dtypes.default_dtype() if dtype is None else dtypes.parse(dtype)
        if found.kind != "f":
            raise DTypeError(f"finfo: takes floating dtypes, not {found.name}; use iinfo")
        if found is dtypes.bfloat16:
            self.max, self.eps, self.tiny, self.bits = 3.3895313892515355e38, 0.0078125, 1.1754943508222875e-38, 16
        else:
            limits = np.finfo(found.numpy)
            self.max, self.eps, self.tiny = float(limits.max), float(limits.eps), float(limits.tiny)
            self.bits = found.itemsize * 8
        self.min, self.smallest_normal, self.resolution, self.dtype = -self.max, self.tiny, self.eps, found.name


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, dtype: Any):
        import numpy as np

        found = dtypes.parse(dtype)
        if found.kind not in "ui":
            raise DTypeError(f"iinfo: takes integer dtypes, not {found.name}")
        limits = np.iinfo(found.numpy)
        self.max, self.min, self.bits, self.dtype = int(limits.max), int(limits.min), found.itemsize * 8, found.name


__all__ += ["finfo", "iinfo"]
METHODS = {
    name: globals()[name]
    for name in (
        "add", "add_", "addmm", "addmv", "aminmax", "allclose", "baddbmm", "broadcast_to", "clamp", "clamp_", "clip",
        "div", "div_", "divide", "equal", "flip", "fliplr", "flipud", "inner", "isclose", "isneginf", "isposinf",
        "logsumexp", "matmul", "max", "min", "moveaxis", "movedim", "nan_to_num", "norm", "ravel", "round", "std", "sub",
        "sub_", "subtract", "trace", "var",
    )
}  # fmt: skip
METHODS |= {"__matmul__": matmul, "__rmatmul__": lambda self, other: matmul(other, self)}
