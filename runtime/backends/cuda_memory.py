"""Memory of a CUDA device: allocators of device and pinned host memory, and copies.

Copies are queued on a stream. After a copy from pageable host memory was queued, the caller may change the array: its
values are in a staging buffer already, ours for small arrays and the driver's for large ones. An array in pinned memory
(see `PinnedMemory.array`) is not staged: the GPU reads it later, so the caller must not change it before the copy is
done. Its memory is not reused before that.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from ..dtypes import Array
from ..errors import CaptureError, OutOfMemoryError
from ..memory_stats import default_limit
from ..pool import Block, Budget, Pool
from ..storage import Storage
from . import cuda_api
from .cuda_api import call_driver

if TYPE_CHECKING:
    from .cuda import CudaDriver
    from .cuda_streams import CudaEvent, CudaStream

__all__ = ["DeviceMemory", "GraphPool", "PinnedMemory", "copy_across", "read", "write"]

_MAX_STAGED_BYTES = 1 << 20  # up to this size a copy is staged in our pinned memory
_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every context


class DeviceMemory:
    """Allocate the segments of device memory pools with `cuMemAlloc`. A segment's handle is its address."""

    def __init__(self, driver: CudaDriver):
        self._driver = driver
        self._deferred_frees: list[int] = []

    def allocate(self, nbytes: int) -> int:
        """Allocate a segment. Raise `MemoryError` if the device has no memory left."""
        cuda_api.activate(self._driver)
        with cuda_api.relaxed(self._driver):
            return int(call_driver("cuMemAlloc", nbytes))

    def release(self, handle: int) -> None:
        if self._driver.captures:  # cuMemFree waits for the device, which would break a capture
            self._deferred_frees.append(handle)
            return
        cuda_api.activate(self._driver)
        call_driver("cuMemFree", handle)

    def free_deferred(self) -> None:
        """Free the segments whose release was deferred during captures."""
        while self._deferred_frees and not self._driver.captures:
            call_driver("cuMemFree", self._deferred_frees.pop())

    def synchronize(self) -> None:
        self._driver.wait()


class GraphPool(Pool):
    """The pool of a stream while a graph is captured on it.

    The graph's kernels contain addresses in this pool, so its segments are not released before the graph is deleted. A
    freed block that a second stream has used is not reused, because events recorded in a capture cannot be queried.
    """

    def _retire_segments(self) -> None:
        pass

    def _settle(self, wait: bool) -> None:
        pass


class _HostSource:
    """Allocate the segments of a pinned host memory pool with `cuMemHostAlloc`."""

    def __init__(self, driver: CudaDriver):
        self._driver = driver

    def allocate(self, nbytes: int) -> int:
        cuda_api.activate(self._driver)
        with cuda_api.relaxed(self._driver):
            return int(call_driver("cuMemHostAlloc", nbytes, _PORTABLE))

    def release(self, handle: int) -> None:
        cuda_api.activate(self._driver)
        call_driver("cuMemFreeHost", handle)

    def synchronize(self) -> None:
        self._driver.wait()


class PinnedBlock:
    """A block of pinned memory that NumPy arrays refer to. It returns to its pool when the last of them is deleted."""

    def __init__(self, block: Block):
        self.block = block
        self._events: dict[CudaStream, CudaEvent] = {}
        self.address = block.segment.handle + block.offset
        self.nbytes = block.requested
        pointer = (self.address, False)
        self.__array_interface__ = {"shape": (self.nbytes,), "typestr": "|u1", "data": pointer, "version": 3}

    def record_use(self, stream: CudaStream) -> CudaEvent:
        """Delay the reuse of the memory until the work queued on `stream` so far is done.

        Returns:
            The event recorded behind that work. The next call for the same stream records the same event again.
        """
        event = self._events.get(stream)
        recorded = stream.record_event(event)
        if event is None:
            self._events[stream] = recorded
            self.block.pool.record_stream(self.block, recorded)
        return recorded

    def __del__(self) -> None:
        self.block.pool.free(self.block)


class PinnedMemory:
    """Page-locked host memory, which a GPU accesses by DMA at full speed."""

    def __init__(self, driver: CudaDriver):
        self.budget = Budget(default_limit(None))
        self.pool = Pool(_HostSource(driver), self.budget, None, f"the host, pinned for {driver.device}")
        self._lock = threading.RLock()
        self._blocks: WeakValueDictionary[int, PinnedBlock] = WeakValueDictionary()
        self._starts: list[int] = []

    def array(self, nbytes: int) -> Array:
        """Return a uint8 array of `nbytes` in pinned memory. Deleting the array and all its views frees the memory."""
        pinned_block = PinnedBlock(self.pool.allocate(nbytes))
        with self._lock:
            if len(self._starts) > 64 + 2 * len(self._blocks):
                self._starts = sorted(self._blocks.keys())
            if pinned_block.address not in self._blocks:
                insort(self._starts, pinned_block.address)
            self._blocks[pinned_block.address] = pinned_block
        return np.asarray(pinned_block)

    def find_block(self, array: Array) -> PinnedBlock | None:
        """Return the pinned block that contains the memory of `array`, or None."""
        if not self._starts:
            return None
        address = array.__array_interface__["data"][0]
        with self._lock:
            index = bisect_right(self._starts, address) - 1
            block = self._blocks.get(self._starts[index]) if index >= 0 else None
        return block if block is not None and address + array.nbytes <= block.address + block.nbytes else None

    def staging(self, nbytes: int) -> tuple[Block, Array]:
        """Return a pinned block for one copy, and a uint8 array over it. Free the block with `free_after`."""
        block = self.pool.allocate(nbytes)
        return block, _bytes_at(block.segment.handle + block.offset, nbytes)

    def free_after(self, block: Block, stream: CudaStream) -> None:
        """Free a block. It is not reused before the work queued on `stream` so far is done."""
        self.pool.record_stream(block, stream.record_event())
        self.pool.free(block)


