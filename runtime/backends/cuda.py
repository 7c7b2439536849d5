"""The CUDA backend: NVIDIA GPUs of compute capability 8.0 and later, through the driver library.

Kernels are Triton's (`runtime.triton`), compiled once and kept as machine code (`runtime.cache`), so that a warm start
imports neither triton nor a compiler. `cuda_api` is the library, `cuda_streams` has streams, events and graphs,
`cuda_memory` memory and copies, `cuda_launch` the launches.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakSet

import numpy as np

from ..device import Device
from ..errors import CaptureError, NotSupported, UnknownDevice
from ..pool import Budget
from ..storage import Storage
from ..triton import compile as compiler
from ..triton.signature import signature
from . import cuda_api, cuda_launch, cuda_memory
from .cuda_api import ask
from .cuda_launch import Kernel, Scratch, bind, load
from .cuda_streams import CudaEvent, CudaStream
from .overrides import override
from .protocol import Capabilities, Instance, Step

__all__ = ["CudaDriver", "runs_on"]

_LEAST_SM = 80  # before it: no bfloat16 arithmetic, no asynchronous copies into shared memory


def runs_on(info: cuda_api.DeviceInfo) -> bool:
    """Whether kernels can be compiled for a GPU here; tells without importing the compiler."""
    return info.sm >= _LEAST_SM and compiler.compiler_installed()


class CudaDriver:
    """An opened GPU: its primary context (which a process's CUDA libraries share), streams, memory, kernels."""

    target = "triton"

    def __init__(self, device: Device):
        found = cuda_api.devices()
        index = device.index or 0
        if index >= len(found):
            raise UnknownDevice(f"{device} does not exist: there are {len(found)} CUDA devices (see weftgrad devices)")
        info = found[index]
        if info.sm < _LEAST_SM:
            raise NotSupported(
                f"{device} ({info.name}) has compute capability {info.sm // 10}.{info.sm % 10}; kernels need "
                f"{_LEAST_SM // 10}.{_LEAST_SM % 10} (Ampere) or later. Where NVIDIA's OpenCL is installed, the device "
                "'opencl:0' runs on older GPUs"
            )
        self.device = device
        self.info = info
        self.name = info.name
        self.identity = f"{info.name}, CUDA {cuda_api.driver_version()}"  # what timings hold for
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
        self.budget = Budget(None)  # the driver refuses what it does not have, and the pools are ready for that
        self.launches = 0
        self.last = ""  # the kernel launched last, for errors that show up later
        self.captures = 0  # graphs being captured now, by any thread
        self.streams: WeakSet[CudaStream] = WeakSet()
        self.spare_events: dict[bool, list[Any]] = {False: [], True: []}
        self.leaving: deque[tuple[Any, ...]] = deque()  # handles to destroy, appended to by finalizers
        self._retired: list[Any] = []
        self._kernels: dict[Any, Kernel] = {}
        self._compiling: dict[Any, threading.Lock] = {}
        self._lock = threading.RLock()
        self.context = ask("cuDevicePrimaryCtxRetain", info.handle)
        self.memory = cuda_memory.DeviceMemory(self)
        self.pinned = cuda_memory.PinnedMemory(self)
        self.launch = cuda_api.library().cuLaunchKernel  # looked up at each launch: a profiler puts its own here
        self.default_stream = self.new_stream()
        if cuda_launch.tracer is not None:
            cuda_launch.tracer.watch(self)

    # waiting

    def synchronize(self) -> None:
        """Wait for everything on the device. Raises `CaptureError` while a graph is captured."""
        if self.captures:
            raise CaptureError(
                f"{self.device} cannot be waited for while a graph is captured: nothing runs before it is replayed"
            )
        self.wait()

    def wait(self) -> None:
        """Wait for everything that runs; what a capture collects does not."""
        cuda_api.activate(self)
        ended = len(self.leaving)
        if self.captures:
            for stream in list(self.streams):
                if stream.capture is None:
                    ask("cuStreamSynchronize", stream.handle)
            return
        ask("cuCtxSynchronize")
        self._retired.clear()
        for _ in range(ended):  # what came since may be in use
            function, handle, *_ = self.leaving.popleft()
            ask(function, handle)

    # memory

    def allocate(self, nbytes: int, stream: CudaStream) -> Storage:
        pool = stream.pool
        block = pool.allocate(nbytes)
        return Storage(self.device, nbytes, block, pool, block.segment.handle, block.offset)

    def adopt(self, array: np.ndarray[Any, Any]) -> Storage:
        """A storage with a copy of `array`'s bytes: device memory is not the host's."""
        storage = self.allocate(array.nbytes, self.default_stream)
        self.write(storage, 0, array, self.default_stream)
        return storage

    def retire(self, owner: Any, buffer: Any) -> None:
        """Keep foreign memory until work that may use it is done. Called when its storage dies."""
        self._retired.append((owner, buffer))

    def write(self, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: CudaStream) -> None:
        """Queue a copy from the host; `array` may be changed when this returns, unless it lies in pinned memory."""
        cuda_memory.write(self, storage, offset, array, stream)

    def read(
        self, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: CudaStream, wait: bool = True
    ) -> Any:
        """Copy to the host. Without `wait`, into pinned memory, the event returned tells when it is done."""
        return cuda_memory.read(self, storage, offset, array, stream, wait)

    def read_later(self, tensors: Sequence[Any], stream: CudaStream) -> tuple[list[np.ndarray[Any, Any]], CudaEvent]:
        """Queue copies of 0-d tensors to the host: where their values will be, and the event that tells when."""
        arrays = [self.pinned_array(t.meta.nbytes).view(t.meta.dtype.numpy).reshape(()) for t in tensors]
        for tensor, array in zip(tensors, arrays, strict=True):
            event = self.read(tensor.storage, tensor.start - tensor.storage.start, array, stream, wait=False)
        return arrays, event

    def receive(self, source: Any, target: Storage, before: CudaStream, stream: CudaStream) -> None:
        """Copy a contiguous tensor of another CUDA device into `target`, in the order of both streams."""
        cuda_memory.copy_across(source.storage, source.start, target, source.meta.nbytes, before, stream)

    def host_view(self, storage: Storage) -> np.ndarray[Any, Any] | None:
        return None

    def pinned_array(self, nbytes: int) -> np.ndarray[Any, Any]:
        """`nbytes` bytes of page-locked host memory."""
        return self.pinned.array(nbytes)

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the device, whoever uses them."""
        cuda_api.activate(self)
        free, total = ask("cuMemGetInfo")
        return int(free), int(total)

    # streams

    def new_stream(self, priority: int = 0) -> CudaStream:
        return CudaStream(self, priority)

    def new_event(self, timing: bool) -> CudaEvent:
        return CudaEvent(self, timing)

    def event_handle(self, timing: bool) -> Any:
        """A driver's event: one that is not used any more, or a new one."""
        try:
            return self.spare_events[timing].pop()
        except IndexError:
            return ask("cuEventCreate", 0 if timing else 2)

    # kernels

    def kernel(self, step: Step, aligned: bool) -> Kernel:
        """The loaded kernel of a step: from this process, the cache on disk, or Triton."""
        key = (step.instance.text, step.instance.functions, signature(step, aligned).key)
        found = self._kernels.get(key)
        if found is not None:
            return found
        cuda_api.check_fork()
        with self._lock:
            mine = self._compiling.setdefault(key, threading.Lock())
        with mine:  # one thread compiles a kernel, others compile other kernels meanwhile
            found = self._kernels.get(key)
            if found is None:
                found = load(self, step, compiler.binary(step, aligned, self.compiles_for))
                self._kernels[key] = found
        with self._lock:
            self._compiling.pop(key, None)
        return found

    def build(self, planned: Sequence[Step | Instance]) -> int:
        """Make the kernels of steps ready, several at a time; how many there were.

        What is no step is left for its first launch: how a kernel is compiled depends on its geometry too.
        """
        steps = [each for each in planned if isinstance(each, Step)]
        with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as workers:
            return len(list(workers.map(lambda step: self.kernel(step, True), steps)))

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """A function `run(tensors, scalars, stream)` for this thread, that enqueues `steps` in order."""
        cuda_api.activate(self)
        runs = [bind(self, step) for step in steps]
        if len(runs) == 1 and not scratch:
            return runs[0]

        def run(tensors: list[Any], scalars: Sequence[Any], stream: CudaStream) -> None:
            everything = [*tensors, *[Scratch(self.allocate(n, stream)) for n in scratch]]
            for each in runs:
                each(everything, scalars, stream)

        return run
