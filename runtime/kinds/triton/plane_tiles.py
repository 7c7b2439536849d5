"""Tiles of planes for kernels whose lanes slide a window: convolutions with few channels, and pools.

A lane of a program computes a tile of a plane of the target. It loads each row of the source that its tile reads once,
up to 16 bytes at a time, so a row's alignment and the windows' stride decide how wide a tile should be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...device import Meta
from . import Defines

__all__ = ["BLOCK", "Axis", "Rows", "Tile", "Work", "choose_tile", "power_of_two", "tile_defines", "unit_strides"]

BLOCK = 128  # lanes of a program
_LANES_PER_CORE = 512  # below this, the latency of loads is not hidden
_LOAD_BYTES = 16
_WARP = 32
_LINE_BYTES = 128  # of the first cache
_MAX_ROWS = 8
_MAX_COLUMNS = 8
_MAX_SLOTS = 1600  # instructions of a tile's products, which are all unrolled
_MAX_REGISTERS = 64  # of a lane for its tile of the target
_LANE_SLOTS = 100  # instructions of a lane before it loads


@dataclass(frozen=True, slots=True)
class Axis:
    """Windows along one dimension of a plane.

    Attributes:
        source: Elements that windows slide over; with `is_back`, number of windows.
        target: Number of windows; with `is_back`, elements.
        taps: Elements of a window.
        stride, padding, dilation: As in PyTorch.
        is_back: The target has a result for each element, which combines the windows that contain it.
    """

    source: int
    target: int
    taps: int
    stride: int
    padding: int
    dilation: int
    is_back: bool

    @property
    def reach(self) -> int:
        """Return the distance from a window's first element to its last."""
        return (self.taps - 1) * self.dilation

    @property
    def multiple(self) -> int:
        """Return the number of which a tile's size must be a multiple."""
        return self.stride if self.is_back else 1

    def offsets(self, tile: int) -> tuple[int, int]:
        """Return the first and last element of the source that a tile reads, counted from its source step."""
        if self.is_back:
            return -((self.reach - self.padding) // self.stride), (tile - 1 + self.padding) // self.stride
        return -self.padding, (tile - 1) * self.stride + self.reach - self.padding

    def source_step(self, tile: int) -> int:
        """Return the elements of the source from one tile to the next."""
        return tile // self.stride if self.is_back else tile * self.stride

    @property
    def reaches_outside(self) -> bool:
        """Return True if a target reads, by its window, an element that the source does not have."""
        if self.is_back:
            return not (self.taps == self.stride and not self.padding and self.dilation == 1
                        and self.source * self.stride == self.target)  # fmt: skip
        return self.padding > 0 or (self.target - 1) * self.stride + self.reach >= self.source


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an operand or result: bytes of an element, and how many can be loaded at once at multiples of so many."""

    itemsize: int
    alignment: int

    @classmethod
    def of(cls, layout: Meta, rank: int) -> Rows:
        """Return the rows of a tensor whose last `rank` dimensions are spatial."""
        itemsize = layout.dtype.itemsize
        if layout.strides[-1] != 1 or not rank:
            return cls(itemsize, 1)
        strides = [s for n, s in zip(layout.shape[:-1], layout.strides[:-1], strict=True) if n > 1]
        return cls(itemsize, power_of_two(_LOAD_BYTES // itemsize, layout.shape[-1], *strides))

    @classmethod
    def of_result(cls, itemsize: int, width: int) -> Rows:
        """Return the rows of a contiguous result."""
        return cls(itemsize, power_of_two(_LOAD_BYTES // itemsize, width))

    def unit(self, step: int) -> int:
        """Return how many elements can be loaded at once, where tiles are `step` elements from each other."""
        return power_of_two(self.alignment, step)


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel does for all planes.

    Attributes:
        down, across: The windows along height and width.
        planes: Planes of the target.
        cores: Multiprocessors of the device.
        sources, targets: The rows that it reads by windows, and those that it reads or writes along with the target.
        tap_slots: Instructions for each pair of a target and an element of its window.
        fixed_slots: Instructions of a lane besides.
        registers: Of a lane for each target of its tile.
        must_divide: Tiles must divide the planes of the target.
    """

    down: Axis
    across: Axis
    planes: int
    cores: int
    sources: tuple[Rows, ...]
    targets: tuple[Rows, ...]
    tap_slots: int
    fixed_slots: int
    registers: int
    must_divide: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """A lane's tile of the target.

    Attributes:
        rows, columns: Its size.
        units: Elements of a row that are loaded at once, for each source.
        target_units: Elements of a row that are stored or loaded at once, for each target.
    """

    rows: int
    columns: int
    units: tuple[int, ...]
    target_units: tuple[int, ...]

    def counts(self, work: Work) -> tuple[int, int]:
        """Return the tiles of a plane along height and width."""
        return -(-work.down.target // self.rows), -(-work.across.target // self.columns)


def choose_tile(work: Work) -> Tile:
    """Return the tile with the lowest estimated cost; of several, the smallest."""
    return min(_tiles(work), key=lambda tile: (_cost(work, tile), tile.rows * tile.columns))


def _tiles(work: Work) -> Iterator[Tile]:
    """Yield possible tiles, at least one."""
    down, across = work.down, work.across
    columns = across.multiple
    while columns <= max(across.multiple, _MAX_COLUMNS):
        if not work.must_divide or across.target % columns == 0:
            units = tuple(source.unit(across.source_step(columns)) for source in work.sources)
            target_units = tuple(target.unit(columns) for target in work.targets)
            for rows in range(down.multiple, max(down.multiple, _MAX_ROWS) + 1, down.multiple):
                if work.must_divide and down.target % rows:
                    continue
                pixels = rows * columns
                slots = pixels * down.taps * across.taps * work.tap_slots // (down.multiple * across.multiple)
                if (slots > _MAX_SLOTS or pixels * work.registers > _MAX_REGISTERS) and rows > down.multiple:
                    break
                yield Tile(rows, columns, units, target_units)
        columns *= 2


def _cost(work: Work, tile: Tile) -> int:
    """Return the estimated issue slots of all lanes. A cache line of a load or store takes as long as four."""
    down, across = work.down, work.across
    tiles_y, tiles_x = tile.counts(work)
    row_segments = -(-_WARP // tiles_x)  # of a warp
    low, high = across.offsets(tile.columns)
    low_y, high_y = down.offsets(tile.rows)
    source_rows = min(high_y - low_y + 1, tile.rows * down.taps)
    slots = _LANE_SLOTS + work.fixed_slots
    step = across.source_step(tile.columns)
    for source, unit in zip(work.sources, tile.units, strict=True):
        segment_lines = -(-min(_WARP, tiles_x) * step * source.itemsize // _LINE_BYTES)
        slots += source_rows * (_loads(low, high, unit) * (4 + 4 * row_segments * segment_lines) + high - low + 1)
    for target, unit in zip(work.targets, tile.target_units, strict=True):
        segment_lines = -(-min(_WARP, tiles_x) * tile.columns * target.itemsize // _LINE_BYTES)
        slots += tile.rows * (tile.columns // unit * (4 + 4 * row_segments * segment_lines) + tile.columns)
    pixels = tile.rows * tile.columns
    slots += pixels * down.taps * across.taps * work.tap_slots // (down.multiple * across.multiple)
    return slots * max(work.planes * tiles_y * tiles_x, _LANES_PER_CORE * work.cores)


def _loads(low: int, high: int, unit: int) -> int:
    """Return the loads of the elements `low` to `high` of a row, as `wg_row_elements` does them."""
    loads = 0
    for k in range(low // unit * unit, high + 1, unit):
        elements = min(high, k + unit - 1) - max(low, k) + 1
        loads += 1 if elements > 1 and unit > 1 else elements
    return loads


def power_of_two(limit: int, *sizes: int) -> int:
    """Return the largest power of two, at most `limit`, that divides all sizes."""
    power = 1
    while power * 2 <= limit and all(size % (power * 2) == 0 for size in sizes):
        power *= 2
    return power


def unit_strides(sizes: tuple[int, int, int], strides: tuple[int, int, int], unit: int) -> tuple[int, int, int]:
    """Return strides in units of `unit` elements. That along a single element is arbitrary and counts as 0."""
    first, second, third = ((s if n > 1 else 0) // unit for n, s in zip(sizes, strides, strict=True))
    return first, second, third


def tile_defines(work: Work, tile: Tile, block: int) -> Defines:
    """Return the constants of the windows and of the tile."""
    down, across = work.down, work.across
    low_y, high_y = down.offsets(tile.rows)
    low_x, high_x = across.offsets(tile.columns)
    return {
        "KY": down.taps, "KX": across.taps, "SY": down.stride, "SX": across.stride, "PY": down.padding,
        "PX": across.padding, "DY": down.dilation, "DX": across.dilation, "BLOCK": block, "ROWS": tile.rows,
        "COLUMNS": tile.columns, "LOW_Y": low_y, "HIGH_Y": high_y, "LOW_X": low_x, "HIGH_X": high_x,
    }  # fmt: skip
