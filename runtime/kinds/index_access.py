"""What the planners of index ops share: where elements lie, how wide vectors are, how a kernel is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, contiguous_strides
from ..errors import IndexOutOfRange, ShapeError
from ..layout import collapse, normalize_dim
from . import Request

__all__ = ["Access", "along_dim", "check_total", "lanes_of", "merge_in_order", "merged_dims", "step"]


@dataclass(frozen=True, slots=True)
class Access:
    """Where elements lie. shape: coordinates. beside: strides of the indexed tensor, 0 along what is indexed. index:
    strides of the index. sizes, strides: the indexed dimensions. walked: coordinates that the index runs along."""

    shape: tuple[int, ...]
    beside: tuple[int, ...]
    index: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    walked: tuple[int, ...]

    @property
    def total(self) -> int:
        return prod(self.sizes)


def along_dim(request: Request, whole: Meta, index: Meta) -> Access:
    """An index for every element, along one dimension."""
    dim = normalize_dim(request.static("dim"), whole.ndim, request.where())  # type: ignore[arg-type]
    shape = index.shape
    if index.ndim != whole.ndim or any(
        n > m for d, (n, m) in enumerate(zip(shape, whole.shape, strict=True)) if d != dim
    ):
        raise ShapeError(
            f"{request.where()}: index of shape {list(shape)} does not fit {list(whole.shape)}: it must have as many "
            f"dimensions, and none longer except dimension {dim}"
        )
    if not whole.ndim:  # one element, at place 0
        return Access((), (), (), (1,), (1,), ())
    beside = tuple(0 if d == dim else s for d, s in enumerate(whole.strides))
    return Access(shape, beside, index.strides, (whole.shape[dim],), (whole.strides[dim],), (dim,))


def merged_dims(request: Request, whole: Meta, index: Meta) -> Access:
    """An index for every slice, along `count` dimensions counted as one."""
    dim, count = request.static("dim"), request.static("count")
    assert isinstance(dim, int)
    assert isinstance(count, int)
    if not 0 <= dim <= dim + count <= whole.ndim:
        raise ShapeError(f"{request.where()}: dimensions {dim} to {dim + count} of shape {list(whole.shape)}")
    after = dim + count
    shape = whole.shape[:dim] + index.shape + whole.shape[after:]
    beside = whole.strides[:dim] + (0,) * index.ndim + whole.strides[after:]
    places = (0,) * dim + index.strides + (0,) * (whole.ndim - after)
    walked = tuple(range(dim, dim + index.ndim))
    return Access(shape, beside, places, whole.shape[dim:after], whole.strides[dim:after], walked)


def merge_in_order(
    sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """As `collapse`, but the order of the elements stays: that of the dimensions."""
    merged, found = collapse(sizes, [*strides, contiguous_strides(sizes)])
    if not merged:
        return (1,), [(0,)] * len(strides)
    return merged, found[:-1]


def check_total(request: Request, access: Access) -> None:
    """Raises IndexOutOfRange where there are indices, but no place that they could name."""
    if not access.total and 0 not in access.shape:
        raise IndexOutOfRange(
            f"{request.where()}: there is nothing to index in dimensions of sizes {list(access.sizes)}"
        )


def lanes_of(request: Request, element: str) -> int:
    """The width of vectors; GPUs move an element a work-item."""
    able = request.capabilities
    if able.style == "gpu":
        return 1
    return able.lanes // 2 if element in ("long", "double") else able.lanes


def step(
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
    """A launch of an index op's kernel. buffers: those of `slots`, in whose order they are unless it is given."""
    name = request.record.name
    text = request.record.texts[request.device.driver.target]
    every = ((f"SCHEDULE_{entry.upper()}", "1"), *defines)
    instance = Instance(name, text.source, f"{name}_{entry}", element, lanes, slots, every, text.functions)
    return Step(instance, buffers or tuple(range(len(slots))), geometry, size, local, work)
