"""Helpers that the planners of index ops share: the geometry of an indexed access, the vector width, the launch.

`Access` describes which elements of a tensor an index selects, for reading and for writing. `element_access` computes
it for ops such as `gather` and `scatter`, whose index has an entry per element, and `slice_access` for ops such as
`take`, whose index has an entry per slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, contiguous_strides
from ..errors import IndexOutOfRange, ShapeError
from ..layout import collapse, normalize_dim
from . import Request

__all__ = [
    "Access",
    "check_has_positions",
    "check_number",
    "element_access",
    "has_negatives",
    "index_step",
    "lanes_of",
    "merge_in_order",
    "slice_access",
    "static_or",
]


@dataclass(frozen=True, slots=True)
class Access:
    """Geometry of an indexed access.

    Attributes:
        shape: shape of the accessed elements: of a gather's result, or a scatter's source.
        outer_strides: strides of the indexed tensor along `shape`, 0 along `index_dims`.
        index_strides: strides of the index along `shape`, 0 along dimensions that it does not have.
        indexed_sizes: sizes of the indexed tensor's dimensions whose positions the index holds.
        indexed_strides: strides of the indexed tensor along these dimensions.
        index_dims: the dimensions of `shape` in the place of the indexed dimensions. Along the others, an element has
            the same coordinate in `shape` and in the indexed tensor.
    """

    shape: tuple[int, ...]
    outer_strides: tuple[int, ...]
    index_strides: tuple[int, ...]
    indexed_sizes: tuple[int, ...]
    indexed_strides: tuple[int, ...]
    index_dims: tuple[int, ...]

    @property
    def num_positions(self) -> int:
        """Number of positions that an index can select; valid indices are below it."""
        return prod(self.indexed_sizes)


def element_access(request: Request, layout: Meta, index: Meta) -> Access:
    """Describe an access with one index per element, along the static argument `dim` (`torch.gather`).

    Args:
        request: the call.
        layout: layout of the indexed tensor.
        index: layout of the index. Its shape is the shape of the access.

    Raises:
        ShapeError: if the index has another rank, or is longer than the tensor in a dimension other than `dim`.
    """
    dim = normalize_dim(request.static("dim"), layout.ndim, request.where())
    shape = index.shape
    if index.ndim != layout.ndim or any(
        index_size > size for d, (index_size, size) in enumerate(zip(shape, layout.shape, strict=True)) if d != dim
    ):
        raise ShapeError(
            f"{request.where()}: index of shape {list(shape)} does not fit {list(layout.shape)}: it must have as many "
            f"dimensions, and none longer except dimension {dim}"
        )
    if not layout.ndim:  # a 0-d tensor has one element, at position 0
        return Access((), (), (), (1,), (1,), ())
    outer_strides = tuple(0 if d == dim else s for d, s in enumerate(layout.strides))
    return Access(shape, outer_strides, index.strides, (layout.shape[dim],), (layout.strides[dim],), (dim,))


def slice_access(request: Request, layout: Meta, index: Meta) -> Access:
    """Describe an access with one index per slice of the tensor (`torch.take`, `torch.index_select`).

    The static arguments `dim` and `count` name the indexed dimensions: `count` of them from `dim` on. An index is a
    row-major position in all of them together. In the access, the dimensions of the index replace them.

    Args:
        request: the call.
        layout: layout of the indexed tensor.
        index: layout of the index, of any rank.

    Raises:
        ShapeError: if the tensor does not have the indexed dimensions.
    """
    dim, count = request.static("dim"), request.static("count")
    assert isinstance(dim, int)
    assert isinstance(count, int)
    if not 0 <= dim <= dim + count <= layout.ndim:
        raise ShapeError(f"{request.where()}: dimensions {dim} to {dim + count} of shape {list(layout.shape)}")
    end_dim = dim + count
    shape = layout.shape[:dim] + index.shape + layout.shape[end_dim:]
    outer_strides = layout.strides[:dim] + (0,) * index.ndim + layout.strides[end_dim:]
    index_strides = (0,) * dim + index.strides + (0,) * (layout.ndim - end_dim)
    index_dims = tuple(range(dim, dim + index.ndim))
    return Access(
        shape, outer_strides, index_strides, layout.shape[dim:end_dim], layout.strides[dim:end_dim], index_dims
    )


def merge_in_order(
    sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge dimensions like `collapse`, but keep the elements in row-major order of `sizes`.

    Args:
        sizes: the dimensions.
        strides: for each tensor, its strides along them.

    Returns:
        The merged dimensions, at least one, and for each tensor its strides along them.
    """
    merged, merged_strides = collapse(sizes, [*strides, contiguous_strides(sizes)])
    if not merged:
        return (1,), [(0,)] * len(strides)
    return merged, merged_strides[:-1]


def check_has_positions(request: Request, access: Access) -> None:
    """Raise IndexOutOfRange if there are indices, but an indexed dimension is empty."""
    if not access.num_positions and 0 not in access.shape:
        raise IndexOutOfRange(
            f"{request.where()}: there is nothing to index in dimensions of sizes {list(access.indexed_sizes)}"
        )


def static_or(request: Request, name: str, default: object) -> object:
    """Return a static argument, which the call may have left out at the end."""
    return dict(zip(request.record.statics, request.statics, strict=False)).get(name, default)


def check_number(request: Request) -> int:
    """Return the number of the index check that the kernel makes; 0: none."""
    number = static_or(request, "check", 0)
    assert isinstance(number, int)
    return number


def has_negatives(request: Request) -> bool:
    """Return True if negative indices count from the end."""
    return bool(static_or(request, "negative", False))


def lanes_of(request: Request, element: str) -> int:
    """Return the vector width in elements of the OpenCL C type `element`; 1 on GPUs (one work-item per element)."""
    return request.capabilities.vector_lanes(8 if element in ("long", "double") else 4)


def index_step(
    request: Request,
    entry: str,
    element: str,
    lanes: int,
    slots: tuple[Slot, ...],
    defines: Sequence[tuple[str, str]],
    geometry: bytes,
    size: tuple[int, ...],
    local: tuple[int, ...],
    work: int,
    buffers: tuple[int, ...] | None = None,
) -> Step:
    """Build the launch of an index kernel.

    Args:
        request: the call.
        entry: the schedule: the kernel is called `OP_ENTRY`, and `SCHEDULE_ENTRY` is defined for its source.
        element: compute type in OpenCL C, such as `float`.
        lanes: width of the vector type in elements.
        slots: the kernel's buffers, in the order of its parameters.
        defines: further macros, (name, value).
        geometry: the bytes of the kernel's struct of sizes and strides.
        size: global size in work-items.
        local: work-group size in work-items.
        work: elements that the launch reads or writes (see `Step`).
        buffers: position of each slot's buffer among the call's inputs, outputs and scratch; None means 0, 1, 2, …
    """
    name = request.record.name
    text = request.text
    all_defines = ((f"SCHEDULE_{entry.upper()}", "1"), *defines)
    instance = Instance(name, text.source, f"{name}_{entry}", element, lanes, slots, all_defines, text.functions)
    return Step(instance, buffers or tuple(range(len(slots))), geometry, size, local, work)
