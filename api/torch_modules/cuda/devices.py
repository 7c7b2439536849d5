"""The GPUs: how many there are, which one is current, and what they can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..arguments.descriptions import describe
from ..execution import streams
from ..runtime.backends import cuda_devices
from ..runtime.backends.cuda import CudaDriver
from ..runtime.device import Device, DeviceLike, current_of_type, default_device, set_current_of_type
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError

__all__ = [
    "current_device", "describe_device", "describe_gpu", "device", "device_count", "get_device_capability",
    "get_device_name", "get_device_properties", "init", "is_available", "is_bf16_supported", "is_initialized",
    "open_driver", "resolve_device", "set_device", "synchronize",
]  # fmt: skip

_DEVICE = {"device": "An index, a name or a `Device`; None: the current GPU."}
describe_device = describe(_DEVICE)
"""Decorator for functions that work without a GPU, too."""
describe_gpu = describe(_DEVICE, raises="DriverNotFound: If there is no GPU, or a package that it needs is missing.")
"""Decorator for functions that open a GPU."""


def resolve_device(device: DeviceLike | None) -> Device:
    """Return the GPU that a `device` argument names; None names the current one.

    Raises:
        ArgumentError: It is no CUDA device.
    """
    if device is None:
        default = default_device()
        return default if default.type == "cuda" else current_of_type("cuda")
    resolved = to_device(device)
    if resolved.type != "cuda":
        raise ArgumentError(f"{resolved} is no CUDA device; name one as 'cuda:0', or by its number")
    return resolved


def open_driver(device: DeviceLike | None) -> CudaDriver:
    """Return the opened driver of the GPU that a `device` argument names."""
    driver = resolve_device(device).driver
    assert isinstance(driver, CudaDriver)
    return driver


def is_available() -> bool:
    """Return whether there is a GPU with a driver that this process can use.

    Returns:
        Python bool.

    Example:
        >>> wg.cuda.is_available() == (wg.cuda.device_count() > 0)
        True
    """
    return bool(cuda_devices())


def device_count() -> int:
    """Return the number of GPUs.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.device_count() >= 0
        True
    """
    return len(cuda_devices())


def current_device() -> int:
    """Return the index of the GPU that functions use if `device` is None.

    Returns:
        Python int.

    Example:
        >>> if wg.cuda.is_available():
        ...     index = wg.cuda.current_device()
        ...
    """
    return int(resolve_device(None).index or 0)


@describe_gpu
def set_device(device: DeviceLike | None) -> None:
    """Make a GPU the current one: `"cuda"` without an index then refers to it.

    Args:
        device: An index, a name or a `Device`. A negative index changes nothing.

    Raises:
        ArgumentError: If `device` is no CUDA device.

    Example:
        >>> if wg.cuda.is_available():
        ...     wg.cuda.set_device(0)
        ...
    """
    if isinstance(device, int) and device < 0:
        return
    gpu = resolve_device(device)
    gpu.driver  # noqa: B018  raises if there is no such GPU
    set_current_of_type(gpu)


@contextmanager
@describe_gpu
def device(device: DeviceLike | None) -> Iterator[None]:
    """Make a GPU the current one inside a `with` block. None or a negative index changes nothing.

    Args:
        device: An index, a name or a `Device`.

    Returns:
        Context manager.

    Example:
        >>> if wg.cuda.is_available():
        ...     with wg.cuda.device(0):
        ...         x = wg.ones(2, device='cuda')
        ...
    """
    previous = current_of_type("cuda")
    if device is not None:
        set_device(device)
    try:
        yield
    finally:
        set_current_of_type(previous)


def is_initialized() -> bool:
    """Return whether this process has opened a GPU.

    Returns:
        Python bool.

    Example:
        >>> wg.cuda.is_available() or not wg.cuda.is_initialized()
        True
    """
    return any(to_device(f"cuda:{info.index}")._driver is not None for info in cuda_devices())


def init() -> None:
    """Do nothing: a GPU is opened when it is first used.

    Example:
        >>> wg.cuda.init()
    """


@dataclass(frozen=True)
class Properties:
    """Properties of a GPU. Memory, and shared memory per block, are in bytes.

    Args:
        name: Name of the GPU.
        major: First number of the compute capability.
        minor: Second number of the compute capability.
        total_memory: Bytes of memory.
        multi_processor_count: Number of multiprocessors.
        shared_memory_per_block_optin: Largest number of bytes of shared memory that a block can have.

    Example:
        >>> if wg.cuda.is_available():
        ...     name = wg.cuda.get_device_properties().name
        ...
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    shared_memory_per_block_optin: int


@describe_gpu
def get_device_properties(device: DeviceLike | None = None) -> Properties:
    """Return name, compute capability, memory and number of multiprocessors of a GPU.

    Returns:
        `Properties`.

    Example:
        >>> if wg.cuda.is_available():
        ...     properties = wg.cuda.get_device_properties()
        ...
    """
    info = open_driver(device).info
    return Properties(info.name, info.sm // 10, info.sm % 10, info.memory, info.multiprocessors, info.shared_memory)


@describe_gpu
def get_device_name(device: DeviceLike | None = None) -> str:
    """Return a GPU's name.

    Returns:
        Text.

    Example:
        >>> if wg.cuda.is_available():
        ...     name = wg.cuda.get_device_name()
        ...
    """
    return get_device_properties(device).name


@describe_gpu
def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """Return a GPU's compute capability, such as `(9, 0)`.

    Returns:
        Two ints.

    Example:
        >>> if wg.cuda.is_available():
        ...     major, minor = wg.cuda.get_device_capability()
        ...
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported() -> bool:
    """Return whether there is a GPU. Every GPU that runs our kernels supports bfloat16.

    Returns:
        Python bool.

    Example:
        >>> wg.cuda.is_bf16_supported() == wg.cuda.is_available()
        True
    """
    return is_available()


@describe_gpu
def synchronize(device: DeviceLike | None = None) -> None:
    """Wait until all work on a GPU is done.

    Example:
        >>> if wg.cuda.is_available():
        ...     wg.cuda.synchronize()
        ...
    """
    streams.synchronize(resolve_device(device))
