"""The OpenCL backend, for any platform (`opencl_devices` lists devices, `opencl_compiler` builds kernels).

Kernels have three kinds of arguments: buffers, the geometry struct, and a packed struct of offsets and numbers
(`Dynamic`). A kernel object holds its arguments, so every thread uses its own kernel objects.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from .. import native
from ..device import Device
from ..dtypes import Array
from ..errors import LaunchError, OutOfMemoryError, UnknownDevice
from ..memory_stats import default_limit
from ..pool import Budget, Pool
from ..storage import Storage
from .arguments import Operand, bind, launch_in_order
from .opencl_compiler import Compiler
from .opencl_devices import DeviceInfo, capabilities_of, check_fork, cl, devices, has_own_memory, identity_of
from .overrides import override
from .protocol import Event, Instance, Step, Stream
from .queues import Counter, QueueStream, launch_error
from .targets import instances_of

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .opencl_types import ClBuffer, ClEvent, ClKernel, ClQueue, Enqueue

__all__ = [
    "Compiler", "DeviceInfo", "OpenCLDriver", "OpenCLEvent", "OpenCLStream", "capabilities_of", "check_fork", "cl",
    "devices", "identity_of",
]  # fmt: skip

# The function that enqueues kernels, and the properties of streams' queues. Looked up at each use, because a profiler
# replaces them while it is active (`opencl_tracing`).
enqueue: Enqueue = cl.enqueue_nd_range_kernel
queue_flags = 0
native.set_opencl_library(cl._cl.__file__)


def native_queue_address(queue: ClQueue | None) -> int:
    """Return a queue's address for launches from C; 0 without a queue, or if a profiler has replaced `enqueue`."""
    return int(queue.int_ptr) if queue is not None and enqueue is cl.enqueue_nd_range_kernel else 0


