"""`weftgrad.cuda`: NVIDIA GPUs, with the names of `torch.cuda`.

A `device` argument is an index, a name, a `Device` or None. None stands for the default device if that is a GPU, else
for the current CUDA device (`cuda:0` until `set_device` changes it).
"""

from ..execution.streams import stream
from ..runtime.errors import OutOfMemoryError
from . import amp
from .devices import (
    current_device,
    device,
    device_count,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    synchronize,
)
from .graphs import CUDAGraph, graph, is_current_stream_capturing
from .memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import Event, Stream, current_stream, default_stream

__all__ = [
    "CUDAGraph", "Event", "OutOfMemoryError", "Stream", "amp", "current_device", "current_stream", "default_stream",
    "device", "device_count", "empty_cache", "get_device_capability", "get_device_name", "get_device_properties",
    "get_rng_state", "get_rng_state_all", "graph", "init", "initial_seed", "is_available", "is_bf16_supported",
    "is_current_stream_capturing", "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state", "set_rng_state_all", "stream",
    "synchronize",
]  # fmt: skip
