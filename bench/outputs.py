"""What a run or reports of earlier ones become: files of several formats, tables on a terminal, a comparison."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..runtime.errors import ArgumentError
from . import changes, summary
from .changes import Change, Comparison
from .colours import Paint, painter
from .roofline import roofs
from .rows import FORMAT, Entry, entries, load, number, sections
from .terminal import fitted, lines

__all__ = ["add_options", "check", "compare_files", "compared", "from_files", "roof_lines", "show", "timeline", "write"]

Report = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options that say what is written, and those that read reports instead of measuring."""
    parser.add_argument("--html", type=Path, metavar="FILE", help="one page with tables and plots, for a browser")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="a folder for plots, PNG and SVG (needs matplotlib)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a line for each row and contender")
    parser.add_argument("--jsonl", type=Path, metavar="FILE", help="the same as JSON, a line for each")
    parser.add_argument(
        "--report", type=Path, nargs="+", metavar="FILE",
        help="measure nothing: show these reports (of --output) and write what the options above name",
    )  # fmt: skip
    parser.add_argument(
        "--compare", type=Path, nargs="+", metavar=("OLD", "NEW"),
        help="compare two reports, or with one, what is measured now; exit status 1 if a row became slower or wrong",
    )  # fmt: skip
    parser.add_argument(
        "--timeline", type=Path, metavar="FILE",
        help="measure nothing: a trace of host and device (JSON, for Perfetto) of a training step, or of a --program",
    )  # fmt: skip
    parser.add_argument(
        "--program", nargs=argparse.REMAINDER, metavar="PROGRAM.py",
        help="for --timeline, and last: the program to run, with its arguments",
    )  # fmt: skip
    parser.add_argument(
        "--threshold", type=float, default=changes.THRESHOLD, metavar="PART",
        help="the least slowing that counts, where samples do not spread more: 0.1 for a tenth, on a quiet machine "
        "(default: %(default)s)",
    )  # fmt: skip


def check(options: argparse.Namespace) -> None:
    """ArgumentError where a file that is asked for cannot be written or drawn: before anything is measured."""
    from . import plots

    if options.plots and not plots.available():
        raise ArgumentError('bench: --plots needs matplotlib: pip install "weftgrad[bench]"')
    for name in ("output", "markdown", "html", "csv", "jsonl", "timeline", "plots"):
        path = getattr(options, name, None)
        if path is not None and (problem := _problem(path, name == "plots")):
            raise ArgumentError(f"bench: --{name} {path} cannot be written: {problem}; name another")


def _problem(path: Path, folder: bool) -> str:
    """What keeps a file, or a folder of files, from being written; empty if nothing does."""
    if path.exists() and path.is_dir() is not folder:
        return "it is no folder" if folder else "it is a folder"
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if place != path and not place.is_dir():
        return f"{place} is no folder"
    try:
        (path if folder else path.parent).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"in {place}: {error.strerror}"
    return "" if os.access(place, os.W_OK) else f"no permission to write to {place}"


def write(options: argparse.Namespace, reports: Sequence[Report]) -> list[Path]:
    """Write the files that are made of all rows together; returns them."""
    from . import page, plots, tables

    found = entries(reports)
    written = []
    for path, text in (
        (options.html, lambda: page.html(reports, found, plots.svg(found, reports) if plots.available() else None)),
        (options.csv, lambda: tables.as_csv(found)), (options.jsonl, lambda: tables.as_json_lines(reports, found)),
    ):  # fmt: skip
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(), encoding="utf-8")
            written.append(path)
    return written + (plots.write(found, options.plots, reports) if options.plots else [])


def from_files(options: argparse.Namespace) -> int:
    """Show reports and write what was asked for. Exit status 0."""
    from .markdown import as_markdown

    if options.output:
        raise ArgumentError("bench: --output is for what is measured, and --report measures nothing")
    check(options)
    reports = [load(path) for path in options.report]
    found = entries(reports)
    show(found)
    written = write(options, reports)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(as_markdown(reports, found), encoding="utf-8")
        written.append(options.markdown)
    print(*(f"written to {path}" for path in written), sep="\n")
    return 0


