"""The storages of a file while it is loaded, and the tensors that are rebuilt over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from ..runtime import dtypes
from ..runtime.context import current_stream
from ..runtime.device import Device, DeviceLike, Meta, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import empty
from ..runtime.dtypes import Array, DType
from ..runtime.errors import ArgumentError, DeviceError
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor
from ..tensor_methods.conversion import _as_type

__all__ = ["FileMemory", "MapLocation", "MemoryTable", "assign_device", "byte_extent"]


class FileMemory:
    """A storage in a file, as passed to a `map_location` function.

    `device` is the name of the device it was saved from.
    """

    def __init__(self, number: int, device: str):
        self.number, self.device = number, device
        self.first, self.content = 0, np.empty(0, np.uint8)
        self.storage: Storage | None = None

    def to(self, device: DeviceLike | None) -> FileMemory:
        """Choose another device for the memory, and return it."""
        self.device = str(to_device(device))
        return self

    def cpu(self) -> FileMemory:
        """`to("cpu")`."""
        return self.to("cpu")

    def cuda(self, device: int = 0) -> FileMemory:
        """`to("cuda:N")`."""
        return self.to(f"cuda:{device}")

    def target_device(self) -> Device:
        """Return the device to load to. Raises `DeviceError` where there is no such device."""
        try:
            device = to_device(self.device)
            device.driver  # noqa: B018 (opens the driver, to see whether that works)
        except (DeviceError, ImportError) as error:
            raise DeviceError(
                f"load: the file has tensors of {self.device!r}, which cannot be used here ({error}); pass "
                "map_location='cpu'"
            ) from error
        return device

    def materialize(self) -> Storage:
        """Return the storage on its device, copied there on the first call."""
        if self.storage is None:
            device = self.target_device()
            output = empty(meta(dtypes.uint8, self.content.shape, None, device))
            device.driver.write(output.storage, 0, self.content, current_stream(device))
            self.storage = output.storage
        return self.storage


MapLocation: TypeAlias = (
    DeviceLike | Mapping[str, str] | Callable[[FileMemory, str], "FileMemory | DeviceLike | None"] | None
)
"""What `load` accepts as `map_location`."""


class MemoryTable:
    """The storages of a file, by the keys that `_Writer.persistent_id` writes into the pickle."""

    def __init__(self, memory: list[tuple[int, Array]], location: MapLocation):
        self._memory = memory
        self._location = location
        self._entries: dict[int, FileMemory] = {}

    def find(self, key: tuple[int, str]) -> FileMemory:
        """Return the storage of a number in the file; number -1 is that of a tensor without elements."""
        number, device = key
        if number < 0:
            return assign_device(FileMemory(number, device), self._location)
        if number not in self._entries:
            entry = self._entries[number] = FileMemory(number, device)
            entry.first, entry.content = self._memory[number]
            assign_device(entry, self._location)
        return self._entries[number]


def assign_device(memory: FileMemory, location: MapLocation) -> FileMemory:
    """Set the device of `memory` as `map_location` says, and return it."""
    target: DeviceLike | None
    if callable(location):
        origin, memory.device = memory.device, "cpu"
        choice = location(memory, origin)
        if choice is None:
            memory.device = origin
        target = None if isinstance(choice, FileMemory) else choice
    elif isinstance(location, Mapping):
        target = {str(k): v for k, v in location.items()}.get(memory.device)
    else:
        target = location
    if target is not None:
        memory.device = str(to_device(target))
    return memory


def byte_extent(layout: Meta, start: int) -> tuple[int, int]:
    """Return the first byte, and one past the last, of a tensor of this layout with its first element at `start`."""
    spans = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]  # elements, along each dimension
    lowest, highest = sum(min(span, 0) for span in spans), sum(max(span, 0) for span in spans)
    size = layout.dtype.itemsize
    return start + size * lowest, start + size * (highest + 1)


def _rebuild(
    tensor_type: type,
    memory: FileMemory,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    start: int,
    needs: bool,
) -> Tensor:
    """Build a tensor over memory of the file. Every value from the file is checked first."""
    numbers = (*shape, *strides, start)
    is_well_formed = isinstance(memory, FileMemory) and isinstance(dtype, DType) and isinstance(tensor_type, type)
    if (
        not is_well_formed
        or not issubclass(tensor_type, Tensor)
        or any(type(n) is not int for n in numbers)
        or min((0, *shape)) < 0
    ):
        raise ArgumentError("load: the file is damaged: a tensor's description makes no sense")
    layout = meta(dtype, tuple(shape), tuple(strides), memory.target_device())
    if not layout.numel:
        return _as_type(tensor_type, empty(layout), bool(needs))
    start -= memory.first
    low, top = byte_extent(layout, start)
    if low < 0 or top > memory.content.nbytes or start % dtype.itemsize:
        raise ArgumentError(f"load: the file is damaged: a tensor of shape {list(shape)} lies outside of its memory")
    storage = memory.materialize()
    return _as_type(tensor_type, Tensor(storage, layout, storage.start + start), bool(needs))


_rebuild.__module__ = "weftgrad.serialization"  # the path by which files refer to it
