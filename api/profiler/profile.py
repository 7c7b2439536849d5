"""`profile`: record events in chosen steps, and export them."""

from __future__ import annotations

import enum
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Self

from ..runtime.device import open_drivers
from ..runtime.errors import ArgumentError
from ..runtime.launches import Launch, now
from ..runtime.tracing import Recording, Span
from . import chrome
from .events import HOST_DEVICES, EventList, FunctionEvent, FunctionEventAvg, events_from_recording
from .recording import CallRecorder

__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(enum.Enum):
    """An activity that a profile records.

    `CPU` stands for the host, and for kernels on `cpu`. All other members stand for kernels on other devices.

    Example:
        >>> wg.profiler.ProfilerActivity.CPU in wg.profiler.supported_activities()
        True
    """

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What the profiler does in a step.

    Example:
        >>> wg.profiler.schedule(wait=1, warmup=1, active=1)(1)
        <ProfilerAction.WARMUP: 1>
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """Return the activities that a profile records by default.

    Returns:
        Set of two activities.

    Example:
        >>> len(wg.profiler.supported_activities())
        2
    """
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Return a schedule for `profile`: cycles of waiting, warming up and recording.

    Args:
        wait: Steps per cycle that are not recorded.
        warmup: Steps per cycle that are recorded and discarded.
        active: Steps per cycle that are recorded and saved.
        repeat: The number of cycles; 0: no limit.
        skip_first: Steps before the first cycle.
        skip_first_wait: If not 0, the first cycle has no waiting steps.

    Returns:
        Function from a step number to a `ProfilerAction`.

    Raises:
        ArgumentError: A number is negative, or `active` is 0.

    Example:
        >>> action = wg.profiler.schedule(wait=1, warmup=1, active=2)
        >>> [action(step).name for step in range(4)]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE']
    """
    counts = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip_first}
    if min(counts.values()) < 0 or not active:
        count_list = ", ".join(f"{name}={value}" for name, value in counts.items())
        raise ArgumentError(f"schedule: numbers of steps are 0 or more, and active 1 or more, not {count_list}")

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise ArgumentError(f"schedule: steps are numbered from 0, not {step}")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        length = wait + warmup + active
        if repeat and step // length >= repeat:
            return ProfilerAction.NONE
        offset = step % length
        if offset < wait:
            return ProfilerAction.NONE
        if offset < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if offset < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """Return a function for `on_trace_ready` that writes each cycle's trace into a folder.

    Args:
        dir_name: The folder.
        worker_name: The start of the file name; None: host name and process id. The time is appended.
        use_gzip: Compress the file.

    Returns:
        Function of a `profile`.

    Example:
        >>> callable(wg.profiler.tensorboard_trace_handler('traces'))
        True
    """

    def write(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(
            os.path.join(dir_name, f"{name}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}")
        )

    return write


class profile:
    """Record what runs between `start` and `stop`, or in a `with` block.

    It records op calls of the thread that started it, backward passes, optimizer steps, ranges of `record_function`,
    and every kernel of the process. Meanwhile OpenCL queues record times, which costs about 3 us per launch, and CUDA
    launches are bracketed by two events.

    Args:
        activities: The activities to record; None: all.
        schedule: A function from a step number to a `ProfilerAction`; `step()` then ends each step.
        on_trace_ready: Called with the profile at the end of each cycle.
        record_shapes: Record the shapes of operands.
        profile_memory: Record how much memory each call allocates; costs some microseconds per call.
        with_stack: Record the call stacks.
        with_flops: Not supported.
        with_modules: Not supported.
        acc_events: Keep the events of all cycles, not only of the last one.

    Raises:
        ArgumentError: Another profile is active, or an option is not supported.

    Example:
        >>> with wg.profiler.profile() as prof:
        ...     result = wg.ones(2) + 1
        ...
        >>> [row.count for row in prof.key_averages() if row.key == 'add']
        [1]
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], object] | None = None, record_shapes: bool = False,
        profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
        acc_events: bool = False,
    ):  # fmt: skip
        for name, value in (("with_flops", with_flops), ("with_modules", with_modules)):
            if value:
                raise ArgumentError(f"profile: {name} is not measured here; leave it out")
        self.activities = supported_activities() if activities is None else set(activities)
        if not self.activities or not all(isinstance(a, ProfilerActivity) for a in self.activities):
            raise ArgumentError(f"profile: activities are ProfilerActivity, one or more, not {activities!r}")
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = self._action(0)
        self._recording: Recording | None = None
        self._calls: CallRecorder | None = None
        self._begin = 0  # start time of the step
        self._recordings: list[Recording] = []
        self._metadata: dict[str, object] = {}
        self._events: EventList[FunctionEvent] | None = None

    def _action(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(step)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start recording, with step 0."""
        self.step_num = 0
        self.current_action = self._action(0)
        self._recordings, self._events = [], None
        self._change(ProfilerAction.NONE, self.current_action)
        self._begin = now()

    def stop(self) -> None:
        """Stop recording. An unfinished cycle is saved, and `on_trace_ready` called, as at its end."""
        if self._recording is None:
            return
        is_recording = self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if self.schedule is not None and is_recording and now() > self._begin:
            self._end_of_step(self._recording)
        self._end(keep=is_recording)
        if is_recording and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """Begin the next step."""
        if self.schedule is not None and self._recording is not None:
            self._end_of_step(self._recording)
        previous = self.current_action
        self.step_num += 1
        self.current_action = self._action(self.step_num)
        self._change(previous, self.current_action)
        self._begin = now()

    def _end_of_step(self, recording: Recording) -> None:
        name = f"ProfilerStep#{self.step_num}"
        recording.spans.append(Span(name, "annotation", threading.get_ident(), self._begin, now()))

    def _change(self, previous: ProfilerAction, current: ProfilerAction) -> None:
        """Start and stop recordings for the change from one step's action to the next."""
        if previous is ProfilerAction.RECORD_AND_SAVE:
            self._end(keep=True)
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        elif previous is ProfilerAction.WARMUP and current is not ProfilerAction.WARMUP:
            self._end(keep=False)
        elif previous is ProfilerAction.RECORD and current in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            self._end(keep=True)
        if current is not ProfilerAction.NONE and self._recording is None:
            recording = Recording()
            recording.start()
            self._recording = recording
            self._calls = CallRecorder(
                recording, shapes=self.record_shapes, stack=self.with_stack, memory=self.profile_memory
            )
            self._calls.start()
            if self.profile_memory:
                for driver in open_drivers():
                    recording.level(driver)

    def _end(self, keep: bool) -> None:
        if self._calls is not None:
            self._calls.stop()
        recording, self._recording, self._calls = self._recording, None, None
        if recording is not None:
            recording.stop()
            if keep:
                self._recordings = [*self._recordings, recording] if self.acc_events else [recording]
                self._events = None

    # results

    def events(self) -> EventList[FunctionEvent]:
        """Return the host events by start time, then the kernels. Times are in microseconds since the start.

        Returns:
            `EventList` of `FunctionEvent`.

        Raises:
            ArgumentError: If nothing was recorded yet.
        """
        if not self._recordings:
            raise ArgumentError("profile: nothing was recorded yet; end it, or a cycle of its schedule, first")
        if self._events is None:
            events = [
                e
                for r in self._recordings
                for e in events_from_recording(r, self._launches(r), self._recordings[0].begin)
            ]
            includes_host = ProfilerActivity.CPU in self.activities
            self._events = EventList([e for e in events if includes_host or e.is_kernel])
        return self._events

    def _launches(self, recording: Recording) -> list[Launch]:
        """Return the launches on the devices of `activities`."""
        includes_host = ProfilerActivity.CPU in self.activities
        includes_devices = bool(self.activities - {ProfilerActivity.CPU})
        return [e for e in recording.launches if (includes_host if e.device in HOST_DEVICES else includes_devices)]

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> EventList[FunctionEventAvg]:
        """Return sums of events by name (`EventList.key_averages`). Print them with `.table(...)`.

        Args:
            group_by_input_shape: Separate events with different input shapes.
            group_by_stack_n: Separate events by this number of innermost frames.

        Returns:
            `EventList` of `FunctionEventAvg`.

        Raises:
            ArgumentError: If nothing was recorded yet.
        """
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON for Perfetto or chrome://tracing, compressed if the name ends in `.gz`.

        Args:
            path: File.

        Raises:
            ArgumentError: If nothing was recorded yet.
        """
        chrome.write(path, chrome.trace(self.events(), self._recordings, self._metadata))

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write the stacks with the time spent in each (`EventList.export_stacks`).

        Args:
            path: File.
            metric: `self_cpu_time_total` or `self_device_time_total`.

        Raises:
            ArgumentError: If `metric` is unknown, or no stacks were recorded.
        """
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the trace.

        Args:
            key: Name in the trace.
            value: Text.
        """
        self._metadata[key] = str(value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add JSON text to the trace.

        Args:
            key: Name in the trace.
            value: JSON text.

        Raises:
            ArgumentError: If `value` is not valid JSON.
        """
        try:
            self._metadata[key] = json.loads(value)
        except ValueError as error:
            raise ArgumentError(f"add_metadata_json: {key}: not JSON: {error}") from None
