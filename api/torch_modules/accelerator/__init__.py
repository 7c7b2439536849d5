"""The current accelerator (GPU) and its memory statistics, under the names of `torch.accelerator`."""

from __future__ import annotations

from ..arguments.descriptions import describe
from ..execution import streams
from ..runtime.backends import accelerators, available
from ..runtime.device import Device, DeviceLike, current_of_type, set_current_of_type
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError, DeviceError

__all__ = [
    "current_accelerator", "current_device_index", "current_stream", "device_count", "empty_cache", "is_available",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "set_device_idx", "set_device_index", "synchronize",
]  # fmt: skip

_describe = describe(
    {"device": "An index, a name or a `Device`; None: the current accelerator."},
    raises="DeviceError: If there is no accelerator.",
)


def is_available() -> bool:
    """Return True if there is an accelerator.

    Returns:
        Python bool.

    Example:
        >>> wg.accelerator.is_available() == (wg.accelerator.device_count() > 0)
        True
    """
    return bool(accelerators())


def device_count() -> int:
    """Return the number of accelerators of the type of `current_accelerator`.

    Returns:
        Python int; 0 without an accelerator.

    Example:
        >>> wg.accelerator.device_count() >= 0
        True
    """
    return len(accelerators())


def current_accelerator(check_available: bool = False) -> Device | None:
    """Return the current accelerator, or None. It is always available, whatever `check_available` says.

    Args:
        check_available: Ignored.

    Returns:
        `Device` or None.

    Example:
        >>> (wg.accelerator.current_accelerator() is None) == (not wg.accelerator.is_available())
        True
    """
    present = accelerators()
    return current_of_type(present[0].type) if present else None


def _resolve_device(device: DeviceLike | None) -> Device:
    if device is not None and not isinstance(device, int):
        resolved = to_device(device)
        if resolved.type == "cpu":
            raise ArgumentError(f"{resolved} is no accelerator")
        return resolved
    current = current_accelerator()
    if current is None:
        raise DeviceError("there is no accelerator: the devices are " + ", ".join(str(d) for d in available()))
    return current if device is None else to_device(f"{current.type}:{device}")


@_describe
def current_device_index() -> int:
    """Return the index of `current_accelerator` among the devices of its type.

    Returns:
        Python int.

    Example:
        >>> if wg.accelerator.is_available():
        ...     index = wg.accelerator.current_device_index()
        ...
    """
    return int(_resolve_device(None).index or 0)


@_describe
def set_device_index(device: DeviceLike | None) -> None:
    """Set the device that a bare type name such as `"cuda"` refers to.

    Args:
        device: An index, a name or a `Device`.

    Raises:
        ArgumentError: If `device` is `cpu`.

    Example:
        >>> if wg.accelerator.is_available():
        ...     wg.accelerator.set_device_index(0)
        ...
    """
    set_current_of_type(_resolve_device(device))


set_device_idx = set_device_index


@_describe
def synchronize(device: DeviceLike | None = None) -> None:
    """Wait for all work on the accelerator.

    Example:
        >>> if wg.accelerator.is_available():
        ...     wg.accelerator.synchronize()
        ...
    """
    streams.synchronize(_resolve_device(device))


@_describe
def current_stream(device: DeviceLike | None = None) -> streams.Stream:
    """Return the current stream of this thread on the accelerator.

    Returns:
        `Stream`.

    Example:
        >>> if wg.accelerator.is_available():
        ...     stream = wg.accelerator.current_stream()
        ...
    """
    return streams.current_stream(_resolve_device(device))


@_describe
def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """Return counters of the accelerator's memory pools; see `weftgrad.memory_stats`.

    Returns:
        Dict from names to numbers.

    Example:
        >>> if wg.accelerator.is_available():
        ...     stats = wg.accelerator.memory_stats()
        ...
    """
    return streams.memory_stats(_resolve_device(device))


@_describe
def memory_allocated(device: DeviceLike | None = None) -> int:
    """Return the bytes in use by tensors.

    Returns:
        Python int.

    Example:
        >>> if wg.accelerator.is_available():
        ...     used = wg.accelerator.memory_allocated()
        ...
    """
    return streams.memory_allocated(_resolve_device(device))


@_describe
def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """Return the peak of bytes in use since the last `reset_peak_memory_stats`.

    Returns:
        Python int.

    Example:
        >>> if wg.accelerator.is_available():
        ...     peak = wg.accelerator.max_memory_allocated()
        ...
    """
    return streams.max_memory_allocated(_resolve_device(device))


@_describe
def memory_reserved(device: DeviceLike | None = None) -> int:
    """Return the bytes reserved from the driver.

    Returns:
        Python int.

    Example:
        >>> if wg.accelerator.is_available():
        ...     reserved = wg.accelerator.memory_reserved()
        ...
    """
    return streams.memory_reserved(_resolve_device(device))


@_describe
def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """Return the peak of bytes reserved from the driver.

    Returns:
        Python int.

    Example:
        >>> if wg.accelerator.is_available():
        ...     peak = wg.accelerator.max_memory_reserved()
        ...
    """
    return streams.max_memory_reserved(_resolve_device(device))


@_describe
def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Reset the peaks of the memory statistics.

    Example:
        >>> if wg.accelerator.is_available():
        ...     wg.accelerator.reset_peak_memory_stats()
        ...
    """
    streams.reset_peak_memory_stats(_resolve_device(device))


def empty_cache() -> None:
    """Return the cached memory of all accelerators to their drivers.

    Example:
        >>> wg.accelerator.empty_cache()
    """
    for device in accelerators():
        if device._driver is not None:
            streams.empty_cache(device)
