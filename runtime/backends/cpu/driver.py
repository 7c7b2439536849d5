"""The driver of `cpu`: streams and events over host memory, and the executor that runs kernels.

The executor is a `launching.ClangExecutor`, or a `fallback.OpenCLExecutor` if there is no clang.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ... import native
from ...device import Device
from ...errors import DriverNotFound
from ...pool import Pool
from ...storage import Storage
from .. import processor
from ..host import HostDriver, HostEvent
from ..overrides import override
from ..protocol import Capabilities, Event, Instance, Step
from ..queues import QueueStream
from ..targets import instances_of
from .launching import ClangExecutor
from .objects import open_store

__all__ = ["CpuDriver", "CpuStream", "capabilities_here"]

_MAX_GROUP = 4096


class Executor(Protocol):
    """Compiles and launches the kernels of the device. identity: the key of stored timings. name: the display name."""

    identity: str
    name: str

    @property
    def has_queued_launches(self) -> bool:
        """Whether launches wait for their kernels to be compiled."""

    def prepare(self, step: Step) -> Callable[..., None]:
        """Return `run(tensors, scalars, stream)` for a planned step."""

    def build(self, instances: Sequence[Instance]) -> int:
        """Compile missing kernels, wait for them, and return their number."""

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has a kernel."""

    def synchronize(self) -> None:
        """Wait until every launch so far is done."""

    def wait_for(self, storage: Storage) -> None:
        """Wait until no launch uses a storage."""


class CpuStream(QueueStream):
    """A stream with its own memory pool. All streams share one order of work: waiting for one waits for all."""

    __slots__ = ("driver",)

    def __init__(self, driver: CpuDriver):
        super().__init__(Pool(driver.memory, driver.budget, self, "cpu"))
        self.driver = driver

    @property
    def device(self) -> Device:
        return self.driver.device

    def synchronize(self) -> None:
        self.driver.synchronize()

    def query(self) -> bool:
        """Return whether everything launched so far is done."""
        executor = self.driver.executor
        return executor is None or not executor.has_queued_launches

    def record_event(self, event: Event | None = None) -> HostEvent:
        """Wait for all launches, including the compilation of their kernels, and record the time."""
        event = event or HostEvent()
        assert isinstance(event, HostEvent)
        self.driver.synchronize()
        event.time = time.perf_counter()
        return event

    def wait_event(self, event: Event) -> None:
        """Do nothing: recording the event has waited for the work."""

    def wait_stream(self, other: CpuStream) -> None:
        """Do nothing: all streams run in the order of calls."""


def capabilities_here() -> Capabilities:
    """Return this processor's capabilities; `WEFTGRAD_CAPABILITIES` overrides fields for tests, as in `lanes=8`."""
    lanes, registers = processor.vector_registers(processor.best_instruction_set())
    caps = Capabilities(
        style="cpu",
        cores=processor.cores(),
        lanes=lanes,
        max_group=_MAX_GROUP,
        stream=processor.stream_threshold(),
        stream_rows=processor.stream_rows_threshold(),
        ahead=not processor.is_amd(),
        registers=registers,
    )
    return override(caps, os.environ.get("WEFTGRAD_CAPABILITIES", ""))


class CpuDriver(HostDriver):
    """The `cpu` device. Memory works without an executor; `require()` finds one or raises `DriverNotFound`."""

    target = "opencl"  # kernels use OpenCL's source texts

    def __init__(self, device: Device):
        super().__init__(device)
        self.name = processor.model_name()
        self.executor: Executor | None = None
        self._capabilities: Capabilities | None = None
        self._lock = threading.RLock()
        self.default_stream = self.new_stream()

    # opening

    @property
    def opened(self) -> bool:
        return self.executor is not None

    def require(self) -> Executor:
        """Return the executor. The first call finds a compiler or an OpenCL CPU driver.

        Raises:
            DriverNotFound: There is neither. The message names the processor, the causes and the remedy.
        """
        if self.executor is None:
            with self._lock:
                if self.executor is None:
                    self.executor = self._open()
        return self.executor

    def _open(self) -> Executor:
        notes: list[str] = []
        if self.capabilities.takes_runs:
            store = open_store(self.capabilities, notes)
            if store is not None:
                return ClangExecutor(store, self.counter)
        try:
            from .fallback import OpenCLExecutor  # lazy: optional dependency (pyopencl)

            executor = OpenCLExecutor(self.counter)
        except (DriverNotFound, AttributeError, OSError) as error:  # an OpenCL library without the required functions
            notes.append(str(error))
            causes = "; ".join(notes)
            raise DriverNotFound(
                f"nothing compiles kernels for 'cpu' ({self.name}, {processor.best_instruction_set()}): {causes}. "
                "Remedy: pip install ziglang; `weftgrad doctor` shows more"
            ) from error
        self._capabilities = executor.capabilities
        return executor

    @property
    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            self._capabilities = capabilities_here()
        return self._capabilities

    @property
    def identity(self) -> str:
        """The key of stored timings: the compiler, its target and the processor."""
        return self.require().identity

    # memory

    def retire(self, owner: object, buffer: object) -> None:
        """Do nothing: launches that use this foreign memory are done."""

    def wait_for(self, storage: Storage) -> None:
        """Wait until nothing that was launched uses `storage`."""
        if self.executor is not None:
            self.executor.wait_for(storage)

    # streams

    def new_stream(self) -> CpuStream:
        return CpuStream(self)

    def new_event(self, timing: bool) -> HostEvent:
        return HostEvent(timing)

    def synchronize(self) -> None:
        if self.executor is not None:
            self.executor.synchronize()

    # launching

    def build(self, planned: Sequence[Step | Instance]) -> int:
        return self.require().build(instances_of(planned))

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has a kernel."""
        return self.require().is_cached(instance)

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """Return `run(tensors, scalars, stream)` that launches `steps` in order.

        Args:
            steps: the planned launches.
            scratch: sizes in bytes of temporary buffers, allocated at each call.
        """
        executor = self.require()
        return native.sequence(self, [executor.prepare(step) for step in steps], scratch)
