"""Plan a convolution's launches on CPUs.

The kernels of the forward pass and of the input gradient are `pad`, which copies the image to padded planes, one for
each channel, and `pack`, which packs the weight in blocks. Then `direct` computes whole vectors of pixels for several
channels at a time, or `channels` computes whole vectors of channels for several pixels.

`convolution_planes.py` has the planes, `convolution_weight.py` the weight gradient, and `convolution_bands.py` the
convolutions of one input channel. `convolution_tiles.py` chooses register tiles. templates/opencl/convolution.cl.j2 has
the kernels, and explains the layout of planes, phases and classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import dtypes
from ..layout import split
from . import convolution_tiles as register_tiles
from .convolution_bands import add_band
from .convolution_builder import Builder, Triple
from .convolution_planes import (
    IS_ROW_AXIS,
    Axis,
    Planes,
    gradient_axis,
    has_contiguous_strides,
    pad_to_planes,
    phase_axes,
    row_major_strides,
    spatial_size,
    strided_axes,
    unpadded_planes,
)
from .convolution_weight import add_weight_gradient

__all__ = ["launch"]

# A work-item pads this many bytes of planes at a time; four times as many for volumes, whose windows overlap more.
_WINDOW_BYTES = 262144
_MAX_WINDOW_COPIES = 2  # most work-items that may pad the same window
_RUN_SUM_BYTES = 14336  # accumulators of all tiles that use one set of weights while it is in a first-level cache
_CACHED_WEIGHTS = 4800  # weights that stay in a first-level cache
_RUN_STRIDES = (1, 2)  # strides for which `channels` is compiled
_UNLIMITED = 1 << 60  # number of slices and rows of an image that is read without padding
_CLASS_HEADER_NUMBERS = 5  # numbers of a class before the offsets of its taps


def launch(builder: Builder) -> None:
    """Add the launches of one convolution to `builder`."""
    if not add_band(builder):
        {"forward": _add_forward, "input": _add_input_gradient, "weight": add_weight_gradient}[builder.kind](builder)


def _add_forward(builder: Builder) -> None:
    """Add the launches of the forward pass."""
    s = builder.sizes
    axes = phase_axes(builder)
    out_stride, in_stride, space = builder.strides(1)
    strides = (s.outs * out_stride, out_stride, in_stride, *space)
    _add_direct(builder, axes, s.outs, s.ins, s.out, s.tap_count, strides, (1, 1, 1))


def _add_input_gradient(builder: Builder) -> None:
    """Add the launches of the input gradient: a convolution of the gradient with the reversed weight.

    Input and output channels are exchanged. Inputs that read the same taps make a class.
    """
    s = builder.sizes
    axes_and_classes = [
        gradient_axis(*sizes)
        for sizes in zip(s.size, s.out, s.taps, s.stride, s.padding, s.dilation, IS_ROW_AXIS, strict=True)
    ]
    axes, classes, class_taps = zip(*axes_and_classes, strict=True)
    out_stride, in_stride, space = builder.strides(1)
    strides = (s.outs * out_stride, in_stride, out_stride, *space)
    taps = max(1, class_taps[0] * class_taps[1] * class_taps[2])  # a class may have no tap
    _add_direct(builder, axes, s.ins, s.outs, s.size, taps, strides, classes)


def _add_direct(
    builder: Builder, axes: tuple[Axis, ...], outs: int, ins: int, out: Triple, max_taps: int,
    strides: tuple[int, ...], classes: Triple,
) -> None:  # fmt: skip
    """Add the launches that pad the image, pack the weight and compute the product.

    strides: those of the weight along group, output channel, input channel and space.
    """
    s, caps, lanes = builder.sizes, builder.caps, builder.lanes
    is_gradient = builder.kind == "input"
    class_size = [-(-n // c) for n, c in zip(out, classes, strict=True)]
    columns, rows = axes[2].extent, axes[1].extent
    pixels = ((class_size[0] - 1) * rows + class_size[1]) * columns
    params = builder.params
    store_cost = 0.0 if is_gradient else register_tiles.STORE_COST / (ins * max_taps)
    (mr, nv), cost = register_tiles.direct_tile(caps.registers, outs, pixels, lanes, store_cost)
    mr, nv = params["direct_tile"] or (mr, nv)
    may_run = lanes > 1 and (is_gradient or s.stride[2] in _RUN_STRIDES) and not params["direct_tile"]
    # If every element is in at most one window, a padded copy costs more than it saves.
    reads_once = not is_gradient and all(k <= q for k, q in zip(s.taps, s.stride, strict=True))
    unpadded = unpadded_planes(builder, strided_axes(builder)) if reads_once and builder.strides(0)[2][2] == 1 else None
    max_run_cost = 1.5 * cost if unpadded else cost
    # The number of taps in a row that share pixels.
    row_taps = s.taps[2] if s.taps[2] in register_tiles.SHARED_TAPS and s.stride[2] == s.dilation[2] == 1 else 1
    best_run = (
        register_tiles.channels_tile(caps.registers, outs, ins * max_taps, class_size, lanes, max_run_cost, row_taps)
        if may_run else None
    )  # fmt: skip
    # The tile of `channels`: (pixels, vectors of channels).
    run = params["channels_tile"] or best_run if may_run else None
    step: Triple = (1, 1, 1)
    if run:
        mr, nv = run[1] * lanes, run[1]
        if not is_gradient:  # one plane, from which pixels are read at a distance of `stride`
            step, axes = s.stride, strided_axes(builder)
        else:
            axes = tuple(replace(a, extent=a.full) for a in axes)
    blocks, count = -(-outs // mr), classes[0] * classes[1] * classes[2]
    band = class_rows = class_size[0] * class_size[1]
    if run:
        band, tiles = split(class_rows, -(-params["min_items_per_core"] * caps.cores // (s.batch * s.groups * count)))
    else:
        tiles = -(-pixels // (nv * lanes))
    images = tiles * s.batch * s.groups * count
    target_chunks = -(-params["min_items_per_core"] * caps.cores // images)
    if images > 2:  # all images use some weights before the next ones, to keep them in a cache
        weights_nbytes = blocks * ins * max_taps * mr * builder.element.itemsize
        target_chunks = max(target_chunks, weights_nbytes // params["max_weights_nbytes"])
    chunk, chunks = split(blocks, min(target_chunks, blocks))
    planes = unpadded if run and run[0] <= out[2] else None
    window = (
        None if planes or not run or count * chunks > _MAX_WINDOW_COPIES
        else _choose_window(builder, axes, step, ins, class_size, band)
    )  # fmt: skip
    if window:
        planes = window.planes
    planes = planes or pad_to_planes(builder, 0, axes, interleaves_channels=bool(run))
    packed_buffer = builder.allocate(count * s.groups * blocks * ins * max_taps * mr)
    table_buffer = builder.allocate(count * (_CLASS_HEADER_NUMBERS + max_taps), 8)
    area = row_major_strides(out)
    out_steps = tuple(a * c for a, c in zip(area, classes, strict=True))
    geometry: list[int] = [outs, ins, max_taps, mr, int(is_gradient), *strides, *s.taps, *(a.period for a in axes)]
    geometry += s.stride if is_gradient else (a.step for a in axes)
    # The weights of a forward pass are matrices of outputs by inputs and taps, those of a gradient of inputs by outputs
    # and taps: SQUARES of the kernel says which are transposed in whole vectors.
    squares = 0
    if run and has_contiguous_strides(s.taps, strides[3:]):
        if not is_gradient:
            squares = int(outs % mr == 0 and strides[2] == s.tap_count)
        elif strides[1] == s.tap_count and strides[2] >= outs * s.tap_count:
            squares = 2
    geometry += [*s.dilation, *planes.strides, *planes.phase_strides, *s.padding, *(a.pad for a in axes)]
    builder.launch(
        "pack", (1, packed_buffer, table_buffer), (builder.layouts[1].dtype, builder.element, dtypes.int64),
        (*geometry, *out, *classes, *area), (blocks, s.groups, count),
        s.groups * blocks * ins * s.tap_count * mr, SQUARES=squares,
    )  # fmt: skip
    geometry = [s.groups, outs, ins, blocks, chunk, chunks, planes.plane_stride]
    geometry += (a * q for a, q in zip(planes.strides[:2], step, strict=False)) if run else (rows, columns)
    bias, dtype = builder.bias_buffer()
    geometry += [max_taps, out[0] * out[1] * out[2], *out_steps, int(builder.bias is not None)]
    defines = {"MR": mr, "NV": nv}
    buffers = [planes.buffer, packed_buffer, table_buffer, bias, builder.target]
    types = [builder.element, builder.element, dtypes.int64, dtype, builder.result.dtype]
    if run:
        depth, _ = split(ins, -(-ins * max_taps * mr // _CACHED_WEIGHTS))
        source = spatial_size(builder, 0)
        geometry += [
            planes.image_stride, band, depth, *((1, 1) if planes is unpadded else planes.strides[:2]), *step[:2]
        ]  # fmt: skip
        geometry += (0, 0, _UNLIMITED, _UNLIMITED) if planes is unpadded else (*(a.pad for a in axes[:2]), *source[:2])
        # A tile computes a whole row, and its taps reach as far beyond the ends of the image as there are zeros.
        edges = row_taps > 1 and run[0] == class_size[2] == source[2] and 2 * axes[2].pad == s.taps[2] - 1
        tiles_per_pass = max(1, _RUN_SUM_BYTES // (run[0] * mr * builder.element.itemsize))
        defines = {"PIXELS": run[0], "NV": nv, "STEP": step[2], "TILES": tiles_per_pass}
        taps_sharing = register_tiles.shared_taps(caps.registers, run, row_taps)
        defines |= {"WIDE": taps_sharing, "FILL": int(window is not None)}
        defines["EDGES"] = s.taps[2] // 2 if edges and taps_sharing > 1 else 0
        defines |= {"ROWS": int(builder.strides(0)[2][2] == 1)} if window else {}
        if window:
            geometry += window.geometry
            # A tile is read as a whole even where rows are shorter, so beyond the last plane, too.
            max_reads_past_planes = (run[0] - 1) * step[2] + taps_sharing
            window_buffer = builder.allocate(images * chunks * planes.image_stride + max_reads_past_planes)
            buffers = [0, *buffers[1:], window_buffer]
            types = [builder.layouts[0].dtype, *types[1:], builder.element]
    builder.launch(
        "channels" if run else "direct", tuple(buffers), tuple(types), tuple(geometry),
        (tiles, s.batch * s.groups, chunks * count), builder.result.numel * ins * max_taps // 8, **defines,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of its image that a work-item of `channels` pads at a time: its planes, and the kernel's arguments."""

    planes: Planes
    geometry: tuple[int, ...]


