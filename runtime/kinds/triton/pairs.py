"""Rows against rows: a tile of the result a program, which walks what is summed over."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...schedules import choose
from .. import Request
from . import Defines, index_type, next_power

__all__ = ["step"]


def step(
    request: Request,
    kind: str,
    element: str,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    flags: dict[str, int],
    numbers: tuple[int, ...],
    sizes: tuple[int, int, int, int],
) -> Step:
    """The one launch; sizes: of the batch, of the rows of both operands, and of a row."""
    batch, rows, columns, m = sizes
    across = m if kind == "sums" else columns
    chosen = choose(request, "pairs", {"rows": rows, "columns": columns, "m": m}, slots[0].dtype)
    tall, wide = (min(chosen["side"], next_power(n)) for n in (rows, across))
    defines: Defines = {"INDEX": index_type([batch * max(rows, columns) * m, batch * rows * columns, 2 * max(sizes)])}
    defines |= {k: v for k, v in flags.items() if kind == "dots" or k not in ("ROOT", "LEFT")}
    defines |= {"BM": tall, "BN": wide}
    text = request.record.texts[request.device.driver.target]
    made = Instance("pairs", text.source, f"pairs_{kind}", element, 1, slots, tuple(defines.items()), text.functions)
    grid = (-(-rows // tall), -(-across // wide), batch)
    return Step(made, buffers, (rows, columns, m), grid, None, batch * rows * columns * m, numbers)
