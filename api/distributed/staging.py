"""Copy tensors that MPI cannot read or write in place, on other devices or not contiguous, to the host and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..autograd.grad_mode import no_grad
from ..runtime.context import current_stream
from ..runtime.host_data import to_host
from ..runtime.tensor import Tensor
from ..runtime.views import contiguous
from .buffers import check_writable, empty_like_on_host, is_direct, mark_written

if TYPE_CHECKING:
    from ..runtime.backends.protocol import Event
    from .works import Steps

__all__ = ["HostCopy", "is_pipelined", "is_staged", "pipelined_steps", "with_host_copies"]

_CHUNK_BYTES = 4 << 20
_BUFFER_COUNT = 3  # one each for the chunk that arrives, the one that MPI combines, and the one that leaves


class HostCopy:
    """A tensor and its contiguous counterpart in host memory, which is the tensor itself if MPI can use that.

    Args:
        tensor: The tensor.
        reads: Whether the collective reads it.
        writes: Whether the collective writes it.

    Raises:
        ShapeError: It is to be written, and several of its elements share memory.

    Attributes:
        tensor: The tensor.
        host: The counterpart. After `load`, it has the tensor's values if the collective reads them.
    """

    def __init__(self, tensor: Tensor, reads: bool, writes: bool):
        self.tensor = tensor.detach() if tensor.needs_grad else tensor
        self._writes = writes
        self._is_direct = is_direct(tensor)
        self.host = self.tensor
        if self._is_direct:
            return
        if writes:
            check_writable(tensor)
        self._stream = current_stream(tensor.meta.device)  # the steps may run in another thread
        with no_grad():
            self._source = contiguous(self.tensor) if reads else None
        self.host = empty_like_on_host(tensor)

    def load(self) -> None:
        """Copy the values to the host."""
        if self._is_direct or self._source is None or not self.host.meta.numel:
            return
        source = self._source
        if source.meta.device.type == "cpu":
            self.host = source
        else:
            offset = source.start - source.storage.start
            source.meta.device.driver.read(source.storage, offset, to_host(self.host), self._stream)
        self._source = None

    def store(self) -> None:
        """Copy the values of the counterpart to the tensor."""
        if self._is_direct or not self._writes or not self.host.meta.numel:
            return
        tensor = self.tensor
        layout = tensor.meta
        if layout.contiguous:
            layout.device.driver.write(
                tensor.storage, tensor.start - tensor.storage.start, to_host(self.host), self._stream
            )
            mark_written(tensor)
        else:
            with no_grad():
                tensor.copy_(self.host)


class _EventRequest:
    """An event of a device's stream with the method by which works test MPI's requests.

    Args:
        event: The event.
        owners: What must stay alive until then: host arrays, events of copies.
    """

    def __init__(self, event: Event, *owners: object):
        self._event, self._owners = event, owners

    def Test(self) -> bool:  # noqa: N802  # mpi4py's name
        return self._event.query()


def pipelined_steps(
    tensor: Tensor, reads: bool, writes: bool, start: Callable[[Tensor], Steps], chunk_bytes: int = _CHUNK_BYTES
) -> Steps:
    """Run an elementwise collective on a tensor of an OpenCL device, in chunks.

    While MPI combines a chunk on the host, the device copies the next one to the host and the previous one back. The
    chunks take turns in `_BUFFER_COUNT` host buffers.

    Args:
        tensor: The tensor.
        reads: Whether the collective reads it.
        writes: Whether the collective writes it.
        start: Returns the steps for a chunk in host memory.
        chunk_bytes: Bytes in a chunk; the same on all ranks.
    """
    from ..runtime.backends.opencl import OpenCLDriver, OpenCLStream  # lazy: start-up

    target = tensor.detach()
    with no_grad():
        tensor = contiguous(target)
    layout = tensor.meta
    driver, stream = layout.device.driver, current_stream(layout.device)
    assert isinstance(stream, OpenCLStream)
    assert isinstance(driver, OpenCLDriver)
    itemsize = layout.dtype.itemsize
    width = chunk_bytes // itemsize
    starts = range(0, layout.numel, width)
    buffers = [empty_like_on_host(tensor, (min(width, layout.numel),)) for _ in range(min(_BUFFER_COUNT, len(starts)))]
    origin = tensor.start - tensor.storage.start
    events: list[_EventRequest | None] = [None] * len(buffers)  # the last copy that uses each buffer

    def host_chunk(index: int) -> Tensor:
        return buffers[index % _BUFFER_COUNT][: min(width, layout.numel - starts[index])]

    def read(index: int) -> None:
        if reads:
            array = to_host(host_chunk(index))
            event = driver.read_array_later(tensor.storage, origin + starts[index] * itemsize, array, stream)
            events[index % _BUFFER_COUNT] = _EventRequest(event, array)

    def steps() -> Steps:
        if starts:
            read(0)
        for index in range(len(starts)):
            chunk = host_chunk(index)
            if (arrival := events[index % _BUFFER_COUNT]) is not None:
                yield [arrival]
            if index + 1 < len(starts):
                if index + 1 >= _BUFFER_COUNT and (departure := events[(index + 1) % _BUFFER_COUNT]) is not None:
                    yield [departure]
                read(index + 1)
            yield from start(chunk)
            if writes:
                array = to_host(chunk)
                copy = driver.write_later(tensor.storage, origin + starts[index] * itemsize, array, stream)
                events[index % _BUFFER_COUNT] = _EventRequest(stream.record_event(), array, copy)
            else:
                events[index % _BUFFER_COUNT] = None
        for event in events:
            if event is not None:
                yield [event]
        if writes and tensor is not target:
            with no_grad():
                target.copy_(tensor)
        elif writes:
            mark_written(tensor)

    return steps()


def is_pipelined(tensor: Tensor) -> bool:
    """Return whether `pipelined_steps` takes the tensor."""
    return tensor.meta.device.type == "opencl"


def is_staged(*tensors: Tensor) -> bool:
    """Return whether a tensor is in a device's memory, so that its collective consists of several steps."""
    return any(tensor.meta.device.type != "cpu" for tensor in tensors)


def with_host_copies(copies: Sequence[HostCopy], steps: Callable[[], Steps]) -> Steps:
    """Load the copies, run the steps that `steps()` returns, and store the copies."""
    for copy in copies:
        copy.load()
    yield from steps()
    for copy in copies:
        copy.store()
