"""Save and load tensors, containers and numbers in one file. Loading runs no code from the file by default.

A file is a header, a pickle of everything except tensor memory, a table, and the bytes of each storage that tensors
use. Tensors that share memory when saved share it when loaded. All numbers are little-endian:

    8 bytes   b"weftgrad"
    4 x 8     version (1), bytes of the pickle, number of storages, CRC-32 of the pickle
    pickle
    n x 24    for each storage: offset of the first saved byte, number of bytes, CRC-32 of the bytes
    bytes of the storages, one after the other

A file without this header may be a plain pickle of tensors; `load` reads it as well.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, TypeAlias

import numpy as np

from .random import Generator
from .runtime import dtypes, host_data
from .runtime.context import current_stream
from .runtime.device import Device, DeviceLike, Meta, meta
from .runtime.device import device as to_device
from .runtime.dispatch import empty
from .runtime.dtypes import Array, DType
from .runtime.errors import ArgumentError, DeviceError, NotPicklable
from .runtime.storage import Storage
from .runtime.tensor import Tensor

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]

_MAGIC = b"weftgrad"
_HEADER = struct.Struct("<8sQQQQ")
_TABLE_ENTRY = struct.Struct("<QQQ")
_STORAGE_ALIGNMENT = 64  # bytes; the saved part of a storage begins at a multiple of this
_PROTOCOL = 5

_SAFE = {
    ("collections", "OrderedDict"), ("collections", "Counter"), ("collections", "defaultdict"),
    ("collections", "deque"), ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "complex"),
    ("builtins", "slice"), ("builtins", "bytearray"), ("builtins", "range"), ("weftgrad.runtime.dtypes", "parse"),
    ("weftgrad.runtime.device", "device"), ("weftgrad.tensor_methods.conversion", "_unpickle"),
    ("weftgrad.tensor_methods.size", "Size"),
    ("weftgrad.serialization", "_rebuild"), ("weftgrad.runtime.tensor", "Tensor"), ("weftgrad.random", "Generator"),
    ("weftgrad.nn.parameter", "Parameter"), ("weftgrad.nn.parameter", "Buffer"), ("numpy", "ndarray"),
    ("numpy", "dtype"), ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
    ("numpy.core.multiarray", "scalar"),
}  # fmt: skip
# Files of version 0.1 name the modules as they were called then.
_MOVED_MODULES = {
    "weftgrad.conversion": "weftgrad.tensor_methods.conversion",
    "weftgrad.methods": "weftgrad.tensor_methods.methods",
}
# Types whose state a file may set: a state_dict's attributes, arrays, generators. Not Tensor: its state has addresses.
_STATE_ALLOWED = (OrderedDict, np.ndarray, np.dtype, Generator)
_trusted_globals: list[Callable[..., object]] = []


# Trusted classes and functions ----------------------------------------------------------------------------------------


def add_safe_globals(safe_globals: Sequence[Callable[..., object]]) -> None:
    """Allow these classes and functions in files that `load` reads with `weights_only=True`.

    Args:
        safe_globals: Classes and functions.

    Example:
        >>> import decimal
        >>> wg.serialization.add_safe_globals([decimal.Decimal])
        >>> decimal.Decimal in wg.serialization.get_safe_globals()
        True
        >>> wg.serialization.clear_safe_globals()
    """
    _trusted_globals.extend(g for g in safe_globals if g not in _trusted_globals)


def get_safe_globals() -> list[Callable[..., object]]:
    """Return the classes and functions that `add_safe_globals` added.

    Returns:
        List of classes and functions.

    Example:
        >>> wg.serialization.get_safe_globals()
        []
    """
    return list(_trusted_globals)


def clear_safe_globals() -> None:
    """Remove everything that `add_safe_globals` added.

    Example:
        >>> wg.serialization.clear_safe_globals()
        >>> wg.serialization.get_safe_globals()
        []
    """
    _trusted_globals.clear()


@contextmanager
def safe_globals(safe_globals: Sequence[Callable[..., object]]) -> Iterator[None]:
    """Call `add_safe_globals` for the duration of a `with` block.

    Args:
        safe_globals: Classes and functions.

    Returns:
        Context manager; it restores the earlier list at the end.

    Example:
        >>> from fractions import Fraction
        >>> with wg.serialization.safe_globals([Fraction]):
        ...     wg.serialization.get_safe_globals()
        ...
        [<class 'fractions.Fraction'>]
    """
    previous = list(_trusted_globals)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _trusted_globals[:] = previous


def _name_of(value: Callable[..., object]) -> tuple[str, str]:
    return value.__module__, value.__qualname__


# Saving ---------------------------------------------------------------------------------------------------------------


def save(
    obj: object, f: str | os.PathLike[str] | BinaryIO, pickle_module: object = None, pickle_protocol: int = 5
) -> None:
    """Write an object to a file. An existing file is replaced only when the new one is complete.

    Args:
        obj: Tensors, state dicts, nested containers, numbers. A non-leaf tensor is loaded as a leaf.
        f: A path, or an open binary file.
        pickle_module: Accepted for compatibility with PyTorch, and ignored.
        pickle_protocol: Protocol of the pickle in the file.

    Raises:
        ArgumentError: The object cannot be pickled.

    Example:
        >>> import io
        >>> buffer = io.BytesIO()
        >>> wg.save({'weight': wg.ones(2)}, buffer)
    """
    writer = _Writer.of(obj, pickle_protocol)
    if not isinstance(f, (str, os.PathLike)):
        writer.write(f)
        return
    path = Path(f)
    partial = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        with partial.open("wb") as file:
            writer.write(file)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


class _Writer(pickle.Pickler):
    """A pickler that writes a tensor's memory as the number of its storage in the file."""

    def __init__(self, file: io.BytesIO, protocol: int):
        super().__init__(file, protocol)
        self.file = file
        self.storages: dict[int, tuple[Storage, int]] = {}
        self.byte_extents: list[tuple[int, int]] = []

    @staticmethod
    def of(value: object, protocol: int) -> _Writer:
        writer = _Writer(io.BytesIO(), protocol)
        try:
            writer.dump(value)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise NotPicklable(f"save: cannot be saved: {error}") from error
        return writer

    def reducer_override(self, value: object) -> tuple[Callable[..., Tensor], tuple[object, ...]]:
        if not isinstance(value, Tensor):
            return NotImplemented
        layout = value.meta
        start = value.start - value.storage.start if layout.numel else 0
        memory = _FileMemory(self._storage_number(value, start), str(layout.device))
        return _rebuild, (type(value), memory, layout.dtype, layout.shape, layout.strides, start, value.needs)

    def _storage_number(self, tensor: Tensor, start: int) -> int:
        layout = tensor.meta
        if not layout.numel:
            return -1
        _, number = self.storages.setdefault(id(tensor.storage), (tensor.storage, len(self.byte_extents)))
        if number == len(self.byte_extents):
            self.byte_extents.append((start, start))
        low, top = _extent(layout, start)
        self.byte_extents[number] = min(self.byte_extents[number][0], low), max(self.byte_extents[number][1], top)
        return number

    def persistent_id(self, value: object) -> tuple[int, str] | None:
        return (value.number, value.device) if isinstance(value, _FileMemory) else None

    def write(self, file: BinaryIO) -> None:
        """Write header, pickle, table and storages."""
        text = self.file.getvalue()
        pieces = [self._bytes(storage, *self.byte_extents[number]) for storage, number in self.storages.values()]
        file.write(_HEADER.pack(_MAGIC, 1, len(text), len(pieces), zlib.crc32(text)))
        file.write(text)
        for low, piece in pieces:
            file.write(_TABLE_ENTRY.pack(low, piece.nbytes, zlib.crc32(piece.data)))
        for _, piece in pieces:
            file.write(piece.data)

    @staticmethod
    def _bytes(storage: Storage, low: int, top: int) -> tuple[int, Array]:
        low -= low % _STORAGE_ALIGNMENT
        layout = meta(dtypes.uint8, (top - low,), None, storage.device)
        return low, host_data.to_host(Tensor(storage, layout, storage.start + low))


