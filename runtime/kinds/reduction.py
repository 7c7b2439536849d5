"""Reductions: results from all elements along some dimensions.

The dimensions that are kept and those that are reduced are merged apart from each other, and walked as the largest
operand lies in memory. Schedules of a CPU: `rows` (a vector along the innermost reduced dimension), `columns` (vectors
along the innermost kept one), `short` (rows of few elements, one after the other), `abreast` (rows of one to eight
vectors, as many of them at once as a vector has lanes) and `general` (an element at a time: other short rows, and
states that vectors cannot hold).
Of a GPU: `tree` (a work-group makes one result, or several neighbouring ones, and joins its members' states in local
memory). With fewer results than the device has work-items for, each writes partial states, and `finish` (`tree_finish`)
joins them. No schedule uses atomics: the same call gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, IndexShapeError, ShapeError
from ..layout import broadcast, collapse, expand_strides, normalize_dims, pack_longs, split
from ..program import iota
from ..schedules import Choice, choose
from . import Planned, Request, slot
from .pointwise import _CLASSES, COSTS, compute_dtype, elementwise_parts

__all__ = [
    "LIMITS", "WIDE", "Walk", "is_bool", "plan", "result_of", "schedule", "state_bytes", "state_slot", "vector_defines",
]  # fmt: skip

_BLOCK = 4096  # elements after which a row's running states join the total: errors of a long sum stay small
_RUN = 256  # the same for the elements of one column
_SHORT, _LEAST_SHORT = 15, 256  # elements at most of rows, and how many rows, that have a schedule of their own
WIDE = frozenset(("float", "double", "int", "long"))  # elements whose vectors can hold positions
LIMITS = {
    "float": ("(-INFINITY)", "INFINITY"),
    "double": ("(-(double)INFINITY)", "((double)INFINITY)"),
    "char": ("(-128)", "127"),
    "uchar": ("0", "255"),
    "short": ("(-32768)", "32767"),
    "int": ("(-2147483647 - 1)", "2147483647"),
    "long": ("(-0x7fffffffffffffffL - 1)", "0x7fffffffffffffffL"),
}
_STATE_DTYPES = {"float": "float32", "double": "float64", "long": "int64", "int": "int32", "short": "int16",
                 "char": "int8", "uchar": "uint8"}  # fmt: skip
_STATE_BYTES = {"float": 4, "double": 8, "long": 8, "int": 4, "short": 2, "char": 1, "uchar": 1}


def plan(request: Request) -> Planned:
    """Results' layouts and the launches of a reduction."""
    record = request.record
    for operand, given in zip(record.operands, request.operands, strict=True):
        if operand.role == "tensor" and not isinstance(given, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    dims = _dims(request, len(shape))
    computed = _computed(request)
    shown = tuple(1 if d in dims else n for d, n in enumerate(shape))
    if not _static(request, "keepdim", False):
        shown = tuple(n for d, n in enumerate(shape) if d not in dims)
    outputs = request.into or tuple(
        meta(result_of(request, o.result, computed), shown, None, request.device) for o in record.outputs
    )
    for given, output in zip(outputs, record.outputs, strict=True):
        if given.shape != shown:
            raise ShapeError(f"{request.where()}: the result has shape {list(shown)}, out has {list(given.shape)}")
        if output.result == "float" and given.dtype.kind != "f":
            raise DTypeError(f"{request.where()}: the result is floating and cannot be written to {given.dtype.name}")
    if record.detail.get("empty") == "error":
        for d in dims:
            if not shape[d]:
                raise IndexShapeError(
                    f"{request.where()}: nothing to reduce: dimension {d} has no elements, and "
                    f"{record.called or record.name} has no value for none"
                )
    if not outputs[0].numel:
        return Planned(outputs)
    walk = _walk(request, shape, dims, outputs)
    element = "uchar" if computed is dtypes.bool_ else computed.compute
    if request.capabilities.style == "triton":
        from .triton.reduction import steps as of_triton

        return Planned(outputs, *of_triton(request, outputs, walk, element))
    steps, scratch = (_gpu if request.capabilities.style == "gpu" else _cpu)(request, outputs, walk, element)
    return Planned(outputs, steps, scratch)


def schedule(request: Request, walk: Walk) -> Choice:
    """What is chosen for a reduction; without what gradients read, as with it."""
    main, sizes = request.tensors[walk.main][1], {"results": walk.results, "count": walk.count}
    return choose(request, "reduction", sizes, main.dtype.name, request.record.called)


def _static(request: Request, name: str, default: object) -> object:
    return request.static(name) if name in request.record.statics else default


def _dims(request: Request, ndim: int) -> tuple[int, ...]:
    """The dimensions to reduce; all of them for None and, as in PyTorch, for an empty tuple."""
    given = _static(request, "dim", None)
    if isinstance(given, (tuple, list)) and not given:
        given = None
    return normalize_dims(given, ndim, request.where())  # type: ignore[arg-type]


def _computed(request: Request) -> DType:
    """The dtype that states are calculated in; for half types, what kernels convert them to."""
    record = request.record
    wanted = _static(request, "dtype", None)
    if wanted is not None:
        found = dtypes.parse(wanted)
        if (record.outputs[0].result == "float" and found.kind != "f") or found.kind not in _CLASSES[record.dtypes]:
            raise DTypeError(f"{request.where()}: cannot give {found.name}; dtype must be a floating type")
        return found
    found = compute_dtype(request)
    rules = {o.result for o in record.outputs if o.type == "value"}
    if "accumulate" in rules:
        return dtypes.accumulator(found)
    return dtypes.int64 if rules == {"index"} else found


def result_of(request: Request, rule: str, computed: DType) -> DType:
    """The dtype of a result by its rule, where `computed` is what states accumulate in."""
    if rule in ("promote", "float", "accumulate"):
        return computed
    if rule == "index":
        return dtypes.int64
    if rule.startswith("like:"):
        wanted = rule.removeprefix("like:")
        return next(m.dtype for o, m in request.tensors if o.name == wanted)
    return dtypes.BY_NAME[rule]


@dataclass(frozen=True, slots=True)
class Walk:
    """Merged dimensions: sizes of what is kept and reduced, and every buffer's strides along them.

    kept_strides: of inputs, then outputs. strides: of the inputs along what is reduced. Ranks are at least 1.
    """

    kept: tuple[int, ...]
    kept_strides: tuple[tuple[int, ...], ...]
    reduced: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    main: int  # the input whose order counts
    results: int = field(init=False)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "results", prod(self.kept))
        object.__setattr__(self, "count", prod(self.reduced))


