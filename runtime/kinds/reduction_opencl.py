"""Launches of reductions in OpenCL: what the schedules of CPUs and GPUs share, and the GPU schedule `tree`."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.protocol import Instance, Slot, Step
from ..device import Meta
from ..layout import pack_longs, split
from . import Request, slot
from .elementwise import COSTS
from .reduction_states import LIMITS, IterationSpace, is_bool, schedule, state_bytes, state_slot

__all__ = ["Finish", "estimate_work", "finish_step", "gpu_steps", "results_per_group", "step", "steps"]


def steps(
    request: Request,
    outputs: tuple[Meta, ...],
    space: IterationSpace,
    element: str,
    entry: str,
    size: tuple[int, ...],
    local: tuple[int, ...],
    chunk: tuple[int, int, int],
    splits: int,
    defines: Sequence[tuple[str, str]],
    finish: Finish | None,
    lanes: int,
    per_group: int = 1,
    finish_per_group: int = 1,
    widened: IterationSpace | None = None,
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Build the launch; if `splits` is above 1, also the launch that combines partial states.

    Args:
        chunk: how much a work-item takes of each of the schedule's three loops (see the template).
        finish: entry, global size, local size, results per work-item and macros of the second launch.
        per_group, finish_per_group: results per work-group of the first and the second launch.
        widened: iteration space of the first launch, if it is not `space`.

    Returns:
        The launches, and the bytes of each field of the partial states.
    """
    inputs, results, states = _slots(request, outputs, element)
    # An empty tensor owns no memory. The kernel does not read it, so pass a result's buffer instead.
    sources = tuple(range(len(inputs))) if space.count else (len(inputs),) * len(inputs)
    work, count = estimate_work(request, space, entry), len(inputs) + len(results)
    if splits == 1:
        buffers = (*sources, *range(len(inputs), count))
        first = step(
            request, element, entry, inputs + results, buffers, size, local, chunk, per_group, work, defines, space, 1,
            lanes,
        )  # fmt: skip
        return (first,), ()
    assert finish is not None
    partial = tuple(range(count, count + len(states)))
    first = step(
        request, element, entry, inputs + states, (*sources, *partial), size, local, chunk, per_group, work,
        (*defines, ("SPLIT", "1")), widened or space, splits, lanes,
    )  # fmt: skip
    second = finish_step(
        request, outputs, space, element, (*partial, *range(len(inputs), count)), splits, finish, finish_per_group,
        lanes,
    )  # fmt: skip
    bytes_each = [state_bytes(t, element) * splits * space.results for t in request.record.detail["fields"]]
    return (first, second), tuple(bytes_each)


Finish = tuple[str, tuple[int, ...], tuple[int, ...], int, Sequence[tuple[str, str]]]
"""Of a launch that combines partial states: entry, global size, local size, results per work-item, and macros."""


def finish_step(
    request: Request, outputs: tuple[Meta, ...], space: IterationSpace, element: str, buffers: tuple[int, ...],
    splits: int, finish: Finish, per_group: int, lanes: int,
) -> Step:  # fmt: skip
    """Build the launch that combines `splits` partial states of each result. buffers: states, then results."""
    entry, size, local, chunk, defines = finish
    _, results, states = _slots(request, outputs, element)
    return step(
        request, element, entry, states + results, buffers, size, local, (chunk, 0, 0), per_group,
        space.results * splits, defines, space, splits, lanes,
    )  # fmt: skip


def _slots(
    request: Request, outputs: tuple[Meta, ...], element: str
) -> tuple[tuple[Slot, ...], tuple[Slot, ...], tuple[Slot, ...]]:
    """Return the kernel parameters of the inputs, of the results, and of partial states."""
    record = request.record
    inputs = tuple(slot(m, o.type) for o, m in request.tensors)
    results = tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    return inputs, results, tuple(state_slot(t, element) for t in record.detail["fields"])


