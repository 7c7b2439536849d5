"""Convolution and its two gradients, which are convolutions again: of the incoming gradient with the weight turned
around, and of the input with the incoming gradient.

Schedules. CPU: operands are copied to padded planes (`pad`) and blocks of weights (`pack`), then whole vectors of
pixels are computed for several channels at a time (`direct`); the weight's gradient multiplies planes with planes
(`weight`), in parts of the batch that are summed (`sum`). A stride splits planes by phase, so that every tap is one
constant offset; in the input's gradient it puts zeros between the elements instead. GPU: a work-item an element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from . import Planned, Request, planner
from .pointwise import compute_dtype, elementwise_parts

__all__ = ["Builder", "plan"]

Pair = tuple[int, int]
_TILES = ((8, 3), (6, 4), (4, 4), (3, 4), (2, 4), (1, 4))  # channels, most vectors: what fits 32 registers


@dataclass(frozen=True, slots=True)
class _Sizes:
    """One convolution: `ins` and `outs` are channels a group, `taps` the weight's height and width."""

    batch: int
    groups: int
    ins: int
    outs: int
    size: Pair
    taps: Pair
    out: Pair
    stride: Pair
    padding: Pair
    dilation: Pair


def plan(request: Request) -> Planned:
    """The result's layout and the launches."""
    wanted = {"convolution": _forward, "convolution_input": _input, "convolution_weight": _weight}
    computed = compute_dtype(request)
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: has no form that writes into a given tensor")
    sizes, shape = _bind(request)
    result = meta(computed, shape, None, request.device)
    if not result.numel:
        return Planned((result,))
    if not all(m.numel for _, m in request.tensors):  # the weight's gradient of an empty batch
        return Planned((result,), _zeros(request, result))
    builder = Builder(request, sizes, dtypes.float32 if computed.itemsize == 2 else computed, result)
    if builder.able.style == "gpu":
        builder.grid()
    elif builder.able.style == "triton":
        from .triton.convolution import launch

        launch(builder)
    else:
        wanted[request.record.name](builder)
    return Planned((result,), tuple(builder.steps), tuple(builder.scratch))


def _zeros(request: Request, result: Meta) -> tuple[Step, ...]:
    """The launch that fills the result with zeros: empty operands have no memory that a kernel could be given."""
    inner = Request(registry["zero_like"], (result,), (), request.device, (result,))
    at = len(request.tensors)
    return tuple(replace(s, buffers=(at, at)) for s in planner("pointwise")(inner).steps)


def _pair(request: Request, name: str, least: int) -> Pair:
    value = request.static(name)
    if not isinstance(value, tuple) or len(value) != 2 or any(not isinstance(n, int) or n < least for n in value):
        raise ArgumentError(f"{request.where()}: {name} must be two integers of at least {least}, not {value!r}")
    return value


def _bind(request: Request) -> tuple[_Sizes, tuple[int, ...]]:
    """The sizes of the convolution and the shape of what is asked for. Raises `ShapeError`, `ArgumentError`."""
    where, name = request.where(), request.record.name
    stride, dilation = _pair(request, "stride", 1), _pair(request, "dilation", 1)
    padding, groups = _pair(request, "padding", 0), request.static("groups")
    if not isinstance(groups, int) or groups < 1:
        raise ArgumentError(f"{where}: groups must be a positive integer, not {groups!r}")
    first, second = request.tensors[0][1], request.tensors[1][1]
    if first.ndim != 4 or second.ndim != 4:
        raise ShapeError(f"{where}: both operands need 4 dimensions")
    if name == "convolution":
        outs, ins, *taps = second.shape
        batch, channels, *size = first.shape
        out = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(size, padding, dilation, taps, stride, strict=True)
        ]
        if min(out) < 1:
            reach = [d * (k - 1) + 1 for d, k in zip(dilation, taps, strict=True)]
            padded = [n + 2 * p for n, p in zip(size, padding, strict=True)]
            raise ShapeError(f"{where}: the kernel reaches {reach} pixels, the padded input has {padded}")
        for operand, layout in request.tensors[2:]:
            if layout.shape != (outs,):
                raise ShapeError(f"{where}: {operand.name} must have shape [{outs}]")
        shape: tuple[int, ...] = (batch, outs, *out)
    elif name == "convolution_input":
        outs, ins, *taps = second.shape
        batch, given, *out = first.shape
        size = list(_pair(request, "size", 1))
        channels, shape = ins * groups, (batch, ins * groups, *size)
        if given != outs:
            raise ShapeError(f"{where}: the weight is for {outs} output channels, the gradient has {given}")
    else:
        batch, channels, *size = first.shape
        also, outs, *out = second.shape
        taps = list(_pair(request, "size", 1))
        ins, shape = channels // groups, (outs, channels // groups, *taps)
        if also != batch:
            raise ShapeError(f"{where}: the batches differ: {batch} and {also}")
    if channels != ins * groups or outs % groups:
        raise ShapeError(
            f"{where}: {channels} input channels in {groups} groups do not fit a weight of {ins} inputs "
            f"and {outs} outputs"
        )
    if 0 in (channels, outs, *taps):
        raise ShapeError(f"{where}: sizes of channels and kernel must not be 0")
    made = _Sizes(
        batch,
        groups,
        ins,
        outs // groups,
        (size[0], size[1]),
        (taps[0], taps[1]),
        (out[0], out[1]),
        stride,
        padding,
        dilation,
    )
    return made, shape


