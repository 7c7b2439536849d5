"""Launch kernels that are C functions, and queue launches whose kernel is still being compiled.

If every kernel has been compiled, `csrc/call.c` does the whole launch: it takes the addresses of the tensors, packs
offsets and numbers, and calls the function. Once a launch has to wait, `native.detour` sends all of them here.

A queued launch holds addresses and not tensors. Its memory may be freed and used again before it runs: the pool hands
blocks out in launch order, as it does on devices that are asynchronous. A launch that uses memory shared with NumPy
runs before the call returns, with all launches queued before it, because NumPy reads without synchronizing.

One thread that waits for kernels holds the queue's lock; launches of other threads wait with it.

Kernels of ops that a program loaded itself are compiled before the first call returns, so that a mistake in a spec or a
template is an error of that call. A kernel of the package that cannot be compiled (no memory, no room) leaves the queue
as it is: every wait tries again.
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
from typing import Any, ClassVar

from ... import native
from ...errors import CompileError, LaunchError
from ...records import registry
from ...storage import Storage
from ...tracing import Launch, drivers
from ..arguments import packer
from ..processor import cores
from ..protocol import Instance, Step
from ..queues import Counter
from .kernels import ClangKernels
from .objects import ObjectStore

__all__ = ["ClangRoad", "CpuTracer"]

# Elements of work (see `Step`) up to which the interpreter's lock is held while a kernel runs: at most a millisecond.
MAX_WORK_UNDER_LOCK = 1024 * 1024
MAX_QUEUED = 4096  # launches, before a program that never looks at a value has to wait
MAX_NATIVE_BUFFERS = 40  # MOST_BUFFERS of csrc/native.h

_FUNCTION = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.c_size_t, ctypes.c_size_t
)


class _Launcher:
    """One planned step, ready to be called: everything but the tensors' addresses and the call's numbers.

    size: work-items in three dimensions. helpers: threads that may share them with the calling one. work: see `Step`.
    releases: whether other Python threads go on meanwhile.
    """

    __slots__ = ("geometry", "helpers", "instance", "kernel", "releases", "size", "work")

    def __init__(self, step: Step, kernel: Any, size: tuple[int, int, int], helpers: int):
        self.instance = step.instance
        self.kernel = kernel
        self.geometry: bytes = step.geometry  # type: ignore[assignment]
        self.size = size
        self.helpers = helpers
        self.work = step.work
        self.releases = step.work > MAX_WORK_UNDER_LOCK

    def call(
        self, buffers: tuple[int, ...], dynamic: bytes, trace: Launch | None, queued: _QueuedLaunch | None = None
    ) -> None:
        """Call the kernel, which is compiled, on memory at these addresses; `trace` gets the times.

        `queued` is marked right before, so that a launch runs once although a signal handler raises or synchronizes:
        between that mark and the kernel Python handles no signal.
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
        structs = [ctypes.create_string_buffer(each, len(each)) for each in (self.geometry, dynamic)]
        addresses = [start + i * width for i in range(count)] + [ctypes.addressof(each) for each in structs]
        size = (ctypes.c_size_t * 3)(*self.size)
        items = self.size[0] * self.size[1] * self.size[2]
        function, arguments = _FUNCTION(self.kernel.address), (ctypes.c_void_p * (count + 2))(*addresses)
        queued.has_run = True
        function(arguments, size, 0, items)


class CpuTracer:
    """Note launches by the host's clock (`runtime.tracing`): when each was asked for, and when its kernel ran."""

    launches: ClassVar[list[Launch] | None] = None

    def __init__(self, launches: list[Launch]):
        self._launches = launches

    def start(self) -> None:
        CpuTracer.launches = self._launches
        _update_detour()

    def stop(self) -> None:
        try:
            for driver in drivers():
                if driver.device.type == "cpu":
                    driver.synchronize()
        finally:
            CpuTracer.launches = None
            _update_detour()


@dataclass(slots=True)
class _QueuedLaunch:
    launcher: _Launcher
    buffers: tuple[int, ...]
    dynamic: bytes
    owners: tuple[Any, ...]  # of memory that is not the pool's
    trace: Launch | None
    has_run: bool = False


