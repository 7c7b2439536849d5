"""Pointwise ops: every element of the result from the operands' elements at the same index, broadcast.

Schedules: `contiguous` (CPU: a work-item a run of elements, in vectors), `rows` (CPU: any strides; the innermost
dimension in vectors, the others by an odometer), `tiles` (CPU: rows beside operands that are contiguous in another
dimension, such as a transposed matrix: tiles turned in registers), `grid` (GPU: a vector a work-item) and
`grid_strided` (GPU: an element a work-item).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError, UnsupportedDType
from ..layout import broadcast, collapse, expand_strides, pack_longs, preserved_strides, split
from ..records import Output
from ..schedules import Choice, choose
from . import Planned, Request, slot

__all__ = ["COSTS", "compute_dtype", "elementwise_parts", "plan", "result_dtype"]

_CLASSES = {"bool": "b", "integer": "ui", "float": "f", "numeric": "uif", "integral": "bui", "all": "buif"}
_PERIOD = 4  # vectors that a row has at most for it to be joined with others
_NEAR = 4096  # elements in rows beside each other that a work-item goes through before it takes the next rows
# What an element of 4 bytes costs a core of a CPU (measured, PoCL on AVX-512), in eighths of a nanosecond: 1 to read
# and write it, and for every math function called what stands here, or 4.
COSTS = {
    "abs": 0, "ceil": 0, "copysign": 0, "floor": 0, "isfinite": 0, "isinf": 0, "isnan": 0, "maximum": 0, "minimum": 0,
    "round": 0, "sign": 0, "trunc": 0, "exp": 1, "exp2": 1, "reciprocal": 1, "sqrt": 1, "asin": 2, "cosh": 2, "erf": 2,
    "expm1": 2, "log": 2, "log10": 2, "log1p": 2, "log2": 2, "logistic": 2, "rsqrt": 2, "sinh": 2, "tanh": 2,
    "digamma": 64, "lgamma": 64, "polygamma": 64, "trigamma": 64,
}  # fmt: skip


def plan(request: Request) -> Planned:
    """Results' layouts and the one launch of a pointwise op."""
    record = request.record
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    computed = compute_dtype(request)
    outputs = request.into or tuple(
        meta(result_dtype(o, computed, request), shape, _fresh_strides(request, shape), request.device)
        for o in record.outputs
    )
    for given, output in zip(outputs, record.outputs, strict=True):
        if given.shape != shape:
            raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(given.shape)}")
        if request.into and "dtype" not in record.statics:  # with one, the op is a conversion
            _check_holds(given.dtype, result_dtype(output, computed, request), request)
    if not outputs[0].numel:
        return Planned(outputs)
    return Planned(outputs, (step(request, outputs, shape, computed),))


def _check_holds(given: DType, result: DType, request: Request) -> None:
    """Raise `DTypeError` where results of a higher category (bool, integer, floating) would be cut down to `given`."""
    if not dtypes.holds(given, result):
        raise DTypeError(
            f"{request.where()}: the result is {result.name} and cannot be written to {given.name}; "
            f"convert with .to({result.name}) first, or use the form that makes a new tensor"
        )