def _extent(layout: Meta, start: int) -> tuple[int, int]:
    """Return the first byte of a tensor, and the byte after its last.

    The tensor has this layout, and its first element is at `start`.
    """
    byte_extents = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    size = layout.dtype.itemsize
    return start + size * sum(min(r, 0) for r in byte_extents), start + size * (
        1 + sum(max(r, 0) for r in byte_extents)
    )


# Loading --------------------------------------------------------------------------------------------------------------


class _FileMemory:
    """A storage in a file, as passed to a `map_location` function.

    `device` is the name of the device it was saved from.
    """

    def __init__(self, number: int, device: str):
        self.number, self.device = number, device
        self.first, self.content = 0, np.empty(0, np.uint8)
        self.storage: Storage | None = None

    def to(self, device: DeviceLike | None) -> _FileMemory:
        """Choose another device for the memory, and return it."""
        self.device = str(to_device(device))
        return self

    def cpu(self) -> _FileMemory:
        """`to("cpu")`."""
        return self.to("cpu")

    def cuda(self, device: int = 0) -> _FileMemory:
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
    DeviceLike | Mapping[str, str] | Callable[[_FileMemory, str], "_FileMemory | DeviceLike | None"] | None
)
"""What `load` accepts as `map_location`."""


def load(
    f: str | os.PathLike[str] | BinaryIO, map_location: MapLocation = None, pickle_module: object = None, *,
    weights_only: bool = True, mmap: bool = False, **_: object,
) -> Any:  # what was saved  # fmt: skip
    """Read an object that `save` wrote.

    Args:
        f: A path, or an open binary file.
        map_location: Device to load tensors to. None: the device they were saved from. Otherwise a device or its name;
            a mapping from saved to new device names; or a function `(storage, device_name)`, which returns the storage
            (load to `cpu`), `storage.to(device)`, a device, or None (the saved device).
        pickle_module: Accepted for compatibility with PyTorch, and ignored.
        weights_only: Refuse everything but tensors, containers, numbers, arrays and the types that `add_safe_globals`
            added. A pickle can run code: pass False only for files that you trust.
        mmap: Accepted for compatibility with PyTorch, and ignored.
        **_: Further arguments of PyTorch's function; ignored.

    Returns:
        The object.

    Raises:
        ArgumentError: The file is truncated, damaged, of another format, or contains something that is refused.
        DeviceError: A device of the file does not exist here.

    Example:
        >>> import io
        >>> buffer = io.BytesIO()
        >>> wg.save({'weight': wg.ones(2)}, buffer)
        >>> position = buffer.seek(0)
        >>> wg.load(buffer)
        {'weight': tensor([1., 1.])}
    """
    if isinstance(f, (str, os.PathLike)):
        with Path(f).open("rb") as file:
            return load(file, map_location, weights_only=weights_only)
    head = f.read(len(_MAGIC))
    if head != _MAGIC:
        return _load_plain_pickle(head, f, map_location, weights_only)
    _, version, size, count, checksum = _HEADER.unpack(head + _read_exactly(f, _HEADER.size - len(head), "its header"))
    if version != 1:
        raise ArgumentError(f"load: the file is of version {version}, and this weftgrad reads version 1")
    text = _read_exactly(f, size, "its contents")
    if zlib.crc32(text) != checksum:
        raise ArgumentError("load: the file is damaged: a checksum of its contents is wrong")
    table = [_TABLE_ENTRY.unpack(_read_exactly(f, _TABLE_ENTRY.size, "its table")) for _ in range(count)]
    memory = []
    for number, (first, nbytes, checksum) in enumerate(table):
        content = _read_exactly(f, nbytes, f"tensor memory {number + 1} of {count}")
        if zlib.crc32(content) != checksum:
            raise ArgumentError(f"load: the file is damaged: a checksum of tensor memory {number + 1} is wrong")
        memory.append((first, np.frombuffer(content, np.uint8)))
    return _load_pickle(text, memory, map_location, weights_only)


