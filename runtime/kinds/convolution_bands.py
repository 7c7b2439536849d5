"""Plan CPU convolutions of one input channel: their kernels pad the image themselves, in bands of rows.

A band is a number of rows that stay in a first-level cache. `band` computes the forward pass or the input gradient,
`single` the weight gradient.
"""

from __future__ import annotations

from ..layout import split
from . import convolution_tiles as register_tiles
from .convolution_builder import Builder
from .convolution_planes import IS_ROW_AXIS, image_axis, phase_axes

__all__ = ["add_band"]

_MAX_UNROLLED_TAPS = 49  # taps of a kernel that are unrolled
_MAX_BAND_TAPS = 25  # taps that are unrolled for several channels
_MIN_BAND_ROWS = 8  # rows that are worth a work-item
_MAX_PLANES = 8  # planes that a work-item copies before it reads the first one
_MIN_LANES = 4  # lanes of the shortest vectors; rows shorter than half a vector get shorter vectors
_CACHED_SUMS = 224  # accumulator vectors, of all output channels of a work-item, that stay in a first-level cache


def add_band(builder: Builder) -> bool:
    """Add the launches of a convolution of single channels if its rows fit a cache; return whether they were added."""
    s, lanes, kind = builder.sizes, builder.lanes, builder.kind
    is_planar = s.size[0] == s.out[0] == s.taps[0] == 1 and s.padding[0] == 0
    max_sums = register_tiles.MAX_SUMS[builder.caps.registers]
    fits_cache = {
        "forward": s.tap_count <= (_MAX_UNROLLED_TAPS if s.outs <= 2 else _MAX_BAND_TAPS * (lanes <= s.out[2])),
        "input": s.outs == 1 and s.tap_count <= _MAX_UNROLLED_TAPS,
        "weight": lanes > 1 and s.tap_count <= max_sums and builder.strides(1)[2][2] == 1,
    }
    if s.ins != 1 or not is_planar or not fits_cache[kind]:
        return False
    zero_step, image_size, out_size = (1, 1), s.size, s.out
    axes = phase_axes(builder)
    if kind == "input":  # the gradient with zeros in between, and the kernel reversed
        zero_step, image_size, out_size = s.stride[1:], s.out, s.size
        pad = [d * (k - 1) - p for d, k, p in zip(s.dilation, s.taps, s.padding, strict=True)]
        dilated_size = [(n - 1) * q + 1 for n, q in zip(s.out, s.stride, strict=True)]
        axis_sizes = zip(dilated_size, s.size, s.taps, pad, s.dilation, IS_ROW_AXIS, strict=True)
        axes = tuple(image_axis(n, w, k, 1, p, d, row) for n, w, k, p, d, row in axis_sizes)
    while lanes > _MIN_LANES and 2 * out_size[2] <= lanes:
        lanes //= 2
    _, row_axis, column_axis = axes
    row_elements = builder.params["band_nbytes"] // builder.element.itemsize - 2 * lanes
    # The rows that a band reads in addition to as many as it computes.
    halo_rows, phases = row_axis.extent - out_size[1], row_axis.phases * column_axis.phases
    zeros_behind = column_axis.full - column_axis.extent
    band = min(out_size[1], (row_elements - zeros_behind) // (phases * column_axis.extent) - halo_rows)
    if band < 1:
        return False
    builder.lanes = lanes
    image_count = s.batch * s.groups
    if kind != "weight":  # enough bands for all cores, unless they would have too few rows
        target_bands = min(
            -(-builder.params["min_items_per_core"] * builder.caps.cores // image_count),
            -(-out_size[1] // _MIN_BAND_ROWS),
        )
        band, _ = split(out_size[1], max(target_bands, -(-out_size[1] // band)))
    image_stride, channel_stride, space = builder.strides(0)
    row_mode = (  # ROWS of the kernel: how it loads a row: 1 contiguous, 2 every other element, 0 any stride
        1 if space[2] * column_axis.step == 1 else 2 if space[2] == 1 and column_axis.step == 2 and lanes > 1 else 0
    )
    geometry = [s.groups, s.outs, image_stride, channel_stride, *image_size[1:], *space[1:], *out_size[1:]]
    for values in zip(*((a.phases, a.step, a.dilation, a.pad) for a in (row_axis, column_axis)), strict=True):
        geometry += values
    rows, columns = band + halo_rows, column_axis.extent
    geometry += [*zero_step, columns, rows, band, zeros_behind]
    geometry += [
        (ky % row_axis.period * column_axis.phases + kx % column_axis.period) * rows * columns
        + ky * row_axis.dilation // row_axis.step * columns + kx * column_axis.dilation // column_axis.step
        for ky in range(s.taps[1]) for kx in range(s.taps[2])
    ]  # fmt: skip
    defines = {"TAPS": s.tap_count, "ROWS": 3 if zero_step != (1, 1) else row_mode, "ROOM": row_elements + 2 * lanes}
    defines["NARROW"] = int(out_size[2] < lanes)
    if kind == "weight":
        _add_single(builder, geometry, defines)
        return True
    out, _, weight = builder.strides(1)
    weights = [ky * weight[1] + kx * weight[2] for ky in range(s.taps[1]) for kx in range(s.taps[2])]
    if kind == "input":
        weights.reverse()
    bias, dtype = builder.bias_buffer()
    defines |= {"MR": 1, "NV": 1}
    if kind == "forward" and s.outs > 2:
        mr, nv = register_tiles.band_tile(builder.caps.registers, s.outs, s.out[2], lanes)
        defines |= {"MR": mr, "NV": nv}
    plane_size = phases * rows * columns + zeros_behind + 2 * lanes
    planes = max(1, min(_MAX_PLANES, (row_elements + 2 * lanes) // plane_size, image_count // builder.caps.cores))
    builder.launch(
        "band", (0, 1, bias, builder.target),
        (builder.layouts[0].dtype, builder.layouts[1].dtype, dtype, builder.result.dtype),
        (*geometry, out, *weights, int(builder.bias is not None), image_count, planes, plane_size),
        (-(-image_count // planes), -(-out_size[1] // band)), builder.result.numel * s.tap_count // 4, **defines,
    )  # fmt: skip
    return True


def _add_single(builder: Builder, geometry: list[int], defines: dict[str, int]) -> None:
    """Add the launches of the weight gradient of single channels, which works on bands of rows."""
    s, total = builder.sizes, builder.result.numel
    # A tile is (taps, output channels): all taps at a time, or those of one row. The cost is that of loads and FMAs.
    max_sums = register_tiles.MAX_SUMS[builder.caps.registers]
    tap_choices = (s.tap_count,) if 2 * s.tap_count <= max_sums else (s.tap_count, s.taps[2])
    tiles = [(t, r) for t in tap_choices for r in range(1, max_sums // t + 1)]
    part, mr = min(tiles, key=lambda q: -(-s.outs // q[1]) * s.tap_count // q[0] * ((q[0] + 1) * (q[1] + 0.5) + 8))
    max_blocks = _CACHED_SUMS // (mr * s.tap_count)
    blocks, block_groups = split(-(-s.outs // mr), -(-s.outs // (mr * max_blocks)))
    min_items = builder.params["min_items_per_core"] * builder.caps.cores
    chunk, parts = split(s.batch, -(-min_items // (s.groups * block_groups)))
    target = builder.target if parts == 1 else builder.allocate(parts * total)
    image_stride, channel_stride, space = builder.strides(1)
    builder.launch(
        "single", (0, 1, target),
        (*(m.dtype for m in builder.layouts), builder.result.dtype if parts == 1 else builder.element),
        (*geometry, s.batch, chunk, block_groups, blocks, image_stride, channel_stride, space[1], total),
        (s.groups * block_groups, parts),
        total * s.batch * s.out[1] * s.out[2] // 8, MR=mr, BLOCKS=max_blocks, PART=part, **defines,
    )  # fmt: skip
    if parts > 1:
        builder.add_sum(target, parts)
