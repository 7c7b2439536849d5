"""Functions of two elements or more at the same position."""

from __future__ import annotations

from .._generated import ops
from ..pointwise import arithmetic, comparison, floating_point
from ..runtime.errors import DTypeError
from ..runtime.tensor import Tensor
from ._operands import Scalar, check_tensors, promote

__all__ = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "clip",
    "copysign",
    "divide",
    "floor_divide",
    "hypot",
    "logaddexp",
    "multiply",
    "nextafter",
    "pow",
    "remainder",
    "subtract",
    "where",
]


def add(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the sum of two tensors.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.add(wg.tensor([1, 2]), 3)
        tensor([4, 5])
    """
    first, second = promote("add", x1, x2)
    return ops.add(first, second)


def atan2(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the angle of the point (`x2`, `x1`), in [-pi, pi].

    Args:
        x1: Tensor of a floating dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.atan2(wg.tensor([0.0]), 1.0)
        tensor([0.])
    """
    first, second = promote("atan2", x1, x2)
    return ops.atan2(first, second)


def bitwise_and(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the bits that are set in both elements.

    Args:
        x1: Tensor of an integer or bool dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.bitwise_and(wg.tensor([3]), 6)
        tensor([2])
    """
    first, second = promote("bitwise_and", x1, x2)
    return ops.bitwise_and(first, second)


def bitwise_left_shift(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the elements of `x1`, shifted to the left by those of `x2`.

    Args:
        x1: Tensor of an integer dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.bitwise_left_shift(wg.tensor([3]), 2)
        tensor([12])
    """
    first, second = promote("bitwise_left_shift", x1, x2)
    return ops.bitwise_left_shift(first, second)


def bitwise_or(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the bits that are set in one element or both.

    Args:
        x1: Tensor of an integer or bool dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.bitwise_or(wg.tensor([3]), 6)
        tensor([7])
    """
    first, second = promote("bitwise_or", x1, x2)
    return ops.bitwise_or(first, second)


def bitwise_right_shift(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the elements of `x1`, shifted to the right by those of `x2`.

    Args:
        x1: Tensor of an integer dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.bitwise_right_shift(wg.tensor([12]), 2)
        tensor([3])
    """
    first, second = promote("bitwise_right_shift", x1, x2)
    return ops.bitwise_right_shift(first, second)


def bitwise_xor(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the bits that differ.

    Args:
        x1: Tensor of an integer or bool dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.bitwise_xor(wg.tensor([3]), 6)
        tensor([5])
    """
    first, second = promote("bitwise_xor", x1, x2)
    return ops.bitwise_xor(first, second)


def clip(x: Tensor, /, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None) -> Tensor:
    """Return each element, or the nearer of two bounds if it is beyond them.

    Args:
        x: Tensor of a numeric dtype.
        min: Lower bound: a number, or a tensor whose shape broadcasts; None: no bound.
        max: Upper bound. If it is below the lower bound, it is the result.

    Returns:
        Tensor of the broadcast shape and the dtype of `x`. NaN stays NaN, and a bound that is NaN gives NaN.

    Example:
        >>> wg.array_api.clip(wg.tensor([-1, 0, 5]), 0, 3)
        tensor([0, 0, 3])
    """
    check_tensors("clip", x)
    result = x
    for name, bound, limit in (("min", min, ops.maximum), ("max", max, ops.minimum)):
        if bound is None:
            continue
        if isinstance(bound, float) and x.meta.dtype.kind != "f":
            raise DTypeError(f"clip: {name} is a float, and the tensor {x.meta.dtype.name}; convert one of them")
        result = limit(result, bound.to(x.meta.dtype) if isinstance(bound, Tensor) else bound)
    return result.clone() if result is x else result


def copysign(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the elements of `x1` with the signs of those of `x2`.

    Args:
        x1: Tensor of a floating dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.copysign(wg.tensor([1.0]), -0.0)
        tensor([-1.])
    """
    first, second = promote("copysign", x1, x2)
    return ops.copysign(first, second)


def divide(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the quotient of two tensors.

    Args:
        x1: Tensor of a floating dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.divide(wg.tensor([1.0]), 4.0)
        tensor([0.2500])
    """
    first, second = promote("divide", x1, x2)
    return arithmetic.div(first, second)


def floor_divide(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the quotient of two tensors, rounded down.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.floor_divide(wg.tensor([-7]), 2)
        tensor([-4])
    """
    first, second = promote("floor_divide", x1, x2)
    return ops.floor_divide(first, second)


def hypot(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the square root of the sum of two squares.

    Args:
        x1: Tensor of a floating dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.hypot(wg.tensor([3.0]), 4.0)
        tensor([5.])
    """
    first, second = promote("hypot", x1, x2)
    return ops.hypot(first, second)


def logaddexp(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return log(exp(`x1`) + exp(`x2`)).

    Args:
        x1: Tensor of a floating dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.logaddexp(wg.tensor([0.0]), float("-inf"))
        tensor([0.])
    """
    first, second = promote("logaddexp", x1, x2)
    return ops.logaddexp(first, second)


def multiply(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the product of two tensors.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.multiply(wg.tensor([1, 2]), 3)
        tensor([3, 6])
    """
    first, second = promote("multiply", x1, x2)
    return ops.mul(first, second)


def nextafter(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the number after each element of `x1`, in the direction of `x2`.

    Args:
        x1: Tensor of a floating dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.nextafter(wg.tensor([1.0]), wg.tensor([2.0])) > 1
        tensor([True])
    """
    first, second = promote("nextafter", x1, x2)
    tensor = first if isinstance(first, Tensor) else second
    assert isinstance(tensor, Tensor)  # `promote` demands one
    return floating_point.nextafter(_like(first, tensor), _like(second, tensor))


def pow(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return `x1` to the power of `x2`.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.pow(wg.tensor([2, 3]), 2)
        tensor([4, 9])
    """
    first, second = promote("pow", x1, x2)
    return ops.pow(first, second)


def remainder(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the remainder of a division, with the sign of `x2`.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.remainder(wg.tensor([-7]), 3)
        tensor([2])
    """
    first, second = promote("remainder", x1, x2)
    return ops.remainder(first, second)


def subtract(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return the difference of two tensors.

    Args:
        x1: Tensor of a numeric dtype, or a number.
        x2: Tensor or number; one of both is a tensor. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.subtract(wg.tensor([1, 2]), 3)
        tensor([-2, -1])
    """
    first, second = promote("subtract", x1, x2)
    return ops.sub(first, second)


def where(condition: Tensor, x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Return elements of `x1` where a condition is True, and of `x2` elsewhere.

    Args:
        condition: Tensor of dtype bool.
        x1: Tensor or number.
        x2: Tensor or number. Shapes broadcast, and dtypes promote.

    Returns:
        Tensor of the broadcast shape.

    Example:
        >>> wg.array_api.where(wg.tensor([True, False]), wg.tensor([1, 2]), 0)
        tensor([1, 0])
    """
    check_tensors("where", condition)
    first, second = promote("where", x1, x2)
    result = comparison.where(condition, first, second)
    assert isinstance(result, Tensor)  # with three arguments
    return result


def _like(value: Tensor | Scalar, tensor: Tensor) -> Tensor:
    """Return a number as a tensor of the dtype and device of another."""
    return value if isinstance(value, Tensor) else tensor.new_full((), value)
