"""Plan triangles of matrices for Triton: a program copies a tile of rows by columns."""

from __future__ import annotations

from math import prod

from ...backends.protocol import Instance, Slot, Step
from ...dtypes import DType
from .. import Request
from . import Defines, Geometry, index_type, next_power, strided_extent

__all__ = ["step"]

_LEAST_BLOCK = 1024


def step(
    request: Request,
    raw: DType,
    slots: tuple[Slot, ...],
    sizes: tuple[int, ...],
    n: int,
    row_strides: list[tuple[int, ...]],
    column_strides: tuple[int, int],
    diagonal: int,
    lower: bool,
) -> Step:
    """Return the launch.

    Args:
        request: The call.
        raw: Unsigned integer type of the elements' size.
        slots: How the kernel reads its buffers.
        sizes: Sizes of all dimensions but the columns.
        n: Number of columns.
        row_strides: Strides of input and result along `sizes`.
        column_strides: Strides of input and result along the columns.
        diagonal: Index of the diagonal at which the triangle ends.
        lower: Copy the lower triangle, not the upper one.
    """
    rows = prod(sizes)
    block = min(request.capabilities.block, max(_LEAST_BLOCK, next_power(rows * n)))
    columns = min(next_power(n), block)
    block_rows = min(block // columns, next_power(rows))
    column_blocks = -(-n // columns)
    extents = [
        strided_extent((*sizes, n), (*outer, inner)) for outer, inner in zip(row_strides, column_strides, strict=True)
    ]
    limit = max(sizes[-1], n) + 1
    defines: Defines = {
        "INDEX": index_type([rows * n, *extents]), "LOWER": int(lower), "ROWS": block_rows, "COLUMNS": columns,
        "OUTER": len(sizes),
    }  # fmt: skip
    geometry: Geometry = (
        rows, n, column_blocks, max(-limit, min(limit, diagonal)), sizes, *row_strides, *column_strides
    )  # fmt: skip
    text = request.text
    instance = Instance(
        "triangle", text.source, "triangle_copy", raw.compute, 1, slots, tuple(defines.items()), text.functions
    )
    return Step(instance, (0, 1), geometry, (-(-rows // block_rows) * column_blocks,), None, rows * n)
