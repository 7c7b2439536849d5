"""Attention without the matrix of scores, and its gradients.

Operands have the dimensions batch, head, position, feature; strides are any. Schedules. CPU: a work-item has whole
vectors of one side's positions and goes through blocks of the other side's, packed in private memory (`forward`,
`query`, `key_value`). GPU: a work-item a position, a group goes through tiles in local memory. No score leaves a
work-item, so memory is linear in the positions.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import dtypes
from ..backends.protocol import Capabilities, Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import DTypeError, NotSupported, ShapeError
from ..layout import expand_strides, pack_longs, split
from ..program import iota
from ..records import Operand
from ..schedules import choose
from . import Planned, Request

__all__ = ["Builder", "Sizes", "plan", "takes"]

_RESULTS = {"attention": "forward", "attention_query": "query", "attention_key_value": "key_value"}
_LARGEST = 1024
# Rows and vectors of the register tile, for up to so many vectors of positions in lanes.
_TILES = {32: ((1, (8, 1)), (2, (8, 2)), (1 << 62, (4, 4))), 16: ((1, (8, 1)), (2, (4, 2)), (1 << 62, (2, 4)))}


def takes(query: Meta, key: Meta, value: Meta) -> bool:
    """Whether the kernels take operands of these layouts; if not, ops that store the scores do."""
    able = query.device.driver.capabilities
    some = query.numel and key.numel and value.numel
    return bool(some) and max(query.shape[-1], value.shape[-1]) <= _largest(able, query.dtype)


def _largest(able: Capabilities, dtype: DType) -> int:
    """The most features a position may have: a work-item or a program holds all of them."""
    if able.style == "triton":
        return {2: 256 if able.sm else 128, 4: 128, 8: 16}[dtype.itemsize]  # what registers hold without spilling
    return _LARGEST


@dataclass(frozen=True, slots=True)
class Sizes:
    """One call: `group` heads of the query share one of key and value; `width` features of query and key, `depth` of
    the value."""

    batch: int
    heads: int
    group: int
    rows: int
    keys: int
    width: int
    depth: int


def plan(request: Request) -> Planned:
    """The results' layouts and the launches."""
    given = {o.name: m for o, m in request.tensors}
    if request.record.name == "attention_delta":
        sizes = _delta_sizes(request, given)
        shapes = [given["result"].shape[:3]]
        kinds = [_computed(given["result"].dtype)]
    else:
        sizes = _bind(request, given)
        own = given["query"].dtype
        value = (*given["query"].shape[:3], sizes.depth)
        shapes, kinds = {
            "attention": ([value, value[:3]], [own, _computed(own)]),
            "attention_query": ([given["query"].shape], [own]),
            "attention_key_value": ([given["key"].shape, given["value"].shape], [own, own]),
        }[request.record.name]
    results = tuple(meta(d, s, None, request.device) for d, s in zip(kinds, shapes, strict=True))
    if not any(r.numel for r in results):
        return Planned(results)
    builder = Builder(request, sizes, results)
    if builder.able.style == "triton":
        from .triton.attention import launch

        launch(builder)
    elif request.record.name == "attention_delta":
        builder.delta()
    elif builder.able.style == "gpu":
        builder.grid()
    else:
        builder.vectors()
    return Planned(results, tuple(builder.steps))


def _computed(dtype: DType) -> DType:
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def _delta_sizes(request: Request, given: dict[str, Meta]) -> Sizes:
    shape = given["result"].shape
    if len(shape) != 4 or given["grad_output"].shape != shape:
        raise ShapeError(f"{request.where()}: both operands need the same 4 dimensions")
    return Sizes(shape[0], shape[1], 1, shape[2], 0, 0, shape[3])


