"""A row's facts beside its times: errors by three measures, schedules, compile times, memory."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import weftgrad as wg

from ..runtime.backends.protocol import Instance, Step
from ..runtime.context import state
from .cases import Pairs
from .sites import OurSite, Site

if TYPE_CHECKING:
    from ..runtime.backends.cpu.objects import ObjectStore
    from ..runtime.backends.opencl import Compiler
    from ..runtime.backends.protocol import Driver
    from .report_types import Accuracy, Facts

__all__ = ["accuracy", "compile_times", "facts", "poison", "schedules", "steps_of"]

_FRACTION_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}  # of a fraction
_MIN_EXPONENT = {"float64": -1022, "float32": -126, "float16": -14, "bfloat16": -126}  # exponent of a normal number
_serial = itertools.count()
BuildKey = tuple[object, Instance]
"""What a kernel is compiled by or for, and the kernel."""
_compiled: dict[BuildKey, tuple[float, float]] = {}


def accuracy(pairs: Pairs, dtype: str) -> Accuracy:
    """Return the largest error over all values: absolute (`abs`), relative to the value (`rel`), and in `ulp`.

    An ulp (unit in the last place) is the distance of two neighbouring numbers of `dtype` at the expected value. Values
    near 0 that result from cancellation of large ones have large relative errors in any library.
    """
    worst: Accuracy = {"abs": 0.0, "rel": 0.0, "ulp": 0.0}
    for actual, expected in pairs:
        if not expected.size or expected.dtype.kind not in "fiu":
            continue
        finite = np.isfinite(expected)
        finite_expected = expected if finite.all() else expected[finite]
        error = np.abs(actual - expected if finite.all() else actual[finite] - finite_expected)
        if not error.size:
            continue
        worst["abs"] = max(worst["abs"], float(error.max()))
        size = np.abs(finite_expected)
        share = np.divide(error, size, out=np.zeros_like(error, np.float64), where=size > 0)
        top = float(share.max())
        worst["rel"] = max(worst["rel"], top)
        if dtype in _FRACTION_BITS:
            # 1 ulp is 2^-bits to 2^(1-bits) of the value, so the largest error in ulp has at least half of the largest
            # relative error, or is at a subnormal value.
            candidates = ((share >= top / 2) & (top > 0)) | ((size < 2.0 ** _MIN_EXPONENT[dtype]) & (error > 0))
            exponent = np.where(size[candidates] > 0, np.frexp(size[candidates])[1] - 1, _MIN_EXPONENT[dtype])
            unit = np.exp2(np.maximum(exponent, _MIN_EXPONENT[dtype]) - _FRACTION_BITS[dtype])
            worst["ulp"] = max(worst["ulp"], float(np.max(error[candidates] / unit, initial=0.0)))
    return worst


def poison(site: Site, result: object) -> None:
    """Fill the memory that the next results of these sizes will get with NaN, or -1 for integers.

    The pool reuses the block that was freed last for the next request of its size, so an element that a kernel forgets
    to write is noticed.
    """
    library = site.library
    for tensor in result if isinstance(result, tuple | list) else [result]:
        if isinstance(tensor, wg.Tensor) and tensor.numel():
            # Three, because the pool may have more free blocks of this size.
            value = float("nan") if tensor.dtype.is_floating_point else tensor.dtype is wg.bool or -1
            filled = [
                library.full(tuple(tensor.shape), value, dtype=tensor.dtype, device=tensor.device) for _ in range(3)
            ]
            site.wait()
            del filled


def steps_of(site: OurSite, call: Callable[[], object]) -> list[Step]:
    """Return the kernel launches of a call, planned anew. Cached launches (optimizers, replays) are not included."""
    driver = site.device.driver
    recorded: list[Step] = []
    thread_state = state()
    plans, thread_state.plans = thread_state.plans, {}
    inner = driver.launcher

    def launcher(steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        recorded.extend(steps)
        return inner(steps, scratch)

    vars(driver)["launcher"] = launcher  # hides the class's method until it is deleted
    try:
        call()
        site.wait()
    finally:
        del vars(driver)["launcher"]
        thread_state.plans = plans
    return recorded


def schedules(steps: Sequence[Step]) -> list[str]:
    """Return the kernels' names with their launch counts: `softmax_long`, `add_rows x2`."""
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.instance.entry] = counts.get(step.instance.entry, 0) + 1
    return [f"{name} x{n}" if n > 1 else name for name, n in counts.items()]


