"""Plan reductions: each result combines all elements along the reduced dimensions.

Dimensions of the result ("outer") and reduced dimensions are merged separately (`IterationSpace`), and iterated in the
memory order of the largest operand. A reduction accumulates in a *state*: one or more fields, such as value and index.

CPU schedules:

- `rows`: vectors along the innermost reduced dimension.
- `columns`: vectors along the innermost dimension of the result.
- `short`: contiguous rows of up to 15 elements.
- `abreast`: rows of one to eight vectors, interleaved: as many rows at once as a vector has lanes.
- `general`: one element at a time, for other short rows and for states that a vector cannot hold.

GPU schedule: `tree`, where a work-group computes one or several neighbouring results and combines the states of its
work-items in local memory.

If there are fewer results than the device can run work-items, the reduced elements are split: the first launch writes
partial states, and `finish` (`tree_finish` on a GPU) combines them. No schedule uses atomics, so the same call gives
the same bits. `triton/reduction.py` plans the same for Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, IndexShapeError, ShapeError
from ..layout import broadcast, collapse, expand_strides, normalize_dims, pack_longs, split
from . import Planned, Request, slot
from .elementwise import COSTS, DTYPE_KINDS, compute_dtype, elementwise_parts
from .reduction_states import (
    LIMITS,
    WIDE,
    IterationSpace,
    is_bool,
    output_dtype,
    schedule,
    state_bytes,
    state_slot,
    vector_defines,
)

__all__ = ["LAUNCHES", "plan"]

# A long sum adds blocks to a total, so that its rounding error stays small: elements per block.
_ROW_BLOCK = 4096  # of a row
_COLUMN_BLOCK = 256  # of a column
_SHORT_MAX_ELEMENTS, _SHORT_MIN_ROWS = 15, 256  # longest row, and fewest rows, of the schedule `short`


def plan(request: Request) -> Planned:
    """Plan a reduction: the layouts of its results, its launches, and the scratch for partial states.

    Raises:
        ShapeError: if `out` has another shape than the result.
        DTypeError: if the result is floating and `out` is not.
        IndexShapeError: if the op has no value for zero elements and a reduced dimension is empty.
    """
    record = request.record
    for operand, layout in zip(record.operands, request.operands, strict=True):
        if operand.role == "tensor" and not isinstance(layout, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    dims = _dims(request, len(shape))
    state_dtype = _state_dtype(request)
    result_shape = tuple(1 if d in dims else n for d, n in enumerate(shape))
    if not request.optional_static("keepdim", False):
        result_shape = tuple(n for d, n in enumerate(shape) if d not in dims)
    outputs = request.into or tuple(
        meta(output_dtype(request, o.result, state_dtype), result_shape, None, request.device) for o in record.outputs
    )
    for layout, output in zip(outputs, record.outputs, strict=True):
        if layout.shape != result_shape:
            raise ShapeError(
                f"{request.where()}: the result has shape {list(result_shape)}, out has {list(layout.shape)}"
            )
        if output.result == "float" and layout.dtype.kind != "f":
            raise DTypeError(f"{request.where()}: the result is floating and cannot be written to {layout.dtype.name}")
    if record.detail.get("empty") == "error":
        for d in dims:
            if not shape[d]:
                raise IndexShapeError(
                    f"{request.where()}: nothing to reduce: dimension {d} has no elements, and "
                    f"{record.called or record.name} has no value for none"
                )
    if not outputs[0].numel:
        return Planned(outputs)
    space = _iteration_space(request, shape, dims, outputs)
    element = "uchar" if state_dtype is dtypes.bool_ else state_dtype.compute
    steps, scratch = LAUNCHES[request.capabilities.style](request, outputs, space, element)
    return Planned(outputs, steps, scratch)


def _dims(request: Request, ndim: int) -> tuple[int, ...]:
    """Return the dimensions to reduce: all of them for None and, as in PyTorch, for an empty tuple."""
    dim = request.optional_static("dim")
    if isinstance(dim, (tuple, list)) and not dim:
        dim = None
    return normalize_dims(dim, ndim, request.where())


def _state_dtype(request: Request) -> DType:
    """Return the dtype of the states; for half dtypes, kernels compute in the dtype's `compute` type."""
    record = request.record
    dtype = request.optional_static("dtype")
    if dtype is not None:
        parsed = dtypes.parse(dtype)
        needs_float = record.outputs[0].result == "float"
        if (needs_float and parsed.kind != "f") or parsed.kind not in DTYPE_KINDS[record.dtypes]:
            raise DTypeError(f"{request.where()}: cannot give {parsed.name}; dtype must be a floating type")
        return parsed
    common_dtype = compute_dtype(request)
    rules = {o.result for o in record.outputs if o.type == "value"}
    if "accumulate" in rules:
        return dtypes.accumulator(common_dtype)
    return dtypes.int64 if rules == {"index"} else common_dtype