class _Bytes:
    def __init__(self, address: int, nbytes: int):
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


def _bytes_at(address: int, nbytes: int) -> Array:
    return np.asarray(_Bytes(address, nbytes))


def _address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def _flat(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def write(driver: CudaDriver, storage: Storage, offset: int, array: Array, stream: CudaStream) -> None:
    """Queue a copy of the contiguous host `array` to byte `offset` of `storage`."""
    nbytes = array.nbytes
    if not nbytes:
        return
    cuda_api.activate(driver)
    target = storage.buffer + storage.start + offset
    pinned: PinnedMemory = driver.pinned
    capture = stream.capture
    if capture is not None:  # every replay repeats the copy, so the graph owns a copy of the current values
        pinned_copy = pinned.array(nbytes)
        pinned_copy[:] = _flat(array)
        capture.retain(pinned_copy)
        capture.retain_storage(storage)
        call_driver("cuMemcpyHtoDAsync", target, _address(pinned_copy), nbytes, stream.handle)
        return
    pinned_block = pinned.find_block(array)
    if pinned_block is not None:
        call_driver("cuMemcpyHtoDAsync", target, _address(array), nbytes, stream.handle)
        pinned_block.record_use(stream)
        return
    if nbytes <= _MAX_STAGED_BYTES:
        try:
            block, staged = pinned.staging(nbytes)
        except OutOfMemoryError:
            pass  # no pinned memory left: the driver stages the copy
        else:
            staged[:] = _flat(array)
            call_driver("cuMemcpyHtoDAsync", target, _address(staged), nbytes, stream.handle)
            pinned.free_after(block, stream)
            return
    call_driver("cuMemcpyHtoDAsync", target, _address(array), nbytes, stream.handle)
    # Normally the driver has read pageable memory when the call returns. If the GPU reads pageable memory itself
    # (coherent links, as on Grace Hopper), it may read it later, so we wait.
    if driver.info.reads_pageable:
        stream.synchronize()


def read(
    driver: CudaDriver, storage: Storage, offset: int, array: Array, stream: CudaStream, wait: bool = True
) -> CudaEvent | None:
    """Copy from byte `offset` of `storage` into the contiguous host `array`.

    Args:
        wait: If False, only queue a copy into pinned memory. Copies into other arrays are always waited for.

    Returns:
        An event that completes after a copy that was only queued; None if the copy is done.

    Raises:
        CaptureError: A graph is being captured on `stream`.
    """
    if stream.capture is not None:
        raise CaptureError(
            f"values of a tensor on {driver.device} were asked for while a graph is captured on its stream: nothing "
            "is computed until the graph is replayed; read them (.item(), .tolist(), .cpu(), print) afterwards"
        )
    nbytes = array.nbytes
    if not nbytes:
        return None
    cuda_api.activate(driver)
    source = storage.buffer + storage.start + offset
    pinned: PinnedMemory = driver.pinned
    pinned_block = pinned.find_block(array)
    if pinned_block is not None:
        call_driver("cuMemcpyDtoHAsync", _address(array), source, nbytes, stream.handle)
        pinned_block.record_use(stream)
        if not wait:
            return stream.record_event()  # an event of its own: the next use of the block re-records the block's event
    elif nbytes <= _MAX_STAGED_BYTES:
        try:
            block, staged = pinned.staging(nbytes)
        except OutOfMemoryError:
            call_driver("cuMemcpyDtoHAsync", _address(array), source, nbytes, stream.handle)
        else:
            try:
                call_driver("cuMemcpyDtoHAsync", _address(staged), source, nbytes, stream.handle)
                stream.synchronize()
                _flat(array)[:] = staged
            finally:
                pinned.pool.free(block)
            return None
    else:
        call_driver("cuMemcpyDtoHAsync", _address(array), source, nbytes, stream.handle)
    stream.synchronize()
    return None


def copy_across(
    source: Storage, start: int, target: Storage, nbytes: int, source_stream: CudaStream, stream: CudaStream
) -> None:
    """Queue a copy between two CUDA devices.

    The copy runs on `stream`, after all work queued on `source_stream` so far. Work that is queued on `source_stream`
    later waits for the copy. So the caller may queue a write to the source, or free it, right after this call. The
    driver copies directly between devices that can access each other's memory, and otherwise through the host.

    Args:
        source: Storage to copy from.
        start: Byte offset of the data in `source.buffer`; `source.start` is ignored.
        target: Storage to copy to, from its first byte.
        nbytes: Number of bytes to copy.
        source_stream: A stream of the source's device.
        stream: A stream of the target's device.

    Raises:
        CaptureError: A graph is being captured on one of the streams.
    """
    target_driver, source_driver = stream.driver, source_stream.driver
    if stream.capture is not None or source_stream.capture is not None:
        raise CaptureError(
            f"a copy from {source_driver.device} to {target_driver.device} cannot be part of a graph: copy before it"
        )
    stream.wait_event(source_stream.record_event())
    cuda_api.activate(target_driver)
    target_address, source_address = target.buffer + target.start, source.buffer + start
    call_driver(
        "cuMemcpyPeerAsync",
        target_address,
        target_driver.context,
        source_address,
        source_driver.context,
        nbytes,
        stream.handle,
    )
    source_stream.wait_event(stream.record_event())
