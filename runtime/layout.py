"""Shapes and strides: broadcasting, merging dimensions, and splitting work. Pure functions on tuples."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from .device import Meta
from .errors import ArgumentError, IndexOutOfRange, ShapeError
from .traced_sizes import PackedSizes, Size

__all__ = [
    "are_disjoint",
    "broadcast",
    "channels_last_strides",
    "collapse",
    "dense_strides",
    "expand_strides",
    "has_internal_overlap",
    "infer_shape",
    "memory_order",
    "normalize_dim",
    "normalize_dims",
    "pack_longs",
    "preserved_strides",
    "split",
    "strides_like",
]


def broadcast(shapes: Iterable[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """Return the shape to which all of `shapes` broadcast. Raises `ShapeError`; `where` names the op in its message."""
    result: list[int] = []
    for shape in shapes:
        if len(shape) > len(result):
            result = [1] * (len(shape) - len(result)) + result
        lead = len(result) - len(shape)
        for i, size in enumerate(shape):
            current_size = result[lead + i]
            if current_size == 1:
                result[lead + i] = size
            elif size not in (1, current_size):
                raise ShapeError(
                    f"{where}: shapes do not broadcast: sizes {current_size} and {size} meet in dimension "
                    f"{lead + i - len(result)}; sizes must be equal or 1"
                )
    return tuple(result)


def expand_strides(layout: Meta, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides for reading `layout` as the broadcast `shape`: 0 along broadcast dimensions."""
    lead = len(shape) - layout.ndim
    strides = tuple(
        0 if size == 1 and target_size != 1 else stride
        for size, stride, target_size in zip(layout.shape, layout.strides, shape[lead:], strict=True)
    )
    return (0,) * lead + strides


def preserved_strides(layouts: Sequence[Meta], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides for the result of an elementwise op, or None if the result is to be contiguous.

    The result has no gaps, and the operands' order of dimensions in memory, which is PyTorch's rule. So kernels read
    and write in memory order, and images whose channels are innermost stay so.
    """
    if all(m.contiguous for m in layouts):
        return None
    strides = layouts[0].strides
    if all(m.shape == shape and m.strides == strides for m in layouts) and _is_permuted_contiguous(shape, strides):
        return strides
    order = memory_order(shape, [expand_strides(m, shape) for m in layouts])
    return None if order == list(range(len(shape) - 1, -1, -1)) else dense_strides(shape, order)


def _is_permuted_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    dense_stride = 1
    for stride, size in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != dense_stride:
            return False
        dense_stride *= size
    return 0 not in shape


def memory_order(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the dimensions in the order that operands have them in memory, the innermost one first.

    Two dimensions are compared by the first operand that has different strides there, none of them 0. Where no operand
    does, the order of the shape stays. The comparisons need not be transitive, so the way of sorting matters: by
    insertion, from the last dimension on, as PyTorch does.

    Args:
        shape: The common shape.
        strides: The strides of each operand, 0 along broadcast dimensions.
    """
    order = list(range(len(shape) - 1, -1, -1))
    for start in range(1, len(order)):
        position = start
        for other in range(start - 1, -1, -1):
            sign = _compare_dims(shape, strides, order[other], order[position])
            if sign < 0:
                break
            if sign > 0:
                order[other], order[position] = order[position], order[other]
                position = other
    return order


def _compare_dims(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]], left: int, right: int) -> int:
    """Return -1 if dimension `left` is the inner one of the two, 1 if `right` is, and 0 if no operand tells."""
    for operand in strides:
        left_stride, right_stride = abs(operand[left]), abs(operand[right])
        if left_stride == 0 or right_stride == 0:
            continue
        if left_stride != right_stride:
            return -1 if left_stride < right_stride else 1
        if shape[left] > shape[right]:  # one of them has size 1: the other one is outside
            return 1
    return 0