def _read_exactly(file: BinaryIO, size: int, section: str) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ArgumentError(f"load: the file is cut off in {section}: {len(data)} of {size} bytes are there")
    return data


def _load_plain_pickle(head: bytes, file: BinaryIO, location: MapLocation, weights_only: bool) -> object:
    """Load a plain pickle, which has no weftgrad header."""
    if head[:1] != b"\x80":
        foreign_formats = {b"PK\x03\x04": "a zip archive, as torch.save writes it: read it there, and save its "
                 "tensors as NumPy arrays", b"\x93NUM": "an array of NumPy's: read it with numpy.load"}  # fmt: skip
        description = "empty" if not head else foreign_formats.get(head[:4], "no file of weftgrad.save")
        if head and _MAGIC.startswith(head):
            description = "cut off in its header"
        raise ArgumentError(f"load: the file is {description}")
    value = _load_pickle(head + file.read(), [], None, weights_only)
    return value if location is None else _move_to_devices(value, location)


def _load_pickle(text: bytes, memory: list[tuple[int, Array]], location: MapLocation, weights_only: bool) -> object:
    reader = (_Reader if weights_only else _UnsafeReader)(io.BytesIO(text), _MemoryTable(memory, location))
    try:
        return reader.load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, (ArgumentError, DeviceError)):
            raise
        raise ArgumentError(f"load: cannot read the file: {error}") from error


