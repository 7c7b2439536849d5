"""Memory of devices that use host memory, shared by `cpu` (kernels in C) and `interpreter` (kernels in Triton).

Memory needs no driver: tensors can be created, viewed, copied and exchanged with NumPy before any kernel can run. A
storage's `buffer` is a host address here.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np

from ..device import Device
from ..dtypes import Array
from ..errors import LaunchError
from ..memory_stats import default_limit
from ..pool import Budget
from ..storage import Storage
from .protocol import Event, Stream
from .queues import Counter

__all__ = ["HostDriver", "HostEvent", "HostMemory", "HostSegment"]

_MIN_HUGE_BYTES = 4 << 20  # segments from this size use huge pages; smaller ones rarely contain a whole aligned page


class HostSegment:
    """A segment of host memory, as a separate anonymous mapping; `buffer` is its address.

    malloc is not used because glibc, once blocks of up to 32 MiB have been freed, serves such blocks from its heap, and
    holes in the heap are never returned to the system.

    Raises:
        MemoryError: the system has no memory of this size.
    """

    __slots__ = ("array", "buffer")

    def __init__(self, nbytes: int):
        flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
        try:
            mapping = mmap.mmap(-1, nbytes, **flags)
        except OSError as error:
            raise MemoryError(str(error)) from error
        if nbytes >= _MIN_HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a system without huge pages
                mapping.madvise(mmap.MADV_HUGEPAGE)
        self.array: Array | None = np.frombuffer(mapping, np.uint8)
        self.buffer: int = self.array.ctypes.data


class HostMemory:
    """The source of segments for the pools of a device that uses host memory."""

    def __init__(self, driver: HostDriver):
        self._driver = driver

    def allocate(self, nbytes: int) -> HostSegment:
        return HostSegment(nbytes)

    def release(self, segment: HostSegment) -> None:
        """Unmap the memory now, even if the segment object is still referenced."""
        segment.array = None

    def synchronize(self) -> None:
        self._driver.synchronize()


class HostEvent:
    """A point in the program. Work before it is done: recording has waited for it."""

    def __init__(self, timing: bool = False):
        self.timing = timing
        self.time: float | None = None  # of `time.perf_counter`, set by the recording stream

    def record(self, stream: Stream) -> None:
        stream.record_event(self)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Do nothing: recording has waited."""

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds from this event to `end`; both must be timing events that were recorded."""
        assert isinstance(end, HostEvent)
        if self.time is None or end.time is None or not (self.timing and end.timing):
            raise LaunchError("elapsed_time needs two recorded events made with enable_timing=True")
        return (end.time - self.time) * 1e3


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
        """Wait for all queued work."""
        raise NotImplementedError

    def allocate(self, nbytes: int, stream: Stream) -> Storage:
        pool = stream.pool
        block = pool.allocate(nbytes)
        return Storage(self.device, nbytes, block, pool, block.segment.handle.buffer, block.offset)

    def adopt(self, array: Array) -> Storage:
        """Return a storage over the bytes of a NumPy array, without copying; the array stays the owner."""
        flat: Array = np.ndarray((array.nbytes,), np.uint8, array)
        return Storage(self.device, array.nbytes, None, None, flat.ctypes.data, 0, flat)

    def host_view(self, storage: Storage) -> Array:
        """Return the storage's bytes as an array, without copying. The caller has to wait for pending work first."""
        if storage.block is None:
            return storage.owner[storage.start :] if storage.start else storage.owner
        segment_bytes = storage.block.segment.handle.array
        return segment_bytes[storage.start : storage.start + storage.nbytes]

    def address(self, storage: Storage) -> int:
        """Return the address of the buffer in which the storage begins at offset `start`."""
        return storage.buffer or 0

    def write(self, storage: Storage, offset: int, array: Array, stream: Stream) -> None:
        self.synchronize()
        self.host_view(storage)[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)

    def read(self, storage: Storage, offset: int, array: Array, stream: Stream) -> None:
        self.synchronize()
        array.reshape(-1).view(np.uint8)[:] = self.host_view(storage)[offset : offset + array.nbytes]
