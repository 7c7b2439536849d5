"""Plan pointwise ops over many tensors in one launch, such as an optimizer's update of all parameters.

A kernel gets one table on the device instead of a buffer for each tensor. Each row of the table describes a run of
contiguous elements: their number, then the location of each operand's first element. For OpenCL a location is the
number of one of `BASES` buffers and a byte offset in it (tensors share the pool's segments, so a few buffers hold
hundreds); for Triton it is an address.

Schedules:
    many       CPU: a work-item has an equal share of all elements, which may begin and end within tensors. The table
               begins with the first row of each work-item.
    many_grid  OpenCL GPU: one row for each work-group.
    many       Triton: one row for each program.

`runtime/multi_tensor.py` fills the tables and launches the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import dtypes
from ..backends.protocol import Capabilities, Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Device, meta
from ..dtypes import Array, DType
from ..layout import pack_longs, split
from ..records import OpRecord
from ..schedules import Choice, choose
from . import Request
from .elementwise import Operands, compute_dtype, elementwise_parts, operands_of
from .triton import Defines, instance, next_power

__all__ = [
    "BASES",
    "LAUNCHES",
    "Runs",
    "divide_into_runs",
    "make_runs",
    "overwritten_operands",
    "plan",
    "split_into_runs",
]

BASES = 32  # maximal number of buffers of a launch, as in the template
_MIN_RUN_ELEMENTS = 1024  # elements of a row for GPUs


@dataclass(frozen=True, slots=True)
class Runs:
    """The division of tensors into rows of the table: the part of the table that depends on sizes only.

    Attributes:
        heads: The entries before the rows, `(items + 1,)` on CPUs: the first row of each work-item.
        tensor: For each row, the index of its tensor.
        start: For each row, the index in the tensor of its first element.
        count: For each row, its number of elements.
        items: Number of work-items (CPU), work-groups (OpenCL GPU) or programs (Triton).
        numel: Elements of all tensors.
        group: Work-items of a work-group.
        max_run_elements: Upper limit of the elements of a row.
    """

    heads: Array
    tensor: Array
    start: Array
    count: Array
    items: int
    numel: int
    group: int = 1
    max_run_elements: int = 0


def divide_into_runs(record: OpRecord, types: Sequence[DType], device: Device, sizes: Sequence[int]) -> Runs:
    """Divide tensors of `sizes` elements, all above 0, into rows, with the schedule in force for the device."""
    caps, total = device.driver.capabilities, sum(sizes)
    if caps.takes_runs:
        return make_runs(sizes, caps, {})
    request = Request(record, (), (), device, None)
    return make_runs(sizes, caps, choose(request, "many", {"numel": total, "tensors": len(sizes)}, types[0].name))


def make_runs(sizes: Sequence[int], caps: Capabilities, params: Choice) -> Runs:
    """Divide tensors of `sizes` elements, all above 0, into rows.

    Args:
        sizes: Elements of each tensor.
        caps: The device's capabilities.
        params: Schedule parameters of the space `many`; not used on CPUs.
    """
    total = sum(sizes)
    if caps.takes_runs:
        share_size, items = split(total, elementwise_parts(total, caps.cores), 64)
        return _split_equally(np.array(sizes, np.int64), share_size, items, total)
    run_size = next_power(-(-total // (caps.cores * params["min_rows_per_core"])))
    run_size = min(max(run_size, _MIN_RUN_ELEMENTS, caps.kernel_style.block_size(caps)), params["max_row_elements"])
    return split_into_runs(sizes, run_size, min(params.get("group", 1), caps.max_group), params["max_row_elements"])


def split_into_runs(sizes: Sequence[int], run_size: int, group: int, max_run_elements: int) -> Runs:
    """Return rows of `run_size` elements, or fewer at the end of a tensor; the other arguments are fields of `Runs`."""
    sizes_array = np.array(sizes, np.int64)
    pieces = -(-sizes_array // run_size)
    tensor = np.repeat(np.arange(len(sizes_array)), pieces)
    start = (np.arange(len(tensor)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * run_size
    count = np.minimum(sizes_array[tensor] - start, run_size)
    no_heads = np.zeros(0, np.int64)
    return Runs(no_heads, tensor, start, count, len(tensor), sum(sizes), group, max_run_elements)


def _split_equally(sizes: Array, share_size: int, items: int, total: int) -> Runs:
    """Return rows that end at the end of a tensor or of a work-item's share of `share_size` elements."""
    tensor_ends = np.cumsum(sizes)
    ends = np.union1d(tensor_ends, np.append(np.arange(1, items, dtype=np.int64) * share_size, total))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    tensor = np.searchsorted(tensor_ends, starts, side="right")
    heads = np.searchsorted(starts, np.arange(items + 1, dtype=np.int64) * share_size)
    return Runs(heads.astype(np.int64), tensor, starts - (tensor_ends - sizes)[tensor], ends - starts, items, total)