class ClangRoad:
    """Kernels that clang compiled, called as functions. One a driver; threads share it.

    Args:
        store: Of compiled kernels.
        counter: Of the driver's launches.
    """

    def __init__(self, store: ObjectStore, counter: Counter):
        self.kernels = ClangKernels(store)
        self.identity, self.name = store.identity, store.compiler.name
        self._counter = counter
        self._helpers = cores() - 1
        self._queue: deque[_QueuedLaunch] = deque()
        self._lock = threading.RLock()
        _roads.add(self)

    @property
    def has_queued_launches(self) -> bool:
        return bool(self._queue)

    def build(self, instances: Sequence[Instance]) -> int:
        """Compile kernels that are missing, and wait for them; return how many there were."""
        return self.kernels.build(instances)

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has the kernel."""
        return self.kernels.store.is_cached(instance)

    def prepare(self, step: Step) -> Callable[..., None]:
        """Return `run(tensors, scalars, stream)` for a step; its kernel is compiled in the background from now on.

        Raises:
            CompileError: The step's work-groups have several work-items, which only OpenCL devices can run; or it is
                of an op that the program loaded itself, and does not compile.
            LaunchError: The step has no geometry or no work-items.
        """
        size = _size_of(step)
        if registry.owner(step.instance.name):
            self.kernels.build([step.instance])
        kernel = self.kernels.kernel(step.instance)
        launcher = _Launcher(step, kernel, size, self._helpers)
        positions, pack = step.buffers, packer(step)

        def run(tensors: Sequence[Any], scalars: Sequence[Any], stream: Any) -> None:
            operands = [tensors[i] for i in positions]
            buffers = tuple([operand.storage.buffer or 0 for operand in operands])
            dynamic = pack([operand.start for operand in operands], scalars)
            trace, launches = None, CpuTracer.launches
            if launches is not None:
                now = time.perf_counter_ns()
                trace = Launch(step.instance.entry, "cpu", 0, threading.get_ident(), now, now)
                launches.append(trace)
            if self._queue or not kernel.address:
                self._enqueue(launcher, buffers, dynamic, [operand.storage for operand in operands], trace)
            else:
                launcher.call(buffers, dynamic, trace)
            if trace is not None:
                trace.returned = time.perf_counter_ns()
            self._counter.value += 1

        return native.host_launcher(kernel, step, size, run, self._counter, launcher.helpers, launcher.releases)

    def _enqueue(
        self,
        launcher: _Launcher,
        buffers: tuple[int, ...],
        dynamic: bytes,
        storages: Sequence[Any],
        trace: Launch | None,
    ) -> None:
        own = [storage for storage in storages if isinstance(storage, Storage)]
        owners = tuple([storage.owner for storage in own if storage.owner is not None])
        with self._lock:
            if not self._queue and launcher.kernel.address:  # another thread has just run the queue
                launcher.call(buffers, dynamic, trace)
                return
            native.detour(True)
            for storage in own:
                storage.pending = True
            self._queue.append(_QueuedLaunch(launcher, buffers, dynamic, owners, trace))
            # A `Base` names a whole buffer; its storages cannot be marked.
            if owners or len(own) < len(storages) or len(self._queue) > MAX_QUEUED:
                self.synchronize()

    def synchronize(self) -> None:
        """Wait for the kernels of queued launches, and run those in order.

        Raises:
            CompileError: One of the kernels cannot be compiled. The launches stay queued.
        """
        if not self._queue:
            return
        with self._lock:
            self.kernels.wait([queued.launcher.instance for queued in self._queue])
            try:
                while self._queue:
                    queued = self._queue[0]  # it stays until it has run: other threads look whether the queue is empty
                    if not queued.launcher.kernel.address:  # a signal handler or a finalizer has just queued it
                        self.kernels.wait([queued.launcher.instance])
                    if not queued.has_run:
                        queued.launcher.call(queued.buffers, queued.dynamic, queued.trace, queued)
                    if self._queue and self._queue[0] is queued:  # no handler has synchronized meanwhile
                        self._queue.popleft()
            finally:
                _update_detour()

    def wait_for(self, storage: Storage) -> None:
        """Wait until no queued launch uses `storage`. Raises `CompileError` as `synchronize` does."""
        if storage.pending is not None:
            with self._lock:
                self.synchronize()
                storage.pending = None

    def restart(self) -> None:
        """Forget who holds locks, as the child of a fork must; what is queued stays so."""
        self._lock = threading.RLock()
        self.kernels.restart()


_roads: weakref.WeakSet[ClangRoad] = weakref.WeakSet()


def _update_detour() -> None:
    """Let C launch again, unless launches are queued or traced."""
    native.detour(CpuTracer.launches is not None or any(road.has_queued_launches for road in _roads))


def _restart_after_fork() -> None:
    for road in _roads:
        road.restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_after_fork)


def _size_of(step: Step) -> tuple[int, int, int]:
    """Return a launch's work-items as three numbers. Raises `CompileError` for work-groups of several."""
    if step.local_size is not None and any(n != 1 for n in step.local_size):
        raise CompileError(
            f"{step.instance.name}: {step.instance.entry} has work-groups of {step.local_size}, and on 'cpu' each "
            "work-item is a group of its own; use an OpenCL device (opencl:0)"
        )
    size = (*step.global_size, 1, 1)[:3]
    if not step.geometry or any(n < 1 for n in size):
        raise LaunchError(f"{step.instance.name}: a step without geometry, or of size {step.global_size}")
    return size  # type: ignore[return-value]
