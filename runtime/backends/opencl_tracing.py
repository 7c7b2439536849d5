"""Times of kernels on OpenCL devices: streams are given queues that profile while this lasts."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from ..tracing import Launch, drivers, now
from . import opencl

__all__ = ["OpenCLTracer", "meeting"]

cl = opencl.cl
_PENDING = 4096  # launches after which times are asked for, so that events do not pile up
_TRIES = 12


def meeting(ranges: list[tuple[int, int]]) -> int:
    """The middle of what all ranges have in common; if clocks moved and there is nothing, of the shortest range."""
    low, high = max(a for a, _ in ranges), min(b for _, b in ranges)
    if low > high:
        low, high = min(ranges, key=lambda r: r[1] - r[0])
    return (low + high) // 2


class _Clock:
    """A device's clock beside the host's: (device's time, host's time by it), each time it was looked at."""

    def __init__(self) -> None:
        self.points: list[tuple[int, int]] = []

    def look(self, context: Any, handle: Any) -> None:
        """Markers that are waited for ended between two looks at the host's clock."""
        queue = cl.CommandQueue(context, handle, properties=cl.command_queue_properties.PROFILING_ENABLE)
        ranges, device = [], 0
        for _ in range(_TRIES):
            before = now()
            mark = cl.enqueue_marker(queue)
            queue.finish()
            after = now()
            device = mark.profile.end
            ranges.append((before - device, after - device))
        self.points.append((device, meeting(ranges)))

    def host(self, device: int) -> int:
        """The host's time of a time of the device. Between two looks the difference is taken to change evenly."""
        (first, early), (last, late) = self.points[0], self.points[-1]
        part = (device - first) / (last - first) if last > first else 0.0
        return device + early + round((late - early) * part)


class OpenCLTracer:
    """Notes launches on all OpenCL devices of the process."""

    def __init__(self, launches: list[Launch]):
        self.launches = launches
        self._names: dict[Any, str] = {}
        self._places: dict[Any, tuple[Any, int]] = {}  # by queue: driver, number of the stream
        self._clocks: dict[Any, _Clock] = {}
        self._waiting: list[tuple[Launch, Any, Any]] = []  # with their events and drivers
        self._raw: list[tuple[Launch, Any, int, int]] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        opencl.queue_flags = cl.command_queue_properties.PROFILING_ENABLE
        opencl.enqueue = self._enqueue
        for driver in self._drivers():
            _renew(driver)
            self._look(driver)

    def stop(self) -> None:
        opencl.queue_flags, opencl.enqueue = 0, cl.enqueue_nd_range_kernel
        found = self._drivers()
        try:
            for driver in found:
                driver.synchronize()
                self._look(driver)
            with self._lock:
                self._resolve()
            for launch, driver, begin, end in self._raw:
                clock = self._clocks[driver]
                launch.begin, launch.end = clock.host(begin), clock.host(end)
        finally:
            for driver in found:
                _renew(driver)

    def _enqueue(self, queue: Any, kernel: Any, size: Any, local: Any) -> Any:
        """In place of pyopencl's function: the same, with the launch noted."""
        begin = now()
        event = cl.enqueue_nd_range_kernel(queue, kernel, size, local)
        end = now()
        name = self._names.get(kernel)
        if name is None:
            name = self._names[kernel] = kernel.function_name.rpartition("_")[0]  # without the instance's digits
        driver, stream = self._places.get(queue) or self._place(queue)
        if driver is not None:
            launch = Launch(name, str(driver.device), stream, threading.get_ident(), begin, end)
            self.launches.append(launch)
            with self._lock:
                self._waiting.append((launch, event, driver))
                if len(self._waiting) >= _PENDING:
                    self._resolve()
        return event

    def _drivers(self) -> list[Any]:
        return [d for d in drivers() if d.target == "opencl" and getattr(d, "context", None) is not None]

    def _place(self, queue: Any) -> tuple[Any, int]:
        """Whose queue it is. Streams may be new, and devices opened since the start."""
        for driver in self._drivers():
            if driver not in self._clocks:
                self._look(driver)
            for number, stream in enumerate(_streams(driver)):
                self._places[stream.queue] = driver, number
        return self._places.get(queue, (None, 0))

    def _look(self, driver: Any) -> None:
        self._clocks.setdefault(driver, _Clock()).look(driver.context, driver.handle)

    def _resolve(self) -> None:
        """Take the times of what is done; after a wait that is everything."""
        rest = []
        for launch, event, driver in self._waiting:
            if event.command_execution_status > 0:
                rest.append((launch, event, driver))
                continue
            with suppress(cl.Error):  # a queue of the time before
                self._raw.append((launch, driver, event.profile.start, event.profile.end))
        self._waiting = rest


def _streams(driver: Any) -> list[Any]:
    return [pool.stream for pool in list(driver.budget.pools) if hasattr(pool.stream, "renew")]


def _renew(driver: Any) -> None:
    for stream in _streams(driver):
        stream.renew()
