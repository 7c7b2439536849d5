"""Plan index ops: gather, scatter and their relatives (see `codegen.kinds.index` for the patterns).

Reading is a copy with one indirection. Schedules: `rows` (CPU: a row of the result at a time, vectorised where one
index holds for the whole row) and `grid` (GPU: one work-item per element).

Writing is deterministic and needs no atomics. A work-item owns elements of the result: all those at its coordinates
outside the indexed dimensions, or on a GPU a range of them. It iterates over all indices in order and writes the source
elements that belong to elements of its own. On CPUs, ranges do not pay: whether an index falls into a range is an
unpredictable branch, which costs more than a second core gains.

Elements are copied as raw bits, except by ops that combine a source element with the one in the result (add,
multiply, maximum, minimum). With the static argument `misses`, each CPU work-item writes to an extra result whether
it read an index out of range. The caller raises the error. With the static argument `check`, a Triton kernel stores an
index out of range in the device's miss word (`runtime.deferred`). With `negative`, negative indices count from the end.

Read next: `index_access.py` (strides and shared helpers), `index_bags.py`, `index_masks.py`, `triton/index.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from .. import dtypes
from ..backends.protocol import MISS_WORD, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import collapse, pack_longs, split
from ..program import iota
from ..records import registry
from ..schedules import Choice, choose
from . import Planned, Request, pointwise, slot
from .elementwise import elementwise_parts
from .index_access import (
    Access,
    check_has_positions,
    check_number,
    element_access,
    has_negatives,
    index_step,
    lanes_of,
    merge_in_order,
    slice_access,
    static_or,
)
from .index_bags import plan_bag_sums, plan_bags
from .index_masks import plan_mask_counts, plan_mask_positions
from .triton import index as triton
from .triton.index_sorted import should_sort_indices, sorted_write_steps

__all__ = ["READS", "WRITES", "plan", "pointwise_steps"]

_READ_GROUP, _WRITE_GROUP = 128, 64  # work-items per GPU work-group
# Styles whose kernels choose the division of work by themselves; the others share the OpenCL schedules below.
READS = ByStyle("reads by an index", triton=triton.read_step)
WRITES = ByStyle("writes by an index", triton=triton.write_step)
_MISS_SLOT = Slot("int64", "index")
_ROW_BUFFER_BYTES = 16384  # largest row that is built in private memory and then stored in one pass


def plan(request: Request) -> Planned:
    """Plan an index op: the layouts of its results, and its launches.

    Raises:
        ArgumentError: An operand is not a tensor.
        DTypeError: An index does not hold integers, or source and result have different dtypes.
        ShapeError: The operands' shapes do not fit together, or the result does not fit `out`.
        IndexOutOfRange: There are indices, but nothing to index.
    """
    for operand, layout in zip(request.record.operands, request.operands, strict=True):
        if not isinstance(layout, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
        if operand.type == "index" and layout.dtype.kind not in "ui":
            raise DTypeError(f"{request.where()}: {operand.name} must hold integers, not {layout.dtype.name}")
    return _PATTERNS[str(request.record.detail["index"])](request)


# Reading


def _read(request: Request, access: Access) -> Planned:
    """Plan the launch that copies indexed elements of the first operand to the result."""
    source, index = request.operands
    assert isinstance(source, Meta)
    assert isinstance(index, Meta)
    out = request.into[0] if request.into else meta(source.dtype, access.shape, None, request.device)
    if out.shape != access.shape:
        raise ShapeError(f"{request.where()}: the result has shape {list(access.shape)}, out has {list(out.shape)}")
    check_has_positions(request, access)
    if not out.numel:
        return Planned((out,))
    sizes, strides = collapse(access.shape, [access.outer_strides, access.index_strides, out.strides])
    if not sizes:
        sizes, strides = (1,), [(0,)] * 3
    caps = request.capabilities
    raw = dtypes.bits_dtype(source.dtype)
    slots: tuple[Slot, ...] = (Slot(raw.name, "raw"), slot(index, "index"), Slot(raw.name, "raw"))
    inner, numel = sizes[-1], out.numel
    rows = numel // inner
    indexed_dims = merge_in_order(access.indexed_sizes, [access.indexed_strides])
    if caps.style in READS:
        position_dims = (indexed_dims[0], indexed_dims[1][0])
        check = check_number(request)
        step = READS[caps.style](
            request, raw.compute, slots, sizes, strides, position_dims, access.num_positions, check
        )  # fmt: skip
        return Planned((out,), (step,), (MISS_WORD,) if check else ())
    defines = [("OUTER", str(len(sizes) - 1)), ("INDEXED_DIMS", str(len(indexed_dims[0])))]
    has_row_index = strides[1][-1] == 0  # one index holds for a whole row
    lanes = lanes_of(request, raw.compute)
    copies_vectors = has_row_index and strides[0][-1] == strides[2][-1] == 1 and inner >= lanes > 1
    reports_misses = _reports_misses(request)
    defines += [("MISSES", str(int(reports_misses))), ("NEGATIVE", str(int(has_negatives(request))))]
    if caps.takes_runs:
        # A row has an index per element: the kernel can gather a vector of elements by a vector of indices.
        source_stride = strides[0][-1]
        is_adjacent = strides[1][-1] == strides[2][-1] == 1 and source_stride in (0, 1)
        streams = is_adjacent and _should_stream(request, out, inner, lanes)
        address_extent = access.num_positions * abs(indexed_dims[1][0][0]) + lanes
        gathers_vectors = (
            is_adjacent
            and inner >= lanes > 1
            and len(indexed_dims[0]) == 1
            and raw.itemsize >= 4  # smaller elements have no gather instruction
            and address_extent < 2**31  # offsets in a vector are 32 bits wide
        )
        defines += [("ONE_INDEX", str(int(has_row_index))), ("VECTOR", str(int(copies_vectors)))]
        defines += (
            [("STREAM", str(int(streams))), ("SOURCE_STRIDE", str(source_stride))] if streams or gathers_vectors else []
        )
        if gathers_vectors:
            gather_bytes = 0 if streams else raw.itemsize  # vector gathers beside streaming stores take 5 x as long
            defines += [("GATHERS_VECTORS", "1"), ("GATHER_BYTES", str(gather_bytes)), ("IOTA", iota("L", lanes))]
    tables = [*indexed_dims[0], *indexed_dims[1][0], *(s for row in strides for s in row), *sizes[:-1]]
    if not caps.takes_runs:
        params = _schedule(request, raw, numel, access.num_positions)
        local = min(params["group"] or _READ_GROUP, caps.max_group)
        geometry = pack_longs((rows, inner, 1, 1, access.num_positions, *tables))
        size: tuple[int, ...] = (-(-numel // local) * local,)
        return Planned(
            (out,), (index_step(request, "grid", raw.compute, 1, slots, defines, geometry, size, (local,), numel),)
        )
    parts = elementwise_parts(numel, caps.cores)
    row_chunk, row_items = split(rows, parts)
    chunk, items = split(inner, -(-parts // row_items), 64)
    geometry = pack_longs((rows, inner, row_chunk, chunk, access.num_positions, *tables))
    size = (row_items, items)
    slots += (_MISS_SLOT,) if reports_misses else ()
    lanes = lanes if copies_vectors or streams or gathers_vectors else 1
    outputs = (out, *_miss_flags(request, row_items * items))
    return Planned(
        outputs, (index_step(request, "rows", raw.compute, lanes, slots, defines, geometry, size, (1, 1), numel),)
    )


def _reports_misses(request: Request) -> bool:
    """Return True if work-items report indices out of range: on CPUs, if the call sets `misses`."""
    return bool(static_or(request, "misses", False)) and request.capabilities.takes_runs


def _miss_flags(request: Request, items: int) -> tuple[Meta, ...]:
    """Return the layout of the extra result with one miss flag per work-item; empty if none is reported."""
    return (meta(dtypes.int64, (items,), None, request.device),) if _reports_misses(request) else ()


def _should_stream(request: Request, out: Meta, row: int, lanes: int) -> bool:
    """Return True if rows of a large, new, contiguous result may use non-temporal stores."""
    is_large_output = request.into is None and out.contiguous and out.nbytes >= request.capabilities.stream
    return is_large_output and lanes > 1 and row * out.dtype.itemsize % 64 == 0


def _schedule(request: Request, dtype: DType, numel: int, total: int) -> Choice:
    """Return the GPU schedule for `numel` elements read or written at `total` possible positions."""
    return choose(request, "index", {"numel": numel, "total": total}, dtype.name)


def _gather(request: Request) -> Planned:
    """Plan `gather`: one index per element."""
    (_, layout), (_, index) = request.tensors
    return _read(request, element_access(request, layout, index))


def _take(request: Request) -> Planned:
    """Plan `take`: one index per slice of the merged dimensions."""
    (_, layout), (_, index) = request.tensors
    return _read(request, slice_access(request, layout, index))


# Writing


def _write(
    request: Request,
    out: Meta,
    access: Access,
    source: Meta,
    index: Meta,
    buffers: tuple[int, ...],
    accumulator: Meta | None = None,
    prepare: int = 0,
    scratch: list[int] | None = None,
    miss_buffer: int | None = None,
) -> list[Step]:
    """Plan the launch that writes `source` into the result, or combines it with the result.

    Args:
        out: layout of the result.
        access: where the elements of `source` go.
        source: layout of the elements to write.
        index: layout of the index.
        buffers: positions of index, source and destination. The destination is the result or `accumulator`.
        accumulator: layout of a wider temporary that replaces the result as destination.
        prepare: what the CPU kernel does to each row first: 0 nothing, 1 fill it with zeros, 2 copy it from the input.
        scratch: bytes of scratch buffers, to which the launches add theirs; None: they may not use any.
        miss_buffer: position of the miss word, where a Triton kernel stores an index out of range; None: no check.
    """
    if source.shape != access.shape:
        raise ShapeError(
            f"{request.where()}: source has shape {list(source.shape)}, the indexed elements {list(access.shape)}"
        )
    if source.dtype is not out.dtype:
        raise DTypeError(
            f"{request.where()}: source is {source.dtype.name}, the result {out.dtype.name}; convert it with .to()"
        )
    check_has_positions(request, access)
    if not source.numel:
        return []
    combines = request.record.detail["action"] != "write"
    dtype = out.dtype if combines else dtypes.bits_dtype(out.dtype)
    element = dtype.compute
    kind = "value" if combines else "raw"
    slots: tuple[Slot, ...] = (
        slot(index, "index"), Slot(dtype.name, kind), Slot((accumulator.dtype if accumulator else dtype).name, kind)
    )  # fmt: skip
    ndim = len(access.shape)
    all_strides = [access.index_strides, source.strides, access.outer_strides]
    outer_dims = [d for d in range(ndim) if d not in access.index_dims]
    sizes, strides = collapse(
        tuple(access.shape[d] for d in outer_dims), [tuple(s[d] for d in outer_dims) for s in all_strides]
    )
    index_sizes, index_strides = merge_in_order(
        tuple(access.shape[d] for d in access.index_dims),
        [tuple(s[d] for d in access.index_dims) for s in all_strides[:2]],
    )
    is_single_column = not sizes or strides[2][-1] != 1
    if is_single_column:  # iterate over indices innermost; every coordinate outside them is a row of one element
        sizes, strides = (*sizes, 1), [(*s, 0) for s in strides]
    inner, rows, index_count = sizes[-1], prod(sizes[:-1]), prod(index_sizes)
    indexed_dims = merge_in_order(access.indexed_sizes, [access.indexed_strides])
    if request.capabilities.style in WRITES:
        launch = WRITES[request.capabilities.style]
        position_dims, index_dims = (
            (indexed_dims[0], indexed_dims[1][0]),
            (index_sizes, index_strides[0], index_strides[1]),
        )
        if scratch is not None and should_sort_indices(request, access):
            first_scratch = max(buffers) + 1 + len(scratch)
            steps, scratch_nbytes = sorted_write_steps(
                request, element, slots, access, index, sizes, strides, position_dims, index_dims, buffers,
                first_scratch, miss_buffer,
            )  # fmt: skip
            scratch.extend(scratch_nbytes)
            return steps
        step = launch(
            request, element, slots, sizes, strides, position_dims, index_dims, access.num_positions, buffers,
            miss_buffer,
        )  # fmt: skip
        return [step]
    has_row_index = strides[0][-1] == 0
    lanes = lanes_of(request, element)
    # VECTOR: 0 scalar loops, 1 vectors of source elements, 2 one source element for the whole row
    vector_mode = (
        0 if is_single_column or not has_row_index or not inner >= lanes > 1 else {1: 1, 0: 2}.get(strides[1][-1], 0)
    )
    defines = [
        ("OUTER", str(len(sizes) - 1)),
        ("INDEXED_DIMS", str(len(indexed_dims[0]))),
        ("INDEX_DIMS", str(len(index_sizes))),
    ]
    defines += [("MISSES", str(int(_reports_misses(request)))), ("NEGATIVE", str(int(has_negatives(request))))]
    if not request.capabilities.takes_runs:
        defines.append(("PREPARE", "0"))
    tables = [*indexed_dims[0], *indexed_dims[1][0], *(s for row in strides for s in row), *index_sizes,
              *(s for row in index_strides for s in row), *sizes[:-1]]  # fmt: skip
    caps, total, numel = request.capabilities, access.num_positions, source.numel
    if not caps.takes_runs:
        params = _schedule(request, dtype, numel, total)
        local = min(params["group"] or _WRITE_GROUP, caps.max_group)
        target_ranges = caps.cores * params["min_items_per_core"] // max(rows * inner, 1)
        range_size, ranges = split(total, max(1, min(target_ranges, total)))
        geometry = pack_longs((rows, inner, 1, 1, total, range_size, index_count, *tables))
        size: tuple[int, ...] = (-(-rows * inner // local) * local, ranges)
        return [index_step(request, "grid", element, 1, slots, defines, geometry, size, (local, 1), numel, buffers)]
    defines += [("ONE_INDEX", str(int(has_row_index))), ("SINGLE", str(int(is_single_column)))]
    defines += [("VECTOR", str(vector_mode)), ("PREPARE", str(prepare))]
    stages_rows = False
    if prepare:
        numel = max(numel, rows * total)
        slots = (*slots, slots[2]) if prepare == 2 else slots
        copies_as_is = (dtype.storage == element and dtype.kind in "ui") or dtype.name in (
            "float32",
            "float64",
        )
        stages_rows = copies_as_is and len(index_sizes) == 1 and total * dtype.itemsize <= _ROW_BUFFER_BYTES
        stages_rows = stages_rows and _should_stream(request, out, total, lanes)
        if stages_rows:
            defines += [("ROW_BUFFER", str(_ROW_BUFFER_BYTES // dtype.itemsize))]
    parts = min(elementwise_parts(numel, caps.cores), caps.cores)
    row_chunk, row_items = split(rows, parts)
    chunk, items = split(inner, parts // row_items, 64)
    geometry = pack_longs((rows, inner, row_chunk, chunk, total, total, index_count, *tables))
    size = (row_items, items)
    slots += (_MISS_SLOT,) if _reports_misses(request) else ()
    lanes = lanes if vector_mode or stages_rows else 1
    return [index_step(request, "rows", element, lanes, slots, defines, geometry, size, (1, 1), numel, buffers)]


def _can_prepare_rows(request: Request, out: Meta, access: Access, source: Meta, initial: Meta | None) -> bool:
    """Return True if the writing kernel may also fill each row first, from `initial` or with zeros.

    This saves a separate pass over the result: a row is filled and written while it is in the cache. Rows must be
    contiguous and cover the whole result. For a single row there is nothing to gain.
    """
    if not request.capabilities.takes_runs or not out.contiguous or not (initial is None or initial.contiguous):
        return False
    rows = prod(n for d, n in enumerate(access.shape) if d not in access.index_dims)
    has_contiguous_rows = len(access.index_dims) == 1 and access.indexed_strides == (1,) and source.numel > 0
    return has_contiguous_rows and rows > 1 and access.num_positions > 1 and rows * access.num_positions == out.numel


def pointwise_steps(
    request: Request, op: str, layout: Meta, out: Meta, statics: tuple[object, ...], buffers: tuple[int, int]
) -> list[Step]:
    """Plan a pointwise op with one operand, and replace its buffer positions by `buffers` (operand, result)."""
    inner = Request(registry[op], (layout,), statics, request.device, (out,))
    return [replace(s, buffers=buffers) for s in pointwise.plan(inner).steps]


def _update(request: Request, locate: Callable[[Request, Meta, Meta], Access]) -> Planned:
    """Plan an update: copy the input, unless the call works in place, then write to its indexed elements.

    `locate` computes the geometry: `element_access` or `slice_access`. Half dtypes are added and multiplied in a
    float32 copy, which is rounded once at the end.
    """
    input_layout, index, source = request.operands
    assert isinstance(input_layout, Meta)
    assert isinstance(index, Meta)
    assert isinstance(source, Meta)
    out = request.into[0] if request.into else meta(input_layout.dtype, input_layout.shape, None, request.device)
    if out.shape != input_layout.shape or out.dtype is not input_layout.dtype:
        raise ShapeError(f"{request.where()}: the result is written in place of input")
    accumulator = (
        None
        if _should_sort_indices(request, locate(request, out, index))
        else _accumulator_layout(request, out, source)
    )
    miss_flags = (4,) if _reports_misses(request) else ()
    has_check = request.capabilities.style in WRITES and check_number(request) > 0 and source.numel > 0
    miss_word = (MISS_WORD,) if has_check else ()
    if accumulator is not None:
        sum_buffer = 4 + len(miss_flags)
        steps = pointwise_steps(request, "copy", input_layout, accumulator, (accumulator.dtype,), (0, sum_buffer))
        writes = _write(
            request, out, locate(request, accumulator, index), source, index, (1, 2, sum_buffer, *miss_flags),
            accumulator, miss_buffer=sum_buffer + 1 if has_check else None,
        )  # fmt: skip
        steps += [*writes, *pointwise_steps(request, "copy", accumulator, out, (out.dtype,), (sum_buffer, 3))]
        outputs = (out, *_miss_flags(request, prod(writes[0].global_size)))
        return Planned(outputs, tuple(steps), (accumulator.nbytes, *miss_word))
    access = locate(request, out, index)
    if not request.into and _can_prepare_rows(request, out, access, source, input_layout):
        writes = _write(request, out, access, source, index, (1, 2, 3, 0, *miss_flags), None, 2)
        return Planned((out, *_miss_flags(request, prod(writes[0].global_size))), tuple(writes))
    steps = (
        [] if request.into or not out.numel else pointwise_steps(request, "copy", input_layout, out, (None,), (0, 3))
    )
    scratch: list[int] = [*miss_word]
    miss_buffer = 4 if has_check else None
    writes = _write(
        request, out, access, source, index, (1, 2, 3, *miss_flags), scratch=scratch, miss_buffer=miss_buffer
    )
    items = prod(writes[0].global_size) if writes else 0
    return Planned((out, *_miss_flags(request, items)), (*steps, *writes), tuple(scratch))


def _should_sort_indices(request: Request, access: Access) -> bool:
    """Return True if the device's kernels sort the indices of a write; they need no wider accumulator."""
    return request.capabilities.style in WRITES and should_sort_indices(request, access)


