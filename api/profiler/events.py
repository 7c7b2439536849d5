"""Events of a profile: nested spans of the host with the kernels they launched, and sums of events by name."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from ..runtime.errors import ArgumentError
from ..runtime.launches import Launch
from ..runtime.tracing import Recording
from .table import format_time, render

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "events_from_recording"]

Shapes: TypeAlias = tuple[Sequence[int] | str, ...]
"""Shapes of an op's operands, empty for operands that are no tensors; or the text of a `record_function`."""

HOST_DEVICES = ("cpu", "interpreter")  # devices that run on the host's cores, in its memory


@dataclass(frozen=True, slots=True)
class Interval:
    """Start and end, in microseconds since the start of the profile.

    Args:
        start: Microseconds.
        end: Microseconds.

    Example:
        >>> from weftgrad.profiler.events import Interval
        >>> Interval(2.0, 5.5).elapsed_us()
        3.5
    """

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Return the length in microseconds.

        Returns:
            Microseconds.
        """
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that ran.

    Args:
        name: Name of the kernel.
        device: Name of the device.
        duration: Microseconds; 0 if the device reported no time.

    Example:
        >>> from weftgrad.profiler.events import Kernel
        >>> Kernel('add', 'cpu', 1.5).duration
        1.5
    """

    name: str
    device: str
    duration: float


