"""What a row tells beside its times: error by three measures, schedules, compile times, memory."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import weftgrad as wg

from ..runtime.backends.protocol import Instance, Step
from ..runtime.context import state
from .cases import Pairs
from .sites import Site

__all__ = ["accuracy", "compile_times", "facts", "poison", "schedules", "steps_of"]

_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}  # of a fraction
_LEAST = {"float64": -1022, "float32": -126, "float16": -14, "bfloat16": -126}  # exponent of a normal number
_serial = itertools.count()
_compiled: dict[tuple[Any, Instance], tuple[float, float]] = {}


def accuracy(pairs: Pairs, dtype: str) -> dict[str, float]:
    """The largest error of all values: absolute, relative to its own value, and in units of `dtype`'s last place.

    A unit in the last place is the distance of two neighbouring numbers of `dtype` at the expected value. Values near 0
    that came out of sums of large ones have large relative errors whoever computes them.
    """
    worst = {"abs": 0.0, "rel": 0.0, "ulp": 0.0}
    for found, expected in pairs:
        if not expected.size or expected.dtype.kind not in "fiu":
            continue
        finite = np.isfinite(expected)
        wide = expected if finite.all() else expected[finite]
        error = np.abs(found - expected if finite.all() else found[finite] - wide)
        if not error.size:
            continue
        worst["abs"] = max(worst["abs"], float(error.max()))
        size = np.abs(wide)
        share = np.divide(error, size, out=np.zeros_like(error, np.float64), where=size > 0)
        top = float(share.max())
        worst["rel"] = max(worst["rel"], top)
        if dtype in _BITS:
            # The unit is between 1 and 2 times the same part of the value, so the worst is among these.
            some = ((share >= top / 2) & (top > 0)) | ((size < 2.0 ** _LEAST[dtype]) & (error > 0))
            power = np.where(size[some] > 0, np.frexp(size[some])[1] - 1, _LEAST[dtype])
            unit = np.exp2(np.maximum(power, _LEAST[dtype]) - _BITS[dtype])
            worst["ulp"] = max(worst["ulp"], float(np.max(error[some] / unit, initial=0.0)))
    return worst


def poison(site: Site, result: Any) -> None:
    """Fill memory that the next results of these sizes will get: NaN where they are floats, -1 otherwise.

    The pool gives a block that was freed last to the next request of its size, so what a kernel leaves unwritten shows.
    """
    library = site.library
    for each in result if isinstance(result, tuple | list) else [result]:
        if isinstance(each, wg.Tensor) and each.numel():
            # More than one: the pool may have others of that size free.
            value = float("nan") if each.dtype.is_floating_point else each.dtype is wg.bool or -1
            filled = [library.full(tuple(each.shape), value, dtype=each.dtype, device=each.device) for _ in range(3)]
            site.wait()
            del filled


def steps_of(site: Site, call: Callable[[], Any]) -> list[Step]:
    """What a call launches, planned anew. Launches that are kept ready (optimizers, replays) are not among it."""
    driver: Any = site.device.driver
    found: list[Step] = []
    own = state()
    plans, own.plans = own.plans, {}
    inner = driver.launcher

    def launcher(steps: Sequence[Step], scratch: Sequence[int]) -> Any:
        found.extend(steps)
        return inner(steps, scratch)

    driver.launcher = launcher
    try:
        call()
        site.wait()
    finally:
        del driver.launcher
        own.plans = plans
    return found


def schedules(steps: Sequence[Step]) -> list[str]:
    """Kernels by name and how often each is launched: `softmax_long`, `add_rows x2`."""
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.instance.entry] = counts.get(step.instance.entry, 0) + 1
    return [f"{name} x{n}" if n > 1 else name for name, n in counts.items()]


def compile_times(site: Site, steps: Sequence[Step]) -> tuple[float, float] | None:
    """Seconds that building the kernels of `steps` takes from nothing, and from the cache; None where nothing is built.

    One after the other, as first calls build them, with an empty cache. OpenCL's text ends in a comment that no earlier
    one had: drivers that keep compiled programs themselves do not know it. Triton is imported before it is timed.
    """
    total = [0.0, 0.0]
    done: set[tuple[Any, Instance]] = set()
    for step in steps:
        key, make = _builder(site.device.driver, step)
        if make is None:
            return None
        if key in done:
            continue
        done.add(key)
        if key not in _compiled:
            _compiled[key] = _built(make)
        total = [a + b for a, b in zip(total, _compiled[key], strict=True)]
    return total[0], total[1]


def _builder(driver: Any, step: Step) -> tuple[tuple[Any, Instance], Callable[[], Callable[[], Any]] | None]:
    """What a kernel's build goes by, and a function that makes a builder of it, as a new process would have it."""
    if hasattr(driver, "compiles_for"):
        from ..runtime.triton import compile as compiler

        if compiler.compiler_installed():
            compiler._triton()
        target = driver.compiles_for
        return (target, step.instance), lambda: partial(compiler.binary, step, True, target)
    store = getattr(getattr(getattr(driver, "road", None), "kernels", None), "store", None)
    if store is not None:
        from ..runtime.backends.cpu.objects import ObjectStore

        make = partial(ObjectStore, store.compiler, driver.capabilities)
        return (store, step.instance), lambda: partial(_found_or_compiled, make(), step.instance)
    if not hasattr(driver, "compiler"):
        return (None, step.instance), None
    fresh = partial(_fresh(), driver.compiler)
    note = f"\n// {os.getpid()} {time.time_ns()} {next(_serial)}\n"
    return (driver.compiler, step.instance), lambda: partial(fresh(note).build, [step.instance])


def _found_or_compiled(store: Any, instance: Instance) -> None:
    """What `cpu` does for a kernel that the process has not loaded."""
    if store.load(instance) is None:
        store.compile([instance])


@cache
def _fresh() -> Any:
    """A compiler of OpenCL that puts a note behind every text."""
    from ..runtime.backends.opencl import Compiler

    class Fresh(Compiler):
        def __init__(self, like: Compiler, note: str):
            super().__init__(like._context, like._handle, like._capabilities)
            self.note = note

        def _source(self, instances: Sequence[Instance]) -> str:
            return super()._source(instances) + self.note

    return Fresh


def _built(make: Callable[[], Callable[[], Any]]) -> tuple[float, float]:
    """Seconds of a first build and of a second one that finds the binary, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = {"WEFTGRAD_CACHE": folder, "TRITON_CACHE_DIR": str(Path(folder, "triton"))}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            times = []
            for _ in range(2):
                build = make()
                begin = time.perf_counter()
                build()
                times.append(time.perf_counter() - begin)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
    return times[0], times[1]


def facts(site: Site, call: Callable[[], Any]) -> dict[str, Any]:
    """Of a call on one of our devices: `schedule`, `launches`, `cold_ms` and `warm_ms` of compiling, `peak_bytes` (most
    in use during the call, its operands included) and `driver_allocations` of a call that is not the first."""
    steps = steps_of(site, call)
    found: dict[str, Any] = {"schedule": schedules(steps), "launches": len(steps)}
    times = compile_times(site, steps)
    if times is not None:
        found |= {"cold_ms": times[0] * 1e3, "warm_ms": times[1] * 1e3}
    wg.reset_peak_memory_stats(site.device)
    before = wg.memory_stats(site.device)
    result = call()
    site.wait()
    after = wg.memory_stats(site.device)
    del result
    return found | {"peak_bytes": after["allocated_peak"],
                    "driver_allocations": after["driver_allocations"] - before["driver_allocations"]}  # fmt: skip
