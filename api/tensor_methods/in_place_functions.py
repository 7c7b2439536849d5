"""Functions that change a tensor in place, under names that `torch` has beside Tensor's methods."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.tensor import Tensor

__all__ = [
    "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_", "arctanh_", "as_strided_", "deg2rad_", "fix_",
    "ldexp_", "logit_", "nan_to_num_", "negative_", "rad2deg_",
]  # fmt: skip


def arccos_(input: Tensor) -> Tensor:
    """Replace each element by its arccosine.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.arccos_(wg.tensor([1.0]))
        tensor([0.])
    """
    return input.acos_()


def arccosh_(input: Tensor) -> Tensor:
    """Replace each element by its inverse hyperbolic cosine.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.arccosh_(wg.tensor([1.0]))
        tensor([0.])
    """
    return input.acosh_()


def arcsin_(input: Tensor) -> Tensor:
    """Replace each element by its arcsine.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.arcsin_(wg.tensor([0.0]))
        tensor([0.])
    """
    return input.asin_()


def arcsinh_(input: Tensor) -> Tensor:
    """Replace each element by its inverse hyperbolic sine.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.arcsinh_(wg.tensor([0.0]))
        tensor([0.])
    """
    return input.asinh_()


def arctan_(input: Tensor) -> Tensor:
    """Replace each element by its arctangent.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.arctan_(wg.tensor([0.0]))
        tensor([0.])
    """
    return input.atan_()


def arctanh_(input: Tensor) -> Tensor:
    """Replace each element by its inverse hyperbolic tangent.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.arctanh_(wg.tensor([0.0]))
        tensor([0.])
    """
    return input.atanh_()


def deg2rad_(input: Tensor) -> Tensor:
    """Convert angles from degrees to radians.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.deg2rad_(wg.tensor([180.0]))
        tensor([3.1416])
    """
    return input.deg2rad_()


def fix_(input: Tensor) -> Tensor:
    """Round each element towards zero.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.fix_(wg.tensor([-1.5, 1.5]))
        tensor([-1.,  1.])
    """
    return input.trunc_()


def negative_(input: Tensor) -> Tensor:
    """Change the sign of each element.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.negative_(wg.tensor([1, -2]))
        tensor([-1,  2])
    """
    return input.neg_()


def rad2deg_(input: Tensor) -> Tensor:
    """Convert angles from radians to degrees.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.rad2deg_(wg.tensor([wg.pi]))
        tensor([180.])
    """
    return input.rad2deg_()


def addmv_(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Replace `input` by `beta * input + alpha * mat @ vec`.

    Args:
        input: Vector, which is changed.
        mat: Matrix.
        vec: Vector.
        beta: Factor of `input`.
        alpha: Factor of the product.

    Returns:
        `input`.

    Example:
        >>> wg.addmv_(wg.ones(1), wg.tensor([[1.0, 2.0]]), wg.tensor([3.0, 4.0]))
        tensor([12.])
    """
    return input.addmv_(mat, vec, beta=beta, alpha=alpha)


def as_strided_(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:  # fmt: skip
    """Call `Tensor.as_strided_`.

    Args:
        input: Tensor, which becomes a view of its memory.
        size: The shape.
        stride: Distance between neighbours in each dimension, in elements, not negative.
        storage_offset: Position of the first element in the storage, in elements; None: that of `input`.

    Returns:
        `input`.

    Example:
        >>> wg.as_strided_(wg.arange(4), (2, 2), (1, 2))
        tensor([[0, 2],
                [1, 3]])
    """
    return input.as_strided_(size, stride, storage_offset)


def ldexp_(input: Tensor, other: Tensor) -> Tensor:
    """Multiply each element by two to the power of `other`.

    Args:
        input: Floating tensor, which is changed.
        other: Exponents.

    Returns:
        `input`.

    Example:
        >>> wg.ldexp_(wg.tensor([1.0, 3.0]), wg.tensor([1, 2]))
        tensor([ 2., 12.])
    """
    return input.ldexp_(other)


def logit_(input: Tensor, eps: float | None = None) -> Tensor:
    """Replace each element x by log(x / (1 - x)).

    Args:
        input: Floating tensor, which is changed.
        eps: Elements are clamped to `eps` and `1 - eps` first; None: they are not.

    Returns:
        `input`.

    Example:
        >>> wg.logit_(wg.tensor([0.5]))
        tensor([0.])
    """
    return input.logit_(eps)


def nan_to_num_(
    input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:  # fmt: skip
    """Replace NaN and infinite elements by numbers.

    Args:
        input: Tensor, which is changed.
        nan: Replaces NaN; None: 0.
        posinf: Replaces infinity; None: the largest number of the dtype.
        neginf: Replaces minus infinity; None: the smallest number of the dtype.

    Returns:
        `input`.

    Example:
        >>> wg.nan_to_num_(wg.tensor([float('nan'), 1.0]))
        tensor([0., 1.])
    """
    return input.nan_to_num_(nan, posinf, neginf)
