"""Plan sort ops for Triton, and searching.

- `whole`: rows of up to `whole` elements (a parameter of the schedule). One program sorts a row by a bitonic network.
- `count` and `scatter`: longer rows. Radix sort with digits of 8 bits, two launches per digit.
- `select`: top k. A program holds a part of a row and selects its k lowest keys; `whole` sorts what all parts selected.

See `..sort_rows` for `Rows`.
"""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...layout import split
from .. import Request
from ..sort_rows import Rows
from . import Defines, Geometry, index_type, next_power, strided_extent

__all__ = ["search_step", "sort_steps"]

_DIGIT_VALUES = 256  # values of a digit of 8 bits
_SUMMED_PARTS = 16  # parts of a row whose counts a program loads at a time
_SORT_ITEMS, _SELECT_ITEMS = 256, 1024  # items of a warp
_SELECT_BLOCK = 4096  # items that a selecting program stores at a time
_PART_UNIT = 16  # elements: parts begin at aligned addresses
_MIN_ITEMS = 1024  # items that a program sorts at least, if there are enough rows
_MIN_SELECT = 1024  # shortest row, and smallest tile, from which a program selects
_SELECT_OVERHEAD = 2048  # slots that a program could compare in the time in which it starts and waits


def sort_steps(rows: Rows) -> tuple[list[Step], list[int]]:
    """Plan the launches that sort; return them with the bytes of each scratch buffer."""
    max_whole = rows.schedule()["whole"]
    if rows.n <= max_whole or (rows.k <= max_whole and _selection_tiles(rows)):
        return _whole_steps(rows, max_whole)
    return _radix_steps(rows)


def _selection_tiles(rows: Rows) -> list[int]:
    """Return the sizes of tiles from which a program may select: they have at least four times k elements."""
    largest = rows.schedule()["select"] // (2 if rows.bits == 64 else 1)
    smallest = max(_MIN_SELECT, 4 * next_power(rows.k))
    return [1 << b for b in range(smallest.bit_length() - 1, largest.bit_length())]


