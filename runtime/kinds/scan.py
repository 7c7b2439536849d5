"""Plan scans (`cumsum`, `cummax`, …): each result combines all elements up to its position along one dimension.

A *line* is the elements along that dimension. A reversed scan uses negative strides from the line's end.

CPU schedules:

- `rows`: vectors along a line. A prefix scan inside each vector, plus the carry of the vectors before it.
- `columns`: vectors across neighbouring lines.
- `short`: contiguous lines of 2 to 8 elements, which compilers vectorise themselves.
- `general`: one element at a time.

GPU schedules: `group` (a work-group scans one or several lines) and `general` (a work-item scans one line).

If there are fewer lines than the device can run work-items, lines are split into shares: the first launch computes the
total of each share, and the second starts each share from the totals before it. No schedule uses atomics, so the same
call gives the same bits. `triton/scan.py` plans the same for Triton.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, NotSupported, ShapeError
from ..layout import broadcast, collapse, expand_strides, normalize_dim, pack_longs, split
from . import Planned, Request, slot
from .elementwise import DTYPE_KINDS, compute_dtype, elementwise_parts
from .reduction_states import LIMITS, WIDE, is_bool, output_dtype, state_bytes, state_slot, vector_defines
from .scan_lines import Lines, schedule

__all__ = ["LAUNCHES", "plan"]

_SHORT_MAX_ELEMENTS, _SHORT_MIN_LINES = 8, 256  # longest line, and fewest lines, of the schedule `short`
_LAST_LANE = {2: "s1", 4: "s3", 8: "s7", 16: "sf"}  # component of a vector's last lane
_REVERSED_LANES = {2: "s10", 4: "s3210", 8: "s76543210", 16: "sfedcba9876543210"}  # components in reverse


def plan(request: Request) -> Planned:
    """Plan a scan: the layouts of its results, its launches, and the scratch for the totals of shares.

    Raises:
        ShapeError: if `out` has another shape than the result.
        DTypeError: if the op does not take the static argument `dtype`.
        NotSupported: for a scan that accumulates in bool.
    """
    record = request.record
    for operand, layout in zip(record.operands, request.operands, strict=True):
        if operand.role == "tensor" and not isinstance(layout, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    dim = normalize_dim(request.static("dim"), len(shape), request.where())
    state_dtype = _state_dtype(request)
    outputs = request.into or tuple(
        meta(output_dtype(request, o.result, state_dtype), shape, None, request.device) for o in record.outputs
    )
    for layout in outputs:
        if layout.shape != shape:
            raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(layout.shape)}")
    if not outputs[0].numel:
        return Planned(outputs)
    lines = _lines(request, shape, dim, outputs)
    element = "uchar" if state_dtype is dtypes.bool_ else state_dtype.compute
    return Planned(outputs, *LAUNCHES[request.capabilities.style](request, outputs, lines, element))


def _state_dtype(request: Request) -> DType:
    """Return the dtype of the states; for half dtypes, kernels compute in the dtype's `compute` type."""
    record = request.record
    requested_dtype = request.optional_static("dtype")
    if requested_dtype is not None:
        common_dtype = dtypes.parse(requested_dtype)
        if common_dtype.kind not in DTYPE_KINDS[record.dtypes]:
            raise DTypeError(f"{request.where()}: takes {record.dtypes} dtypes, so dtype cannot be {common_dtype.name}")
    else:
        common_dtype = compute_dtype(request)
    if record.outputs[0].result == "accumulate":
        if requested_dtype is None:
            return dtypes.accumulator(common_dtype)
        if common_dtype.kind == "b":
            raise NotSupported(f"{request.where()}: has no results of bool; use dtype=int64 and compare them")
    return common_dtype


