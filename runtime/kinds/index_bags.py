"""Plan embedding bags: find the bag of each position, and sum the table rows of each bag.

A bag is a run of consecutive indices; `offsets` holds the first position of each bag, as in
`torch.nn.functional.embedding_bag`. Rows are added while they are read, without an intermediate tensor. On a CPU
(schedule `rows`), a work-item computes a chunk of features for a chunk of bags. On a GPU (schedule `grid`), a work-item
computes one element of the result. A Triton program computes a block of the features of one bag.
"""

from __future__ import annotations

from .. import dtypes
from ..backends.protocol import Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ShapeError, UnsupportedDType
from ..layout import pack_longs, split
from . import Planned, Request, slot
from .elementwise import elementwise_parts
from .index_access import index_step, lanes_of
from .triton import index as triton

__all__ = ["BAG_INDICES", "BAG_SUMS", "plan_bag_sums", "plan_bags"]

_GROUP = 64  # work-items per GPU work-group
_FEATURE_VECTORS = 8  # vectors of features that a CPU work-item sums in registers at once


def plan_bags(request: Request) -> Planned:
    """Plan the launch that finds, for each of the `total` positions in the index vector, the bag that it belongs to.

    Raises:
        ShapeError: if offsets is not a vector, or is empty.
    """
    offsets, total = request.operands[0], request.static("total")
    assert isinstance(offsets, Meta)
    assert isinstance(total, int)
    if offsets.ndim != 1 or not offsets.numel:
        raise ShapeError(f"{request.where()}: takes a vector that is not empty, not one of shape {list(offsets.shape)}")
    out = meta(dtypes.int64, (total,), None, request.device)
    if not total:
        return Planned((out,))
    slots, stride = (slot(offsets, "index"), slot(out, "index")), offsets.strides[0]
    launch = BAG_INDICES[request.capabilities.style]
    return Planned((out,), (launch(request, slots, total, offsets.numel, stride),))


def _opencl_bag_index_step(
    request: Request, slots: tuple[Slot, ...], total: int, bags: int, offset_stride: int
) -> Step:
    """Build the launch in OpenCL; see `triton.index.bag_index_step`."""
    caps = request.capabilities
    local = caps.group_size(_GROUP)
    chunk, items = split(total, elementwise_parts(total, caps.cores) if caps.takes_runs else total)
    geometry = pack_longs((total, bags, offset_stride, chunk))
    size = (-(-items // local) * local,)
    return index_step(request, "bags", "long", 1, slots, (), geometry, size, (local,), total)


def plan_bag_sums(request: Request) -> Planned:
    """Plan the launch that sums (or averages, if the static `mean` is set) the table rows of each bag.

    Returns:
        The result's layout, of shape `(bags, features)`, and the launch.

    Raises:
        ShapeError: unless table is a matrix, and index and offsets are vectors.
        UnsupportedDType: if the table's dtype is not floating-point.
    """
    table, index, offsets = request.operands
    assert isinstance(table, Meta)
    assert isinstance(index, Meta)
    assert isinstance(offsets, Meta)
    bags, skipped, mean = (request.static(name) for name in ("bags", "skipped", "mean"))
    assert isinstance(bags, int)
    assert isinstance(skipped, int)
    if (table.ndim, index.ndim, offsets.ndim) != (2, 1, 1):
        raise ShapeError(
            f"{request.where()}: takes a matrix, an index and offsets that are vectors, not the shapes "
            f"{list(table.shape)}, {list(index.shape)} and {list(offsets.shape)}"
        )
    if table.dtype.kind != "f":
        raise UnsupportedDType(f"{request.where()}: takes float dtypes, not {table.dtype.name}; convert with .to()")
    rows, features = table.shape
    out = meta(table.dtype, (bags, features), None, request.device)
    if not out.numel:
        return Planned((out,))
    element = table.dtype.compute
    slots = (slot(table, "value"), slot(index, "index"), slot(offsets, "index"), slot(out, "value"))
    strides = (*table.strides, *index.strides, *offsets.strides)
    counts = (rows, index.numel, offsets.numel, skipped)
    launch = BAG_SUMS[request.capabilities.style]
    return Planned((out,), (launch(request, element, slots, bags, features, counts, strides, bool(mean)),))


def _opencl_bag_sums_step(
    request: Request, element: str, slots: tuple[Slot, ...], bags: int, features: int,
    counts: tuple[int, int, int, int], strides: tuple[int, ...], mean: bool,
) -> Step:  # fmt: skip
    """Build the launch that sums bags in OpenCL; see `triton.index.bag_sums_step`."""
    caps, numel = request.capabilities, bags * features
    lanes = lanes_of(request, element) if strides[1] == 1 and features >= lanes_of(request, element) else 1
    defines = (("MEAN", str(int(mean))), ("NV", str(_FEATURE_VECTORS)))
    work = max(numel, counts[1] * features)
    if not caps.takes_runs:
        local = min(_GROUP, caps.max_group)
        geometry = pack_longs((bags, features, *counts, 1, features, *strides))
        size = (-(-numel // local) * local,)
        return index_step(request, "grid", element, lanes, slots, defines, geometry, size, (local,), work)
    parts = elementwise_parts(work, caps.cores)
    bag_chunk, bag_items = split(bags, parts)
    chunk, items = split(features, -(-parts // bag_items), 64)
    geometry = pack_longs((bags, features, *counts, bag_chunk, chunk, *strides))
    return index_step(request, "rows", element, lanes, slots, defines, geometry, (bag_items, items), (1, 1), work)


BAG_INDICES = ByStyle("bags", cpu=_opencl_bag_index_step, gpu=_opencl_bag_index_step, triton=triton.bag_index_step)
BAG_SUMS = ByStyle("sums of bags", cpu=_opencl_bag_sums_step, gpu=_opencl_bag_sums_step, triton=triton.bag_sums_step)
