"""Transfer data sets and batches between loader and workers: pickles whose arrays and tensors are in shared memory.

The memory of arrays and tensors is not part of the pickle (out-of-band buffers of protocol 5). A worker writes it into
one of its slots: shared memory that the loader has mapped too. A slot is reused when the last tensor over its batch is
deleted. So a batch costs no copy in the parent, no new mapping and, once the slots exist, no page faults.
"""

from __future__ import annotations

import io
import pickle
import sys
import weakref
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import TypeAlias

import numpy as np

from ...multiprocessing import reductions, sharing
from ...runtime import dtypes, host_data
from ...runtime.dtypes import Array
from ...runtime.errors import DeviceError, GradientError
from ...runtime.shared import PAGE, Segment
from ...runtime.tensor import Tensor
from ._types import Batch, Places, Workload
from .collate import wrap_bytes

__all__ = ["Arena", "Lease", "LeaseReference", "Parcel", "pack", "unpack"]

_ALIGNMENT = 128
_MIN_SHARED_BYTES = 64 * 1024  # tensors of a data set with larger storages are shared, smaller ones copied


_Reduction: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]
"""What `pickle` stores for an object: a function, and the arguments with which it makes the object again."""


def _align(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _reduce_tensor(tensor: Tensor) -> _Reduction:
    """Return the pickle reduction of a tensor by value, with its memory as an out-of-band buffer."""
    if tensor.node is not None:
        raise GradientError("a worker's batch holds a tensor with a history; return x.detach()")
    layout = tensor.meta
    if layout.device.type != "cpu":
        raise DeviceError(
            f"a batch for another process holds a tensor on {layout.device}: workers hand over cpu tensors; return "
            "x.cpu() or NumPy arrays from the data set and collate_fn, and move batches to the device in the loop"
        )
    array = np.ascontiguousarray(host_data.to_host(tensor))
    memory = pickle.PickleBuffer(array.data) if layout.numel else None
    return _rebuild_tensor, (memory, type(tensor), layout.dtype.name, layout.shape, tensor.needs_grad)


def _rebuild_tensor(
    memory: Array | memoryview | None, kind: type[Tensor], dtype: str, shape: tuple[int, ...], needs_grad: bool
) -> Tensor:
    if memory is None:
        return reductions.rebuild(None, kind, dtype, shape, None, 0, needs_grad, None)
    flat = np.frombuffer(memory, np.uint8)
    tensor = wrap_bytes(flat, dtypes.parse(dtype), shape)
    return tensor if kind is Tensor and not needs_grad else reductions.rebuild(
        tensor.storage, kind, dtype, shape, tensor.meta.strides, 0, needs_grad, None
    )  # fmt: skip


class _Packer(pickle.Pickler):
    def reducer_override(self, value: object) -> _Reduction:
        return _reduce_tensor(value) if reductions.is_tensor_with_memory(value) else NotImplemented


def pack(value: object) -> tuple[bytes, list[Array]]:
    """Return a pickle of `value`, and the buffers of its arrays and tensors; `unpack` needs both."""
    out = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Packer(out, protocol=5, buffer_callback=buffers.append).dump(value)
    return out.getvalue(), [_bytes(b) for b in buffers]


def _bytes(buffer: pickle.PickleBuffer) -> Array:
    raw = buffer.raw()
    return np.frombuffer(raw, np.uint8) if raw.nbytes else np.empty(0, np.uint8)


def unpack(data: bytes | memoryview, buffers: list[Array]) -> Batch:
    """Return the packed value, over the memory of `buffers`."""
    return pickle.loads(data, buffers=buffers)


# Batches ------------------------------------------------------------------------------------------------------------


class Arena:
    """A worker's slots. Call `begin` before a batch, `take` for memory in it, `place` when it is packed, then `settle`.

    Args:
        max_free_slots: The maximum number of free slots; further ones are freed.

    Attributes:
        dropped: Slots that were freed; the next message tells the parent, which then unmaps them.
    """

    def __init__(self, max_free_slots: int):
        self._max_free_slots = max_free_slots
        self._slots: dict[int, Array] = {}
        self._free: list[int] = []
        self._serial = 0
        self._slot: int | None = None
        self._used = 0
        self.dropped: list[int] = []

    def release(self, slots: list[int]) -> None:
        """Mark slots as free that the parent no longer uses."""
        self._free += [s for s in slots if s in self._slots]
        while len(self._free) > self._max_free_slots:
            self._drop(min(self._free, key=lambda s: len(self._slots[s])))

    def _drop(self, slot: int) -> None:
        self._free.remove(slot)
        del self._slots[slot]
        self.dropped.append(slot)

    def begin(self) -> None:
        """Begin a batch in the largest free slot."""
        self._slot = max(self._free, key=lambda s: len(self._slots[s]), default=None)
        self._used = 0

    def take(self, nbytes: int) -> Array | None:
        """Return memory in the batch's slot, or None if there is not enough left."""
        offset = self._used
        if self._slot is None or offset + nbytes > len(self._slots[self._slot]):
            return None
        self._used = offset + _align(nbytes)
        return self._slots[self._slot][offset : offset + nbytes]

    def settle(self) -> None:
        """Finish a batch after sending it. If the data set still holds its memory, the slot is not reused."""
        slot, self._slot = self._slot, None
        if slot in self._slots and slot not in self._free and sys.getrefcount(self._slots[slot]) > 2:
            del self._slots[slot]
            self.dropped.append(slot)

    def place(self, buffers: list[Array]) -> tuple[int | None, Segment | None, Places]:
        """Copy buffers that are not in the slot yet into it, or into a new slot if they do not fit.

        Returns:
            The slot (None: no buffers), its segment if it is new, and the (offset, size) of each buffer.

        Raises:
            SharedMemoryError: There is not enough memory for a new slot.
        """
        if not buffers:
            return None, None, []
        places = self._copy_into_slot(buffers)
        new_segment = None
        if places is None:
            new_segment, places = self._allocate_slot(buffers)
        slot = self._slot
        assert slot is not None
        if slot in self._free:
            self._free.remove(slot)
        return slot, new_segment, places

    def _copy_into_slot(self, buffers: list[Array]) -> Places | None:
        if self._slot is None:
            return None
        memory = self._slots[self._slot]
        first = _address(memory)
        places = []
        for buffer in buffers:
            offset = _address(buffer) - first
            if not 0 <= offset <= len(memory) - buffer.nbytes:
                target = self.take(buffer.nbytes)
                if target is None:
                    return None
                target[:] = buffer
                offset = _address(target) - first
            places.append((offset, buffer.nbytes))
        return places

    def _allocate_slot(self, buffers: list[Array]) -> tuple[Segment, Places]:
        needed_bytes = sum(_align(b.nbytes) for b in buffers)
        if self._slot is not None:
            needed_bytes += needed_bytes // 4  # batch sizes vary: leave some room
        segment = Segment(max(-(-needed_bytes // PAGE) * PAGE, PAGE), purpose="a batch")
        places, offset = [], 0
        for buffer in buffers:
            segment.array[offset : offset + buffer.nbytes] = buffer
            places.append((offset, buffer.nbytes))
            offset += _align(buffer.nbytes)
        if self._slot is not None:
            self._drop(self._slot)
        self._serial += 1
        self._slot = self._serial
        self._slots[self._slot] = segment.array
        return segment, places


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


class Lease:
    """Keeps a batch's slot in use: arrays over it hold a reference to the lease."""

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, memory: Array):
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__

    def array(self) -> Array:
        """Return the slot's bytes."""
        return np.asarray(self)


class LeaseReference(weakref.ref[Lease]):
    """A weak reference to a lease, which knows the slot. Its callback is called when the last array is deleted.

    The callback should be a function in C, such as `deque.append`. Python prints and drops an exception of Python code
    that runs there, and Ctrl-C is one: it would be lost, and the slot with it.
    """

    __slots__ = ("slot",)
    slot: int


# Data sets ----------------------------------------------------------------------------------------------------------


class _ParcelPickler(ForkingPickler):
    """Pickles large or already shared tensors as locations in shared memory, and small ones by value."""

    def __init__(self, out: io.BytesIO, parcel: Parcel, callback: Callable[[pickle.PickleBuffer], object] | None):
        pickle.Pickler.__init__(self, out, protocol=5, buffer_callback=callback)
        self.dispatch_table = ForkingPickler(io.BytesIO()).dispatch_table
        self._parcel = parcel

    def reducer_override(self, value: object) -> _Reduction:
        if not reductions.is_tensor_with_memory(value):
            return NotImplemented
        if not sharing.is_shared(value) and value.storage.nbytes < _MIN_SHARED_BYTES:
            return _reduce_tensor(value)
        description = reductions.describe(value)
        sharing.share([value.storage])
        location = sharing.find_location(value.storage)
        assert location is not None
        number = self._parcel.segments.setdefault(location.token, (len(self._parcel.segments), location.segment))[0]
        return _rebuild_shared_tensor, (
            _Reference(number, location.token),
            location.offset,
            location.nbytes,
            description,
        )

    def persistent_id(self, value: object) -> tuple[int, bytes] | None:
        return (value.number, value.token) if isinstance(value, _Reference) else None


class _Reference:
    def __init__(self, number: int, token: bytes):
        self.number, self.token = number, token


def _rebuild_shared_tensor(
    source: tuple[Segment, bytes], offset: int, nbytes: int, description: reductions.Description
) -> Tensor:
    return reductions.rebuild(sharing.storage_at(*source, offset, nbytes), *description)


class Parcel:
    """The pickled data set and functions that every worker gets, with one shared segment for all workers.

    Workers map the segment privately, so that their writes do not reach the others.

    Attributes:
        data: The pickle.
        memory: The segment of small tensors and arrays; None if there are none.
        places: The (offset, size) of each of them in `memory`.
        segments: (number, segment) of the large tensors, by token.
    """

    def __init__(self, value: object):
        self.segments: dict[bytes, tuple[int, Segment]] = {}
        out = io.BytesIO()
        pickle_buffers: list[pickle.PickleBuffer] = []
        _ParcelPickler(out, self, pickle_buffers.append).dump(value)
        self.data = out.getvalue()
        buffers = [_bytes(b) for b in pickle_buffers]
        self.places: Places = []
        offset = 0
        for buffer in buffers:
            self.places.append((offset, buffer.nbytes))
            offset += _align(buffer.nbytes)
        content = [(position, buffer) for (position, _), buffer in zip(self.places, buffers, strict=True)]
        self.memory = Segment(offset, purpose="the data set's arrays", content=content) if offset else None

    @staticmethod
    def open(data: bytes, memory: tuple[int, int] | None, places: Places, segments: Places) -> Workload:
        """Unpickle the value in a worker.

        Args:
            data: The pickle.
            memory: (file descriptor, size) of the segment of small arrays; None if there are none.
            places: The (offset, size) of each array in it.
            segments: (file descriptor, size) of the segments of large tensors.
        """
        buffers: list[Array] = []
        if memory is not None:
            segment = Segment.from_fd(*memory, private=True)
            segment.forget()
            buffers = [segment.array[offset : offset + nbytes] for offset, nbytes in places]
        return _Opener(io.BytesIO(data), buffers, [Segment.from_fd(*descriptor) for descriptor in segments]).load()


class _Opener(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, buffers: list[Array], segments: list[Segment]):
        super().__init__(source, buffers=buffers)
        self._segments = segments

    def persistent_load(self, pid: tuple[int, bytes]) -> tuple[Segment, bytes]:
        return self._segments[pid[0]], pid[1]