def _lines(request: Request, shape: tuple[int, ...], dim: int, outputs: tuple[Meta, ...]) -> Lines:
    """Divide the broadcast `shape` into lines along `dim`."""
    tensors = [m for _, m in request.tensors]
    strides = [expand_strides(m, shape) for m in tensors] + [m.strides for m in outputs]
    outer_dims = [d for d in range(len(shape)) if d != dim]
    outer_sizes, outer_strides = collapse(
        tuple(shape[d] for d in outer_dims), [tuple(s[d] for d in outer_dims) for s in strides]
    )
    if not outer_sizes:
        outer_sizes, outer_strides = (1,), [(0,)] * len(strides)
    line_length = shape[dim] if shape else 1
    strides_along = [s[dim] if line_length > 1 else 0 for s in strides]
    is_reversed = bool(request.optional_static("reverse", False))
    line_offsets = [(line_length - 1) * a if is_reversed else 0 for a in strides_along]
    main_input = max(range(len(tensors)), key=lambda i: tensors[i].numel)
    line_strides = tuple(-a if is_reversed else a for a in strides_along)
    return Lines(
        line_length, outer_sizes, tuple(outer_strides), tuple(line_offsets), line_strides, main_input, is_reversed
    )


@dataclass(frozen=True, slots=True)
class _Launch:
    """A schedule with its sizes.

    Attributes:
        entry: name of the schedule and suffix of its kernel.
        chunk: what a work-item computes: number of lines, of neighbouring lines (`columns`), and elements of a line.
        shares: shares that each line is split into; the last dimension of the global size.
        size: global size without that dimension.
        local: work-group size.
        lanes: vector width in elements.
        defines: further macros of the kernel.
    """

    entry: str
    chunk: tuple[int, int, int]
    shares: int
    size: tuple[int, ...]
    local: tuple[int, ...]
    lanes: int
    defines: tuple[tuple[str, str], ...]


