"""Schedules of the Triton target, one module a kind: the steps that compute what a planner has laid out.

Block sizes are powers of two. Constants (`Instance.defines`) are what a kernel is compiled for, so sizes of tensors
appear in them only as the power of two above.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...backends.protocol import Instance, Slot
from ...errors import NotSupported
from .. import Request

__all__ = ["Defines", "Geometry", "index_type", "instance", "next_power", "strided_extent"]

Defines = dict[str, str | int | float]
Geometry = tuple[int | tuple[int, ...], ...]

_INT32 = 2**31 - 1


def next_power(n: int) -> int:
    """The smallest power of two that is at least `n`, and at least 1."""
    return 1 << max(n - 1, 0).bit_length()


def strided_extent(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """How far from its first element an operand reaches, in elements."""
    return sum((n - 1) * abs(s) for n, s in zip(sizes, strides, strict=True)) + 1


def index_type(extents: Iterable[int]) -> str:
    """The integers in which a kernel computes places up to `extents`, with room for one block more (define INDEX)."""
    return "int32" if max(extents, default=0) < _INT32 - (1 << 20) else "int64"


def instance(
    request: Request, entry: str, element: str, slots: tuple[Slot, ...], defines: Mapping[str, str | int | float]
) -> Instance:
    """The kernel `NAME_entry` of the op's text."""
    name = request.record.name
    text = request.record.texts.get(request.device.driver.target)
    if text is None:
        raise NotSupported(f"{request.where()}: {name} has no Triton kernel; move its operands with .to('cpu')")
    return Instance(name, text.source, f"{name}_{entry}", element, 1, slots, tuple(defines.items()), text.functions)
