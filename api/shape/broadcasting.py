"""Expand tensors to a common shape, and to a least number of dimensions. The results are views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import SupportsIndex, overload

from .._generated import ops
from ..arguments.types import Sizes
from ..runtime import layout, views
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ..tensor_methods.size import Size

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_shapes", "broadcast_tensors", "broadcast_to",
]  # fmt: skip


def broadcast_to(input: Tensor, *sizes: Sizes, size: Sequence[SupportsIndex] | None = None) -> Tensor:
    """Return a view expanded to `size` (ints, or one sequence).

    Args:
        input: Tensor of any dtype.
        *sizes: The shape, as ints or as one sequence.
        size: The shape by name.

    Returns:
        A view of `input`, in which repeated elements share memory.

    Example:
        >>> wg.tensor([1, 2]).broadcast_to(2, 2)
        tensor([[1, 2],
                [1, 2]])
    """
    return input.expand(*(sizes if size is None else (size,)))


def broadcast_shapes(*shapes: Sequence[int] | int) -> Size:
    """Return the shape that all of `shapes` broadcast to.

    Args:
        *shapes: Shapes; an int stands for a vector's shape.

    Returns:
        The common shape.

    Example:
        >>> wg.broadcast_shapes((2, 1), (3,))
        weftgrad.Size([2, 3])
    """
    return Size(layout.broadcast([(s,) if isinstance(s, int) else tuple(s) for s in shapes], "broadcast_shapes"))


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return views of all tensors, expanded to their common shape.

    Args:
        *tensors: Tensors whose shapes broadcast.

    Returns:
        A view for each tensor.

    Example:
        >>> wg.broadcast_tensors(wg.tensor([1, 2]), wg.tensor([[3]]))
        (tensor([[1, 2]]), tensor([[3, 3]]))
    """
    shape = layout.broadcast([x.meta.shape for x in tensors], "broadcast_tensors")
    return tuple(ops.expand(x, shape) for x in tensors)


def _reshape_to_ndim(
    tensors: Sequence[Tensor | Sequence[Tensor]], shape_of: Callable[[tuple[int, ...]], tuple[int, ...]], where: str
) -> Tensor | tuple[Tensor, ...]:
    first = tensors[0] if len(tensors) == 1 else None
    inputs: Sequence[object] = first if isinstance(first, (list, tuple)) else tensors
    only_tensors(where, *inputs)
    reshaped = tuple(
        views.reshape(x, shape) if (shape := shape_of(x.meta.shape)) != x.meta.shape else x
        for x in inputs
        if isinstance(x, Tensor)
    )
    return reshaped[0] if inputs is tensors and len(reshaped) == 1 else reshaped


@overload
def atleast_1d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_1d(first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Tensor, ...]: ...
@overload
def atleast_1d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Return each tensor (or each of one sequence) as a view with at least one dimension.

    Args:
        *tensors: Tensors, or one sequence of tensors.

    Returns:
        A view, or a tuple of views if there are several tensors.

    Example:
        >>> wg.atleast_1d(wg.tensor(3))
        tensor([3])
    """
    return _reshape_to_ndim(tensors, lambda shape: shape or (1,), "atleast_1d")


@overload
def atleast_2d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_2d(first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Tensor, ...]: ...
@overload
def atleast_2d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Return each tensor as a view with at least two dimensions; a vector `(n,)` becomes `(1, n)`.

    Args:
        *tensors: Tensors, or one sequence of tensors.

    Returns:
        A view, or a tuple of views if there are several tensors.

    Example:
        >>> wg.atleast_2d(wg.tensor([3, 4]))
        tensor([[3, 4]])
    """
    return _reshape_to_ndim(tensors, lambda shape: (1,) * (2 - len(shape)) + shape, "atleast_2d")


@overload
def atleast_3d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_3d(first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Tensor, ...]: ...
@overload
def atleast_3d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Return each tensor as a view with at least three dimensions: `(n,)` to `(1, n, 1)`, `(n, m)` to `(n, m, 1)`.

    Args:
        *tensors: Tensors, or one sequence of tensors.

    Returns:
        A view, or a tuple of views if there are several tensors.

    Example:
        >>> wg.atleast_3d(wg.ones(2, 3)).shape
        weftgrad.Size([2, 3, 1])
    """
    leading_ones = {0: (1, 1, 1), 1: (1,)}
    return _reshape_to_ndim(
        tensors,
        lambda s: s if len(s) > 2 else leading_ones.get(len(s), ()) + s + (1,) * (len(s) in (1, 2)),
        "atleast_3d",
    )


METHODS = {"broadcast_to": broadcast_to}
