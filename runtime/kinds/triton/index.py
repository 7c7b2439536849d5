"""Plan index ops for Triton.

A reading program takes a tile of the result. A writing program takes a tile of the coordinates outside the indexed
dimensions, and a range of positions along the indexed ones; see `..index` for why that is deterministic.
"""

from __future__ import annotations

from math import prod

from ...backends.protocol import Slot, Step
from ...layout import split
from ...schedules import choose
from .. import Request
from ..index_access import check_number, has_negatives
from . import Defines, Geometry, index_type, instance, next_power, strided_extent

__all__ = ["bag_index_step", "bag_sums_step", "count_steps", "list_step", "read_step", "write_step"]

Strides = tuple[int, ...]
_MASK_BLOCK = 1024


def _tile(block: int, sizes: tuple[int, ...], strides: list[Strides]) -> tuple[Defines, int, int]:
    """Return the constants of a tile over collapsed `sizes`, the number of tiles, and the number of tiles in a row."""
    rows = 1
    for size in sizes[:-1]:
        rows *= size
    tile_columns = min(next_power(sizes[-1]), block)
    tile_rows = min(block // tile_columns, next_power(rows))
    tiles_per_row = -(-sizes[-1] // tile_columns)
    defines: Defines = {"ROWS": tile_rows, "COLUMNS": tile_columns, "OUTER": len(sizes) - 1}
    for k, buffer_strides in enumerate(strides):
        defines[f"CLASS{k}"] = buffer_strides[-1] if buffer_strides[-1] in (0, 1) else 2
    return defines, -(-rows // tile_rows) * tiles_per_row, tiles_per_row


def read_step(
    request: Request,
    element: str,
    slots: tuple[Slot, ...],
    sizes: tuple[int, ...],
    strides: list[Strides],
    indexed_dims: tuple[tuple[int, ...], Strides],
    total: int,
    check: int,
) -> Step:
    """Plan the launch that reads.

    Args:
        sizes: collapsed sizes of the result.
        strides: strides of input, index and result along `sizes`.
        indexed_dims: sizes and input strides of the indexed dimensions.
        total: number of positions that an index can name.
        check: number of the index check, which the kernel makes if it is not 0 (buffer 3 is the miss word then).
    """
    numel = prod(sizes)
    params = choose(request, "index", {"numel": numel, "total": total}, slots[2].dtype)
    defines, tiles, tiles_per_row = _tile(params["block"] or request.capabilities.block, sizes, strides)
    for k in (0, 2):
        defines[f"CLASS{k}"] = defines[f"CLASS{k}"] or 2
    extents = [strided_extent(sizes, s) for s in strides]
    defines["INDEX"] = index_type([sum(extents) + strided_extent(*indexed_dims) + total])
    defines["INDEXED_DIMS"] = len(indexed_dims[0])
    geometry: Geometry = (
        numel // sizes[-1], sizes[-1], tiles_per_row, total, check, sizes[:-1], *(s[:-1] for s in strides),
        *(s[-1] for s in strides), *indexed_dims,
    )  # fmt: skip
    defines |= {"CHECK": int(check != 0), "NEGATIVE": int(has_negatives(request))}
    kernel = instance(request, "read", element, (*slots, Slot("int64", "index")), defines)
    return Step(kernel, (0, 1, 2, 3 if check else 2), geometry, (tiles,), None, numel)


def write_step(
    request: Request,
    element: str,
    slots: tuple[Slot, ...],
    sizes: tuple[int, ...],
    strides: list[Strides],
    indexed_dims: tuple[tuple[int, ...], Strides],
    index_dims: tuple[tuple[int, ...], Strides, Strides],
    total: int,
    buffers: tuple[int, ...],
    miss_buffer: int | None,
) -> Step:
    """Plan the launch that writes, or combines with the result.

    Args:
        sizes: collapsed sizes outside the indexed dimensions.
        strides: strides of index, source and result along `sizes`.
        indexed_dims: sizes and result strides of the indexed dimensions.
        index_dims: sizes of the index's own dimensions, and strides of index and source along them.
        total: number of positions that an index can name.
        miss_buffer: position of the miss word, where the kernel stores an index out of range. None: it does not check.
    """
    num_results, index_count = prod(sizes), prod(index_dims[0])
    params = choose(request, "index", {"numel": num_results * index_count, "total": total}, slots[1].dtype)
    defines, tiles, tiles_per_row = _tile(params["block"] or request.capabilities.block, sizes, strides)
    defines["CLASS2"] = 1 if strides[2][-1] == 1 else 2
    range_size, ranges = split(total, max(1, min(params["programs"] * request.capabilities.cores // tiles, total)))
    extents = [strided_extent(sizes, s) for s in strides] + [strided_extent(index_dims[0], s) for s in index_dims[1:]]
    defines["INDEX"] = index_type([sum(extents) + strided_extent(*indexed_dims) + total + index_count])
    defines |= {
        "INDEXED_DIMS": len(indexed_dims[0]),
        "INDEX_DIMS": len(index_dims[0]),
        "SHARED": int(not any(strides[0])),
    }
    has_check = miss_buffer is not None
    defines |= {"CHUNK": params["chunk"], "CHECK": int(has_check), "NEGATIVE": int(has_negatives(request))}
    geometry: Geometry = (
        num_results // sizes[-1], sizes[-1], tiles_per_row, total, range_size, index_count,
        check_number(request) if has_check else 0, sizes[:-1],
        *(s[:-1] for s in strides), *(s[-1] for s in strides), *indexed_dims, *index_dims,
    )  # fmt: skip
    kernel = instance(request, "write", element, (*slots, Slot("int64", "index")), defines)
    miss_word = buffers[2] if miss_buffer is None else miss_buffer  # any buffer if the kernel does not check
    return Step(kernel, (*buffers, miss_word), geometry, (tiles, ranges), None, num_results * index_count)


def bag_index_step(request: Request, slots: tuple[Slot, ...], total: int, bags: int, offset_stride: int) -> Step:
    """Plan the launch that finds the bag of each of `total` positions. offset_stride: elements between two offsets."""
    offset_type = index_type([total + _MASK_BLOCK, bags * max(offset_stride, 1)])
    kernel = instance(request, "bags", "long", slots, {"INDEX": offset_type, "BLOCK": _MASK_BLOCK})
    return Step(kernel, (0, 1), (total, bags, offset_stride), (-(-total // _MASK_BLOCK),), None, total)


def bag_sums_step(
    request: Request,
    element: str,
    slots: tuple[Slot, ...],
    bags: int,
    features: int,
    counts: tuple[int, int, int, int],
    strides: tuple[int, ...],
    mean: bool,
) -> Step:
    """Plan the launch that sums the table rows of each bag.

    Args:
        counts: rows of the table, number of indices, number of offsets, and the row to skip (`padding_idx`).
        strides: two strides of the table, then those of the index and the offsets.
        mean: divide each sum by the number of rows.
    """
    tile_columns = min(next_power(features), request.capabilities.block)
    tiles_per_row = -(-features // tile_columns)
    rows, indices, offsets, _ = counts
    extents = (
        (rows + 1) * abs(strides[0]), (features + tile_columns) * max(abs(strides[1]), 1), indices * abs(strides[2]),
        (offsets + 1) * abs(strides[3]), bags * features,
    )  # fmt: skip
    defines: Defines = {"INDEX": index_type([sum(extents)]), "COLUMNS": tile_columns, "MEAN": int(mean)}
    kernel = instance(request, "sums", element, slots, defines)
    geometry: Geometry = (features, *counts, tiles_per_row, *strides)
    return Step(kernel, (0, 1, 2, 3), geometry, (bags * tiles_per_row,), None, max(bags, indices) * features)


def count_steps(request: Request, slots: tuple[Slot, ...], numel: int, chunk: int, chunks: int) -> tuple[Step, Step]:
    """Plan the launches that count the true elements of each chunk, and compute where each chunk's positions begin."""
    defines: Defines = {"INDEX": index_type([numel]), "BLOCK": _MASK_BLOCK}
    count = instance(request, "count", "long", slots, defines)
    total = instance(request, "sum", "long", slots, defines)
    return (
        Step(count, (0, 1), (numel, chunk), (chunks,), None, numel),
        Step(total, (0, 1), (chunks,), (1,), None, chunks),
    )


def list_step(request: Request, slots: tuple[Slot, ...], numel: int, chunk: int, chunks: int) -> Step:
    """Plan the launch that lists the positions of a mask's true elements."""
    kernel = instance(request, "list", "long", slots, {"INDEX": index_type([numel]), "BLOCK": _MASK_BLOCK})
    return Step(kernel, (0, 1, 2), (numel, chunk), (chunks,), None, numel)
