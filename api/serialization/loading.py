"""Read files that `save` or `torch.save` wrote, and plain pickles: `load`."""

from __future__ import annotations

import io
import os
import pickle
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..runtime.dtypes import Array, DType
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..tensor_methods.conversion import _unpickle
from .allowed_globals import current_module
from .file_format import HEADER, MAGIC, TABLE_ENTRY
from .file_memory import FileMemory, MapLocation, MemoryTable, assign_device
from .read_errors import load_converting_errors, load_naming_path

__all__ = ["load"]

_ZIP_MAGIC = b"PK"
_MAX_UNCHECKED_READ = 1 << 20  # bytes that are read without a look at the length of the file


def load(
    f: str | os.PathLike[str] | BinaryIO, map_location: MapLocation = None, pickle_module: object = None, *,
    weights_only: bool = True, mmap: bool = False, **_: object,
) -> Any:  # any type can have been saved  # fmt: skip
    """Read an object that `save` or PyTorch's `torch.save` wrote.

    The first bytes tell the format: weftgrad's own, PyTorch's zip archive, the format before PyTorch 1.6, or a pickle.

    Args:
        f: A path, or an open binary file.
        map_location: Device to load tensors to. None: the device they were saved from. Otherwise a device or its name;
            a mapping from saved to new device names; or a function `(storage, device_name)`, which returns the storage
            (load to `cpu`), `storage.to(device)`, a device, or None (the saved device).
        pickle_module: Accepted for compatibility with PyTorch, and ignored.
        weights_only: Refuse everything but tensors, containers, numbers, arrays and the types that `add_safe_globals`
            added. A pickle can run code: pass False only for files that you trust.
        mmap: Map an archive of PyTorch's into memory instead of reading it: pages are read when tensors on `cpu` use
            them, writes to the tensors stay in this process, and checksums of tensor memory are not compared. `f` must
            be a path. Nothing may shorten the file while tensors use it. Weftgrad's own format is read as without it.
        **_: Further arguments of PyTorch's function; ignored.

    Returns:
        The object.

    Raises:
        ArgumentError: The file is truncated, damaged, of another format, or contains something that is refused.
        UnsupportedDType: A tensor has a dtype that there are no tensors of, such as complex64; the message names both.
        NotSupported: A tensor is sparse, quantised or nested.
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
            return load_naming_path(f, lambda: _load(file, map_location, weights_only, mmap))
    if mmap:
        raise ArgumentError("load: mmap=True needs the path of the file instead of an open file")
    return load_naming_path(None, lambda: _load(f, map_location, weights_only, mmap))


def _load(f: BinaryIO, map_location: MapLocation, weights_only: bool, mmap: bool) -> object:
    """Load an open file; see `load` for the arguments."""
    head = f.read(len(MAGIC))
    if head != MAGIC:
        return _load_foreign_file(head, f, map_location, weights_only, mmap)
    _, version, size, count, checksum = HEADER.unpack(head + _read_exactly(f, HEADER.size - len(head), "its header"))
    if version != 1:
        raise ArgumentError(f"load: the file is of version {version}, and this weftgrad reads version 1")
    pickled = _read_exactly(f, size, "its contents")
    if zlib.crc32(pickled) != checksum:
        raise ArgumentError("load: the file is damaged: a checksum of its contents is wrong")
    table = [TABLE_ENTRY.unpack(_read_exactly(f, TABLE_ENTRY.size, "its table")) for _ in range(count)]
    memory = []
    for number, (first, nbytes, checksum) in enumerate(table):
        content = _read_exactly(f, nbytes, f"tensor memory {number + 1} of {count}")
        if zlib.crc32(content) != checksum:
            raise ArgumentError(f"load: the file is damaged: a checksum of tensor memory {number + 1} is wrong")
        memory.append((first, np.frombuffer(content, np.uint8)))
    return _load_pickle(pickled, memory, map_location, weights_only)


def _read_exactly(file: BinaryIO, size: int, section: str) -> bytes:
    """Read `size` bytes. Raise `ArgumentError`, which names the section of the file, if there are fewer.

    The size comes from the file, and `read` allocates that much before it reads. So a large size is first compared with
    the file's length, and a pipe, whose length is unknown, is read in pieces.
    """
    if size <= _MAX_UNCHECKED_READ:
        data = file.read(size)
    elif file.seekable():
        position = file.tell()
        available = file.seek(0, os.SEEK_END) - position
        file.seek(position)
        data = file.read(min(size, available))
    else:
        pieces = []
        remaining = size
        while remaining and (piece := file.read(min(remaining, _MAX_UNCHECKED_READ))):
            pieces.append(piece)
            remaining -= len(piece)
        data = b"".join(pieces)
    if len(data) != size:
        raise ArgumentError(f"load: the file is cut off in {section}: {len(data)} of {size} bytes are there")
    return data


def _load_foreign_file(head: bytes, file: BinaryIO, location: MapLocation, weights_only: bool, mmap: bool) -> object:
    """Load a file that begins with `head`, and has no weftgrad header."""
    if head[:2] == _ZIP_MAGIC or head[:1] == pickle.PROTO:
        from . import torch_reading  # lazy: start-up

        if not file.seekable():
            file = io.BytesIO(head + file.read())
        else:
            file.seek(-len(head), os.SEEK_CUR)
        if head[:2] == _ZIP_MAGIC:
            return torch_reading.load_archive(file, location, weights_only, mmap)
        start = file.tell()
        is_legacy = torch_reading.is_legacy_file(file.read(torch_reading.MAX_HEAD))
        file.seek(start)
        if mmap:
            raise ArgumentError("load: mmap=True needs an archive of torch.save, and the file is a pickle")
        if is_legacy:
            return torch_reading.load_legacy(file, location, weights_only)
        return _load_pickle(file.read(), [], location, weights_only)
    description = "empty" if not head else "no file of weftgrad.save or torch.save"
    if head[:4] == b"\x93NUM":
        description = "an array of NumPy's: read it with numpy.load"
    elif file.read(1) == b"{":  # behind the size of a header of JSON
        description = "of safetensors, or of another format: try weftgrad.serialization.load_safetensors"
    elif head and MAGIC.startswith(head):
        description = "cut off in its header"
    raise ArgumentError(f"load: the file is {description}")


def _load_pickle(pickled: bytes, memory: list[tuple[int, Array]], location: MapLocation, weights_only: bool) -> object:
    from .own_values import new_reader  # lazy: start-up

    table = MemoryTable(memory, location)
    if not weights_only:
        return load_converting_errors(
            "load: cannot read the file", _UnsafeReader(io.BytesIO(pickled), table, location).load
        )
    reader = new_reader(pickled, table.find, location)
    return load_converting_errors("load: cannot read the file", reader.load, reader.key_path)


class _UnsafeReader(pickle.Unpickler):
    """An unpickler of all types, which may run code from the file."""

    def __init__(self, file: io.BytesIO, table: MemoryTable, location: MapLocation):
        super().__init__(file)
        self._table = table
        self._location = location

    def persistent_load(self, key: tuple[int, str]) -> FileMemory:
        return self._table.find(key)

    def find_class(self, module: str, name: str) -> object:
        module = current_module(module, name)
        if (module, name) == ("weftgrad.tensor_methods.conversion", "_unpickle"):
            return self._make_tensor
        return super().find_class(module, name)

    def _make_tensor(
        self, tensor_type: type[Tensor], array: Array, dtype: DType, device: str, needs_grad: bool
    ) -> Tensor:
        """Call `_unpickle` with the device that `map_location` says."""
        memory = assign_device(FileMemory(-1, device), self._location)
        return _unpickle(tensor_type, array, dtype, str(memory.target_device()), needs_grad)
