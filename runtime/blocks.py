"""Data structures of the memory pool: segments, their chains of blocks, and sorted lists of free runs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .budget import Event
    from .call_types import Memory
    from .pool import Pool

__all__ = ["Block", "Runs", "Segment"]


class Segment:
    """One driver allocation, cut into a chain of blocks."""

    __slots__ = ("first", "handle", "serial", "size", "small")

    def __init__(self, handle: Memory, size: int, small: bool, serial: int) -> None:
        self.handle = handle
        self.size = size
        self.small = small
        self.serial = serial  # age: best fit prefers the oldest of equal fits, so that young segments become empty
        self.first: Block


class Block:
    """A run of bytes in a segment: kernels address `segment.handle` at `offset`.

    offset and size are bytes, multiples of 512. requested: bytes that the caller asked for; 0 while the block is free.
    """

    __slots__ = ("bin", "marks", "merged", "next", "offset", "pool", "prev", "requested", "segment", "size")

    def __init__(self, pool: Pool, segment: Segment, offset: int, size: int) -> None:
        self.pool = pool
        self.segment = segment
        self.offset = offset
        self.size = size
        self.requested = 0
        self.prev: Block | None = None
        self.next: Block | None = None
        self.merged = False  # in the pool's sorted list, merged with its free neighbours
        self.bin: list[Block] = []  # the list that takes the block when it is freed
        self.marks: list[Event | Callable[[], Event]] | None = None

    def __repr__(self) -> str:
        state = f"{self.requested} requested" if self.requested else "free"
        return f"Block(offset={self.offset}, size={self.size}, {state})"


class Runs:
    """Free runs of a pool, merged with their neighbours: one sorted list for small segments, one for large ones."""

    def __init__(self) -> None:
        # By `Segment.small`; sorted tuples of size, age of the segment, offset and block.
        self.lists: dict[bool, list[tuple[int, int, int, Block]]] = {True: [], False: []}

    def best_fit(self, size: int, small: bool) -> Block | None:
        """Take `size` bytes from the front of the smallest run that has them, and return the block, or None.

        Among equal runs, the oldest segment and then the lowest offset wins.
        """
        runs = self.lists[small]
        index = bisect_left(runs, (size,))
        if index == len(runs):
            return None
        block = runs.pop(index)[3]
        block.merged = False
        self.cut(block, size)
        return block

    def cut(self, block: Block, size: int) -> None:
        """Shorten `block` to `size`; the remainder becomes a free run behind it."""
        if block.size == size:
            return
        remainder = Block(block.pool, block.segment, block.offset + size, block.size - size)
        remainder.prev, remainder.next = block, block.next
        if block.next is not None:
            block.next.prev = remainder
        block.next = remainder
        block.size = size
        self.insert(remainder)

    def merge(self, block: Block) -> None:
        """Add a free block, merged with its free neighbours."""
        next_block, prev_block = block.next, block.prev
        if next_block is not None and next_block.merged:
            self.remove(next_block)
            _absorb(block, next_block)
        if prev_block is not None and prev_block.merged:
            self.remove(prev_block)
            _absorb(prev_block, block)
            block = prev_block
        self.insert(block)

    def insert(self, block: Block) -> None:
        """Add a free block that has no free neighbours."""
        block.merged = True
        insort(self.lists[block.segment.small], (block.size, block.segment.serial, block.offset, block))

    def remove(self, block: Block) -> None:
        """Remove a run from its list."""
        runs = self.lists[block.segment.small]
        del runs[bisect_left(runs, (block.size, block.segment.serial, block.offset))]
        block.merged = False


def _absorb(block: Block, next_block: Block) -> None:
    block.size += next_block.size
    block.next = next_block.next
    if next_block.next is not None:
        next_block.next.prev = block
    next_block.prev = next_block.next = None