def _fresh_strides(request: Request, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if request.record.detail.get("layout") == "contiguous":
        return None
    return preserved_strides([m for _, m in request.tensors], shape)


def compute_dtype(request: Request) -> DType:
    """The dtype that the value operands meet in, by PyTorch's promotion, checked against the op's `dtypes`.

    Numbers make no integer tensor one that an op of floating dtypes takes: elu(x, 1.0) of integers is an error too.
    """
    operands: list[tuple[DType, int]] = []
    for operand, given in zip(request.record.operands, request.operands, strict=True):
        if operand.type != "value" or given is None or operand.role == "number":
            continue
        if isinstance(given, Meta):
            operands.append((given.dtype, 0 if given.ndim else 1))
        else:
            operands.append((dtypes.of_number(given()), 2))
    if not operands:
        return dtypes.default_dtype()
    found = dtypes.promote_operands(operands)
    record = request.record
    if record.outputs[0].result == "float":
        found = found if found.kind == "f" else dtypes.default_dtype()
    elif record.dtypes == "float" and found.kind == "f" and any(level < 2 for _, level in operands):
        found = dtypes.promote_operands([o for o in operands if o[1] < 2 or o[0].kind != "f"])
    if found.kind not in _CLASSES[record.dtypes]:
        raise UnsupportedDType(f"{request.where()}: takes {record.dtypes} dtypes, not {found.name}; convert with .to()")
    return found


def result_dtype(output: Output, computed: DType, request: Request) -> DType:
    """The dtype of one result by its rule (see `records.Output`)."""
    rule = output.result
    if "dtype" in request.record.statics and (wanted := request.static("dtype")) is not None:
        return dtypes.parse(wanted)
    if rule in ("promote", "float"):
        return computed
    if rule == "index":
        return dtypes.int64
    if rule == "accumulate":
        return dtypes.accumulator(computed)
    if rule.startswith("like:"):
        name = rule.removeprefix("like:")
        found = next((m.dtype for o, m in request.tensors if o.name == name), None)
        if found is None:
            raise ArgumentError(f"{request.where()}: {name} must be a tensor: the result has its dtype")
        return found
    return dtypes.BY_NAME[rule]


@dataclass(frozen=True, slots=True)
class Operands:
    """A pointwise call's buffers, numbers and macros, whatever the schedule.

    slots, layouts: of the inputs, then the results; the layout of an input that is a number is None, and its buffer
    parameter gets the result's buffer, which the kernel does not touch.
    """

    slots: tuple[Slot, ...]
    layouts: tuple[Meta | None, ...]
    buffers: tuple[int, ...]
    numbers: tuple[int, ...]
    defines: tuple[tuple[str, str], ...]


def operands_of(request: Request, outputs: tuple[Meta, ...], computed: DType) -> Operands:
    """Buffers and numbers in the order in which the kernel's parameters have them."""
    slots: list[Slot] = []
    layouts: list[Meta | None] = []
    buffers: list[int] = []
    defines: list[tuple[str, str]] = []
    tensors = numbers = 0
    result = len(request.tensors)
    for position, (operand, given) in enumerate(zip(request.record.operands, request.operands, strict=True)):
        if operand.role in ("scalar", "number"):
            if isinstance(given, Meta):
                raise ArgumentError(f"{request.where()}: {operand.name} must be a number, not a tensor")
            defines.append((f"NUMBER_{position}", str(numbers)))
            numbers += 1
        elif isinstance(given, Meta):
            slots.append(slot(given, operand.type))
            layouts.append(given)
            buffers.append(tensors)
            tensors += 1
        elif operand.type == "value" and given is not None:
            defines.append((f"NUMBER{len(slots)}", str(numbers)))
            slots.append(Slot(computed.name, "value"))
            layouts.append(None)
            buffers.append(result)
            numbers += 1
        else:
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor")
    for i, (output, layout) in enumerate(zip(request.record.outputs, outputs, strict=True)):
        slots.append(slot(layout, output.type))
        layouts.append(layout)
        buffers.append(result + i)
    defines.append(("NUMBERS", str(numbers)))
    return Operands(tuple(slots), tuple(layouts), tuple(buffers), tuple(range(numbers)), tuple(defines))


def step(request: Request, outputs: tuple[Meta, ...], shape: tuple[int, ...], computed: DType) -> Step:
    """The launch that computes `outputs` of `shape`."""
    able = request.capabilities
    given = operands_of(request, outputs, computed)
    none = (0,) * len(shape)
    sizes, strides = collapse(shape, [none if m is None else expand_strides(m, shape) for m in given.layouts])
    element = "uchar" if computed is dtypes.bool_ else computed.compute
    if able.style == "triton":
        from .triton import pointwise as triton

        return triton.step(request, given, sizes, strides, element)
    chosen = choose(request, "pointwise", {"numel": outputs[0].numel}, computed.name)
    lanes = chosen["width"] or (able.lanes if able.style == "cpu" or able.lanes <= 4 else 4)
    if element in ("double", "long") and able.style == "cpu":
        lanes //= 2
    flat = len(sizes) <= 1 and all(s in ((), (0,), (1,)) for s in strides)
    if flat and all(s in ((), (1,)) for s in strides[-len(outputs) :]):
        return _flat(request, given, strides, outputs, element, lanes, chosen)
    return _strided(request, given, sizes, strides, outputs, element, lanes, chosen)


def _instance(
    request: Request, given: Operands, entry: str, element: str, lanes: int, defines: tuple[tuple[str, str], ...]
) -> Instance:
    text = request.record.texts[request.device.driver.target]
    name = request.record.name
    truth = [m for m, o in zip(given.layouts, request.record.operands, strict=False) if o.type == "value" and m]
    is_bool = element == "uchar" and all(m.dtype is dtypes.bool_ for m in truth)
    every = ((f"SCHEDULE_{entry.upper()}", "1"), *given.defines, *defines, *((("WG_BOOL", "1"),) if is_bool else ()))
    return Instance(name, text.source, f"{name}_{entry}", element, lanes, given.slots, every, text.functions)


def _work(request: Request, numel: int, element: str) -> int:
    """The work (see `Step`) of computing `numel` elements of a request's expressions, all of them side by side."""
    functions = request.record.texts[request.device.driver.target].functions
    wide = 2 if element in ("double", "long") else 1
    return numel * wide * (1 + sum(COSTS.get(name, 4) for name in functions)) // 4


def elementwise_parts(numel: int, cores: int, a_core: int | None = None) -> int:
    """How many work-items share `numel` elements on a CPU, of an addition's cost each: few and equal (see
    ARCHITECTURE.md, schedules), or as many `a_core`, where a schedule says so."""
    if a_core is not None:
        return a_core * cores
    if numel <= 32 * 1024:
        return 1
    return cores if numel <= 512 * 1024 else 4 * cores


def _classes(given: Operands, strides: list[tuple[int, ...]]) -> tuple[tuple[str, str], ...]:
    """How each buffer is walked along the innermost dimension (see the template)."""
    found = []
    for i, (layout, own) in enumerate(zip(given.layouts, strides, strict=True)):
        kind = 3 if layout is None else own[-1] if own and own[-1] in (0, 1) else 2 if own else 0
        found.append((f"CLASS{i}", str(kind)))
    return tuple(found)


def _streams(request: Request, output: Meta, element: str, chosen: Choice, *, copies: bool) -> bool:
    """Whether vectors of a result go past the caches: where it is large, stored as it is computed, and new memory, or
    that which a copy fills, if `copies` may: what other ops are given to write to, they often read."""
    given = request.into is not None and not (copies and request.record.name == "copy")
    if given or output.nbytes < (chosen["stream"] or request.capabilities.stream):
        return False
    return output.dtype.storage == element and output.dtype is not dtypes.bool_


def _flat(
    request: Request,
    given: Operands,
    strides: list[tuple[int, ...]],
    outputs: tuple[Meta, ...],
    element: str,
    lanes: int,
    chosen: Choice,
) -> Step:
    able, numel = request.capabilities, outputs[0].numel
    classes = _classes(given, strides)
    if able.style == "gpu":
        local, items = min(chosen["group"], able.max_group), -(-numel // lanes)
        instance = _instance(request, given, "grid", element, lanes, classes)
        size = (-(-items // local) * local,)
        return Step(instance, given.buffers, pack_longs((numel, lanes)), size, (local,), numel, given.numbers)
    if _streams(request, outputs[0], element, chosen, copies=True):
        classes += (("STREAM", "1"),)
    work = _work(request, numel, element)
    chunk, items = split(numel, elementwise_parts(max(numel, 4 * work), able.cores, chosen["parts"]), 64)
    instance = _instance(request, given, "contiguous", element, lanes, classes)
    return Step(instance, given.buffers, pack_longs((numel, chunk)), (items,), (1,), work, given.numbers)


def _strided(
    request: Request,
    given: Operands,
    sizes: tuple[int, ...],
    strides: list[tuple[int, ...]],
    outputs: tuple[Meta, ...],
    element: str,
    lanes: int,
    chosen: Choice,
) -> Step:
    able, numel = request.capabilities, outputs[0].numel
    if not sizes:
        sizes, strides = (1,), [(0,)] * len(strides)
    rank, inner = len(sizes) - 1, sizes[-1]
    if able.style == "gpu":
        local = min(chosen["group"], able.max_group)
        defines = (("OUTER", str(rank)), *_classes(given, strides))
        instance = _instance(request, given, "grid_strided", element, 1, defines)
        size = (-(-numel // local) * local,)
        geometry = pack_longs((numel // inner, inner, *sizes[:-1], *(x for s in strides for x in s)))
        return Step(instance, given.buffers, geometry, size, (local,), numel, given.numbers)
    parts = elementwise_parts(numel, able.cores, chosen["parts"])
    across = _across(given, sizes, strides, len(outputs), lanes)
    if across is not None:
        return _tiles(request, given, sizes, strides, across, element, lanes, parts)
    return _rows(request, given, sizes, strides, outputs, element, lanes, chosen)


def _rows(
    request: Request,
    given: Operands,
    sizes: tuple[int, ...],
    strides: list[tuple[int, ...]],
    outputs: tuple[Meta, ...],
    element: str,
    lanes: int,
    chosen: Choice,
) -> Step:
    """The launch of `rows`, of short ones joined or turned where that is possible."""
    able, numel = request.capabilities, outputs[0].numel
    parts = elementwise_parts(numel, able.cores, chosen["parts"])
    sizes, strides, joined = _joined(request, given, sizes, strides, lanes)
    sizes, strides, near = _lengthened(sizes, strides, lanes)
    inner, rank = sizes[-1], len(sizes) - 1
    rows = numel // inner
    row_chunk, row_items = split(rows // near, parts)
    chunk, items = split(inner, -(-parts // row_items), 64)
    if near > 1:  # so that what rows share stays in the first-level cache
        chunk, items = split(inner, -(-inner // min(chunk, _NEAR // near)), 64)
    kinds = {name: int(kind) for name, kind in _classes(given, strides)}
    kinds |= {f"CLASS{i}": 5 for i in joined}
    own = strides[-len(outputs)]
    aligned = own[-1] == 1 and not any(n % lanes for n in (inner, *own[:-1]))  # every vector of the result
    stream = aligned and _streams(request, outputs[0], element, chosen, copies=False)
    if lanes in (4, 8, 16):  # flipped operands, in whole vectors
        kinds |= {f"CLASS{i}": 4 for i, s in enumerate(strides[: -len(outputs)]) if s[-1] == -1}
    defines = (("OUTER", str(rank)), *((name, str(kind)) for name, kind in kinds.items()))
    defines += (("STREAM", "1"),) if stream else ()
    if joined:
        defines += (("PERIOD", str(_PERIOD * lanes)), ("VU", f"{element}{lanes}_u"))
    instance = _instance(request, given, "rows", element, lanes, defines)
    geometry = pack_longs((rows, inner, row_chunk * near, chunk, *sizes[:-1], *(x for s in strides for x in s)))
    together = inner >= lanes and 2 not in kinds.values() and 4 not in kinds.values()
    work = _work(request, numel, element) if together else max(numel, _work(request, numel, element))
    return Step(instance, given.buffers, geometry, (row_items, items), (1, 1), work, given.numbers)


def _joined(
    request: Request, given: Operands, sizes: tuple[int, ...], strides: list[tuple[int, ...]], lanes: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]], set[int]]:
    """Short rows as one long row, where they lie one after another but for operands that are the same in each of
    them; and which operands these are, whose stride is then how many elements a row had."""
    if len(sizes) < 2 or sizes[-1] > _PERIOD * lanes or lanes < 4:
        return sizes, strides, set()
    few = sizes[-1]
    types = [o.type for o in request.record.operands if o.role not in ("scalar", "number")]
    same = {i for i, s in enumerate(strides) if s[-2:] == (0, 1)}
    fits = all(s[-2:] in ((few, 1), (0, 1), (0, 0)) for s in strides)
    if not fits or not same or any(i >= len(types) or types[i] != "value" for i in same):
        return sizes, strides, set()
    joined = [(*s[:-2], few if i in same else s[-1]) for i, s in enumerate(strides)]
    return (*sizes[:-2], sizes[-2] * few), joined, same


def _lengthened(
    sizes: tuple[int, ...], strides: list[tuple[int, ...]], lanes: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]], int]:
    """Dimensions in an order whose last is not much shorter than a vector, if one is longer; and how many rows in a
    row then lie in the same memory.

    A few pixels' channels, or a column of pairs, would be walked element by element otherwise.
    """
    apart = any(s[-1] not in (0, 1) for s in strides)
    if sizes[-1] > (lanes // 2 if apart else lanes // 4) or max(sizes) < 2 * lanes:
        return sizes, strides, 1
    last = max(d for d, size in enumerate(sizes) if size >= 2 * lanes)
    order = [*(d for d in range(len(sizes)) if d != last), last]
    near = math.prod(sizes[last + 1 :])
    if near > _NEAR // 64:  # these would leave the caches before their neighbours' turn comes
        return sizes, strides, 1
    return tuple(sizes[d] for d in order), [tuple(s[d] for d in order) for s in strides], near


def _across(
    given: Operands, sizes: tuple[int, ...], strides: list[tuple[int, ...]], results: int, lanes: int
) -> int | None:
    """The dimension in which an operand is contiguous that is not so in the innermost one, if results are there and
    both dimensions fill vectors."""
    if lanes < 4 or sizes[-1] < lanes or any(s[-1] != 1 for s in strides[-results:]):
        return None
    for layout, own in zip(given.layouts[:-results], strides, strict=False):
        if layout is not None and own[-1] not in (0, 1):
            found = next((d for d, size in enumerate(sizes[:-1]) if own[d] == 1 and size >= lanes), None)
            if found is not None:
                return found
    return None


def _tiles(
    request: Request,
    given: Operands,
    sizes: tuple[int, ...],
    strides: list[tuple[int, ...]],
    across: int,
    element: str,
    lanes: int,
    parts: int,
) -> Step:
    """The launch of `tiles`: `across` becomes the last but one dimension."""
    order = [*(d for d in range(len(sizes) - 1) if d != across), across, len(sizes) - 1]
    sizes = tuple(sizes[d] for d in order)
    strides = [tuple(s[d] for d in order) for s in strides]
    inner, rank = sizes[-1], len(sizes) - 1
    block = 4 * lanes
    numel = math.prod(sizes)
    blocks = numel // (sizes[-2] * inner) * -(-sizes[-2] // block)
    chunk, items = split(blocks, parts)
    columns, column_items = split(inner, -(-parts // items), block)
    turned = tuple((f"TURN{i}", "1") for i, s in enumerate(strides) if s[-2] == 1 and s[-1] not in (0, 1))
    functions = request.record.texts[request.device.driver.target].functions
    light = (("LIGHT", "1"),) if sum(COSTS.get(name, 4) for name in functions) <= 1 else ()
    defines = (("OUTER", str(rank)), *_classes(given, strides), *turned, *light)
    instance = _instance(request, given, "tiles", element, lanes, defines)
    table = [*sizes[:-1], *(x for s in strides for x in s)]
    geometry = pack_longs((sizes[-2], inner, blocks, chunk, columns, *table))
    work = max(numel, _work(request, numel, element))
    return Step(instance, given.buffers, geometry, (items, column_items), (1, 1), work, given.numbers)