def plan(record: OpRecord, types: Sequence[DType], device: Device, rows: Runs, is_aligned: bool, largest: int) -> Step:
    """Plan the launch of a multi-tensor op.

    Args:
        record: The op.
        types: Dtypes of its tensor operands.
        device: Where it runs.
        rows: The rows of the table.
        is_aligned: Every tensor begins at a multiple of 16 bytes.
        largest: Elements of the largest tensor.

    Returns:
        The launch. Its last buffer is the table; for OpenCL, `BASES` buffers precede it.
    """
    inputs = [o for o in record.operands if o.role == "tensor"]
    layouts = {o.name: meta(t, (1,), None, device) for o, t in zip(inputs, types, strict=True)}
    operands = tuple(layouts.get(o.name, float) for o in record.operands)
    request = Request(record, operands, (), device, None)
    outputs = tuple(layouts[inputs[i].name] for i in overwritten_operands(record))
    buffers = operands_of(request, outputs, compute_dtype(request))
    element = compute_dtype(request).compute
    return LAUNCHES[request.capabilities.style](request, buffers, types, element, rows, is_aligned, largest)


def overwritten_operands(record: OpRecord) -> tuple[int, ...]:
    """Return the positions of the operands that the results overwrite."""
    return record.detail["overwritten"]


def _opencl_step(
    request: Request, buffers: Operands, types: Sequence[DType], element: str, rows: Runs, is_aligned: bool,
    largest: int,
) -> Step:  # fmt: skip
    """Build the launch in OpenCL."""
    caps, record = request.capabilities, request.record
    lanes = caps.elementwise_lanes(8 if element == "double" else 4)
    schedule = "many" if caps.takes_runs else "many_grid"
    classes = ((f"CLASS{k}", "1") for k in range(len(types)))
    defines = ((f"SCHEDULE_{schedule.upper()}", "1"), ("BASES", str(BASES)), *buffers.defines, *classes)
    if not caps.takes_runs:
        defines += (("GROUP", str(rows.group)),)
    text = request.text
    name = record.name
    instance = Instance(
        name, text.source, f"{name}_{schedule}", element, lanes, buffers.slots, defines, text.functions, BASES + 1
    )
    local = rows.group
    geometry = pack_longs((len(rows.heads),))
    size = (rows.items * local,)
    return Step(instance, tuple(range(BASES + 1)), geometry, size, (local,), rows.numel, buffers.numbers)


def _triton_step(
    request: Request, buffers: Operands, types: Sequence[DType], element: str, rows: Runs, is_aligned: bool,
    largest: int,
) -> Step:  # fmt: skip
    defines: Defines = {name: int(value) for name, value in buffers.defines}
    defines.update({f"T{k}": t.name for k, t in enumerate(types)}, WIDE=int(is_aligned))
    defines["BLOCK"] = min(
        request.capabilities.block, max(_MIN_RUN_ELEMENTS, next_power(min(largest, rows.max_run_elements)))
    )
    kernel = instance(request, "many", element, (Slot(dtypes.int64.name, "index"),), defines)
    return Step(kernel, (0,), (), (rows.items,), None, rows.numel, buffers.numbers, reaches=True)


LAUNCHES = ByStyle("ops of many tensors", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
