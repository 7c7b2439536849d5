"""`weftgrad.cuda`: NVIDIA GPUs, with the names of `torch.cuda`.

A `device` argument is an index, a name, a `Device` or None. None stands for the default device if that is a GPU, else
for the current CUDA device (`cuda:0` until `set_device` changes it).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..execution import streams
from ..execution.streams import stream
from ..random import default_generator
from ..runtime.backends import cuda_devices
from ..runtime.context import current_stream as _stream_of
from ..runtime.context import entered_device
from ..runtime.device import Device, DeviceLike, current_of_type, default_device, set_current_of_type
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError, CaptureError, OutOfMemoryError
from ..runtime.tensor import Tensor
from . import amp

__all__ = [
    "CUDAGraph", "Event", "OutOfMemoryError", "Stream", "amp", "current_device", "current_stream", "default_stream",
    "device", "device_count", "empty_cache", "get_device_capability", "get_device_name", "get_device_properties",
    "get_rng_state", "get_rng_state_all", "graph", "init", "initial_seed", "is_available", "is_bf16_supported",
    "is_current_stream_capturing", "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state", "set_rng_state_all", "stream",
    "synchronize",
]  # fmt: skip


def _resolve_device(device: DeviceLike | None) -> Device:
    if device is None:
        default = default_device()
        return default if default.type == "cuda" else current_of_type("cuda")
    resolved = to_device(device)
    if resolved.type != "cuda":
        raise ArgumentError(f"{resolved} is no CUDA device; name one as 'cuda:0', or by its number")
    return resolved


def is_available() -> bool:
    """Return whether there is a GPU with a driver that this process can use.

    Returns:
        Python bool.

    Example:
        >>> wg.cuda.is_available() == (wg.cuda.device_count() > 0)
        True
    """
    return bool(cuda_devices())


def device_count() -> int:
    """Return the number of GPUs.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.device_count() >= 0
        True
    """
    return len(cuda_devices())


def current_device() -> int:
    """Return the index of the GPU that functions use if `device` is None.

    Returns:
        Python int.

    Example:
        >>> if wg.cuda.is_available():
        ...     index = wg.cuda.current_device()
        ...
    """
    return int(_resolve_device(None).index or 0)


def set_device(device: DeviceLike | None) -> None:
    """Make a GPU the current one: `"cuda"` without an index then refers to it.

    Args:
        device: An index, a name or a `Device`. A negative index changes nothing.

    Raises:
        ArgumentError: If `device` is no CUDA device.
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     wg.cuda.set_device(0)
        ...
    """
    if isinstance(device, int) and device < 0:
        return
    gpu = _resolve_device(device)
    gpu.driver  # noqa: B018  raises if there is no such GPU
    set_current_of_type(gpu)


@contextmanager
def device(device: DeviceLike | None) -> Iterator[None]:
    """Make a GPU the current one inside a `with` block. None or a negative index changes nothing.

    Args:
        device: An index, a name or a `Device`.

    Returns:
        Context manager.

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     with wg.cuda.device(0):
        ...         x = wg.ones(2, device='cuda')
        ...
    """
    previous = current_of_type("cuda")
    if device is not None:
        set_device(device)
    try:
        yield
    finally:
        set_current_of_type(previous)


def is_initialized() -> bool:
    """Return whether this process has opened a GPU.

    Returns:
        Python bool.

    Example:
        >>> wg.cuda.is_available() or not wg.cuda.is_initialized()
        True
    """
    return any(to_device(f"cuda:{info.index}")._driver is not None for info in cuda_devices())


def init() -> None:
    """Do nothing: a GPU is opened when it is first used.

    Example:
        >>> wg.cuda.init()
    """


@dataclass(frozen=True)
class Properties:
    """Properties of a GPU. Memory, and shared memory per block, are in bytes.

    Args:
        name: Name of the GPU.
        major: First number of the compute capability.
        minor: Second number of the compute capability.
        total_memory: Bytes of memory.
        multi_processor_count: Number of multiprocessors.
        shared_memory_per_block_optin: Largest number of bytes of shared memory that a block can have.

    Example:
        >>> if wg.cuda.is_available():
        ...     name = wg.cuda.get_device_properties().name
        ...
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    shared_memory_per_block_optin: int


