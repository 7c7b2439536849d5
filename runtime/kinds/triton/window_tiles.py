"""Plan pools of planes and their gradients for Triton: a lane of a program computes a tile of a plane."""

from __future__ import annotations

from math import prod

from ... import dtypes
from ...backends.protocol import Slot, Step
from .. import Request
from ..window_geometry import Windows
from . import Defines, Geometry, instance
from .plane_tiles import BLOCK, Axis, Rows, Work, choose_tile, tile_defines, unit_strides

__all__ = ["is_possible", "step"]

_MAX_TAPS = 64
_MAX_REACH = 48  # from the first element of a window to the last: all rows and columns between them are unrolled
_MAX_STRIDE = 8
# Instructions for each element of a window: of a gradient, of a sum, and of another reduction.
_GRADIENT_SLOTS, _SUM_SLOTS, _COMBINE_SLOTS = 3, 1, 6


def is_possible(request: Request, windows: Windows) -> bool:
    """Return True if windows are planar, equal, and small enough to be unrolled."""
    if windows.adaptive or windows.from_columns or request.record.detail["over"] == "taps":
        return False
    depth = (windows.output_size[0], windows.source_size[0], windows.kernel[0], windows.padding[0] + 1)
    if depth != (1, 1, 1, 1) or windows.kernel[1] * windows.kernel[2] > _MAX_TAPS:
        return False
    reaches = [(windows.kernel[d] - 1) * windows.dilation[d] + windows.padding[d] for d in (1, 2)]
    return max(reaches) <= _MAX_REACH and max(windows.stride) <= _MAX_STRIDE


def step(
    request: Request, windows: Windows, element: str, slots: tuple[Slot, ...], buffers: tuple[int, ...],
    common_defines: Defines,
) -> Step:  # fmt: skip
    """Plan the launch of a window op, for which `is_possible` is true.

    Args:
        request: The call.
        windows: Its geometry.
        element: The compute type.
        slots, buffers: Of the kernel's inputs and outputs.
        common_defines: Constants that all schedules have.
    """
    detail = request.record.detail
    down, across = (
        Axis(windows.source_size[d], windows.output_size[d], windows.kernel[d], windows.stride[d], windows.padding[d],
             windows.dilation[d], windows.covering)
        for d in (1, 2)
    )  # fmt: skip
    layouts = [m for _, m in request.tensors]
    itemsizes = [dtypes.parse(slot.dtype).itemsize for slot in slots]
    has_positions = bool(detail["has_index"]) and not windows.covering
    tap_slots = _GRADIENT_SLOTS if windows.covering else _SUM_SLOTS if detail["summed"] else _COMBINE_SLOTS
    # Inputs of one row each have their last dimension only, and others two, before which images and channels come.
    rank = len(request.static("size"))
    work = Work(
        down, across, windows.planes, request.capabilities.cores, tuple(Rows.of(m, rank) for m in layouts),
        tuple(Rows.of_result(n, across.target) for n in itemsizes[len(layouts) :]), tap_slots,
        fixed_slots=40, registers=(1 + has_positions) * (2 if element in ("double", "long") else 1),
    )  # fmt: skip
    tile = choose_tile(work)
    tiles = tile.counts(work)
    lanes = windows.planes * tiles[0] * tiles[1]
    block = min(BLOCK, request.capabilities.block)
    width_unit = max(tile.target_units)
    count = _uniform_count(windows)
    images = windows.planes // windows.channels
    sizes = (images, windows.channels, down.source)
    strides = [
        (*unit_strides(sizes, (s[0], s[1], s[3]), unit), s[4])
        for s, unit in zip(windows.strides, tile.units, strict=True)
    ]
    defines = common_defines | tile_defines(work, tile, block) | {
        "COUNTED": int(not count), "OUTSIDE": int(down.reaches_outside or across.reaches_outside),
        "WIDTH_UNIT": width_unit,
        **{f"UNIT{k}": unit for k, unit in enumerate(tile.units)},
        **{f"STORE_UNIT{k}": unit for k, unit in enumerate(tile.target_units)},
    }  # fmt: skip
    geometry: Geometry = (
        lanes, tiles, windows.channels, (down.target, across.target // width_unit), (down.source, across.source),
        windows.counted_padding[1:], count, *strides,
    )  # fmt: skip
    kernel = instance(request, "tiles", element, slots, defines)
    return Step(kernel, buffers, geometry, (-(-lanes // block),), None, windows.numel * prod(windows.kernel))


def _uniform_count(windows: Windows) -> int:
    """Return the number by which an average of any window divides; 0 if windows differ in it."""
    if windows.divisor:
        return windows.divisor
    elements, counts = (
        (windows.output_size, windows.source_size) if windows.covering else (windows.source_size, windows.output_size)
    )
    for n, count, k, s, p, d, counted in zip(
        elements, counts, windows.kernel, windows.stride, windows.padding, windows.dilation, windows.counted_padding,
        strict=True,
    ):  # fmt: skip
        last = (count - 1) * s - p + (k - 1) * d
        if counted not in (p, 0) or (p and not counted) or last >= n + counted:
            return 0
    return prod(windows.kernel)
