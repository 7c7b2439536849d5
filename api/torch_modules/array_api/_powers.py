"""Exponentials, logarithms, squares and roots."""

from __future__ import annotations

from .._generated import ops
from ..pointwise import arithmetic
from ..runtime.tensor import Tensor
from ._operands import check_tensors

__all__ = ["exp", "expm1", "log", "log1p", "log2", "log10", "reciprocal", "sqrt", "square"]


def exp(x: Tensor, /) -> Tensor:
    """Return e to the power of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.exp(wg.tensor([0.0]))
        tensor([1.])
    """
    check_tensors("exp", x)
    return ops.exp(x)


def expm1(x: Tensor, /) -> Tensor:
    """Return e to the power of each element, minus 1, precise near 0.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.expm1(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("expm1", x)
    return ops.expm1(x)


def log(x: Tensor, /) -> Tensor:
    """Return the natural logarithm of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.log(wg.tensor([1.0]))
        tensor([0.])
    """
    check_tensors("log", x)
    return ops.log(x)


def log10(x: Tensor, /) -> Tensor:
    """Return the logarithm to base 10 of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.log10(wg.tensor([100.0]))
        tensor([2.])
    """
    check_tensors("log10", x)
    return ops.log10(x)


def log1p(x: Tensor, /) -> Tensor:
    """Return the natural logarithm of 1 plus each element, precise near 0.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.log1p(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("log1p", x)
    return ops.log1p(x)


def log2(x: Tensor, /) -> Tensor:
    """Return the logarithm to base 2 of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.log2(wg.tensor([8.0]))
        tensor([3.])
    """
    check_tensors("log2", x)
    return ops.log2(x)


def reciprocal(x: Tensor, /) -> Tensor:
    """Return 1 divided by each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.reciprocal(wg.tensor([4.0]))
        tensor([0.2500])
    """
    check_tensors("reciprocal", x)
    return ops.reciprocal(x)


def sqrt(x: Tensor, /) -> Tensor:
    """Return the square root of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.sqrt(wg.tensor([4.0]))
        tensor([2.])
    """
    check_tensors("sqrt", x)
    return ops.sqrt(x)


def square(x: Tensor, /) -> Tensor:
    """Return the square of each element.

    Args:
        x: Tensor of a numeric dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.square(wg.tensor([3]))
        tensor([9])
    """
    check_tensors("square", x)
    return arithmetic.square(x)
