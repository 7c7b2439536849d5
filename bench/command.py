"""`weftgrad bench`: runs a suite, prints a table, keeps JSON, Markdown, CSV, a page and plots; compares reports."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..runtime.errors import ArgumentError
from . import outputs

__all__ = ["register", "run"]

SUITES = ("device", "core", "ops", "train", "specs")


def register(subparsers: Any) -> None:
    """Add `bench` to the command line."""
    options(subparsers.add_parser("bench", help="measure devices beside each other and their peers"))


def options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add what the command takes to `parser`."""
    parser.add_argument(
        "spec", nargs="?", type=Path, metavar="SPEC.yaml",
        help="a spec file of your own: its ops are measured as the suite `specs` measures the package's",
    )  # fmt: skip
    parser.add_argument(
        "--suite", choices=SUITES,
        help="what to measure: the device itself, the core (default), the op library, training, or `specs`: any ops by "
        "name, in any dtypes and shapes (default where --ops, --shapes or a spec file is given)",
    )  # fmt: skip
    parser.add_argument(
        "--device",
        help="the device to measure (default: the one that `weftgrad devices` marks); several with commas between, "
        "interleaved in one process, the first compared with the others; or all: every device of every backend, each "
        "in a process of its own that takes turns with the others, among them OpenCL drivers that are installed but "
        "not loaded (opencl:0@intelocl), or gpus: those of these that are",
    )  # fmt: skip
    parser.add_argument(
        "--icd", type=Path, action="append", default=[], metavar="LIBRARY",
        help="for --device all: one more OpenCL driver, its library or its .icd file",
    )  # fmt: skip
    parser.add_argument("--only", default="", help="only groups or rows whose name contains this")
    parser.add_argument("--ops", default="", metavar="NAME,…", help="the ops of the suite specs")
    parser.add_argument(
        "--dtypes", metavar="NAME,…", help="only rows of these dtypes; the suite specs makes rows for each"
    )
    parser.add_argument("--shapes", metavar="1024,256x1024", help="the shapes of the suite specs")
    parser.add_argument(
        "--peers", metavar="NAME,…",
        help="libraries to compare with: torch, numpy, cupy, jax, tinygrad, or none (default: what is installed)",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="a JSON file to write")
    parser.add_argument("--markdown", type=Path, help="a file for the tables as Markdown")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of interleaved samples (default: 5)")
    parser.add_argument(
        "--time", metavar="10m", help="how long to measure at most: rows get fewer rounds, and groups take turns"
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE",
        help="go on with an interrupted run: rows that this report (of --output) has are kept, the rest is added to it",
    )  # fmt: skip
    parser.add_argument("--cases", choices=("cpu", "gpu"), help="rows for cpu or gpu (default: what the devices are)")
    parser.add_argument("--scale", type=int, default=1, help=argparse.SUPPRESS)  # divides sizes, to try GPU rows out
    parser.add_argument("--label", default="", help=argparse.SUPPRESS)  # what `apart` calls the device in reports
    parser.add_argument("--part", type=Path, help=argparse.SUPPRESS)  # where `apart` wants its rows
    parser.add_argument("--turns", default="", help=argparse.SUPPRESS)  # by which `apart` lets it work, and others
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
    from . import apart
    from .rows import load, suite_of

    _settle(options)
    old = load(options.compare[0]) if options.compare else None  # a wrong file is told before an hour of measuring
    if old is not None and suite_of(old) != options.suite:
        raise ArgumentError(
            f"bench: {options.compare[0]} has the suite {suite_of(old)}, and {options.suite} would be measured: "
            f"give --suite {suite_of(old)}"
        )
    outputs.check(options)
    before = load(options.resume) if options.resume else None
    if before is not None and suite_of(before) != options.suite:
        raise ArgumentError(
            f"bench: --resume: {options.resume} has the suite {suite_of(before)}, not {options.suite}: give --suite "
            f"{suite_of(before)}, or another --output and no --resume"
        )
    if apart.wanted(options.device):
        places = apart.chosen(options.device, options.icd)
        print("by turns, each in a process of its own: " + ", ".join(place.name for place in places))
        if before is not None:
            _same_run(before, [place.name for place in places], options.resume)
        found, interrupted = apart.measure(options, places, before, lambda report: _write(options, report))
    else:
        found, interrupted = _here(options, before)
    return _finished(options, found, interrupted, old)


