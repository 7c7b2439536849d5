"""Cumulative sums, products, maxima and minima, differences, and integrals by the trapezoidal rule.

`axis` is NumPy's name for `dim`, which PyTorch accepts as well. `METHODS` lists the functions that are also methods of
Tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._generated import ops
from ..arguments.aliases import REQUIRED, resolve_axis_alias
from ..arguments.out import copy_to_out
from ..runtime import dtypes, layout, views
from ..runtime.dispatch import call, call_into, call_multiple
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from ..tensor_methods.argument_checks import only_tensors, to_integer

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
    input: Tensor, dim: int | None = None, *, dtype: DTypeLike | None = None, out: Tensor | None = None,
    axis: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the cumulative sum along `dim`, in the shape of `input`.

    Args:
        input: Any tensor. Integers and bool are summed in int64; float16 and bfloat16 accumulate in float32.
        dim: The dimension to sum along.
        dtype: Dtype to convert `input` to first.
        out: Tensor to write the result to; its dtype is the dtype of the result.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        IndexOutOfRange: The dimension does not exist.
        NotSupported: The result would be bool.

    Example:
        >>> wg.cumsum(wg.tensor([1, 2, 3]), 0)
        tensor([1, 3, 6])
    """
    return _cumulative("cumsum", input, dim, dtype, out, axis)


