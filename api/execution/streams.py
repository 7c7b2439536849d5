"""Streams, events and memory statistics of a device, under PyTorch's names."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ..runtime import deferred
from ..runtime.context import current_stream as _current
from ..runtime.context import entered_device, set_stream
from ..runtime.device import Device, DeviceLike, known_devices
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError

if TYPE_CHECKING:
    from ..runtime.backends.protocol import Event as DriverEvent
    from ..runtime.backends.protocol import Stream as DriverStream
    from ..runtime.memory_stats import SegmentInfo

__all__ = [
    "Event", "Stream", "current_stream", "default_stream", "empty_cache", "launches", "max_memory_allocated",
    "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_snapshot", "memory_stats",
    "reset_peak_memory_stats", "set_memory_limit", "stream", "synchronize",
]  # fmt: skip


class Stream:
    """A queue of work on a device, executed in order, with a memory pool of its own.

    Args:
        device: The device; None: the default device.
        priority: Accepted for compatibility with PyTorch; `cuda.Stream` uses it.
        _stream: Internal stream to use instead of a new one.

    Example:
        >>> stream = wg.Stream('cpu')
        >>> with stream:
        ...     x = wg.ones(2, device='cpu')
        ...
        >>> stream.synchronize()
        >>> stream.query()
        True
    """

    def __init__(self, device: DeviceLike | None = None, *, priority: int = 0, _stream: DriverStream | None = None):
        self.device = to_device(device)
        self._stream: DriverStream = self.device.driver.new_stream() if _stream is None else _stream
        self._previous_streams: list[DriverStream | None] = []  # the stream to restore when a `with` block ends

    def synchronize(self) -> None:
        """Wait until all queued work is done.

        Raises:
            IndexOutOfRange: If a deferred bounds check failed.
        """
        self._stream.synchronize()
        deferred.check_ready(self.device, wait=False)

    def query(self) -> bool:
        """Return True if all queued work is done.

        Returns:
            Python bool.
        """
        return self._stream.query()

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event at the end of the queued work.

        Args:
            event: The event; None: a new one.

        Returns:
            The event.

        Raises:
            ArgumentError: If the event was recorded on another device.
        """
        event = event or Event(device=self.device)
        self._stream.record_event(event._event_on(self.device))
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work on this stream wait for `event`, without blocking the host.

        Args:
            event: The event.

        Raises:
            ArgumentError: If the event was recorded on another device.
        """
        self._stream.wait_event(event._event_on(self.device))

    def wait_stream(self, other: Stream) -> None:
        """Let later work on this stream wait for the work now queued on `other`.

        Args:
            other: The other stream, on the same device.

        Raises:
            ArgumentError: If `other` is a stream of another device.
        """
        self.wait_event(other.record_event())

    def __enter__(self) -> Stream:
        self._previous_streams.append(set_stream(self.device, self._stream))
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self.device, self._previous_streams.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._stream is self._stream

    def __hash__(self) -> int:
        return id(self._stream)

    def __repr__(self) -> str:
        return f"Stream(device={self.device}, id={id(self._stream):#x})"


class Event:
    """A point in a stream. With `enable_timing`, the time between two of them can be read.

    Args:
        enable_timing: Whether the device records the event's time.
        device: The device; None: the device of the stream that first records the event.

    Example:
        >>> event = wg.Event(device='cpu')
        >>> event.record()
        >>> event.synchronize()
        >>> event.query()
        True
    """

    def __init__(self, enable_timing: bool = False, device: DeviceLike | None = None):
        self.enable_timing = enable_timing
        self.device = None if device is None else to_device(device)
        self._event: DriverEvent | None = None

    def _event_on(self, device: Device) -> DriverEvent:
        if self._event is None:
            self.device = device
            event: DriverEvent = device.driver.new_event(self.enable_timing)
            self._event = event
        elif self.device is not device:
            raise ArgumentError(f"an event of {self.device} cannot be used on {device}")
        return self._event

    def _resolve_device(self) -> Device:
        """Return the event's device; before it is recorded, the device of the stream entered last."""
        return self.device or entered_device() or to_device(None)

    def record(self, stream: Stream | None = None) -> None:
        """Record the event at the end of the work queued on a stream.

        Args:
            stream: The stream; None: the current stream of the event's device.

        Raises:
            ArgumentError: If the event was recorded on another device.
        """
        (stream or current_stream(self._resolve_device())).record_event(self)

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work on a stream wait for this event, without blocking the host.

        Args:
            stream: The stream; None: the current stream of the event's device.

        Raises:
            ArgumentError: If the event was recorded on another device.
        """
        (stream or current_stream(self._resolve_device())).wait_event(self)

    def query(self) -> bool:
        """Return True if the work before the event is done.

        Returns:
            Python bool; True for an event that was never recorded.
        """
        return self._event is None or bool(self._event.query())

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        if self._event is not None:
            self._event.synchronize()
            if self.device is not None:
                deferred.check_ready(self.device, wait=False)

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to `end_event`. Both need `enable_timing=True`.

        Args:
            end_event: The later event.

        Returns:
            Python float.

        Raises:
            ArgumentError: If one of the events was not recorded.
        """
        if self._event is None or end_event._event is None:
            raise ArgumentError("elapsed_time: both events must have been recorded")
        return float(self._event.elapsed_time(end_event._event))


def stream(stream: Stream | None) -> AbstractContextManager[object]:
    """Return a context manager that makes `stream` the current stream: `with wg.stream(s):`.

    Args:
        stream: The stream; None changes nothing.

    Returns:
        A context manager.

    Example:
        >>> with wg.stream(wg.Stream('cpu')):
        ...     x = wg.ones(2, device='cpu')
        ...
        >>> x
        tensor([1., 1.])
    """
    return nullcontext() if stream is None else stream


