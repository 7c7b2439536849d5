"""A memory pool without a cache, to measure what the caching allocator saves: every block is a driver allocation.

`without_cache` replaces the pool of a device's current stream. `figure_traces` measures training with either pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..runtime.context import current_stream
from ..runtime.device import Device
from ..runtime.pool import Block, Pool

__all__ = ["UncachedPool", "without_cache"]

_BLOCK_ALIGNMENT = 512  # bytes, as in the caching pool


class UncachedPool(Pool):
    """A pool that asks the driver for each block, and returns freed blocks to the driver.

    Freed blocks are returned at the next allocation: `free` runs in finalizers, which must not call the driver. Before
    it returns them, the pool waits for the device, as CUDA's `cuMemFree` does, but once for all of them.
    """

    def allocate(self, nbytes: int) -> Block:
        """Return a block that is a driver allocation of its own; its content is undefined.

        Args:
            nbytes: Size in bytes, at least 1.

        Returns:
            The block; it is as large as its segment.

        Raises:
            OutOfMemoryError: The driver refuses, or the budget's limit would be exceeded.
        """
        with self._lock:
            self._return_freed()
            size = -(-nbytes // _BLOCK_ALIGNMENT) * _BLOCK_ALIGNMENT
            block = self._new_segment(size, size, small=False)
            if block is None:
                raise self._out_of_memory(nbytes)
            block.bin = self._loose
            block.requested = nbytes
            self._allocations += 1
            self._allocated += block.size
            self._allocated_peak = max(self._allocated_peak, self._allocated)
            return block

    def _bin_of(self, size: int) -> list[Block]:
        """Return the list of freed blocks, whatever their size: no block is reused."""
        return self._loose

    def _return_freed(self) -> None:
        """Return freed blocks to the driver, except those that another stream still uses."""
        self._drain()
        if self._marked or self._waiting:
            self._settle(wait=False)
        blocks = [self._loose.pop() for _ in range(len(self._loose))]
        if not blocks:
            return
        self._source.synchronize()
        for block in blocks:
            segment = block.segment
            del self._segments[segment]
            del segment.first  # breaks the reference cycle of segment and block
            self._source.release(segment.handle)
            self._reserved[segment.small] -= segment.size
            self._budget.reserved -= segment.size
            self._driver_frees += 1


@contextmanager
def without_cache(device: Device) -> Iterator[UncachedPool]:
    """Allocate this thread's tensors on `device` without a cache inside the context.

    Blocks that were allocated outside the context return to the caching pool. Construct optimizers outside it, too: an
    optimizer rehearses its first step on the stream's current pool, and an uncached pool has no lists to prepare.

    Args:
        device: The device. Only the current stream of this thread is affected.

    Yields:
        The uncached pool, whose `stats` count driver calls.
    """
    stream = current_stream(device)
    caching_pool = stream.pool
    stream.pool = UncachedPool(caching_pool._source, caching_pool._budget, stream, str(device))
    try:
        yield stream.pool
    finally:
        stream.pool = caching_pool
