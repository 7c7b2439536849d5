"""Geometry of strided operands: broadcasting, merging dimensions, and splitting work. Pure functions on tuples."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from .device import Meta, contiguous_strides
from .errors import ArgumentError, IndexOutOfRange, ShapeError

__all__ = [
    "broadcast",
    "collapse",
    "disjoint",
    "expand_strides",
    "has_internal_overlap",
    "normalize_dim",
    "normalize_dims",
    "pack_longs",
    "preserved_strides",
    "split",
]


def broadcast(shapes: Iterable[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """The shape that all of `shapes` expand to, aligned at the right. Raises `ShapeError` naming the first clash."""
    result: list[int] = []
    for shape in shapes:
        if len(shape) > len(result):
            result = [1] * (len(shape) - len(result)) + result
        lead = len(result) - len(shape)
        for i, size in enumerate(shape):
            have = result[lead + i]
            if have == 1:
                result[lead + i] = size
            elif size not in (1, have):
                raise ShapeError(
                    f"{where}: shapes do not broadcast: sizes {have} and {size} meet in dimension "
                    f"{lead + i - len(result)}; sizes must be equal or 1"
                )
    return tuple(result)


def expand_strides(layout: Meta, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides with which `layout` is read as `shape`: 0 along dimensions it is broadcast over."""
    lead = len(shape) - layout.ndim
    own = tuple(
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(layout.shape, layout.strides, shape[lead:], strict=True)
    )
    return (0,) * lead + own


def preserved_strides(layouts: Sequence[Meta], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of a fresh result: those of the full-shape operands if they agree and have no gaps, else contiguous."""
    full = [m for m in layouts if m.shape == shape]
    if not full or full[0].contiguous:
        return None
    strides = full[0].strides
    if any(m.strides != strides for m in full[1:]) or not _is_permuted_contiguous(shape, strides):
        return None
    return strides


def _is_permuted_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return 0 not in shape


def collapse(
    shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge neighbouring dimensions that are one run for every operand; drop those of size 1.

    Dimensions are first ordered by the last operand's strides (the output's), largest first, so that a permuted
    result is walked as it lies in memory. Returns the shape and each operand's strides.
    """
    kept = [d for d, size in enumerate(shape) if size != 1]
    kept.sort(key=lambda d: -abs(strides[-1][d]))
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for d in kept:
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
    """Whether two indices of a tensor of this layout are the same element, as after `expand`."""
    expected = 1
    for stride, size in sorted((abs(s), n) for s, n in zip(layout.strides, layout.shape, strict=True) if n != 1):
        if stride < expected:
            return layout.numel > 0
        expected = stride * (size - 1) + expected
    return False


def normalize_dim(dim: int, ndim: int, where: str) -> int:
    """`dim` counted from the front; a 0-d tensor has the dimensions -1 and 0, as in PyTorch."""
    limit = max(ndim, 1)
    if type(dim) is not int:
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise ArgumentError(f"{where}: dim must be an int, not {dim!r}")
        dim = dim.__index__()  # NumPy's
    if not -limit <= dim < limit:
        raise IndexOutOfRange(f"{where}: dimension out of range: expected {-limit} to {limit - 1}, got {dim}")
    return dim % limit


def normalize_dims(dims: int | Sequence[int] | None, ndim: int, where: str) -> tuple[int, ...]:
    """Dimensions from the front, sorted; None means all. Raises for one named twice."""
    if dims is None:
        return tuple(range(ndim))
    given: tuple[int, ...] = tuple(dims) if isinstance(dims, Sequence) else (dims,)
    found = [normalize_dim(d, ndim, where) for d in given]
    if len(set(found)) != len(found):
        raise ShapeError(f"{where}: a dimension appears twice in dim={given}")
    return tuple(sorted(found)) if ndim else ()


def split(total: int, parts: int, quantum: int = 1) -> tuple[int, int]:
    """Equal chunks of `total`: (size of a chunk, number of chunks); sizes are multiples of `quantum`."""
    chunk = -(-total // max(parts, 1))
    chunk = -(-chunk // quantum) * quantum
    return chunk, -(-total // chunk)


def pack_longs(values: Iterable[int]) -> bytes:
    """Kernel geometry: 64-bit integers in order."""
    numbers = tuple(values)
    return struct.pack(f"@{len(numbers)}q", *numbers)


def padded(values: Sequence[int], count: int, fill: int) -> list[int]:
    """`values` with `fill` put in front up to `count` of them."""
    return [fill] * (count - len(values)) + list(values)


def dense(layout: Meta) -> bool:
    """Whether the elements fill their memory without gaps or overlap, in some order of dimensions."""
    return layout.contiguous or _is_permuted_contiguous(layout.shape, layout.strides)


def strides_like(layout: Meta) -> tuple[int, ...]:
    """Strides that `empty_like` gives: the layout's own if dense, else contiguous."""
    return layout.strides if dense(layout) else contiguous_strides(layout.shape)


def disjoint(*views: tuple[Sequence[int], Sequence[int], int]) -> bool:
    """Whether two views (shape, strides, start; in elements) certainly have no element in common.

    Positions are written as digits, one for each stride of either view and one for single elements. Where no sum of
    lower digits reaches the next stride that is unambiguous, and the views are disjoint if for one digit their ranges
    are. Other layouts (strides that do not nest) count as not disjoint.
    """
    steps = sorted({s for shape, strides, _ in views for n, s in zip(shape, strides, strict=True) if n > 1 and s} | {1})
    lows: list[list[int]] = []
    highs: list[list[int]] = []
    for shape, strides, start in views:
        counts = dict.fromkeys(steps, 1)
        for n, s in zip(shape, strides, strict=True):
            if n > 1 and s:
                if counts[s] > 1:
                    return False
                counts[s] = n
        digits = []
        for step in reversed(steps):
            digits.append(start // step)
            start %= step
        lows.append(digits[::-1])
        highs.append([low + counts[step] - 1 for low, step in zip(lows[-1], steps, strict=True)])
    reach = 0
    for step, *top in zip(steps, *highs, strict=True):
        if reach >= step:
            return False
        reach += max(top) * step
    return any(
        max(low) > min(high) for low, high in zip(zip(*lows, strict=True), zip(*highs, strict=True), strict=True)
    )