def _accumulator_layout(request: Request, out: Meta, source: Meta) -> Meta | None:
    """Return a float32 layout in which to add or multiply half dtypes, so that a sum is rounded once, or None."""
    if request.record.detail["action"] not in ("add", "multiply"):
        return None
    if out.dtype.kind != "f" or out.dtype.itemsize != 2 or not out.numel or not source.numel:
        return None
    return meta(dtypes.float32, out.shape, None, request.device)


def _scatter(request: Request) -> Planned:
    """Plan a write with one index per element."""
    return _update(request, element_access)


def _put(request: Request) -> Planned:
    """Plan a write with one index per slice of the merged dimensions."""
    return _update(request, slice_access)


def _zeros_layout(request: Request) -> Meta:
    """Return the layout of a new result: the source's dtype, the shape from the static argument `shape`."""
    source = request.operands[0]
    assert isinstance(source, Meta)
    return meta(source.dtype, tuple(request.static("shape")), None, request.device)


def _spread(request: Request) -> Planned:
    """Plan the gradient of `gather`: a scatter-add into zeros."""
    return _add_to_zeros(request, _zeros_layout(request), element_access)


def _spread_taken(request: Request) -> Planned:
    """Plan the gradient of `take`: a scatter-add into zeros."""
    return _add_to_zeros(request, _zeros_layout(request), slice_access)


