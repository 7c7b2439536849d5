"""Tensors in files of `torch.save`: their memory, and the functions of torch that such files name to rebuild them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..nn.parameter import Parameter
from ..runtime import dtypes
from ..runtime.context import current_stream
from ..runtime.device import Device, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import empty
from ..runtime.dtypes import Array, DType
from ..runtime.errors import NotSupported, UnknownDevice
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor
from ..tensor_methods.conversion import _as_type
from ..tensor_methods.size import Size
from ..torch_names import dtypes as torch_dtypes
from .allowed_globals import is_trusted
from .file_memory import FileMemory, build_tensor
from .restricted_pickle import Constructor, is_shape
from .state_setting import set_attributes

__all__ = ["DTYPE_NAMES", "STORAGE_TYPES", "TORCH_GLOBALS", "StorageType", "TorchMemory", "TypedMemory"]

_MAX_ITEMSIZE = 8  # bytes of the largest element: mapped memory must be aligned to it


@dataclass(frozen=True)
class StorageType:
    """A class of torch whose name in a file says the dtype of a storage.

    Attributes:
        name: Its name, such as `FloatStorage`.
        dtype: The dtype; a `NamedDType` if there are no tensors of it here.
    """

    name: str
    dtype: DType


DTYPE_NAMES: dict[str, DType] = {
    **dtypes.BY_NAME,
    **{name: getattr(torch_dtypes, name) for name in torch_dtypes.__all__},
}
"""Every dtype that a file may name, by its name in torch."""

STORAGE_TYPES = {
    name: StorageType(name, DTYPE_NAMES[dtype])
    for name, dtype in {
        "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
        "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
        "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexDoubleStorage": "complex128",
        "ComplexFloatStorage": "complex64", "QInt8Storage": "qint8", "QInt32Storage": "qint32",
        "QUInt8Storage": "quint8", "QUInt4x2Storage": "quint4x2", "QUInt2x4Storage": "quint2x4",
        "UntypedStorage": "uint8",
    }.items()
}  # fmt: skip
"""The classes of storages by name."""


class TorchMemory(FileMemory):
    """A storage in a file of torch, as passed to a `map_location` function.

    Args:
        key: Its name in the file.
        device: Name of the device it was saved from.
        dtype: Dtype of its elements.
        nbytes: Size in bytes.
        read: Fills an array of uint8 of that size with the storage's bytes.
        mapped: The bytes as an array that maps the file, to be used without a copy on `cpu`; None: read them.
        swap_bytes: Whether the file has the other byte order.
    """

    def __init__(
        self, key: str, device: str, dtype: DType, nbytes: int, read: Callable[[Array], None],
        mapped: Array | None = None, swap_bytes: bool = False,
    ):  # fmt: skip
        super().__init__(0, device)
        self.key, self.dtype = key, dtype
        self._nbytes = nbytes
        self._read = read
        self._mapped = mapped
        self.swap_bytes = swap_bytes

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._nbytes

    def materialize(self) -> Storage:
        """Return the storage on its device, read on the first call."""
        if self.storage is None:
            self.storage = self._load(self.target_device())
        return self.storage

    def _load(self, device: Device) -> Storage:
        mapped = self._mapped
        is_usable = device.type == "cpu" and not self.swap_bytes
        if mapped is not None and is_usable and mapped.ctypes.data % _MAX_ITEMSIZE == 0:
            return device.driver.adopt(mapped)
        storage = self.allocate(device)
        if device.type != "meta":
            self.fill(storage)
        return storage

    def allocate(self, device: Device) -> Storage:
        """Return new memory of the storage's size on `device`; its content is undefined."""
        return empty(meta(dtypes.uint8, (self.nbytes,), None, device)).storage

    def fill(self, storage: Storage) -> None:
        """Read the bytes into `storage`."""
        driver, stream = storage.device.driver, current_stream(storage.device)
        if self._mapped is not None and not self.swap_bytes:
            driver.write(storage, 0, self._mapped, stream)
            return
        driver.synchronize()  # launches that wait for a compiler may still write to this memory
        view = driver.host_view(storage) if storage.device.type == "cpu" else None
        content = np.empty(self.nbytes, np.uint8) if view is None else view[: self.nbytes]
        if self._mapped is None:
            self._read(content)
        else:
            content[:] = self._mapped
        if self.swap_bytes and self.dtype.itemsize > 1:
            content.view(f"u{self.dtype.itemsize}").byteswap(inplace=True)
        if view is None:
            driver.write(storage, 0, content, stream)


