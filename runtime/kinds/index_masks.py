"""Plan `nonzero` of a mask in two calls: count the true elements of each chunk, then list their positions.

The caller reads the total between the two calls, because it is the size of the second result.
"""

from __future__ import annotations

from .. import dtypes
from ..backends.protocol import Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ShapeError
from ..layout import pack_longs, split
from . import Planned, Request, slot
from .elementwise import elementwise_parts
from .index_access import index_step
from .triton import index as triton

__all__ = ["COUNTS", "LISTS", "plan_mask_counts", "plan_mask_positions"]

_MIN_CHUNK = 4096  # elements of a mask per chunk, at least


def _chunks(request: Request, layout: Meta) -> tuple[int, int]:
    """Return the number of elements per chunk, and the number of chunks."""
    caps = request.capabilities
    parts = elementwise_parts(layout.numel, caps.cores) if caps.takes_runs else caps.cores * 64
    return split(layout.numel, max(1, min(parts, layout.numel // _MIN_CHUNK)))


def _mask(request: Request) -> Meta:
    """Return the mask's layout. Raise `ShapeError` unless it is contiguous and not empty."""
    layout = request.operands[0]
    assert isinstance(layout, Meta)
    if not layout.contiguous or not layout.numel:
        raise ShapeError(f"{request.where()}: takes contiguous masks that are not empty")
    return layout


def plan_mask_counts(request: Request) -> Planned:
    """Plan the launches that count the true elements of each chunk, and turn the counts into a running sum.

    Returns:
        An int64 layout `(chunks + 1,)`: where each chunk's positions begin, then the total.
    """
    layout = _mask(request)
    chunk, chunks = _chunks(request, layout)
    out = meta(dtypes.int64, (chunks + 1,), None, request.device)
    slots = (slot(layout, "mask"), slot(out, "index"))
    return Planned((out,), COUNTS[request.capabilities.style](request, slots, layout.numel, chunk, chunks))


def plan_mask_positions(request: Request) -> Planned:
    """Plan the launch that lists the positions of the true elements, given the offsets from `mask_counts`.

    Raises:
        ShapeError: if offsets is not a result of `mask_counts` for this mask.
    """
    layout = _mask(request)
    chunk, chunks = _chunks(request, layout)
    offsets = request.operands[1]
    assert isinstance(offsets, Meta)
    if offsets.numel != chunks + 1 or not offsets.contiguous or offsets.dtype is not dtypes.int64:
        raise ShapeError(f"{request.where()}: offsets must be the result of mask_counts for this mask")
    out = meta(dtypes.int64, (request.static("total"),), None, request.device)
    if not out.numel:
        return Planned((out,))
    slots = (slot(layout, "mask"), slot(offsets, "index"), slot(out, "index"))
    return Planned((out,), (LISTS[request.capabilities.style](request, slots, layout.numel, chunk, chunks),))


def _opencl_count_steps(
    request: Request, slots: tuple[Slot, ...], numel: int, chunk: int, chunks: int
) -> tuple[Step, Step]:
    geometry = pack_longs((numel, chunk, chunks))
    count = index_step(request, "count", "long", 1, slots, (), geometry, (chunks,), (1,), numel)
    return count, index_step(request, "sum", "long", 1, slots, (), geometry, (1,), (1,), chunks)


def _opencl_list_step(request: Request, slots: tuple[Slot, ...], numel: int, chunk: int, chunks: int) -> Step:
    geometry = pack_longs((numel, chunk))
    return index_step(request, "list", "long", 1, slots, (), geometry, (chunks,), (1,), numel)


COUNTS = ByStyle("counts of a mask", cpu=_opencl_count_steps, gpu=_opencl_count_steps, triton=triton.count_steps)
LISTS = ByStyle("positions of a mask", cpu=_opencl_list_step, gpu=_opencl_list_step, triton=triton.list_step)
