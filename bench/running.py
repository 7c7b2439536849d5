"""Run a suite's rows: select cases, keep a time budget, show progress, check and time each row."""

from __future__ import annotations

import argparse
import gc
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from subprocess import CalledProcessError
from typing import IO, TYPE_CHECKING

from ..runtime.errors import ArgumentError, WeftgradError
from .alternation import Turn
from .cases import Case, error_of
from .machine_load import LoadMeter
from .sites import NotOffered, OurSite, Site, is_gpu

if TYPE_CHECKING:
    from . import core
    from .report_types import HostRow, KernelRow

__all__ = ["Allowance", "NothingMeasured", "Progress", "error_line", "host_rows", "kernel_rows", "parse_seconds",
           "select_cases", "select_host_cases"]  # fmt: skip

_HOST_PART, _KERNEL_PART = 0, 1  # the parts of a run
_SUITES_WITH_ROOFS = ("core", "ops", "specs")  # suites whose rows get a share of the roofline
_MAX_LISTED_GROUPS = 12  # in an error


class NothingMeasured(WeftgradError):
    """The options leave no row to measure, or no time for one."""


def parse_seconds(text: str) -> float:
    """Return the seconds of `90`, `90s`, `10m` or `1h`. Raise ArgumentError for any other text."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if match is None or not float(match[1]) > 0:
        raise ArgumentError(f"bench: --time takes a time as 90s, 10m or 1h, not {text!r}")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


class Allowance:
    """A time budget: decides how many rounds of samples the next row gets.

    Model: preparing, checking and compiling take half of the time of a row with all rounds. Rows get fewer rounds, but
    at least one, as soon as the remaining rows would exceed the budget. When the time is up, they get none.
    """

    def __init__(self, seconds: float | None, now: Callable[[], float] = time.monotonic):
        self._now = now
        self.end = None if seconds is None else now() + seconds
        self._full: list[float] = []  # seconds that rows took, as if they had had all rounds

    def rounds(self, max_rounds: int, rows: int) -> int:
        """Return the rounds for the next of `rows` remaining rows, at most `max_rounds`."""
        if self.end is None:
            return max_rounds
        seconds_left = self.end - self._now()
        if seconds_left <= 0:
            return 0
        if not self._full:
            return max_rounds
        share = seconds_left / max(1, rows) / (sum(self._full) / len(self._full))
        return max(1, min(max_rounds, math.floor((2 * share - 1) * max_rounds)))

    def record(self, seconds: float, rounds: int, max_rounds: int) -> None:
        """Record the seconds that a row with `rounds` rounds took."""
        self._full.append(seconds * 2 * max_rounds / (max_rounds + rounds))

    def left(self, rows: int) -> float | None:
        """Estimate the seconds for the remaining `rows` rows from the finished ones; None before the first."""
        if not self._full:
            return None
        needed = rows * sum(self._full) / len(self._full)
        return needed if self.end is None else min(needed, max(0.0, self.end - self._now()))


class Progress:
    """A progress line with the current row and the remaining time. Silent if the stream is no terminal."""

    def __init__(self, total: int, stream: IO[str]):
        self.total, self.done = total, 0
        self._stream = stream if stream.isatty() else None

    def show(self, name: str, left: float | None) -> None:
        """Show the row that is measured now and the estimated seconds left."""
        if self._stream is not None:
            left_text = "" if left is None else f", {_duration(left)} left"
            self._stream.write(f"\r\x1b[K[{self.done + 1}/{self.total}{left_text}] {name[:60]}")
            self._stream.flush()

    def clear(self) -> None:
        """Erase the line, before other output."""
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _duration(seconds: float) -> str:
    """Format seconds as `1 h 05 min`, `2 min` or `40 s`."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    return f"{math.ceil(seconds / 60)} min" if seconds > 90 else f"{math.ceil(seconds)} s"


