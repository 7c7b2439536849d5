"""Saving and loading: tensors, containers and numbers, in one file from which no code is run.

A file is a header, a pickle of everything but memory, a table, and the bytes of each storage that tensors reach into.
Tensors that share memory when saved share it when loaded. All numbers are little-endian:

    8 bytes   b"weftgrad"
    4 x 8     version (1), bytes of the pickle, number of storages, CRC-32 of the pickle
    pickle
    n x 24    of each storage: its first byte that is here, how many are, their CRC-32
    bytes of the storages, one after the other

A file that begins otherwise may be a plain pickle of tensors, which is read as well.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from . import _hosting
from .random import Generator
from .runtime import dtypes
from .runtime.context import current_stream
from .runtime.device import Device, Meta, meta
from .runtime.device import device as to_device
from .runtime.dispatch import empty
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, DeviceError
from .runtime.storage import Storage
from .runtime.tensor import Tensor

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]

_MAGIC = b"weftgrad"
_HEADER = struct.Struct("<8sQQQQ")
_ENTRY = struct.Struct("<QQQ")
_ALIGNED = 64  # storages are cut to what tensors reach, at multiples of this
_PROTOCOL = 5

_SAFE = {
    ("collections", "OrderedDict"), ("collections", "Counter"), ("collections", "defaultdict"),
    ("collections", "deque"), ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "complex"),
    ("builtins", "slice"), ("builtins", "bytearray"), ("builtins", "range"), ("weftgrad.runtime.dtypes", "parse"),
    ("weftgrad.runtime.device", "device"), ("weftgrad.conversion", "_unpickle"), ("weftgrad.methods", "Size"),
    ("weftgrad.serialization", "_rebuild"), ("weftgrad.runtime.tensor", "Tensor"), ("weftgrad.random", "Generator"),
    ("weftgrad.nn.parameter", "Parameter"), ("weftgrad.nn.parameter", "Buffer"), ("numpy", "ndarray"),
    ("numpy", "dtype"), ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
    ("numpy.core.multiarray", "scalar"),
}  # fmt: skip
# Whose state may be set: attributes of a state_dict, arrays, generators. A Tensor's may not: it says where memory is.
_STATEFUL = (OrderedDict, np.ndarray, np.dtype, Generator)
_trusted: list[type | Callable[..., Any]] = []


# What else may be in a file -------------------------------------------------------------------------------------------


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let `load` make instances of these classes, and call these functions, although it is told `weights_only`."""
    _trusted.extend(g for g in safe_globals if g not in _trusted)


def get_safe_globals() -> list[Any]:
    """What was added."""
    return list(_trusted)


def clear_safe_globals() -> None:
    """Forget what was added."""
    _trusted.clear()


@contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """`add_safe_globals` for what runs inside."""
    before = list(_trusted)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _trusted[:] = before


def _name_of(value: Any) -> tuple[str, str]:
    return value.__module__, value.__qualname__


# Saving ---------------------------------------------------------------------------------------------------------------


def save(obj: Any, f: str | os.PathLike[str] | BinaryIO, pickle_module: Any = None, pickle_protocol: int = 5) -> None:
    """Write `obj` (tensors, state dicts, nested containers, numbers) to a path or an open binary file.

    A file that is there already is replaced only when the new one is whole. A tensor that was computed from others
    comes back as a leaf. Raises `ArgumentError` for what cannot be pickled.
    """
    writer = _Writer.of(obj, pickle_protocol)
    if not isinstance(f, (str, os.PathLike)):
        writer.write(f)
        return
    path = Path(f)
    partial = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        with partial.open("wb") as opened:
            writer.write(opened)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