@dataclass(frozen=True)
class TypedMemory:
    """What a file means by a storage: memory, the dtype of its elements, and the first element.

    Attributes:
        memory: The memory.
        dtype: Dtype of the elements.
        first: Number of the element in `memory` with which the storage begins; files before PyTorch 0.4 have views.
    """

    memory: FileMemory
    dtype: DType
    first: int = 0


def _rebuild_tensor(
    storage: object, offset: object, size: object, stride: object, needs_grad: object = False, hooks: object = None,
    metadata: object = None, dtype: object = None,
) -> Tensor:  # fmt: skip
    """Build the tensor of `torch._utils._rebuild_tensor` and `_rebuild_tensor_v2`. Every argument is checked."""
    if not isinstance(storage, TypedMemory) or type(offset) is not int or not isinstance(dtype, (DType, type(None))):
        raise pickle.UnpicklingError("a tensor's description makes no sense")
    element_type = storage.dtype if dtype is None else dtype
    shape, strides = _to_sizes(size), _to_sizes(stride)
    if isinstance(metadata, dict) and any(metadata.values()):
        raise NotSupported(f"tensors with the flags {', '.join(map(str, metadata))}: save a copy, x.resolve_neg()")
    if isinstance(element_type, dtypes.NamedDType):
        raise element_type.unsupported()
    if dtype is not None and isinstance(storage.memory, TorchMemory) and storage.memory.swap_bytes:
        raise NotSupported("untyped storages of a machine with the other byte order: save x.clone() of a typed tensor")
    if needs_grad and not element_type.is_floating_point:
        raise pickle.UnpicklingError(f"a tensor of {element_type.name} requires a gradient")
    start = (storage.first + offset) * element_type.itemsize
    return build_tensor(Tensor, storage.memory, element_type, shape, strides, start, bool(needs_grad))


def _rebuild_tensor_v3(
    storage: object, offset: object, size: object, stride: object, needs_grad: object, hooks: object, dtype: object,
    metadata: object = None,
) -> Tensor:  # fmt: skip
    if not isinstance(dtype, DType):
        raise pickle.UnpicklingError("a tensor has no dtype")
    return _rebuild_tensor(storage, offset, size, stride, needs_grad, hooks, metadata, dtype)


def _rebuild_parameter(data: object, needs_grad: object, hooks: object, state: object = None) -> Parameter:
    if not isinstance(data, Tensor):
        raise pickle.UnpicklingError("a parameter has no tensor")
    if needs_grad and not data.meta.dtype.is_floating_point:
        raise pickle.UnpicklingError(f"a parameter of {data.meta.dtype.name} requires a gradient")
    parameter = _as_type(Parameter, data, bool(needs_grad))
    assert isinstance(parameter, Parameter)
    _set_attributes(parameter, state)
    return parameter


def _rebuild_meta_tensor(dtype: object, size: object, stride: object, needs_grad: object) -> Tensor:
    if not isinstance(dtype, DType):
        raise pickle.UnpicklingError("a tensor has no dtype")
    tensor = empty(meta(dtype, _to_sizes(size), _to_sizes(stride), to_device("meta")))
    tensor.needs_grad = bool(needs_grad) and dtype.is_floating_point
    return tensor


def _rebuild_from_type(function: object, kind: object, args: object, state: object) -> Tensor:
    """Build a tensor with attributes of Python, by another function of the table."""
    if not isinstance(function, Constructor) or function.construct is None or type(args) is not tuple:
        raise pickle.UnpicklingError("a tensor's description makes no sense")
    tensor = function.construct(*args)
    tensor_class = _TENSOR_CLASSES.get(kind.name) if isinstance(kind, Constructor) else None
    if isinstance(kind, type) and issubclass(kind, Tensor) and is_trusted(kind):
        tensor_class = kind
    if not isinstance(tensor, Tensor) or tensor_class is None:
        raise pickle.UnpicklingError("a tensor is of an unknown class")
    if tensor_class is not type(tensor):
        tensor = _as_type(tensor_class, tensor, tensor.needs_grad)
    _set_attributes(tensor, state)
    return tensor


