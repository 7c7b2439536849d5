"""Read files of `torch.save`: zip archives, and the format before PyTorch 1.6.

An archive has the record `data.pkl`, a pickle of everything but the storages, a record `data/KEY` for each storage,
and `byteorder`. The pickle refers to a storage by the persistent id `("storage", class, key, device, numel)`.

The older format has five pickles and the storages, one after the other: a magic number, the version 1001, a dict about
the machine, the object, and the list of the storages' keys. Each storage is its number of elements (8 bytes,
little-endian) and its elements. Its persistent ids have a sixth item: None, or `(key, first element, numel)` of a view.
"""

from __future__ import annotations

import io
import mmap as memory_maps
import pickle
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import BinaryIO

import numpy as np

from ..runtime.dtypes import Array, DType
from ..runtime.errors import ArgumentError
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor
from .allowed_globals import current_module, is_trusted, trusted_global
from .file_memory import MapLocation, assign_device
from .numpy_values import NUMPY_GLOBALS, set_numpy_state
from .read_errors import load_converting_errors
from .restricted_pickle import CONTAINERS, PickleReader
from .state_setting import set_attributes, set_trusted_state
from .torch_archive import Archive
from .torch_tensors import TORCH_GLOBALS, StorageType, TorchMemory, TypedMemory

__all__ = ["LEGACY_MAGIC", "MAX_HEAD", "is_legacy_file", "load_archive", "load_legacy"]

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
MAX_HEAD = 32
"""Number of the first bytes that tell whether a file has the format before PyTorch 1.6."""
_LEGACY_VERSION = 1001
_MAGIC_OPCODE = pickle.LONG1 + b"\x0a" + LEGACY_MAGIC.to_bytes(10, "little") + pickle.STOP
_SOURCES_OF_MODULES = "module"  # the first item of the persistent id of a whole module in the older format
_DATA_PICKLE = "data.pkl"
_PROBLEM = "load: cannot read this file of PyTorch's format"
_REMEDY = "save tensors, such as those of a state_dict"


def is_legacy_file(head: bytes) -> bool:
    """Return True if a file with these `MAX_HEAD` first bytes has the format before PyTorch 1.6."""
    return head[:1] == pickle.PROTO and _MAGIC_OPCODE in head


def load_archive(file: BinaryIO, location: MapLocation, weights_only: bool, mmap: bool) -> object:
    """Read the zip archive at the present position of a file that can seek.

    Args:
        file: The file. With `mmap`, one of the file system.
        location: As in `load`.
        weights_only: As in `load`.
        mmap: Map the storages into memory instead of reading them. Tensors on `cpu` are then the pages of the file;
            writes to them stay in this process.

    Returns:
        The object.

    Raises:
        ArgumentError: The file is damaged, or contains something that is refused.
    """
    return load_converting_errors(_PROBLEM, lambda: _ArchiveLoader(file, location, mmap).load(weights_only))


def load_legacy(file: BinaryIO, location: MapLocation, weights_only: bool) -> object:
    """Read a file of the older format at the present position; arguments and errors are those of `load_archive`."""
    return load_converting_errors(_PROBLEM, lambda: _LegacyLoader(file.read(), location).load(weights_only))


