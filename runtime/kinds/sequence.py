"""A step of a recurrence, a pointwise op, over a whole sequence: for CPUs, one launch instead of several a step.

The op's `products` are the columns, a block each, of a matrix product of `left`, what the step before gave, with
`weight`: they are computed a tile at a time and go into the op's expressions while they are in a first-level cache.
Rows do not need each other, so a core has its own for the whole sequence, and nobody waits between steps.

Schedules: `pack` (weights to panels, which all steps use) and `sequence`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from ..backends.protocol import Instance, Slot, Step
from ..device import Device, Meta
from ..layout import expand_strides, pack_longs, split
from ..records import Operand, OpRecord, registry
from . import Planned, Request, slot
from .pointwise import COSTS

__all__ = ["plan", "record_of", "suits"]

# Vectors of sums of a tile, beside which weights and an element of `left` fit so many registers.
_SUMS = {32: 24, 16: 12}
_FEW = 4  # rows of a core for which weights are worth reading
_SMALL = 1 << 18  # bytes of weights that a second-level cache gives as fast as few rows use them
_PANEL = 1 << 14  # bytes of a panel that stay in a first-level cache
_TILES = 8  # that use them
_PACKED = 1 << 14  # weights that are worth a work-item


@cache
def record_of(name: str) -> OpRecord:
    """The op over a sequence. Its operands are those of the op at the first step, None for a product that is not to be
    stored, and then `left` (rows, deep) and `weight` (deep, products x units). moves: how many steps there are, and how
    many elements each operand, each result and `left` go on from step to step."""
    op = registry[name]
    products = op.detail["products"]
    given = [replace(o, role="optional") if i in products else o for i, o in enumerate(op.operands)]
    operands = (*given, Operand("left"), Operand("weight"))
    return replace(op, kind="sequence", operands=operands, statics=("moves",), gradients={})


def suits(device: Device, weight: Meta, rows: int) -> bool:
    """Whether one launch is the faster way: there are rows for all cores, or so few weights that it does not matter."""
    able = device.driver.capabilities
    if able.style != "cpu" or weight.dtype.name not in ("float32", "float64") or able.lanes < 8:
        return False
    return rows >= _FEW * able.cores or weight.numel * weight.dtype.itemsize <= _SMALL


def plan(request: Request) -> Planned:
    """The launches: results are given."""
    record, able = request.record, request.capabilities
    assert request.into is not None
    if not request.into[0].numel:
        return Planned(request.into)
    products: tuple[int, ...] = record.detail["products"]
    *given, left, weight = request.operands
    moves = request.static("moves")
    assert isinstance(left, Meta)
    assert isinstance(weight, Meta)
    assert isinstance(moves, tuple)
    steps, *moved = moves
    (rows, deep), units = left.shape, request.into[0].shape[1]
    element = left.dtype
    lanes = able.lanes // (2 if element.itemsize == 8 else 1)
    share, shares = split(rows, able.cores)
    many = len(products)
    mr, nv = _tile(share, units, many, lanes, _SUMS[able.registers])
    blocks, tiles = -(-units // (nv * lanes)), min(_TILES, -(-share // mr))
    depth, _ = split(deep, -(-deep * many * nv * lanes * element.itemsize // _PANEL))
    result = len(request.tensors)
    slots, buffers, pitches, defines = [], [], [], []
    tensors = numbers = 0
    for k, layout in enumerate((*given, *request.into)):
        if isinstance(layout, Meta):
            pitch, across = expand_strides(layout, (rows, units))
            pitches.append(pitch)
            slots.append(slot(layout, "value"))
            buffers.append(tensors if k < len(given) else result + k - len(given))
            defines.append((f"KEEP{k}" if k in products else f"CLASS{k}", str(across)))
            tensors += 1
            continue
        if k not in products:
            defines += [(f"CLASS{k}", "3"), (f"NUMBER{k}", str(numbers))]
            numbers += 1
        slots.append(Slot(element.name, "value"))
        buffers.append(result)  # which the kernel does not touch there
        pitches.append(0)
    packed = result + len(request.into)
    text = record.texts["opencl"]
    common = (("NV", str(nv)),)

    def instance(entry: str, types: tuple[Slot, ...], given: tuple[tuple[str, str], ...]) -> Instance:
        made = ((f"SCHEDULE_{entry.upper()}", "1"), ("VU", f"{element.compute}{lanes}_u"), *common, *given)
        name = record.name
        return Instance(name, text.source, f"{name}_{entry}", element.compute, lanes, types, made, text.functions)

    one = slot(left, "value")
    chunk, chunks = split(deep, -(-weight.numel // (blocks * _PACKED)), lanes)
    pack = Step(
        instance("pack", (one, one), (("BUFFERS", "2"), ("NUMBERS", "0"))), (result - 1, packed),
        pack_longs((units, deep, chunk, *weight.strides)), (blocks, chunks), (1, 1), weight.numel * 2,
    )  # fmt: skip
    costs = 2 * len(slots) + sum(COSTS.get(f, 4) for f in text.functions)
    defines += [("BUFFERS", str(len(slots) + 2)), ("NUMBERS", str(numbers)), ("MR", str(mr)), ("TILES", str(tiles))]
    sequence = Step(
        instance("sequence", (*slots, one, one), tuple(defines)),
        (*buffers, result - 2, packed),
        pack_longs((steps, rows, units, deep, share, depth, *moved, *pitches, left.strides[0])), (shares,), (1,),
        steps * rows * units * (many * deep // 32 + costs), tuple(range(numbers)),
    )  # fmt: skip
    nbytes = blocks * nv * lanes * many * deep * element.itemsize
    return Planned(request.into, (pack, sequence), (nbytes,))


def _tile(rows: int, units: int, many: int, lanes: int, sums: int) -> tuple[int, int]:
    """Rows and vectors of units of a tile: what multiplies least past the ends, and loads least."""

    def cost(tile: tuple[int, int]) -> float:
        r, v = tile
        wide = v * many
        return -(-rows // r) * -(-units // (v * lanes)) * (r * wide + wide + 0.5 * r + 1)

    wide = [v for v in range(1, 5) if v * many <= sums // 2] or [1]
    return min(((r, v) for v in wide for r in range(1, max(1, min(sums // (v * many), 12)) + 1)), key=cost)