class _Writer(pickle.Pickler):
    """A pickler to which memory is a number: that of its storage in the file."""

    def __init__(self, file: io.BytesIO, protocol: int):
        super().__init__(file, protocol)
        self.file = file
        self.storages: dict[int, tuple[Storage, int]] = {}
        self.reach: list[tuple[int, int]] = []

    @staticmethod
    def of(value: Any, protocol: int) -> _Writer:
        made = _Writer(io.BytesIO(), protocol)
        try:
            made.dump(value)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise ArgumentError(f"save: cannot be saved: {error}") from error
        return made

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return NotImplemented
        layout = value.meta
        start = value.start - value.storage.start if layout.numel else 0
        place = _Place(self._number(value, start), str(layout.device))
        return _rebuild, (type(value), place, layout.dtype, layout.shape, layout.strides, start, value.needs)

    def _number(self, tensor: Tensor, start: int) -> int:
        layout = tensor.meta
        if not layout.numel:
            return -1
        _, number = self.storages.setdefault(id(tensor.storage), (tensor.storage, len(self.reach)))
        if number == len(self.reach):
            self.reach.append((start, start))
        low, top = _extent(layout, start)
        self.reach[number] = min(self.reach[number][0], low), max(self.reach[number][1], top)
        return number

    def persistent_id(self, value: Any) -> Any:
        return (value.number, value.device) if isinstance(value, _Place) else None

    def write(self, file: BinaryIO) -> None:
        """Everything, in order."""
        text = self.file.getvalue()
        pieces = [self._bytes(storage, *self.reach[number]) for storage, number in self.storages.values()]
        file.write(_HEADER.pack(_MAGIC, 1, len(text), len(pieces), zlib.crc32(text)))
        file.write(text)
        for low, piece in pieces:
            file.write(_ENTRY.pack(low, piece.nbytes, zlib.crc32(piece.data)))
        for _, piece in pieces:
            file.write(piece.data)

    @staticmethod
    def _bytes(storage: Storage, low: int, top: int) -> tuple[int, np.ndarray[Any, Any]]:
        low -= low % _ALIGNED
        layout = meta(dtypes.uint8, (top - low,), None, storage.device)
        return low, _hosting.to_host(Tensor(storage, layout, storage.start + low))


def _extent(layout: Meta, start: int) -> tuple[int, int]:
    """The bytes between which a tensor of this layout lies, if its first element is at `start`."""
    reach = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    size = layout.dtype.itemsize
    return start + size * sum(min(r, 0) for r in reach), start + size * (1 + sum(max(r, 0) for r in reach))


# Loading --------------------------------------------------------------------------------------------------------------


class _Place:
    """Memory of a file, as a function given as `map_location` sees it: `device` is the name of where it was."""

    def __init__(self, number: int, device: str):
        self.number, self.device = number, device
        self.first, self.content = 0, np.empty(0, np.uint8)
        self.storage: Storage | None = None

    def to(self, device: Any) -> _Place:
        """The same memory, to be put elsewhere."""
        self.device = str(to_device(device))
        return self

    def cpu(self) -> _Place:
        """`to("cpu")`."""
        return self.to("cpu")

    def cuda(self, device: int = 0) -> _Place:
        """`to("cuda:N")`."""
        return self.to(f"cuda:{device}")

    def chosen(self) -> Device:
        """Where the memory goes. Raises `DeviceError` where there is no such device."""
        try:
            found = to_device(self.device)
            found.driver  # noqa: B018 (opened, to see whether it can be)
        except (DeviceError, ImportError) as error:
            raise DeviceError(
                f"load: the file has tensors of {self.device!r}, which cannot be used here ({error}); pass "
                "map_location='cpu'"
            ) from error
        return found

    def put(self) -> Storage:
        """The memory, on its device; the first time, it is brought there."""
        if self.storage is None:
            place = self.chosen()
            made = empty(meta(dtypes.uint8, self.content.shape, None, place))
            place.driver.write(made.storage, 0, self.content, current_stream(place))
            self.storage = made.storage
        return self.storage


