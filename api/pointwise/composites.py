"""Functions composed of other ops: angles, powers, covariance, positions in a tensor.

They do not read values on the host, and their gradients follow from the ops they call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex

from .._generated import ops
from ..arguments.out import copy_to_out
from ..arguments.types import Operand
from ..creation import factories
from ..creation.options import shape_of
from ..linear_algebra import products, solving
from ..reductions import statistics
from ..runtime import dtypes
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "corrcoef", "cov", "deg2rad", "dist", "float_power", "matrix_power", "positive", "rad2deg", "sgn", "unravel_index",
]  # fmt: skip


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Return the covariance matrix of the rows.

    With weights w = fweights * aweights, the weighted sum of products of deviations from the mean is divided by
    `sum(w) - correction` (with aweights a: `sum(w) - correction * sum(w * a) / sum(w)`), clamped to at least 0.

    Args:
        input: `(variables, observations)`, or a vector, of which the result is the variance.
        correction: Number subtracted from the number of observations (1: Bessel's correction).
        fweights: Integer number of repetitions of each observation, `(observations,)`.
        aweights: Weight of each observation, `(observations,)`.

    Returns:
        `(variables, variables)`, or a scalar for a vector.

    Raises:
        ShapeError: The shapes do not fit.
        ArgumentError: `fweights` are not integers.

    Example:
        >>> wg.cov(wg.tensor([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]))
        tensor([[ 1., -2.],
                [-2.,  4.]])
    """
    only_tensors("cov", input)
    if input.ndim > 2:
        raise ShapeError(f"cov: takes a matrix or a vector, not the shape {list(input.shape)}")
    x = input if input.is_floating_point() else input.to(dtypes.default_dtype())
    x = x.reshape(1, -1) if x.ndim < 2 else x
    count = x.shape[1]
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is not None and tuple(weights.shape) != (count,):
            raise ShapeError(f"cov: {name} must have shape [{count}], not {list(weights.shape)}")
    if fweights is not None and fweights.is_floating_point():
        raise ArgumentError("cov: fweights are counts, of an integer dtype")
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        centred = x - x.mean(1, keepdim=True)
        covariance = products.matmul(centred, centred.mT) / max(count - correction, 0)
    else:
        weights = weights.to(x.dtype)
        total = weights.sum()
        centred = x - (x * weights).sum(1, keepdim=True) / total
        correction_term = correction if aweights is None else correction * (weights * aweights).sum() / total
        covariance = products.matmul(centred * weights, centred.mT) / (total - correction_term).clamp(min=0)
    return covariance.squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """Return Pearson's correlation coefficients of the rows: `cov` divided by both standard deviations, in [-1, 1].

    Args:
        input: Tensor of shape `(variables, observations)`.

    Returns:
        Tensor of shape `(variables, variables)`.

    Example:
        >>> wg.corrcoef(wg.tensor([[1.0, 2.0], [2.0, 1.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    covariance = cov(input)
    if not covariance.ndim:
        return covariance / covariance  # 1, or NaN for a constant vector, as in PyTorch
    deviations = covariance.diagonal().sqrt()
    return (covariance / deviations.unsqueeze(1) / deviations).clamp(-1, 1)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """Return the p-norm of `input - other`; shapes broadcast.

    Args:
        input: Floating tensor.
        other: Floating tensor, whose shape broadcasts with that of `input`.
        p: Order of the norm.

    Returns:
        Tensor of shape `()`.

    Example:
        >>> wg.dist(wg.tensor([0.0, 0.0]), wg.tensor([3.0, 4.0]))
        tensor(5.)
    """
    only_tensors("dist", input, other)
    return statistics.norm(ops.sub(input, other), p)


def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the n-th power of square matrices `(..., m, m)` by repeated squaring: about log2(n) products.

    Args:
        input: Tensor of shape `(..., m, m)`.
        n: Exponent. If it is negative, the inverse is raised to the power of `-n`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ShapeError: The matrices are not square.
        LinAlgError: `n` is negative and a matrix is singular (a `RuntimeError`).

    Example:
        >>> wg.matrix_power(wg.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
        tensor([[1., 3.],
                [0., 1.]])
    """
    only_tensors("matrix_power", input)
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices, not the shape {list(input.shape)}")
    if n < 0:
        input, n = solving.inv(input), -n
    product = None
    square = input
    for bit in reversed(f"{n:b}"):
        if bit == "1":
            product = square if product is None else products.matmul(product, square)
        n >>= 1
        if n:
            square = products.matmul(square, square)
    if product is None:
        product = factories.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand(input.shape).clone()
    elif product is input:
        product = input.clone()
    return product if out is None else copy_to_out(product, out, "matrix_power")


