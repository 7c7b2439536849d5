"""Maximum and minimum: of all elements, along a dimension with indices, or of two tensors.

`axis` and `keepdims` are NumPy's names for `dim` and `keepdim`, which PyTorch accepts as well (`arguments.aliases`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, overload

from .._generated import ops
from ..arguments.aliases import resolve_axis_aliases
from ..runtime.tensor import Tensor
from .paired_results import require_single_out, store_pair

__all__ = ["MaxResult", "MinResult", "aminmax", "max", "min"]

_Out: TypeAlias = Tensor | Sequence[Tensor] | None
"""Where results go: one tensor, or two for values and indices."""


class MaxResult(NamedTuple):
    """The largest values and their int64 indices.

    Args:
        values: The largest values.
        indices: Their int64 indices.

    Example:
        >>> wg.max(wg.tensor([1, 5, 3]), 0)
        MaxResult(values=tensor(5), indices=tensor(1))
    """

    values: Tensor
    indices: Tensor


class MinResult(NamedTuple):
    """The smallest values and their int64 indices.

    Args:
        values: The smallest values.
        indices: Their int64 indices.

    Example:
        >>> wg.min(wg.tensor([1, 5, 3]), 0)
        MinResult(values=tensor(1), indices=tensor(0))
    """

    values: Tensor
    indices: Tensor


class AminmaxResult(NamedTuple):
    """The smallest and the largest values.

    Args:
        min: The smallest values.
        max: The largest values.

    Example:
        >>> wg.aminmax(wg.tensor([1, 5, 3])).max
        tensor(5)
    """

    min: Tensor
    max: Tensor


@overload
def max(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def max(input: Tensor, dim: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def max(input: Tensor, *, other: Tensor, out: Tensor | None = None) -> Tensor: ...
@overload
def max(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Sequence[Tensor] | None = None, keepdims: bool | None = None
) -> MaxResult: ...
@overload
def max(
    input: Tensor, *, axis: int, keepdim: bool = False, out: Sequence[Tensor] | None = None,
    keepdims: bool | None = None,
) -> MaxResult: ...  # fmt: skip
def max(
    input: Tensor, dim: Tensor | int | None = None, keepdim: bool = False, *, other: Tensor | None = None,
    out: _Out = None, axis: int | None = None, keepdims: bool | None = None,
) -> Tensor | MaxResult:  # fmt: skip
    """Return the largest element, the maxima along a dimension, or the elementwise maximum of two tensors.

    Args:
        input: Tensor of any dtype.
        dim: Dimension to reduce, or a second tensor; None reduces all elements.
        keepdim: Whether to keep the dimension with size 1.
        other: Second tensor, for the elementwise maximum.
        out: Tensor to write the result to; two tensors for (values, indices).
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        A tensor; with an int `dim`, `(values, indices)`.

    Example:
        >>> wg.max(wg.tensor([[1, 5], [3, 2]]))
        tensor(5)
        >>> wg.max(wg.tensor([[1, 5], [3, 2]]), 1).values
        tensor([5, 3])
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("max", dim, None, axis, keepdim, keepdims)
    if isinstance(dim, Tensor):
        other, dim = dim if other is None else other, None
    if other is not None:
        return ops.maximum(input, other, out=None if out is None else require_single_out(out, "max"))
    if dim is None:
        return ops.amax(input, out=None if out is None else require_single_out(out, "max"))
    return MaxResult(*store_pair(ops.max_dim(input, dim, keepdim), out, "max"))


@overload
def min(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def min(input: Tensor, dim: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def min(input: Tensor, *, other: Tensor, out: Tensor | None = None) -> Tensor: ...
@overload
def min(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Sequence[Tensor] | None = None, keepdims: bool | None = None
) -> MinResult: ...
@overload
def min(
    input: Tensor, *, axis: int, keepdim: bool = False, out: Sequence[Tensor] | None = None,
    keepdims: bool | None = None,
) -> MinResult: ...  # fmt: skip
def min(
    input: Tensor, dim: Tensor | int | None = None, keepdim: bool = False, *, other: Tensor | None = None,
    out: _Out = None, axis: int | None = None, keepdims: bool | None = None,
) -> Tensor | MinResult:  # fmt: skip
    """Return the smallest element, the minima along a dimension, or the elementwise minimum of two tensors.

    For the arguments and the result see `max`.

    Args:
        input: Tensor of any dtype.
        dim: Dimension, or the other tensor; None: all elements.
        keepdim: Whether reduced dimensions stay, with size 1.
        other: The other tensor by name.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        As in `max`.

    Example:
        >>> wg.min(wg.tensor([[1, 5], [3, 2]]))
        tensor(1)
        >>> wg.min(wg.tensor([[1, 5], [3, 2]]), 1).values
        tensor([1, 2])
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("min", dim, None, axis, keepdim, keepdims)
    if isinstance(dim, Tensor):
        other, dim = dim if other is None else other, None
    if other is not None:
        return ops.minimum(input, other, out=None if out is None else require_single_out(out, "min"))
    if dim is None:
        return ops.amin(input, out=None if out is None else require_single_out(out, "min"))
    return MinResult(*store_pair(ops.min_dim(input, dim, keepdim), out, "min"))


def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: Sequence[Tensor] | None = None,
    axis: int | None = None, keepdims: bool | None = None,
) -> AminmaxResult:  # fmt: skip
    """Return `(min, max)`: the smallest and the largest element, of the whole tensor or along `dim`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; None: all elements.
        keepdim: Whether reduced dimensions stay, with size 1.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        A pair of `min` and `max`.

    Example:
        >>> wg.aminmax(wg.tensor([1, 5, 3]))
        AminmaxResult(min=tensor(1), max=tensor(5))
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("aminmax", dim, None, axis, keepdim, keepdims)
    return AminmaxResult(*store_pair((ops.amin(input, dim, keepdim), ops.amax(input, dim, keepdim)), out, "aminmax"))


METHODS = {name: globals()[name] for name in ("aminmax", "max", "min")}
