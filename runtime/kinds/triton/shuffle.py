"""Plan random permutations for Triton: a program takes a block of elements. See `..shuffle` for the algorithm."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from .. import Request
from . import Defines, index_type

__all__ = ["step"]

_MAX_BLOCK = 256  # a program follows its elements until the last one stops


def step(
    request: Request, entry: str, buffers: tuple[int, ...], types: tuple[str, ...], n: int, work: int
) -> Step:  # fmt: skip
    """Return the launch of the kernel `shuffle_ENTRY`; `types` are the dtypes of its buffers."""
    block = min(request.capabilities.block, _MAX_BLOCK)
    defines: Defines = {"INDEX": index_type([n]), "BLOCK": block}
    slots = tuple(Slot(name, "raw") for name in types)
    text = request.text
    kernel = Instance(
        request.record.name, text.source, f"shuffle_{entry}", "long", 1, slots, tuple(defines.items()), text.functions
    )  # fmt: skip
    return Step(kernel, buffers, (n,), (-(-n // block),), None, work)
