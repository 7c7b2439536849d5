"""Plan padding and its transpose for Triton: a program computes a block of consecutive elements of the result."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...backends.protocol import Instance, Slot, Step
from ...dtypes import DType
from .. import Request
from . import Defines, index_type, next_power

__all__ = ["copy_step", "fold_step"]

_MIN_BLOCK = 1024


def _launch(
    request: Request,
    entry: str,
    element: str,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    dims: Sequence[tuple[int, int, int, int]],
    defines: Defines,
    numel: int,
    extra_geometry: tuple[int | tuple[int, ...], ...] = (),
) -> Step:
    """Build the launch of the kernel `entry`."""
    outs, sizes, leads, strides = (tuple(dim[field] for dim in dims) for field in range(4))
    reach = sum((n + abs(lead)) * abs(s) for n, lead, s in zip(sizes, leads, strides, strict=True))
    block = min(request.capabilities.block, max(_MIN_BLOCK, next_power(numel)))
    all_defines: Defines = {
        "INDEX": index_type([numel, 2 * reach, prod(sizes)]),
        **defines,
        "RANK": len(dims),
        "BLOCK": block,
    }
    text = request.text
    kernel = Instance("pad", text.source, entry, element, 1, slots, tuple(all_defines.items()), text.functions)
    return Step(
        kernel, buffers, (numel, outs, sizes, leads, strides, *extra_geometry), (-(-numel // block),), None, numel
    )


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
    """Plan the launch that pads.

    Args:
        dims: (result size, operand size, padding before, operand stride) of each dimension.
        filled: whether a buffer holds the fill value; zeros otherwise.
    """
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
    """Plan the launch of the transpose, which sums the gradient over the positions that read an element.

    Args:
        dims: (result size, gradient size, padding before, gradient stride) of each dimension.
    """
    max_sources = tuple(_max_sources(mode, *dim[:3]) for dim in dims)
    return _launch(
        request, "pad_fold", element, slots, (0, 1), dims, {"MODE": mode}, numel, (max_sources, prod(max_sources))
    )


def _max_sources(mode: int, n: int, source_size: int, lead: int) -> int:
    """Return how many of `source_size` padded positions read the same one of `n` elements, at most."""
    if n == source_size and not lead:
        return 1
    if mode == 1:
        return 3
    if mode == 3:
        return -(-source_size // n)
    return source_size if n == 1 else max(1, lead + 1, source_size - lead - n + 1)