class OpenCLEvent:
    """A point in a stream. Timing events need a profiling queue: `record` switches the stream to one."""

    def __init__(self, driver: OpenCLDriver, timing: bool = False):
        self.driver = driver
        self.timing = timing
        self.marker: ClEvent | None = None
        # Events of copies to the host ahead of the marker. pyopencl's finalizer of such an event waits for the copy.
        self.copies: list[ClEvent] = []

    def record(self, stream: OpenCLStream) -> None:
        stream.record_event(self)

    def query(self) -> bool:
        return self.marker is None or self.marker.command_execution_status == 0

    def synchronize(self) -> None:
        if self.marker is not None:
            self.marker.wait()

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds from this event to `end`; both must be timing events that were recorded."""
        assert isinstance(end, OpenCLEvent)
        if self.marker is None or end.marker is None or not (self.timing and end.timing):
            raise LaunchError("elapsed_time needs two recorded events made with enable_timing=True")
        self.synchronize()
        end.synchronize()
        return float(end.marker.profile.end - self.marker.profile.end) * 1e-6


class OpenCLStream(QueueStream):
    """An in-order queue, with a pool whose blocks are reused in its order."""

    __slots__ = ("_profiling", "driver", "queue")

    def __init__(self, driver: OpenCLDriver):
        super().__init__(Pool(driver.memory, driver.budget, self, str(driver.device)))
        self.driver = driver
        self._profiling = False
        self._open()

    @property
    def device(self) -> Device:
        return self.driver.device

    def synchronize(self) -> None:
        check_fork()
        self.queue.finish()

    def query(self) -> bool:
        return self.record_event().query()

    def record_event(self, event: Event | None = None) -> OpenCLEvent:
        event = event or OpenCLEvent(self.driver)
        assert isinstance(event, OpenCLEvent)
        if event.timing and not self._profiling:
            self.profile()
        event.marker = cl.enqueue_marker(self.queue)
        self.queue.flush()
        return event

    def wait_event(self, event: Event) -> None:
        assert isinstance(event, OpenCLEvent)
        if event.marker is not None:
            cl.enqueue_barrier(self.queue, wait_for=[event.marker])

    def wait_stream(self, other: OpenCLStream) -> None:
        self.wait_event(other.record_event())

    def profile(self) -> None:
        """Switch to a profiling queue; this costs about 3 us per launch from then on."""
        self._profiling = True
        self.renew()

    def renew(self) -> None:
        """Wait for all work, and switch to a queue with the current `queue_flags`."""
        self.queue.finish()
        self._open()

    def _open(self) -> None:
        flags = cl.command_queue_properties.PROFILING_ENABLE if self._profiling else queue_flags
        self.queue = cl.CommandQueue(self.driver.context, self.driver.handle, properties=flags)
        self.queue_address = native_queue_address(self.queue)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's function that returns the heap's free pages to the system, or None with other C libraries."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows
        return None


class DeviceMemory:
    """The source of segments for the pools of an OpenCL device."""

    def __init__(self, driver: OpenCLDriver):
        self._driver = driver
        self._is_cpu = bool(driver.handle.type & cl.device_type.CPU)

    def allocate(self, nbytes: int) -> ClBuffer:
        try:
            return cl.Buffer(self._driver.context, cl.mem_flags.READ_WRITE, nbytes)
        except cl.Error as error:
            raise MemoryError(str(error)) from error

    def release(self, handle: ClBuffer) -> None:
        handle.release()

    def trim(self) -> None:
        """Return released memory to the system, if a CPU driver allocated it from glibc's heap.

        PoCL calls posix_memalign. Once blocks of up to 32 MiB have been freed, glibc serves such blocks from its heap
        and keeps them: a program with eight sizes held 190 MiB although nothing was reserved.
        """
        if self._is_cpu and (trim := _malloc_trim()) is not None:
            trim(0)

    def synchronize(self) -> None:
        self._driver.synchronize()


class OpenCLDriver:
    """An opened OpenCL device: context, compiler, default stream, memory.

    For tests, `info` replaces the device of the index, and `overrides` replace capabilities (see `override`), so that
    schedules for other devices run on this one.
    """

    target = "opencl"

    def __init__(self, device: Device, info: DeviceInfo | None = None, overrides: str = ""):
        self.device = device
        infos = devices()
        index = device.index or 0
        if info is None and index >= len(infos):
            raise UnknownDevice(
                f"{device} does not exist: OpenCL devices here: {len(infos)}, numbered from 0 (see weftgrad devices)"
            )
        self.info = info or infos[index]
        self.handle = self.info.handle
        self.name = self.info.name
        self.identity = identity_of(self.info)
        self.capabilities = override(capabilities_of(self.info), overrides)
        self.budget = Budget(default_limit(self.capabilities.memory, not has_own_memory(self.info)))
        self.counter = Counter()
        self._retired: list[tuple[object, object]] = []
        self.memory = DeviceMemory(self)
        self.context = cl.Context([self.handle])
        self.compiler = Compiler(self.context, self.handle, self.capabilities)
        self.default_stream = self.new_stream()

    @property
    def launches(self) -> int:
        return self.counter.value

    # memory

    def synchronize(self) -> None:
        check_fork()
        self.default_stream.synchronize()
        for pool in self.budget.pools:
            if pool.stream is not None:
                pool.stream.synchronize()
        self._retired.clear()

    def allocate(self, nbytes: int, stream: Stream) -> Storage:
        pool = stream.pool
        try:
            block = pool.allocate(nbytes)
        except OutOfMemoryError as error:
            largest = self.handle.max_mem_alloc_size
            if nbytes > largest:
                error.add_note(
                    f"{self.name} promises single allocations of up to {largest} bytes only, and refused {nbytes}: "
                    "divide the tensor"
                )
            raise
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
        check_fork()
        assert isinstance(stream, OpenCLStream)
        cl.enqueue_copy(stream.queue, storage.buffer, array, dst_offset=storage.start + offset, is_blocking=True)

    def write_later(self, storage: Storage, offset: int, array: Array, stream: OpenCLStream) -> ClEvent:
        """Queue a write without waiting, and return the event after which `array` may change."""
        check_fork()
        target, start = storage.buffer, storage.start + offset
        return cl.enqueue_copy(stream.queue, target, array, dst_offset=start, is_blocking=False)

    def read(self, storage: Storage, offset: int, array: Array, stream: Stream) -> None:
        check_fork()
        assert isinstance(stream, OpenCLStream)
        cl.enqueue_copy(stream.queue, array, storage.buffer, src_offset=storage.start + offset, is_blocking=True)

    def read_array_later(self, storage: Storage, offset: int, array: Array, stream: OpenCLStream) -> OpenCLEvent:
        """Queue a read without waiting, and return the event after which `array` is filled."""
        check_fork()
        copy = cl.enqueue_copy(
            stream.queue, array, storage.buffer, src_offset=storage.start + offset, is_blocking=False
        )
        event = stream.record_event()
        event.copies = [copy]
        return event

    def read_later(self, tensors: Sequence[Tensor], stream: OpenCLStream) -> tuple[list[Array], OpenCLEvent]:
        """Queue copies of 0-d tensors to the host. Return the arrays, and the event after which they are filled."""
        check_fork()
        arrays = [np.empty((), t.meta.dtype.numpy) for t in tensors]
        copies = [
            cl.enqueue_copy(stream.queue, array, tensor.storage.buffer, src_offset=tensor.start, is_blocking=False)
            for tensor, array in zip(tensors, arrays, strict=True)
        ]
        event = stream.record_event()
        event.copies = copies
        return arrays, event

    def host_view(self, storage: Storage) -> Array | None:
        return None

    def new_stream(self) -> OpenCLStream:
        return OpenCLStream(self)

    def new_event(self, timing: bool) -> OpenCLEvent:
        return OpenCLEvent(self, timing)

    def build(self, planned: Sequence[Step | Instance]) -> int:
        return self.compiler.build(instances_of(planned))

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has a kernel."""
        return self.compiler.is_cached(instance)

    # launching

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """Return a function `run(tensors, scalars, stream)` for this thread that enqueues `steps` in order."""
        check_fork()
        return launch_in_order(self, [self.prepare(step) for step in steps], scratch)

    def prepare(self, step: Step) -> Callable[..., None]:
        kernel = self.compiler.kernel(step.instance)
        step = self._fit_work_group(kernel, step)
        set_arguments = bind(kernel, step)
        size, local = step.global_size, step.local_size
        name = step.instance.name

        def run(tensors: list[Operand], scalars: Sequence[float], stream: OpenCLStream) -> None:
            set_arguments(tensors, scalars)
            try:
                enqueue(stream.queue, kernel, size, local)
            except cl.Error as error:
                failure = launch_error(name, step, self.name, error)
                for note in self._notes_of_refusal(kernel, step):
                    failure.add_note(note)
                raise failure from error
            self.counter.value += 1

        return native.launcher(kernel, step, run, self.counter)

    def _fit_work_group(self, kernel: ClKernel, step: Step) -> Step:
        """Return a launch whose work-groups are as small as the compiled kernel needs them.

        A kernel with many registers may have smaller work-groups than the device, and those of most kernels can be
        halved. A kernel that counts on the size of its work-group says so to the compiler, by `reqd_work_group_size`:
        what a driver compiled for that size it launches, whatever limit it reports (Mesa 22.3: that of a sub-group).
        """
        local, limit = step.local_size, self._work_group_limit(kernel)
        if local is None or prod(local) <= limit or self._requires_size(kernel):
            return step
        first = local[0]
        while first > 1 and first * prod(local[1:]) > limit:
            first = first // 2 if first % 2 == 0 else 1
        return replace(step, local_size=(first, *local[1:]))

    def _work_group_limit(self, kernel: ClKernel) -> int:
        return int(kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, self.handle))

    def _requires_size(self, kernel: ClKernel) -> bool:
        """Return True if a kernel was compiled for one size of work-groups."""
        return any(kernel.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, self.handle))

    def _notes_of_refusal(self, kernel: ClKernel, step: Step) -> Iterator[str]:
        """Yield the remedy for a refused launch, if its work-groups may be too large."""
        limit = self._work_group_limit(kernel)
        if step.local_size is not None and prod(step.local_size) > limit:
            yield (
                f"{self.name} says that at most {limit} work-items of {step.instance.entry} run in a work-group: set "
                f"WEFTGRAD_CAPABILITIES=max_group={limit} before the first call"
            )