_TENSOR_CLASSES: dict[str, type[Tensor]] = {"torch.Tensor": Tensor, "torch.nn.parameter.Parameter": Parameter}


def _set_attributes(tensor: Tensor, state: object) -> None:
    """Set attributes that a program has added to a tensor; a file cannot replace the tensor's own."""
    state = state[0] if isinstance(state, tuple) and state else state
    if not state:
        return
    set_attributes(tensor, state)


def _to_sizes(sizes: object) -> tuple[int, ...]:
    sizes = tuple(sizes) if isinstance(sizes, list) else sizes
    if not is_shape(sizes):
        raise pickle.UnpicklingError("a tensor's sizes or strides make no sense")
    return sizes


def _new_size(sizes: object = ()) -> Size:
    return Size(_to_sizes(sizes))


def _new_device(kind: object, index: object = None) -> Device | str:
    """Return a device, or its name if weftgrad has none of its type, such as `mps:0`."""
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise pickle.UnpicklingError("a device has no name")
    try:
        return to_device(kind, index)  # type: ignore[arg-type]
    except UnknownDevice:
        return kind if index is None else f"{kind}:{index}"


def _new_layout(name: object) -> str:
    if type(name) is not str or not name.startswith("torch."):
        raise pickle.UnpicklingError("a layout has no name")
    return "strided" if name == "torch.strided" else name


def _refuse(description: str, remedy: str) -> Callable[..., Any]:
    """Return a constructor of what there is no tensor for."""

    def construct(*args: object) -> Any:
        raise NotSupported(f"{description}: {remedy}")

    return construct


_QUANTIZED = _refuse("quantised tensors", "save x.dequantize()")
_SPARSE = _refuse("sparse tensors", "save x.to_dense()")
_NESTED = _refuse("nested tensors", "save a padded tensor and a mask")
_WRAPPED = _refuse("tensors of a class without memory of its own", "save a plain tensor")
_NUMPY_DEVICE = _refuse("tensors of a device whose memory is not in the file", "save x.cpu()")

_FUNCTIONS: dict[tuple[str, str], Callable[..., object] | None] = {
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_v3,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _rebuild_meta_tensor,
    ("torch._utils", "_rebuild_qtensor"): _QUANTIZED,
    ("torch._utils", "_rebuild_sparse_tensor"): _SPARSE,
    ("torch._utils", "_rebuild_sparse_csr_tensor"): _SPARSE,
    ("torch._utils", "_rebuild_nested_tensor"): _NESTED,
    ("torch._utils", "_rebuild_wrapper_subclass"): _WRAPPED,
    ("torch._utils", "_rebuild_device_tensor_from_numpy"): _NUMPY_DEVICE,
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): _NUMPY_DEVICE,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type,
    ("torch.serialization", "_get_layout"): _new_layout,
    ("torch", "Size"): _new_size,
    ("torch", "device"): _new_device,
    ("torch", "Tensor"): None,
    ("torch.nn.parameter", "Parameter"): None,
}
TORCH_GLOBALS: dict[tuple[str, str], object] = {
    key: Constructor(".".join(key), function) for key, function in _FUNCTIONS.items()
}
TORCH_GLOBALS |= {
    ("torch", f"{scheme}_{kind}"): Constructor(f"torch.{scheme}_{kind}")
    for scheme in ("per_tensor", "per_channel")
    for kind in ("affine", "symmetric", "affine_float_qparams")
}
TORCH_GLOBALS |= {("torch", name): dtype for name, dtype in DTYPE_NAMES.items()}
for _module in ("torch", "torch.cuda", "torch.storage"):
    TORCH_GLOBALS |= {(_module, name): kind for name, kind in STORAGE_TYPES.items()}

"""What files may name in torch's modules, by module and name: dtypes, classes of storages, and `Constructor`s."""
