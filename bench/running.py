"""Going through a suite's rows: which are wanted, how many rounds there is time for, how far it is, what is done."""

from __future__ import annotations

import argparse
import gc
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from subprocess import CalledProcessError
from typing import IO, Any

from ..runtime.errors import ArgumentError
from .cases import Case, error_of
from .sites import NotOffered, Site
from .turns import Turn

__all__ = ["Allowance", "Progress", "host_rows", "kernel_rows", "seconds_of", "selected", "words"]

Row = dict[str, Any]
_HOST, _KERNELS = 0, 1  # the parts of a run
_ROOFED = ("core", "ops", "specs")  # suites whose rows are a share of what the device was measured to do


def seconds_of(text: str) -> float:
    """Seconds of `90`, `90s`, `10m` or `1h`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if match is None or not float(match[1]) > 0:
        raise ArgumentError(f"bench: --time takes a time as 90s, 10m or 1h, not {text!r}")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


class Allowance:
    """A time budget: how many rounds of samples the next row may have.

    A row has a part that does not depend on rounds (preparing, checking, compiling), taken for half of what a row with
    all rounds takes. Rows get fewer rounds, one at least, as soon as the rest would not fit; when time is up, none.
    """

    def __init__(self, seconds: float | None, now: Callable[[], float] = time.monotonic):
        self._now = now
        self.end = None if seconds is None else now() + seconds
        self._full: list[float] = []  # seconds that rows took, as if they had had all rounds

    def rounds(self, wanted: int, rows: int) -> int:
        """Rounds for the next of `rows` rows that are left, `wanted` at most."""
        if self.end is None:
            return wanted
        left = self.end - self._now()
        if left <= 0:
            return 0
        if not self._full:
            return wanted
        share = left / max(1, rows) / (sum(self._full) / len(self._full))
        return max(1, min(wanted, math.floor((2 * share - 1) * wanted)))

    def took(self, seconds: float, rounds: int, wanted: int) -> None:
        """What the row took."""
        self._full.append(seconds * 2 * wanted / (wanted + rounds))

    def left(self, rows: int) -> float | None:
        """Seconds until all rows are done, by those that are; None before the first."""
        if not self._full:
            return None
        needed = rows * sum(self._full) / len(self._full)
        return needed if self.end is None else min(needed, max(0.0, self.end - self._now()))


class Progress:
    """A line on a terminal that says what is measured and how long it takes yet. Nothing where there is no terminal."""

    def __init__(self, total: int, stream: IO[str]):
        self.total, self.done = total, 0
        self._stream = stream if stream.isatty() else None

    def show(self, name: str, left: float | None) -> None:
        """Before a row is measured."""
        if self._stream is not None:
            rest = "" if left is None else f", {_duration(left)} left"
            self._stream.write(f"\r\x1b[K[{self.done + 1}/{self.total}{rest}] {name[:60]}")
            self._stream.flush()

    def clear(self) -> None:
        """Before anything else is written."""
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _duration(seconds: float) -> str:
    """`1 h 05 min`, `2 min`, `40 s`"""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    return f"{math.ceil(seconds / 60)} min" if seconds > 90 else f"{math.ceil(seconds)} s"


def selected(options: argparse.Namespace, places: Sequence[Site]) -> list[Case]:
    """The rows of kernels that are wanted, in the order in which they are measured."""
    from . import core, gpu, library, limits, sweep, train
    from .sites import is_gpu

    own = [site for site in places if site.ours]
    present = any(site.device.type == "interpreter" or is_gpu(site.device) for site in own)
    on_gpu = options.cases == "gpu" or (present and not options.cases)
    dtypes = sweep.dtypes_of(options.dtypes) if options.dtypes else None
    made: list[Case]
    if options.suite == "specs":
        made = list(sweep.cases(options))
    elif options.suite == "core":
        made = list(gpu.cases(options.scale) if on_gpu else core.cases())
    elif options.suite == "device":
        made = list(limits.cases(on_gpu, options.scale))
    else:
        made = list((library if options.suite == "ops" else train).cases())
    wanted = [c for c in made if c.matches(options.only) and (dtypes is None or c.element in dtypes)]
    if options.time:
        wanted = _in_turn(wanted)
    # What other rows are a share of: rows that a target names, and the roof where no single rows were asked for.
    needed = [c for c in made if c.group == "roofline"] if any("copy" in (c.target or {}) for c in wanted) else []
    roofs = list(limits.roofs(on_gpu, options.scale)) if options.suite in _ROOFED and not options.only else []
    # On a GPU last: what reads a device's clock slows OpenCL's launches from then on, and some rows wait for launches.
    ordered = [*needed, *wanted, *roofs] if on_gpu else [*needed, *roofs, *wanted]
    return list({(case.group, case.name): case for case in reversed(ordered)}.values())[::-1]


def _in_turn(cases: Sequence[Case]) -> list[Case]:
    """One of each group in turn, so that a run that is cut short has rows of every group."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    return [case for some in zip_longest(*groups.values()) for case in some if case is not None]


