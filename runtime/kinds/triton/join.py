"""Tensors joined: elements of the result in order, a block a program."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...dtypes import DType
from .. import Request
from . import Defines, index_type, next_power

__all__ = ["step"]

_LEAST_BLOCK = 1024


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
    """The launch; a row of the result has inner[k] elements of tensor k, and rows lie `stride` elements apart."""
    numel = rows * width
    block = min(request.capabilities.block, max(_LEAST_BLOCK, next_power(numel)))
    defines: Defines = {"INDEX": index_type([rows * max(stride, width)]), "BLOCK": block}
    text = request.record.texts[request.device.driver.target]
    entry = f"join_{len(inner)}"
    made = Instance("join", text.source, entry, raw.compute, 1, slots, tuple(defines.items()), text.functions)
    return Step(made, buffers, (numel, width, stride, inner), (-(-numel // block),), None, numel)
