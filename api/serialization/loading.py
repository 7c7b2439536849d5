"""Read files that `save` wrote, and plain pickles: `load`."""

from __future__ import annotations

import io
import os
import pickle
import zlib
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError, DeviceError
from ..runtime.tensor import Tensor
from .allowed_globals import current_module, has_safe_state, is_safe, trusted_global
from .file_format import HEADER, MAGIC, TABLE_ENTRY
from .file_memory import FileMemory, MapLocation, MemoryTable, assign_device

__all__ = ["load"]


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
    head = f.read(len(MAGIC))
    if head != MAGIC:
        return _load_plain_pickle(head, f, map_location, weights_only)
    _, version, size, count, checksum = HEADER.unpack(head + _read_exactly(f, HEADER.size - len(head), "its header"))
    if version != 1:
        raise ArgumentError(f"load: the file is of version {version}, and this weftgrad reads version 1")
    text = _read_exactly(f, size, "its contents")
    if zlib.crc32(text) != checksum:
        raise ArgumentError("load: the file is damaged: a checksum of its contents is wrong")
    table = [TABLE_ENTRY.unpack(_read_exactly(f, TABLE_ENTRY.size, "its table")) for _ in range(count)]
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
        if head and MAGIC.startswith(head):
            description = "cut off in its header"
        raise ArgumentError(f"load: the file is {description}")
    value = _load_pickle(head + file.read(), [], None, weights_only)
    return value if location is None else _move_to_devices(value, location)


def _load_pickle(text: bytes, memory: list[tuple[int, Array]], location: MapLocation, weights_only: bool) -> object:
    reader = (_Reader if weights_only else _UnsafeReader)(io.BytesIO(text), MemoryTable(memory, location))
    try:
        return reader.load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, (ArgumentError, DeviceError)):
            raise
        raise ArgumentError(f"load: cannot read the file: {error}") from error


def _move_to_devices(value: object, location: MapLocation) -> object:
    """Return `value` with the tensors of nested containers moved to the devices that `map_location` says."""
    if isinstance(value, Tensor):
        return value.to(device=assign_device(FileMemory(-1, str(value.meta.device)), location).device)
    if isinstance(value, dict):
        return type(value)((k, _move_to_devices(v, location)) for k, v in value.items())
    if isinstance(value, (list, tuple, set)):
        return type(value)(_move_to_devices(v, location) for v in value)
    return value


class _UnsafeReader(pickle.Unpickler):
    """An unpickler of all types, which may run code from the file."""

    def __init__(self, file: io.BytesIO, table: MemoryTable):
        super().__init__(file)
        self._table = table

    def persistent_load(self, key: tuple[int, str]) -> FileMemory:
        return self._table.find(key)

    def find_class(self, module: str, name: str) -> object:
        return super().find_class(current_module(module, name), name)


class _Reader(pickle._Unpickler):
    """An unpickler of allowed types only. It is the one in Python, because the C one has no hook for setting state."""

    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)
    stack: list[object]

    def __init__(self, file: io.BytesIO, table: MemoryTable):
        super().__init__(file)
        self._table = table

    def persistent_load(self, key: tuple[int, str]) -> FileMemory:
        return self._table.find(key)

    def find_class(self, module: str, name: str) -> object:
        module = current_module(module, name)
        trusted = trusted_global(module, name)
        if trusted is not None:
            return trusted
        if not is_safe(module, name):
            raise pickle.UnpicklingError(
                f"it holds {module}.{name}, which is no tensor, container or number; if you trust the file, name it to "
                "add_safe_globals, or pass weights_only=False"
            )
        return super().find_class(module, name)

    def load_build(self) -> None:
        value = self.stack[-2]
        if not has_safe_state(value):
            raise pickle.UnpicklingError(f"it sets the state of a {type(value).__name__}, which no saved value needs")
        super().load_build()  # type: ignore[misc]  # typeshed has neither this method nor the type of `dispatch`

    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]
