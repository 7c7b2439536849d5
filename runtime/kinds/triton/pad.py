"""Padding: elements of the result in order, a block a program."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...backends.protocol import Instance, Slot, Step
from ...dtypes import DType
from .. import Request
from . import Defines, index_type, next_power

__all__ = ["copy_step", "fold_step"]

_LEAST_BLOCK = 1024


def _launch(
    request: Request,
    entry: str,
    element: str,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    dims: Sequence[tuple[int, int, int, int]],
    defines: Defines,
    numel: int,
    more: tuple[int | tuple[int, ...], ...] = (),
) -> Step:
    outs, sizes, leads, strides = (tuple(dim[part] for dim in dims) for part in range(4))
    reach = sum((n + abs(lead)) * abs(s) for n, lead, s in zip(sizes, leads, strides, strict=True))
    block = min(request.capabilities.block, max(_LEAST_BLOCK, next_power(numel)))
    given: Defines = {
        "INDEX": index_type([numel, 2 * reach, prod(sizes)]),
        **defines,
        "RANK": len(dims),
        "BLOCK": block,
    }
    text = request.record.texts[request.device.driver.target]
    made = Instance("pad", text.source, entry, element, 1, slots, tuple(given.items()), text.functions)
    return Step(made, buffers, (numel, outs, sizes, leads, strides, *more), (-(-numel // block),), None, numel)


def copy_step(
    request: Request,
    raw: DType,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    dims: Sequence[tuple[int, int, int, int]],
    mode: int,
    filled: bool,
    numel: int,
) -> Step:
    """The launch that pads; dims: of each dimension the result's size, the operand's, places in front, stride."""
    defines: Defines = {"MODE": mode, "FILLED": int(filled)}
    return _launch(request, "pad_copy", raw.compute, slots, buffers, dims, defines, numel)


def fold_step(
    request: Request,
    element: str,
    slots: tuple[Slot, ...],
    dims: Sequence[tuple[int, int, int, int]],
    mode: int,
    numel: int,
) -> Step:
    """The launch that sums what was read; dims: of each dimension the result's size, the gradient's, places in front,
    stride."""
    most = tuple(_most(mode, *dim[:3]) for dim in dims)
    return _launch(request, "pad_fold", element, slots, (0, 1), dims, {"MODE": mode}, numel, (most, prod(most)))


def _most(mode: int, n: int, wide: int, lead: int) -> int:
    """How many of `wide` places are read from one of n at most."""
    if n == wide and not lead:
        return 1
    if mode == 1:
        return 3
    if mode == 3:
        return -(-wide // n)
    return wide if n == 1 else max(1, lead + 1, wide - lead - n + 1)