def step(
    request: Request, element: str, entry: str, slots: tuple[Slot, ...], buffers: tuple[int, ...],
    size: tuple[int, ...], local: tuple[int, ...], chunk: tuple[int, ...], per_group: int, work: int,
    defines: Sequence[tuple[str, str]], space: IterationSpace, splits: int, lanes: int,
) -> Step:  # fmt: skip
    """Build one launch of a kernel of reduction.cl.j2; the arguments are those of `steps`."""
    record, text = request.record, request.text
    lowest, highest = ("0", "1") if element == "uchar" and is_bool(request) else LIMITS[element]
    all_defines = (
        (f"SCHEDULE_{entry.upper()}", "1"), *defines, ("BUFFERS", str(len(buffers))),
        ("KEPT", str(len(space.outer_sizes))), ("REDUCED", str(len(space.reduced_sizes))), ("LOWEST", lowest),
        ("HIGHEST", highest),
    )  # fmt: skip
    pointers = len(buffers) if len(buffers) != len(slots) else 0
    instance = Instance(
        record.name, text.source, f"{record.name}_{entry}", element, lanes if ("VECTOR", "1") in defines else 1, slots,
        all_defines, text.functions, pointers,
    )  # fmt: skip
    numbers = tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))
    table = [x for s in space.outer_strides for x in s] + [x for s in space.reduced_strides for x in s]
    outer = space.count // space.reduced_sizes[-1] if space.count else 0
    head = (space.results, space.count, splits, outer, *chunk, per_group)
    geometry = pack_longs((*head, *space.outer_sizes, *space.reduced_sizes, *table))
    return Step(instance, buffers, geometry, size, local, work, numbers)


def estimate_work(request: Request, space: IterationSpace, entry: str) -> int:
    """Estimate the work (see `Step`) of the reduction: vectorised code takes 1/5 of it for each field of the state."""
    work = max(space.results * space.count, space.results)
    record = request.record
    is_cheap = all(COSTS.get(name, 4) <= 2 for name in request.text.functions)
    is_adjacent = entry in ("columns", "interleaved") or (
        entry == "rows" and space.reduced_strides[space.main_input][-1] == 1
    )
    return min(-(-work * len(record.detail["fields"]) // 5), work) if is_cheap and is_adjacent else work


def gpu_steps(
    request: Request, outputs: tuple[Meta, ...], space: IterationSpace, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Build the launches of `tree`."""
    caps = request.capabilities
    params = schedule(request, space)
    state = sum(state_bytes(t, element) if t != "mask" else 4 for t in request.record.detail["fields"])
    group = 1
    while group * 2 <= min(params["group"], caps.max_group) and group * 2 * state <= caps.local_memory:
        group *= 2
    is_adjacent = space.outer_strides[space.main_input][-1] == 1 and space.outer_sizes[-1] > 1
    per_group = results_per_group(
        space.results, space.count, group, 32 if is_adjacent and space.reduced_sizes[-1] > 1 else 1
    )
    groups = -(-space.results // per_group)
    threads_per_result = group // per_group
    target_parts = max(1, params["groups_per_core"] * caps.cores // groups)
    chunk_size, splits = split(max(space.count, 1), min(target_parts, max(space.count // (threads_per_result * 8), 1)))
    size, local = (groups * group, splits), (group, 1)
    group_define = [("GROUP", str(group))]
    finish_per_group = results_per_group(space.results, splits, group, group)
    finish = (
        ("tree_finish", (-(-space.results // finish_per_group) * group,), (group,), 0, group_define)
        if splits > 1
        else None
    )
    chunk = (0, chunk_size, 0)
    return steps(
        request, outputs, space, element, "tree", size, local, chunk, splits, group_define, finish, 1, per_group,
        finish_per_group,
    )  # fmt: skip


def results_per_group(results: int, count: int, group: int, min_results: int) -> int:
    """Return how many results a work-group computes: a power of two that leaves each work-item two elements."""
    per_group = 1
    while (
        per_group < group
        and per_group < results
        and (per_group < min_results or group // per_group > max(count // 2, 1))
    ):
        per_group *= 2
    return per_group
