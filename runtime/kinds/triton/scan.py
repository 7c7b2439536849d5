"""Plan scans for Triton.

The kernel `lines` scans a tile of lines block after block. If there are too few lines to fill the device, they are
split into shares: `totals` computes the total of each share, and `carried` starts each share from the totals before
it. No kernel uses atomics, so the same call gives the same bits. See `..scan_lines` for `Lines`.
"""

from __future__ import annotations

from ...backends.protocol import Slot, Step
from ...device import Meta
from ...layout import split
from .. import Request, slot
from ..reduction_states import is_bool, state_bytes, state_slot
from ..scan_lines import Lines, schedule
from . import Defines, Geometry, index_type, instance, next_power, strided_extent
from .reduction import LIGHT_FUNCTIONS, LIMITS

__all__ = ["steps"]

_MIN_SHARE_ELEMENTS = 4096  # elements of a share, over all lines of a tile
_MIN_TILE_LINES = 64  # tile height where neighbouring lines are contiguous and a line's elements are not
_MAX_SHARES = 512  # most shares of a line, because every program reads the totals of all shares


def steps(
    request: Request, outputs: tuple[Meta, ...], lines: Lines, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Plan one launch, or two where lines are split: the first writes the totals of shares, the second reads them.

    Returns:
        The launches, and the bytes of each field of the totals.
    """
    record, caps = request.record, request.capabilities
    inputs = tuple(slot(m, o.type) for o, m in request.tensors)
    results = tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    states = tuple(state_slot(t, element) for t in record.detail["fields"])
    numbers = tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))
    is_heavy = bool(set(request.text.functions) - LIGHT_FUNCTIONS)
    tile_lines, tile_elements = _tile(lines, (caps.block // 2 if is_heavy else caps.block) // max(1, len(states) // 2))
    tiles = -(-lines.count // tile_lines)
    params = schedule(request, lines)
    target_shares = min(
        params["programs"] * caps.cores // tiles, tile_lines * lines.length // _MIN_SHARE_ELEMENTS, _MAX_SHARES
    )
    share_size, shares = split(lines.length, max(1, target_shares), tile_elements)
    lowest, highest = (0, 1) if element == "uchar" and is_bool(request) else LIMITS[element]
    offset_bounds = [abs(b) + abs(a) * lines.length for b, a in zip(lines.offsets, lines.strides, strict=True)]
    extents = [lines.count * max(lines.length, shares)]
    extents += [
        bound + strided_extent(lines.outer_sizes, s)
        for bound, s in zip(offset_bounds, lines.outer_strides, strict=True)
    ]
    defines: Defines = {
        "LOWEST": lowest, "HIGHEST": highest, "KEPT": len(lines.outer_sizes), "WG_BOOL": int(is_bool(request)),
        "INDEX": index_type([sum(extents)]), "LINES": tile_lines, "BLOCK": tile_elements,
        "REVERSED": int(lines.is_reversed),
    }  # fmt: skip
    if params["warps"] != 4:  # Triton's own default
        defines["num_warps"] = params["warps"]
    for k, (stride, neighbour_strides) in enumerate(zip(lines.strides, lines.outer_strides, strict=True)):
        defines[f"BESIDE{k}"] = int(neighbour_strides == (1,))  # every line begins one element after the line before
        defines[f"WAY{k}"] = stride if abs(stride) < 2 else 2  # constant strides: contiguous, reversed or broadcast
    io_count = len(inputs) + len(results)
    io_buffers = tuple(range(io_count))
    work = lines.count * lines.length

    def step(
        entry: str, slots: tuple[Slot, ...], buffers: tuple[int, ...], grid: tuple[int, ...], num_buffers: int
    ) -> Step:
        geometry: Geometry = (
            lines.count, lines.length, share_size, lines.outer_sizes, *lines.outer_strides[:num_buffers],
            *lines.offsets[:num_buffers], *lines.strides[:num_buffers],
        )  # fmt: skip
        all_defines = {**defines, "SHARES": next_power(shares)} if entry == "carried" else defines
        return Step(instance(request, entry, element, slots, all_defines), buffers, geometry, grid, None, work, numbers)

    if shares == 1:
        return (step("lines", inputs + results, io_buffers, (tiles,), io_count),), ()
    totals = tuple(range(io_count, io_count + len(states)))
    input_count = len(inputs)
    totals_step = step(
        "totals", inputs + states, (*io_buffers[:input_count], *totals), (tiles, shares - 1), input_count
    )
    results_step = step("carried", inputs + results + states, (*io_buffers, *totals), (tiles, shares), io_count)
    return (totals_step, results_step), tuple(
        state_bytes(t, element) * (shares - 1) * lines.count for t in record.detail["fields"]
    )


def _tile(lines: Lines, elements: int) -> tuple[int, int]:
    """Return the tile of a program: number of lines, and elements of each. It is longest along contiguous memory."""
    is_adjacent = lines.outer_strides[lines.main_input][-1] == 1 and lines.outer_sizes[-1] > 1
    tile_lines = (
        min(next_power(lines.outer_sizes[-1]), _MIN_TILE_LINES)
        if is_adjacent and abs(lines.strides[lines.main_input]) != 1
        else 1
    )
    tile_elements = min(next_power(lines.length), max(elements // tile_lines, 1))
    tile_lines = min(max(tile_lines, elements // tile_elements), next_power(lines.count))
    return tile_lines, tile_elements
