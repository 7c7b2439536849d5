"""Measure what `weftgrad bench --figures` draws: a training step's timeline, and iterations without cached memory.

The figures repeat figures 1 and 2 of A. Paszke et al., "PyTorch: an imperative style, high-performance deep learning
library" (NeurIPS 2019). `record_step` and `record_caching` return rows of a report's fields `step_traces` and
`caching_runs`. The functions `step_traces` and `caching_runs` read these fields back. Read `figure_plots` next, which
draws the figures, and `figures`, which is the command.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

import weftgrad as wg

from .cases import Case
from .colours import printable
from .steps import step_call
from .uncached_pool import without_cache

if TYPE_CHECKING:
    from ..profiler.events import FunctionEvent
    from ..runtime.backends.protocol import Driver
    from .report_types import CachingRow, IterationRow, Report, TraceEvents, TraceRow
    from .sites import OurSite

__all__ = [
    "CACHED",
    "PHASES",
    "UNCACHED",
    "CachingRun",
    "HostBar",
    "Iteration",
    "KernelBar",
    "StepTrace",
    "caching_runs",
    "record_caching",
    "record_step",
    "step_traces",
]

P = ParamSpec("P")
T = TypeVar("T")
PHASES = ("forward", "backward", "optimizer")
CACHED, UNCACHED = "cached", "uncached"
_WARMUP_STEPS = 3  # steps before a trace, in which kernels are compiled and pools grow
_TRACE_TRIES = 3  # profiled steps, of which the shortest is reported, and as many without a profiler
_CACHING_TRIES = 3
_ITERATIONS = 6  # of each try


class HostBar(NamedTuple):
    """A call of the host: an op of the forward pass, a node of the backward pass, or the optimizer's step.

    Times are microseconds since the step began.
    """

    begin: float
    length: float
    phase: str
    name: str


class KernelBar(NamedTuple):
    """A kernel: when the host queued it, and when the device ran it. Times are microseconds since the step began."""

    queued: float
    begin: float
    length: float
    phase: str
    name: str


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One training step on a device. Times are microseconds since the step began.

    Attributes:
        name: The model.
        device: Such as `cpu` or `cuda:0`.
        is_synchronous: Whether the host runs the kernels itself, so that it cannot be ahead of the device.
        host_end: When the host had queued everything.
        device_end: When the device was done.
        unprofiled: The shortest `host_end` and `device_end` of steps without a profiler, which slows the host.
        host: The host's calls, sorted by `begin`.
        kernels: The device's kernels, sorted by `begin`.
    """

    name: str
    device: str
    is_synchronous: bool
    host_end: float
    device_end: float
    unprofiled: tuple[float, float]
    host: list[HostBar]
    kernels: list[KernelBar]

    @property
    def busy(self) -> float:
        """The time during which the device runs at least one kernel, in microseconds."""
        total, busy_until = 0.0, 0.0
        for bar in self.kernels:
            end = bar.begin + bar.length
            total += max(0.0, end - max(bar.begin, busy_until))  # kernels of several streams may overlap
            busy_until = max(busy_until, end)
        return total

    @property
    def max_lead(self) -> float:
        """The longest time by which the host queues a kernel before the device begins it, in microseconds."""
        return max((bar.begin - bar.queued for bar in self.kernels), default=0.0)

    @property
    def max_queue(self) -> int:
        """The largest number of kernels that are queued and have not begun."""
        changes = sorted([(bar.queued, 1) for bar in self.kernels] + [(bar.begin, -1) for bar in self.kernels])
        length = longest = 0
        for _, change in changes:
            length += change
            longest = max(longest, length)
        return longest

    def phase_spans(self) -> dict[str, tuple[float, float]]:
        """Return begin and end of each phase on the host, in microseconds. They follow each other without gaps."""
        begins: dict[str, float] = {}
        for bar in self.host:
            begins.setdefault(bar.phase, bar.begin if begins else 0.0)
        ends = [*list(begins.values())[1:], self.host_end]
        return {phase: (begin, end) for (phase, begin), end in zip(begins.items(), ends, strict=True)}


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of a training. Times are milliseconds.

    Attributes:
        total: From the call of the training step until the device was done.
        driver: The part of `total` in which the driver allocates and frees memory, and waits for the device before it
            frees.
        allocations: Calls of the driver that allocated memory.
        frees: Calls of the driver that freed memory.
        reserved: Bytes that the pools held after the iteration.
    """

    total: float
    driver: float
    allocations: int
    frees: int
    reserved: int


@dataclass(frozen=True, slots=True)
class CachingRun:
    """The first iterations of a training, with the caching allocator and without it.

    Attributes:
        name: The model.
        device: Such as `cpu` or `cuda:0`.
        tries: For each of `CACHED` and `UNCACHED`, a list of iterations for each try. Tries of both alternate.
    """

    name: str
    device: str
    tries: dict[str, list[list[Iteration]]]

    def shortest(self, mode: str) -> list[Iteration]:
        """Return for each iteration the shortest of all tries, because other load on the machine only adds time."""
        return [min(tries, key=lambda iteration: iteration.total) for tries in zip(*self.tries[mode], strict=True)]


def step_traces(report: Report) -> list[StepTrace]:
    """Read a report's traces of steps. Raise KeyError, TypeError or ValueError if they are malformed."""
    return [
        StepTrace(
            printable(row["name"]), printable(row["device"]), bool(row["is_synchronous"]), float(row["host_end"]),
            float(row["device_end"]), (float(row["unprofiled"][0]), float(row["unprofiled"][1])),
            [HostBar(float(begin), float(length), _check_phase(phase), printable(name))
             for begin, length, phase, name in (str(bar).split(" ", 3) for bar in row["host"])],
            [KernelBar(float(queued), float(begin), float(length), _check_phase(phase), printable(name))
             for queued, begin, length, phase, name in (str(bar).split(" ", 4) for bar in row["kernels"])],
        )
        for row in report.get("step_traces", ())
    ]  # fmt: skip


