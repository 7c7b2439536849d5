"""Streams, events and graphs of a CUDA device."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..device import Device
from ..errors import ArgumentError, CaptureError, LaunchError
from ..pool import Pool
from ..storage import Storage
from . import cuda_api
from .cuda_api import NOT_READY, ask
from .cuda_memory import GraphPool

if TYPE_CHECKING:
    from .cuda import CudaDriver

__all__ = ["Capture", "CudaEvent", "CudaStream", "Graph"]

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the legacy default stream
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class CudaEvent:
    """A point in a stream. The driver's event is made when first recorded, and used again by later ones."""

    def __init__(self, driver: CudaDriver, timing: bool = False):
        self.driver = driver
        self.timing = timing
        self.handle: Any = None
        self.capture: Capture | None = None  # in which it was recorded: then it is an edge of a graph, not of time

    def record(self, stream: CudaStream) -> None:
        stream.record_event(self)

    def query(self) -> bool:
        """Whether the work before it is done; true for one that was never recorded."""
        if self.handle is None:
            return True
        self._outside("asked for its state")
        driver = self.driver
        cuda_api.activate(driver)
        if driver.captures:
            with cuda_api.relaxed():
                code = cuda_api.library().cuEventQuery(self.handle)[0]
        else:
            code = cuda_api.library().cuEventQuery(self.handle)[0]
        if code and code != NOT_READY:
            raise cuda_api.failure("cuEventQuery", code)
        return not code

    def synchronize(self) -> None:
        if self.handle is None:
            return
        self._outside("waited for")
        cuda_api.activate(self.driver)
        if self.driver.captures:
            with cuda_api.relaxed():
                ask("cuEventSynchronize", self.handle)
        else:
            ask("cuEventSynchronize", self.handle)

    def elapsed_time(self, end: CudaEvent) -> float:
        """Milliseconds from this event to `end`; both must be timing events that were recorded."""
        if self.handle is None or end.handle is None or not (self.timing and end.timing):
            raise LaunchError("elapsed_time needs two recorded events made with enable_timing=True")
        end.synchronize()
        self.synchronize()
        return float(ask("cuEventElapsedTime", self.handle, end.handle))

    def _outside(self, what: str) -> None:
        if self.capture is not None:
            raise CaptureError(f"an event recorded while a graph was captured cannot be {what}: it has no time")

    def __del__(self) -> None:
        if self.handle is not None:
            self.driver.spare_events[self.timing].append(self.handle)


class CudaStream:
    """One in-order queue, with a pool whose blocks are reused in its order.

    capture: the capture that it takes part in. Then nothing runs: launches and copies become parts of a graph, and
    memory comes from a pool of the graph.
    """

    def __init__(self, driver: CudaDriver, priority: int = 0):
        self.driver = driver
        cuda_api.activate(driver)
        self.handle = ask("cuStreamCreateWithPriority", _NON_BLOCKING, priority)
        self.pool = Pool(driver.memory, driver.budget, self, str(driver.device))
        self.capture: Capture | None = None
        driver.streams.add(self)

    @property
    def device(self) -> Device:
        return self.driver.device

    def synchronize(self) -> None:
        if self.capture is not None:
            raise CaptureError(
                f"a stream of {self.device} was waited for while a graph is captured on it: nothing runs before the "
                "graph is replayed"
            )
        cuda_api.activate(self.driver)
        ask("cuStreamSynchronize", self.handle)

    def query(self) -> bool:
        """Whether everything queued so far is done."""
        if self.capture is not None:
            raise CaptureError(f"a stream of {self.device} was asked for its state while a graph is captured on it")
        cuda_api.activate(self.driver)
        code = cuda_api.library().cuStreamQuery(self.handle)[0]
        if code and code != NOT_READY:
            raise cuda_api.failure("cuStreamQuery", code)
        return not code

    def record_event(self, event: CudaEvent | None = None) -> CudaEvent:
        driver = self.driver
        event = event or CudaEvent(driver)
        if cuda_api.local.driver is not driver:
            cuda_api.activate(driver)
        if event.handle is None:
            event.handle = driver.event_handle(event.timing)
        ask("cuEventRecord", event.handle, self.handle)
        event.capture = self.capture
        return event

    def wait_event(self, event: CudaEvent) -> None:
        """Let later work wait for `event`. One recorded in a capture draws this stream into it."""
        if event.handle is None:
            return
        cuda_api.activate(self.driver)
        if event.capture is not None and not event.capture.open:
            raise CaptureError("an event that was recorded while a graph was captured means nothing outside of it")
        ask("cuStreamWaitEvent", self.handle, event.handle, 0)
        if event.capture is not None and self.capture is None:
            event.capture.join(self)

    def wait_stream(self, other: CudaStream) -> None:
        self.wait_event(other.record_event())

    def begin_capture(self) -> None:
        """From now on collect work instead of running it, until `end_capture`, by this same thread.

        Run the work once before, so that its kernels are compiled and loaded. What the graph reads must keep its place:
        the graph keeps the memory of everything it was given.
        """
        if self.capture is not None:
            raise CaptureError(f"a graph is being captured on this stream of {self.device} already")
        driver = self.driver
        cuda_api.activate(driver)
        # Only this thread is held to what may be called in a capture; others may allocate and wait meanwhile.
        mode = cuda_api.library().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        ask("cuStreamBeginCapture", self.handle, mode)
        Capture(driver, self).join(self)

    def end_capture(self) -> Graph:
        """The graph of what was collected. Raises `CaptureError` if the capture broke; the stream is usable again."""
        capture = self.capture
        if capture is None or capture.origin is not self:
            raise CaptureError(f"no graph is being captured from this stream of {self.device}")
        if capture.thread != threading.get_ident():
            raise CaptureError("a capture must be ended by the thread that began it")
        try:
            graph = ask("cuStreamEndCapture", self.handle)
        finally:
            capture.close()
        if graph is None or not int(graph):
            raise CaptureError("the capture broke: something that a graph cannot hold was called in it")
        return Graph(self.driver, graph, capture)

    def abort_capture(self) -> None:
        """End a capture and forget what was collected: for a failure in the middle."""
        capture = self.capture
        if capture is None:
            return
        code, graph = cuda_api.library().cuStreamEndCapture(capture.origin.handle)
        capture.close()
        capture.pools, capture.kept, capture.checks = [], {}, []
        if not code and graph is not None and int(graph):
            ask("cuGraphDestroy", graph)

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None:
            self.driver.leaving.append(("cuStreamDestroy", handle))


