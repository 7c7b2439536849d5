"""Devices by name, and the layouts (`Meta`) of tensors.

A `Device` is only a name until something has to run on it. Then its backend is imported and its driver opened. So `cpu`
tensors can be created, viewed, pickled and exchanged without any driver. The package `backends` opens drivers; it
imports this module, and tells it how by `set_backends`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

from .dtypes import DType, NamedDType
from .errors import ShapeError, UnknownDevice
from .traced_sizes import Size

if TYPE_CHECKING:
    from .backends.protocol import Driver

__all__ = [
    "Device",
    "DeviceLike",
    "Meta",
    "add_device_type",
    "contiguous_strides",
    "create_device",
    "current_of_type",
    "default_device",
    "device",
    "drivers_survive_fork",
    "forbid_fork",
    "known_devices",
    "meta",
    "open_drivers",
    "set_backends",
    "set_current_of_type",
    "set_default_device",
]

_lock = threading.RLock()
_devices: dict[str, Device] = {}
_types = {  # type of devices -> they have numbers
    "cpu": False, "opencl": True, "cuda": True, "interpreter": False, "meta": False,
}  # fmt: skip
_default: Device | None = None
_survives_fork = True  # no driver library has been loaded that does not survive a fork
_outer_defaults: list[Device | None] = []  # of the `with device:` blocks that are open
_open_driver: Callable[[Device], Driver]
_find_best_device: Callable[[], Device]


def set_backends(open_driver: Callable[[Device], Driver], best_device: Callable[[], Device]) -> None:
    """Set the functions of the backends.

    Args:
        open_driver: Opens a device's driver.
        best_device: Returns the device of new tensors if the user has chosen none.
    """
    global _open_driver, _find_best_device
    _open_driver, _find_best_device = open_driver, best_device


class Device:
    """A device: its `type` (`cpu`, `opencl`, `cuda`, …) and `index`. There is one object per device.

    A device is a context manager: within its `with` block it is the default device, in all threads.

    Args:
        type: `cpu`, `opencl`, `cuda`, `interpreter` or `meta` (shapes without memory).
        index: Number of the device; None for a type without numbers.

    Example:
        >>> wg.device('cuda:1').index
        1
    """

    __slots__ = ("_driver", "index", "type")

    type: str
    index: int | None
    _driver: Driver | None

    def __new__(cls, type: DeviceLike | None = None, index: int | None = None) -> Device:
        return device(type, index)

    @property
    def driver(self) -> Driver:
        """The driver, opened at first use. Raises `DriverNotFound`, whose message says what to install."""
        if self._driver is None:
            with _lock:
                if self._driver is None:
                    self._driver = _open_driver(self)
        return self._driver

    def __enter__(self) -> Device:
        _outer_defaults.append(_default)
        set_default_device(self)
        return self

    def __exit__(self, *exception: object) -> None:
        set_default_device(_outer_defaults.pop())

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"
        )

    def __reduce__(self) -> tuple[Callable[[str], Device], tuple[str]]:
        return device, (str(self),)

    def __deepcopy__(self, memo: object) -> Device:
        return self

    def __copy__(self) -> Device:
        return self


def create_device(type: str, index: int | None = None) -> Device:
    """Return a new object for a device, which `device` does not return until it is registered."""
    created = object.__new__(Device)
    created.type, created.index, created._driver = type, index, None
    return created


DeviceLike: TypeAlias = Device | str | int
"""What `device` accepts besides None: a device, its name, or the number of a CUDA device."""


def device(spec: DeviceLike | None = None, index: int | None = None) -> Device:
    """Return the device of a name. Whether its hardware exists shows at the first use.

    Args:
        spec: A name (`cpu`, `opencl:0`, `cuda:1`), a `Device`, the number of a CUDA device, or None for the default.
        index: The index, if the name has none.

    Returns:
        `Device`.

    Raises:
        UnknownDevice: There is no device of that name.

    Example:
        >>> wg.device('opencl', 1)
        device(type='opencl', index=1)
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
    known_device = _devices.get(name)
    if known_device is not None:
        return known_device
    device_type, _, number = name.partition(":")
    if device_type not in _types or (number and not number.isdecimal()) or name.endswith(":") or len(number) > 4:
        names = [f"{type_name}:<n>" if is_numbered else type_name for type_name, is_numbered in _types.items()]
        raise UnknownDevice(f"unknown device {name!r}: there are {', '.join(names[:-1])} and {names[-1]}")
    if not _types[device_type]:
        if number not in ("", "0"):
            raise UnknownDevice(f"there is one {device_type} device; {name!r} does not exist")
        canonical, position = device_type, None
    else:
        position = int(number or 0)
        canonical = f"{device_type}:{position}"
    with _lock:
        known_device = _devices.setdefault(canonical, create_device(device_type, position))
        _devices[name] = known_device
    return known_device