class _Times(ABC):
    """Averages and formatted times, computed from sums in microseconds that subclasses have."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of calls."""

    @property
    @abstractmethod
    def cpu_time_total(self) -> float:
        """Host time, including nested calls."""

    @property
    @abstractmethod
    def device_time_total(self) -> float:
        """Kernel time, including nested calls."""

    @property
    @abstractmethod
    def self_cpu_time_total(self) -> float:
        """Host time without nested calls."""

    @property
    @abstractmethod
    def self_device_time_total(self) -> float:
        """Kernel time without nested calls."""

    @property
    def cpu_time(self) -> float:
        """Average host time per call, including nested calls."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Average kernel time per call, including nested calls."""
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
        """`cpu_time` with its unit."""
        return format_time(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """`cpu_time_total` with its unit."""
        return format_time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """`self_cpu_time_total` with its unit."""
        return format_time(self.self_cpu_time_total)

    @property
    def device_time_total_str(self) -> str:
        """`device_time_total` with its unit."""
        return format_time(self.device_time_total)

    @property
    def self_device_time_total_str(self) -> str:
        """`self_device_time_total` with its unit."""
        return format_time(self.self_device_time_total)


@dataclass(eq=False)
class FunctionEvent(_Times):
    """One activity of the host (`op`, `launch`, `backward`, `annotation`, `copy`, `compile`), or one kernel.

    Times are in microseconds. `device_time_total` is the time of the kernels launched inside.

    Args:
        name: Name of the op, the range or the kernel.
        category: One of the names above, or `kernel`.
        thread: Identifier of the host's thread.
        time_range: Start and end.
        input_shapes: Shapes of the operands, if they were recorded.
        stack: Python frames, innermost first, if they were recorded.
        device: Name of the device; empty if there is none.
        stream: Number of the stream.
        launch: Number of the launch, for a kernel and for the event that launched it.
        memory: Bytes by which memory in use grew.
        kernels: Kernels that the event itself launched.
        cpu_parent: The event that this one is nested in.
        cpu_children: Events nested in this one.
        count: 1, so that sums and single events have the same attributes.

    Example:
        >>> with wg.profiler.profile() as prof:
        ...     result = wg.ones(2) + 1
        ...
        >>> 'add' in [event.name for event in prof.events()]
        True
    """

    name: str
    category: str
    thread: int
    time_range: Interval
    input_shapes: Shapes = ()
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
        """The name under which events are summed."""
        return "ProfilerStep*" if self.name.startswith("ProfilerStep#") else self.name

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel, which ran on a device."""
        return self.category == "kernel"

    @property
    def is_user_annotation(self) -> bool:
        """Whether it is a named range of the user."""
        return self.category == "annotation"

    @property
    def cpu_time_total(self) -> float:
        """Host time, including nested events."""
        return 0.0 if self.is_kernel else self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        """Host time without nested events."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:
        """Time of the kernels that this event launched itself."""
        return sum(kernel.duration for kernel in self.kernels)

    @property
    def device_time_total(self) -> float:
        """Time of the kernels launched in this event and in nested events."""
        total, pending = 0.0, [self]
        while pending:
            event = pending.pop()
            total += event.self_device_time_total
            pending += event.cpu_children
        return total

    def memory_usage(self, host: bool, self_only: bool) -> int:
        """Return by how many bytes memory in use grew.

        Args:
            host: Count devices that use host memory; else all other devices.
            self_only: Leave out nested events.

        Returns:
            Bytes.
        """
        usage = self.memory if (self.device in HOST_DEVICES) == host and self.device else 0
        nested = sum(child.memory_usage(host, False) for child in self.cpu_children)
        return usage - nested if self_only and usage else 0 if self_only else usage or nested


@dataclass(eq=False)
class FunctionEventAvg(_Times):
    """The sum of events with the same key. Times are in microseconds, memory in bytes.

    Args:
        key: Name of the events.
        count: Number of events.
        is_kernel: Whether they are kernels.
        is_user_annotation: Whether they are named ranges.
        input_shapes: Their input shapes, if events were grouped by them.
        stack: Their innermost frames, if events were grouped by them.
        cpu_time_total: Host time, including nested events.
        self_cpu_time_total: Host time without nested events.
        device_time_total: Time of the kernels launched in the events and in nested events.
        self_device_time_total: Time of the kernels that the events launched themselves.
        cpu_memory_usage: Growth of host memory, including nested events.
        self_cpu_memory_usage: Growth of host memory without nested events.
        device_memory_usage: Growth of other devices' memory, including nested events.
        self_device_memory_usage: Growth of other devices' memory without nested events.

    Example:
        >>> with wg.profiler.profile() as prof:
        ...     result = wg.ones(2) + 1 + 1
        ...
        >>> [row.count for row in prof.key_averages() if row.key == 'add']
        [2]
    """

    key: str
    count: int = 0
    is_kernel: bool = False
    is_user_annotation: bool = False
    input_shapes: Shapes = ()
    stack: tuple[str, ...] = ()
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    self_device_memory_usage: int = 0

    def memory_usage(self, host: bool, self_only: bool) -> int:
        """Return by how many bytes memory in use grew.

        Args:
            host: Count devices that use host memory; else all other devices.
            self_only: Leave out nested events.

        Returns:
            Bytes.
        """
        prefix, memory_kind = "self_" if self_only else "", "cpu" if host else "device"
        usage: int = getattr(self, f"{prefix}{memory_kind}_memory_usage")
        return usage

    def add(self, event: FunctionEvent | FunctionEventAvg) -> None:
        """Add the calls, times and memory of one event, or of another sum.

        Args:
            event: The event or the sum.
        """
        self.count += event.count
        for name in ("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total"):
            setattr(self, name, getattr(self, name) + getattr(event, name))
        for host, memory_kind in ((True, "cpu"), (False, "device")):
            for self_only, prefix in ((False, ""), (True, "self_")):
                name = f"{prefix}{memory_kind}_memory_usage"
                setattr(self, name, getattr(self, name) + event.memory_usage(host, self_only))


def events_from_recording(recording: Recording, launches: Iterable[Launch], origin: int) -> EventList[FunctionEvent]:
    """Return the events of a recording: host events by start time, nested per thread; then kernels.

    Args:
        recording: The recording.
        launches: The launches to include.
        origin: The start of the profile, in nanoseconds.
    """

    def interval(begin: int, end: int) -> Interval:
        return Interval((begin - origin) / 1e3, (end - origin) / 1e3)

    host = [
        FunctionEvent(s.name, s.category, s.thread, interval(s.begin, s.end), s.shapes or (), s.stack, s.device,
                      memory=s.memory)
        for s in recording.spans
    ]  # fmt: skip
    kernels = []
    for number, launch in enumerate(launches):
        duration = 0.0
        if launch.begin is not None and launch.end is not None:
            kernel_interval = interval(launch.begin, launch.end)
            duration = kernel_interval.elapsed_us()
            kernels.append(FunctionEvent(
                launch.name, "kernel", launch.thread, kernel_interval, device=launch.device, stream=launch.stream,
                launch=number,
                kernels=[Kernel(launch.name, launch.device, duration)],
            ))  # fmt: skip
        launch_event = FunctionEvent("launch", "launch", launch.thread, interval(launch.queued, launch.returned),
                               device=launch.device, launch=number,
                               kernels=[Kernel(launch.name, launch.device, duration)])  # fmt: skip
        host.append(launch_event)
    host.sort(key=lambda e: (e.time_range.start, -e.time_range.end))
    open_events: dict[int, list[FunctionEvent]] = {}
    for event in host:
        stack = open_events.setdefault(event.thread, [])
        while stack and stack[-1].time_range.end < event.time_range.end:
            stack.pop()
        if stack:
            event.cpu_parent = stack[-1]
            stack[-1].cpu_children.append(event)
        stack.append(event)
    for event in host:  # credit the kernel to the call that launched it
        if event.category == "launch" and event.cpu_parent is not None:
            event.cpu_parent.kernels += event.kernels
            event.kernels = []
    kernels.sort(key=lambda e: e.time_range.start)
    return EventList([*host, *kernels])


_Event = TypeVar("_Event", FunctionEvent, FunctionEventAvg)


class EventList(list[_Event]):
    """A list of events (`FunctionEvent`) or of sums of events (`FunctionEventAvg`).

    Args:
        iterable: Events.

    Example:
        >>> with wg.profiler.profile() as prof:
        ...     result = wg.ones(2) + 1
        ...
        >>> isinstance(prof.events(), wg.profiler.EventList)
        True
    """

    @property
    def self_cpu_time_total(self) -> float:
        """Host time of all events, in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> EventList[FunctionEventAvg]:
        """Sum the events that have the same name and, optionally, the same input shapes or innermost frames.

        Args:
            group_by_input_shape: Separate events with different input shapes.
            group_by_stack_n: Separate events by this number of innermost frames.

        Returns:
            `EventList` of `FunctionEventAvg`.
        """
        averages: dict[tuple[object, ...], FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shape else ()
            stack = event.stack[:group_by_stack_n]
            key = (event.key, event.is_kernel, event.is_user_annotation, str(shapes), stack)
            if key not in averages:
                averages[key] = FunctionEventAvg(event.key, 0, event.is_kernel, event.is_user_annotation, shapes, stack)
            averages[key].add(event)
        return EventList(averages.values())

    def total_average(self) -> FunctionEventAvg:
        """Return the sum of all events.

        Returns:
            `FunctionEventAvg`.
        """
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
        max_name_column_width: int = 55, max_shapes_column_width: int = 80, header: str | None = None,
        top_level_events_only: bool = False, time_unit: str | None = None,
    ) -> str:  # fmt: skip
        """Return a table to print. Kernels have rows of their own.

        Args:
            sort_by: An attribute of the sums, such as `self_device_time_total`, `cpu_time` or `count`.
            row_limit: The maximum number of rows.
            max_src_column_width: Longer source locations are cut.
            max_name_column_width: Longer names are cut.
            max_shapes_column_width: Longer shapes are cut.
            header: A line above the table.
            top_level_events_only: Leave out nested events.
            time_unit: `s`, `ms` or `us`; None: chosen for each time.

        Returns:
            Text of several lines.

        Raises:
            ArgumentError: `sort_by` or `time_unit` is unknown.
        """
        sums = [event for event in self if isinstance(event, FunctionEventAvg)]
        rows = sums if len(sums) == len(self) else self._sums(top_level_events_only)
        return render(rows, sort_by, row_limit, max_name_column_width, max_shapes_column_width, max_src_column_width,
                      header, time_unit)  # fmt: skip

    def _sums(self, top_level_only: bool) -> EventList[FunctionEventAvg]:
        events = [e for e in self if isinstance(e, FunctionEvent) and not (top_level_only and e.cpu_parent is not None)]
        return EventList(events).key_averages()

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write one line per stack with the microseconds spent in it, as flame graph scripts read it.

        Args:
            path: File.
            metric: `self_cpu_time_total` or `self_device_time_total`.

        Raises:
            ArgumentError: If `metric` is unknown, or no stacks were recorded.
        """
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
