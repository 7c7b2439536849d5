"""Padding and its transpose (`codegen/specs/padding.yaml`).

Schedules: `rows` and `fold` (CPU: a row of the result at once, in vectors where elements stay side by side), `grid` and
`fold_grid` (GPU: an element a work-item). A copy moves raw bits; a sum is made in the compute type, each element by
one work-item that finds what was read from it, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from . import Planned, Request, planner
from .pointwise import elementwise_parts

__all__ = ["MODES", "merged", "plan"]

MODES = ("constant", "reflect", "replicate", "circular")

# Of one dimension: the result's size, the operand's, the places in front of the operand, the operand's stride.
Dim = tuple[int, int, int, int]


def plan(request: Request) -> Planned:
    """The result's layout and the one launch."""
    given = request.operands[0]
    if not isinstance(given, Meta):
        raise ArgumentError(f"{request.where()}: takes a tensor; make one with tensor()")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: has no form that writes into a given tensor")
    mode = request.static("mode")
    if mode not in MODES:
        raise ArgumentError(f"{request.where()}: mode must be one of {', '.join(MODES)}, not {mode!r}")
    if request.record.name == "pad_copy":
        return _copy(request, given, MODES.index(str(mode)))
    return _fold(request, given, MODES.index(str(mode)))


def _counts(request: Request, name: str, layout: Meta) -> tuple[int, ...]:
    found = request.static(name)
    if not isinstance(found, tuple) or len(found) != layout.ndim or any(type(n) is not int for n in found):
        raise ArgumentError(f"{request.where()}: {name} must be {layout.ndim} integers, one a dimension, not {found!r}")
    return found


def merged(dims: Sequence[Dim]) -> list[Dim]:
    """Neighbouring dimensions that are not padded as one where strides allow it. At least one dimension."""
    found: list[Dim] = []
    for out, size, lead, stride in dims:
        plain = out == size and lead == 0
        if plain and size == 1:
            continue
        if found and plain:
            last = found[-1]
            if last[0] == last[1] and last[2] == 0 and last[3] == size * stride:
                found[-1] = (last[0] * out, last[1] * size, 0, stride)
                continue
        found.append((out, size, lead, stride))
    return found or [(1, 1, 0, 1)]


