"""Maximum and minimum: of all elements, along a dimension with their indices, or of two tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, overload

from .._generated import ops
from ..arguments.aliases import resolve_axis_aliases
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .paired_results import require_single_out, store_pair

__all__ = ["MaxResult", "MinResult", "aminmax", "max", "min"]

_OutTensors: TypeAlias = Tensor | Sequence[Tensor] | None
"""The argument `out`: one tensor, or two for (values, indices)."""
_ONE_DIM = "{}: dim must be one dimension, not {!r}; a{} reduces several"
_COMBINED = "{}: dim reduces a dimension and other is a second operand; pass one of them"


class MaxResult(NamedTuple):
    """The result of `max` along a dimension.

    Args:
        values: The largest elements along the dimension, of the input's dtype.
        indices: Their int64 positions in the dimension.

    Example:
        >>> wg.max(wg.tensor([1, 5, 3]), 0)
        MaxResult(values=tensor(5), indices=tensor(1))
    """

    values: Tensor
    indices: Tensor


class MinResult(NamedTuple):
    """The result of `min` along a dimension.

    Args:
        values: The smallest elements along the dimension, of the input's dtype.
        indices: Their int64 positions in the dimension.

    Example:
        >>> wg.min(wg.tensor([1, 5, 3]), 0)
        MinResult(values=tensor(1), indices=tensor(0))
    """

    values: Tensor
    indices: Tensor


class AminmaxResult(NamedTuple):
    """The result of `aminmax`: two tensors of one shape.

    Args:
        min: The smallest elements.
        max: The largest elements.

    Example:
        >>> wg.aminmax(wg.tensor([1, 5, 3])).max
        tensor(5)
    """

    min: Tensor
    max: Tensor


@overload
def max(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | None = None, keepdims: bool | None = None
) -> Tensor: ...
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
    out: _OutTensors = None, axis: int | None = None, keepdims: bool | None = None,
) -> Tensor | MaxResult:  # fmt: skip
    """Return the largest element, the maxima along a dimension, or the elementwise maximum of two tensors.

    The result is NaN where an element is NaN. Among equal elements along a dimension, the index is that of the first.
    Without a dimension, the elements equal to the result share its gradient, and so do NaNs.

    Args:
        input: Tensor of any dtype.
        dim: Dimension to reduce; None reduces all elements. A tensor here is `other`.
        keepdim: Whether to keep the reduced dimensions with size 1; without effect if there is an `other`.
        other: Tensor for the elementwise maximum, of a shape that broadcasts with that of `input`.
        out: Tensor to write the result to; for a reduction along `dim`, two tensors for (values, indices).
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        `MaxResult(values, indices)` for a reduction along `dim`, else a tensor.

    Raises:
        ArgumentError: `dim` and `other` are combined, `dim` and `axis` are combined, `dim` has several dimensions, or
            `out` is not one tensor, or two for a reduction along `dim`.
        IndexShapeError: `dim` is out of range, or there are no elements to reduce.

    Example:
        >>> wg.max(wg.tensor([[1, 5], [3, 2]]))
        tensor(5)
        >>> wg.max(wg.tensor([[1, 5], [3, 2]]), 1).values
        tensor([5, 3])
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("max", dim, None, axis, keepdim, keepdims)
    if isinstance(dim, Tensor) and other is None:
        dim, other = None, dim
    if dim is None:
        single_out = None if out is None else require_single_out(out, "max")
        if other is None:
            return ops.max_elements(input, None, keepdim, out=single_out)
        return ops.maximum(input, other, out=single_out)
    if other is not None or isinstance(dim, Tensor):
        raise ArgumentError(_COMBINED.format("max"))
    if isinstance(dim, (tuple, list)):
        raise ArgumentError(_ONE_DIM.format("max", dim, "max"))
    return MaxResult(*store_pair(ops.max_dim(input, dim, keepdim), out, "max"))


@overload
def min(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | None = None, keepdims: bool | None = None
) -> Tensor: ...
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
    out: _OutTensors = None, axis: int | None = None, keepdims: bool | None = None,
) -> Tensor | MinResult:  # fmt: skip
    """Return the smallest element, the minima along a dimension, or the elementwise minimum of two tensors.

    The result is NaN where an element is NaN. Among equal elements along a dimension, the index is that of the first.
    Without a dimension, the elements equal to the result share its gradient, and so do NaNs.

    Args:
        input: Tensor of any dtype.
        dim: Dimension to reduce; None reduces all elements. A tensor here is `other`.
        keepdim: Whether to keep the reduced dimensions with size 1; without effect if there is an `other`.
        other: Tensor for the elementwise minimum, of a shape that broadcasts with that of `input`.
        out: Tensor to write the result to; for a reduction along `dim`, two tensors for (values, indices).
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        `MinResult(values, indices)` for a reduction along `dim`, else a tensor.

    Raises:
        ArgumentError: `dim` and `other` are combined, `dim` and `axis` are combined, `dim` has several dimensions, or
            `out` is not one tensor, or two for a reduction along `dim`.
        IndexShapeError: `dim` is out of range, or there are no elements to reduce.

    Example:
        >>> wg.min(wg.tensor([[1, 5], [3, 2]]))
        tensor(1)
        >>> wg.min(wg.tensor([[1, 5], [3, 2]]), 1).values
        tensor([1, 2])
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("min", dim, None, axis, keepdim, keepdims)
    if isinstance(dim, Tensor) and other is None:
        dim, other = None, dim
    if dim is None:
        single_out = None if out is None else require_single_out(out, "min")
        if other is None:
            return ops.min_elements(input, None, keepdim, out=single_out)
        return ops.minimum(input, other, out=single_out)
    if other is not None or isinstance(dim, Tensor):
        raise ArgumentError(_COMBINED.format("min"))
    if isinstance(dim, (tuple, list)):
        raise ArgumentError(_ONE_DIM.format("min", dim, "min"))
    return MinResult(*store_pair(ops.min_dim(input, dim, keepdim), out, "min"))


def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: Sequence[Tensor] | None = None,
    axis: int | None = None, keepdims: bool | None = None,
) -> AminmaxResult:  # fmt: skip
    """Return the smallest and the largest element, of all elements or along a dimension.

    Both are NaN if an element is NaN, and so are the gradients.

    Args:
        input: Tensor of any dtype.
        dim: Dimension to reduce; None reduces all elements.
        keepdim: Whether to keep the reduced dimensions with size 1.
        out: Two tensors to write the results to.
        axis: NumPy's name for `dim`.
        keepdims: NumPy's name for `keepdim`.

    Returns:
        `AminmaxResult(min, max)`: 0-d tensors, or tensors of the shape of `input` without `dim`; with `keepdim`, the
            reduced dimensions have size 1.

    Raises:
        ArgumentError: `dim` and `axis` are combined, or `out` is not two tensors.
        IndexShapeError: `dim` is out of range, or there are no elements to reduce.

    Example:
        >>> wg.aminmax(wg.tensor([1, 5, 3]))
        AminmaxResult(min=tensor(1), max=tensor(5))
        >>> wg.aminmax(wg.tensor([[1, 5], [3, 2]]), dim=1).max
        tensor([5, 3])
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = resolve_axis_aliases("aminmax", dim, None, axis, keepdim, keepdims)
    results = ops.amin(input, dim, keepdim), ops.amax(input, dim, keepdim)
    return AminmaxResult(*store_pair(results, out, "aminmax"))


METHODS = {"aminmax": aminmax, "max": max, "min": min}
"""Functions that are methods of Tensor, too."""
