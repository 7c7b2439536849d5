"""Pointwise and random kernels: `flat` where every operand is contiguous or one element, else `rows`, in tiles of
rows by columns of the innermost dimension."""

from __future__ import annotations

from ... import dtypes
from ...backends.protocol import Step
from ...schedules import choose
from .. import Request
from ..pointwise import Operands
from . import Defines, Geometry, index_type, instance, next_power, strided_extent

__all__ = ["step"]

# Functions that need so many registers that a thread should have two elements, not eight.
_HEAVY = frozenset(("digamma", "fmod", "lgamma", "mod", "polygamma", "trigamma"))
_HEAVY_BLOCK = 256
_LEAST_BLOCK = 1024  # of a device whose blocks are larger (the interpreter's), so that small tensors take one program


def step(
    request: Request,
    given: Operands,
    sizes: tuple[int, ...],
    strides: list[tuple[int, ...]],
    element: str,
    *,
    place: tuple[int, ...] | None = None,
    integers: tuple[int, ...] = (),
) -> Step:
    """The launch over collapsed `sizes`, with `strides` of the inputs, then the results.

    place: strides of the element's number in row-major order, for kernels that draw; integers: the call's seeds.
    """
    numel = 1
    for size in sizes:
        numel *= size
    results = len(request.record.outputs)
    walked = strides if place is None else [*strides, place]
    contiguous = [s in ((), (1,)) for s in walked]
    written = contiguous[len(strides) - results :]
    defines: Defines = {name: int(value) for name, value in given.defines}
    for k, (layout, own) in enumerate(zip(given.layouts, strides, strict=True)):
        defines[f"CLASS{k}"] = 3 if layout is None else own[-1] if own and own[-1] in (0, 1) else 2 if own else 0
        defines.setdefault(f"NUMBER{k}", -1)
    values = [m for m, o in zip(given.layouts, request.record.operands, strict=False) if o.type == "value" and m]
    defines["WG_BOOL"] = int(all(m.dtype is dtypes.bool_ for m in values))
    dtype = next(m for m in given.layouts if m is not None).dtype.name
    chosen = choose(request, "pointwise", {"numel": numel}, dtype)
    block = min(chosen["block"] or request.capabilities.block, max(_LEAST_BLOCK, next_power(numel)))
    if chosen["warps"] != 4:  # Triton's own default
        defines["num_warps"] = chosen["warps"]
    if chosen["block"] is None and _HEAVY & set(request.record.texts[request.device.driver.target].functions):
        block = min(block, _HEAVY_BLOCK)
    if len(sizes) <= 1 and all(written) and all(s in ((), (0,), (1,)) for s in strides):
        defines.update(INDEX=index_type([numel]), BLOCK=block)
        made = instance(request, "flat", element, given.slots, defines)
        return Step(made, given.buffers, (numel,), (-(-numel // block),), None, numel, given.numbers, integers)
    if not sizes:
        sizes, walked = (1,), [(0,)] * len(walked)
    columns = min(next_power(sizes[-1]), block)
    rows = numel // sizes[-1]
    # Operands whose neighbours lie in neighbouring rows (transposed ones) are read along those: in square tiles.
    turned = [len(s) > 1 and s[-2] == 1 and s[-1] not in (0, 1) for s in strides[: len(strides) - results]]
    defines.update({f"BESIDE{k}": int(beside) for k, beside in enumerate(turned)})
    if any(turned):
        side = 1 << (block.bit_length() // 2)
        columns = min(columns, max(side, block // next_power(sizes[-2])))
    tall = min(block // columns, next_power(rows))
    across = -(-sizes[-1] // columns)
    defines.update(INDEX=index_type([numel, *(strided_extent(sizes, s) for s in walked)]))
    defines.update(ROWS=tall, COLUMNS=columns, OUTER=len(sizes) - 1)
    geometry: Geometry = (rows, sizes[-1], across, sizes[:-1], *(s[:-1] for s in walked), *(s[-1] for s in walked))
    made = instance(request, "rows", element, given.slots, defines)
    grid = (-(-rows // tall) * across,)
    return Step(made, given.buffers, geometry, grid, None, numel, given.numbers, integers)
