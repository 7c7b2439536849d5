"""Plan ops on all pairs of rows for Triton: a program computes a tile of the result, and loops over the sums."""

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
    """Return the launch.

    Args:
        request: The call.
        kind: `dots` or `sums`.
        element: The compute type.
        slots: How the kernel reads its buffers.
        buffers: Positions of the buffers.
        flags: Macros of the kernel.
        numbers: Positions of the scalar arguments.
        sizes: The batch, the rows of both operands, and the elements of a row.
    """
    batch, rows, columns, m = sizes
    columns_out = m if kind == "sums" else columns
    params = choose(request, "pairs", {"rows": rows, "columns": columns, "m": m}, slots[0].dtype)
    block_rows, block_columns = (min(params["side"], next_power(n)) for n in (rows, columns_out))
    defines: Defines = {"INDEX": index_type([batch * max(rows, columns) * m, batch * rows * columns, 2 * max(sizes)])}
    defines |= {k: v for k, v in flags.items() if kind == "dots" or k not in ("ROOT", "LEFT")}
    defines |= {"BM": block_rows, "BN": block_columns}
    text = request.text
    instance = Instance(
        "pairs", text.source, f"pairs_{kind}", element, 1, slots, tuple(defines.items()), text.functions
    )
    grid = (-(-rows // block_rows), -(-columns_out // block_columns), batch)
    return Step(instance, buffers, (rows, columns, m), grid, None, batch * rows * columns * m, numbers)