class _MemoryTable:
    """The storages of a file, by the keys that `_Writer.persistent_id` writes into the pickle."""

    def __init__(self, memory: list[tuple[int, Array]], location: MapLocation):
        self._memory = memory
        self._location = location
        self._entries: dict[int, _FileMemory] = {}

    def find(self, key: tuple[int, str]) -> _FileMemory:
        """Return the storage of a number in the file; number -1 is that of a tensor without elements."""
        number, device = key
        if number < 0:
            return _assign_device(_FileMemory(number, device), self._location)
        if number not in self._entries:
            entry = self._entries[number] = _FileMemory(number, device)
            entry.first, entry.content = self._memory[number]
            _assign_device(entry, self._location)
        return self._entries[number]


def _assign_device(memory: _FileMemory, location: MapLocation) -> _FileMemory:
    """Set the device of `memory` as `map_location` says, and return it."""
    target: DeviceLike | None
    if callable(location):
        origin, memory.device = memory.device, "cpu"
        choice = location(memory, origin)
        if choice is None:
            memory.device = origin
        target = None if isinstance(choice, _FileMemory) else choice
    elif isinstance(location, Mapping):
        target = {str(k): v for k, v in location.items()}.get(memory.device)
    else:
        target = location
    if target is not None:
        memory.device = str(to_device(target))
    return memory


class _UnsafeReader(pickle.Unpickler):
    """An unpickler of all types, which may run code from the file."""

    def __init__(self, file: io.BytesIO, table: _MemoryTable):
        super().__init__(file)
        self._table = table

    def persistent_load(self, key: tuple[int, str]) -> _FileMemory:
        return self._table.find(key)

    def find_class(self, module: str, name: str) -> object:
        return super().find_class(_MOVED_MODULES.get(module, module), name)


class _Reader(pickle._Unpickler):
    """An unpickler of allowed types only. It is the one in Python, because the C one has no hook for setting state."""

    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)
    stack: list[object]

    def __init__(self, file: io.BytesIO, table: _MemoryTable):
        super().__init__(file)
        self._table = table

    def persistent_load(self, key: tuple[int, str]) -> _FileMemory:
        return self._table.find(key)

    def find_class(self, module: str, name: str) -> object:
        module = _MOVED_MODULES.get(module, module)
        for trusted in _trusted_globals:
            if _name_of(trusted) == (module, name):
                return trusted
        if (module, name) not in _SAFE:
            raise pickle.UnpicklingError(
                f"it holds {module}.{name}, which is no tensor, container or number; if you trust the file, name it to "
                "add_safe_globals, or pass weights_only=False"
            )
        return super().find_class(module, name)

    def load_build(self) -> None:
        value = self.stack[-2]
        if not isinstance(value, _STATE_ALLOWED) and type(value) not in _trusted_globals:
            raise pickle.UnpicklingError(f"it sets the state of a {type(value).__name__}, which no saved value needs")
        super().load_build()  # type: ignore[misc]  # typeshed has neither this method nor the type of `dispatch`

    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]


def _rebuild(
    tensor_type: type,
    memory: _FileMemory,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    start: int,
    needs: bool,
) -> Tensor:
    """Build a tensor over memory of the file. Every value from the file is checked first."""
    from .tensor_methods.conversion import _as_type

    numbers = (*shape, *strides, start)
    is_well_formed = isinstance(memory, _FileMemory) and isinstance(dtype, DType) and isinstance(tensor_type, type)
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
    low, top = _extent(layout, start)
    if low < 0 or top > memory.content.nbytes or start % dtype.itemsize:
        raise ArgumentError(f"load: the file is damaged: a tensor of shape {list(shape)} lies outside of its memory")
    storage = memory.materialize()
    return _as_type(tensor_type, Tensor(storage, layout, storage.start + start), bool(needs))


def _move_to_devices(value: object, location: MapLocation) -> object:
    """Return `value` with the tensors of nested containers moved to the devices that `map_location` says."""
    if isinstance(value, Tensor):
        return value.to(device=_assign_device(_FileMemory(-1, str(value.meta.device)), location).device)
    if isinstance(value, dict):
        return type(value)((k, _move_to_devices(v, location)) for k, v in value.items())
    if isinstance(value, (list, tuple, set)):
        return type(value)(_move_to_devices(v, location) for v in value)
    return value
