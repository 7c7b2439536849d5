"""Launch kernels that are C functions, and queue launches whose kernel is still being compiled.

If all kernels have been compiled, `csrc/call.c` does the whole launch: it reads the tensors' addresses, packs offsets
and numbers, and calls the function. While launches are queued, `native.route_through_python` routes all launches here.

A queued launch holds addresses, not tensors. Its memory may be freed and reused before it runs, because the pool reuses
blocks in launch order, as on asynchronous devices. A launch that uses memory shared with NumPy runs before the call
returns, together with all launches queued before it, because NumPy reads without synchronizing.

A thread that waits for kernels holds the queue's lock; launches of other threads wait with it.

Kernels of ops that a program loaded itself are compiled before the first call returns, so that an error in a spec or
template is raised by that call. If a kernel of the package cannot be compiled (no memory, no disk space), the launches
stay queued and every wait tries again.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ... import native
from ...device import open_drivers
from ...errors import CompileError, LaunchError
from ...launches import Launch
from ...records import registry
from ...storage import Storage
from ..arguments import Base, Operand, geometry_bytes, packer
from ..processor import cores
from ..protocol import Instance, Step, Stream
from ..queues import Counter
from .kernels import CallableKernel, ClangKernels
from .objects import ObjectStore

__all__ = ["ClangExecutor", "CpuTracer"]

# Up to this much work (see `Step`), the interpreter's lock is held while a kernel runs: at most a millisecond.
MAX_WORK_UNDER_LOCK = 1024 * 1024
MAX_QUEUED = 4096  # launches; limits the queue of a program that never reads a value
MAX_NATIVE_BUFFERS = 40  # MAX_BUFFERS of csrc/native.h

_GROUPS_OF_ONE = (None, (1,), (1, 1), (1, 1, 1))

_FUNCTION = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.c_size_t, ctypes.c_size_t
)


class _Launcher:
    """One planned step with everything but the tensors' addresses and the call's numbers.

    size: work-items in three dimensions. helpers: maximum number of helper threads. work: see `Step`.
    releases: whether the interpreter's lock is released while the kernel runs.
    """

    __slots__ = ("geometry", "helpers", "instance", "kernel", "releases", "size", "work")

    def __init__(
        self, instance: Instance, kernel: CallableKernel, helpers: int, geometry: bytes, size: tuple[int, int, int],
        work: int,
    ):  # fmt: skip
        self.instance = instance
        self.kernel = kernel
        self.geometry = geometry
        self.size = size
        self.helpers = helpers
        self.work = work
        self.releases = work > MAX_WORK_UNDER_LOCK

    def call(
        self, buffers: tuple[int, ...], dynamic: bytes, trace: Launch | None, queued: _QueuedLaunch | None = None
    ) -> None:
        """Call the compiled kernel on memory at these addresses; `trace` gets the times.

        `queued.has_run` is set right before the kernel runs, so that the launch runs exactly once even if a signal
        handler raises or synchronizes: Python handles no signal between that assignment and the kernel.
        """
        if trace is not None:
            trace.begin = time.perf_counter_ns()
        self._call(buffers, dynamic, queued or _QueuedLaunch(self, buffers, dynamic, (), None))
        if trace is not None:
            trace.end = time.perf_counter_ns()

    def _call(self, buffers: tuple[int, ...], dynamic: bytes, queued: _QueuedLaunch) -> None:
        if native.present and len(buffers) <= MAX_NATIVE_BUFFERS:
            queued.has_run = True
            native.call_kernel(
                self.kernel, buffers, self.geometry, dynamic, self.size, self.helpers, self.work, self.releases
            )
            return
        count = len(buffers)
        pointers = (ctypes.c_void_p * count)(*buffers)
        start, width = ctypes.addressof(pointers), ctypes.sizeof(ctypes.c_void_p)
        structs = [ctypes.create_string_buffer(packed, len(packed)) for packed in (self.geometry, dynamic)]
        addresses = [start + i * width for i in range(count)] + [ctypes.addressof(packed) for packed in structs]
        size = (ctypes.c_size_t * 3)(*self.size)
        items = self.size[0] * self.size[1] * self.size[2]
        function, arguments = _FUNCTION(self.kernel.address), (ctypes.c_void_p * (count + 2))(*addresses)
        queued.has_run = True
        function(arguments, size, 0, items)


class CpuTracer:
    """Record launches by the host's clock (`runtime.tracing`): when each was requested, and when its kernel ran."""

    launches: ClassVar[list[Launch] | None] = None

    def __init__(self, launches: list[Launch]):
        self._launches = launches

    def start(self) -> None:
        CpuTracer.launches = self._launches
        _update_routing()

    def stop(self) -> None:
        try:
            for driver in open_drivers():
                if driver.device.type == "cpu":
                    driver.synchronize()
        finally:
            CpuTracer.launches = None
            _update_routing()


@dataclass(slots=True)
class _QueuedLaunch:
    launcher: _Launcher
    buffers: tuple[int, ...]
    dynamic: bytes
    owners: tuple[object, ...]  # of memory that is not the pool's
    trace: Launch | None
    has_run: bool = False


