"""Plan convolutions for the Triton target, as implicit matrix products.

Most convolutions are planned by `convolution_channels` (many channels), `convolution_direct` (few channels per group),
`convolution_runs` (few input channels) and `convolution_pixels` (weight gradients of kernels of one pixel). Here are
kernels for all others, among them those of float64 and integers with several channels: they gather each element by
itself. `forward` and `input` compute pixels by channels, and sum over channels and taps. `weight` computes channels by
channels and taps, and sums over pixels. If it has too few tiles for the device, it works on parts of the pixels, which
`sum` adds up.
"""

from __future__ import annotations

from math import prod
from typing import Protocol

from ...backends.protocol import Instance, Slot, Step
from ...dtypes import DType
from ...layout import split
from ...precision import input_precision
from ..convolution_builder import Builder
from . import (
    Defines,
    Geometry,
    convolution_channels,
    convolution_direct,
    convolution_pixels,
    convolution_runs,
    index_type,
    next_power,
    strided_extent,
)
from .convolution_sum import add_sum, allocate_parts

__all__ = ["AddKernel", "launch"]

_MIN_SIDE = 16  # smallest side of a tensor core's tile
_MIN_PART_PIXELS = 1024  # pixels that are worth a part of their own in the weight gradient


def launch(builder: Builder) -> None:
    """Add the launches of one convolution to `builder`."""
    for module in (convolution_pixels, convolution_channels, convolution_direct, convolution_runs):
        if module.is_worthwhile(builder):
            return module.add_launches(builder, _add_kernel)
    if convolution_channels.is_better_than_gathering(builder):
        return convolution_channels.add_launches(builder, _add_kernel)
    kind, s, layouts, caps = builder.kind, builder.sizes, builder.layouts, builder.caps
    pixels = s.batch * prod(s.size if kind == "input" else s.out)
    rows, columns, depth = {
        "forward": (pixels, s.outs, s.ins * s.tap_count),
        "input": (pixels, s.ins, s.outs * s.tap_count),
        "weight": (s.outs, s.ins * s.tap_count, pixels),
    }[kind]
    is_double = builder.element.name == "float64"
    params = builder.params
    tile = params["tile"] or _tile(rows, columns, depth, max_side=_MIN_SIDE if is_double else 64)
    if not builder.element.is_floating_point:
        tile = (tile[0], tile[1], 1)
    tiles = (-(-rows // tile[0]), -(-columns // tile[1]))
    programs = tiles[0] * tiles[1] * s.groups  # all along x: the other sides of a grid have at most 65535
    extents = [strided_extent(m.shape, m.strides) for m in layouts]
    defines: Defines = {
        "INDEX": index_type([*extents, builder.result.numel * 2, max(extents) + depth * 2, programs * 2]),
        "D": _operand_dtype(layouts[0].dtype, layouts[1].dtype, builder.element), "PRECISION": input_precision(caps.sm),
        "BM": tile[0], "BN": tile[1], "BK": tile[2],
    }  # fmt: skip
    if params["warps"] != 4:  # Triton's own default
        defines["num_warps"] = params["warps"]
    strides = [(first, second, *space) for first, second, space in map(builder.strides, (0, 1))]
    geometry: Geometry = (
        pixels, s.size, s.out, s.groups, s.ins, s.outs, s.taps, s.stride, s.padding, s.dilation, *strides, *tiles
    )  # fmt: skip
    work = builder.result.numel * max(depth, 1)
    dtypes = (*(m.dtype for m in layouts), builder.result.dtype)
    if kind == "forward":
        bias = int(builder.bias is not None)
        buffers = (0, 1, 2, builder.target) if bias else (0, 1, 1, builder.target)
        buffer_dtypes = tuple(dtypes[b] for b in buffers)
        _add_kernel(builder, kind, buffers, buffer_dtypes, geometry, (programs,), work, {**defines, "BIAS": bias})
    elif kind == "input":
        _add_kernel(builder, kind, (0, 1, 2), dtypes, geometry, (programs,), work, defines)
    else:
        target_parts = max(1, params["parts"] * caps.cores // programs)
        run, parts = split(max(pixels, 1), max(1, min(target_parts, pixels // _MIN_PART_PIXELS)), tile[2])
        target, part_dtype = allocate_parts(builder, parts)
        grid = (programs * parts,)
        _add_kernel(
            builder, kind, (0, 1, target), (*dtypes[:2], part_dtype), (*geometry, run, parts), grid, work, defines
        )
        add_sum(builder, _add_kernel, target, parts)


def _tile(rows: int, columns: int, depth: int, max_side: int) -> tuple[int, int, int]:
    """Return rows, columns and depth of a program's tile: powers of two, no larger than the problem needs."""
    sides = [max(_MIN_SIDE, min(max_side, next_power(n))) for n in (rows, columns)]
    return sides[0], sides[1], max(_MIN_SIDE, min(32, max_side, next_power(depth)))


def _operand_dtype(a: DType, b: DType, element: DType) -> str:
    """Return the dtype in which two operands are multiplied: their own half type, else the compute type."""
    return a.name if a is b and a.itemsize == 2 else element.name


class AddKernel(Protocol):
    """Appends the launch of one of the kernels of templates/triton/convolution.py.j2."""

    def __call__(
        self, builder: Builder, entry: str, buffers: tuple[int, ...], dtypes: tuple[DType, ...], geometry: Geometry,
        grid: tuple[int, ...], work: int, defines: Defines,
    ) -> None: ...  # fmt: skip


def _add_kernel(
    builder: Builder,
    entry: str,
    buffers: tuple[int, ...],
    dtypes: tuple[DType, ...],
    geometry: Geometry,
    grid: tuple[int, ...],
    work: int,
    defines: Defines,
) -> None:
    """Append the launch of the kernel `convolution_{entry}` to `builder`; see `AddKernel`."""
    text = builder.request.text
    slots = tuple(Slot(d.name) for d in dtypes)
    # The name is that of the kind, not of the op: the three ops share kernels.
    instance = Instance(
        "convolution", text.source, f"convolution_{entry}", builder.element.compute, 1, slots, tuple(defines.items())
    )
    builder.steps.append(Step(instance, buffers, geometry, grid, None, work))
