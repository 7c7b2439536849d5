"""Trigonometric and hyperbolic functions."""

from __future__ import annotations

from .._generated import ops
from ..runtime.tensor import Tensor
from ._operands import check_tensors

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan", "tanh"]


def acos(x: Tensor, /) -> Tensor:
    """Return the angle in [0, pi] whose cosine each element is.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.acos(wg.tensor([1.0]))
        tensor([0.])
    """
    check_tensors("acos", x)
    return ops.acos(x)


def acosh(x: Tensor, /) -> Tensor:
    """Return the inverse hyperbolic cosine of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.acosh(wg.tensor([1.0]))
        tensor([0.])
    """
    check_tensors("acosh", x)
    return ops.acosh(x)


def asin(x: Tensor, /) -> Tensor:
    """Return the angle in [-pi/2, pi/2] whose sine each element is.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.asin(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("asin", x)
    return ops.asin(x)


def asinh(x: Tensor, /) -> Tensor:
    """Return the inverse hyperbolic sine of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.asinh(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("asinh", x)
    return ops.asinh(x)


def atan(x: Tensor, /) -> Tensor:
    """Return the angle in [-pi/2, pi/2] whose tangent each element is.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.atan(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("atan", x)
    return ops.atan(x)


def atanh(x: Tensor, /) -> Tensor:
    """Return the inverse hyperbolic tangent of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.atanh(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("atanh", x)
    return ops.atanh(x)


def cos(x: Tensor, /) -> Tensor:
    """Return the cosine of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.cos(wg.tensor([0.0]))
        tensor([1.])
    """
    check_tensors("cos", x)
    return ops.cos(x)


def cosh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic cosine of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.cosh(wg.tensor([0.0]))
        tensor([1.])
    """
    check_tensors("cosh", x)
    return ops.cosh(x)


def sin(x: Tensor, /) -> Tensor:
    """Return the sine of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.sin(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("sin", x)
    return ops.sin(x)


def sinh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic sine of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.sinh(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("sinh", x)
    return ops.sinh(x)


def tan(x: Tensor, /) -> Tensor:
    """Return the tangent of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.tan(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("tan", x)
    return ops.tan(x)


def tanh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic tangent of each element.

    Args:
        x: Tensor of a floating dtype.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.tanh(wg.tensor([0.0]))
        tensor([0.])
    """
    check_tensors("tanh", x)
    return ops.tanh(x)
