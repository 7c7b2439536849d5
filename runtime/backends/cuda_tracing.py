"""Trace kernel times on CUDA devices: record an event before and after each launch, and read the times at the end.

A launch in a graph capture has no time; each replay of a graph is one entry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..device import open_drivers
from ..launches import Launch, now
from . import cuda_api, cuda_streams
from .cuda import CudaDriver
from .cuda_streams import CudaEvent, CudaStream

if TYPE_CHECKING:
    from .cuda_types import DriverHandle

__all__ = ["CudaTracer"]

Result = TypeVar("Result")

_MAX_PENDING = 4096  # launches after which times are read, to limit the number of events
# Times are measured from a base event, as float32 milliseconds, which would lose precision: a launch that is later than
# this becomes the new base.
_MAX_BASE_DISTANCE_MS = 1000.0


class CudaTracer:
    """Records launches on all CUDA devices of the process.

    Args:
        launches: The list to which launches are appended. Their times, in nanoseconds of `launches.now`, are those of
            the host until the device's are read.
    """

    def __init__(self, launches: list[Launch]):
        self.launches = launches
        self._bases: dict[CudaDriver, tuple[CudaEvent, float]] = {}  # by driver: an event, and its host time
        self._streams: dict[int, tuple[object, CudaStream, int]] = {}  # by id of the handle: handle, stream, number
        self._names: dict[int, tuple[DriverHandle, str]] = {}  # by id of a kernel's function
        self._pending: list[tuple[Launch, CudaDriver, CudaEvent, CudaEvent]] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Record launches of all open devices, and replays of graphs, from now on."""
        cuda_streams.tracer = self
        for driver in self._drivers():
            self.watch(driver)

    def stop(self) -> None:
        """Stop recording, wait for the devices, and read the remaining times."""
        cuda_streams.tracer = None
        traced_drivers = self._drivers()
        for driver in traced_drivers:
            driver.launch = cuda_api.library().cuLaunchKernel
        for driver in traced_drivers:
            driver.wait()
        with self._lock:
            self._resolve()

    def watch(self, driver: CudaDriver) -> None:
        """Record a driver's launches from now on, unless a graph is being captured: a capture has no base event."""
        launch = cuda_api.library().cuLaunchKernel
        driver.launch = launch
        if not driver.captures:
            stream = CudaStream(driver)
            base = CudaEvent(driver, True)
            stream.synchronize()
            host_time = now()
            stream.record_event(base)
            stream.synchronize()
            self._bases[driver] = base, (host_time + now()) / 2

        def traced_launch(function: DriverHandle, *args: object) -> tuple[int]:
            stream_handle = args[7]  # behind the sizes of the grid and the block, and the shared memory
            stream = self._find_stream(driver, stream_handle)
            if stream is None or stream.capture is not None or driver not in self._bases:
                return launch(function, *args)
            name = self._find_name(driver, function)
            return self.trace_call(name, driver, stream, lambda: launch(function, *args))

        driver.launch = traced_launch

    def trace_call(self, name: str, driver: CudaDriver, stream: CudaStream, call: Callable[[], Result]) -> Result:
        """Call `call`, which queues work on `stream`, record the work as a launch, and return the call's result."""
        if driver not in self._bases:
            return call()
        start_event, end_event = CudaEvent(driver, True), CudaEvent(driver, True)
        begin = now()
        stream.record_event(start_event)
        result = call()
        stream.record_event(end_event)
        number = self._streams[id(stream.handle)][2] if id(stream.handle) in self._streams else 0
        launch = Launch(name, str(driver.device), number, threading.get_ident(), begin, now())
        self.launches.append(launch)
        with self._lock:
            self._pending.append((launch, driver, start_event, end_event))
            if len(self._pending) >= _MAX_PENDING:
                self._resolve()
        return result

    def _drivers(self) -> list[CudaDriver]:
        return [driver for driver in open_drivers() if isinstance(driver, CudaDriver)]

    def _find_stream(self, driver: CudaDriver, handle: object) -> CudaStream | None:
        entry = self._streams.get(id(handle))
        if entry is None or entry[0] is not handle:
            for stream in list(driver.streams):
                self._streams.setdefault(id(stream.handle), (stream.handle, stream, len(self._streams)))
            entry = self._streams.get(id(handle))
        return entry[1] if entry is not None else None

    def _find_name(self, driver: CudaDriver, function: DriverHandle) -> str:
        """Return the name of a kernel by its function; "kernel" if it is none of ours."""
        entry = self._names.get(id(function))
        if entry is None or entry[0] is not function:
            for kernel in list(driver._kernels.values()):
                self._names[id(kernel.function)] = kernel.function, kernel.name
            entry = self._names.get(id(function), (function, "kernel"))
        return entry[1]

    def _resolve(self) -> None:
        """Read the device times of the launches that have ended. The others stay pending."""
        unfinished = []
        for launch, driver, start_event, end_event in self._pending:
            if not end_event.query():
                unfinished.append((launch, driver, start_event, end_event))
                continue
            base, base_time = self._bases[driver]
            elapsed = base.elapsed_time(start_event)
            begin = base_time + elapsed * 1e6
            launch.begin = round(begin)
            launch.end = round(begin + start_event.elapsed_time(end_event) * 1e6)
            if elapsed > _MAX_BASE_DISTANCE_MS:
                self._bases[driver] = start_event, begin
        self._pending = unfinished
