"""What a pool's memory is cut into: segments, chains of blocks, and lists of the free runs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .budget import Event
    from .pool import Pool

__all__ = ["Block", "Runs", "Segment"]


class Segment:
    """One driver allocation, cut into a chain of blocks."""

    __slots__ = ("first", "handle", "serial", "size", "small")

    def __init__(self, handle: Any, size: int, small: bool, serial: int) -> None:
        self.handle = handle
        self.size = size
        self.small = small
        self.serial = serial  # age: ties in best fit go to the oldest segment, so that young ones empty
        self.first: Block


class Block:
    """A run of bytes in a segment: kernels address `segment.handle` at `offset`.

    offset and size are bytes, multiples of 512; requested is what was asked for, 0 while the block is free.
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
        self.bin: list[Block] = []  # where the block goes when freed
        self.marks: list[Event | Callable[[], Event]] | None = None

    def __repr__(self) -> str:
        state = f"{self.requested} requested" if self.requested else "free"
        return f"Block(offset={self.offset}, size={self.size}, {state})"


class Runs:
    """Free runs of a pool, merged with their neighbours: a list by size of those in small segments, one of the rest."""

    def __init__(self) -> None:
        self.lists: dict[bool, list[tuple[int, int, int, Block]]] = {True: [], False: []}  # size, age, offset; sorted

    def best_fit(self, size: int, small: bool) -> Block | None:
        """The front of the smallest run that has `size` bytes, of the oldest segment and lowest offset among equals."""
        runs = self.lists[small]
        at = bisect_left(runs, (size,))
        if at == len(runs):
            return None
        block = runs.pop(at)[3]
        block.merged = False
        self.cut(block, size)
        return block

    def cut(self, block: Block, size: int) -> None:
        """Shorten `block` to `size`; what remains becomes a free run behind it."""
        if block.size == size:
            return
        rest = Block(block.pool, block.segment, block.offset + size, block.size - size)
        rest.prev, rest.next = block, block.next
        if block.next is not None:
            block.next.prev = rest
        block.next = rest
        block.size = size
        self.insert(rest)

    def join(self, block: Block) -> None:
        """Take a free block in, merged with its neighbours."""
        after, before = block.next, block.prev
        if after is not None and after.merged:
            self.remove(after)
            _absorb(block, after)
        if before is not None and before.merged:
            self.remove(before)
            _absorb(before, block)
            block = before
        self.insert(block)

    def insert(self, block: Block) -> None:
        """Take in a free block that has no free neighbours."""
        block.merged = True
        insort(self.lists[block.segment.small], (block.size, block.segment.serial, block.offset, block))

    def remove(self, block: Block) -> None:
        """Take a run out."""
        runs = self.lists[block.segment.small]
        del runs[bisect_left(runs, (block.size, block.segment.serial, block.offset))]
        block.merged = False


def _absorb(block: Block, after: Block) -> None:
    block.size += after.size
    block.next = after.next
    if after.next is not None:
        after.next.prev = block
    after.prev = after.next = None
