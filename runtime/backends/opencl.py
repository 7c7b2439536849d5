"""The OpenCL backend: any platform. The only file that imports pyopencl.

Kernels are built per device from text (`runtime.program`), kept as binaries (`runtime.cache`), and launched with three
kinds of argument: buffers, the geometry struct, and a packed struct of offsets and numbers (`Dynamic`). A kernel
object's arguments are state, so every thread prepares kernel objects of its own.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .. import native, program
from ..cache import BinaryCache
from ..context import state
from ..device import Device
from ..errors import CompileError, DriverNotFound, ForkError, LaunchError, UnknownDevice
from ..memory_stats import default_limit
from ..pool import Budget, Pool
from ..storage import Storage
from . import pocl, processor
from .arguments import Scratch, bind
from .overrides import override
from .protocol import Capabilities, Instance, Step
from .queues import Counter, QueueStream, launch_error

# PoCL reads these when its platform is first loaded: the device with a worker a core, and workers that stay there.
os.environ.setdefault("POCL_DEVICES", "pthread")
os.environ.setdefault("POCL_AFFINITY", "1")
pocl.private_cache()

try:
    import pyopencl as cl
except ImportError as error:  # pragma: no cover - exercised in a subprocess without it
    raise DriverNotFound(
        f"OpenCL needs pyopencl, which does not import ({error}): pip install pyopencl"
    ) from error

__all__ = ["DeviceInfo", "OpenCLDriver", "OpenCLEvent", "OpenCLStream", "devices"]

# How every kernel is queued, and the properties of streams' queues: looked up at each use, because a profiler puts
# others in their place while it lasts (`opencl_tracing`).
enqueue: Callable[..., Any] = cl.enqueue_nd_range_kernel
queue_flags = 0
native.use(cl._cl.__file__)


def address(queue: Any) -> int:
    """Of a queue, for launches from C; 0 if there is none, or all go through `enqueue`: somebody put another there."""
    return int(queue.int_ptr) if queue is not None and enqueue is cl.enqueue_nd_range_kernel else 0


_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True
    state().plans = {}  # what was planned would launch; planning anew asks `check_fork`


os.register_at_fork(after_in_child=_after_fork)


def check_fork() -> None:
    """OpenCL drivers do not survive a fork: PoCL hangs at the first call. Say so instead."""
    if _forked:
        raise ForkError(
            "this process was forked after an OpenCL device was opened, and OpenCL does not work in such a child; "
            "start workers with multiprocessing's 'spawn' or 'forkserver' method"
        )


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One OpenCL device as listed."""

    handle: Any
    platform: str
    name: str
    is_gpu: bool


@cache
def devices() -> tuple[DeviceInfo, ...]:
    """All OpenCL devices, GPUs first. Raises `DriverNotFound` where there is no platform at all."""
    check_fork()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DriverNotFound(
            f"no OpenCL platform is installed ({error}): pip install pocl-binary-distribution for one that runs on the CPU"
        ) from error
    found = []
    for platform in platforms:
        try:
            members = platform.get_devices()
        except cl.Error:
            continue
        for handle in members:
            if "Portable" in platform.name:
                pocl.correct_processor(handle)
            found.append(DeviceInfo(handle, platform.name, handle.name.strip(), bool(handle.type & cl.device_type.GPU)))
    if not found:
        raise DriverNotFound("OpenCL platforms are installed but none has a device: pip install pocl-binary-distribution")
    return tuple(sorted(found, key=lambda info: not info.is_gpu))


def identity_of(info: DeviceInfo) -> str:
    """Platform, device and driver with their versions: what timings hold for."""
    platform, handle = info.handle.platform, info.handle
    parts = (platform.name, platform.version, handle.name, handle.driver_version)
    return ", ".join(" ".join(part.split()) for part in parts)