def cumprod(
    input: Tensor, dim: int | None = None, *, dtype: DTypeLike | None = None, out: Tensor | None = None,
    axis: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the cumulative product along `dim`, in the shape of `input`.

    Derivatives of every order are correct where elements are 0. For the arguments and errors see `cumsum`.

    Args:
        input: Tensor of any dtype; integers and bool give int64.
        dim: The dimension; negative values count from the last.
        dtype: Dtype in which elements are computed and returned; None: as in `cumsum`.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.cumprod(wg.tensor([1, 2, 3]), 0)
        tensor([1, 2, 6])
    """
    return _cumulative("cumprod", input, dim, dtype, out, axis)


def cumsum_(
    input: Tensor, dim: int | None = None, *, dtype: DTypeLike | None = None, axis: int | None = None
) -> Tensor:
    """Do `cumsum` in place, in the dtype of `input`.

    Args:
        input: Tensor, which is changed.
        dim: The dimension to sum along.
        dtype: The dtype of `input`, or None.
        axis: NumPy's name for `dim`.

    Returns:
        `input`.

    Raises:
        DTypeError: `dtype` is another one.

    Example:
        >>> wg.tensor([1, 2, 3]).cumsum_(0)
        tensor([1, 3, 6])
    """
    return _in_place("cumsum", input, dim, dtype, axis)


def cumprod_(
    input: Tensor, dim: int | None = None, *, dtype: DTypeLike | None = None, axis: int | None = None
) -> Tensor:
    """Do `cumprod` in place, in the dtype of `input`.

    Args:
        input: Tensor, which is changed.
        dim: The dimension to multiply along.
        dtype: The dtype of `input`, or None.
        axis: NumPy's name for `dim`.

    Returns:
        `input`.

    Raises:
        DTypeError: `dtype` is another one.

    Example:
        >>> wg.tensor([1, 2, 3]).cumprod_(0)
        tensor([1, 2, 6])
    """
    return _in_place("cumprod", input, dim, dtype, axis)


def _resolve_dim(where: str, input: Tensor, dim: int | None, axis: int | None) -> int:
    only_tensors(where, input)
    if dim is None or axis is not None:
        dim = resolve_axis_alias(where, dim, REQUIRED, axis)
    return layout.normalize_dim(dim, input.meta.ndim, where)


def _cumulative(
    where: str, input: Tensor, dim: int | None, dtype: DTypeLike | None, out: Tensor | None, axis: int | None
) -> Tensor:
    dim = _resolve_dim(where, input, dim, axis)
    result_dtype = None if dtype is None else dtypes.parse(dtype)
    if out is not None:
        only_tensors(where, out)
        if result_dtype is not None and result_dtype is not out.meta.dtype:
            raise DTypeError(
                f"{where}: dtype is {result_dtype.name}, but out is {out.meta.dtype.name}; make them equal"
            )
        result_dtype = out.meta.dtype
    if (
        result_dtype is not None
        and result_dtype.kind == "f"
        and result_dtype.itemsize == 2
        and input.meta.dtype is not result_dtype
    ):
        input = input.to(result_dtype)
    record, statics = registry[where], (dim, False, result_dtype)
    if out is not None:
        return call_into(record, (input,), statics, (out,), in_place=False)
    return call(record, (input,), statics)


def _in_place(where: str, input: Tensor, dim: int | None, dtype: DTypeLike | None, axis: int | None) -> Tensor:
    dim = _resolve_dim(f"{where}_", input, dim, axis)
    input_dtype = input.meta.dtype
    if dtype is not None and dtypes.parse(dtype) is not input_dtype:
        raise DTypeError(
            f"{where}_: the result is {dtypes.parse(dtype).name} and cannot be written to {input_dtype.name}; use "
            f"{where}()"
        )
    return call_into(registry[where], (input,), (dim, False, input_dtype), (input,), in_place=True)


def cummax(
    input: Tensor, dim: int | None = None, *, out: Sequence[Tensor] | None = None, axis: int | None = None
) -> CummaxResult:
    """Return the cumulative maximum along `dim` and its int64 indices, both in the shape of `input`.

    NaN is larger than every number. Of equal elements, and of several NaN, the index is that of the last one. Gradients
    go to the elements at the indices.

    Args:
        input: Any tensor.
        dim: The dimension to scan.
        out: Two tensors to write values and indices to; the second is int64.
        axis: NumPy's name for `dim`.

    Returns:
        A pair of `values` and int64 `indices`.

    Raises:
        IndexOutOfRange: The dimension does not exist.
        DTypeError: A tensor of `out` has the wrong dtype.

    Example:
        >>> wg.cummax(wg.tensor([1, 3, 2]), 0).values
        tensor([1, 3, 3])
    """
    return CummaxResult(*_cumulative_extremum("cummax", input, dim, out, axis))


def cummin(
    input: Tensor, dim: int | None = None, *, out: Sequence[Tensor] | None = None, axis: int | None = None
) -> CumminResult:
    """Return the cumulative minimum along `dim` and its int64 indices; NaN is smaller than every number.

    See `cummax`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        A pair of `values` and int64 `indices`.

    Example:
        >>> wg.cummin(wg.tensor([3, 1, 2]), 0).values
        tensor([3, 1, 1])
    """
    return CumminResult(*_cumulative_extremum("cummin", input, dim, out, axis))


def _cumulative_extremum(
    where: str, input: Tensor, dim: int | None, out: Sequence[Tensor] | None, axis: int | None
) -> Any:
    dim = _resolve_dim(where, input, dim, axis)
    if out is None:
        return call_multiple(registry[where], (input,), (dim,))
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(f"{where}: has two results, so out takes two tensors, not {type(out).__name__}")
    only_tensors(where, *out)
    for target, expected_dtype in zip(out, (input.meta.dtype, dtypes.int64), strict=True):
        _check_dtype(where, target, expected_dtype)
    return call_into(registry[where], (input,), (dim,), tuple(out), in_place=False)


def _check_dtype(where: str, out: Tensor, expected: dtypes.DType) -> None:
    if out.meta.dtype is not expected:
        raise DTypeError(
            f"{where}: the result is {expected.name}, but out is {out.meta.dtype.name}; make out with "
            f"dtype={expected.name}"
        )


def logcumsumexp(
    input: Tensor, dim: int | None = None, *, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """Return the cumulative log(sum(exp(x))) along `dim`, without overflow.

    The scan carries the largest element so far and the sum of exp(x - largest): Milakov and Gimelshein, "Online
    normalizer calculation for softmax", 2018.

    Args:
        input: Floating tensor.
        dim: The dimension; negative values count from the last.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        NotSupported: `input` has an integer dtype.

    Example:
        >>> wg.logcumsumexp(wg.tensor([0.0, 0.0]), 0)
        tensor([0.0000, 0.6931])
    """
    dim = _resolve_dim("logcumsumexp", input, dim, axis)
    if input.meta.dtype.kind != "f":
        raise NotSupported(f"logcumsumexp: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    if out is None:
        return call(registry["logcumsumexp"], (input,), (dim,))
    only_tensors("logcumsumexp", out)
    _check_dtype("logcumsumexp", out, input.meta.dtype)
    return call_into(registry["logcumsumexp"], (input,), (dim,), (out,), in_place=False)


# Differences ----------------------------------------------------------------------------------------------------------


def _narrow(tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    return call(registry["narrow"], (tensor,), (dim, start, length))


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *,
    out: Tensor | None = None, axis: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the n-th difference of neighbouring elements along `dim`, with `n` elements fewer.

    Args:
        input: Tensor with at least one dimension. For bool, the difference is `logical_xor`.
        n: Number of times to take the difference.
        dim: The dimension.
        prepend: Tensor to concatenate before `input` along `dim`.
        append: Tensor to concatenate after `input` along `dim`.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor with `n` elements fewer along `dim`.

    Raises:
        ShapeError: The input has no dimensions, `n` is negative, or shapes differ outside of `dim`.
        ArgumentError: `n` is not an integer.

    Example:
        >>> wg.diff(wg.tensor([1, 4, 9]))
        tensor([3, 5])
    """
    if axis is not None:
        dim = resolve_axis_alias("diff", dim, -1, axis)
    only_tensors("diff", input, *(t for t in (prepend, append) if t is not None))
    input_layout = input.meta
    if not input_layout.ndim:
        raise ShapeError("diff: takes tensors of one dimension at least; reshape() it to (1,)")
    dim = layout.normalize_dim(dim, input_layout.ndim, "diff")
    if isinstance(n, int) and n < 0:
        raise ShapeError(f"diff: the order n must not be negative, got {n}")
    n = to_integer(n, "diff", "n")
    for name, extra in (("prepend", prepend), ("append", append)):
        if extra is not None:
            _check_joinable(input_layout.shape, extra.meta.shape, dim, name)
    if n and not (prepend is None and append is None):
        input = cat([t for t in (prepend, input, append) if t is not None], dim)
    output = _differences(input, n, dim)
    return output if out is None else copy_to_out(output, out, "diff")


def _check_joinable(shape: tuple[int, ...], extra_shape: tuple[int, ...], dim: int, name: str) -> None:
    if len(extra_shape) != len(shape) or extra_shape[:dim] != shape[:dim] or extra_shape[dim + 1 :] != shape[dim + 1 :]:
        raise ShapeError(
            f"diff: {name} has shape {list(extra_shape)}, input {list(shape)}; they must be equal except in dimension "
            f"{dim}"
        )


def _differences(input: Tensor, n: int, dim: int) -> Tensor:
    if not n:
        return input.clone()
    for _ in range(min(n, input.meta.shape[dim])):
        length = input.meta.shape[dim] - 1
        pair = _narrow(input, dim, 1, length), _narrow(input, dim, 0, length)
        input = ops.logical_xor(*pair) if input.meta.dtype.kind == "b" else ops.sub(*pair)
    return input


# Trapezoidal rule -----------------------------------------------------------------------------------------------------


def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1, axis: int | None = None
) -> Tensor:
    """Integrate `y` along `dim` by the trapezoidal rule: the sum of (x[i] - x[i-1]) * (y[i] + y[i-1]) / 2.

    Args:
        y: Values at the points.
        x: Positions of the points: a vector, or a shape that broadcasts with `y`.
        dx: Distance between the points (default 1), if there is no `x`.
        dim: The dimension to integrate along; the result does not have it.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor of the shape of `y` without `dim`.

    Raises:
        DTypeError: `y` or `x` is bool.
        ShapeError: `x` has the wrong number of points.

    Example:
        >>> wg.trapezoid(wg.tensor([1.0, 2.0, 3.0]))
        tensor(4.)
    """
    dim = _check_trapezoid_args("trapezoid", y, x, dx, dim, axis)
    if not y.meta.shape[dim]:
        return ops.sum(y, dim, dtype=y.meta.dtype)
    if x is None:
        ends = ops.add(*(call(registry["select"], (y,), (dim, i)) for i in (0, -1)))
        return ops.mul(ops.sub(ops.sum(y, dim), ops.mul(ends, 0.5)), 1.0 if dx is None else dx)
    return ops.mul(ops.sum(_double_strip_areas("trapezoid", y, x, dim), dim), 0.5)


