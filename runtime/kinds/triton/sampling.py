"""Plan `grid_sample` and its gradients for Triton.

A program takes a block of points and some channels, or for the gradient of the images a block of planes and a range of
each. See `..sampling` for the kernels.
"""

from __future__ import annotations

from math import prod

from ...backends.protocol import Instance, Slot, Step
from ...dtypes import BY_NAME
from ...layout import split
from .. import Request
from . import Defines, Geometry, index_type, next_power

__all__ = ["step"]

_POINT_BLOCK = 128  # points per program
_PLANE_BLOCK = 32  # planes per program


def step(
    request: Request,
    entry: str,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    sizes: tuple[int, ...],
    constants: dict[str, int],
    taps: int,
) -> Step:
    """Plan the launch.

    Args:
        sizes: batch, channels, points per image, then the image's sizes in the order x, y, z.
        constants: macros that `..sampling` has chosen.
        taps: elements that a sample reads along each dimension.
    """
    batch, channels, points, *spatial = sizes
    plane, total, planes = prod(spatial), batch * points, batch * channels
    taps_per_point = taps ** constants["DIMS"]
    block = min(next_power(planes if entry == "input" else total), _PLANE_BLOCK if entry == "input" else _POINT_BLOCK)
    blocks = -(-(planes if entry == "input" else total) // block)
    target_programs = max(1, request.capabilities.cores * 4 // blocks)  # programs that share a block
    geometry: Geometry
    if entry == "read":
        channels_per_program, shares = split(channels, min(target_programs, channels))
        geometry, grid = (total, channels, points, plane, channels_per_program, tuple(spatial)), (blocks, shares)
    elif entry == "places":
        geometry, grid = (total, channels, points, plane, tuple(spatial)), (blocks, constants["DIMS"])
    else:
        range_size, ranges = split(plane, min(target_programs, plane))
        geometry, grid = (planes, channels, points, plane, range_size, tuple(spatial)), (blocks, ranges)
    defines: Defines = {
        "INDEX": index_type([planes * plane, planes * points, total * constants["DIMS"]]), **constants, "TAPS": taps,
        "COMBINATIONS": taps_per_point, "BLOCK": block,
    }  # fmt: skip
    text = request.text
    kernel = Instance(
        "sampling", text.source, f"sampling_{entry}", BY_NAME[slots[0].dtype].compute, 1, slots,
        tuple(defines.items()), text.functions,
    )  # fmt: skip
    return Step(kernel, buffers, geometry, grid, None, planes * points * taps_per_point)