class _Loader:
    """Rebuilds the object of a file's pickle.

    Args:
        location: As in `load`.
    """

    def __init__(self, location: MapLocation):
        self._location = location
        self._memories: dict[str, TorchMemory] = {}

    def read_pickle(self, text: bytes, weights_only: bool, start: int = 0) -> tuple[object, int]:
        """Return the object of the pickle that begins at `start` of `text`, and the position of its end."""
        if not weights_only:
            stream = io.BytesIO(text)
            stream.seek(start)
            return _UnsafeReader(stream, self.load_persistent).load(), stream.tell()
        reader = PickleReader(
            text, _find_global, self.load_persistent, _set_state, is_trusted, start,
            internal_types=(TypedMemory, StorageType),
        )  # fmt: skip
        return load_converting_errors(_PROBLEM, reader.load, reader.key_path), reader.position

    def load_persistent(self, key: object) -> TypedMemory:
        """Return the storage of a persistent id. The file's number of elements must not exceed the storage."""
        if type(key) is not tuple or len(key) not in (5, 6) or key[0] != "storage":
            if type(key) is tuple and key[:1] == (_SOURCES_OF_MODULES,):
                raise pickle.UnpicklingError(f"it holds a whole module: {_REMEDY}")
            raise pickle.UnpicklingError("it refers to something else than a storage")
        kind, name, device, count = key[1:5]
        if not isinstance(kind, StorageType) or [type(name), type(device), type(count)] != [str, str, int]:
            raise pickle.UnpicklingError("a storage's description makes no sense")
        if count < 0:
            raise pickle.UnpicklingError("a storage has a negative size")
        memory = self._memories.get(name)
        if memory is None:
            memory = self._memories[name] = self.new_memory(name, device, kind.dtype, count * kind.dtype.itemsize)
            assign_device(memory, self._location)
        if memory.dtype is not kind.dtype or count * kind.dtype.itemsize > memory.nbytes:
            raise pickle.UnpicklingError(f"storage {name} is described in two ways")
        view = key[5] if len(key) == 6 else None
        if view is None:
            return TypedMemory(memory, kind.dtype)
        if type(view) is not tuple or len(view) != 3 or [type(n) for n in view[1:]] != [int, int] or view[1] < 0:
            raise pickle.UnpicklingError("a view of a storage makes no sense")
        return TypedMemory(memory, kind.dtype, view[1])

    def new_memory(self, name: str, device: str, dtype: DType, nbytes: int) -> TorchMemory:
        """Return the memory of a storage that the pickle names for the first time."""
        raise NotImplementedError


class _ArchiveLoader(_Loader):
    """Reads an archive."""

    def __init__(self, file: BinaryIO, location: MapLocation, mmap: bool):
        super().__init__(location)
        self._archive = Archive(file)
        self._content: Array | None = None
        if mmap:
            mapping = memory_maps.mmap(file.fileno(), 0, access=memory_maps.ACCESS_COPY)
            self._content = np.frombuffer(mapping, np.uint8)
        byte_order = "little"
        if "byteorder" in self._archive.records:
            byte_order = self._archive.read("byteorder").decode()
        if byte_order not in ("little", "big"):
            raise pickle.UnpicklingError("its byte order is neither little nor big")
        self._swap_bytes = byte_order != sys.byteorder

    def load(self, weights_only: bool) -> object:
        """Return the object."""
        records = self._archive.records
        if "constants.pkl" in records:
            raise ArgumentError("load: the file is a TorchScript program: save the state_dict of its module instead")
        if _DATA_PICKLE not in records:
            raise ArgumentError(
                "load: the file is a zip archive without data.pkl, which neither torch.save nor weftgrad.save wrote"
            )
        return self.read_pickle(self._archive.read(_DATA_PICKLE), weights_only)[0]

    def new_memory(self, name: str, device: str, dtype: DType, nbytes: int) -> TorchMemory:
        record = self._archive.find(f"data/{name}")
        if record.nbytes != nbytes:
            raise pickle.UnpicklingError(
                f"storage {name} has {record.nbytes} bytes in the file, and {nbytes} bytes by its description"
            )
        mapped = None
        if self._content is not None:
            begin = self._archive.start + record.offset
            mapped = self._content[begin : begin + nbytes]
            if mapped.nbytes != nbytes:  # another process has shortened the file since its directory was read
                raise EOFError(f"it is cut off in storage {name}")
        read = partial(self._archive.read_into, f"data/{name}")
        return TorchMemory(name, device, dtype, nbytes, read, mapped, self._swap_bytes)


class _LegacyMemory(TorchMemory):
    """A storage of the older format, whose bytes lie behind the pickle: it is filled when the pickle is read."""

    def materialize(self) -> Storage:
        if self.storage is None:
            self.storage = self.allocate(self.target_device())
        return self.storage

    def fill_later(self) -> None:
        """Read the bytes, if a tensor uses them."""
        if self.storage is not None and self.nbytes:
            self.fill(self.storage)


