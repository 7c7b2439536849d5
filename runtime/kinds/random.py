"""Random ops: pointwise ops that draw numbers, or name the position of an element. Schedules are those of `pointwise`.

A draw is a function of the element's position in row-major order. The position is one more operand with contiguous
strides that lies in no memory: merging dimensions and walking rows treat it like the others, and so a value is the
same whatever the layout of the result and the schedule.
"""

from __future__ import annotations

from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Instance, Step
from ..device import Meta, contiguous_strides, meta
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..layout import broadcast, collapse, expand_strides, pack_longs, preserved_strides, split
from ..program import iota
from . import Planned, Request
from .pointwise import Operands, compute_dtype, elementwise_parts, operands_of, result_dtype

__all__ = ["plan"]

_DRAW = 8  # elements of simple arithmetic that one draw takes as long as


def plan(request: Request) -> Planned:
    """Results' layouts and the one launch of a random op."""
    record = request.record
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    seeds = 2 if record.detail["draws"] else 0
    kept = len(record.operands) - seeds
    trimmed = replace(
        request, record=replace(record, operands=record.operands[:kept]), operands=request.operands[:kept]
    )
    found = compute_dtype(trimmed)
    outputs = request.into or tuple(
        meta(
            result_dtype(o, found, trimmed),
            shape,
            preserved_strides([m for _, m in request.tensors], shape),
            request.device,
        )
        for o in record.outputs
    )
    for given in outputs:
        if given.shape != shape:
            raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(given.shape)}")
    if not outputs[0].numel:
        return Planned(outputs)
    if record.detail["element"] == "long" or (record.detail["element"] == "widest" and outputs[0].dtype.kind != "f"):
        computed = dtypes.int64
    elif record.detail["element"] == "widest" and request.capabilities.fp64:
        computed = dtypes.float64
    else:
        computed = dtypes.float64 if dtypes.float64 in (found, outputs[0].dtype) else dtypes.float32
    if computed is dtypes.float64 and not request.capabilities.fp64:
        raise DTypeError(f"{request.where()}: the device has no float64; use float32 there")
    return Planned(outputs, (_step(request, operands_of(trimmed, outputs, computed), shape, outputs, computed),))


def _step(
    request: Request, given: Operands, shape: tuple[int, ...], outputs: tuple[Meta, ...], computed: DType
) -> Step:
    able, numel = request.capabilities, outputs[0].numel
    parts = elementwise_parts(numel * _cost(request), able.cores)
    none = (0,) * len(shape)
    layouts = [none if m is None else expand_strides(m, shape) for m in given.layouts]
    sizes, strides = collapse(shape, [contiguous_strides(shape), *layouts])
    place, strides = strides[0], strides[1:]
    if able.style == "triton":
        from .triton import pointwise as triton

        drawn = _seeds(request, given)
        return triton.step(request, given, sizes, strides, computed.compute, place=place, integers=drawn)
    lanes = able.lanes if able.style == "cpu" or able.lanes <= 4 else 4
    if computed.itemsize == 8 and able.style == "cpu":
        lanes //= 2
    flat = len(sizes) <= 1 and place in ((), (1,)) and all(s in ((), (0,), (1,)) for s in strides)
    classes = _classes(given, strides)
    if flat and all(s in ((), (1,)) for s in strides[-len(outputs) :]):
        if able.style == "gpu":
            return _launch(request, given, "grid", computed, lanes, classes, (numel, lanes), (-(-numel // lanes),))
        chunk, items = split(numel, parts, 64)
        return _launch(request, given, "contiguous", computed, lanes, classes, (numel, chunk), (items,))
    if not sizes:
        sizes, place, strides = (1,), (0,), [(0,)] * len(strides)
    rows = numel // sizes[-1]
    table = [*sizes[:-1], *(x for s in (*strides, place) for x in s)]
    classes = (("OUTER", str(len(sizes) - 1)), *classes)
    if able.style == "gpu":
        return _launch(request, given, "grid_strided", computed, 1, classes, (rows, sizes[-1], *table), (numel,))
    row_chunk, row_items = split(rows, parts)
    chunk, items = split(sizes[-1], -(-parts // row_items), 64)
    geometry = (rows, sizes[-1], row_chunk, chunk, *table)
    return _launch(request, given, "rows", computed, lanes, classes, geometry, (row_items, items))


def _classes(given: Operands, strides: list[tuple[int, ...]]) -> tuple[tuple[str, str], ...]:
    found = []
    for i, (layout, own) in enumerate(zip(given.layouts, strides, strict=True)):
        kind = 3 if layout is None else own[-1] if own and own[-1] in (0, 1) else 2 if own else 0
        found.append((f"CLASS{i}", str(kind)))
    return tuple(found)


def _launch(
    request: Request,
    given: Operands,
    entry: str,
    computed: DType,
    lanes: int,
    classes: tuple[tuple[str, str], ...],
    geometry: tuple[int, ...],
    size: tuple[int, ...],
) -> Step:
    able, record = request.capabilities, request.record
    local = (1,) * len(size)
    if able.style == "gpu":
        local = (min(128, able.max_group),)
        size = (-(-size[0] // local[0]) * local[0],)
    index = "ulong" if lanes == 1 else f"ulong{lanes}"
    defines = (
        (f"SCHEDULE_{entry.upper()}", "1"), *given.defines, *classes, ("INDEX", index),
            ("IOTA", iota(index, lanes)),
    )  # fmt: skip
    text = record.texts[request.device.driver.target]
    instance = Instance(
        record.name,
        text.source,
        f"{record.name}_{entry}",
        computed.compute,
        lanes,
        given.slots,
        defines,
        text.functions,
    )
    numbers = given.numbers
    result = given.layouts[-1]
    assert result is not None
    work = result.numel * _cost(request)
    return Step(instance, given.buffers, pack_longs(geometry), size, local, work, numbers, _seeds(request, given))


def _cost(request: Request) -> int:
    """Elements of simple arithmetic that one element takes as long as."""
    return _DRAW if request.record.detail["draws"] else 1


def _seeds(request: Request, given: Operands) -> tuple[int, ...]:
    """Where seed and offset stand among the call's numbers, of an op that draws."""
    first = len(given.numbers)
    return (first, first + 1) if request.record.detail["draws"] else ()
