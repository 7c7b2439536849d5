"""Window kernels: a block of results a program, whatever they are made from."""

from __future__ import annotations

from math import prod

from ...backends.protocol import Slot, Step
from .. import Request
from ..window import Walk, chosen
from . import Defines, Geometry, index_type, instance
from .reduction import LIMITS

__all__ = ["step"]


def step(
    request: Request, walk: Walk, element: str, slots: tuple[Slot, ...], buffers: tuple[int, ...]
) -> Step:
    """The launch of a window op."""
    choice = chosen(request, walk, slots)
    block = min(request.capabilities.block, choice["block"])
    most = tuple(
        _most(walk.covering, walk.adaptive, *sizes)
        for sizes in zip(walk.cells, walk.source, walk.kernel, walk.stride, walk.dilation, strict=True)
    )
    reaches = [
        sum(n * abs(s) for n, s in zip((walk.planes, walk.channels, *walk.source), own, strict=True))
        + sum(k * abs(s) for k, s in zip(walk.kernel, walk.taps, strict=True))
        for own in walk.strides
    ]
    lines = [
        (c + o) * s + k * d + 2 * p
        for c, o, k, s, d, p in zip(
            walk.cells, walk.source, walk.kernel, walk.stride, walk.dilation, walk.padding, strict=True
        )
    ]
    lowest, highest = LIMITS[element]
    defines: Defines = {
        "INDEX": index_type([walk.numel, max(reaches) * 2, *lines]), "BLOCK": block, "ADAPTIVE": int(walk.adaptive),
        "DILATED": int(walk.dilated), "TAPPED": int(walk.tapped), "LOWEST": lowest, "HIGHEST": highest,
    }  # fmt: skip
    if choice["warps"] != 4:  # Triton's own default
        defines["num_warps"] = choice["warps"]
    geometry: Geometry = (
        walk.numel, walk.channels, walk.cells, walk.source, walk.kernel, walk.stride, walk.padding, walk.dilation,
        walk.beyond, walk.divisor, most, *walk.strides, walk.taps,
    )  # fmt: skip
    made = instance(request, "cells", element, slots, defines)
    programs = -(-walk.numel // block)
    return Step(made, buffers, geometry, (programs,), None, walk.numel * prod(most))


def _most(covering: bool, adaptive: bool, cells: int, source: int, kernel: int, stride: int, dilation: int) -> int:
    """How many elements the largest window has along a dimension, or how many windows have an element."""
    if adaptive:
        return min(-(-source // cells) + 1, source)
    return min((kernel - 1) * dilation // stride + 1, source) if covering else kernel
