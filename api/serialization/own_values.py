"""What files of weftgrad's own format, and plain pickles, may name, and how each named class is called.

A file names the classes themselves, because they may be values: `{"factory": OrderedDict}`. A call of one of them calls
the function of this table instead, which checks the arguments: they may not allocate more than they hold, as
`bytearray(1 << 40)` does, nor describe memory. Saved values never need such calls.
"""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ..nn._hook_tables import HookTable
from ..nn.parameter import Buffer, Parameter
from ..random import Generator
from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.device import device as to_device
from ..runtime.dtypes import DType
from ..runtime.tensor import Tensor
from ..tensor_methods.conversion import _unpickle
from ..tensor_methods.size import Size
from ..torch_names.torch_module import TorchVersion
from .allowed_globals import current_module, is_trusted, trusted_global
from .file_memory import FileMemory, MapLocation, _rebuild, assign_device
from .numpy_values import ALL_NUMPY_GLOBALS, set_numpy_state
from .restricted_pickle import CONTAINERS, Constructor, PickleReader, check_keys
from .state_setting import set_attributes, set_trusted_state

__all__ = ["new_reader"]

_TENSOR_TYPES = (Tensor, Parameter, Buffer)
_Construct = Callable[..., object]


def _container(name: str) -> _Construct:
    constructor = CONTAINERS["builtins" if name.islower() else "collections", name]
    assert isinstance(constructor, Constructor)
    assert constructor.construct is not None
    return constructor.construct


def _new_defaultdict(factory: object = None) -> defaultdict[Any, Any]:
    if factory is not None and not is_trusted(factory) and not any(factory is known for known in _FACTORIES):
        raise pickle.UnpicklingError("it calls defaultdict as no saved value needs it")
    return defaultdict(factory)  # type: ignore[call-overload]  # items follow by opcodes of their own


def _new_deque(items: object = (), max_length: object = None) -> deque[Any]:
    if type(items) not in (list, tuple) or type(max_length) not in (int, type(None)):
        raise pickle.UnpicklingError("it calls deque as no saved value needs it")
    return deque(items, max_length)  # type: ignore[call-overload]


def _new_range(*args: object) -> range:
    if not args or any(type(arg) is not int for arg in args):
        raise pickle.UnpicklingError("it calls range as no saved value needs it")
    return range(*args)  # type: ignore[call-overload]


def _new_size(sizes: object = ()) -> Size:
    if not isinstance(sizes, (list, tuple)) or any(not isinstance(n, int) for n in sizes):
        raise pickle.UnpicklingError("it calls Size as no saved value needs it")
    return Size(sizes)


def _new_dtype(name: object) -> DType:
    if type(name) is not str:
        raise pickle.UnpicklingError("a dtype has no name")
    return dtypes.parse(name)


def _new_device(name: object, index: object = None) -> Device:
    if type(name) is not str or type(index) not in (int, type(None)):
        raise pickle.UnpicklingError("a device has no name")
    return to_device(name, index)  # type: ignore[arg-type]


def _new_version(text: object = "") -> TorchVersion:
    if type(text) is not str:
        raise pickle.UnpicklingError("a version is no text")
    return TorchVersion(text)


def _new_hook_table(hooks: object = ()) -> HookTable:
    if type(hooks) not in (list, tuple) or any(
        type(hook) is not tuple or len(hook) != 2 or type(hook[0]) is not int
        for hook in hooks  # type: ignore[attr-defined]
    ):
        raise pickle.UnpicklingError("a table of hooks makes no sense")
    check_keys(key for key, _ in hooks)  # type: ignore[attr-defined]
    return HookTable(hooks)  # type: ignore[arg-type]


def _tensor_maker(location: MapLocation) -> Callable[..., Tensor]:
    """Return the function that rebuilds the tensors of a plain pickle, whose elements are NumPy arrays.

    Args:
        location: As in `load`: it chooses the device of each tensor.
    """

    def make_tensor(tensor_type: object, array: object, dtype: object, device: object, needs_grad: object) -> Tensor:
        is_tensor_type = any(tensor_type is kind for kind in _TENSOR_TYPES) or (
            isinstance(tensor_type, type) and issubclass(tensor_type, Tensor) and is_trusted(tensor_type)
        )
        if not is_tensor_type or type(device) is not str or not isinstance(dtype, DType):
            raise pickle.UnpicklingError("a tensor's description makes no sense")
        if type(array) is not np.ndarray or array.dtype != dtype.numpy:
            raise pickle.UnpicklingError("a tensor's elements are no array of its dtype")
        memory = assign_device(FileMemory(-1, device), location)
        target = str(memory.target_device())
        return _unpickle(tensor_type, array, dtype, target, bool(needs_grad))  # type: ignore[arg-type]

    return make_tensor


