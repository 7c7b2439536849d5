"""Details of training steps: memory from step to step, and a timeline of host and device.

A report stores them beside its rows, as `curves` and `timelines`. This module measures them and reads them back.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import weftgrad as wg

from ..runtime.errors import ArgumentError
from .colours import printable as _text

if TYPE_CHECKING:
    from ..profiler import profile
    from ..profiler.events import FunctionEvent
    from .cases import Case
    from .report_types import CurveRow, MemoryStep, Report, TimelineRow
    from .sites import Site

__all__ = [
    "HOST",
    "Curve",
    "Timeline",
    "curves",
    "program_call",
    "record",
    "record_memory",
    "record_steps",
    "step_call",
    "timeline_row",
    "timelines",
    "training_cases",
]  # fmt: skip

_CURVE_STEPS = 12  # of a curve
_WARMUP_STEPS = 3  # steps before a timeline, in which kernels are compiled and pools grow
_TIMELINE_TRIES = 5
_MAX_BARS = 4000  # bars of a timeline
HOST = ("host", "calls")  # lanes of a timeline that are no device's


@dataclass(frozen=True, slots=True)
class Curve:
    """A device's memory over the first steps of a program.

    Each step has bytes in use after it (`allocated`), bytes held from the driver (`reserved`), the maximum in use
    within it (`peak`), and the number of segments allocated from and released to the driver (`driver_allocations`,
    `driver_frees`).
    """

    name: str
    device: str
    steps: list[MemoryStep]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One step: bars for the host (ranges and backward nodes; calls) and for each device's kernels.

    bars: by lane (`host`, `calls`, `cuda:0`), (begin, length, name) in microseconds since the step began.
    span: microseconds until the device was done.
    """

    name: str
    device: str
    span: float
    bars: dict[str, list[tuple[float, float, str]]]

    def busy(self, *lanes: str) -> float:
        """Return the microseconds in which at least one bar of these lanes is active."""
        total, until = 0.0, float("-inf")
        for begin, length, _ in sorted(bar for lane in lanes for bar in self.bars.get(lane, ())):
            total += max(0.0, begin + length - max(begin, until))
            until = max(until, begin + length)
        return total

    @property
    def summary(self) -> str:
        """The duration and each lane's busy share: `812 us; busy: host 95%, cpu 71%`."""
        groups = {"host": HOST} | {lane: (lane,) for lane in self.bars if lane not in HOST}
        shares = ", ".join(f"{n} {self.busy(*g) / self.span:.0%}" for n, g in groups.items()) if self.span else ""
        return f"{self.span:.0f} us" + (f"; busy: {shares}" if shares else "")


def curves(report: Report) -> list[Curve]:
    """Read a report's memory curves. Raise KeyError, TypeError or ValueError if they are malformed."""
    return [
        Curve(_text(row["name"]), _text(row["device"]), list(map(_memory_step, row["steps"])))
        for row in report.get("curves", ())
    ]


def timelines(report: Report) -> list[Timeline]:
    """Read a report's timelines. Raise KeyError, TypeError or ValueError if they are malformed."""
    return [
        Timeline(_text(row["name"]), _text(row["device"]), float(row["span"]),
                 {_text(lane): [_bar(bar) for bar in bars] for lane, bars in row["bars"].items()})
        for row in report.get("timelines", ())
    ]  # fmt: skip