class ClangExecutor:
    """Runs kernels that clang compiled by calling them as functions. One per driver; thread-safe.

    Args:
        store: Compiles kernels and caches them.
        counter: Counts the driver's launches.
    """

    def __init__(self, store: ObjectStore, counter: Counter):
        self.kernels = ClangKernels(store)
        self.identity, self.name = store.identity, store.compiler.name
        self._counter = counter
        self._helpers = cores() - 1
        self._queue: deque[_QueuedLaunch] = deque()
        self._lock = threading.RLock()
        _executors.add(self)

    @property
    def has_queued_launches(self) -> bool:
        return bool(self._queue)

    def build(self, instances: Sequence[Instance]) -> int:
        """Compile missing kernels, and wait for them. Return their number."""
        return self.kernels.build(instances)

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has the kernel."""
        return self.kernels.store.is_cached(instance)

    def prepare(self, step: Step) -> Callable[..., None]:
        """Return `run(tensors, scalars, stream)` for a step, and start to compile its kernel in the background.

        Raises:
            CompileError: The step's work-groups have several work-items, which only OpenCL devices can run; or the op
                was loaded by the program itself, and does not compile.
            LaunchError: The step has no geometry or no work-items.
        """
        size = _size_of(step)
        if registry.owner(step.instance.name):
            self.kernels.build([step.instance])
        return self._template(step)(geometry_bytes(step), size, step.work)

    def _template(self, step: Step) -> Callable[[bytes, tuple[int, int, int], int], Callable[..., None]]:
        """Return a function that makes the launchers of all steps which differ from this one in sizes only."""
        instance, kernel, helpers = step.instance, self.kernels.kernel(step.instance), self._helpers
        positions, pack = step.buffers, packer(step)

        def make_launcher(geometry: bytes, size: tuple[int, int, int], work: int) -> Callable[..., None]:
            launcher = _Launcher(instance, kernel, helpers, geometry, size, work)

            def run(tensors: Sequence[Operand], scalars: Sequence[float], stream: Stream) -> None:
                operands = [tensors[i] for i in positions]
                # Hold the storages: while the kernel runs, another thread may give a tensor another one (`x.data =`).
                storages = [operand.storage for operand in operands]
                buffers = tuple([storage.buffer or 0 for storage in storages])
                dynamic = pack([operand.start for operand in operands], scalars)
                trace, launches = None, CpuTracer.launches
                if launches is not None:
                    now = time.perf_counter_ns()
                    trace = Launch(instance.entry, "cpu", 0, threading.get_ident(), now, now)
                    launches.append(trace)
                if self._queue or not kernel.address:
                    self._enqueue(launcher, buffers, dynamic, storages, trace)
                else:
                    launcher.call(buffers, dynamic, trace)
                if trace is not None:
                    trace.returned = time.perf_counter_ns()
                self._counter.value += 1

            return run

        return native.host_template(kernel, step, make_launcher, self._counter, helpers, MAX_WORK_UNDER_LOCK)

    def _enqueue(
        self,
        launcher: _Launcher,
        buffers: tuple[int, ...],
        dynamic: bytes,
        storages: Sequence[Storage | Base],
        trace: Launch | None,
    ) -> None:
        pool_storages = [storage for storage in storages if isinstance(storage, Storage)]
        owners = tuple([storage.owner for storage in pool_storages if storage.owner is not None])
        with self._lock:
            if not self._queue and launcher.kernel.address:  # another thread has just run the queue
                launcher.call(buffers, dynamic, trace)
                return
            native.route_through_python(True)
            for storage in pool_storages:
                storage.pending = True
            self._queue.append(_QueuedLaunch(launcher, buffers, dynamic, owners, trace))
            # A `Base` stands for a whole buffer; the storages in it cannot be marked as pending.
            if owners or len(pool_storages) < len(storages) or len(self._queue) > MAX_QUEUED:
                self.synchronize()

    def synchronize(self) -> None:
        """Wait for the kernels of queued launches, and run the launches in order.

        Raises:
            CompileError: One of the kernels cannot be compiled. The launches stay queued.
        """
        if not self._queue:
            return
        with self._lock:
            self.kernels.wait([queued.launcher.instance for queued in self._queue])
            try:
                while self._queue:
                    queued = self._queue[0]  # removed only after it has run: other threads check for an empty queue
                    if not queued.launcher.kernel.address:  # a signal handler or a finalizer queued it just now
                        self.kernels.wait([queued.launcher.instance])
                    if not queued.has_run:
                        queued.launcher.call(queued.buffers, queued.dynamic, queued.trace, queued)
                    if self._queue and self._queue[0] is queued:  # unless a signal handler has synchronized
                        self._queue.popleft()
            finally:
                _update_routing()

    def wait_for(self, storage: Storage) -> None:
        """Wait until no queued launch uses `storage`. Raise `CompileError` as `synchronize` does."""
        if storage.pending is not None:
            with self._lock:
                self.synchronize()
                storage.pending = None

    def restart(self) -> None:
        """Replace the locks, for the child of a fork; launches stay queued."""
        self._lock = threading.RLock()
        self.kernels.restart()


_executors: weakref.WeakSet[ClangExecutor] = weakref.WeakSet()


def _update_routing() -> None:
    """Enable launches from C again, unless launches are queued or traced."""
    has_queued_launches = any(executor.has_queued_launches for executor in _executors)
    native.route_through_python(CpuTracer.launches is not None or has_queued_launches)


def _restart_after_fork() -> None:
    for executor in _executors:
        executor.restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_after_fork)


def _size_of(step: Step) -> tuple[int, int, int]:
    """Return a launch's work-items in three dimensions. Raise `CompileError` for work-groups of several work-items."""
    if step.local_size not in _GROUPS_OF_ONE:
        raise CompileError(
            f"{step.instance.name}: {step.instance.entry} has work-groups of {step.local_size}, and on 'cpu' each "
            "work-item is a group of its own; use an OpenCL device (opencl:0)"
        )
    x, y, z = (*step.global_size, 1, 1)[:3]
    if not step.geometry or x < 1 or y < 1 or z < 1:
        raise LaunchError(f"{step.instance.name}: a step without geometry, or of size {step.global_size}")
    return x, y, z
