"""Devices whose memory is the host's: what `cpu` (kernels in C) and `interpreter` (kernels in Triton) share.

Memory needs no driver: tensors can be made, viewed, copied and exchanged with NumPy before any kernel can run. What a
storage's `buffer` is for other devices is an address here.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np

from ..device import Device
from ..memory_stats import default_limit
from ..pool import Budget
from ..storage import Storage
from .queues import Counter

__all__ = ["HostDriver", "HostMemory", "HostSegment"]

_MIN_HUGE_BYTES = 4 << 20  # of segments that ask for huge pages: smaller ones seldom hold a whole one


class HostSegment:
    """A run of host memory that is an anonymous mapping of its own; `buffer` is its address.

    Memory from malloc would not do: glibc serves blocks of up to 32 MiB from its heap, once blocks of that size were
    freed, and a hole in the heap stays with the process.

    Raises:
        MemoryError: The system has no such memory.
    """

    __slots__ = ("array", "buffer")

    def __init__(self, nbytes: int):
        flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
        try:
            mapping = mmap.mmap(-1, nbytes, **flags)
        except OSError as error:
            raise MemoryError(str(error)) from error
        if nbytes >= _MIN_HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a system without them
                mapping.madvise(mmap.MADV_HUGEPAGE)
        self.array: np.ndarray[Any, Any] | None = np.frombuffer(mapping, np.uint8)
        self.buffer: int = self.array.ctypes.data


class HostMemory:
    """What the pools of a device over host memory draw segments from."""

    def __init__(self, driver: HostDriver):
        self._driver = driver

    def allocate(self, nbytes: int) -> HostSegment:
        return HostSegment(nbytes)

    def release(self, segment: HostSegment) -> None:
        """Unmap the memory now, whoever still refers to the segment."""
        segment.array = None

    def synchronize(self) -> None:
        self._driver.synchronize()


class HostDriver:
    """The memory side of a driver."""

    def __init__(self, device: Device):
        self.device = device
        self.counter = Counter()
        self.memory = HostMemory(self)
        self.budget = Budget(default_limit(None))

    @property
    def launches(self) -> int:
        return self.counter.value

    def synchronize(self) -> None:
        """Wait for everything that was queued."""
        raise NotImplementedError

    def allocate(self, nbytes: int, stream: Any) -> Storage:
        pool = stream.pool
        block = pool.allocate(nbytes)
        return Storage(self.device, nbytes, block, pool, block.segment.handle.buffer, block.offset)

    def adopt(self, array: np.ndarray[Any, Any]) -> Storage:
        """A storage over the bytes of a NumPy array, which stays the owner: no copy."""
        flat = np.ndarray((array.nbytes,), np.uint8, array)
        return Storage(self.device, array.nbytes, None, None, flat.ctypes.data, 0, flat)

    def host_view(self, storage: Storage) -> np.ndarray[Any, Any]:
        """The storage's bytes as an array, without copying. The caller waits for pending work first."""
        if storage.block is None:
            return storage.owner[storage.start :] if storage.start else storage.owner  # type: ignore[no-any-return]
        whole = storage.block.segment.handle.array
        return whole[storage.start : storage.start + storage.nbytes]  # type: ignore[no-any-return]

    def address(self, storage: Storage) -> int:
        """Where the memory lies in which a storage begins at its `start`."""
        return storage.buffer or 0

    def write(self, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: Any) -> None:
        self.synchronize()
        self.host_view(storage)[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)

    def read(self, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: Any) -> None:
        self.synchronize()
        array.reshape(-1).view(np.uint8)[:] = self.host_view(storage)[offset : offset + array.nbytes]
