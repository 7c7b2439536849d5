"""Window kernels: a block of results a program, whatever they are made from."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...backends.protocol import Slot, Step
from .. import Request
from . import Defines, Geometry, index_type, instance
from .reduction import LIMITS

if TYPE_CHECKING:
    from ..window import Walk

__all__ = ["step"]

_BLOCK = 256  # results a program: each needs many registers for where it reads


def step(
    request: Request, walk: Walk, element: str, slots: tuple[Slot, ...], buffers: tuple[int, ...]
) -> Step:
    """The launch of a window op."""
    block = min(request.capabilities.block, _BLOCK)
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
