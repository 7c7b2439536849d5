"""Plan QR factorizations by Householder reflections (`codegen/specs/linear_systems.yaml`).

The matrices are `(B, m, n)`. Kernels (`templates/opencl/qr.cl.j2`): schedule `rows` (CPU) has one work-item per matrix,
`group` (GPU) one work-group. `triton/qr.py` plans the same op for Triton.
"""

from __future__ import annotations

from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, ShapeError
from ..layout import pack_longs
from . import Planned, Request
from .factorization import check_floating

__all__ = ["LAUNCHES", "plan"]

_GROUP = 64  # work-items per matrix on GPUs, at most


def plan(request: Request) -> Planned:
    """Plan `qr_factorize`.

    Returns:
        Layouts of Q `(B, m, columns)`, of the packed factors `(B, m, n)` and of tau, and the launch.

    Raises:
        ArgumentError: The call has `out=`.
        ShapeError: The matrices have no three dimensions, or no elements, or `columns` is below min(m, n) or above m.
        UnsupportedDType: They are neither float32 nor float64, or the device has no float64.
    """
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    ((_, matrices),) = request.tensors
    check_floating(request, matrices)
    if matrices.ndim != 3 or not (matrices.shape[1] and matrices.shape[2]):
        raise ShapeError(f"{request.where()}: takes matrices (B, m, n) with elements")
    batch, m, n = matrices.shape
    count = m if m < n else n
    width = request.static("columns")
    if width < count or width > m:
        raise ShapeError(f"{request.where()}: Q has {count} to {m} columns, not {width}")
    outputs = tuple(
        meta(matrices.dtype, shape, None, request.device)
        for shape in ((batch, m, width), matrices.shape, (batch, count))
    )
    if not batch:
        return Planned(outputs)
    return Planned(outputs, (LAUNCHES[request.capabilities.style](request, matrices, width),))


def _opencl_step(request: Request, matrices: Meta, width: int) -> Step:
    """Build the launch in OpenCL."""
    caps = request.capabilities
    batch, m, n = matrices.shape
    schedule = "ROWS" if caps.takes_runs else "GROUP"
    local = caps.group_size(_GROUP)
    text = request.text
    kernel = Instance(
        request.record.name, text.source, "qr_factorize", matrices.dtype.compute,
        caps.vector_lanes(matrices.dtype.itemsize), (Slot(matrices.dtype.name),) * 4,
        ((f"SCHEDULE_{schedule}", "1"), ("GROUP", str(local))), ("abs", "sqrt"),
    )  # fmt: skip
    geometry = pack_longs((batch, m, n, width, *matrices.strides))
    work = batch * (m if m < n else n) * m * (n + width) // 4
    return Step(kernel, (0, 1, 2, 3), geometry, (batch * local,), (local,), work)


def _triton_step(request: Request, matrices: Meta, width: int) -> Step:
    from .triton import qr as triton  # lazy: Triton devices only

    return triton.step(request, matrices, width)


LAUNCHES = ByStyle("QR factorizations", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