def _add_to_zeros(request: Request, out: Meta, locate: Callable[[Request, Meta, Meta], Access]) -> Planned:
    """Plan a scatter-add of the first operand into zeros of the layout `out`."""
    source, index = request.operands
    assert isinstance(source, Meta)
    assert isinstance(index, Meta)
    access = locate(request, out, index)
    if not out.numel:
        return Planned((out,))
    accumulator = None if _should_sort_indices(request, access) else _accumulator_layout(request, out, source)
    if accumulator is not None:
        steps = pointwise_steps(request, "zero_like", accumulator, accumulator, (), (3, 3))
        steps += _write(request, out, locate(request, accumulator, index), source, index, (1, 0, 3), accumulator)
        steps += pointwise_steps(request, "copy", accumulator, out, (out.dtype,), (3, 2))
        return Planned((out,), tuple(steps), (accumulator.nbytes,))
    if _can_prepare_rows(request, out, access, source, None):
        return Planned((out,), tuple(_write(request, out, access, source, index, (1, 0, 2), None, 1)))
    steps = pointwise_steps(request, "zero_like", out, out, (), (2, 2))
    scratch: list[int] = []
    steps += _write(request, out, access, source, index, (1, 0, 2), scratch=scratch)
    return Planned((out,), tuple(steps), tuple(scratch))


_PATTERNS = {
    "gather": _gather, "take": _take, "spread": _spread, "spread_taken": _spread_taken,
    "bags": plan_bags, "bag_sums": plan_bag_sums,
    "mask_counts": plan_mask_counts, "mask_positions": plan_mask_positions,
    **{f"scatter{ending}": _scatter for ending in ("", "_add", "_multiply", "_maximum", "_minimum")},
    **{f"put{ending}": _put for ending in ("", "_add", "_multiply", "_maximum", "_minimum")},
}  # fmt: skip
