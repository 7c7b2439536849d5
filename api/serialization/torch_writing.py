"""Write zip archives that `torch.load(weights_only=True)` reads: `save(..., format="torch")`."""

from __future__ import annotations

import codecs
import io
import pickle
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO, ClassVar

import numpy as np

from ..nn.parameter import Buffer, Parameter, is_lazy
from ..runtime import dtypes, host_data
from ..runtime.device import Device, Meta, meta
from ..runtime.dtypes import Array, DType
from ..runtime.errors import ArgumentError, NotPicklable
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor
from ..tensor_methods.size import Size
from .file_memory import byte_extent
from .torch_archive import RECORD_ALIGNMENT, ArchiveWriter
from .torch_tensors import STORAGE_TYPES

__all__ = ["write_torch_archive"]

_PROTOCOL = 2  # the one that torch.load(weights_only=True) reads without a warning
_STORAGE_NAMES = {kind.dtype: name for name, kind in STORAGE_TYPES.items() if name != "UntypedStorage"}
_MAX_INTEGER_BYTES = 255
_TORCH_DEVICE_TYPES = ("cpu", "cuda", "meta", "opencl", "xpu", "mps", "hpu", "xla")
_save_integer: Callable[[Any, int], None] = pickle._Pickler.dispatch[int]
_save_tuple: Callable[[Any, tuple[object, ...]], None] = pickle._Pickler.dispatch[tuple]
_PLAIN_TYPES = (
    type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, OrderedDict, Counter,
)  # fmt: skip
_NAMED_TYPES = (OrderedDict, Counter, set, complex, bytearray, codecs.encode)  # by which the pickler writes such values


def write_torch_archive(value: object, file: BinaryIO, save_devices: bool = False) -> None:
    """Write a value to a file as `torch.save` does.

    Args:
        value: Tensors, parameters, shapes, dtypes, devices, numbers, texts, and containers of these.
        file: The file to write to.
        save_devices: Name every tensor's device in the file. Otherwise devices that PyTorch does not have are named
            `cpu`: PyTorch loads tensors of an unknown device only with `map_location`.

    Raises:
        NotPicklable: The value holds something else, which `torch.load(weights_only=True)` would refuse.
        ArgumentError: Two tensors view the same memory as different dtypes.
    """
    memory = _SavedMemory()
    text = io.BytesIO()
    try:
        _TorchPickler(io.BytesIO(), memory, save_devices).dump(value)  # learns which part of each storage tensors use
        _TorchPickler(text, memory, save_devices).dump(value)
    except RecursionError:
        raise ArgumentError("save: containers are nested too deeply for format='torch'") from None
    archive = ArchiveWriter(file)
    archive.write_record("data.pkl", text.getvalue())
    archive.write_record(".format_version", b"1")
    archive.write_record(".storage_alignment", str(RECORD_ALIGNMENT).encode())
    archive.write_record("byteorder", sys.byteorder.encode())
    for number, extent in enumerate(memory.extents.values()):
        archive.write_record(f"data/{number}", extent.content().data)
    archive.write_record("version", b"3\n")
    archive.write_directory()


@dataclass(frozen=True)
class _Name:
    """A class or function of torch, which need not be installed."""

    module: str
    name: str

    def __call__(self) -> None:
        """Do nothing: pickle asserts that functions can be called."""


@cache
def _name(module: str, name: str) -> _Name:
    """Return one object for each name, which the pickler writes once."""
    return _Name(module, name)


@dataclass
class _Extent:
    """The part of a storage that tensors use.

    Attributes:
        number: Number of the storage in the file.
        storage: The storage; None for tensors without elements.
        device: Its device.
        dtype: Dtype of the tensors.
        begin: First byte in the storage.
        end: One past the last byte.
    """

    number: int
    storage: Storage | None
    device: Device
    dtype: DType
    begin: int = 0
    end: int = 0

    def content(self) -> Array:
        """Return the bytes, on the host."""
        if self.storage is None:
            return np.empty(0, np.uint8)
        layout = meta(dtypes.uint8, (self.end - self.begin,), None, self.storage.device)
        return host_data.to_host(Tensor(self.storage, layout, self.storage.start + self.begin))