class _LegacyLoader(_Loader):
    """Reads a file of the older format."""

    def __init__(self, text: bytes, location: MapLocation):
        super().__init__(location)
        self._text = text
        self._offsets: dict[str, int] = {}
        self._described_bytes = 0

    def load(self, weights_only: bool) -> object:
        """Return the object."""
        magic, position = self.read_pickle(self._text, True)
        version, position = self.read_pickle(self._text, True, position)
        if magic != LEGACY_MAGIC or version != _LEGACY_VERSION:
            raise pickle.UnpicklingError("its version is unknown")
        _, position = self.read_pickle(self._text, True, position)
        value, position = self.read_pickle(self._text, weights_only, position)
        names, position = self.read_pickle(self._text, True, position)
        self._find_storages(names, position)
        for memory in self._memories.values():
            assert isinstance(memory, _LegacyMemory)
            memory.fill_later()
        return value

    def new_memory(self, name: str, device: str, dtype: DType, nbytes: int) -> TorchMemory:
        self._described_bytes += nbytes
        if self._described_bytes > len(self._text):
            raise EOFError("it describes more bytes than it has")
        return _LegacyMemory(name, device, dtype, nbytes, partial(self._read, name))

    def _read(self, name: str, content: Array) -> None:
        content[:] = np.frombuffer(self._text, np.uint8, content.size, self._offsets[name])

    def _find_storages(self, names: object, position: int) -> None:
        """Find the first byte of each storage, from the position of the first one."""
        if type(names) is not list or any(type(name) is not str for name in names):
            raise pickle.UnpicklingError("the list of its storages makes no sense")
        if set(names) != set(self._memories) or len(names) != len(self._memories):
            raise pickle.UnpicklingError("the list of its storages differs from those of its tensors")
        for name in names:
            nbytes = self._memories[name].nbytes
            if position + 8 + nbytes > len(self._text):
                raise EOFError(f"it is cut off in storage {name}")
            (count,) = struct.unpack_from("<q", self._text, position)
            if count * self._memories[name].dtype.itemsize != nbytes:
                raise pickle.UnpicklingError(f"storage {name} has another size than its description")
            self._offsets[name] = position + 8
            position += 8 + nbytes


def _find_global(module: str, name: str) -> object:
    """Return the class, function or value that a file names, if every file may contain it or the user has added it."""
    trusted = trusted_global(module, name)
    if trusted is not None:
        return trusted
    if (module, name) in _TABLE:
        return _TABLE[module, name]
    remedy = "if you trust the file, name it to add_safe_globals, or pass weights_only=False"
    if module.partition(".")[0] == "torch":
        remedy = _REMEDY
    raise pickle.UnpicklingError(f"it holds {module}.{name}, which is no tensor, container or number; {remedy}")


_TABLE = CONTAINERS | TORCH_GLOBALS | NUMPY_GLOBALS


def _set_state(value: object, state: object) -> None:
    """Set the attributes of a state dict, the content of an array, or the state of a class that the user trusts."""
    if type(value) is OrderedDict:
        set_attributes(value, state)
    elif isinstance(value, (np.ndarray, np.dtype)):
        set_numpy_state(value, state)
    elif isinstance(value, Tensor) or not is_trusted(type(value)):
        raise pickle.UnpicklingError(f"it sets the state of a {type(value).__name__}, which no saved value needs")
    else:
        set_trusted_state(value, state)


class _UnsafeReader(pickle.Unpickler):
    """An unpickler of all types, which may run code from the file."""

    def __init__(self, file: io.BytesIO, load_persistent: Callable[[object], object]):
        super().__init__(file)
        self._load_persistent = load_persistent

    def persistent_load(self, key: object) -> object:
        return self._load_persistent(key)

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in TORCH_GLOBALS:
            return TORCH_GLOBALS[module, name]
        if module.partition(".")[0] == "torch":
            raise pickle.UnpicklingError(f"it holds {module}.{name}, which is not read: {_REMEDY}")
        return super().find_class(current_module(module, name), name)