def dense_strides(shape: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps whose dimensions are in memory in this order, innermost first."""
    strides = [1] * len(shape)
    stride = 1
    for dim in order:
        strides[dim] = stride
        stride *= shape[dim]
    return tuple(strides)


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return dense strides for `(N, C, ...)` with the channels innermost; row-major ones without such dimensions."""
    return dense_strides(shape, [1, *range(len(shape) - 1, 1, -1), 0] if len(shape) > 1 else range(len(shape)))


def collapse(
    shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge adjacent dimensions that every operand can traverse with one stride, and drop dimensions of size 1.

    Dimensions are first sorted by the strides of the last operand (the output), largest first, so that kernels iterate
    over a permuted output in memory order.

    Args:
        shape: The common shape.
        strides: The strides of each operand.

    Returns:
        The merged shape, and the merged strides of each operand.
    """
    dims = [d for d, size in enumerate(shape) if size != 1]
    dims.sort(key=lambda d: -abs(strides[-1][d]))
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for d in dims:
        if sizes and all(m[-1] == s[d] * shape[d] for m, s in zip(merged, strides, strict=True)):
            sizes[-1] *= shape[d]
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[d]
        else:
            sizes.append(shape[d])
            for m, s in zip(merged, strides, strict=True):
                m.append(s[d])
    return tuple(sizes), [tuple(m) for m in merged]


def has_internal_overlap(layout: Meta) -> bool:
    """Return True if two indices of this layout may address the same element, as after `expand`."""
    extent = 1  # elements from the first to the last that the smaller strides reach
    for stride, size in sorted((abs(s), n) for s, n in zip(layout.strides, layout.shape, strict=True) if n != 1):
        if stride < extent:
            return layout.numel > 0
        extent = stride * (size - 1) + extent
    return False


def infer_shape(shape: tuple[int, ...], numel: int, where: str) -> tuple[int, ...]:
    """Replace one -1 in `shape` by the size with which it has `numel` elements. Raises `ShapeError`."""
    known_numel = 1
    inferred_dim = -1
    for i, size in enumerate(shape):
        if size == -1 and inferred_dim < 0:
            inferred_dim = i
        elif size < 0:
            raise ShapeError(f"{where}: invalid shape {list(shape)}: only one size may be -1")
        else:
            known_numel *= size
    if inferred_dim >= 0:
        if known_numel == 0 or numel % known_numel:
            raise ShapeError(f"{where}: {numel} elements do not fill shape {list(shape)}")
        return (*shape[:inferred_dim], numel // known_numel, *shape[inferred_dim + 1 :])
    if known_numel != numel:
        raise ShapeError(f"{where}: shape {list(shape)} holds {known_numel} elements, the tensor has {numel}")
    return shape


def normalize_dim(dim: int, ndim: int, where: str) -> int:
    """Return `dim` as a non-negative number. A 0-d tensor has the dimensions -1 and 0, as in PyTorch.

    Raises:
        ArgumentError: `dim` is no integer.
        IndexOutOfRange: There is no such dimension.
    """
    limit = max(ndim, 1)
    if type(dim) is not int:
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise ArgumentError(f"{where}: dim must be an int, not {dim!r}")
        dim = dim.__index__()  # a NumPy integer
    if not -limit <= dim < limit:
        raise IndexOutOfRange(f"{where}: dimension out of range: expected {-limit} to {limit - 1}, got {dim}")
    return dim % limit


def normalize_dims(dims: int | Sequence[int] | None, ndim: int, where: str) -> tuple[int, ...]:
    """Return dimensions as sorted non-negative numbers; None means all. Raises `ShapeError` for duplicates."""
    if dims is None:
        return tuple(range(ndim))
    requested: tuple[int, ...] = tuple(dims) if isinstance(dims, Sequence) else (dims,)
    normalized = [normalize_dim(d, ndim, where) for d in requested]
    if len(set(normalized)) != len(normalized):
        raise ShapeError(f"{where}: a dimension appears twice in dim={requested}")
    return tuple(sorted(normalized)) if ndim else ()


def split(total: int, parts: int, quantum: int = 1) -> tuple[int, int]:
    """Split `total` into about `parts` equal chunks; return (size of a chunk, number of chunks).

    The size is a multiple of `quantum`. The last chunk may be smaller.
    """
    chunk = -(-total // max(parts, 1))
    chunk = -(-chunk // quantum) * quantum
    return chunk, -(-total // chunk)


def pack_longs(values: Iterable[int]) -> bytes:
    """Return integers as consecutive native 64-bit values, the form in which kernels get their geometry."""
    numbers = tuple(values)
    if Size in map(type, numbers):
        return PackedSizes(numbers)  # type: ignore[return-value]  # the generated function of a family packs them
    return struct.pack(f"@{len(numbers)}q", *numbers)


def pad_front(values: Sequence[int], count: int, fill: int) -> list[int]:
    """Return `values` with `fill` prepended until there are `count`."""
    return [fill] * (count - len(values)) + list(values)


def is_dense(layout: Meta) -> bool:
    """Return True if the elements fill their memory without gaps or overlap, in some order of dimensions."""
    return layout.contiguous or _is_permuted_contiguous(layout.shape, layout.strides)


def strides_like(layout: Meta) -> tuple[int, ...]:
    """Return the strides of `empty_like`: the layout's own if it is dense, else dense ones in its memory order."""
    if is_dense(layout):
        return layout.strides
    return dense_strides(layout.shape, memory_order(layout.shape, [layout.strides]))


def are_disjoint(*views: tuple[Sequence[int], Sequence[int], int]) -> bool:
    """Return True if it is certain that two views of one storage have no element in common.

    The offset of an element is written in a mixed radix system whose place values are 1 and the strides of both views.
    An index along a dimension changes only the digit of its stride. An offset has one representation if, for each
    stride, the greatest sum of lower digits times their place values is less than the stride. Then the views are
    disjoint if, for any one stride, their ranges of digits are disjoint. If offsets have several representations, or
    two dimensions of a view have the same stride, the result is False.

    Args:
        views: (shape, strides, start) of two views, in elements.
    """
    place_values = sorted(
        {s for shape, strides, _ in views for n, s in zip(shape, strides, strict=True) if n > 1 and s} | {1}
    )
    min_digits: list[list[int]] = []
    max_digits: list[list[int]] = []
    for shape, strides, start in views:
        sizes = dict.fromkeys(place_values, 1)
        for n, s in zip(shape, strides, strict=True):
            if n > 1 and s:
                if sizes[s] > 1:
                    return False
                sizes[s] = n
        digits = []
        for step in reversed(place_values):
            digits.append(start // step)
            start %= step
        min_digits.append(digits[::-1])
        max_digits.append([low + sizes[step] - 1 for low, step in zip(min_digits[-1], place_values, strict=True)])
    max_offset = 0
    for step, *view_max_digits in zip(place_values, *max_digits, strict=True):
        if max_offset >= step:
            return False
        max_offset += max(view_max_digits) * step
    return any(
        max(lows) > min(highs)
        for lows, highs in zip(zip(*min_digits, strict=True), zip(*max_digits, strict=True), strict=True)
    )
