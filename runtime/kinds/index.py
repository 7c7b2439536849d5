"""Index ops: reading and writing at places that an integer tensor names (see `codegen.kinds.index` for the patterns).

Reading is a copy with one indirection: schedules `rows` (CPU: a row of the result at once, in vectors where one index
stands for a whole row) and `grid` (GPU: an element a work-item). Writing is deterministic without atomics: a work-item
owns elements of the result (those at its coordinates beside the indexed dimensions; on a GPU of a range of positions
along these), walks all indices in order and takes what is its own. Elements are moved as raw bits, except where they
meet what is there. (On a CPU ranges do not pay: that an index is somebody else's cannot be predicted, which costs more
than the second core brings.) With `misses`, work-items on a CPU tell whether they met an index out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from .. import dtypes
from ..backends.protocol import Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import collapse, pack_longs, split
from ..program import iota
from ..records import registry
from ..schedules import Choice, choose
from . import Planned, Request, planner, slot
from .index_access import Access, along_dim, check_total, lanes_of, merge_in_order, merged_dims, step
from .index_bags import bag_of, bag_sums
from .index_masks import mask_counts, mask_positions
from .pointwise import elementwise_parts
from .triton import index as triton

__all__ = ["borrowed", "plan"]

_READERS, _WRITERS = 128, 64  # work-items of a group of a GPU
_TOLD_SLOT = Slot("int64", "index")
_BOARD = 16384  # bytes of a row that is made in private memory, and then stored at once


def plan(request: Request) -> Planned:
    """Result's layout and the launches of an index op."""
    for operand, given in zip(request.record.operands, request.operands, strict=True):
        if not isinstance(given, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
        if operand.type == "index" and given.dtype.kind not in "ui":
            raise DTypeError(f"{request.where()}: {operand.name} must hold integers, not {given.dtype.name}")
    return _PATTERNS[str(request.record.detail["index"])](request)


# Reading


def _read(request: Request, access: Access) -> Planned:
    whole, index = request.operands
    assert isinstance(whole, Meta)
    assert isinstance(index, Meta)
    out = (request.into or (meta(whole.dtype, access.shape, None, request.device),))[0]
    if out.shape != access.shape:
        raise ShapeError(f"{request.where()}: the result has shape {list(access.shape)}, out has {list(out.shape)}")
    check_total(request, access)
    if not out.numel:
        return Planned((out,))
    sizes, strides = collapse(access.shape, [access.beside, access.index, out.strides])
    if not sizes:
        sizes, strides = (1,), [(0,)] * 3
    able = request.capabilities
    raw = dtypes.raw(whole.dtype)
    slots: tuple[Slot, ...] = (Slot(raw.name, "raw"), slot(index, "index"), Slot(raw.name, "raw"))
    inner, numel = sizes[-1], out.numel
    rows = numel // inner
    places = merge_in_order(access.sizes, [access.strides])
    if able.style == "triton":
        along = (places[0], places[1][0])
        return Planned((out,), (triton.read_step(request, raw.compute, slots, sizes, strides, along, access.total),))
    defines = [("OUTER", str(len(sizes) - 1)), ("ALONG", str(len(places[0])))]
    one = strides[1][-1] == 0
    lanes = lanes_of(request, raw.compute)
    vector = one and strides[0][-1] == strides[2][-1] == 1 and inner >= lanes > 1
    tells = _tells(request)
    defines.append(("MISSES", str(int(tells))))
    if able.style == "cpu":
        apart = strides[0][-1]
        neighbours = strides[1][-1] == strides[2][-1] == 1 and apart in (0, 1)
        stream = neighbours and _streams(request, out, inner, lanes)
        reach = access.total * abs(places[1][0][0]) + lanes
        together = neighbours and inner >= lanes > 1 and len(places[0]) == 1 and raw.itemsize >= 4 and reach < 2**31
        defines += [("ONE_INDEX", str(int(one))), ("VECTOR", str(int(vector)))]
        defines += [("STREAM", str(int(stream))), ("APART", str(apart))] if stream or together else []
        if together:
            straight = 0 if stream else raw.itemsize  # gathers beside streaming stores take five times as long
            defines += [("TOGETHER", "1"), ("STRAIGHT", str(straight)), ("IOTA", iota("L", lanes))]
    tables = [*places[0], *places[1][0], *(s for each in strides for s in each), *sizes[:-1]]
    if able.style == "gpu":
        chosen = _chosen(request, raw, numel, access.total)
        local = min(chosen["group"] or _READERS, able.max_group)
        geometry = pack_longs((rows, inner, 1, 1, access.total, *tables))
        size: tuple[int, ...] = (-(-numel // local) * local,)
        return Planned(
            (out,), (step(request, "grid", raw.compute, 1, slots, defines, geometry, size, (local,), numel),)
        )
    parts = elementwise_parts(numel, able.cores)
    row_chunk, row_items = split(rows, parts)
    chunk, items = split(inner, -(-parts // row_items), 64)
    geometry = pack_longs((rows, inner, row_chunk, chunk, access.total, *tables))
    size = (row_items, items)
    slots += (_TOLD_SLOT,) if tells else ()
    lanes = lanes if vector or stream or together else 1
    found = (out, *_told(request, row_items * items))
    return Planned(found, (step(request, "rows", raw.compute, lanes, slots, defines, geometry, size, (1, 1), numel),))


def _tells(request: Request) -> bool:
    """Whether work-items are to tell if they met an index out of range: where that is asked for, on CPUs."""
    statics = dict(zip(request.record.statics, request.statics, strict=False))
    return bool(statics.get("misses")) and request.capabilities.style == "cpu"


def _told(request: Request, items: int) -> tuple[Meta, ...]:
    """The layout of what so many work-items tell, where that is wanted."""
    return (meta(dtypes.int64, (items,), None, request.device),) if _tells(request) else ()


def _streams(request: Request, out: Meta, row: int, lanes: int) -> bool:
    """Whether whole vectors of a result in one piece, row by row, may bypass the caches."""
    fresh = request.into is None and out.contiguous and out.nbytes >= request.capabilities.stream
    return fresh and lanes > 1 and row * out.dtype.itemsize % 64 == 0


def _chosen(request: Request, dtype: DType, numel: int, total: int) -> Choice:
    """The schedule of a launch on a GPU: of `numel` elements that are read or written at `total` places."""
    return choose(request, "index", {"numel": numel, "total": total}, dtype.name)


def _gather(request: Request) -> Planned:
    whole, index = request.operands
    return _read(request, along_dim(request, whole, index))  # type: ignore[arg-type]


def _take(request: Request) -> Planned:
    whole, index = request.operands
    return _read(request, merged_dims(request, whole, index))  # type: ignore[arg-type]


# Writing


def _write(
    request: Request,
    out: Meta,
    access: Access,
    source: Meta,
    index: Meta,
    buffers: tuple[int, ...],
    sums: Meta | None = None,
    prepare: int = 0,
) -> list[Step]:
    """The launch that writes or adds `source`; buffers: of index, source and result, in whose place may be `sums`.

    prepare: what the launch itself does to the result before, in the rows schedule (see the kernel): 0, 1 or 2.
    """
    if source.shape != access.shape:
        raise ShapeError(
            f"{request.where()}: source has shape {list(source.shape)}, the places to write {list(access.shape)}"
        )
    if source.dtype is not out.dtype:
        raise DTypeError(
            f"{request.where()}: source is {source.dtype.name}, the result {out.dtype.name}; convert it with .to()"
        )
    check_total(request, access)
    if not source.numel:
        return []
    meets = request.record.detail["does"] != "write"
    stored = out.dtype if meets else dtypes.raw(out.dtype)
    element = stored.compute
    kind = "value" if meets else "raw"
    slots: tuple[Slot, ...] = (
        slot(index, "index"), Slot(stored.name, kind), Slot((sums.dtype if sums else stored).name, kind)
    )  # fmt: skip
    ndim = len(access.shape)
    every = [access.index, source.strides, access.beside]
    beside = [d for d in range(ndim) if d not in access.walked]
    sizes, strides = collapse(tuple(access.shape[d] for d in beside), [tuple(s[d] for d in beside) for s in every])
    steps, steps_strides = merge_in_order(
        tuple(access.shape[d] for d in access.walked), [tuple(s[d] for d in access.walked) for s in every[:2]]
    )
    single = not sizes or strides[2][-1] != 1
    if single:  # walk the indices innermost: each coordinate beside them is a row of one element
        sizes, strides = (*sizes, 1), [(*s, 0) for s in strides]
    inner, rows, walk = sizes[-1], prod(sizes[:-1]), prod(steps)
    places = merge_in_order(access.sizes, [access.strides])
    if request.capabilities.style == "triton":
        along, walked = (places[0], places[1][0]), (steps, steps_strides[0], steps_strides[1])
        return [
            triton.write_step(request, element, slots, sizes, strides, along, walked, access.total, buffers)
        ]
    one = strides[0][-1] == 0
    lanes = lanes_of(request, element)
    vector = 0 if single or not one or not inner >= lanes > 1 else {1: 1, 0: 2}.get(strides[1][-1], 0)
    defines = [("OUTER", str(len(sizes) - 1)), ("ALONG", str(len(places[0]))), ("STEPS", str(len(steps)))]
    defines.append(("MISSES", str(int(_tells(request)))))
    if request.capabilities.style == "gpu":
        defines.append(("PREPARE", "0"))
    tables = [*places[0], *places[1][0], *(s for each in strides for s in each), *steps,
              *(s for each in steps_strides for s in each), *sizes[:-1]]  # fmt: skip
    able, total, numel = request.capabilities, access.total, source.numel
    if able.style == "gpu":
        chosen = _chosen(request, stored, numel, total)
        local = min(chosen["group"] or _WRITERS, able.max_group)
        wanted = able.cores * chosen["items"] // max(rows * inner, 1)
        reach, ranges = split(total, max(1, min(wanted, total)))
        geometry = pack_longs((rows, inner, 1, 1, total, reach, walk, *tables))
        size: tuple[int, ...] = (-(-rows * inner // local) * local, ranges)
        return [step(request, "grid", element, 1, slots, defines, geometry, size, (local, 1), numel, buffers)]
    defines += [("ONE_INDEX", str(int(one))), ("SINGLE", str(int(single))), ("VECTOR", str(vector))]
    defines += [("PREPARE", str(prepare))]
    board = False
    if prepare:
        numel = max(numel, rows * total)
        slots = (*slots, slots[2]) if prepare == 2 else slots
        plain = (stored.storage == element and stored.kind in "ui") or stored.name in ("float32", "float64")
        board = plain and len(steps) == 1 and total * stored.itemsize <= _BOARD
        board = board and _streams(request, out, total, lanes)
        if board:
            defines += [("BOARD", str(_BOARD // stored.itemsize))]
    parts = min(elementwise_parts(numel, able.cores), able.cores)
    row_chunk, row_items = split(rows, parts)
    chunk, items = split(inner, parts // row_items, 64)
    geometry = pack_longs((rows, inner, row_chunk, chunk, total, total, walk, *tables))
    size = (row_items, items)
    slots += (_TOLD_SLOT,) if _tells(request) else ()
    lanes = lanes if vector or board else 1
    return [step(request, "rows", element, lanes, slots, defines, geometry, size, (1, 1), numel, buffers)]


def _prepares(request: Request, out: Meta, access: Access, source: Meta, whole: Meta | None) -> bool:
    """Whether a launch that walks each row's indices may copy the row of `whole`, or zeros, to the result before.

    Rows must lie in one piece and be all there; then a row is written while it is near, and not once more. Of a single
    row there is nothing to gain.
    """
    if request.capabilities.style != "cpu" or not out.contiguous or not (whole is None or whole.contiguous):
        return False
    rows = prod(n for d, n in enumerate(access.shape) if d not in access.walked)
    ordered = len(access.walked) == 1 and access.strides == (1,) and source.numel > 0
    return ordered and rows > 1 and access.total > 1 and rows * access.total == out.numel


def borrowed(
    request: Request, op: str, layout: Meta, out: Meta, statics: tuple[object, ...], buffers: tuple[int, int]
) -> list[Step]:
    """The launch of a pointwise op of one operand, on other buffers."""
    inner = Request(registry[op], (layout,), statics, request.device, (out,))
    return [replace(s, buffers=buffers) for s in planner("pointwise")(inner).steps]


def _update(request: Request, reach: Callable[[Request, Meta, Meta], Access]) -> Planned:
    """A copy of the input, unless it is written in place, and then the writes to what `reach` gives of the result."""
    whole, index, source = request.operands
    assert isinstance(whole, Meta)
    assert isinstance(index, Meta)
    assert isinstance(source, Meta)
    out = request.into[0] if request.into else meta(whole.dtype, whole.shape, None, request.device)
    if out.shape != whole.shape or out.dtype is not whole.dtype:
        raise ShapeError(f"{request.where()}: the result is written in place of input")
    sums = _sums(request, out, source)
    told = (4,) if _tells(request) else ()
    if sums is not None:
        own = 4 + len(told)
        steps = borrowed(request, "copy", whole, sums, (sums.dtype,), (0, own))
        writes = _write(request, out, reach(request, sums, index), source, index, (1, 2, own, *told), sums)
        steps += [*writes, *borrowed(request, "copy", sums, out, (out.dtype,), (own, 3))]
        return Planned((out, *_told(request, prod(writes[0].global_size))), tuple(steps), (sums.nbytes,))
    access = reach(request, out, index)
    if not request.into and _prepares(request, out, access, source, whole):
        writes = _write(request, out, access, source, index, (1, 2, 3, 0, *told), None, 2)
        return Planned((out, *_told(request, prod(writes[0].global_size))), tuple(writes))
    steps = [] if request.into or not out.numel else borrowed(request, "copy", whole, out, (None,), (0, 3))
    writes = _write(request, out, access, source, index, (1, 2, 3, *told))
    items = prod(writes[0].global_size) if writes else 0
    return Planned((out, *_told(request, items)), (*steps, *writes))


def _sums(request: Request, out: Meta, source: Meta) -> Meta | None:
    """The layout in which half types are added and multiplied, float32: each sum is rounded once, not every step."""
    if request.record.detail["does"] not in ("add", "multiply"):
        return None
    if out.dtype.kind != "f" or out.dtype.itemsize != 2 or not out.numel or not source.numel:
        return None
    return meta(dtypes.float32, out.shape, None, request.device)


def _scatter(request: Request) -> Planned:
    return _update(request, along_dim)


def _put(request: Request) -> Planned:
    return _update(request, merged_dims)


def _fresh(request: Request) -> Meta:
    source = request.operands[0]
    assert isinstance(source, Meta)
    return meta(source.dtype, tuple(request.static("shape")), None, request.device)  # type: ignore[arg-type]


def _spread(request: Request) -> Planned:
    return _add_to_zeros(request, _fresh(request), along_dim)


def _spread_taken(request: Request) -> Planned:
    return _add_to_zeros(request, _fresh(request), merged_dims)


def _add_to_zeros(request: Request, out: Meta, reach: Callable[[Request, Meta, Meta], Access]) -> Planned:
    source, index = request.operands
    assert isinstance(source, Meta)
    assert isinstance(index, Meta)
    access = reach(request, out, index)
    if not out.numel:
        return Planned((out,))
    sums = _sums(request, out, source)
    if sums is not None:
        steps = borrowed(request, "zero_like", sums, sums, (), (3, 3))
        steps += _write(request, out, reach(request, sums, index), source, index, (1, 0, 3), sums)
        steps += borrowed(request, "copy", sums, out, (out.dtype,), (3, 2))
        return Planned((out,), tuple(steps), (sums.nbytes,))
    if _prepares(request, out, access, source, None):
        return Planned((out,), tuple(_write(request, out, access, source, index, (1, 0, 2), None, 1)))
    steps = borrowed(request, "zero_like", out, out, (), (2, 2))
    steps += _write(request, out, access, source, index, (1, 0, 2))
    return Planned((out,), tuple(steps))


_PATTERNS = {
    "gather": _gather, "take": _take, "spread": _spread, "spread_taken": _spread_taken,
    "bags": bag_of, "bag_sums": bag_sums,
    "mask_counts": mask_counts, "mask_positions": mask_positions,
    **{f"scatter{ending}": _scatter for ending in ("", "_add", "_multiply", "_maximum", "_minimum")},
    **{f"put{ending}": _put for ending in ("", "_add", "_multiply", "_maximum", "_minimum")},
}  # fmt: skip