def training_cases(options: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases of training steps that `--only` selects."""
    from . import train  # lazy: start-up of the command line

    yield from (case for case in train.cases() if case.group == "training" and case.matches(options.only))


def record_steps(
    options: argparse.Namespace, contenders: Sequence[Site]
) -> tuple[list[CurveRow], list[TimelineRow]]:  # fmt: skip
    """Measure the memory curves and timelines of the suite's training steps on our devices."""
    curve_rows: list[CurveRow] = []
    timeline_rows: list[TimelineRow] = []
    for case in training_cases(options):
        for site in contenders:
            if not site.ours:
                continue
            try:
                device = str(site.device)  # the report's name may differ: it contains the driver
                step, curve = record_memory(case.name, device, partial(step_call, case, site))
                curve_rows.append({**curve, "device": site.name})
                timeline_rows.append({**record(case.name, device, step)[0], "device": site.name})
            except Exception as failure:  # the step's row in the report has the error
                print(f"{case.name}: no timeline on {site.name}: {type(failure).__name__}: {failure}")
            finally:
                site.release()
    return curve_rows, timeline_rows


def step_call(case: Case, site: Site) -> Callable[[], object]:
    """Return the call of a training step on a site. Raise ValueError if the site cannot run it."""
    work = case.on(site)
    if work is None:
        raise ValueError(f"{site.name} does not run {case.name}")
    return work.call


def record_memory(
    name: str, device: str, make: Callable[[], Callable[[], object]]
) -> tuple[Callable[[], object], CurveRow]:  # fmt: skip
    """Run the first steps of the function that `make` returns. Return the function and the memory curve's row.

    Cached memory is released first.
    """
    wg.synchronize(device)
    wg.empty_cache(device)
    step = make()
    steps: list[MemoryStep] = []
    old_stats = wg.memory_stats(device)
    for _ in range(_CURVE_STEPS):
        wg.reset_peak_memory_stats(device)
        step()
        wg.synchronize(device)
        stats = wg.memory_stats(device)
        steps.append({
            "allocated": stats["allocated"], "peak": stats["allocated_peak"], "reserved": stats["reserved"],
            "driver_allocations": stats["driver_allocations"] - old_stats["driver_allocations"],
            "driver_frees": stats["driver_frees"] - old_stats["driver_frees"],
        })  # fmt: skip
        old_stats = stats
    return step, {"name": name, "device": device, "steps": steps}


def record(name: str, device: str, step: Callable[[], object]) -> tuple[TimelineRow, profile]:
    """Profile a few steps after warming up. Return the timeline row and the profile of the shortest step.

    The shortest, because other load on the machine only adds time.
    """
    from ..profiler import profile, record_function  # lazy: start-up of the command line

    for _ in range(_WARMUP_STEPS):
        step()
    candidates = []
    for _ in range(_TIMELINE_TRIES):
        wg.synchronize(device)
        with profile() as profiler:
            with record_function("step"):
                step()
            wg.synchronize(device)
        candidates.append((timeline_row(name, device, profiler.events()), profiler))
    return min(candidates, key=lambda pair: pair[0]["span"])


def timeline_row(name: str, device: str, events: Sequence[FunctionEvent]) -> TimelineRow:
    """Convert a profile's events to a timeline row. If there are too many bars, keep the longest."""
    lanes: dict[str, list[FunctionEvent]] = {"host": [], "calls": []}
    for event in events:
        if event.is_kernel:
            lanes.setdefault(event.device, []).append(event)
        elif event.category in ("op", "copy", "compile"):
            lanes["calls"].append(event)
        elif event.category in ("annotation", "backward") and event.name != "step":
            lanes["host"].append(event)
    all_events = [e for lane_events in lanes.values() for e in lane_events]
    if len(all_events) > _MAX_BARS:
        longest = {id(e) for e in sorted(all_events, key=lambda e: -e.time_range.elapsed_us())[:_MAX_BARS]}
        lanes = {lane: [e for e in lane_events if id(e) in longest] for lane, lane_events in lanes.items()}
    first = min((e.time_range.start for e in events), default=0.0)
    last = max((e.time_range.end for e in events), default=0.0)
    bars = {
        lane: [f"{e.time_range.start - first:.1f} {e.time_range.elapsed_us():.1f} {e.name}" for e in lane_events]
        for lane, lane_events in lanes.items()
    }
    # One string per bar keeps the JSON file short.
    return {"name": name, "device": device, "span": round(last - first, 1), "bars": bars}


def program_call(path: str, arguments: Sequence[str]) -> Callable[[], object]:
    """Return a call that runs a program as `python path arguments` would. Raise ArgumentError if there is no file."""
    if not Path(path).is_file():
        raise ArgumentError(f"bench: --program {path} is no file")

    def run() -> None:
        old_argv, sys.argv = sys.argv, [path, *arguments]
        sys.path.insert(0, str(Path(path).resolve().parent))
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ArgumentError(f"bench: {path} ended with status {end.code}") from None
        finally:
            sys.argv = old_argv
            sys.path.pop(0)

    return run


def _memory_step(row: MemoryStep) -> MemoryStep:
    """Return the numbers of a stored step. Raise an error if one is missing or no number."""
    return {
        "allocated": int(row["allocated"]), "peak": int(row["peak"]), "reserved": int(row["reserved"]),
        "driver_allocations": int(row["driver_allocations"]), "driver_frees": int(row["driver_frees"]),
    }  # fmt: skip


def _bar(text: object) -> tuple[float, float, str]:
    begin, length, name = str(text).split(" ", 2)
    return float(begin), float(length), _text(name)
