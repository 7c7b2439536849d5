"""What loaders and workers hand over: pickles whose arrays and tensors lie in shared memory.

Memory is left out of the pickle (protocol 5's out-of-band buffers). A worker puts it into one of its `slots`: shared
memory that the loader has mapped too, and that is used again when the last tensor over the batch in it is gone. So a
batch costs no copy in the parent, no new mapping and, once the slots are there, no memory that was not touched before.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections import deque
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from ... import _hosting
from ...multiprocessing import reductions, sharing
from ...runtime import dtypes
from ...runtime.errors import DeviceError, GradientError
from ...runtime.shared import PAGE, Segment
from ...runtime.tensor import Tensor
from .collate import adopted

__all__ = ["Arena", "Lease", "Parcel", "pack", "unpack"]

_ALIGNMENT = 128
_SHARED_FROM = 64 * 1024  # bytes of a storage from which on a data set's tensors are shared and not copied


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _value(tensor: Tensor) -> tuple[Any, ...]:
    """A tensor as its values."""
    if tensor.node is not None:
        raise GradientError("a worker's batch holds a tensor with a history; return x.detach()")
    layout = tensor.meta
    if layout.device.type != "cpu":
        raise DeviceError(
            f"a batch for another process holds a tensor on {layout.device}: workers hand over cpu tensors; return "
            "x.cpu() or NumPy arrays from the data set and collate_fn, and move batches to the device in the loop"
        )
    array: Any = np.ascontiguousarray(_hosting.to_host(tensor))
    memory = pickle.PickleBuffer(array) if layout.numel else None
    return _tensor, (memory, type(tensor), layout.dtype.name, layout.shape, tensor.needs)


def _tensor(memory: Any, kind: type, dtype: str, shape: tuple[int, ...], needs: bool) -> Any:
    if memory is None:
        return reductions.rebuild(None, kind, dtype, shape, None, 0, needs, None)
    flat = np.frombuffer(memory, np.uint8)
    made = adopted(flat, dtypes.parse(dtype), shape)
    return made if kind is Tensor and not needs else reductions.rebuild(
        made.storage, kind, dtype, shape, made.meta.strides, 0, needs, None
    )  # fmt: skip


class _Packer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return _value(value) if reductions.has_memory(type(value)) else NotImplemented


def pack(value: Any) -> tuple[bytes, list[np.ndarray[Any, Any]]]:
    """A pickle of `value`, and the memory of its arrays and tensors, which `unpack` wants again."""
    out = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Packer(out, protocol=5, buffer_callback=buffers.append).dump(value)
    return out.getvalue(), [_bytes(b) for b in buffers]


def _bytes(buffer: pickle.PickleBuffer) -> np.ndarray[Any, Any]:
    raw = buffer.raw()
    return np.frombuffer(raw, np.uint8) if raw.nbytes else np.empty(0, np.uint8)


def unpack(data: Any, buffers: list[np.ndarray[Any, Any]]) -> Any:
    """What was packed, over the memory of `buffers`."""
    return pickle.loads(data, buffers=buffers)


# Batches ------------------------------------------------------------------------------------------------------------


class Arena:
    """A worker's slots. `begin` before a batch is made, `take` for memory in it, `place` when it is packed.

    keep: how many free slots are held; more are given up.
    """

    def __init__(self, keep: int):
        self._keep = keep
        self._slots: dict[int, np.ndarray[Any, Any]] = {}
        self._free: list[int] = []
        self._serial = 0
        self._slot: int | None = None
        self._used = 0
        self.dropped: list[int] = []

    def release(self, slots: list[int]) -> None:
        """Nothing in the parent uses these slots any more."""
        self._free += [s for s in slots if s in self._slots]
        while len(self._free) > self._keep:
            self._drop(min(self._free, key=lambda s: len(self._slots[s])))

    def _drop(self, slot: int) -> None:
        self._free.remove(slot)
        del self._slots[slot]
        self.dropped.append(slot)

    def begin(self) -> None:
        """A batch is about to be made: choose the largest free slot for it."""
        self._slot = max(self._free, key=lambda s: len(self._slots[s]), default=None)
        self._used = 0

    def take(self, nbytes: int) -> np.ndarray[Any, Any] | None:
        """Memory of the batch's slot, None where it has no more."""
        at = self._used
        if self._slot is None or at + nbytes > len(self._slots[self._slot]):
            return None
        self._used = at + _aligned(nbytes)
        return self._slots[self._slot][at : at + nbytes]

    def settle(self) -> None:
        """The batch is sent. If something still points to its memory (a data set that keeps what it gave), the slot is
        not used again."""
        slot, self._slot = self._slot, None
        if slot in self._slots and slot not in self._free and sys.getrefcount(self._slots[slot]) > 2:
            del self._slots[slot]
            self.dropped.append(slot)

    def place(self, buffers: list[np.ndarray[Any, Any]]) -> tuple[int | None, Segment | None, list[tuple[int, int]]]:
        """Where the buffers are, after copying those that are not in the slot yet: slot, its segment if it is a new
        one, and (offset, size) of each. Raises `SharedMemoryError`."""
        if not buffers:
            return None, None, []
        places = self._fitted(buffers)
        made = None
        if places is None:
            made, places = self._grown(buffers)
        slot = self._slot
        assert slot is not None
        if slot in self._free:
            self._free.remove(slot)
        return slot, made, places

    def _fitted(self, buffers: list[np.ndarray[Any, Any]]) -> list[tuple[int, int]] | None:
        if self._slot is None:
            return None
        memory = self._slots[self._slot]
        first = _address(memory)
        places = []
        for each in buffers:
            at = _address(each) - first
            if not 0 <= at <= len(memory) - each.nbytes:
                target = self.take(each.nbytes)
                if target is None:
                    return None
                target[:] = each
                at = _address(target) - first
            places.append((at, each.nbytes))
        return places

    def _grown(self, buffers: list[np.ndarray[Any, Any]]) -> tuple[Segment, list[tuple[int, int]]]:
        need = sum(_aligned(b.nbytes) for b in buffers)
        if self._slot is not None:
            need += need // 4  # sizes vary
        made = Segment(max(-(-need // PAGE) * PAGE, PAGE), what="a batch")
        places, at = [], 0
        for each in buffers:
            made.array[at : at + each.nbytes] = each
            places.append((at, each.nbytes))
            at += _aligned(each.nbytes)
        if self._slot is not None:
            self._drop(self._slot)
        self._serial += 1
        self._slot = self._serial
        self._slots[self._slot] = made.array
        return made, places


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


class Lease:
    """A batch's hold on its slot: arrays over it keep it, and with the last of them the slot is free again."""

    __slots__ = ("__array_interface__", "_freed", "_memory", "_slot")

    def __init__(self, slot: int, memory: np.ndarray[Any, Any], freed: deque[int]):
        self._slot, self._memory, self._freed = slot, memory, freed
        self.__array_interface__ = memory.__array_interface__

    def array(self) -> np.ndarray[Any, Any]:
        """The slot's bytes."""
        return np.asarray(self)

    def __del__(self) -> None:
        self._freed.append(self._slot)


# Data sets ----------------------------------------------------------------------------------------------------------


class _ParcelPickler(ForkingPickler):
    """Tensors by place if they are shared or large, which makes them shared; by value if they are small."""

    def __init__(self, out: io.BytesIO, parcel: Parcel, callback: Callable[[Any], Any] | None):
        pickle.Pickler.__init__(self, out, protocol=5, buffer_callback=callback)
        self.dispatch_table = ForkingPickler(io.BytesIO()).dispatch_table
        self._parcel = parcel

    def reducer_override(self, value: Any) -> Any:
        if not reductions.has_memory(type(value)):
            return NotImplemented
        if not sharing.is_shared(value) and value.storage.nbytes < _SHARED_FROM:
            return _value(value)
        told = reductions.describe(value)
        sharing.share([value.storage])
        place = sharing.place_of(value.storage)
        assert place is not None
        number = self._parcel.segments.setdefault(place.token, (len(self._parcel.segments), place.segment))[0]
        return _placed, (_Reference(number, place.token), place.offset, place.nbytes, told)

    def persistent_id(self, value: Any) -> Any:
        return (value.number, value.token) if isinstance(value, _Reference) else None


class _Reference:
    def __init__(self, number: int, token: bytes):
        self.number, self.token = number, token


def _placed(source: tuple[Segment, bytes], offset: int, nbytes: int, told: tuple[Any, ...]) -> Any:
    return reductions.rebuild(sharing.storage_at(*source, offset, nbytes), *told)


class Parcel:
    """What every worker is sent once: pickled, its memory in one segment for all, mapped so that writes stay private.

    data: the pickle. memory: the segment of its small tensors and arrays, if any, and their `places` in it. segments:
    the shared memory of its large tensors, by token.
    """

    def __init__(self, value: Any):
        self.segments: dict[bytes, tuple[int, Segment]] = {}
        out = io.BytesIO()
        found: list[pickle.PickleBuffer] = []
        _ParcelPickler(out, self, found.append).dump(value)
        self.data = out.getvalue()
        buffers = [_bytes(b) for b in found]
        self.places: list[tuple[int, int]] = []
        at = 0
        for each in buffers:
            self.places.append((at, each.nbytes))
            at += _aligned(each.nbytes)
        content = [(start, each) for (start, _), each in zip(self.places, buffers, strict=True)]
        self.memory = Segment(at, what="the data set's arrays", content=content) if at else None

    @staticmethod
    def open(
        data: Any, memory: tuple[int, int] | None, places: list[tuple[int, int]], segments: list[tuple[int, int]]
    ) -> Any:
        """The value, in a worker; memory and segments are (descriptor, size)."""
        buffers: list[Any] = []
        if memory is not None:
            whole = Segment.opened(*memory, private=True)
            whole.forget()
            buffers = [whole.array[at : at + nbytes] for at, nbytes in places]
        return _Opener(io.BytesIO(data), buffers, [Segment.opened(*each) for each in segments]).load()


class _Opener(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, buffers: list[Any], segments: list[Segment]):
        super().__init__(source, buffers=buffers)
        self._segments = segments

    def persistent_load(self, pid: Any) -> Any:
        return self._segments[pid[0]], pid[1]
