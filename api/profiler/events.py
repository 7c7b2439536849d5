"""Events of a profile: spans nested in each other with the kernels they queued, sums of equal ones, a table of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..runtime.errors import ArgumentError
from ..runtime.tracing import Launch, Recording

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "of_recording"]

_HOST = ("cpu", "interpreter")  # devices whose memory is the host's


@dataclass(frozen=True, slots=True)
class Interval:
    """Microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Microseconds between the two."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that ran. duration: microseconds; 0 where the device told no time."""

    name: str
    device: str
    duration: float


class _Times:
    """Averages and names of times, from sums in microseconds."""

    count: int
    cpu_time_total: float
    device_time_total: float
    self_cpu_time_total: float
    self_device_time_total: float

    @property
    def cpu_time(self) -> float:
        """Host time of one call, with what it called."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Time of the kernels of one call, with what it called."""
        return self.device_time_total / self.count if self.count else 0.0

    cuda_time = device_time

    @property
    def cuda_time_total(self) -> float:
        """PyTorch's older name of `device_time_total`."""
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        """PyTorch's older name of `self_device_time_total`."""
        return self.self_device_time_total

    @property
    def cpu_time_str(self) -> str:
        """`cpu_time` in words."""
        return in_words(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """`cpu_time_total` in words."""
        return in_words(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """`self_cpu_time_total` in words."""
        return in_words(self.self_cpu_time_total)

    @property
    def device_time_total_str(self) -> str:
        """`device_time_total` in words."""
        return in_words(self.device_time_total)

    @property
    def self_device_time_total_str(self) -> str:
        """`self_device_time_total` in words."""
        return in_words(self.self_device_time_total)


@dataclass(eq=False)
class FunctionEvent(_Times):
    """One thing that the host did (`op`, `launch`, `backward`, `annotation`, `copy`, `compile`), or a kernel.

    Times are microseconds. device_time_total is the sum of the kernels that were queued inside. launch: its number
    among launches, for kernels and for what queued them.
    """

    name: str
    category: str
    thread: int
    time_range: Interval
    input_shapes: tuple[Any, ...] = ()
    stack: tuple[str, ...] = ()
    device: str = ""
    stream: int = 0
    launch: int | None = None
    memory: int = 0
    kernels: list[Kernel] = field(default_factory=list)
    cpu_parent: FunctionEvent | None = None
    cpu_children: list[FunctionEvent] = field(default_factory=list)
    count: int = 1

    @property
    def key(self) -> str:
        """What equal events have in common."""
        return "ProfilerStep*" if self.name.startswith("ProfilerStep#") else self.name

    @property
    def is_kernel(self) -> bool:
        """Whether it ran on a device."""
        return self.category == "kernel"

    @property
    def is_user_annotation(self) -> bool:
        """Whether it is a range that somebody named."""
        return self.category == "annotation"

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """Host time."""
        return 0.0 if self.is_kernel else self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]
        """Host time without what is nested in it."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:  # type: ignore[override]
        """Time of the kernels that this queued itself."""
        return sum(kernel.duration for kernel in self.kernels)

    @property
    def device_time_total(self) -> float:  # type: ignore[override]
        """Time of the kernels that were queued in here."""
        total, waiting = 0.0, [self]
        while waiting:
            event = waiting.pop()
            total += event.self_device_time_total
            waiting += event.cpu_children
        return total

    def memory_usage(self, host: bool, own: bool) -> int:
        """Bytes by which memory in use grew, on devices over host memory or on others; own: without what is nested."""
        mine = self.memory if (self.device in _HOST) == host and self.device else 0
        nested = sum(child.memory_usage(host, False) for child in self.cpu_children)
        return mine - nested if own and mine else 0 if own else mine or nested


@dataclass(eq=False)
class FunctionEventAvg(_Times):
    """Equal events, summed. Times are microseconds, memory bytes."""

    key: str
    count: int = 0
    is_kernel: bool = False
    is_user_annotation: bool = False
    input_shapes: tuple[Any, ...] = ()
    stack: tuple[str, ...] = ()
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    self_device_memory_usage: int = 0

    def add(self, event: FunctionEvent) -> None:
        """Add one event's times and memory."""
        self.count += 1
        for name in ("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total"):
            setattr(self, name, getattr(self, name) + getattr(event, name))
        for host, place in ((True, "cpu"), (False, "device")):
            for own, prefix in ((False, ""), (True, "self_")):
                name = f"{prefix}{place}_memory_usage"
                setattr(self, name, getattr(self, name) + event.memory_usage(host, own))


def of_recording(recording: Recording, launches: Iterable[Launch], origin: int) -> EventList:
    """The events of a recording: spans by when they began, nested by time on their thread; then kernels."""

    def interval(begin: int, end: int) -> Interval:
        return Interval((begin - origin) / 1e3, (end - origin) / 1e3)

    host = [
        FunctionEvent(s.name, s.category, s.thread, interval(s.begin, s.end), s.shapes or (), s.stack, s.device,
                      memory=s.memory)
        for s in recording.spans
    ]  # fmt: skip
    kernels = []
    for number, each in enumerate(launches):
        duration = 0.0
        if each.begin is not None and each.end is not None:
            ran = interval(each.begin, each.end)
            duration = ran.elapsed_us()
            kernels.append(FunctionEvent(
                each.name, "kernel", each.thread, ran, device=each.device, stream=each.stream, launch=number,
                kernels=[Kernel(each.name, each.device, duration)],
            ))  # fmt: skip
        queued = FunctionEvent("launch", "launch", each.thread, interval(each.queued, each.returned),
                               device=each.device, launch=number,
                               kernels=[Kernel(each.name, each.device, duration)])  # fmt: skip
        host.append(queued)
    host.sort(key=lambda e: (e.time_range.start, -e.time_range.end))
    open_: dict[int, list[FunctionEvent]] = {}
    for event in host:
        stack = open_.setdefault(event.thread, [])
        while stack and stack[-1].time_range.end < event.time_range.end:
            stack.pop()
        if stack:
            event.cpu_parent = stack[-1]
            stack[-1].cpu_children.append(event)
        stack.append(event)
    for event in host:  # a launch's kernel is that of the call which launched it
        if event.category == "launch" and event.cpu_parent is not None:
            event.cpu_parent.kernels += event.kernels
            event.kernels = []
    kernels.sort(key=lambda e: e.time_range.start)
    return EventList([*host, *kernels])


class EventList(list[Any]):
    """Events, or sums of them."""

    @property
    def self_cpu_time_total(self) -> float:
        """Host time of all, microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """Sums of the events that have a name, and by choice shapes or the innermost frames, in common."""
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shape else ()
            stack = event.stack[:group_by_stack_n]
            key = (event.key, event.is_kernel, event.is_user_annotation, str(shapes), stack)
            if key not in found:
                found[key] = FunctionEventAvg(event.key, 0, event.is_kernel, event.is_user_annotation, shapes, stack)
            found[key].add(event)
        return EventList(found.values())

    def total_average(self) -> FunctionEventAvg:
        """Everything in one sum."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
        max_name_column_width: int = 55, max_shapes_column_width: int = 80, header: str | None = None,
        top_level_events_only: bool = False, time_unit: str | None = None,
    ) -> str:  # fmt: skip
        """A table to print. sort_by: an attribute of the sums, as in `self_device_time_total`, `cpu_time`, `count`.

        Kernels have rows of their own, behind the calls that queued them. Raises `ArgumentError` for a sort_by or
        time_unit (`s`, `ms`, `us`) that is not known.
        """
        from .table import render

        rows = self if all(isinstance(e, FunctionEventAvg) for e in self) else self._rows(top_level_events_only)
        return render(rows, sort_by, row_limit, max_name_column_width, max_shapes_column_width, max_src_column_width,
                      header, time_unit)  # fmt: skip

    def _rows(self, top: bool) -> EventList:
        return EventList([e for e in self if not top or e.cpu_parent is None]).key_averages()

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write a line for each stack, with the whole microseconds spent in it: what flame graph scripts read."""
        if metric not in ("self_cpu_time_total", "self_cuda_time_total", "self_device_time_total"):
            raise ArgumentError(
                f"export_stacks: metric is self_cpu_time_total or self_device_time_total, not {metric!r}"
            )
        if not any(event.stack for event in self):
            raise ArgumentError("export_stacks: no stacks were recorded; give profile(..., with_stack=True)")
        with open(path, "w", encoding="utf-8") as file:
            for event in self:
                if event.stack and (spent := int(getattr(event, metric))) > 0:
                    frames = [frame.translate(str.maketrans(" ;\t\n", "____")) for frame in reversed(event.stack)]
                    file.write(f"{';'.join(frames)} {spent}\n")


def in_words(microseconds: float) -> str:
    """`1.234s`, `1.234ms`, `1.234us`."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(microseconds) >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


def sums(rows: Sequence[Any]) -> tuple[float, float]:
    """Host and device microseconds of all rows; a kernel counts once, in its own row."""
    host = sum(row.self_cpu_time_total for row in rows)
    kernels = [row for row in rows if row.is_kernel]
    return host, sum(row.self_device_time_total for row in kernels)
