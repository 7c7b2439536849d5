"""Plan padding (`pad_copy`) and its transpose, the gradient (`pad_fold`); see `codegen/specs/padding.yaml`.

CPU schedules are `rows` and `fold`: a work-item iterates over rows of the result, with vector loads where the elements
of a row are contiguous in the operand. GPU schedules are `grid` and `fold_grid`: one work-item per element of the
result. Padding copies raw bits. The transpose sums in the compute dtype: for each element of its result, it adds the
gradients of all copies of that element, always in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from . import Planned, Request, pointwise
from .elementwise import elementwise_parts

__all__ = ["COPIES", "FOLDS", "MODES", "merge_dims", "plan"]

MODES = ("constant", "reflect", "replicate", "circular")

# One dimension: size of the result, size of the operand, elements padded in front, stride of the operand.
Dim = tuple[int, int, int, int]


def plan(request: Request) -> Planned:
    """Plan padding or its transpose: the result's layout, and one launch.

    Raises:
        ArgumentError: for an unknown mode, a call with `out=`, or counts that are not one integer per dimension.
        DTypeError: if `fill` is not one element of the operand's dtype.
        ShapeError: if a size would be negative, or the operand is too small for the mode and the padding.
    """
    source = request.operands[0]
    if not isinstance(source, Meta):
        raise ArgumentError(f"{request.where()}: takes a tensor; make one with tensor()")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    mode = request.static("mode")
    if mode not in MODES:
        raise ArgumentError(f"{request.where()}: mode must be one of {', '.join(MODES)}, not {mode!r}")
    if request.record.name == "pad_copy":
        return _copy(request, source, MODES.index(str(mode)))
    return _fold(request, source, MODES.index(str(mode)))


def _per_dimension(request: Request, name: str, layout: Meta) -> tuple[int, ...]:
    """Return the static argument `name`: one integer per dimension of `layout`."""
    counts = request.static(name)
    if not isinstance(counts, tuple) or len(counts) != layout.ndim or any(type(n) is not int for n in counts):
        raise ArgumentError(
            f"{request.where()}: {name} must be {layout.ndim} integers, one a dimension, not {counts!r}"
        )
    return counts


def merge_dims(dims: Sequence[Dim]) -> list[Dim]:
    """Merge neighbouring unpadded dimensions where strides allow it. The result has at least one dimension."""
    merged_dims: list[Dim] = []
    for out_size, source_size, lead, stride in dims:
        is_unpadded = out_size == source_size and lead == 0
        if is_unpadded and source_size == 1:
            continue
        if merged_dims and is_unpadded:
            previous = merged_dims[-1]
            if previous[0] == previous[1] and previous[2] == 0 and previous[3] == source_size * stride:
                merged_dims[-1] = (previous[0] * out_size, previous[1] * source_size, 0, stride)
                continue
        merged_dims.append((out_size, source_size, lead, stride))
    return merged_dims or [(1, 1, 0, 1)]


def _copy(request: Request, source: Meta, mode: int) -> Planned:
    """Plan `pad_copy`: copy the operand with padding of `before` and `after` elements in each dimension."""
    pads_before, pads_after = _per_dimension(request, "before", source), _per_dimension(request, "after", source)
    shape = tuple(size + a + b for size, a, b in zip(source.shape, pads_before, pads_after, strict=True))
    if any(size < 0 for size in shape):
        raise ShapeError(
            f"{request.where()}: padding by {pads_before} and {pads_after} leaves sizes below 0: {list(shape)}"
        )
    for size, a, b in zip(source.shape, pads_before, pads_after, strict=True):
        if (mode == 1 and max(a, b) >= max(size, 1)) or (mode in (2, 3) and not size and (a or b)):
            raise ShapeError(f"{request.where()}: {MODES[mode]} padding by {a} and {b} does not fit {size} elements")
    fill = request.operands[1]
    if isinstance(fill, Meta) and (fill.numel != 1 or fill.dtype is not source.dtype):
        raise DTypeError(f"{request.where()}: fill must be one {source.dtype.name}, not {fill.dtype.name}")
    out = meta(source.dtype, shape, None, request.device)
    if not out.numel:
        return Planned((out,))
    if not source.numel:
        steps = _fill_steps(request, out, fill)
        return Planned((out,), steps)
    bits_dtype = dtypes.bits_dtype(source.dtype)
    slots = (Slot(bits_dtype.name, "raw"),) * 3
    has_fill = isinstance(fill, Meta)
    buffers = (0, 1, 2) if has_fill else (0, 0, 1)  # without a fill, the kernel does not read its second buffer
    dims = merge_dims(list(zip(shape, source.shape, pads_before, source.strides, strict=True)))
    launch = COPIES[request.capabilities.style]
    return Planned((out,), (launch(request, bits_dtype, slots, buffers, dims, mode, has_fill, out.numel),))


def _opencl_copy_step(
    request: Request, bits_dtype: DType, slots: tuple[Slot, ...], buffers: tuple[int, ...], dims: Sequence[Dim],
    mode: int, has_fill: bool, numel: int,
) -> Step:  # fmt: skip
    """Build the launch that pads in OpenCL; see `triton.pad.copy_step` for the arguments."""
    *outer, (row_size, source_size, lead, stride) = dims
    rows = numel // row_size
    defines = {"MODE": mode, "FILLED": int(has_fill), "OUTER": len(outer)}
    caps = request.capabilities
    if not caps.takes_runs:
        geometry = (rows, row_size, 1, 1, source_size, lead, stride, *_outer_geometry(outer))
        return _grid(request, "grid", bits_dtype.compute, slots, defines, buffers, geometry, numel)
    parts = elementwise_parts(numel, caps.cores)
    row_chunk, row_items = split(rows, parts)
    chunk, items = split(row_size, -(-parts // row_items), 64)
    geometry = (rows, row_size, row_chunk, chunk, source_size, lead, stride, *_outer_geometry(outer))
    lanes = caps.lanes // 2 if bits_dtype.itemsize == 8 else caps.lanes
    defines["UNIT"] = int(stride == 1 and source_size >= lanes)
    kernel = _instance(request, "rows", bits_dtype.compute, lanes, slots, defines)
    return Step(kernel, buffers, pack_longs(geometry), (row_items, items), (1, 1), numel)


def _fill_steps(request: Request, out: Meta, fill: object) -> tuple[Step, ...]:
    """Plan the launches for an empty operand: set the whole result to `fill`, or to 0 without one.

    An empty operand has no memory that a padding kernel could take, so a pointwise op writes the result.
    """
    if isinstance(fill, Meta):
        expanded_fill = meta(fill.dtype, out.shape, (0,) * out.ndim, request.device)
        fill_request = Request(registry["copy"], (expanded_fill,), (out.dtype,), request.device, (out,))
        return tuple(replace(s, buffers=(1, 2)) for s in pointwise.plan(fill_request).steps)
    zero_request = Request(registry["zero_like"], (out,), (), request.device, (out,))
    return tuple(replace(s, buffers=(1, 1)) for s in pointwise.plan(zero_request).steps)


def _fold(request: Request, source: Meta, mode: int) -> Planned:
    """Plan `pad_fold`: add each element of a padded gradient to the element of the result that it is a copy of.

    The result has shape `size`.
    """
    size, pads_before = _per_dimension(request, "size", source), _per_dimension(request, "before", source)
    if mode == 0:
        raise ArgumentError(f"{request.where()}: the transpose of constant padding is padding by negative numbers")
    out = meta(source.dtype, size, None, request.device)
    if not out.numel:
        return Planned((out,))
    if not source.numel:
        return Planned((out,), _fill_steps(request, out, None))
    dims = merge_dims(list(zip(size, source.shape, pads_before, source.strides, strict=True)))
    slots, element = (Slot(source.dtype.name),) * 2, source.dtype.compute
    launch = FOLDS[request.capabilities.style]
    return Planned((out,), (launch(request, element, slots, dims, mode, out.numel),))


def _opencl_fold_step(
    request: Request, element: str, slots: tuple[Slot, ...], dims: Sequence[Dim], mode: int, numel: int
) -> Step:
    """Build the launch of the transpose in OpenCL; see `triton.pad.fold_step` for the arguments."""
    *outer, (row_size, source_size, lead, stride) = dims
    rows = numel // row_size
    defines = {"MODE": mode, "OUTER": len(outer)}
    caps = request.capabilities
    if not caps.takes_runs:
        geometry = (rows, row_size, 1, source_size, lead, stride, *_outer_geometry(outer))
        return _grid(request, "fold_grid", element, slots, defines, (0, 1), geometry, numel)
    row_chunk, row_items = split(rows, elementwise_parts(numel, caps.cores))
    lanes = caps.vector_lanes(dtypes.BY_NAME[slots[0].dtype].itemsize)
    defines["UNIT"] = int(stride == 1)
    kernel = _instance(request, "fold", element, lanes, slots, defines)
    geometry = (rows, row_size, row_chunk, source_size, lead, stride, *_outer_geometry(outer))
    return Step(kernel, (0, 1), pack_longs(geometry), (row_items,), (1,), numel)


def _outer_geometry(outer: Sequence[Dim]) -> list[int]:
    """Return the kernel's tables of the outer dimensions: all result sizes, operand sizes, front paddings, strides."""
    return [dim[field] for field in range(4) for dim in outer]


