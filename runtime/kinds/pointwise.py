"""Plan pointwise ops: each element of a result depends on the operands' elements at the same, broadcast, index.

Schedules:

- `contiguous` (CPU): no strides at all; a work-item takes a run of elements, vectorised.
- `rows` (CPU): any strides; the innermost dimension is vectorised, an odometer counts through the others.
- `tiles` (CPU): an operand is contiguous in another dimension than the result, such as a transposed matrix; square
  tiles are transposed in registers.
- `grid` (GPU): contiguous; one vector per work-item.
- `grid_strided` (GPU): any strides; one element per work-item.

Read next: `layout.collapse`, which merges dimensions, and `templates/opencl/pointwise.cl.j2`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Instance, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..layout import (
    broadcast,
    channels_last_strides,
    collapse,
    expand_strides,
    pack_longs,
    preserved_strides,
    split,
)  # fmt: skip
from ..schedules import Choice, choose
from . import Planned, Request
from .elementwise import COSTS, Operands, compute_dtype, elementwise_parts, operands_of, result_dtype, stride_classes

__all__ = ["LAUNCHES", "plan", "step"]

_MAX_PERIOD_VECTORS = 4  # longest row, in vectors, that is merged with its neighbours into one long row
_BLOCK_ELEMENTS = 4096  # elements of rows that share cache lines, processed before the next block of rows


def plan(request: Request) -> Planned:
    """Plan a pointwise op: the layouts of its results, and one launch.

    Raises:
        ShapeError: if operands do not broadcast, or `out` has another shape.
        DTypeError: if `out` has a lower dtype category than the result.
        UnsupportedDType: if the op does not take the operands' common dtype.
    """
    record = request.record
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    common_dtype = compute_dtype(request)
    outputs = request.into or tuple(
        meta(result_dtype(o, common_dtype, request), shape, _new_output_strides(request, shape), request.device)
        for o in record.outputs
    )
    for layout, output in zip(outputs, record.outputs, strict=True):
        if layout.shape != shape:
            raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(layout.shape)}")
        if request.into and "dtype" not in record.statics:  # an op with a `dtype` argument is a conversion
            _check_castable(layout.dtype, result_dtype(output, common_dtype, request), request)
    if not outputs[0].numel:
        return Planned(outputs)
    return Planned(outputs, (step(request, outputs, shape, common_dtype),))


def _check_castable(target: DType, computed: DType, request: Request) -> None:
    """Raise `DTypeError` if `computed` has a higher category (bool < integer < floating) than `target`."""
    if not dtypes.can_store(target, computed):
        raise DTypeError(
            f"{request.where()}: the result is {computed.name} and cannot be written to {target.name}; "
            f"convert with .to({computed.name}) first, or use the form that makes a new tensor"
        )


def _new_output_strides(request: Request, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides of a new result in the operands' memory order; None means contiguous."""
    layout = request.record.detail.get("layout")
    if layout is not None:
        return channels_last_strides(shape) if layout == "channels_last" else None
    return preserved_strides([m for _, m in request.tensors], shape)


def step(request: Request, outputs: tuple[Meta, ...], shape: tuple[int, ...], common_dtype: DType) -> Step:
    """Choose a schedule and build the launch that computes `outputs` of the broadcast `shape`."""
    operands = operands_of(request, outputs, common_dtype)
    zero_strides = (0,) * len(shape)
    sizes, strides = collapse(
        shape, [zero_strides if m is None else expand_strides(m, shape) for m in operands.layouts]
    )
    element = "uchar" if common_dtype is dtypes.bool_ else common_dtype.compute
    launch = LAUNCHES[request.capabilities.style](request, operands, sizes, strides, outputs, element, common_dtype)
    has_wrapping_numbers = operands.numbers and request.record.detail.get("wraps") and common_dtype.kind in "ui"
    return replace(launch, wraps=True) if has_wrapping_numbers else launch


