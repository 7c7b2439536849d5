"""A memory pool without a cache, to measure what the caching allocator saves: every block is a driver allocation.

`without_cache` gives a device's stream such a pool for a while. `figure_traces` measures training with it and without.
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

    Freed blocks are returned at the next allocation: `free` runs in finalizers, which must not call the driver. As
    CUDA's `cuMemFree` does, the pool waits for the device before that, once for all blocks freed since.
    """

    def allocate(self, nbytes: int) -> Block:
        """Return a block that is a driver allocation of its own; its content is undefined.

        Args:
            nbytes: At least 1.

        Raises:
            OutOfMemoryError: The driver refuses, or the budget's limit would be exceeded.
        """
        with self._lock:
            self._return_freed()
            size = -(-nbytes // _BLOCK_ALIGNMENT) * _BLOCK_ALIGNMENT
            block = self._new_segment(size, size, False)
            if block is None:
                raise self._out_of_memory(nbytes)
            block.bin = self._loose
            block.requested = nbytes
            self._allocations += 1
            self._allocated += block.size
            self._allocated_peak = max(self._allocated_peak, self._allocated)
            return block

    def _bin_of(self, size: int) -> list[Block]:
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

    Tensors from before stay in the caching pool and are reused there. Construct optimizers before: they prepare the
    pool that they find for their next steps.

    Args:
        device: The device.
    """
    stream = current_stream(device)
    caching_pool = stream.pool
    stream.pool = UncachedPool(caching_pool._source, caching_pool._budget, stream, str(device))
    try:
        yield stream.pool
    finally:
        stream.pool = caching_pool
