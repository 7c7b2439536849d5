"""Window ops: results from the elements of windows over one to three spatial dimensions (see `codegen.kinds.window`).

Operands are (N, C, spatial…) or (C, spatial…), at any strides; columns are (N, C * elements of a window, windows).
Results are contiguous. Schedules: `rows` (CPU: a work-item a run of rows; vectors of columns where windows are whole,
for strides 1 and 2, an element at a time at the edges and elsewhere) and `grid` (GPU: an element a work-item). A sum
over the windows that an element is in is gathered, in the windows' order: no atomics, and the same bits every time.
On a CPU the gradient of a maximum is written where it goes instead, by the kernel of `spread`, in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import cast

from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from ..schedules import Choice, choose
from . import Planned, Request, planner, slot
from .pointwise import compute_dtype, elementwise_parts, result_dtype
from .reduction import LIMITS, WIDE, vector_defines

__all__ = ["Walk", "chosen", "plan"]

Sizes = tuple[int, int, int]
_LEAST_LANES = 4
_COLUMNS = 256  # sums of columns that a work-item keeps


@dataclass(frozen=True, slots=True)
class Walk:
    """One call, in three spatial dimensions.

    planes, channels: of the result, and of an image. cells, source: sizes of the result and of what is read.
    beyond: padding that counts as elements. strides: of each input along image, channel and the spatial dimensions.
    taps: under `taps`, the sizes of a window; of columns, their strides along a window's dimensions.
    """

    planes: int
    channels: int
    cells: Sizes
    source: Sizes
    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    beyond: Sizes
    divisor: int
    strides: tuple[tuple[int, ...], ...]
    taps: Sizes
    adaptive: bool
    covering: bool
    tapped: bool

    @property
    def numel(self) -> int:
        return self.planes * prod(self.cells)

    @property
    def dilated(self) -> bool:
        """Whether a window has not every element that it reaches past."""
        return any(d > 1 and k > 1 for d, k in zip(self.dilation, self.kernel, strict=True))


def plan(request: Request) -> Planned:
    """Results' layouts and the launch of a window op."""
    record = request.record
    for operand, given in zip(record.operands, request.operands, strict=True):
        if not isinstance(given, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
        if operand.type == "index" and given.dtype.kind not in "ui":
            raise DTypeError(f"{request.where()}: {operand.name} must hold integers, not {given.dtype.name}")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: has no form that writes into a given tensor")
    computed = compute_dtype(request)
    walk, shape = _walk(request)
    if (placed := _placed(request, shape)) is not None:
        return placed
    outputs = tuple(meta(result_dtype(o, computed, request), shape, None, request.device) for o in record.outputs)
    if not outputs[0].numel:
        return Planned(outputs)
    element = "uchar" if computed.kind == "b" else computed.compute
    layouts = [m for _, m in request.tensors]
    slots = tuple(slot(m, o.type) for o, m in request.tensors)
    slots += tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    # An empty tensor owns no memory: where nothing is read, a result stands in for it.
    inputs = tuple(range(len(layouts))) if all(m.numel for m in layouts) else (len(layouts),) * len(layouts)
    buffers = (*inputs, *range(len(layouts), len(slots)))
    if request.capabilities.style == "triton":
        from .triton.window import step

        return Planned(outputs, (step(request, walk, element, slots, buffers),))
    made = (_grid if request.capabilities.style == "gpu" else _rows)(request, walk, element, slots, buffers)
    return Planned(outputs, (made,))


def _placed(request: Request, shape: tuple[int, ...]) -> Planned | None:
    """On CPUs, where each window names the one element that it adds to: the indices' writes to planes of zeros, in the
    windows' order as well, which look at each window once."""
    if request.record.detail["gradient"] != "gather" or request.capabilities.style != "cpu":
        return None
    grad, indices = (m for _, m in request.tensors)
    rank = len(cast(tuple[int, ...], request.static("size")))
    flat = [_flat(m, rank) for m in (grad, indices)]
    if grad.dtype.itemsize < 4 or not grad.numel or not prod(shape) or None in flat:
        return None
    lead = shape[:-rank]
    if prod(lead) < 2 * request.capabilities.cores:  # planes are what work-items share
        return None
    inner = Request(registry["spread"], tuple(flat), ((*lead, prod(shape[-rank:])), len(lead)), request.device)
    made = planner("index")(inner)
    return replace(made, outputs=(meta(grad.dtype, shape, None, request.device),))


def _flat(layout: Meta, rank: int) -> Meta | None:
    """The layout with its last `rank` dimensions as one, where they lie like one."""
    sizes, strides = layout.shape[-rank:], layout.strides[-rank:]
    if any(a != b * n for a, b, n in zip(strides, strides[1:], sizes[1:], strict=False)):
        return None
    lead = layout.ndim - rank
    return meta(
        layout.dtype, (*layout.shape[:lead], prod(sizes)), (*layout.strides[:lead], strides[-1]), layout.device
    )


# Geometry


def _three(values: tuple[int, ...], fill: int) -> Sizes:
    return cast(Sizes, (fill,) * (3 - len(values)) + values)


def _static(request: Request, name: str, rank: int, default: int, least: int) -> tuple[int, ...]:
    """A static argument, one integer a spatial dimension."""
    if name not in request.record.statics:
        return (default,) * rank
    value = request.static(name)
    if not isinstance(value, tuple) or len(value) != rank or any(type(n) is not int or n < least for n in value):
        raise ArgumentError(f"{request.where()}: {name} must be {rank} integers of at least {least}, not {value!r}")
    return value


def _walk(request: Request) -> tuple[Walk, tuple[int, ...]]:
    """What there is to do, and the shape of the results. Raises `ShapeError`, `ArgumentError`."""
    detail, layouts = request.record.detail, [m for _, m in request.tensors]
    over, first = detail["over"], layouts[0]
    given = request.static("size")
    rank = len(given) if isinstance(given, tuple) else 0
    columns = "columns" in (o.name for o, _ in request.tensors)
    least = 2 if columns else rank + 1
    if not 1 <= rank <= 3 or first.ndim not in (least, least + 1) or any(m.shape != first.shape for m in layouts):
        raise ShapeError(f"{request.where()}: 1 to 3 spatial dimensions, behind channels and perhaps a batch")
    size = _static(request, "size", rank, 0, 0)
    adaptive = request.static("kernel") is None
    kernel = (1,) * rank if adaptive else _static(request, "kernel", rank, 1, 1)
    stride, padding = _static(request, "stride", rank, 1, 1), _static(request, "padding", rank, 0, 0)
    dilation = _static(request, "dilation", rank, 1, 1)
    if columns:
        whole, tapped = _columns(request, first, size, kernel, stride, padding, dilation)
        image = first.strides[0] if first.ndim > 2 else 0
        area = first.strides[-1]
        spatial = tuple(prod(whole[d + 1 :]) * area for d in range(rank))
        strides: tuple[tuple[int, ...], ...] = ((image, first.strides[-2] * prod(kernel), *_three(spatial, 0)),)
    else:
        whole, tapped = first.shape[-rank:], (0,) * rank
        strides = tuple(
            (m.strides[0] if m.ndim > rank + 1 else 0, m.strides[-rank - 1], *_three(m.strides[-rank:], 0))
            for m in layouts
        )
    channels = first.shape[-2] // prod(kernel) if columns else first.shape[-rank - 1]
    batch = first.shape[: first.ndim - least]
    lead: tuple[int, ...] = (*batch, channels)
    shape = (*lead, *size)
    if over == "taps":
        shape = (*batch, channels * prod(kernel), prod(size))
    if adaptive:
        kernel, stride, adaptive = _fitting(over, size, whole, kernel)
    counted = bool(request.static("counted")) if "counted" in request.record.statics else False
    divisor = request.static("divisor") if "divisor" in request.record.statics else 0
    taps = over == "taps"
    walk = Walk(
        prod(lead) * (prod(kernel) if taps else 1), channels, _three(size, 1), _three(whole, 1),
        (1, 1, 1) if taps else _three(kernel, 1), _three(stride, 1), _three(padding, 0), _three(dilation, 1),
        _three(padding if counted else (0,) * rank, 0), cast(int, divisor), strides,
        _three(kernel, 1) if taps else _three(tapped, 0), adaptive, over == "covering", columns,
    )  # fmt: skip
    return walk, shape


def _fitting(
    over: str, size: tuple[int, ...], whole: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Kernel and stride of an adaptive pool, and whether its windows differ: they do not where sizes divide."""
    elements, windows = (size, whole) if over == "covering" else (whole, size)
    if all(w and e and e % w == 0 for e, w in zip(elements, windows, strict=True)):
        each = tuple(e // w for e, w in zip(elements, windows, strict=True))
        return each, each, False
    return kernel, (1,) * len(kernel), True


def _columns(
    request: Request,
    first: Meta,
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many windows there are along each dimension, and the columns' strides along a window's dimensions."""
    windows = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )
    if first.shape[-2] % prod(kernel) or any(n < 0 for n in windows) or first.shape[-1] != prod(windows):
        raise ShapeError(
            f"{request.where()}: for {list(size)} there are {list(windows)} windows of {list(kernel)} elements: columns"
            f" need a multiple of {prod(kernel)} rows, and {prod(windows)} columns"
        )
    return windows, tuple(prod(kernel[d + 1 :]) * first.strides[-2] for d in range(len(kernel)))


def chosen(request: Request, walk: Walk, slots: tuple[Slot, ...]) -> Choice:
    """The schedule where a work-item or a program takes elements, whatever they are made from."""
    return choose(request, "window", {"numel": walk.numel, "taps": prod(walk.kernel)}, slots[0].dtype)


# OpenCL


def _pack(walk: Walk, chunk: int, first: int, last: int) -> bytes:
    return pack_longs((
        walk.channels, walk.planes * walk.cells[0] * walk.cells[1], chunk, *walk.cells, *walk.source, *walk.kernel,
        *walk.stride, *walk.padding, *walk.dilation, *walk.beyond, walk.divisor, first, last,
        *(s for own in walk.strides for s in own), *walk.taps,
    ))  # fmt: skip


def _step(
    request: Request,
    walk: Walk,
    element: str,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    entry: str,
    lanes: int,
    geometry: bytes,
    size: int,
    local: int,
    defines: tuple[tuple[str, str], ...] = (),
) -> Step:
    name = request.record.name
    text = request.record.texts[request.device.driver.target]
    lowest, highest = LIMITS[element]
    most = max(abs(walk.divisor), prod(o + 2 * p for o, p in zip(walk.source, walk.padding, strict=True)))
    reach = max(
        max(c, o) * s + k * d + 2 * p + max(c, o)
        for c, o, k, s, p, d in zip(
            walk.cells, walk.source, walk.kernel, walk.stride, walk.padding, walk.dilation, strict=True
        )
    )
    every = (
        (f"SCHEDULE_{entry.upper()}", "1"), ("AXIS", "int" if reach < 2**31 else "long"),
        ("COUNT", "int" if most < 2**31 else "long"),  # compilers may call a function to convert a long
        ("ADAPTIVE", str(int(walk.adaptive))), ("DILATED", str(int(walk.dilated))), ("TAPPED", str(int(walk.tapped))),
        ("LOWEST", lowest), ("HIGHEST", highest), *defines,
    )  # fmt: skip
    instance = Instance(name, text.source, f"{name}_{entry}", element, lanes, slots, every, text.functions)
    return Step(instance, buffers, geometry, (size,), (local,), _work(walk))


def _work(walk: Walk) -> int:
    return max(walk.numel, walk.planes * prod(walk.source))


def _grid(
    request: Request, walk: Walk, element: str, slots: tuple[Slot, ...], buffers: tuple[int, ...]
) -> Step:
    local = min(chosen(request, walk, slots)["group"], request.capabilities.max_group)
    size = -(-walk.numel // local) * local
    return _step(request, walk, element, slots, buffers, "grid", 1, _pack(walk, 0, 0, 0), size, local)


def _rows(
    request: Request, walk: Walk, element: str, slots: tuple[Slot, ...], buffers: tuple[int, ...]
) -> Step:
    rows = walk.planes * walk.cells[0] * walk.cells[1]
    chunk, items = split(rows, elementwise_parts(_work(walk), request.capabilities.cores))
    first, last = _whole(request, walk)
    lanes = _lanes(request, walk, element, last - first)
    down = _down(request, walk, element) if lanes == 1 else 1
    if down > 1:
        defines = (
            *vector_defines(down), ("STEP", "1"), ("CLASS0", "1"), ("DOWN", str(_COLUMNS)), ("VU", f"{element}{down}_u")
        )  # fmt: skip
        return _step(request, walk, element, slots, buffers, "rows", down, _pack(walk, chunk, 0, 0), items, 1, defines)
    if lanes == 1:
        return _step(request, walk, element, slots, buffers, "rows", 1, _pack(walk, chunk, 0, 0), items, 1)
    defines = (
        *vector_defines(lanes), ("STEP", str(walk.stride[2])), *(_orders(lanes) if walk.stride[2] == 2 else ()),
        *((f"CLASS{k}", str(own[4])) for k, own in enumerate(walk.strides)),
    )  # fmt: skip
    geometry = _pack(walk, chunk, first, last)
    return _step(request, walk, element, slots, buffers, "rows", lanes, geometry, items, 1, defines)


def _down(request: Request, walk: Walk, element: str) -> int:
    """The width of vectors in which sums are made down the columns of windows first; 1 where that is no use."""
    rows = prod(walk.source[:2]) // max(prod(walk.cells[:2]), 1) if walk.adaptive else prod(walk.kernel[:2])
    apart = not walk.adaptive and (walk.kernel[2] < walk.stride[2] or walk.dilation[2] > 1)
    if not request.record.detail["summed"] or rows < 2 or apart or walk.strides[0][4] != 1:
        return 1
    lanes = request.capabilities.lanes // (2 if element in ("double", "long") else 1)
    while lanes > walk.source[2]:
        lanes //= 2
    return lanes if lanes >= _LEAST_LANES else 1


def _orders(lanes: int) -> list[tuple[str, str]]:
    """Orders of two vectors: every other element of what they overlap in by one, and both zipped."""
    pairs = [i // 2 + i % 2 * lanes for i in range(2 * lanes)]
    evens = [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)]
    orders = {"EVENS": evens, "LOWS": pairs[:lanes], "HIGHS": pairs[lanes:]}
    return [(k, ", ".join(map(str, v))) for k, v in orders.items()]


def _lanes(request: Request, walk: Walk, element: str, columns: int) -> int:
    """The width of vectors; 1 where they are no use."""
    lanes = request.capabilities.lanes // (2 if element in ("double", "long") else 1)
    if walk.adaptive or walk.stride[2] > 2 or any(own[4] not in (0, 1) for own in walk.strides):
        return 1
    indexed = request.record.detail["indexed"]
    if walk.covering and walk.stride[2] == 2 and walk.dilation[2] > 1 and walk.kernel[2] > 1:
        return 1
    if indexed and (element not in WIDE or max(prod(walk.source), prod(walk.cells)) >= 2**31):
        return 1
    while lanes > columns:
        lanes //= 2
    return lanes if lanes >= _LEAST_LANES else 1


def _whole(request: Request, walk: Walk) -> tuple[int, int]:
    """Where vectors go: windows that lie inside; under `covering` those of which all that reach elements do."""
    over, sized = request.record.detail["over"], request.record.detail["sized"]
    (kernel, stride, padding, dilation, beyond) = (
        v[2] for v in (walk.kernel, walk.stride, walk.padding, walk.dilation, walk.beyond)
    )
    reach = (kernel - 1) * dilation
    if over == "taps":  # the kernel looks at every tap
        return 0, walk.cells[2]
    if over == "windows":
        return -(-padding // stride), min((walk.source[2] - 1 - reach + padding) // stride + 1, walk.cells[2])
    first, last = 0, walk.source[2]
    if sized and not walk.divisor:  # windows that count as many elements as they have
        first = -(-(padding - beyond) // stride)
        last = min(last, (walk.cells[2] + beyond - 1 - reach + padding) // stride + 1)
    return max(-(-padding // stride), first + reach // stride), min((walk.cells[2] + padding) // stride, last)
