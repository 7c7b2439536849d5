"""Plan sort ops for Triton: ranks for short rows, radix sort with digits of 4 bits for long ones, and searching.

See `..sort` for the algorithms and `..sort_rows` for `Rows`.
"""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...layout import split
from .. import Request
from ..sort_rows import RANK_MAX, Rows, rank_levels
from . import Defines, Geometry, index_type, next_power, strided_extent

__all__ = ["launch", "search_step"]

_SCAN_BLOCK = 1024
_RANK_TILE = 256  # elements whose ranks a program counts
_MAX_PAIRS = 2048  # pairs of elements that it compares at a time


def launch(rows: Rows) -> tuple[list[Step], list[int]]:
    """Plan the launches that sort; return them with the bytes of each scratch buffer."""
    use_ranks = rows.n <= RANK_MAX or 4 * rows.k <= RANK_MAX
    return _rank_steps(rows) if use_ranks else _radix_steps(rows)


def _defines(rows: Rows, max_position: int) -> Defines:
    """Return the constants that all sort kernels share. max_position: largest position in scratch memory."""
    sizes = [strided_extent(rows.sizes, s) for s in rows.strides]
    is_64_bit = rows.bits == 64
    return {
        "INDEX": index_type([sizes[0] + rows.n * abs(rows.steps[0]), sizes[1] + rows.k * rows.steps[1], max_position]),
        "KEY": "int64" if is_64_bit else "int32", "FORM": rows.form, "LOW": (1 << (rows.bits - 1)) - 1,
        "INFINITE": rows.infinity_bits, "DOWN": int(rows.descending), "OUTER": len(rows.sizes),
    }  # fmt: skip


def _step(
    rows: Rows, entry: str, buffers: tuple[int, ...], geometry: Geometry, programs: int, work: int, defines: Defines
) -> Step:
    """Build a launch. buffers: positions among input, values, indices, keys, positions and counts."""
    key, index = str(defines.get("KEY", "int64")), str(defines["INDEX"])
    types = (rows.raw.name, rows.raw.name, "int64", key, index, index)
    slots = tuple(Slot(types[b], "raw") for b in buffers)
    text = rows.request.text
    # Named after the kind and not the op, because the ops share kernels.
    kernel = Instance(
        "sort", text.source, f"sort_{entry}", rows.raw.compute, 1, slots, tuple(defines.items()), text.functions
    )
    return Step(kernel, buffers, geometry, (programs,), None, work)


def _sizes(defines: Defines, items: int, counts: int) -> list[int]:
    """Return the bytes of scratch for `items` keys and positions, and for `counts` counts."""
    key, index = (8 if defines[name] == "int64" else 4 for name in ("KEY", "INDEX"))
    return [items * key, items * index] + ([counts * index] if counts else [])


def _rank_steps(r: Rows) -> tuple[list[Step], list[int]]:
    """Plan one launch per level of ranks."""
    levels = rank_levels(r.n, r.k)
    items = sum(r.rows * parts * r.k for _, parts in levels[:-1])
    common = _defines(r, max(items, r.rows * RANK_MAX))
    steps, source, target = [], 0, 0
    for level, (n, parts) in enumerate(levels):
        is_last = level + 1 == len(levels)
        part = RANK_MAX if parts > 1 else n
        columns = next_power(part)
        tile_rows = max(1, min(_RANK_TILE // columns, next_power(r.rows * parts)))
        compared_columns = max(1, min(columns, _MAX_PAIRS // (columns * tile_rows)))
        defines = common | {
            "SOURCE": int(level > 0), "TARGET": int(not is_last), "ROWS": tile_rows, "COLUMNS": columns,
            "OTHERS": compared_columns,
            "HIGHEST": (1 << 63) - 1 if r.bits == 64 else (1 << 31) - 1,
        }  # fmt: skip
        geometry: Geometry = (
            r.rows, n, r.k, parts, part, source, target, *r.steps, r.sizes, *r.strides,
        )  # fmt: skip
        # With a single level the kernel does not access the scratch buffers, which then have one item.
        buffers = (0, 1, 2, 3, 4)
        programs = -(-r.rows * parts // tile_rows)
        steps.append(_step(r, "rank", buffers, geometry, programs, r.rows * parts * part * part, defines))
        source, target = target, target + r.rows * parts * r.k
    return steps, _sizes(common, max(items, 1), 0)


def _radix_steps(r: Rows) -> tuple[list[Step], list[int]]:
    """Plan a radix sort: three launches per digit of 4 bits."""
    caps = r.request.capabilities
    params = r.schedule()
    block = params["block"]
    part, parts = split(r.n, max(1, min(params["parts"] * caps.cores // r.rows, -(-r.n // block))), block)
    counts = r.rows * (parts * 16 + 2)
    common = _defines(r, max(2 * r.rows * r.n, counts))
    steps = []
    for shift in range(0, r.bits, 4):
        is_first, is_last = int(shift == 0), int(shift + 4 == r.bits)
        top = 8 if is_last and r.form else 0
        defines = common | {"FIRST": is_first, "BLOCK": block}
        geometry: Geometry = (r.rows, r.n, parts, part, shift, top, r.steps[0], r.sizes, r.strides[0])
        steps.append(_step(r, "count", (0, 3, 5), geometry, r.rows * parts, r.rows * r.n, defines))
        sums: Defines = {"INDEX": common["INDEX"], "FIRST": is_first, "LAST": is_last, "BLOCK": _SCAN_BLOCK}
        steps.append(_step(r, "scan", (5,), (r.rows, r.n, parts), r.rows, counts, sums))
        geometry = (r.rows, r.n, r.k, parts, part, shift, top, *r.steps, r.sizes, *r.strides)
        defines = defines | {"LAST": is_last}
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
    """Plan the launch that searches.

    Args:
        geometry: number of values, length of a sequence, values per sequence, stride between sequences, search steps.
    """
    total, n, _, stride, _ = geometry
    rows = -(-total // geometry[2])
    block = min(request.capabilities.block, 1024)
    defines: Defines = {**flags, "INDEX": index_type([total, n * 2, rows * stride]), "BLOCK": block}
    text = request.text
    kernel = Instance(
        "search", text.source, "search", request.tensors[0][1].dtype.compute, 1, slots, tuple(defines.items()),
        text.functions,
    )  # fmt: skip
    return Step(kernel, buffers, geometry, (-(-total // block),), None, total)
