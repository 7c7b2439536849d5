"""Choose the blocks of a Triton matrix product: tables by dtype and architecture, and a rough estimate of the time.

All functions are pure. `contraction.py` uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...backends.protocol import Capabilities
from . import next_power

__all__ = [
    "INTEGER_TILES",
    "NARROW_TMA_TILES",
    "TF32_TILES",
    "TMA_TILES",
    "Tile",
    "choose",
    "least_idle_tile",
    "tiles_for",
]


@dataclass(frozen=True, slots=True)
class Tile:
    """Blocks of a product, and the launch options of the kernel.

    Attributes:
        bm: Rows of the result that a program computes.
        bn: Columns of the result that a program computes.
        bk: Elements of k that a program loads at a time.
        warps: Warps of a program.
        stages: Stages of the software pipeline.
    """

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int

    def shared_bytes(self, itemsize: int) -> int:
        """Return the bytes of shared memory that the operands take."""
        return self.stages * self.bk * (self.bm + self.bn) * itemsize


# Tiles by dtype. Large ones read less, small ones occupy more of the device. All of them fit registers.
_SMALL_HALF = (
    Tile(64, 64, 64, 4, 3), Tile(32, 128, 64, 4, 3), Tile(32, 32, 64, 4, 3), Tile(16, 64, 64, 4, 3),
    Tile(16, 32, 128, 4, 3), Tile(16, 16, 64, 2, 3),
)  # fmt: skip
_HALF = {
    80: (Tile(128, 256, 32, 8, 3), Tile(128, 128, 32, 4, 4), Tile(64, 128, 32, 4, 4), *_SMALL_HALF),
    90: (Tile(128, 256, 64, 8, 3), Tile(128, 128, 64, 4, 4), Tile(64, 128, 64, 4, 4), *_SMALL_HALF),
}
# If rows are not multiples of 16 elements, operands are loaded through registers, two bytes at a time. That slows down
# larger blocks.
_UNALIGNED_HALF = (
    Tile(128, 128, 32, 8, 2), Tile(64, 128, 32, 8, 2), Tile(64, 64, 32, 4, 2), Tile(32, 64, 32, 4, 2),
    Tile(16, 64, 32, 4, 2), Tile(16, 16, 32, 2, 2),
)  # fmt: skip
_SINGLE = (
    Tile(128, 64, 32, 8, 3), Tile(64, 64, 32, 4, 3), Tile(32, 64, 32, 4, 3), Tile(32, 32, 32, 4, 3),
    Tile(16, 64, 64, 4, 3), Tile(16, 16, 32, 2, 3),
)  # fmt: skip
_LARGE_SINGLE = Tile(128, 128, 32, 8, 3)  # for sm_90 and later, which read operands from shared memory
# For tf32 operands with contiguous k, which tensor cores of sm_90 read from shared memory. The largest tile was the
# fastest of ten on an H200, by a fifth. It leaves no registers for sums outside of tensor cores.
TF32_TILES = (Tile(128, 256, 32, 8, 3), Tile(128, 128, 32, 4, 3), *_SINGLE)
_DOUBLE = (
    Tile(64, 64, 16, 4, 3), Tile(32, 32, 16, 4, 3), Tile(16, 64, 16, 4, 2), Tile(16, 16, 16, 2, 3),
)  # fmt: skip
INTEGER_TILES = (Tile(32, 64, 2, 4, 2), Tile(32, 32, 4, 4, 2), Tile(16, 64, 4, 4, 2), Tile(16, 16, 4, 2, 2))
TMA_TILES = (Tile(128, 256, 64, 8, 3), Tile(128, 128, 64, 4, 4))
NARROW_TMA_TILES = (Tile(256, 64, 64, 8, 4), Tile(128, 64, 64, 4, 4))  # for results of at most 64 columns

# Thousands of MACs that one multiprocessor does in a microsecond, and how many MACs take as long as reading an element.
# They weigh the work of a program against its launch and first loads, which take about a microsecond.
_RATES = {"half": (3000, 150), "tf32": (1500, 150), "tf32x3": (500, 50), "ieee": (100, 10), "double": (100, 20),
         "whole": (10, 5)}  # fmt: skip
_MIN_BLOCK = (16, 16)
_SUM_PARTS_MICROSECONDS = 4  # time of a launch of its own


def tiles_for(itemsize: int, sm: int, is_aligned: bool) -> tuple[Tile, ...]:
    """Return the tiles for a floating dtype.

    Args:
        itemsize: Bytes of an element.
        sm: Architecture of the device, such as 90.
        is_aligned: Rows of the operands are read 16 bytes at a time.
    """
    architecture = 90 if sm >= 90 else 80
    if itemsize == 8:
        return _DOUBLE
    if itemsize == 2:
        return _HALF[architecture] if is_aligned else _UNALIGNED_HALF
    return (_LARGE_SINGLE, *_SINGLE) if is_aligned and architecture == 90 else _SINGLE


def choose(
    tiles: Iterable[Tile], kind: str, m: int, n: int, k: int, entries: int, itemsize: int, caps: Capabilities
) -> tuple[Tile, int, int]:
    """Return the tile, the depth of a part of k, and the number of parts that take the least estimated time.

    Args:
        tiles: Candidates.
        kind: `half`, `double`, `whole` for integers, or the input precision of float32.
        m: Rows of the result.
        n: Columns of the result.
        k: Length of the sums.
        entries: Products of the batch.
        itemsize: Bytes of an element.
        caps: The device's capabilities.
    """
    rate, macs_per_element = _RATES[kind]
    best: tuple[float, Tile, int, int] | None = None
    for tile in tiles:
        fits_result = tile.bm <= max(16, next_power(m)) and tile.bn <= max(16, next_power(n))
        if not fits_result or (tile.shared_bytes(itemsize) > caps.local_memory and (tile.bm, tile.bn) != _MIN_BLOCK):
            continue
        count = _ceil(m, tile.bm) * _ceil(n, tile.bn) * entries
        step = tile.bm * tile.bn + macs_per_element * (tile.bm + tile.bn)
        part_depth = _part_depth(k, count, tile.bk, caps.cores)
        for depth in (k,) if part_depth == k else (k, part_depth):
            parts = _ceil(k, depth)
            work = _ceil(depth, tile.bk) * tile.bk * step / (1000 * rate)
            time = _ceil(count * parts, caps.cores) * (1 + work) + (_SUM_PARTS_MICROSECONDS if parts > 1 else 0)
            if best is None or time < best[0]:
                best = time, tile, depth, parts
    assert best is not None
    return best[1:]


def _part_depth(k: int, count: int, block: int, cores: int) -> int:
    """Return the depth of each part of k that gives one program for each multiprocessor; `k` if there are enough."""
    quantum = max(block, 16)
    parts = min(cores // count, k // (4 * quantum))
    return _ceil(_ceil(k, parts), quantum) * quantum if parts > 1 else k


def least_idle_tile(tiles: Sequence[Tile], m: int, n: int, entries: int, caps: Capabilities) -> tuple[Tile, int] | None:
    """Return the tile with which the multiprocessors are least idle, and how many such tiles the product has.

    Returns None if shared memory holds none of `tiles` and its half-precision results.
    """
    best: tuple[int, Tile, int] | None = None
    for tile in tiles:
        if tile.shared_bytes(2) + 2 * tile.bm * tile.bn > caps.local_memory:
            continue
        count = _ceil(m, tile.bm) * _ceil(n, tile.bn) * entries
        time = _ceil(count, caps.cores) * tile.bm * tile.bn
        if best is None or time < best[0]:
            best = time, tile, count
    return best and best[1:]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
