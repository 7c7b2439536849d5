"""Plan a convolution's launches on CPUs.

The kernels of the forward pass and of the input gradient are `pad`, which copies the image to padded planes, one for
each channel, and `pack`, which packs the weight in blocks. Then `direct` computes whole vectors of pixels for several
channels at a time, or `channels` computes whole vectors of channels for several pixels.

For the weight gradient, `weight` multiplies planes with planes. If there are enough output channels, `channels_last`
transposes the gradient to vectors of channels instead, and `outer` multiplies planes with these. Both kernels work on
parts of the batch, and `sum` adds the parts.

If there is one input channel, kernels pad it themselves, in bands of rows that stay in a cache: `band`, and `single`
for the weight gradient.

templates/opencl/convolution.cl.j2 has the kernels and explains the layout of planes, phases and classes.
`convolution_tiles.py` chooses register tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from .. import dtypes
from ..dtypes import DType
from ..layout import split
from . import convolution_tiles as register_tiles
from .convolution_builder import Builder, Triple

__all__ = ["launch"]

_SHARED_TAPS = (3, 5)  # taps in a row that may share their pixels
# A work-item pads this many bytes of planes at a time; four times as many for volumes, whose windows overlap more.
_WINDOW_BYTES = 262144
_MAX_WINDOW_COPIES = 2  # most work-items that may pad the same window
_RUN_SUM_BYTES = 14336  # accumulators of all tiles that use one set of weights while it is in a first-level cache
_CACHED_WEIGHTS = 4800  # weights that stay in a first-level cache
_RUN_STRIDES = (1, 2)  # strides for which `channels` is compiled
_SPAN_ELEMENTS = 1024  # elements of a plane that stay in a first-level cache beside those of other channels
_CACHED_PIXELS = 128  # pixels that stay in a first-level cache with four vectors of channels each
_MAX_UNROLLED_TAPS = 49  # taps of a kernel that are unrolled
_MAX_BAND_TAPS = 25  # taps that are unrolled for several channels
_MIN_BAND_ROWS = 8  # rows that are worth a work-item
_CACHED_SUMS = 224  # accumulator vectors, of all output channels of a work-item, that stay in a first-level cache
_IS_ROW_AXIS = (False, False, True)  # of depth, height and width
_UNLIMITED = 1 << 60  # number of slices and rows of an image that is read without padding
_CLASS_HEADER_NUMBERS = 5  # numbers of a class before the offsets of its taps


@dataclass(frozen=True, slots=True)
class _Axis:
    """How the planes hold one dimension of an image.

    Position q of phase f holds element `q * step + f * dilation % step - pad` of the image. Tap k reads phase
    `k % period`, at `k * dilation // step` positions after the output's.

    Attributes:
        phases: Number of phases.
        step: Elements of the image from one position to the next.
        dilation: Elements of the image from one tap to the next.
        pad: Zeros in front.
        extent: Stored positions of a phase.
        period: Number of taps after which phases repeat.
        full: Positions of a phase including those that neighbouring rows share.
        max_reads: For a gradient, the maximal number of positions that one output of any class reads.
    """

    phases: int
    step: int
    dilation: int
    pad: int
    extent: int
    period: int
    full: int = 0
    max_reads: int = 0


def launch(builder: Builder) -> None:
    """Add the launches of one convolution to `builder`."""
    if not _add_band(builder):
        {"forward": _add_forward, "input": _add_input_gradient, "weight": _add_weight_gradient}[builder.kind](builder)


def _image_axis(size: int, out: int, taps: int, stride: int, pad: int, dilation: int, is_row_axis: bool) -> _Axis:
    """Return the layout of an image dimension whose outputs read `taps` elements at a distance of `dilation`.

    is_row_axis: along rows, the zeros after one row are those in front of the next.
    """
    period = stride // gcd(stride, dilation)
    phases, extent, shared = min(period, taps), 0, size + pad + out * stride + taps * dilation
    for phase in range(phases):
        begin = phase * dilation % stride - pad
        last = phase + (taps - 1 - phase) // period * period  # the last tap of this phase
        end = out + last * dilation // stride
        low, high = max(0, -(begin // stride)), min(end, max(0, -((begin - size) // stride)))
        extent, shared = max(extent, end), min(shared, low, max(end - high, 0))
    return _Axis(phases, stride, dilation, pad, max(out, extent - shared * is_row_axis), period, max(out, extent))


def _gradient_axis(
    size: int, out: int, taps: int, stride: int, pad: int, dilation: int, is_row_axis: bool
) -> tuple[_Axis, int, int]:
    """Return the layout of a gradient's dimension, the number of classes, and the maximal number of taps of a class.

    The input, `size` long, reads the gradient in classes.
    """
    period = stride // gcd(stride, dilation)
    lowest, highest, firsts, max_taps = [], [], [], 0
    for first in range(min(stride, size)):
        class_taps = [k for k in range(taps) if (first + pad - k * dilation) % stride == 0]
        if class_taps:
            max_taps = max(max_taps, len(class_taps))
            lowest.append((first + pad - class_taps[-1] * dilation) // stride)
            firsts.append((first + pad - class_taps[0] * dilation) // stride)
            highest.append(firsts[-1] + (size - first - 1) // stride)
    pad_front = -min(lowest, default=0)
    end = pad_front + max(highest, default=0) + 1
    count = -(-size // stride)
    shared = max(0, min(pad_front, end - (pad_front + out)))
    max_reads = pad_front + max(firsts, default=0) + 1
    axis = _Axis(1, 1, 0, pad_front, max(count, end - shared * is_row_axis), period, max(count, end), max_reads)
    return axis, min(stride, size), max_taps


def _add_band(builder: Builder) -> bool:
    """Add the launches of a convolution of single channels if its rows fit a cache; return whether they were added."""
    s, lanes, kind = builder.sizes, builder.lanes, builder.kind
    is_planar = s.size[0] == s.out[0] == s.taps[0] == 1 and s.padding[0] == 0
    max_sums = register_tiles.MAX_SUMS[builder.caps.registers]
    fits_cache = {
        "forward": s.tap_count <= (_MAX_UNROLLED_TAPS if s.outs <= 2 else _MAX_BAND_TAPS * (lanes <= s.out[2])),
        "input": s.outs == 1 and s.tap_count <= _MAX_UNROLLED_TAPS,
        "weight": 1 < lanes <= s.out[2] and s.tap_count <= max_sums and builder.strides(1)[2][2] == 1,
    }
    if s.ins != 1 or not is_planar or not fits_cache[kind]:
        return False
    zero_step, image_size, out_size = (1, 1), s.size, s.out
    axes = _phase_axes(builder)
    if kind == "input":  # the gradient with zeros in between, and the kernel reversed
        zero_step, image_size, out_size = s.stride[1:], s.out, s.size
        pad = [d * (k - 1) - p for d, k, p in zip(s.dilation, s.taps, s.padding, strict=True)]
        dilated_size = [(n - 1) * q + 1 for n, q in zip(s.out, s.stride, strict=True)]
        axis_sizes = zip(dilated_size, s.size, s.taps, pad, s.dilation, _IS_ROW_AXIS, strict=True)
        axes = tuple(_image_axis(n, w, k, 1, p, d, row) for n, w, k, p, d, row in axis_sizes)
    _, row_axis, column_axis = axes
    row_elements = builder.params["band"] // builder.element.itemsize - 2 * lanes
    # The rows that a band reads in addition to as many as it computes.
    halo_rows, phases = row_axis.extent - out_size[1], row_axis.phases * column_axis.phases
    band = min(out_size[1], row_elements // (phases * column_axis.extent) - halo_rows)
    if band < 1:
        return False
    image_count = s.batch * s.groups
    if kind != "weight":  # enough bands for all cores, unless they would have too few rows
        target_bands = min(
            -(-builder.params["shares"] * builder.caps.cores // image_count), -(-out_size[1] // _MIN_BAND_ROWS)
        )
        band, _ = split(out_size[1], max(target_bands, -(-out_size[1] // band)))
    image_stride, channel_stride, space = builder.strides(0)
    row_mode = (  # ROWS of the kernel: how it loads a row: 1 contiguous, 2 every other element, 0 any stride
        1 if space[2] * column_axis.step == 1 else 2 if space[2] == 1 and column_axis.step == 2 and lanes > 1 else 0
    )
    geometry = [s.groups, s.outs, image_stride, channel_stride, *image_size[1:], *space[1:], *out_size[1:], s.taps[2]]
    for values in zip(*((a.phases, a.step, a.dilation, a.pad) for a in (row_axis, column_axis)), strict=True):
        geometry += values
    geometry += [*zero_step, row_axis.period, column_axis.period, column_axis.extent, band + halo_rows, band]
    defines = {"TAPS": s.tap_count, "ROWS": 3 if zero_step != (1, 1) else row_mode, "ROOM": row_elements + 2 * lanes}
    if kind == "weight":
        _add_single(builder, geometry, defines)
        return True
    out, _, weight = builder.strides(1)
    bias, dtype = _bias_buffer(builder)
    defines |= {"MR": 1, "NV": 1}
    if kind == "forward" and s.outs > 2:
        mr, nv = register_tiles.band_tile(builder.caps.registers, s.outs, s.out[2], lanes)
        defines |= {"MR": mr, "NV": nv}
    builder.launch(
        "band", (0, 1, bias, builder.target),
        (builder.layouts[0].dtype, builder.layouts[1].dtype, dtype, builder.result.dtype),
        (*geometry, out, *weight[1:], int(kind == "input"), int(builder.bias is not None)),
        (image_count, -(-out_size[1] // band)), builder.result.numel * s.tap_count // 4, **defines,
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
    chunk, parts = split(s.batch, -(-builder.params["shares"] * builder.caps.cores // (s.groups * block_groups)))
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


@dataclass(frozen=True, slots=True)
class _Planes:
    """Padded copies of an operand, one plane for each channel.

    Strides are in elements, from image to image, from plane to plane, and along depth, height and width: `strides`
    between positions, `phase_strides` between phases.
    """

    buffer: int
    image_stride: int
    plane_stride: int
    strides: Triple
    phase_strides: Triple


def _pad_to_planes(
    builder: Builder, operand: int, axes: tuple[_Axis, ...], zeros_behind: int = 0, interleaves_channels: bool = False
) -> _Planes:
    """Add the launch that copies an operand to padded planes.

    Args:
        builder: Collects the launches.
        operand: Position of the operand.
        axes: Layout of depth, height and width.
        zeros_behind: Zeros after a plane and a row of it. Sums over whole vectors add them up; other kernels compute
            results there, and drop them.
        interleaves_channels: Store the rows of all channels next to each other, for kernels that read one row of every
            channel at a time.
    """
    layout, lanes = builder.layouts[operand], builder.lanes
    depth, rows, columns = (a.extent for a in axes)
    phases = (axes[0].phases, axes[1].phases, axes[2].phases)
    batch, channels = layout.shape[:2]
    if interleaves_channels:
        plane = columns * phases[2]
        row = plane * channels
        strides, phase_strides = (rows * row, row, 1), (depth * rows * row * phases[1], depth * rows * row, columns)
        image, zeros_left = depth * rows * row * phases[0] * phases[1], 0
    else:
        phase_elements = depth * rows * columns
        plane_elements = phase_elements * phases[0] * phases[1] * phases[2]
        plane = -(-(plane_elements + columns + zeros_behind) // lanes) * lanes
        strides, phase_strides = (
            (rows * columns, columns, 1),
            (phase_elements * phases[2] * phases[1], phase_elements * phases[2], phase_elements),
        )
        image, zeros_left = channels * plane, plane - plane_elements
    image_stride, channel_stride, space = builder.strides(operand)
    size = _spatial_size(builder, operand)
    buffer = builder.allocate(batch * image + plane + 8 * lanes)
    geometry: list[int] = [channels, *size, image_stride, channel_stride, *space]
    for values in zip(*((a.phases, a.step, a.dilation, a.pad, a.extent) for a in axes), strict=True):
        geometry += values
    is_contiguous, is_every_other = space[2] * axes[2].step == 1, space[2] == 1 and axes[2].step == 2 and lanes > 1
    builder.launch(
        "pad", (operand, buffer), (layout.dtype, builder.element),
        (*geometry, image, plane, *strides[:2], *phase_strides, zeros_left),
        (batch * channels,), batch * image, ROWS=1 if is_contiguous else 2 if is_every_other else 0,
    )  # fmt: skip
    return _Planes(buffer, image, plane, strides, phase_strides)


def _strided_axes(builder: Builder) -> tuple[_Axis, ...]:
    """Return the layout of an input that is padded, but not separated into phases."""
    s = builder.sizes
    axis_sizes = zip(s.out, s.taps, s.stride, s.padding, s.dilation, strict=True)
    return tuple(_Axis(1, 1, d, p, (n - 1) * q + (k - 1) * d + 1, 1) for n, k, q, p, d in axis_sizes)


def _unpadded_planes(builder: Builder, axes: tuple[_Axis, ...]) -> _Planes | None:
    """Return the input itself as planes, or None if it needs padding or a conversion."""
    needs_no_padding = all(a.pad == 0 and a.extent <= n for a, n in zip(axes, builder.sizes.size, strict=True))
    if not needs_no_padding or builder.layouts[0].dtype is not builder.element:
        return None
    return _Planes(0, *builder.strides(0), (0, 0, 0))


def _phase_axes(builder: Builder) -> tuple[_Axis, ...]:
    """Return the layout of an input that is padded and separated into phases."""
    s = builder.sizes
    axis_sizes = zip(s.size, s.out, s.taps, s.stride, s.padding, s.dilation, _IS_ROW_AXIS, strict=True)
    return tuple(_image_axis(*sizes) for sizes in axis_sizes)


def _add_forward(builder: Builder) -> None:
    """Add the launches of the forward pass."""
    s = builder.sizes
    axes = _phase_axes(builder)
    out_stride, in_stride, space = builder.strides(1)
    strides = (s.outs * out_stride, out_stride, in_stride, *space)
    _add_direct(builder, axes, s.outs, s.ins, s.out, s.tap_count, strides, (1, 1, 1))


def _add_input_gradient(builder: Builder) -> None:
    """Add the launches of the input gradient: a convolution of the gradient with the reversed weight.

    Input and output channels are exchanged. Inputs that read the same taps make a class.
    """
    s = builder.sizes
    axes_and_classes = [
        _gradient_axis(*sizes)
        for sizes in zip(s.size, s.out, s.taps, s.stride, s.padding, s.dilation, _IS_ROW_AXIS, strict=True)
    ]
    axes, classes, class_taps = zip(*axes_and_classes, strict=True)
    out_stride, in_stride, space = builder.strides(1)
    strides = (s.outs * out_stride, in_stride, out_stride, *space)
    taps = max(1, class_taps[0] * class_taps[1] * class_taps[2])  # a class may have no tap
    _add_direct(builder, axes, s.ins, s.outs, s.size, taps, strides, classes)


def _add_direct(
    builder: Builder, axes: tuple[_Axis, ...], outs: int, ins: int, out: Triple, max_taps: int,
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
    mr, nv = params["tile"] or (mr, nv)
    may_run = lanes > 1 and (is_gradient or s.stride[2] in _RUN_STRIDES) and not params["tile"]
    # If every element is in at most one window, a padded copy costs more than it saves.
    reads_once = not is_gradient and all(k <= q for k, q in zip(s.taps, s.stride, strict=True))
    unpadded = (
        _unpadded_planes(builder, _strided_axes(builder)) if reads_once and builder.strides(0)[2][2] == 1 else None
    )
    max_run_cost = 1.5 * cost if unpadded else cost
    # The number of taps in a row that share pixels.
    row_taps = s.taps[2] if s.taps[2] in _SHARED_TAPS and s.stride[2] == s.dilation[2] == 1 else 1
    best_run = (
        register_tiles.channels_tile(caps.registers, outs, ins * max_taps, class_size, lanes, max_run_cost, row_taps)
        if may_run else None
    )  # fmt: skip
    run = params["run"] or best_run if may_run else None  # the tile of `channels`: (pixels, vectors of channels)
    step: Triple = (1, 1, 1)
    if run:
        mr, nv = run[1] * lanes, run[1]
        if not is_gradient:  # one plane, from which pixels are read at a distance of `stride`
            step, axes = s.stride, _strided_axes(builder)
        else:
            axes = tuple(replace(a, extent=a.full) for a in axes)
    blocks, count = -(-outs // mr), classes[0] * classes[1] * classes[2]
    band = class_rows = class_size[0] * class_size[1]
    if run:
        band, tiles = split(class_rows, -(-params["shares"] * caps.cores // (s.batch * s.groups * count)))
    else:
        tiles = -(-pixels // (nv * lanes))
    images = tiles * s.batch * s.groups * count
    target_chunks = -(-params["shares"] * caps.cores // images)
    if images > 2:  # all images use some weights before the next ones, to keep them in a cache
        target_chunks = max(target_chunks, blocks * ins * max_taps * mr * builder.element.itemsize // params["weights"])
    chunk, chunks = split(blocks, min(target_chunks, blocks))
    planes = unpadded if run and run[0] <= out[2] else None
    window = (
        None if planes or not run or count * chunks > _MAX_WINDOW_COPIES
        else _choose_window(builder, axes, step, ins, class_size, band)
    )  # fmt: skip
    if window:
        planes = window.planes
    planes = planes or _pad_to_planes(builder, 0, axes, interleaves_channels=bool(run))
    packed = builder.allocate(count * s.groups * blocks * ins * max_taps * mr)
    table = builder.allocate(count * (_CLASS_HEADER_NUMBERS + max_taps), 8)
    area = _row_major(out)
    out_steps = tuple(a * c for a, c in zip(area, classes, strict=True))
    geometry: list[int] = [outs, ins, max_taps, mr, int(is_gradient), *strides, *s.taps, *(a.period for a in axes)]
    geometry += s.stride if is_gradient else (a.step for a in axes)
    taps_are_contiguous = strides[2] == s.tap_count and _contiguous(s.taps, strides[3:])
    squares = run and not is_gradient and outs % mr == 0 and taps_are_contiguous
    geometry += [*s.dilation, *planes.strides, *planes.phase_strides, *s.padding, *(a.pad for a in axes)]
    builder.launch(
        "pack", (1, packed, table), (builder.layouts[1].dtype, builder.element, dtypes.int64),
        (*geometry, *out, *classes, *area), (blocks, s.groups, count),
        s.groups * blocks * ins * s.tap_count * mr, SQUARES=int(bool(squares)),
    )  # fmt: skip
    geometry = [s.groups, outs, ins, blocks, chunk, chunks, planes.plane_stride]
    geometry += (a * q for a, q in zip(planes.strides[:2], step, strict=False)) if run else (rows, columns)
    bias, dtype = _bias_buffer(builder)
    geometry += [max_taps, out[0] * out[1] * out[2], *out_steps, int(builder.bias is not None)]
    defines = {"MR": mr, "NV": nv}
    buffers = [planes.buffer, packed, table, bias, builder.target]
    types = [builder.element, builder.element, dtypes.int64, dtype, builder.result.dtype]
    if run:
        depth, _ = split(ins, -(-ins * max_taps * mr // _CACHED_WEIGHTS))
        source = _spatial_size(builder, 0)
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
            buffers = [0, *buffers[1:], builder.allocate(images * chunks * planes.image_stride)]
            types = [builder.layouts[0].dtype, *types[1:], builder.element]
    builder.launch(
        "channels" if run else "direct", tuple(buffers), tuple(types), tuple(geometry),
        (tiles, s.batch * s.groups, chunks * count), builder.result.numel * ins * max_taps // 8, **defines,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of its image that a work-item of `channels` pads at a time: its planes, and the kernel's arguments."""

    planes: _Planes
    geometry: tuple[int, ...]


