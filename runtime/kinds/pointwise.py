"""Pointwise ops: every element of the result from the operands' elements at the same index, broadcast.

Schedules: `contiguous` (CPU: a work-item a run of elements, in vectors), `rows` (CPU: any strides; the innermost
dimension in vectors, the others by an odometer), `grid` (GPU: a vector a work-item) and `grid_strided` (GPU: an
element a work-item).
"""

from __future__ import annotations

from .. import dtypes
from ..backends.protocol import Instance, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..layout import broadcast, collapse, expand_strides, pack_longs, preserved_strides, split
from ..records import Output
from . import Planned, Request, slot

__all__ = ["compute_dtype", "elementwise_parts", "plan", "result_dtype"]

_CLASSES = {"bool": "b", "integer": "ui", "float": "f", "numeric": "uif", "integral": "bui", "all": "buif"}
_STREAM = 8 << 20  # bytes of result from which stores bypass the caches
RANK = 6  # outer dimensions of the strided schedules


def plan(request: Request) -> Planned:
    """Results' layouts and the one launch of a pointwise op."""
    record = request.record
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    computed = compute_dtype(request)
    outputs = request.into or tuple(
        meta(result_dtype(o, computed, request), shape, _fresh_strides(request, shape), request.device)
        for o in record.outputs
    )
    for given in outputs:
        if given.shape != shape:
            raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(given.shape)}")
    if not outputs[0].numel:
        return Planned(outputs)
    return Planned(outputs, (step(request, outputs, shape, computed),))


def _fresh_strides(request: Request, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return preserved_strides([m for _, m in request.tensors], shape)


def compute_dtype(request: Request) -> DType:
    """The dtype that the value operands meet in, by PyTorch's promotion, checked against the op's `dtypes`."""
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
    if record.outputs[0].result == "float" and found.kind != "f":
        found = dtypes.default_dtype()
    if found.kind not in _CLASSES[record.dtypes]:
        raise DTypeError(f"{request.where()}: takes {record.dtypes} dtypes, not {found.name}; convert with .to()")
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
        return next(m.dtype for o, m in request.tensors if o.name == name)
    return dtypes.BY_NAME[rule]


def step(request: Request, outputs: tuple[Meta, ...], shape: tuple[int, ...], computed: DType) -> Step:
    """The launch that computes `outputs` of `shape`."""
    record, able = request.record, request.capabilities
    tensors = request.tensors
    slots = tuple(slot(m, o.type) for o, m in tensors) + tuple(
        slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True)
    )
    layouts = [m for _, m in tensors] + list(outputs)
    sizes, strides = collapse(shape, [expand_strides(m, shape) for m in layouts])
    element = "uchar" if computed.name == "bool" else computed.compute
    lanes = able.lanes if able.style == "cpu" or able.lanes <= 4 else 4
    if element in ("double", "long") and able.style == "cpu":
        lanes //= 2
    flat = len(sizes) <= 1 and all(s in ((), (0,), (1,)) for s in strides)
    numel = outputs[0].numel
    if flat:
        return _flat(request, slots, strides, numel, element, lanes, outputs)
    return _strided(request, slots, sizes, strides, numel, element, lanes)


def _scalars(request: Request) -> tuple[int, ...]:
    """Positions of the numbers among the call's numbers that the kernel reads, in its order."""
    return tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))


def _instance(request: Request, entry: str, element: str, lanes: int, slots: tuple, defines: tuple) -> Instance:
    text = request.record.texts[request.device.driver.target]
    name = request.record.name
    defines = ((f"SCHEDULE_{entry.upper()}", "1"), *defines, *(_bool_defines(element, request)))
    return Instance(name, text.source, f"{name}_{entry}", element, lanes, slots, defines, text.functions)


def _bool_defines(element: str, request: Request) -> tuple[tuple[str, str], ...]:
    """Whether `C` holds truth values: `~x` and `-x` then mean something else."""
    return (("WG_BOOL", "1"),) if element == "uchar" and _is_bool(request) else ()


def _is_bool(request: Request) -> bool:
    return all(m.dtype is dtypes.bool_ for o, m in request.tensors if o.type == "value")


def elementwise_parts(numel: int, cores: int) -> int:
    """How many work-items share `numel` elements on a CPU: few and equal (see ARCHITECTURE.md, schedules)."""
    if numel <= 32 * 1024:
        return 1
    return cores if numel <= 512 * 1024 else 4 * cores


def _flat(
    request: Request, slots: tuple, strides: list, numel: int, element: str, lanes: int, outputs: tuple[Meta, ...]
) -> Step:
    able = request.capabilities
    classes = tuple((f"CLASS{i}", str(s[0] if s else 0)) for i, s in enumerate(strides[: len(strides) - len(outputs)]))
    buffers = tuple(range(len(slots)))
    if able.style == "gpu":
        local = min(128, able.max_group)
        chunk, items = lanes, -(-numel // lanes)
        instance = _instance(request, "grid", element, lanes, slots, classes)
        size, group = (-(-items // local) * local,), (local,)
        return Step(instance, buffers, pack_longs((numel, chunk)), size, group, numel, _scalars(request))
    streams = request.into is None and outputs[0].nbytes >= _STREAM and len(slots) > 1
    if streams and outputs[0].dtype.storage == element and outputs[0].dtype is not dtypes.bool_:
        classes += (("STREAM", "1"),)
    chunk, items = split(numel, elementwise_parts(numel, able.cores), 64)
    instance = _instance(request, "contiguous", element, lanes, slots, classes)
    return Step(instance, buffers, pack_longs((numel, chunk)), (items,), (1,), numel, _scalars(request))


def _strided(
    request: Request, slots: tuple, sizes: tuple[int, ...], strides: list, numel: int, element: str, lanes: int
) -> Step:
    able = request.capabilities
    outer, rank = sizes[:-1], len(sizes) - 1
    if rank > RANK:
        raise ShapeError(f"{request.where()}: more than {RANK + 1} dimensions that do not merge; call .contiguous() first")
    inner = sizes[-1] if sizes else 1
    buffers = tuple(range(len(slots)))
    rows = numel // inner
    geometry = [rows, inner]
    defines: tuple[tuple[str, str], ...] = (("OUTER", str(rank)),)
    table = [*outer, *(x for s in strides for x in s)] if sizes else [0 for _ in strides]
    if able.style == "gpu":
        local = min(128, able.max_group)
        instance = _instance(request, "grid_strided", element, 1, slots, defines)
        size = (-(-numel // local) * local,)
        return Step(instance, buffers, pack_longs((*geometry, *table)), size, (local,), numel, _scalars(request))
    defines += tuple((f"CLASS{i}", str(s[-1] if s and s[-1] in (0, 1) else 2)) for i, s in enumerate(strides))
    parts = elementwise_parts(numel, able.cores)
    row_chunk, row_items = split(rows, parts)
    col_chunk, col_items = split(inner, -(-parts // row_items), 64)
    instance = _instance(request, "rows", element, lanes, slots, defines)
    geometry += [row_chunk, col_chunk, *table]
    size = (row_items, col_items)
    return Step(instance, buffers, pack_longs(geometry), size, (1, 1), numel, _scalars(request))