def timeline(options: argparse.Namespace) -> int:
    """Write the trace of a training step or a program, and what else was asked for of it. Exit status 0."""
    import weftgrad as wg
    from weftgrad.profiler import profile

    from . import steps
    from .machine import describe
    from .sites import OurSite

    check(options)
    name = str(wg.device((options.device or str(wg.device())).partition(",")[0]))
    site = OurSite(name)
    report: Report = {"format": FORMAT, "suite": "train", "machine": None, "host": [], "kernels": [], "curves": []}
    if options.program:
        run = steps.program(options.program[0], options.program[1:])
        with profile(profile_memory=True) as made:
            run()
            wg.synchronize()
        row = steps.drawn(" ".join(options.program), name, made.events())
    else:
        case = next(steps.cases_of(options), None)
        if case is None:
            raise ArgumentError(f"bench: --timeline: no training step has {options.only!r} in its name")
        step, curve = steps.memory_of(case.name, name, lambda: case.on(site).call)
        report["curves"].append(curve)
        row, made = steps.record(case.name, name, step)
    report |= {"machine": describe([site]), "timelines": [row]}
    options.timeline.parent.mkdir(parents=True, exist_ok=True)
    made.export_chrome_trace(options.timeline)
    print(made.key_averages().table(sort_by="self_device_time_total", row_limit=16))
    (line,) = steps.timelines(report)
    print(f"{line.name} on {name}: {line.summary}")
    written = [options.timeline, *write(options, [report])]
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        written.append(options.output)
    print(*(f"written to {path}" for path in written), sep="\n")
    return 0


def show(found: Sequence[Entry]) -> None:
    """Print a table for each device and suite, coloured by the share of what the device was measured to do at most."""
    measured, paint = roofs(found), painter(sys.stdout)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for section in sections(found):
        print(f"\n{paint(section.title, 'head')}")
        print(*lines(section, measured.get(section.hardware), paint, width), sep="\n")
    print(*roof_lines(found), *summary.lines(found), sep="\n")


def roof_lines(found: Sequence[Entry]) -> list[str]:
    """What each piece of hardware was measured to do at most."""
    from .page import roof_text

    return [f"\n{name}, measured: {roof_text(roof)}" for name, roof in roofs(found).items()]


def compare_files(options: argparse.Namespace) -> int:
    """Two reports beside each other."""
    if len(options.compare) > 2:
        raise ArgumentError(f"bench: --compare takes one or two reports, not {len(options.compare)}")
    old, new = (load(path) for path in options.compare)
    return compared(old, new, options.threshold)


def compared(old: Report, new: Report, threshold: float) -> int:
    """Print how rows changed. Exit status 1 if one became slower, or has a problem that it did not have."""
    found = changes.compare(old, new, threshold)
    paint = painter(sys.stdout)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    room = 58 if width is None else max(16, min(58, width - 63))  # what the columns and a verdict leave
    heads = f"{'min us':>10s} {'was':>10s} {'change':>8s} {'medians':>8s} {'peers':>7s} {'counts':>7s}"
    print(fitted('row', room), heads)
    for change in found.changes:
        print(_change_line(change, paint, room))
    print(_summary(found, paint))
    return 1 if found.regressions else 0


def _change_line(change: Change, paint: Paint, room: int) -> str:
    name = fitted(f"{change.new.name} ({change.new.device})", room)
    if change.old.time is None or change.new.time is None:
        role = {"broken": "bad", "mended": "good"}.get(change.verdict, "faint")
        return f"{name} {paint(change.new.problem or change.verdict, role)}"
    role = {"slower": "bad", "faster": "good"}.get(change.verdict, "")
    control = f"{change.control - 1:+.0%}" if abs(change.control - 1) >= 0.005 else ""
    verdict = change.verdict if change.verdict != "same" else ""
    return (
        f"{name} {number(change.new.time['least'] * 1e6):>10s} {number(change.old.time['least'] * 1e6):>10s} "
        f"{paint(f'{change.least - 1:>+8.0%}', role)} {_median(change)} {control:>7s} {change.threshold:>7.0%} "
        f"{paint(verdict, role)}"
    ).rstrip()


def _median(change: Change) -> str:
    """The change of the median, with a mark where it is more than its samples leave open."""
    beyond = change.median > 1 + change.open_median or change.median < 1 / (1 + change.open_median)
    return f"{change.median - 1:+.0%}{'!' if beyond else ' '}".rjust(8)


def _summary(found: Comparison, paint: Paint) -> str:
    verdicts = [change.verdict for change in found.changes]
    words = [f"{len(verdicts)} rows"] + [
        paint(f"{verdicts.count(v)} {v}", role)
        for v, role in (("slower", "bad"), ("broken", "bad"), ("faster", "good"), ("mended", "good"))
        if v in verdicts
    ]
    lines = [", ".join(words) + f"; peers of all rows changed by {found.drift - 1:+.0%} (middle)"]
    lines += [paint(f"another device: {words}", "fair") for words in found.moved]
    for names, what in ((found.missing, "no longer measured"), (found.added, "new")):
        if names:
            lines.append(f"{what}: {', '.join(names[:8])}" + (f" and {len(names) - 8} more" if len(names) > 8 else ""))
    return "\n".join(lines)
