"""Plan reductions of many tensors to one result, such as the norm of all gradients, in two launches.

The first launch gets a table of the tensors' runs, as in `many.py`, and writes partial states:

    many       CPU: one for each work-item, which has an equal share of all elements.
    many_grid  OpenCL GPU: one for each row of the table.
    many       Triton: one for each row of the table.

The second launch combines the partial states. It is the `finish` step of every reduction that is split.
`runtime/multi_reduction.py` fills the tables and launches the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import dtypes
from ..backends.protocol import Capabilities, Slot, Step
from ..backends.styles import ByStyle
from ..device import Device, Meta, meta
from ..dtypes import DType
from ..records import OpRecord
from ..schedules import Choice
from . import Request, slot
from .elementwise import compute_dtype
from .many import BASES, Runs, make_runs, split_into_runs
from .reduction_cpu import ROW_BLOCK, cpu_finish
from .reduction_opencl import finish_step as opencl_finish_step
from .reduction_opencl import step as opencl_step
from .reduction_states import IterationSpace, output_dtype, schedule, state_bytes, state_slot, vector_defines
from .triton import Defines, index_type, instance

__all__ = [
    "FINISHES",
    "LAUNCHES",
    "divide_into_runs",
    "partial_bytes",
    "plan_finish",
    "plan_partial",
    "result_layout",
]

_RUN_QUANTUM = 16  # runs begin at multiples of so many elements, so that runs of an aligned tensor are aligned too
_MAX_FINISH_BLOCK = 1024  # partial states that a Triton program loads at a time


def divide_into_runs(record: OpRecord, types: Sequence[DType], device: Device, sizes: Sequence[int]) -> Runs:
    """Divide tensors of `sizes` elements, all above 0, into rows of the table.

    On GPUs every row writes a partial state, which the second launch has to read. So there are only as many rows as
    keep the device busy.

    Args:
        record: The op.
        types: Dtypes of its tensor operands.
        device: Where it runs.
        sizes: Elements of each tensor.
    """
    caps, total = device.driver.capabilities, sum(sizes)
    if caps.takes_runs:
        return make_runs(sizes, caps, {})
    request = _request(record, types, device)
    params = schedule(request, _space(request, total))
    quantum = max(_RUN_QUANTUM, caps.kernel_style.block_size(caps))
    programs = caps.cores * (params["programs"] if "programs" in params else params["groups_per_core"])
    run_size = -(-total // (programs * quantum)) * quantum
    return split_into_runs(sizes, run_size, _group_size(caps, params), run_size)


def _group_size(caps: Capabilities, params: Choice) -> int:
    """Return the work-items of a work-group, a power of two; 1 for Triton, whose schedules have no `group`."""
    group = 1
    while group * 2 <= min(params.get("group", 1), caps.max_group):
        group *= 2
    return group


def plan_partial(record: OpRecord, types: Sequence[DType], device: Device, runs: Runs, is_aligned: bool) -> Step:
    """Plan the launch that writes partial states.

    Args:
        record: The op.
        types: Dtypes of its tensor operands.
        device: Where it runs.
        runs: The rows of the table.
        is_aligned: Every tensor begins at a multiple of 16 bytes.

    Returns:
        The launch. Its buffers are, for OpenCL, `BASES` buffers of tensors, then the table, then a buffer for each
        field of a state.
    """
    request = _request(record, types, device)
    return LAUNCHES[request.capabilities.style](request, runs, is_aligned)


def plan_finish(record: OpRecord, types: Sequence[DType], device: Device, count: int, splits: int) -> Step:
    """Plan the launch that combines partial states.

    Args:
        record: The op.
        types: Dtypes of its tensor operands.
        device: Where it runs.
        count: Elements of all tensors.
        splits: Number of partial states.

    Returns:
        The launch. Its buffers are one for each field of a state, then the result.
    """
    request = _request(record, types, device)
    return FINISHES[request.capabilities.style](request, (result_layout(record, types, device),), count, splits)


def result_layout(record: OpRecord, types: Sequence[DType], device: Device) -> Meta:
    """Return the layout of the result, a 0-d tensor."""
    request = _request(record, types, device)
    return meta(output_dtype(request, record.outputs[0].result, compute_dtype(request)), (), None, device)


def partial_bytes(record: OpRecord, types: Sequence[DType], device: Device) -> tuple[int, ...]:
    """Return, for each field of a partial state, its size in bytes."""
    element = _compute_type(_request(record, types, device))
    return tuple(state_bytes(field, element) for field in record.detail["fields"])


def _request(record: OpRecord, types: Sequence[DType], device: Device) -> Request:
    """Return the request of a call on one tensor of each dtype. Their shape `(1,)` stands for any: nothing reads it."""
    layouts = iter([meta(t, (1,), None, device) for t in types])
    operands = tuple(next(layouts) if o.role == "tensor" else float for o in record.operands)
    return Request(record, operands, (None,) * len(record.statics), device)


def _compute_type(request: Request) -> str:
    """Return the name of the type in which the kernels compute, such as `float`."""
    return compute_dtype(request).compute


def _space(request: Request, count: int) -> IterationSpace:
    """Return the iteration space of a reduction of `count` contiguous elements to one result."""
    inputs, buffers = len(request.tensors), len(request.tensors) + len(request.record.outputs)
    return IterationSpace((1,), ((0,),) * buffers, (count,), ((1,),) * inputs, 0)


def _state_slots(request: Request) -> tuple[Slot, ...]:
    """Return the buffers of partial states, one for each field."""
    element = _compute_type(request)
    return tuple(state_slot(field, element) for field in request.record.detail["fields"])


def _plan_opencl_partial(request: Request, runs: Runs, is_aligned: bool) -> Step:
    """Plan the OpenCL launch that writes partial states. Its kernels take any alignment: `is_aligned` is unused."""
    caps, inputs, element = (
        request.capabilities,
        tuple(slot(m, o.type) for o, m in request.tensors),
        _compute_type(request),
    )
    lanes = caps.vector_lanes(8 if element == "double" else 4)
    defines = [("BASES", str(BASES)), ("BLOCK", str(ROW_BLOCK)), *((f"CLASS{k}", "1") for k in range(len(inputs)))]
    entry = "many" if caps.takes_runs else "many_grid"
    defines += vector_defines(lanes) if lanes > 1 else []
    defines += [] if caps.takes_runs else [("GROUP", str(runs.group))]
    states = _state_slots(request)
    buffers = tuple(range(BASES + 1 + len(states)))
    size, local, chunk = (runs.items * runs.group,), (runs.group,), (len(runs.heads), 0, 0)
    return opencl_step(
        request, element, entry, inputs + states, buffers, size, local, chunk, 1, runs.numel, defines,
        _space(request, runs.numel), runs.items, lanes,
    )  # fmt: skip


def _plan_cpu_finish(request: Request, outputs: tuple[Meta, ...], count: int, splits: int) -> Step:
    space, element = _space(request, count), _compute_type(request)
    lanes = request.capabilities.vector_lanes(8 if element == "double" else 4)
    finish = cpu_finish(request, outputs, space, lanes, splits)
    buffers = tuple(range(len(_state_slots(request)) + len(outputs)))
    return opencl_finish_step(request, outputs, space, element, buffers, splits, finish, 1, lanes)


def _plan_gpu_finish(request: Request, outputs: tuple[Meta, ...], count: int, splits: int) -> Step:
    space, element, caps = _space(request, count), _compute_type(request), request.capabilities
    group = _group_size(caps, schedule(request, space))
    finish = ("tree_finish", (group,), (group,), 0, [("GROUP", str(group))])
    buffers = tuple(range(len(_state_slots(request)) + len(outputs)))
    return opencl_finish_step(request, outputs, space, element, buffers, splits, finish, 1, 1)


def _plan_triton_partial(request: Request, runs: Runs, is_aligned: bool) -> Step:
    caps, element, states = request.capabilities, _compute_type(request), _state_slots(request)
    params = schedule(request, _space(request, runs.numel))
    defines: Defines = {f"T{k}": m.dtype.name for k, (_, m) in enumerate(request.tensors)}
    defines |= {"WIDE": int(is_aligned), "BLOCK": params["blocks_per_tile"] * caps.block, **_triton_defines(element)}
    if params["warps"] != 4:  # Triton's own default
        defines["num_warps"] = params["warps"]
    kernel = instance(request, "many", element, (Slot(dtypes.int64.name, "index"), *states), defines)
    buffers, numbers = tuple(range(1 + len(states))), tuple(range(len(request.operands) - len(request.tensors)))
    return Step(kernel, buffers, (), (runs.items,), None, runs.numel, numbers, reaches=True)


def _plan_triton_finish(request: Request, outputs: tuple[Meta, ...], count: int, splits: int) -> Step:
    from .triton.reduction import finish_step  # lazy: Triton devices only

    space, element = _space(request, count), _compute_type(request)
    buffers = tuple(range(len(_state_slots(request)) + len(outputs)))
    defines: Defines = {"KEPT": 1, "INDEX": index_type([splits]), **_triton_defines(element)}
    return finish_step(request, outputs, space, element, buffers, splits, defines, _MAX_FINISH_BLOCK)


def _triton_defines(element: str) -> Defines:
    """Return the constants of maps and identities, for kernels that have them."""
    from .triton.reduction import LIMITS  # lazy: Triton devices only

    lowest, highest = LIMITS[element]
    return {"LOWEST": lowest, "HIGHEST": highest, "WG_BOOL": 0}


LAUNCHES = ByStyle(
    "reductions of many tensors", cpu=_plan_opencl_partial, gpu=_plan_opencl_partial, triton=_plan_triton_partial
)
FINISHES = ByStyle("reductions of many tensors", cpu=_plan_cpu_finish, gpu=_plan_gpu_finish, triton=_plan_triton_finish)
