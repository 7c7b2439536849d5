"""Run a suite's rows: check and time each case that `selection` selects, within a `time_budget`."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from subprocess import CalledProcessError
from typing import TYPE_CHECKING

from . import core
from .alternation import Turn
from .cases import Case, Pairs, error_of
from .clocks import Clock
from .facts import accuracy, facts, poison
from .machine_load import LoadMeter
from .measure import compare, host_cost
from .selection import select_host_cases, selects_first_result
from .sites import NotOffered, OurSite, Site
from .time_budget import Allowance, Progress, parse_seconds

if TYPE_CHECKING:
    from .report_types import HostRow, KernelRow

__all__ = ["error_line", "host_rows", "kernel_rows", "measure_case"]

_HOST_PART, _KERNEL_PART = 0, 1  # the parts of a run
_HOST_ROUNDS = 30  # of a row of host costs
_FIRST_RESULT = "first result, warm process"  # the row of host costs that is measured by starting processes


def host_rows(
    options: argparse.Namespace, contenders: Sequence[Site], turn: Turn, done_names: Iterable[str] = (),
    later_rows: int = 0, now: Callable[[], float] = time.monotonic,
) -> Iterator[HostRow]:  # fmt: skip
    """Yield host-cost rows of the first device and the peers with PyTorch's API.

    Args:
        options: the command line's options.
        contenders: our devices, then the peers.
        turn: lets other processes take samples between rows.
        done_names: rows of a resumed run, which are not measured again.
        later_rows: rows of kernels that are measured afterwards in the same time budget.
        now: the clock of the time budget in seconds; tests replace it.

    Stops with a message on stderr when the time budget is used up.
    """
    if options.suite != "core":
        return
    first = contenders[0]
    max_rounds = max(1, _HOST_ROUNDS // options.scale)
    cases = select_host_cases(options, contenders)
    remaining = [(i, case) for i, case in enumerate(cases) if case.name not in done_names]
    measures_first_result = selects_first_result(options) and _FIRST_RESULT not in done_names
    rows_left = len(remaining) + measures_first_result
    allowance = _allowance(options, now)
    for i, case in remaining:
        begin = now()
        turn.wait_at(_HOST_PART, i)
        rounds = allowance.rounds(max_rounds, rows_left + later_rows)
        if not rounds:
            print(f"time is up: {rows_left} rows of host costs are not measured", file=sys.stderr)
            return
        rows_left -= 1
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
        allowance.record(now() - begin, rounds, max_rounds)
        timing = timings.pop(first.name)
        met = all(t * 1e6 <= goal for t, goal in zip((timing.least, timing.median), case.target, strict=True))
        peers = {name: peer_timing.as_times() for name, peer_timing in timings.items()}
        row: HostRow = {
            "name": case.name, **timing.as_times(), "target_us": case.target, "met": met, "peers": peers,
        }  # fmt: skip
        if meter.load is not None:
            row["load"] = meter.load
        yield row
    if measures_first_result:
        turn.wait_at(_HOST_PART, len(cases))
        share = allowance.share(1 + later_rows)
        if share == 0:
            print("time is up: the first result of a process is not measured", file=sys.stderr)
            return
        try:
            seconds = core.first_result(str(first.device), share)
        except CalledProcessError as failure:
            yield {"name": _FIRST_RESULT, "wrong": True, "problem": error_line(failure)}
            return
        yield {"name": _FIRST_RESULT, "least": seconds, "median": seconds, "target_us": (1e6, 1e6),
               "met": seconds <= 1, "peers": {}}  # fmt: skip


def kernel_rows(
    options: argparse.Namespace, contenders: Sequence[Site], cases: Sequence[Case], turn: Turn,
    old_rows: Sequence[KernelRow] = (), now: Callable[[], float] = time.monotonic,
) -> Iterator[KernelRow]:  # fmt: skip
    """Yield rows of kernels.

    Args:
        options: the command line's options.
        contenders: our devices, then the peers.
        cases: what to measure, in this order.
        turn: lets other processes take samples between rounds.
        old_rows: rows of a resumed run, which are not measured again.
        now: the clock of the time budget in seconds; tests replace it.

    Stops with a message on stderr when the time budget is used up.
    """
    done_keys = {(row["group"], row["name"]) for row in old_rows}
    copies: list[tuple[int, float]] = []
    for old_row in old_rows:
        _record_copy(old_row, contenders, copies)
    remaining = [(i, case) for i, case in enumerate(cases) if (case.group, case.name) not in done_keys]
    allowance = _allowance(options, now)
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


def _allowance(options: argparse.Namespace, now: Callable[[], float]) -> Allowance:
    """Return the time that is left of `--time`. Rows of host costs and of kernels share it."""
    begun = getattr(options, "begun", None)
    spent = 0.0 if begun is None else now() - begun
    return Allowance(parse_seconds(options.time) - spent if options.time else None, now)


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
    row: KernelRow = {
        "group": case.group, "name": case.name, "bytes": case.bytes, "flops": case.flops, "target": case.target,
        "precision": case.precision, "clock": case.clock, "dtype": case.element, "against": case.against, "errors": {},
        "facts": {}, "notes": [], "items": case.items, "unit": case.unit,
    }  # fmt: skip
    if case.obstacle:
        return {**row, "problem": f"not measured: {case.obstacle}"}
    first = sites[0]
    calls: dict[str, tuple[Callable[[], object], Clock]] = {}
    with ExitStack() as stack:
        for site in sites:
            if site.memory and 2 * len(sites) * case.bytes > site.memory:
                if site is first:
                    return {**row, "problem": "skipped: too large for this device"}
                continue
            try:
                stack.enter_context(site.precision(case.precision))
                call = _checked_call(case, site, row)
            except NotOffered:
                continue
            except Exception as failure:  # the other rows are still worth having
                row["wrong"] = row.get("wrong", False) or site.ours
                if site is first:
                    return {**row, "problem": error_line(failure)}
                row["notes"].append(f"{site.name}: {error_line(failure)}")
                continue
            if call is not None:
                calls[site.name] = (call, site.clock(case.clock))
            elif site is first:
                return None
        meter = LoadMeter()

        def unmeasured_pause() -> None:
            meter.stop()
            pause()
            meter.start()

        try:
            meter.start()
            times = compare(calls, rounds=rounds, pause=unmeasured_pause, single_calls=case.single_calls)
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
    if case.resident is not None:
        resident = {site.name: case.resident(site) for site in sites if site.name in calls}
        row["resident"] = {name: size for name, size in resident.items() if size is not None}
    return {**row, "least": timing.least, "times": {n: t.as_times() for n, t in times.items()}, "ratios": ratios}


def _checked_call(case: Case, site: Site, row: KernelRow) -> Callable[[], object] | None:
    """Prepare a case on a site, check its results, and add its error and facts to the row.

    Returns:
        The call to time, or None if the site cannot run the case.

    Raises:
        ArithmeticError: the error exceeds the case's tolerance.
    """
    work = case.on(site)
    if work is None:
        return None
    if site.ours and not work.moves:
        poison(site, work.call())
    pairs: Pairs = []
    if site.ours or site.checked:
        pairs = work.pairs()
        error = row["errors"][site.name] = error_of(pairs)
        if not error <= case.tolerance:
            raise ArithmeticError(f"WRONG: relative error {error:.1e}, more than {case.tolerance:.1e}")
    if isinstance(site, OurSite):
        site_facts = row["facts"][site.name] = facts(site, work.call, case.measures_compiling)
        if case.values:
            site_facts["accuracy"] = accuracy(pairs, case.element)
        elif not site_facts["launches"]:
            row["bytes"] = 0  # the gradient is passed through without a kernel
    work.call()
    site.wait()
    return work.call


def error_line(failure: Exception) -> str:
    """Return an error's type and first line."""
    return f"{type(failure).__name__}: {failure}".removeprefix("ArithmeticError: ").partition("\n")[0]