def select_cases(options: argparse.Namespace, contenders: Sequence[Site]) -> list[Case]:
    """Return the cases that the options select, in the order in which they are measured.

    Raises:
        NothingMeasured: `--only` or `--dtypes` leave no row, and there are no other processes that may have one.
    """
    # lazy: start-up of the command line
    from . import core, gpu, library, limits, sweep, train
    from .models import suite as models

    our_sites = [site for site in contenders if isinstance(site, OurSite)]
    has_gpu = any(site.device.type == "interpreter" or is_gpu(site.device) for site in our_sites)
    on_gpu = options.cases == "gpu" or (has_gpu and not options.cases)
    dtypes = sweep.dtypes_of(options.dtypes) if options.dtypes else None
    all_cases: list[Case]
    if options.suite == "specs":
        all_cases = list(sweep.cases(options))
    elif options.suite == "core":
        all_cases = list(gpu.cases(options.scale) if on_gpu else core.cases())
    elif options.suite == "models":
        all_cases = list(models.cases(on_gpu and options.scale == 1))
    elif options.suite == "device":
        all_cases = list(limits.cases(on_gpu, options.scale))
    else:
        all_cases = list((library if options.suite == "ops" else train).cases())
    cases = [c for c in all_cases if c.matches(options.only) and (dtypes is None or c.element in dtypes)]
    if not cases and not options.part and not _selects_host_rows(options, contenders):
        raise NothingMeasured(_no_rows_text(options, all_cases))
    if options.time:
        cases = _interleave_groups(cases)
    # Reference rows: copies, if a target is a share of a copy; roofline rows, unless --only selects single rows.
    copies = [c for c in all_cases if c.group == "roofline"] if any("copy" in (c.target or {}) for c in cases) else []
    roofs = (
        list(limits.roofs(on_gpu, options.scale)) if options.suite in _SUITES_WITH_ROOFS and not options.only else []
    )
    # On a GPU last: profiling events slow OpenCL launches from then on, and some rows depend on launch latency.
    ordered = [*copies, *cases, *roofs] if on_gpu else [*copies, *roofs, *cases]
    return list({(case.group, case.name): case for case in reversed(ordered)}.values())[::-1]


def _no_rows_text(options: argparse.Namespace, all_cases: Sequence[Case]) -> str:
    """Return why no row is selected, and what can be."""
    reasons = [f"has {options.only!r} in its group or name (--only)"] if options.only else []
    reasons += [f"is of dtype {options.dtypes} (--dtypes)"] if options.dtypes else []
    groups = list(dict.fromkeys(case.group for case in all_cases))
    listed = ", ".join(groups[:_MAX_LISTED_GROUPS]) + (", …" if len(groups) > _MAX_LISTED_GROUPS else "")
    example = f', a row "{all_cases[0].name}"' if all_cases else ""
    return (
        f"bench: no row of the suite {options.suite} {' and '.join(reasons) or 'runs on this device'}: its groups are "
        f"{listed or 'none'}{example}; name one of them, or another suite by --suite"
    )


def select_host_cases(options: argparse.Namespace, contenders: Sequence[Site]) -> list[core.HostCase]:
    """Return the cases of host costs that the options select. The first result of a process is none of them."""
    from . import core  # lazy: start-up of the command line

    if options.suite != "core":
        return []
    return [case for case in core.host_cases(contenders[0].gpu) if options.only in f"host {case.name}"]


def _selects_first_result(options: argparse.Namespace) -> bool:
    return options.suite == "core" and options.only in "host first result" and options.scale == 1


def _selects_host_rows(options: argparse.Namespace, contenders: Sequence[Site]) -> bool:
    return bool(select_host_cases(options, contenders)) or _selects_first_result(options)


