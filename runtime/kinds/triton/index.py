"""Index kernels: tiles of the result for reading; for writing, tiles of the coordinates beside what is indexed."""

from __future__ import annotations

from math import prod

from ...backends.protocol import Slot, Step
from ...layout import split
from ...schedules import choose
from .. import Request
from . import Defines, Geometry, index_type, instance, next_power, strided_extent

__all__ = ["bag_sums_step", "bags_step", "count_steps", "list_step", "read_step", "write_step"]

Strides = tuple[int, ...]
_MASK_BLOCK = 1024


def _tile(block: int, sizes: tuple[int, ...], strides: list[Strides]) -> tuple[Defines, int, int]:
    """Constants of a tile over collapsed `sizes`, how many tiles there are, and how many lie side by side."""
    rows = 1
    for size in sizes[:-1]:
        rows *= size
    columns = min(next_power(sizes[-1]), block)
    tall = min(block // columns, next_power(rows))
    across = -(-sizes[-1] // columns)
    defines: Defines = {"ROWS": tall, "COLUMNS": columns, "OUTER": len(sizes) - 1}
    for k, own in enumerate(strides):
        defines[f"CLASS{k}"] = own[-1] if own[-1] in (0, 1) else 2
    return defines, -(-rows // tall) * across, across


def read_step(
    request: Request,
    element: str,
    slots: tuple[Slot, ...],
    sizes: tuple[int, ...],
    strides: list[Strides],
    along: tuple[tuple[int, ...], Strides],
    total: int,
) -> Step:
    """The launch that reads. strides: of input, index and result; along: the indexed dimensions."""
    numel = prod(sizes)
    chosen = choose(request, "index", {"numel": numel, "total": total}, slots[2].dtype)
    defines, tiles, across = _tile(chosen["block"] or request.capabilities.block, sizes, strides)
    for k in (0, 2):
        defines[f"CLASS{k}"] = defines[f"CLASS{k}"] or 2
    extents = [strided_extent(sizes, s) for s in strides]
    defines["INDEX"] = index_type([sum(extents) + strided_extent(*along) + total])
    defines["ALONG"] = len(along[0])
    geometry: Geometry = (
        numel // sizes[-1], sizes[-1], across, total, sizes[:-1], *(s[:-1] for s in strides), *(s[-1] for s in strides),
        *along,
    )  # fmt: skip
    made = instance(request, "read", element, slots, defines)
    return Step(made, (0, 1, 2), geometry, (tiles,), None, numel)


def write_step(
    request: Request,
    element: str,
    slots: tuple[Slot, ...],
    sizes: tuple[int, ...],
    strides: list[Strides],
    along: tuple[tuple[int, ...], Strides],
    walk: tuple[tuple[int, ...], Strides, Strides],
    total: int,
    buffers: tuple[int, ...],
) -> Step:
    """The launch that writes or adds. strides: of index, source and result beside what is indexed; walk: sizes of the
    index's own dimensions, and strides of index and source along them."""
    beside, walked = prod(sizes), prod(walk[0])
    chosen = choose(request, "index", {"numel": beside * walked, "total": total}, slots[1].dtype)
    defines, tiles, across = _tile(chosen["block"] or request.capabilities.block, sizes, strides)
    defines["CLASS2"] = 1 if strides[2][-1] == 1 else 2
    reach, ranges = split(total, max(1, min(chosen["programs"] * request.capabilities.cores // tiles, total)))
    extents = [strided_extent(sizes, s) for s in strides] + [strided_extent(walk[0], s) for s in walk[1:]]
    defines["INDEX"] = index_type([sum(extents) + strided_extent(*along) + total + walked])
    defines |= {"ALONG": len(along[0]), "STEPS": len(walk[0]), "SHARED": int(not any(strides[0]))}
    defines["CHUNK"] = chosen["chunk"]
    geometry: Geometry = (
        beside // sizes[-1], sizes[-1], across, total, reach, walked, sizes[:-1], *(s[:-1] for s in strides),
        *(s[-1] for s in strides), *along, *walk,
    )  # fmt: skip
    made = instance(request, "write", element, slots, defines)
    return Step(made, buffers, geometry, (tiles, ranges), None, beside * walked)


def bags_step(request: Request, slots: tuple[Slot, ...], total: int, bags: int, step: int) -> Step:
    """The launch that finds which bag each of `total` positions lies in; step: between two offsets."""
    index = index_type([total + _MASK_BLOCK, bags * max(step, 1)])
    made = instance(request, "bags", "long", slots, {"INDEX": index, "BLOCK": _MASK_BLOCK})
    return Step(made, (0, 1), (total, bags, step), (-(-total // _MASK_BLOCK),), None, total)


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
    """The launch that adds up the rows of each bag. counts: rows of the table, indices, offsets, the row left out;
    strides: of the table, the index and the offsets."""
    columns = min(next_power(features), request.capabilities.block)
    across = -(-features // columns)
    rows, indices, offsets, _ = counts
    extents = (
        (rows + 1) * abs(strides[0]), (features + columns) * max(abs(strides[1]), 1), indices * abs(strides[2]),
        (offsets + 1) * abs(strides[3]), bags * features,
    )  # fmt: skip
    defines: Defines = {"INDEX": index_type([sum(extents)]), "COLUMNS": columns, "MEAN": int(mean)}
    made = instance(request, "sums", element, slots, defines)
    geometry: Geometry = (features, *counts, across, *strides)
    return Step(made, (0, 1, 2, 3), geometry, (bags * across,), None, max(bags, indices) * features)


def count_steps(request: Request, slots: tuple[Slot, ...], numel: int, chunk: int, chunks: int) -> tuple[Step, Step]:
    """The launches that count a mask in chunks and add up what comes before each."""
    defines: Defines = {"INDEX": index_type([numel]), "BLOCK": _MASK_BLOCK}
    count = instance(request, "count", "long", slots, defines)
    total = instance(request, "sum", "long", slots, defines)
    return (
        Step(count, (0, 1), (numel, chunk), (chunks,), None, numel),
        Step(total, (0, 1), (chunks,), (1,), None, chunks),
    )


def list_step(request: Request, slots: tuple[Slot, ...], numel: int, chunk: int, chunks: int) -> Step:
    """The launch that lists a mask's positions."""
    made = instance(request, "list", "long", slots, {"INDEX": index_type([numel]), "BLOCK": _MASK_BLOCK})
    return Step(made, (0, 1, 2), (numel, chunk), (chunks,), None, numel)