def _walk(request: Request, shape: tuple[int, ...], dims: tuple[int, ...], outputs: tuple[Meta, ...]) -> Walk:
    tensors = [m for _, m in request.tensors]
    inputs = [expand_strides(m, shape) for m in tensors]
    main = max(range(len(tensors)), key=lambda i: tensors[i].numel)
    rest = [d for d in range(len(shape)) if d not in dims]
    ours = dims if outputs[0].ndim == len(shape) and len(rest) != len(shape) else ()
    kept_strides = [tuple(s[d] for d in rest) for s in inputs]
    for out in outputs:
        kept_strides.append(tuple(s for d, s in enumerate(out.strides) if d not in ours))
    kept, merged = collapse(tuple(shape[d] for d in rest), [*kept_strides, kept_strides[main]])
    if not kept:
        kept, merged = (1,), [(0,)] * len(merged)
    sizes = tuple(shape[d] for d in dims)
    if 0 in sizes:
        return Walk(kept, tuple(merged[:-1]), (0,), ((0,),) * len(inputs), main)
    strides = [tuple(s[d] for d in dims) for s in inputs]
    # Positions count in the dimensions' own order, so they are walked in it; otherwise memory's order is better.
    order = strides[main]
    if request.record.detail.get("indexed"):
        order = tuple(prod(sizes[i + 1 :]) for i in range(len(sizes)))
    reduced, along = collapse(sizes, [*strides, order])
    if not reduced:
        reduced, along = (1,), [(0,)] * len(along)
    return Walk(kept, tuple(merged[:-1]), reduced, tuple(along[:-1]), main)


