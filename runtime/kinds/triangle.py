"""Plan triangles of matrices (`codegen/specs/triangles.yaml`): copy one part of each row, and set the rest to zero.

Schedules: `rows` (CPU: vectors of a row), `grid` (OpenCL GPU: one element for each work-item). Elements are copied as
raw bits. `triton/triangle.py` plans for Triton.
"""

from __future__ import annotations

from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, ShapeError
from ..layout import collapse, pack_longs, split
from . import Planned, Request
from .elementwise import elementwise_parts

__all__ = ["LAUNCHES", "plan"]


def plan(request: Request) -> Planned:
    """Plan the launch.

    Raises:
        ArgumentError: The input is not a tensor, or the diagonal is not an int.
        ShapeError: The input has less than two dimensions, or the result does not fit `out`.
    """
    input, diagonal, lower = request.operands[0], request.static("diagonal"), request.static("lower")
    if not isinstance(input, Meta) or type(diagonal) is not int:
        raise ArgumentError(f"{request.where()}: takes a tensor, and an int for the diagonal, not {diagonal!r}")
    if input.ndim < 2:
        raise ShapeError(f"{request.where()}: takes matrices, not a tensor of shape {list(input.shape)}")
    out = request.into[0] if request.into else meta(input.dtype, input.shape, None, request.device)
    if out.shape != input.shape or out.dtype is not input.dtype:
        raise ShapeError(f"{request.where()}: the result is {input.dtype.name} of shape {list(input.shape)}")
    if not out.numel:
        return Planned((out,))
    *lead, height, n = input.shape
    batch, strides = collapse(tuple(lead), [input.strides[:-2], out.strides[:-2]])
    sizes = (*batch, height)
    row_strides = [
        (*batch_strides, layout.strides[-2]) for batch_strides, layout in zip(strides, (input, out), strict=True)
    ]
    column_strides = (input.strides[-1], out.strides[-1])
    raw = dtypes.bits_dtype(input.dtype)
    slots = (Slot(raw.name, "raw"),) * 2
    launch = LAUNCHES[request.capabilities.style]
    step = launch(request, raw, slots, sizes, n, row_strides, column_strides, diagonal, bool(lower))
    return Planned((out,), (step,))


def _opencl_step(
    request: Request, raw: DType, slots: tuple[Slot, ...], sizes: tuple[int, ...], n: int,
    row_strides: list[tuple[int, ...]], column_strides: tuple[int, int], diagonal: int, lower: bool,
) -> Step:  # fmt: skip
    """Build the launch in OpenCL; see `triton.triangle.step` for the arguments."""
    caps, rows = request.capabilities, prod(sizes)
    numel = rows * n
    lanes = caps.vector_lanes(raw.itemsize)
    entry = "rows" if caps.takes_runs else "grid"
    row_chunk, items = split(rows, elementwise_parts(numel, caps.cores))
    defines = (
        (f"SCHEDULE_{entry.upper()}", "1"), ("LOWER", str(int(lower))), ("OUTER", str(len(sizes))),
        ("UNIT", str(int(column_strides == (1, 1)))),
    )  # fmt: skip
    text = request.text
    kernel = Instance("triangle", text.source, f"triangle_{entry}", raw.compute, lanes, slots, defines, text.functions)
    geometry = pack_longs((
        rows, n, row_chunk, diagonal, *column_strides, *sizes, *(s for strides in row_strides for s in strides)
    ))  # fmt: skip
    local = caps.group_size(128)
    size = items if caps.takes_runs else -(-numel // local) * local
    return Step(kernel, (0, 1), geometry, (size,), (local,), numel)


def _triton_step(
    request: Request, raw: DType, slots: tuple[Slot, ...], sizes: tuple[int, ...], n: int,
    row_strides: list[tuple[int, ...]], column_strides: tuple[int, int], diagonal: int, lower: bool,
) -> Step:  # fmt: skip
    from .triton import triangle as triton  # lazy: Triton devices only

    return triton.step(request, raw, slots, sizes, n, row_strides, column_strides, diagonal, lower)


LAUNCHES = ByStyle("triangles", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
