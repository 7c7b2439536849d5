"""A convolution's schedules on CPUs: operands are copied to padded planes (`pad`) and blocks of weights (`pack`), then
whole vectors of pixels are computed for several channels at a time (`direct`), or whole vectors of channels for several
pixels (`channels`). The weight's gradient multiplies planes with planes (`weight`) or with vectors of channels (`turn`,
`outer`), in parts of the batch that are summed (`sum`). Single channels are padded where they are used: `band`, and
`single` for the weight's gradient. How planes lie, and what phases and classes are, is said in
templates/opencl/convolution.cl.j2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from .. import dtypes
from ..dtypes import DType
from ..layout import split
from . import convolution_tiles as tiles_of
from .convolution import Builder, Triple

__all__ = ["launch"]

_WIDE = (3, 5)  # taps in a row that may share their pixels
_FILLED = 262144  # bytes of planes that a work-item pads at a time, and four times that of slices, which overlap more
_FILLS = 2  # work-items that pad the same
_RUN_SUMS = 14336  # bytes of sums of all runs that use weights while they are in a first-level cache
_DEEP = 4800  # of these at a time, which stay in a first-level cache
_STEPS = (1, 2)  # of neighbours that are outputs, for which a schedule is compiled
_SPAN = 1024  # elements of a plane that stay in a first-level cache beside those of other channels
_PIXELS = 128  # that stay in a first-level cache with four vectors of channels each
_MOST_TAPS = 49  # of a kernel whose taps are written out
_BAND_TAPS = 25  # of one whose taps are written out for several channels
_BAND_ROWS = 8  # that are worth a work-item
_KEPT = 224  # of all of its outputs' sums, which stay in a first-level cache
_ROWS = (False, False, True)
_ANY = 1 << 60  # slices and rows of an image of which none is left out
_HEADER = 5  # numbers of a class before its taps' places


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one dimension of an image is laid out in planes, and read.

    phases, step, apart, pad: place q of phase f has element q * step + f * apart % step - pad. extent: places of a
    phase that are kept. taps, period: tap k is in phase k % period, k * apart // step places on. full: places with
    those that rows share. reach: of a gradient, the places that one output of any class reads at most.
    """

    phases: int
    step: int
    apart: int
    pad: int
    extent: int
    period: int
    full: int = 0
    reach: int = 0


def launch(builder: Builder) -> None:
    """Add the launches of one convolution to `builder`."""
    if not _band(builder):
        {"forward": _forward, "input": _input, "weight": _weight}[builder.kind](builder)