def float_power(input: Operand, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
    """Return `pow(input, exponent)` computed in float64.

    Args:
        input: Tensor or number.
        exponent: Tensor or number.
        out: Tensor to write the result to.

    Returns:
        float64 tensor of the broadcast shape.

    Example:
        >>> wg.float_power(2, wg.tensor([3]))
        tensor([8.], dtype=weftgrad.float64)
    """
    base, power = (t.to(dtypes.float64) if isinstance(t, Tensor) else t for t in (input, exponent))
    output = ops.pow(base, power)
    return output if out is None else copy_to_out(output, out, "float_power")


def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Convert degrees to radians.

    Args:
        input: Tensor; integers and bool become the default floating dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.deg2rad(wg.tensor([180.0]))
        tensor([3.1416])
    """
    output = input * (math.pi / 180)
    return output if out is None else copy_to_out(output, out, "deg2rad")


def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Convert radians to degrees.

    Args:
        input: Tensor; integers and bool become the default floating dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.rad2deg(wg.tensor([0.0]))
        tensor([0.])
    """
    output = input * (180 / math.pi)
    return output if out is None else copy_to_out(output, out, "rad2deg")


def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `sign(input)`; the two are equal because there are no complex dtypes.

    Args:
        input: Tensor of any dtype but bool.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.sgn(wg.tensor([-3.0, 0.0]))
        tensor([-1.,  0.])
    """
    output = input.sign()
    return output if out is None else copy_to_out(output, out, "sgn")


def positive(input: Tensor) -> Tensor:
    """Return `input` itself.

    Args:
        input: Tensor of any dtype but bool.

    Returns:
        `input`.

    Raises:
        ArgumentError: If `input` is bool, or not a tensor.

    Example:
        >>> wg.positive(wg.tensor([-1, 2]))
        tensor([-1,  2])
    """
    only_tensors("positive", input)
    if input.meta.dtype is dtypes.bool_:
        raise ArgumentError("positive: bool tensors have no sign")
    return input


def unravel_index(indices: Tensor, shape: SupportsIndex | Sequence[SupportsIndex]) -> tuple[Tensor, ...]:
    """Convert row-major positions in a tensor of `shape` to coordinates, like `numpy.unravel_index`.

    Args:
        indices: Integer positions. They are not checked, because the host would have to wait for the device.
        shape: The shape that the positions refer to.

    Returns:
        One int64 tensor for each dimension, of the shape of `indices`.

    Raises:
        ArgumentError: The positions are not integers.
        ShapeError: The shape is invalid.

    Example:
        >>> wg.unravel_index(wg.tensor([1, 5]), (2, 3))
        (tensor([0, 1]), tensor([1, 2]))
    """
    only_tensors("unravel_index", indices)
    if indices.dtype.kind not in "ui":
        raise ArgumentError(f"unravel_index: takes integer tensors, not {indices.dtype.name}")
    remaining, coordinates = indices.to(dtypes.int64), []
    for size in reversed(shape_of((shape,))):
        coordinates.append(remaining % size)
        remaining = remaining // size
    return tuple(reversed(coordinates))


METHODS = {
    name: globals()[name]
    for name in (
        "corrcoef", "cov", "deg2rad", "dist", "float_power", "matrix_power", "positive", "rad2deg", "sgn",
    )
}  # fmt: skip