def compile_times(site: OurSite, steps: Sequence[Step]) -> tuple[float, float] | None:
    """Return the seconds to build the kernels of `steps` without a cache and from the cache; None if none is built.

    Kernels are built one after the other, as first calls build them. OpenCL source gets a unique comment at its end, so
    that drivers with their own program cache do not recognise it. Triton is imported before the timing.
    """
    total = [0.0, 0.0]
    seen_keys: set[BuildKey] = set()
    for step in steps:
        key, make = _builder(site.device.driver, step)
        if make is None:
            return None
        if key in seen_keys:
            continue
        seen_keys.add(key)
        if key not in _compiled:
            _compiled[key] = _time_builds(make)
        total = [a + b for a, b in zip(total, _compiled[key], strict=True)]
    return total[0], total[1]


def _builder(driver: Driver, step: Step) -> tuple[BuildKey, Callable[[], Callable[[], object]] | None]:
    """Return a kernel's build key, and a factory of build functions that start like a new process."""
    if hasattr(driver, "compiles_for"):
        from ..runtime.triton import compile as compiler  # lazy: Triton devices only

        if compiler.compiler_installed():
            compiler._triton()
        target = driver.compiles_for
        return (target, step.instance), lambda: partial(compiler.binary, step, True, target)
    store = getattr(getattr(getattr(driver, "executor", None), "kernels", None), "store", None)
    if store is not None:
        from ..runtime.backends.cpu.objects import ObjectStore  # lazy: the device cpu only

        make = partial(ObjectStore, store.compiler, driver.capabilities)
        return (store, step.instance), lambda: partial(_load_or_compile, make(), step.instance)
    if not hasattr(driver, "compiler"):
        return (None, step.instance), None
    fresh = partial(_uncached_compiler_class(), driver.compiler)
    note = f"\n// {os.getpid()} {time.time_ns()} {next(_serial)}\n"
    return (driver.compiler, step.instance), lambda: partial(fresh(note).build, [step.instance])


def _load_or_compile(store: ObjectStore, instance: Instance) -> None:
    """Load a kernel from the store or compile it, as `cpu` does at a kernel's first launch."""
    if store.load(instance) is None:
        store.compile([instance])


@cache
def _uncached_compiler_class() -> Callable[[Compiler, str], Compiler]:
    """Return a subclass of the OpenCL compiler that appends a comment to every source."""
    from ..runtime.backends.opencl import Compiler  # lazy: optional dependency (pyopencl)

    class Fresh(Compiler):
        def __init__(self, compiler: Compiler, note: str):
            super().__init__(compiler._context, compiler._handle, compiler._capabilities)
            self.note = note

        def _source(self, instances: Sequence[Instance]) -> str:
            return super()._source(instances) + self.note

    return Fresh


def _time_builds(make: Callable[[], Callable[[], object]]) -> tuple[float, float]:
    """Return the seconds of a build with an empty cache folder, and of a second build that finds the binary there."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"WEFTGRAD_CACHE": folder, "TRITON_CACHE_DIR": str(Path(folder, "triton"))}
        old_settings = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            times = []
            for _ in range(2):
                build = make()
                begin = time.perf_counter()
                build()
                times.append(time.perf_counter() - begin)
        finally:
            for name, value in old_settings.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
    return times[0], times[1]


def facts(site: OurSite, call: Callable[[], object], measures_compiling: bool = True) -> Facts:
    """Return the facts about a call on one of our devices.

    Args:
        site: The device.
        call: The call.
        measures_compiling: Whether to measure compile times.

    Returns:
        `schedule` (kernel names), `launches`, `cold_ms` and `warm_ms` (compile times without and with the cache),
        `peak_bytes` (maximum in use during the call, operands included), and `driver_allocations` of a later call.
    """
    steps = steps_of(site, call)
    row_facts: Facts = {"schedule": schedules(steps), "launches": len(steps)}
    times = compile_times(site, steps) if measures_compiling else None
    if times is not None:
        row_facts |= {"cold_ms": times[0] * 1e3, "warm_ms": times[1] * 1e3}
    wg.reset_peak_memory_stats(site.device)
    old_stats = wg.memory_stats(site.device)
    result = call()
    site.wait()
    new_stats = wg.memory_stats(site.device)
    del result
    return row_facts | {"peak_bytes": new_stats["allocated_peak"],
                        "driver_allocations": new_stats["driver_allocations"] - old_stats["driver_allocations"],
                        }  # fmt: skip
