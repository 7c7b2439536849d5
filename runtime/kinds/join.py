"""Plan `cat` and `stack` of up to 16 small tensors in one launch (`codegen/specs/joining.yaml`).

A kernel is compiled for 4 tensors or for 16. If the call has fewer, the first tensor fills the remaining parameters
with a length of 0, so the kernel reads nothing from them. Schedules: `pieces` (CPU: one work-item copies everything),
`grid` (GPU: one work-item per element).
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import collapse, normalize_dim, pack_longs
from . import Planned, Request

__all__ = ["LAUNCHES", "MAX_TENSORS", "plan"]

_KERNEL_INPUTS = (4, 16)  # numbers of tensors that kernels are compiled for
MAX_TENSORS = _KERNEL_INPUTS[-1]


def plan(request: Request) -> Planned:
    """Plan the concatenation: the result's layout, and one launch.

    Raises:
        ArgumentError: unless there are 1 to `MAX_TENSORS` tensors.
        DTypeError: if their dtypes differ.
        ShapeError: if a tensor is not contiguous or is empty, the shapes do not fit, or `out` cannot hold the result.
    """
    tensors = [m for m in request.operands if isinstance(m, Meta)]
    if not 0 < len(tensors) <= MAX_TENSORS or len(tensors) < len(request.operands):
        raise ArgumentError(f"{request.where()}: takes 1 to {MAX_TENSORS} tensors")
    first = tensors[0]
    for layout in tensors:
        if layout.dtype is not first.dtype:
            raise DTypeError(f"{request.where()}: takes tensors of one dtype, not {first.dtype} and {layout.dtype}")
        if not (layout.contiguous and layout.numel):
            raise ShapeError(f"{request.where()}: takes contiguous tensors that are not empty")
    stacked = bool(request.static("stacked"))
    dim = normalize_dim(request.static("dim"), first.ndim + stacked, request.where())
    shape = _result_shape(request, tensors, dim, stacked)
    out = request.into[0] if request.into else meta(first.dtype, shape, None, request.device)
    if out.shape != shape or out.dtype is not first.dtype:
        raise ShapeError(f"{request.where()}: the result is {first.dtype} of shape {list(shape)}")
    outer, (strides,) = collapse(shape[:dim], [out.strides[:dim]])
    if len(outer) > 1 or not meta(out.dtype, shape[dim:], out.strides[dim:], request.device).contiguous:
        raise ShapeError(f"{request.where()}: cannot be written to strides {list(out.strides)}; call .contiguous()")
    rows, stride = (outer[0], strides[0]) if outer else (1, 0)
    return Planned((out,), (_step(request, tensors, rows, stride),))


def _result_shape(request: Request, tensors: Sequence[Meta], dim: int, stacked: bool) -> tuple[int, ...]:
    """Return the result's shape. Raise `ShapeError` if the shapes differ outside `dim`."""
    first = tensors[0].shape
    trailing = first[dim:] if stacked else first[dim + 1 :]
    for layout in tensors:
        shape = layout.shape
        if len(shape) != len(first) or shape[:dim] != first[:dim] or shape[dim if stacked else dim + 1 :] != trailing:
            raise ShapeError(f"{request.where()}: {list(shape)} does not fit {list(first)} along dimension {dim}")
    length = len(tensors) if stacked else sum(layout.shape[dim] for layout in tensors)
    return (*first[:dim], length, *trailing)


def _step(request: Request, tensors: Sequence[Meta], rows: int, stride: int) -> Step:
    """Build the launch for `rows` rows of the result whose starts are `stride` elements apart."""
    count = len(tensors)
    inputs = next(n for n in _KERNEL_INPUTS if n >= count)
    inner = tuple(layout.numel // rows for layout in tensors) + (0,) * (inputs - count)
    width = sum(inner)
    raw = dtypes.bits_dtype(tensors[0].dtype)
    slots = (Slot(raw.name, "raw"),) * (inputs + 1)
    buffers = (count, *range(count), *(0,) * (inputs - count))
    return LAUNCHES[request.capabilities.style](request, raw, slots, buffers, rows, width, stride, inner)


def _opencl_step(
    request: Request, raw: DType, slots: tuple[Slot, ...], buffers: tuple[int, ...], rows: int, width: int,
    stride: int, inner: tuple[int, ...],
) -> Step:  # fmt: skip
    """Build the launch in OpenCL; see `triton.join.step` for the arguments."""
    caps, inputs, numel = request.capabilities, len(slots) - 1, rows * width
    entry, local, lanes = "pieces" if caps.takes_runs else "grid", caps.group_size(128), caps.vector_lanes(raw.itemsize)
    defines = ((f"SCHEDULE_{entry.upper()}", "1"), ("INPUTS", str(inputs)))
    text = request.text
    kernel = Instance("join", text.source, f"join_{entry}", raw.compute, lanes, slots, defines, text.functions)
    size = 1 if caps.takes_runs else -(-numel // local) * local
    return Step(kernel, buffers, pack_longs((rows, width, stride, *inner)), (size,), (local,), numel)


def _triton_step(
    request: Request, raw: DType, slots: tuple[Slot, ...], buffers: tuple[int, ...], rows: int, width: int,
    stride: int, inner: tuple[int, ...],
) -> Step:  # fmt: skip
    from .triton import join as triton  # lazy: Triton devices only

    return triton.step(request, raw, slots, buffers, rows, width, stride, inner)


LAUNCHES = ByStyle("joins", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