def caching_runs(report: Report) -> list[CachingRun]:
    """Read a report's runs with and without caching. Raise KeyError, TypeError or ValueError if they are malformed."""
    return [
        CachingRun(printable(row["name"]), printable(row["device"]), {
            mode: [[Iteration(float(i["total"]), float(i["driver"]), int(i["allocations"]), int(i["frees"]),
                              int(i["reserved"])) for i in iterations] for iterations in row["tries"][mode]]
            for mode in (CACHED, UNCACHED)
        })
        for row in report.get("caching_runs", ())
    ]  # fmt: skip


def _check_phase(text: str) -> str:
    """Return a phase that a report names. Raise ValueError unless it is one of `PHASES`."""
    if text not in PHASES:
        raise ValueError(f"{text!r} is no phase of a training step")
    return text


# --- Measuring --------------------------------------------------------------------------------------------------------


def record_step(case: Case, site: OurSite) -> TraceRow:
    """Profile training steps and return the row of the shortest one, for the report's field `step_traces`.

    Args:
        case: A training step, whose call is forward, backward and the optimizer's step.
        site: The device.
    """
    from ..profiler import profile, record_function  # lazy: start-up of the command line

    call = step_call(case, site)
    for _ in range(_WARMUP_STEPS):
        call()
    unprofiled = [_time_call(call, site) for _ in range(_TRACE_TRIES)]
    rows = []
    for _ in range(_TRACE_TRIES):
        site.wait()
        with profile() as profiler:
            with record_function("step"):
                call()
            site.wait()
        rows.append(_trace_row(profiler.events(), site.device_name))
    events = min(rows, key=lambda row: row["device_end"])
    return {
        **events,
        "name": case.name,
        "device": site.name,
        "is_synchronous": site.device.type in ("cpu", "interpreter"),
        "unprofiled": [min(host for host, _ in unprofiled), min(total for _, total in unprofiled)],
    }


def _time_call(call: Callable[[], object], site: OurSite) -> tuple[float, float]:
    """Return the microseconds until a call returns, and until the device is done."""
    site.wait()
    begin = time.perf_counter()
    call()
    returned = time.perf_counter()
    site.wait()
    return round((returned - begin) * 1e6, 1), round((time.perf_counter() - begin) * 1e6, 1)


