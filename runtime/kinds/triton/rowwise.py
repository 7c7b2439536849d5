"""Plan rowwise ops for Triton.

The kernel `whole` is for rows that fit into one block and are read once. `swept` is for longer rows: it reads them
block after block, once for each reduction. A sum over rows is first written as partial rows to scratch memory, which
`finish` adds up in a fixed order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...backends.protocol import Slot, Step
from ...layout import split
from .. import Planned
from . import Defines, Geometry, index_type, instance, next_power, strided_extent

if TYPE_CHECKING:
    from ..rowwise import RowPlanner

__all__ = ["plan"]

_MIN_TILE_ROWS = 32  # rows per program, at least, where neighbouring rows are contiguous and a row is strided
_FINISH_ROWS, _FINISH_BLOCK = 32, 64
_SWEPT_ELEMENTS_PER_WARP = 256  # with more than 8 elements a lane, registers halve the occupancy and the speed (H200)


def plan(planner: RowPlanner) -> Planned:
    """Plan the launches of a rowwise op whose buffers and strides `planner` has collected."""
    caps = planner.caps
    max_block = min(planner.params["max_whole_row"], 16 * caps.block)
    is_whole = planner.n <= max_block
    block = next_power(planner.n) if is_whole else min(max_block, _swept_blocks(planner) * caps.block)
    tile_rows = 1
    elements_per_warp = planner.params["elements_per_warp"] if is_whole else _SWEPT_ELEMENTS_PER_WARP
    if is_whole:
        is_strided = any(
            s != (1,) for s, scope in zip(planner.inner_strides, planner.scopes, strict=True) if scope == "full"
        )
        min_tile_rows = _MIN_TILE_ROWS if is_strided and planner.outer_sizes[-1] > 1 else 1
        tile_rows = max(1, min(next_power(planner.rows), max(min_tile_rows, caps.block // block), max_block // block))
    warps = max(4, min(16, tile_rows * block // elements_per_warp))
    programs = -(-planner.rows // tile_rows)
    rows_per_program = tile_rows
    if planner.column_outputs:
        rows_per_program, programs = split(planner.rows, 4 * caps.cores, tile_rows) if planner.rows else (0, 0)
    pairs = zip(planner.outer_strides, planner.inner_strides, strict=True)
    extents = [strided_extent(planner.outer_sizes, s) + strided_extent(planner.inner_sizes, t) for s, t in pairs]
    defines: Defines = {
        "OUTER": len(planner.outer_sizes), "INNER": len(planner.inner_sizes), "num_warps": warps, "ROWS": tile_rows,
        "BLOCK": block, **{name: int(value) for name, value in planner.numbers},
        "INDEX": index_type([*extents, planner.rows * planner.n, programs * planner.n]),
    }  # fmt: skip
    for k, (stride, step) in enumerate(zip(planner.outer_strides, planner.inner_strides, strict=True)):
        defines[f"BESIDE{k}"] = int(stride == (1,))
        defines[f"STEP{k}"] = int(step == (1,))
    if _has_half_elements(planner):
        defines["HALF_MATH"] = 1
    scratch = len(planner.column_outputs)
    partial_slot = Slot({"float": "float32", "double": "float64"}[planner.element], "value")
    buffers = range(len(planner.slots) + scratch)
    # Buffers in the kernel's order: inputs, results that this kernel stores, partial rows.
    stored = [k for k in buffers if k < len(planner.slots) and k not in planner.column_outputs]
    slots = (*(planner.slots[k] for k in stored), *(partial_slot,) * scratch)
    buffer_positions = (*(planner.buffers[k] for k in stored), *range(len(planner.slots), len(buffers)))
    outer_strides = [planner.outer_strides[k] for k, scope in enumerate(planner.scopes) if scope != "column"]
    inner_strides = [planner.inner_strides[k] for k, scope in enumerate(planner.scopes) if scope != "row"]
    geometry: Geometry = (
        planner.rows, planner.n, rows_per_program, planner.outer_sizes, planner.inner_sizes, *outer_strides,
        *inner_strides,
    )  # fmt: skip
    numbers = tuple(range(len(planner.numbers)))
    work = max(planner.rows * planner.n, 1)
    steps = []
    if programs:
        kernel = instance(planner.request, "whole" if is_whole else "swept", planner.element, slots, defines)
        steps.append(Step(kernel, buffer_positions, geometry, (programs,), None, work, numbers))
    if not scratch:
        return Planned(planner.outputs, tuple(steps))
    finish_defines = {**defines, "ROWS": _FINISH_ROWS, "BLOCK": _FINISH_BLOCK, "num_warps": 4}
    finish_defines |= {f"STEP{k}": defines[f"STEP{k}"] for k in planner.column_outputs}
    finish_slots = (*(partial_slot,) * scratch, *(planner.slots[k] for k in planner.column_outputs))
    kernel = instance(planner.request, "finish", planner.element, finish_slots, finish_defines)
    geometry = (planner.n, programs, planner.inner_sizes, *(planner.inner_strides[k] for k in planner.column_outputs))
    finish_buffers = (*range(len(planner.slots), len(buffers)), *(planner.buffers[k] for k in planner.column_outputs))
    steps.append(Step(kernel, finish_buffers, geometry, (-(-planner.n // _FINISH_BLOCK),), None, work))
    nbytes = max(programs, 1) * planner.n * planner.scratch_itemsize
    return Planned(planner.outputs, tuple(steps), (nbytes,) * scratch)


def _swept_blocks(planner: RowPlanner) -> int:
    """Return the elements that a program of `swept` reads at a time, in multiples of the device's block.

    The fastest on an H200: 4 if float32 rows are stored; 2 for half rows, or if only numbers per row are stored.
    """
    elements = [(slot.dtype, scope) for slot, scope in zip(planner.slots, planner.scopes, strict=True)]
    stores_rows = any(scope == "full" for _, scope in elements[len(elements) - len(planner.outputs) :])
    return 4 if stores_rows and ("float32", "full") in elements else 2


def _has_half_elements(planner: RowPlanner) -> bool:
    """Return True if all elements are halves, computed in float32, beside float32 values per row."""
    floats = [(s.dtype, scope) for s, scope in zip(planner.slots, planner.scopes, strict=True) if s.type == "value"]
    elements = {dtype for dtype, scope in floats if scope != "row"}
    has_float32 = ("float32", "row") in floats
    return planner.element == "float" and has_float32 and bool(elements) and elements <= {"float16", "bfloat16"}