def _steps(
    request: Request,
    outputs: tuple[Meta, ...],
    walk: Walk,
    element: str,
    entry: str,
    size: tuple[int, ...],
    local: tuple[int, ...],
    chunk: tuple[int, int, int],
    splits: int,
    defines: Sequence[tuple[str, str]],
    finish: tuple[str, tuple[int, ...], tuple[int, ...], int, Sequence[tuple[str, str]]] | None,
    lanes: int,
    across: int = 1,
    finish_across: int = 1,
    wide: Walk | None = None,
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """The launch, and where there are partial states (`splits` above 1), the one that joins them, with their bytes.

    wide: what the first of the two walks, if that is not `walk`.
    """
    record = request.record
    text = record.texts[request.device.driver.target]
    inputs = tuple(slot(m, o.type) for o, m in request.tensors)
    results = tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    states = tuple(state_slot(t, element) for t in record.detail["fields"])
    numbers = tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))
    count = len(inputs) + len(results)

    def geometry(walk: Walk, chunk: tuple[int, ...], across: int) -> bytes:
        table = [x for s in walk.kept_strides for x in s] + [x for s in walk.strides for x in s]
        outer = walk.count // walk.reduced[-1] if walk.count else 0
        head = (walk.results, walk.count, splits, outer, *chunk, across)
        return pack_longs((*head, *walk.kept, *walk.reduced, *table))

    def step(
        entry: str, slots: tuple[Slot, ...], buffers: tuple[int, ...], size: tuple[int, ...], local: tuple[int, ...],
        chunk: tuple[int, ...], across: int, work: int, defines: Sequence[tuple[str, str]], walk: Walk = walk,
    ) -> Step:  # fmt: skip
        lowest, highest = ("0", "1") if element == "uchar" and is_bool(request) else LIMITS[element]
        all_defines = (
            (f"SCHEDULE_{entry.upper()}", "1"), *defines, ("BUFFERS", str(len(slots))), ("KEPT", str(len(walk.kept))),
            ("REDUCED", str(len(walk.reduced))), ("LOWEST", lowest), ("HIGHEST", highest),
        )  # fmt: skip
        width = lanes if ("VECTOR", "1") in defines else 1
        name = f"{record.name}_{entry}"
        instance = Instance(record.name, text.source, name, element, width, slots, all_defines, text.functions)
        return Step(instance, buffers, geometry(walk, chunk, across), size, local, work, numbers)

    # An empty tensor owns no memory: where nothing is read, a result stands in for it.
    sources = tuple(range(len(inputs))) if walk.count else (len(inputs),) * len(inputs)
    work = _work(request, walk, entry)
    if splits == 1:
        buffers = (*sources, *range(len(inputs), count))
        return (step(entry, inputs + results, buffers, size, local, chunk, across, work, defines),), ()
    assert finish is not None
    partial = tuple(range(count, count + len(states)))
    first = step(
        entry, inputs + states, (*sources, *partial), size, local, chunk, across, work, (*defines, ("SPLIT", "1")),
        wide or walk,
    )  # fmt: skip
    entry, size, local, chunk_of_results, more = finish
    second = step(
        entry, states + results, (*partial, *range(len(inputs), count)), size, local, (chunk_of_results, 0, 0),
        finish_across, walk.results * splits, more,
    )  # fmt: skip
    bytes_each = [state_bytes(t, element) * splits * walk.results for t in record.detail["fields"]]
    return (first, second), tuple(bytes_each)


def is_bool(request: Request) -> bool:
    return all(m.dtype is dtypes.bool_ for o, m in request.tensors if o.type == "value")


def state_slot(type: str, element: str) -> Slot:
    return Slot({"value": _STATE_DTYPES[element], "mask": "bool", "index": "int64"}[type], type)


def state_bytes(type: str, element: str) -> int:
    return {"value": _STATE_BYTES[element], "mask": 1, "index": 8}[type]


def _lanes(request: Request, walk: Walk, element: str) -> int:
    """Width of this op's vectors; 1 where they cannot hold its states."""
    lanes = request.capabilities.lanes
    if element in ("double", "long"):
        lanes //= 2
    fields = request.record.detail["fields"]
    indexed = request.record.detail.get("indexed") or "index" in fields
    indexed = indexed or any(o.type == "index" for o, _ in request.tensors)
    if indexed and (element not in WIDE or walk.count >= 2**31):
        return 1
    return lanes