def _instance(
    request: Request, entry: str, element: str, lanes: int, slots: tuple[Slot, ...], defines: dict[str, int]
) -> Instance:
    """Return the kernel of the schedule `entry`."""
    text = request.text
    all_defines = ((f"SCHEDULE_{entry.upper()}", "1"), *((k, str(v)) for k, v in defines.items()))
    # Named after the kind and not the op, because both ops share one kernel source.
    return Instance("pad", text.source, f"pad_{entry}", element, lanes, slots, all_defines, text.functions)


def _grid(
    request: Request,
    entry: str,
    element: str,
    slots: tuple[Slot, ...],
    defines: dict[str, int],
    buffers: tuple[int, ...],
    geometry: tuple[int, ...],
    numel: int,
) -> Step:
    """Build a GPU launch with one work-item per element of the result."""
    group_size = min(128, request.capabilities.max_group)
    kernel = _instance(request, entry, element, 1, slots, defines)
    return Step(kernel, buffers, pack_longs(geometry), (-(-numel // group_size) * group_size,), (group_size,), numel)


def _triton_copy_step(
    request: Request, bits_dtype: DType, slots: tuple[Slot, ...], buffers: tuple[int, ...], dims: Sequence[Dim],
    mode: int, has_fill: bool, numel: int,
) -> Step:  # fmt: skip
    from .triton import pad as triton  # lazy: Triton devices only

    return triton.copy_step(request, bits_dtype, slots, buffers, dims, mode, has_fill, numel)


def _triton_fold_step(
    request: Request, element: str, slots: tuple[Slot, ...], dims: Sequence[Dim], mode: int, numel: int
) -> Step:
    from .triton import pad as triton  # lazy: Triton devices only

    return triton.fold_step(request, element, slots, dims, mode, numel)


COPIES = ByStyle("padding", cpu=_opencl_copy_step, gpu=_opencl_copy_step, triton=_triton_copy_step)
FOLDS = ByStyle("padding's transpose", cpu=_opencl_fold_step, gpu=_opencl_fold_step, triton=_triton_fold_step)
