"""The `cpu` device: host memory, with kernels run over it by an OpenCL CPU driver (PoCL by default).

Memory needs no driver: tensors can be made, viewed, copied and exchanged with NumPy where pyopencl is missing. The
driver is opened at the first launch, and from then on every pool segment carries a buffer over the same memory
(`USE_HOST_PTR`), so nothing is ever copied between host and device.

PoCL offers two devices: `pthread`, with a worker a core, and `basic`, which runs a kernel in the calling thread at
once, in a quarter of the time that waking a worker takes. One context holds both.

Where kernels can be called as functions (`workgroups`), the calling thread calls them, together with a team of threads:
when a call returns its work is done, as with PyTorch. (Of PoCL's kernels, `basic` runs the first work-group once.)
Elsewhere a stream sends small work to `basic` while nothing is pending on `pthread`, and everything else to `pthread`,
so its order is kept without ever waiting.
(An event of one device in the wait list of the other is lost by PoCL 3.0, so none is ever put there.)
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from .. import native
from ..device import Device
from ..errors import CompileError, DriverNotFound, ForkError
from ..pool import Pool
from ..storage import Storage
from .arguments import bind_launch
from .host import HostDriver
from .processor import cores, has_avx512
from .protocol import Capabilities, Instance, Step
from .queues import CALLING, WORKERS, QueueStream, launch_error
from .workgroups import MOST_ITEMS, Functions, Named, Placed, can_call

__all__ = ["SMALL", "CpuDriver", "CpuStream"]

# Work (see `Step`) up to which the calling thread is faster than its workers, which take 10 to 40 us to wake and cost
# the other core as much: measured to be 20 to 25 us of one core.
SMALL = 48 * 1024
# Work up to which the interpreter's lock is held while the calling thread runs kernels: at most a millisecond.
HELD = 1024 * 1024


class Moment:
    """The time at which an event passed, in the form of the driver's events."""

    command_execution_status = 0

    def __init__(self) -> None:
        self.end = time.perf_counter_ns()

    @property
    def profile(self) -> Moment:
        return self

    def wait(self) -> None:
        """It has passed."""


class CpuStream(QueueStream):
    """An order of work on the host's cores. `pending` is the last event on the pooled queue, if it may still run.

    queue, quick: the pooled queue and, where there is one, that of the calling thread.
    """

    __slots__ = ("driver", "queue", "quick")

    def __init__(self, driver: CpuDriver):
        super().__init__(Pool(driver.memory, driver.budget, self, "cpu"))
        self.driver = driver
        self.queue: Any = None
        self.quick: Any = None
        if driver.opened:
            self.open()

    @property
    def device(self) -> Device:
        return self.driver.device

    def open(self) -> None:
        self.queue, self.quick = self.driver.queues()
        self.deep, self.swift = self.driver.addresses(self.queue, self.quick)

    def renew(self) -> None:
        """Change to queues of the properties that are wanted now, when what was queued is done."""
        if self.queue is not None:
            self.synchronize()
            self.open()

    def synchronize(self) -> None:
        """Wait for the pooled queue; what the calling thread ran is done."""
        if self.queue is not None:
            self.driver.check_fork()
            if self.pending is not None:  # it stays: another thread may queue more while this one waits
                self.queue.finish()

    def query(self) -> bool:
        """Whether everything queued so far is done."""
        return self.pending is None or self.pending.command_execution_status <= 0

    def record_event(self, event: Any = None) -> Any:
        """The point after all that was queued. It has passed already where nothing pends, or its time is wanted."""
        self.driver.require()
        if event is None:
            event = self.driver.new_event(False)
        if event.timing:
            self.synchronize()  # which leaves `pending` as it is
        if event.timing or self.pending is None:
            event.mark = Moment()
        else:
            self.pending = event.mark = self.driver.marker(self.queue)
        return event

    def wait_event(self, event: Any) -> None:
        if event.mark is not None and not isinstance(event.mark, Moment):
            self.driver.require()
            self.pending = self.driver.barrier(self.queue, event.mark)

    def wait_stream(self, other: CpuStream) -> None:
        self.wait_event(other.record_event())


