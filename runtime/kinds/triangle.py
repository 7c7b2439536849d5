"""Triangles of matrices (`codegen/specs/triangles.yaml`): a run of each row is copied, the rest is zero.

Schedules: `rows` (CPU: rows in vectors), `grid` (GPU: an element a work-item). Elements are moved as raw bits.
"""

from __future__ import annotations

from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..errors import ArgumentError, ShapeError
from ..layout import collapse, pack_longs, split
from . import Planned, Request
from .pointwise import elementwise_parts

__all__ = ["plan"]


def plan(request: Request) -> Planned:
    """The result's layout and the one launch."""
    given, diagonal, lower = request.operands[0], request.static("diagonal"), request.static("lower")
    if not isinstance(given, Meta) or type(diagonal) is not int:
        raise ArgumentError(f"{request.where()}: takes a tensor, and an int for the diagonal, not {diagonal!r}")
    if given.ndim < 2:
        raise ShapeError(f"{request.where()}: takes matrices, not a tensor of shape {list(given.shape)}")
    out = request.into[0] if request.into else meta(given.dtype, given.shape, None, request.device)
    if out.shape != given.shape or out.dtype is not given.dtype:
        raise ShapeError(f"{request.where()}: the result is {given.dtype.name} of shape {list(given.shape)}")
    if not out.numel:
        return Planned((out,))
    *lead, height, n = given.shape
    batch, strides = collapse(tuple(lead), [given.strides[:-2], out.strides[:-2]])
    sizes = (*batch, height)
    tables = [(*own, layout.strides[-2]) for own, layout in zip(strides, (given, out), strict=True)]
    steps = (given.strides[-1], out.strides[-1])
    rows, able = prod(sizes), request.capabilities
    raw = dtypes.raw(given.dtype)
    slots = (Slot(raw.name, "raw"),) * 2
    if able.style == "triton":
        from .triton import triangle as triton

        return Planned((out,), (triton.step(request, raw, slots, sizes, n, tables, steps, diagonal, bool(lower)),))
    lanes = 1 if able.style == "gpu" else able.lanes // 2 if raw.itemsize == 8 else able.lanes
    entry = "grid" if able.style == "gpu" else "rows"
    row_chunk, items = split(rows, elementwise_parts(out.numel, able.cores))
    defines = (
        (f"SCHEDULE_{entry.upper()}", "1"), ("LOWER", str(int(bool(lower)))), ("OUTER", str(len(sizes))),
        ("UNIT", str(int(steps == (1, 1)))),
    )  # fmt: skip
    text = request.record.texts[request.device.driver.target]
    made = Instance("triangle", text.source, f"triangle_{entry}", raw.compute, lanes, slots, defines, text.functions)
    geometry = pack_longs((rows, n, row_chunk, diagonal, *steps, *sizes, *(s for own in tables for s in own)))
    if able.style == "gpu":
        local = min(128, able.max_group)
        size, group = (-(-out.numel // local) * local,), (local,)
    else:
        size, group = (items,), (1,)
    return Planned((out,), (Step(made, (0, 1), geometry, size, group, out.numel),))
