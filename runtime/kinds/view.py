"""Plan views: another shape, strides and offset over the same memory. No kernel runs.

Each function takes the layout and the static arguments, and returns (shape, strides, offset in elements). Gradients
are in `runtime.autograd.view_rules`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..device import Meta, contiguous_strides, meta
from ..errors import IndexOutOfRange, ShapeError
from ..layout import infer_shape, normalize_dim
from ..traced_sizes import recorded
from . import Planned, Request

__all__ = ["GEOMETRY", "plan", "view_strides"]

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]


def plan(request: Request) -> Planned:
    """Plan a view: its layout, and its offset in bytes from the operand's first element."""
    layout = request.operands[0]
    assert isinstance(layout, Meta)
    shape, strides, offset = GEOMETRY[str(request.record.detail["view"])](layout, *request.statics)
    view = meta(layout.dtype, shape, strides, layout.device)
    return Planned((view,), view=offset * layout.dtype.itemsize)


def view_strides(layout: Meta, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides that view `layout` as `shape` without a copy, or None if there are none.

    Dimensions of the new shape are matched to runs of old dimensions that are contiguous with each other.
    """
    if layout.contiguous:
        return contiguous_strides(shape)
    if layout.numel == 0:
        return contiguous_strides(shape)
    old_dims = [(n, s) for n, s in zip(layout.shape, layout.strides, strict=True) if n != 1]
    runs: list[list[int]] = []  # [size, innermost stride] of each maximal contiguous run
    for n, s in old_dims:
        if runs and runs[-1][1] == n * s:
            runs[-1] = [runs[-1][0] * n, s]
        else:
            runs.append([n, s])
    strides = [0] * len(shape)
    run = len(runs) - 1
    remaining, step = runs[run] if runs else [1, 1]
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] == 1:
            strides[d] = step
            continue
        if remaining == 1:
            run -= 1
            if run < 0:
                return None
            remaining, step = runs[run]
        if remaining % shape[d]:
            return None
        strides[d] = step
        step *= shape[d]
        remaining //= shape[d]
    return tuple(strides)


def _view(layout: Meta, shape: tuple[int, ...]) -> Geometry:
    """Return the geometry of `Tensor.view`; raise `ShapeError` if it needs a copy."""
    target_shape = infer_shape(tuple(shape), layout.numel, "view")
    strides = view_strides(layout, target_shape)
    if strides is None:
        raise ShapeError(
            f"view: a tensor of shape {list(layout.shape)} with strides {list(layout.strides)} cannot be seen as "
            f"{list(target_shape)} without copying; use .reshape()"
        )
    return target_shape, strides, 0


def _permute(layout: Meta, dims: tuple[int, ...]) -> Geometry:
    order = [normalize_dim(d, layout.ndim, "permute") for d in dims]
    if len(order) != layout.ndim or len(set(order)) != len(order):
        raise ShapeError(f"permute: dims {list(dims)} must name each of the {layout.ndim} dimensions once")
    return tuple(layout.shape[d] for d in order), tuple(layout.strides[d] for d in order), 0


def _transpose(layout: Meta, dim0: int, dim1: int) -> Geometry:
    a, b = (normalize_dim(d, layout.ndim, "transpose") for d in (dim0, dim1))
    shape, strides = list(layout.shape), list(layout.strides)
    if layout.ndim:
        shape[a], shape[b] = shape[b], shape[a]
        strides[a], strides[b] = strides[b], strides[a]
    return tuple(shape), tuple(strides), 0


def _expand(layout: Meta, shape: tuple[int, ...]) -> Geometry:
    """Return the geometry of `Tensor.expand`: stride 0 along dimensions that are repeated."""
    num_new_dims = len(shape) - layout.ndim
    if num_new_dims < 0:
        raise ShapeError(f"expand: shape {list(shape)} has fewer dimensions than the tensor's {list(layout.shape)}")
    sizes, strides = list(shape), [0] * len(shape)
    for d, (size, stride) in enumerate(zip(layout.shape, layout.strides, strict=True), num_new_dims):
        target_size = size if sizes[d] == -1 else sizes[d]
        if size not in (1, target_size):
            raise ShapeError(
                f"expand: a tensor of shape {list(layout.shape)} does not expand to {list(shape)}: "
                f"size {size} in dimension {d - num_new_dims} is neither 1 nor {target_size}"
            )
        sizes[d] = target_size
        strides[d] = stride if size == target_size else 0
    if any(n < 0 for n in sizes):
        raise ShapeError(
            f"expand: invalid shape {list(shape)}: -1 keeps a size, so it is valid only for existing dimensions"
        )
    return tuple(sizes), tuple(strides), 0


def _squeeze(layout: Meta, dim: int | tuple[int, ...] | None = None) -> Geometry:
    if dim is None:
        dims = set(range(layout.ndim))
    else:
        dims = {normalize_dim(d, layout.ndim, "squeeze") for d in ((dim,) if isinstance(dim, int) else dim)}
    remaining_dims = [d for d in range(layout.ndim) if d not in dims or layout.shape[d] != 1]
    return tuple(layout.shape[d] for d in remaining_dims), tuple(layout.strides[d] for d in remaining_dims), 0


def _unsqueeze(layout: Meta, dim: int) -> Geometry:
    """Insert a dimension of size 1 before `dim`."""
    position = normalize_dim(dim, layout.ndim + 1, "unsqueeze")
    stride = layout.shape[position] * layout.strides[position] if position < layout.ndim else 1
    shape = (*layout.shape[:position], 1, *layout.shape[position:])
    return shape, (*layout.strides[:position], stride, *layout.strides[position:]), 0


def _select(layout: Meta, dim: int, index: int) -> Geometry:
    if not layout.ndim:
        raise IndexOutOfRange("select: a 0-d tensor has no dimension to select from; use .item()")
    axis = normalize_dim(dim, layout.ndim, "select")
    size = layout.shape[axis]
    if not -size <= index < size:
        raise IndexOutOfRange(f"select: index {index} is out of range for dimension {dim} of size {size}")
    offset = (index % size) * layout.strides[axis]
    return layout.shape[:axis] + layout.shape[axis + 1 :], layout.strides[:axis] + layout.strides[axis + 1 :], offset


def _slice(layout: Meta, dim: int, start: int | None, end: int | None, step: int) -> Geometry:
    axis = normalize_dim(dim, layout.ndim, "slice")
    if step < 1:
        raise ShapeError(f"slice: the step must be positive, not {step}; use flip()")
    size = layout.shape[axis]
    begin, stop = 0 if start is None else _position(start, size), size if end is None else _position(end, size)
    count = max(0, -(-(stop - begin) // step))
    shape = (*layout.shape[:axis], count, *layout.shape[axis + 1 :])
    strides = (*layout.strides[:axis], layout.strides[axis] * step, *layout.strides[axis + 1 :])
    return shape, strides, begin * layout.strides[axis] if count else 0


@recorded
def _position(bound: int, size: int) -> int:
    """Return the position in a dimension at which a slice with this bound starts or ends."""
    return slice(bound, None).indices(size)[0]


def _narrow(layout: Meta, dim: int, start: int, length: int) -> Geometry:
    axis = normalize_dim(dim, layout.ndim, "narrow")
    size = layout.shape[axis]
    begin = start + size if start < 0 else start
    if not 0 <= begin <= size:
        raise IndexOutOfRange(f"narrow: start {start} is out of range for dimension {dim} of size {size}")
    if length < 0 or begin + length > size:
        raise ShapeError(f"narrow: start {start} and length {length} exceed dimension {dim} of size {size}")
    return _slice(layout, axis, begin, begin + length, 1)


def _index(layout: Meta, *keys: int | tuple[int | None, int | None, int | None] | None) -> Geometry:
    """Apply basic indexing in one step.

    Args:
        keys: per dimension an int, a (start, stop, step) or None for a new dimension; `...` is already expanded.
    """
    shape: list[int] = []
    strides: list[int] = []
    offset, dim = 0, 0
    for key in keys:
        if key is None:
            shape.append(1)
            strides.append(0 if dim >= layout.ndim else layout.shape[dim] * layout.strides[dim])
            continue
        size, stride = layout.shape[dim], layout.strides[dim]
        if not isinstance(key, tuple):
            if not -size <= key < size:
                raise IndexOutOfRange(f"index {key} is out of range for dimension {dim} of size {size}")
            offset += (key % size) * stride
        else:
            start, end, step = key
            step = 1 if step is None else step
            if step < 1:
                raise ShapeError(f"indexing: the step of a slice must be positive, not {step}; use flip()")
            begin, stop = 0 if start is None else _position(start, size), size if end is None else _position(end, size)
            count = max(0, -(-(stop - begin) // step))
            shape.append(count)
            strides.append(stride * step)
            offset += begin * stride if count else 0
        dim += 1
    return (*shape, *layout.shape[dim:]), (*strides, *layout.strides[dim:]), offset


def _as_strided(layout: Meta, size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> Geometry:
    if len(size) != len(stride):
        raise ShapeError(f"as_strided: size {list(size)} and stride {list(stride)} differ in length")
    if any(n < 0 for n in size):
        raise ShapeError(f"as_strided: sizes must not be negative, got {list(size)}")
    return tuple(size), tuple(stride), offset


def _flip(layout: Meta, dims: tuple[int, ...]) -> Geometry:
    """Negate the strides of `dims`, and start at their last elements."""
    flipped_dims = {normalize_dim(d, layout.ndim, "flip") for d in dims}
    if len(flipped_dims) != len(dims):
        raise ShapeError(f"flip: a dimension appears twice in dims={list(dims)}")
    strides = tuple(-s if d in flipped_dims else s for d, s in enumerate(layout.strides))
    offset = sum((layout.shape[d] - 1) * layout.strides[d] for d in flipped_dims if layout.shape[d])
    return layout.shape, strides, offset if layout.numel else 0


def _diagonal(layout: Meta, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Geometry:
    """Return the diagonals of two dimensions as a new last dimension."""
    a, b = (normalize_dim(d, layout.ndim, "diagonal") for d in (dim1, dim2))
    if a == b:
        raise ShapeError(f"diagonal: the two dimensions must differ, got {dim1} and {dim2}")
    rows, cols = layout.shape[a], layout.shape[b]
    count = max(0, min(rows, cols - offset) if offset >= 0 else min(rows + offset, cols))
    other_dims = [d for d in range(layout.ndim) if d not in (a, b)]
    start = (offset * layout.strides[b] if offset >= 0 else -offset * layout.strides[a]) if count else 0
    shape = (*(layout.shape[d] for d in other_dims), count)
    return shape, (*(layout.strides[d] for d in other_dims), layout.strides[a] + layout.strides[b]), start


def _unfold(layout: Meta, dim: int, size: int, step: int) -> Geometry:
    """Return the windows of `size` elements, `step` apart, as a new last dimension."""
    axis = normalize_dim(dim, layout.ndim, "unfold")
    extent = layout.shape[axis] if layout.ndim else 1  # a 0-d tensor counts as one element along a dimension
    if size > extent or size < 0 or step < 1:
        raise ShapeError(f"unfold: size {size}, step {step} do not fit dimension {dim} of size {extent}")
    if not layout.ndim:
        return (size,), (1,), 0
    count = (layout.shape[axis] - size) // step + 1
    shape = (*layout.shape[:axis], count, *layout.shape[axis + 1 :], size)
    strides = (*layout.strides[:axis], layout.strides[axis] * step, *layout.strides[axis + 1 :], layout.strides[axis])
    return shape, strides, 0


def _alias(layout: Meta) -> Geometry:
    return layout.shape, layout.strides, 0


GEOMETRY: dict[str, Callable[..., Geometry]] = {
    "view": _view, "permute": _permute, "transpose": _transpose, "expand": _expand, "squeeze": _squeeze,
    "unsqueeze": _unsqueeze, "select": _select, "slice": _slice, "narrow": _narrow, "index": _index,
    "as_strided": _as_strided, "flip": _flip, "diagonal": _diagonal, "unfold": _unfold, "alias": _alias,
}  # fmt: skip