def _settle(options: argparse.Namespace) -> None:
    """What options say together; ArgumentError where they do not go together."""
    from .peers import parse
    from .running import seconds_of
    from .sweep import dtypes_of

    of_specs = [f"--{name}" for name in ("ops", "shapes") if getattr(options, name)]
    of_specs += ["a spec file"] * (options.spec is not None)
    if options.suite is None:
        options.suite = "specs" if of_specs else "core"
    if of_specs and options.suite != "specs":
        raise ArgumentError(f"bench: {of_specs[0]} is for the suite specs, and --suite is {options.suite}")
    if options.spec is not None and not options.spec.is_file():
        raise ArgumentError(f"bench: there is no spec file {options.spec}")
    if options.rounds < 1:
        raise ArgumentError(f"bench: --rounds is 1 or more, not {options.rounds}")
    if options.time:
        seconds_of(options.time)
    parse(options.peers)
    if options.dtypes:
        dtypes_of(options.dtypes)
    if options.resume and not options.output and not options.part:
        options.output = options.resume
    if options.label:
        return
    # PoCL keeps compiled programs itself, and what compiling costs is measured: its files are for this run alone.
    if "POCL_CACHE_DIR" not in os.environ and "pyopencl" not in sys.modules:
        folder = tempfile.mkdtemp(prefix="weftgrad-bench-")
        os.environ["POCL_CACHE_DIR"] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _here(options: argparse.Namespace, before: dict[str, Any] | None) -> tuple[dict[str, Any], bool]:
    """Measure in this process, printing rows as they come; the report and whether it was interrupted."""
    import weftgrad as wg

    from . import report
    from .colours import painter
    from .machine import describe
    from .peers import parse
    from .rows import FORMAT
    from .running import host_rows, kernel_rows
    from .sites import sites
    from .steps import watched
    from .turns import Turn

    paint = painter(sys.stdout)
    names = [str(wg.device(name)) for name in (options.device or str(wg.device())).split(",")]
    if len(set(names)) < len(names):
        raise ArgumentError(f"bench: --device names a device twice: {options.device}")
    places = sites(names, options.scale, parse(options.peers), options.label)
    found: dict[str, Any] = {"format": FORMAT, "suite": options.suite, "machine": describe(places)}
    found |= {"host": [], "kernels": []}
    if before is not None:
        _same_run(before, [site.name for site in places if site.ours], options.resume, found["machine"])
        for part in ("host", "kernels"):
            found[part] = [row for row in before[part] if "problem" not in row]
    turn = Turn(options.turns)
    name = "" if turn.alone else f"{options.label}: "
    print(name + report.title(found["machine"]))
    if before is not None:
        print(f"{name}{len(found['host']) + len(found['kernels'])} rows are there already")
    parts = (
        ("host", host_rows(options, places, turn, {row["name"] for row in found["host"]}), report.HOST_HEAD,
         report.host_line),
        ("kernels", kernel_rows(options, places, turn, list(found["kernels"])), report.KERNEL_HEAD, report.kernel_line),
    )  # fmt: skip
    interrupted = False
    options.begun = time.monotonic()
    try:
        for part, made, head, line in parts:
            for count, row in enumerate(made):
                if not count:
                    print(f"\n{name}{head}" if turn.alone else f"{name}{head}")
                found[part].append(row)
                if part == "kernels":
                    _share(found, row)
                print(name + line(row, paint), flush=True)
                _write(options, found)  # after every row: a run may be ended from outside
        if options.suite == "train":
            found |= watched(options, places)
    except KeyboardInterrupt:
        if turn.alone:
            print("\ninterrupted: what was measured so far is kept", file=sys.stderr)
        interrupted = True
    return found, interrupted


