"""`weftgrad.cuda`: NVIDIA's GPUs, under PyTorch's names.

A device may be given as a number, a name or a device; left out, it is the default device where that is a GPU, else
`cuda:0`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .. import streams
from ..random import default_generator
from ..runtime.backends import cuda_devices
from ..runtime.context import current_stream as _stream_of
from ..runtime.context import entered_device
from ..runtime.device import Device, current_of_type, default_device, set_current_of_type
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError, CaptureError, OutOfMemoryError
from ..runtime.tensor import Tensor
from ..streams import stream
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


def _place(device: Any) -> Device:
    if device is None:
        chosen = default_device()
        return chosen if chosen.type == "cuda" else current_of_type("cuda")
    found = to_device(device)
    if found.type != "cuda":
        raise ArgumentError(f"{found} is no CUDA device; name one as 'cuda:0', or by its number")
    return found


def is_available() -> bool:
    """Whether there is a GPU, with its driver, that this process may use."""
    return bool(cuda_devices())


def device_count() -> int:
    """The number of GPUs."""
    return len(cuda_devices())


def current_device() -> int:
    """The number of the GPU that is meant where none is named."""
    return int(_place(None).index or 0)


def set_device(device: Any) -> None:
    """Let `"cuda"` alone mean this GPU: a number, a name or a device. A negative number does nothing."""
    if isinstance(device, int) and device < 0:
        return
    place = _place(device)
    place.driver  # noqa: B018  raises where there is no such GPU
    set_current_of_type(place)


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Inside, `"cuda"` alone means this GPU: a number, a name or a device; None or a negative number change nothing."""
    before = current_of_type("cuda")
    if device is not None:
        set_device(device)
    try:
        yield
    finally:
        set_current_of_type(before)


def is_initialized() -> bool:
    """Whether a GPU has been used."""
    return any(to_device(f"cuda:{info.index}")._driver is not None for info in cuda_devices())


def init() -> None:
    """Nothing: a GPU is opened when it is first used."""


@dataclass(frozen=True)
class Properties:
    """What a GPU is. Memory and shared memory (of one block) are bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    shared_memory_per_block_optin: int


def get_device_properties(device: Any = None) -> Properties:
    """Name, compute capability, memory and size of a GPU."""
    info = _place(device).driver.info  # type: ignore[attr-defined]
    return Properties(info.name, info.sm // 10, info.sm % 10, info.memory, info.multiprocessors, info.shared_memory)


def get_device_name(device: Any = None) -> str:
    """A GPU's name."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """A GPU's compute capability: (9, 0)."""
    found = get_device_properties(device)
    return found.major, found.minor


def is_bf16_supported() -> bool:
    """Whether GPUs calculate in bfloat16: all that kernels run on do."""
    return is_available()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a GPU's memory, whoever uses it."""
    return _place(device).driver.memory_info()  # type: ignore[attr-defined,no-any-return]


def synchronize(device: Any = None) -> None:
    """Wait for all work on a GPU."""
    streams.synchronize(_place(device))


def current_stream(device: Any = None) -> streams.Stream:
    """The stream on which this thread's work goes."""
    return streams.current_stream(_place(device))


def default_stream(device: Any = None) -> streams.Stream:
    """The stream on which work goes unless another is chosen."""
    return streams.default_stream(_place(device))


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counters of a GPU's pools; without a GPU there are none."""
    return streams.memory_stats(_place(device)) if is_available() else {}


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors."""
    return memory_stats(device).get("allocated", 0)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes in use at once since the last `reset_peak_memory_stats`."""
    return memory_stats(device).get("allocated_peak", 0)


def memory_reserved(device: Any = None) -> int:
    """Bytes held from the driver."""
    return memory_stats(device).get("reserved", 0)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes held from the driver at once."""
    return memory_stats(device).get("reserved_peak", 0)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start peaks anew."""
    streams.reset_peak_memory_stats(_place(device))


