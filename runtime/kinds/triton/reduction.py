"""Reductions: `tiles` of results by elements, and where there are too few results to fill the device, `partial` states
of shares of the elements, which `finish` joins. No atomics: the same call gives the same bits."""

from __future__ import annotations

from ...backends.protocol import Slot, Step
from ...device import Meta
from ...layout import split
from .. import Request, slot
from ..reduction import Walk, is_bool, schedule, state_bytes, state_slot
from . import Defines, Geometry, index_type, instance, next_power, strided_extent

__all__ = ["LIGHT", "LIMITS", "steps"]

# Functions of few instructions. Others need registers, so a thread gets 4 elements of a tile at a time instead of 16.
LIGHT = frozenset(
    ("abs", "bitwise_not", "ceil", "div", "floor", "isfinite", "isinf", "isnan", "maximum", "minimum", "neg",
     "reciprocal", "round", "rsqrt", "sign", "signbit", "sqrt", "square", "trunc")
)  # fmt: skip
_LEAST = 4096  # elements that are worth a program of their own
_ROW = 64  # bytes that a warp should read of each line at least
LIMITS: dict[str, tuple[float, float]] = {
    "float": (float("-inf"), float("inf")),
    "double": (float("-inf"), float("inf")),
    "char": (-(2**7), 2**7 - 1),
    "uchar": (0, 2**8 - 1),
    "short": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
}


def steps(
    request: Request, outputs: tuple[Meta, ...], walk: Walk, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """The launch, or the two launches with the bytes of the partial states between them."""
    record, able = request.record, request.capabilities
    inputs = tuple(slot(m, o.type) for o, m in request.tensors)
    given = tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    states = tuple(state_slot(t, element) for t in record.detail["fields"])
    numbers = tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))
    heavy = set(record.texts[request.device.driver.target].functions) - LIGHT
    chosen = schedule(request, walk)
    light = chosen["elements"] * able.block
    tall, wide = _tile(walk, (able.block // 2 if heavy else light) // max(1, len(states) // 2))
    programs = -(-walk.results // tall)
    wanted = chosen["programs"] * able.cores // programs
    run, splits = split(max(walk.count, 1), max(1, min(wanted, tall * walk.count // _LEAST)), wide)
    lowest, highest = (0, 1) if element == "uchar" and is_bool(request) else LIMITS[element]
    extents = [walk.results * max(walk.count, splits)]
    extents += [strided_extent(walk.kept, s) for s in walk.kept_strides]
    extents += [strided_extent(walk.reduced, s) for s in walk.strides]
    defines: Defines = {
        "LOWEST": lowest, "HIGHEST": highest, "KEPT": len(walk.kept), "REDUCED": len(walk.reduced),
        "WG_BOOL": int(is_bool(request)), "INDEX": index_type([sum(extents)]),
    }  # fmt: skip
    if chosen["warps"] != 4:  # Triton's own default
        defines["num_warps"] = chosen["warps"]
    for k in range(len(inputs)):
        defines[f"BESIDE{k}"] = int(walk.kept_strides[k] == (1,))
        defines[f"ALONG{k}"] = int(walk.strides[k] == (1,))
    count = len(inputs) + len(outputs)
    # An empty tensor owns no memory: where nothing is read, a result stands in for it.
    sources = tuple(range(len(inputs))) if walk.count else (len(inputs),) * len(inputs)
    work = walk.results * max(walk.count, 1)

    def step(
        entry: str, slots: tuple[Slot, ...], buffers: tuple[int, ...], geometry: Geometry,
        grid: tuple[int, ...], tile: tuple[int, int],
    ) -> Step:  # fmt: skip
        made = instance(request, entry, element, slots, {**defines, "RESULTS": tile[0], "BLOCK": tile[1]})
        return Step(made, buffers, geometry, grid, None, work, numbers)

    walked: Geometry = (walk.results, walk.count, run, walk.kept, walk.reduced)
    if splits == 1:
        buffers = (*sources, *range(len(inputs), count))
        geometry: Geometry = (*walked, *walk.kept_strides, *walk.strides)
        return (step("tiles", inputs + given, buffers, geometry, (programs,), (tall, wide)),), ()
    partial = tuple(range(count, count + len(states)))
    geometry = (*walked, *walk.kept_strides[: len(inputs)], *walk.strides)
    first = step("partial", inputs + states, (*sources, *partial), geometry, (programs, splits), (tall, wide))
    deep = min(next_power(splits), 256)
    low = min(next_power(walk.results), max(1, 2 * able.block // deep // len(states)))
    geometry = (walk.results, walk.count, splits, walk.kept, *walk.kept_strides[len(inputs) :])
    joined = (*partial, *range(len(inputs), count))
    second = step("finish", states + given, joined, geometry, (-(-walk.results // low),), (low, deep))
    return (first, second), tuple(
        state_bytes(t, element) * splits * walk.results for t in record.detail["fields"]
    )


def _tile(walk: Walk, elements: int) -> tuple[int, int]:
    """How many results, and how many elements of each, a program takes at a time: along memory as far as it goes."""
    beside = walk.kept_strides[walk.main][-1] == 1 and walk.kept[-1] > 1
    if beside and walk.strides[walk.main][-1] != 1:
        tall = min(next_power(walk.kept[-1]), _ROW)
    else:
        tall = 1
    wide = min(next_power(max(walk.count, 1)), max(elements // tall, 1))
    tall = min(max(tall, elements // wide), next_power(walk.results))
    return tall, wide