def _read(size: int, out: int, taps: int, stride: int, pad: int, apart: int, row: bool) -> _Axis:
    """An image from which outputs read `taps` elements `apart`. row: it is along rows, where zeros behind one are those
    in front of the next."""
    period = stride // gcd(stride, apart)
    phases, extent, shared = min(period, taps), 0, size + pad + out * stride + taps * apart
    for phase in range(phases):
        begin = phase * apart % stride - pad
        last = phase + (taps - 1 - phase) // period * period  # of the taps in this phase
        end = out + last * apart // stride
        low, high = max(0, -(begin // stride)), min(end, max(0, -((begin - size) // stride)))
        extent, shared = max(extent, end), min(shared, low, max(end - high, 0))
    return _Axis(phases, stride, apart, pad, max(out, extent - shared * row), period, max(out, extent))


def _spread(size: int, out: int, taps: int, stride: int, pad: int, apart: int, row: bool) -> tuple[_Axis, int, int]:
    """A gradient from which an input `size` long reads in classes; also how many there are, and taps of one at most."""
    period = stride // gcd(stride, apart)
    lowest, highest, firsts, most = [], [], [], 0
    for first in range(min(stride, size)):
        taken = [k for k in range(taps) if (first + pad - k * apart) % stride == 0]
        if taken:
            most = max(most, len(taken))
            lowest.append((first + pad - taken[-1] * apart) // stride)
            firsts.append((first + pad - taken[0] * apart) // stride)
            highest.append(firsts[-1] + (size - first - 1) // stride)
    lead = -min(lowest, default=0)
    end = lead + max(highest, default=0) + 1
    count = -(-size // stride)
    shared = max(0, min(lead, end - (lead + out)))
    reach = lead + max(firsts, default=0) + 1
    axis = _Axis(1, 1, 0, lead, max(count, end - shared * row), period, max(count, end), reach)
    return axis, min(stride, size), most


def _band(builder: Builder) -> bool:
    """Add the launches of a convolution of single channels, if it is one that a work-item can keep the rows of."""
    s, lanes, kind = builder.sizes, builder.lanes, builder.kind
    flat = s.size[0] == s.out[0] == s.taps[0] == 1 and s.padding[0] == 0
    most = tiles_of.MOST_SUMS[builder.able.registers]
    fits = {
        "forward": s.count <= (_MOST_TAPS if s.outs <= 2 else _BAND_TAPS * (lanes <= s.out[2])),
        "input": s.outs == 1 and s.count <= _MOST_TAPS,
        "weight": 1 < lanes <= s.out[2] and s.count <= most and builder.strides(1)[2][2] == 1,
    }
    if s.ins != 1 or not flat or not fits[kind]:
        return False
    up, given, wide = (1, 1), s.size, s.out
    axes = _images(builder)
    if kind == "input":  # the gradient's elements `stride` apart, and the kernel turned around
        up, given, wide = s.stride[1:], s.out, s.size
        pad = [d * (k - 1) - p for d, k, p in zip(s.dilation, s.taps, s.padding, strict=True)]
        spread = [(n - 1) * q + 1 for n, q in zip(s.out, s.stride, strict=True)]
        along = zip(spread, s.size, s.taps, pad, s.dilation, _ROWS, strict=True)
        axes = tuple(_read(n, w, k, 1, p, d, row) for n, w, k, p, d, row in along)
    _, down, across = axes
    room = builder.chosen["band"] // builder.element.itemsize - 2 * lanes
    reach, parts = down.extent - wide[1], down.phases * across.phases  # rows more than a band's own
    band = min(wide[1], room // (parts * across.extent) - reach)
    if band < 1:
        return False
    images = s.batch * s.groups
    if kind != "weight":  # enough of them for all cores, unless they are too few rows
        wanted = min(-(-builder.chosen["shares"] * builder.able.cores // images), -(-wide[1] // _BAND_ROWS))
        band, _ = split(wide[1], max(wanted, -(-wide[1] // band)))
    first, second, space = builder.strides(0)
    rows = 1 if space[2] * across.step == 1 else 2 if space[2] == 1 and across.step == 2 and lanes > 1 else 0
    geometry = [s.groups, s.outs, first, second, *given[1:], *space[1:], *wide[1:], s.taps[2]]
    for values in zip(*((a.phases, a.step, a.apart, a.pad) for a in (down, across)), strict=True):
        geometry += values
    geometry += [*up, down.period, across.period, across.extent, band + reach, band]
    defines = {"TAPS": s.count, "ROWS": 3 if up != (1, 1) else rows, "ROOM": room + 2 * lanes}
    if kind == "weight":
        _single(builder, geometry, defines)
        return True
    out, _, weight = builder.strides(1)
    bias, dtype = _bias(builder)
    defines |= {"MR": 1, "NV": 1}
    if kind == "forward" and s.outs > 2:
        mr, nv = tiles_of.band_tile(builder.able.registers, s.outs, s.out[2], lanes)
        defines |= {"MR": mr, "NV": nv}
    builder.launch(
        "band", (0, 1, bias, builder.target),
        (builder.layouts[0].dtype, builder.layouts[1].dtype, dtype, builder.result.dtype),
        (*geometry, out, *weight[1:], int(kind == "input"), int(builder.bias is not None)),
        (images, -(-wide[1] // band)), builder.result.numel * s.count // 4, **defines,
    )  # fmt: skip
    return True


def _single(builder: Builder, geometry: list[int], defines: dict[str, int]) -> None:
    """The weight's gradient of single channels, from bands of rows."""
    s, total = builder.sizes, builder.result.numel
    # Vectors read, and products, of a tile: so many taps at a time, all or a row of them, and outputs.
    sums = tiles_of.MOST_SUMS[builder.able.registers]
    several = (s.count,) if 2 * s.count <= sums else (s.count, s.taps[2])
    tiles = [(t, r) for t in several for r in range(1, sums // t + 1)]
    part, mr = min(tiles, key=lambda q: -(-s.outs // q[1]) * s.count // q[0] * ((q[0] + 1) * (q[1] + 0.5) + 8))
    most = _KEPT // (mr * s.count)
    blocks, shares = split(-(-s.outs // mr), -(-s.outs // (mr * most)))
    chunk, parts = split(s.batch, -(-builder.chosen["shares"] * builder.able.cores // (s.groups * shares)))
    target = builder.target if parts == 1 else builder.allocate(parts * total)
    first, second, space = builder.strides(1)
    builder.launch(
        "single", (0, 1, target),
        (*(m.dtype for m in builder.layouts), builder.result.dtype if parts == 1 else builder.element),
        (*geometry, s.batch, chunk, shares, blocks, first, second, space[1], total), (s.groups * shares, parts),
        total * s.batch * s.out[1] * s.out[2] // 8, MR=mr, BLOCKS=most, PART=part, **defines,
    )  # fmt: skip
    if parts > 1:
        builder.sum(target, parts)


@dataclass(frozen=True, slots=True)
class _Planes:
    """Padded copies: buffer, elements between images, planes, and neighbours and phases along each dimension."""

    buffer: int
    image: int
    plane: int
    at: Triple
    phase_at: Triple


def _planes(builder: Builder, operand: int, axes: tuple[_Axis, ...], behind: int = 0, mixed: bool = False) -> _Planes:
    """The launch that copies an operand to planes. behind: zeros after a plane and a row of it, for sums over whole
    vectors, in which what lies there counts; elsewhere it is computed with and dropped. mixed: rows of all channels lie
    beside each other, for what reads a row of them at a time."""
    layout, lanes = builder.layouts[operand], builder.lanes
    depth, rows, columns = (a.extent for a in axes)
    phases = (axes[0].phases, axes[1].phases, axes[2].phases)
    batch, channels = layout.shape[:2]
    if mixed:
        plane = columns * phases[2]
        row = plane * channels
        at, phase_at = (rows * row, row, 1), (depth * rows * row * phases[1], depth * rows * row, columns)
        image, rest = depth * rows * row * phases[0] * phases[1], 0
    else:
        part = depth * rows * columns
        used = part * phases[0] * phases[1] * phases[2]
        plane = -(-(used + columns + behind) // lanes) * lanes
        at, phase_at = (rows * columns, columns, 1), (part * phases[2] * phases[1], part * phases[2], part)
        image, rest = channels * plane, plane - used
    first, second, space = builder.strides(operand)
    size = _space(builder, operand)
    made = builder.allocate(batch * image + plane + 8 * lanes)
    geometry: list[int] = [channels, *size, first, second, *space]
    for values in zip(*((a.phases, a.step, a.apart, a.pad, a.extent) for a in axes), strict=True):
        geometry += values
    near, far = space[2] * axes[2].step == 1, space[2] == 1 and axes[2].step == 2 and lanes > 1
    builder.launch(
        "pad", (operand, made), (layout.dtype, builder.element), (*geometry, image, plane, *at[:2], *phase_at, rest),
        (batch * channels,), batch * image, ROWS=1 if near else 2 if far else 0,
    )  # fmt: skip
    return _Planes(made, image, plane, at, phase_at)


def _plain(builder: Builder) -> tuple[_Axis, ...]:
    """How the input is padded where outputs read it at its strides."""
    s = builder.sizes
    along = zip(s.out, s.taps, s.stride, s.padding, s.dilation, strict=True)
    return tuple(_Axis(1, 1, d, p, (n - 1) * q + (k - 1) * d + 1, 1) for n, k, q, p, d in along)


def _there(builder: Builder, axes: tuple[_Axis, ...]) -> _Planes | None:
    """The input as planes where it is, unless something is read in front of an image or behind it."""
    inside = all(a.pad == 0 and a.extent <= n for a, n in zip(axes, builder.sizes.size, strict=True))
    if not inside or builder.layouts[0].dtype is not builder.element:
        return None
    return _Planes(0, *builder.strides(0), (0, 0, 0))


def _images(builder: Builder) -> tuple[_Axis, ...]:
    """How the input is read."""
    s = builder.sizes
    along = zip(s.size, s.out, s.taps, s.stride, s.padding, s.dilation, _ROWS, strict=True)
    return tuple(_read(*each) for each in along)


def _forward(builder: Builder) -> None:
    s = builder.sizes
    axes = _images(builder)
    first, second, space = builder.strides(1)
    geometry = (s.outs * first, first, second, *space)
    _direct(builder, axes, s.outs, s.ins, s.out, s.count, geometry, (1, 1, 1))


def _input(builder: Builder) -> None:
    """The weight turned around: inputs and outputs change places, and the last tap comes first."""
    s = builder.sizes
    found = [_spread(*each) for each in zip(s.size, s.out, s.taps, s.stride, s.padding, s.dilation, _ROWS, strict=True)]
    axes, classes, most = zip(*found, strict=True)
    first, second, space = builder.strides(1)
    geometry = (s.outs * first, second, first, *space)
    taps = max(1, most[0] * most[1] * most[2])  # there may be none that reaches the input
    _direct(builder, axes, s.ins, s.outs, s.size, taps, geometry, classes)


def _direct(
    builder: Builder, axes: tuple[_Axis, ...], outs: int, ins: int, out: Triple, most: int,
    strides: tuple[int, ...], classes: Triple,
) -> None:  # fmt: skip
    """Planes, packed weights, and the product. strides: of the weight along group, output, input and space."""
    s, able, lanes = builder.sizes, builder.able, builder.lanes
    spread = builder.kind == "input"
    largest = [-(-n // c) for n, c in zip(out, classes, strict=True)]
    columns, rows = axes[2].extent, axes[1].extent
    pixels = ((largest[0] - 1) * rows + largest[1]) * columns
    chosen = builder.chosen
    stored = 0.0 if spread else tiles_of.STORED / (ins * most)
    (mr, nv), cost = tiles_of.tile(able.registers, outs, pixels, lanes, stored)
    mr, nv = chosen["tile"] or (mr, nv)
    may_run = lanes > 1 and (spread or s.stride[2] in _STEPS) and not chosen["tile"]
    # Where every element is in one window at most, a copy would cost more than it saves.
    once = not spread and all(k <= q for k, q in zip(s.taps, s.stride, strict=True))
    there = _there(builder, _plain(builder)) if once and builder.strides(0)[2][2] == 1 else None
    limit = 1.5 * cost if there else cost
    wide = s.taps[2] if s.taps[2] in _WIDE and s.stride[2] == s.dilation[2] == 1 else 1  # taps that share pixels
    found = tiles_of.run(able.registers, outs, ins * most, largest, lanes, limit, wide) if may_run else None
    run = chosen["run"] or found if may_run else None
    step: Triple = (1, 1, 1)
    if run:
        mr, nv = run[1] * lanes, run[1]
        if not spread:  # pixels are read `stride` apart from one plane
            step, axes = s.stride, _plain(builder)
        else:
            axes = tuple(replace(a, extent=a.full) for a in axes)
    blocks, count = -(-outs // mr), classes[0] * classes[1] * classes[2]
    band = lines = largest[0] * largest[1]
    if run:
        band, tiles = split(lines, -(-chosen["shares"] * able.cores // (s.batch * s.groups * count)))
    else:
        tiles = -(-pixels // (nv * lanes))
    images = tiles * s.batch * s.groups * count
    wanted = -(-chosen["shares"] * able.cores // images)
    if images > 2:  # the same weights for all of them, before the next ones
        wanted = max(wanted, blocks * ins * most * mr * builder.element.itemsize // chosen["weights"])
    chunk, chunks = split(blocks, min(wanted, blocks))
    planes = there if run and run[0] <= out[2] else None
    window = None if planes or not run or count * chunks > _FILLS else _window(builder, axes, step, ins, largest, band)
    if window:
        planes = window.planes
    planes = planes or _planes(builder, 0, axes, mixed=bool(run))
    packed = builder.allocate(count * s.groups * blocks * ins * most * mr)
    table = builder.allocate(count * (_HEADER + most), 8)
    area = _row_major(out)
    to = tuple(a * c for a, c in zip(area, classes, strict=True))
    geometry: list[int] = [outs, ins, most, mr, int(spread), *strides, *s.taps, *(a.period for a in axes)]
    geometry += s.stride if spread else (a.step for a in axes)
    follow = strides[2] == s.count and _contiguous(s.taps, strides[3:])
    squares = run and not spread and outs % mr == 0 and follow
    geometry += [*s.dilation, *planes.at, *planes.phase_at, *s.padding, *(a.pad for a in axes)]
    builder.launch(
        "pack", (1, packed, table), (builder.layouts[1].dtype, builder.element, dtypes.int64),
        (*geometry, *out, *classes, *area), (blocks, s.groups, count),
        s.groups * blocks * ins * s.count * mr, SQUARES=int(bool(squares)),
    )  # fmt: skip
    geometry = [s.groups, outs, ins, blocks, chunk, chunks, planes.plane]
    geometry += (a * q for a, q in zip(planes.at[:2], step, strict=False)) if run else (rows, columns)
    bias, dtype = _bias(builder)
    geometry += [most, out[0] * out[1] * out[2], *to, int(builder.bias is not None)]
    defines = {"MR": mr, "NV": nv}
    buffers = [planes.buffer, packed, table, bias, builder.target]
    types = [builder.element, builder.element, dtypes.int64, dtype, builder.result.dtype]
    if run:
        depth, _ = split(ins, -(-ins * most * mr // _DEEP))
        source = _space(builder, 0)
        geometry += [planes.image, band, depth, *((1, 1) if planes is there else planes.at[:2]), *step[:2]]
        geometry += (0, 0, _ANY, _ANY) if planes is there else (*(a.pad for a in axes[:2]), *source[:2])
        # All of a row at a time, of an image as wide, with as many zeros at its ends as taps reach beyond it.
        edges = wide > 1 and run[0] == largest[2] == source[2] and 2 * axes[2].pad == s.taps[2] - 1
        together = max(1, _RUN_SUMS // (run[0] * mr * builder.element.itemsize))
        defines = {"PIXELS": run[0], "NV": nv, "STEP": step[2], "TILES": together}
        shared = tiles_of.shared(able.registers, run, wide)
        defines |= {"WIDE": shared, "FILL": int(window is not None)}
        defines["EDGES"] = s.taps[2] // 2 if edges and shared > 1 else 0
        defines |= {"ROWS": int(builder.strides(0)[2][2] == 1)} if window else {}
        if window:
            geometry += window.geometry
            buffers = [0, *buffers[1:], builder.allocate(images * chunks * planes.image)]
            types = [builder.layouts[0].dtype, *types[1:], builder.element]
    builder.launch(
        "channels" if run else "direct", tuple(buffers), tuple(types), tuple(geometry),
        (tiles, s.batch * s.groups, chunks * count), builder.result.numel * ins * most // 8, **defines,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Window:
    """What a work-item of `channels` pads of its image at a time: its planes, and what the kernel is told of it."""

    planes: _Planes
    geometry: tuple[int, ...]


def _window(
    builder: Builder, axes: tuple[_Axis, ...], step: Triple, ins: int, largest: list[int], band: int
) -> _Window | None:
    """Rows of outputs whose inputs stay in a second-level cache; none where they would overlap too much."""
    depth, height = largest[:2]
    columns, lanes = axes[2].extent, builder.lanes
    # Places that one output reads, and outputs whose places fit.
    below = [a.reach or a.extent - (n - 1) * q for a, n, q in zip(axes, largest, step, strict=True)]
    room = _FILLED * (4 if depth > 1 else 1) // (builder.element.itemsize * columns * ins)
    slices, rows = 1, min(band, (room // below[0] - below[1]) // step[1] + 1)
    if depth > 1:
        if builder.kind == "input" and builder.sizes.size[1] % min(builder.sizes.stride[1], builder.sizes.size[1]):
            return None  # some classes have a row less: what is whole slices of one is not of another
        slices, rows = (room // axes[1].extent - below[0]) // step[0] + 1, height
        if slices < 1 or band % height:
            return None
        slices, _ = split(band // height, -(-band // (height * slices)))
    elif rows * step[1] < 2 * below[1] and rows < band:
        return None
    else:
        rows, _ = split(band, -(-band // rows))
    high, deep = (rows - 1) * step[1] + below[1], (slices - 1) * step[0] + below[0]
    # An odd number of cache lines, so that what lies at one place of all channels is spread over a cache.
    plane = -(-deep * high * columns // lanes) | 1
    planes = _Planes(0, ins * plane * lanes, plane * lanes, (high * columns, columns, 1), (0, 0, 0))
    first, second, space = builder.strides(0)
    size = _space(builder, 0)
    geometry = (high * columns, columns, slices * rows, *below[:2], first, second, *space, *size, *step[:2])
    return _Window(planes, (*geometry, *(a.pad for a in axes)))


def _space(builder: Builder, operand: int) -> Triple:
    """An operand's depth, height and width."""
    depth, height, width = (1,) * (5 - builder.layouts[operand].ndim) + builder.layouts[operand].shape[2:]
    return depth, height, width


def _row_major(size: Triple) -> Triple:
    """Strides of what is contiguous."""
    return size[1] * size[2], size[2], 1


def _contiguous(size: Triple, strides: tuple[int, ...]) -> bool:
    return all(n == 1 or a == b for n, a, b in zip(size, strides, _row_major(size), strict=True))


def _bias(builder: Builder) -> tuple[int, DType]:
    """The bias' buffer and dtype; another operand, which is not read, where there is none."""
    at = 1 if builder.bias is None else builder.bias
    return at, builder.layouts[at].dtype


def _weight(builder: Builder) -> None:
    s, able, lanes = builder.sizes, builder.able, builder.lanes
    if lanes > 1 and s.outs > lanes // 2:
        return _outer(builder)
    axes = _images(builder)
    x = _planes(builder, 0, axes, lanes)
    # The gradient with as many columns and rows, so that what lies between its rows is zeros.
    extents = (s.out[0], axes[1].extent, axes[2].extent)
    g = _planes(builder, 1, tuple(_Axis(1, 1, 0, 0, extent, 1) for extent in extents), lanes)
    pairs = s.ins * s.count
    chosen = builder.chosen
    mr, tb = chosen["sums"] or tiles_of.sums(able.registers, s.outs, pairs)
    blocks, pieces, total = -(-s.outs // mr), -(-pairs // (tb * chosen["pieces"])), builder.result.numel
    chunk, parts = split(s.batch, -(-chosen["shares"] * able.cores // (pieces * s.groups * blocks)))
    target = builder.target if parts == 1 else builder.allocate(parts * total)
    pixels = ((s.out[0] - 1) * extents[1] + s.out[1]) * extents[2]
    pixels = -(-pixels // lanes) * lanes
    images, span = max(1, _SPAN // pixels), min(_SPAN, pixels)
    geometry = [s.batch, chunk, s.groups, s.outs, s.ins, blocks, x.plane, g.plane, pixels, images, span, total]
    geometry += [*s.taps, *(a.period for a in axes), *s.stride, *s.dilation, *x.at, *x.phase_at]
    builder.launch(
        "weight", (x.buffer, g.buffer, target),
        (builder.element, builder.element, builder.result.dtype if parts == 1 else builder.element), tuple(geometry),
        (pieces, s.groups * blocks, parts), total * s.batch * s.out[0] * s.out[1] * s.out[2] // 8,
        MR=mr, TB=tb, PIECES=chosen["pieces"],
    )  # fmt: skip
    if parts > 1:
        builder.sum(target, parts)


def _outer(builder: Builder) -> None:
    """The weight's gradient, with outputs as vectors."""
    s, able, lanes, axes = builder.sizes, builder.able, builder.lanes, _plain(builder)
    x = _there(builder, axes) or _planes(builder, 0, axes)
    pairs, total, pixels = s.ins * s.count, builder.result.numel, s.out[0] * s.out[1] * s.out[2]
    vectors = -(-s.outs // lanes)
    chosen, five = builder.chosen, s.taps[2] == 5 and s.dilation[2] == 1
    nv, mr = tiles_of.outer(able.registers, vectors, five, chosen["outer"])
    blocks = -(-vectors // nv)
    near = s.dilation[2] == x.at[2] == 1  # in an image that was not copied, channels may lie between neighbours
    wide = s.taps[2] if s.taps[2] in _WIDE and near and mr % s.taps[2] == 0 else 1
    turned = builder.allocate(s.batch * s.groups * blocks * nv * lanes * pixels)
    first, second, space = builder.strides(1)
    flat = _contiguous(s.out, space)
    builder.launch(
        "turn", (1, turned), (builder.layouts[1].dtype, builder.element),
        (s.groups, s.outs, pixels, int(flat), first, second, *s.out, *space), (s.batch * s.groups, blocks),
        s.batch * s.groups * s.outs * pixels * 2, NV=nv,
    )  # fmt: skip
    pieces = -(-pairs // (mr * chosen["pieces"]))
    chunk, parts = split(s.batch, -(-chosen["shares"] * able.cores // (pieces * s.groups * blocks)))
    target = builder.target if parts == 1 else builder.allocate(parts * total)
    images, span = max(1, _PIXELS // pixels), max(1, _PIXELS // s.out[2])
    strides = (a * q for a, q in zip(x.at, s.stride, strict=True))  # of pixels
    apart = (a * d for a, d in zip(x.at, s.dilation, strict=True))  # of taps
    geometry = [s.batch, chunk, s.groups, s.outs, s.ins, blocks, x.image, x.plane, *strides, *s.out]
    geometry += [images, span, total, *s.taps, *apart]
    builder.launch(
        "outer", (x.buffer, turned, target),
        (builder.element, builder.element, builder.result.dtype if parts == 1 else builder.element), tuple(geometry),
        (pieces, s.groups * blocks, parts), total * s.batch * pixels // 8, MR=mr, NV=nv, WIDE=wide,
        PIECES=chosen["pieces"],
    )  # fmt: skip
    if parts > 1:
        builder.sum(target, parts)
