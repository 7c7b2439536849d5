"""Samples of images: a block of places a program, or of planes of the images' gradient."""

from __future__ import annotations

from math import prod

from ...backends.protocol import Instance, Slot, Step
from ...dtypes import BY_NAME
from ...layout import split
from .. import Request
from . import Defines, Geometry, index_type, next_power

__all__ = ["step"]

_BLOCK = 128  # places of a program
_PLANES = 32  # planes of a program


def step(
    request: Request,
    entry: str,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    sizes: tuple[int, ...],
    constants: dict[str, int],
    taps: int,
) -> Step:
    """The launch; sizes: batch, channels, places, and the image's as x, y, z; taps: along a dimension."""
    batch, channels, places, *spatial = sizes
    plane, total, planes = prod(spatial), batch * places, batch * channels
    every = taps ** constants["DIMS"]
    wide = min(next_power(planes if entry == "input" else total), _PLANES if entry == "input" else _BLOCK)
    blocks = -(-(planes if entry == "input" else total) // wide)
    wanted = max(1, request.capabilities.cores * 4 // blocks)  # programs that share a block
    geometry: Geometry
    if entry == "read":
        share, shares = split(channels, min(wanted, channels))
        geometry, grid = (total, channels, places, plane, share, tuple(spatial)), (blocks, shares)
    elif entry == "places":
        geometry, grid = (total, channels, places, plane, tuple(spatial)), (blocks, constants["DIMS"])
    else:
        reach, ranges = split(plane, min(wanted, plane))
        geometry, grid = (planes, channels, places, plane, reach, tuple(spatial)), (blocks, ranges)
    defines: Defines = {
        "INDEX": index_type([planes * plane, planes * places, total * constants["DIMS"]]), **constants, "TAPS": taps,
        "ALL": every, "BLOCK": wide,
    }  # fmt: skip
    text = request.record.texts[request.device.driver.target]
    made = Instance(
        "sampling", text.source, f"sampling_{entry}", BY_NAME[slots[0].dtype].compute, 1, slots,
        tuple(defines.items()), text.functions,
    )  # fmt: skip
    return Step(made, buffers, geometry, grid, None, planes * places * every)