def _opencl_step(
    request: Request, operands: Operands, sizes: tuple[int, ...], strides: list[tuple[int, ...]],
    outputs: tuple[Meta, ...], element: str, common_dtype: DType,
) -> Step:  # fmt: skip
    """Choose an OpenCL schedule, and build its launch."""
    caps = request.capabilities
    params = choose(request, "pointwise", {"numel": outputs[0].numel}, common_dtype.name)
    lanes = caps.elementwise_lanes(8 if element in ("double", "long") else 4, params["width"])
    is_flat = len(sizes) <= 1 and all(s in ((), (0,), (1,)) for s in strides)
    if is_flat and all(s in ((), (1,)) for s in strides[-len(outputs) :]):
        return _flat(request, operands, strides, outputs, element, lanes, params)
    return _strided(request, operands, sizes, strides, outputs, element, lanes, params)


def _instance(
    request: Request, operands: Operands, entry: str, element: str, lanes: int, defines: tuple[tuple[str, str], ...]
) -> Instance:
    """Return the kernel of a schedule."""
    text = request.text
    name = request.record.name
    value_layouts = [
        m for m, o in zip(operands.layouts, request.record.operands, strict=False) if o.type == "value" and m
    ]
    is_bool = element == "uchar" and all(m.dtype is dtypes.bool_ for m in value_layouts)
    all_defines = (
        (f"SCHEDULE_{entry.upper()}", "1"), *operands.defines, *defines, *((("WG_BOOL", "1"),) if is_bool else ())
    )  # fmt: skip
    return Instance(name, text.source, f"{name}_{entry}", element, lanes, operands.slots, all_defines, text.functions)


def _work(request: Request, numel: int, element: str) -> int:
    """Estimate the work (see `Step`) of computing `numel` elements with vectorised code, from the functions' costs."""
    functions = request.text.functions
    width_factor = 2 if element in ("double", "long") else 1
    return numel * width_factor * (1 + sum(COSTS.get(name, 4) for name in functions)) // 4


def _should_stream(request: Request, output: Meta, element: str, params: Choice, *, allow_copy: bool) -> bool:
    """Return True if a result should be written with non-temporal stores.

    It must be large, and stored in the compute dtype. It must also be new memory, because an op often reads the `out`
    tensor that it writes to; `allow_copy` excepts the op `copy`.
    """
    is_existing = request.into is not None and not (allow_copy and request.record.name == "copy")
    if is_existing or output.nbytes < (params["min_streamed_nbytes"] or request.capabilities.stream):
        return False
    return output.dtype.storage == element and output.dtype is not dtypes.bool_


