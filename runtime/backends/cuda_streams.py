"""Streams, events and graphs of a CUDA device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..device import Device
from ..errors import ArgumentError, CaptureError, LaunchError
from ..pool import Pool
from ..storage import Storage
from . import cuda_api
from .cuda_api import NOT_READY, call_driver
from .cuda_memory import GraphPool
from .protocol import Event

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .arguments import Scratch
    from .cuda import CudaDriver
    from .cuda_tracing import CudaTracer
    from .cuda_types import DriverHandle

__all__ = ["Capture", "CudaEvent", "CudaStream", "Graph"]

tracer: CudaTracer | None = None
"""The active profiler, or None. It replaces `CudaDriver.launch` to record launches; `Graph.replay` calls it."""

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the legacy default stream
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class CudaEvent:
    """A point in a stream. The driver's event is created at the first recording; its handle is reused afterwards.

    Args:
        driver: The device's driver.
        timing: The event records the time, for `elapsed_time`.

    Attributes:
        capture: The capture in which the event was recorded: then it is a dependency in a graph, and has no state.
    """

    def __init__(self, driver: CudaDriver, timing: bool = False):
        self.driver = driver
        self.timing = timing
        self.handle: DriverHandle | None = None
        self.capture: Capture | None = None

    def record(self, stream: CudaStream) -> None:
        stream.record_event(self)

    def query(self) -> bool:
        """Return True if the work before it is done, or if it was never recorded."""
        if self.handle is None:
            return True
        self._check_not_captured("asked for its state")
        driver = self.driver
        cuda_api.activate(driver)
        with cuda_api.relaxed(driver):
            code = cuda_api.library().cuEventQuery(self.handle)[0]
        if code and code != NOT_READY:
            raise cuda_api.driver_error("cuEventQuery", code)
        return not code

    def synchronize(self) -> None:
        if self.handle is None:
            return
        self._check_not_captured("waited for")
        cuda_api.activate(self.driver)
        with cuda_api.relaxed(self.driver):
            call_driver("cuEventSynchronize", self.handle)

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds from this event to `end`; both must be timing events that were recorded."""
        assert isinstance(end, CudaEvent)
        if self.handle is None or end.handle is None or not (self.timing and end.timing):
            raise LaunchError("elapsed_time needs two recorded events made with enable_timing=True")
        end.synchronize()
        self.synchronize()
        return float(call_driver("cuEventElapsedTime", self.handle, end.handle))

    def _check_not_captured(self, action: str) -> None:
        if self.capture is not None:
            raise CaptureError(f"an event recorded while a graph was captured cannot be {action}: it has no time")

    def __del__(self) -> None:
        if self.handle is not None:
            self.driver.spare_events[self.timing].append(self.handle)