def current_stream(device: DeviceLike | None = None) -> Stream:
    """Return the current stream of this thread on a device.

    Args:
        device: The device; None: the default device.

    Returns:
        The stream.

    Example:
        >>> wg.current_stream('cpu') == wg.default_stream('cpu')
        True
    """
    target = to_device(device)
    return Stream(target, _stream=_current(target))


def default_stream(device: DeviceLike | None = None) -> Stream:
    """Return the default stream of a device.

    Args:
        device: The device; None: the default device.

    Returns:
        The stream.

    Example:
        >>> wg.default_stream('cpu').query()
        True
    """
    target = to_device(device)
    return Stream(target, _stream=target.driver.default_stream)


def synchronize(device: DeviceLike | None = None) -> None:
    """Wait for all work on a device (default: every device in use). Raises the errors of deferred bounds checks.

    Args:
        device: The device; None: every device in use.

    Example:
        >>> wg.synchronize('cpu')
    """
    for target in known_devices() if device is None else [to_device(device)]:
        if device is not None or target._driver is not None:
            target.driver.synchronize()
            deferred.check_ready(target, wait=True)


def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """Return counters of the device's memory pools.

    They count bytes allocated and reserved, their peaks, and driver allocations.

    Args:
        device: The device; None: the default device.

    Returns:
        Counters by name, in bytes or calls.

    Example:
        >>> sorted(wg.memory_stats('cpu'))[:3]
        ['allocated', 'allocated_peak', 'allocations']
    """
    return to_device(device).driver.budget.stats()._asdict()


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Return the bytes in use by tensors.

    Args:
        device: The device; None: the default device.

    Returns:
        Bytes.

    Example:
        >>> before = wg.memory_allocated('cpu')
        >>> x = wg.ones(1 << 20, device='cpu')
        >>> wg.memory_allocated('cpu') - before
        4194304
    """
    return memory_stats(device)["allocated"]


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """Return the peak of bytes in use since the last `reset_peak_memory_stats`.

    Args:
        device: The device; None: the default device.

    Returns:
        Bytes.

    Example:
        >>> wg.reset_peak_memory_stats('cpu')
        >>> before = wg.memory_allocated('cpu')
        >>> x = wg.ones(1 << 20, device='cpu')
        >>> del x
        >>> wg.max_memory_allocated('cpu') - before
        4194304
    """
    return memory_stats(device)["allocated_peak"]


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Return the bytes reserved from the driver.

    Args:
        device: The device; None: the default device.

    Returns:
        Bytes.

    Example:
        >>> x = wg.ones(1 << 20, device='cpu')
        >>> del x  # the pool keeps the memory
        >>> wg.memory_reserved('cpu') - wg.memory_allocated('cpu') >= 4194304
        True
    """
    return memory_stats(device)["reserved"]


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """Return the peak of bytes reserved from the driver.

    Args:
        device: The device; None: the default device.

    Returns:
        Bytes.

    Example:
        >>> wg.reset_peak_memory_stats('cpu')
        >>> x = wg.ones(1 << 20, device='cpu')
        >>> del x
        >>> released = wg.empty_cache('cpu')
        >>> wg.max_memory_reserved('cpu') - wg.memory_reserved('cpu') >= 4194304
        True
    """
    return memory_stats(device)["reserved_peak"]


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Reset the peaks of the memory statistics.

    Args:
        device: The device; None: the default device.

    Example:
        >>> wg.reset_peak_memory_stats('cpu')
        >>> wg.max_memory_allocated('cpu') == wg.memory_allocated('cpu')
        True
    """
    for pool in list(to_device(device).driver.budget.pools):
        pool.reset_peak()


def memory_snapshot(device: DeviceLike | None = None) -> list[SegmentInfo]:
    """Return every segment of the device's memory pools, with its blocks.

    Args:
        device: The device; None: the default device.

    Returns:
        A record for each segment.

    Example:
        >>> sum(segment.size for segment in wg.memory_snapshot('cpu')) == wg.memory_reserved('cpu')
        True
    """
    return [segment for pool in list(to_device(device).driver.budget.pools) for segment in pool.snapshot()]


def empty_cache(device: DeviceLike | None = None) -> int:
    """Return cached memory to the driver, and return its size in bytes.

    Args:
        device: The device; None: the default device.

    Returns:
        Bytes that were returned.

    Example:
        >>> x = wg.ones(1 << 20, device='cpu')
        >>> del x
        >>> wg.empty_cache('cpu') >= 4194304
        True
    """
    return int(to_device(device).driver.budget.empty_cache())


def set_memory_limit(limit: int | None, device: DeviceLike | None = None) -> None:
    """Limit the device's memory pools to `limit` bytes; None removes the limit.

    Args:
        limit: Bytes; None: no limit.
        device: The device; None: the default device.

    Example:
        >>> wg.set_memory_limit(1 << 20, 'cpu')
        >>> x = wg.ones(1 << 20, device='cpu')
        Traceback (most recent call last):
            ...
        weftgrad.runtime.errors.OutOfMemoryError: out of memory on cpu: ...
        >>> wg.set_memory_limit(None, 'cpu')
    """
    to_device(device).driver.budget.set_limit(limit)


def launches(device: DeviceLike | None = None) -> int:
    """Return the number of kernels that this process has launched on the device.

    Args:
        device: The device; None: the default device.

    Returns:
        Python int.

    Example:
        >>> before = wg.launches('cpu')
        >>> x = wg.ones(2, device='cpu') + 1
        >>> wg.launches('cpu') > before
        True
    """
    return int(to_device(device).driver.launches)  # type: ignore[attr-defined]  # not in the protocol