@dataclass(frozen=True, slots=True)
class _Planes:
    """Padded copies: buffer, sizes of a phase, the whole plane's size in elements, and the offset of each tap."""

    buffer: int
    columns: int
    plane: int
    offsets: tuple[int, ...]


class Builder:
    """Collects the launches of one call and the scratch they need."""

    def __init__(self, request: Request, sizes: _Sizes, element: DType, result: Meta):
        self.request, self.sizes, self.element, self.result = request, sizes, element, result
        self.able = request.capabilities
        self.layouts = [m for _, m in request.tensors]
        self.lanes = self.able.lanes // (2 if element.itemsize == 8 else 1)
        self.steps: list[Step] = []
        self.scratch: list[int] = []

    def allocate(self, count: int) -> int:
        self.scratch.append(max(count, 1) * self.element.itemsize)
        return len(self.layouts) + len(self.scratch)

    def launch(
        self, entry: str, buffers: tuple[int, ...], types: tuple[DType, ...], geometry: tuple[int, ...],
        size: tuple[int, ...], work: int, **defines: int,
    ) -> None:  # fmt: skip
        element, lanes = self.element.compute, self.lanes if self.able.style == "cpu" else 1
        given = ((f"SCHEDULE_{entry.upper()}", "1"), *((k, str(v)) for k, v in defines.items()))
        if lanes > 1:
            given += (("VU", f"{element}{lanes}_u"),)
        text = self.request.record.texts[self.request.device.driver.target]
        slots = tuple(Slot(t.name) for t in types)
        # Named for the kind, not the op: the three ops share kernels.
        instance = Instance("convolution", text.source, f"convolution_{entry}", element, lanes, slots, given)
        local = (1,) * len(size)
        if self.able.style == "gpu":
            local = (min(128, self.able.max_group),)
            size = (-(-size[0] // local[0]) * local[0],)
        self.steps.append(Step(instance, buffers, pack_longs(geometry), size, local, work))

    # CPU

    def planes(
        self, buffer: int, up: Pair, pad: Pair, phase: Pair, out: Pair, taps: Pair, apart: Pair, columns: int = 0
    ) -> _Planes:
        """Copy an operand to planes from which `out` pixels a plane are read at `taps` points `apart`."""
        layout, lanes = self.layouts[buffer], self.lanes
        rows, wide = (
            -(-((n - 1) * s + d * (k - 1) + 1) // s) for n, s, d, k in zip(out, phase, apart, taps, strict=True)
        )
        columns = max(columns, wide)
        part = rows * columns
        plane = -(-(phase[0] * phase[1] * part + columns + lanes) // lanes) * lanes
        offsets = tuple(
            ((y * apart[0] % phase[0]) * phase[1] + x * apart[1] % phase[1]) * part
            + (y * apart[0] // phase[0]) * columns + x * apart[1] // phase[1]
            for y in range(taps[0]) for x in range(taps[1])
        )  # fmt: skip
        batch, channels, height, width = layout.shape
        made = self.allocate((batch * channels + 1) * plane + 8 * lanes)
        geometry = (channels, height, width, *layout.strides, *up, *pad, *phase, rows, columns, plane)
        plain = int(phase[1] == 1 and up[1] == 1 and layout.strides[3] == 1)
        if batch:
            types = (layout.dtype, self.element)
            self.launch(
                "pad", (buffer, made), types, geometry, (batch * channels,), batch * channels * plane, PLAIN=plain
            )
        return _Planes(made, columns, plane, offsets)

    def tile(self, outs: int, pixels: int) -> Pair:
        """Channels and vectors of one tile: what wastes least and loads least."""
        vectors = -(-pixels // self.lanes)

        def cost(tile: Pair) -> float:
            r, v = tile
            return -(-outs // r) * -(-vectors // v) * (r * v + 0.5 * (r + v) + 1)

        return min(((r, v) for r, most in _TILES for v in range(1, most + 1)), key=cost)

    def direct(
        self, source: int, up: Pair, pad: Pair, phase: Pair, apart: Pair, out: Pair, outs: int, ins: int,
        start: int, strides: tuple[int, int, int, int, int], bias: int | None,
    ) -> None:  # fmt: skip
        """Planes, packed weights, and the product. strides: of the weight along group, output, input, y and x."""
        sizes = self.sizes
        planes = self.planes(source, up, pad, phase, out, sizes.taps, apart)
        rows, vectors = self.tile(outs, out[0] * planes.columns)
        blocks, count = -(-outs // rows), sizes.taps[0] * sizes.taps[1]
        packed = self.allocate(sizes.groups * blocks * ins * count * rows)
        geometry: tuple[int, ...] = (blocks, outs, ins, *sizes.taps, start, *strides)
        self.launch(
            "pack", (1, packed), (self.layouts[1].dtype, self.element), geometry, (sizes.groups * blocks,),
            sizes.groups * blocks * ins * count * rows, MR=rows,
        )  # fmt: skip
        tiles = -(-out[0] * planes.columns // (vectors * self.lanes))
        wanted = -(-4 * self.able.cores // (tiles * sizes.batch * sizes.groups))
        chunk, parts = split(blocks, wanted)
        geometry = (sizes.groups, outs, ins, blocks, chunk, planes.plane, *out, planes.columns, *planes.offsets)
        buffers: tuple[int, ...] = (planes.buffer, packed, len(self.layouts))
        types: tuple[DType, ...] = (self.element, self.element, self.result.dtype)
        if bias is not None:
            buffers = (planes.buffer, packed, bias, len(self.layouts))
            types = (self.element, self.element, self.layouts[bias].dtype, self.result.dtype)
        work = self.result.numel * ins * count // 8
        self.launch(
            "direct", buffers, types, geometry, (tiles, sizes.batch * sizes.groups, parts), work,
            MR=rows, NV=vectors, TAPS=count, BIAS=int(bias is not None),
        )  # fmt: skip

    # GPU

    def grid(self) -> None:
        s = self.sizes
        entry = {"convolution": "forward", "convolution_input": "input", "convolution_weight": "weight"}[
            self.request.record.name
        ]
        geometry = (
            self.result.numel, s.batch, s.groups, s.ins, s.outs, *s.size, *s.out, *s.taps, *s.stride, *s.padding,
            *s.dilation,
            *self.layouts[0].strides, *self.layouts[1].strides,
        )  # fmt: skip
        types = (*(m.dtype for m in self.layouts), self.result.dtype)
        bias = len(self.layouts) - 2
        total = self.result.numel
        self.launch(f"grid_{entry}", tuple(range(len(types))), types, geometry, (total,), total, BIAS=bias)


def _forward(builder: Builder) -> None:
    s, (so, si, sy, sx) = builder.sizes, builder.layouts[1].strides
    bias = 2 if len(builder.layouts) > 2 else None
    strides = (s.outs * so, so, si, sy, sx)
    builder.direct(0, (1, 1), s.padding, s.stride, s.dilation, s.out, s.outs, s.ins, 0, strides, bias)


def _input(builder: Builder) -> None:
    """The gradient's elements `stride` apart, with the weight turned around: inputs and outputs, and both axes."""
    s, (so, si, sy, sx) = builder.sizes, builder.layouts[1].strides
    pad = tuple(d * (k - 1) - p for d, k, p in zip(s.dilation, s.taps, s.padding, strict=True))
    start = (s.taps[0] - 1) * sy + (s.taps[1] - 1) * sx
    strides = (s.outs * so, si, so, -sy, -sx)
    builder.direct(0, s.stride, pad, (1, 1), s.dilation, s.size, s.ins, s.outs, start, strides, None)  # type: ignore[arg-type]


def _weight(builder: Builder) -> None:
    s, able, lanes = builder.sizes, builder.able, builder.lanes
    x = builder.planes(0, (1, 1), s.padding, s.stride, s.out, s.taps, s.dilation)
    g = builder.planes(1, (1, 1), (0, 0), (1, 1), s.out, (1, 1), (1, 1), x.columns)
    count = s.taps[0] * s.taps[1]
    pieces = -(-count // 9)
    taps = -(-count // pieces)
    rows = min(s.outs, max(3, min(8, 27 // taps)))
    blocks, total = -(-s.outs // rows), builder.result.numel
    items = s.ins * pieces * s.groups * blocks
    chunk, parts = split(max(s.batch, 1), -(-4 * able.cores // items))
    whole = parts == 1
    target = len(builder.layouts) if whole else builder.allocate(parts * total)
    pixels = -(-s.out[0] * x.columns // lanes) * lanes
    geometry = (s.batch, chunk, s.groups, s.outs, s.ins, blocks, pieces, x.plane, g.plane, pixels, total, *x.offsets)
    types = (builder.element, builder.element, builder.result.dtype if whole else builder.element)
    builder.launch(
        "weight", (x.buffer, g.buffer, target), types, geometry, (s.ins * pieces, s.groups * blocks, parts),
        total * s.batch * s.out[0] * s.out[1] // 8, MR=rows, TB=taps, TAPS=count,
    )  # fmt: skip
    if not whole:
        share, shares = split(total, elementwise_parts(total * parts, able.cores), lanes)
        builder.launch(
            "sum",
            (target, len(builder.layouts)),
            (builder.element, builder.result.dtype),
            (parts, total, share),
            (shares,),
            total * parts,
        )