def _choose_window(
    builder: Builder, axes: tuple[Axis, ...], step: Triple, ins: int, class_size: list[int], band: int
) -> _Window | None:
    """Choose rows of outputs whose inputs stay in a second-level cache; None if the windows would overlap too much."""
    depth, height = class_size[:2]
    columns, lanes = axes[2].extent, builder.lanes
    # The positions that one output reads, and the number of outputs whose positions fit.
    halo = [a.max_reads or a.extent - (n - 1) * q for a, n, q in zip(axes, class_size, step, strict=True)]
    capacity = _WINDOW_BYTES * (4 if depth > 1 else 1) // (builder.element.itemsize * columns * ins)
    slices, rows = 1, min(band, (capacity // halo[0] - halo[1]) // step[1] + 1)
    if depth > 1:
        if builder.kind == "input" and builder.sizes.size[1] % min(builder.sizes.stride[1], builder.sizes.size[1]):
            return None  # some classes have one row less, so that whole slices of one are not whole in another
        slices, rows = (capacity // axes[1].extent - halo[0]) // step[0] + 1, height
        if slices < 1 or band % height:
            return None
        slices, _ = split(band // height, -(-band // (height * slices)))
    elif rows * step[1] < 2 * halo[1] and rows < band:
        return None
    else:
        rows, _ = split(band, -(-band // rows))
    height_needed, depth_needed = (rows - 1) * step[1] + halo[1], (slices - 1) * step[0] + halo[0]
    # An odd number of cache lines, so that one position of all channels is spread over the sets of a cache.
    plane = -(-depth_needed * height_needed * columns // lanes) | 1
    planes = Planes(0, ins * plane * lanes, plane * lanes, (height_needed * columns, columns, 1), (0, 0, 0))
    image_stride, channel_stride, space = builder.strides(0)
    size = spatial_size(builder, 0)
    geometry = (
        height_needed * columns, columns, slices * rows, *halo[:2], image_stride, channel_stride, *space, *size,
        *step[:2],
    )  # fmt: skip
    return _Window(planes, (*geometry, *(a.pad for a in axes)))