def _bind(request: Request, given: dict[str, Meta]) -> Sizes:
    """The sizes of a call. Raises `ShapeError`, `DTypeError`, `NotSupported`."""
    where = request.where()
    query, key, value = given["query"], given["key"], given["value"]
    if any(m.ndim != 4 for m in (query, key, value)):
        raise ShapeError(f"{where}: query, key and value need 4 dimensions")
    if query.dtype.kind != "f" or key.dtype is not query.dtype or value.dtype is not query.dtype:
        raise DTypeError(f"{where}: query, key and value need one floating dtype")
    if query.dtype is dtypes.float64 and not request.capabilities.fp64:
        raise DTypeError(f"{where}: the device has no float64; use float32 there")
    batch, heads, rows, width = query.shape
    own, keys, depth = key.shape[1], key.shape[2], value.shape[3]
    if key.shape != (batch, own, keys, width) or value.shape[:3] != (batch, own, keys) or (own and heads % own):
        raise ShapeError(f"{where}: sizes of query, key and value do not fit together")
    if heads and not own:
        raise ShapeError(f"{where}: {heads} heads of the query for none of the key")
    mask = given.get("mask")
    if mask is not None and (
        mask.ndim != 4 or any(m not in (1, n) for m, n in zip(mask.shape, (batch, heads, rows, keys), strict=True))
    ):
        raise ShapeError(f"{where}: the mask does not broadcast to {[batch, heads, rows, keys]}")
    most = _largest(request.capabilities, query.dtype)
    if max(width, depth) > most:
        raise NotSupported(f"{where}: positions have at most {most} features here")
    return Sizes(batch, heads, heads // own if own else 1, rows, keys, width, depth)


class Builder:
    """The launches of one call. `layouts` has the operands by name."""

    def __init__(self, request: Request, sizes: Sizes, results: tuple[Meta, ...]):
        self.request, self.sizes, self.results = request, sizes, results
        self.able = request.capabilities
        self.layouts = {o.name: m for o, m in request.tensors}
        first = next(iter(self.layouts.values()))
        self.element = _computed(first.dtype)
        self.kind = _RESULTS.get(request.record.name, "delta")
        self.causal = bool(self._static("is_causal"))
        self.dropping = bool(self._static("dropping"))
        mask = self.layouts.get("mask")
        self.mask = 0 if mask is None else 1 if mask.dtype is dtypes.bool_ else 2
        self.steps: list[Step] = []
        shape = {"heads": sizes.batch * sizes.heads, "rows": sizes.rows, "keys": sizes.keys, "features": self.head}
        self.chosen = choose(request, "attention", shape, first.dtype.name)

    def _static(self, name: str) -> object:
        return self.request.static(name) if name in self.request.record.statics else False

    @property
    def head(self) -> int:
        """A power of two that no position has more features than: what kernels are compiled for."""
        return 1 << (max(self.sizes.width, self.sizes.depth, 16) - 1).bit_length()

    def strides(self, name: str) -> tuple[int, ...]:
        """Of an operand along batch, head, position and feature (mask: batch, head, row, key); none: zeros."""
        layout, s = self.layouts.get(name), self.sizes
        if layout is None:
            return (0, 0, 0, 0)
        if name == "mask":
            return expand_strides(layout, (s.batch, s.heads, s.rows, s.keys))
        return layout.strides

    def buffers(self) -> tuple[tuple[int, ...], tuple[Slot, ...]]:
        """Positions of operands and results, and how they are read. The query stands where there is no mask."""
        found, slots, position = [], [], 0
        names: list[Operand] = [o for o in self.request.record.operands if o.role in ("tensor", "optional")]
        for each in names:
            layout = self.layouts.get(each.name)
            if layout is None:
                found.append(0)
                slots.append(Slot(self.layouts["query"].dtype.name))
                continue
            found.append(position)
            slots.append(Slot(layout.dtype.name, "mask" if layout.dtype is dtypes.bool_ else "value"))
            position += 1
        for result in self.results:
            found.append(position)
            slots.append(Slot(result.dtype.name))
            position += 1
        return tuple(found), tuple(slots)

    def add(
        self, entry: str, defines: dict[str, object], geometry: tuple[int, ...], size: tuple[int, ...],
        local: tuple[int, ...], work: int, lanes: int = 1,
    ) -> None:  # fmt: skip
        """One launch of OpenCL's text."""
        buffers, slots = self.buffers()
        known = {f"SCHEDULE_{entry.upper()}": 1, "BUFFERS": len(buffers), **defines}
        given = tuple((k, str(v)) for k, v in known.items())
        text = self.request.record.texts[self.request.device.driver.target]
        functions = ("exp2", "log2", "uniform") if self.dropping else ("exp2", "log2")
        # Named for the kind, not the op: the ops share a text.
        made = Instance(
            "attention", text.source, f"attention_{entry}", self.element.compute, lanes, slots, given, functions
        )
        drawn = self.kind != "delta"
        numbers, integers = ((0, 1, 2), (3, 4)) if drawn else ((), ())
        self.steps.append(Step(made, buffers, pack_longs(geometry), size, local, work, numbers, integers))

    def geometry(self, blocks: int) -> tuple[int, ...]:
        """What every kernel is told: sizes, and strides of query, key, value, mask and gradient."""
        s = self.sizes
        names = ("result", "key", "value", "mask") if self.kind == "delta" else ("query", "key", "value", "mask")
        strides = [x for name in (*names, "grad_output") for x in self.strides(name)]
        return (s.batch, s.heads, s.group, s.rows, s.keys, s.width, s.depth, blocks, *strides)

    @property
    def work(self) -> int:
        """Elements that take about as long as the call."""
        s = self.sizes
        return s.batch * s.heads * s.rows * max(s.keys * (s.width + s.depth + 16) // 8, 1)

    def side(self) -> tuple[int, int]:
        """Positions that lie in lanes, and the heads that have them."""
        s = self.sizes
        return (s.keys, s.batch * s.heads // s.group) if self.kind == "key_value" else (s.rows, s.batch * s.heads)

    def vectors(self) -> None:
        """The CPU's schedules."""
        lanes = self.able.lanes // (2 if self.element.itemsize == 8 else 1)
        count, heads = self.side()
        tiles = _TILES[self.able.registers]
        mr, nv = self.chosen["tile"] or next(t for most, t in tiles if count <= most * lanes)
        blocks = -(-count // (lanes * nv))
        row, step = self.strides("mask")[2:]
        along, lane = (row, step) if self.kind == "key_value" else (step, row)
        integers = "int" if self.element.itemsize == 4 else "long"
        defines: dict[str, object] = {
            "HEAD": self.head, "MR": mr, "NV": nv, "BLOCK": self.chosen["block"], "CAUSAL": int(self.causal),
            "MASK": self.mask,
            "LAYOUT": 0 if lane == 0 else 1 if lane == 1 else 2 if along == 1 else 3, "DROPOUT": int(self.dropping),
            "FAST": int(self.element.itemsize == 4), "INDEX": f"ulong{lanes}", "IOTA": iota(f"ulong{lanes}", lanes),
            "LANE": iota(f"{integers}{lanes}", lanes),
        }  # fmt: skip
        self.add(self.kind, defines, self.geometry(blocks), (blocks, heads), (1, 1), self.work, lanes)

    def grid(self) -> None:
        """The GPU's schedules."""
        count, heads = self.side()
        group = min(self.chosen["group"], self.able.max_group)
        tile = self.chosen["tile"]
        while tile > 1 and 2 * tile * self.head * self.element.itemsize > self.able.local_memory // 2:
            tile //= 2
        defines: dict[str, object] = {
            "HEAD": self.head, "GROUP": group, "TILE": tile, "CAUSAL": int(self.causal), "MASK": self.mask,
            "DROPOUT": int(self.dropping),
        }  # fmt: skip
        size = (-(-count // group) * group, heads)
        self.add(f"grid_{self.kind}", defines, self.geometry(0), size, (group, 1), self.work)

    def delta(self) -> None:
        """Sums over rows, on either."""
        s = self.sizes
        total = s.batch * s.heads * s.rows
        if self.able.style == "gpu":
            group = min(64, self.able.max_group)
            size, local, share, lanes = (-(-total // group) * group,), (group,), 1, 1
        else:
            share, parts = split(total, max(1, min(4 * self.able.cores, total * s.depth // 4096)))
            size, local, lanes = (parts,), (1,), self.able.lanes // (2 if self.element.itemsize == 8 else 1)
        entry = "grid_delta" if self.able.style == "gpu" else "delta"
        self.add(entry, {}, self.geometry(share), size, local, total * max(s.depth, 1), lanes)
