"""Softmax and its logarithm, with PyTorch's argument for the dtype in which they compute."""

from __future__ import annotations

from typing import Any

from .._generated import ops
from ..arguments.aliases import accept_axis
from ..arguments.out import copy_to_out
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["log_softmax", "softmax"]


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


METHODS = {"log_softmax": log_softmax, "softmax": softmax}
