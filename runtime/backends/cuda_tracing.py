"""Times of kernels on CUDA devices: an event before each and one behind it, read when the recording ends.

A launch that a graph collects has no time; each replay of a graph is one entry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..tracing import Launch, drivers, now
from . import cuda_api, cuda_launch
from .cuda_streams import CudaEvent, CudaStream, Graph

__all__ = ["CudaTracer"]

_PENDING = 4096  # launches after which times are asked for, so that events do not pile up
_FAR = 1000.0  # milliseconds behind an event after which a later one is measured from: times are float32


class CudaTracer:
    """Notes launches on all CUDA devices of the process."""

    def __init__(self, launches: list[Launch]):
        self.launches = launches
        self._bases: dict[Any, tuple[CudaEvent, float]] = {}  # by driver: an event, and the host's time of it
        self._streams: dict[int, tuple[Any, CudaStream, int]] = {}  # by its handle's identity, with a number
        self._names: dict[int, tuple[Any, str]] = {}
        self._waiting: list[tuple[Launch, Any, CudaEvent, CudaEvent]] = []
        self._lock = threading.Lock()
        self._replay = Graph.replay

    def start(self) -> None:
        cuda_launch.tracer = self
        for driver in self._drivers():
            self.watch(driver)
        tracer, replay = self, self._replay

        def noted(graph: Graph, stream: CudaStream | None = None) -> None:
            chosen = stream or graph.driver.default_stream
            if chosen.capture is not None or chosen.driver is not graph.driver:
                return replay(graph, stream)
            tracer._noted("graph replay", graph.driver, chosen, lambda: replay(graph, stream))
            return None

        Graph.replay = noted  # type: ignore[method-assign,assignment]

    def stop(self) -> None:
        Graph.replay = self._replay  # type: ignore[method-assign]
        cuda_launch.tracer = None
        found = self._drivers()
        for driver in found:
            driver.launch = cuda_api.library().cuLaunchKernel
        for driver in found:
            driver.wait()
        with self._lock:
            self._resolve()

    def watch(self, driver: Any) -> None:
        """Have a driver's launches noted from now on."""
        launch = driver.launch = cuda_api.library().cuLaunchKernel
        if not driver.captures:
            stream = CudaStream(driver)
            base = CudaEvent(driver, True)
            stream.synchronize()
            before = now()
            stream.record_event(base)
            stream.synchronize()
            self._bases[driver] = base, (before + now()) / 2

        def noted(function: Any, *given: Any) -> Any:
            stream = self._stream(driver, given[7])
            if stream is None or stream.capture is not None or driver not in self._bases:
                return launch(function, *given)
            return self._noted(self._name(driver, function), driver, stream, lambda: launch(function, *given))

        driver.launch = noted

    def _noted(self, name: str, driver: Any, stream: CudaStream, queue: Callable[[], Any]) -> Any:
        if driver not in self._bases:
            return queue()
        before, behind = CudaEvent(driver, True), CudaEvent(driver, True)
        begin = now()
        stream.record_event(before)
        result = queue()
        stream.record_event(behind)
        number = self._streams[id(stream.handle)][2] if id(stream.handle) in self._streams else 0
        launch = Launch(name, str(driver.device), number, threading.get_ident(), begin, now())
        self.launches.append(launch)
        with self._lock:
            self._waiting.append((launch, driver, before, behind))
            if len(self._waiting) >= _PENDING:
                self._resolve()
        return result

    def _drivers(self) -> list[Any]:
        return [d for d in drivers() if str(d.device).startswith("cuda")]

    def _stream(self, driver: Any, handle: Any) -> CudaStream | None:
        found = self._streams.get(id(handle))
        if found is None or found[0] is not handle:
            for stream in list(driver.streams):
                self._streams.setdefault(id(stream.handle), (stream.handle, stream, len(self._streams)))
            found = self._streams.get(id(handle))
        return found[1] if found is not None else None

    def _name(self, driver: Any, function: Any) -> str:
        found = self._names.get(id(function))
        if found is None or found[0] is not function:
            for kernel in list(driver._kernels.values()):
                self._names[id(kernel.function)] = kernel.function, kernel.name
            found = self._names.get(id(function), (function, "kernel"))
        return found[1]

    def _resolve(self) -> None:
        """Take the times of what is done; after a wait that is everything."""
        rest = []
        for launch, driver, before, behind in self._waiting:
            if not behind.query():
                rest.append((launch, driver, before, behind))
                continue
            base, at = self._bases[driver]
            since = base.elapsed_time(before)
            begin = at + since * 1e6
            launch.begin = round(begin)
            launch.end = round(begin + before.elapsed_time(behind) * 1e6)
            if since > _FAR:
                self._bases[driver] = before, begin
        self._waiting = rest
