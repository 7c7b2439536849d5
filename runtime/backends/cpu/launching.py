"""Launches of kernels that are C functions, and launches that wait because their kernel is still being compiled.

While every kernel is there, C does all of this (`csrc/call.c`): it takes the addresses of the tensors, packs offsets
and numbers, and calls the function. `native.detour` sends launches here instead, once one has to wait.

A launch that waits keeps addresses and not tensors. Its memory may be freed and used again before it runs: the pool
hands blocks out in launch order, as it does on devices that are asynchronous. Memory that NumPy arrays show is another
matter, because their owner asks nobody before reading it: such a launch runs at once, and so do those before it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from ... import native
from ...errors import CompileError, LaunchError
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
MAX_WAITING = 4096  # launches, before a program that never looks at a value has to wait
MAX_NATIVE_BUFFERS = 40  # MOST_BUFFERS of csrc/native.h

_FUNCTION = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.c_size_t, ctypes.c_size_t
)


class _Launcher:
    """One planned step, ready to be called: everything but the tensors' addresses and the call's numbers."""

    __slots__ = ("geometry", "helpers", "instance", "kernel", "releases", "size", "work")

    def __init__(self, step: Step, kernel: Any, size: tuple[int, int, int], helpers: int):
        self.instance = step.instance
        self.kernel = kernel
        self.geometry: bytes = step.geometry  # type: ignore[assignment]
        self.size = size
        self.helpers = helpers
        self.work = step.work
        self.releases = step.work > MAX_WORK_UNDER_LOCK

    def call(self, buffers: tuple[int, ...], dynamic: bytes, note: Launch | None) -> None:
        """Call the kernel, which is compiled, on memory at these addresses; `note` gets the times."""
        if note is not None:
            note.begin = time.perf_counter_ns()
        self._call(buffers, dynamic)
        if note is not None:
            note.end = time.perf_counter_ns()

    def _call(self, buffers: tuple[int, ...], dynamic: bytes) -> None:
        if native.present and len(buffers) <= MAX_NATIVE_BUFFERS:
            native.call_kernel(
                self.kernel, buffers, self.geometry, dynamic, self.size, self.helpers, self.work, self.releases
            )
            return
        count = len(buffers)
        pointers = (ctypes.c_void_p * count)(*buffers)
        at, width = ctypes.addressof(pointers), ctypes.sizeof(ctypes.c_void_p)
        structs = [ctypes.create_string_buffer(each, len(each)) for each in (self.geometry, dynamic)]
        values = [at + i * width for i in range(count)] + [ctypes.addressof(each) for each in structs]
        size = (ctypes.c_size_t * 3)(*self.size)
        items = self.size[0] * self.size[1] * self.size[2]
        _FUNCTION(self.kernel.address)((ctypes.c_void_p * (count + 2))(*values), size, 0, items)


class CpuTracer:
    """Notes launches by the host's clock (`runtime.tracing`): when each was asked for, and when its kernel ran."""

    launches: ClassVar[list[Launch] | None] = None

    def __init__(self, launches: list[Launch]):
        self._launches = launches

    def start(self) -> None:
        CpuTracer.launches = self._launches
        native.detour(True)

    def stop(self) -> None:
        try:
            for driver in drivers():
                if driver.device.type == "cpu":
                    driver.synchronize()
        finally:
            CpuTracer.launches = None
            native.detour(_are_waiting())


class ClangRoad:
    """Kernels that clang compiled, called as functions. One a driver; threads share it."""

    def __init__(self, store: ObjectStore, counter: Counter):
        self.kernels = ClangKernels(store)
        self.identity, self.name = store.identity, store.compiler.name
        self._counter = counter
        self._helpers = cores() - 1
        self._lock = threading.RLock()
        self._waiting: deque[tuple[_Launcher, tuple[int, ...], bytes, Launch | None]] = deque()
        _roads.append(self)

    def build(self, instances: Sequence[Instance]) -> int:
        """Compile those that are missing, and wait for them. Returns how many there were."""
        return self.kernels.build(instances)

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has the kernel."""
        return self.kernels.store.is_cached(instance)

    def prepare(self, step: Step) -> Callable[..., None]:
        """Return `run(tensors, scalars, stream)` for a step; its kernel is compiled in the background from now on.

        Raises:
            CompileError: The step's work-groups have several work-items, which only OpenCL devices can run.
        """
        size = _size_of(step)
        kernel = self.kernels.kernel(step.instance)
        launcher = _Launcher(step, kernel, size, self._helpers)
        positions, pack = step.buffers, packer(step)

        def run(tensors: Sequence[Any], scalars: Sequence[Any], stream: Any) -> None:
            operands = [tensors[i] for i in positions]
            buffers = tuple([operand.storage.buffer or 0 for operand in operands])
            dynamic = pack([operand.start for operand in operands], scalars)
            note = None
            if CpuTracer.launches is not None:
                now = time.perf_counter_ns()
                note = Launch(step.instance.entry, "cpu", 0, threading.get_ident(), now, now)
                CpuTracer.launches.append(note)
            if self._waiting or not kernel.address:
                self._queue((launcher, buffers, dynamic, note), [operand.storage for operand in operands])
            else:
                launcher.call(buffers, dynamic, note)
            if note is not None:
                note.returned = time.perf_counter_ns()
            self._counter.value += 1

        return native.host_launcher(kernel, step, size, run, self._counter, launcher.helpers, launcher.releases)

    def _queue(
        self, launch: tuple[_Launcher, tuple[int, ...], bytes, Launch | None], storages: Iterable[Any]
    ) -> None:
        with self._lock:
            self._waiting.append(launch)
            native.detour(True)
            at_once = len(self._waiting) > MAX_WAITING
            for storage in storages:
                if isinstance(storage, Storage):
                    storage.pending = True
                    at_once = at_once or storage.owner is not None
                else:  # a whole buffer: which storages lie in it nobody knows
                    at_once = True
            if at_once:
                self.synchronize()

    def synchronize(self) -> None:
        """Wait for the kernels of launches that wait, and run those in order.

        Raises:
            CompileError: One of the kernels does not compile. None of the launches runs then.
        """
        if not self._waiting:
            return
        with self._lock:
            try:
                self.kernels.wait([launcher.instance for launcher, *_ in self._waiting])
            except CompileError:
                self._waiting.clear()
                native.detour(CpuTracer.launches is not None)
                raise
            while self._waiting:
                launcher, buffers, dynamic, note = self._waiting[0]
                launcher.call(buffers, dynamic, note)
                self._waiting.popleft()
            native.detour(CpuTracer.launches is not None)

    def wait_for(self, storage: Storage) -> None:
        """Wait until no launch that waits uses `storage`."""
        if storage.pending is not None:
            self.synchronize()
            storage.pending = None


_roads: list[ClangRoad] = []


def _are_waiting() -> bool:
    return any(road._waiting for road in _roads)


def _size_of(step: Step) -> tuple[int, int, int]:
    """A launch's work-items as three numbers. Raises `CompileError` for work-groups of several."""
    if step.local_size is not None and any(n != 1 for n in step.local_size):
        raise CompileError(
            f"{step.instance.name}: {step.instance.entry} has work-groups of {step.local_size}, and on 'cpu' each "
            "work-item is a group of its own; use an OpenCL device (opencl:0)"
        )
    size = (*step.global_size, 1, 1)[:3]
    if not step.geometry or any(n < 0 for n in size):
        raise LaunchError(f"{step.instance.name}: a step without geometry, or of size {step.global_size}")
    return size  # type: ignore[return-value]
