"""Plan reductions of many tensors to one result, such as the norm of all gradients, in two launches.

The first launch gets the tensors by a table, as in `many.py`, and writes partial states: `many` on CPUs one for each
work-item, which has an equal share of all elements, `many_grid` on OpenCL GPUs and `many` on Triton one for each row of
the table. The second is the `finish` of every reduction. `runtime/multi_reduction.py` fills the tables and launches.
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

__all__ = ["FINISHES", "LAUNCHES", "partial_bytes", "plan_finish", "plan_partial", "result_layout", "runs_for"]

_RUN_QUANTUM = 16  # elements; runs begin at multiples of it, so that all tensors that are aligned stay so
_MAX_FINISH_BLOCK = 1024  # partial states that a Triton program loads at a time


def runs_for(record: OpRecord, types: Sequence[DType], device: Device, sizes: Sequence[int]) -> Runs:
    """Divide tensors of `sizes` elements, all above 0, into rows of the table.

    Every row writes a partial state that another launch has to read, so rows of GPUs are as long as filling the device
    allows.
    """
    caps, total = device.driver.capabilities, sum(sizes)
    if caps.takes_runs:
        return make_runs(sizes, caps, {})
    request = _request(record, types, device)
    params = schedule(request, _space(request, total))
    quantum = max(_RUN_QUANTUM, caps.kernel_style.block_size(caps))
    programs = caps.cores * (params["programs"] if "programs" in params else params["groups_per_core"])
    run_size = -(-total // (programs * quantum)) * quantum
    return split_into_runs(sizes, run_size, _group(caps, params), run_size)


def _group(caps: Capabilities, params: Choice) -> int:
    """Return the size of work-groups, a power of two; 1 for Triton."""
    group = 1
    while group * 2 <= min(params.get("group", 1), caps.max_group):
        group *= 2
    return group


def plan_partial(record: OpRecord, types: Sequence[DType], device: Device, runs: Runs, is_aligned: bool) -> Step:
    """Plan the launch that writes partial states.

    Returns:
        The launch. Its buffers are the table, for OpenCL preceded by `BASES` buffers, then one for each field.
    """
    request = _request(record, types, device)
    return LAUNCHES[request.capabilities.style](request, runs, is_aligned)


def plan_finish(record: OpRecord, types: Sequence[DType], device: Device, count: int, splits: int) -> Step:
    """Plan the launch that combines `splits` partial states of `count` elements.

    Its buffers are one for each field of a state, then the result.
    """
    request = _request(record, types, device)
    return FINISHES[request.capabilities.style](request, (result_layout(record, types, device),), count, splits)


def result_layout(record: OpRecord, types: Sequence[DType], device: Device) -> Meta:
    """Return the layout of the result, which has no dimensions."""
    request = _request(record, types, device)
    return meta(output_dtype(request, record.outputs[0].result, compute_dtype(request)), (), None, device)


def partial_bytes(record: OpRecord, types: Sequence[DType], device: Device) -> tuple[int, ...]:
    """Return the bytes of each field of a partial state."""
    element = _element(_request(record, types, device))
    return tuple(state_bytes(field, element) for field in record.detail["fields"])


def _request(record: OpRecord, types: Sequence[DType], device: Device) -> Request:
    """Return the request of a call on one tensor of each type, whose sizes nothing reads."""
    layouts = iter([meta(t, (1,), None, device) for t in types])
    operands = tuple(next(layouts) if o.role == "tensor" else float for o in record.operands)
    return Request(record, operands, (None,) * len(record.statics), device)


def _element(request: Request) -> str:
    return compute_dtype(request).compute


def _space(request: Request, count: int) -> IterationSpace:
    """Return the iteration space of one result of `count` elements."""
    inputs, buffers = len(request.tensors), len(request.tensors) + len(request.record.outputs)
    return IterationSpace((1,), ((0,),) * buffers, (count,), ((1,),) * inputs, 0)


def _states(request: Request) -> tuple[Slot, ...]:
    element = _element(request)
    return tuple(state_slot(field, element) for field in request.record.detail["fields"])


def _opencl_step(request: Request, runs: Runs, is_aligned: bool) -> Step:
    """Build the launch in OpenCL."""
    caps, inputs, element = request.capabilities, tuple(slot(m, o.type) for o, m in request.tensors), _element(request)
    lanes = caps.vector_lanes(8 if element == "double" else 4)
    defines = [("BASES", str(BASES)), ("BLOCK", str(ROW_BLOCK)), *((f"CLASS{k}", "1") for k in range(len(inputs)))]
    entry = "many" if caps.takes_runs else "many_grid"
    defines += vector_defines(lanes) if lanes > 1 else []
    defines += [] if caps.takes_runs else [("GROUP", str(runs.group))]
    states = _states(request)
    buffers = tuple(range(BASES + 1 + len(states)))
    size, local, chunk = (runs.items * runs.group,), (runs.group,), (len(runs.heads), 0, 0)
    return opencl_step(
        request, element, entry, inputs + states, buffers, size, local, chunk, 1, runs.numel, defines,
        _space(request, runs.numel), runs.items, lanes,
    )  # fmt: skip


def _cpu_finish_step(request: Request, outputs: tuple[Meta, ...], count: int, splits: int) -> Step:
    space, element = _space(request, count), _element(request)
    lanes = request.capabilities.vector_lanes(8 if element == "double" else 4)
    finish = cpu_finish(request, outputs, space, lanes, splits)
    buffers = tuple(range(len(_states(request)) + len(outputs)))
    return opencl_finish_step(request, outputs, space, element, buffers, splits, finish, 1, lanes)


def _gpu_finish_step(request: Request, outputs: tuple[Meta, ...], count: int, splits: int) -> Step:
    space, element, caps = _space(request, count), _element(request), request.capabilities
    group = _group(caps, schedule(request, space))
    finish = ("tree_finish", (group,), (group,), 0, [("GROUP", str(group))])
    buffers = tuple(range(len(_states(request)) + len(outputs)))
    return opencl_finish_step(request, outputs, space, element, buffers, splits, finish, 1, 1)


def _triton_step(request: Request, runs: Runs, is_aligned: bool) -> Step:
    caps, element, states = request.capabilities, _element(request), _states(request)
    params = schedule(request, _space(request, runs.numel))
    defines: Defines = {f"T{k}": m.dtype.name for k, (_, m) in enumerate(request.tensors)}
    defines |= {"WIDE": int(is_aligned), "BLOCK": params["blocks_per_tile"] * caps.block, **_triton_defines(element)}
    if params["warps"] != 4:  # Triton's own default
        defines["num_warps"] = params["warps"]
    kernel = instance(request, "many", element, (Slot(dtypes.int64.name, "index"), *states), defines)
    buffers, numbers = tuple(range(1 + len(states))), tuple(range(len(request.operands) - len(request.tensors)))
    return Step(kernel, buffers, (), (runs.items,), None, runs.numel, numbers, reaches=True)


def _triton_finish_step(request: Request, outputs: tuple[Meta, ...], count: int, splits: int) -> Step:
    from .triton.reduction import finish_step  # lazy: Triton devices only

    space, element = _space(request, count), _element(request)
    buffers = tuple(range(len(_states(request)) + len(outputs)))
    defines: Defines = {"KEPT": 1, "INDEX": index_type([splits]), **_triton_defines(element)}
    return finish_step(request, outputs, space, element, buffers, splits, defines, _MAX_FINISH_BLOCK)


def _triton_defines(element: str) -> Defines:
    """Return the constants of maps and identities, for kernels that have them."""
    from .triton.reduction import LIMITS  # lazy: Triton devices only

    lowest, highest = LIMITS[element]
    return {"LOWEST": lowest, "HIGHEST": highest, "WG_BOOL": 0}


LAUNCHES = ByStyle("reductions of many tensors", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
FINISHES = ByStyle("reductions of many tensors", cpu=_cpu_finish_step, gpu=_gpu_finish_step, triton=_triton_finish_step)