def host_rows(
    options: argparse.Namespace, places: Sequence[Site], turn: Turn, done: Iterable[str] = ()
) -> Iterator[Row]:
    """Rows of host costs: of the first device, and of its peers that are called as it is."""
    from . import core
    from .measure import host_cost

    if options.suite != "core":
        return
    first = places[0]
    rounds = max(1, 30 // options.scale)
    cases = list(core.host_cases(first.gpu))
    for i, case in enumerate(cases):
        if options.only not in f"host {case.name}" or case.name in done:
            continue
        turn.take(_HOST, i)
        try:
            times = {
                site.name: host_cost(case.make(site), site.wait, calls=case.calls, rounds=rounds)
                for site in places
                if site.modules
            }
        except Exception as failure:  # the other rows are still worth having
            yield {"name": case.name, "wrong": True, "problem": words(failure)}
            continue
        mine = times.pop(first.name)
        met = all(t * 1e6 <= goal for t, goal in zip((mine.least, mine.median), case.target, strict=True))
        peers = {name: asdict(t) for name, t in times.items()}
        yield {"name": case.name, **asdict(mine), "target_us": case.target, "met": met, "peers": peers}
    name = "first result, warm process"
    if options.only in "host first result" and options.scale == 1 and name not in done:
        turn.take(_HOST, len(cases))
        try:
            seconds = core.first_result(str(first.device))
        except CalledProcessError as failure:
            yield {"name": name, "wrong": True, "problem": words(failure)}
            return
        yield {"name": name, "least": seconds, "median": seconds, "target_us": (1e6, 1e6),
               "met": seconds <= 1, "peers": {}}  # fmt: skip


def kernel_rows(
    options: argparse.Namespace, places: Sequence[Site], turn: Turn, old: Sequence[Row] = (),
    now: Callable[[], float] = time.monotonic,
) -> Iterator[Row]:  # fmt: skip
    """Rows of kernels, those of `old` left out. Stops with a word on stderr when the time budget is used up."""
    done = {(row["group"], row["name"]) for row in old}
    copies: list[tuple[int, float]] = []
    for each in old:
        _note_copy(each, places, copies)
    wanted = list(enumerate(selected(options, places)))
    cases = [(place, case) for place, case in wanted if (case.group, case.name) not in done]
    begun = getattr(options, "begun", None)  # rows of host costs were measured before, in the same time
    spent = 0.0 if begun is None else now() - begun
    allowance = Allowance(options.time and seconds_of(options.time) - spent, now)
    progress = Progress(len(cases), sys.stderr)
    for i, (place, case) in enumerate(cases):
        begin = now()
        turn.take(_KERNELS, place)
        rounds = allowance.rounds(options.rounds, len(cases) - i)
        if not rounds:
            progress.clear()
            print(f"time is up: {len(cases) - i} of {len(cases)} rows are not measured", file=sys.stderr)
            return
        show = partial(progress.show, f"{case.group}: {case.name}", allowance.left(len(cases) - i))

        def pause(show: Callable[[], None] = show) -> None:
            """Let other processes take samples of theirs."""
            if not turn.alone:
                progress.clear()
                turn.pass_on()
                show()

        show()
        try:
            row = measured(case, places, rounds, copies, pause)
        finally:
            progress.clear()
        allowance.took(now() - begin, rounds, options.rounds)
        progress.done += 1
        if row is None:
            continue
        _note_copy(row, places, copies)
        yield row
        gc.collect()
        for site in places:
            site.release()


def _note_copy(row: Row, places: Sequence[Site], copies: list[tuple[int, float]]) -> None:
    """Keep a copy's bandwidth, which later rows are compared with."""
    if row["group"] == "roofline" and "problem" not in row:
        times = row["times"]
        least = min(times[n]["least"] for n in (places[0].name, "torch") if n in times and _together(places, n))
        copies.append((row["bytes"], row["bytes"] / least))


def _together(places: Sequence[Site], name: str) -> bool:
    """Whether a contender runs where the first one does, GPU or host."""
    return any(site.name == name and site.gpu == places[0].gpu for site in places)


def measured(
    case: Case, places: Sequence[Site], rounds: int, copies: Sequence[tuple[int, float]],
    pause: Callable[[], None] = lambda: None,
) -> Row | None:  # fmt: skip
    """One case on all sites, checked and timed; None where the first device has no part in it. pause: called between
    rounds."""
    from .facts import accuracy, facts, poison
    from .measure import compare

    row: Row = {
        "group": case.group, "name": case.name, "bytes": case.bytes, "flops": case.flops, "target": case.target,
        "precision": case.precision, "clock": case.clock, "dtype": case.element, "against": case.against, "errors": {},
        "facts": {}, "notes": [],
    }  # fmt: skip
    first = places[0]
    contenders = {}
    with ExitStack() as stack:
        for site in places:
            if site.memory and 2 * len(places) * case.bytes > site.memory:
                if site is first:
                    return row | {"problem": "skipped: too large for this device"}
                continue
            try:
                stack.enter_context(site.precision(case.precision))
                work = case.on(site)
                if work is None:
                    if site is first:
                        return None
                    continue
                if site.ours and not work.moves:
                    poison(site, work.call())
                if site.ours or site.checked:
                    pairs = work.pairs()
                    error = row["errors"][site.name] = error_of(pairs)
                    if not error <= case.tolerance:
                        raise ArithmeticError(f"WRONG: relative error {error:.1e}, more than {case.tolerance:.1e}")
                if site.ours:
                    row["facts"][site.name] = facts(site, work.call)
                    if case.values:
                        row["facts"][site.name]["accuracy"] = accuracy(pairs, case.element)
                    elif not row["facts"][site.name]["launches"]:
                        row["bytes"] = 0  # the gradient is passed on as it is
                work.call()
                site.wait()
            except NotOffered:
                continue
            except Exception as failure:  # the other rows are still worth having
                row["wrong"] = row.get("wrong", False) or site.ours
                if site is first:
                    return row | {"problem": words(failure)}
                row["notes"].append(f"{site.name}: {words(failure)}")
                continue
            contenders[site.name] = (work.call, site.clock(case.clock))
        try:
            times = compare(contenders, rounds=rounds, pause=pause)
        except Exception as failure:
            return row | {"problem": words(failure), "wrong": True}
    mine = times[first.name]
    ratios = {n: (t.least / mine.least, t.median / mine.median) for n, t in times.items() if n != first.name}
    if copies and "copy" in (case.target or {}):
        # The least copy that moves as many bytes: a launch costs a short one a share of its bandwidth, too.
        bandwidth = min([c for c in copies if c[0] >= case.bytes] or [max(copies)])[1]
        ratios["copy"] = (case.bytes / mine.least / bandwidth, case.bytes / mine.median / bandwidth)
    row["missed"] = [n for n, goal in (case.target or {}).items() if n in ratios and ratios[n][0] < goal]
    row["notes"] += [f"{n}: host late in {t.late} of {t.samples}" for n, t in times.items() if t.late]
    return row | {"least": mine.least, "times": {n: asdict(t) for n, t in times.items()}, "ratios": ratios}


def words(failure: Exception) -> str:
    """An error on one line."""
    return f"{type(failure).__name__}: {failure}".removeprefix("ArithmeticError: ").partition("\n")[0]
