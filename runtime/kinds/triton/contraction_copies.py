"""Copies of a product's operands and results for the Triton target, and sums of results computed in parts.

`contraction.py` plans the product itself. The kernels are in templates/triton/contraction.py.j2:

    move      a copy from any strides to any strides; stores the op's result through the epilogue
    split     a float32 matrix with contiguous rows, for tensor cores that multiply in tf32
    finish    the sum of parts, always in the same order
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ... import dtypes
from ...backends.protocol import Instance, Slot, Step
from ...dtypes import DType
from ...layout import collapse
from ..contraction_terms import scalar_positions
from . import index_type, next_power, strided_extent

if TYPE_CHECKING:
    from ..contraction_builder import Builder
    from ..contraction_terms import EpilogueInputs, TensorView

__all__ = ["SPLIT_ALIGNMENT", "add_copy", "add_parts_sum", "add_split", "ceil_div", "kernel_instance"]

SPLIT_ALIGNMENT = 32  # elements: rows of `split` are multiples, so that a tile's steps over k need no mask
_SPLIT_TILE = 64  # rows and columns that a program of `split` moves


def add_copy(
    builder: Builder, dims: Sequence[tuple[int, ...]], source: TensorView, target: TensorView, *,
    zeros: bool = False, last: bool = False,
) -> None:  # fmt: skip
    """Append a step that copies `source`, or zeros, to `target`.

    Args:
        builder: Collects the steps.
        dims: For each dimension its size, its strides in both views and, if `last`, its stride in each tensor of the
            epilogue.
        source: The tensor to read.
        target: The tensor to write.
        zeros: Store zeros, and do not read `source`.
        last: The step stores the op's result, through the epilogue.
    """
    epilogue = builder.epilogue if last else None
    if zeros and epilogue is not None:  # apply the epilogue to zeros
        size_so_far, contiguous_dims = 1, []
        for size, *_ in reversed(dims):
            contiguous_dims.append((size, size_so_far))
            size_so_far *= size
        builder.scratch.append(size_so_far * builder.element.itemsize)
        zeros_view = replace(target, buffer=len(builder.request.tensors) + len(builder.scratch), dtype=builder.element)
        add_parts_sum(builder, zeros_view.dtype, contiguous_dims[::-1], source, zeros_view, 0)
        dims = [(size, s, *d[2:]) for d, (size, s) in zip(dims, contiguous_dims[::-1], strict=True)]
        return add_copy(builder, dims, zeros_view, target, last=True)
    if zeros:
        return add_parts_sum(builder, target.dtype, [(d[0], d[2]) for d in dims], source, target, 0)
    width = 3 + (len(epilogue.tensors) if epilogue else 0)
    sizes, strides = collapse(tuple(d[0] for d in dims), [tuple(d[i] for d in dims) for i in range(1, width)])
    if not sizes:
        sizes, strides = (1,), [(1,)] * (width - 1)
    source_strides, target_strides, *epilogue_strides = strides
    numel, block = prod(sizes), builder.caps.block
    columns = min(next_power(sizes[-1]), block)
    rows = numel // sizes[-1]
    tile_rows = min(block // columns, next_power(rows))
    column_tiles = ceil_div(sizes[-1], columns)
    compute_type = dtypes.int32 if target.dtype.kind != "f" and target.dtype.itemsize < 4 else target.dtype
    if epilogue is not None and compute_type.kind == "f" and compute_type.itemsize == 2:
        compute_type = dtypes.float32
    defines: dict[str, str | int] = {
        "OUTER": len(sizes) - 1, "X": 1 if source_strides[-1] == 1 else 2, "Y": 1 if target_strides[-1] == 1 else 2,
        "ROWS": tile_rows, "COLUMNS": columns,
    }  # fmt: skip
    defines |= {f"EXTRA_STEP{i}": e[-1] if e[-1] in (0, 1) else 2 for i, e in enumerate(epilogue_strides)}
    defines["INDEX"] = index_type([numel, *(strided_extent(sizes, s) for s in strides)])
    copy_geometry = (
        rows, sizes[-1], column_tiles, sizes[:-1], source_strides[:-1], target_strides[:-1], source_strides[-1],
        target_strides[-1],
    )  # fmt: skip
    geometry = (*copy_geometry, *(steps for e in epilogue_strides for steps in (e[:-1], e[-1])))
    views = (source, target, *(epilogue.tensors if epilogue else ()))
    instance = kernel_instance(builder, "move", compute_type, views, defines, epilogue)
    grid, buffers = (ceil_div(rows, tile_rows) * column_tiles,), tuple(v.buffer for v in views)
    builder.steps.append(Step(instance, buffers, geometry, grid, None, numel, scalar_positions(epilogue)))


def add_parts_sum(
    builder: Builder, accumulator: DType, dims: list[tuple[int, int]], source: TensorView, target: TensorView,
    parts: int,
) -> None:  # fmt: skip
    """Append a step that sums results of a product whose sum over k was cut in parts, or stores zeros.

    Args:
        builder: Collects the steps.
        accumulator: The dtype of the sum.
        dims: Size, and stride in `target`, of each dimension.
        source: The results of the parts, each contiguous, one after the other.
        target: The tensor to write.
        parts: How many results to sum; 0 stores zeros.
    """
    contiguous, step = [], 1
    for size, _ in reversed(dims):
        contiguous.append(step)
        step *= size
    sizes = tuple(d[0] for d in dims)
    merged, (target_strides, _) = collapse(sizes, [tuple(d[1] for d in dims), tuple(reversed(contiguous))])
    if merged in ((), (step,)) and target_strides in ((), (1,)):
        merged, target_strides = (), ()
    block_parts = min(next_power(parts), 16 if step >= 64 else 256)
    block = min(next_power(step), max(1, builder.caps.block // block_parts))
    defines: dict[str, str | int] = {"OUTER": len(merged), "BLOCK": block, "PARTS": block_parts}
    defines["INDEX"] = index_type([step * max(parts, 1), strided_extent(merged, target_strides)])
    instance = kernel_instance(builder, "finish", accumulator, (source, target), defines)
    geometry = (step, parts, merged, target_strides)
    grid = (ceil_div(step, block),)
    builder.steps.append(Step(instance, (source.buffer, target.buffer), geometry, grid, None, step * max(parts, 1)))


def kernel_instance(
    builder: Builder, entry: str, accumulator: DType, views: Iterable[TensorView], defines: dict[str, str | int],
    epilogue: EpilogueInputs | None = None,
) -> Instance:  # fmt: skip
    """Return the kernel `entry`, named for the kind and not the op: all ops without an epilogue share its binaries."""
    text = builder.text(epilogue)
    slots = tuple(Slot(v.dtype.name) for v in views)
    return Instance(
        "contraction", text.source, f"contraction_{entry}", accumulator.compute, 1, slots, tuple(defines.items()),
        text.functions,
    )  # fmt: skip


def add_split(
    builder: Builder, view: TensorView, rows: tuple[int, int], columns: tuple[int, int], sections: Sequence[int]
) -> tuple[TensorView, int]:
    """Append a step that copies a float32 matrix to rows of contiguous elements, in sections side by side.

    A float32 number is about the sum of two tf32 numbers: itself and the rest, rounded. A product of two numbers is
    then the sum of three products in tf32, which one product of wider matrices computes: `Markidis et al. 2018`_.
    `precision.input_precision` documents the error.

    Args:
        builder: Collects the steps.
        view: The matrix.
        rows: Number and stride of its rows.
        columns: Number and stride of its columns.
        sections: One or three, what each holds: 0 the numbers, 1 the numbers in tf32, 2 the same, but 0 for infinities
            and NaN, 3 the difference to the number in tf32, in tf32.

    Returns:
        The stored matrix, and the elements of one row, a multiple of `SPLIT_ALIGNMENT` for each section.

    .. _Markidis et al. 2018: https://arxiv.org/abs/1803.04014
    """
    assert len(sections) in (1, 3), sections
    width = ceil_div(columns[0], SPLIT_ALIGNMENT) * SPLIT_ALIGNMENT
    row_elements = width * len(sections)
    builder.scratch.append(rows[0] * row_elements * view.dtype.itemsize)
    stored = replace(view, buffer=len(builder.request.tensors) + len(builder.scratch), strides={})
    defines: dict[str, str | int] = {
        "X": 1 if columns[1] == 1 else 0 if rows[1] == 1 else 2, "SIDE": _SPLIT_TILE, "num_warps": 4,
        "SECTIONS": len(sections), **{f"SECTION{i}": kind for i, kind in enumerate((*sections, 0, 0)[:3])},
        "INDEX": index_type([rows[0] * row_elements, strided_extent((rows[0], columns[0]), (rows[1], columns[1]))]),
    }  # fmt: skip
    instance = kernel_instance(builder, "split", view.dtype, (view, stored), defines)
    across = ceil_div(width, _SPLIT_TILE)
    geometry = (rows[0], columns[0], width, across, rows[1], columns[1])
    grid = (ceil_div(rows[0], _SPLIT_TILE) * across,)
    builder.steps.append(Step(instance, (view.buffer, stored.buffer), geometry, grid, None, rows[0] * row_elements))
    return stored, row_elements


def ceil_div(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)
