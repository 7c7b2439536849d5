"""Plan convolutions with few input channels for the Triton target, such as a network's first, as matrix products.

`convolution_channels` sums over channels at one tap after the other, so with 3 channels it would multiply padding most
of the time. Here the sum goes over the elements of a window in an order in which they are contiguous in memory for as
long as possible (a *run*), and runs are loaded 8 or 16 bytes at a time. There are two orders:

- Images are packed with channels innermost, padded to a power of two, and with zeros around them. A run is a row of a
  window with all channels: 28 elements of a 7x7 kernel with 3 channels, padded to 4, instead of 7 taps of 16.
- Windows without padding whose rows begin at multiples of 4 bytes at least, such as those of patches, are read from the
  images as they are. A run is a row of one channel.

In both no window reaches outside, so there are no borders to check.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ...dtypes import DType
from ...layout import split
from ...precision import input_precision
from ..convolution_builder import Builder, Triple
from . import Defines, Geometry, index_type, magic_numbers, next_power, strided_extent
from .convolution_channels import Matrix, Packed, pack
from .convolution_sum import add_sum, allocate_parts
from .plane_tiles import BLOCK, Rows, power_of_two

if TYPE_CHECKING:
    from .convolution import AddKernel

__all__ = ["add_launches", "is_worthwhile"]

_MIN_OUTS = 8  # channels of the result
_MAX_INS = 16  # channels of the images; from 16 on `convolution_channels` multiplies no padding
_MAX_RUN = 256  # elements of a run, with padding
_PADDING = 16  # elements to whose multiples a packed weight's columns are padded
_LOAD_BYTES = 16  # of the widest load of a thread
_WEIGHT_UNIT = 8  # a row of the weight is a multiple of so many elements
_MIN_PART_PIXELS = 1024  # pixels that are worth a part of their own in the weight gradient


@dataclass(frozen=True, slots=True)
class _Images:
    """Images in the order in which windows are read; strides are in units of `unit` elements.

    Attributes:
        buffer: Position of their buffer.
        dtype: Their dtype.
        extent: Elements of the buffer.
        channels: Channels of an element of a run: 1, or those of packed images.
        unit: Elements that can be loaded at once.
        origin, image_step, pixel_steps: Position of the first window, strides of images and of windows.
        run_counts, run_steps: Number of runs of a window along three dimensions, and their strides.
        run_length: Elements of a run.
    """

    buffer: int
    dtype: DType
    extent: int
    channels: int
    unit: int
    origin: int
    image_step: int
    pixel_steps: Triple
    run_counts: Triple
    run_steps: Triple
    run_length: int

    @property
    def run(self) -> int:
        """Elements of a run with padding: the next power of two."""
        return next_power(self.run_length)

    @property
    def depth(self) -> int:
        """Elements of a window, with the padding of its runs."""
        return prod(self.run_counts) * self.run


def is_worthwhile(builder: Builder) -> bool:
    """Return True if the kernels of this module can compute a convolution, and its channels are few enough."""
    s = builder.sizes
    if builder.kind == "input" or not builder.element.is_floating_point or builder.element.itemsize == 8:
        return False
    run = next_power(s.taps[2] * max(4, next_power(s.ins)))
    return s.groups == 1 and s.ins < _MAX_INS and s.outs >= _MIN_OUTS and s.dilation[2] == 1 and run <= _MAX_RUN


def add_launches(builder: Builder, add: AddKernel) -> None:
    """Append the launches of one convolution to those of `builder`.

    Args:
        builder: Sizes and operands, and the launches so far.
        add: Appends the launch of a kernel; see `convolution`.
    """
    images = _read_in_place(builder) or _pack_pixels(builder, add)
    if builder.kind == "weight":
        _add_weight_gradient(builder, add, images)
    else:
        _add_result(builder, add, images)


def _add_result(builder: Builder, add: AddKernel, images: _Images) -> None:
    """Append the launches of a forward convolution."""
    s = builder.sizes
    pixels = s.batch * prod(s.out)
    is_half = images.dtype.itemsize == 2
    bn = min(128, max(16, next_power(s.outs)))
    # Programs read all weights, and these from the cache: larger tiles for fewer programs.
    bm = min(128 if bn > 64 or not is_half else 256, max(16, next_power(pixels)))
    bk = min(64 if is_half else 32, max(16, next_power(images.depth)))
    weight, is_flat = _weight(builder, add, images)
    across = -(-s.outs // bn)
    programs = -(-pixels // bm) * across
    defines = _defines(builder, images, (bm, bn, bk), [weight.rows * weight.columns, programs * bm * 2])
    has_bias = builder.bias is not None
    defines |= {"BIAS": int(has_bias), "DEEP": int(builder.layouts[0].ndim == 5), "FLAT": int(is_flat)}
    if bm * bn * images.dtype.itemsize >= 128 * 128 * 2:
        defines["num_warps"] = 8
    geometry: Geometry = (
        pixels, s.out, magic_numbers(*s.out), s.outs, images.depth, images.origin, images.image_step,
        images.pixel_steps, images.run_steps, weight.columns // _WEIGHT_UNIT, across,
    )  # fmt: skip
    bias, bias_dtype = builder.bias_buffer()
    buffers = (images.buffer, weight.buffer, bias, builder.target)
    types = (images.dtype, weight.dtype, bias_dtype, builder.result.dtype)
    add(builder, "runs", buffers, types, geometry, (programs,), builder.result.numel * images.depth, defines)


def _add_weight_gradient(builder: Builder, add: AddKernel, images: _Images) -> None:
    """Append the launches of a weight gradient: the product, and the sum of its parts."""
    s, caps = builder.sizes, builder.caps
    area = prod(s.out)
    is_half = images.dtype.itemsize == 2
    bm = min(128 if s.outs > 64 else 64, max(16, next_power(s.outs)))
    bn = min(256 if is_half and bm <= 64 else 128, max(16, next_power(images.depth)))
    bk = min(32, max(16, next_power(area)))
    blocks, down, across = -(-area // bk), -(-s.outs // bm), -(-images.depth // bn)
    steps = s.batch * blocks
    target_parts = max(1, builder.params["parts"] * caps.cores // (down * across))
    run, parts = split(steps, max(1, min(target_parts, steps * bk // _MIN_PART_PIXELS)), 1)
    n = builder.result.numel
    target, part_dtype = allocate_parts(builder, parts)
    unit, grad_steps = _gradient_steps(builder, area)
    extent = strided_extent(builder.layouts[1].shape, builder.layouts[1].strides)
    defines = _defines(builder, images, (bm, bn, bk), [extent, parts * n * 2, s.batch * (area + bk) * 2])
    defines |= {"GRAD_UNIT": unit, "CHANNELS": images.channels}
    if bm * bn >= 128 * 128:
        defines["num_warps"] = 8
    geometry: Geometry = (
        area // max(1, unit), s.out, magic_numbers(*s.out), s.ins, s.outs, images.origin, images.image_step,
        images.pixel_steps, images.run_steps, grad_steps, blocks, down, across, steps, run, parts,
    )  # fmt: skip
    types = (images.dtype, builder.layouts[1].dtype, part_dtype)
    grid = (down * across * parts,)
    add(builder, "runs_weight", (images.buffer, 1, target), types, geometry, grid, n * s.batch * area, defines)
    add_sum(builder, add, target, parts)


def _defines(builder: Builder, images: _Images, tile: tuple[int, int, int], extents: list[int]) -> Defines:
    """Return the constants that the kernels of the result and of the weight gradient share. tile: BM, BN and BK."""
    return {
        "INDEX": index_type([images.extent * 2, builder.result.numel * 2, images.depth + 2 * tile[1], *extents]),
        "D": images.dtype.name if images.dtype.itemsize == 2 else builder.element.name, "UNIT": images.unit,
        **dict(zip(("RUNS_Z", "RUNS_Y", "RUNS_X"), images.run_counts, strict=True)), "RUN": images.run,
        "RUN_LENGTH": images.run_length, "PRECISION": input_precision(builder.caps.sm),
        "BM": tile[0], "BN": tile[1], "BK": tile[2],
    }  # fmt: skip


def _read_in_place(builder: Builder) -> _Images | None:
    """Return the images in their own layout, if their windows' rows are aligned; otherwise None."""
    s, layout = builder.sizes, builder.layouts[0]
    image_step, channel_step, steps = builder.strides(0)
    if s.padding != (0, 0, 0) or steps[2] != 1 or s.taps[2] < 4:
        return None
    pixel_steps = (s.stride[0] * steps[0], s.stride[1] * steps[1], s.stride[2])
    run_steps = (channel_step, s.dilation[0] * steps[0], s.dilation[1] * steps[1])
    unit = power_of_two(_LOAD_BYTES // layout.dtype.itemsize, image_step, *pixel_steps, *run_steps)
    if unit * layout.dtype.itemsize < 4:
        return None
    return _Images(
        0, layout.dtype, strided_extent(layout.shape, layout.strides), 1, unit, 0, image_step // unit,
        _divide(pixel_steps, unit), (s.ins, s.taps[0], s.taps[1]), _divide(run_steps, unit), s.taps[2],
    )  # fmt: skip


def _divide(steps: Triple, unit: int) -> Triple:
    return steps[0] // unit, steps[1] // unit, steps[2] // unit


def _pack_pixels(builder: Builder, add: AddKernel) -> _Images:
    """Append the launch that copies the images with channels innermost and zeros around them; return the copy."""
    s, layout = builder.sizes, builder.layouts[0]
    dtype, itemsize = layout.dtype, layout.dtype.itemsize
    channels = next_power(s.ins)
    while channels * s.stride[2] * itemsize < 4:
        channels *= 2
    columns = max(1, min(8, 32 // channels))  # pixels of a lane of the copy, in registers
    run_length = s.taps[2] * channels
    rows = Rows.of(layout, layout.ndim - 2)
    source_unit = rows.unit(columns)
    lead = -s.padding[2] % columns  # so that the pixels of a lane begin at a multiple of their number in the images
    depth, height = (
        (n - 1) * k + (t - 1) * d + 1
        for n, k, t, d in zip(s.out[:2], s.stride[:2], s.taps[:2], s.dilation[:2], strict=True)
    )
    width = lead + (s.out[2] - 1) * s.stride[2] + next_power(run_length) // channels
    tiles = (depth, height, -(-width // columns))
    line = tiles[2] * columns * channels
    count = s.batch * depth * height * line
    buffer = builder.allocate(count, itemsize)
    lanes = s.batch * prod(tiles)
    block = min(BLOCK, builder.caps.block)
    image_step, channel_step, steps = builder.strides(0)
    sizes = (*layout.shape[:2], *s.size)
    strides = [
        (k if n > 1 else 0) // source_unit
        for n, k in zip(sizes[:4], (image_step, channel_step, *steps[:2]), strict=True)
    ]
    shifts = (s.padding[0], s.padding[1], (s.padding[2] + lead) // source_unit)
    defines: Defines = {
        "INDEX": index_type([strided_extent(layout.shape, layout.strides) * 2, count * 2, lanes + block]),
        "E": dtype.name, "INS": s.ins, "CHANNELS": channels, "COLUMNS": columns, "UNIT": source_unit,
        "STORE_UNIT": min(_LOAD_BYTES // itemsize, columns * channels), "BLOCK": block,
    }  # fmt: skip
    geometry: Geometry = (lanes, tiles, s.size, shifts, (*strides, steps[2]))
    grid = (-(-lanes // block),)
    add(builder, "pack_pixels", (0, buffer), (dtype, dtype), geometry, grid, count, defines)
    pixel_steps = (s.stride[0] * height * line, s.stride[1] * line, s.stride[2] * channels)
    run_steps = (0, s.dilation[0] * height * line, s.dilation[1] * line)
    origin = lead * channels
    unit = power_of_two(_LOAD_BYTES // itemsize, origin, *pixel_steps, *run_steps)
    return _Images(
        buffer, dtype, count, channels, unit, origin // unit, depth * height * line // unit,
        _divide(pixel_steps, unit), (1, s.taps[0], s.taps[1]), _divide(run_steps, unit), run_length,
    )  # fmt: skip


def _weight(builder: Builder, add: AddKernel, images: _Images) -> tuple[Packed, bool]:
    """Return the weight in the order of the runs, and whether that is its own order.

    If it is not, append the launch that copies it to a matrix of (element of a window, channel of the result).
    """
    s, layout = builder.sizes, builder.layouts[1]
    window = s.ins * s.tap_count
    out_step, in_step, tap_steps = builder.strides(1)
    is_contiguous = layout.strides == tuple(prod(layout.shape[d + 1 :]) for d in range(layout.ndim))
    if images.channels == 1 and images.run == s.taps[2] and is_contiguous and window % _WEIGHT_UNIT == 0:
        return Packed(1, layout.dtype, s.outs, window), True
    columns = -(-s.outs // _PADDING) * _PADDING
    z_count, y_count, x_count = s.taps
    z_step, y_step, x_step = tap_steps
    run = images.run * columns
    if images.channels == 1:
        outer = [(s.ins, in_step, z_count * y_count * run), (z_count, z_step, y_count * run), (y_count, y_step, run),
                 (1, 0, 0)]  # fmt: skip
        matrix = Matrix(x_count, images.run, x_step, columns, s.outs, columns, out_step)
    else:
        outer = [(1, 0, 0), (z_count, z_step, y_count * run), (y_count, y_step, run),
                 (x_count, x_step, images.channels * columns)]  # fmt: skip
        matrix = Matrix(s.ins, images.channels, in_step, columns, s.outs, columns, out_step)
    # The last run of a window may be shorter than in the product, which reads no row behind it.
    return pack(builder, add, 1, outer, matrix, images.depth), False


def _gradient_steps(builder: Builder, area: int) -> tuple[int, tuple[int, ...]]:
    """Return how many contiguous pixels of the output's gradient can be loaded at once, and its strides.

    The number is 0 if pixels are not contiguous. Otherwise the strides along image and channel are in units of it.
    """
    first, second, (z_step, y_step, x_step) = builder.strides(1)
    _, height, width = builder.sizes.out
    planes = builder.sizes.out[0]
    is_contiguous = (
        (x_step == 1 or width == 1) and (y_step == width or height == 1) and (z_step == height * width or planes == 1)
    )
    if not is_contiguous:
        return 0, (first, second, z_step, y_step, x_step)
    images, channels = builder.layouts[1].shape[:2]
    first, second = first if images > 1 else 0, second if channels > 1 else 0
    unit = power_of_two(_LOAD_BYTES // builder.layouts[1].dtype.itemsize, first, second, area)
    return unit, (first // unit, second // unit, 0, 0, 0)
