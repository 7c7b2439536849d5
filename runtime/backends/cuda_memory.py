"""Memory of a CUDA device: what its pools draw segments from, pinned host memory, and copies.

Copies are queued on a stream. What a copy from the host reads is safe to change when the call returns: small arrays go
through pinned memory of ours, large ones through the driver's own; an array that lies in pinned memory already (see
`PinnedMemory.array`) is read from where it is, and kept until that is done.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..errors import CaptureError, OutOfMemoryError
from ..memory_stats import default_limit
from ..pool import Block, Budget, Pool
from ..storage import Storage
from . import cuda_api
from .cuda_api import ask

__all__ = ["DeviceMemory", "GraphPool", "PinnedMemory", "copy_across", "read", "write"]

_STAGED = 1 << 20  # bytes up to which a copy goes through our pinned memory
_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every context


class DeviceMemory:
    """Segments of a device's memory by `cuMemAlloc`; handles are addresses."""

    def __init__(self, driver: Any):
        self._driver = driver
        self._put_off: list[int] = []

    def allocate(self, nbytes: int) -> int:
        """Raises `MemoryError` where the device has no more."""
        driver = self._driver
        cuda_api.activate(driver)
        if driver.captures:
            with cuda_api.relaxed():
                return int(ask("cuMemAlloc", nbytes))
        return int(ask("cuMemAlloc", nbytes))

    def release(self, handle: int) -> None:
        if self._driver.captures:  # freeing waits, which would break a capture
            self._put_off.append(handle)
            return
        cuda_api.activate(self._driver)
        ask("cuMemFree", handle)

    def settle(self) -> None:
        """Release what was put off while graphs were captured."""
        while self._put_off and not self._driver.captures:
            ask("cuMemFree", self._put_off.pop())

    def synchronize(self) -> None:
        self._driver.wait()


class GraphPool(Pool):
    """The pool of a stream while a graph is captured on it.

    The graph's kernels have its addresses in them, so nothing leaves it but by the graph's end: its segments are not
    given back as long as the pool lives, and a block that another stream used is not reused at all, because the
    events of a capture cannot be asked.
    """

    def _retire_segments(self) -> None:
        pass

    def _settle(self, wait: bool) -> None:
        pass


class _HostSource:
    """Pinned host memory for a pool."""

    def __init__(self, driver: Any):
        self._driver = driver

    def allocate(self, nbytes: int) -> int:
        driver = self._driver
        cuda_api.activate(driver)
        if driver.captures:
            with cuda_api.relaxed():
                return int(ask("cuMemHostAlloc", nbytes, _PORTABLE))
        return int(ask("cuMemHostAlloc", nbytes, _PORTABLE))

    def release(self, handle: int) -> None:
        cuda_api.activate(self._driver)
        ask("cuMemFreeHost", handle)

    def synchronize(self) -> None:
        self._driver.wait()


class PinnedBlock:
    """Pinned memory behind a NumPy array that users hold."""

    def __init__(self, block: Block):
        self.block = block
        self._events: dict[Any, Any] = {}
        self.address = block.segment.handle + block.offset
        self.nbytes = block.requested
        place = (self.address, False)
        self.__array_interface__ = {"shape": (self.nbytes,), "typestr": "|u1", "data": place, "version": 3}

    def used_by(self, stream: Any) -> Any:
        """Note that what is now queued on `stream` uses the memory; the event behind it. One event a stream."""
        event = self._events.get(stream)
        made = stream.record_event(event)
        if event is None:
            self._events[stream] = made
            self.block.pool.record_stream(self.block, made)
        return made

    def __del__(self) -> None:
        self.block.pool.free(self.block)


class PinnedMemory:
    """Page-locked host memory, which a GPU copies from and to by itself and at full speed."""

    def __init__(self, driver: Any):
        self.budget = Budget(default_limit(None))
        self.pool = Pool(_HostSource(driver), self.budget, None, f"the host, pinned for {driver.device}")
        self._lock = threading.RLock()
        self._blocks: WeakValueDictionary[int, PinnedBlock] = WeakValueDictionary()
        self._starts: list[int] = []

    def array(self, nbytes: int) -> np.ndarray[Any, Any]:
        """`nbytes` bytes of pinned memory; they return to the pool with the last array over them."""
        made = PinnedBlock(self.pool.allocate(nbytes))
        with self._lock:
            if len(self._starts) > 64 + 2 * len(self._blocks):
                self._starts = sorted(self._blocks.keys())
            if made.address not in self._blocks:
                insort(self._starts, made.address)
            self._blocks[made.address] = made
        return np.asarray(made)

    def holds(self, array: np.ndarray[Any, Any]) -> PinnedBlock | None:
        """The pinned block in which the memory of `array` lies, if it does."""
        if not self._starts:
            return None
        address = array.__array_interface__["data"][0]
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            found = self._blocks.get(self._starts[at]) if at >= 0 else None
        return found if found is not None and address + array.nbytes <= found.address + found.nbytes else None

    def staging(self, nbytes: int) -> tuple[Block, np.ndarray[Any, Any]]:
        """A block for one copy, and its bytes. `done` gives it back."""
        block = self.pool.allocate(nbytes)
        return block, _bytes_at(block.segment.handle + block.offset, nbytes)

    def done(self, block: Block, stream: Any) -> None:
        """Free a block once what is now queued on `stream` is through."""
        self.pool.record_stream(block, stream.record_event())
        self.pool.free(block)


