"""CUDA graphs: work that is captured once and replayed as one launch."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ..execution import streams
from ..runtime.backends.cuda_streams import CudaStream, Graph
from ..runtime.context import current_stream as runtime_stream
from ..runtime.device import Device
from ..runtime.errors import ArgumentError, CaptureError
from .devices import describe_gpu, resolve_device
from .streams import Stream

__all__ = ["CUDAGraph", "graph", "is_current_stream_capturing"]


def _current_stream(device: Device) -> CudaStream:
    stream = runtime_stream(device)
    assert isinstance(stream, CudaStream)
    return stream


class CUDAGraph:
    """Work that is captured once and then replayed as one launch, always with the same memory.

    Run the work once before capturing it, so that its kernels are compiled. Nothing runs during the capture, so results
    cannot be read and events cannot be waited for. Each replay writes the results to the same addresses. To change the
    inputs between replays, write to them in place (`copy_`).

    Example:
        >>> if wg.cuda.is_available():
        ...     x = wg.zeros(2, device='cuda')
        ...     y = x + 1
        ...     captured = wg.cuda.CUDAGraph()
        ...     with wg.cuda.graph(captured):
        ...         y = x + 1
        ...     captured.replay()
        ...
    """

    def __init__(self) -> None:
        self._graph: Graph | None = None
        self._stream: CudaStream | None = None

    def capture_begin(self) -> None:
        """Start to capture the work of the current stream. `cuda.graph` captures on a separate stream instead.

        Raises:
            CaptureError: If this graph was captured already, or is being captured.
            DriverNotFound: If there is no GPU, or a package that it needs is missing.

        Example:
            >>> if wg.cuda.is_available():
            ...     captured = wg.cuda.CUDAGraph()
            ...     with wg.cuda.stream(wg.cuda.Stream()):
            ...         captured.capture_begin()
            ...         captured.capture_end()
            ...
        """
        self._begin(_current_stream(resolve_device(None)))

    def _begin(self, capture_stream: CudaStream) -> None:
        if self._graph is not None or self._stream is not None:
            raise CaptureError("this graph has been captured, or is being; call reset() first")
        capture_stream.begin_capture()
        self._stream = capture_stream

    def capture_end(self) -> None:
        """End the capture. The graph can then be replayed.

        Raises:
            CaptureError: If this graph is not being captured.

        Example:
            >>> try:
            ...     wg.cuda.CUDAGraph().capture_end()
            ... except RuntimeError as error:
            ...     print(error)
            ...
            capture_end: this graph is not being captured
        """
        if self._stream is None:
            raise CaptureError("capture_end: this graph is not being captured")
        capture_stream, self._stream = self._stream, None
        self._graph = capture_stream.end_capture()

    def abort(self) -> None:
        """End the capture and discard it; do nothing if there is none.

        Example:
            >>> wg.cuda.CUDAGraph().abort()
        """
        if self._stream is not None:
            capture_stream, self._stream = self._stream, None
            capture_stream.abort_capture()

    def replay(self) -> None:
        """Queue the captured work on the current stream.

        Raises:
            CaptureError: If nothing was captured.

        Example:
            >>> try:
            ...     wg.cuda.CUDAGraph().replay()
            ... except RuntimeError as error:
            ...     print(error)
            ...
            replay: nothing was captured
        """
        if self._graph is None:
            raise CaptureError("replay: nothing was captured")
        self._graph.replay(_current_stream(self._graph.driver.device))

    def reset(self) -> None:
        """Discard the captured work, and free its memory once it is not in use.

        Example:
            >>> wg.cuda.CUDAGraph().reset()
        """
        self.abort()
        self._graph = None


@contextmanager
@describe_gpu
def graph(cuda_graph: CUDAGraph, pool: object = None, stream: streams.Stream | None = None) -> Iterator[None]:
    """Capture the work inside a `with` block into `cuda_graph`, on `stream` (default: a new one).

    Args:
        cuda_graph: The graph, which has not been captured yet.
        pool: Must be None: every graph has a memory pool of its own.
        stream: Stream to capture on; None: a new one.

    Returns:
        Context manager.

    Raises:
        ArgumentError: If `pool` is not None.
        CaptureError: If the graph was captured already.

    Example:
        >>> if wg.cuda.is_available():
        ...     x = wg.zeros(2, device='cuda')
        ...     y = x + 1
        ...     captured = wg.cuda.CUDAGraph()
        ...     with wg.cuda.graph(captured):
        ...         y = x + 1
        ...     captured.replay()
        ...
    """
    if pool is not None:
        raise ArgumentError("graph: a graph has a pool of its own; memory is not shared with another's")
    capture_stream = stream or Stream()
    gc.collect()  # leaves the collector little memory to free during the capture
    capture_stream.wait_stream(streams.current_stream(capture_stream.device))
    with capture_stream:
        cuda_graph._begin(_current_stream(capture_stream.device))
        try:
            yield
        except BaseException:
            cuda_graph.abort()
            raise
        cuda_graph.capture_end()
    streams.current_stream(capture_stream.device).wait_stream(capture_stream)


def is_current_stream_capturing() -> bool:
    """Return whether the work of this thread's stream is being captured instead of run.

    Returns:
        Python bool.

    Example:
        >>> wg.cuda.is_available() and wg.cuda.is_current_stream_capturing()
        False
    """
    gpu = resolve_device(None)
    return gpu._driver is not None and _current_stream(gpu).capture is not None