def _flat(
    request: Request,
    operands: Operands,
    strides: list[tuple[int, ...]],
    outputs: tuple[Meta, ...],
    element: str,
    lanes: int,
    params: Choice,
) -> Step:
    """Build the launch of `contiguous` or `grid`."""
    caps, numel = request.capabilities, outputs[0].numel
    classes = stride_classes(operands, strides)
    if not caps.takes_runs:
        local, items = min(params["group"], caps.max_group), -(-numel // lanes)
        instance = _instance(request, operands, "grid", element, lanes, classes)
        size = (-(-items // local) * local,)
        return Step(instance, operands.buffers, pack_longs((numel, lanes)), size, (local,), numel, operands.numbers)
    if _should_stream(request, outputs[0], element, params, allow_copy=True):
        classes += (("STREAM", "1"),)
    work = _work(request, numel, element)
    chunk, items = split(numel, elementwise_parts(max(numel, 4 * work), caps.cores, params["parts"]), 64)
    instance = _instance(request, operands, "contiguous", element, lanes, classes)
    return Step(instance, operands.buffers, pack_longs((numel, chunk)), (items,), (1,), work, operands.numbers)


def _strided(
    request: Request,
    operands: Operands,
    sizes: tuple[int, ...],
    strides: list[tuple[int, ...]],
    outputs: tuple[Meta, ...],
    element: str,
    lanes: int,
    params: Choice,
) -> Step:
    """Build the launch of a schedule with strides."""
    caps, numel = request.capabilities, outputs[0].numel
    if not sizes:
        sizes, strides = (1,), [(0,)] * len(strides)
    rank, inner = len(sizes) - 1, sizes[-1]
    if not caps.takes_runs:
        local = min(params["group"], caps.max_group)
        defines = (("OUTER", str(rank)), *stride_classes(operands, strides))
        instance = _instance(request, operands, "grid_strided", element, 1, defines)
        size = (-(-numel // local) * local,)
        geometry = pack_longs((numel // inner, inner, *sizes[:-1], *(x for s in strides for x in s)))
        return Step(instance, operands.buffers, geometry, size, (local,), numel, operands.numbers)
    parts = elementwise_parts(numel, caps.cores, params["parts"])
    transposed_dim = _find_transposed_dim(operands, sizes, strides, len(outputs), lanes)
    if transposed_dim is not None:
        return _tiles(request, operands, sizes, strides, transposed_dim, element, lanes, parts)
    return _rows(request, operands, sizes, strides, outputs, element, lanes, params)


def _rows(
    request: Request,
    operands: Operands,
    sizes: tuple[int, ...],
    strides: list[tuple[int, ...]],
    outputs: tuple[Meta, ...],
    element: str,
    lanes: int,
    params: Choice,
) -> Step:
    """Build the launch of `rows`. Merge short rows, or move a longer dimension innermost, where that is possible."""
    caps, numel = request.capabilities, outputs[0].numel
    parts = elementwise_parts(numel, caps.cores, params["parts"])
    sizes, strides, repeated = _merge_short_rows(request, operands, sizes, strides, lanes)
    rows_per_block = 1
    if not repeated:  # the last stride of a repeated operand is the size of its period, which no dimension may separate
        sizes, strides, rows_per_block = _move_long_dim_last(sizes, strides, lanes)
    inner, rank = sizes[-1], len(sizes) - 1
    rows = numel // inner
    row_chunk, row_items = split(rows // rows_per_block, parts)
    chunk, items = split(inner, -(-parts // row_items), 64)
    if rows_per_block > 1:  # the cache lines that rows share must stay in the L1 cache
        chunk, items = split(inner, -(-inner // min(chunk, _BLOCK_ELEMENTS // rows_per_block)), 64)
    classes = {name: int(kind) for name, kind in stride_classes(operands, strides)}
    classes |= {f"CLASS{i}": 5 for i in repeated}
    output_strides = strides[-len(outputs)]
    # Every vector of the result is aligned:
    is_aligned = output_strides[-1] == 1 and not any(n % lanes for n in (inner, *output_strides[:-1]))
    stream = is_aligned and _should_stream(request, outputs[0], element, params, allow_copy=False)
    if lanes in (4, 8, 16):  # a flipped operand is read in vectors, which are then reversed
        classes |= {f"CLASS{i}": 4 for i, s in enumerate(strides[: -len(outputs)]) if s[-1] == -1}
    defines = (("OUTER", str(rank)), *((name, str(kind)) for name, kind in classes.items()))
    defines += (("STREAM", "1"),) if stream else ()
    if repeated:
        defines += (("PERIOD", str(_MAX_PERIOD_VECTORS * lanes)), ("VU", f"{element}{lanes}_u"))
    instance = _instance(request, operands, "rows", element, lanes, defines)
    geometry = pack_longs(
        (rows, inner, row_chunk * rows_per_block, chunk, *sizes[:-1], *(x for s in strides for x in s))
    )
    is_vectorised = inner >= lanes and 2 not in classes.values() and 4 not in classes.values()
    work = _work(request, numel, element) if is_vectorised else max(numel, _work(request, numel, element))
    return Step(instance, operands.buffers, geometry, (row_items, items), (1, 1), work, operands.numbers)


def _merge_short_rows(
    request: Request, operands: Operands, sizes: tuple[int, ...], strides: list[tuple[int, ...]], lanes: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]], set[int]]:
    """Merge short rows that are contiguous, except for operands that repeat in every row, into one long row.

    Returns:
        Sizes, strides, and the positions of the repeated operands. Their last stride becomes the old row size.
    """
    if len(sizes) < 2 or sizes[-1] > _MAX_PERIOD_VECTORS * lanes or lanes < 4:
        return sizes, strides, set()
    row_size = sizes[-1]
    types = [o.type for o in request.record.operands if o.role not in ("scalar", "number")]
    repeated = {i for i, s in enumerate(strides) if s[-2:] == (0, 1)}
    is_mergeable = all(s[-2:] in ((row_size, 1), (0, 1), (0, 0)) for s in strides)
    if not is_mergeable or not repeated or any(i >= len(types) or types[i] != "value" for i in repeated):
        return sizes, strides, set()
    merged_strides = [(*s[:-2], row_size if i in repeated else s[-1]) for i, s in enumerate(strides)]
    return (*sizes[:-2], sizes[-2] * row_size), merged_strides, repeated


def _move_long_dim_last(
    sizes: tuple[int, ...], strides: list[tuple[int, ...]], lanes: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]], int]:
    """Move a long dimension innermost if the innermost one is much shorter than a vector.

    Otherwise the channels of a few pixels, or a column of pairs, would be processed element by element.

    Returns:
        Sizes, strides, and how many consecutive rows then share cache lines.
    """
    is_strided = any(s[-1] not in (0, 1) for s in strides)
    if sizes[-1] > (lanes // 2 if is_strided else lanes // 4) or max(sizes) < 2 * lanes:
        return sizes, strides, 1
    last = max(d for d, size in enumerate(sizes) if size >= 2 * lanes)
    order = [*(d for d in range(len(sizes)) if d != last), last]
    rows_per_block = math.prod(sizes[last + 1 :])
    if rows_per_block > _BLOCK_ELEMENTS // 64:  # cache lines would be evicted before the neighbouring rows use them
        return sizes, strides, 1
    return tuple(sizes[d] for d in order), [tuple(s[d] for d in order) for s in strides], rows_per_block


def _find_transposed_dim(
    operands: Operands, sizes: tuple[int, ...], strides: list[tuple[int, ...]], results: int, lanes: int
) -> int | None:
    """Return the dimension in which an operand is contiguous although it is strided in the innermost one, or None.

    The results must be contiguous in the innermost dimension, and both dimensions must fill a vector.
    """
    if lanes < 4 or sizes[-1] < lanes or any(s[-1] != 1 for s in strides[-results:]):
        return None
    for layout, buffer_strides in zip(operands.layouts[:-results], strides, strict=False):
        if layout is not None and buffer_strides[-1] not in (0, 1):
            dim = next((d for d, size in enumerate(sizes[:-1]) if buffer_strides[d] == 1 and size >= lanes), None)
            if dim is not None:
                return dim
    return None


def _tiles(
    request: Request,
    operands: Operands,
    sizes: tuple[int, ...],
    strides: list[tuple[int, ...]],
    transposed_dim: int,
    element: str,
    lanes: int,
    parts: int,
) -> Step:
    """Build the launch of `tiles`: `transposed_dim` becomes the second innermost dimension."""
    order = [*(d for d in range(len(sizes) - 1) if d != transposed_dim), transposed_dim, len(sizes) - 1]
    sizes = tuple(sizes[d] for d in order)
    strides = [tuple(s[d] for d in order) for s in strides]
    inner, rank = sizes[-1], len(sizes) - 1
    block = 4 * lanes
    numel = math.prod(sizes)
    blocks = numel // (sizes[-2] * inner) * -(-sizes[-2] // block)
    chunk, items = split(blocks, parts)
    columns, column_items = split(inner, -(-parts // items), block)
    transpose_defines = tuple((f"TURN{i}", "1") for i, s in enumerate(strides) if s[-2] == 1 and s[-1] not in (0, 1))
    functions = request.text.functions
    light_define = (("LIGHT", "1"),) if sum(COSTS.get(name, 4) for name in functions) <= 1 else ()
    defines = (("OUTER", str(rank)), *stride_classes(operands, strides), *transpose_defines, *light_define)
    instance = _instance(request, operands, "tiles", element, lanes, defines)
    table = [*sizes[:-1], *(x for s in strides for x in s)]
    geometry = pack_longs((sizes[-2], inner, blocks, chunk, columns, *table))
    work = max(numel, _work(request, numel, element))
    return Step(instance, operands.buffers, geometry, (items, column_items), (1, 1), work, operands.numbers)


def _triton_step(
    request: Request, operands: Operands, sizes: tuple[int, ...], strides: list[tuple[int, ...]],
    outputs: tuple[Meta, ...], element: str, common_dtype: DType,
) -> Step:  # fmt: skip
    """Build the launch for Triton."""
    from .triton import pointwise as triton  # lazy: Triton devices only

    return triton.step(request, operands, sizes, strides, element)


LAUNCHES = ByStyle("pointwise ops", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
