"""Names of the module `torch` that weftgrad's own namespace does not have."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO

from ...runtime.device import DeviceLike
from ...runtime.device import device as _to_device
from ...runtime.errors import ArgumentError, IndexOutOfRange
from ...runtime.tensor import Tensor
from ...serialization.saving import save as _save
from ...serialization.saving import save_archive
from ...tensor_methods.storage_methods import UntypedStorage
from ..dtypes import *  # noqa: F403
from ..dtypes import __all__ as _DTYPES
from ..placeholders import placeholder
from .foreach import FUNCTIONS as _FOREACH

__all__ = [
    *_DTYPES, *_FOREACH, "PyTorchFileReader", "ScriptModule", "SymBool", "SymFloat", "SymInt", "Tag", "TypedStorage",
    "UntypedStorage", "_assert", "_assert_async", "_check", "_check_index", "_check_is_size", "_check_value",
    "compiled_with_cxx11_abi", "get_device_module", "is_storage", "is_warn_always_enabled", "save", "set_warn_always",
    "sparse_coo", "sparse_csr", "sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "typename", "vmap",
]  # fmt: skip

globals().update(_FOREACH)

_SYMBOLIC = "Sizes are Python integers."
SymInt, SymFloat = placeholder("torch.SymInt", _SYMBOLIC), placeholder("torch.SymFloat", _SYMBOLIC)
SymBool = placeholder("torch.SymBool", _SYMBOLIC)
ScriptModule = placeholder("torch.jit.ScriptModule", "Call the module itself; save its state_dict with torch.save.")
PyTorchFileReader = placeholder("torch.PyTorchFileReader", "Load the file with torch.load.")
Tag = placeholder("torch.Tag", "Ops have no tags.")
TypedStorage = placeholder("torch.TypedStorage", "Use Tensor.untyped_storage().")
sparse_coo, sparse_csr = "torch.sparse_coo", "torch.sparse_csr"  # layouts that no tensor has
sym_int, sym_float, sym_max, sym_min = int, float, max, min
_warn_always = False


def vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Return `torch.func.vmap` of a function."""
    from ...func.mapping import vmap as map_over_slices  # lazy: start-up

    return map_over_slices(func, in_dims, out_dims, randomness, chunk_size=chunk_size)


def sym_not(a: bool) -> bool:
    """Return `not a`."""
    return not a


def _assert(condition: bool | Tensor, message: str | Callable[[], str] = "") -> None:
    """Raise `AssertionError` with the message unless the condition is true."""
    if not condition:
        raise AssertionError(message() if callable(message) else message)


def _assert_async(input: Tensor, msg: str = "") -> None:
    """Raise unless the tensor's only element is not zero; the value is read from the device."""
    if not input:
        raise ArgumentError(msg or "_assert_async: the element is zero")


def _check(cond: bool, message: Callable[[], str] | None = None) -> None:
    """Raise a `RuntimeError` with the message unless the condition is true."""
    if not cond:
        raise ArgumentError("_check: the condition is false" if message is None else message())


def _check_value(cond: bool, message: Callable[[], str] | None = None) -> None:
    """Raise a `ValueError` with the message unless the condition is true."""
    _check(cond, message)


def _check_index(cond: bool, message: Callable[[], str] | None = None) -> None:
    """Raise an `IndexError` with the message unless the condition is true."""
    if not cond:
        raise IndexOutOfRange("_check_index: the condition is false" if message is None else message())


def _check_is_size(i: int, message: Callable[[], str] | None = None, *, max: int | None = None) -> None:
    """Raise unless `i` can be a size."""
    _check(i >= 0 and (max is None or i <= max), message)


def compiled_with_cxx11_abi() -> bool:
    """Return True, as for every present build of PyTorch."""
    return True


def get_device_module(device: DeviceLike | None = None) -> object:
    """Return the module of a kind of device: `torch.cuda`, `torch.cpu`.

    Args:
        device: A device or its name; None: the default device.

    Returns:
        The module.

    Raises:
        ArgumentError: There is no module for this kind of device.
    """
    kind = _to_device(device).type
    modules = {"cpu": "cpu", "cuda": "cuda"}
    if kind not in modules:
        raise ArgumentError(f"get_device_module: there is no module for {kind}; there are {', '.join(modules)}")
    return import_module(f"torch.{modules[kind]}")


def is_storage(obj: object) -> bool:
    """Return whether `obj` is a tensor's memory."""
    return isinstance(obj, UntypedStorage)


def is_warn_always_enabled() -> bool:
    """Return the setting of `set_warn_always`."""
    return _warn_always


def save(
    obj: object, f: str | os.PathLike[str] | BinaryIO, pickle_module: object = None, pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:  # fmt: skip
    """Write an object to a file that PyTorch reads, too, if it consists of tensors, containers and numbers.

    Anything else, such as a whole module, names classes of weftgrad, which PyTorch does not have: it is written in
    weftgrad's own format. `torch.load` reads both.

    Args:
        obj: The object.
        f: A path, or an open binary file.
        pickle_module: Ignored.
        pickle_protocol: Ignored.
        _use_new_zipfile_serialization: Ignored: the format before PyTorch 1.6 is only read.
    """
    try:
        save_archive(obj, f, save_devices=True)
    except ArgumentError:
        _save(obj, f)


def set_warn_always(b: bool, /) -> None:
    """Store the setting; warnings follow Python's filters."""
    global _warn_always
    _warn_always = b


def typename(obj: object, /) -> str:
    """Return the name of the object's type, with its module."""
    kind = type(obj)
    if isinstance(obj, Tensor) and kind is Tensor:
        return "torch.Tensor"
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
