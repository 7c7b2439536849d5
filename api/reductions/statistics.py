"""Reductions whose arguments need control flow: variance, standard deviation, logsumexp, norms.

`axis` and `keepdims` are NumPy's names for `dim` and `keepdim`, which PyTorch accepts as well (`arguments.aliases`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .._generated import ops
from ..arguments.aliases import REQUIRED, resolve_axis_aliases
from ..arguments.out import copy_to_out
from ..arguments.types import Dims
from ..runtime import dtypes, layout, views
from ..runtime.dispatch import call, call_multiple, is_recorded
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, DTypeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["logsumexp", "norm", "std", "std_mean", "var", "var_mean"]


def var(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None, out: Tensor | None = None, axis: Dims = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return the variance along `dim`: the sum of squared deviations from the mean, divided by n - correction.

    Args:
        input: Floating tensor.
        dim: Dimension or dimensions to reduce; None reduces all.
        unbiased: Older form of `correction`: True is 1, False is 0.
        keepdim: Whether to keep the reduced dimensions with size 1.
        correction: Number subtracted from n (default 1: Bessel's correction).
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        Tensor without the reduced dimensions, unless `keepdim`.

    Raises:
        DTypeError: The dtype is not floating.

    Example:
        >>> wg.var(wg.tensor([1.0, 2.0, 3.0]))
        tensor(1.)
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("var", dim, None, axis, keepdim, keepdims)
    output = _moments(input, dim, unbiased, keepdim, correction, "var")[0]
    return output if out is None else copy_to_out(output, out, "var")


def std(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None, out: Tensor | None = None, axis: Dims = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return the standard deviation along `dim`: the square root of `var`.

    Args:
        input: Floating tensor.
        dim: Dimension, or several; None: all.
        unbiased: False stands for `correction=0`, True for 1.
        keepdim: Whether reduced dimensions stay, with size 1.
        correction: Number subtracted from n; None: 1.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        Tensor without the reduced dimensions.

    Example:
        >>> wg.std(wg.tensor([1.0, 2.0, 3.0]))
        tensor(1.)
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("std", dim, None, axis, keepdim, keepdims)
    output = _moments(input, dim, unbiased, keepdim, correction, "std", "std")[0]
    return output if out is None else copy_to_out(output, out, "std")


def var_mean(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None, axis: Dims = None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return variance and mean along `dim`; see `var`.

    Args:
        input: Floating tensor.
        dim: Dimension, or several; None: all.
        unbiased: False stands for `correction=0`, True for 1.
        keepdim: Whether reduced dimensions stay, with size 1.
        correction: Number subtracted from n; None: 1.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        A pair of tensors.

    Example:
        >>> wg.var_mean(wg.tensor([1.0, 2.0, 3.0]))
        (tensor(1.), tensor(2.))
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("var_mean", dim, None, axis, keepdim, keepdims)
    return _moments(input, dim, unbiased, keepdim, correction, "var_mean")


def std_mean(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None, axis: Dims = None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return standard deviation and mean along `dim`; see `var`.

    Args:
        input: Floating tensor.
        dim: Dimension, or several; None: all.
        unbiased: False stands for `correction=0`, True for 1.
        keepdim: Whether reduced dimensions stay, with size 1.
        correction: Number subtracted from n; None: 1.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        A pair of tensors.

    Example:
        >>> wg.std_mean(wg.tensor([1.0, 2.0, 3.0]))
        (tensor(1.), tensor(2.))
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("std_mean", dim, None, axis, keepdim, keepdims)
    return _moments(input, dim, unbiased, keepdim, correction, "std_mean", "std")


def _moments(
    input: Tensor, dim: Dims, unbiased: bool | None, keepdim: bool, correction: float | None, where: str,
    spread: str = "variance",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the variance and the mean, or with `spread="std"` the standard deviation and the mean.

    Elements of at most 32 bits take one pass, whose sums are float64. Float64 elements, and devices without float64,
    take one pass for the mean and one for the deviations. So do half dtypes that need a gradient, because its formula
    reads the mean, which must not be rounded. The gradient of a standard deviation of 0 is 0, as in PyTorch.
    """
    only_tensors(where, input)
    if isinstance(dim, bool):  # var(input, unbiased)
        dim, unbiased = None, dim
    layout_of_input = input.meta
    dtype = layout_of_input.dtype
    if dtype.kind != "f":
        raise DTypeError(f"{where}: takes floating dtypes, not {dtype.name}; convert with .float()")
    if correction is None:
        correction = 1.0 if unbiased is None or unbiased else 0.0
    dims = layout.normalize_dims(None if dim == () else dim, layout_of_input.ndim, where)
    fp64 = layout_of_input.device.driver.capabilities.fp64
    if dtype.itemsize > 4 or not fp64 or (dtype.itemsize < 4 and is_recorded(input)):
        return _moments_in_two_passes(input, dims, keepdim, float(correction), spread)
    operands = (input, float(correction))
    result, mean = call_multiple(registry[f"{spread}_and_mean"], operands, (dims, keepdim, dtypes.float64))
    return result, mean


