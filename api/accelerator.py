"""The device beside the CPU that a program should run on, under the names of `torch.accelerator`."""

from __future__ import annotations

from typing import Any

from . import streams
from .runtime.backends import accelerators, available
from .runtime.device import Device, current_of_type, set_current_of_type
from .runtime.device import device as to_device
from .runtime.errors import ArgumentError, DeviceError

__all__ = [
    "current_accelerator", "current_device_index", "current_stream", "device_count", "empty_cache", "is_available",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "set_device_idx", "set_device_index", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is one."""
    return bool(accelerators())


def device_count() -> int:
    """How many there are of the type of `current_accelerator`."""
    return len(accelerators())


def current_accelerator(check_available: bool = False) -> Device | None:
    """The accelerator that is meant where none is named; None without one. It is there, whether checked or not."""
    present = accelerators()
    return current_of_type(present[0].type) if present else None


def _place(device: Any) -> Device:
    if device is not None and not isinstance(device, int):
        found = to_device(device)
        if found.type == "cpu":
            raise ArgumentError(f"{found} is no accelerator")
        return found
    chosen = current_accelerator()
    if chosen is None:
        raise DeviceError("there is no accelerator: the devices are " + ", ".join(str(d) for d in available()))
    return chosen if device is None else to_device(f"{chosen.type}:{device}")


def current_device_index() -> int:
    """The number of `current_accelerator` among those of its type."""
    return int(_place(None).index or 0)


def set_device_index(device: Any) -> None:
    """Let the type's name alone, as in `device="cuda"`, mean this device (a number, a name or a device)."""
    set_current_of_type(_place(device))


set_device_idx = set_device_index


def synchronize(device: Any = None) -> None:
    """Wait for all work on it."""
    streams.synchronize(_place(device))


def current_stream(device: Any = None) -> streams.Stream:
    """The stream on which this thread's work goes."""
    return streams.current_stream(_place(device))


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counters of its pools."""
    return streams.memory_stats(_place(device))


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors."""
    return streams.memory_allocated(_place(device))


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes in use at once since the last `reset_peak_memory_stats`."""
    return streams.max_memory_allocated(_place(device))


def memory_reserved(device: Any = None) -> int:
    """Bytes held from the driver."""
    return streams.memory_reserved(_place(device))


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes held from the driver at once."""
    return streams.max_memory_reserved(_place(device))


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start peaks anew."""
    streams.reset_peak_memory_stats(_place(device))


def empty_cache() -> None:
    """Give cached memory back to the driver."""
    for place in accelerators():
        if place._driver is not None:
            streams.empty_cache(place)