class _SavedMemory:
    """The memory of all tensors in a file.

    Attributes:
        extents: The part of each storage that tensors use, by a key of the storage.
        copies: Copies of tensors with negative strides, by memory and layout. They live as long as the extents.
    """

    def __init__(self) -> None:
        self.extents: dict[object, _Extent] = {}
        self.copies: dict[object, Tensor] = {}

    def find(self, tensor: Tensor) -> _Extent:
        """Return the extent of the storage of a tensor with elements, so that it includes the tensor."""
        layout = tensor.meta
        low, top = byte_extent(layout, tensor.start - tensor.storage.start)
        new_extent = _Extent(len(self.extents), tensor.storage, layout.device, layout.dtype, low, top)
        extent = self.extents.setdefault(id(tensor.storage), new_extent)
        if extent.dtype is not layout.dtype:
            raise ArgumentError(
                f"save: two tensors view the same memory as {extent.dtype.name} and {layout.dtype.name}, which "
                "format='torch' cannot express; save a clone of one"
            )
        extent.begin, extent.end = min(extent.begin, low), max(extent.end, top)
        return extent

    def find_empty(self, position: int, layout: Meta) -> _Extent:
        """Return the extent of the tensor without elements that is the `position`-th of these in the file."""
        new_extent = _Extent(len(self.extents), None, layout.device, layout.dtype)
        return self.extents.setdefault(("empty", position), new_extent)

    def with_torch_strides(self, tensor: Tensor) -> Tensor:
        """Return a tensor without negative strides, which PyTorch does not have."""
        if all(stride >= 0 for stride in tensor.meta.strides):
            return tensor
        key = id(tensor.storage), tensor.start, tensor.meta
        if key not in self.copies:
            self.copies[key] = tensor.detach().contiguous()
        return self.copies[key]