def _moments_in_two_passes(
    input: Tensor, dims: tuple[int, ...], keepdim: bool, correction: float, spread: str
) -> tuple[Tensor, Tensor]:
    """Return what `_moments` does, by a reduction for the mean and one for the deviations from it.

    Half dtypes are computed with a mean of float32: rounding it would cost most of the result's digits.
    """
    mean = ops.mean(input, dims, True, dtype=dtypes.float32 if input.meta.dtype.itemsize < 4 else None)
    result = call(registry[f"{spread}_around"], (input, mean, correction), (dims, keepdim))
    result_mean = mean if keepdim else views.reshape(mean, result.meta.shape)
    return _to_dtype(result, input), _to_dtype(result_mean, input)


def _to_dtype(result: Tensor, input: Tensor) -> Tensor:
    """Round a result that was computed in float32 to the half dtype of `input`."""
    return result if result.meta.dtype is input.meta.dtype else result.to(input.meta.dtype)


def logsumexp(
    input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Tensor | None = None,
    axis: int | Sequence[int] | None = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return log(sum(exp(input))) along one or several dimensions, without overflow.

    Args:
        input: Tensor; integers and bool become the default floating dtype.
        dim: Dimension, or several; None or an empty tuple: all.
        keepdim: Whether reduced dimensions stay, with size 1.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        Tensor without the reduced dimensions.

    Example:
        >>> wg.logsumexp(wg.tensor([0.0, 0.0]), 0)
        tensor(0.6931)
    """
    if dim is None or axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("logsumexp", dim, REQUIRED, axis, keepdim, keepdims)
    output = _logsumexp(input, dim, keepdim)
    return output if out is None else copy_to_out(output, out, "logsumexp")


def _logsumexp(input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    is_empty = isinstance(dim, (tuple, list)) and not dim
    dims = layout.normalize_dims(None if is_empty else dim, input.meta.ndim, "logsumexp")
    if input.meta.dtype.kind != "f":
        input = input.to(dtypes.default_dtype())
    if len(dims) == 1:
        return ops.logsumexp_row(input, dims[0], keepdim)
    kept_dims = [d for d in range(input.meta.ndim) if d not in dims]
    permuted = ops.permute(input, (*kept_dims, *dims))
    flat = views.reshape(permuted, (*permuted.meta.shape[: len(kept_dims)], -1))
    output = ops.logsumexp_row(flat, -1, False)
    if not keepdim:
        return output
    return views.reshape(output, tuple(1 if d in dims else n for d, n in enumerate(input.meta.shape)))


def norm(
    input: Tensor, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False, out: Tensor | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:  # fmt: skip
    """Return the p-norm along `dim`, after converting to `dtype`.

    Args:
        input: Floating tensor.
        p: A number, inf, -inf, or "fro" (the same as 2).
        dim: Dimension, or several; None: all.
        keepdim: Whether reduced dimensions stay, with size 1.
        out: Tensor to write the result to.
        dtype: Dtype in which elements are computed; None: that of `input`.

    Returns:
        Tensor without the reduced dimensions.

    Raises:
        DTypeError: The dtype is not floating.

    Example:
        >>> wg.norm(wg.tensor([3.0, 4.0]))
        tensor(5.)
    """
    if dtype is not None:
        input = input.to(dtype)
    if input.meta.dtype.kind != "f":
        raise DTypeError(f"norm: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    output = _norm(input, p, dim, keepdim)
    return output if out is None else copy_to_out(output, out, "norm")


def _norm(input: Tensor, p: float | str | None, dim: Dims, keepdim: bool) -> Tensor:
    if isinstance(p, str):
        if p != "fro":
            raise ArgumentError(f"norm: p is a number or 'fro', not {p!r}")
        p = 2
    if p is None or p == 2:
        return ops.euclidean_norm(input, dim, keepdim)
    magnitude = ops.abs(input)
    if p == math.inf:
        return ops.max_elements(magnitude, dim, keepdim)
    if p == -math.inf:
        return ops.min_elements(magnitude, dim, keepdim)
    if p == 1:
        return ops.sum(magnitude, dim, keepdim)
    if p == 0:
        return ops.sum(ops.ne(input, 0).to(input.meta.dtype), dim, keepdim)
    if p < 0:
        return ops.pow(ops.sum(ops.pow(magnitude, p), dim, keepdim), 1.0 / p)
    powers = _power_of_positive(magnitude, p) if p < 1 else ops.pow(magnitude, p)
    return _power_of_positive(ops.sum(powers, dim, keepdim), 1.0 / p)


def _power_of_positive(base: Tensor, exponent: float) -> Tensor:
    """Return `base ** exponent` with the gradient 0 where `base` is 0; a root's derivative is infinite there."""
    is_zero = ops.eq(base, 0)
    return ops.masked_fill(ops.pow(ops.masked_fill(base, is_zero, 1), exponent), is_zero, 0)


METHODS = {name: globals()[name] for name in ("logsumexp", "norm", "std", "var")}
