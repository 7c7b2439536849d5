"""Plan convolutions with few channels per group for the Triton target, such as depthwise ones, without matrix products.

A matrix product needs at least 16 channels of the sum and of the result. With fewer, most of it would be padding, and
memory bounds the time anyway: so the kernels of this module multiply and add on the ordinary units. A lane of a program
computes a tile of a plane (`plane_tiles`). It loads each row of the source once, 16 bytes at a time, and uses an
element for all pixels of its tile and all taps that multiply it.

`direct` computes results and input gradients, `direct_weight` weight gradients. Of a strided convolution's input
gradient the taps that meet a pixel follow from its position in the tile, so nothing is multiplied by inserted zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...layout import split
from ..convolution_builder import Builder
from . import Defines, Geometry, index_type, strided_extent
from .convolution_sum import add_sum, allocate_parts
from .plane_tiles import BLOCK, Axis, Rows, Tile, Work, choose_tile, tile_defines, unit_strides

if TYPE_CHECKING:
    from .convolution import AddKernel

__all__ = ["add_launches", "is_worthwhile"]

_MAX_TAPS = 64  # a lane holds all weights of a plane in registers
_MAX_REACH = 48  # from the first tap to the last: all rows and columns between them are unrolled
_MAX_STRIDE = 8
_MAX_PRODUCTS_PER_ELEMENT = 40  # of those read and written: an H100 multiplies so often while memory moves one
_MAX_CHANNELS = 2  # of the sum or of the result without groups: more read a plane from the cache too often
_PROGRAMS_PER_CORE = 4  # that are resident
_MIN_PART_BLOCKS = 2  # blocks of tiles that are worth a part of their own in the weight gradient


def is_worthwhile(builder: Builder) -> bool:
    """Return True if a convolution of images has so few channels per group that these kernels reach memory's rate."""
    s = builder.sizes
    if not (s.size[0] == s.out[0] == s.taps[0] == 1 and s.padding[0] == 0):
        return False
    reach = max((k - 1) * d + p for k, d, p in zip(s.taps[1:], s.dilation[1:], s.padding[1:], strict=True))
    if s.tap_count > _MAX_TAPS or reach > _MAX_REACH or max(s.stride) > _MAX_STRIDE:
        return False
    depth, columns = (s.outs, s.ins) if builder.kind == "input" else (s.ins, s.outs)
    # Each pixel of the result takes depth * taps products: per element that is read or written, these many.
    if s.tap_count * depth * columns > _MAX_PRODUCTS_PER_ELEMENT * (depth + columns):
        return False
    return s.groups > 1 or min(depth, columns) <= _MAX_CHANNELS


def add_launches(builder: Builder, add: AddKernel) -> None:
    """Append the launches of one convolution to those of `builder`.

    Args:
        builder: Sizes and operands, and the launches so far.
        add: Appends the launch of a kernel; see `convolution`.
    """
    if builder.kind == "weight":
        _add_weight_gradient(builder, add)
    else:
        _add_result(builder, add)


