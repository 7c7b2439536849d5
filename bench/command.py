"""`weftgrad bench`: runs a suite, prints a table, keeps JSON, Markdown, CSV, a page and plots; compares reports."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from ..runtime.errors import ArgumentError
from . import outputs

__all__ = ["register", "run"]


def register(subparsers: Any) -> None:
    """Add `bench` to the command line."""
    options(subparsers.add_parser("bench", help="measure devices beside each other and their peers"))


def options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add what the command takes to `parser`."""
    parser.add_argument(
        "--suite", default="core", choices=("core", "ops", "train"),
        help="what to measure: the core, the op library, or training"
    )
    parser.add_argument(
        "--device",
        help="the device to measure, or several with commas between: the first is compared with the others "
        "(default: the one that `weftgrad devices` marks)",
    )
    parser.add_argument("--only", default="", help="only groups or rows whose name contains this")
    parser.add_argument("--output", type=Path, help="a JSON file to write")
    parser.add_argument("--markdown", type=Path, help="a file for the tables as Markdown")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of interleaved samples (default: 5)")
    parser.add_argument("--cases", choices=("cpu", "gpu"), help="rows for cpu or gpu (default: what the devices are)")
    parser.add_argument("--scale", type=int, default=1, help=argparse.SUPPRESS)  # divides sizes, to try GPU rows out
    outputs.add_options(parser)
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Measure, print, and write. Exit status 1 if a result is wrong or failed; a slow one is only marked.

    With reports to show or to compare, nothing is measured.
    """
    if options.report and options.compare:
        raise ArgumentError("bench: --report and --compare are two commands: give one of them")
    if options.report:
        return outputs.from_files(options)
    if options.timeline:
        return outputs.timeline(options)
    if options.compare and len(options.compare) > 1:
        return outputs.compare_files(options)
    return _measure(options)


def _measure(options: argparse.Namespace) -> int:
    """Run a suite."""
    import weftgrad as wg

    from . import report
    from .colours import painter
    from .machine import describe
    from .rows import FORMAT, entries, load, suite_of
    from .sites import sites
    from .steps import watched

    old = load(options.compare[0]) if options.compare else None  # a wrong file is told before an hour of measuring
    if old is not None and suite_of(old) != options.suite:
        raise ArgumentError(
            f"bench: {options.compare[0]} has the suite {suite_of(old)}, and {options.suite} would be measured: "
            f"give --suite {suite_of(old)}"
        )
    outputs.check(options)
    paint = painter(sys.stdout)
    names = [str(wg.device(name)) for name in (options.device or str(wg.device())).split(",")]
    if len(set(names)) < len(names):
        raise ArgumentError(f"bench: --device names a device twice: {options.device}")
    places = sites(names, options.scale)
    found: dict[str, Any] = {"format": FORMAT, "suite": options.suite, "machine": describe(places)}
    found |= {"host": [], "kernels": []}
    print(report.title(found["machine"]))
    parts = (("host", _host, report.HOST_HEAD, report.host_line),
             ("kernels", _kernels, report.KERNEL_HEAD, report.kernel_line))  # fmt: skip
    interrupted = False
    try:
        for part, measure, head, line in parts:
            for row in measure(options, places):
                if not found[part]:
                    print(f"\n{head}")
                print(line(row, paint), flush=True)
                found[part].append(row)
                _write(options, found)  # after every row: a run may be ended from outside
    except KeyboardInterrupt:
        print("interrupted: what was measured so far is kept", file=sys.stderr)
        interrupted = True
    if options.suite == "train" and not interrupted:
        found |= watched(options, places)
    _write(options, found)
    written = [path for path in (options.output, options.markdown) if path]
    if found["kernels"]:
        print(*outputs.roof_lines(entries([found])), sep="\n")
    if found["host"] or found["kernels"]:
        written += outputs.write(options, [found])
    print(*(f"written to {path}" for path in written), sep="\n")
    if interrupted:
        return 130  # as every command here, and a shell's
    if old is not None and outputs.compared(old, found, options.threshold):
        return 1
    return 1 if any(row.get("wrong") for part, *_ in parts for row in found[part]) else 0


def _write(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """The files that were asked for."""
    from . import report

    for path, text in ((options.output, lambda: json.dumps(found, indent=1) + "\n"),
                       (options.markdown, lambda: report.markdown(found))):  # fmt: skip
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(), encoding="utf-8")


def _host(options: argparse.Namespace, places: list[Any]) -> Iterator[dict[str, Any]]:
    """Rows of host costs: of the first device, and of its peers but numpy."""
    from . import core
    from .measure import host_cost

    if options.suite != "core":
        return
    first = places[0]
    rounds = max(1, 30 // options.scale)
    for case in core.host_cases(first.gpu):
        if options.only not in f"host {case.name}":
            continue
        try:
            times = {
                site.name: host_cost(case.make(site), site.wait, calls=case.calls, rounds=rounds)
                for site in places
                if site.name != "numpy"
            }
        except Exception as failure:  # the other rows are still worth having
            yield {"name": case.name, "wrong": True, "problem": _words(failure)}
            continue
        mine = times.pop(first.name)
        met = all(t * 1e6 <= goal for t, goal in zip((mine.least, mine.median), case.target, strict=True))
        peers = {name: asdict(t) for name, t in times.items()}
        yield {"name": case.name, **asdict(mine), "target_us": case.target, "met": met, "peers": peers}
    if options.only in "host first result" and options.scale == 1:
        try:
            seconds = core.first_result(first.name)
        except CalledProcessError as failure:
            yield {"name": "first result, warm process", "wrong": True, "problem": _words(failure)}
            return
        yield {"name": "first result, warm process", "least": seconds, "median": seconds, "target_us": (1e6, 1e6),
               "met": seconds <= 1, "peers": {}}  # fmt: skip


def _kernels(options: argparse.Namespace, places: list[Any]) -> Iterator[dict[str, Any]]:
    from . import core, gpu, library, train
    from .sites import is_gpu

    own = [site for site in places if site.ours]
    present = any(site.device.type == "interpreter" or is_gpu(site.device) for site in own)
    on_gpu = options.cases == "gpu" or (present and not options.cases)
    if options.suite != "core":
        selected = deque((library if options.suite == "ops" else train).cases())
    else:
        selected = deque(gpu.cases(options.scale) if on_gpu else core.cases())
    compared = any("copy" in (case.target or {}) and case.matches(options.only) for case in selected)
    copies: list[tuple[int, float]] = []
    while selected:
        case = selected.popleft()
        if not (case.matches(options.only) or (compared and case.group == "roofline")):
            continue
        row = _measured(case, places, options.rounds, copies)
        if row is None:
            continue
        if case.group == "roofline" and "problem" not in row:
            times = row["times"]
            least = min(times[n]["least"] for n in (places[0].name, "torch") if n in times and _together(places, n))
            copies.append((case.bytes, case.bytes / least))
        yield row
        gc.collect()
        for site in places:
            site.release()


def _together(places: list[Any], name: str) -> bool:
    """Whether a contender runs where the first one does, GPU or host."""
    return any(site.name == name and site.gpu == places[0].gpu for site in places)


def _measured(case: Any, places: list[Any], rounds: int, copies: list[tuple[int, float]]) -> dict[str, Any] | None:
    """One case on all sites, checked and timed; None where the first device has no part in it."""
    from .cases import error_of
    from .measure import compare

    row: dict[str, Any] = {
        "group": case.group, "name": case.name, "bytes": case.bytes, "flops": case.flops, "target": case.target,
        "precision": case.precision, "clock": case.clock, "errors": {}, "notes": [],
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
                if site.ours:
                    error = row["errors"][site.name] = error_of(work.pairs())
                    if not error <= case.tolerance:
                        raise ArithmeticError(f"WRONG: relative error {error:.1e}, more than {case.tolerance:.1e}")
                work.call()
                site.wait()
            except Exception as failure:  # the other rows are still worth having
                row["wrong"] = row.get("wrong", False) or site.ours
                if site is first:
                    return row | {"problem": _words(failure)}
                row["notes"].append(f"{site.name}: {_words(failure)}")
                continue
            contenders[site.name] = (work.call, site.clock(case.clock))
        try:
            times = compare(contenders, rounds=rounds)
        except Exception as failure:
            return row | {"problem": _words(failure), "wrong": True}
    mine = times[first.name]
    ratios = {n: (t.least / mine.least, t.median / mine.median) for n, t in times.items() if n != first.name}
    if copies and "copy" in (case.target or {}):
        # The least copy that moves as many bytes: a launch costs a short one a share of its bandwidth, too.
        bandwidth = min([c for c in copies if c[0] >= case.bytes] or [max(copies)])[1]
        ratios["copy"] = tuple(case.bytes / t / bandwidth for t in (mine.least, mine.median))
    row["missed"] = [n for n, goal in (case.target or {}).items() if n in ratios and ratios[n][0] < goal]
    row["notes"] += [f"{n}: host late in {t.late} of {t.samples}" for n, t in times.items() if t.late]
    return row | {"least": mine.least, "times": {n: asdict(t) for n, t in times.items()}, "ratios": ratios}


def _words(failure: Exception) -> str:
    """An error on one line."""
    return f"{type(failure).__name__}: {failure}".removeprefix("ArithmeticError: ").partition("\n")[0]
