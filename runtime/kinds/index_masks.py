"""Masks: how many elements of each chunk are true, and where they are; a result's size is known in between."""

from __future__ import annotations

from .. import dtypes
from ..device import Meta, meta
from ..errors import ShapeError
from ..layout import pack_longs, split
from . import Planned, Request, slot
from .index_access import step
from .pointwise import elementwise_parts
from .triton import index as triton

__all__ = ["mask_counts", "mask_positions"]

_LEAST_COUNTED = 4096  # elements of a mask that are worth a chunk of their own


def _chunks(request: Request, layout: Meta) -> tuple[int, int]:
    """The size of the chunks in which a mask is counted and listed, and their number."""
    able = request.capabilities
    parts = elementwise_parts(layout.numel, able.cores) if able.style == "cpu" else able.cores * 64
    return split(layout.numel, max(1, min(parts, layout.numel // _LEAST_COUNTED)))


def _mask(request: Request) -> Meta:
    layout = request.operands[0]
    assert isinstance(layout, Meta)
    if not layout.contiguous or not layout.numel:
        raise ShapeError(f"{request.where()}: takes contiguous masks that are not empty")
    return layout


def mask_counts(request: Request) -> Planned:
    """The launches that count what is true in each chunk, and add up the counts."""
    layout = _mask(request)
    chunk, chunks = _chunks(request, layout)
    out = meta(dtypes.int64, (chunks + 1,), None, request.device)
    slots = (slot(layout, "mask"), slot(out, "index"))
    if request.capabilities.style == "triton":
        return Planned((out,), triton.count_steps(request, slots, layout.numel, chunk, chunks))
    geometry = pack_longs((layout.numel, chunk, chunks))
    count = step(request, "count", "long", 1, slots, (), geometry, (chunks,), (1,), layout.numel)
    return Planned((out,), (count, step(request, "sum", "long", 1, slots, (), geometry, (1,), (1,), chunks)))


def mask_positions(request: Request) -> Planned:
    """The launch that lists where elements are true, chunk by chunk, from the sums of `mask_counts`."""
    layout = _mask(request)
    chunk, chunks = _chunks(request, layout)
    offsets = request.operands[1]
    assert isinstance(offsets, Meta)
    if offsets.numel != chunks + 1 or not offsets.contiguous or offsets.dtype is not dtypes.int64:
        raise ShapeError(f"{request.where()}: offsets must be what mask_counts gave for this mask")
    out = meta(dtypes.int64, (request.static("total"),), None, request.device)  # type: ignore[arg-type]
    if not out.numel:
        return Planned((out,))
    slots = (slot(layout, "mask"), slot(offsets, "index"), slot(out, "index"))
    if request.capabilities.style == "triton":
        return Planned((out,), (triton.list_step(request, slots, layout.numel, chunk, chunks),))
    geometry = pack_longs((layout.numel, chunk))
    return Planned((out,), (step(request, "list", "long", 1, slots, (), geometry, (chunks,), (1,), layout.numel),))
