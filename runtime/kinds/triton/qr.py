"""Plan QR factorizations for Triton: one program per matrix. See `..qr` for the op."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...device import Meta
from .. import Request
from . import Defines, index_type, next_power, strided_extent

__all__ = ["step"]

_TILE = 2048  # elements of a tile, unless one column has more


def step(request: Request, matrices: Meta, width: int) -> Step:
    """Return the launch.

    Args:
        request: The call.
        matrices: Layout of the matrices `(B, m, n)`.
        width: Columns of Q.
    """
    batch, m, n = matrices.shape
    rows = next_power(m)
    columns = max(1, min(next_power(max(n, width)), _TILE // rows))
    extents = [strided_extent(matrices.shape, matrices.strides), batch * m * max(n, width)]
    defines: Defines = {
        "INDEX": index_type(extents), "ROWS": rows, "COLUMNS": columns, "num_warps": 1 if rows * columns <= 256 else 4,
    }  # fmt: skip
    text = request.text
    kernel = Instance(
        request.record.name, text.source, "qr_factorize", matrices.dtype.compute, 1, (Slot(matrices.dtype.name),) * 4,
        tuple(defines.items()), text.functions,
    )  # fmt: skip
    work = batch * min(m, n) * m * (n + width)
    return Step(kernel, (0, 1, 2, 3), (m, n, width, *matrices.strides), (batch,), None, work)