def _interleave_groups(cases: Sequence[Case]) -> list[Case]:
    """Interleave the groups, so that a run that is cut short has rows of every group."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    return [case for layer in zip_longest(*groups.values()) for case in layer if case is not None]


def host_rows(
    options: argparse.Namespace, contenders: Sequence[Site], turn: Turn, done_names: Iterable[str] = ()
) -> Iterator[HostRow]:
    """Yield host-cost rows of the first device and the peers with PyTorch's API."""
    # lazy: start-up of the command line
    from . import core
    from .measure import host_cost

    if options.suite != "core":
        return
    first = contenders[0]
    rounds = max(1, 30 // options.scale)
    cases = select_host_cases(options, contenders)
    for i, case in enumerate(cases):
        if case.name in done_names:
            continue
        turn.wait_at(_HOST_PART, i)
        meter = LoadMeter()
        meter.start()
        try:
            timings = {
                site.name: host_cost(case.make(site), site.wait, calls=case.calls, rounds=rounds)
                for site in contenders
                if site.modules
            }
        except Exception as failure:  # the other rows are still worth having
            yield {"name": case.name, "wrong": True, "problem": error_line(failure)}
            continue
        meter.stop()
        timing = timings.pop(first.name)
        met = all(t * 1e6 <= goal for t, goal in zip((timing.least, timing.median), case.target, strict=True))
        peers = {name: peer_timing.as_times() for name, peer_timing in timings.items()}
        row: HostRow = {
            "name": case.name, **timing.as_times(), "target_us": case.target, "met": met, "peers": peers,
        }  # fmt: skip
        if meter.load is not None:
            row["load"] = meter.load
        yield row
    name = "first result, warm process"
    if _selects_first_result(options) and name not in done_names:
        turn.wait_at(_HOST_PART, len(cases))
        try:
            seconds = core.first_result(str(first.device))
        except CalledProcessError as failure:
            yield {"name": name, "wrong": True, "problem": error_line(failure)}
            return
        yield {"name": name, "least": seconds, "median": seconds, "target_us": (1e6, 1e6),
               "met": seconds <= 1, "peers": {}}  # fmt: skip


def kernel_rows(
    options: argparse.Namespace, contenders: Sequence[Site], turn: Turn, old_rows: Sequence[KernelRow] = (),
    now: Callable[[], float] = time.monotonic, cases: Sequence[Case] | None = None,
) -> Iterator[KernelRow]:  # fmt: skip
    """Yield rows of kernels.

    Args:
        options: the command line's options.
        contenders: our devices, then the peers.
        turn: lets other processes take samples between rounds.
        old_rows: rows of a resumed run, which are not measured again.
        now: the clock of the time budget in seconds; tests replace it.
        cases: the cases; None for those that the options select.

    Stops with a message on stderr when the time budget is used up.
    """
    done_keys = {(row["group"], row["name"]) for row in old_rows}
    copies: list[tuple[int, float]] = []
    for old_row in old_rows:
        _record_copy(old_row, contenders, copies)
    positions = list(enumerate(select_cases(options, contenders) if cases is None else cases))
    remaining = [(position, case) for position, case in positions if (case.group, case.name) not in done_keys]
    begun = getattr(options, "begun", None)  # rows of host costs were measured before, in the same time
    spent = 0.0 if begun is None else now() - begun
    allowance = Allowance(options.time and parse_seconds(options.time) - spent, now)
    progress = Progress(len(remaining), sys.stderr)
    for i, (position, case) in enumerate(remaining):
        begin = now()
        turn.wait_at(_KERNEL_PART, position)
        rounds = allowance.rounds(options.rounds, len(remaining) - i)
        if not rounds:
            progress.clear()
            print(f"time is up: {len(remaining) - i} of {len(remaining)} rows are not measured", file=sys.stderr)
            return
        show = partial(progress.show, f"{case.group}: {case.name}", allowance.left(len(remaining) - i))

        def pause(show: Callable[[], None] = show) -> None:
            """Let other processes take their samples."""
            if not turn.is_alone:
                progress.clear()
                turn.pass_on()
                show()

        show()
        try:
            row = measure_case(case, contenders, rounds, copies, pause)
        finally:
            progress.clear()
        allowance.record(now() - begin, rounds, options.rounds)
        progress.done += 1
        if row is None:
            continue
        _record_copy(row, contenders, copies)
        yield row
        gc.collect()
        for site in contenders:
            site.release()


def _record_copy(row: KernelRow, contenders: Sequence[Site], copies: list[tuple[int, float]]) -> None:
    """Record a copy's (bytes, bandwidth), which later rows are compared with."""
    if row["group"] == "roofline" and "problem" not in row:
        times = row["times"]
        least = min(
            times[n]["least"]
            for n in (contenders[0].name, "torch")
            if n in times and _is_on_same_hardware(contenders, n)
        )
        copies.append((row["bytes"], row["bytes"] / least))


def _is_on_same_hardware(contenders: Sequence[Site], name: str) -> bool:
    """Return True if a contender runs on the same kind of hardware (GPU or host) as the first one."""
    return any(site.name == name and site.gpu == contenders[0].gpu for site in contenders)


def measure_case(
    case: Case, sites: Sequence[Site], rounds: int, copies: Sequence[tuple[int, float]],
    pause: Callable[[], None] = lambda: None,
) -> KernelRow | None:  # fmt: skip
    """Check and time one case on all sites.

    Args:
        case: the case.
        sites: our devices, then the peers.
        rounds: rounds of samples.
        copies: (bytes, bandwidth) of the copies measured before.
        pause: called between rounds.

    Returns:
        The report's row, or None if the first device cannot run the case.
    """
    # lazy: start-up of the command line
    from .facts import accuracy, facts, poison
    from .measure import compare

    row: KernelRow = {
        "group": case.group, "name": case.name, "bytes": case.bytes, "flops": case.flops, "target": case.target,
        "precision": case.precision, "clock": case.clock, "dtype": case.element, "against": case.against, "errors": {},
        "facts": {}, "notes": [], "items": case.items, "unit": case.unit,
    }  # fmt: skip
    first = sites[0]
    calls = {}
    with ExitStack() as stack:
        for site in sites:
            if site.memory and 2 * len(sites) * case.bytes > site.memory:
                if site is first:
                    return {**row, "problem": "skipped: too large for this device"}
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
                if isinstance(site, OurSite):
                    row["facts"][site.name] = facts(site, work.call, case.measures_compiling)
                    if case.values:
                        row["facts"][site.name]["accuracy"] = accuracy(pairs, case.element)
                    elif not row["facts"][site.name]["launches"]:
                        row["bytes"] = 0  # the gradient is passed through without a kernel
                work.call()
                site.wait()
            except NotOffered:
                continue
            except Exception as failure:  # the other rows are still worth having
                row["wrong"] = row.get("wrong", False) or site.ours
                if site is first:
                    return {**row, "problem": error_line(failure)}
                row["notes"].append(f"{site.name}: {error_line(failure)}")
                continue
            calls[site.name] = (work.call, site.clock(case.clock))
        meter = LoadMeter()

        def unmeasured_pause() -> None:
            meter.stop()
            pause()
            meter.start()

        try:
            meter.start()
            times = compare(calls, rounds=rounds, pause=unmeasured_pause)
            meter.stop()
        except Exception as failure:
            return {**row, "problem": error_line(failure), "wrong": True}
    timing = times[first.name]
    ratios: dict[str, Sequence[float]] = {
        n: (t.least / timing.least, t.median / timing.median) for n, t in times.items() if n != first.name
    }
    if copies and "copy" in (case.target or {}):
        # Compare with the smallest copy of at least this size: launch latency lowers a short copy's bandwidth, too.
        bandwidth = min([c for c in copies if c[0] >= case.bytes] or [max(copies)])[1]
        ratios["copy"] = (case.bytes / timing.least / bandwidth, case.bytes / timing.median / bandwidth)
    row["missed"] = [n for n, goal in (case.target or {}).items() if n in ratios and ratios[n][0] < goal]
    row["notes"] += [f"{n}: host late in {t.late} of {t.samples}" for n, t in times.items() if t.late]
    if meter.load is not None:
        row["load"] = meter.load
    return {**row, "least": timing.least, "times": {n: t.as_times() for n, t in times.items()}, "ratios": ratios}


def error_line(failure: Exception) -> str:
    """Return an error's type and first line."""
    return f"{type(failure).__name__}: {failure}".removeprefix("ArithmeticError: ").partition("\n")[0]
