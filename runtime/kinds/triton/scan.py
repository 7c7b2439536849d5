"""Scans: `lines` of elements in tiles, one after the other; where there are too few lines to fill the device, `totals`
of shares of them, and `carried`, which begins each share with what those before it made. No atomics: the same call
gives the same bits."""

from __future__ import annotations

from ...backends.protocol import Slot, Step
from ...device import Meta
from ...layout import split
from .. import Request, slot
from ..reduction import is_bool, state_bytes, state_slot
from ..scan import Lines, schedule
from . import Defines, Geometry, index_type, instance, next_power, strided_extent
from .reduction import LIGHT, LIMITS

__all__ = ["steps"]

_LEAST = 4096  # elements that are worth a program of their own
_ROW = 64  # neighbouring lines that are read together where elements of a line are apart
_MOST = 512  # shares, which every program looks through


def steps(
    request: Request, outputs: tuple[Meta, ...], lines: Lines, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """The launch, or the two launches with the bytes of the totals between them."""
    record, able = request.record, request.capabilities
    inputs = tuple(slot(m, o.type) for o, m in request.tensors)
    results = tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    states = tuple(state_slot(t, element) for t in record.detail["fields"])
    numbers = tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))
    heavy = set(record.texts[request.device.driver.target].functions) - LIGHT
    tall, wide = _tile(lines, (able.block // 2 if heavy else able.block) // max(1, len(states) // 2))
    programs = -(-lines.number // tall)
    chosen = schedule(request, lines)
    wanted = min(chosen["programs"] * able.cores // programs, tall * lines.count // _LEAST, _MOST)
    run, shares = split(lines.count, max(1, wanted), wide)
    lowest, highest = (0, 1) if element == "uchar" and is_bool(request) else LIMITS[element]
    ends = [abs(b) + abs(a) * lines.count for b, a in zip(lines.begin, lines.along, strict=True)]
    extents = [lines.number * max(lines.count, shares)]
    extents += [e + strided_extent(lines.kept, s) for e, s in zip(ends, lines.kept_strides, strict=True)]
    defines: Defines = {
        "LOWEST": lowest, "HIGHEST": highest, "KEPT": len(lines.kept), "WG_BOOL": int(is_bool(request)),
        "INDEX": index_type([sum(extents)]), "RESULTS": tall, "BLOCK": wide, "REVERSED": int(lines.backwards),
    }  # fmt: skip
    if chosen["warps"] != 4:  # Triton's own default
        defines["num_warps"] = chosen["warps"]
    for k, (a, beside) in enumerate(zip(lines.along, lines.kept_strides, strict=True)):
        defines[f"BESIDE{k}"] = int(beside == (1,))
        defines[f"WAY{k}"] = a if abs(a) < 2 else 2
    count = len(inputs) + len(results)
    everything = tuple(range(count))
    work = lines.number * lines.count

    def step(entry: str, slots: tuple[Slot, ...], buffers: tuple[int, ...], grid: tuple[int, ...], tables: int) -> Step:
        geometry: Geometry = (
            lines.number, lines.count, run, lines.kept, *lines.kept_strides[:tables], *lines.begin[:tables],
            *lines.along[:tables],
        )  # fmt: skip
        own = {**defines, "SHARES": next_power(shares)} if entry == "carried" else defines
        return Step(instance(request, entry, element, slots, own), buffers, geometry, grid, None, work, numbers)

    if shares == 1:
        return (step("lines", inputs + results, everything, (programs,), count),), ()
    totals = tuple(range(count, count + len(states)))
    first = len(inputs)
    before = step("totals", inputs + states, (*everything[:first], *totals), (programs, shares - 1), first)
    after = step("carried", inputs + results + states, (*everything, *totals), (programs, shares), count)
    return (before, after), tuple(
        state_bytes(t, element) * (shares - 1) * lines.number for t in record.detail["fields"]
    )


def _tile(lines: Lines, elements: int) -> tuple[int, int]:
    """How many lines, and how many elements of each, a program takes at a time: along memory as far as it goes."""
    beside = lines.kept_strides[lines.main][-1] == 1 and lines.kept[-1] > 1
    tall = min(next_power(lines.kept[-1]), _ROW) if beside and abs(lines.along[lines.main]) != 1 else 1
    wide = min(next_power(lines.count), max(elements // tall, 1))
    tall = min(max(tall, elements // wide), next_power(lines.number))
    return tall, wide
