"""Plan factorizations of matrices (`codegen/specs/linear_systems.yaml`): LU, Cholesky, and what is read from LU.

The matrices are `(B, m, n)`. Kernels (`templates/opencl/factorization.cl.j2`):

- `lu` and `cholesky`, schedule `rows` (CPU): one work-item per matrix. It eliminates eight columns at a time, with
  vectors along the rows.
- `lu` and `cholesky`, schedule `group` (GPU): one work-group per matrix, which eliminates one column at a time.
- `determinant` and `permutation`: one work-item per matrix.

`triton/factorization.py` plans the same ops for Triton.
"""

from __future__ import annotations

from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, ShapeError, UnsupportedDType
from ..layout import pack_longs
from ..records import registry
from . import Planned, Request, pointwise

__all__ = ["ENTRIES", "LAUNCHES", "check_floating", "plan"]

# Kernel of each op.
ENTRIES = {
    "lu_factorize": "lu", "cholesky_factorize": "cholesky", "determinants": "determinant",
    "pivot_permutation": "permutation",
}  # fmt: skip
_FUNCTIONS = ("abs", "log", "sqrt")  # math functions of the OpenCL kernels
_GROUP = 128  # work-items per matrix on GPUs, at most


def plan(request: Request) -> Planned:
    """Plan one op.

    Returns:
        Layouts of the results, in the order of the op's spec, and the launches.

    Raises:
        ArgumentError: The call has `out=`.
        ShapeError: An operand has the wrong shape, or must be contiguous and is not.
        UnsupportedDType: The matrices are neither float32 nor float64, or the device has no float64.
    """
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    entry = ENTRIES[request.record.name]
    layouts = {o.name: m for o, m in request.tensors}
    if entry == "permutation":
        return _plan_permutation(request, layouts["pivots"])
    matrices = layouts["input"]
    check_floating(request, matrices)
    if matrices.ndim != 3 or (entry != "lu" and matrices.shape[1] != matrices.shape[2]):
        kind = "matrices (B, m, n)" if entry == "lu" else "square matrices (B, n, n)"
        raise ShapeError(f"{request.where()}: takes {kind}")
    batch, m, n = matrices.shape
    count = m if m < n else n
    if entry == "determinant":
        return _plan_determinants(request, layouts)
    integers = meta(dtypes.int32, (batch,), None, request.device)
    factor = meta(matrices.dtype, matrices.shape, None, request.device)
    outputs: tuple[Meta, ...] = (factor, integers)
    if entry == "lu":
        outputs = (
            factor, meta(dtypes.int32, (batch, count), None, request.device),
            meta(dtypes.int64, (batch, m), None, request.device), integers,
        )  # fmt: skip
    if not factor.numel:
        return Planned(outputs, _fill_empty(request, outputs))
    step = LAUNCHES[request.capabilities.style](request, entry, matrices, outputs)
    return Planned(outputs, (step,))


def check_floating(request: Request, *layouts: Meta) -> None:
    """Raise `UnsupportedDType` unless the layouts have one dtype, float32 or float64, that the device computes in."""
    dtype = layouts[0].dtype
    if dtype not in (dtypes.float32, dtypes.float64):
        raise UnsupportedDType(f"{request.where()}: takes float32 and float64, not {dtype.name}; use .float()")
    if any(layout.dtype is not dtype for layout in layouts):
        raise UnsupportedDType(f"{request.where()}: the operands must be of one dtype; convert with .to()")
    if dtype is dtypes.float64 and not request.capabilities.fp64:
        raise UnsupportedDType(f"{request.where()}: the device has no float64; use float32 there")


def _fill_empty(request: Request, outputs: tuple[Meta, ...]) -> tuple[Step, ...]:
    """Return the launches for matrices without elements: every result that has elements is zero.

    The permutation of rows of matrices without columns is zero, too: nothing reads it.
    """
    steps: list[Step] = []
    for position, layout in enumerate(outputs, len(request.tensors)):
        if layout.numel:
            fill = Request(registry["zero_like"], (layout,), (), request.device, (layout,))
            steps += [replace(step, buffers=(position, position)) for step in pointwise.plan(fill).steps]
    return tuple(steps)