def _selection_part(rows: Rows, n: int, tiles: list[int]) -> int:
    """Return the number of elements of a part of a row of `n`, from which a program selects.

    The estimate of time counts the slots that a multiprocessor compares, and the candidates that are left.
    """
    cores = rows.request.capabilities.cores
    best, least_time = 0, 0
    for tile in tiles:
        parts = -(-n // tile)
        part = -(-n // (parts * _PART_UNIT)) * _PART_UNIT
        slots_per_core = -(-rows.rows * parts // cores) * (next_power(part) + _SELECT_OVERHEAD)
        time = slots_per_core + 4 * rows.rows * parts * rows.k // cores
        if not best or time < least_time:
            best, least_time = part, time
    return best


def _defines(rows: Rows, max_position: int) -> Defines:
    """Return the constants that all sort kernels share. max_position: largest position in scratch memory."""
    extents = [strided_extent(rows.sizes, strides) for strides in rows.strides]
    input_extent = extents[0] + rows.n * abs(rows.dim_strides[0])
    result_extent = extents[1] + rows.k * rows.dim_strides[1]
    is_64_bit = rows.bits == 64
    key_bits = max(rows.bits, 9)  # unsigned bytes need 9 bits in a signed key
    return {
        "INDEX": index_type([input_extent, result_extent, max_position]), "KEY": "int64" if is_64_bit else "int32",
        "FORM": rows.form, "MAGNITUDE_MASK": (1 << (rows.bits - 1)) - 1, "INFINITE": rows.infinity_bits,
        "HIGHEST": (1 << (key_bits - 1)) - 1, "BITS": key_bits, "DOWN": int(rows.descending), "OUTER": len(rows.sizes),
        "UNIT": int(rows.dim_strides[0] == 1),
    }  # fmt: skip


def _launch_step(
    rows: Rows, entry: str, buffers: tuple[int, ...], geometry: Geometry, programs: int, work: int, defines: Defines
) -> Step:
    """Build one launch of the kernel `sort_ENTRY`.

    Args:
        rows: The rows to sort.
        entry: Name of the kernel without `sort_`.
        buffers: The kernel's buffers, by number: 0 input, 1 values, 2 indices, and in scratch 3 keys, 4 their positions
            in the row, 5 counts.
        geometry: The kernel's sizes and strides.
        programs: Number of programs.
        work: Number of elements that they read or compare.
        defines: The kernel's constants.
    """
    key_dtype, index_dtype = str(defines.get("KEY", "int64")), str(defines["INDEX"])
    types = (rows.raw.name, rows.raw.name, "int64", key_dtype, index_dtype, index_dtype)
    slots = tuple(Slot(types[b], "raw") for b in buffers)
    text = rows.request.text
    # Named after the kind and not the op, because the ops share kernels.
    kernel = Instance(
        "sort", text.source, f"sort_{entry}", rows.raw.compute, 1, slots, tuple(defines.items()), text.functions
    )
    return Step(kernel, buffers, geometry, (programs,), None, work)


def _scratch_nbytes(defines: Defines, items: int, counts: int) -> list[int]:
    """Return the bytes of each scratch buffer, for `items` keys, their positions, and `counts` counts."""
    key_nbytes, index_nbytes = (8 if defines[name] == "int64" else 4 for name in ("KEY", "INDEX"))
    return [items * key_nbytes, items * index_nbytes] + ([counts * index_nbytes] if counts else [])


def _whole_steps(rows: Rows, max_whole: int) -> tuple[list[Step], list[int]]:
    """Plan a launch that sorts whole rows.

    Before it, launches select candidates while a row is longer than `max_whole`, or so long that selecting is faster. A
    selecting launch writes its candidates to scratch, behind those of the launch before.
    """
    tiles = _selection_tiles(rows)
    lengths = [rows.n]  # of a row, at each level
    parts_of_levels: list[tuple[int, int]] = []
    while lengths[-1] > max_whole or (tiles and lengths[-1] >= max(_MIN_SELECT, 8 * rows.k)):
        part = _selection_part(rows, lengths[-1], tiles)
        parts = -(-lengths[-1] // part)
        parts_of_levels.append((parts, part))
        lengths.append(parts * rows.k)
    items = sum(rows.rows * n for n in lengths[1:])
    common_defines = _defines(rows, items + rows.rows * max(rows.n, max_whole))
    launches: list[Step] = []
    # positions in scratch of the first candidate that a level reads, and of the first that it writes
    source, target = 0, 0
    for level, (parts, part) in enumerate(parts_of_levels):
        columns = next_power(part)
        defines = common_defines | {
            "FROM_CANDIDATES": int(level > 0), "COLUMNS": columns, "BLOCK": min(columns, _SELECT_BLOCK),
            "num_warps": min(max(columns // _SELECT_ITEMS, 4), 16),
        }  # fmt: skip
        geometry: Geometry = (
            rows.rows, lengths[level], rows.k, parts, part, source, target, rows.dim_strides[0], rows.sizes,
            rows.strides[0],
        )  # fmt: skip
        work = rows.rows * lengths[level]
        launches.append(_launch_step(rows, "select", (0, 3, 4), geometry, rows.rows * parts, work * rows.bits, defines))
        source, target = target, target + rows.rows * lengths[level + 1]
    launches.append(_whole_step(rows, lengths[-1], source, bool(parts_of_levels), common_defines))
    return launches, _scratch_nbytes(common_defines, max(items, 1), 0)


def _whole_step(rows: Rows, n: int, source: int, from_candidates: bool, common_defines: Defines) -> Step:
    """Plan a launch that sorts whole rows of `n` elements, or of candidates from element `source` of scratch."""
    log = int((next_power(n) - 1).bit_length())  # pins a traced size: a constant of the kernel, and a shift
    tile_rows = max(1, min(_MIN_ITEMS >> log, next_power(rows.rows)))
    defines = common_defines | {
        "FROM_CANDIDATES": int(from_candidates), "ROWS": tile_rows, "LOG": log,
        "num_warps": min(max((tile_rows << log) // _SORT_ITEMS, 1), 16),
    }  # fmt: skip
    geometry: Geometry = (rows.rows, n, rows.k, source, *rows.dim_strides, rows.sizes, *rows.strides)
    work = (rows.rows * n) * max(log * (log + 1) // 2, 1)
    return _launch_step(rows, "whole", (0, 1, 2, 3, 4), geometry, -(-rows.rows // tile_rows), work, defines)


def _radix_steps(rows: Rows) -> tuple[list[Step], list[int]]:
    """Plan a radix sort: two launches per digit of 8 bits."""
    params = rows.schedule()
    block = params["block"]
    parts_per_row = params["parts"] * rows.request.capabilities.cores // rows.rows
    blocks_per_row = -(-rows.n // block)
    part, parts = split(rows.n, max(1, min(parts_per_row, blocks_per_row)), block)
    passes = rows.bits // 8
    counts = rows.rows * (parts * _DIGIT_VALUES + passes)  # and, per row and pass, the half that the pass reads from
    common_defines = _defines(rows, max(2 * rows.rows * rows.n, counts)) | {
        "LOG": block.bit_length() - 1, "num_warps": max(block // _SORT_ITEMS, 1),
    }  # fmt: skip
    programs, elements = rows.rows * parts, rows.rows * rows.n
    launches = []
    for pass_index in range(passes):
        is_last = pass_index + 1 == passes
        defines = common_defines | {"FIRST": int(pass_index == 0)}
        sign_flip = 128 if is_last and rows.form else 0  # of the highest digit: negative numbers come first
        geometry: Geometry = (
            rows.rows, rows.n, parts, part, pass_index, sign_flip, rows.dim_strides[0], rows.sizes, rows.strides[0],
        )  # fmt: skip
        launches.append(_launch_step(rows, "count", (0, 3, 5), geometry, programs, elements, defines))
        geometry = (
            rows.rows, rows.n, rows.k, parts, part, pass_index, sign_flip, *rows.dim_strides, rows.sizes, *rows.strides,
        )  # fmt: skip
        defines = defines | {"LAST": int(is_last), "PARTS": min(next_power(parts), _SUMMED_PARTS)}
        launches.append(_launch_step(rows, "scatter", (0, 1, 2, 3, 4, 5), geometry, programs, elements, defines))
    return launches, _scratch_nbytes(common_defines, 2 * rows.rows * rows.n, counts)


def search_step(
    request: Request,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    sizes: tuple[int, int, int, int, int],
    flags: dict[str, int],
) -> Step:
    """Plan the launch that searches.

    Args:
        request: The call.
        slots: Types of sequences, values and results.
        buffers: Positions of sequences, values and results among the call's buffers.
        sizes: Number of values, length of a sequence, values per sequence, stride between sequences,
            bisection steps per value (the kernel's `steps`).
        flags: The kernel's constants RIGHT, NAN_LAST and BINS.

    Returns:
        The launch.
    """
    total, n, values_per_sequence, stride, _ = sizes
    sequences = -(-total // values_per_sequence)
    block = min(request.capabilities.block, 1024)
    defines: Defines = {**flags, "INDEX": index_type([total, n, sequences * stride]), "BLOCK": block}
    text = request.text
    kernel = Instance(
        "search", text.source, "search", request.tensors[0][1].dtype.compute, 1, slots, tuple(defines.items()),
        text.functions,
    )  # fmt: skip
    return Step(kernel, buffers, sizes, (-(-total // block),), None, total)
