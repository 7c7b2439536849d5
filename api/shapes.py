"""Shapes: the same elements seen otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from .runtime import layout, views
from .runtime.errors import IndexOutOfRange, ShapeError
from .runtime.tensor import Tensor

__all__ = [
    "adjoint",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "moveaxis",
    "movedim",
    "permute",
    "ravel",
    "reshape",
    "swapaxes",
    "t",
    "unbind",
    "unflatten",
    "view_as",
]


Dims = int | Sequence[int] | None


def reshape(input: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements in another shape, copied only if strides demand it."""
    return views.reshape(input, tuple(shape))


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim to end_dim merged into one."""
    return input.flatten(start_dim, end_dim)  # type: ignore[attr-defined,no-any-return]


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension split into several."""
    return input.unflatten(dim, sizes)  # type: ignore[attr-defined,no-any-return]


def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    return views.reshape(input, (-1,))


def permute(input: Tensor, dims: Sequence[int]) -> Tensor:
    """The dimensions in another order."""
    return ops.permute(input, tuple(dims))


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; a vector itself."""
    return input.t()  # type: ignore[attr-defined,no-any-return]


swapaxes = ops.transpose


def movedim(input: Tensor, source: Dims, destination: Dims) -> Tensor:
    """Dimensions moved from `source` to `destination`; the others keep their order."""
    only_tensors("movedim", input)
    ndim = input.meta.ndim
    sources = [source] if isinstance(source, int) else list(source or ())
    places = [destination] if isinstance(destination, int) else list(destination or ())
    if len(sources) != len(places):
        raise ShapeError("movedim: source and destination must name as many dimensions")
    start = [layout.normalize_dim(d, ndim, "movedim") for d in sources]
    end = [layout.normalize_dim(d, ndim, "movedim") for d in places]
    if len(set(start)) != len(start) or len(set(end)) != len(end):
        raise ShapeError("movedim: a dimension appears twice")
    rest = iter([d for d in range(ndim) if d not in start])
    order = [start[end.index(d)] if d in end else next(rest) for d in range(ndim)]
    return ops.permute(input, tuple(order))


moveaxis = movedim


def flip(input: Tensor, *along: Any, dims: Any = None) -> Tensor:
    """A copy with the order of elements along `dims` (ints, or one sequence of them) reversed."""
    only_tensors("flip", input)
    along = along if dims is None else (dims,)
    if len(along) == 1 and isinstance(along[0], (tuple, list)):
        along = tuple(along[0])
    if not input.meta.ndim:  # one element, which has no other place; its dimension may be called 0 or -1
        if any(d not in (0, -1) for d in along):
            raise IndexOutOfRange(f"flip: dims {list(along)} of a tensor without dimensions")
        along = ()
    return ops.contiguous_copy(ops.flip_view(input, along))


def fliplr(input: Tensor) -> Tensor:
    """Flipped along the second dimension."""
    if input.meta.ndim < 2:
        raise ShapeError(f"fliplr: takes two dimensions or more, not shape {list(input.meta.shape)}")
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """Flipped along the first dimension."""
    if input.meta.ndim < 1:
        raise ShapeError("flipud: takes one dimension or more, not a 0-d tensor")
    return flip(input, 0)


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged: the conjugate transpose, since numbers here are real."""
    if input.meta.ndim == 1:
        raise ShapeError("adjoint: takes a matrix or a batch of them, not a vector")
    return input if not input.meta.ndim else ops.transpose(input, -2, -1)


def _at_least(tensors: tuple[Any, ...], shape_of: Any, where: str) -> Any:
    several = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    given = tuple(tensors[0]) if several else tensors
    only_tensors(where, *given)
    found = tuple(views.reshape(x, shape) if (shape := shape_of(x.meta.shape)) != x.meta.shape else x for x in given)
    return found[0] if len(found) == 1 and not several else found


def atleast_1d(*tensors: Any) -> Any:
    """Each tensor (or each of a sequence of them) as a view of one dimension if it has none."""
    return _at_least(tensors, lambda shape: shape or (1,), "atleast_1d")


def atleast_2d(*tensors: Any) -> Any:
    """Each tensor as a view of two dimensions if it has fewer: vectors are rows."""
    return _at_least(tensors, lambda shape: (1,) * (2 - len(shape)) + shape, "atleast_2d")


def atleast_3d(*tensors: Any) -> Any:
    """Each tensor as a view of three dimensions if it has fewer: (n,) becomes (1, n, 1), and (n, m) (n, m, 1)."""
    lead = {0: (1, 1, 1), 1: (1,)}
    return _at_least(
        tensors, lambda s: s if len(s) > 2 else lead.get(len(s), ()) + s + (1,) * (len(s) in (1, 2)), "atleast_3d"
    )


def unbind(input: Tensor, dim: int = 0, *, axis: int | None = None) -> tuple[Tensor, ...]:
    """The slices along a dimension."""
    return input.unbind(dim, axis=axis)  # type: ignore[attr-defined,no-any-return]


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """A view in the shape of `other`."""
    return input.view_as(other)  # type: ignore[attr-defined,no-any-return]


def broadcast_to(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Expanded to `size` (ints, or one sequence of them) without copying."""
    return input.expand(*(sizes if size is None else (size,)))  # type: ignore[attr-defined,no-any-return]


def broadcast_shapes(*shapes: Sequence[int] | int) -> Any:
    """The shape that all of `shapes` broadcast to."""
    from .methods import Size

    return Size(layout.broadcast([(s,) if isinstance(s, int) else tuple(s) for s in shapes], "broadcast_shapes"))


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    shape = layout.broadcast([x.meta.shape for x in tensors], "broadcast_tensors")
    return tuple(ops.expand(x, shape) for x in tensors)
