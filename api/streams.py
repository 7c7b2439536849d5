"""Streams, events, memory: the asynchronous side of a device, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from .runtime import deferred
from .runtime.context import current_stream as _current
from .runtime.context import entered_device, set_stream
from .runtime.device import Device, known_devices
from .runtime.device import device as to_device
from .runtime.errors import ArgumentError

__all__ = [
    "Event", "Stream", "current_stream", "default_stream", "empty_cache", "launches", "max_memory_allocated",
    "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_snapshot", "memory_stats",
    "reset_peak_memory_stats", "set_memory_limit", "stream", "synchronize",
]  # fmt: skip


class Stream:
    """An order of work on a device, with memory of its own. `Stream(device)` makes one."""

    def __init__(self, device: Any = None, *, priority: int = 0, _stream: Any = None):
        self.device = to_device(device)
        self._stream = self.device.driver.new_stream() if _stream is None else _stream
        self._before: list[Any] = []  # what each entry found

    def synchronize(self) -> None:
        """Wait until everything queued so far is done. Raises what checks of indices found (`IndexOutOfRange`)."""
        self._stream.synchronize()
        deferred.look(self.device, wait=False)

    def query(self) -> bool:
        """Whether everything queued so far is done."""
        return bool(self._stream.query())

    def record_event(self, event: Event | None = None) -> Event:
        """A point in this stream's work; a new event unless one is given."""
        event = event or Event(device=self.device)
        self._stream.record_event(event._of(self.device))
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work on this stream wait for `event`, without blocking the host."""
        self._stream.wait_event(event._of(self.device))

    def wait_stream(self, other: Stream) -> None:
        """Let later work on this stream wait for what is now on `other`."""
        self.wait_event(other.record_event())

    def __enter__(self) -> Stream:
        self._before.append(set_stream(self.device, self._stream))
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self.device, self._before.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._stream is self._stream

    def __hash__(self) -> int:
        return id(self._stream)

    def __repr__(self) -> str:
        return f"Stream(device={self.device}, id={id(self._stream):#x})"


class Event:
    """A point in a stream. With `enable_timing`, the time between two of them can be read."""

    def __init__(self, enable_timing: bool = False, device: Any = None):
        self.enable_timing = enable_timing
        self.device = None if device is None else to_device(device)
        self._event: Any = None

    def _of(self, device: Device) -> Any:
        if self._event is None:
            self.device = device
            self._event = device.driver.new_event(self.enable_timing)
        elif self.device is not device:
            raise ArgumentError(f"an event of {self.device} cannot be used on {device}")
        return self._event

    def _place(self) -> Device:
        """Whose current stream is meant: before an event is recorded, the device of the stream entered last."""
        return self.device or entered_device() or to_device(None)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the present end of `stream` (default: the current one of the event's device)."""
        (stream or current_stream(self._place())).record_event(self)

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work on `stream` (default: the current one of the event's device) wait for this event."""
        (stream or current_stream(self._place())).wait_event(self)

    def query(self) -> bool:
        """Whether the work before it is done."""
        return self._event is None or bool(self._event.query())

    def synchronize(self) -> None:
        """Wait until the work before it is done."""
        if self._event is not None:
            self._event.synchronize()
            deferred.look(self.device, wait=False)  # type: ignore[arg-type]

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`. Raises unless both were made with `enable_timing`."""
        if self._event is None or end_event._event is None:
            raise ArgumentError("elapsed_time: both events must have been recorded")
        return float(self._event.elapsed_time(end_event._event))


def stream(chosen: Stream | None) -> Any:
    """A context in which work goes to `chosen`: `with wg.stream(s):`."""
    import contextlib

    return contextlib.nullcontext() if chosen is None else chosen


def current_stream(device: Any = None) -> Stream:
    """The stream on which this thread's work goes."""
    place = to_device(device)
    return Stream(place, _stream=_current(place))


def default_stream(device: Any = None) -> Stream:
    """The stream on which work goes unless another is chosen."""
    place = to_device(device)
    return Stream(place, _stream=place.driver.default_stream)


def synchronize(device: Any = None) -> None:
    """Wait for all work on a device (default: on every device in use). Raises what checks of indices found."""
    for each in known_devices() if device is None else [to_device(device)]:
        if device is not None or each._driver is not None:
            each.driver.synchronize()
            deferred.look(each, wait=True)


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counters of the device's pools, in bytes and calls: allocated, reserved, their peaks, driver allocations, …"""
    from dataclasses import asdict

    return asdict(to_device(device).driver.budget.stats())


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors."""
    return memory_stats(device)["allocated"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes in use at once since the last `reset_peak_memory_stats`."""
    return memory_stats(device)["allocated_peak"]


def memory_reserved(device: Any = None) -> int:
    """Bytes held from the driver."""
    return memory_stats(device)["reserved"]


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes held from the driver at once."""
    return memory_stats(device)["reserved_peak"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start peaks anew."""
    for pool in list(to_device(device).driver.budget.pools):
        pool.reset_peak()


def memory_snapshot(device: Any = None) -> list[Any]:
    """Every segment of the device's pools with its blocks."""
    return [segment for pool in list(to_device(device).driver.budget.pools) for segment in pool.snapshot()]


def empty_cache(device: Any = None) -> int:
    """Give cached memory back to the driver; the number of bytes."""
    return int(to_device(device).driver.budget.empty_cache())


def set_memory_limit(limit: int | None, device: Any = None) -> None:
    """Let the device's pools hold at most `limit` bytes; None: as much as the driver gives."""
    to_device(device).driver.budget.set_limit(limit)


def launches(device: Any = None) -> int:
    """How many kernels this process has launched on the device."""
    return int(to_device(device).driver.launches)  # type: ignore[attr-defined]
