"""A convolution's schedules on CPUs: operands are copied to padded planes (`pad`) and blocks of weights (`pack`), then
whole vectors of pixels are computed for several channels at a time (`direct`); the weight's gradient multiplies planes
with planes (`weight`), in parts of the batch that are summed (`sum`). How planes lie, and what phases and classes are,
is said in templates/opencl/convolution.cl.j2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from .. import dtypes
from ..dtypes import DType
from ..layout import split
from .convolution import Builder, Triple

__all__ = ["launch"]

_TILES = ((8, 3), (6, 4), (4, 4), (3, 4), (2, 4), (1, 4))  # channels, most vectors: what fits 32 registers
_SUMS = ((3, 9), (4, 6), (6, 4), (2, 9), (2, 12), (1, 9), (1, 16))  # outputs, pairs of input and tap
_ROWS = (False, False, True)
_HEADER = 5  # numbers of a class before its taps' places


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one dimension of an image is laid out in planes, and read.

    phases, step, apart, pad: place q of phase f has element q * step + f * apart % step - pad. extent: places of a
    phase that are kept. taps, period: tap k is in phase k % period, k * apart // step places on.
    """

    phases: int
    step: int
    apart: int
    pad: int
    extent: int
    period: int


def launch(builder: Builder) -> None:
    """Add the launches of one convolution to `builder`."""
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
    return _Axis(phases, stride, apart, pad, max(out, extent - shared * row), period)


