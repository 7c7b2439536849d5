"""Plan one-sided Jacobi rotations for Triton: one program per matrix. See `..jacobi` for the op."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...device import Meta
from .. import Request
from . import Defines, index_type, next_power, strided_extent

__all__ = ["step"]


def step(request: Request, matrices: Meta, epsilon: float, sweeps: int) -> Step:
    """Return the launch.

    Args:
        request: The call.
        matrices: Layout of the matrices `(B, n, m)`.
        epsilon: Spacing of floats at 1.
        sweeps: Sweeps to expect, for the estimate of the cost.
    """
    batch, n, m = matrices.shape
    block = next_power(max(n, m))
    extents = [strided_extent(matrices.shape, matrices.strides), batch * n * max(n, m)]
    defines: Defines = {
        "INDEX": index_type(extents), "ROWS": next_power(n), "COLUMNS": next_power(m), "EPSILON": epsilon,
        "num_warps": 1 if block <= 256 else 4,
    }  # fmt: skip
    text = request.text
    kernel = Instance(
        request.record.name, text.source, "jacobi_rotate", matrices.dtype.compute, 1, (Slot(matrices.dtype.name),) * 3,
        tuple(defines.items()), text.functions,
    )  # fmt: skip
    return Step(kernel, (0, 1, 2), (n, m, *matrices.strides), (batch,), None, batch * n * n * (m + n) * sweeps)
