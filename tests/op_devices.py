"""Devices of the generated suite, and building of kernels in batches."""

from __future__ import annotations

import contextlib
import functools
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from weftgrad import testing
from weftgrad.runtime.context import state
from weftgrad.runtime.device import Device, device

BATCH = 32  # kernels per program

# Devices

# The device under test. WEFTGRAD_TEST_DEVICE=opencl:0, for example, runs the whole suite there and nothing elsewhere.
MAIN = os.environ.get("WEFTGRAD_TEST_DEVICE", "cpu")
# Schedules depend on capabilities, so other vendors' schedules run here on the CPU's OpenCL device. Kernels of the main
# device, except variants (`_is_variant`), are optimised as for users. These are not, since compiling takes most of the
# suite's time.
_SYNTHETIC = {
    "opencl-cpu-schedules": "lanes=8,registers=16,optimize=0",  # as on a CPU with AVX2
    "opencl-gpu-schedules": "style=gpu,lanes=4,max_group=256,builtins=1,optimize=0",
    "poor-vendor": "style=gpu,lanes=4,fp64=0,fp16=0,max_group=64,local_memory=16384,builtins=1,optimize=0",
}
# The part of the table that a device runs. `full`: everything; `sizes`: all sizes (scans: a few), in one dtype and
# without mixed layouts; `schedules`: one dtype of each class; `small`: for slow devices.
SELECTIONS = ("full", "sizes", "schedules", "small")
SELECTION_BY_DEVICE = {MAIN: "full"}
if MAIN == "cpu":
    SELECTION_BY_DEVICE |= {
        "opencl-cpu-schedules": "sizes", "opencl-gpu-schedules": "schedules", "poor-vendor": "schedules",
    }  # fmt: skip


@functools.cache
def device_of(device_label: str) -> Device:
    """Return the opened device of a label of `SELECTION_BY_DEVICE`, or of a device's name."""
    if device_label in _SYNTHETIC:
        index = list(SELECTION_BY_DEVICE).index(device_label)
        return testing.synthetic_device(900 + index, _SYNTHETIC[device_label])
    opened = device(device_label)
    if opened.type == "cpu":
        opened.driver.require()
    return opened


# .ci/run sets this: more of the table on the devices beside the main one, and on `cpu` variants are optimised, too.
THOROUGH = bool(os.environ.get("WEFTGRAD_TEST_THOROUGH"))

# Building in batches


@contextlib.contextmanager
def collecting(device: Device) -> Iterator[list[Any]]:
    """Inside, collect the steps that calls would launch, instead of launching them.

    Contexts nest: the outer list gets the steps of the inner one too.
    """
    driver: Any = device.driver
    steps: list[Any] = []
    outer = vars(driver).get("launcher")
    thread_state = state()
    plans, thread_state.plans = thread_state.plans, {}

    def launcher(plan_steps: Sequence[Any], scratch: Sequence[int]) -> Callable[..., None]:
        steps.extend(plan_steps)
        if outer is not None:
            outer(plan_steps, scratch)
        return lambda tensors, numbers, stream: None

    driver.launcher = launcher
    try:
        yield steps
    finally:
        if outer is None:
            del driver.launcher
        else:
            driver.launcher = outer
        thread_state.plans = plans


def build(device: Device, steps: Sequence[Any]) -> int:
    """Build the kernels of `steps` in batches; return how many were missing. Does nothing inside `collecting`."""
    driver: Any = device.driver
    if "launcher" in vars(driver):
        return 0
    if driver.target == "triton":
        return int(driver.build(list(dict.fromkeys(steps))))
    instances = list(dict.fromkeys(step.instance for step in steps))
    if device.type == "cpu":
        return _build_for_cpu(driver, instances)
    compiler = driver.compiler
    missing = [i for i in instances if i not in compiler._programs]
    plain = [i for i in missing if _is_variant(i)] if compiler._capabilities.optimize else []
    built = 0
    if plain:
        plain_compiler = _plain(compiler)
        built += _build(plain_compiler, plain)
        compiler._programs.update((i, plain_compiler._programs[i]) for i in plain)
    return built + _build(compiler, [i for i in missing if i not in compiler._programs])


def _build(compiler: Any, instances: Sequence[Any]) -> int:
    return sum(compiler.build(instances[start : start + BATCH]) for start in range(0, len(instances), BATCH))


def _is_variant(instance: Any) -> bool:
    """Return True if a kernel is a variant, built with less optimisation to save time.

    Variants are kernels of dtypes other than float32, int32 and bool, and the schedules `…_rows` of two thirds of the
    ops: strided pointwise kernels, and those of reductions, scans and sorts that take whole rows. `cpu` builds them
    with -O1, OpenCL without optimisation.
    """
    dtypes = {slot.dtype for slot in instance.slots if slot.type == "value"}
    takes_rows = instance.entry.endswith("_rows") and zlib.crc32(instance.name.encode()) % 3
    return bool(takes_rows) or not dtypes <= {"float32", "int32", "bool"}


def _build_for_cpu(driver: Any, instances: Sequence[Any]) -> int:
    """Build kernels of `cpu`; return how many were missing. Unless the run is thorough, variants are not optimised."""
    driver.require()
    kernels = getattr(driver.executor, "kernels", None)  # None: the fallback to an OpenCL driver
    if kernels is None or THOROUGH or not driver.capabilities.optimize:
        return int(driver.build(instances))
    plain_kernels = _plain_kernels(kernels, driver.capabilities)
    variants = [i for i in instances if i not in kernels._kernels and _is_variant(i)]
    built = plain_kernels.build(variants)
    kernels._kernels.update((i, plain_kernels.kernel(i)) for i in variants)
    return int(built + driver.build(instances))


@functools.cache
def _plain_kernels(kernels: Any, caps: Any) -> Any:
    """Return kernels of the same compiler that are compiled with -O1."""
    from weftgrad.runtime.backends.cpu.kernels import ClangKernels
    from weftgrad.runtime.backends.cpu.objects import ObjectStore

    return ClangKernels(ObjectStore(kernels.store.compiler, replace(caps, optimize=False)))


@functools.cache
def _plain(compiler: Any) -> Any:
    """Return a compiler for the same OpenCL device that does not optimise."""
    from weftgrad.runtime.backends import opencl  # imported here: without pyopencl, only Triton kernels run

    caps = replace(compiler._capabilities, optimize=False)
    return opencl.Compiler(compiler._context, compiler._handle, caps)


def prebuilt(device: Device, function: Callable[[], Any]) -> Any:
    """Build the kernels that `function` needs in batches, then return its result."""
    with collecting(device) as steps, contextlib.suppress(Exception):  # an error is raised again by the real call below
        function()
    build(device, steps)
    return function()
