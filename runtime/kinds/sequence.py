"""Plan a recurrence over a whole sequence on CPUs: one launch instead of several for each step.

The step is a pointwise op. Its operands `products` are the blocks of columns of one matrix product, of `left` (the
result of the step before) and `weight`. The kernel computes the product a tile at a time, and evaluates the op's
expressions while the tile is in a first-level cache. As rows are independent, each core computes its own rows for the
whole sequence, and no core waits between steps.

Schedules: `pack` packs the weights to panels, which all steps use; `sequence` does the rest.
`runtime/recurrent/steps.py` makes the calls.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from ..backends.protocol import Instance, Slot, Step
from ..device import Device, Meta
from ..layout import expand_strides, pack_longs, split
from ..records import Operand, OpRecord, registry
from . import Planned, Request, slot
from .elementwise import COSTS

__all__ = ["plan", "sequence_record", "should_fuse_steps"]

# By vector registers: accumulators of a tile, which leave room for the weights and an element of `left`.
_MAX_SUMS = {32: 24, 16: 12}
_MIN_ROWS_PER_CORE = 4  # from so many rows on, reading the weights pays
_MAX_CACHED_WEIGHT_BYTES = 1 << 18  # a second-level cache delivers these as fast as even few rows use them
_PANEL_BYTES = 1 << 14  # bytes of a panel that stay in a first-level cache
_TILES_PER_PANEL = 8  # tiles that use the panel while it is there
_MIN_PACKED_WEIGHTS = 1 << 14  # weights that are worth a work-item


@cache
def sequence_record(name: str) -> OpRecord:
    """Return the record of the op `name` over a sequence.

    Its operands are those of the op at the first step (None for a product that need not be stored), then `left` of
    shape `(rows, in_features)` and `weight` of shape `(in_features, products * units)`. Its static argument `moves` has
    the number of steps, then for each operand, each result and `left` the elements from one step to the next.
    """
    op = registry[name]
    products = op.detail["product_positions"]
    operands_of_step = [replace(o, role="optional") if i in products else o for i, o in enumerate(op.operands)]
    operands = (*operands_of_step, Operand("left"), Operand("weight"))
    return replace(op, kind="sequence", operands=operands, statics=("moves",), gradients={})


def should_fuse_steps(device: Device, weight: Meta, rows: int) -> bool:
    """Return True if one launch for the sequence is faster: if all cores have rows, or the weights fit a cache.

    Args:
        device: Where the recurrence runs.
        weight: Layout of the weight.
        rows: Rows of the batch.
    """
    caps = device.driver.capabilities
    if not caps.takes_runs or weight.dtype.name not in ("float32", "float64") or caps.lanes < 8:
        return False
    return rows >= _MIN_ROWS_PER_CORE * caps.cores or weight.numel * weight.dtype.itemsize <= _MAX_CACHED_WEIGHT_BYTES


def plan(request: Request) -> Planned:
    """Plan the launches. The results are in `request.into`."""
    record, caps = request.record, request.capabilities
    assert request.into is not None
    if not request.into[0].numel:
        return Planned(request.into)
    products: tuple[int, ...] = record.detail["product_positions"]
    *step_operands, left, weight = request.operands
    moves = request.static("moves")
    assert isinstance(left, Meta)
    assert isinstance(weight, Meta)
    assert isinstance(moves, tuple)
    steps, *operand_steps = moves
    (rows, in_features), units = left.shape, request.into[0].shape[1]
    element = left.dtype
    lanes = caps.lanes // (2 if element.itemsize == 8 else 1)
    rows_per_task, tasks = split(rows, caps.cores)
    product_count = len(products)
    mr, nv = _choose_tile(rows_per_task, units, product_count, lanes, _MAX_SUMS[caps.registers])
    blocks, tiles = -(-units // (nv * lanes)), min(_TILES_PER_PANEL, -(-rows_per_task // mr))
    depth, _ = split(in_features, -(-in_features * product_count * nv * lanes * element.itemsize // _PANEL_BYTES))
    result = len(request.tensors)
    slots, buffers, pitches, defines = [], [], [], []
    tensors = numbers = 0
    for k, layout in enumerate((*step_operands, *request.into)):
        if isinstance(layout, Meta):
            pitch, column_stride = expand_strides(layout, (rows, units))
            pitches.append(pitch)
            slots.append(slot(layout, "value"))
            buffers.append(tensors if k < len(step_operands) else result + k - len(step_operands))
            defines.append((f"KEEP{k}" if k in products else f"CLASS{k}", str(column_stride)))
            tensors += 1
            continue
        if k not in products:
            defines += [(f"CLASS{k}", "3"), (f"NUMBER{k}", str(numbers))]
            numbers += 1
        slots.append(Slot(element.name, "value"))
        buffers.append(result)  # the kernel does not access it
        pitches.append(0)
    packed = result + len(request.into)
    text = request.text
    common = (("NV", str(nv)),)

    def instance(entry: str, types: tuple[Slot, ...], entry_defines: tuple[tuple[str, str], ...]) -> Instance:
        macros = ((f"SCHEDULE_{entry.upper()}", "1"), ("VU", f"{element.compute}{lanes}_u"), *common, *entry_defines)
        name = record.name
        return Instance(name, text.source, f"{name}_{entry}", element.compute, lanes, types, macros, text.functions)

    left_slot = slot(left, "value")
    chunk, chunks = split(in_features, -(-weight.numel // (blocks * _MIN_PACKED_WEIGHTS)), lanes)
    pack = Step(
        instance("pack", (left_slot, left_slot), (("BUFFERS", "2"), ("NUMBERS", "0"))), (result - 1, packed),
        pack_longs((units, in_features, chunk, *weight.strides)), (blocks, chunks), (1, 1), weight.numel * 2,
    )  # fmt: skip
    cost_per_element = 2 * len(slots) + sum(COSTS.get(f, 4) for f in text.functions)
    defines += [("BUFFERS", str(len(slots) + 2)), ("NUMBERS", str(numbers)), ("MR", str(mr)), ("TILES", str(tiles))]
    sequence = Step(
        instance("sequence", (*slots, left_slot, left_slot), tuple(defines)),
        (*buffers, result - 2, packed),
        pack_longs((steps, rows, units, in_features, rows_per_task, depth, *operand_steps, *pitches, left.strides[0])),
        (tasks,), (1,),
        steps * rows * units * (product_count * in_features // 32 + cost_per_element), tuple(range(numbers)),
    )  # fmt: skip
    nbytes = blocks * nv * lanes * product_count * in_features * element.itemsize
    return Planned(request.into, (pack, sequence), (nbytes,))


def _choose_tile(rows: int, units: int, products: int, lanes: int, max_sums: int) -> tuple[int, int]:
    """Return rows, and vectors of units, of the tile of least cost: few FMAs past the ends, and few loads."""

    def cost(tile: tuple[int, int]) -> float:
        r, v = tile
        wide = v * products
        return -(-rows // r) * -(-units // (v * lanes)) * (r * wide + wide + 0.5 * r + 1)

    wide = [v for v in range(1, 5) if v * products <= max_sums // 2] or [1]
    return min(((r, v) for v in wide for r in range(1, max(1, min(max_sums // (v * products), 12)) + 1)), key=cost)
