"""Plan attention and its gradients without storing the matrix of scores.

Operands have shape `(batch, head, position, feature)` and any strides. One side (the query's positions, or for
`key_value` the key's) is divided among work-items, which iterate over the other side.

On CPUs a work-item computes whole vectors of positions, and packs blocks of the other side in private memory
(`forward`, `query`, `key_value`; `gradients` computes all gradients of a head in one pass). On OpenCL GPUs several
work-items share a position, each with as many features as registers hold, and their work-group reads the other side in
tiles in local memory. `triton/attention.py` plans for Triton.
No score leaves a work-item, so memory is linear in the number of positions.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import dtypes
from ..backends.protocol import Capabilities, Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import DTypeError, NotSupported, ShapeError
from ..layout import expand_strides, pack_longs, split
from ..program import iota
from ..schedules import choose
from . import Planned, Request

__all__ = ["FEATURE_LIMITS", "LAUNCHES", "Builder", "Sizes", "is_supported", "plan"]

_KINDS = {
    "attention": "forward", "attention_query": "query", "attention_key_value": "key_value",
    "attention_gradients": "gradients",
}  # fmt: skip
_MAX_GRADIENT_FEATURES = 256  # of `gradients`, which holds more of them than the other kernels
_MAX_IMBALANCE = 1.2  # of the cores' work in `gradients`: it computes 5 products where two kernels compute 7
_MAX_FEATURES = 1024  # of the OpenCL kernels
# OpenCL GPUs: 32-bit registers for a work-item's features, and the arrays of features that each kernel has. With more
# than 128 registers per work-item, NVIDIA's and AMD's GPUs run few work-groups at once.
_FEATURE_REGISTERS = 64
_FEATURE_ARRAYS = {"forward": 2, "query": 3, "key_value": 4}
# By vector registers: (maximal vectors of positions, (rows, vectors) of the register tile).
_TILES = {32: ((1, (8, 1)), (2, (8, 2)), (1 << 62, (4, 4))), 16: ((1, (8, 1)), (2, (4, 2)), (1 << 62, (2, 4)))}


def is_supported(query: Meta, key: Meta, value: Meta) -> bool:
    """Return whether the kernels support operands of these layouts; otherwise use ops that store the scores."""
    caps = query.device.driver.capabilities
    has_elements = query.numel and key.numel and value.numel
    return bool(has_elements) and max(query.shape[-1], value.shape[-1]) <= _max_features(caps, query.dtype)


def _max_features(caps: Capabilities, dtype: DType) -> int:
    """Return how many features a position may have: a work-item or a program holds all of them."""
    return FEATURE_LIMITS[caps.style](caps, dtype.itemsize)


def _max_triton_features(caps: Capabilities, itemsize: int) -> int:
    """Return what registers hold without spilling."""
    return {2: 256 if caps.sm else 128, 4: 128, 8: 16}[itemsize]


def _max_opencl_features(caps: Capabilities, itemsize: int) -> int:
    return _MAX_FEATURES


FEATURE_LIMITS = ByStyle("attention", cpu=_max_opencl_features, gpu=_max_opencl_features, triton=_max_triton_features)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one call.

    Attributes:
        batch: Batch size.
        heads: Heads of the query.
        group: Heads of the query that share one head of key and value.
        rows: Positions of the query.
        keys: Positions of key and value.
        width: Features of query and key.
        depth: Features of the value.
    """

    batch: int
    heads: int
    group: int
    rows: int
    keys: int
    width: int
    depth: int


