"""Few elements of many tensors joined by one launch (`codegen/specs/joining.yaml`).

A kernel is compiled for 4 tensors or for 16; where fewer are given, the first stands in for the others, of which no
element is read. Schedules: `pieces` (CPU: a work-item copies all), `grid` (GPU: an element a work-item).
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import collapse, normalize_dim, pack_longs
from . import Planned, Request

__all__ = ["MOST", "plan"]

_INPUTS = (4, 16)  # for how many tensors there are kernels
MOST = _INPUTS[-1]


def plan(request: Request) -> Planned:
    """The result's layout and the one launch."""
    tensors = [m for m in request.operands if isinstance(m, Meta)]
    if not 0 < len(tensors) <= MOST or len(tensors) < len(request.operands):
        raise ArgumentError(f"{request.where()}: takes 1 to {MOST} tensors")
    first = tensors[0]
    for given in tensors:
        if given.dtype is not first.dtype:
            raise DTypeError(f"{request.where()}: takes tensors of one dtype, not {first.dtype} and {given.dtype}")
        if not (given.contiguous and given.numel):
            raise ShapeError(f"{request.where()}: takes contiguous tensors that have elements")
    stacked = bool(request.static("stacked"))
    dim = normalize_dim(request.static("dim"), first.ndim + stacked, request.where())  # type: ignore[arg-type]
    shape = _joined(request, tensors, dim, stacked)
    out = request.into[0] if request.into else meta(first.dtype, shape, None, request.device)
    if out.shape != shape or out.dtype is not first.dtype:
        raise ShapeError(f"{request.where()}: the result is {first.dtype} of shape {list(shape)}")
    outer, (strides,) = collapse(shape[:dim], [out.strides[:dim]])
    if len(outer) > 1 or not meta(out.dtype, shape[dim:], out.strides[dim:], request.device).contiguous:
        raise ShapeError(f"{request.where()}: cannot be written to strides {list(out.strides)}; call .contiguous()")
    rows, stride = (outer[0], strides[0]) if outer else (1, 0)
    return Planned((out,), (_step(request, tensors, rows, stride),))


def _joined(request: Request, tensors: Sequence[Meta], dim: int, stacked: bool) -> tuple[int, ...]:
    """The result's shape."""
    first = tensors[0].shape
    behind = first[dim:] if stacked else first[dim + 1 :]
    for given in tensors:
        own = given.shape
        if len(own) != len(first) or own[:dim] != first[:dim] or own[dim if stacked else dim + 1 :] != behind:
            raise ShapeError(f"{request.where()}: {list(own)} does not fit {list(first)} along dimension {dim}")
    length = len(tensors) if stacked else sum(given.shape[dim] for given in tensors)
    return (*first[:dim], length, *behind)


def _step(request: Request, tensors: Sequence[Meta], rows: int, stride: int) -> Step:
    """The launch; rows: of the result, which lie `stride` elements apart."""
    count = len(tensors)
    inputs = next(n for n in _INPUTS if n >= count)
    inner = tuple(given.numel // rows for given in tensors) + (0,) * (inputs - count)
    width = sum(inner)
    numel = rows * width
    raw = dtypes.raw(tensors[0].dtype)
    slots = (Slot(raw.name, "raw"),) * (inputs + 1)
    buffers = (count, *range(count), *(0,) * (inputs - count))
    if request.capabilities.style == "triton":
        from .triton import join as triton

        return triton.step(request, raw, slots, buffers, rows, width, stride, inner)
    gpu = request.capabilities.style == "gpu"
    entry, local = ("grid", min(128, request.capabilities.max_group)) if gpu else ("pieces", 1)
    lanes = 1 if gpu else request.capabilities.lanes // (2 if raw.itemsize == 8 else 1)
    defines = ((f"SCHEDULE_{entry.upper()}", "1"), ("INPUTS", str(inputs)))
    text = request.record.texts[request.device.driver.target]
    made = Instance("join", text.source, f"join_{entry}", raw.compute, lanes, slots, defines, text.functions)
    size = -(-numel // local) * local if gpu else 1
    return Step(made, buffers, pack_longs((rows, width, stride, *inner)), (size,), (local,), numel)
