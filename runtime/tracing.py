"""What a profiler hears: calls on the host, and kernels on devices with the times at which they ran.

Nothing here is on the way of a call while nobody records. Each backend queues kernels by one function that it looks up
at every launch; a recording puts another in its place, which notes the launch and asks the device for times:

    OpenCL       events of a queue that profiles, which streams are given for as long as a recording lasts
    CUDA         an event before and one behind each kernel
    cpu, interpreter  the host's clock, as the kernel is done when the launch returns

Times are nanoseconds of `time.perf_counter_ns`; a device's clock is brought to it where the recording begins and ends.
One recording at a time: a device's queue has one form.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .device import known_devices
from .errors import ArgumentError, DriverNotFound

__all__ = ["Launch", "Recording", "Span", "current", "drivers", "now"]

now = time.perf_counter_ns
current: Recording | None = None
"""The recording that lasts, if there is one."""
_lock = threading.Lock()


@dataclass(slots=True)
class Launch:
    """A kernel that was queued.

    device: `cuda:0`. stream: a number for each queue of the device. queued, returned: when the host began and had
    done; begin, end: when the device ran it, None where that is not known (a device that was opened in between).
    """

    name: str
    device: str
    stream: int
    thread: int
    queued: int
    returned: int
    begin: int | None = None
    end: int | None = None


@dataclass(slots=True)
class Span:
    """Something the host did. category: `op`, `backward`, `annotation`, `copy`, `compile`.

    shapes, stack: where they are recorded. memory: bytes by which what is in use on `device` grew meanwhile.
    """

    name: str
    category: str
    thread: int
    begin: int
    end: int
    shapes: tuple[Any, ...] | None = None
    stack: tuple[str, ...] = ()
    device: str = ""
    memory: int = 0


@dataclass(slots=True)
class Level:
    """What a device's pools held at one moment, in bytes."""

    at: int
    device: str
    allocated: int
    reserved: int


class Tracer(Protocol):
    """A backend's part. `stop` waits for the device and completes the times of launches."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass
class Recording:
    """Launches and spans, from `start` to `stop`; everything in the order in which it ended."""

    launches: list[Launch] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    _undo: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Begin. No other thread may launch kernels meanwhile. Raises `ArgumentError` if another recording lasts."""
        global current
        with _lock:
            if current is not None:
                raise ArgumentError("profiler: another profile lasts in this process; stop it first")
            current = self
        try:
            for made in _tracers(self.launches):
                self._undo.callback(made.stop)
                made.start()
            for driver in drivers():
                self._watch(driver)
        except BaseException:
            self.stop()
            raise
        self.begin = now()

    def stop(self) -> None:
        """End: wait for the devices, and complete the launches' times."""
        global current
        self.end = now()
        try:
            self._undo.close()  # everything, also where a device has failed meanwhile
        finally:
            with _lock:
                current = None

    @contextmanager
    def span(self, name: str, category: str) -> Iterator[None]:
        """Note what the host does in here."""
        begin = now()
        try:
            yield
        finally:
            self.spans.append(Span(name, category, threading.get_ident(), begin, now()))

    def level(self, driver: Any) -> int:
        """Note what the device's pools hold now, if that changed; bytes in use."""
        stats, device = driver.budget.stats(), str(driver.device)
        last = next((e for e in reversed(self.levels) if e.device == device), None)
        if last is None or (last.allocated, last.reserved) != (stats.allocated, stats.reserved):
            self.levels.append(Level(now(), device, stats.allocated, stats.reserved))
        return int(stats.allocated)

    def backward(self, step: Any) -> Any:
        """`step(node)` of the engine, noted with the name of the call whose gradient it is."""

        def noted(node: Any) -> None:
            record = getattr(node.recipe, "record", None)
            with self.span(f"{getattr(record, 'name', 'function')}_backward", "backward"):
                step(node)

        return noted

    def _watch(self, driver: Any) -> None:
        """Copies between host and device, and compilers at work: methods of the driver, shadowed on the instance."""
        for name, words in (("write", "copy to"), ("read", "copy from")):
            self._shadow(driver, name, f"{words} {driver.device}", "copy")
        compiler = getattr(driver, "compiler", None)
        if hasattr(compiler, "_program"):
            self._shadow(compiler, "_program", f"compile for {driver.device}", "compile")
        store = getattr(getattr(getattr(driver, "road", None), "kernels", None), "store", None)
        if store is not None:
            self._shadow(store, "compile", f"compile for {driver.device}", "compile")

    def _shadow(self, owner: Any, name: str, words: str, category: str) -> None:
        method = getattr(owner, name)

        def noted(*given: Any, **named: Any) -> Any:
            with self.span(words, category):
                return method(*given, **named)

        setattr(owner, name, noted)
        self._undo.callback(delattr, owner, name)


def drivers() -> list[Any]:
    """Of every device that was opened."""
    return [device._driver for device in known_devices() if device._driver is not None]


def _tracers(launches: list[Launch]) -> list[Tracer]:
    """Those of the backends that can be used here."""
    from .backends import cuda_api
    from .backends.cpu.launching import CpuTracer
    from .backends.interpreter import InterpreterTracer

    found: list[Tracer] = [CpuTracer(launches), InterpreterTracer(launches)]
    try:
        from .backends.opencl_tracing import OpenCLTracer

        found.append(OpenCLTracer(launches))
    except DriverNotFound:  # no pyopencl: no such device either
        pass
    if cuda_api.may_exist():
        from .backends.cuda_tracing import CudaTracer

        found.append(CudaTracer(launches))
    return found