def _work(request: Request, walk: Walk, entry: str) -> int:
    """The work (see `Step`) of reducing all elements: a fifth for each field of a state that is found in vectors."""
    work = max(walk.results * walk.count, walk.results)
    record = request.record
    cheap = all(COSTS.get(name, 4) <= 2 for name in record.texts[request.device.driver.target].functions)
    beside = entry in ("columns", "abreast") or (entry == "rows" and walk.strides[walk.main][-1] == 1)
    return min(-(-work * len(record.detail["fields"]) // 5), work) if cheap and beside else work


def _cpu(
    request: Request, outputs: tuple[Meta, ...], walk: Walk, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    lanes = _lanes(request, walk, element)
    chosen = schedule(request, walk)
    least = chosen["least"]
    width, length = walk.kept[-1], walk.reduced[-1]
    beside = walk.kept_strides[walk.main][-1] == 1 and width >= lanes
    entry = (
        "general" if lanes == 1 else "columns" if beside and walk.count else "rows" if length >= lanes else "general"
    )
    if _is_short(walk):
        entry = "short"
    elif lanes > 1 and _are_abreast(request, walk, lanes):
        entry = "abreast"
    parts = elementwise_parts(_work(request, walk, entry), request.capabilities.cores, chosen["parts"])
    if entry == "short":
        run, items = split(walk.results, parts)
        row = [("ROW", str(walk.count))]
        return _steps(request, outputs, walk, element, entry, (items,), (1,), (run, 0, 0), 1, row, None, 1)
    if entry == "abreast":
        run, items = split(walk.results, parts, lanes)
        more = vector_defines(lanes) + [(f"CLASS{i}", str(s)) for i, (s,) in enumerate(walk.strides)]
        return _steps(request, outputs, walk, element, entry, (items,), (1,), (run, 0, 0), 1, more, None, lanes)
    wide = _widened(request, walk, lanes) if lanes > 1 else None
    if wide is not None:
        entry, chunk, size, inner = "columns", *_columns(request, wide, lanes, parts)
    elif entry == "columns":
        chunk, size, inner = _columns(request, walk, lanes, parts)
    elif entry == "rows":
        chunk, size, inner = _rows(walk, parts, least)
    else:
        inner = None
        result_chunk, items = split(walk.results, parts)
        wanted = min(-(-parts // items), max(walk.count // least, 1))
        run, splits = split(max(walk.count, 1), wanted)
        chunk, size = (result_chunk, 0, run), (items, 1, splits)
    splits = size[2] if entry != "rows" else size[1] * size[2]
    if wide is not None:
        splits *= wide.results // walk.results
    defines: list[tuple[str, str]] = [("BLOCK", str(_BLOCK if entry == "rows" else _RUN))]
    if inner is not None:
        defines += vector_defines(lanes)
        defines += [(f"CLASS{i}", str(s if s in (0, 1) else 2)) for i, s in enumerate(inner)]
    finish = _cpu_finish(request, outputs, walk, lanes, splits) if splits > 1 else None
    local = (1, 1, 1)
    return _steps(request, outputs, walk, element, entry, size, local, chunk, splits, defines, finish, lanes, wide=wide)


def _is_short(walk: Walk) -> bool:
    """Whether rows are few elements each and lie one after the other, as results do."""
    inputs = len(walk.strides)
    return (
        1 < walk.count <= _SHORT
        and walk.results >= _LEAST_SHORT
        and all(s == (walk.count,) for s in walk.kept_strides[:inputs])
        and all(s == (1,) for s in (*walk.kept_strides[inputs:], *walk.strides))
    )


def _are_abreast(request: Request, walk: Walk, lanes: int) -> bool:
    """Whether there are many rows of one to eight vectors, their results lie together, and states are numbers."""
    inputs = len(walk.strides)
    return (
        lanes <= walk.count <= 8 * lanes
        and walk.results >= _LEAST_SHORT
        and len(walk.kept) == len(walk.reduced) == 1
        and walk.strides[walk.main] == (1,)
        and walk.kept_strides[walk.main] != (1,)
        and all(s in ((0,), (1,)) for s in walk.strides)
        and all(s == (1,) for s in walk.kept_strides[inputs:])
        and set(request.record.detail["fields"]) == {"value"}
    )


def _widened(request: Request, walk: Walk, lanes: int) -> Walk | None:
    """The same elements with several reduced rows side by side as one, where a row of results is narrow.

    The partial states of the columns of such a row lie as those of as many splits would.
    """
    if len(walk.kept) > 1 or len(walk.reduced) > 1 or request.record.detail.get("indexed"):
        return None
    (width,), (count,), inputs = walk.kept, walk.reduced, walk.kept_strides[: len(walk.strides)]
    pairs = [(beside[0], along[0]) for beside, along in zip(inputs, walk.strides, strict=True)]
    if pairs[walk.main] != (1, width) or any(pair not in ((1, width), (0, 0)) for pair in pairs):
        return None
    whole = lanes * request.record.detail["columns"]
    if width >= whole:
        return None
    fitting = [k for k in range(2, min(4 * whole // width, count // 64) + 1) if count % k == 0 and k * width >= lanes]
    if not fitting:
        return None
    several = max(fitting, key=lambda k: (k * width % whole == 0, k))
    strides = tuple((several * along,) for _, along in pairs)
    return Walk((several * width,), walk.kept_strides, (count // several,), strides, walk.main)


def vector_defines(lanes: int) -> list[tuple[str, str]]:
    return [("VECTOR", "1"), ("IOTA", iota("L", lanes)), ("ROW_IOTA", iota("M", lanes))]


def _rows(walk: Walk, parts: int, least: int) -> tuple[tuple[int, int, int], tuple[int, int, int], list[int]]:
    """Chunks of results, outer and innermost reduced elements; how many of each; classes of the inner strides."""
    length = walk.reduced[-1]
    outer = walk.count // length
    result_chunk, items = split(walk.results, parts)
    wanted = min(-(-parts // items), max(walk.count // least, 1))
    row_chunk, row_items = split(outer, wanted)
    run, run_items = split(length, min(-(-wanted // row_items), max(length // least, 1)), 64)
    return (result_chunk, row_chunk, run), (items, row_items, run_items), [s[-1] for s in walk.strides]


def _columns(
    request: Request, walk: Walk, lanes: int, parts: int
) -> tuple[tuple[int, int, int], tuple[int, int, int], list[int]]:
    """Chunks of kept rows, columns and reduced elements; how many of each; classes of the columns' strides."""
    width = walk.kept[-1]
    row_chunk, row_items = split(walk.results // width, parts)
    wanted = -(-parts // row_items)
    # Whole rows of columns are read in the order of memory, so the reduced elements are shared out before them.
    run, runs = split(walk.count, min(wanted, max(walk.count // 64, 1)))
    quantum = lanes * request.record.detail["columns"]
    column_chunk, column_items = split(width, -(-wanted // runs), quantum)
    if width % column_chunk and width % column_chunk < lanes:  # the last chunk must be a vector at least
        column_chunk, column_items = width, 1
    classes = [s[-1] for s in walk.kept_strides]
    return (row_chunk, column_chunk, run), (row_items, column_items, runs), classes


def _cpu_finish(
    request: Request, outputs: tuple[Meta, ...], walk: Walk, lanes: int, splits: int
) -> tuple[str, tuple[int, ...], tuple[int, ...], int, Sequence[tuple[str, str]]]:
    parts = elementwise_parts(walk.results * splits, request.capabilities.cores)
    chunk, items = split(walk.results, parts, 64)
    flat = len(walk.kept) == 1 and all(s == (1,) for s in walk.kept_strides[-len(outputs) :])
    defines = vector_defines(lanes) if flat and lanes > 1 and walk.results >= lanes else []
    return "finish", (items,), (1,), chunk, defines


def _gpu(
    request: Request, outputs: tuple[Meta, ...], walk: Walk, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    able = request.capabilities
    chosen = schedule(request, walk)
    state = sum(state_bytes(t, element) if t != "mask" else 4 for t in request.record.detail["fields"])
    group = 1
    while group * 2 <= min(chosen["group"], able.max_group) and group * 2 * state <= able.local_memory:
        group *= 2
    beside = walk.kept_strides[walk.main][-1] == 1 and walk.kept[-1] > 1
    across = _across(walk.results, walk.count, group, 32 if beside and walk.reduced[-1] > 1 else 1)
    groups = -(-walk.results // across)
    deep = group // across
    wanted = max(1, chosen["groups"] * able.cores // groups)
    run, splits = split(max(walk.count, 1), min(wanted, max(walk.count // (deep * 8), 1)))
    size, local = (groups * group, splits), (group, 1)
    define = [("GROUP", str(group))]
    beneath = _across(walk.results, splits, group, group)
    finish = ("tree_finish", (-(-walk.results // beneath) * group,), (group,), 0, define) if splits > 1 else None
    chunk = (0, run, 0)
    return _steps(
        request, outputs, walk, element, "tree", size, local, chunk, splits, define, finish, 1, across, beneath
    )


def _across(results: int, count: int, group: int, least: int) -> int:
    """How many results a work-group makes: a power of two, so many that its members have two elements each."""
    across = 1
    while across < group and across < results and (across < least or group // across > max(count // 2, 1)):
        across *= 2
    return across
