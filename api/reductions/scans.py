"""Cumulative sums, products, maxima, minima and logarithms of sums of exponentials.

`axis` is NumPy's name for `dim`, which PyTorch accepts as well. `METHODS` lists the functions that are also methods of
Tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..arguments.aliases import REQUIRED, resolve_axis_alias
from ..runtime import dtypes, layout
from ..runtime.dispatch import call, call_into, call_multiple
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, DTypeError, NotSupported
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]


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
        input: Tensor of any dtype. Integers and bool are summed in int64; float16 and bfloat16 accumulate in float32.
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
        input: Tensor of any dtype.
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
) -> tuple[Tensor, ...]:
    dim = _resolve_dim(where, input, dim, axis)
    if out is None:
        return call_multiple(registry[where], (input,), (dim,))
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(f"{where}: has two results, so out takes two tensors, not {type(out).__name__}")
    only_tensors(where, *out)
    for target, expected_dtype in zip(out, (input.meta.dtype, dtypes.int64), strict=True):
        _check_dtype(where, target, expected_dtype)
    targets = tuple(out)
    call_into(registry[where], (input,), (dim,), targets, in_place=False)
    return targets


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


METHODS = {
    name: globals()[name] for name in ("cummax", "cummin", "cumprod", "cumprod_", "cumsum", "cumsum_", "logcumsumexp")
}
