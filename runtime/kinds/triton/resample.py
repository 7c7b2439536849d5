"""Resampling: a block of the result a program."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...schedules import choose
from .. import Request
from . import Defines, Geometry, index_type, next_power

__all__ = ["step"]


def step(request: Request, slots: tuple[Slot, ...], element: str, sizes: tuple[int, int, int, int, int]) -> Step:
    """The launch; sizes: outer, n, wide, inner, taps (see the template)."""
    outer, n, wide, inner, taps = sizes
    total = outer * n * inner
    chosen = choose(request, "resample", {"numel": total, "taps": taps}, slots[0].dtype)
    block = min(chosen["block"] or request.capabilities.block, next_power(total))
    defines: Defines = {"INDEX": index_type([total, outer * wide * inner, taps * n]), "BLOCK": block}
    geometry: Geometry = (total, n, wide, inner, taps)
    text = request.record.texts[request.device.driver.target]
    made = Instance(
        request.record.name, text.source, "resample_taps", element, 1, slots, tuple(defines.items()), text.functions
    )
    return Step(made, (0, 1, 2, 3), geometry, (-(-total // block),), None, total * taps)
