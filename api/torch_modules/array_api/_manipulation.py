"""Functions that change shapes, select and repeat elements."""

from __future__ import annotations

from collections.abc import Sequence

from ..indexing import gathering
from ..runtime import dtypes
from ..runtime.errors import ArgumentError, IndexOutOfRange, ShapeError
from ..runtime.layout import normalize_dim
from ..runtime.tensor import Tensor
from ..shape import broadcasting, joining, repeating, reshaping
from ._operands import check_tensors

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat",
    "reshape", "roll", "squeeze", "stack", "take", "take_along_axis", "tile", "unstack",
]  # fmt: skip


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Return tensors expanded to their common shape.

    Args:
        *arrays: Tensors whose shapes broadcast.

    Returns:
        List of views.

    Example:
        >>> [x.shape for x in wg.array_api.broadcast_arrays(wg.ones(2, 1), wg.ones(3))]
        [weftgrad.Size([2, 3]), weftgrad.Size([2, 3])]
    """
    check_tensors("broadcast_arrays", *arrays)
    return list(broadcasting.broadcast_tensors(*arrays)) if arrays else []


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """Return a tensor expanded to a shape.

    Args:
        x: Tensor.
        shape: The shape.

    Returns:
        A view.

    Example:
        >>> wg.array_api.broadcast_to(wg.tensor([1, 2]), (2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    check_tensors("broadcast_to", x)
    return broadcasting.broadcast_to(x, tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Join tensors along an axis.

    Args:
        arrays: Tensors whose shapes are equal except along `axis`. Dtypes promote.
        axis: The axis; None: flatten the tensors first.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.concat([wg.ones(1, 2), wg.zeros(1, 2)], axis=None)
        tensor([1., 1., 0., 0.])
    """
    tensors = list(arrays)
    check_tensors("concat", *tensors)
    return joining.cat([x.reshape(-1) for x in tensors] if axis is None else tensors, axis or 0)


def expand_dims(x: Tensor, /, *, axis: int | tuple[int, ...] = 0) -> Tensor:
    """Return a tensor with an axis of size 1 more.

    Args:
        x: Tensor.
        axis: Position of the axis in the result; several in one tuple.

    Returns:
        A view.

    Raises:
        IndexOutOfRange: The position is out of range.

    Example:
        >>> wg.array_api.expand_dims(wg.ones(3), axis=-1).shape
        weftgrad.Size([3, 1])
    """
    check_tensors("expand_dims", x)
    axes = (axis,) if isinstance(axis, int) else axis
    ndim = x.meta.ndim + len(axes)
    result = x
    for position in sorted(normalize_dim(a, ndim, "expand_dims") for a in axes):
        result = result.unsqueeze(position)
    return result


def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return a tensor with the elements along axes in reverse order.

    Args:
        x: Tensor.
        axis: The axes; None: all.

    Returns:
        Tensor of the same shape.

    Example:
        >>> wg.array_api.flip(wg.tensor([1, 2, 3]))
        tensor([3, 2, 1])
    """
    check_tensors("flip", x)
    axes = tuple(range(x.meta.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return reshaping.flip(x, axes) if axes else x.clone()


def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """Return a tensor with axes moved to other positions. The other axes keep their order.

    Args:
        x: Tensor.
        source: The axes to move.
        destination: Their positions in the result.

    Returns:
        A view.

    Example:
        >>> wg.array_api.moveaxis(wg.ones(2, 3, 4), 0, -1).shape
        weftgrad.Size([3, 4, 2])
    """
    check_tensors("moveaxis", x)
    return reshaping.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Return a tensor with its axes in another order.

    Args:
        x: Tensor.
        axes: The axis of `x` for each axis of the result.

    Returns:
        A view.

    Example:
        >>> wg.array_api.permute_dims(wg.ones(2, 3), (1, 0)).shape
        weftgrad.Size([3, 2])
    """
    check_tensors("permute_dims", x)
    return reshaping.permute(x, tuple(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element.

    Args:
        x: Tensor.
        repeats: How often: a number, or one for each position along the axis.
        axis: The axis; None: flatten the tensor first.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.repeat(wg.tensor([1, 2]), wg.tensor([1, 2]))
        tensor([1, 2, 2])
    """
    check_tensors("repeat", x)
    if isinstance(repeats, Tensor) and not repeats.meta.ndim:
        repeats = int(repeats.item())
    return repeating.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """Return the elements in another shape.

    Args:
        x: Tensor.
        shape: The shape; one -1 stands for the size that the others leave.
        copy: Whether to copy. None: where the strides demand it. False: raise an error instead.

    Returns:
        Tensor of shape `shape`.

    Raises:
        ShapeError: The numbers of elements differ, or `copy` is False and the strides demand a copy. It is a
            `ValueError`.

    Example:
        >>> wg.array_api.reshape(wg.arange(4), (2, -1))
        tensor([[0, 1],
                [2, 3]])
    """
    check_tensors("reshape", x)
    result = reshaping.reshape(x, tuple(shape))
    is_view = not x.meta.numel or result.storage is x.storage
    if copy is False and not is_view:
        raise ShapeError(
            f"reshape: a tensor of shape {list(x.meta.shape)} with strides {list(x.meta.strides)} has no view of shape "
            f"{list(shape)}; do not pass copy=False"
        )
    return result.clone() if copy and is_view else result


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Move elements along axes; those that leave at the end return at the beginning.

    Args:
        x: Tensor.
        shift: By how many positions; one number for each axis.
        axis: The axes; None: flatten the tensor, and restore its shape.

    Returns:
        Tensor of the same shape.

    Example:
        >>> wg.array_api.roll(wg.tensor([1, 2, 3]), 1)
        tensor([3, 1, 2])
    """
    check_tensors("roll", x)
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return repeating.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return a tensor without axes of size 1.

    Args:
        x: Tensor.
        axis: The axes to remove.

    Returns:
        A view.

    Raises:
        ShapeError: An axis has another size than 1. It is a `ValueError`.

    Example:
        >>> wg.array_api.squeeze(wg.ones(1, 2, 1), (0, 2)).shape
        weftgrad.Size([2])
    """
    check_tensors("squeeze", x)
    shape = x.meta.shape
    axes = {normalize_dim(a, len(shape), "squeeze") for a in ((axis,) if isinstance(axis, int) else axis)}
    if any(shape[a] != 1 for a in axes):
        raise ShapeError(f"squeeze: axes of size 1 can be removed, not {sorted(axes)} of shape {list(shape)}")
    return x.squeeze(tuple(axes)) if axes else x


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

    Args:
        arrays: Tensors. Dtypes promote.
        axis: Position of the axis in the result.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.stack([wg.tensor([1, 2]), wg.tensor([3, 4])], axis=1)
        tensor([[1, 3],
                [2, 4]])
    """
    tensors = list(arrays)
    check_tensors("stack", *tensors)
    return joining.stack(tensors, axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return elements at positions along an axis.

    Args:
        x: Tensor.
        indices: Vector of integers; negative ones count from the end.
        axis: The axis; it may be left out for a vector.

    Returns:
        Tensor of the shape of `x`, except for the axis, which has the length of `indices`.

    Raises:
        ArgumentError: `axis` is missing, and `x` has several axes.
        IndexOutOfRange: A position is out of range.

    Example:
        >>> wg.array_api.take(wg.tensor([5, 6, 7]), wg.tensor([-1, 0]))
        tensor([7, 5])
    """
    check_tensors("take", x, indices)
    if axis is None:
        if x.meta.ndim != 1:
            raise ArgumentError(f"take: needs an axis for shape {list(x.meta.shape)}")
        axis = 0
    return gathering.index_select(x, axis, _from_start(x, indices, axis, "take"))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the element at a position along an axis, for each position of the other axes.

    Args:
        x: Tensor.
        indices: Tensor of integers, with as many axes as `x`; negative ones count from the end. Other axes broadcast.
        axis: The axis.

    Returns:
        Tensor of the broadcast shape.

    Raises:
        ShapeError: The numbers of axes differ.
        IndexOutOfRange: A position is out of range.

    Example:
        >>> wg.array_api.take_along_axis(wg.tensor([[1, 2], [3, 4]]), wg.tensor([[1], [0]]))
        tensor([[2],
                [3]])
    """
    check_tensors("take_along_axis", x, indices)
    if x.meta.ndim != indices.meta.ndim:
        raise ShapeError(
            f"take_along_axis: as many axes in both, not shapes {list(x.meta.shape)} and {list(indices.meta.shape)}"
        )
    return gathering.take_along_dim(x, _from_start(x, indices, axis, "take_along_axis"), axis)


def _from_start(x: Tensor, indices: Tensor, axis: int, name: str) -> Tensor:
    """Return int64 positions that count from the start of an axis."""
    if indices.meta.dtype.kind not in "iu":
        raise ArgumentError(f"{name}: indices are integers, not {indices.meta.dtype.name}")
    positions = indices.to(dtypes.int64)
    length = x.meta.shape[normalize_dim(axis, x.meta.ndim, name)]
    if positions.meta.numel and not length:
        raise IndexOutOfRange(f"{name}: the axis {axis} of shape {list(x.meta.shape)} has no elements")
    return (positions < 0) * length + positions


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Repeat a whole tensor along its axes.

    Args:
        x: Tensor.
        repetitions: How often, for each axis; the shorter of shape and repetitions gets ones in front.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.tile(wg.tensor([1, 2]), (2, 1))
        tensor([[1, 2],
                [1, 2]])
    """
    check_tensors("tile", x)
    return repeating.tile(x, tuple(repetitions))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the slices along an axis.

    Args:
        x: Tensor.
        axis: The axis.

    Returns:
        Tuple of views without the axis.

    Example:
        >>> wg.array_api.unstack(wg.tensor([[1, 2], [3, 4]]))
        (tensor([1, 2]), tensor([3, 4]))
    """
    check_tensors("unstack", x)
    return reshaping.unbind(x, axis)