def _iteration_space(
    request: Request, shape: tuple[int, ...], dims: tuple[int, ...], outputs: tuple[Meta, ...]
) -> IterationSpace:
    """Merge the dimensions of the result, and the reduced dimensions `dims`."""
    tensors = [m for _, m in request.tensors]
    inputs = [expand_strides(m, shape) for m in tensors]
    main = max(range(len(tensors)), key=lambda i: tensors[i].numel)
    outer_dims = [d for d in range(len(shape)) if d not in dims]
    size_one_dims = dims if outputs[0].ndim == len(shape) and len(outer_dims) != len(shape) else ()
    outer_strides = [tuple(s[d] for d in outer_dims) for s in inputs]
    for out in outputs:
        outer_strides.append(tuple(s for d, s in enumerate(out.strides) if d not in size_one_dims))
    outer_sizes, merged = collapse(tuple(shape[d] for d in outer_dims), [*outer_strides, outer_strides[main]])
    if not outer_sizes:
        outer_sizes, merged = (1,), [(0,)] * len(merged)
    dim_sizes = tuple(shape[d] for d in dims)
    if 0 in dim_sizes:
        return IterationSpace(outer_sizes, tuple(merged[:-1]), (0,), ((0,),) * len(inputs), main)
    strides = [tuple(s[d] for d in dims) for s in inputs]
    # An index is counted in row-major order of the reduced dimensions, so iterate in that order. Otherwise memory order
    # is faster.
    reduction_order = strides[main]
    if request.record.detail.get("indexed"):
        reduction_order = tuple(prod(dim_sizes[i + 1 :]) for i in range(len(dim_sizes)))
    reduced_sizes, reduced_strides = collapse(dim_sizes, [*strides, reduction_order])
    if not reduced_sizes:
        reduced_sizes, reduced_strides = (1,), [(0,)] * len(reduced_strides)
    return IterationSpace(outer_sizes, tuple(merged[:-1]), reduced_sizes, tuple(reduced_strides[:-1]), main)