_CALLS: dict[object, _Construct] = {
    OrderedDict: _container("OrderedDict"), Counter: _container("Counter"), set: _container("set"),
    frozenset: _container("frozenset"), complex: _container("complex"), bytearray: _container("bytearray"),
    defaultdict: _new_defaultdict, deque: _new_deque, slice: slice, range: _new_range, Size: _new_size,
    dtypes.parse: _new_dtype, to_device: _new_device, TorchVersion: _new_version, Generator: lambda: Generator(),
    HookTable: _new_hook_table, _rebuild: _rebuild,
}  # fmt: skip
_FACTORIES = (OrderedDict, Counter, set, frozenset, complex, bytearray, deque)
_CALLS_BY_ID = {id(function): construct for function, construct in _CALLS.items()}
_VALUES: dict[tuple[str, str], object] = {
    ("weftgrad.runtime.dtypes", "parse"): dtypes.parse,
    ("weftgrad.runtime.device", "device"): to_device,
    ("weftgrad.tensor_methods.conversion", "_unpickle"): _unpickle,
    ("weftgrad.tensor_methods.size", "Size"): Size,
    ("weftgrad.torch_names.torch_module", "TorchVersion"): TorchVersion,
    ("weftgrad.serialization", "_rebuild"): _rebuild,
    ("weftgrad.runtime.tensor", "Tensor"): Tensor,
    ("weftgrad.random", "Generator"): Generator,
    ("weftgrad.nn._hook_tables", "HookTable"): HookTable,  # of a module; the hooks in it are checked like all else
    ("weftgrad.nn.parameter", "Parameter"): Parameter,
    ("weftgrad.nn.parameter", "Buffer"): Buffer,
    ("numpy", "ndarray"): np.ndarray,
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Counter,
    ("collections", "defaultdict"): defaultdict,
    ("collections", "deque"): deque,
}
_VALUES |= {
    ("builtins", kind.__name__): kind for kind in (set, frozenset, complex, slice, bytearray, range)
}  # fmt: skip
# Constructors without a class that could be a value: `bytes` of protocol 2, NumPy's functions.
_VALUES = {k: v for k, v in (CONTAINERS | ALL_NUMPY_GLOBALS).items() if k[0] != "__builtin__"} | _VALUES
_NAMES_OF_PYTHON_2 = {"xrange": "range"}  # pickles of protocols up to 2 have the module `__builtin__`


def _find_global(module: str, name: str) -> object:
    trusted = trusted_global(module, name)
    if trusted is not None:
        return trusted
    if module == "__builtin__":
        module, name = "builtins", _NAMES_OF_PYTHON_2.get(name, name)
    module = current_module(module, name)
    trusted = trusted_global(module, name)
    if trusted is not None:
        return trusted
    if (module, name) not in _VALUES:
        raise pickle.UnpicklingError(
            f"it holds {module}.{name}, which is no tensor, container or number; if you trust the file, name it to "
            "add_safe_globals, or pass weights_only=False"
        )
    return _VALUES[module, name]


def new_reader(text: bytes, load_persistent: Callable[[Any], object], location: MapLocation) -> PickleReader:
    """Return a reader of a pickle in weftgrad's own format.

    Args:
        text: The pickle.
        load_persistent: Returns the storage of a persistent id.
        location: As in `load`.
    """
    constructors = _CALLS_BY_ID | {id(_unpickle): _tensor_maker(location)}
    return PickleReader(
        text, _find_global, load_persistent, _set_state, is_trusted, constructors=constructors,
        internal_types=(FileMemory,),
    )  # fmt: skip


def _set_state(value: Any, state: Any) -> None:
    kind = type(value)
    if isinstance(value, (np.ndarray, np.dtype)):
        set_numpy_state(value, state)
    elif isinstance(value, Tensor):
        if type(state) is not dict:  # slots: addresses
            raise pickle.UnpicklingError(f"it sets the state of a {kind.__name__}, which no saved value needs")
        set_attributes(value, state)
    elif is_trusted(kind):
        set_trusted_state(value, state)
    elif kind is OrderedDict:
        set_attributes(value, state)
    elif kind is HookTable:
        if type(state) is not dict or any(n not in ("kwargs", "always") or type(state[n]) is not set for n in state):
            raise pickle.UnpicklingError("a table of hooks makes no sense")
        vars(value).update(state)
    elif kind is Generator:
        value.__setstate__(state)
    else:
        raise pickle.UnpicklingError(f"it sets the state of a {kind.__name__}, which no saved value needs")
