"""Plan random ops: pointwise ops that draw random numbers, or compute with an element's position.

A drawn value is a function of the seed and the element's position in row-major order. So values do not depend on the
layout of the result or the schedule. The planner treats the position as an operand with contiguous strides and without
a buffer, and merges the dimensions of all operands together. The schedules are those of `pointwise`.
"""

from __future__ import annotations

from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Instance, Step
from ..backends.styles import ByStyle
from ..device import Meta, contiguous_strides, meta
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..layout import broadcast, collapse, expand_strides, pack_longs, preserved_strides, split
from ..program import iota
from . import Planned, Request
from .elementwise import Operands, compute_dtype, elementwise_parts, operands_of, result_dtype, stride_classes

__all__ = ["LAUNCHES", "plan"]

_DRAW_COST = 8  # cost of one draw, in additions


def plan(request: Request) -> Planned:
    """Plan a random op: return the layouts of its results, and one launch.

    Raises:
        ShapeError: if `out` has another shape than the result.
        DTypeError: if the op computes in float64 and the device has none.
    """
    record = request.record
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    seed_count = 2 if record.detail["draws"] else 0
    operand_count = len(record.operands) - seed_count  # seed and offset come last
    unseeded = replace(
        request,
        record=replace(record, operands=record.operands[:operand_count]),
        operands=request.operands[:operand_count],
    )
    common_dtype = compute_dtype(unseeded)
    outputs = request.into or tuple(
        meta(
            result_dtype(o, common_dtype, unseeded),
            shape,
            preserved_strides([m for _, m in request.tensors], shape),
            request.device,
        )
        for o in record.outputs
    )
    for layout in outputs:
        if layout.shape != shape:
            raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(layout.shape)}")
    if not outputs[0].numel:
        return Planned(outputs)
    if record.detail["element"] == "long" or (record.detail["element"] == "widest" and outputs[0].dtype.kind != "f"):
        element_dtype = dtypes.int64
    elif record.detail["element"] == "widest" and request.capabilities.fp64:
        element_dtype = dtypes.float64
    else:
        element_dtype = dtypes.float64 if dtypes.float64 in (common_dtype, outputs[0].dtype) else dtypes.float32
    if element_dtype is dtypes.float64 and not request.capabilities.fp64:
        raise DTypeError(f"{request.where()}: the device has no float64; use float32 there")
    return Planned(
        outputs, (_step(request, operands_of(unseeded, outputs, element_dtype), shape, outputs, element_dtype),)
    )


def _step(
    request: Request, operands: Operands, shape: tuple[int, ...], outputs: tuple[Meta, ...], element_dtype: DType
) -> Step:
    """Choose a schedule and build its launch."""
    caps, numel = request.capabilities, outputs[0].numel
    parts = elementwise_parts(numel * _cost(request), caps.cores)
    zero_strides = (0,) * len(shape)
    layouts = [zero_strides if m is None else expand_strides(m, shape) for m in operands.layouts]
    sizes, strides = collapse(shape, [contiguous_strides(shape), *layouts])
    position_strides, strides = strides[0], strides[1:]
    launch = LAUNCHES[caps.style]
    return launch(request, operands, sizes, strides, position_strides, outputs, element_dtype, parts)


