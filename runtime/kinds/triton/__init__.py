"""Schedules of the Triton target, one module per kind of op. The planners of `runtime.kinds` call them to build steps.

Block sizes are powers of two. A kernel is compiled for its constants (`Instance.defines`), so a tensor's size appears
in them only rounded up to a power of two: otherwise each new size would compile a new kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...backends.protocol import Instance, Slot
from .. import Request

__all__ = [
    "Defines", "Geometry", "index_type", "instance", "limit_block", "magic_numbers", "next_power", "strided_extent",
]  # fmt: skip

Defines = dict[str, str | int | float]
Geometry = tuple[int | tuple[int, ...], ...]

_INT32 = 2**31 - 1
# Functions that need so many registers that a thread computes one or two elements at a time, and not eight: the block
# of a program of 4 warps.
_HEAVY_BLOCKS = {
    **dict.fromkeys(("digamma", "fmod", "lgamma", "mod", "polygamma", "trigamma"), 256),
    **dict.fromkeys(("bessel_y0", "bessel_y1", "gamma_density", "gammainc", "gammaincc", "zeta"), 128),
}


def next_power(n: int) -> int:
    """Return the smallest power of two that is at least `n`, and at least 1."""
    return 1 << max(n - 1, 0).bit_length()


def limit_block(block: int, functions: Iterable[str]) -> int:
    """Return the block of a program that calls these functions: `block`, or less if they need many registers."""
    return min([block, *(_HEAVY_BLOCKS[name] for name in functions if name in _HEAVY_BLOCKS)])


def strided_extent(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the distance, in elements, from an operand's first element to one past its last."""
    return sum((n - 1) * abs(s) for n, s in zip(sizes, strides, strict=True)) + 1


def index_type(extents: Iterable[int]) -> str:
    """Return the integer type of a kernel's offsets (the constant INDEX), with room for one more block.

    Args:
        extents: Bounds, each of the offsets into one operand or of one count. Their sum is a bound, too, and a looser
            one: kernels with 64-bit offsets are slower.
    """
    return "int32" if max(extents, default=0) < _INT32 - (1 << 20) else "int64"


def magic_numbers(*divisors: int) -> tuple[int, ...]:
    """Return multiplier and shift for each divisor, with which kernels divide 31-bit numbers (`wg_quick_quotient`).

    With s the bits of `divisor - 1`, floor(n / divisor) is (n + floor(n * m / 2^32)) / 2^s, rounded down, where m is
    floor(2^32 * (2^s - divisor) / divisor) + 1. m has up to 32 bits, and is returned as a signed number of these bits.
    """
    numbers: list[int] = []
    for divisor in divisors:
        shift = (divisor - 1).bit_length()
        multiplier = ((1 << 32) * ((1 << shift) - divisor)) // divisor + 1
        numbers += (multiplier - (1 << 32) if multiplier >> 31 else multiplier, shift)
    return tuple(numbers)


def instance(
    request: Request, entry: str, element: str, slots: tuple[Slot, ...], defines: Mapping[str, str | int | float]
) -> Instance:
    """Return the kernel `NAME_entry` of the op's source.

    Raises:
        NotSupported: if the op has no Triton kernel.
    """
    name = request.record.name
    text = request.text
    return Instance(name, text.source, f"{name}_{entry}", element, 1, slots, tuple(defines.items()), text.functions)