trapz = trapezoid


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1, axis: int | None = None
) -> Tensor:
    """Return the integral up to each point but the first: one element fewer than `y` along `dim`. See `trapezoid`.

    Args:
        y: Values of the function.
        x: Points at which the values lie; None: neighbours have the distance `dx`.
        dx: Distance of the points; None: 1.
        dim: The dimension; negative values count from the last.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor with one element fewer along `dim`.

    Example:
        >>> wg.cumulative_trapezoid(wg.tensor([1.0, 2.0, 3.0]))
        tensor([1.5000, 4.0000])
    """
    dim = _check_trapezoid_args("cumulative_trapezoid", y, x, dx, dim, axis)
    if x is not None:
        return ops.mul(cumsum(_double_strip_areas("cumulative_trapezoid", y, x, dim), dim), 0.5)
    return cumsum(ops.mul(_combine_neighbours(y, dim, ops.add), 0.5 if dx is None else dx / 2), dim)


def _check_trapezoid_args(where: str, y: Tensor, x: Tensor | None, dx: float | None, dim: int, axis: int | None) -> int:
    if axis is not None:
        dim = resolve_axis_alias(where, dim, -1, axis)
    only_tensors(where, y, *(() if x is None else (x,)))
    if x is not None and dx is not None:
        raise ArgumentError(f"{where}: x says how far points are apart, and so does dx; give one of them")
    if not y.meta.ndim:
        raise IndexOutOfRange(f"{where}: y has no dimensions, so none is {dim!r}")
    for name, operand in (("y", y), ("x", x)):
        if operand is not None and operand.meta.dtype.kind == "b":
            raise DTypeError(f"{where}: {name} is bool; convert it with .float()")
    return layout.normalize_dim(dim, y.meta.ndim, where)


def _combine_neighbours(tensor: Tensor, dim: int, function: Any) -> Tensor:
    length = max(tensor.meta.shape[dim] - 1, 0)
    start = min(1, tensor.meta.shape[dim])
    return function(_narrow(tensor, dim, start, length), _narrow(tensor, dim, 0, length))


def _double_strip_areas(where: str, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """Return twice the area of each strip between neighbouring points."""
    shape, x_shape = y.meta.shape, x.meta.shape
    if len(x_shape) == 1:
        if x_shape[0] != shape[dim]:
            raise ShapeError(
                f"{where}: y has {shape[dim]} points in dimension {dim}, x has {x_shape[0]}; make them equal"
            )
        x = views.reshape(x, tuple(x_shape[0] if d == dim else 1 for d in range(len(shape))))
    elif len(x_shape) < len(shape):
        x = views.reshape(x, (1,) * (len(shape) - len(x_shape)) + x_shape)
    return ops.mul(_combine_neighbours(y, dim, ops.add), _combine_neighbours(x, dim, ops.sub))


METHODS = {
    name: globals()[name]
    for name in ("cummax", "cummin", "cumprod", "cumprod_", "cumsum", "cumsum_", "diff", "logcumsumexp")
}