def _opencl_step(
    request: Request, operands: Operands, sizes: tuple[int, ...], strides: list[tuple[int, ...]],
    position_strides: tuple[int, ...], outputs: tuple[Meta, ...], element_dtype: DType, parts: int,
) -> Step:  # fmt: skip
    """Choose an OpenCL schedule, and build its launch."""
    caps, numel = request.capabilities, outputs[0].numel
    lanes = caps.elementwise_lanes(element_dtype.itemsize)
    is_flat = len(sizes) <= 1 and position_strides in ((), (1,)) and all(s in ((), (0,), (1,)) for s in strides)
    classes = stride_classes(operands, strides)
    if is_flat and all(s in ((), (1,)) for s in strides[-len(outputs) :]):
        if not caps.takes_runs:
            return _launch(
                request, operands, "grid", element_dtype, lanes, classes, (numel, lanes), (-(-numel // lanes),)
            )
        chunk, items = split(numel, parts, 64)
        return _launch(request, operands, "contiguous", element_dtype, lanes, classes, (numel, chunk), (items,))
    if not sizes:
        sizes, position_strides, strides = (1,), (0,), [(0,)] * len(strides)
    rows = numel // sizes[-1]
    table = [*sizes[:-1], *(x for s in (*strides, position_strides) for x in s)]
    classes = (("OUTER", str(len(sizes) - 1)), *classes)
    if not caps.takes_runs:
        return _launch(
            request, operands, "grid_strided", element_dtype, 1, classes, (rows, sizes[-1], *table), (numel,)
        )
    row_chunk, row_items = split(rows, parts)
    chunk, items = split(sizes[-1], -(-parts // row_items), 64)
    geometry = (rows, sizes[-1], row_chunk, chunk, *table)
    return _launch(request, operands, "rows", element_dtype, lanes, classes, geometry, (row_items, items))


def _launch(
    request: Request,
    operands: Operands,
    entry: str,
    element_dtype: DType,
    lanes: int,
    classes: tuple[tuple[str, str], ...],
    geometry: tuple[int, ...],
    size: tuple[int, ...],
) -> Step:
    """Build a launch.

    Args:
        request: The call.
        operands: Its buffers and numbers.
        entry: The kernel's schedule: `grid`, `grid_strided`, `contiguous` or `rows`.
        element_dtype: The dtype in which the kernel computes.
        lanes: Elements per vector.
        classes: Macros from `stride_classes`.
        geometry: The kernel's sizes and strides.
        size: Work-items per dimension; on GPUs rounded up to whole work-groups.
    """
    caps, record = request.capabilities, request.record
    group = caps.group_size(128)
    local = (group, *(1,) * (len(size) - 1))
    size = (-(-size[0] // group) * group, *size[1:])
    index = "ulong" if lanes == 1 else f"ulong{lanes}"
    defines = (
        (f"SCHEDULE_{entry.upper()}", "1"), *operands.defines, *classes, ("INDEX", index), ("IOTA", iota(index, lanes)),
    )  # fmt: skip
    text = request.text
    instance = Instance(
        record.name, text.source, f"{record.name}_{entry}", element_dtype.compute, lanes, operands.slots, defines,
        text.functions,
    )  # fmt: skip
    numbers = operands.numbers
    result = operands.layouts[-1]
    assert result is not None
    work = result.numel * _cost(request)
    return Step(
        instance, operands.buffers, pack_longs(geometry), size, local, work, numbers, _seed_positions(request, operands)
    )


def _cost(request: Request) -> int:
    """Return the cost of computing one element of the result, in additions."""
    return _DRAW_COST if request.record.detail["draws"] else 1


def _seed_positions(request: Request, operands: Operands) -> tuple[int, ...]:
    """Return the positions of seed and offset among the call's numbers; empty for an op that does not draw."""
    first = len(operands.numbers)
    return (first, first + 1) if request.record.detail["draws"] else ()


def _triton_step(
    request: Request, operands: Operands, sizes: tuple[int, ...], strides: list[tuple[int, ...]],
    position_strides: tuple[int, ...], outputs: tuple[Meta, ...], element_dtype: DType, parts: int,
) -> Step:  # fmt: skip
    """Build the launch for Triton, which divides the work itself."""
    from .triton import pointwise as triton  # lazy: Triton devices only

    return triton.step(
        request, operands, sizes, strides, element_dtype.compute, position_strides=position_strides,
        integers=_seed_positions(request, operands),
    )  # fmt: skip


LAUNCHES = ByStyle("random ops", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
