"""Record activities of the host and kernels of devices, with their start and end times, for the profiler.

Without a recording, calls have no overhead. Each backend looks up the function that queues a kernel at every launch. A
recording replaces this function by one that also records the launch. A kernel's start and end times come from:

    OpenCL            events of a profiling queue, which streams use during the recording
    CUDA              one event before and one after each kernel
    cpu, interpreter  the host's clock, read before and after the call of the kernel

Times are nanoseconds of `time.perf_counter_ns`. Device clocks are aligned with it at the start and at the end of the
recording. There is only one recording at a time, because it replaces the queues of the devices.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .device import open_drivers
from .errors import ArgumentError, DriverNotFound
from .launches import Launch, Tracer, now

if TYPE_CHECKING:
    from .autograd.node import Node
    from .backends.protocol import Driver
    from .tensor import Tensor

__all__ = ["Level", "Recording", "Span", "current"]

current: Recording | None = None
"""The active recording, or None."""
_lock = threading.Lock()


@dataclass(slots=True)
class Span:
    """An activity of the host.

    Attributes:
        category: `op`, `backward`, `annotation`, `copy` or `compile`.
        shapes: Shapes of the operands, if they are recorded.
        stack: The call stack, if it is recorded.
        memory: Bytes by which the memory in use on `device` grew.
    """

    name: str
    category: str
    thread: int
    begin: int
    end: int
    shapes: tuple[Sequence[int] | str, ...] | None = None
    stack: tuple[str, ...] = ()
    device: str = ""
    memory: int = 0


@dataclass(slots=True)
class Level:
    """Memory of a device's pools in bytes, in use (`allocated`) and held (`reserved`), at the time `at`."""

    at: int
    device: str
    allocated: int
    reserved: int


@dataclass
class Recording:
    """The launches and spans from `start` to `stop`.

    Launches are in the order in which the host made them, spans in the order in which they ended.

    Attributes:
        on_gradient: Called in a backward pass with each leaf that a step has computed a gradient for; several times for
            a leaf with several uses, of which the last completes its gradient.
    """

    launches: list[Launch] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    on_gradient: Callable[[Tensor], None] | None = None
    _undo: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Start recording. No other thread may launch kernels during this call.

        Raises:
            ArgumentError: Another recording is active.
        """
        global current
        with _lock:
            if current is not None:
                raise ArgumentError("profiler: another profile lasts in this process; stop it first")
            current = self
        try:
            for tracer in _tracers(self.launches):
                self._undo.callback(tracer.stop)
                tracer.start()
            for driver in open_drivers():
                self._watch(driver)
        except BaseException:
            self.stop()
            raise
        self.begin = now()

    def stop(self) -> None:
        """Stop recording: wait for the devices, and fill in the times of the launches."""
        global current
        self.end = now()
        try:
            self._undo.close()  # undoes everything, even if a device has failed
        finally:
            with _lock:
                current = None

    @contextmanager
    def span(self, name: str, category: str) -> Iterator[None]:
        """Record the body of the `with` statement as a span."""
        begin = now()
        try:
            yield
        finally:
            self.spans.append(Span(name, category, threading.get_ident(), begin, now()))

    def level(self, driver: Driver) -> int:
        """Record the memory of the device's pools if it has changed; return the bytes in use."""
        stats, device = driver.budget.stats(), str(driver.device)
        last_level = next((level for level in reversed(self.levels) if level.device == device), None)
        if last_level is None or (last_level.allocated, last_level.reserved) != (stats.allocated, stats.reserved):
            self.levels.append(Level(now(), device, stats.allocated, stats.reserved))
        return int(stats.allocated)

    def backward(self, step: Callable[[Node], None]) -> Callable[[Node], None]:
        """Wrap the engine's `step(node)` so that each step becomes a span with the name of the forward op."""

        def recorded_step(node: Node) -> None:
            record = getattr(node.recipe, "record", None)
            leaves: list[Tensor] = []
            if self.on_gradient is not None:  # before the step, which releases the edges
                leaves = [target for target, _ in node.edges if not hasattr(target, "recipe")]
            with self.span(f"{getattr(record, 'name', 'function')}_backward", "backward"):
                step(node)
            if self.on_gradient is not None:
                for leaf in leaves:
                    self.on_gradient(leaf)

        return recorded_step

    def _watch(self, driver: Driver) -> None:
        """Record copies and compilations by replacing methods of the driver and of its compiler."""
        for name, prefix in (("write", "copy to"), ("read", "copy from")):
            self._shadow(driver, name, f"{prefix} {driver.device}", "copy")
        compiler = getattr(driver, "compiler", None)
        if hasattr(compiler, "_program"):
            self._shadow(compiler, "_program", f"compile for {driver.device}", "compile")
        store = getattr(getattr(getattr(driver, "executor", None), "kernels", None), "store", None)
        if store is not None:
            self._shadow(store, "compile", f"compile for {driver.device}", "compile")

    def _shadow(self, owner: object, name: str, span_name: str, category: str) -> None:
        """Replace `owner.name` by a method that records a span around the original. `stop` restores it."""
        method = getattr(owner, name)

        def recorded_method(*args: object, **kwargs: object) -> object:
            with self.span(span_name, category):
                return method(*args, **kwargs)

        setattr(owner, name, recorded_method)
        self._undo.callback(delattr, owner, name)


def _tracers(launches: list[Launch]) -> list[Tracer]:
    """Return the tracers of the backends that are available."""
    # lazy: start-up
    from .backends import cuda_api
    from .backends.cpu.launching import CpuTracer
    from .backends.interpreter import InterpreterTracer

    tracers: list[Tracer] = [CpuTracer(launches), InterpreterTracer(launches)]
    try:
        from .backends.opencl_tracing import OpenCLTracer  # lazy: optional dependency (pyopencl)

        tracers.append(OpenCLTracer(launches))
    except DriverNotFound:  # without pyopencl there are no OpenCL devices to trace
        pass
    if cuda_api.may_exist():
        from .backends.cuda_tracing import CudaTracer  # lazy: optional dependency (cuda)

        tracers.append(CudaTracer(launches))
    return tracers
