"""Choose the register tiles of a convolution's CPU schedules.

Each table lists the tiles that fit the vector registers, of which AVX-512 has 32 and AVX2 has 16
(`Capabilities.registers`). The functions take the tile of least estimated cost: it computes the fewest results past the
ends, and loads least.
"""

from __future__ import annotations

__all__ = [
    "MAX_SUMS", "SHARED_TAPS", "STORE_COST", "band_tile", "channels_tile", "direct_tile", "outer_tile", "shared_taps",
    "weight_tile",
]  # fmt: skip

Pair = tuple[int, int]

SHARED_TAPS = (3, 5)  # numbers of taps in a row that may share their pixels

# Costs are in vector FMAs.
STORE_COST = 25  # storing a vector of results that need no transposing
_TRANSPOSE_COST = 250  # transposing a square of LANES by LANES results
# (channels, vectors of pixels) of a tile of `direct`.
_DIRECT_TILES = {
    32: ((8, 3), (8, 1), (6, 4), (4, 2), (3, 4), (1, 4), (1, 1)),
    16: ((6, 2), (4, 3), (12, 1), (8, 1), (4, 2), (2, 4), (1, 4), (1, 1)),
}
# (pixels in a row, vectors of channels) of a tile of `channels`; and further tiles for taps that share pixels.
_CHANNELS_TILES = {32: ((14, 2), (7, 2), (8, 2), (14, 1)), 16: ((5, 2), (4, 2), (14, 1), (7, 1))}
_SHARED_TAPS_TILES = {32: ((12, 2), (16, 1), (24, 1)), 16: ((12, 1), (8, 1))}
# (output channels, pairs of input channel and tap) of a tile of `weight`.
_WEIGHT_TILES = {32: ((4, 6), (6, 4), (2, 9), (1, 9)), 16: ((3, 4), (4, 3), (2, 6), (1, 9))}
# Vectors of output channels: pairs of input channel and tap, of a tile of `outer`.
_OUTER_TILES = {32: {4: 6, 3: 8, 2: 12, 1: 14}, 16: {3: 4, 2: 6, 1: 12}}
# The same for five taps of a row that share pixels; the first two are the better ones.
_OUTER_TILES_OF_FIVE_TAPS = {32: {1: 15, 2: 10, 3: 5, 4: 5}, 16: {1: 10, 2: 5}}
_BAND_OUTPUTS = {32: 8, 16: 4}  # output channels of a tile of `band`, which is three vectors wide
MAX_SUMS = {32: 28, 16: 12}  # accumulator vectors of a tile of `single`


def direct_tile(registers: int, outs: int, pixels: int, lanes: int, store_cost: float) -> tuple[Pair, float]:
    """Choose the tile of `direct`.

    Args:
        registers: Vector registers of the device.
        outs: Output channels of a group.
        pixels: Pixels of a plane, with its padding.
        lanes: Elements of a vector.
        store_cost: Cost of storing a vector of results, relative to all its FMAs.

    Returns:
        (channels, vectors of pixels) of the tile, and the cost of all tiles.
    """
    out_vectors = -(-pixels // lanes)

    def cost(tile: Pair) -> float:
        r, v = tile
        return -(-outs // r) * -(-out_vectors // v) * (r * v * (1 + store_cost) + 0.5 * (r + v) + 1)

    best = min(_DIRECT_TILES[registers], key=cost)
    return best, cost(best)


def channels_tile(
    registers: int, outs: int, macs_per_result: int, size: list[int], lanes: int, limit: float, row_taps: int
) -> Pair | None:
    """Choose the tile of `channels`.

    Args:
        registers: Vector registers of the device.
        outs: Output channels of a group.
        macs_per_result: Multiply-adds of one result.
        size: Depth, height and width of the output.
        lanes: Elements of a vector.
        limit: Cost of `direct`.
        row_taps: Number of taps in a row that may share pixels.

    Returns:
        (pixels, vectors of channels) of the tile, or None if `direct` costs no more.
    """

    def cost(run: Pair) -> float:
        pixels, vectors = run
        taps_sharing = shared_taps(registers, run, row_taps)
        transposes = vectors * -(-pixels // lanes) if size[2] % pixels else vectors * pixels / lanes
        load_cost = 0.2 * pixels if taps_sharing == 1 else 0.26 * (pixels + taps_sharing - 1) / taps_sharing
        cost_per_vector = pixels * vectors + load_cost + 0.8 * vectors + _TRANSPOSE_COST * transposes / macs_per_result
        return size[0] * size[1] * -(-size[2] // pixels) * -(-outs // (vectors * lanes)) * cost_per_vector

    best = min(
        _CHANNELS_TILES[registers] + _SHARED_TAPS_TILES[registers] if row_taps > 1 else _CHANNELS_TILES[registers],
        key=cost,
    )
    return best if cost(best) < limit else None


def shared_taps(registers: int, tile: Pair, row_taps: int) -> int:
    """Return how many taps of a row share the pixels of `tile`: `row_taps` if registers hold their weights, else 1."""
    return row_taps if tile[1] * (tile[0] + row_taps) < registers else 1


def weight_tile(registers: int, outs: int, pairs: int) -> Pair:
    """Return (output channels, pairs of input channel and tap) of the tile of `weight`."""

    def cost(tile: Pair) -> float:
        rows, tile_pairs = tile
        return -(-outs // rows) * -(-pairs // tile_pairs) * (rows * tile_pairs + 0.5 * (rows + tile_pairs) + 1)

    return min(_WEIGHT_TILES[registers], key=cost)


def outer_tile(registers: int, vectors: int, shares_five_taps: bool, nv_choice: int | None) -> Pair:
    """Return (vectors of output channels, pairs of input channel and tap) of the tile of `outer`.

    The cost of a tile is its loads and FMAs, divided by its FMAs.

    Args:
        registers: Vector registers of the device.
        vectors: Vectors of output channels of the convolution.
        shares_five_taps: Five taps of a row share their pixels.
        nv_choice: Vectors of the tile if a schedule sets them, at most what registers hold; None to choose.
    """
    tiles = (_OUTER_TILES_OF_FIVE_TAPS if shares_five_taps else _OUTER_TILES)[registers]
    candidates = (1, 2) if shares_five_taps else tuple(tiles)
    candidates = (min(nv_choice, max(tiles)),) if nv_choice else candidates
    nv = min(candidates, key=lambda n: -(-vectors // n) * n * (1 + 1 / n + 1 / tiles[n]))
    return nv, tiles[nv]


def band_tile(registers: int, outs: int, columns: int, lanes: int) -> Pair:
    """Return (output channels, vectors of pixels) of the tile of `band`, for more than two output channels."""
    vectors = -(-columns // lanes)
    nv = min((3, 2, 1), key=lambda n: -(-vectors // n) * (n + 0.2))
    return (_BAND_OUTPUTS[registers] if outs > 4 else 4), nv
