"""Plan factorizations of matrices for Triton: one program per matrix. See `..factorization` for the ops."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...device import Meta
from .. import Request
from . import Defines, Geometry, index_type, next_power, strided_extent

__all__ = ["step"]

_TILE_ROWS, _TILE_COLUMNS = 32, 64  # tile of the matrix that is updated at a time, at most
_DETERMINANTS = 32  # determinants per program


def step(
    request: Request, entry: str, layout: Meta, outputs: tuple[Meta, ...], slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
) -> Step:  # fmt: skip
    """Return the launch.

    Args:
        request: The call.
        entry: The kernel.
        layout: Layout of the matrices `(B, m, n)`, or for `permutation` of the pivots `(B, min(m, n))`.
        outputs: Layouts of the results.
        slots: How the kernel reads its buffers.
        buffers: Their positions.
    """
    batch = layout.shape[0]
    extents = [strided_extent(layout.shape, layout.strides), *(out.numel for out in outputs)]
    defines: Defines = {"INDEX": index_type(extents)}
    geometry: Geometry
    programs, element = batch, layout.dtype.compute
    if entry == "permutation":
        m, count = outputs[0].shape[1], layout.shape[1]
        defines |= {"ALL_ROWS": next_power(m)}
        geometry, work, element = (m, count), batch * m * count, "float"
    elif entry == "determinant":
        n = layout.shape[1]
        defines |= {"BLOCK": _DETERMINANTS, "num_warps": 1}
        geometry, work, programs = (batch, n), batch * n * 8, -(-batch // _DETERMINANTS)
    else:
        m, n = layout.shape[1:]
        rows, columns = min(next_power(m), _TILE_ROWS), min(next_power(n), _TILE_COLUMNS)
        if entry == "lu":
            defines["ALL_ROWS"] = next_power(m)
        defines |= {"ROWS": rows, "COLUMNS": columns, "num_warps": 1 if rows * columns <= 128 else 4}
        geometry = (m, n, *layout.strides) if entry == "lu" else (n, *layout.strides)
        work = batch * m * n * min(m, n)
    text = request.text
    kernel = Instance(
        "factorization",
        text.source,
        f"factorization_{entry}",
        element,
        1,
        slots,
        tuple(defines.items()),
        text.functions,
    )
    return Step(kernel, buffers, geometry, (programs,), None, work)