class _TorchPickler(pickle._Pickler):
    """A pickler that names torch's functions without importing torch, and refuses all but tensors and plain values.

    It is the one in Python, because the C one imports what a pickle names.

    Args:
        file: The file for the pickle.
        memory: The tensors' memory. A first pickler collects which part of each storage tensors use, a second one
            writes offsets into these parts.
        save_devices: As in `write_torch_archive`.
    """

    dispatch: ClassVar[dict[type, Callable[..., None]]] = dict(pickle._Pickler.dispatch)
    save_reduce: Callable[..., None]  # typeshed declares none of these
    write: Callable[[bytes], object]
    memoize: Callable[[object], None]

    def __init__(self, file: io.BytesIO, memory: _SavedMemory, save_devices: bool):
        super().__init__(file, _PROTOCOL)
        self._memory = memory
        self._save_devices = save_devices
        self._empty_tensors = 0
        self._open_tuples: set[int] = set()

    def persistent_id(self, value: object) -> tuple[object, ...] | None:
        if not isinstance(value, _Extent):
            return None
        count = (value.end - value.begin) // value.dtype.itemsize
        kind = _name("torch", _STORAGE_NAMES[value.dtype])
        is_named = self._save_devices or value.device.type == "cuda"
        return "storage", kind, str(value.number), str(value.device) if is_named else "cpu", count

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Tensor):
            return self._reduce_tensor(value)
        if isinstance(value, Size):
            return _name("torch", "Size"), (tuple(value),)
        if isinstance(value, Device):
            if value.type not in _TORCH_DEVICE_TYPES:
                raise NotPicklable(f"save: PyTorch has no device {value}, so format='torch' cannot hold it as a value")
            index = () if value.index is None else (value.index,)
            return _name("torch", "device"), (value.type, *index)
        if isinstance(value, DType):
            return NotImplemented  # `save_dtype` writes it
        is_name = type(value) is _Name or any(value is kind for kind in _NAMED_TYPES)
        if not is_name and type(value) not in _PLAIN_TYPES:
            raise NotPicklable(
                f"save: {type(value).__module__}.{type(value).__qualname__} cannot be saved with format='torch', which "
                f"takes tensors, numbers, texts and containers{_remedy(value)}"
            )
        return NotImplemented

    def _reduce_tensor(self, tensor: Tensor) -> tuple[_Name, tuple[object, ...]]:
        if is_lazy(tensor):
            raise NotPicklable("save: a parameter has no shape yet; call the module once before you save it")
        if type(tensor) not in (Tensor, Parameter, Buffer):
            raise NotPicklable(
                f"save: a tensor of the class {type(tensor).__qualname__} cannot be saved with format='torch'; save "
                "x.as_subclass(Tensor)"
            )
        needs_grad = tensor.requires_grad
        hooks: OrderedDict[str, object] = OrderedDict()
        if type(tensor) is Parameter:
            data = Tensor(tensor.storage, tensor.meta, tensor.start)
            return _name("torch._utils", "_rebuild_parameter"), (data, needs_grad, hooks)
        layout = tensor.meta
        if layout.device.type == "meta":
            args: tuple[object, ...] = (layout.dtype, layout.shape, layout.strides, needs_grad)
            return _name("torch._utils", "_rebuild_meta_tensor_no_storage"), args
        offset = 0
        if not layout.numel:
            extent = self._memory.find_empty(self._empty_tensors, layout)
            self._empty_tensors += 1
        else:
            source = self._memory.with_torch_strides(tensor)
            layout = source.meta
            extent = self._memory.find(source)
            offset, remainder = divmod(source.start - source.storage.start - extent.begin, layout.dtype.itemsize)
            if remainder:
                raise ArgumentError(
                    "save: two tensors lie in the same memory at a distance that is no multiple of their dtype's size, "
                    "which format='torch' cannot express; save a clone of one"
                )
        args = (extent, offset, layout.shape, layout.strides, needs_grad, hooks)
        return _name("torch._utils", "_rebuild_tensor_v2"), args

    def save_bytes(self, value: bytes) -> None:
        """Write bytes as an encoded text; pickle's own method writes empty ones as a call that torch refuses."""
        self.save_reduce(codecs.encode, (value.decode("latin1"), "latin1"), obj=value)

    def save_integer(self, value: int) -> None:
        """Write an integer, of as many bytes as torch reads."""
        if value.bit_length() >= 8 * _MAX_INTEGER_BYTES:
            raise NotPicklable(f"save: PyTorch reads integers of up to {_MAX_INTEGER_BYTES} bytes; save str(n)")
        _save_integer(self, value)

    def save_sequence(self, value: tuple[object, ...]) -> None:
        """Write a tuple that does not hold itself: pickle writes one that does with opcodes that torch refuses."""
        if id(value) in self._open_tuples:
            raise NotPicklable("save: a tuple holds itself, which format='torch' cannot express")
        self._open_tuples.add(id(value))
        _save_tuple(self, value)
        self._open_tuples.discard(id(value))

    def save_name(self, value: _Name) -> None:
        """Write the name of a class or function of torch."""
        self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        self.memoize(value)

    def save_dtype(self, value: DType) -> None:
        """Write the name of a dtype."""
        self.write(pickle.GLOBAL + f"torch\n{value.name}\n".encode())
        self.memoize(value)

    dispatch[bytes] = save_bytes
    dispatch[int] = save_integer
    dispatch[tuple] = save_sequence
    dispatch[_Name] = save_name
    dispatch[DType] = save_dtype
    dispatch[dtypes.NamedDType] = save_dtype


def _remedy(value: object) -> str:
    if isinstance(value, np.ndarray):
        return "; save weftgrad.from_numpy(x)"
    if isinstance(value, np.generic):
        return "; save x.item()"
    return "; format='weftgrad' takes it"