def _same_run(before: dict[str, Any], names: list[str], path: Path, machine: dict[str, Any] | None = None) -> None:
    """ArgumentError unless an interrupted run was of these devices, on this machine, with these versions."""
    old = before["machine"]
    differences = []
    theirs = [device["device"] for device in old["devices"]]
    if machine is None:  # each device's process compares the rest
        if not set(theirs) <= set(names):
            differences.append(f"devices: {', '.join(theirs)} then, {', '.join(names)} now")
    else:
        if theirs != names:
            differences.append(f"devices: {', '.join(theirs)} then, {', '.join(names)} now")
        else:
            for then, now in zip(old["devices"], machine["devices"], strict=True):
                differences += [f"{now['device']}: {then.get(key)} then, {now.get(key)} now"
                                for key in ("name", "driver") if then.get(key) != now.get(key)]  # fmt: skip
        for key in ("system", "python", "cores", "threads", "commit", "specs", "driver"):
            if old.get(key) != machine.get(key):
                differences.append(f"{key}: {old.get(key)} then, {machine.get(key)} now")
        for name, version in machine["versions"].items():
            if old["versions"].get(name) != version:
                differences.append(f"{name}: {old['versions'].get(name)} then, {version} now")
    if differences:
        raise ArgumentError(
            f"bench: --resume: {path} is of another run, and its rows do not belong beside new ones ("
            + "; ".join(differences) + "): leave --resume away and give another --output"
        )


def _share(found: dict[str, Any], row: dict[str, Any] | None = None) -> None:
    """Note with a row, or with all of them, which part of the measured roof each device reaches, as far as rows go."""
    from .roofline import roofs, share
    from .rows import entries

    measured = entries([found])
    roof = roofs(measured)
    by_name = {(e.group, e.name, e.device): e for e in measured if e.part == "kernel"}
    for each in found["kernels"] if row is None else [row]:
        for device in each.get("times", ()):
            entry = by_name.get((each["group"], each["name"], device))
            part = share(entry, roof.get(entry.hardware)) if entry is not None else None
            if part is not None:
                each.setdefault("share", {})[device] = part


def _finished(
    options: argparse.Namespace, found: dict[str, Any], interrupted: bool, old: dict[str, Any] | None
) -> int:  # fmt: skip
    """Write and print what is made of all rows; the exit status."""
    from . import summary
    from .rows import entries

    if found["kernels"]:
        _share(found)
    _write(options, found)
    if options.part:
        return 130 if interrupted else 0
    written = [path for path in (options.output, options.markdown) if path]
    if len(found["machine"]["devices"]) > 1:  # rows were printed as the first one's, or by a process a device
        outputs.show(entries([found]))
    elif found["kernels"]:
        print(*outputs.roof_lines(entries([found])), *summary.lines(entries([found])), sep="\n")
    if found["host"] or found["kernels"]:
        written += outputs.write(options, [found])
    print(*(f"written to {path}" for path in written), sep="\n")
    if interrupted:
        if options.output:
            print(f"go on with: --resume {options.output}", file=sys.stderr)
        return 130  # as every command here, and a shell's
    if old is not None and outputs.compared(old, found, options.threshold):
        return 1
    return 1 if any(row.get("wrong") for part in ("host", "kernels") for row in found[part]) else 0


def _write(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """The files that were asked for; each is whole at any time, whatever ends this process."""
    from .markdown import as_markdown
    from .rows import entries

    for path, text in ((options.output, lambda: json.dumps(found, indent=1) + "\n"),
                       (options.part, lambda: json.dumps(found)),
                       (options.markdown, lambda: as_markdown([found], entries([found])))):  # fmt: skip
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            beside.write_text(text(), encoding="utf-8")
            beside.replace(path)