def _trace_row(events: Sequence[FunctionEvent], device: str) -> TraceEvents:
    """Return the fields of a trace's row that come from a profile's events; `device` is their name of the device."""
    step = next(e for e in events if e.name == "step" and e.category == "annotation")
    origin, host_end = step.time_range.start, step.time_range.end
    first_backward = min((e.time_range.start for e in events if e.category == "backward"), default=host_end)
    first_optimizer = min((e.time_range.start for e in events if _is_optimizer_step(e)), default=host_end)

    def phase_at(time: float) -> str:
        return "optimizer" if time >= first_optimizer else "backward" if time >= first_backward else "forward"

    def interval_text(event: FunctionEvent) -> str:
        return f"{event.time_range.start - origin:.1f} {event.time_range.elapsed_us():.1f}"

    queue_times = {e.launch: e.time_range.start for e in events if e.category == "launch" and e.device == device}
    kernels = [
        (queue_times[e.launch], e) for e in events if e.is_kernel and e.launch in queue_times and e.device == device
    ]
    # One string for each bar keeps the JSON file short.
    return {
        "host_end": round(host_end - origin, 1),
        "device_end": round(max([host_end, *(e.time_range.end for _, e in kernels)]) - origin, 1),
        "host": [f"{interval_text(e)} {phase_at(e.time_range.start)} {e.name}" for e in _outer_calls(events, step)],
        "kernels": [f"{queued - origin:.1f} {interval_text(e)} {phase_at(queued)} {e.name}" for queued, e in kernels],
    }


def _is_optimizer_step(event: FunctionEvent) -> bool:
    return event.category == "annotation" and event.name.startswith("Optimizer.step#")


def _outer_calls(events: Sequence[FunctionEvent], step: FunctionEvent) -> Iterator[FunctionEvent]:
    """Yield the ops, backward nodes and optimizer steps that no other one encloses, sorted by begin."""
    last_end = step.time_range.start
    for event in events:  # host events are sorted by begin, outer ones first
        is_call = event.category in ("op", "copy", "backward") or _is_optimizer_step(event)
        if is_call and event.thread == step.thread and last_end <= event.time_range.start < step.time_range.end:
            last_end = event.time_range.end
            yield event


def record_caching(
    case: Case, site: OurSite, iterations: int = _ITERATIONS, tries: int = _CACHING_TRIES
) -> CachingRow:  # fmt: skip
    """Measure the first iterations of a training with and without the caching allocator, in turn.

    Kernels must have been compiled before, as by `record_step`. Model, optimizer and batch are constructed for each
    try, with the caching allocator; iterations are measured from an empty cache.

    Args:
        case: A training step.
        site: The device.
        iterations: Iterations of each try, at least 2.
        tries: Tries with and tries without the caching allocator.
    """
    results: dict[str, list[list[IterationRow]]] = {CACHED: [], UNCACHED: []}
    for _ in range(tries):
        for mode, mode_tries in results.items():
            mode_tries.append(_first_iterations(case, site, iterations, mode == CACHED))
    return {"name": case.name, "device": site.name, "tries": results}


def _first_iterations(case: Case, site: OurSite, count: int, is_cached: bool) -> list[IterationRow]:
    """Construct a model and measure its first `count` training steps."""
    gc.collect()  # frees the models of earlier tries
    site.wait()
    site.release()
    call = step_call(case, site)
    site.wait()
    rows: list[IterationRow] = []
    with nullcontext() if is_cached else without_cache(site.device):
        for _ in range(count):
            old_stats = wg.memory_stats(site.device)
            with _driver_seconds(site.device.driver) as seconds:
                _, total = _time_call(call, site)
            stats = wg.memory_stats(site.device)
            rows.append({
                "total": round(total * 1e-3, 3),
                "driver": round(sum(seconds) * 1e3, 3),
                "allocations": stats["driver_allocations"] - old_stats["driver_allocations"],
                "frees": stats["driver_frees"] - old_stats["driver_frees"],
                "reserved": stats["reserved"],
            })  # fmt: skip
    return rows


@contextmanager
def _driver_seconds(driver: Driver) -> Iterator[list[float]]:
    """Yield a list that gets the seconds of each call by which pools allocate, free, and wait before freeing."""
    if not hasattr(driver, "memory"):
        raise TypeError(f"{driver.name} has no memory of its own")
    memory, seconds = driver.memory, list[float]()

    def timed(method: Callable[P, T]) -> Callable[P, T]:
        def call(*args: P.args, **keywords: P.kwargs) -> T:
            begin = time.perf_counter()
            try:
                return method(*args, **keywords)
            finally:
                seconds.append(time.perf_counter() - begin)

        return call

    names = ("allocate", "release", "synchronize")
    for name in names:  # attributes of the object, which hide the methods of its class until they are deleted
        setattr(memory, name, timed(getattr(memory, name)))
    try:
        yield seconds
    finally:
        for name in names:
            delattr(memory, name)
