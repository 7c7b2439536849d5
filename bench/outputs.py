"""Outputs of a run or of stored reports: files of several formats, tables on a terminal, a comparison."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import weftgrad as wg

from ..runtime.errors import ArgumentError
from . import changes, summary
from .changes import Change, Comparison
from .colours import Paint, painter
from .roofline import roofs
from .rows import FORMAT, Entry, entries, number, sections
from .terminal import pad_to_width, section_lines

if TYPE_CHECKING:
    from .report_types import Report

__all__ = [
    "add_options",
    "check",
    "compare_files",
    "from_files",
    "known_tables",
    "print_comparison",
    "print_summary",
    "roof_lines",
    "show",
    "timeline",
    "write",
]

_FOLDERS = ("plots", "figures", "curves")  # options that name folders for pictures


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name output files, and those that read reports instead of measuring."""
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
        "--figures", type=Path, metavar="DIR",
        help="draw two figures of the PyTorch paper from our own training of ResNet-50, or of the model that --only "
        "names: host and device within a step, and the first steps with and without the caching allocator "
        "(needs matplotlib)",
    )  # fmt: skip
    parser.add_argument(
        "--curves", type=Path, metavar="DIR",
        help="train the small models, or the one that --only names, and draw what they learn (needs matplotlib)",
    )  # fmt: skip
    parser.add_argument(
        "--program", nargs=argparse.REMAINDER, metavar="PROGRAM.py",
        help="for --timeline, and last: the program to run, with its arguments",
    )  # fmt: skip
    parser.add_argument(
        "--threshold", type=float, default=changes.THRESHOLD, metavar="PART",
        help="the smallest relative slowdown that counts, if samples do not spread more: 0.1 for 10 %%, on a quiet "
        "machine (default: %(default)s)",
    )  # fmt: skip


def check(options: argparse.Namespace) -> None:
    """Raise ArgumentError before a long run if a requested file cannot be written or plotted."""
    # lazy: start-up of the command line
    from . import plots

    for name in _FOLDERS:
        if getattr(options, name, None) and not plots.available():
            raise ArgumentError(f'bench: --{name} needs matplotlib: pip install "weftgrad[bench]"')
    for name in ("output", "markdown", "html", "csv", "jsonl", "timeline", *_FOLDERS):
        path = getattr(options, name, None)
        if path is not None and (problem := _path_problem(path, name in _FOLDERS)):
            raise ArgumentError(f"bench: --{name} {path} cannot be written: {problem}; name another")


def _path_problem(path: Path, folder: bool) -> str:
    """Return why a file, or a folder of files, cannot be written; empty if it can."""
    if path.exists() and path.is_dir() is not folder:
        return "it is no folder" if folder else "it is a folder"
    parent = path
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if parent != path and not parent.is_dir():
        return f"{parent} is no folder"
    try:
        (path if folder else path.parent).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"in {parent}: {error.strerror}"
    return "" if os.access(parent, os.W_OK) else f"no permission to write to {parent}"


def write(options: argparse.Namespace, reports: Sequence[Report]) -> list[Path]:
    """Write the HTML, CSV, JSON-lines and plot files that the options name, and return their paths."""
    # lazy: start-up of the command line
    from . import page, plots, tables

    all_entries = entries(reports)
    paths = []
    for path, text in (
        (options.html,
         lambda: page.html(reports, all_entries, plots.svg(all_entries, reports) if plots.available() else None)),
        (options.csv, lambda: tables.as_csv(all_entries)),
        (options.jsonl, lambda: tables.as_json_lines(reports, all_entries)),
    ):  # fmt: skip
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(), encoding="utf-8")
            paths.append(path)
    return paths + (plots.write(all_entries, options.plots, reports) if options.plots else [])


def from_files(options: argparse.Namespace) -> int:
    """Print stored reports and write the requested files. Return exit status 0."""
    # lazy: start-up of the command line
    from .markdown import as_markdown
    from .report_files import load

    if options.output:
        raise ArgumentError("bench: --output is for what is measured, and --report measures nothing")
    check(options)
    reports = [load(path) for path in options.report]
    all_entries = entries(reports)
    show(all_entries)
    written = write(options, reports)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(as_markdown(reports, all_entries), encoding="utf-8")
        written.append(options.markdown)
    print(*(f"written to {path}" for path in written), sep="\n")
    return 0


def timeline(options: argparse.Namespace) -> int:
    """Write the trace of a training step or a program, and the other requested files. Return exit status 0."""
    # lazy: start-up of the command line
    from ..profiler import profile
    from . import steps
    from .machine import describe
    from .report_files import as_bytes
    from .sites import OurSite

    check(options)
    name = str(wg.device((options.device or str(wg.device())).partition(",")[0]))
    site = OurSite(name)
    report: Report = {
        "format": FORMAT, "suite": "train", "machine": describe([site]), "host": [], "kernels": [], "curves": [],
    }  # fmt: skip
    if options.program:
        run = steps.program_call(options.program[0], options.program[1:])
        with profile(profile_memory=True) as profiler:
            run()
            wg.synchronize()
        row = steps.timeline_row(" ".join(options.program), name, profiler.events())
    else:
        case = next(steps.training_cases(options), None)
        if case is None:
            raise ArgumentError(f"bench: --timeline: no training step has {options.only!r} in its name")
        step, curve = steps.record_memory(case.name, name, partial(steps.step_call, case, site))
        report["curves"].append(curve)
        row, profiler = steps.record(case.name, name, step)
    report["timelines"] = [row]
    options.timeline.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(options.timeline)
    print(profiler.key_averages().table(sort_by="self_device_time_total", row_limit=16))
    (line,) = steps.timelines(report)
    print(f"{line.name} on {name}: {line.summary}")
    paths = [options.timeline, *write(options, [report])]
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_bytes(as_bytes(report, options.output))
        paths.append(options.output)
    print(*(f"written to {path}" for path in paths), sep="\n")
    return 0


