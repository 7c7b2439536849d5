"""Running sums, products and extremes along a dimension, differences, and areas under lines.

`axis` is NumPy's name for `dim`, which PyTorch takes as well. METHODS lists what is a method of Tensor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ._checks import only_tensors, whole_number
from ._generated import ops
from .joining import cat
from .runtime import dtypes, layout, views
from .runtime.dispatch import call, call_into
from .runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from .runtime.records import registry
from .runtime.spelling import REQUIRED, spelled_dim, store
from .runtime.tensor import Tensor

__all__ = [
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_trapezoid",
    "diff",
    "logcumsumexp",
    "trapezoid",
    "trapz",
]


class CummaxResult(NamedTuple):
    """Running maxima and their positions."""

    values: Tensor
    indices: Tensor


class CumminResult(NamedTuple):
    """Running minima and their positions."""

    values: Tensor
    indices: Tensor


def cumsum(
    input: Tensor, dim: int | None = None, *, dtype: Any = None, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """The sum of the elements up to each along `dim`, in the shape of `input`.

    Integers and bool are summed in int64, half types in float32; `input` is converted to `dtype` first. `out` receives
    the result, and its dtype is the result's. Raises `IndexOutOfRange` for a dimension that is not there,
    `NotSupported` for a result of bool.
    """
    return _accumulated("cumsum", input, dim, dtype, out, axis)


def cumprod(
    input: Tensor, dim: int | None = None, *, dtype: Any = None, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """The product of the elements up to each along `dim`, in the shape of `input`.

    Integers and bool are multiplied in int64, half types in float32; `input` is converted to `dtype` first. `out`
    receives the result, and its dtype is the result's. Derivatives of every order are right where elements are 0.
    Raises `IndexOutOfRange` for a dimension that is not there, `NotSupported` for a result of bool.
    """
    return _accumulated("cumprod", input, dim, dtype, out, axis)


def cumsum_(input: Tensor, dim: int | None = None, *, dtype: Any = None, axis: int | None = None) -> Tensor:
    """`cumsum` in place of `input`, in its dtype. Raises `DTypeError` for another `dtype`."""
    return _in_place("cumsum", input, dim, dtype, axis)


def cumprod_(input: Tensor, dim: int | None = None, *, dtype: Any = None, axis: int | None = None) -> Tensor:
    """`cumprod` in place of `input`, in its dtype. Raises `DTypeError` for another `dtype`."""
    return _in_place("cumprod", input, dim, dtype, axis)


def _dim(where: str, input: Tensor, dim: int | None, axis: int | None) -> int:
    only_tensors(where, input)
    if dim is None or axis is not None:
        dim = spelled_dim(where, dim, REQUIRED, axis)
    return layout.normalize_dim(dim, input.meta.ndim, where)  # type: ignore[arg-type]


def _accumulated(where: str, input: Tensor, dim: int | None, dtype: Any, out: Any, axis: int | None) -> Tensor:
    dim = _dim(where, input, dim, axis)
    wanted = None if dtype is None else dtypes.parse(dtype)
    if out is not None:
        only_tensors(where, out)
        if wanted is not None and wanted is not out.meta.dtype:
            raise DTypeError(f"{where}: dtype is {wanted.name}, but out is {out.meta.dtype.name}; make them equal")
        wanted = out.meta.dtype
    if wanted is not None and wanted.kind == "f" and wanted.itemsize == 2 and input.meta.dtype is not wanted:
        input = input.to(wanted)  # type: ignore[attr-defined]
    record, statics = registry[where], (dim, False, wanted)
    if out is not None:
        return call_into(record, (input,), statics, (out,), in_place=False)  # type: ignore[no-any-return]
    return call(record, (input,), statics)  # type: ignore[no-any-return]


def _in_place(where: str, input: Tensor, dim: int | None, dtype: Any, axis: int | None) -> Tensor:
    dim = _dim(f"{where}_", input, dim, axis)
    own = input.meta.dtype
    if dtype is not None and dtypes.parse(dtype) is not own:
        raise DTypeError(
            f"{where}_: the result is {dtypes.parse(dtype).name} and cannot be written to {own.name}; use {where}()"
        )
    return call_into(registry[where], (input,), (dim, False, own), (input,), in_place=True)  # type: ignore[no-any-return]


def cummax(input: Tensor, dim: int | None = None, *, out: Any = None, axis: int | None = None) -> CummaxResult:
    """(values, indices) of the largest element up to each along `dim`, in the shape of `input`.

    A NaN is larger than all numbers; of equal elements, and of several NaN, the last. Gradients are added where the
    elements came from. `out` takes two tensors, the second of int64. Raises `IndexOutOfRange`, `DTypeError`.
    """
    return CummaxResult(*_extremes("cummax", input, dim, out, axis))


def cummin(input: Tensor, dim: int | None = None, *, out: Any = None, axis: int | None = None) -> CumminResult:
    """(values, indices) of the smallest element up to each along `dim`, in the shape of `input`.

    A NaN is smaller than all numbers; of equal elements, and of several NaN, the last. Gradients are added where the
    elements came from. `out` takes two tensors, the second of int64. Raises `IndexOutOfRange`, `DTypeError`.
    """
    return CumminResult(*_extremes("cummin", input, dim, out, axis))


def _extremes(where: str, input: Tensor, dim: int | None, out: Any, axis: int | None) -> Any:
    dim = _dim(where, input, dim, axis)
    if out is None:
        return call(registry[where], (input,), (dim,))
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(f"{where}: has two results, so out takes two tensors, not {type(out).__name__}")
    only_tensors(where, *out)
    for to, wanted in zip(out, (input.meta.dtype, dtypes.int64), strict=True):
        _check_dtype(where, to, wanted)
    return call_into(registry[where], (input,), (dim,), tuple(out), in_place=False)


def _check_dtype(where: str, out: Tensor, wanted: dtypes.DType) -> None:
    if out.meta.dtype is not wanted:
        raise DTypeError(
            f"{where}: the result is {wanted.name}, but out is {out.meta.dtype.name}; make out with dtype={wanted.name}"
        )


def logcumsumexp(
    input: Tensor, dim: int | None = None, *, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """log(sum(exp(x))) of the elements x up to each along `dim`, without overflow, in the shape of `input`.

    The largest element so far and the sum of exp(x - largest) are carried along (the online form of the sum, as in
    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). Raises `NotSupported` for integers.
    """
    dim = _dim("logcumsumexp", input, dim, axis)
    if input.meta.dtype.kind != "f":
        raise NotSupported(f"logcumsumexp: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    if out is None:
        return call(registry["logcumsumexp"], (input,), (dim,))  # type: ignore[no-any-return]
    only_tensors("logcumsumexp", out)
    _check_dtype("logcumsumexp", out, input.meta.dtype)
    return call_into(registry["logcumsumexp"], (input,), (dim,), (out,), in_place=False)  # type: ignore[no-any-return]


# Differences ----------------------------------------------------------------------------------------------------------


def _slice(tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    return call(registry["narrow"], (tensor,), (dim, start, length))  # type: ignore[no-any-return]


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *,
    out: Tensor | None = None, axis: int | None = None,
) -> Tensor:  # fmt: skip
    """The difference of each element and the one before it along `dim`, `n` times over: n elements fewer.

    `prepend` and `append` are joined to `input` first; they have its shape except along `dim`. Of bool, whether the two
    differ. Raises `ShapeError` for a 0-d tensor or other shapes, `ArgumentError` for a negative `n`.
    """
    if axis is not None:
        dim = spelled_dim("diff", dim, -1, axis)
    only_tensors("diff", input, *(t for t in (prepend, append) if t is not None))
    own = input.meta
    if not own.ndim:
        raise ShapeError("diff: takes tensors of one dimension at least; reshape() it to (1,)")
    dim = layout.normalize_dim(dim, own.ndim, "diff")
    if isinstance(n, int) and n < 0:
        raise ShapeError(f"diff: the order n must not be negative, got {n}")
    n = whole_number(n, "diff", "n")
    for name, given in (("prepend", prepend), ("append", append)):
        if given is not None:
            _check_beside(own.shape, given.meta.shape, dim, name)
    if n and not (prepend is None and append is None):
        input = cat([t for t in (prepend, input, append) if t is not None], dim)
    found = _differences(input, n, dim)
    return found if out is None else store(found, out, "diff")


def _check_beside(shape: tuple[int, ...], given: tuple[int, ...], dim: int, name: str) -> None:
    if len(given) != len(shape) or given[:dim] != shape[:dim] or given[dim + 1 :] != shape[dim + 1 :]:
        raise ShapeError(
            f"diff: {name} has shape {list(given)}, input {list(shape)}; they must be equal except in dimension {dim}"
        )


def _differences(input: Tensor, n: int, dim: int) -> Tensor:
    if not n:
        return input.clone()  # type: ignore[attr-defined,no-any-return]
    for _ in range(min(n, input.meta.shape[dim])):
        length = input.meta.shape[dim] - 1
        pair = _slice(input, dim, 1, length), _slice(input, dim, 0, length)
        input = ops.logical_xor(*pair) if input.meta.dtype.kind == "b" else ops.sub(*pair)
    return input


# Areas ----------------------------------------------------------------------------------------------------------------


def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1, axis: int | None = None
) -> Tensor:
    """The area under the lines that join the points (x, y) along `dim`, which the result does not have.

    x: one number a point, or a shape that fits `y`; without it the points are `dx` (1) apart. Trapezoidal rule: the sum
    of (x[i] - x[i-1]) * (y[i] + y[i-1]) / 2. Raises `DTypeError` for bool, `ShapeError` for another number of points.
    """
    dim = _points("trapezoid", y, x, dx, dim, axis)
    if not y.meta.shape[dim]:
        return ops.sum(y, dim, dtype=y.meta.dtype)
    if x is None:
        ends = ops.add(*(call(registry["select"], (y,), (dim, i)) for i in (0, -1)))
        return ops.mul(ops.sub(ops.sum(y, dim), ops.mul(ends, 0.5)), 1.0 if dx is None else dx)
    return ops.mul(ops.sum(_strips("trapezoid", y, x, dim), dim), 0.5)


trapz = trapezoid


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1, axis: int | None = None
) -> Tensor:
    """`trapezoid` up to every point but the first along `dim`: one element fewer than `y`."""
    dim = _points("cumulative_trapezoid", y, x, dx, dim, axis)
    if x is not None:
        return ops.mul(cumsum(_strips("cumulative_trapezoid", y, x, dim), dim), 0.5)
    return cumsum(ops.mul(_neighbours(y, dim, ops.add), 0.5 if dx is None else dx / 2), dim)


def _points(where: str, y: Tensor, x: Tensor | None, dx: float | None, dim: int, axis: int | None) -> int:
    if axis is not None:
        dim = spelled_dim(where, dim, -1, axis)
    only_tensors(where, y, *(() if x is None else (x,)))
    if x is not None and dx is not None:
        raise ArgumentError(f"{where}: x says how far points are apart, and so does dx; give one of them")
    if not y.meta.ndim:
        raise IndexOutOfRange(f"{where}: y has no dimensions, so none is {dim!r}")
    for name, given in (("y", y), ("x", x)):
        if given is not None and given.meta.dtype.kind == "b":
            raise DTypeError(f"{where}: {name} is bool; convert it with .float()")
    return layout.normalize_dim(dim, y.meta.ndim, where)


def _neighbours(tensor: Tensor, dim: int, function: Any) -> Tensor:
    length = max(tensor.meta.shape[dim] - 1, 0)
    start = min(1, tensor.meta.shape[dim])
    return function(_slice(tensor, dim, start, length), _slice(tensor, dim, 0, length))  # type: ignore[no-any-return]


def _strips(where: str, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """Twice the areas of the strips between the points."""
    shape, own = y.meta.shape, x.meta.shape
    if len(own) == 1:
        if own[0] != shape[dim]:
            raise ShapeError(f"{where}: y has {shape[dim]} points in dimension {dim}, x has {own[0]}; make them equal")
        x = views.reshape(x, tuple(own[0] if d == dim else 1 for d in range(len(shape))))
    elif len(own) < len(shape):
        x = views.reshape(x, (1,) * (len(shape) - len(own)) + own)
    return ops.mul(_neighbours(y, dim, ops.add), _neighbours(x, dim, ops.sub))


METHODS = {
    name: globals()[name]
    for name in ("cummax", "cummin", "cumprod", "cumprod_", "cumsum", "cumsum_", "diff", "logcumsumexp")
}
