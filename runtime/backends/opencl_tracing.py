"""Trace kernel times on OpenCL devices: streams get profiling queues while the tracer is active."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ..device import open_drivers
from ..launches import Launch, now
from . import opencl

if TYPE_CHECKING:
    from .opencl import OpenCLDriver, OpenCLStream
    from .opencl_types import ClContext, ClDevice, ClEvent, ClKernel, ClQueue

__all__ = ["OpenCLTracer", "common_midpoint"]

cl = opencl.cl
_MAX_PENDING = 4096  # launches after which times are read, to limit the number of events
_CLOCK_SAMPLES = 12


def common_midpoint(ranges: list[tuple[int, int]]) -> int:
    """Return the middle of the intersection of all ranges; if it is empty (clocks drifted), of the shortest range."""
    low, high = max(a for a, _ in ranges), min(b for _, b in ranges)
    if low > high:
        low, high = min(ranges, key=lambda r: r[1] - r[0])
    return (low + high) // 2


class _Clock:
    """Maps a device's clock to the host's. points: (device time, host time - device time) of each sample, in ns."""

    def __init__(self) -> None:
        self.points: list[tuple[int, int]] = []

    def sample(self, context: ClContext, handle: ClDevice) -> None:
        """Measure the clocks' offset by markers, each of which ends between two readings of the host's clock."""
        queue = cl.CommandQueue(context, handle, properties=cl.command_queue_properties.PROFILING_ENABLE)
        ranges, device_time = [], 0
        for _ in range(_CLOCK_SAMPLES):
            host_before = now()
            marker = cl.enqueue_marker(queue)
            queue.finish()
            host_after = now()
            device_time = marker.profile.end
            ranges.append((host_before - device_time, host_after - device_time))
        self.points.append((device_time, common_midpoint(ranges)))

    def host(self, device: int) -> int:
        """Convert a device time to host time, interpolating the offset linearly between the samples."""
        (first, early), (last, late) = self.points[0], self.points[-1]
        fraction = (device - first) / (last - first) if last > first else 0.0
        return device + early + round((late - early) * fraction)


class OpenCLTracer:
    """Records launches on all OpenCL devices of the process."""

    def __init__(self, launches: list[Launch]):
        self.launches = launches
        self._names: dict[ClKernel, str] = {}
        self._streams_by_queue: dict[ClQueue, tuple[OpenCLDriver, int]] = {}  # driver, number of the stream
        self._clocks: dict[OpenCLDriver, _Clock] = {}
        self._pending: list[tuple[Launch, ClEvent, OpenCLDriver]] = []
        self._device_times: list[tuple[Launch, OpenCLDriver, int, int]] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        opencl.queue_flags = cl.command_queue_properties.PROFILING_ENABLE
        opencl.enqueue = self._enqueue
        for driver in self._drivers():
            _renew(driver)
            self._sample_clock(driver)

    def stop(self) -> None:
        opencl.queue_flags, opencl.enqueue = 0, cl.enqueue_nd_range_kernel
        traced_drivers = self._drivers()
        try:
            for driver in traced_drivers:
                driver.synchronize()
                self._sample_clock(driver)
            with self._lock:
                self._resolve()
            for launch, driver, begin, end in self._device_times:
                clock = self._clocks[driver]
                launch.begin, launch.end = clock.host(begin), clock.host(end)
        finally:
            for driver in traced_drivers:
                _renew(driver)

    def _enqueue(
        self, queue: ClQueue, kernel: ClKernel, size: tuple[int, ...], local: tuple[int, ...] | None
    ) -> ClEvent:
        """Replacement for pyopencl's function that records the launch."""
        begin = now()
        event = cl.enqueue_nd_range_kernel(queue, kernel, size, local)
        end = now()
        name = self._names.get(kernel)
        if name is None:
            name = self._names[kernel] = kernel.function_name.rpartition("_")[0]  # without the instance's digits
        driver, stream = self._streams_by_queue.get(queue) or self._find_stream(queue)
        if driver is not None:
            launch = Launch(name, str(driver.device), stream, threading.get_ident(), begin, end)
            self.launches.append(launch)
            with self._lock:
                self._pending.append((launch, event, driver))
                if len(self._pending) >= _MAX_PENDING:
                    self._resolve()
        return event

    def _drivers(self) -> list[OpenCLDriver]:
        return [driver for driver in open_drivers() if isinstance(driver, opencl.OpenCLDriver)]

    def _find_stream(self, queue: ClQueue) -> tuple[OpenCLDriver | None, int]:
        """Return a queue's driver and stream number. Streams and devices may be newer than the trace's start."""
        for driver in self._drivers():
            if driver not in self._clocks:
                self._sample_clock(driver)
            for number, stream in enumerate(_streams(driver)):
                self._streams_by_queue[stream.queue] = driver, number
        return self._streams_by_queue.get(queue, (None, 0))

    def _sample_clock(self, driver: OpenCLDriver) -> None:
        self._clocks.setdefault(driver, _Clock()).sample(driver.context, driver.handle)

    def _resolve(self) -> None:
        """Read the times of the launches that are done; after a wait, of all."""
        unfinished = []
        for launch, event, driver in self._pending:
            if event.command_execution_status > 0:
                unfinished.append((launch, event, driver))
                continue
            with suppress(cl.Error):  # the queue was created before the trace and does not profile
                self._device_times.append((launch, driver, event.profile.start, event.profile.end))
        self._pending = unfinished


def _streams(driver: OpenCLDriver) -> list[OpenCLStream]:
    return [pool.stream for pool in list(driver.budget.pools) if isinstance(pool.stream, opencl.OpenCLStream)]


def _renew(driver: OpenCLDriver) -> None:
    for stream in _streams(driver):
        stream.renew()
