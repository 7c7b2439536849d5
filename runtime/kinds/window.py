"""Plan window ops (pooling, unfold, fold) over one to three spatial dimensions (see `codegen.kinds.window`).

Operands are `(N, C, spatial…)` or `(C, spatial…)` with any strides. Columns (unfold, fold) are
`(N, C * window elements, windows)`. Results are contiguous.

The spec field `over` says what an element of the result is computed from: `windows` from the elements of its window
(pooling), `covering` from all windows that cover it (gradients of pooling, fold), `taps` from one element (unfold).

Schedules:

- `rows` (CPU): a work-item takes a run of rows. Where windows lie inside the input and the stride is 1 or 2, it uses
  vectors along the row; at the edges and for other strides it computes one element at a time.
- `grid` (GPU): one work-item per element.

A gradient that sums over all windows around an element is a gather in the order of the windows: no atomics, and the
same call gives the same bits. On a CPU the gradient of max pooling is a scatter instead (the kernel of `spread`), which
adds in the same order.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from . import Planned, Request, index, slot
from .elementwise import compute_dtype, elementwise_parts, result_dtype
from .reduction_states import LIMITS, WIDE, vector_defines
from .window_geometry import Sizes, Windows, choose_schedule

__all__ = ["LAUNCHES", "plan"]

_MIN_LANES = 4  # narrower vectors are not worth it
_MAX_COLUMN_SUMS = 256  # sums of columns in a work-item's private memory


def plan(request: Request) -> Planned:
    """Plan a window op: the layouts of its results, and its launch.

    Raises:
        ArgumentError: if an operand is not a tensor, a static argument is invalid, or the call has `out=`.
        DTypeError: if indices are not integers.
        ShapeError: if shapes do not fit.
    """
    record = request.record
    for operand, layout in zip(record.operands, request.operands, strict=True):
        if not isinstance(layout, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
        if operand.type == "index" and layout.dtype.kind not in "ui":
            raise DTypeError(f"{request.where()}: {operand.name} must hold integers, not {layout.dtype.name}")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    common_dtype = compute_dtype(request)
    windows, shape = _window_geometry(request)
    if (scatter_plan := _plan_scatter(request, shape)) is not None:
        return scatter_plan
    outputs = tuple(meta(result_dtype(o, common_dtype, request), shape, None, request.device) for o in record.outputs)
    if not outputs[0].numel:
        return Planned(outputs)
    element = "uchar" if common_dtype.kind == "b" else common_dtype.compute
    layouts = [m for _, m in request.tensors]
    slots = tuple(slot(m, o.type) for o, m in request.tensors)
    slots += tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    # An empty tensor owns no memory. The kernel does not read it, so pass a result's buffer instead.
    inputs = tuple(range(len(layouts))) if all(m.numel for m in layouts) else (len(layouts),) * len(layouts)
    buffers = (*inputs, *range(len(layouts), len(slots)))
    return Planned(outputs, (LAUNCHES[request.capabilities.style](request, windows, element, slots, buffers),))


def _plan_scatter(request: Request, shape: tuple[int, ...]) -> Planned | None:
    """Plan the gradient of max pooling on a CPU as a scatter into zeros, or return None if that does not apply.

    Each window has the index of the one element that it adds to, so a scatter visits each window once. It adds in the
    order of the windows, like the gather.
    """
    if request.record.detail["gradient"] != "gather" or not request.capabilities.takes_runs:
        return None
    grad, indices = (m for _, m in request.tensors)
    rank = len(request.static("size"))
    flattened = [_flatten_spatial(m, rank) for m in (grad, indices)]
    if grad.dtype.itemsize < 4 or not grad.numel or not prod(shape) or None in flattened:
        return None
    batch_dims = shape[:-rank]
    if prod(batch_dims) < 2 * request.capabilities.cores:  # too few planes to share among the cores
        return None
    scatter_request = Request(
        registry["spread"], tuple(flattened), ((*batch_dims, prod(shape[-rank:])), len(batch_dims)), request.device
    )
    planned = index.plan(scatter_request)
    return replace(planned, outputs=(meta(grad.dtype, shape, None, request.device),))


def _flatten_spatial(layout: Meta, rank: int) -> Meta | None:
    """Return the layout with its last `rank` dimensions merged, or None if their strides do not allow it."""
    sizes, strides = layout.shape[-rank:], layout.strides[-rank:]
    if any(a != b * n for a, b, n in zip(strides, strides[1:], sizes[1:], strict=False)):
        return None
    lead = layout.ndim - rank
    return meta(layout.dtype, (*layout.shape[:lead], prod(sizes)), (*layout.strides[:lead], strides[-1]), layout.device)


# Geometry


def _triple(values: tuple[int, ...], fill: int) -> Sizes:
    """Prepend `fill` until there are three values."""
    first, second, third = (*(fill,) * (3 - len(values)), *values)
    return first, second, third


def _static_sizes(request: Request, name: str, rank: int, default: int, minimum: int) -> tuple[int, ...]:
    """Return the static argument `name`: one integer per spatial dimension, each at least `minimum`."""
    if name not in request.record.statics:
        return (default,) * rank
    value = request.static(name)
    if not isinstance(value, tuple) or len(value) != rank or any(type(n) is not int or n < minimum for n in value):
        raise ArgumentError(f"{request.where()}: {name} must be {rank} integers of at least {minimum}, not {value!r}")
    return value


def _window_geometry(request: Request) -> tuple[Windows, tuple[int, ...]]:
    """Return the call's geometry and the shape of its results. Raise `ShapeError` or `ArgumentError`."""
    layouts = [m for _, m in request.tensors]
    over, first = request.record.detail["over"], layouts[0]
    size_argument = request.static("size")
    rank = len(size_argument) if isinstance(size_argument, tuple) else 0
    has_columns = "columns" in (o.name for o, _ in request.tensors)
    min_ndim = 2 if has_columns else rank + 1
    if not 1 <= rank <= 3 or first.ndim not in (min_ndim, min_ndim + 1) or any(m.shape != first.shape for m in layouts):
        raise ShapeError(f"{request.where()}: needs 1 to 3 spatial dimensions after the channels and an optional batch")
    size = _static_sizes(request, "size", rank, 0, 0)
    adaptive = request.static("kernel") is None
    kernel = (1,) * rank if adaptive else _static_sizes(request, "kernel", rank, 1, 1)
    stride, padding = _static_sizes(request, "stride", rank, 1, 1), _static_sizes(request, "padding", rank, 0, 0)
    dilation = _static_sizes(request, "dilation", rank, 1, 1)
    if has_columns:
        source_size, tap_strides = _column_layout(request, first, size, kernel, stride, padding, dilation)
        image_stride = first.strides[0] if first.ndim > 2 else 0
        window_stride = first.strides[-1]
        spatial = tuple(prod(source_size[d + 1 :]) * window_stride for d in range(rank))
        strides: tuple[tuple[int, ...], ...] = ((image_stride, first.strides[-2] * prod(kernel), *_triple(spatial, 0)),)
    else:
        source_size, tap_strides = first.shape[-rank:], (0,) * rank
        strides = tuple(
            (m.strides[0] if m.ndim > rank + 1 else 0, m.strides[-rank - 1], *_triple(m.strides[-rank:], 0))
            for m in layouts
        )
    channels = first.shape[-2] // prod(kernel) if has_columns else first.shape[-rank - 1]
    batch = first.shape[: first.ndim - min_ndim]
    lead: tuple[int, ...] = (*batch, channels)
    shape, to_columns = (*lead, *size), over == "taps"
    if to_columns:
        shape = (*batch, channels * prod(kernel), prod(size))
    if adaptive:
        kernel, stride, adaptive = _adaptive_kernel(over, size, source_size, kernel)
    counts_padding = bool(request.optional_static("counted", False))
    divisor = request.optional_static("divisor", 0)
    windows = Windows(
        prod(lead) * (prod(kernel) if to_columns else 1), channels, _triple(size, 1), _triple(source_size, 1),
        (1, 1, 1) if to_columns else _triple(kernel, 1), _triple(stride, 1), _triple(padding, 0), _triple(dilation, 1),
        _triple(padding if counts_padding else (0,) * rank, 0), divisor, strides,
        _triple(kernel, 1) if to_columns else _triple(tap_strides, 0), adaptive, over == "covering", has_columns,
    )  # fmt: skip
    return windows, shape