def _steps(
    request: Request, outputs: tuple[Meta, ...], lines: Lines, element: str, launch: _Launch
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Build the launch that writes the results; if lines are split, also the launch of the totals before it.

    Returns:
        The launches, and the bytes of each field of the totals.
    """
    record = request.record
    text = request.text
    inputs = tuple(slot(m, o.type) for o, m in request.tensors)
    results = tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    states = tuple(state_slot(t, element) for t in record.detail["fields"])
    scalars = tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))
    header = (lines.count, lines.length, *launch.chunk, *lines.offsets, *lines.strides, *lines.outer_sizes)
    geometry = pack_longs((*header, *(s for row in lines.outer_strides for s in row)))
    lowest, highest = ("0", "1") if element == "uchar" and is_bool(request) else LIMITS[element]

    def step(slots: tuple[Slot, ...], buffers: tuple[int, ...], shares: int, mode: str) -> Step:
        defines = (
            (f"SCHEDULE_{launch.entry.upper()}", "1"), *launch.defines, *(((mode, "1"),) if mode else ()),
            ("BUFFERS", str(len(slots))), ("KEPT", str(len(lines.outer_sizes))),
            ("REVERSED", str(int(lines.is_reversed))), ("LOWEST", lowest), ("HIGHEST", highest),
        )  # fmt: skip
        name = f"{record.name}_{launch.entry}"
        kernel = Instance(record.name, text.source, name, element, launch.lanes, slots, defines, text.functions)
        work = lines.count * lines.length
        return Step(kernel, buffers, geometry, (*launch.size, shares), launch.local, work, scalars)

    input_count, count = len(inputs), len(inputs) + len(results)
    io_buffers = tuple(range(count))
    if launch.shares == 1:
        return (step(inputs + results, io_buffers, 1, ""),), ()
    totals = tuple(range(count, count + len(states)))
    totals_step = step(inputs + states, (*io_buffers[:input_count], *totals), launch.shares - 1, "TOTALS")
    results_step = step(inputs + results + states, (*io_buffers, *totals), launch.shares, "CARRIED")
    bytes_each = [state_bytes(t, element) * (launch.shares - 1) * lines.count for t in record.detail["fields"]]
    return (totals_step, results_step), tuple(bytes_each)


def _lanes(request: Request, lines: Lines, element: str) -> int:
    """Return the vector width in elements; 1 if vectors cannot hold the states."""
    lanes = request.capabilities.lanes
    if element in ("double", "long"):
        lanes //= 2
    record = request.record
    has_index = record.detail["has_index"] or "index" in record.detail["fields"]
    has_index = has_index or any(o.type == "index" for o, _ in request.tensors)
    return 1 if has_index and (element not in WIDE or lines.length >= 2**31) else lanes


def _split_lines(lines: Lines, target_shares: int, min_share: int, quantum: int = 64) -> tuple[int, int]:
    """Return the elements of a share, and the number of shares that lines are split into."""
    return split(lines.length, max(1, min(target_shares, lines.length // min_share)), quantum)


def _cpu(
    request: Request, outputs: tuple[Meta, ...], lines: Lines, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Choose a CPU schedule and build its launches."""
    caps = request.capabilities
    params = schedule(request, lines)
    min_share = params["min_part"]
    lanes = _lanes(request, lines, element)
    parts = elementwise_parts(lines.count * lines.length, caps.cores, params["parts"])
    input_count = len(request.tensors)
    neighbour_strides = [s[-1] for s in lines.outer_strides]
    line_strides = [abs(s) for s in lines.strides]
    local_size = (1, 1, 1)
    if _use_short_schedule(lines):
        chunk, items = split(lines.count, parts)
        row_defines = (("ROW", str(lines.length)), ("FRESH", str(int(request.into is None))))
        launch = _Launch("short", (chunk, 0, lines.length), 1, (items,), local_size[:2], 1, row_defines)
        return _steps(request, outputs, lines, element, launch)
    # `rows`: the elements of a line are contiguous, and fill a vector.
    if lanes > 1 and lines.length >= lanes and line_strides[lines.main_input] <= 1 and line_strides[input_count] == 1:
        unit_stride = -1 if lines.is_reversed else 1
        chunk, items = split(lines.count, parts)
        share_size, shares = _split_lines(lines, -(-min(parts, caps.cores) // items), min_share, lanes)
        # Class 2 is any other stride, such as that of a flipped operand.
        classes = [0 if s == 0 else 1 if s == unit_stride else 2 for s in lines.strides]
        defines = [*_vector_defines(lanes, lines.is_reversed), *((f"CLASS{i}", str(c)) for i, c in enumerate(classes))]
        if lines.length % lanes == 0:  # non-temporal stores need lines that begin at a vector boundary
            defines += _stream_defines(request, outputs, element, input_count)
        launch = _Launch("rows", (chunk, 0, share_size), shares, (items,), local_size[:2], lanes, tuple(defines))
        return _steps(request, outputs, lines, element, launch)
    # `columns`: neighbouring lines are contiguous, and fill a vector.
    row_width = lines.outer_sizes[-1]
    lines_are_adjacent = all(s == 1 for s in neighbour_strides[input_count:]) and all(
        s in (0, 1) for s in neighbour_strides[:input_count]
    )
    if lanes > 1 and row_width >= lanes and lines_are_adjacent:
        chunk, items = split(lines.count // row_width, parts)
        columns, column_items = split(row_width, -(-min(parts, caps.cores) // items), 4 * lanes)
        share_size, shares = _split_lines(
            lines, -(-min(parts, caps.cores) // (items * column_items)), max(min_share // row_width, 64)
        )
        defines = [
            *_vector_defines(lanes, False),
            *((f"CLASS{i}", str(b)) for i, b in enumerate(neighbour_strides[:input_count])),
        ]
        defines += [("TILE", str(params["tile"]))]
        launch = _Launch(
            "columns", (chunk, columns, share_size), shares, (items, column_items), local_size, lanes, tuple(defines)
        )
        return _steps(request, outputs, lines, element, launch)
    is_contiguous_along_line = lines.count == 1 or line_strides[lines.main_input] <= abs(
        neighbour_strides[lines.main_input]
    )
    tile = 1 if is_contiguous_along_line else params["tile"]
    chunk, items = split(lines.count, parts, tile)
    share_size, shares = _split_lines(lines, -(-min(parts, caps.cores) // items), max(min_share // lines.count, 64))
    general_defines = (("TILE", str(tile)), ("GROUP", "1"))
    launch = _Launch("general", (chunk, 0, share_size), shares, (items,), local_size[:2], 1, general_defines)
    return _steps(request, outputs, lines, element, launch)


def _use_short_schedule(lines: Lines) -> bool:
    """Return True if there are many short lines and all tensors are contiguous."""
    return (
        1 < lines.length <= _SHORT_MAX_ELEMENTS
        and lines.count >= _SHORT_MIN_LINES
        and all(s == (lines.length,) for s in lines.outer_strides)
        and set(lines.strides) == {-1 if lines.is_reversed else 1}
    )


def _vector_defines(lanes: int, is_reversed: bool) -> list[tuple[str, str]]:
    """Return the macros of a kernel with vectors, including the one that reverses a vector (REVERSE_LANES)."""
    reversed_vector = f"(v).{_REVERSED_LANES[lanes]}" if is_reversed else "(v)"
    return [*vector_defines(lanes)[:2], ("LAST", _LAST_LANE[lanes]), ("REVERSE_LANES(v)", reversed_vector)]


def _stream_defines(
    request: Request, outputs: tuple[Meta, ...], element: str, first_output: int
) -> list[tuple[str, str]]:
    """Return a macro for each result to write with non-temporal stores: results too large for the caches anyway."""
    stream_defines = []
    for i, layout in enumerate(outputs):
        is_stored_as_is = layout.dtype.storage == element and layout.dtype is not dtypes.bool_ and layout.contiguous
        if request.into is None and is_stored_as_is and layout.nbytes >= request.capabilities.stream:
            stream_defines.append((f"STREAM{first_output + i}", "1"))
    return stream_defines


def _gpu(
    request: Request, outputs: tuple[Meta, ...], lines: Lines, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Choose a GPU schedule and build its launches."""
    caps = request.capabilities
    params = schedule(request, lines)
    line_count, line_length = lines.count, lines.length
    lines_are_adjacent = (
        lines.outer_strides[lines.main_input][-1] == 1
        and lines.outer_sizes[-1] >= 16
        and abs(lines.strides[lines.main_input]) != 1
    )
    if lines_are_adjacent or line_length < 4:
        group = min(64, caps.max_group)
        share_size, shares = _split_lines(lines, caps.cores * params["min_items_per_core"] // line_count, 64, 1)
        defines = (("TILE", "1"), ("GROUP", str(group)))
        size = (-(-line_count // group) * group,)
        return _steps(
            request, outputs, lines, element,
            _Launch("general", (1, 0, share_size), shares, size, (group, 1), 1, defines),
        )  # fmt: skip
    state_nbytes = sum(state_bytes(t, element) for t in request.record.detail["fields"])
    group = 1
    while group * 2 <= min(params["group"], caps.max_group) and group * 2 * state_nbytes <= caps.local_memory:
        group *= 2
    threads_per_line = 1
    while threads_per_line < group and threads_per_line < line_length:
        threads_per_line *= 2
    groups = -(-line_count // (group // threads_per_line))
    share_size, shares = _split_lines(lines, max(1, 4 * caps.cores // groups), 8 * threads_per_line, threads_per_line)
    defines = (("DEEP", str(threads_per_line)), ("GROUP", str(group)))
    launch = _Launch("group", (1, 0, share_size), shares, (groups * group,), (group, 1), 1, defines)
    return _steps(request, outputs, lines, element, launch)


def _triton(
    request: Request, outputs: tuple[Meta, ...], lines: Lines, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Build the launches for Triton."""
    from .triton.scan import steps  # lazy: Triton devices only

    return steps(request, outputs, lines, element)


LAUNCHES = ByStyle("scans", cpu=_cpu, gpu=_gpu, triton=_triton)
