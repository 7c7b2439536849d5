"""What devices on the host share: memory (`cpu`, `interpreter`) and a stream without a queue (`interpreter`, `meta`).

Memory needs no driver: tensors can be created, viewed, copied and exchanged with NumPy before any kernel can run. A
storage's `buffer` is a host address here.
"""

from __future__ import annotations

import mmap
import time
from contextlib import suppress

import numpy as np

from ..device import Device
from ..dtypes import Array
from ..errors import LaunchError
from ..memory_stats import default_limit
from ..pool import Budget, MemorySource, Pool
from ..storage import Storage
from .protocol import Event, Stream
from .queues import Counter

__all__ = ["HostDriver", "HostEvent", "HostMemory", "HostSegment", "SynchronousStream"]

_MIN_HUGE_BYTES = 4 << 20  # segments from this size use huge pages; smaller ones rarely contain a whole aligned page


class HostSegment:
    """A segment of host memory, as a separate anonymous mapping; `buffer` is its address.

    malloc is not used because glibc, once blocks of up to 32 MiB have been freed, serves such blocks from its heap, and
    holes in the heap are never returned to the system.

    Args:
        nbytes: The size, at least 1; the system rounds it up to whole pages.

    Attributes:
        array: The bytes; None after the release.
        buffer: Their address.

    Raises:
        MemoryError: The system has no memory of this size.
    """

    __slots__ = ("array", "buffer")

    def __init__(self, nbytes: int):
        # A private mapping: the default is a shared one. Windows has neither flag, and its mappings are private.
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
    """The `MemorySource` of a device that uses host memory: its pools' segments are `HostSegment`s."""

    def __init__(self, driver: HostDriver):
        self._driver = driver

    def allocate(self, nbytes: int) -> HostSegment:
        """Return a new segment. Raise `MemoryError` if the system has no memory of this size."""
        return HostSegment(nbytes)

    def release(self, segment: HostSegment) -> None:
        """Unmap the memory now, even if the segment object is still referenced."""
        segment.array = None

    def synchronize(self) -> None:
        """Wait for the device's queued work."""
        self._driver.synchronize()


class HostEvent:
    """A point in the program. Work before it is done: recording has waited for it.

    Args:
        timing: The event records the time, for `elapsed_time`.

    Attributes:
        time: Seconds of `time.perf_counter`, set by the stream that recorded the event; None before.
    """

    def __init__(self, timing: bool = False):
        self.timing = timing
        self.time: float | None = None

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


class SynchronousStream:
    """A stream of a device whose launches return when their work is done.

    Args:
        device: The device.
        memory: The source of the pool's segments.
        budget: The limit on the memory of the device's pools.

    Attributes:
        pool: The stream's memory pool.
    """

    def __init__(self, device: Device, memory: MemorySource, budget: Budget):
        self.device = device
        self.pool = Pool(memory, budget, self, str(device))

    def synchronize(self) -> None:
        """Do nothing: no work is queued."""

    def query(self) -> bool:
        return True

    def record_event(self, event: Event | None = None) -> HostEvent:
        event = event or HostEvent()
        assert isinstance(event, HostEvent)
        event.time = time.perf_counter()
        return event

    def wait_event(self, event: Event) -> None:
        """Do nothing: no work is queued."""

    def wait_stream(self, other: Stream) -> None:
        """Do nothing: no work is queued."""


class HostDriver:
    """The part of a driver that manages host memory. A subclass adds kernels and streams, and `synchronize`.

    Attributes:
        device: The device.
        counter: Counts launches.
        memory: The source of its pools' segments.
        budget: The limit on the memory of its pools.
    """

    def __init__(self, device: Device):
        self.device = device
        self.counter = Counter()
        self.memory = HostMemory(self)
        self.budget = Budget(default_limit(None))

    @property
    def launches(self) -> int:
        """The number of launches so far."""
        return self.counter.value

    def synchronize(self) -> None:
        """Wait for all queued work."""
        raise NotImplementedError

    def allocate(self, nbytes: int, stream: Stream) -> Storage:
        """Return a storage of `nbytes` bytes, at least 1, from the pool of a stream; its content is undefined."""
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
        """Copy a contiguous array of any dtype into a storage, `offset` bytes from its start."""
        self.synchronize()
        self.host_view(storage)[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)

    def read(self, storage: Storage, offset: int, array: Array, stream: Stream) -> None:
        """Fill a contiguous array of any dtype from a storage, from `offset` bytes behind its start."""
        self.synchronize()
        array.reshape(-1).view(np.uint8)[:] = self.host_view(storage)[offset : offset + array.nbytes]