def add_device_type(name: str, *, is_numbered: bool) -> None:
    """Let `device` accept names of a further type of devices, whose backend `backends.register_backend` registers.

    Args:
        name: The type: lower-case letters, digits and underscores.
        is_numbered: There may be several devices of the type, `NAME:0`, `NAME:1` and so on.

    Raises:
        ValueError: The name is not of this form, or a type of this name exists.
    """
    if not (name.isidentifier() and name == name.lower()):
        raise ValueError(f"{name!r} is no type of devices; use lower-case letters, digits and underscores")
    with _lock:
        if name in _types:
            raise ValueError(f"devices of type {name!r} exist already; choose another name")
        _types[name] = is_numbered


def current_of_type(kind: str) -> Device:
    """Return the device that a type's name without an index stands for (see `set_current_of_type`)."""
    return device(kind)


def set_current_of_type(target: Device) -> None:
    """Let the name of its type alone, as in `device("cuda")`, stand for `target`, in every thread.

    If the default device is of that type, `target` becomes the default device, too.
    """
    global _default
    if target.index is not None:
        with _lock:
            _devices[target.type] = target
            if _default is not None and _default.type == target.type:
                _default = target


def known_devices() -> list[Device]:
    """Return all device objects created so far."""
    with _lock:
        return list(dict.fromkeys(_devices.values()))


def open_drivers() -> list[Driver]:
    """Return the drivers of all devices that were opened."""
    return [opened._driver for opened in known_devices() if opened._driver is not None]


def forbid_fork() -> None:
    """Note that a driver library was loaded that does not survive a fork. Called by the backends that load one."""
    global _survives_fork
    _survives_fork = False


def drivers_survive_fork() -> bool:
    """Return whether a forked child may go on: the libraries of OpenCL and CUDA hang or fail there, once loaded.

    Loading is enough. PoCL, for example, installs signal handlers then, which a forked child has as well.
    """
    return _survives_fork


def default_device() -> Device:
    """Return the device of new tensors: the one that was set, else WEFTGRAD_DEVICE, else the best available."""
    global _default
    if _default is None:
        name = os.environ.get("WEFTGRAD_DEVICE")
        if name:
            try:
                _default = device(name)
            except UnknownDevice as error:
                raise UnknownDevice(f"WEFTGRAD_DEVICE={name}: {error}") from None
        else:
            _default = _find_best_device()
    return _default


_parse = device  # for functions that have a parameter `device`


def set_default_device(device: DeviceLike | None) -> None:
    """Make `device` the device of tensors created without a device.

    Args:
        device: A name, a `Device`, or the number of a CUDA device; None returns to the best available one.

    Raises:
        UnknownDevice: There is no device of that name.

    Example:
        >>> wg.set_default_device('cpu')
        >>> wg.ones(2).device
        device(type='cpu')
        >>> wg.set_default_device(None)
    """
    global _default
    _default = None if device is None else _parse(device)


_MAX_BYTES = (1 << 63) - 1  # kernels use signed 64-bit sizes


class Meta:
    """The layout of a tensor: dtype, shape, strides (in elements) and device. Interned by `meta`.

    Equal layouts are one object, so plans are looked up by identity and shapes are never compared.
    """

    __slots__ = (
        "__weakref__", "contiguous", "device", "dtype", "nbytes", "ndim", "numel", "shape", "signature", "strides",
    )  # fmt: skip

    signature: object | None  # what `plan_families` compares of a layout; None until it does

    def __init__(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], device: Device):
        if isinstance(dtype, NamedDType):
            raise dtype.unsupported()
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
        if self.nbytes > _MAX_BYTES or (not numel and any(size > _MAX_BYTES for size in shape)):
            raise ShapeError(f"a {dtype.name} tensor cannot have the shape {list(shape)}: its size overflows 64 bits")
        self.contiguous = is_contiguous(shape, strides)
        self.signature = None

    def with_dtype(self, dtype: DType) -> Meta:
        """Return the contiguous layout of the same shape with another dtype."""
        return meta(dtype, self.shape, None, self.device)

    def __repr__(self) -> str:
        return f"Meta({self.dtype.name}, {self.shape}, {self.strides}, {self.device})"


_metas: WeakValueDictionary[tuple[object, ...], Meta] = WeakValueDictionary()
_recent: dict[tuple[object, ...], Meta] = {}  # a strong cache in front: a weak dictionary takes five times as long
_MAX_RECENT = 4096


def meta(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None, device: Device) -> Meta:
    """Return the `Meta` of these properties; `strides=None` means contiguous."""
    key = (dtype, shape, strides, device)
    try:
        layout = _recent.get(key)
    except TypeError:  # traced sizes have no hash
        if Size not in map(type, (*shape, *(strides or ()))):
            raise
        return Meta(dtype, shape, strides or contiguous_strides(shape), device)
    if layout is None:
        if len(_recent) >= _MAX_RECENT:
            _recent.clear()
        layout = _recent[key] = _intern(dtype, shape, strides or contiguous_strides(shape), device)
    return layout


def _intern(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], device: Device) -> Meta:
    key = (dtype, shape, strides, device)
    with _lock:
        layout = _metas.get(key)
        if layout is None:
            layout = _metas[key] = Meta(dtype, shape, strides, device)
    return layout


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return row-major strides in elements; a size of 0 counts as 1, as in PyTorch."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return True if the layout is row-major without gaps. Dimensions of size 1 do not matter; empty tensors are."""
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
