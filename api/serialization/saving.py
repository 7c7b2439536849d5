"""Write a file of tensors and other objects: `save`."""

from __future__ import annotations

import io
import os
import pickle
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

from ..runtime import dtypes, host_data
from ..runtime.device import meta
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError, NotPicklable
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor
from .file_format import HEADER, MAGIC, STORAGE_ALIGNMENT, TABLE_ENTRY
from .file_memory import FileMemory, _rebuild, byte_extent

__all__ = ["save", "save_archive"]


def save(
    obj: object, f: str | os.PathLike[str] | BinaryIO, pickle_module: object = None, pickle_protocol: int = 5, *,
    format: Literal["weftgrad", "torch"] = "weftgrad",
) -> None:  # fmt: skip
    """Write an object to a file. An existing file is replaced only when the new one is complete.

    Args:
        obj: Tensors, state dicts, nested containers, numbers. A non-leaf tensor is loaded as a leaf.
        f: A path, or an open binary file.
        pickle_module: Accepted for compatibility with PyTorch, and ignored.
        pickle_protocol: Protocol of the pickle in the file; in the format of PyTorch, it is 2.
        format: `weftgrad`, or `torch`: a zip archive that PyTorch reads by `torch.load(f, weights_only=True)`. It holds
            tensors, parameters, shapes, dtypes, devices, numbers, texts and containers. Tensors of devices other than
            `cpu` and `cuda` are loaded on `cpu`. Subclasses of Tensor other than `Parameter` and attributes of tensors
            are not saved.

    Raises:
        ArgumentError: The object cannot be pickled, or the format cannot express it.

    Example:
        >>> import io
        >>> buffer = io.BytesIO()
        >>> wg.save({'weight': wg.ones(2)}, buffer)
        >>> archive = io.BytesIO()
        >>> wg.save({'weight': wg.ones(2)}, archive, format='torch')
        >>> archive.getvalue()[:2]
        b'PK'
    """
    if format == "torch":
        save_archive(obj, f)
    elif format == "weftgrad":
        _write_file(_Writer.of(obj, pickle_protocol).write, f)
    else:
        raise ArgumentError(f"save: the format is 'weftgrad' or 'torch', not {format!r}")


def save_archive(obj: object, f: str | os.PathLike[str] | BinaryIO, save_devices: bool = False) -> None:
    """Write an object as a zip archive that PyTorch reads.

    Args:
        obj: Tensors, numbers, texts, and containers of these.
        f: A path, or an open binary file.
        save_devices: Name devices in the file that PyTorch does not have, instead of `cpu`.

    Raises:
        ArgumentError: The format cannot express the object; nothing is written then.
    """
    from .torch_writing import write_torch_archive  # lazy: start-up

    _write_file(partial(write_torch_archive, obj, save_devices=save_devices), f)


def _write_file(write: Callable[[BinaryIO], None], f: str | os.PathLike[str] | BinaryIO) -> None:
    """Call `write` with a file. A path gets the file when it is complete."""
    if not isinstance(f, (str, os.PathLike)):
        write(f)
        return
    path = Path(f)
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        with part.open("wb") as file:
            write(file)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
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
        except RecursionError:
            raise ArgumentError("save: containers are nested too deeply") from None
        return writer

    def reducer_override(self, value: object) -> tuple[Callable[..., Tensor], tuple[object, ...]]:
        if not isinstance(value, Tensor):
            return NotImplemented
        layout = value.meta
        start = value.start - value.storage.start if layout.numel else 0
        memory = FileMemory(self._storage_number(value, start), str(layout.device))
        return _rebuild, (type(value), memory, layout.dtype, layout.shape, layout.strides, start, value.needs_grad)

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
