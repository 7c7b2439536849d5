"""Register tiles of a convolution's schedules on CPUs: which fit, and which of those wastes and loads least.

Tables are kept by how many vectors the registers hold: 32 with AVX-512, 16 with AVX2 (`Capabilities.registers`).
"""

from __future__ import annotations

__all__ = ["MOST_SUMS", "STORED", "band_tile", "outer", "run", "shared", "sums", "tile"]

Pair = tuple[int, int]

STORED = 25  # what it costs to store a vector of results that are not turned, in products,
_TURNED = 250  # and to turn a square of results
# Channels, vectors: a tile of `direct`.
_TILES = {
    32: ((8, 3), (8, 1), (6, 4), (4, 2), (3, 4), (1, 4), (1, 1)),
    16: ((6, 2), (4, 3), (12, 1), (8, 1), (4, 2), (2, 4), (1, 4), (1, 1)),
}
# Neighbours in a row, vectors of channels: a tile of `channels`; and more of them where taps share pixels.
_RUNS = {32: ((14, 2), (7, 2), (8, 2), (14, 1)), 16: ((5, 2), (4, 2), (14, 1), (7, 1))}
_WIDE_RUNS = {32: ((12, 2), (16, 1), (24, 1)), 16: ((12, 1), (8, 1))}
# Outputs, pairs of input and tap: a tile of `weight`.
_SUMS = {32: ((4, 6), (6, 4), (2, 9), (1, 9)), 16: ((3, 4), (4, 3), (2, 6), (1, 9))}
# Vectors of outputs, pairs of input and tap: a tile of `outer`.
_OUTER = {32: {4: 6, 3: 8, 2: 12, 1: 14}, 16: {3: 4, 2: 6, 1: 12}}
# The same where five taps in a row share a place; the first two are the better ones.
_OUTER_FIVE = {32: {1: 15, 2: 10, 3: 5, 4: 5}, 16: {1: 10, 2: 5}}
_BAND = {32: 8, 16: 4}  # outputs of a tile of `band`, by three vectors
MOST_SUMS = {32: 28, 16: 12}  # vectors of sums of a tile of `single`


def tile(registers: int, outs: int, pixels: int, lanes: int, stored: float) -> tuple[Pair, float]:
    """Channels and vectors of one tile of `direct`, what wastes least and loads least; and what all tiles cost.
    stored: what a vector of results costs beside its products."""
    vectors = -(-pixels // lanes)

    def cost(tile: Pair) -> float:
        r, v = tile
        return -(-outs // r) * -(-vectors // v) * (r * v * (1 + stored) + 0.5 * (r + v) + 1)

    found = min(_TILES[registers], key=cost)
    return found, cost(found)


def run(registers: int, outs: int, deep: int, size: list[int], lanes: int, limit: float, wide: int) -> Pair | None:
    """Pixels and vectors of one tile of `channels`; none where `direct` costs no more. deep: products of a result.
    wide: taps in a row that may share pixels."""

    def cost(run: Pair) -> float:
        n, v = run
        taps = shared(registers, run, wide)
        squares = v * -(-n // lanes) if size[2] % n else v * n / lanes
        read = 0.2 * n if taps == 1 else 0.26 * (n + taps - 1) / taps
        each = n * v + read + 0.8 * v + _TURNED * squares / deep
        return size[0] * size[1] * -(-size[2] // n) * -(-outs // (v * lanes)) * each

    best = min(_RUNS[registers] + _WIDE_RUNS[registers] if wide > 1 else _RUNS[registers], key=cost)
    return best if cost(best) < limit else None


def shared(registers: int, run: Pair, wide: int) -> int:
    """How many taps of a row share the pixels of a tile: all of `wide`, if there are registers for their weights."""
    return wide if run[1] * (run[0] + wide) < registers else 1


def sums(registers: int, outs: int, pairs: int) -> Pair:
    """Outputs, and pairs of input and tap, of a tile of `weight`."""

    def cost(tile: Pair) -> float:
        r, t = tile
        return -(-outs // r) * -(-pairs // t) * (r * t + 0.5 * (r + t) + 1)

    return min(_SUMS[registers], key=cost)


def outer(registers: int, vectors: int, five: bool, chosen: int | None) -> Pair:
    """Vectors of outputs, and pairs of input and tap, of a tile of `outer`: by its loads and products, over its
    products. five: taps in a row share a place. chosen: the vectors, if there are registers for them."""
    tiles = (_OUTER_FIVE if five else _OUTER)[registers]
    best = (1, 2) if five else tuple(tiles)
    best = (min(chosen, max(tiles)),) if chosen else best
    nv = min(best, key=lambda n: -(-vectors // n) * n * (1 + 1 / n + 1 / tiles[n]))
    return nv, tiles[nv]


def band_tile(registers: int, outs: int, columns: int, lanes: int) -> Pair:
    """Outputs and vectors of a tile of `band`, for more than two outputs."""
    vectors = -(-columns // lanes)
    nv = min((3, 2, 1), key=lambda n: -(-vectors // n) * (n + 0.2))
    return (_BAND[registers] if outs > 4 else 4), nv