def _chosen(infos: Sequence[Any]) -> Any:
    """The CPU that is `cpu`: what WEFTGRAD_CPU_PLATFORM says is part of its platform's name and version, or PoCL's."""
    wanted = os.environ.get("WEFTGRAD_CPU_PLATFORM", "")
    named = [i for i in infos if wanted.lower() in f"{i.platform} {i.handle.platform.version}".lower()]
    if not named:
        known = ", ".join(dict.fromkeys(repr(info.platform) for info in infos))
        raise DriverNotFound(
            f"WEFTGRAD_CPU_PLATFORM={wanted}: no platform with a CPU has that in its name; set it to a part of {known}"
        )
    return min(named, key=lambda info: (info.partner is None, "Portable" not in info.platform))


class CpuDriver(HostDriver):
    """The `cpu` device. `require()` opens OpenCL and raises `DriverNotFound` with the remedy where it cannot."""

    target = "opencl"

    def __init__(self, device: Device):
        super().__init__(device)
        self.name = "host memory"
        self.identity = ""  # of the driver, once it is open
        self.opened = False
        self._lock = threading.RLock()
        self._calls: Functions | None = None  # how kernels are called (`workgroups`), where they can be
        self._functions: dict[Instance, Any] = {}  # those that were called
        self._helpers = 0  # how many threads share steps with the calling one
        self._retired: deque[tuple[Any, ...]] = deque()  # owner, buffer, the last event when it was retired
        self._streams: list[CpuStream] = []
        self.default_stream = self.new_stream()

    # opening

    def require(self) -> None:
        """Open OpenCL if that has not happened."""
        if self.opened:
            return
        with self._lock:
            if not self.opened:
                self._open()

    def _open(self) -> None:
        from . import opencl

        infos = [info for info in opencl.devices() if not info.is_gpu and info.handle.type & opencl.cl.device_type.CPU]
        if not infos:
            raise DriverNotFound("ops on 'cpu' need an OpenCL CPU driver: pip install 'pyopencl[pocl]'")
        info = _chosen(infos)
        handles = [info.handle] + ([info.partner] if info.partner is not None else [])
        self._opencl = opencl
        self._capabilities = opencl.capabilities_of(info)
        self.context = opencl.cl.Context(handles)
        self.compiler = opencl.Compiler(self.context, info.handle, self._capabilities)
        self.quick_compiler = (
            opencl.Compiler(self.context, info.partner, self._capabilities) if info.partner is not None else None
        )
        self._handles = handles
        self.name = info.name.removeprefix("pthread-")
        self.identity = opencl.identity_of(info)
        self.opened = True
        atexit.register(self._finish)
        for stream in self._streams:
            stream.open()
        self._try_calls(info)

    def _try_calls(self, info: Any) -> None:
        """Find out whether kernels can be called, and how."""
        opencl, stream = self._opencl, self.default_stream
        cl, context, able = opencl.cl, self.context, self._capabilities
        if self.quick_compiler is not None:
            calls: Functions = Named(self.quick_compiler, info.handle.platform.version)
            if not can_call(cl, context, stream.quick, calls):
                return
        else:
            ways = [(able, "")]
            if has_avx512():  # then our own functions are the faster ones
                ways.insert(0, (replace(able, builtins=False), "-DWG_ASSEMBLER512"))
            for capabilities, option in ways:
                compiler = opencl.Compiler(context, info.handle, capabilities, True, option)
                calls = Placed(cl, context, stream.queue, compiler)
                with suppress(CompileError, cl.Error):  # of a compiler that does not know what is needed
                    if can_call(cl, context, stream.queue, calls):
                        break
            else:
                return
            self.compiler, self._capabilities = compiler, capabilities
        self._calls, self._helpers = calls, cores() - 1
        for each in self._streams:
            each.open()  # queues for calls, too

    def _finish(self) -> None:
        """The process ends: wait for what is queued, since the memory under it goes with the interpreter."""
        with suppress(ForkError, self._opencl.cl.Error):
            self.synchronize()

    @property
    def capabilities(self) -> Capabilities:
        self.require()
        return self._capabilities

    def check_fork(self) -> None:
        if self.opened:
            self._opencl.check_fork()

    def queues(self) -> tuple[Any, Any]:
        """A pooled queue and, where the calling thread runs kernels, a queue for that."""
        cl, flags = self._opencl.cl, self._opencl.queue_flags
        made = [cl.CommandQueue(self.context, handle, properties=flags) for handle in self._handles]
        return made[0], made[-1] if len(made) > 1 or self._calls is not None else None

    def addresses(self, *queues: Any) -> list[int]:
        """Of queues, for launches from C."""
        return [self._opencl.address(queue) for queue in queues]

    def marker(self, queue: Any) -> Any:
        made = self._opencl.cl.enqueue_marker(queue)
        queue.flush()
        return made

    def barrier(self, queue: Any, mark: Any) -> Any:
        return self._opencl.cl.enqueue_barrier(queue, wait_for=[mark])

    # memory

    def buffer_over(self, array: np.ndarray[Any, Any]) -> Any:
        cl = self._opencl.cl
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=array)

    def buffer_of(self, array: np.ndarray[Any, Any]) -> Any:
        return self.buffer_over(array) if self.opened else None

    def drop_buffer(self, buffer: Any) -> None:
        buffer.release()

    def attach(self, storage: Storage) -> Any:
        """Give a storage its buffer, if it was made before the driver was open."""
        self.require()
        if storage.block is None:
            storage.buffer = self.buffer_over(storage.owner)
        else:
            segment = storage.block.segment.handle
            if segment.buffer is None:
                segment.buffer = self.buffer_over(segment.array)
            storage.buffer = segment.buffer
        return storage.buffer

    def retire(self, owner: Any, buffer: Any) -> None:
        """Keep foreign memory until work that may use it is done. Called when its storage dies."""
        retired = self._retired
        try:
            while retired[0][2].command_execution_status <= 0:
                retired.popleft()
        except IndexError:  # none left; a finalizer of another thread may have taken it
            pass
        pending = self.default_stream.pending
        if buffer is not None and pending is not None and pending.command_execution_status > 0:
            retired.append((owner, buffer, pending))

    def wait_for(self, storage: Storage) -> None:
        """Wait until nothing that was queued uses `storage`; what was queued after that goes on."""
        event = storage.pending
        if event is not None:
            self.check_fork()
            event.wait()
            if storage.pending is event:
                storage.pending = None

    # streams

    def new_stream(self) -> CpuStream:
        made = CpuStream(self)
        self._streams.append(made)
        return made

    def new_event(self, timing: bool) -> Any:
        self.require()
        return self._opencl.OpenCLEvent(self, timing)  # type: ignore[arg-type]

    def synchronize(self) -> None:
        for stream in self._streams:
            stream.synchronize()
        self._retired.clear()

    # launching

    def build(self, instances: Sequence[Instance]) -> int:
        self.require()
        return self.compiler.build(instances) + (self.quick_compiler.build(instances) if self.quick_compiler else 0)

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """A function `run(tensors, scalars, stream)` for this thread, that enqueues `steps` in order."""
        self.require()
        self.check_fork()
        runs = [self._prepare(step) for step in steps]
        if len(runs) == 1 and not scratch:
            return runs[0]
        wrap = self._opencl.Scratch

        def run(tensors: list[Any], scalars: Sequence[Any], stream: CpuStream) -> None:
            everything = [*tensors, *[wrap(self.allocate(n, stream)) for n in scratch]]
            for each in runs:
                each(everything, scalars, stream)

        return run

    def is_quick(self, step: Step) -> bool:
        """Whether the calling thread runs a step, unless workers have something to do."""
        return (self.quick_compiler is not None and step.work <= SMALL) or self._is_called(step)

    def compiler_of(self, step: Step) -> Any:
        """The compiler of the device on which a step is launched first."""
        return self.quick_compiler if self.quick_compiler is not None and self.is_quick(step) else self.compiler

    def _is_called(self, step: Step) -> bool:
        """Whether a step's kernel is called as a function."""
        calls = self._calls
        if calls is None or calls.compiler is not (self.quick_compiler or self.compiler):
            return False
        if step.local_size is None or math.prod(step.local_size) > 1 or math.prod(step.global_size) > MOST_ITEMS:
            return False
        return "printf" not in step.instance.text and calls.has(step.instance)

    def _function(self, step: Step) -> Any:
        """The kernel of a step as a function, None where it is not called."""
        if self._calls is None or not self._is_called(step):
            return None
        found = self._functions.get(step.instance)
        if found is None:
            found = self._functions[step.instance] = self._calls.function(step.instance)
        return found

    def _prepare(self, step: Step) -> Callable[..., None]:
        return self._prepare_small(step) if self.is_quick(step) else self._prepare_large(step)

    def _prepare_large(self, step: Step) -> Callable[..., None]:
        kernel = self.compiler.kernel(step.instance)
        arguments = self._opencl.bind(kernel, step)
        opencl, size, local = self._opencl, step.global_size, step.local_size
        failure = opencl.cl.Error
        used = step.buffers

        def run(tensors: list[Any], scalars: Sequence[Any], stream: CpuStream) -> None:
            arguments(tensors, scalars)
            try:
                stream.pending = event = opencl.enqueue(stream.queue, kernel, size, local)
            except failure as error:
                raise launch_error(step.instance.name, step, self.name, error) from error
            for i in used:
                tensors[i].storage.pending = event
            if any(getattr(tensors[i].storage, "owner", None) is not None for i in used):
                event.wait()  # NumPy's arrays see these bytes, too, and ask nobody
            self.counter.value += 1

        return native.launcher(kernel, step, run, self.counter, WORKERS)

    def _prepare_small(self, step: Step) -> Callable[..., None]:
        kernel = (self.quick_compiler or self.compiler).kernel(step.instance)
        large: Callable[..., None] | None = None

        def busy(stream: CpuStream) -> bool:
            """Whether the pooled queue has work, behind which this must wait."""
            pending = stream.pending
            return stream.quick is None or (pending is not None and pending.command_execution_status > 0)

        def pooled(tensors: list[Any], scalars: Sequence[Any], stream: CpuStream) -> None:
            nonlocal large
            large = large or self._prepare_large(step)
            large(tensors, scalars, stream)

        def told(error: Exception) -> Exception:
            return launch_error(step.instance.name, step, self.name, error)

        if step.work > SMALL or self.quick_compiler is None:  # what C does not call is for the workers
            run: Callable[..., None] = pooled
        else:
            head = ["if (stream.pending is not None or stream.quick is None) and busy(stream):",
                    "    return pooled(tensors, scalars, stream)"]  # fmt: skip
            tail = ["try:", "    opencl.enqueue(stream.quick, kernel, size, local)", "except failure as problem:",
                    "    raise told(problem) from problem", "counter.value += 1"]  # fmt: skip
            names = {
                "busy": busy, "pooled": pooled, "told": told, "opencl": self._opencl, "kernel": kernel,
                "size": step.global_size, "local": step.local_size, "failure": self._opencl.cl.Error,
                "counter": self.counter,
            }  # fmt: skip
            run = bind_launch(kernel, step, head, tail, names)
        divides = not any(name in step.instance.text for name in ("get_global_size", "get_num_groups"))
        return native.launcher(
            kernel, step, run, self.counter, CALLING, self._function(step), self._helpers, divides, step.work > HELD
        )