def capabilities_of(info: DeviceInfo) -> Capabilities:
    """What schedules are chosen by, from what the driver says; `WEFTGRAD_CAPABILITIES` overrides fields for tests,
    as in `style=gpu,fp64=0,max_group=64,local_memory=16384`."""
    handle, extensions, is_pocl = info.handle, info.handle.extensions.split(), "Portable" in info.platform
    instructions = processor.best_instruction_set()
    if instructions == "avx512" and is_pocl and not processor.llvm_knows_avx512(handle.version):
        instructions = "avx2"
    lanes, registers = processor.vectors(instructions)
    found = Capabilities(
        style="gpu" if info.is_gpu else "cpu",
        cores=handle.max_compute_units,
        lanes=4 if info.is_gpu else lanes,
        fp64="cl_khr_fp64" in extensions,
        fp16="cl_khr_fp16" in extensions,
        max_group=min(handle.max_work_group_size, 256 if info.is_gpu else 4096),
        local_memory=handle.local_mem_size,
        builtins=not is_pocl,
        memory=handle.global_mem_size,
        stream=processor.stream_threshold(), stream_rows=processor.stream_rows_threshold(),
        ahead=info.is_gpu or not processor.from_amd(),
        registers=registers,
    )
    return override(found, os.environ.get("WEFTGRAD_CAPABILITIES", ""))


# PoCL puts clang's header of all OpenCL built-ins before every program: 18,000 lines, parsed anew in 0.1 s each time.
# Its include guard, defined beforehand, leaves it out: what kernels here call of it, `header.cl` declares.
_LEAN = ["-D_OPENCL_H_", "-DWG_DECLARE"]


