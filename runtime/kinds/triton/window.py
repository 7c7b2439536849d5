"""Plan window ops for Triton.

Pools of planes with small windows are planned by `window_tiles`, whose lanes compute tiles of planes. For all others
(volumes, windows of several sizes, columns of convolutions) the schedule `cells` computes a block of consecutive
results per program.

See `..window_geometry` for `Windows`.
"""

from __future__ import annotations

from math import prod

from ...backends.protocol import Slot, Step
from .. import Request
from ..window_geometry import Windows, choose_schedule
from . import Defines, Geometry, index_type, instance, window_tiles
from .reduction import LIMITS

__all__ = ["step"]


def step(request: Request, windows: Windows, element: str, slots: tuple[Slot, ...], buffers: tuple[int, ...]) -> Step:
    """Plan the launch of a window op."""
    max_taps = tuple(
        _max_taps(windows.covering, windows.adaptive, *sizes)
        for sizes in zip(
            windows.output_size, windows.source_size, windows.kernel, windows.stride, windows.dilation, strict=True
        )
    )
    images = windows.planes // windows.channels
    input_extents = [
        sum(n * abs(s) for n, s in zip((images, windows.channels, *windows.source_size), strides, strict=True))
        + sum(k * abs(s) for k, s in zip(windows.kernel, windows.taps, strict=True))
        for strides in windows.strides
    ]
    axis_extents = [
        (o + i) * s + k * d + 2 * p
        for o, i, k, s, d, p in zip(
            windows.output_size, windows.source_size, windows.kernel, windows.stride, windows.dilation, windows.padding,
            strict=True,
        )
    ]  # fmt: skip
    positions = (prod(windows.source_size) * 2, prod(windows.output_size) * 2)  # in a plane
    lowest, highest = LIMITS[element]
    defines: Defines = {
        "INDEX": index_type([windows.numel, max(input_extents) * 2, *positions, *axis_extents]),
        "LOWEST": lowest, "HIGHEST": highest,
    }  # fmt: skip
    if window_tiles.is_possible(request, windows):
        return window_tiles.step(request, windows, element, slots, buffers, defines)
    params = choose_schedule(request, windows, slots)
    block = min(request.capabilities.block, params["block"])
    defines |= {
        "BLOCK": block, "ADAPTIVE": int(windows.adaptive), "DILATED": int(windows.is_dilated),
        "TAPPED": int(windows.from_columns),
    }  # fmt: skip
    if params["warps"] != 4:  # Triton's own default
        defines["num_warps"] = params["warps"]
    geometry: Geometry = (
        windows.numel, windows.channels, windows.output_size, windows.source_size, windows.kernel, windows.stride,
        windows.padding, windows.dilation, windows.counted_padding, windows.divisor, max_taps, *windows.strides,
        windows.taps,
    )  # fmt: skip
    kernel = instance(request, "cells", element, slots, defines)
    programs = -(-windows.numel // block)
    return Step(kernel, buffers, geometry, (programs,), None, windows.numel * prod(max_taps))


def _max_taps(
    covering: bool, adaptive: bool, output_size: int, source_size: int, kernel: int, stride: int, dilation: int
) -> int:
    """Return the most elements that a window has along a dimension; with `covering`, the most windows of an element."""
    if adaptive:
        return min(-(-source_size // output_size) + 1, source_size)
    return min((kernel - 1) * dilation // stride + 1, source_size) if covering else kernel
