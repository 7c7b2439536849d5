"""Resampling along a dimension (`codegen/specs/resample.yaml`): weighted sums of neighbouring elements.

Schedules: `rows` (CPU: vectors along what lies behind the dimension), `line` (CPU: the dimension is the innermost, and
vectors go along the result), `grid` (GPU: an element a work-item). The transpose of such a sum is another one, with its
own places and weights, so gradients are gathered as well: no atomics, and the same bits every time.
"""

from __future__ import annotations

from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Step
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import normalize_dim, pack_longs, split
from ..schedules import choose
from . import Planned, Request, slot
from .pointwise import elementwise_parts

__all__ = ["plan"]

_FEW = 4  # weights an element that a kernel is compiled for


def plan(request: Request) -> Planned:
    """The result's layout and the one launch."""
    given, first, weights = request.operands
    if not (isinstance(given, Meta) and isinstance(first, Meta) and isinstance(weights, Meta)):
        raise ArgumentError(f"{request.where()}: takes three tensors")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: has no form that writes into a given tensor")
    if given.dtype.kind != "f":
        raise DTypeError(f"{request.where()}: takes floating dtypes, not {given.dtype.name}; convert with .float()")
    if weights.ndim != 2 or first.shape != weights.shape[1:]:
        raise ShapeError(f"{request.where()}: first has one place and weights one column an element of the result")
    if not (given.contiguous and first.contiguous and weights.contiguous):
        raise ArgumentError(f"{request.where()}: the operands must be contiguous; call contiguous()")
    dim = normalize_dim(request.static("dim"), given.ndim, request.where())  # type: ignore[arg-type]
    taps, n = weights.shape
    wanted = request.static("dtype")
    dtype = given.dtype if wanted is None else dtypes.parse(wanted)
    out = meta(dtype, (*given.shape[:dim], n, *given.shape[dim + 1 :]), None, request.device)
    if not out.numel:
        return Planned((out,))
    if not given.numel:
        raise ShapeError(f"{request.where()}: there is nothing to resample")
    outer, wide, inner = prod(given.shape[:dim]), given.shape[dim], prod(given.shape[dim + 1 :])
    slots = (slot(given, "value"), slot(first, "index"), slot(weights, "value"), slot(out, "value"))
    element = weights.dtype.compute
    able, record = request.capabilities, request.record
    text = record.texts[request.device.driver.target]
    if able.style == "triton":
        from .triton import resample as triton

        return Planned((out,), (triton.step(request, slots, element, (outer, n, wide, inner, taps)),))
    lanes = able.lanes // 2 if element == "double" else able.lanes
    parts = elementwise_parts(out.numel, able.cores)
    if able.style == "gpu":
        chosen = choose(request, "resample", {"numel": out.numel, "taps": taps}, given.dtype.name)
        entry, lanes, chunk, local = "grid", 1, 0, min(chosen["group"], able.max_group)
        size = -(-out.numel // local) * local
    elif inner == 1:
        entry, local = "line", 1
        chunk, size = split(outer, parts)
        while lanes > n:
            lanes //= 2
    else:
        entry, local = "rows", 1
        chunk, size = split(outer * n, parts)
        while lanes > max(inner, 2):
            lanes //= 2
    straight = given.dtype.itemsize if given.dtype.storage == element else 0
    defines = (
        (f"SCHEDULE_{entry.upper()}", "1"), ("TAPS", str(taps if taps <= _FEW and entry != "grid" else 0)),
        ("STRAIGHT", str(straight)),
    )  # fmt: skip
    made = Instance(record.name, text.source, f"resample_{entry}", element, lanes, slots, defines, text.functions)
    geometry = pack_longs((outer, n, wide, inner, taps, chunk))
    return Planned((out,), (Step(made, (0, 1, 2, 3), geometry, (size,), (local,), out.numel * taps),))
