"""Plan pointwise and random ops for Triton.

The kernel `flat` is for operands that are contiguous or a single element. `rows` is for all others: a program takes a
tile of rows by columns of the innermost dimension.
"""

from __future__ import annotations

from ... import dtypes
from ...backends.protocol import Step
from ...schedules import choose
from .. import Request
from ..elementwise import Operands
from . import Defines, Geometry, index_type, instance, limit_block, next_power, strided_extent

__all__ = ["step"]

_MIN_BLOCK = 1024  # for the interpreter, whose blocks are larger: small tensors take one program


def step(
    request: Request,
    operands: Operands,
    sizes: tuple[int, ...],
    strides: list[tuple[int, ...]],
    element: str,
    *,
    position_strides: tuple[int, ...] | None = None,
    integers: tuple[int, ...] = (),
) -> Step:
    """Plan the launch.

    Args:
        sizes: collapsed sizes of the result.
        strides: strides along `sizes` of the inputs, then the results.
        element: compute type, by its OpenCL name.
        position_strides: strides of the element's row-major position, for random ops.
        integers: positions of seed and offset among the call's numbers.
    """
    numel = 1
    for size in sizes:
        numel *= size
    results = len(request.record.outputs)
    all_strides = strides if position_strides is None else [*strides, position_strides]
    is_contiguous = [s in ((), (1,)) for s in all_strides]
    outputs_are_contiguous = is_contiguous[len(strides) - results :]
    defines: Defines = {name: int(value) for name, value in operands.defines}
    for k, (layout, s) in enumerate(zip(operands.layouts, strides, strict=True)):
        defines[f"CLASS{k}"] = 3 if layout is None else s[-1] if s and s[-1] in (0, 1) else 2 if s else 0
        defines.setdefault(f"NUMBER{k}", -1)
    values = [m for m, o in zip(operands.layouts, request.record.operands, strict=False) if o.type == "value" and m]
    defines["WG_BOOL"] = int(all(m.dtype is dtypes.bool_ for m in values))
    dtype = next(m for m in operands.layouts if m is not None).dtype.name
    params = choose(request, "pointwise", {"numel": numel}, dtype)
    block = min(params["block"] or request.capabilities.block, max(_MIN_BLOCK, next_power(numel)))
    if params["warps"] != 4:  # Triton's own default
        defines["num_warps"] = params["warps"]
    if params["block"] is None:
        block = limit_block(block, request.text.functions)
    if len(sizes) <= 1 and all(outputs_are_contiguous) and all(s in ((), (0,), (1,)) for s in strides):
        defines.update(INDEX=index_type([numel]), BLOCK=block)
        kernel = instance(request, "flat", element, operands.slots, defines)
        return Step(kernel, operands.buffers, (numel,), (-(-numel // block),), None, numel, operands.numbers, integers)
    if not sizes:
        sizes, all_strides = (1,), [(0,)] * len(all_strides)
    tile_columns = min(next_power(sizes[-1]), block)
    rows = numel // sizes[-1]
    # A transposed operand is contiguous across rows. Square tiles read it in long enough runs.
    is_transposed = [len(s) > 1 and s[-2] == 1 and s[-1] not in (0, 1) for s in strides[: len(strides) - results]]
    defines.update({f"BESIDE{k}": int(flag) for k, flag in enumerate(is_transposed)})
    if any(is_transposed):
        side = 1 << (block.bit_length() // 2)
        tile_columns = min(tile_columns, max(side, block // next_power(sizes[-2])))
    tile_rows = min(block // tile_columns, next_power(rows))
    tiles_per_row = -(-sizes[-1] // tile_columns)
    defines.update(INDEX=index_type([numel, *(strided_extent(sizes, s) for s in all_strides)]))
    defines.update(ROWS=tile_rows, COLUMNS=tile_columns, OUTER=len(sizes) - 1)
    geometry: Geometry = (
        rows, sizes[-1], tiles_per_row, sizes[:-1], *(s[:-1] for s in all_strides), *(s[-1] for s in all_strides)
    )  # fmt: skip
    kernel = instance(request, "rows", element, operands.slots, defines)
    grid = (-(-rows // tile_rows) * tiles_per_row,)
    return Step(kernel, operands.buffers, geometry, grid, None, numel, operands.numbers, integers)
