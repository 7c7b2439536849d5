"""Sums of parts for weight gradients of convolutions that are computed in parts, so that they fill the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import DType
from ..convolution_builder import Builder
from . import Defines, index_type, next_power

if TYPE_CHECKING:
    from .convolution import AddKernel

__all__ = ["add_sum", "allocate_parts"]

# Elements of a program, and parts that it loads at a time, which do not wait for one another: of few elements, and of
# so many that a thread adds up whole columns.
_SMALL, _LARGE = (128, 32), (1024, 8)


def allocate_parts(builder: Builder, parts: int) -> tuple[int, DType]:
    """Return buffer and dtype of the results of `parts` parts: the call's result itself if there is only one."""
    if parts == 1:
        return builder.target, builder.result.dtype
    return builder.allocate(parts * builder.result.numel), builder.element


def add_sum(builder: Builder, add: AddKernel, source: int, parts: int) -> None:
    """Append the launch that sums parts, which lie in `source` one after another, if there are several."""
    if parts == 1:
        return
    n = builder.result.numel
    block, max_rows = _LARGE if n >= _LARGE[0] * builder.caps.cores else _SMALL
    block, rows = min(block, builder.caps.block), min(max_rows, next_power(parts))
    defines: Defines = {"INDEX": index_type([n * (parts + rows)]), "ROWS": rows, "BLOCK": block}
    types = (builder.element, builder.result.dtype)
    add(builder, "sum", (source, builder.target), types, (n, parts), (-(-n // block),), n * parts, defines)
