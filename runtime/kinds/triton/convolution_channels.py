"""Plan convolutions with many channels for the Triton target, with channels innermost.

`pack` copies the operands to scratch memory: pixels by channels, and the weight as taps by channels of the sum by
channels of the result. Channels that are summed are padded with zeros to a multiple of a tile's depth, all others to a
multiple of 16. Then every load of the product takes 16 bytes, and the borders of a tap are one mask of pixels instead
of one of pixels by channels. `channels` computes results and input gradients, `channels_weight` weight gradients, a tap
at a time. For the input gradient of a strided convolution, a program computes pixels of one phase (position modulo the
stride), and multiplies only the taps that meet such pixels.

Source: the order of the sum (taps outside, channels inside) is that of implicit GEMM with images in NHWC, as in S.
Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014, section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from ...dtypes import DType
from ...layout import split
from ...precision import input_precision
from ..convolution_builder import Builder, Sizes, Triple, extend_to_triple
from . import Defines, Geometry, index_type, magic_numbers, next_power, strided_extent
from .convolution_sum import add_sum, allocate_parts

if TYPE_CHECKING:
    from .convolution import AddKernel

__all__ = ["Matrix", "Packed", "add_launches", "is_better_than_gathering", "is_worthwhile", "pack"]

_UNIT: Triple = (1, 1, 1)
_MIN_CHANNELS = 16  # channels of the sum and of the result from which padding them wastes little
_MIN_SUMMED_CHANNELS = 4  # of the sum, padded to 16, from which loads of 16 bytes make up for the padding
_PADDING = 16  # elements to whose multiples columns are padded
_MIN_PART_PIXELS = 1024  # pixels that are worth a part of their own in the weight gradient
_MIN_BYTES_FOR_8_WARPS = 128 * 128 * 2  # of a tile of results in the dtype of the operands; 4 warps do for less
_PACK_TILE = 64  # rows and columns of a program of `pack`


@dataclass(frozen=True, slots=True)
class Packed:
    """An operand in scratch memory.

    Attributes:
        buffer: Position of its buffer.
        dtype: Its dtype.
        rows: Number of rows.
        columns: Elements of a row, with padding.
    """

    buffer: int
    dtype: DType
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """One of the matrices that `pack` copies: sizes and strides in elements.

    Attributes:
        rows: Rows of the source.
        all_rows: Rows of the copy, with zeros behind the source's.
        source_row: Stride of the source's rows.
        target_row: Stride of the copy's rows.
        columns: Columns of the source.
        all_columns: Columns of the copy.
        source_column: Stride of the source's columns. The copy's are contiguous.
        line, source_line: Rows of a line, and the stride of lines, if rows are not evenly spaced; else 0.
    """

    rows: int
    all_rows: int
    source_row: int
    target_row: int
    columns: int
    all_columns: int
    source_column: int
    line: int = 0
    source_line: int = 0


def is_worthwhile(builder: Builder) -> bool:
    """Return True if a convolution has the dtype and enough channels for the kernels of this module."""
    s = builder.sizes
    return _has_dtype(builder) and s.ins >= _MIN_CHANNELS and s.outs >= _MIN_CHANNELS


def is_better_than_gathering(builder: Builder) -> bool:
    """Return True if the kernels of this module multiply less padding than those of `convolution` take longer."""
    s = builder.sizes
    depth = {"forward": s.ins, "input": s.outs, "weight": min(s.ins, s.outs)}[builder.kind]
    return _has_dtype(builder) and depth >= _MIN_SUMMED_CHANNELS


def _has_dtype(builder: Builder) -> bool:
    return builder.element.is_floating_point and builder.element.itemsize < 8


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
    """Append the launches of a forward convolution or of an input gradient."""
    is_back = builder.kind == "input"
    s, skipped = (builder.sizes, _UNIT) if is_back else _skip_pixels(builder.sizes)
    source_size, target_size, depth, columns = (
        (s.out, s.size, s.outs, s.ins) if is_back else (s.size, s.out, s.ins, s.outs)
    )
    is_strided = is_back and s.stride != _UNIT
    # In a dimension with a stride, the taps of a phase are every stride-th one only without dilation.
    is_phased = is_strided and all(n == 1 or d == 1 for n, d in zip(s.stride, s.dilation, strict=True))
    phases = prod(s.stride) if is_phased else 1
    phase_size = [-(-n // k) for n, k in zip(target_size, s.stride, strict=True)] if is_phased else target_size
    pixels = s.batch * prod(phase_size)
    bm, bn, bk = _tile(builder, pixels, columns, depth, s.groups * phases)
    images = _pack_images(builder, add, 0, depth, bk, source_size, skipped)
    weight = _pack_weight(builder, add, is_back, bk)
    across = -(-columns // bn)
    programs = -(-pixels // bm) * across * s.groups * phases
    defines = _defines(builder, (images, weight), programs, (bm, bn, bk))
    has_bias = builder.bias is not None
    defines |= {
        "BIAS": int(has_bias), "BACK": int(is_back), "PHASED": int(is_phased),
        "STRIDED": int(is_strided and not is_phased),
    }  # fmt: skip
    geometry: Geometry = (
        pixels, source_size, target_size, magic_numbers(*phase_size), s.groups, images.columns, columns,
        weight.columns, s.taps, s.stride, s.padding, s.dilation, across,
    )  # fmt: skip
    bias = (builder.bias, builder.layouts[builder.bias].dtype) if builder.bias is not None else (
        weight.buffer, weight.dtype
    )  # fmt: skip
    buffers = (images.buffer, weight.buffer, bias[0], builder.target)
    types = (images.dtype, weight.dtype, bias[1], builder.result.dtype)
    work = builder.result.numel * depth * s.tap_count // phases
    add(builder, "channels", buffers, types, geometry, (programs,), work, defines)


def _add_weight_gradient(builder: Builder, add: AddKernel) -> None:
    """Append the launches of a weight gradient: the product, and the sum of its parts."""
    (s, skipped), params = _skip_pixels(builder.sizes), builder.params
    pixels = s.batch * prod(s.out)
    bm, bn, bk = _tile(builder, s.outs, s.ins, pixels, s.groups * s.tap_count * max(1, pixels // _MIN_PART_PIXELS))
    images = _pack_images(builder, add, 0, s.ins, _PADDING, s.size, skipped)
    gradient = _pack_images(builder, add, 1, s.outs, _PADDING, s.out, _UNIT)
    down, across = -(-s.outs // bm), -(-s.ins // bn)
    programs = down * across * s.tap_count * s.groups
    wanted_parts = max(1, params["parts"] * builder.caps.cores // programs)
    run, parts = split(max(pixels, 1), max(1, min(wanted_parts, pixels // _MIN_PART_PIXELS)), bk)
    sum_target, part_dtype = allocate_parts(builder, parts)
    defines = _defines(builder, (images, gradient), programs * parts, (bm, bn, bk))
    geometry: Geometry = (
        pixels, s.size, s.out, magic_numbers(*s.out), s.groups, s.ins, s.outs, images.columns, gradient.columns,
        s.taps, s.stride, s.padding, s.dilation, down, across, run, parts,
    )  # fmt: skip
    buffers, types = (images.buffer, gradient.buffer, sum_target), (images.dtype, gradient.dtype, part_dtype)
    work = builder.result.numel * pixels
    add(builder, "channels_weight", buffers, types, geometry, (programs * parts,), work, defines)
    add_sum(builder, add, sum_target, parts)


def _tile(builder: Builder, rows: int, columns: int, depth: int, matrices: int) -> tuple[int, int, int]:
    """Return rows, columns and depth of a program's tile of one of `matrices` results.

    Where large tiles are too few for the device, they are halved.
    """
    if builder.params["tile"]:
        return builder.params["tile"]
    is_half = builder.layouts[0].dtype.itemsize == 2
    bm = min(128, max(16, next_power(rows)))
    bn = min(128 if is_half else 64, max(16, next_power(columns)))
    if bm == 128 and -(-rows // bm) * -(-columns // bn) * matrices < builder.caps.cores:
        bm = 64
    return bm, bn, min(64 if is_half else 32, max(16, next_power(depth)))


def _defines(builder: Builder, packed: tuple[Packed, Packed], programs: int, tile: tuple[int, int, int]) -> Defines:
    """Return the constants that both products have."""
    first = packed[0]
    extents = [*(p.rows * p.columns for p in packed), builder.result.numel * 2, programs * tile[0] * 2]
    defines: Defines = {
        "INDEX": index_type(extents),
        "D": first.dtype.name if first.dtype.itemsize == 2 else builder.element.name,
        "DEEP": int(builder.layouts[0].ndim == 5), "PRECISION": input_precision(builder.caps.sm),
        "BM": tile[0], "BN": tile[1], "BK": tile[2],
    }  # fmt: skip
    if tile[0] * tile[1] * first.dtype.itemsize >= _MIN_BYTES_FOR_8_WARPS:
        defines["num_warps"] = 8
    return defines


def _skip_pixels(s: Sizes) -> tuple[Sizes, Triple]:
    """Return the sizes of a convolution whose input has no pixels that no tap reads, and its strides in the old input.

    Pixels are skipped in dimensions with a stride, a single tap and no padding.
    """
    skips = [k == 1 and p == 0 for k, p in zip(s.taps, s.padding, strict=True)]
    if not any(skips):
        return s, _UNIT
    sizes, strides, steps = (
        tuple(a if skip else b for skip, a, b in zip(skips, *pair, strict=True))
        for pair in ((s.out, s.size), (_UNIT, s.stride), (s.stride, _UNIT))
    )
    return replace(s, size=extend_to_triple(sizes, 1), stride=extend_to_triple(strides, 1)), extend_to_triple(steps, 1)


def _pack_images(
    builder: Builder, add: AddKernel, operand: int, channels: int, multiple: int, size: Triple, skipped: Triple
) -> Packed:
    """Append the copy of images to (image, pixel, group, channel).

    Args:
        builder: Sizes and operands, and the launches so far.
        add: Appends the launch of a kernel.
        operand: Position of the images.
        channels: Channels of a group.
        multiple: To a multiple of it they are padded.
        size: Spatial size of the copy.
        skipped: Pixels of the images from one pixel of the copy to the next.
    """
    layout, groups = builder.layouts[operand], builder.sizes.groups
    image_step, channel_step, steps = builder.strides(operand)
    plane_step, line_step, pixel_step = (n * k for n, k in zip(steps, skipped, strict=True))
    planes, height, width = size
    columns = -(-channels // multiple) * multiple
    row_step = groups * columns
    outer = [
        (layout.shape[0], image_step, planes * height * width * row_step), (groups, channels * channel_step, columns),
        (planes, plane_step, height * width * row_step), (height, line_step, width * row_step),
    ]  # fmt: skip
    pixels, line, source_line = width, 0, 0
    if (height == 1 or line_step == width * pixel_step) and (planes == 1 or plane_step == height * width * pixel_step):
        pixels, outer[2:] = planes * height * width, [(1, 0, 0), (1, 0, 0)]
    elif pixel_step != 1:
        pixels, line, source_line, outer[3] = height * width, width, line_step, (1, 0, 0)
    matrix = Matrix(pixels, pixels, pixel_step, row_step, channels, columns, channel_step, line, source_line)
    return pack(builder, add, operand, outer, matrix)


def _pack_weight(builder: Builder, add: AddKernel, is_back: bool, multiple: int) -> Packed:
    """Append the copy of the weight to (group, tap, channel of the sum, channel of the result)."""
    s = builder.sizes
    out_step, in_step, tap_steps = builder.strides(1)
    depth, columns, row_step, column_step = (
        (s.outs, s.ins, out_step, in_step) if is_back else (s.ins, s.outs, in_step, out_step)
    )
    all_rows, all_columns = -(-depth // multiple) * multiple, -(-columns // _PADDING) * _PADDING
    tap = all_rows * all_columns
    outer = [(s.groups, s.outs * out_step, s.tap_count * tap)]
    target_step = s.tap_count * tap
    for count, step in zip(s.taps, tap_steps, strict=True):
        target_step //= count
        outer.append((count, step, target_step))
    return pack(
        builder, add, 1, outer, Matrix(depth, all_rows, row_step, all_columns, columns, all_columns, column_step)
    )


def pack(
    builder: Builder, add: AddKernel, operand: int, outer: Sequence[tuple[int, int, int]], matrix: Matrix,
    rows: int = 0,
) -> Packed:  # fmt: skip
    """Append the copy of an operand's matrices.

    Args:
        builder: The launches so far.
        add: Appends a launch.
        operand: The operand's position.
        outer: Number and strides of the matrices along four dimensions.
        matrix: One of them.
        rows: Rows of the target, if there are some between the matrices.
    """
    layout, m = builder.layouts[operand], matrix
    counts, source_steps, target_steps = zip(*outer, strict=True)
    rows = rows or prod(counts) * m.all_rows
    buffer = builder.allocate(rows * m.all_columns, layout.dtype.itemsize)
    down, across = -(-m.all_rows // _PACK_TILE), -(-m.all_columns // _PACK_TILE)
    programs = prod(counts) * down * across
    defines: Defines = {
        "INDEX": index_type([strided_extent(layout.shape, layout.strides), rows * m.all_columns, programs]),
        "UNIT": 0 if m.source_row == 1 else 1 if m.source_column == 1 else 3 if m.source_row < m.source_column else 2,
        "LINES": int(m.line > 0), "BM": _PACK_TILE, "BN": _PACK_TILE,
    }  # fmt: skip
    line = (m.line, *magic_numbers(m.line), m.source_line) if m.line else (0, 0, 0, 0)
    geometry: Geometry = (
        counts, source_steps, target_steps, m.rows, m.all_rows, m.source_row, line, m.target_row, m.columns,
        m.all_columns, m.source_column, down, across,
    )  # fmt: skip
    types = (layout.dtype, layout.dtype)
    add(builder, "pack", (operand, buffer), types, geometry, (programs,), rows * m.all_columns, defines)
    return Packed(buffer, layout.dtype, rows, m.all_columns)
