"""Export a profile in Chrome's trace event format (JSON), for Perfetto and chrome://tracing.

The trace has one process for the host and one for each device, arrows from launches to kernels, and memory counters.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from ..runtime.errors import ArgumentError
from ..runtime.tracing import Recording
from .events import EventList, FunctionEvent

__all__ = ["trace", "write"]

_CATEGORIES = {
    "op": "cpu_op", "annotation": "user_annotation", "launch": "runtime", "backward": "autograd", "copy": "memcpy",
    "compile": "compile", "kernel": "kernel",
}  # fmt: skip


class TraceEvent(TypedDict, total=False):
    """One event of the format; which keys it has depends on its phase `ph`."""

    ph: str  # phase: X complete, s and f start and finish of an arrow, C counter, M metadata
    name: str
    cat: str
    pid: int
    tid: int
    ts: float  # microseconds
    dur: float  # microseconds
    id: int | None
    bp: str  # "e": an arrow ends at the event that encloses the point
    args: Mapping[str, object]


def trace(
    events: EventList[FunctionEvent], recordings: Sequence[Recording], metadata: Mapping[str, object]
) -> dict[str, object]:
    """Return the trace as values of JSON. Times are in microseconds since the start of the profile."""
    host = os.getpid()
    levels = [level for recording in recordings for level in recording.levels]
    states = {(level.device, level.allocated, level.reserved) for level in levels}
    state_counts = Counter(device for device, *_ in states)  # one state only: the memory of this device did not change
    devices = list(dict.fromkeys([e.device for e in events if e.is_kernel] + [
        level.device for level in levels if state_counts[level.device] > 1
    ]))  # fmt: skip
    process_ids = {name: host + 1 + i for i, name in enumerate(devices)}
    threads = {t: i for i, t in enumerate(dict.fromkeys(e.thread for e in events if not e.is_kernel))}
    trace_events: list[TraceEvent] = [
        *_names(host, "host", 0),
        *_threads(host, [f"thread {i}" for i in threads.values()]),
    ]
    for i, (name, process_id) in enumerate(process_ids.items()):
        streams = sorted({e.stream for e in events if e.is_kernel and e.device == name})
        trace_events += [*_names(process_id, f"device {name}", i + 1)]
        trace_events += [_meta("thread_name", process_id, stream, name=f"stream {stream}") for stream in streams]
    kernel_names = {event.launch: event.name for event in events if event.is_kernel}
    for event in events:
        lane = (process_ids[event.device], event.stream) if event.is_kernel else (host, threads[event.thread])
        event_name = (
            f"launch {kernel_names[event.launch]}"
            if not event.is_kernel and event.launch in kernel_names
            else event.name
        )
        trace_events.append(_complete(event, event_name, *lane))
        if event.launch is not None and event.launch in kernel_names:
            trace_events.append(_arrow(event, *lane))
    origin = recordings[0].begin
    trace_events += [
        {"ph": "C", "name": f"memory of {level.device}", "pid": process_ids[level.device], "tid": 0,
         "ts": (level.at - origin) / 1e3,
         "args": {"in use": level.allocated, "cached": level.reserved - level.allocated}}
        for level in levels if level.device in process_ids
    ]  # fmt: skip
    return {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": trace_events, **metadata}


def write(path: str | os.PathLike[str], content: Mapping[str, object]) -> None:
    """Write a trace to a file, compressed if its name ends in `.gz`. Raises `ArgumentError` if that fails."""
    text = json.dumps(content, separators=(",", ":"))
    try:
        if os.fspath(path).endswith(".gz"):
            with gzip.open(path, "wt", encoding="utf-8") as file_gz:
                file_gz.write(text)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ArgumentError(f"export_chrome_trace: {os.fspath(path)} cannot be written: {error.strerror}") from None


def _complete(event: FunctionEvent, name: str, process: int, thread: int) -> TraceEvent:
    details: dict[str, object] = {}
    if event.input_shapes:
        details["Input Dims"] = list(event.input_shapes)
    if event.stack:
        details["Call stack"] = "; ".join(event.stack)
    if event.memory:
        details["bytes"] = event.memory
    if event.launch is not None:
        details["correlation"] = event.launch
    return {"ph": "X", "cat": _CATEGORIES.get(event.category, event.category), "name": name, "pid": process,
            "tid": thread, "ts": event.time_range.start, "dur": max(event.time_range.elapsed_us(), 0.0),
            "args": details}  # fmt: skip


def _arrow(event: FunctionEvent, process: int, thread: int) -> TraceEvent:
    """Return one end of the arrow from a launch to its kernel."""
    arrow: TraceEvent = {
        "ph": "f" if event.is_kernel else "s", "id": event.launch, "cat": "launch", "name": "launch",
        "pid": process, "tid": thread, "ts": event.time_range.start,
    }  # fmt: skip
    if event.is_kernel:
        arrow["bp"] = "e"
    return arrow


def _names(process: int, name: str, order: int) -> Iterable[TraceEvent]:
    return (_meta("process_name", process, 0, name=name), _meta("process_sort_index", process, 0, sort_index=order))


def _threads(process: int, names: Sequence[str]) -> list[TraceEvent]:
    return [_meta("thread_name", process, i, name=name) for i, name in enumerate(names)]


def _meta(event: str, process: int, thread: int, **details: str | int) -> TraceEvent:
    return {"ph": "M", "name": event, "pid": process, "tid": thread, "args": details}
