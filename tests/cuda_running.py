"""Run the CUDA backend on the fake driver library: a step with every kind of parameter, and a fake compiler."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from cuda_standin import Standin
from cuda_standin_objects import Gpu, image_of

import weftgrad as wg
from weftgrad.runtime import device as devices
from weftgrad.runtime.autograd.engine import forget_ones
from weftgrad.runtime.backends import cuda_api
from weftgrad.runtime.backends.arguments import Scratch
from weftgrad.runtime.backends.protocol import Instance, Slot, Step
from weftgrad.runtime.context import forget_plans, state
from weftgrad.runtime.triton import compile as compiler
from weftgrad.runtime.triton.signature import signature

KiB, MiB = 1 << 10, 1 << 20
NAMES = ("cuda:0", "cuda:1", "cuda:2")

# A kernel with a parameter of every kind. Only its signature is read here.
TEXT = '''
@triton.jit
def scale_flat(x0, y0, n, sizes, none, numbers, integers, C: tl.constexpr, BLOCK: tl.constexpr, INDEX: tl.constexpr):
    """y0 = x0 * numbers[0]"""
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(y0 + i, (tl.load(x0 + i, mask=mask, other=0).to(C) * numbers[0]).to(y0.dtype.element_ty), mask=mask)
'''


def make_step(
    element: str = "float",
    dtype: str = "float32",
    index: str = "int32",
    grid: tuple[int, ...] = (3,),
    n: int = 300,
    **options: int,
) -> Step:
    slots = (Slot(dtype), Slot(dtype))
    defines = (("BLOCK", 128), ("INDEX", index), *options.items())
    instance = Instance("scale", TEXT, "scale_flat", element, 1, slots, defines)
    return Step(instance, (0, 1), (n, (5, 60), ()), grid, None, n, scalars=(0, 1), integers=(2,))


class Compiler:
    """A fake of Triton's compiler: records requests, and returns fake machine code."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bool]] = []
        self.options: dict[str, Any] = {}
        self._lock = threading.Lock()

    def binary(self, step: Step, aligned: bool, target: Any) -> compiler.Binary:
        with self._lock:
            self.requests.append((step.instance.entry, aligned))
            kernel_signature = signature(step, aligned)
            image = image_of(kernel_signature.entry, kernel_signature.codes + "QQ", len(self.requests))
        return replace(compiler.Binary(kernel_signature.entry, image, 128, 0), **self.options)


@contextlib.contextmanager
def use_standin(*gpus: Gpu) -> Iterator[Standin]:
    """Replace the driver library by a fake, and assert at the end that it was not misused."""
    standin = Standin(*gpus)
    thread_state = state()
    plans = thread_state.plans
    forget_plans()  # families, too: they hold what belongs to another fake
    devices_used = [wg.device(name) for name in NAMES]
    drivers, default = [used_device._driver for used_device in devices_used], devices._default
    for used_device in devices_used:
        used_device._driver = None
    cuda_api.use(standin)
    forget_ones()  # cached tensors in the memory of another fake
    try:
        yield standin
    finally:
        forget_ones()
        forget_plans()
        thread_state.plans = plans
        devices._default = default  # if none was set, the fake may have become the default
        for used_device, driver in zip(devices_used, drivers, strict=True):
            used_device._driver = driver
        cuda_api.use(None)
    assert standin.violations == []


def driver_of(index: int = 0) -> Any:
    return wg.device(f"cuda:{index}").driver


def buffers(driver: Any, count: int = 2, nbytes: int = 4096, at: int = 0) -> list[Any]:
    return [shift(Scratch(driver.allocate(nbytes, driver.default_stream)), at) for _ in range(count)]


def shift(scratch: Any, by: int) -> Any:
    scratch.start += by
    return scratch


def address(scratch: Any) -> int:
    return int(scratch.storage.buffer + scratch.start)


def capture(driver: Any, work: Callable[[], Any], stream: Any = None) -> tuple[Any, Any]:
    stream = stream or driver.default_stream
    stream.begin_capture()
    try:
        result = work()
    except BaseException:
        stream.abort_capture()
        raise
    return stream.end_capture(), result
