"""Scans: for every element along one dimension, what all elements up to it make together.

A line is what lies along the dimension; in reverse it is walked from its end, which is a matter of strides. Schedules
of a CPU: `rows` (vectors along a line: within a vector each lane takes in those before it, and the vector what came
before it), `columns` (vectors across neighbouring lines), `short` (lines of 2 to 8 elements, one after the other: as
many as compilers make vectors of) and `general` (an element at a time). Of a GPU: `group` (a work-group goes along a
line, or several) and `general` (a work-item a line). With fewer lines than the device has work-items for, lines are cut
into shares: one launch makes every share's total, and the one that writes results begins each share with the totals of
those before it. No schedule uses atomics: the same call gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, NotSupported, ShapeError
from ..layout import broadcast, collapse, expand_strides, normalize_dim, pack_longs, split
from ..schedules import Choice, choose
from . import Planned, Request, slot
from .pointwise import _CLASSES, compute_dtype, elementwise_parts
from .reduction import LIMITS, WIDE, is_bool, result_of, state_bytes, state_slot, vector_defines

__all__ = ["Lines", "plan", "schedule"]

_SHORT, _LEAST_SHORT = 8, 256  # elements at most of lines, and how many lines, that have a schedule of their own
_LAST = {2: "s1", 4: "s3", 8: "s7", 16: "sf"}  # a vector's last lane
_TURNED = {2: "s10", 4: "s3210", 8: "s76543210", 16: "sfedcba9876543210"}  # and its lanes from last to first


def plan(request: Request) -> Planned:
    """Results' layouts and the launches of a scan."""
    record = request.record
    for operand, given in zip(record.operands, request.operands, strict=True):
        if operand.role == "tensor" and not isinstance(given, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    dim = normalize_dim(request.static("dim"), len(shape), request.where())  # type: ignore[arg-type]
    computed = _computed(request)
    outputs = request.into or tuple(
        meta(result_of(request, o.result, computed), shape, None, request.device) for o in record.outputs
    )
    for given in outputs:
        if given.shape != shape:
            raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(given.shape)}")
    if not outputs[0].numel:
        return Planned(outputs)
    lines = _lines(request, shape, dim, outputs)
    element = "uchar" if computed is dtypes.bool_ else computed.compute
    if request.capabilities.style == "triton":
        from .triton.scan import steps as of_triton

        return Planned(outputs, *of_triton(request, outputs, lines, element))
    return Planned(outputs, *(_gpu if request.capabilities.style == "gpu" else _cpu)(request, outputs, lines, element))


def schedule(request: Request, lines: Lines) -> Choice:
    """What is chosen for a scan."""
    main = request.tensors[lines.main][1]
    return choose(request, "scan", {"lines": lines.number, "count": lines.count}, main.dtype.name)


def _static(request: Request, name: str, default: object) -> object:
    return request.static(name) if name in request.record.statics else default


