"""Plan solutions of linear systems for Triton. See `..linear_solve` for the ops.

A program holds all rows of some right-hand sides in registers, so the order of a matrix is limited.
"""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...device import Meta
from ...errors import NotSupported
from .. import Request
from . import Defines, Geometry, index_type, next_power, strided_extent

__all__ = ["step"]

_TILE = 4096  # elements of a tile of right-hand sides, unless one column has more
_MAX_ROWS = 1 << 15


def step(request: Request, entry: str, flags: dict[str, int], matrices: Meta, right: Meta) -> Step:
    """Return the launch.

    Args:
        request: The call.
        entry: The kernel: `triangle` or `factored`.
        flags: Its constants.
        matrices: Layout of the triangular matrices, or of the LU factorizations, `(B, n, n)`.
        right: Layout of the right-hand sides `(B, n, k)`.

    Raises:
        NotSupported: The matrices have more than 32,768 rows.
    """
    batch, n, k = right.shape
    rows = next_power(n)
    if rows > _MAX_ROWS:
        raise NotSupported(f"{request.where()}: Triton solves systems of up to {_MAX_ROWS} equations; use the cpu")
    columns = max(1, min(next_power(k), _TILE // rows))
    tiles = -(-k // columns)
    tile = rows * columns
    extents = [strided_extent(x.shape, x.strides) for x in (matrices, right)]
    defines: Defines = {
        "INDEX": index_type([*extents, batch * n * k]), **flags, "ROWS": rows, "COLUMNS": columns,
        "num_warps": 1 if tile <= 256 else 4 if tile <= 8192 else 8,
    }  # fmt: skip
    value, index = Slot(right.dtype.name), Slot("int64", "index")
    slots: tuple[Slot, ...] = (value, value, value)
    buffers: tuple[int, ...] = (0, 1, 2)
    geometry: Geometry = (n, k, tiles, *matrices.strides, *right.strides)
    if entry == "factored":
        slots, buffers = (value, index, value, value), (1, 2, 3, 4)
        geometry = (n, k, tiles, *right.strides)
    text = request.text
    kernel = Instance(
        "linear_solve", text.source, f"linear_solve_{entry}", right.dtype.compute, 1, slots, tuple(defines.items()),
        text.functions,
    )  # fmt: skip
    return Step(kernel, buffers, geometry, (batch * tiles,), None, batch * n * n * k)