def _copy(request: Request, given: Meta, mode: int) -> Planned:
    before, after = _counts(request, "before", given), _counts(request, "after", given)
    shape = tuple(n + a + b for n, a, b in zip(given.shape, before, after, strict=True))
    if any(n < 0 for n in shape):
        raise ShapeError(f"{request.where()}: padding by {before} and {after} leaves sizes below 0: {list(shape)}")
    for n, a, b in zip(given.shape, before, after, strict=True):
        if (mode == 1 and max(a, b) >= max(n, 1)) or (mode in (2, 3) and not n and (a or b)):
            raise ShapeError(f"{request.where()}: {MODES[mode]} padding by {a} and {b} does not fit {n} elements")
    fill = request.operands[1]
    if isinstance(fill, Meta) and (fill.numel != 1 or fill.dtype is not given.dtype):
        raise DTypeError(f"{request.where()}: fill must be one {given.dtype.name}, not {fill.dtype.name}")
    out = meta(given.dtype, shape, None, request.device)
    if not out.numel:
        return Planned((out,))
    if not given.numel:  # nothing is read: the result is the fill
        steps = _nothing_to_read(request, out, fill)
        return Planned((out,), steps)
    raw = dtypes.raw(given.dtype)
    slots = (Slot(raw.name, "raw"),) * 3
    filled = isinstance(fill, Meta)
    buffers = (0, 1, 2) if filled else (0, 0, 1)
    dims = merged(list(zip(shape, given.shape, before, given.strides, strict=True)))
    if request.capabilities.style == "triton":
        from .triton import pad as triton

        return Planned((out,), (triton.copy_step(request, raw, slots, buffers, dims, mode, filled, out.numel),))
    *outer, (n, inner, lead, step) = dims
    rows = out.numel // n
    defines = {"MODE": mode, "FILLED": int(filled), "OUTER": len(outer)}
    able = request.capabilities
    if able.style == "gpu":
        geometry = (rows, n, 1, 1, inner, lead, step, *_tables(outer))
        return Planned((out,), (_grid(request, "grid", raw.compute, slots, defines, buffers, geometry, out.numel),))
    parts = elementwise_parts(out.numel, able.cores)
    row_chunk, row_items = split(rows, parts)
    chunk, items = split(n, -(-parts // row_items), 64)
    geometry = (rows, n, row_chunk, chunk, inner, lead, step, *_tables(outer))
    lanes = able.lanes // 2 if raw.itemsize == 8 else able.lanes
    defines["UNIT"] = int(step == 1 and inner >= lanes)
    made = _instance(request, "rows", raw.compute, lanes, slots, defines)
    return Planned((out,), (Step(made, buffers, pack_longs(geometry), (row_items, items), (1, 1), out.numel),))


def _nothing_to_read(request: Request, out: Meta, fill: object) -> tuple[Step, ...]:
    """An empty operand has no memory that a kernel could be given: another op's kernel writes the result."""
    if isinstance(fill, Meta):
        everywhere = meta(fill.dtype, out.shape, (0,) * out.ndim, request.device)
        inner = Request(registry["copy"], (everywhere,), (out.dtype,), request.device, (out,))
        return tuple(replace(s, buffers=(1, 2)) for s in planner("pointwise")(inner).steps)
    inner = Request(registry["zero_like"], (out,), (), request.device, (out,))
    return tuple(replace(s, buffers=(1, 1)) for s in planner("pointwise")(inner).steps)


def _fold(request: Request, given: Meta, mode: int) -> Planned:
    size, before = _counts(request, "size", given), _counts(request, "before", given)
    if mode == 0:
        raise ArgumentError(f"{request.where()}: the transpose of constant padding is padding by negative numbers")
    out = meta(given.dtype, size, None, request.device)
    if not out.numel:
        return Planned((out,))
    if not given.numel:
        return Planned((out,), _nothing_to_read(request, out, None))
    dims = merged(list(zip(size, given.shape, before, given.strides, strict=True)))
    slots, element = (Slot(given.dtype.name),) * 2, given.dtype.compute
    if request.capabilities.style == "triton":
        from .triton import pad as triton

        return Planned((out,), (triton.fold_step(request, element, slots, dims, mode, out.numel),))
    *outer, (n, wide, lead, step) = dims
    rows = out.numel // n
    defines = {"MODE": mode, "OUTER": len(outer)}
    able = request.capabilities
    if able.style == "gpu":
        geometry = (rows, n, 1, wide, lead, step, *_tables(outer))
        return Planned((out,), (_grid(request, "fold_grid", element, slots, defines, (0, 1), geometry, out.numel),))
    row_chunk, row_items = split(rows, elementwise_parts(out.numel, able.cores))
    lanes = able.lanes // 2 if given.dtype.itemsize == 8 else able.lanes
    defines["UNIT"] = int(step == 1)
    made = _instance(request, "fold", element, lanes, slots, defines)
    geometry = (rows, n, row_chunk, wide, lead, step, *_tables(outer))
    return Planned((out,), (Step(made, (0, 1), pack_longs(geometry), (row_items,), (1,), out.numel),))


def _tables(outer: Sequence[Dim]) -> list[int]:
    """Sizes of the result, of the operand, places in front, strides: of the outer dimensions, one after another."""
    return [dim[part] for part in range(4) for dim in outer]


def _instance(
    request: Request, entry: str, element: str, lanes: int, slots: tuple[Slot, ...], defines: dict[str, int]
) -> Instance:
    text = request.record.texts[request.device.driver.target]
    every = ((f"SCHEDULE_{entry.upper()}", "1"), *((k, str(v)) for k, v in defines.items()))
    # Named for the kind, not the op: both share a text.
    return Instance("pad", text.source, f"pad_{entry}", element, lanes, slots, every, text.functions)


def _grid(
    request: Request,
    entry: str,
    element: str,
    slots: tuple[Slot, ...],
    defines: dict[str, int],
    buffers: tuple[int, ...],
    geometry: tuple[int, ...],
    numel: int,
) -> Step:
    local = min(128, request.capabilities.max_group)
    made = _instance(request, entry, element, 1, slots, defines)
    return Step(made, buffers, pack_longs(geometry), (-(-numel // local) * local,), (local,), numel)
