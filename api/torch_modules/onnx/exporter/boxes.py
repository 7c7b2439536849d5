"""The part of a tensor that a view shows, as a range of positions along each dimension."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import TypeAlias

from ..errors import DynamicSizeError
from .dynamic_sizes import Int, Size
from .program import Ref

__all__ = ["Box", "Range", "Region", "choose_root", "covers", "cut_points", "find_box", "intersects", "whole"]

Range: TypeAlias = tuple[Int, Int]
"""The first position, and the one after the last."""

Region: TypeAlias = tuple[Range, ...]
"""A range for each dimension of the root."""


@dataclass(frozen=True, slots=True)
class Box:
    """Where a view lies in its root, the tensor that has all of a memory's elements.

    Attributes:
        region: The smallest region that contains the view.
        dims: For each dimension of the view, the root's dimension along which it runs; None for a size of 1.
        steps: For each dimension of the view, the distance of neighbours along that dimension.
    """

    region: Region
    dims: tuple[int | None, ...]
    steps: tuple[int, ...]

    @property
    def is_dense(self) -> bool:
        """Whether the view has every element of its region."""
        return all(step == 1 for step in self.steps)


def choose_root(refs: Iterable[Ref]) -> Ref | None:
    """Return the largest tensor, the first among equals, whose elements do not overlap; None if there is none."""
    root: Ref | None = None
    for ref in refs:
        if (root is None or ref.meta.numel > root.meta.numel) and not _overlaps_itself(ref):
            root = ref
    return root


def _overlaps_itself(ref: Ref) -> bool:
    """Return whether elements share memory, or run backwards: as in expanded tensors, windows and reversed ones."""
    extent = 1
    dims = sorted(zip(ref.meta.strides, ref.meta.shape, strict=True))
    for stride, size in dims:
        if size > 1:
            if stride < extent:
                return True
            extent += (size - 1) * stride
    return False


def whole(ref: Ref) -> Region:
    """Return the region of all elements."""
    return tuple((0, size) for size in ref.shape)


def find_box(ref: Ref, root: Ref) -> Box | None:
    """Return where `ref` lies in `root`, or None if it is no box: reshaped, reversed, expanded, or of another dtype."""
    if ref.dtype is not root.dtype:
        return None
    try:
        return _find_box(ref, root)
    except DynamicSizeError:  # the answer depends on a dynamic dimension
        return None


def _find_box(ref: Ref, root: Ref) -> Box | None:
    by_stride = _dims_by_stride(root)
    offset = ref.start - root.start
    if offset % root.dtype.itemsize != 0:
        return None
    rest = offset // root.dtype.itemsize
    starts: dict[int, Int] = {}
    for dim in by_stride:
        starts[dim], rest = rest // root.strides[dim], rest % root.strides[dim]
        if not 0 <= starts[dim] < root.shape[dim]:
            return None
    if rest != 0:
        return None
    region: list[Range] = [(starts.get(dim, 0), starts.get(dim, 0) + 1) for dim in range(root.ndim)]
    dims: list[int | None] = []
    steps: list[int] = []
    for size, stride in zip(ref.shape, ref.strides, strict=True):
        if size == 1:
            dims.append(None)
            steps.append(1)
            continue
        match = next((d for d in by_stride if d not in dims and _fits(size, stride, starts[d], root, d)), None)
        if match is None:
            return None
        step = stride // root.strides[match]
        if isinstance(step, Size):
            return None
        region[match] = (starts[match], starts[match] + step * (size - 1) + 1)
        dims.append(match)
        steps.append(step)
    return Box(tuple(region), tuple(dims), tuple(steps))


def _dims_by_stride(root: Ref) -> list[int]:
    """Return the dimensions with several elements, outermost first."""
    dims = [d for d in range(root.ndim) if root.shape[d] != 1]
    return sorted(dims, key=lambda d: -root.meta.strides[d])


def _fits(size: Int, stride: Int, start: Int, root: Ref, dim: int) -> bool:
    root_stride = root.strides[dim]
    if not stride >= root_stride or stride % root_stride != 0:
        return False
    return start + (stride // root_stride) * (size - 1) < root.shape[dim]


def intersects(a: Region, b: Region) -> bool:
    """Return whether two regions have a common element; True if that depends on a dynamic dimension."""
    for (start, stop), (other_start, other_stop) in zip(a, b, strict=True):
        try:
            if stop <= other_start or other_stop <= start:
                return False
        except DynamicSizeError:
            continue
    return True


def covers(a: Region, b: Region) -> bool:
    """Return whether region `a` contains region `b`."""
    return all(
        start <= other_start and other_stop <= stop
        for (start, stop), (other_start, other_stop) in zip(a, b, strict=True)
    )


def cut_points(region: Region, dim: int, others: Sequence[Region]) -> list[Int]:
    """Return the bounds of `others` along `dim` that are inside `region`, with its own, in order.

    A part between two of them may be empty for some sizes of the dynamic dimensions.
    """
    start, stop = region[dim]
    points = {bound for other in others for bound in other[dim] if _is_inside(bound, start, stop)}
    return [start, *sorted(points - {start, stop}, key=cmp_to_key(_compare)), stop]


def _is_inside(bound: Int, start: Int, stop: Int) -> bool:
    try:
        return start < bound < stop
    except DynamicSizeError:
        return start <= bound and bound <= stop


def _compare(a: Int, b: Int) -> int:
    if a == b:
        return 0
    try:
        return -1 if a <= b else 1
    except DynamicSizeError:
        return 1 if b <= a else -1