def _computed(request: Request) -> DType:
    """The dtype that states are calculated in; for half types, what kernels convert them to."""
    record = request.record
    wanted = _static(request, "dtype", None)
    if wanted is not None:
        found = dtypes.parse(wanted)
        if found.kind not in _CLASSES[record.dtypes]:
            raise DTypeError(f"{request.where()}: takes {record.dtypes} dtypes, so dtype cannot be {found.name}")
    else:
        found = compute_dtype(request)
    if record.outputs[0].result == "accumulate":
        if wanted is None:
            return dtypes.accumulator(found)
        if found.kind == "b":
            raise NotSupported(f"{request.where()}: has no results of bool; use dtype=int64 and compare them")
    return found


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines along the dimension: how many elements each has, and where they lie.

    kept, kept_strides: the merged other dimensions, of rank 1 at least, and the strides of inputs and results along
    them. begin, along: for each of these where a line begins and how far its elements are apart, in elements. main: the
    input whose order counts. backwards: lines are walked from their end, which `begin` and `along` say already.
    """

    count: int
    kept: tuple[int, ...]
    kept_strides: tuple[tuple[int, ...], ...]
    begin: tuple[int, ...]
    along: tuple[int, ...]
    main: int
    backwards: bool

    @property
    def number(self) -> int:
        """How many lines there are."""
        return prod(self.kept)


def _lines(request: Request, shape: tuple[int, ...], dim: int, outputs: tuple[Meta, ...]) -> Lines:
    tensors = [m for _, m in request.tensors]
    strides = [expand_strides(m, shape) for m in tensors] + [m.strides for m in outputs]
    rest = [d for d in range(len(shape)) if d != dim]
    kept, merged = collapse(tuple(shape[d] for d in rest), [tuple(s[d] for d in rest) for s in strides])
    if not kept:
        kept, merged = (1,), [(0,)] * len(strides)
    count = shape[dim] if shape else 1
    along = [s[dim] if count > 1 else 0 for s in strides]
    backwards = bool(_static(request, "reverse", False))
    begin = [(count - 1) * a if backwards else 0 for a in along]
    main = max(range(len(tensors)), key=lambda i: tensors[i].numel)
    signed = tuple(-a if backwards else a for a in along)
    return Lines(count, kept, tuple(merged), tuple(begin), signed, main, backwards)


@dataclass(frozen=True, slots=True)
class _Launch:
    """One schedule, laid out. chunk: what a work-item does of the lines, of a row of them, and of a line's elements.

    size: work-items, without those along the shares, which are the last dimension of the launch.
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
    """The launch that writes results; if lines are cut, before it the one of the totals, with the bytes of these."""
    record = request.record
    text = record.texts[request.device.driver.target]
    inputs = tuple(slot(m, o.type) for o, m in request.tensors)
    results = tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    states = tuple(state_slot(t, element) for t in record.detail["fields"])
    numbers = tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))
    head = (lines.number, lines.count, *launch.chunk, *lines.begin, *lines.along, *lines.kept)
    geometry = pack_longs((*head, *(s for each in lines.kept_strides for s in each)))
    lowest, highest = ("0", "1") if element == "uchar" and is_bool(request) else LIMITS[element]

    def step(slots: tuple[Slot, ...], buffers: tuple[int, ...], shares: int, mode: str) -> Step:
        defines = (
            (f"SCHEDULE_{launch.entry.upper()}", "1"), *launch.defines, *(((mode, "1"),) if mode else ()),
            ("BUFFERS", str(len(slots))), ("KEPT", str(len(lines.kept))), ("REVERSED", str(int(lines.backwards))),
            ("LOWEST", lowest), ("HIGHEST", highest),
        )  # fmt: skip
        name = f"{record.name}_{launch.entry}"
        made = Instance(record.name, text.source, name, element, launch.lanes, slots, defines, text.functions)
        work = lines.number * lines.count
        return Step(made, buffers, geometry, (*launch.size, shares), launch.local, work, numbers)

    first, count = len(inputs), len(inputs) + len(results)
    everything = tuple(range(count))
    if launch.shares == 1:
        return (step(inputs + results, everything, 1, ""),), ()
    totals = tuple(range(count, count + len(states)))
    before = step(inputs + states, (*everything[:first], *totals), launch.shares - 1, "TOTALS")
    after = step(inputs + results + states, (*everything, *totals), launch.shares, "CARRIED")
    bytes_each = [state_bytes(t, element) * (launch.shares - 1) * lines.number for t in record.detail["fields"]]
    return (before, after), tuple(bytes_each)


def _lanes(request: Request, lines: Lines, element: str) -> int:
    """Width of this op's vectors; 1 where they cannot hold its states."""
    lanes = request.capabilities.lanes
    if element in ("double", "long"):
        lanes //= 2
    record = request.record
    indexed = record.detail["indexed"] or "index" in record.detail["fields"]
    indexed = indexed or any(o.type == "index" for o, _ in request.tensors)
    return 1 if indexed and (element not in WIDE or lines.count >= 2**31) else lanes