class Capture:
    """What a graph will need besides its nodes: streams that take part, their pools, memory to keep."""

    def __init__(self, driver: CudaDriver, origin: CudaStream):
        self.driver = driver
        self.origin = origin
        self.thread = threading.get_ident()
        self.open = True
        self.pools: list[Pool] = []
        self.kept: dict[int, Any] = {}
        self.checks: list[Any] = []  # of values that the graph computes, made behind every replay (`runtime.deferred`)
        self._streams: list[tuple[CudaStream, Pool]] = []
        with driver.budget.lock:
            driver.captures += 1

    def join(self, stream: CudaStream) -> None:
        """Let a stream take part: its memory now comes from a pool of the graph."""
        self._streams.append((stream, stream.pool))
        stream.capture = self
        stream.pool = GraphPool(self.driver.memory, self.driver.budget, stream, str(self.driver.device))
        self.pools.append(stream.pool)

    def keep(self, tensors: list[Any]) -> None:
        """Hold the memory that a launch was given, unless it is of the graph's own pools."""
        for tensor in tensors:
            self.keep_storage(tensor.storage)

    def keep_storage(self, storage: Storage) -> None:
        if storage.block is None or storage.block.pool not in self.pools:
            self.kept[id(storage)] = storage

    def hold(self, thing: Any) -> None:
        self.kept[id(thing)] = thing

    def close(self) -> None:
        """Give the streams back their own pools."""
        self.open = False
        for stream, pool in self._streams:
            stream.capture, stream.pool = None, pool
        self._streams.clear()
        with self.driver.budget.lock:
            self.driver.captures -= 1
            self.driver.memory.settle()


class Graph:
    """Captured work, ready to run again and again with the same memory.

    Results lie where they lay in the capture: a replay writes over those of the one before.
    """

    def __init__(self, driver: CudaDriver, handle: Any, capture: Capture):
        self.driver = driver
        self._pools, self._kept = capture.pools, capture.kept
        self._checks = capture.checks
        capture.pools, capture.kept, capture.checks = [], {}, []
        self._handle: Any = None
        try:
            self._handle = ask("cuGraphInstantiate", handle, 0)
        finally:
            ask("cuGraphDestroy", handle)

    def replay(self, stream: CudaStream | None = None) -> None:
        """Queue everything on `stream` (default: the device's default stream) as one launch."""
        stream = stream or self.driver.default_stream
        if stream.driver is not self.driver:
            raise ArgumentError(f"a graph of {self.driver.device} cannot run on a stream of {stream.device}")
        cuda_api.activate(self.driver)
        if stream.capture is not None:
            stream.capture.hold(self)
            stream.capture.checks += self._checks
        ask("cuGraphLaunch", self._handle, stream.handle)
        if stream.capture is None:
            for check in self._checks:
                check(stream)
        self.driver.last = "a graph"

    @property
    def nbytes(self) -> int:
        """Memory that only this graph's work uses, in bytes."""
        return sum(pool.stats().reserved for pool in self._pools)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:  # a replay may still run: destroyed when the device was waited for, kept things too
            self.driver.leaving.append(("cuGraphExecDestroy", handle, self._kept))
