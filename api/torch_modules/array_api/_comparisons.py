"""Comparisons, and logic of two truth values."""

from __future__ import annotations

from .._generated import ops
from ..runtime.tensor import Tensor
from ._operands import Scalar, promote

__all__ = [
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "not_equal",
]


def equal(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return True where two elements are equal.

    Args:
        x1: Tensor of any dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.equal(wg.tensor([1, 2]), 2)
        tensor([False,  True])
    """
    first, second = promote("equal", x1, x2)
    return ops.eq(first, second)


def greater(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return True where an element of `x1` is greater.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.greater(wg.tensor([1, 2]), 1)
        tensor([False,  True])
    """
    first, second = promote("greater", x1, x2)
    return ops.gt(first, second)


def greater_equal(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return True where an element of `x1` is not less.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.greater_equal(wg.tensor([1, 2]), 2)
        tensor([False,  True])
    """
    first, second = promote("greater_equal", x1, x2)
    return ops.ge(first, second)


def less(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return True where an element of `x1` is less.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.less(wg.tensor([1, 2]), 2)
        tensor([ True, False])
    """
    first, second = promote("less", x1, x2)
    return ops.lt(first, second)


def less_equal(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return True where an element of `x1` is not greater.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.less_equal(wg.tensor([1, 2]), 1)
        tensor([ True, False])
    """
    first, second = promote("less_equal", x1, x2)
    return ops.le(first, second)


def logical_and(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return True where both elements are True.

    Args:
        x1: Tensor of a bool dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.logical_and(wg.tensor([True, False]), True)
        tensor([ True, False])
    """
    first, second = promote("logical_and", x1, x2)
    return ops.logical_and(first, second)


def logical_or(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return True where an element is True.

    Args:
        x1: Tensor of a bool dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.logical_or(wg.tensor([True, False]), False)
        tensor([ True, False])
    """
    first, second = promote("logical_or", x1, x2)
    return ops.logical_or(first, second)


def logical_xor(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return True where one element is True, and the other is not.

    Args:
        x1: Tensor of a bool dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.logical_xor(wg.tensor([True, False]), True)
        tensor([False,  True])
    """
    first, second = promote("logical_xor", x1, x2)
    return ops.logical_xor(first, second)


def maximum(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the greater of two elements; NaN if one is.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.maximum(wg.tensor([1, 3]), 2)
        tensor([2, 3])
    """
    first, second = promote("maximum", x1, x2)
    return ops.maximum(first, second)


def minimum(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the lesser of two elements; NaN if one is.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.minimum(wg.tensor([1, 3]), 2)
        tensor([1, 2])
    """
    first, second = promote("minimum", x1, x2)
    return ops.minimum(first, second)


def not_equal(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return True where two elements differ.

    Args:
        x1: Tensor of any dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.not_equal(wg.tensor([1, 2]), 2)
        tensor([ True, False])
    """
    first, second = promote("not_equal", x1, x2)
    return ops.ne(first, second)
