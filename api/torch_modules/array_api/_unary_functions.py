"""Functions of each element."""

from __future__ import annotations

from .._generated import ops
from ..runtime.tensor import Tensor
from ._operands import check_tensors

__all__ = [
    "abs",
    "bitwise_invert",
    "ceil",
    "conj",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "logical_not",
    "negative",
    "positive",
    "real",
    "round",
    "sign",
    "signbit",
    "trunc",
]


def abs(x: Tensor, /) -> Tensor:
    """Return the absolute value of each element.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.abs(wg.tensor([-1.0, 2.0]))
        tensor([1., 2.])
    """
    check_tensors("abs", x)
    return ops.abs(x)


def bitwise_invert(x: Tensor, /) -> Tensor:
    """Return each element with all bits inverted; of bool, the negation.

    Args:
        x: Tensor of an integer or bool dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.bitwise_invert(wg.tensor([0, 1]))
        tensor([-1, -2])
    """
    check_tensors("bitwise_invert", x)
    return ops.bitwise_not(x)


def ceil(x: Tensor, /) -> Tensor:
    """Return the smallest integer that is not less than each element.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.ceil(wg.tensor([0.5, -0.5]))
        tensor([1., -0.])
    """
    check_tensors("ceil", x)
    return ops.ceil(x)


def conj(x: Tensor, /) -> Tensor:
    """Return the complex conjugate of each element: the elements themselves, because there are no complex dtypes.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        `x`.

    Example:
        >>> wg.array_api.conj(wg.tensor([1.0]))
        tensor([1.])
    """
    check_tensors("conj", x)
    return x


def floor(x: Tensor, /) -> Tensor:
    """Return the largest integer that is not greater than each element.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.floor(wg.tensor([0.5, -0.5]))
        tensor([ 0., -1.])
    """
    check_tensors("floor", x)
    return ops.floor(x)


def isfinite(x: Tensor, /) -> Tensor:
    """Return True for each finite element.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.isfinite(wg.tensor([1.0, float("inf")]))
        tensor([ True, False])
    """
    check_tensors("isfinite", x)
    return ops.isfinite(x)


def isinf(x: Tensor, /) -> Tensor:
    """Return True for each infinite element.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.isinf(wg.tensor([1.0, float("inf")]))
        tensor([False,  True])
    """
    check_tensors("isinf", x)
    return ops.isinf(x)


def isnan(x: Tensor, /) -> Tensor:
    """Return True for each element that is NaN.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.isnan(wg.tensor([1.0, float("nan")]))
        tensor([False,  True])
    """
    check_tensors("isnan", x)
    return ops.isnan(x)


def logical_not(x: Tensor, /) -> Tensor:
    """Return the negation of each element.

    Args:
        x: Tensor of a bool dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.logical_not(wg.tensor([True, False]))
        tensor([False,  True])
    """
    check_tensors("logical_not", x)
    return ops.logical_not(x)


def negative(x: Tensor, /) -> Tensor:
    """Return the negative of each element.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.negative(wg.tensor([1, -2]))
        tensor([-1,  2])
    """
    check_tensors("negative", x)
    return ops.neg(x)


def positive(x: Tensor, /) -> Tensor:
    """Return each element as it is.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        A copy of `x`.

    Example:
        >>> wg.array_api.positive(wg.tensor([-1]))
        tensor([-1])
    """
    check_tensors("positive", x)
    return x.clone()


def real(x: Tensor, /) -> Tensor:
    """Return the real part of each element: the elements themselves, because there are no complex dtypes.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        `x`.

    Example:
        >>> wg.array_api.real(wg.tensor([1.0]))
        tensor([1.])
    """
    check_tensors("real", x)
    return x


def round(x: Tensor, /) -> Tensor:
    """Return the nearest integer of each element; of two, the even one.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.round(wg.tensor([0.5, 1.5]))
        tensor([0., 2.])
    """
    check_tensors("round", x)
    return ops.round(x)


def sign(x: Tensor, /) -> Tensor:
    """Return 1, 0 or -1: the sign of each element; NaN for NaN.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.sign(wg.tensor([-3.0, float("nan")]))
        tensor([-1., nan])
    """
    check_tensors("sign", x)
    signs = ops.sign(x)
    return ops.where(ops.isnan(x), x, signs) if x.meta.dtype.kind == "f" else signs


def signbit(x: Tensor, /) -> Tensor:
    """Return True for each element whose sign bit is set, also for -0.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.signbit(wg.tensor([-0.0, 0.0]))
        tensor([ True, False])
    """
    check_tensors("signbit", x)
    return ops.signbit(x)


def trunc(x: Tensor, /) -> Tensor:
    """Return each element rounded towards 0.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.trunc(wg.tensor([1.5, -1.5]))
        tensor([ 1., -1.])
    """
    check_tensors("trunc", x)
    return ops.trunc(x)