class _Bytes:
    def __init__(self, address: int, nbytes: int):
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


def _bytes_at(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    return np.asarray(_Bytes(address, nbytes))


def _address(array: np.ndarray[Any, Any]) -> int:
    return array.__array_interface__["data"][0]  # type: ignore[no-any-return]


def _flat(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)


def write(driver: Any, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: Any) -> None:
    """Queue a copy of `array` (contiguous) into `storage`, `offset` bytes after its start."""
    nbytes = array.nbytes
    if not nbytes:
        return
    cuda_api.activate(driver)
    target = storage.buffer + storage.start + offset
    pinned: PinnedMemory = driver.pinned
    capture = stream.capture
    if capture is not None:  # a replay copies the values of now: the graph keeps them
        kept = pinned.array(nbytes)
        kept[:] = _flat(array)
        capture.hold(kept)
        capture.keep_storage(storage)
        ask("cuMemcpyHtoDAsync", target, _address(kept), nbytes, stream.handle)
        return
    held = pinned.holds(array)
    if held is not None:
        ask("cuMemcpyHtoDAsync", target, _address(array), nbytes, stream.handle)
        held.used_by(stream)
        return
    if nbytes <= _STAGED:
        try:
            block, staged = pinned.staging(nbytes)
        except OutOfMemoryError:
            pass  # no more pinned memory: the driver copies it somewhere
        else:
            staged[:] = _flat(array)
            ask("cuMemcpyHtoDAsync", target, _address(staged), nbytes, stream.handle)
            pinned.done(block, stream)
            return
    ask("cuMemcpyHtoDAsync", target, _address(array), nbytes, stream.handle)
    # What the driver says of pageable memory is that it has been read when the call returns, except that on systems
    # where the GPU reads it by itself (coherent links) it may not: there is no way around waiting.
    if driver.info.reads_pageable:
        stream.synchronize()


def read(
    driver: Any, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: Any, wait: bool = True
) -> Any:
    """Copy from `storage` into `array` (contiguous).

    Without `wait`, an array in pinned memory is written later, and the event returned tells when; any other array is
    waited for all the same. Raises `CaptureError` while a graph is captured on `stream`.
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
    origin = storage.buffer + storage.start + offset
    pinned: PinnedMemory = driver.pinned
    held = pinned.holds(array)
    if held is not None:
        ask("cuMemcpyDtoHAsync", _address(array), origin, nbytes, stream.handle)
        held.used_by(stream)
        if not wait:
            return stream.record_event()
    elif nbytes <= _STAGED:
        try:
            block, staged = pinned.staging(nbytes)
        except OutOfMemoryError:
            ask("cuMemcpyDtoHAsync", _address(array), origin, nbytes, stream.handle)
        else:
            try:
                ask("cuMemcpyDtoHAsync", _address(staged), origin, nbytes, stream.handle)
                stream.synchronize()
                _flat(array)[:] = staged
            finally:
                pinned.pool.free(block)
            return None
    else:
        ask("cuMemcpyDtoHAsync", _address(array), origin, nbytes, stream.handle)
    stream.synchronize()
    return None


def copy_across(source: Storage, start: int, target: Storage, nbytes: int, before: Any, stream: Any) -> None:
    """Queue a copy between two CUDA devices on `stream`, of the target's device, behind what is on `before`.

    start: the first byte to copy, from the start of `source.buffer`. What is queued on `before` later waits for the
    copy, so the source may be written to or freed. Devices that reach each other's memory copy directly, others by way
    of the host: the driver decides.
    """
    here, there = stream.driver, before.driver
    if stream.capture is not None or before.capture is not None:
        raise CaptureError(f"a copy from {there.device} to {here.device} cannot be part of a graph: copy before it")
    stream.wait_event(before.record_event())
    cuda_api.activate(here)
    to, origin = target.buffer + target.start, source.buffer + start
    ask("cuMemcpyPeerAsync", to, here.context, origin, there.context, nbytes, stream.handle)
    before.wait_event(stream.record_event())