def _adaptive_kernel(
    over: str, size: tuple[int, ...], source_size: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Return kernel size and stride of an adaptive pool, and whether windows differ in size.

    They are equal, and the pool is an ordinary one, if one size is a multiple of the other in every dimension.
    """
    elements, windows = (size, source_size) if over == "covering" else (source_size, size)
    if all(w and e and e % w == 0 for e, w in zip(elements, windows, strict=True)):
        window_size = tuple(e // w for e, w in zip(elements, windows, strict=True))
        return window_size, window_size, False
    return kernel, (1,) * len(kernel), True


def _column_layout(
    request: Request,
    first: Meta,
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the number of windows along each dimension, and the columns' strides along a window's dimensions."""
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


# OpenCL


def _pack_geometry(windows: Windows, chunk: int, first: int, last: int) -> bytes:
    """Pack the kernel's geometry. It computes columns `first` to `last - 1` in vectors."""
    return pack_longs((
        windows.channels, windows.planes * windows.output_size[0] * windows.output_size[1], chunk,
        *windows.output_size, *windows.source_size, *windows.kernel, *windows.stride, *windows.padding,
        *windows.dilation, *windows.counted_padding, windows.divisor, first, last,
        *(s for row in windows.strides for s in row), *windows.taps,
    ))  # fmt: skip


def _opencl_step(
    request: Request,
    windows: Windows,
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
    """Build the launch of the kernel `entry`."""
    name = request.record.name
    text = request.text
    lowest, highest = LIMITS[element]
    max_count = max(
        abs(windows.divisor), prod(i + 2 * p for i, p in zip(windows.source_size, windows.padding, strict=True))
    )
    max_position = max(
        max(o, i) * s + k * d + 2 * p + max(o, i)
        for o, i, k, s, p, d in zip(
            windows.output_size, windows.source_size, windows.kernel, windows.stride, windows.padding, windows.dilation,
            strict=True,
        )
    )  # fmt: skip
    all_defines = (
        (f"SCHEDULE_{entry.upper()}", "1"), ("AXIS", "int" if max_position < 2**31 else "long"),
        ("COUNT", "int" if max_count < 2**31 else "long"),  # converting a long to float may be a function call
        ("ADAPTIVE", str(int(windows.adaptive))), ("DILATED", str(int(windows.is_dilated))),
        ("TAPPED", str(int(windows.from_columns))), ("LOWEST", lowest), ("HIGHEST", highest), *defines,
    )  # fmt: skip
    instance = Instance(name, text.source, f"{name}_{entry}", element, lanes, slots, all_defines, text.functions)
    return Step(instance, buffers, geometry, (size,), (local,), _element_count(windows))


def _element_count(windows: Windows) -> int:
    """Return the number of elements of the result or of the input, whichever is larger: the work of a `Step`."""
    return max(windows.numel, windows.planes * prod(windows.source_size))


def _plan_grid(
    request: Request, windows: Windows, element: str, slots: tuple[Slot, ...], buffers: tuple[int, ...]
) -> Step:
    """Plan the launch of `grid`, with a work-item for each element of the result."""
    local = min(choose_schedule(request, windows, slots)["group"], request.capabilities.max_group)
    size = -(-windows.numel // local) * local
    return _opencl_step(
        request, windows, element, slots, buffers, "grid", 1, _pack_geometry(windows, 0, 0, 0), size, local
    )


def _plan_rows(
    request: Request, windows: Windows, element: str, slots: tuple[Slot, ...], buffers: tuple[int, ...]
) -> Step:
    """Plan the launch of `rows`, with a work-item for a run of rows."""
    rows = windows.planes * windows.output_size[0] * windows.output_size[1]
    chunk, items = split(rows, elementwise_parts(_element_count(windows), request.capabilities.cores))
    first, last = _vector_range(request, windows)
    lanes = _lanes(request, windows, element, last - first)
    column_lanes = _column_sum_lanes(request, windows, element) if lanes == 1 else 1
    if column_lanes > 1:
        defines = (
            *vector_defines(column_lanes), ("STEP", "1"), ("CLASS0", "1"), ("DOWN", str(_MAX_COLUMN_SUMS)),
            ("VU", f"{element}{column_lanes}_u"),
        )  # fmt: skip
        geometry = _pack_geometry(windows, chunk, 0, 0)
        return _opencl_step(
            request, windows, element, slots, buffers, "rows", column_lanes, geometry, items, 1, defines
        )
    if lanes == 1:
        return _opencl_step(
            request, windows, element, slots, buffers, "rows", 1, _pack_geometry(windows, chunk, 0, 0), items, 1
        )
    defines = (
        *vector_defines(lanes), ("STEP", str(windows.stride[2])),
        *(_shuffle_orders(lanes) if windows.stride[2] == 2 else ()),
        *((f"CLASS{k}", str(s[4])) for k, s in enumerate(windows.strides)),
    )  # fmt: skip
    geometry = _pack_geometry(windows, chunk, first, last)
    return _opencl_step(request, windows, element, slots, buffers, "rows", lanes, geometry, items, 1, defines)


def _column_sum_lanes(request: Request, windows: Windows, element: str) -> int:
    """Return the vector width for sums that first add the rows of a window column by column; 1 if that does not pay."""
    rows = (
        prod(windows.source_size[:2]) // max(prod(windows.output_size[:2]), 1)
        if windows.adaptive
        else prod(windows.kernel[:2])
    )
    has_gaps_across = not windows.adaptive and (windows.kernel[2] < windows.stride[2] or windows.dilation[2] > 1)
    if not request.record.detail["summed"] or rows < 2 or has_gaps_across or windows.strides[0][4] != 1:
        return 1
    lanes = request.capabilities.lanes // (2 if element in ("double", "long") else 1)
    while lanes > windows.source_size[2]:
        lanes //= 2
    return lanes if lanes >= _MIN_LANES else 1


def _shuffle_orders(lanes: int) -> list[tuple[str, str]]:
    """Return the shuffles for stride 2, of two overlapping vectors: every other element, and both interleaved."""
    pairs = [i // 2 + i % 2 * lanes for i in range(2 * lanes)]
    evens = [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)]
    orders = {"EVENS": evens, "LOWS": pairs[:lanes], "HIGHS": pairs[lanes:]}
    return [(k, ", ".join(map(str, v))) for k, v in orders.items()]


def _lanes(request: Request, windows: Windows, element: str, columns: int) -> int:
    """Return the vector width for `columns` columns; 1 if the geometry does not allow vectors."""
    lanes = request.capabilities.lanes // (2 if element in ("double", "long") else 1)
    if windows.adaptive or windows.stride[2] > 2 or any(s[4] not in (0, 1) for s in windows.strides):
        return 1
    has_index = request.record.detail["has_index"]
    if windows.covering and windows.stride[2] == 2 and windows.dilation[2] > 1 and windows.kernel[2] > 1:
        return 1
    if has_index and (element not in WIDE or max(prod(windows.source_size), prod(windows.output_size)) >= 2**31):
        return 1
    while lanes > columns:
        lanes //= 2
    return lanes if lanes >= _MIN_LANES else 1


def _vector_range(request: Request, windows: Windows) -> tuple[int, int]:
    """Return the range of columns to compute in vectors: those whose windows lie inside the input.

    With `covering`, those for which every window that covers the element exists.
    """
    over, reads_count = request.record.detail["over"], request.record.detail["reads_count"]
    (kernel, stride, padding, dilation, counted_padding) = (
        v[2] for v in (windows.kernel, windows.stride, windows.padding, windows.dilation, windows.counted_padding)
    )
    reach = (kernel - 1) * dilation
    if over == "taps":  # the kernel checks the bounds of every element
        return 0, windows.output_size[2]
    if over == "windows":
        return -(-padding // stride), min(
            (windows.source_size[2] - 1 - reach + padding) // stride + 1, windows.output_size[2]
        )
    first, last = 0, windows.source_size[2]
    if reads_count and not windows.divisor:  # only windows with all counted elements: they share one divisor
        first = -(-(padding - counted_padding) // stride)
        last = min(last, (windows.output_size[2] + counted_padding - 1 - reach + padding) // stride + 1)
    return max(-(-padding // stride), first + reach // stride), min((windows.output_size[2] + padding) // stride, last)


def _plan_triton(
    request: Request, windows: Windows, element: str, slots: tuple[Slot, ...], buffers: tuple[int, ...]
) -> Step:
    """Plan the launch for Triton."""
    from .triton.window import step  # lazy: Triton devices only

    return step(request, windows, element, slots, buffers)


LAUNCHES = ByStyle("windows", cpu=_plan_rows, gpu=_plan_grid, triton=_plan_triton)
