"""PyTorch's functions for complex numbers, for tensors that are always real."""

from __future__ import annotations

import math

from .._generated import ops
from ..arguments.descriptions import describe
from ..arguments.out import copy_to_out
from ..runtime import dtypes
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .comparison import where

__all__ = ["angle", "conj", "is_complex", "is_conj", "is_neg", "real", "resolve_conj", "resolve_neg"]

_INPUT = {"input": "Tensor of any dtype."}
_NO_TENSOR = "ArgumentError: If `input` is not a tensor."
_describe_question = describe(_INPUT, returns="False.", raises=_NO_TENSOR)
_describe_identity = describe(_INPUT, returns="`input`.", raises=_NO_TENSOR)


@_describe_question
def is_complex(input: Tensor) -> bool:
    """Return False: there are no complex dtypes.

    Example:
        >>> wg.is_complex(wg.ones(2))
        False
    """
    only_tensors("is_complex", input)
    return False


@_describe_question
def is_conj(input: Tensor) -> bool:
    """Return False: there are no complex dtypes.

    Example:
        >>> wg.is_conj(wg.ones(2))
        False
    """
    return is_complex(input)


@_describe_question
def is_neg(input: Tensor) -> bool:
    """Return False: there are no lazily negated tensors.

    Example:
        >>> wg.is_neg(wg.ones(2))
        False
    """
    return is_complex(input)


@_describe_identity
def real(input: Tensor) -> Tensor:
    """Return `input` itself, which is real.

    Example:
        >>> wg.real(wg.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    only_tensors("real", input)
    return input


@_describe_identity
def conj(input: Tensor) -> Tensor:
    """Return `input` itself: a real number is its own conjugate.

    Example:
        >>> wg.conj(wg.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    return real(input)


@_describe_identity
def resolve_conj(input: Tensor) -> Tensor:
    """Return `input` itself: there are no lazily conjugated tensors.

    Example:
        >>> wg.resolve_conj(wg.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    return real(input)


@_describe_identity
def resolve_neg(input: Tensor) -> Tensor:
    """Return `input` itself: there are no lazily negated tensors.

    Example:
        >>> wg.resolve_neg(wg.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    return real(input)


def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the angle of real numbers: 0 if not negative, pi if negative, NaN for NaN.

    Args:
        input: Tensor; integers become the default floating dtype.
        out: Tensor to write the result to.

    Returns:
        Floating tensor of the shape of `input`.

    Raises:
        ArgumentError: If `input` is not a tensor.

    Example:
        >>> wg.angle(wg.tensor([1.0, -1.0]))
        tensor([0.0000, 3.1416])
    """
    only_tensors("angle", input)
    x = input if input.is_floating_point() else input.to(dtypes.default_dtype())
    output = where(x.isnan(), x, where(x < 0, math.pi, ops.zero_like(x)))
    return output if out is None else copy_to_out(output, out, "angle")


METHODS = {"real": property(real)} | {
    name: globals()[name]
    for name in ("angle", "conj", "is_complex", "is_conj", "is_neg", "resolve_conj", "resolve_neg")
}