def _steps(
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
    finish: tuple[str, tuple[int, ...], tuple[int, ...], int, Sequence[tuple[str, str]]] | None,
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
    record = request.record
    text = request.text
    inputs = tuple(slot(m, o.type) for o, m in request.tensors)
    results = tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    states = tuple(state_slot(t, element) for t in record.detail["fields"])
    numbers = tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))
    count = len(inputs) + len(results)

    def geometry(space: IterationSpace, chunk: tuple[int, ...], per_group: int) -> bytes:
        table = [x for s in space.outer_strides for x in s] + [x for s in space.reduced_strides for x in s]
        outer = space.count // space.reduced_sizes[-1] if space.count else 0
        head = (space.results, space.count, splits, outer, *chunk, per_group)
        return pack_longs((*head, *space.outer_sizes, *space.reduced_sizes, *table))

    def step(
        entry: str, slots: tuple[Slot, ...], buffers: tuple[int, ...], size: tuple[int, ...], local: tuple[int, ...],
        chunk: tuple[int, ...], per_group: int, work: int, defines: Sequence[tuple[str, str]],
        space: IterationSpace = space,
    ) -> Step:  # fmt: skip
        lowest, highest = ("0", "1") if element == "uchar" and is_bool(request) else LIMITS[element]
        all_defines = (
            (f"SCHEDULE_{entry.upper()}", "1"), *defines, ("BUFFERS", str(len(slots))),
            ("KEPT", str(len(space.outer_sizes))), ("REDUCED", str(len(space.reduced_sizes))), ("LOWEST", lowest),
            ("HIGHEST", highest),
        )  # fmt: skip
        width = lanes if ("VECTOR", "1") in defines else 1
        name = f"{record.name}_{entry}"
        instance = Instance(record.name, text.source, name, element, width, slots, all_defines, text.functions)
        return Step(instance, buffers, geometry(space, chunk, per_group), size, local, work, numbers)

    # An empty tensor owns no memory. The kernel does not read it, so pass a result's buffer instead.
    sources = tuple(range(len(inputs))) if space.count else (len(inputs),) * len(inputs)
    work = _work(request, space, entry)
    if splits == 1:
        buffers = (*sources, *range(len(inputs), count))
        return (step(entry, inputs + results, buffers, size, local, chunk, per_group, work, defines),), ()
    assert finish is not None
    partial = tuple(range(count, count + len(states)))
    first = step(
        entry, inputs + states, (*sources, *partial), size, local, chunk, per_group, work, (*defines, ("SPLIT", "1")),
        widened or space,
    )  # fmt: skip
    entry, size, local, chunk_of_results, finish_defines = finish
    second = step(
        entry, states + results, (*partial, *range(len(inputs), count)), size, local, (chunk_of_results, 0, 0),
        finish_per_group, space.results * splits, finish_defines,
    )  # fmt: skip
    bytes_each = [state_bytes(t, element) * splits * space.results for t in record.detail["fields"]]
    return (first, second), tuple(bytes_each)


def _lanes(request: Request, space: IterationSpace, element: str) -> int:
    """Return the vector width in elements; 1 if vectors cannot hold the states."""
    lanes = request.capabilities.lanes
    if element in ("double", "long"):
        lanes //= 2
    fields = request.record.detail["fields"]
    has_index = request.record.detail.get("indexed") or "index" in fields
    has_index = has_index or any(o.type == "index" for o, _ in request.tensors)
    if has_index and (element not in WIDE or space.count >= 2**31):
        return 1
    return lanes