def _shares(lines: Lines, wanted: int, least: int, quantum: int = 64) -> tuple[int, int]:
    """(elements, number) of the shares into which lines are cut."""
    return split(lines.count, max(1, min(wanted, lines.count // least)), quantum)


def _cpu(
    request: Request, outputs: tuple[Meta, ...], lines: Lines, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    able = request.capabilities
    chosen = schedule(request, lines)
    least = chosen["least"]
    lanes = _lanes(request, lines, element)
    parts = elementwise_parts(lines.number * lines.count, able.cores, chosen["parts"])
    given = len(request.tensors)
    beside = [s[-1] for s in lines.kept_strides]
    ways = [abs(a) for a in lines.along]
    one = (1, 1, 1)
    if _are_short(lines):
        chunk, items = split(lines.number, parts)
        row = (("ROW", str(lines.count)), ("FRESH", str(int(request.into is None))))
        launch = _Launch("short", (chunk, 0, lines.count), 1, (items,), one[:2], 1, row)
        return _steps(request, outputs, lines, element, launch)
    if lanes > 1 and lines.count >= lanes and ways[lines.main] <= 1 and ways[given] == 1:
        forward = -1 if lines.backwards else 1
        chunk, items = split(lines.number, parts)
        run, shares = _shares(lines, -(-min(parts, able.cores) // items), least, lanes)
        classes = [0 if a == 0 else 1 if a == forward else 2 for a in lines.along]  # a flipped operand is strided
        defines = [*_vectors(lanes, lines.backwards), *((f"CLASS{i}", str(c)) for i, c in enumerate(classes))]
        if lines.count % lanes == 0:  # every line begins at a whole vector, as such stores do
            defines += _streamed(request, outputs, element, given)
        launch = _Launch("rows", (chunk, 0, run), shares, (items,), one[:2], lanes, tuple(defines))
        return _steps(request, outputs, lines, element, launch)
    width = lines.kept[-1]
    flat = all(b == 1 for b in beside[given:]) and all(b in (0, 1) for b in beside[:given])
    if lanes > 1 and width >= lanes and flat:
        chunk, items = split(lines.number // width, parts)
        columns, pieces = split(width, -(-min(parts, able.cores) // items), 4 * lanes)
        run, shares = _shares(lines, -(-min(parts, able.cores) // (items * pieces)), max(least // width, 64))
        defines = [*_vectors(lanes, False), *((f"CLASS{i}", str(b)) for i, b in enumerate(beside[:given]))]
        defines += [("TILE", str(chosen["tile"]))]
        launch = _Launch("columns", (chunk, columns, run), shares, (items, pieces), one, lanes, tuple(defines))
        return _steps(request, outputs, lines, element, launch)
    along_first = lines.number == 1 or ways[lines.main] <= abs(beside[lines.main])
    tile = 1 if along_first else chosen["tile"]
    chunk, items = split(lines.number, parts, tile)
    run, shares = _shares(lines, -(-min(parts, able.cores) // items), max(least // lines.number, 64))
    general = (("TILE", str(tile)), ("GROUP", "1"))
    launch = _Launch("general", (chunk, 0, run), shares, (items,), one[:2], 1, general)
    return _steps(request, outputs, lines, element, launch)


def _are_short(lines: Lines) -> bool:
    """Whether lines are few elements each and lie one after the other."""
    return (
        1 < lines.count <= _SHORT
        and lines.number >= _LEAST_SHORT
        and all(s == (lines.count,) for s in lines.kept_strides)
        and set(lines.along) == {-1 if lines.backwards else 1}
    )


def _vectors(lanes: int, backwards: bool) -> list[tuple[str, str]]:
    turned = f"(v).{_TURNED[lanes]}" if backwards else "(v)"
    return [*vector_defines(lanes)[:2], ("LAST", _LAST[lanes]), ("TURN(v)", turned)]


def _streamed(request: Request, outputs: tuple[Meta, ...], element: str, first: int) -> list[tuple[str, str]]:
    """The results that are stored past the caches: those that these would not hold anyway."""
    found = []
    for i, layout in enumerate(outputs):
        plain = layout.dtype.storage == element and layout.dtype is not dtypes.bool_ and layout.contiguous
        if request.into is None and plain and layout.nbytes >= request.capabilities.stream:
            found.append((f"STREAM{first + i}", "1"))
    return found


def _gpu(
    request: Request, outputs: tuple[Meta, ...], lines: Lines, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    able = request.capabilities
    chosen = schedule(request, lines)
    number, count = lines.number, lines.count
    beside = lines.kept_strides[lines.main][-1] == 1 and lines.kept[-1] >= 16 and abs(lines.along[lines.main]) != 1
    if beside or count < 4:
        group = min(64, able.max_group)
        run, shares = _shares(lines, able.cores * chosen["items"] // number, 64, 1)
        defines = (("TILE", "1"), ("GROUP", str(group)))
        size = (-(-number // group) * group,)
        return _steps(
            request, outputs, lines, element, _Launch("general", (1, 0, run), shares, size, (group, 1), 1, defines)
        )
    state = sum(state_bytes(t, element) for t in request.record.detail["fields"])
    group = 1
    while group * 2 <= min(chosen["group"], able.max_group) and group * 2 * state <= able.local_memory:
        group *= 2
    deep = 1
    while deep < group and deep < count:
        deep *= 2
    groups = -(-number // (group // deep))
    run, shares = _shares(lines, max(1, 4 * able.cores // groups), 8 * deep, deep)
    defines = (("DEEP", str(deep)), ("GROUP", str(group)))
    launch = _Launch("group", (1, 0, run), shares, (groups * group,), (group, 1), 1, defines)
    return _steps(request, outputs, lines, element, launch)
