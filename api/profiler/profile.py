"""`profile`: what is recorded when, and what becomes of it."""

from __future__ import annotations

import enum
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from ..runtime import tracing
from ..runtime.errors import ArgumentError
from ..runtime.tracing import Launch, Recording, Span, now
from . import chrome
from .events import EventList, of_recording
from .recording import Calls

__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip

_ON_HOST = ("cpu", "interpreter")


class ProfilerActivity(enum.Enum):
    """What is recorded: CPU: the host, and kernels on its cores; the others all mean kernels on other devices."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What is done in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """What a profile records unless told otherwise."""
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """What `profile` does in which step: after `skip_first` steps, cycles of `wait` steps in which nothing is recorded,
    `warmup` whose record is thrown away, and `active` that are kept.

    repeat: how many cycles; 0: without end. skip_first_wait: not 0: the first cycle does not wait.
    Raises `ArgumentError` for numbers below 0, or no active step.
    """
    given = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip_first}
    if min(given.values()) < 0 or not active:
        words = ", ".join(f"{name}={value}" for name, value in given.items())
        raise ArgumentError(f"schedule: numbers of steps are 0 or more, and active 1 or more, not {words}")

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
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For `on_trace_ready`: writes each cycle's trace into a folder, named by host, process and time."""

    def write(made: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        made.export_chrome_trace(
            os.path.join(dir_name, f"{name}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}")
        )

    return write


class profile:
    """Records what runs between `start` and `stop`, or in a `with` block: calls of the thread that began it, backward
    passes, steps of optimizers, ranges of `record_function`, and every kernel of the process.

    activities: default all. schedule: a function from the number of a step to a `ProfilerAction`; then `step()` ends
    each step. on_trace_ready: called with the profile at the end of each cycle. record_shapes: of operands.
    profile_memory: by how much calls let memory grow; looking costs some microseconds a call. with_stack: where calls
    come from. acc_events: keep the events of all cycles, not the last one's alone.

    While it lasts, OpenCL queues keep times, which costs about 3 us a launch, and CUDA launches are between two events.
    Raises `ArgumentError` where another profile lasts, and for PyTorch's options that nothing here measures.
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False,
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
        self._calls: Calls | None = None
        self._begin = 0  # of the step
        self._kept: list[Recording] = []
        self._metadata: dict[str, Any] = {}
        self._events: EventList | None = None

    def _action(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(step)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with step 0."""
        self.step_num = 0
        self.current_action = self._action(0)
        self._kept, self._events = [], None
        self._change(ProfilerAction.NONE, self.current_action)
        self._begin = now()

    def stop(self) -> None:
        """End. What was recorded of a cycle that is not over is kept, and `on_trace_ready` called, as at its end."""
        if self._recording is None:
            return
        recording = self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if self.schedule is not None and recording and now() > self._begin:
            self._end_of_step()
        self._end(keep=recording)
        if recording and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """The next step begins."""
        if self.schedule is not None and self._recording is not None:
            self._end_of_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self._action(self.step_num)
        self._change(before, self.current_action)
        self._begin = now()

    def _end_of_step(self) -> None:
        name = f"ProfilerStep#{self.step_num}"
        self._recording.spans.append(  # type: ignore[union-attr]
            Span(name, "annotation", threading.get_ident(), self._begin, now())
        )

    def _change(self, before: ProfilerAction, after: ProfilerAction) -> None:
        """From one step's action to the next one's."""
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._end(keep=True)
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        elif before is ProfilerAction.WARMUP and after is not ProfilerAction.WARMUP:
            self._end(keep=False)
        elif before is ProfilerAction.RECORD and after in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            self._end(keep=True)
        if after is not ProfilerAction.NONE and self._recording is None:
            recording = Recording()
            recording.start()
            self._recording = recording
            self._calls = Calls(recording, shapes=self.record_shapes, stack=self.with_stack, memory=self.profile_memory)
            self._calls.start()
            if self.profile_memory:
                for driver in tracing.drivers():
                    recording.level(driver)

    def _end(self, keep: bool) -> None:
        if self._calls is not None:
            self._calls.stop()
        recording, self._recording, self._calls = self._recording, None, None
        if recording is not None:
            recording.stop()
            if keep:
                self._kept = [*self._kept, recording] if self.acc_events else [recording]
                self._events = None

    # what becomes of it

    def events(self) -> EventList:
        """Everything on the host, by when it began, then kernels. Times are microseconds since the beginning."""
        if not self._kept:
            raise ArgumentError("profile: nothing was recorded yet; end it, or a cycle of its schedule, first")
        if self._events is None:
            found = [e for r in self._kept for e in of_recording(r, self._launches(r), self._kept[0].begin)]
            host = ProfilerActivity.CPU in self.activities
            self._events = EventList([e for e in found if host or e.is_kernel])
        return self._events

    def _launches(self, recording: Recording) -> list[Launch]:
        """Launches on the devices that were asked for."""
        host, others = ProfilerActivity.CPU in self.activities, self.activities - {ProfilerActivity.CPU}
        return [e for e in recording.launches if (host if e.device in _ON_HOST else others)]

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """Sums of equal events (`EventList.key_averages`), to be shown by `.table(...)`."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON for Perfetto or chrome://tracing; compressed where the name ends in `.gz`."""
        chrome.write(path, chrome.trace(self.events(), self._kept, self._metadata))

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write stacks with the time spent in them (`EventList.export_stacks`)."""
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text into the trace."""
        self._metadata[key] = str(value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put a JSON text into the trace. Raises `ArgumentError` for text that is none."""
        import json

        try:
            self._metadata[key] = json.loads(value)
        except ValueError as error:
            raise ArgumentError(f"add_metadata_json: {key}: not JSON: {error}") from None