def _work(request: Request, space: IterationSpace, entry: str) -> int:
    """Estimate the work (see `Step`) of the reduction: vectorised code takes 1/5 of it for each field of the state."""
    work = max(space.results * space.count, space.results)
    record = request.record
    is_cheap = all(COSTS.get(name, 4) <= 2 for name in request.text.functions)
    is_adjacent = entry in ("columns", "abreast") or (
        entry == "rows" and space.reduced_strides[space.main_input][-1] == 1
    )
    return min(-(-work * len(record.detail["fields"]) // 5), work) if is_cheap and is_adjacent else work


def _cpu(
    request: Request, outputs: tuple[Meta, ...], space: IterationSpace, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Choose a CPU schedule and build its launches."""
    lanes = _lanes(request, space, element)
    params = schedule(request, space)
    min_elements = params["least"]
    width, length = space.outer_sizes[-1], space.reduced_sizes[-1]
    is_adjacent = space.outer_strides[space.main_input][-1] == 1 and width >= lanes
    if _is_short(space):
        entry = "short"
    elif lanes == 1:
        entry = "general"
    elif _can_interleave_rows(request, space, lanes):
        entry = "abreast"
    elif is_adjacent and space.count:
        entry = "columns"
    else:
        entry = "rows" if length >= lanes else "general"
    parts = elementwise_parts(_work(request, space, entry), request.capabilities.cores, params["parts"])
    if entry == "short":
        chunk_size, items = split(space.results, parts)
        row = [("ROW", str(space.count))]
        return _steps(request, outputs, space, element, entry, (items,), (1,), (chunk_size, 0, 0), 1, row, None, 1)
    if entry == "abreast":
        chunk_size, items = split(space.results, parts, lanes)
        row = vector_defines(lanes) + [(f"CLASS{i}", str(s)) for i, (s,) in enumerate(space.reduced_strides)]
        return _steps(request, outputs, space, element, entry, (items,), (1,), (chunk_size, 0, 0), 1, row, None, lanes)
    widened = _widen_rows(request, space, lanes) if lanes > 1 else None
    if widened is not None:
        entry, chunk, size, inner = "columns", *_columns(request, widened, lanes, parts)
    elif entry == "columns":
        chunk, size, inner = _columns(request, space, lanes, parts)
    elif entry == "rows":
        chunk, size, inner = _rows(space, parts, min_elements)
    else:
        inner = None
        result_chunk, items = split(space.results, parts)
        target_parts = min(-(-parts // items), max(space.count // min_elements, 1))
        chunk_size, splits = split(max(space.count, 1), target_parts)
        chunk, size = (result_chunk, 0, chunk_size), (items, 1, splits)
    splits = size[2] if entry != "rows" else size[1] * size[2]
    if widened is not None:
        splits *= widened.results // space.results
    defines: list[tuple[str, str]] = [("BLOCK", str(_ROW_BLOCK if entry == "rows" else _COLUMN_BLOCK))]
    if inner is not None:
        defines += vector_defines(lanes)
        defines += [(f"CLASS{i}", str(s if s in (0, 1) else 2)) for i, s in enumerate(inner)]
    finish = _cpu_finish(request, outputs, space, lanes, splits) if splits > 1 else None
    local = (1, 1, 1)
    return _steps(
        request, outputs, space, element, entry, size, local, chunk, splits, defines, finish, lanes, widened=widened
    )


def _is_short(space: IterationSpace) -> bool:
    """Return True if there are many short rows, and inputs and results are contiguous."""
    inputs = len(space.reduced_strides)
    return (
        1 < space.count <= _SHORT_MAX_ELEMENTS
        and space.results >= _SHORT_MIN_ROWS
        and all(s == (space.count,) for s in space.outer_strides[:inputs])
        and all(s == (1,) for s in (*space.outer_strides[inputs:], *space.reduced_strides))
    )


def _can_interleave_rows(request: Request, space: IterationSpace, lanes: int) -> bool:
    """Return True if there are many rows of one to eight vectors, the results are contiguous, and states are values.

    These are the conditions of the schedule `abreast`.
    """
    inputs = len(space.reduced_strides)
    return (
        lanes <= space.count <= 8 * lanes
        and space.results >= _SHORT_MIN_ROWS
        and len(space.outer_sizes) == len(space.reduced_sizes) == 1
        and space.reduced_strides[space.main_input] == (1,)
        and space.outer_strides[space.main_input] != (1,)
        and all(s in ((0,), (1,)) for s in space.reduced_strides)
        and all(s == (1,) for s in space.outer_strides[inputs:])
        and set(request.record.detail["fields"]) == {"value"}
    )


def _widen_rows(request: Request, space: IterationSpace, lanes: int) -> IterationSpace | None:
    """Treat several reduced rows as one wider row, if a row of results is narrower than the vectors of `columns`.

    Each column of the wide row gives a partial state. They are laid out like the partial states of that many splits,
    so the usual `finish` combines them. Return None if the strides do not allow it.
    """
    if len(space.outer_sizes) > 1 or len(space.reduced_sizes) > 1 or request.record.detail.get("indexed"):
        return None
    (width,), (count,), inputs = (
        space.outer_sizes, space.reduced_sizes, space.outer_strides[: len(space.reduced_strides)]
    )  # fmt: skip
    pairs = [(outer[0], reduced[0]) for outer, reduced in zip(inputs, space.reduced_strides, strict=True)]
    if pairs[space.main_input] != (1, width) or any(pair not in ((1, width), (0, 0)) for pair in pairs):
        return None
    full_width = lanes * request.record.detail["columns"]
    if width >= full_width:
        return None
    factors = [
        k for k in range(2, min(4 * full_width // width, count // 64) + 1) if count % k == 0 and k * width >= lanes
    ]
    if not factors:
        return None
    factor = max(factors, key=lambda k: (k * width % full_width == 0, k))
    strides = tuple((factor * reduced,) for _, reduced in pairs)
    return IterationSpace((factor * width,), space.outer_strides, (count // factor,), strides, space.main_input)


def _rows(
    space: IterationSpace, parts: int, min_elements: int
) -> tuple[tuple[int, int, int], tuple[int, int, int], list[int]]:
    """Split the schedule `rows`.

    Returns:
        Sizes of the chunks of results, outer reduced rows and innermost reduced elements; the number of each; and the
        innermost reduced strides.
    """
    length = space.reduced_sizes[-1]
    outer = space.count // length
    result_chunk, items = split(space.results, parts)
    target_parts = min(-(-parts // items), max(space.count // min_elements, 1))
    row_chunk, row_items = split(outer, target_parts)
    chunk_size, run_items = split(length, min(-(-target_parts // row_items), max(length // min_elements, 1)), 64)
    return (result_chunk, row_chunk, chunk_size), (items, row_items, run_items), [s[-1] for s in space.reduced_strides]


def _columns(
    request: Request, space: IterationSpace, lanes: int, parts: int
) -> tuple[tuple[int, int, int], tuple[int, int, int], list[int]]:
    """Split the schedule `columns`.

    Returns:
        Sizes of the chunks of outer rows, columns and reduced elements; the number of each; and the columns' strides.
    """
    width = space.outer_sizes[-1]
    row_chunk, row_items = split(space.results // width, parts)
    target_parts = -(-parts // row_items)
    # Split the reduced elements before the columns: a complete row of columns is one sequential read.
    chunk_size, runs = split(space.count, min(target_parts, max(space.count // 64, 1)))
    quantum = lanes * request.record.detail["columns"]
    column_chunk, column_items = split(width, -(-target_parts // runs), quantum)
    if width % column_chunk and width % column_chunk < lanes:  # the last chunk must fill a vector
        column_chunk, column_items = width, 1
    classes = [s[-1] for s in space.outer_strides]
    return (row_chunk, column_chunk, chunk_size), (row_items, column_items, runs), classes


def _cpu_finish(
    request: Request, outputs: tuple[Meta, ...], space: IterationSpace, lanes: int, splits: int
) -> tuple[str, tuple[int, ...], tuple[int, ...], int, Sequence[tuple[str, str]]]:
    """Plan the launch that combines partial states; see `finish` of `_steps`."""
    parts = elementwise_parts(space.results * splits, request.capabilities.cores)
    chunk, items = split(space.results, parts, 64)
    is_flat = len(space.outer_sizes) == 1 and all(s == (1,) for s in space.outer_strides[-len(outputs) :])
    defines = vector_defines(lanes) if is_flat and lanes > 1 and space.results >= lanes else []
    return "finish", (items,), (1,), chunk, defines


def _gpu(
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
    per_group = _results_per_group(
        space.results, space.count, group, 32 if is_adjacent and space.reduced_sizes[-1] > 1 else 1
    )
    groups = -(-space.results // per_group)
    threads_per_result = group // per_group
    target_parts = max(1, params["groups"] * caps.cores // groups)
    chunk_size, splits = split(max(space.count, 1), min(target_parts, max(space.count // (threads_per_result * 8), 1)))
    size, local = (groups * group, splits), (group, 1)
    group_define = [("GROUP", str(group))]
    finish_per_group = _results_per_group(space.results, splits, group, group)
    finish = (
        ("tree_finish", (-(-space.results // finish_per_group) * group,), (group,), 0, group_define)
        if splits > 1
        else None
    )
    chunk = (0, chunk_size, 0)
    return _steps(
        request, outputs, space, element, "tree", size, local, chunk, splits, group_define, finish, 1, per_group,
        finish_per_group,
    )  # fmt: skip


def _results_per_group(results: int, count: int, group: int, min_results: int) -> int:
    """Return how many results a work-group computes: a power of two that leaves each work-item two elements."""
    per_group = 1
    while (
        per_group < group
        and per_group < results
        and (per_group < min_results or group // per_group > max(count // 2, 1))
    ):
        per_group *= 2
    return per_group


def _triton(
    request: Request, outputs: tuple[Meta, ...], space: IterationSpace, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Build the launches for Triton."""
    from .triton.reduction import steps  # lazy: Triton devices only

    return steps(request, outputs, space, element)


LAUNCHES = ByStyle("reductions", cpu=_cpu, gpu=_gpu, triton=_triton)
