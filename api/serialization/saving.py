"""Write a file of tensors and other objects: `save`."""

from __future__ import annotations

import io
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ..runtime import dtypes, host_data
from ..runtime.device import meta
from ..runtime.dtypes import Array
from ..runtime.errors import NotPicklable
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor
from .file_format import HEADER, MAGIC, STORAGE_ALIGNMENT, TABLE_ENTRY
from .file_memory import FileMemory, _rebuild, byte_extent

__all__ = ["save"]


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
        memory = FileMemory(self._storage_number(value, start), str(layout.device))
        return _rebuild, (type(value), memory, layout.dtype, layout.shape, layout.strides, start, value.needs)

    def _storage_number(self, tensor: Tensor, start: int) -> int:
        layout = tensor.meta
        if not layout.numel:
            return -1
        _, number = self.storages.setdefault(id(tensor.storage), (tensor.storage, len(self.byte_extents)))
        if number == len(self.byte_extents):
            self.byte_extents.append((start, start))
        low, top = byte_extent(layout, start)
        self.byte_extents[number] = min(self.byte_extents[number][0], low), max(self.byte_extents[number][1], top)
        return number

    def persistent_id(self, value: object) -> tuple[int, str] | None:
        return (value.number, value.device) if isinstance(value, FileMemory) else None

    def write(self, file: BinaryIO) -> None:
        """Write header, pickle, table and storages."""
        text = self.file.getvalue()
        pieces = [self._bytes(storage, *self.byte_extents[number]) for storage, number in self.storages.values()]
        file.write(HEADER.pack(MAGIC, 1, len(text), len(pieces), zlib.crc32(text)))
        file.write(text)
        for low, piece in pieces:
            file.write(TABLE_ENTRY.pack(low, piece.nbytes, zlib.crc32(piece.data)))
        for _, piece in pieces:
            file.write(piece.data)

    @staticmethod
    def _bytes(storage: Storage, low: int, top: int) -> tuple[int, Array]:
        low -= low % STORAGE_ALIGNMENT
        layout = meta(dtypes.uint8, (top - low,), None, storage.device)
        return low, host_data.to_host(Tensor(storage, layout, storage.start + low))
