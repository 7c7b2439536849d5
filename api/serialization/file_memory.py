"""The storages of a file while it is loaded, and the tensors that are rebuilt over them."""

from __future__ import annotations

import math
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
from .read_errors import CallbackError
from .restricted_pickle import is_shape

__all__ = ["FileMemory", "MapLocation", "MemoryTable", "assign_device", "build_tensor", "byte_extent"]

_MAX_OFFSET = (1 << 63) - 1
_MAX_UNUSED_STRIDE = 1 << 48  # elements: NumPy multiplies strides by the item size, those of size 1 too


class FileMemory:
    """A storage in a file, as passed to a `map_location` function.

    `device` is the name of the device it was saved from.
    """

    def __init__(self, number: int, device: str):
        self.number, self.device = number, device
        self.first, self.content = 0, np.empty(0, np.uint8)
        self.storage: Storage | None = None

    @property
    def nbytes(self) -> int:
        """Number of bytes that the file has of the storage."""
        return self.content.nbytes

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
        if type(key) is not tuple or [type(part) for part in key] != [int, str]:
            raise ArgumentError("load: the file is damaged: it refers to something else than a storage")
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
        try:
            choice = location(memory, origin)
        except Exception as error:  # of the program, not of the file
            raise CallbackError from error
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
    needs_grad: bool,
) -> Tensor:
    """Build a tensor over memory of the file. Every value from the file is checked first."""
    is_well_formed = isinstance(memory, FileMemory) and isinstance(dtype, DType) and isinstance(tensor_type, type)
    if (
        not is_well_formed
        or not issubclass(tensor_type, Tensor)
        or not is_shape(shape)
        or not isinstance(strides, tuple)
        or len(strides) > len(shape)
        or any(type(n) is not int or not -_MAX_OFFSET <= n <= _MAX_OFFSET for n in (*strides, start))
    ):
        raise ArgumentError("load: the file is damaged: a tensor's description makes no sense")
    return build_tensor(tensor_type, memory, dtype, tuple(shape), tuple(strides), start, bool(needs_grad))


_rebuild.__module__ = "weftgrad.serialization"  # the path by which files refer to it


def build_tensor(
    tensor_type: type[Tensor], memory: FileMemory, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...],
    start: int, needs_grad: bool,
) -> Tensor:  # fmt: skip
    """Return a tensor over memory of a file.

    Args:
        tensor_type: Tensor or a subclass.
        memory: The memory.
        dtype: Dtype of the elements.
        shape: Sizes, not negative.
        strides: Strides in elements, one for each size.
        start: Offset of the first element in bytes, in the storage that was saved.
        needs_grad: Whether it requires a gradient.

    Raises:
        ArgumentError: An element lies outside of the memory, or is not aligned in it.
    """
    if len(shape) != len(strides):
        raise ArgumentError(f"load: the file is damaged: a tensor has {len(shape)} sizes and {len(strides)} strides")
    is_empty = 0 in shape
    if math.prod(size for size in shape if size) * dtype.itemsize > _MAX_OFFSET:  # NumPy refuses empty arrays so, too
        raise ArgumentError(f"load: the file is damaged: a tensor has the shape {list(shape)}")
    strides = tuple(
        1 if (size == 1 or is_empty) and abs(stride) > _MAX_UNUSED_STRIDE else stride
        for size, stride in zip(shape, strides, strict=True)
    )
    layout = meta(dtype, shape, strides, memory.target_device())
    if not layout.numel:
        return _as_type(tensor_type, empty(layout), needs_grad)
    start -= memory.first
    low, top = byte_extent(layout, start)
    if low < 0 or top > memory.nbytes or start % dtype.itemsize:
        raise ArgumentError(f"load: the file is damaged: a tensor of shape {list(shape)} lies outside of its memory")
    storage = memory.materialize()
    return _as_type(tensor_type, Tensor(storage, layout, storage.start + start), needs_grad)
