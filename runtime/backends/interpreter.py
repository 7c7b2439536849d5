"""The `interpreter` device: the Triton target's kernels on host memory, run by Triton's interpreter.

It proves kernels where there is no GPU: every access and every promise of alignment is checked (`runtime.triton.
interpret`). A program costs about a millisecond however many elements it has, so blocks are large; the capabilities
are those of an sm_90 otherwise, and `WEFTGRAD_INTERPRETER` (as in `block=64,sm=80`) overrides them for tests.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..device import Device
from ..errors import DriverNotFound, LaunchError
from ..pool import Pool
from ..storage import Storage
from ..tracing import Launch
from ..triton import source
from ..triton.signature import signature
from .arguments import Scratch, fit
from .host import HostDriver
from .overrides import override
from .protocol import Capabilities, Instance, Step

__all__ = ["InterpreterDriver", "InterpreterEvent", "InterpreterStream", "InterpreterTracer", "check_version"]

_OLDEST, _NEWER = (3, 6), (3, 10)
_ALIGNMENT = 16


def check_version(version: str) -> None:
    """Raise `DriverNotFound` for a Triton that the interpreter is not fitted to; empty means that there is none."""
    if not version:
        raise DriverNotFound(
            "the interpreter device needs triton, which is not installed: pip install 'weftgrad[cuda]'"
        )
    found = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if not _OLDEST <= found < _NEWER:
        raise DriverNotFound(
            f"the interpreter device needs triton >=3.6,<3.10, and {version} is installed: pip install 'weftgrad[cuda]'"
        )


class InterpreterEvent:
    """A point in a stream, passed by the time it exists."""

    def __init__(self, timing: bool = False):
        self.timing = timing
        self.at: float | None = None

    def record(self, stream: InterpreterStream) -> None:
        stream.record_event(self)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing is ever queued."""

    def elapsed_time(self, end: InterpreterEvent) -> float:
        """Milliseconds from this event to `end`; both must be timing events that were recorded."""
        if self.at is None or end.at is None or not (self.timing and end.timing):
            raise LaunchError("elapsed_time needs two recorded events made with enable_timing=True")
        return (end.at - self.at) * 1e3


class InterpreterStream:
    """Work that is done when the call returns, with a pool of its own as other devices' streams have."""

    def __init__(self, driver: InterpreterDriver):
        self.driver = driver
        self.pool = Pool(driver.memory, driver.budget, self, str(driver.device))

    @property
    def device(self) -> Device:
        return self.driver.device

    def synchronize(self) -> None:
        """Nothing is ever queued."""

    def query(self) -> bool:
        return True

    def record_event(self, event: InterpreterEvent | None = None) -> InterpreterEvent:
        event = event or InterpreterEvent()
        event.at = time.perf_counter()
        return event

    def wait_event(self, event: InterpreterEvent) -> None:
        """Nothing is ever queued."""

    def wait_stream(self, other: InterpreterStream) -> None:
        """Nothing is ever queued."""


class InterpreterDriver(HostDriver):
    """The `interpreter` device. `overrides` are capabilities to claim (see `overrides.override`)."""

    target = "triton"

    def __init__(self, device: Device, overrides: str | None = None):
        from ..triton.compile import compiler_version

        version = compiler_version()
        check_version(version)
        super().__init__(device)
        self.name = f"Triton {version}'s interpreter"
        claimed = Capabilities(
            style="triton", cores=4, lanes=4, fp16=True, local_memory=227 * 1024, sm=90, block=65536, memory=0
        )
        self.capabilities = override(
            claimed, os.environ.get("WEFTGRAD_INTERPRETER", "") if overrides is None else overrides
        )
        self.default_stream = self.new_stream()

    # memory

    def retire(self, owner: Any, buffer: Any) -> None:
        """Foreign memory may go: no work is pending."""

    def wait_for(self, storage: Storage) -> None:
        """Nothing is ever queued."""

    # streams

    def new_stream(self) -> InterpreterStream:
        return InterpreterStream(self)

    def new_event(self, timing: bool) -> InterpreterEvent:
        return InterpreterEvent(timing)

    def synchronize(self) -> None:
        """Nothing is ever queued."""

    # launching

    def build(self, planned: Sequence[Step | Instance]) -> int:
        """Read the kernels' texts; how many there were."""
        for each in planned:
            _kernel(each.instance if isinstance(each, Step) else each)
        return len(planned)

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """A function `run(tensors, scalars, stream)` that runs `steps` in order, and returns when they are done."""
        runs = [self._prepare(step) for step in steps]

        def run(tensors: list[Any], scalars: Sequence[Any], stream: InterpreterStream) -> None:
            everything = [*tensors, *[Scratch(self.allocate(n, stream)) for n in scratch]]
            for each in runs:
                each(everything, scalars)

        return run

    def _prepare(self, step: Step) -> Callable[[list[Any], Sequence[Any]], None]:
        from ..triton.interpret import launch

        kernel = _kernel(step.instance)
        found = {aligned: signature(step, aligned) for aligned in (False, True)}
        types = found[True].types
        fixed = [value for value in step.geometry if value != ()]
        integers = len(step.integers)
        declared = [name for name, type in types.items() if type != "constexpr"]

        def run(tensors: list[Any], scalars: Sequence[Any]) -> None:
            regions = [_region(tensors[i]) for i in step.buffers]
            numbers = tuple(fit(step, scalars))
            values = iter([*regions, *fixed])
            given = {"integers": numbers[:integers], "numbers": numbers[integers:]}
            arguments = [given[name] if name in given else next(values) for name in declared]
            reach = [_region(t) for t in tensors[len(step.buffers) :]] if step.reaches else ()
            aligned = all(region.address % _ALIGNMENT == 0 for region in regions)
            begin = time.perf_counter_ns()
            launch(
                kernel,
                step.global_size,
                types,
                arguments,
                constants=found[aligned].constants,
                divisible=found[aligned].divisible,
                reach=reach,
                name=step.instance.name,
            )
            self.counter.value += 1
            if InterpreterTracer.launches is not None:
                end, thread = time.perf_counter_ns(), threading.get_ident()
                entry = step.instance.entry
                InterpreterTracer.launches.append(Launch(entry, str(self.device), 0, thread, begin, end, begin, end))

        return run


class InterpreterTracer:
    """Notes launches by the host's clock (`runtime.tracing`)."""

    launches: ClassVar[list[Launch] | None] = None

    def __init__(self, launches: list[Launch]):
        self._launches = launches

    def start(self) -> None:
        InterpreterTracer.launches = self._launches

    def stop(self) -> None:
        InterpreterTracer.launches = None


def _kernel(instance: Instance) -> Any:
    return source.functions(source.module_text(instance))[instance.entry]


def _region(tensor: Any) -> Any:
    """A tensor's memory: from its first element to the last, not all of the storage that it may be part of."""
    from ..triton.interpret import Region

    storage = tensor.storage
    address = (storage.buffer or 0) + tensor.start
    layout = getattr(tensor, "meta", None)
    if layout is None:  # scratch
        return Region("", address, address, address + storage.nbytes)
    if not layout.numel:
        return Region("", address, address, address)
    size = layout.dtype.itemsize
    reach = [(n - 1) * s * size for n, s in zip(layout.shape, layout.strides, strict=True)]
    low = address + sum(r for r in reach if r < 0)
    return Region("", address, low, address + sum(r for r in reach if r > 0) + size)
