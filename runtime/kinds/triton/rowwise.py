"""Rows: `whole` where a row fits into one block, which is then read once, else `swept`, block after block, once a
reduction. Sums over rows are partial rows in scratch memory first, which `finish` adds up in a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...backends.protocol import Slot, Step
from ...layout import split
from .. import Planned
from . import Defines, Geometry, index_type, instance, next_power, strided_extent

if TYPE_CHECKING:
    from ..rowwise import RowPlanner

__all__ = ["planned"]

_BESIDE = 32  # rows that a program takes at least where neighbouring rows, and not a row's elements, lie side by side
_FINISH_ROWS, _FINISH_BLOCK = 32, 64


def planned(rows: RowPlanner) -> Planned:
    """The launches of a rowwise op."""
    able = rows.able
    most = min(rows.chosen["whole"], 16 * able.block)
    whole = rows.n <= most
    block = next_power(rows.n) if whole else min(most, 4 * able.block)
    tall = 1
    if whole:
        apart = any(s != (1,) for s, scope in zip(rows.step, rows.scopes, strict=True) if scope == "full")
        least = _BESIDE if apart and rows.size[-1] > 1 else 1
        tall = max(1, min(next_power(rows.rows), max(least, able.block // block), most // block))
    warps = max(4, min(16, tall * block // rows.chosen["warps"]))
    programs = -(-rows.rows // tall)
    run = tall
    if rows.columns:
        run, programs = split(rows.rows, 4 * able.cores, tall) if rows.rows else (0, 0)
    pairs = zip(rows.stride, rows.step, strict=True)
    extents = [strided_extent(rows.size, s) + strided_extent(rows.inner, t) for s, t in pairs]
    defines: Defines = {
        "OUTER": len(rows.size), "INNER": len(rows.inner), "num_warps": warps, "ROWS": tall, "BLOCK": block,
        **{name: int(value) for name, value in rows.numbers},
        "INDEX": index_type([sum(extents), rows.rows * rows.n, programs * rows.n]),
    }  # fmt: skip
    for k, (stride, step) in enumerate(zip(rows.stride, rows.step, strict=True)):
        defines[f"BESIDE{k}"] = int(stride == (1,))
        defines[f"STEP{k}"] = int(step == (1,))
    scratch = len(rows.columns)
    partial = Slot({"float": "float32", "double": "float64"}[rows.element], "value")
    buffers = range(len(rows.slots) + scratch)
    # Buffers in the kernels' order: inputs, results that are stored there, partial rows.
    stored = [k for k in buffers if k < len(rows.slots) and k not in rows.columns]
    slots = (*(rows.slots[k] for k in stored), *(partial,) * scratch)
    places = (*(rows.places[k] for k in stored), *range(len(rows.slots), len(buffers)))
    narrow = [rows.stride[k] for k, scope in enumerate(rows.scopes) if scope != "column"]
    wide = [rows.step[k] for k, scope in enumerate(rows.scopes) if scope != "row"]
    geometry: Geometry = (rows.rows, rows.n, run, rows.size, rows.inner, *narrow, *wide)
    numbers = tuple(range(len(rows.numbers)))
    work = max(rows.rows * rows.n, 1)
    steps = []
    if programs:
        made = instance(rows.request, "whole" if whole else "swept", rows.element, slots, defines)
        steps.append(Step(made, places, geometry, (programs,), None, work, numbers))
    if not scratch:
        return Planned(rows.outputs, tuple(steps))
    finish = {**defines, "ROWS": _FINISH_ROWS, "BLOCK": _FINISH_BLOCK, "num_warps": 4}
    finish |= {f"STEP{k}": defines[f"STEP{k}"] for k in rows.columns}
    summed = (*(partial,) * scratch, *(rows.slots[k] for k in rows.columns))
    made = instance(rows.request, "finish", rows.element, summed, finish)
    geometry = (rows.n, programs, rows.inner, *(rows.step[k] for k in rows.columns))
    joined = (*range(len(rows.slots), len(buffers)), *(rows.places[k] for k in rows.columns))
    steps.append(Step(made, joined, geometry, (-(-rows.n // _FINISH_BLOCK),), None, work))
    nbytes = max(programs, 1) * rows.n * rows.scratch_bytes
    return Planned(rows.outputs, tuple(steps), (nbytes,) * scratch)