def plan(request: Request) -> Planned:
    """Plan one call of attention, of one of its gradients, or of the row sums that the gradients need.

    Raises:
        DTypeError: The dtypes differ, are not floating, or are not supported by the device.
        NotSupported: Positions have more features than the kernels hold.
        ShapeError: The operands' shapes do not fit together.
    """
    layouts = {o.name: m for o, m in request.tensors}
    if request.record.name == "attention_delta":
        sizes = _delta_sizes(request, layouts)
        shapes = [layouts["result"].shape[:3]]
        dtypes_out = [_accumulator_dtype(layouts["result"].dtype)]
    else:
        sizes = _bind_sizes(request, layouts)
        dtype = layouts["query"].dtype
        output_shape = (*layouts["query"].shape[:3], sizes.depth)
        shapes, dtypes_out = {
            "attention": ([output_shape, output_shape[:3]], [dtype, _accumulator_dtype(dtype)]),
            "attention_query": ([layouts["query"].shape], [dtype]),
            "attention_key_value": ([layouts["key"].shape, layouts["value"].shape], [dtype, dtype]),
            "attention_gradients": ([layouts[n].shape for n in ("query", "key", "value")], [dtype] * 3),
        }[request.record.name]
    results = tuple(meta(d, s, None, request.device) for d, s in zip(dtypes_out, shapes, strict=True))
    if not any(r.numel for r in results):
        return Planned(results)
    kind = _KINDS.get(request.record.name, "delta")
    builder = Builder(request, sizes, results, kind)
    if kind == "gradients" and not _fits_one_pass(builder):
        steps: list[Step] = []
        for part, first, last in (("query", 0, 1), ("key_value", 1, 3)):
            builder = Builder(request, sizes, results[first:last], part, first)
            LAUNCHES[builder.caps.style](builder)
            steps += builder.steps
        return Planned(results, tuple(steps))
    LAUNCHES[builder.caps.style](builder)
    return Planned(results, tuple(builder.steps))


