"""Devices by name, and the layouts (`Meta`) of tensors that live on them.

A `Device` is a name until something has to run on it: only then is its backend imported and its driver opened, so that
`cpu` tensors can be made, viewed, pickled and exchanged where there is no driver at all.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from .dtypes import DType
from .errors import ShapeError, UnknownDevice

if TYPE_CHECKING:
    from .backends.protocol import Driver

__all__ = [
    "Device",
    "Meta",
    "contiguous_strides",
    "current_of_type",
    "default_device",
    "device",
    "known_devices",
    "meta",
    "set_current_of_type",
    "set_default_device",
]

_lock = threading.RLock()
_devices: dict[str, Device] = {}
_TYPES = ("cpu", "opencl", "cuda", "interpreter")
_default: Device | None = None


class Device:
    """A place where tensors live: `type` (`cpu`, `opencl`, `cuda`, `interpreter`) and `index`. One object a place."""

    __slots__ = ("_driver", "index", "type")

    def __init__(self, type: str, index: int | None):
        self.type = type
        self.index = index
        self._driver: Driver | None = None

    @property
    def driver(self) -> Driver:
        """The opened driver; raises `DriverNotFound` with the remedy where there is none."""
        if self._driver is None:
            with _lock:
                if self._driver is None:
                    from .backends import open_driver

                    self._driver = open_driver(self)
        return self._driver

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (str(self),)

    def __deepcopy__(self, memo: object) -> Device:
        return self

    def __copy__(self) -> Device:
        return self


def device(spec: Any = None, index: int | None = None) -> Device:
    """The device named `cpu`, `opencl:0`, `cuda:1`, …; `None` gives the default one, an int that CUDA device.

    Raises `UnknownDevice` for a name that is no device's. Whether the hardware is there shows when it is first used.
    """
    if spec is None:
        return default_device()
    if isinstance(spec, Device):
        return spec
    name = f"cuda:{spec}" if isinstance(spec, int) and not isinstance(spec, bool) else spec
    if not isinstance(name, str):
        raise UnknownDevice(f"{spec!r} is not a device; write for example 'cpu' or 'opencl:0'")
    if index is not None:
        name = f"{name}:{index}"
    found = _devices.get(name)
    if found is not None:
        return found
    kind, _, number = name.partition(":")
    if kind not in _TYPES or (number and not number.isdecimal()) or name.endswith(":") or len(number) > 4:
        raise UnknownDevice(f"unknown device {name!r}: there are cpu, opencl:<n>, cuda:<n> and interpreter")
    if kind in ("cpu", "interpreter"):
        if number not in ("", "0"):
            raise UnknownDevice(f"there is one {kind} device; {name!r} does not exist")
        canonical, position = kind, None
    else:
        position = int(number or 0)
        canonical = f"{kind}:{position}"
    with _lock:
        found = _devices.setdefault(canonical, Device(kind, position))
        _devices[name] = found
    return found


def current_of_type(kind: str) -> Device:
    """The device that a type's name alone means: the first, unless `set_current_of_type` said another."""
    return device(kind)


def set_current_of_type(chosen: Device) -> None:
    """Let the name of the type of `chosen` alone, as in `device("cuda")`, mean it, in every thread; a default device of
    that type becomes it, too."""
    global _default
    if chosen.index is not None:
        with _lock:
            _devices[chosen.type] = chosen
            if _default is not None and _default.type == chosen.type:
                _default = chosen


def known_devices() -> list[Device]:
    """Every device object asked for so far."""
    with _lock:
        return list(dict.fromkeys(_devices.values()))


def default_device() -> Device:
    """Where factories put tensors: what was set, else WEFTGRAD_DEVICE, else the best present."""
    global _default
    if _default is None:
        name = os.environ.get("WEFTGRAD_DEVICE")
        if name:
            try:
                _default = device(name)
            except UnknownDevice as error:
                raise UnknownDevice(f"WEFTGRAD_DEVICE={name}: {error}") from None
        else:
            from .backends import best_device

            _default = best_device()
    return _default


def set_default_device(spec: Any) -> None:
    """Make `spec` the device of tensors made without naming one; `None` returns to the best present."""
    global _default
    _default = None if spec is None else device(spec)


_MOST_BYTES = (1 << 63) - 1  # launchers count in 64 bits


class Meta:
    """What a tensor is apart from its memory: dtype, shape, strides (in elements) and device. Interned.

    Equal metas are one object, so that a plan is found by identity and never by comparing shapes.
    """

    __slots__ = ("__weakref__", "contiguous", "device", "dtype", "nbytes", "ndim", "numel", "shape", "strides")

    def __init__(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], device: Device):
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.device = device
        self.ndim = len(shape)
        numel = 1
        for size in shape:
            numel *= size
        self.numel = numel
        self.nbytes = numel * dtype.itemsize
        if self.nbytes > _MOST_BYTES or max(shape, default=0) > _MOST_BYTES:
            raise ShapeError(f"a {dtype.name} tensor cannot have the shape {list(shape)}: its size overflows 64 bits")
        self.contiguous = is_contiguous(shape, strides)

    def with_dtype(self, dtype: DType) -> Meta:
        """A contiguous layout of the same shape and another dtype."""
        return meta(dtype, self.shape, None, self.device)

    def __repr__(self) -> str:
        return f"Meta({self.dtype.name}, {self.shape}, {self.strides}, {self.device})"


_metas: WeakValueDictionary[tuple[Any, ...], Meta] = WeakValueDictionary()
_recent: dict[tuple[Any, ...], Meta] = {}  # the same, kept, in front: a weak dictionary takes five times as long
_MOST_RECENT = 4096


def meta(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None, device: Device) -> Meta:
    """The one `Meta` of these properties; `strides=None` means contiguous."""
    key = (dtype, shape, strides, device)
    found = _recent.get(key)
    if found is None:
        if len(_recent) >= _MOST_RECENT:
            _recent.clear()
        found = _recent[key] = _interned(dtype, shape, strides or contiguous_strides(shape), device)
    return found


def _interned(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], device: Device) -> Meta:
    key = (dtype, shape, strides, device)
    found = _metas.get(key)
    if found is None:
        with _lock:
            found = _metas.get(key)
            if found is None:
                found = _metas[key] = Meta(dtype, shape, strides, device)
    return found


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements; a size of 0 counts as 1, as in PyTorch."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements lie row-major without gaps; dimensions of size 1 do not matter, empty tensors are."""
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