def _add_result(builder: Builder, add: AddKernel) -> None:
    """Append the launch of a forward convolution or of an input gradient."""
    s, is_back = builder.sizes, builder.kind == "input"
    depth, columns = (s.outs, s.ins) if is_back else (s.ins, s.outs)
    work = _work(builder, is_back)
    down, across = work.down, work.across
    tile = choose_tile(work)
    tiles = tile.counts(work)
    lanes = work.planes * tiles[0] * tiles[1]
    first, second, weight_steps = builder.strides(1)
    block = min(BLOCK, builder.caps.block)
    programs = -(-lanes // block)
    (store_unit,) = tile.target_units
    has_bias = builder.bias is not None
    defines = _defines(builder, work, tile, block, programs) | {
        "BIAS": int(has_bias), "BACK": int(is_back), "SINGLE": int(depth == 1), "STORE_UNIT": store_unit,
    }  # fmt: skip
    geometry: Geometry = (
        lanes, tiles, (down.source, across.source), (down.target, across.target // store_unit), s.groups, depth,
        columns, _strides(builder, 0, tile.units[0]), (first, second, *weight_steps[1:]),
    )  # fmt: skip
    bias, bias_dtype = builder.bias_buffer()
    buffers = (0, 1, bias, builder.target)
    types = (builder.layouts[0].dtype, builder.layouts[1].dtype, bias_dtype, builder.result.dtype)
    add(builder, "direct", buffers, types, geometry, (programs,), builder.result.numel * depth * s.tap_count, defines)


def _add_weight_gradient(builder: Builder, add: AddKernel) -> None:
    """Append the launches of a weight gradient: sums of the products of tiles, and the sum of its parts."""
    s, caps = builder.sizes, builder.caps
    work = _work(builder, False)
    down, across = work.down, work.across
    tile = choose_tile(work)
    tiles = tile.counts(work)
    pairs, count = s.groups * s.outs * s.ins, s.batch * tiles[0] * tiles[1]
    block = min(BLOCK, caps.block)
    target_parts = -(-builder.params["parts"] * _PROGRAMS_PER_CORE * caps.cores // pairs)
    run, parts = split(count, max(1, min(target_parts, count // (_MIN_PART_BLOCKS * block))), block)
    n = builder.result.numel
    target, part_dtype = allocate_parts(builder, parts)
    (grad_unit,) = tile.target_units
    defines = _defines(builder, work, tile, block, pairs * parts) | {"GRAD_UNIT": grad_unit}
    geometry: Geometry = (
        count, tiles, (down.source, across.source), (down.target, across.target), s.groups, s.ins, s.outs,
        _strides(builder, 0, tile.units[0]), _strides(builder, 1, grad_unit), run, parts,
    )  # fmt: skip
    types = (builder.layouts[0].dtype, builder.layouts[1].dtype, part_dtype)
    pixels = s.batch * down.target * across.target
    add(builder, "direct_weight", (0, 1, target), types, geometry, (pairs * parts,), n * pixels, defines)
    add_sum(builder, add, target, parts)


def _work(builder: Builder, is_back: bool) -> Work:
    """Return the planes, windows and rows of a convolution; the output's gradient is a weight gradient's target."""
    s, is_weight = builder.sizes, builder.kind == "weight"
    source, target = (s.out, s.size) if is_back else (s.size, s.out)
    down, across = (
        Axis(source[d], target[d], s.taps[d], s.stride[d], s.padding[d], s.dilation[d], is_back) for d in (1, 2)
    )
    first, second = builder.layouts[:2]
    rank = first.ndim - 2
    planes = s.batch * s.groups * (s.ins * s.outs if is_weight else s.ins if is_back else s.outs)
    return Work(
        down, across, planes, builder.caps.cores, (Rows.of(first, rank),),
        (Rows.of(second, rank) if is_weight else Rows.of_result(builder.result.dtype.itemsize, target[2]),),
        # A lane loads the weights, or sums up their gradients, in any case. Tiles that divide the output's planes hold
        # no zeros that would be multiplied by infinite elements.
        tap_slots=1, fixed_slots=4 * s.tap_count, registers=max(1, builder.element.itemsize // 4),
        must_divide=is_weight,
    )  # fmt: skip


def _strides(builder: Builder, operand: int, unit: int) -> tuple[int, int, int, int]:
    """Return an operand's strides along image, channel and height, in units of `unit` elements, and along width."""
    first, second, (_, row_step, column_step) = builder.strides(operand)
    images, channels, *sizes = builder.layouts[operand].shape
    height = sizes[-2] if len(sizes) > 1 else 1
    return (*unit_strides((images, channels, height), (first, second, row_step), unit), column_step)


def _defines(builder: Builder, work: Work, tile: Tile, block: int, programs: int) -> Defines:
    """Return the constants that both kernels have."""
    extents = [strided_extent(m.shape, m.strides) for m in builder.layouts[:2]]
    offsets = [*(2 * n for n in extents), builder.result.numel * 2, programs * block * 2]
    return tile_defines(work, tile, block) | {"INDEX": index_type(offsets), "UNIT": tile.units[0]}
