"""The `interpreter` device: Triton kernels on host memory, run by Triton's interpreter.

It tests Triton kernels without a GPU: every memory access and every alignment assumption is checked
(`runtime.triton.interpret`). A program takes about a millisecond for any number of elements, so blocks are large.
Otherwise the capabilities are those of an sm_90 GPU; `WEFTGRAD_INTERPRETER` (`block=64,sm=80`) overrides them in tests.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..device import Device
from ..errors import DriverNotFound
from ..launches import Launch
from ..storage import Storage
from ..triton import source
from ..triton.signature import signature
from .arguments import MissWord, Scratch, fit, launch_in_order
from .host import HostDriver, HostEvent, SynchronousStream
from .overrides import override
from .protocol import Capabilities, Instance, Step

if TYPE_CHECKING:
    from ..tensor import Tensor
    from ..triton.interpret import Region

__all__ = ["InterpreterDriver", "InterpreterTracer", "check_version"]

_MIN_VERSION, _END_VERSION = (3, 6), (3, 10)
_ALIGNMENT = 16


def check_version(version: str) -> None:
    """Raise `DriverNotFound` for a Triton version that is not supported; an empty version means not installed."""
    if not version:
        raise DriverNotFound(
            "the interpreter device needs triton, which is not installed: pip install 'weftgrad[cuda]'"
        )
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if not _MIN_VERSION <= numbers < _END_VERSION:
        raise DriverNotFound(
            f"the interpreter device needs triton >=3.6,<3.10, and {version} is installed: pip install 'weftgrad[cuda]'"
        )


class InterpreterDriver(HostDriver):
    """The `interpreter` device. overrides: capabilities to replace (see `overrides.override`)."""

    target = "triton"

    def __init__(self, device: Device, overrides: str | None = None):
        from ..triton.compile import compiler_version  # lazy: start-up

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
        self.miss_word = MissWord(np.zeros(1, np.int64))

    # memory

    def retire(self, owner: object, buffer: object) -> None:
        """Do nothing: no work is pending."""

    def wait_for(self, storage: Storage) -> None:
        """Do nothing: a launch has returned when its work is done."""

    # streams

    def new_stream(self) -> SynchronousStream:
        return SynchronousStream(self.device, self.memory, self.budget)

    def new_event(self, timing: bool) -> HostEvent:
        return HostEvent(timing)

    def synchronize(self) -> None:
        """Do nothing: a launch has returned when its work is done."""

    # launching

    def build(self, planned: Sequence[Step | Instance]) -> int:
        """Parse and define the kernels. Return their number."""
        for item in planned:
            _kernel(item.instance if isinstance(item, Step) else item)
        return len(planned)

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """Return a function `run(tensors, scalars, stream)` that runs `steps` in order before it returns."""
        return launch_in_order(self, [self._prepare(step) for step in steps], scratch)

    def _prepare(self, step: Step) -> Callable[..., None]:
        from ..triton.interpret import launch  # lazy: optional dependency (triton)

        kernel = _kernel(step.instance)
        signatures = {aligned: signature(step, aligned) for aligned in (False, True)}
        types = signatures[True].types
        geometry = [value for value in step.geometry if value != ()]
        integers = len(step.integers)
        declared = [name for name, type in types.items() if type != "constexpr"]

        def run(
            tensors: Sequence[Tensor | Scratch | MissWord], scalars: Sequence[float], stream: SynchronousStream
        ) -> None:
            regions = [_region(tensors[i]) for i in step.buffers]
            numbers = tuple(fit(step, scalars))
            values = iter([*regions, *geometry])
            packed = {"integers": numbers[:integers], "numbers": numbers[integers:]}
            arguments = [packed[name] if name in packed else next(values) for name in declared]
            reachable = [_region(t) for t in tensors[len(step.buffers) :]] if step.reaches else ()
            aligned = all(region.address % _ALIGNMENT == 0 for region in regions)
            begin = time.perf_counter_ns()
            launch(
                kernel,
                step.global_size,
                types,
                arguments,
                constants=signatures[aligned].constants,
                divisible=signatures[aligned].divisible,
                reachable=reachable,
                name=step.instance.name,
            )
            self.counter.value += 1
            if InterpreterTracer.launches is not None:
                end, thread = time.perf_counter_ns(), threading.get_ident()
                entry = step.instance.entry
                InterpreterTracer.launches.append(Launch(entry, str(self.device), 0, thread, begin, end, begin, end))

        return run


class InterpreterTracer:
    """Records launches by the host's clock (`runtime.tracing`)."""

    launches: ClassVar[list[Launch] | None] = None

    def __init__(self, launches: list[Launch]):
        self._launches = launches

    def start(self) -> None:
        InterpreterTracer.launches = self._launches

    def stop(self) -> None:
        InterpreterTracer.launches = None


def _kernel(instance: Instance) -> object:
    return source.functions(source.module_text(instance))[instance.entry]


def _region(tensor: Tensor | Scratch | MissWord) -> Region:
    """Return a tensor's memory, from its lowest to its highest element; the storage may be larger."""
    from ..triton.interpret import Region  # lazy: optional dependency (triton)

    if isinstance(tensor, MissWord):
        return Region("", tensor.buffer, tensor.buffer, tensor.buffer + tensor.nbytes)
    storage = tensor.storage
    address = (storage.buffer or 0) + tensor.start
    if isinstance(tensor, Scratch):
        return Region("", address, address, address + storage.nbytes)
    layout = tensor.meta
    if not layout.numel:
        return Region("", address, address, address)
    size = layout.dtype.itemsize
    spans = [(n - 1) * s * size for n, s in zip(layout.shape, layout.strides, strict=True)]
    low = address + sum(r for r in spans if r < 0)
    return Region("", address, low, address + sum(r for r in spans if r > 0) + size)
