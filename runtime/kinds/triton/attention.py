"""Plan attention for Triton: a program computes a block of one side's positions, and iterates over the other side's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...backends.protocol import Instance, Step
from ...precision import input_precision
from . import Defines, Geometry, index_type, next_power, strided_extent

if TYPE_CHECKING:
    from ..attention import Builder

__all__ = ["launch"]

_MIN_SIDE = 16  # smallest side of a tensor core's tile
# Maximal features: for forward, query and key_value, a program's positions, those of a block of the other side, and
# warps. No kernel spills registers on any target, except 16 bytes on sm_80 for 256 features with a mask, and 24 on
# sm_100 for the gradients of 128 features with a causal mask.
_HALF = {
    64: ((128, 64, 8), (64, 64, 4), (64, 32, 4)), 128: ((128, 64, 8), (128, 64, 8), (128, 32, 8)),
    256: ((64, 32, 8), (32, 32, 8), (32, 32, 8)),
}  # fmt: skip
# Before sm_90, operands of products are in registers; sm_100 has fewer for the gradients of key and value.
_HALF_BEFORE_SM_90 = {**_HALF, 128: ((128, 64, 8), (64, 32, 8), (64, 32, 8))}
# Measured on an H200: two programs of one warp group each overlap products and exponentials better than one of two. For
# the gradients of key and value, blocks of 64 rows were 8 % faster, but spill registers.
_HALF_SM_90 = {
    64: ((64, 64, 4), (64, 64, 4), (64, 32, 4)), 128: ((64, 64, 4), (128, 64, 8), (128, 32, 8)), 256: _HALF[256],
}  # fmt: skip
_HALF_SM_100 = {**_HALF, 128: ((128, 64, 8), (128, 64, 8), (64, 32, 8))}
# Masks and dropout take registers as well.
_HALF_WITH_MASK = {
    64: ((128, 64, 8), (64, 32, 4), (32, 32, 4)), 128: ((128, 32, 8), (32, 32, 8), (32, 32, 8)),
    256: ((64, 32, 8), (32, 16, 8), (16, 32, 8)),
}  # fmt: skip
_SINGLE = {64: ((64, 32, 8), (32, 32, 8), (32, 32, 8)), 128: ((32, 32, 8), (16, 32, 8), (16, 16, 8))}
_DOUBLE = {16: ((16, 16, 8), (16, 16, 8), (16, 16, 8))}
_KINDS = ("forward", "query", "key_value")
_ROW_SUM_ELEMENTS = 4096  # elements of a program of `delta`, which sums rows


def launch(builder: Builder) -> None:
    """Add the launch of one call to `builder`."""
    s, caps = builder.sizes, builder.caps
    names = ["result", "grad_output"] if builder.kind == "delta" else ["query", "key", "value", "mask", "grad_output"]
    strides = {name: builder.strides(name) for name in names}
    steps = tuple(strides[name][3] for name in names if name != "mask")
    layouts = [m for m in builder.layouts.values() if m.ndim == 4]
    extents = [strided_extent(m.shape, m.strides) for m in layouts] + [2 * r.numel for r in builder.results]
    depth = max(_MIN_SIDE, next_power(s.depth))
    defines: Defines = {"INDEX": index_type(extents), "UNIT": int(set(steps) <= {0, 1} and 0 not in steps)}
    if builder.kind == "delta":
        total = s.batch * s.heads * s.rows
        block = max(1, min(_ROW_SUM_ELEMENTS // depth, next_power(total)))
        geometry: Geometry = (s.heads, total, s.rows, s.depth, strides["result"][:3], strides["grad_output"][:3], steps)
        grid: tuple[int, ...] = (-(-total // block),)
        _add(builder, geometry, grid, {**defines, "DEPTH": depth, "BM": block}, (), ())
        return
    present = [strides[n][3] for n in names if n != "mask" and n in builder.layouts]
    defines["UNIT"] = int(set(present) == {1})
    block_rows, other_block, warps = _blocks(builder)
    query = builder.layouts["query"].dtype
    defines.update({
        "D": query.name if query.itemsize == 2 else builder.element.name, "PRECISION": input_precision(caps.sm),
        "WIDTH": max(_MIN_SIDE, next_power(s.width)), "DEPTH": depth, "BM": block_rows, "BN": other_block,
        "CAUSAL": int(builder.causal), "MASK": builder.mask, "DROPOUT": int(builder.has_dropout), "num_warps": warps,
        "num_stages": builder.params["stages"], "FULL": int(_fills_blocks(builder, block_rows, other_block)),
    })  # fmt: skip
    if builder.element.itemsize == 4:
        defines["enable_reflect_ftz"] = 1  # one instruction for 2^x; weights below 2^-126 become 0
    count, heads = builder.side()
    tables = [strides[n][:3] if n != "mask" else strides[n] for n in names]
    geometry = (s.heads, s.group, s.rows, s.keys, s.width, s.depth, *tables, steps)
    _add(builder, geometry, (-(-count // block_rows), heads), defines, (0, 1, 2), (3, 4))


def _blocks(builder: Builder) -> tuple[int, int, int]:
    """Return a program's positions, those of a block of the other side, and warps."""
    s = builder.sizes
    features = next_power(max(s.width, s.depth))
    is_half = builder.layouts["query"].dtype.itemsize == 2
    has_mask_or_dropout = bool(builder.mask) or builder.has_dropout
    sm = builder.caps.sm
    half = _HALF_BEFORE_SM_90 if sm < 90 else _HALF_SM_90 if sm < 100 else _HALF_SM_100
    table = (
        (_HALF_WITH_MASK if has_mask_or_dropout else half) if is_half
        else _DOUBLE if builder.element.itemsize == 8 else _SINGLE
    )  # fmt: skip
    default = next(sizes for max_features, sizes in table.items() if features <= max_features)[
        _KINDS.index(builder.kind)
    ]
    block, other_block, warps = builder.params["blocks"] or default
    rows, keys = (s.keys, s.rows) if builder.kind == "key_value" else (s.rows, s.keys)
    return min(block, max(_MIN_SIDE, next_power(rows))), min(other_block, max(_MIN_SIDE, next_power(keys))), warps


def _fills_blocks(builder: Builder, block: int, other_block: int) -> bool:
    """Return True if no block has positions or features past the last, other than a program's own query rows."""
    s = builder.sizes
    keys_block = block if builder.kind == "key_value" else other_block
    fills_features = all(n == max(_MIN_SIDE, next_power(n)) for n in (s.width, s.depth))
    return fills_features and s.keys % keys_block == 0 and (builder.kind != "key_value" or s.rows % other_block == 0)


def _add(
    builder: Builder, geometry: Geometry, grid: tuple[int, ...], defines: Defines, numbers: tuple[int, ...],
    integers: tuple[int, ...],
) -> None:  # fmt: skip
    text = builder.request.text
    buffers, slots = builder.buffers()
    # The name is that of the kind, not of the op: the ops share kernel source.
    instance = Instance(
        "attention", text.source, f"attention_{builder.kind}", builder.element.compute, 1, slots,
        tuple(defines.items()),
    )  # fmt: skip
    builder.steps.append(Step(instance, buffers, geometry, grid, None, builder.work, numbers, integers))
