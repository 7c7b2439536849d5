"""Plan weight gradients of convolutions with kernels of one pixel for the Triton target.

Such a gradient is the product of the output's gradient and the input, summed over pixels, which are contiguous in both.
So tiles are loaded from the operands as they are. The kernels of `convolution_channels` would need copies with channels
innermost, which move more bytes than the product itself.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...layout import split
from ...precision import input_precision
from ..convolution_builder import Builder
from . import Defines, Geometry, index_type, next_power, strided_extent
from .convolution_sum import add_sum, allocate_parts
from .plane_tiles import power_of_two

if TYPE_CHECKING:
    from .convolution import AddKernel

__all__ = ["add_launches", "is_worthwhile"]

_LOAD_BYTES = 16
_MIN_LOAD_BYTES = 8  # below it, copies pay
_MIN_CHANNELS = 16
_MAX_TILE = 128 * 128  # sums of a program, in registers
_MIN_PART_PIXELS = 512  # pixels that are worth a part of their own


def is_worthwhile(builder: Builder) -> bool:
    """Return True if a convolution is such a weight gradient, with many channels and aligned operands."""
    s = builder.sizes
    if builder.kind != "weight" or not s.is_matrix_product or min(s.ins, s.outs) < _MIN_CHANNELS:
        return False
    is_narrow_float = builder.element.is_floating_point and builder.element.itemsize < 8
    return is_narrow_float and _pixels_per_load(builder) * builder.layouts[0].dtype.itemsize >= _MIN_LOAD_BYTES


def add_launches(builder: Builder, add: AddKernel) -> None:
    """Append the launches of one weight gradient to those of `builder`: the product, and the sum of its parts.

    Args:
        builder: Sizes and operands, and the launches so far.
        add: Appends the launch of a kernel; see `convolution`.
    """
    s, caps, dtype = builder.sizes, builder.caps, builder.layouts[0].dtype
    area, is_half = prod(s.out), dtype.itemsize == 2
    bm, bn = (min(128 if is_half else 64, max(16, next_power(n))) for n in (s.outs, s.ins))
    if is_half and bm < 128 and s.ins > 128:
        bn = min(256, _MAX_TILE // bm)
    elif is_half and bn < 128 and s.outs > 128:
        bm = min(256, _MAX_TILE // bn)
    bk = min(64 if is_half else 32, max(16, next_power(area)))
    blocks, down, across = -(-area // bk), -(-s.outs // bm), -(-s.ins // bn)
    steps, tiles = s.batch * blocks, down * across * s.groups
    target_parts = max(1, builder.params["parts"] * caps.cores // tiles)
    run, parts = split(steps, max(1, min(target_parts, s.batch * area // _MIN_PART_PIXELS)), 1)
    target, part_dtype = allocate_parts(builder, parts)
    unit = _pixels_per_load(builder)
    extents = [strided_extent(m.shape, m.strides) * 2 for m in builder.layouts[:2]]
    defines: Defines = {
        "INDEX": index_type([*extents, builder.result.numel * (parts + 1), tiles * parts, steps * bk]),
        "D": dtype.name if is_half else builder.element.name, "UNIT": unit, "PRECISION": input_precision(caps.sm),
        "BM": bm, "BN": bn, "BK": bk,
    }  # fmt: skip
    if bm * bn >= _MAX_TILE:
        defines["num_warps"] = 8
    geometry: Geometry = (
        area // unit, s.groups, s.ins, s.outs, *(_steps(builder, operand, unit) for operand in (0, 1)), blocks, down,
        across, steps, run, parts,
    )  # fmt: skip
    types = (dtype, builder.layouts[1].dtype, part_dtype)
    work = builder.result.numel * s.batch * area
    add(builder, "pixels_weight", (0, 1, target), types, geometry, (tiles * parts,), work, defines)
    add_sum(builder, add, target, parts)


def _pixels_per_load(builder: Builder) -> int:
    """Return how many pixels of both operands can be loaded at once; 0 if they are not contiguous."""
    depth, height, width = builder.sizes.out
    strides: list[int] = []
    for operand in (0, 1):
        first, second, (z_step, y_step, x_step) = builder.strides(operand)
        is_contiguous = (
            (width == 1 or x_step == 1)
            and (height == 1 or y_step == width)
            and (depth == 1 or z_step == height * width)
        )
        if not is_contiguous:
            return 0
        images, channels = builder.layouts[operand].shape[:2]
        strides += [step for n, step in ((images, first), (channels, second)) if n > 1]
    itemsize = max(m.dtype.itemsize for m in builder.layouts[:2])
    return power_of_two(_LOAD_BYTES // itemsize, depth * height * width, *strides)


def _steps(builder: Builder, operand: int, unit: int) -> tuple[int, int]:
    """Return an operand's strides along image and channel, in units of `unit` elements."""
    first, second, _ = builder.strides(operand)
    images, channels = builder.layouts[operand].shape[:2]
    return (first if images > 1 else 0) // unit, (second if channels > 1 else 0) // unit