def _plan_permutation(request: Request, pivots: Meta) -> Planned:
    rows = request.static("rows")
    assert isinstance(rows, int)
    if pivots.dtype is not dtypes.int32 or pivots.ndim != 2 or not pivots.contiguous:
        raise ShapeError(f"{request.where()}: pivots must be int32, contiguous, of shape (B, min(m, n))")
    permutation = meta(dtypes.int64, (pivots.shape[0], rows), None, request.device)
    if not permutation.numel or not pivots.numel:
        return Planned((permutation,), _fill_empty(request, (permutation,)))
    step = LAUNCHES[request.capabilities.style](request, "permutation", pivots, (permutation,))
    return Planned((permutation,), (step,))


def _plan_determinants(request: Request, layouts: dict[str, Meta]) -> Planned:
    matrices, packed, pivots = (layouts[name] for name in ("input", "packed", "pivots"))
    batch, n, _ = matrices.shape
    if packed.shape != matrices.shape or not packed.contiguous or packed.dtype is not matrices.dtype:
        raise ShapeError(f"{request.where()}: packed must be contiguous, like the matrices")
    if pivots.dtype is not dtypes.int32 or pivots.shape != (batch, n) or not pivots.contiguous:
        raise ShapeError(f"{request.where()}: pivots must be int32, contiguous, of shape (B, n)")
    outputs = (meta(matrices.dtype, (batch,), None, request.device),) * 3
    if not batch:
        return Planned(outputs)
    if not n:
        raise ShapeError(f"{request.where()}: the matrices have no elements")
    step = LAUNCHES[request.capabilities.style](request, "determinant", matrices, outputs)
    return Planned(outputs, (step,))


def entry_slots(entry: str, dtype: str) -> tuple[tuple[Slot, ...], tuple[int, ...]]:
    """Return the slots of the kernel `entry`, and the position of each slot's buffer among operands and results."""
    value, integer, index = Slot(dtype), Slot("int32", "index"), Slot("int64", "index")
    return {
        "lu": ((value, value, integer, index, integer), (0, 1, 2, 3, 4)),
        "cholesky": ((value, value, integer), (0, 1, 2)),
        "determinant": ((value, integer, value, value, value), (1, 2, 3, 4, 5)),
        "permutation": ((integer, index), (0, 1)),
    }[entry]


def _opencl_step(request: Request, entry: str, layout: Meta, outputs: tuple[Meta, ...]) -> Step:
    """Build the launch in OpenCL.

    Args:
        request: The call.
        entry: The kernel.
        layout: Layout of the matrices, or for `permutation` of the pivots.
        outputs: Layouts of the results.
    """
    caps = request.capabilities
    slots, buffers = entry_slots(entry, layout.dtype.name)
    batch = layout.shape[0]
    strides: tuple[int, ...]
    if entry == "permutation":
        element, m, n, strides = "float", outputs[0].shape[1], layout.shape[1], (0, 0, 0)
    else:
        element, (m, n), strides = layout.dtype.compute, layout.shape[1:], layout.strides
    defines = [(f"ENTRY_{entry.upper()}", "1"), ("BUFFERS", str(len(slots)))]
    local, lanes, items, work = caps.group_size(64), 1, batch, batch * n * 8
    kernel_name = f"factorization_{entry}"
    if entry in ("lu", "cholesky"):
        schedule = "rows" if caps.takes_runs else "group"
        kernel_name += f"_{schedule}"
        defines += [(f"SCHEDULE_{schedule.upper()}", "1"), ("UNIT", str(int(strides[-1] == 1)))]
        lanes = caps.vector_lanes(layout.dtype.itemsize)
        local = 1 if caps.takes_runs else 1 << (caps.group_size(_GROUP).bit_length() - 1)
        items, work = batch * local, batch * m * n * (m if m < n else n) // 8
        defines.append(("GROUP", str(local)))
    text = request.text
    kernel = Instance("factorization", text.source, kernel_name, element, lanes, slots, tuple(defines), _FUNCTIONS)
    geometry = pack_longs((batch, m, n, *strides))
    return Step(kernel, buffers, geometry, (-(-items // local) * local,), (local,), work)


def _triton_step(request: Request, entry: str, layout: Meta, outputs: tuple[Meta, ...]) -> Step:
    from .triton import factorization as triton  # lazy: Triton devices only

    return triton.step(request, entry, layout, outputs, *entry_slots(entry, layout.dtype.name))


LAUNCHES = ByStyle("factorizations", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