def empty_cache() -> None:
    """Give the cached memory of every GPU in use back to its driver."""
    for info in cuda_devices():
        place = to_device(f"cuda:{info.index}")
        if place._driver is not None:
            streams.empty_cache(place)


class Stream(streams.Stream):
    """An order of work on a GPU. priority: lower numbers go first (-5 to 0 on most GPUs)."""

    def __init__(self, device: Any = None, priority: int = 0):
        place = _place(device)
        super().__init__(place, _stream=place.driver.new_stream(priority))  # type: ignore[call-arg]


class Event(streams.Event):
    """A point in a GPU's stream. With `enable_timing`, the time between two of them can be read."""

    def _place(self) -> Device:
        return self.device or entered_device("cuda") or _place(None)


class CUDAGraph:
    """Work that was captured once and is replayed as one launch, with the memory that it had then.

    Run what is to be captured once before, so that its kernels are compiled. Inside a capture nothing runs, so nothing
    can be waited for or read; results have their values after a replay, and lie in the same place after each. What
    the work reads is written to in place (`copy_`) between replays.
    """

    def __init__(self) -> None:
        self._graph: Any = None
        self._stream: Any = None

    def capture_begin(self) -> None:
        """Capture the work of the current stream from now on. `cuda.graph` does this on a stream of its own."""
        self._begin(_stream_of(_place(None)))

    def _begin(self, chosen: Any) -> None:
        if self._graph is not None or self._stream is not None:
            raise CaptureError("this graph has been captured, or is being; call reset() first")
        chosen.begin_capture()
        self._stream = chosen

    def capture_end(self) -> None:
        """End the capture; from now on the graph can be replayed."""
        if self._stream is None:
            raise CaptureError("capture_end: this graph is not being captured")
        chosen, self._stream = self._stream, None
        self._graph = chosen.end_capture()

    def abort(self) -> None:
        """End the capture and forget it."""
        if self._stream is not None:
            chosen, self._stream = self._stream, None
            chosen.abort_capture()

    def replay(self) -> None:
        """Queue all of the work on the current stream."""
        if self._graph is None:
            raise CaptureError("replay: nothing was captured")
        self._graph.replay(_stream_of(self._graph.driver.device))

    def reset(self) -> None:
        """Forget the work, and free its memory once it is not in use."""
        self.abort()
        self._graph = None


@contextmanager
def graph(cuda_graph: CUDAGraph, pool: Any = None, stream: streams.Stream | None = None) -> Iterator[None]:
    """Capture what runs inside into `cuda_graph`, on `stream` (default: one of its own)."""
    if pool is not None:
        raise ArgumentError("graph: a graph has a pool of its own; memory is not shared with another's")
    chosen = stream or Stream()
    gc.collect()  # what dies inside a capture is freed inside it
    chosen.wait_stream(streams.current_stream(chosen.device))
    with chosen:
        cuda_graph._begin(chosen._stream)
        try:
            yield
        except BaseException:
            cuda_graph.abort()
            raise
        cuda_graph.capture_end()
    streams.current_stream(chosen.device).wait_stream(chosen)


def is_current_stream_capturing() -> bool:
    """Whether the work of this thread's stream is captured instead of run."""
    place = _place(None)
    return place._driver is not None and _stream_of(place).capture is not None


# Random numbers: one generator draws for every device, and these name it as PyTorch names those of GPUs ---------------


def manual_seed(seed: int) -> None:
    """Start the default generator's stream of `seed`."""
    default_generator.manual_seed(seed)


def seed() -> None:
    """Start the default generator at a seed of the operating system's choice."""
    default_generator.seed()


manual_seed_all, seed_all = manual_seed, seed


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The default generator's state, which is every device's."""
    return default_generator.get_state()


def get_rng_state_all() -> list[Tensor]:
    """The state, once for each GPU."""
    return [default_generator.get_state() for _ in cuda_devices()]


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Continue from a state of the default generator."""
    default_generator.set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Continue from the first of these states: they are one generator's."""
    for state in list(new_states)[:1]:
        default_generator.set_state(state)