def load(
    f: str | os.PathLike[str] | BinaryIO, map_location: Any = None, pickle_module: Any = None, *,
    weights_only: bool = True, mmap: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """Read what `save` wrote, from a path or an open binary file.

    map_location: where its tensors go; None for where they were. A device or its name; a mapping from names to names;
    or a function of a stand-in for the memory and the name of where it was, which returns the stand-in (then it goes
    to `cpu`), `stand-in.to(DEVICE)`, a device, or None for where it was.
    weights_only: refuse anything but tensors, containers, numbers, arrays and what `add_safe_globals` named. A pickle
    can run code: with False, load only what you trust.

    Raises `ArgumentError` for a file that is cut off, damaged, or none of these, and for what is refused;
    `DeviceError` for tensors of a device that is not here.
    """
    if isinstance(f, (str, os.PathLike)):
        with Path(f).open("rb") as opened:
            return load(opened, map_location, weights_only=weights_only)
    begin = f.read(len(_MAGIC))
    if begin != _MAGIC:
        return _plain(begin, f, map_location, weights_only)
    _, version, size, count, check = _HEADER.unpack(begin + _exactly(f, _HEADER.size - len(begin), "its header"))
    if version != 1:
        raise ArgumentError(f"load: the file is of version {version}, and this weftgrad reads version 1")
    text = _exactly(f, size, "its contents")
    if zlib.crc32(text) != check:
        raise ArgumentError("load: the file is damaged: a checksum of its contents is wrong")
    table = [_ENTRY.unpack(_exactly(f, _ENTRY.size, "its table")) for _ in range(count)]
    memory = []
    for number, (first, nbytes, check) in enumerate(table):
        content = _exactly(f, nbytes, f"tensor memory {number + 1} of {count}")
        if zlib.crc32(content) != check:
            raise ArgumentError(f"load: the file is damaged: a checksum of tensor memory {number + 1} is wrong")
        memory.append((first, np.frombuffer(content, np.uint8)))
    return _unpickled(text, memory, map_location, weights_only)


def _exactly(file: BinaryIO, size: int, what: str) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ArgumentError(f"load: the file is cut off in {what}: {len(data)} of {size} bytes are there")
    return data


def _plain(begin: bytes, file: BinaryIO, location: Any, weights_only: bool) -> Any:
    """What a pickle without a header holds."""
    if begin[:1] != b"\x80":
        known = {b"PK\x03\x04": "a zip archive, as torch.save writes it: read it there, and save its tensors as NumPy "
                 "arrays", b"\x93NUM": "an array of NumPy's: read it with numpy.load"}  # fmt: skip
        shown = "empty" if not begin else known.get(begin[:4], "no file of weftgrad.save")
        if begin and _MAGIC.startswith(begin):
            shown = "cut off in its header"
        raise ArgumentError(f"load: the file is {shown}")
    found = _unpickled(begin + file.read(), [], None, weights_only)
    return found if location is None else _moved(found, location)


def _unpickled(text: bytes, memory: list[tuple[int, np.ndarray[Any, Any]]], location: Any, weights_only: bool) -> Any:
    reader = (_Reader if weights_only else _Trusting)(io.BytesIO(text))
    places: dict[int, _Place] = {}

    def place(key: Any) -> _Place:
        number, device = key
        if number not in places:
            made = places[number] = _Place(number, device)
            if number >= 0:
                made.first, made.content = memory[number]
            _locate(made, location)
        return places[number] if number >= 0 else _locate(_Place(number, device), location)

    reader.persistent_load = place
    try:
        return reader.load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, (ArgumentError, DeviceError)):
            raise
        raise ArgumentError(f"load: cannot read the file: {error}") from error


def _locate(place: _Place, location: Any) -> _Place:
    """`place` with the device that `map_location` wants."""
    wanted: Any = None
    if callable(location):
        origin, place.device = place.device, "cpu"
        wanted = location(place, origin)
        if wanted is None:
            place.device = origin
        wanted = None if wanted is place else wanted
    elif isinstance(location, dict):
        wanted = {str(k): v for k, v in location.items()}.get(place.device)
    else:
        wanted = location
    if wanted is not None:
        place.device = str(to_device(wanted))
    return place


class _Trusting(pickle.Unpickler):
    persistent_load: Any


_InPython: Any = pickle._Unpickler  # type: ignore[attr-defined]


class _Reader(_InPython):  # type: ignore[misc]
    """An unpickler of what is listed above. (The one in C cannot be told whose state may be set.)"""

    dispatch: ClassVar[dict[int, Any]] = dict(_InPython.dispatch)
    persistent_load: Any

    def find_class(self, module: str, name: str) -> Any:
        for each in _trusted:
            if _name_of(each) == (module, name):
                return each
        if (module, name) not in _SAFE:
            raise pickle.UnpicklingError(
                f"it holds {module}.{name}, which is no tensor, container or number; if you trust the file, name it to "
                "add_safe_globals, or pass weights_only=False"
            )
        return super().find_class(module, name)

    def load_build(self) -> None:
        value = self.stack[-2]
        if not isinstance(value, _STATEFUL) and type(value) not in _trusted:
            raise pickle.UnpicklingError(f"it sets the state of a {type(value).__name__}, which no saved value needs")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build


def _rebuild(
    kind: type, place: _Place, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], start: int, needs: bool
) -> Any:
    """A tensor over memory of the file. Nothing that the file says is believed without a check."""
    from .conversion import _rebuilt

    numbers = (*shape, *strides, start)
    sound = isinstance(place, _Place) and isinstance(dtype, DType) and isinstance(kind, type)
    if not sound or not issubclass(kind, Tensor) or any(type(n) is not int for n in numbers) or min((0, *shape)) < 0:
        raise ArgumentError("load: the file is damaged: a tensor's description makes no sense")
    layout = meta(dtype, tuple(shape), tuple(strides), place.chosen())
    if not layout.numel:
        return _rebuilt(kind, empty(layout), bool(needs))
    start -= place.first
    low, top = _extent(layout, start)
    if low < 0 or top > place.content.nbytes or start % dtype.itemsize:
        raise ArgumentError(f"load: the file is damaged: a tensor of shape {list(shape)} lies outside of its memory")
    storage = place.put()
    return _rebuilt(kind, Tensor(storage, layout, storage.start + start), bool(needs))


def _moved(value: Any, place: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(device=place)  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return type(value)((k, _moved(v, place)) for k, v in value.items())
    if isinstance(value, (list, tuple, set)):
        return type(value)(_moved(v, place) for v in value)
    return value
