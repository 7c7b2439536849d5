"""Convolutions as matrix products: pixels by channels, over the positions of the kernel (`forward`, `input`), and
channels by positions, over the pixels (`weight`), whose parts `sum` adds up where there are few tiles."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...backends.protocol import Instance, Slot, Step
from ...dtypes import DType
from ...layout import split
from ...precision import input_precision
from . import Defines, Geometry, index_type, next_power, strided_extent

if TYPE_CHECKING:
    from ..convolution import Builder

__all__ = ["launch"]

_LEAST = 16  # the smallest side of a tensor core's tile
_PIXELS = 1024  # that are worth a part of their own in a weight's gradient


def launch(builder: Builder) -> None:
    """Add the launches of one convolution to `builder`."""
    kind, s, layouts, able = builder.kind, builder.sizes, builder.layouts, builder.able
    pixels = s.batch * prod(s.size if kind == "input" else s.out)
    down, across, deep = {
        "forward": (pixels, s.outs, s.ins * s.count),
        "input": (pixels, s.ins, s.outs * s.count),
        "weight": (s.outs, s.ins * s.count, pixels),
    }[kind]
    precise = builder.element.name == "float64"
    chosen = builder.chosen
    tile = chosen["tile"] or _tile(down, across, deep, most=_LEAST if precise else 64)
    if not builder.element.is_floating_point:
        tile = (tile[0], tile[1], 1)
    tiles = (-(-down // tile[0]), -(-across // tile[1]))
    programs = tiles[0] * tiles[1] * s.groups  # all along x: the grid's other sides end at 65535
    extents = [strided_extent(m.shape, m.strides) for m in layouts]
    defines: Defines = {
        "INDEX": index_type([*extents, builder.result.numel * 2, max(extents) + deep * 2, programs * 2]),
        "D": _multiplied(layouts[0].dtype, layouts[1].dtype, builder.element), "PRECISION": input_precision(able.sm),
        "BM": tile[0], "BN": tile[1], "BK": tile[2],
    }  # fmt: skip
    if chosen["warps"] != 4:  # Triton's own default
        defines["num_warps"] = chosen["warps"]
    strides = [(first, second, *space) for first, second, space in map(builder.strides, (0, 1))]
    geometry: Geometry = (
        pixels, s.size, s.out, s.groups, s.ins, s.outs, s.taps, s.stride, s.padding, s.dilation, *strides, *tiles
    )  # fmt: skip
    work = builder.result.numel * max(deep, 1)
    dtypes = (*(m.dtype for m in layouts), builder.result.dtype)
    if kind == "forward":
        bias = int(builder.bias is not None)
        buffers = (0, 1, 2, builder.target) if bias else (0, 1, 1, builder.target)
        used = tuple(dtypes[b] for b in buffers)
        _add(builder, kind, buffers, used, geometry, (programs,), work, {**defines, "BIAS": bias})
    elif kind == "input":
        _add(builder, kind, (0, 1, 2), dtypes, geometry, (programs,), work, defines)
    else:
        wanted = max(1, chosen["parts"] * able.cores // programs)
        run, parts = split(max(pixels, 1), max(1, min(wanted, pixels // _PIXELS)), tile[2])
        target, kept = (2, builder.result.dtype) if parts == 1 else (
            builder.allocate(parts * builder.result.numel), builder.element
        )  # fmt: skip
        grid = (programs * parts,)
        _add(builder, kind, (0, 1, target), (*dtypes[:2], kept), (*geometry, run, parts), grid, work, defines)
        if parts > 1:
            n, block = builder.result.numel, min(able.block, 1024)
            more: Defines = {"INDEX": defines["INDEX"], "BLOCK": block}
            types = (kept, builder.result.dtype)
            _add(builder, "sum", (target, 2), types, (n, parts), (-(-n // block),), n * parts, more)


def _tile(down: int, across: int, deep: int, most: int) -> tuple[int, int, int]:
    """Rows, columns and depth of a program's tile: powers of two, no larger than what there is needs."""
    sides = [max(_LEAST, min(most, next_power(n))) for n in (down, across)]
    return sides[0], sides[1], max(_LEAST, min(32, most, next_power(deep)))


def _multiplied(a: DType, b: DType, element: DType) -> str:
    """The dtype in which two operands are multiplied: their own half type, else the compute type."""
    return a.name if a is b and a.itemsize == 2 else element.name


def _add(
    builder: Builder,
    entry: str,
    buffers: tuple[int, ...],
    dtypes: tuple[DType, ...],
    geometry: Geometry,
    grid: tuple[int, ...],
    work: int,
    defines: Defines,
) -> None:
    text = builder.request.record.texts[builder.request.device.driver.target]
    slots = tuple(Slot(d.name) for d in dtypes)
    # Named for the kind, not the op: the three ops share kernels.
    made = Instance(
        "convolution", text.source, f"convolution_{entry}", builder.element.compute, 1, slots, tuple(defines.items())
    )
    builder.steps.append(Step(made, buffers, geometry, grid, None, work))