class CudaStream:
    """An in-order queue, with a pool whose blocks are reused in its order.

    Args:
        driver: The device's driver.
        priority: As CUDA has it: a lower number is served first; 0 is the default.

    Attributes:
        handle: The driver's stream.
        pool: The memory pool; during a capture, one that belongs to the graph.
        capture: The capture in which the stream takes part, or None. During a capture nothing runs: launches and copies
            become nodes of a graph.
    """

    def __init__(self, driver: CudaDriver, priority: int = 0):
        self.driver = driver
        cuda_api.activate(driver)
        self.handle = call_driver("cuStreamCreateWithPriority", _NON_BLOCKING, priority)
        self.pool = Pool(driver.memory, driver.budget, self, str(driver.device))
        self.capture: Capture | None = None
        driver.streams.add(self)

    @property
    def device(self) -> Device:
        return self.driver.device

    def synchronize(self) -> None:
        """Wait for everything queued so far. Raise `CaptureError` during a capture."""
        if self.capture is not None:
            raise CaptureError(
                f"a stream of {self.device} was waited for while a graph is captured on it: nothing runs before the "
                "graph is replayed"
            )
        cuda_api.activate(self.driver)
        with cuda_api.relaxed(self.driver):
            call_driver("cuStreamSynchronize", self.handle)

    def query(self) -> bool:
        """Return True if everything queued so far is done."""
        if self.capture is not None:
            raise CaptureError(f"a stream of {self.device} was asked for its state while a graph is captured on it")
        cuda_api.activate(self.driver)
        with cuda_api.relaxed(self.driver):
            code = cuda_api.library().cuStreamQuery(self.handle)[0]
        if code and code != NOT_READY:
            raise cuda_api.driver_error("cuStreamQuery", code)
        return not code

    def record_event(self, event: Event | None = None) -> CudaEvent:
        """Record `event`, or a new event without timing, behind the work queued so far, and return it."""
        driver = self.driver
        event = event or CudaEvent(driver)
        assert isinstance(event, CudaEvent)
        if cuda_api.local.driver is not driver:
            cuda_api.activate(driver)
        if event.handle is None:
            event.handle = driver.event_handle(event.timing)
        call_driver("cuEventRecord", event.handle, self.handle)
        event.capture = self.capture
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work wait for `event`. An event recorded in a capture adds this stream to the capture."""
        assert isinstance(event, CudaEvent)
        if event.handle is None:
            return
        cuda_api.activate(self.driver)
        if event.capture is not None and not event.capture.is_open:
            raise CaptureError("an event that was recorded while a graph was captured means nothing outside of it")
        call_driver("cuStreamWaitEvent", self.handle, event.handle, 0)
        if event.capture is not None and self.capture is None:
            event.capture.add_stream(self)

    def wait_stream(self, other: CudaStream) -> None:
        """Let later work wait for the work that `other` has now."""
        self.wait_event(other.record_event())

    def begin_capture(self) -> None:
        """Collect work into a graph instead of running it, until `end_capture` on the same thread.

        Run the work once before, so that its kernels are compiled and loaded. The graph contains the addresses of its
        operands, and keeps their memory alive.
        """
        if self.capture is not None:
            raise CaptureError(f"a graph is being captured on this stream of {self.device} already")
        driver = self.driver
        cuda_api.activate(driver)
        # Thread-local mode: other threads may call functions that a capture forbids, such as allocations and waits.
        mode = cuda_api.library().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        call_driver("cuStreamBeginCapture", self.handle, mode)
        Capture(driver, self).add_stream(self)

    def end_capture(self) -> Graph:
        """End the capture and return the graph. In any case, the stream runs work again.

        Raises:
            CaptureError: There is no capture that this stream and thread began, or something was called in it that a
                graph cannot hold.
        """
        capture = self.capture
        if capture is None or capture.origin is not self:
            raise CaptureError(f"no graph is being captured from this stream of {self.device}")
        if capture.thread != threading.get_ident():
            raise CaptureError("a capture must be ended by the thread that began it")
        try:
            graph = call_driver("cuStreamEndCapture", self.handle)
        finally:
            capture.close()
        if graph is None or not int(graph):
            raise CaptureError("the capture broke: something that a graph cannot hold was called in it")
        return Graph(self.driver, graph, capture)

    def abort_capture(self) -> None:
        """End a capture and discard the collected work, after an error in the captured code."""
        capture = self.capture
        if capture is None:
            return
        code, graph = cuda_api.library().cuStreamEndCapture(capture.origin.handle)
        capture.close()
        capture.pools, capture.retained, capture.checks = [], {}, []
        if not code and graph is not None and int(graph):
            call_driver("cuGraphDestroy", graph)

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None:
            self.driver.pending_destroys.append(("cuStreamDestroy", handle, None))


class Capture:
    """A graph capture in progress.

    Attributes:
        origin: The stream whose capture it is; others join it by waiting for its events.
        thread: The thread that began it.
        is_open: Nodes may still be added.
        pools: The pools of memory that the graph's work allocates, one per stream.
        retained: Other objects that the graph has to keep alive, by id: some of them are not hashable.
        checks: Checks of computed values (`runtime.deferred`), to be queued after every replay.
    """

    def __init__(self, driver: CudaDriver, origin: CudaStream):
        self.driver = driver
        self.origin = origin
        self.thread = threading.get_ident()
        self.is_open = True
        self.pools: list[Pool] = []
        self.retained: dict[int, object] = {}
        self.checks: list[Callable[[CudaStream], object]] = []
        self._streams: list[tuple[CudaStream, Pool]] = []
        with driver.budget.lock:
            driver.captures += 1

    def add_stream(self, stream: CudaStream) -> None:
        """Add a stream to the capture: its memory now comes from a pool of the graph."""
        self._streams.append((stream, stream.pool))
        stream.capture = self
        stream.pool = GraphPool(self.driver.memory, self.driver.budget, stream, str(self.driver.device))
        self.pools.append(stream.pool)

    def retain_tensors(self, tensors: Sequence[Tensor | Scratch]) -> None:
        """Keep the memory of a launch's tensors alive, unless it belongs to the graph's own pools."""
        for tensor in tensors:
            self.retain_storage(tensor.storage)

    def retain_storage(self, storage: Storage) -> None:
        if storage.block is None or storage.block.pool not in self.pools:
            self.retained[id(storage)] = storage

    def retain(self, owner: object) -> None:
        self.retained[id(owner)] = owner

    def close(self) -> None:
        """Restore the streams' own pools."""
        self.is_open = False
        for stream, pool in self._streams:
            stream.capture, stream.pool = None, pool
        self._streams.clear()
        with self.driver.budget.lock:
            self.driver.captures -= 1
            self.driver.memory.free_deferred()


class Graph:
    """Captured work that can be replayed with the same memory.

    Results are at the same addresses as in the capture: a replay overwrites the results of the previous one.
    """

    def __init__(self, driver: CudaDriver, handle: DriverHandle, capture: Capture):
        self.driver = driver
        self._pools, self._retained = capture.pools, capture.retained
        self._checks = capture.checks
        capture.pools, capture.retained, capture.checks = [], {}, []
        self._handle: DriverHandle | None = None
        try:
            self._handle = call_driver("cuGraphInstantiate", handle, 0)
        finally:
            call_driver("cuGraphDestroy", handle)

    def replay(self, stream: CudaStream | None = None) -> None:
        """Queue the whole graph as one launch.

        Args:
            stream: A stream of the same device; by default the device's default stream.

        Raises:
            ArgumentError: The stream belongs to another device.
        """
        stream = stream or self.driver.default_stream
        if stream.driver is not self.driver:
            raise ArgumentError(f"a graph of {self.driver.device} cannot run on a stream of {stream.device}")
        if tracer is None or stream.capture is not None:
            self._launch(stream)
        else:
            tracer.trace_call("graph replay", self.driver, stream, lambda: self._launch(stream))

    def _launch(self, stream: CudaStream) -> None:
        cuda_api.activate(self.driver)
        if stream.capture is not None:
            stream.capture.retain(self)
            stream.capture.checks += self._checks
        call_driver("cuGraphLaunch", self._handle, stream.handle)
        if stream.capture is None:
            for check in self._checks:
                check(stream)
        self.driver.last_kernel = "a graph"

    @property
    def nbytes(self) -> int:
        """Bytes of memory that only this graph's work uses."""
        return sum(pool.stats().reserved for pool in self._pools)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:  # a replay may still run: destroy the graph and its objects after the next wait
            self.driver.pending_destroys.append(("cuGraphExecDestroy", handle, self._retained))
