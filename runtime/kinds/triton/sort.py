"""Sort kernels: ranks of short rows, radix sort of long ones, and searching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...backends.protocol import Instance, Slot, Step
from ...layout import split
from .. import Request
from . import Defines, Geometry, index_type, next_power, strided_extent

if TYPE_CHECKING:
    from ..sort import Rows

__all__ = ["launch", "search_step"]

_SCANNED = 1024
_TILE = 256  # elements whose ranks a program counts
_COMPARED = 2048  # pairs that it compares at a time


def launch(rows: Rows) -> tuple[list[Step], list[int]]:
    """The launches that sort, and the scratch they need."""
    from ..sort import RANKED

    short = rows.n <= RANKED or 4 * rows.k <= RANKED
    return _ranked(rows) if short else _passes(rows)


def _defines(rows: Rows, places: int) -> Defines:
    sizes = [strided_extent(rows.sizes, s) for s in rows.strides]
    wide = rows.bits == 64
    return {
        "INDEX": index_type([sizes[0] + rows.n * abs(rows.steps[0]), sizes[1] + rows.k * rows.steps[1], places]),
        "KEY": "int64" if wide else "int32", "FORM": rows.form, "LOW": (1 << (rows.bits - 1)) - 1,
        "INFINITE": rows.infinite, "DOWN": int(rows.descending), "OUTER": len(rows.sizes),
    }  # fmt: skip


def _step(
    rows: Rows, entry: str, buffers: tuple[int, ...], geometry: Geometry, programs: int, work: int, defines: Defines
) -> Step:
    """One launch. buffers: input, values, indices, keys, places and counts, as far as the kernel takes them."""
    key, index = str(defines.get("KEY", "int64")), str(defines["INDEX"])
    types = (rows.raw.name, rows.raw.name, "int64", key, index, index)
    slots = tuple(Slot(types[b], "raw") for b in buffers)
    text = rows.request.record.texts[rows.request.device.driver.target]
    # Named for the kind, not the op: the ops share kernels.
    made = Instance(
        "sort", text.source, f"sort_{entry}", rows.raw.compute, 1, slots, tuple(defines.items()), text.functions
    )
    return Step(made, buffers, geometry, (programs,), None, work)


def _sizes(defines: Defines, items: int, counts: int) -> list[int]:
    """Bytes of scratch for so many keys and places, and counts."""
    key, index = (8 if defines[name] == "int64" else 4 for name in ("KEY", "INDEX"))
    return [items * key, items * index] + ([counts * index] if counts else [])


def _ranked(r: Rows) -> tuple[list[Step], list[int]]:
    from ..sort import RANKED, levels

    every = levels(r.n, r.k)
    items = sum(r.rows * parts * r.k for _, parts in every[:-1])
    common = _defines(r, max(items, r.rows * RANKED))
    steps, source, target = [], 0, 0
    for level, (n, parts) in enumerate(every):
        last = level + 1 == len(every)
        part = RANKED if parts > 1 else n
        columns = next_power(part)
        tall = max(1, min(_TILE // columns, next_power(r.rows * parts)))
        others = max(1, min(columns, _COMPARED // (columns * tall)))
        defines = common | {
            "SOURCE": int(level > 0), "TARGET": int(not last), "ROWS": tall, "COLUMNS": columns, "OTHERS": others,
            "HIGHEST": (1 << 63) - 1 if r.bits == 64 else (1 << 31) - 1,
        }  # fmt: skip
        geometry: Geometry = (
            r.rows, n, r.k, parts, part, source, target, *r.steps, r.sizes, *r.strides,
        )  # fmt: skip
        # Without levels there are no items, and any buffer stands for theirs.
        buffers = (0, 1, 2, 3, 4)
        programs = -(-r.rows * parts // tall)
        steps.append(_step(r, "rank", buffers, geometry, programs, r.rows * parts * part * part, defines))
        source, target = target, target + r.rows * parts * r.k
    return steps, _sizes(common, max(items, 1), 0)


def _passes(r: Rows) -> tuple[list[Step], list[int]]:
    able = r.request.capabilities
    chosen = r.schedule()
    block = chosen["block"]
    part, parts = split(r.n, max(1, min(chosen["parts"] * able.cores // r.rows, -(-r.n // block))), block)
    counts = r.rows * (parts * 16 + 2)
    common = _defines(r, max(2 * r.rows * r.n, counts))
    steps = []
    for shift in range(0, r.bits, 4):
        first, last = int(shift == 0), int(shift + 4 == r.bits)
        top = 8 if last and r.form else 0
        defines = common | {"FIRST": first, "BLOCK": block}
        geometry: Geometry = (r.rows, r.n, parts, part, shift, top, r.steps[0], r.sizes, r.strides[0])
        steps.append(_step(r, "count", (0, 3, 5), geometry, r.rows * parts, r.rows * r.n, defines))
        sums: Defines = {"INDEX": common["INDEX"], "FIRST": first, "LAST": last, "BLOCK": _SCANNED}
        steps.append(_step(r, "scan", (5,), (r.rows, r.n, parts), r.rows, counts, sums))
        geometry = (r.rows, r.n, r.k, parts, part, shift, top, *r.steps, r.sizes, *r.strides)
        defines = defines | {"LAST": last}
        steps.append(
            _step(r, "scatter", (0, 1, 2, 3, 4, 5), geometry, r.rows * parts, r.rows * r.n, defines)
        )  # fmt: skip
    return steps, _sizes(common, 2 * r.rows * r.n, counts)


def search_step(
    request: Request,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    geometry: tuple[int, ...],
    flags: dict[str, int],
) -> Step:
    """The launch that finds places. geometry: values, a sequence's length, a row's, strides, and halvings."""
    total, n, _, stride, _ = geometry
    rows = -(-total // geometry[2])
    block = min(request.capabilities.block, 1024)
    defines: Defines = {**flags, "INDEX": index_type([total, n * 2, rows * stride]), "BLOCK": block}
    text = request.record.texts[request.device.driver.target]
    made = Instance(
        "search", text.source, "search", request.operands[0].dtype.compute, 1, slots, tuple(defines.items()),  # type: ignore[union-attr]
        text.functions,
    )  # fmt: skip
    return Step(made, buffers, geometry, (-(-total // block),), None, total)
