"""Plan one-sided Jacobi rotations (`codegen/specs/linear_systems.yaml`), which singular values and eigenvalues need.

The matrices are `(B, n, m)`, and their rows become orthogonal. Kernels (`templates/opencl/jacobi.cl.j2`): schedule
`rows` (CPU) has one work-item per matrix, `group` (GPU) one work-group, which rotates one pair of rows after another.
`triton/jacobi.py` plans the same op for Triton.
"""

from __future__ import annotations

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, ShapeError
from ..layout import pack_longs
from . import Planned, Request
from .factorization import check_floating

__all__ = ["EPSILON", "LAUNCHES", "SWEEPS_ESTIMATE", "plan"]

EPSILON = {dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}
SWEEPS_ESTIMATE = 8  # sweeps over all pairs that matrices of common sizes take, for estimates of the cost
_FUNCTIONS = ("abs", "sqrt")  # math functions of the OpenCL kernels
_GROUP = 64  # work-items per matrix on GPUs, at most


def plan(request: Request) -> Planned:
    """Plan `orthogonalize_rows`.

    Returns:
        Layouts of the orthogonal rows `(B, n, m)` and of the rotations `(B, n, n)`, and the launch.

    Raises:
        ArgumentError: The call has `out=`.
        ShapeError: The matrices have no three dimensions, or no elements.
        UnsupportedDType: They are neither float32 nor float64, or the device has no float64.
    """
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    ((_, matrices),) = request.tensors
    check_floating(request, matrices)
    if matrices.ndim != 3 or not (matrices.shape[1] and matrices.shape[2]):
        raise ShapeError(f"{request.where()}: takes matrices (B, n, m) with elements")
    batch, n, _ = matrices.shape
    outputs = (
        meta(matrices.dtype, matrices.shape, None, request.device),
        meta(matrices.dtype, (batch, n, n), None, request.device),
    )
    if not batch:
        return Planned(outputs)
    return Planned(outputs, (LAUNCHES[request.capabilities.style](request, matrices),))


def _opencl_step(request: Request, matrices: Meta) -> Step:
    """Build the launch in OpenCL."""
    caps = request.capabilities
    batch, n, m = matrices.shape
    value = Slot(matrices.dtype.name)
    schedule = "rows" if caps.takes_runs else "group"
    local = 1 if caps.takes_runs else 1 << (caps.group_size(_GROUP).bit_length() - 1)
    suffix = "f" if matrices.dtype is dtypes.float32 else ""
    defines = (
        (f"SCHEDULE_{schedule.upper()}", "1"), ("GROUP", str(local)),
        ("EPSILON", f"{EPSILON[matrices.dtype]!r}{suffix}"),
    )  # fmt: skip
    text = request.text
    kernel = Instance(
        request.record.name, text.source, f"jacobi_{schedule}", matrices.dtype.compute,
        caps.vector_lanes(matrices.dtype.itemsize), (value,) * 3, defines, _FUNCTIONS,
    )  # fmt: skip
    geometry = pack_longs((batch, n, m, *matrices.strides))
    work = batch * n * n * (m + n) * SWEEPS_ESTIMATE // 4
    return Step(kernel, (0, 1, 2), geometry, (batch * local,), (local,), work)


def _triton_step(request: Request, matrices: Meta) -> Step:
    from .triton import jacobi as triton  # lazy: Triton devices only

    return triton.step(request, matrices, EPSILON[matrices.dtype], SWEEPS_ESTIMATE)


LAUNCHES = ByStyle("Jacobi rotations", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