def _spread(size: int, out: int, taps: int, stride: int, pad: int, apart: int, row: bool) -> tuple[_Axis, int, int]:
    """A gradient from which an input `size` long reads in classes; also how many there are, and taps of one at most."""
    period = stride // gcd(stride, apart)
    lowest, highest, most = [], [], 0
    for first in range(min(stride, size)):
        taken = [k for k in range(taps) if (first + pad - k * apart) % stride == 0]
        if taken:
            most = max(most, len(taken))
            lowest.append((first + pad - taken[-1] * apart) // stride)
            highest.append((first + pad - taken[0] * apart) // stride + (size - first - 1) // stride)
    lead = -min(lowest, default=0)
    end = lead + max(highest, default=0) + 1
    count = -(-size // stride)
    shared = max(0, min(lead, end - (lead + out)))
    return _Axis(1, 1, 0, lead, max(count, end - shared * row), period), min(stride, size), most


@dataclass(frozen=True, slots=True)
class _Planes:
    """Padded copies: buffer, elements of a plane, and between neighbours and phases along each dimension."""

    buffer: int
    plane: int
    at: Triple
    phase_at: Triple


def _planes(builder: Builder, operand: int, axes: tuple[_Axis, ...]) -> _Planes:
    layout, lanes = builder.layouts[operand], builder.lanes
    depth, rows, columns = (a.extent for a in axes)
    part = depth * rows * columns
    plane = part * axes[0].phases * axes[1].phases * axes[2].phases
    plane = -(-(plane + columns + lanes) // lanes) * lanes
    batch, channels = layout.shape[:2]
    first, second, space = builder.strides(operand)
    size = (1,) * (5 - layout.ndim) + layout.shape[2:]
    made = builder.allocate((batch * channels + 1) * plane + 8 * lanes)
    geometry: list[int] = [channels, *size, first, second, *space]
    for values in zip(*((a.phases, a.step, a.apart, a.pad, a.extent) for a in axes), strict=True):
        geometry += values
    near, far = space[2] * axes[2].step == 1, space[2] == 1 and axes[2].step == 2 and lanes > 1
    builder.launch(
        "pad", (operand, made), (layout.dtype, builder.element), (*geometry, plane), (batch * channels,),
        batch * channels * plane, ROWS=1 if near else 2 if far else 0,
    )  # fmt: skip
    phase_at = (part * axes[2].phases * axes[1].phases, part * axes[2].phases, part)
    return _Planes(made, plane, (rows * columns, columns, 1), phase_at)


def _forward(builder: Builder) -> None:
    s = builder.sizes
    axes = tuple(
        _read(*each) for each in zip(s.size, s.out, s.taps, s.stride, s.padding, s.dilation, _ROWS, strict=True)
    )
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
    _direct(builder, axes, s.ins, s.outs, s.size, most[0] * most[1] * most[2], geometry, classes)


def _direct(
    builder: Builder, axes: tuple[_Axis, ...], outs: int, ins: int, out: Triple, most: int,
    strides: tuple[int, ...], classes: Triple,
) -> None:  # fmt: skip
    """Planes, packed weights, and the product. strides: of the weight along group, output, input and space."""
    s, able = builder.sizes, builder.able
    spread = builder.kind == "input"
    planes = _planes(builder, 0, axes)
    largest = [-(-n // c) for n, c in zip(out, classes, strict=True)]
    columns, rows = axes[2].extent, axes[1].extent
    pixels = ((largest[0] - 1) * rows + largest[1]) * columns
    mr, nv = _tile(outs, pixels, builder.lanes)
    blocks, count = -(-outs // mr), classes[0] * classes[1] * classes[2]
    packed = builder.allocate(count * s.groups * blocks * ins * most * mr)
    table = builder.allocate(count * (_HEADER + most), 8)
    area = (out[1] * out[2], out[2], 1)
    to = tuple(a * c for a, c in zip(area, classes, strict=True))
    geometry: list[int] = [outs, ins, most, *strides, *s.taps, *(a.period for a in axes)]
    geometry += [*s.stride, *s.dilation, *planes.at, *planes.phase_at, *s.padding, *(a.pad for a in axes)]
    builder.launch(
        "pack", (1, packed, table), (builder.layouts[1].dtype, builder.element, dtypes.int64),
        (*geometry, *out, *classes, *area), (blocks, s.groups, count),
        s.groups * blocks * ins * s.count * mr, MR=mr, CLASSES=int(spread),
    )  # fmt: skip
    tiles = -(-pixels // (nv * builder.lanes))
    wanted = -(-4 * able.cores // (tiles * s.batch * s.groups * count))
    chunk, chunks = split(blocks, wanted)
    geometry = [s.groups, outs, ins, blocks, chunk, chunks, planes.plane, rows, columns, most]
    buffers: tuple[int, ...] = (planes.buffer, packed, table)
    types: tuple[DType, ...] = (builder.element, builder.element, dtypes.int64)
    if builder.bias is not None:
        buffers, types = (*buffers, builder.bias), (*types, builder.layouts[builder.bias].dtype)
    builder.launch(
        "direct", (*buffers, builder.target), (*types, builder.result.dtype),
        (*geometry, out[0] * out[1] * out[2], *to), (tiles, s.batch * s.groups, chunks * count),
        builder.result.numel * ins * most // 8, MR=mr, NV=nv, BIAS=int(builder.bias is not None),
        APART=int(to[2] != 1),
    )  # fmt: skip


def _tile(outs: int, pixels: int, lanes: int) -> tuple[int, int]:
    """Channels and vectors of one tile: what wastes least and loads least."""
    vectors = -(-pixels // lanes)

    def cost(tile: tuple[int, int]) -> float:
        r, v = tile
        return -(-outs // r) * -(-vectors // v) * (r * v + 0.5 * (r + v) + 1)

    return min(((r, v) for r, most in _TILES for v in range(1, most + 1)), key=cost)


def _weight(builder: Builder) -> None:
    s, able, lanes = builder.sizes, builder.able, builder.lanes
    axes = tuple(
        _read(*each) for each in zip(s.size, s.out, s.taps, s.stride, s.padding, s.dilation, _ROWS, strict=True)
    )
    x = _planes(builder, 0, axes)
    # The gradient with as many columns and rows, so that what lies between its rows is zeros.
    extents = (s.out[0], axes[1].extent, axes[2].extent)
    g = _planes(builder, 1, tuple(_Axis(1, 1, 0, 0, extent, 1) for extent in extents))
    pairs = s.ins * s.count

    def cost(tile: tuple[int, int]) -> float:
        r, t = tile
        return -(-s.outs // r) * -(-pairs // t) * (r * t + 0.5 * (r + t) + 1)

    mr, tb = min(_SUMS, key=cost)
    blocks, pieces, total = -(-s.outs // mr), -(-pairs // tb), builder.result.numel
    chunk, parts = split(s.batch, -(-4 * able.cores // (pieces * s.groups * blocks)))
    whole = parts == 1
    target = builder.target if whole else builder.allocate(parts * total)
    pixels = ((s.out[0] - 1) * extents[1] + s.out[1]) * extents[2]
    geometry = [s.batch, chunk, s.groups, s.outs, s.ins, blocks, x.plane, g.plane, -(-pixels // lanes) * lanes, total]
    geometry += [*s.taps, *(a.period for a in axes), *s.stride, *s.dilation, *x.at, *x.phase_at]
    builder.launch(
        "weight", (x.buffer, g.buffer, target),
        (builder.element, builder.element, builder.result.dtype if whole else builder.element), tuple(geometry),
        (pieces, s.groups * blocks, parts), total * s.batch * s.out[0] * s.out[1] * s.out[2] // 8, MR=mr, TB=tb,
    )  # fmt: skip
    if not whole:
        builder.sum(target, parts)