class Compiler:
    """Programs of an OpenCL device in one context, with their kernels. Threads share it."""

    def __init__(self, context: Any, handle: Any, able: Capabilities):
        self._context, self._handle, self._capabilities = context, handle, able
        platform = handle.platform
        wanted = {"-DWG_NO_AHEAD": not able.ahead, "-cl-opt-disable": not able.optimize}
        self._options = [option for option, want in wanted.items() if want]
        self._lean = _LEAN if "Portable" in platform.name else []
        identity = "\0".join(
            (platform.name, platform.version, handle.name, handle.version, handle.driver_version, *self._options)
        )
        self._cache = BinaryCache(identity)
        self._lock, self._mine = threading.RLock(), threading.local()
        self._found: dict[Instance, tuple[Any, str]] = {}
        self._batches: dict[str, Any] = {}
        self.built = self.loaded = 0

    def build(self, instances: Sequence[Instance]) -> int:
        """Build those not yet built, as one program. Returns how many there were."""
        with self._lock:
            missing = [i for i in dict.fromkeys(instances) if i not in self._found]
            if len(missing) == 1 and self._from_batch(missing[0]):
                return 1
            if missing:
                made = self._program(missing)
                for instance in missing:
                    self._found[instance] = (made, program.entry_name(instance))
            return len(missing)

    def is_cached(self, instance: Instance) -> bool:
        """Whether a binary with `instance` lies in the cache, alone or in a batch."""
        text = self._source([instance])
        return self._cache.find(text) is not None or self._cache.load(text) is not None

    def _from_batch(self, instance: Instance) -> bool:
        """Take `instance` from a program that was built as a batch, if the cache has one."""
        key = self._cache.find(self._source([instance]))
        if key is None:
            return False
        made = self._batches.get(key)
        if made is None:
            binary = self._cache.load_key(key)
            if binary is None:
                return False
            try:
                made = self._finished(binary)
            except cl.Error:
                return False
            self._batches[key] = made
            self.loaded += 1
        self._found[instance] = (made, program.entry_name(instance))
        return True

    def _source(self, instances: Sequence[Instance]) -> str:
        able = self._capabilities
        return program.source(instances, able.builtins, able.fp64)

    def program_of(self, instance: Instance) -> tuple[Any, str]:
        """The program that an instance is in, and its kernel's name there."""
        if instance not in self._found:
            self.build([instance])
        return self._found[instance]

    def kernel(self, instance: Instance) -> Any:
        """The calling thread's kernel object: its arguments are state, and making one costs 0.1 ms."""
        kernels: dict[Any, Any] = self._mine.__dict__
        kernel = kernels.get(instance)
        if kernel is None:
            kernel = kernels[instance] = cl.Kernel(*self.program_of(instance))
        return kernel

    def _program(self, instances: Sequence[Instance]) -> Any:
        check_fork()
        able = self._capabilities
        if not able.fp64 and any(i.element == "double" for i in instances):
            names = ", ".join(sorted({i.name for i in instances if i.element == "double"}))
            raise CompileError(f"{names}: {self._handle.name} has no float64; use float32 there")
        text = self._source(instances)
        binary = self._cache.load(text)
        if binary is not None:
            try:
                made = self._finished(binary)
                self.loaded += 1
                return made
            except cl.Error:
                pass  # a binary of another build of the driver: make it anew
        try:
            made = self._compiled(text)
            self.built += 1
            binary = next(b for b in made.get_info(cl.program_info.BINARIES) if b)
            self._cache.store(text, binary)
            if len(instances) > 1:
                self._cache.index([self._source([i]) for i in instances], text)
            # A binary holds finished kernels, where a program from source compiles each at its first launch.
            return self._finished(binary)
        except cl.Error as error:
            names = ", ".join(sorted({i.name for i in instances}))
            raise CompileError(f"{names}: does not compile for {self._handle.name}\n{error}") from error

    def _compiled(self, text: str) -> Any:
        """The program from source: with few declarations where they do; a user's own text may call any built-in."""
        if self._lean:
            try:
                return self._build(text, [*self._options, *self._lean])
            except cl.Error:
                if not self.built:
                    self._lean = []  # not with this version
        return self._build(text, self._options)

    def _build(self, text: str, options: Sequence[str]) -> Any:
        with warnings.catch_warnings():  # Intel's compiler logs what it vectorised, and pyopencl warns of any log
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Program(self._context, text).build(list(options), devices=[self._handle], cache_dir=False)

    def _finished(self, binary: bytes) -> Any:
        """The program of a binary."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Program(self._context, [self._handle], [binary]).build(self._options, devices=[self._handle])


class OpenCLEvent:
    """A point in a stream. Timing events need a queue that profiles: `record` switches the stream to one."""

    def __init__(self, driver: OpenCLDriver, timing: bool = False):
        self.driver = driver
        self.timing = timing
        self.mark: Any = None

    def record(self, stream: OpenCLStream) -> None:
        stream.record_event(self)

    def query(self) -> bool:
        return self.mark is None or self.mark.command_execution_status == 0

    def synchronize(self) -> None:
        if self.mark is not None:
            self.mark.wait()

    def elapsed_time(self, end: OpenCLEvent) -> float:
        """Milliseconds from this event to `end`; both must be timing events that were recorded."""
        if self.mark is None or end.mark is None or not (self.timing and end.timing):
            raise LaunchError("elapsed_time needs two recorded events made with enable_timing=True")
        self.synchronize()
        end.synchronize()
        return float(end.mark.profile.end - self.mark.profile.end) * 1e-6


class OpenCLStream(QueueStream):
    """One in-order queue, with a pool whose blocks are reused in its order."""

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

    def record_event(self, event: OpenCLEvent | None = None) -> OpenCLEvent:
        event = event or OpenCLEvent(self.driver)
        if event.timing and not self._profiling:
            self.profile()
        event.mark = cl.enqueue_marker(self.queue)
        self.queue.flush()
        return event

    def wait_event(self, event: OpenCLEvent) -> None:
        if event.mark is not None:
            cl.enqueue_barrier(self.queue, wait_for=[event.mark])

    def wait_stream(self, other: OpenCLStream) -> None:
        self.wait_event(other.record_event())

    def profile(self) -> None:
        """Turn into a queue that keeps times; costs about 3 us a launch from then on."""
        self._profiling = True
        self.renew()

    def renew(self) -> None:
        """Change to a queue of the properties that are wanted now, when what was queued is done."""
        self.queue.finish()
        self._open()

    def _open(self) -> None:
        flags = cl.command_queue_properties.PROFILING_ENABLE if self._profiling else queue_flags
        self.queue = cl.CommandQueue(self.driver.context, self.driver.handle, properties=flags)
        self.deep = address(self.queue)


class DeviceMemory:
    """What the pools of an OpenCL device draw segments from."""

    def __init__(self, driver: OpenCLDriver):
        self._driver = driver

    def allocate(self, nbytes: int) -> Any:
        try:
            return cl.Buffer(self._driver.context, cl.mem_flags.READ_WRITE, nbytes)
        except cl.Error as error:
            raise MemoryError(str(error)) from error

    def release(self, handle: Any) -> None:
        handle.release()

    def synchronize(self) -> None:
        self._driver.synchronize()


class OpenCLDriver:
    """An opened OpenCL device: context, compiler, default stream, memory.

    For tests, `info` is the device to run on whatever the index is, and `overrides` are capabilities to claim (see
    `override`): schedules for devices that are not there run on one that is.
    """

    target = "opencl"

    def __init__(self, device: Device, info: DeviceInfo | None = None, overrides: str = ""):
        self.device = device
        found = devices()
        index = device.index or 0
        if info is None and index >= len(found):
            raise UnknownDevice(
                f"{device} does not exist: OpenCL devices here: {len(found)}, numbered from 0 (see weftgrad devices)"
            )
        self.info = info or found[index]
        self.handle = self.info.handle
        self.name = self.info.name
        self.identity = identity_of(self.info)
        self.capabilities = override(capabilities_of(self.info), overrides)
        self.budget = Budget(default_limit(self.capabilities.memory))
        self.counter = Counter()
        self._retired: list[Any] = []
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
            pool.stream.synchronize()
        self._retired.clear()

    def allocate(self, nbytes: int, stream: OpenCLStream) -> Storage:
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

    def write(self, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: OpenCLStream) -> None:
        check_fork()
        cl.enqueue_copy(stream.queue, storage.buffer, array, dst_offset=storage.start + offset, is_blocking=True)

    def write_later(self, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: OpenCLStream) -> Any:
        """As `write`, without waiting for what was queued before: the event after which `array` may change."""
        check_fork()
        target, start = storage.buffer, storage.start + offset
        return cl.enqueue_copy(stream.queue, target, array, dst_offset=start, is_blocking=False)

    def read(self, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: OpenCLStream) -> None:
        check_fork()
        cl.enqueue_copy(stream.queue, array, storage.buffer, src_offset=storage.start + offset, is_blocking=True)

    def read_later(self, tensors: Sequence[Any], stream: OpenCLStream) -> tuple[list[Any], OpenCLEvent]:
        """Queue copies of 0-d tensors to the host: where their values will be, and the event that tells when."""
        check_fork()
        arrays = [np.empty((), t.meta.dtype.numpy) for t in tensors]
        for tensor, array in zip(tensors, arrays, strict=True):
            buffer, start = tensor.storage.buffer, tensor.start
            cl.enqueue_copy(stream.queue, array, buffer, src_offset=start, is_blocking=False)
        return arrays, stream.record_event()

    def host_view(self, storage: Storage) -> np.ndarray[Any, Any] | None:
        return None

    def new_stream(self) -> OpenCLStream:
        return OpenCLStream(self)

    def new_event(self, timing: bool) -> OpenCLEvent:
        return OpenCLEvent(self, timing)

    def build(self, instances: Sequence[Instance]) -> int:
        return self.compiler.build(instances)

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has a kernel."""
        return self.compiler.is_cached(instance)

    # launching

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """A function `run(tensors, scalars, stream)` for this thread, that enqueues `steps` in order."""
        check_fork()
        runs = [self.prepare(step) for step in steps]
        if len(runs) == 1 and not scratch:
            return runs[0]

        def run(tensors: list[Any], scalars: Sequence[Any], stream: OpenCLStream) -> None:
            extra = [Scratch(self.allocate(n, stream)) for n in scratch]
            everything = [*tensors, *extra]
            for each in runs:
                each(everything, scalars, stream)

        return run

    def prepare(self, step: Step) -> Callable[..., None]:
        kernel = self.compiler.kernel(step.instance)
        arguments = bind(kernel, step)
        size, local = step.global_size, step.local_size
        name = step.instance.name

        def run(tensors: list[Any], scalars: Sequence[Any], stream: OpenCLStream) -> None:
            arguments(tensors, scalars)
            try:
                enqueue(stream.queue, kernel, size, local)
            except cl.Error as error:
                raise launch_error(name, step, self.name, error) from error
            self.counter.value += 1

        return native.launcher(kernel, step, run, self.counter)