def _fits_one_pass(builder: Builder) -> bool:
    """Return whether one kernel computes all gradients: on CPUs, if all cores get about as many heads.

    The kernel adds to the query's gradient in memory, so that must have the dtype of the sums.
    """
    s, caps = builder.sizes, builder.caps
    heads = s.batch * s.heads // s.group
    return (
        caps.takes_runs and builder.results[0].dtype is builder.element and s.keys > 0
        and builder.head <= _MAX_GRADIENT_FEATURES and -(-heads // caps.cores) * caps.cores <= _MAX_IMBALANCE * heads
    )  # fmt: skip


def _accumulator_dtype(dtype: DType) -> DType:
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def _delta_sizes(request: Request, layouts: dict[str, Meta]) -> Sizes:
    shape = layouts["result"].shape
    if len(shape) != 4 or layouts["grad_output"].shape != shape:
        raise ShapeError(f"{request.where()}: both operands need the same 4 dimensions")
    return Sizes(shape[0], shape[1], 1, shape[2], 0, 0, shape[3])


def _bind_sizes(request: Request, layouts: dict[str, Meta]) -> Sizes:
    """Return the sizes of a call. Raises `ShapeError`, `DTypeError`, `NotSupported`."""
    where = request.where()
    query, key, value = layouts["query"], layouts["key"], layouts["value"]
    if any(m.ndim != 4 for m in (query, key, value)):
        raise ShapeError(f"{where}: query, key and value need 4 dimensions")
    if query.dtype.kind != "f" or key.dtype is not query.dtype or value.dtype is not query.dtype:
        raise DTypeError(f"{where}: query, key and value need one floating dtype")
    if query.dtype is dtypes.float64 and not request.capabilities.fp64:
        raise DTypeError(f"{where}: the device has no float64; use float32 there")
    batch, heads, rows, width = query.shape
    key_heads, keys, depth = key.shape[1], key.shape[2], value.shape[3]
    if (
        key.shape != (batch, key_heads, keys, width) or value.shape[:3] != (batch, key_heads, keys)
        or (key_heads and heads % key_heads)
    ):  # fmt: skip
        raise ShapeError(f"{where}: sizes of query, key and value do not fit together")
    if heads and not key_heads:
        raise ShapeError(f"{where}: {heads} heads of the query for none of the key")
    mask = layouts.get("mask")
    if mask is not None and (
        mask.ndim != 4 or any(m not in (1, n) for m, n in zip(mask.shape, (batch, heads, rows, keys), strict=True))
    ):
        raise ShapeError(f"{where}: the mask does not broadcast to {[batch, heads, rows, keys]}")
    max_features = _max_features(request.capabilities, query.dtype)
    if max(width, depth) > max_features:
        raise NotSupported(f"{where}: positions have at most {max_features} features here")
    return Sizes(batch, heads, heads // key_heads if key_heads else 1, rows, keys, width, depth)


class Builder:
    """The launches of one call, or of one kernel of it. `layouts` holds the operands by name.

    Args:
        request: The call.
        sizes: Its sizes.
        results: Layouts of the results that the kernel writes.
        kind: The kernel.
        first_result: Position of the first of `results` among those of the call.
    """

    def __init__(self, request: Request, sizes: Sizes, results: tuple[Meta, ...], kind: str, first_result: int = 0):
        self.request, self.sizes, self.results, self.kind = request, sizes, results, kind
        self.first_result = first_result
        self.caps = request.capabilities
        self.layouts = {o.name: m for o, m in request.tensors}
        first = next(iter(self.layouts.values()))
        self.element = _accumulator_dtype(first.dtype)
        self.causal = bool(request.optional_static("is_causal", False))
        self.has_dropout = bool(request.optional_static("dropping", False))
        mask = self.layouts.get("mask")
        self.mask = 0 if mask is None else 1 if mask.dtype is dtypes.bool_ else 2
        self.steps: list[Step] = []
        shape = {"heads": sizes.batch * sizes.heads, "rows": sizes.rows, "keys": sizes.keys, "features": self.head}
        self.params = choose(request, "attention", shape, first.dtype.name)

    @property
    def head(self) -> int:
        """Return the power of two that bounds the features of a position; kernels are compiled for it."""
        return 1 << (max(self.sizes.width, self.sizes.depth, 16) - 1).bit_length()

    def strides(self, name: str) -> tuple[int, ...]:
        """Return an operand's strides along batch, head, position and feature, or zeros if it is absent.

        Those of the mask are along batch, head, query position and key position.
        """
        layout, s = self.layouts.get(name), self.sizes
        if layout is None:
            return (0, 0, 0, 0)
        if name == "mask":
            return expand_strides(layout, (s.batch, s.heads, s.rows, s.keys))
        return layout.strides

    def buffers(self) -> tuple[tuple[int, ...], tuple[Slot, ...]]:
        """Return the positions of operands and results, and their slots. The query stands in for an absent mask."""
        positions, slots, position = [], [], 0
        for operand in self.request.record.operands:
            if operand.role not in ("tensor", "optional"):
                continue
            layout = self.layouts.get(operand.name)
            if layout is None:
                positions.append(0)
                slots.append(Slot(self.layouts["query"].dtype.name))
                continue
            positions.append(position)
            slots.append(Slot(layout.dtype.name, "mask" if layout.dtype is dtypes.bool_ else "value"))
            position += 1
        position += self.first_result
        for result in self.results:
            positions.append(position)
            slots.append(Slot(result.dtype.name))
            position += 1
        return tuple(positions), tuple(slots)

    def add_step(
        self, entry: str, defines: dict[str, object], geometry: tuple[int, ...], size: tuple[int, ...],
        local: tuple[int, ...], work: int, lanes: int = 1,
    ) -> None:  # fmt: skip
        """Add one launch of an OpenCL kernel."""
        buffers, slots = self.buffers()
        all_defines = {f"SCHEDULE_{entry.upper()}": 1, "BUFFERS": len(buffers), **defines}
        define_strings = tuple((k, str(v)) for k, v in all_defines.items())
        text = self.request.text
        functions = ("exp2", "log2", "uniform") if self.has_dropout else ("exp2", "log2")
        # The name is that of the kind, not of the op: the ops share kernel source.
        instance = Instance(
            "attention", text.source, f"attention_{entry}", self.element.compute, lanes, slots, define_strings,
            functions,
        )  # fmt: skip
        takes_numbers = self.kind != "delta"
        numbers, integers = ((0, 1, 2), (3, 4)) if takes_numbers else ((), ())
        self.steps.append(Step(instance, buffers, pack_longs(geometry), size, local, work, numbers, integers))

    def geometry(self, blocks: int) -> tuple[int, ...]:
        """Return the geometry of every kernel: sizes, and strides of query, key, value, mask and gradient."""
        s = self.sizes
        names = ("result", "key", "value", "mask") if self.kind == "delta" else ("query", "key", "value", "mask")
        strides = [x for name in (*names, "grad_output") for x in self.strides(name)]
        return (s.batch, s.heads, s.group, s.rows, s.keys, s.width, s.depth, blocks, *strides)

    @property
    def work(self) -> int:
        """Return how many elements take about as long to touch as the call takes."""
        s = self.sizes
        return s.batch * s.heads * s.rows * max(s.keys * (s.width + s.depth + 16) // 8, 1)

    def side(self) -> tuple[int, int]:
        """Return how many positions are divided among work-items, and how many heads have them."""
        s = self.sizes
        is_of_keys = self.kind in ("key_value", "gradients")
        return (s.keys, s.batch * s.heads // s.group) if is_of_keys else (s.rows, s.batch * s.heads)

    def add_vectors(self) -> None:
        """Add the CPU launch, which computes vectors of positions."""
        lanes = self.caps.lanes // (2 if self.element.itemsize == 8 else 1)
        count, heads = self.side()
        tiles = _TILES[self.caps.registers]
        mr, nv = self.params["tile"] or next(t for max_vectors, t in tiles if count <= max_vectors * lanes)
        blocks = -(-count // (lanes * nv))
        row, step = self.strides("mask")[2:]
        mask_step, lane_step = (row, step) if self.kind in ("key_value", "gradients") else (step, row)
        integers = "int" if self.element.itemsize == 4 else "long"
        defines: dict[str, object] = {
            "HEAD": self.head, "MR": mr, "NV": nv, "BLOCK": self.params["block"], "CAUSAL": int(self.causal),
            "MASK": self.mask,
            "LAYOUT": 0 if lane_step == 0 else 1 if lane_step == 1 else 2 if mask_step == 1 else 3,
            "DROPOUT": int(self.has_dropout),
            "FAST": int(self.element.itemsize == 4), "INDEX": f"ulong{lanes}", "IOTA": iota(f"ulong{lanes}", lanes),
            "LANE": iota(f"{integers}{lanes}", lanes),
        }  # fmt: skip
        if self.kind == "gradients":
            defines["COLUMNS"] = min(nv, self.head // lanes)
            blocks = 1
        self.add_step(self.kind, defines, self.geometry(blocks), (blocks, heads), (1, 1), self.work, lanes)

    def add_grid(self) -> None:
        """Add the GPU launch, whose work-groups compute some positions of a head each."""
        count, heads = self.side()
        itemsize = self.element.itemsize
        group = min(self.params["group"], self.caps.max_group)
        group = 1 << (group.bit_length() - 1)
        # Features per work-item: a power of two, as HEAD is; more if the group has too few work-items for the position.
        features = _FEATURE_REGISTERS * 4 // (_FEATURE_ARRAYS[self.kind] * itemsize)
        features = max(min(1 << (features.bit_length() - 1), self.head), self.head // group)
        split_count = self.head // features
        positions = group // split_count
        sums = 1 if self.kind == "forward" else 2  # partial sums per work-item and position of a tile
        tile = self.params["tile"]
        while tile > 1 and tile * (2 * self.head + sums * group) * itemsize > self.caps.local_memory // 2:
            tile //= 2
        defines: dict[str, object] = {
            "HEAD": self.head, "GROUP": group, "PART": features, "SPLIT": split_count, "TILE": tile,
            "CAUSAL": int(self.causal), "MASK": self.mask, "DROPOUT": int(self.has_dropout),
        }  # fmt: skip
        blocks = -(-count // positions)
        # One dimension: drivers limit the groups of the second one to 65,535.
        size = blocks * heads * group
        self.add_step(f"grid_{self.kind}", defines, self.geometry(blocks), (size,), (group,), self.work)

    def add_delta(self) -> None:
        """Add the launch that computes the row sums of the gradient, on CPUs or GPUs."""
        s = self.sizes
        total = s.batch * s.heads * s.rows
        group, lanes = self.caps.group_size(64), self.caps.vector_lanes(self.element.itemsize)
        tasks = max(1, min(4 * self.caps.cores, total * s.depth // 4096)) if self.caps.takes_runs else total
        task_rows, parts = split(total, tasks)
        entry = "delta" if self.caps.takes_runs else "grid_delta"
        size = -(-parts // group) * group
        self.add_step(entry, {}, self.geometry(task_rows), (size,), (group,), total * max(s.depth, 1), lanes)


def _launch_cpu(builder: Builder) -> None:
    if builder.request.record.name == "attention_delta":
        builder.add_delta()
    else:
        builder.add_vectors()


def _launch_gpu(builder: Builder) -> None:
    if builder.request.record.name == "attention_delta":
        builder.add_delta()
    else:
        builder.add_grid()


def _launch_triton(builder: Builder) -> None:
    from .triton.attention import launch  # lazy: Triton devices only

    launch(builder)


LAUNCHES = ByStyle("attention", cpu=_launch_cpu, gpu=_launch_gpu, triton=_launch_triton)
