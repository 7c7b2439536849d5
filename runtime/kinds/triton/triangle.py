"""Triangles: tiles of rows by columns."""

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
    tables: list[tuple[int, ...]],
    steps: tuple[int, int],
    diagonal: int,
    lower: bool,
) -> Step:
    """The launch; sizes: of the dimensions beside the columns; tables, steps: strides of input and result."""
    rows = prod(sizes)
    block = min(request.capabilities.block, max(_LEAST_BLOCK, next_power(rows * n)))
    columns = min(next_power(n), block)
    tall = min(block // columns, next_power(rows))
    across = -(-n // columns)
    reach = [strided_extent((*sizes, n), (*own, one)) for own, one in zip(tables, steps, strict=True)]
    limit = max(sizes[-1], n) + 1
    defines: Defines = {
        "INDEX": index_type([rows * n, *reach]), "LOWER": int(lower), "ROWS": tall, "COLUMNS": columns,
        "OUTER": len(sizes),
    }  # fmt: skip
    geometry: Geometry = (rows, n, across, max(-limit, min(limit, diagonal)), sizes, *tables, *steps)
    text = request.record.texts[request.device.driver.target]
    made = Instance(
        "triangle", text.source, "triangle_copy", raw.compute, 1, slots, tuple(defines.items()), text.functions
    )
    return Step(made, (0, 1), geometry, (-(-rows // tall) * across,), None, rows * n)
