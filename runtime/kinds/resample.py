"""Plan resampling along one dimension (`codegen/specs/resample.yaml`): weighted sums of neighbouring elements.

Element `i` of the result is `sum(weights[k, i] * input[first[i] + k] for k in range(taps))`. The transpose, the
gradient, has the same form with its own `first` and `weights`, so it is a gather too: no atomics, and the same call
gives the same bits.

Schedules: `rows` (CPU: vectors along the dimensions inside `dim`), `line` (CPU: `dim` is the innermost dimension, and
vectors go along the result), `grid` (GPU: one work-item per element).
"""

from __future__ import annotations

from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import normalize_dim, pack_longs, split
from ..schedules import choose
from . import Planned, Request, slot
from .elementwise import elementwise_parts

__all__ = ["LAUNCHES", "plan"]

_UNROLLED_TAPS = 4  # weights per element up to which CPU kernels have no loop over them; GPU kernels always have one


def plan(request: Request) -> Planned:
    """Plan the resampling: the result's layout, and one launch.

    Raises:
        ArgumentError: if an operand is not a tensor, is not contiguous, or the call has `out=`.
        DTypeError: if the input is not floating.
        ShapeError: if the shapes of `first` `(n,)` and `weights` `(taps, n)` do not fit, or the input is empty and the
            result is not.
    """
    source, starts, weights = request.operands
    if not (isinstance(source, Meta) and isinstance(starts, Meta) and isinstance(weights, Meta)):
        raise ArgumentError(f"{request.where()}: takes three tensors")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    if source.dtype.kind != "f":
        raise DTypeError(f"{request.where()}: takes floating dtypes, not {source.dtype.name}; convert with .float()")
    if weights.ndim != 2 or starts.shape != weights.shape[1:]:
        raise ShapeError(
            f"{request.where()}: first has one position, and weights one column, per element of the result"
        )
    if not (source.contiguous and starts.contiguous and weights.contiguous):
        raise ArgumentError(f"{request.where()}: the operands must be contiguous; call contiguous()")
    dim = normalize_dim(request.static("dim"), source.ndim, request.where())
    taps, output_size = weights.shape
    target_dtype = request.static("dtype")
    dtype = source.dtype if target_dtype is None else dtypes.parse(target_dtype)
    out = meta(dtype, (*source.shape[:dim], output_size, *source.shape[dim + 1 :]), None, request.device)
    if not out.numel:
        return Planned((out,))
    if not source.numel:
        raise ShapeError(f"{request.where()}: the input is empty and the result is not; pass at least one element")
    outer, source_size, inner = prod(source.shape[:dim]), source.shape[dim], prod(source.shape[dim + 1 :])
    slots = (slot(source, "value"), slot(starts, "index"), slot(weights, "value"), slot(out, "value"))
    element = weights.dtype.compute
    sizes = (outer, output_size, source_size, inner, taps)
    return Planned((out,), (LAUNCHES[request.capabilities.style](request, slots, element, sizes),))


def _opencl_step(
    request: Request, slots: tuple[Slot, ...], element: str, sizes: tuple[int, int, int, int, int]
) -> Step:
    """Build the launch in OpenCL; see `triton.resample.step` for the arguments."""
    outer, output_size, source_size, inner, taps = sizes
    numel, source_dtype = outer * output_size * inner, dtypes.BY_NAME[slots[0].dtype]
    caps, record, text = request.capabilities, request.record, request.text
    lanes = caps.lanes // 2 if element == "double" else caps.lanes
    parts = elementwise_parts(numel, caps.cores)
    if not caps.takes_runs:
        params = choose(request, "resample", {"numel": numel, "taps": taps}, source_dtype.name)
        entry, lanes, chunk, local = "grid", 1, 0, min(params["group"], caps.max_group)
        size = -(-numel // local) * local
    elif inner == 1:
        entry, local = "line", 1
        chunk, size = split(outer, parts)
        while lanes > output_size:
            lanes //= 2
    else:
        entry, local = "rows", 1
        chunk, size = split(outer * output_size, parts)
        while lanes > max(inner, 2):
            lanes //= 2
    # 0: elements are converted when they are loaded, so that no instruction gathers them.
    gather_bytes = source_dtype.itemsize if source_dtype.storage == element else 0
    defines = (
        (f"SCHEDULE_{entry.upper()}", "1"), ("TAPS", str(taps if taps <= _UNROLLED_TAPS and entry != "grid" else 0)),
        ("GATHER_BYTES", str(gather_bytes)),
    )  # fmt: skip
    kernel = Instance(record.name, text.source, f"resample_{entry}", element, lanes, slots, defines, text.functions)
    geometry = pack_longs((outer, output_size, source_size, inner, taps, chunk))
    return Step(kernel, (0, 1, 2, 3), geometry, (size,), (local,), numel * taps)


def _triton_step(
    request: Request, slots: tuple[Slot, ...], element: str, sizes: tuple[int, int, int, int, int]
) -> Step:
    from .triton import resample as triton  # lazy: Triton devices only

    return triton.step(request, slots, element, sizes)


LAUNCHES = ByStyle("resampling", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
