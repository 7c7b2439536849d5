"""Pointwise ops over many tensors at once: each tensor of an operand is one run of elements, wherever it lies.

A kernel gets a table on the device instead of a buffer a tensor. A row of it is a run of elements: how many, then the
place of each operand's first. For OpenCL a place is the number of one of `BASES` buffers (tensors share the pool's
segments, so a few buffers hold hundreds) and a byte in it; for Triton it is an address.

Schedules: `many` (CPU: a work-item has an equal share of all elements, which begins and ends within tensors; the table
begins with the first row of each), `many_grid` (GPU: a row a work-group), `many` of Triton (a row a program).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from ..backends.protocol import Capabilities, Instance, Slot, Step
from ..device import Device, meta
from ..dtypes import DType
from ..layout import pack_longs, split
from ..records import OpRecord
from ..schedules import Choice, choose
from . import Request
from .pointwise import Operands, compute_dtype, elementwise_parts, operands_of
from .triton import Defines, instance, next_power

__all__ = ["BASES", "Runs", "plan", "runs", "share"]

BASES = 32  # buffers that a launch may reach into, as many as the template has
_LEAST_RUN = 1024  # elements of a GPU's row


@dataclass(frozen=True, slots=True)
class Runs:
    """How the elements of tensors are shared out: what of the table depends on sizes only.

    heads: the entries before the rows. tensor, start, count: of every row, which tensor it is part of, where in it it
    begins, and how many elements it has. items: work-items, groups or programs. group: work-items of a group. most:
    elements of the longest row that there may be.
    """

    heads: np.ndarray[Any, Any]
    tensor: np.ndarray[Any, Any]
    start: np.ndarray[Any, Any]
    count: np.ndarray[Any, Any]
    items: int
    numel: int
    group: int = 1
    most: int = 0


def share(record: OpRecord, types: Sequence[DType], device: Device, sizes: Sequence[int]) -> Runs:
    """How tensors of `sizes` elements, all above 0, are shared out by the schedule in force."""
    able, total = device.driver.capabilities, sum(sizes)
    if able.style == "cpu":
        return runs(sizes, able, {})
    request = Request(record, (), (), device, None)
    return runs(sizes, able, choose(request, "many", {"numel": total, "tensors": len(sizes)}, types[0].name))


def runs(sizes: Sequence[int], able: Capabilities, chosen: Choice) -> Runs:
    """Rows for tensors of `sizes` elements, all above 0. chosen: of the space `many`; a CPU's has none."""
    total = sum(sizes)
    if able.style == "cpu":
        each, items = split(total, elementwise_parts(total, able.cores), 64)
        return _shared(np.array(sizes, np.int64), each, items, total)
    most = next_power(-(-total // (able.cores * chosen["rows"])))
    most = min(max(most, _LEAST_RUN, able.block if able.style == "triton" else 0), chosen["most"])
    lengths = np.array(sizes, np.int64)
    pieces = -(-lengths // most)
    tensor = np.repeat(np.arange(len(lengths)), pieces)
    start = (np.arange(len(tensor)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * most
    count = np.minimum(lengths[tensor] - start, most)
    group = min(chosen.get("group", 1), able.max_group)
    return Runs(np.zeros(0, np.int64), tensor, start, count, len(tensor), total, group, chosen["most"])


def _shared(each: np.ndarray[Any, Any], share: int, items: int, total: int) -> Runs:
    """Rows that end where a tensor does or where a work-item's share does."""
    ends = np.cumsum(each)
    cuts = np.union1d(ends, np.append(np.arange(1, items, dtype=np.int64) * share, total))
    begins = np.concatenate((np.zeros(1, np.int64), cuts[:-1]))
    tensor = np.searchsorted(ends, begins, side="right")
    heads = np.searchsorted(begins, np.arange(items + 1, dtype=np.int64) * share)
    return Runs(heads.astype(np.int64), tensor, begins - (ends - each)[tensor], cuts - begins, items, total)


def plan(record: OpRecord, types: Sequence[DType], device: Device, shared: Runs, wide: bool, largest: int) -> Step:
    """The launch of a multi-tensor op whose tensor operands have these dtypes.

    wide: every tensor begins at a multiple of 16 bytes. largest: elements of the largest tensor.
    Buffers are the table, for OpenCL behind `BASES` others.
    """
    inputs = [o for o in record.operands if o.role == "tensor"]
    one = {o.name: meta(t, (1,), None, device) for o, t in zip(inputs, types, strict=True)}
    given = tuple(one.get(o.name, float) for o in record.operands)
    request = Request(record, given, (), device, None)
    outputs = tuple(one[inputs[i].name] for i in record.detail["over"])
    found = operands_of(request, outputs, compute_dtype(request))
    element = compute_dtype(request).compute
    if device.driver.target == "triton":
        return _triton(request, found, types, element, shared, wide, largest)
    able = request.capabilities
    lanes = able.lanes if able.style == "cpu" or able.lanes <= 4 else 4
    if element == "double" and able.style == "cpu":
        lanes //= 2
    schedule = "many" if able.style == "cpu" else "many_grid"
    classes = ((f"CLASS{k}", "1") for k in range(len(types)))
    defines = ((f"SCHEDULE_{schedule.upper()}", "1"), ("BASES", str(BASES)), *found.defines, *classes)
    text = record.texts["opencl"]
    name = record.name
    made = Instance(
        name, text.source, f"{name}_{schedule}", element, lanes, found.slots, defines, text.functions, BASES + 1
    )
    local = shared.group
    geometry = pack_longs((len(shared.heads),))
    size = (shared.items * local,)
    return Step(made, tuple(range(BASES + 1)), geometry, size, (local,), shared.numel, found.numbers)


def _triton(
    request: Request, given: Operands, types: Sequence[DType], element: str, shared: Runs, wide: bool, largest: int
) -> Step:
    defines: Defines = {name: int(value) for name, value in given.defines}
    defines.update({f"T{k}": t.name for k, t in enumerate(types)}, WIDE=int(wide))
    defines["BLOCK"] = min(request.capabilities.block, max(_LEAST_RUN, next_power(min(largest, shared.most))))
    made = instance(request, "many", element, (Slot(dtypes.int64.name, "index"),), defines)
    return Step(made, (0,), (), (shared.items,), None, shared.numel, given.numbers, reaches=True)
