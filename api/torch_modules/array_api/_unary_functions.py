"""Functions of each element."""

from __future__ import annotations

from .._generated import ops
from ..pointwise import arithmetic
from ..runtime.tensor import Tensor
from ._operands import check_tensors

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_invert",
    "ceil",
    "conj",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_not",
    "negative",
    "positive",
    "real",
    "reciprocal",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]  # fmt: skip


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
