"""Plan `cat` and `stack` of small tensors for Triton: a program copies a block of consecutive result elements."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...dtypes import DType
from .. import Request
from . import Defines, index_type, next_power

__all__ = ["step"]

_MIN_BLOCK = 1024


def step(
    request: Request,
    raw: DType,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    rows: int,
    width: int,
    stride: int,
    inner: tuple[int, ...],
) -> Step:
    """Plan the launch.

    Args:
        rows, width, stride: rows of the result, elements of a row, and elements between the starts of two rows.
        inner: elements of a row that come from each tensor.
    """
    numel = rows * width
    block = min(request.capabilities.block, max(_MIN_BLOCK, next_power(numel)))
    defines: Defines = {"INDEX": index_type([rows * max(stride, width)]), "BLOCK": block}
    text = request.text
    entry = f"join_{len(inner)}"
    kernel = Instance("join", text.source, entry, raw.compute, 1, slots, tuple(defines.items()), text.functions)
    return Step(kernel, buffers, (numel, width, stride, inner), (-(-numel // block),), None, numel)