def show(all_entries: Sequence[Entry]) -> None:
    """Print a table for each device and suite, coloured by the share of the measured roofline."""
    roof_by_hardware, paint = roofs(all_entries), painter(sys.stdout)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for section in sections(all_entries):
        print(f"\n{paint(section.title, 'head')}")
        print(*section_lines(section, roof_by_hardware.get(section.hardware), paint, width), sep="\n")
    print_summary(all_entries)


def print_summary(all_entries: Sequence[Entry]) -> None:
    """Print what stands below the tables of rows: rooflines, tables as other benchmarks print them, marks and means."""
    print(*roof_lines(all_entries), *known_tables(all_entries), *summary.legend(all_entries),
          *summary.lines(all_entries), sep="\n")  # fmt: skip


def known_tables(all_entries: Sequence[Entry]) -> list[str]:
    """Return the lines of the tables that other benchmarks print, for entries of the suites named after them."""
    # lazy: start-up of the command line
    from . import babelstream, tritonbench

    return [*babelstream.table_lines(all_entries), *tritonbench.table_lines(all_entries)]


def roof_lines(all_entries: Sequence[Entry]) -> list[str]:
    """Return one line per device with its measured roofline."""
    # lazy: start-up of the command line
    from .page import roof_text

    return [f"\n{name}, measured: {roof_text(roof)}" for name, roof in roofs(all_entries).items()]


def compare_files(options: argparse.Namespace) -> int:
    """Compare two report files. Return 1 if a row became slower or wrong."""
    from .report_files import load  # lazy: start-up of the command line

    if len(options.compare) > 2:
        raise ArgumentError(f"bench: --compare takes one or two reports, not {len(options.compare)}")
    old, new = (load(path) for path in options.compare)
    return print_comparison(old, new, options.threshold)


def print_comparison(old: Report, new: Report, threshold: float) -> int:
    """Print how rows changed. Return 1 if one became slower or has a new problem, else 0."""
    comparison = changes.compare(old, new, threshold)
    paint = painter(sys.stdout)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    name_width = 58 if width is None else max(16, min(58, width - 63))  # the columns and a verdict need 63 cells
    heads = f"{'min us':>10s} {'was':>10s} {'change':>8s} {'medians':>8s} {'peers':>7s} {'counts':>7s}"
    print(pad_to_width("row", name_width), heads)
    for change in comparison.changes:
        print(_change_line(change, paint, name_width))
    print(_summary(comparison, paint))
    return 1 if comparison.regressions else 0


def _change_line(change: Change, paint: Paint, name_width: int) -> str:
    name = pad_to_width(f"{change.new.name} ({change.new.device})", name_width)
    if change.old.time is None or change.new.time is None:
        role = {"broken": "bad", "fixed": "good"}.get(change.verdict, "faint")
        return f"{name} {paint(change.new.problem or change.verdict, role)}"
    role = {"slower": "bad", "faster": "good"}.get(change.verdict, "")
    control = f"{change.control - 1:+.0%}" if abs(change.control - 1) >= 0.005 else ""
    verdict = change.verdict if change.verdict != "same" else ""
    mark = "~" if change.is_uncertain else ""
    return (
        f"{name} {number(change.new.time['least'] * 1e6):>10s} {number(change.old.time['least'] * 1e6):>10s} "
        f"{paint(f'{change.minimum_ratio - 1:>+8.0%}', role)} {_median_text(change)} {control:>7s} "
        f"{change.threshold:>7.0%} {paint(verdict, role)} {mark}"
    ).rstrip()


def _median_text(change: Change) -> str:
    """Return the change of the median, with `!` if it exceeds the spread of the samples."""
    ratio, limit = change.median_ratio, 1 + change.median_threshold
    return f"{ratio - 1:+.0%}{' ' if 1 / limit <= ratio <= limit else '!'}".rjust(8)


def _summary(comparison: Comparison, paint: Paint) -> str:
    verdicts = [change.verdict for change in comparison.changes]
    counts = [f"{len(verdicts)} rows"] + [
        paint(f"{verdicts.count(v)} {v}", role)
        for v, role in (("slower", "bad"), ("broken", "bad"), ("faster", "good"), ("fixed", "good"))
        if v in verdicts
    ]
    lines = [", ".join(counts) + f"; peers of all rows changed by {comparison.drift - 1:+.0%} (middle)"]
    uncertain = sum(change.is_uncertain for change in comparison.changes)
    if uncertain:
        lines.append(f"~: {uncertain} of {len(verdicts)} rows uncertain: measured under load, or samples disagree")
    lines += [paint(f"another device: {sentence}", "fair") for sentence in comparison.hardware_changes]
    for row_names, label in ((comparison.missing, "no longer measured"), (comparison.added, "new")):
        if row_names:
            lines.append(
                f"{label}: {', '.join(row_names[:8])}"
                + (f" and {len(row_names) - 8} more" if len(row_names) > 8 else "")
            )
    return "\n".join(lines)
