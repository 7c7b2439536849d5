"""Plan solutions of linear systems (`codegen/specs/linear_systems.yaml`): triangular ones, and those with an LU.

The matrices are `(B, n, n)`, the right-hand sides and solutions `(B, n, k)`. Kernels
(`templates/opencl/linear_solve.cl.j2`) substitute within the columns of the right-hand sides, which do not depend on
one another: schedule `rows` (CPU) takes two vectors of columns per work-item, schedule `grid` (GPU) one column.
`triton/linear_solve.py` plans the same ops for Triton.
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

__all__ = ["LAUNCHES", "plan"]

_VECTORS = 2  # vectors of columns per work-item on CPUs, as in the kernel


def plan(request: Request) -> Planned:
    """Plan `triangle_solve` or `factored_solve`.

    Returns:
        The layout of the solutions `(B, n, k)`, the launch, and scratch memory.

    Raises:
        ArgumentError: The call has `out=`.
        ShapeError: An operand has the wrong shape, or must be contiguous and is not.
        UnsupportedDType: The operands are neither float32 nor float64, or the device has no float64.
    """
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    layouts = {o.name: m for o, m in request.tensors}
    matrices, right = layouts["input"], layouts["right"]
    check_floating(request, matrices, right)
    is_square = matrices.ndim == 3 and matrices.shape[1] == matrices.shape[2]
    if not is_square or right.ndim != 3 or right.shape[:2] != matrices.shape[:2]:
        raise ShapeError(f"{request.where()}: takes matrices (B, n, n) and right-hand sides (B, n, k)")
    out = meta(matrices.dtype, right.shape, None, request.device)
    if "packed" in layouts:
        packed, permutation = layouts["packed"], layouts["permutation"]
        if packed.shape != matrices.shape or not packed.contiguous or packed.dtype is not matrices.dtype:
            raise ShapeError(f"{request.where()}: packed must be contiguous, like the matrices")
        is_int64 = permutation.dtype is dtypes.int64
        if not is_int64 or permutation.shape != matrices.shape[:2] or not permutation.contiguous:
            raise ShapeError(f"{request.where()}: permutation must be int64, contiguous, of shape (B, n)")
        matrices = packed
    if not out.numel:
        return Planned((out,))
    step, scratch = LAUNCHES[request.capabilities.style](request, matrices, right)
    return Planned((out,), (step,), scratch)


def _flags(request: Request) -> tuple[str, dict[str, int]]:
    """Return the kernel and its constants."""
    if request.record.name == "triangle_solve":
        return "triangle", {"LOWER": int(bool(request.static("lower"))), "UNIT": int(bool(request.static("unit")))}
    return "factored", {"ADJOINT": int(bool(request.static("adjoint")))}


def _opencl_step(request: Request, matrices: Meta, right: Meta) -> tuple[Step, tuple[int, ...]]:
    """Build the launch in OpenCL; return it, and the bytes of its scratch."""
    caps = request.capabilities
    entry, flags = _flags(request)
    batch, n, k = right.shape
    lanes = caps.vector_lanes(right.dtype.itemsize)
    width = _VECTORS * lanes if caps.takes_runs else 1
    tiles = -(-k // width)
    # The transposed system's solution is permuted at the end. A CPU's tiles are contiguous in scratch.
    is_tiled = caps.takes_runs and k > width
    in_scratch = is_tiled or bool(flags.get("ADJOINT", 0))
    value, index = Slot(right.dtype.name), Slot("int64", "index")
    slots, buffers = ((value, value, value), (0, 1, 2)) if entry == "triangle" else (
        (value, index, value, value), (1, 2, 3, 4)
    )  # fmt: skip
    if in_scratch:
        slots, buffers = (*slots, value), (*buffers, buffers[-1] + 1)
    schedule = "ROWS" if caps.takes_runs else "GRID"
    defines = (
        (f"ENTRY_{entry.upper()}", "1"), (f"SCHEDULE_{schedule}", "1"), ("BUFFERS", str(len(slots))),
        ("IN_SCRATCH", str(int(in_scratch))), *((name, str(flag)) for name, flag in flags.items()),
    )  # fmt: skip
    text = request.text
    kernel = Instance(
        "linear_solve", text.source, f"linear_solve_{entry}", right.dtype.compute, lanes, slots, defines, text.functions
    )
    x_strides = (tiles * n * width, n * width, width) if is_tiled else (n * k, width, k)
    geometry = pack_longs((batch, n, k, tiles, *matrices.strides, *right.strides, *x_strides))
    local = caps.group_size(64)
    items = batch * tiles
    work = batch * n * (n * k // 8 + n)
    step = Step(kernel, buffers, geometry, (-(-items // local) * local,), (local,), work)
    scratch_elements = batch * x_strides[0]
    return step, (scratch_elements * right.dtype.itemsize,) if in_scratch else ()


def _triton_step(request: Request, matrices: Meta, right: Meta) -> tuple[Step, tuple[int, ...]]:
    from .triton import linear_solve as triton  # lazy: Triton devices only

    return triton.step(request, *_flags(request), matrices, right), ()


LAUNCHES = ByStyle("linear systems", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