def get_device_properties(device: DeviceLike | None = None) -> Properties:
    """Return name, compute capability, memory and number of multiprocessors of a GPU.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        `Properties`.

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     properties = wg.cuda.get_device_properties()
        ...
    """
    info = _resolve_device(device).driver.info  # type: ignore[attr-defined]
    return Properties(info.name, info.sm // 10, info.sm % 10, info.memory, info.multiprocessors, info.shared_memory)


def get_device_name(device: DeviceLike | None = None) -> str:
    """Return a GPU's name.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        Text.

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     name = wg.cuda.get_device_name()
        ...
    """
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """Return a GPU's compute capability, such as `(9, 0)`.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        Two ints.

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     major, minor = wg.cuda.get_device_capability()
        ...
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported() -> bool:
    """Return whether there is a GPU. Every GPU that runs our kernels supports bfloat16.

    Returns:
        Python bool.

    Example:
        >>> wg.cuda.is_bf16_supported() == wg.cuda.is_available()
        True
    """
    return is_available()


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """Return the (free, total) bytes of a GPU's memory, counting all processes.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        Two ints.

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     free, total = wg.cuda.mem_get_info()
        ...
    """
    return _resolve_device(device).driver.memory_info()  # type: ignore[attr-defined]


def synchronize(device: DeviceLike | None = None) -> None:
    """Wait until all work on a GPU is done.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     wg.cuda.synchronize()
        ...
    """
    streams.synchronize(_resolve_device(device))


def current_stream(device: DeviceLike | None = None) -> streams.Stream:
    """Return the stream on which this thread queues work for a GPU.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        `Stream`.

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     stream = wg.cuda.current_stream()
        ...
    """
    return streams.current_stream(_resolve_device(device))


def default_stream(device: DeviceLike | None = None) -> streams.Stream:
    """Return the stream on which a GPU's work is queued unless another stream is current.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        `Stream`.

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     stream = wg.cuda.default_stream()
        ...
    """
    return streams.default_stream(_resolve_device(device))


def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """Return the counters of a GPU's memory pools; an empty dict without a GPU.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        Dict from names to numbers.

    Example:
        >>> wg.cuda.is_available() or wg.cuda.memory_stats() == {}
        True
    """
    return streams.memory_stats(_resolve_device(device)) if is_available() else {}


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Return the number of bytes that tensors use.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.memory_allocated() >= 0
        True
    """
    return memory_stats(device).get("allocated", 0)


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """Return the peak of `memory_allocated` since the last `reset_peak_memory_stats`.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.max_memory_allocated() >= 0
        True
    """
    return memory_stats(device).get("allocated_peak", 0)


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Return the number of bytes allocated from the driver, whether tensors use them or the pools cache them.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.memory_reserved() >= 0
        True
    """
    return memory_stats(device).get("reserved", 0)


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """Return the peak of `memory_reserved` since the last `reset_peak_memory_stats`.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Returns:
        Python int; 0 without a GPU.

    Example:
        >>> wg.cuda.max_memory_reserved() >= 0
        True
    """
    return memory_stats(device).get("reserved_peak", 0)


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Reset the peak counters to the current values.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     wg.cuda.reset_peak_memory_stats()
        ...
    """
    streams.reset_peak_memory_stats(_resolve_device(device))


def empty_cache() -> None:
    """Return the cached memory of every opened GPU to its driver.

    Example:
        >>> wg.cuda.empty_cache()
    """
    for info in cuda_devices():
        gpu = to_device(f"cuda:{info.index}")
        if gpu._driver is not None:
            streams.empty_cache(gpu)


class Stream(streams.Stream):
    """A queue of work on a GPU.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.
        priority: Work with a lower number runs first (-5 to 0 on most GPUs).

    Raises:
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     with wg.cuda.Stream():
        ...         x = wg.ones(2, device='cuda')
        ...
    """

    def __init__(self, device: DeviceLike | None = None, priority: int = 0):
        gpu = _resolve_device(device)
        super().__init__(gpu, _stream=gpu.driver.new_stream(priority))  # type: ignore[call-arg]


class Event(streams.Event):
    """A point in a GPU's stream. With `enable_timing`, the time between two events can be measured.

    Args:
        enable_timing: Whether to record the event's time.
        device: The GPU; None: that of the stream that first records the event.

    Example:
        >>> if wg.cuda.is_available():
        ...     event = wg.cuda.Event(enable_timing=True)
        ...     event.record()
        ...
    """

    def _resolve_device(self) -> Device:
        return self.device or entered_device("cuda") or _resolve_device(None)


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
        self._graph: Any = None
        self._stream: Any = None

    def capture_begin(self) -> None:
        """Start to capture the work of the current stream. `cuda.graph` captures on a separate stream instead.

        Raises:
            CaptureError: If this graph was captured already, or is being captured.
            DriverNotFound: If there is no GPU, or a package that it needs is missing.
        """
        self._begin(_stream_of(_resolve_device(None)))

    def _begin(self, capture_stream: Any) -> None:
        if self._graph is not None or self._stream is not None:
            raise CaptureError("this graph has been captured, or is being; call reset() first")
        capture_stream.begin_capture()
        self._stream = capture_stream

    def capture_end(self) -> None:
        """End the capture. The graph can then be replayed.

        Raises:
            CaptureError: If this graph is not being captured.
        """
        if self._stream is None:
            raise CaptureError("capture_end: this graph is not being captured")
        capture_stream, self._stream = self._stream, None
        self._graph = capture_stream.end_capture()

    def abort(self) -> None:
        """End the capture and discard it."""
        if self._stream is not None:
            capture_stream, self._stream = self._stream, None
            capture_stream.abort_capture()

    def replay(self) -> None:
        """Queue the captured work on the current stream.

        Raises:
            CaptureError: If nothing was captured.
        """
        if self._graph is None:
            raise CaptureError("replay: nothing was captured")
        self._graph.replay(_stream_of(self._graph.driver.device))

    def reset(self) -> None:
        """Discard the captured work, and free its memory once it is not in use."""
        self.abort()
        self._graph = None


@contextmanager
def graph(cuda_graph: CUDAGraph, pool: Any = None, stream: streams.Stream | None = None) -> Iterator[None]:
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
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

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
        cuda_graph._begin(capture_stream._stream)
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
    gpu = _resolve_device(None)
    return gpu._driver is not None and getattr(_stream_of(gpu), "capture", None) is not None


# Random numbers: PyTorch's functions; all devices share one generator ------------------------------------------------


def manual_seed(seed: int) -> None:
    """Seed the default generator.

    Args:
        seed: 64-bit integer.

    Example:
        >>> wg.cuda.manual_seed(3)
        >>> wg.initial_seed()
        3
    """
    default_generator.manual_seed(seed)


def seed() -> None:
    """Seed the default generator from the operating system's entropy.

    Example:
        >>> with wg.random.fork_rng():
        ...     wg.cuda.seed()
        ...
    """
    default_generator.seed()


manual_seed_all, seed_all = manual_seed, seed


def initial_seed() -> int:
    """Return the default generator's seed.

    Returns:
        Python int.

    Example:
        >>> wg.cuda.initial_seed() == wg.initial_seed()
        True
    """
    return default_generator.initial_seed()


def get_rng_state(device: DeviceLike | None = "cuda") -> Tensor:
    """Return the default generator's state, which all devices share.

    Args:
        device: Ignored.

    Returns:
        uint8 tensor of 16 bytes.

    Example:
        >>> wg.cuda.get_rng_state().shape
        weftgrad.Size([16])
    """
    return default_generator.get_state()


def get_rng_state_all() -> list[Tensor]:
    """Return the default generator's state, once for each GPU.

    Returns:
        List of uint8 tensors.

    Example:
        >>> len(wg.cuda.get_rng_state_all()) == wg.cuda.device_count()
        True
    """
    return [default_generator.get_state() for _ in cuda_devices()]


def set_rng_state(new_state: Tensor, device: DeviceLike | None = "cuda") -> None:
    """Set the state of the default generator.

    Args:
        new_state: State that `get_rng_state` returned.
        device: Ignored.

    Example:
        >>> wg.cuda.set_rng_state(wg.cuda.get_rng_state())
    """
    default_generator.set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the default generator's state to the first of `new_states`: all devices share one generator.

    Args:
        new_states: States that `get_rng_state_all` returned.

    Example:
        >>> wg.cuda.set_rng_state_all([wg.get_rng_state()])
    """
    for state in list(new_states)[:1]:
        default_generator.set_state(state)