def _choose_window(
    builder: Builder, axes: tuple[_Axis, ...], step: Triple, ins: int, class_size: list[int], band: int
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
    planes = _Planes(0, ins * plane * lanes, plane * lanes, (height_needed * columns, columns, 1), (0, 0, 0))
    image_stride, channel_stride, space = builder.strides(0)
    size = _spatial_size(builder, 0)
    geometry = (
        height_needed * columns, columns, slices * rows, *halo[:2], image_stride, channel_stride, *space, *size,
        *step[:2],
    )  # fmt: skip
    return _Window(planes, (*geometry, *(a.pad for a in axes)))


def _spatial_size(builder: Builder, operand: int) -> Triple:
    """Return an operand's depth, height and width."""
    depth, height, width = (1,) * (5 - builder.layouts[operand].ndim) + builder.layouts[operand].shape[2:]
    return depth, height, width


def _row_major(size: Triple) -> Triple:
    """Return the strides of a contiguous tensor."""
    return size[1] * size[2], size[2], 1


def _contiguous(size: Triple, strides: tuple[int, ...]) -> bool:
    """Return True if a tensor with these strides is contiguous."""
    return all(n == 1 or a == b for n, a, b in zip(size, strides, _row_major(size), strict=True))


def _bias_buffer(builder: Builder) -> tuple[int, DType]:
    """Return the bias' buffer and dtype; without a bias those of another operand, which the kernel does not read."""
    position = 1 if builder.bias is None else builder.bias
    return position, builder.layouts[position].dtype


def _add_weight_gradient(builder: Builder) -> None:
    """Add the launches of the weight gradient."""
    s, caps, lanes = builder.sizes, builder.caps, builder.lanes
    if lanes > 1 and s.outs > lanes // 2:
        return _add_outer(builder)
    axes = _phase_axes(builder)
    image = _pad_to_planes(builder, 0, axes, lanes)
    # Give the gradient as many rows and columns as the image, with zeros between its rows.
    extents = (s.out[0], axes[1].extent, axes[2].extent)
    grad = _pad_to_planes(builder, 1, tuple(_Axis(1, 1, 0, 0, extent, 1) for extent in extents), lanes)
    pairs = s.ins * s.tap_count  # of an input channel and a tap: columns of the weight as a matrix
    params = builder.params
    mr, tb = params["sums"] or register_tiles.weight_tile(caps.registers, s.outs, pairs)
    blocks, pieces, total = -(-s.outs // mr), -(-pairs // (tb * params["pieces"])), builder.result.numel
    chunk, parts = split(s.batch, -(-params["shares"] * caps.cores // (pieces * s.groups * blocks)))
    target = builder.target if parts == 1 else builder.allocate(parts * total)
    pixels = ((s.out[0] - 1) * extents[1] + s.out[1]) * extents[2]
    pixels = -(-pixels // lanes) * lanes
    images, span = max(1, _SPAN_ELEMENTS // pixels), min(_SPAN_ELEMENTS, pixels)
    geometry = [
        s.batch, chunk, s.groups, s.outs, s.ins, blocks, image.plane_stride, grad.plane_stride, pixels, images, span,
        total,
    ]  # fmt: skip
    geometry += [*s.taps, *(a.period for a in axes), *s.stride, *s.dilation, *image.strides, *image.phase_strides]
    builder.launch(
        "weight", (image.buffer, grad.buffer, target),
        (builder.element, builder.element, builder.result.dtype if parts == 1 else builder.element), tuple(geometry),
        (pieces, s.groups * blocks, parts), total * s.batch * s.out[0] * s.out[1] * s.out[2] // 8,
        MR=mr, TB=tb, PIECES=params["pieces"],
    )  # fmt: skip
    if parts > 1:
        builder.add_sum(target, parts)


def _add_outer(builder: Builder) -> None:
    """Add the launches of the weight gradient with vectors of output channels."""
    s, caps, lanes, axes = builder.sizes, builder.caps, builder.lanes, _strided_axes(builder)
    image = _unpadded_planes(builder, axes) or _pad_to_planes(builder, 0, axes)
    pairs, total, pixels = s.ins * s.tap_count, builder.result.numel, s.out[0] * s.out[1] * s.out[2]
    vectors = -(-s.outs // lanes)
    params, shares_five_taps = builder.params, s.taps[2] == 5 and s.dilation[2] == 1
    nv, mr = register_tiles.outer_tile(caps.registers, vectors, shares_five_taps, params["outer"])
    blocks = -(-vectors // nv)
    # In an image that was not copied, neighbouring pixels may have channels in between.
    is_contiguous = s.dilation[2] == image.strides[2] == 1
    row_taps = s.taps[2] if s.taps[2] in _SHARED_TAPS and is_contiguous and mr % s.taps[2] == 0 else 1
    transposed = builder.allocate(s.batch * s.groups * blocks * nv * lanes * pixels)
    image_stride, channel_stride, space = builder.strides(1)
    has_contiguous_pixels = _contiguous(s.out, space)
    builder.launch(
        "channels_last", (1, transposed), (builder.layouts[1].dtype, builder.element),
        (s.groups, s.outs, pixels, int(has_contiguous_pixels), image_stride, channel_stride, *s.out, *space),
        (s.batch * s.groups, blocks),
        s.batch * s.groups * s.outs * pixels * 2, NV=nv,
    )  # fmt: skip
    pieces = -(-pairs // (mr * params["pieces"]))
    chunk, parts = split(s.batch, -(-params["shares"] * caps.cores // (pieces * s.groups * blocks)))
    target = builder.target if parts == 1 else builder.allocate(parts * total)
    images, span = max(1, _CACHED_PIXELS // pixels), max(1, _CACHED_PIXELS // s.out[2])
    pixel_strides = (a * q for a, q in zip(image.strides, s.stride, strict=True))
    tap_strides = (a * d for a, d in zip(image.strides, s.dilation, strict=True))
    geometry = [s.batch, chunk, s.groups, s.outs, s.ins, blocks, image.image_stride, image.plane_stride]
    geometry += [*pixel_strides, *s.out, images, span, total, *s.taps, *tap_strides]
    builder.launch(
        "outer", (image.buffer, transposed, target),
        (builder.element, builder.element, builder.result.dtype if parts == 1 else builder.element), tuple(geometry),
        (pieces, s.groups * blocks, parts), total * s.batch * pixels // 8, MR=mr, NV=nv, WIDE=row_taps,
        PIECES=params["pieces"],
    )  # fmt: skip
    if parts > 1:
        builder.add_sum(target, parts)
