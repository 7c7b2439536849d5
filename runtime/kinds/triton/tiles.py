"""The blocks of a matrix product: tables for what is multiplied and for the architecture, and a choice among them by a
rough account of the time. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...backends.protocol import Capabilities
from . import next_power

__all__ = ["TMA", "WHOLE", "Tile", "choose", "largest", "tiles_for"]


@dataclass(frozen=True, slots=True)
class Tile:
    """Blocks of a product and how a program works on them."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int

    def shared(self, itemsize: int) -> int:
        """Bytes of shared memory that its operands take."""
        return self.stages * self.bk * (self.bm + self.bn) * itemsize


# Tiles by what is multiplied. Large ones read less, small ones occupy more of the device; all of them fit registers.
_SMALL_HALF = (
    Tile(64, 64, 64, 4, 3), Tile(32, 128, 64, 4, 3), Tile(32, 32, 64, 4, 3), Tile(16, 64, 64, 4, 3),
    Tile(16, 32, 128, 4, 3), Tile(16, 16, 64, 2, 3),
)  # fmt: skip
_HALF = {
    80: (Tile(128, 256, 32, 8, 3), Tile(128, 128, 32, 4, 4), Tile(64, 128, 32, 4, 4), *_SMALL_HALF),
    90: (Tile(128, 256, 64, 8, 3), Tile(128, 128, 64, 4, 4), Tile(64, 128, 64, 4, 4), *_SMALL_HALF),
}
# Where rows are not multiples of 16 elements, two bytes at a time go through registers, which holds up larger blocks.
_ODD_HALF = (
    Tile(128, 128, 32, 8, 2), Tile(64, 128, 32, 8, 2), Tile(64, 64, 32, 4, 2), Tile(32, 64, 32, 4, 2),
    Tile(16, 64, 32, 4, 2), Tile(16, 16, 32, 2, 2),
)  # fmt: skip
_SINGLE = (
    Tile(128, 64, 32, 8, 3), Tile(64, 64, 32, 4, 3), Tile(32, 64, 32, 4, 3), Tile(32, 32, 32, 4, 3),
    Tile(16, 64, 64, 4, 3), Tile(16, 16, 32, 2, 3),
)  # fmt: skip
_LARGE_SINGLE = Tile(128, 128, 32, 8, 3)  # from sm_90, which reads its operands from shared memory
_DOUBLE = (
    Tile(64, 64, 16, 4, 3), Tile(32, 32, 16, 4, 3), Tile(16, 64, 16, 4, 2), Tile(16, 16, 16, 2, 3),
)  # fmt: skip
WHOLE = (Tile(32, 64, 2, 4, 2), Tile(32, 32, 4, 4, 2), Tile(16, 64, 4, 4, 2), Tile(16, 16, 4, 2, 2))
TMA = (Tile(128, 256, 64, 8, 3), Tile(128, 128, 64, 4, 4))

# Multiplications that one multiprocessor does in a microsecond (in thousands), and how many of them reading an element
# counts as: by these, launches and a program's first loads, of about a microsecond, are weighed against work.
_RATE = {"half": (3000, 150), "tf32": (1500, 150), "tf32x3": (500, 50), "ieee": (100, 10), "double": (100, 20),
         "whole": (10, 5)}  # fmt: skip
_LEAST = (16, 16)
_FINISH = 4  # microseconds that a step of its own takes


def tiles_for(itemsize: int, sm: int, even: bool) -> tuple[Tile, ...]:
    """Tiles for floating numbers of that many bytes. even: rows of the operands are read 16 bytes at a time."""
    of = 90 if sm >= 90 else 80
    if itemsize == 8:
        return _DOUBLE
    if itemsize == 2:
        return _HALF[of] if even else _ODD_HALF
    return (_LARGE_SINGLE, *_SINGLE) if even and of == 90 else _SINGLE


def choose(
    tiles: Iterable[Tile], kind: str, m: int, n: int, k: int, entries: int, itemsize: int, able: Capabilities
) -> tuple[Tile, int, int]:
    """(tile, depth of a part, parts) of the least time for so many products m x k by k x n.

    kind: `half`, `double`, `whole`, or how float32 is multiplied.
    """
    rate, read = _RATE[kind]
    best: tuple[float, Tile, int, int] | None = None
    for tile in tiles:
        fits = tile.bm <= max(16, next_power(m)) and tile.bn <= max(16, next_power(n))
        if not fits or (tile.shared(itemsize) > able.local_memory and (tile.bm, tile.bn) != _LEAST):
            continue
        count = _ceil(m, tile.bm) * _ceil(n, tile.bn) * entries
        step = tile.bm * tile.bn + read * (tile.bm + tile.bn)
        for depth in dict.fromkeys((k, _depth(k, count, tile.bk, able.cores))):
            parts = _ceil(k, depth)
            work = _ceil(depth, tile.bk) * tile.bk * step / (1000 * rate)
            time = _ceil(count * parts, able.cores) * (1 + work) + (_FINISH if parts > 1 else 0)
            if best is None or time < best[0]:
                best = time, tile, depth, parts
    assert best is not None
    return best[1:]


def _depth(k: int, count: int, block: int, cores: int) -> int:
    """What each of the parts takes into which k is cut, so that there is one program a multiprocessor."""
    quantum = max(block, 16)
    parts = min(cores // count, k // (4 * quantum))
    return _ceil(_ceil(k, parts), quantum) * quantum if parts > 1 else k


def largest(tiles: Sequence[Tile], m: int, n: int, entries: int, able: Capabilities) -> tuple[Tile, int] | None:
    """The tile with which the last round of programs leaves the least idle, and how many tiles that makes; None where
    shared memory holds none of `tiles`, with room for results of half precision."""
    best: tuple[int, Tile, int] | None = None
    for tile in tiles:
        if tile.shared(2) + 2 * tile.bm * tile.bn > able.local_memory:
            continue
        count = _ceil(m, tile.bm) * _ceil(n, tile.bn) * entries
        time = _ceil(count, able.cores) * tile.bm * tile.bn
        if best is None or time < best[0]:
            best = time, tile, count
    return best and best[1:]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
