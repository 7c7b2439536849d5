"""Steps looked at more closely: memory that pools hold from step to step, and a timeline of host and device.

A report keeps both beside its rows, as `curves` and `timelines`; here they are measured, and read back.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..runtime.errors import ArgumentError
from .colours import printable as _text

__all__ = [
    "HOST", "Curve", "Timeline", "cases_of", "curves", "drawn", "memory_of", "program", "record", "timelines",
    "watched",
]  # fmt: skip

Row = dict[str, Any]
_STEPS = 12  # of a curve
_WARM = 3  # steps ahead of a timeline, in which kernels are compiled and pools grow
_TRIES = 5
_MOST = 4000  # bars of a timeline
HOST = ("host", "calls")  # lanes of a timeline that are no device's
_COUNTERS = ("allocated", "peak", "reserved", "driver_allocations", "driver_frees")


@dataclass(frozen=True, slots=True)
class Curve:
    """Memory of a device over the steps of a program, beginning with the first: bytes after each step in use
    (`allocated`) and held from the driver (`reserved`), the most in use within it (`peak`), and how many segments were
    taken from the driver and given back in it."""

    name: str
    device: str
    steps: list[dict[str, int]]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A step: bars of what the host did, in two rows (ranges and backward nodes; calls), and of kernels by device.

    bars: by lane (`host`, `calls`, `cuda:0`), (begin, length, name), in microseconds since the step began. span: until
    the device was done. busy: microseconds in which a lane did something.
    """

    name: str
    device: str
    span: float
    bars: dict[str, list[tuple[float, float, str]]]

    def busy(self, *lanes: str) -> float:
        """Microseconds in which at least one bar of these lanes lasts."""
        total, until = 0.0, float("-inf")
        for begin, length, _ in sorted(bar for lane in lanes for bar in self.bars.get(lane, ())):
            total += max(0.0, begin + length - max(begin, until))
            until = max(until, begin + length)
        return total

    @property
    def summary(self) -> str:
        """`812 us; host 95%, cpu 71% of it`."""
        groups = {"host": HOST} | {lane: (lane,) for lane in self.bars if lane not in HOST}
        shares = ", ".join(f"{n} {self.busy(*g) / self.span:.0%}" for n, g in groups.items()) if self.span else ""
        return f"{self.span:.0f} us" + (f"; busy: {shares}" if shares else "")


def curves(report: Mapping[str, Any]) -> list[Curve]:
    """Those of a report. KeyError, TypeError or ValueError where they are not as they should be."""
    return [
        Curve(_text(each["name"]), _text(each["device"]), [{n: int(s[n]) for n in _COUNTERS} for s in each["steps"]])
        for each in report.get("curves", ())
    ]


def timelines(report: Mapping[str, Any]) -> list[Timeline]:
    """Those of a report. KeyError, TypeError or ValueError where they are not as they should be."""
    return [
        Timeline(_text(each["name"]), _text(each["device"]), float(each["span"]),
                 {_text(lane): [_bar(bar) for bar in bars] for lane, bars in each["bars"].items()})
        for each in report.get("timelines", ())
    ]  # fmt: skip


def cases_of(options: argparse.Namespace) -> Iterator[Any]:
    """Training steps that `--only` selects."""
    from . import train

    yield from (case for case in train.cases() if case.group == "training" and case.matches(options.only))


def watched(options: argparse.Namespace, places: Sequence[Any]) -> Row:
    """Curves and timelines of a suite's training steps on our devices: what a report has beside its rows."""
    found: Row = {"curves": [], "timelines": []}
    for case in cases_of(options):
        for site in places:
            if not site.ours:
                continue
            try:
                device = str(site.device)  # a report may call it otherwise, by the driver it is of
                made, curve = memory_of(case.name, device, lambda case=case, site=site: case.on(site).call)  # type: ignore[misc]
                found["curves"].append(curve | {"device": site.name})
                found["timelines"].append(record(case.name, device, made)[0] | {"device": site.name})
            except Exception as failure:  # its row says what is wrong
                print(f"{case.name}: no timeline on {site.name}: {type(failure).__name__}: {failure}")
            finally:
                site.release()
    return found


def memory_of(name: str, device: str, make: Callable[[], Callable[[], Any]]) -> tuple[Callable[[], Any], Row]:
    """The step that `make` gives, and the curve of its first steps, in pools that gave back what they could."""
    import weftgrad as wg

    wg.synchronize(device)
    wg.empty_cache(device)
    step, steps = make(), []
    before = wg.memory_stats(device)
    for _ in range(_STEPS):
        wg.reset_peak_memory_stats(device)
        step()
        wg.synchronize(device)
        now = wg.memory_stats(device)
        steps.append({"allocated": now["allocated"], "peak": now["allocated_peak"], "reserved": now["reserved"]} | {
            n: now[n] - before[n] for n in ("driver_allocations", "driver_frees")
        })  # fmt: skip
        before = now
    return step, {"name": name, "device": device, "steps": steps}


def record(name: str, device: str, step: Callable[[], Any]) -> tuple[Row, Any]:
    """A timeline of one step, after some that warm up, and the profile it is from: of the shortest of a few, as what
    else runs on a machine only ever adds time."""
    import weftgrad as wg
    from weftgrad.profiler import profile, record_function

    for _ in range(_WARM):
        step()
    found = []
    for _ in range(_TRIES):
        wg.synchronize(device)
        with profile() as made:
            with record_function("step"):
                step()
            wg.synchronize(device)
        found.append((drawn(name, device, made.events()), made))
    return min(found, key=lambda pair: float(pair[0]["span"]))


def drawn(name: str, device: str, events: Sequence[Any]) -> Row:
    """A profile's events as a timeline. The longest bars, where there are too many."""
    lanes: dict[str, list[Any]] = {"host": [], "calls": []}
    for event in events:
        if event.is_kernel:
            lanes.setdefault(event.device, []).append(event)
        elif event.category in ("op", "copy", "compile"):
            lanes["calls"].append(event)
        elif event.category in ("annotation", "backward") and event.name != "step":
            lanes["host"].append(event)
    everything = [e for found in lanes.values() for e in found]
    if len(everything) > _MOST:
        kept = {id(e) for e in sorted(everything, key=lambda e: -e.time_range.elapsed_us())[:_MOST]}
        lanes = {lane: [e for e in found if id(e) in kept] for lane, found in lanes.items()}
    first = min((e.time_range.start for e in events), default=0.0)
    last = max((e.time_range.end for e in events), default=0.0)
    bars = {
        lane: [f"{e.time_range.start - first:.1f} {e.time_range.elapsed_us():.1f} {e.name}" for e in found]
        for lane, found in lanes.items()
    }
    # A device's lane is there even if it did nothing; a line a bar keeps the file short.
    return {"name": name, "device": device, "span": round(last - first, 1), "bars": bars}


def program(path: str, arguments: Sequence[str]) -> Callable[[], Any]:
    """A call that runs a program as `python path arguments` would. ArgumentError where there is no such file."""
    import runpy
    import sys
    from pathlib import Path

    if not Path(path).is_file():
        raise ArgumentError(f"bench: --program {path} is no file")

    def run() -> None:
        before, sys.argv = sys.argv, [path, *arguments]
        sys.path.insert(0, str(Path(path).resolve().parent))
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ArgumentError(f"bench: {path} ended with status {end.code}") from None
        finally:
            sys.argv = before
            sys.path.pop(0)

    return run


def _bar(text: Any) -> tuple[float, float, str]:
    begin, length, name = str(text).split(" ", 2)
    return float(begin), float(length), _text(name)
