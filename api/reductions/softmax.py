"""Softmax and its logarithm, with PyTorch's argument for the dtype in which they compute."""

from __future__ import annotations

from collections.abc import Callable

from .._generated import ops
from ..arguments.aliases import accept_axis
from ..arguments.out import copy_to_out
from ..runtime.dtypes import DTypeLike
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["log_softmax", "softmax"]


@accept_axis
def softmax(input: Tensor, dim: int, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return exp(x) / sum(exp(x)) along a dimension: positive numbers that sum to 1.

    The maximum is subtracted first, so that large elements do not overflow.

    Args:
        input: Tensor of a floating dtype.
        dim: Dimension; negative values count from the last.
        dtype: Dtype to convert `input` to first; None: none.
        out: Tensor to write the result to.

    Returns:
        Tensor of the same shape. A row of only -inf gives NaN.

    Raises:
        UnsupportedDType: `input` has integers, and `dtype` is None.

    Example:
        >>> wg.softmax(wg.tensor([0.0, 0.0, -float("inf")]), dim=0)
        tensor([0.5000, 0.5000, 0.0000])
    """
    return _softmax_in_dtype(ops.softmax, input, dim, dtype, out)


@accept_axis
def log_softmax(input: Tensor, dim: int, dtype: DTypeLike | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return log(softmax(input)) along a dimension, computed as x - max - log(sum(exp(x - max))).

    Unlike `softmax(...).log()`, it does not underflow.

    Args:
        input: Tensor of a floating dtype.
        dim: Dimension; negative values count from the last.
        dtype: Dtype to convert `input` to first; None: none.
        out: Tensor to write the result to.

    Returns:
        Tensor of the same shape.

    Raises:
        UnsupportedDType: `input` has integers, and `dtype` is None.

    Example:
        >>> wg.log_softmax(wg.tensor([0.0, -1000.0]), dim=0)
        tensor([    0., -1000.])
    """
    return _softmax_in_dtype(ops.log_softmax, input, dim, dtype, out)


def _softmax_in_dtype(
    function: Callable[[Tensor, int], Tensor], input: Tensor, dim: int, dtype: DTypeLike | None, out: Tensor | None
) -> Tensor:
    if dtype is not None:
        only_tensors(function.__name__, input)
        input = input.to(dtype=dtype)
    output = function(input, dim)
    return output if out is None else copy_to_out(output, out, function.__name__)


METHODS = {"log_softmax": log_softmax, "softmax": softmax}
