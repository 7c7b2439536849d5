"""Reductions that treat NaN as missing. Their gradients follow from the ops they call."""

from __future__ import annotations

from .._generated import ops
from ..arguments.aliases import resolve_axis_aliases
from ..arguments.out import copy_to_out
from ..arguments.types import Dims
from ..runtime import dtypes
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import DTypeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["nanmean", "nansum"]


def nansum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike | None = None,
    out: Tensor | None = None, axis: Dims = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Sum along `dim`, treating NaN as 0.

    Integers and bool are summed in int64. The gradient of a NaN element is 0.

    Args:
        input: Tensor of any dtype; integers and bool give int64.
        dim: Dimension, or several; None: all.
        keepdim: Whether reduced dimensions stay, with size 1.
        dtype: Dtype in which elements are summed and returned; None: that of `input`, or int64.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        Tensor without the reduced dimensions, unless `keepdim`.

    Example:
        >>> wg.nansum(wg.tensor([1.0, float('nan'), 2.0]))
        tensor(3.)
    """
    only_tensors("nansum", input)
    dim, keepdim = resolve_axis_aliases("nansum", dim, None, axis, keepdim, keepdims)
    output = ops.sum(_nan_to_zero(input), dim, keepdim, dtype=dtype)
    return output if out is None else copy_to_out(output, out, "nansum")


def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike | None = None,
    out: Tensor | None = None, axis: Dims = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return the mean along `dim` of the elements that are not NaN; NaN where all are NaN.

    Args:
        input: Floating tensor.
        dim: Dimension, or several; None: all.
        keepdim: Whether reduced dimensions stay, with size 1.
        dtype: Floating dtype in which elements are summed and returned; None: that of `input`.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        Tensor without the reduced dimensions, unless `keepdim`.

    Raises:
        DTypeError: The input or `dtype` is not floating (a `RuntimeError`).

    Example:
        >>> wg.nanmean(wg.tensor([1.0, float('nan'), 2.0]))
        tensor(1.5000)
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


METHODS = {"nanmean": nanmean, "nansum": nansum}
