"""Bags: runs of an index, given by where they begin; which of them a position lies in, and what their rows add up to.

A bag's rows are added while they are read: nothing is stored between. Schedules: `rows` (CPU: bags and vectors of
features), `grid` (GPU: an element of the result a work-item); with Triton, some features of a bag a program.
"""

from __future__ import annotations

from .. import dtypes
from ..device import Meta, meta
from ..errors import ShapeError, UnsupportedDType
from ..layout import pack_longs, split
from . import Planned, Request, slot
from .index_access import lanes_of, step
from .pointwise import elementwise_parts
from .triton import index as triton

__all__ = ["bag_of", "bag_sums"]

_GROUP = 64  # work-items of a group of a GPU
_VECTORS = 8  # of features, whose sums stay in registers


def bag_of(request: Request) -> Planned:
    """The launch that finds which bag each position lies in."""
    offsets, total = request.operands[0], request.static("total")
    assert isinstance(offsets, Meta)
    assert isinstance(total, int)
    if offsets.ndim != 1 or not offsets.numel:
        raise ShapeError(f"{request.where()}: takes a vector that is not empty, not one of shape {list(offsets.shape)}")
    out = meta(dtypes.int64, (total,), None, request.device)
    if not total:
        return Planned((out,))
    slots, apart = (slot(offsets, "index"), slot(out, "index")), offsets.strides[0]
    able = request.capabilities
    if able.style == "triton":
        return Planned((out,), (triton.bags_step(request, slots, total, offsets.numel, apart),))
    local = min(_GROUP, able.max_group) if able.style == "gpu" else 1
    chunk, items = (1, total) if able.style == "gpu" else split(total, elementwise_parts(total, able.cores))
    geometry = pack_longs((total, offsets.numel, apart, chunk))
    size = (-(-items // local) * local,)
    return Planned((out,), (step(request, "bags", "long", 1, slots, (), geometry, size, (local,), total),))


def bag_sums(request: Request) -> Planned:
    """The launch that adds up the rows of each bag."""
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
    able, element = request.capabilities, table.dtype.compute
    slots = (slot(table, "value"), slot(index, "index"), slot(offsets, "index"), slot(out, "value"))
    strides = (*table.strides, *index.strides, *offsets.strides)
    counts = (rows, index.numel, offsets.numel, skipped)
    if able.style == "triton":
        made = triton.bag_sums_step(request, element, slots, bags, features, counts, strides, bool(mean))
        return Planned((out,), (made,))
    lanes = lanes_of(request, element) if strides[1] == 1 and features >= lanes_of(request, element) else 1
    defines = (("MEAN", str(int(bool(mean)))), ("NV", str(_VECTORS)))
    work = max(out.numel, index.numel * features)
    if able.style == "gpu":
        local = min(_GROUP, able.max_group)
        geometry = pack_longs((bags, features, *counts, 1, features, *strides))
        size = (-(-out.numel // local) * local,)
        return Planned((out,), (step(request, "grid", element, lanes, slots, defines, geometry, size, (local,), work),))
    parts = elementwise_parts(work, able.cores)
    bag_chunk, bag_items = split(bags, parts)
    chunk, items = split(features, -(-parts // bag_items), 64)
    geometry = pack_longs((bags, features, *counts, bag_chunk, chunk, *strides))
    made = step(request, "rows", element, lanes, slots, defines, geometry, (bag_items, items), (1, 1), work)
    return Planned((out,), (made,))
