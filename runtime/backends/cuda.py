"""The CUDA backend: NVIDIA GPUs of compute capability 8.0 and later, through the driver library.

Kernels are written in Triton (`runtime.triton`), compiled once and cached as machine code (`runtime.cache`), so that a
warm start imports neither triton nor a compiler. `cuda_api` wraps the driver library; `cuda_streams` has streams,
events and graphs; `cuda_memory` memory and copies; `cuda_launch` launches.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from ..device import Device
from ..dtypes import Array
from ..errors import CaptureError, NotSupported, UnknownDevice
from ..pool import Budget
from ..storage import Storage
from ..triton import compile as compiler
from ..triton.signature import signature
from . import cuda_api, cuda_memory, cuda_streams
from .arguments import MissWord, launch_in_order
from .cuda_api import call_driver
from .cuda_launch import Kernel, bind, load
from .cuda_streams import CudaEvent, CudaStream
from .overrides import override
from .protocol import Capabilities, Instance, Step, Stream

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .cuda_types import Destroy, DriverHandle, LaunchFunction

__all__ = ["CudaDriver", "runs_on"]

_MIN_SM = 80  # older GPUs lack bfloat16 arithmetic and asynchronous copies into shared memory


def runs_on(info: cuda_api.DeviceInfo) -> bool:
    """Return True if kernels can be compiled for a GPU here, without importing the compiler."""
    return info.sm >= _MIN_SM and compiler.compiler_installed()


class CudaDriver:
    """An opened GPU: its primary context (shared with the process's other CUDA libraries), streams, memory, kernels."""

    target = "triton"

    def __init__(self, device: Device):
        infos = cuda_api.devices()
        index = device.index or 0
        if index >= len(infos):
            raise UnknownDevice(f"{device} does not exist: there are {len(infos)} CUDA devices (see weftgrad devices)")
        info = infos[index]
        if info.sm < _MIN_SM:
            raise NotSupported(
                f"{device} ({info.name}) has compute capability {info.sm // 10}.{info.sm % 10}; kernels need "
                f"{_MIN_SM // 10}.{_MIN_SM % 10} (Ampere) or later. Where NVIDIA's OpenCL is installed, the device "
                "'opencl:0' runs on older GPUs"
            )
        self.device = device
        self.info = info
        self.name = info.name
        self.identity = f"{info.name}, CUDA {cuda_api.driver_version()}"  # the key of stored timings
        self.capabilities = override(
            Capabilities(
                style="triton",
                cores=info.multiprocessors,
                lanes=4,
                fp16=True,
                max_group=info.threads,
                local_memory=info.shared_memory,
                alignment=512,
                memory=info.memory,
                sm=info.sm,
            ),
            os.environ.get("WEFTGRAD_CAPABILITIES", ""),
        )
        self.compiles_for = compiler.Target("cuda", info.sm)
        self.budget = Budget(None)  # no limit: pools handle an allocation that the driver refuses
        self.launches = 0
        self.last_kernel = ""  # name of the last launch, for errors that are reported later
        self.captures = 0  # graphs being captured now, by any thread
        self.streams: WeakSet[CudaStream] = WeakSet()
        self.spare_events: dict[bool, list[DriverHandle]] = {False: [], True: []}
        # What finalizers queued for destruction: a function, its handle, and objects that live until then.
        self.pending_destroys: deque[tuple[Destroy, DriverHandle, object]] = deque()
        self._retired: list[tuple[object, object]] = []
        self._kernels: dict[tuple[str, tuple[str, ...], str], Kernel] = {}
        self._compiling: dict[tuple[str, tuple[str, ...], str], threading.Lock] = {}
        self._lock = threading.RLock()
        self.context = call_driver("cuDevicePrimaryCtxRetain", info.handle)
        self.memory = cuda_memory.DeviceMemory(self)
        self.pinned = cuda_memory.PinnedMemory(self)
        # Looked up at each launch: a profiler replaces it.
        self.launch: LaunchFunction = cuda_api.library().cuLaunchKernel
        self.default_stream = self.new_stream()
        if cuda_streams.tracer is not None:
            cuda_streams.tracer.watch(self)

    # waiting

    def synchronize(self) -> None:
        """Wait for everything on the device. Raise `CaptureError` while a graph is captured."""
        if self.captures:
            raise CaptureError(
                f"{self.device} cannot be waited for while a graph is captured: nothing runs before it is replayed"
            )
        self.wait()

    def wait(self) -> None:
        """Wait for all running work. Streams that are being captured run nothing and are skipped."""
        cuda_api.activate(self)
        destroy_count = len(self.pending_destroys)
        if self.captures:
            with cuda_api.relaxed(self):
                for stream in list(self.streams):
                    if stream.capture is None:
                        call_driver("cuStreamSynchronize", stream.handle)
            return
        call_driver("cuCtxSynchronize")
        self._retired.clear()
        for _ in range(destroy_count):  # handles added since the wait began may be in use
            function, handle, _ = self.pending_destroys.popleft()
            call_driver(function, handle)

    # memory

    def allocate(self, nbytes: int, stream: Stream) -> Storage:
        pool = stream.pool
        block = pool.allocate(nbytes)
        return Storage(self.device, nbytes, block, pool, block.segment.handle, block.offset)

    def adopt(self, array: Array) -> Storage:
        """Return a storage with a copy of `array`'s bytes in device memory."""
        storage = self.allocate(array.nbytes, self.default_stream)
        self.write(storage, 0, array, self.default_stream)
        return storage

    def retire(self, owner: object, buffer: object) -> None:
        """Keep foreign memory alive until work that may use it is done. Called when its storage is deleted."""
        self._retired.append((owner, buffer))

    def write(self, storage: Storage, offset: int, array: Array, stream: Stream) -> None:
        """Queue a copy from the host. `array` may be changed after the return, unless it is in pinned memory."""
        assert isinstance(stream, CudaStream)
        cuda_memory.write(self, storage, offset, array, stream)

    def read(self, storage: Storage, offset: int, array: Array, stream: Stream, wait: bool = True) -> CudaEvent | None:
        """Copy to the host. Without `wait`, a copy into pinned memory is queued, and its event is returned."""
        assert isinstance(stream, CudaStream)
        return cuda_memory.read(self, storage, offset, array, stream, wait)

    def read_later(self, tensors: Sequence[Tensor], stream: CudaStream) -> tuple[list[Array], CudaEvent]:
        """Queue copies of 0-d tensors to the host. Return the arrays, and the event after which they are filled."""
        arrays: list[Array] = [self.pinned_array(t.meta.nbytes).view(t.meta.dtype.numpy).reshape(()) for t in tensors]
        for tensor, array in zip(tensors, arrays, strict=True):
            event = self.read(tensor.storage, tensor.start - tensor.storage.start, array, stream, wait=False)
        assert event is not None  # the copy into pinned memory was queued
        return arrays, event

    def receive(self, source: Tensor, target: Storage, source_stream: CudaStream, stream: CudaStream) -> None:
        """Copy a contiguous tensor from another CUDA device into `target`, in the order of both streams."""
        cuda_memory.copy_across(source.storage, source.start, target, source.meta.nbytes, source_stream, stream)

    def host_view(self, storage: Storage) -> Array | None:
        return None

    def pinned_array(self, nbytes: int) -> Array:
        """Return an array of `nbytes` bytes in page-locked host memory."""
        return self.pinned.array(nbytes)

    @cached_property
    def miss_word(self) -> MissWord:
        """The word in which kernels note an index out of range, in page-locked host memory that they write directly."""
        word = self.pinned_array(8).view(np.int64)
        word[0] = 0
        return MissWord(word)

    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) bytes of the device; memory of other processes counts as used."""
        cuda_api.activate(self)
        free, total = call_driver("cuMemGetInfo")
        return int(free), int(total)

    # streams

    def new_stream(self, priority: int = 0) -> CudaStream:
        return CudaStream(self, priority)

    def new_event(self, timing: bool) -> CudaEvent:
        return CudaEvent(self, timing)

    def event_handle(self, timing: bool) -> DriverHandle:
        """Return an event handle: a released one if available, else a new one."""
        try:
            return self.spare_events[timing].pop()
        except IndexError:
            return call_driver("cuEventCreate", 0 if timing else cuda_streams.NO_TIMING)

    # kernels

    def kernel(self, step: Step, aligned: bool) -> Kernel:
        """Return the loaded kernel of a step, from this process, the cache on disk, or Triton's compiler."""
        key = (step.instance.text, step.instance.functions, signature(step, aligned).key)
        kernel = self._kernels.get(key)
        if kernel is not None:
            return kernel
        cuda_api.check_fork()
        with self._lock:
            key_lock = self._compiling.setdefault(key, threading.Lock())
        with key_lock:  # one lock per kernel: threads can compile different kernels at the same time
            kernel = self._kernels.get(key)
            if kernel is None:
                kernel = load(self, step, compiler.binary(step, aligned, self.compiles_for))
                self._kernels[key] = kernel
        with self._lock:
            self._compiling.pop(key, None)
        return kernel

    def build(self, planned: Sequence[Step | Instance]) -> int:
        """Compile and load the kernels of steps in parallel. Return their number.

        Bare instances are skipped until their first launch, because compilation also depends on the geometry.
        """
        steps = [item for item in planned if isinstance(item, Step)]
        with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as workers:
            return len(list(workers.map(lambda step: self.kernel(step, True), steps)))

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """Return a function `run(tensors, scalars, stream)` for this thread that enqueues `steps` in order."""
        cuda_api.activate(self)
        return launch_in_order(self, [bind(self, step) for step in steps], scratch)
