"""Plan resampling for Triton: a program computes a block of consecutive elements of the result; see `..resample`."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...schedules import choose
from .. import Request
from . import Defines, Geometry, index_type, next_power

__all__ = ["step"]


def step(request: Request, slots: tuple[Slot, ...], element: str, sizes: tuple[int, int, int, int, int]) -> Step:
    """Plan the launch.

    Args:
        sizes: elements outside `dim`, along it in the result and in the input, inside it, and weights per element.
    """
    outer, output_size, source_size, inner, taps = sizes
    total = outer * output_size * inner
    params = choose(request, "resample", {"numel": total, "taps": taps}, slots[0].dtype)
    block = min(params["block"] or request.capabilities.block, next_power(total))
    defines: Defines = {"INDEX": index_type([total, outer * source_size * inner, taps * output_size]), "BLOCK": block}
    geometry: Geometry = (total, output_size, source_size, inner, taps)
    text = request.text
    kernel = Instance(
        request.record.name, text.source, "resample_taps", element, 1, slots, tuple(defines.items()), text.functions
    )
    return Step(kernel, (0, 1, 2, 3), geometry, (-(-total // block),), None, total * taps)
