"""`weftgrad bench`: run a suite, print a table, write reports (JSON, Markdown, CSV, HTML, plots), compare reports."""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import weftgrad as wg

from ..runtime.errors import ArgumentError
from . import outputs
from .machine_load import is_loaded, load_now

if TYPE_CHECKING:
    from .report_types import KernelRow, Machine, Report

__all__ = ["register", "run"]

SUITES = ("device", "core", "ops", "train", "models", "specs", "babelstream", "tritonbench")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `bench` to the command line."""
    options(subparsers.add_parser("bench", help="measure devices beside each other and other libraries"))


def options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the command's arguments to `parser`, and return it."""
    parser.add_argument(
        "spec", nargs="?", type=Path, metavar="SPEC.yaml",
        help="a spec file of your own: its ops are measured as the suite `specs` measures the package's",
    )  # fmt: skip
    parser.add_argument(
        "--suite", choices=SUITES,
        help="what to measure: the device itself, the core (default), the op library, training, the models of the "
        "PyTorch paper, the kernels of BabelStream, operators of TritonBench in its sizes, or `specs`: any ops by "
        "name, in any dtypes and shapes (default where --ops, --shapes or a spec file is given)",
    )  # fmt: skip
    parser.add_argument(
        "--device",
        help="the device to measure (default: the one that `weftgrad devices` marks); several with commas between, "
        "interleaved in one process, the first compared with the others; or all: every device of every backend, each "
        "in a process of its own that takes turns with the others, among them OpenCL drivers that are installed but "
        "not loaded (opencl:0@intelocl); or gpus: all of these devices that are GPUs",
    )  # fmt: skip
    parser.add_argument(
        "--icd", type=Path, action="append", default=[], metavar="LIBRARY",
        help="for --device all: one more OpenCL driver, its library or its .icd file",
    )  # fmt: skip
    parser.add_argument("--only", default="", help="only groups or rows whose name contains this")
    parser.add_argument("--ops", default="", metavar="NAME,…", help="the ops of the suite specs")
    parser.add_argument(
        "--dtypes", metavar="NAME,…", help="only rows of these dtypes, or all; the suite specs makes rows for each"
    )
    parser.add_argument("--shapes", metavar="1024,256x1024", help="the shapes of the suite specs")
    parser.add_argument(
        "--peers", metavar="NAME,…",
        help="libraries to compare with: torch, numpy, cupy, jax, tinygrad, or none (default: what is installed); "
        "the suite models has torch.compile, too",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="a JSON file to write; compressed if its name ends in .gz")
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
    # The next three are set for processes that measure one device each (`--device all`).
    parser.add_argument("--label", default="", help=argparse.SUPPRESS)  # the device's name in reports
    parser.add_argument("--part", type=Path, help=argparse.SUPPRESS)  # the file for the device's report
    parser.add_argument("--turns", default="", help=argparse.SUPPRESS)  # file descriptors of pipes for taking turns
    outputs.add_options(parser)
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Measure, print and write reports. `--report`, and `--compare` with two files, only read reports.

    Returns:
        The exit status: 1 if a result is wrong, a row failed, a row is worse than in the report of `--compare`, or
        there was no row to measure or no time for one; 130 if the run was interrupted; else 0. A row that misses its
        target time is only marked.
    """
    if options.report and options.compare:
        raise ArgumentError("bench: --report and --compare are two commands: give one of them")
    if options.report:
        options.plots = options.plots or options.figures or options.curves  # draws stored traces and curves again
        return outputs.from_files(options)
    if options.figures:
        from . import figures  # lazy: start-up of the command line

        return figures.run(options)
    if options.curves:
        from . import learning  # lazy: start-up of the command line

        return learning.run(options)
    if options.timeline:
        return outputs.timeline(options)
    if options.compare and len(options.compare) > 1:
        return outputs.compare_files(options)
    from .selection import NothingMeasured  # lazy: start-up of the command line

    try:
        return _measure(options)
    except NothingMeasured as error:
        print(f"weftgrad: {error}", file=sys.stderr)
        return 1


def _measure(options: argparse.Namespace) -> int:
    """Run a suite and write its reports. Return the exit status."""
    # lazy: start-up of the command line
    from . import device_listing, device_processes
    from .report_files import load
    from .rows import suite_of
    from .selection import NothingMeasured

    _resolve_options(options)
    # Load reports first: a wrong file must not be refused only after an hour of measuring.
    baseline = load(options.compare[0]) if options.compare else None
    if baseline is not None and suite_of(baseline) != options.suite:
        raise ArgumentError(
            f"bench: {options.compare[0]} has the suite {suite_of(baseline)}, and {options.suite} would be measured: "
            f"give --suite {suite_of(baseline)}"
        )
    resumed = load(options.resume) if options.resume else None
    if resumed is not None and suite_of(resumed) != options.suite:
        raise ArgumentError(
            f"bench: --resume: {options.resume} has the suite {suite_of(resumed)}, not {options.suite}: give --suite "
            f"{suite_of(resumed)}, or another --output and no --resume"
        )
    outputs.check(options)
    load_before = None if options.part else _measure_load()
    if device_listing.needs_processes(options.device):
        devices = device_listing.select_devices(options.device, options.icd)
        print("by turns, each in a process of its own: " + ", ".join(device.name for device in devices))
        if resumed is not None:
            _check_same_run(resumed, [device.name for device in devices], options.resume)
        results, interrupted = device_processes.measure(
            options, devices, resumed, lambda report: _write(options, report)
        )
    else:
        results, interrupted = _measure_in_process(options, resumed)
    if not interrupted and not options.part and not results["host"] and not results["kernels"]:
        raise NothingMeasured(
            f"bench: no row was measured in --time {options.time}: give more time, for example --time 5m, or name "
            "fewer rows by --only"
            if options.time
            else f"bench: no device has a row of the suite {options.suite} with {options.only!r} in its group or name"
        )
    results["machine"]["load_before"] = load_before
    return _finish(options, results, interrupted, baseline)


def _measure_load() -> float | None:
    """Return the load before the run, with a warning on stderr if there is any."""
    load = load_now()
    if is_loaded(load):
        print(f"other programs use {load} cores of this machine: times and the roofline will vary; rows measured under "
              "load are marked by ~", file=sys.stderr)  # fmt: skip
    return load


def _resolve_options(options: argparse.Namespace) -> None:
    """Fill in defaults that depend on other options. Raise ArgumentError if options contradict each other."""
    # lazy: start-up of the command line
    from . import device_listing, sweep
    from .changes import check_threshold
    from .peers import COMPILED_TORCH, check_installed, parse
    from .selection import check_obstacles
    from .time_budget import parse_seconds

    specs_only_options = [f"--{name}" for name in ("ops", "shapes") if getattr(options, name)]
    specs_only_options += ["a spec file"] * (options.spec is not None)
    if options.suite is None:
        options.suite = "specs" if specs_only_options else "core"
    if specs_only_options and options.suite != "specs":
        raise ArgumentError(f"bench: {specs_only_options[0]} is for the suite specs, and --suite is {options.suite}")
    if options.spec is not None and not options.spec.is_file():
        raise ArgumentError(f"bench: there is no spec file {options.spec}")
    if options.rounds < 1:
        raise ArgumentError(f"bench: --rounds is 1 or more, not {options.rounds}")
    if options.time:
        parse_seconds(options.time)
    peers = parse(options.peers)
    if COMPILED_TORCH in (peers or ()) and options.suite != "models":
        raise ArgumentError(f"bench: --peers {COMPILED_TORCH} is for the suite models, and --suite is {options.suite}")
    check_installed(peers)
    check_threshold(options.threshold)
    if options.scale < 1:
        raise ArgumentError(f"bench: --scale is 1 or more, not {options.scale}")
    if options.program:
        raise ArgumentError("bench: --program is for --timeline: name its file, as in --timeline trace.json")
    if options.icd and not device_listing.needs_processes(options.device):
        raise ArgumentError("bench: --icd is for --device all, gpus or opencl:0@DRIVER: name one of them")
    if options.dtypes:
        sweep.dtypes_of(options.dtypes)
    if options.shapes:
        sweep.shapes_of(options.shapes)
    if options.suite == "specs" and (options.spec is None or device_listing.needs_processes(options.device)):
        check_obstacles(list(sweep.cases(options)))  # raises an error for an unknown op, too
    if options.resume and not options.output and not options.part:
        options.output = options.resume
    if options.label:
        return
    # PoCL caches compiled programs on disk. Compile times are measured, so this run gets an empty cache folder.
    if "POCL_CACHE_DIR" not in os.environ and "pyopencl" not in sys.modules:
        folder = tempfile.mkdtemp(prefix="weftgrad-bench-")
        os.environ["POCL_CACHE_DIR"] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _measure_in_process(options: argparse.Namespace, resumed: Report | None) -> tuple[Report, bool]:
    """Measure in this process and print each row. Return the report and whether the run was interrupted."""
    # lazy: start-up of the command line
    from . import report
    from .alternation import Turn
    from .colours import painter
    from .contenders import all_sites
    from .machine import describe
    from .peers import parse
    from .rows import FORMAT
    from .running import host_rows, kernel_rows
    from .selection import select_cases
    from .steps import record_steps

    paint = painter(sys.stdout)
    names = [str(wg.device(name)) for name in (options.device or str(wg.device())).split(",")]
    if len(set(names)) < len(names):
        raise ArgumentError(f"bench: --device names a device twice: {options.device}")
    contenders = all_sites(names, options.scale, parse(options.peers), options.label)
    cases = select_cases(options, contenders)
    results: Report = {
        "format": FORMAT, "suite": options.suite, "machine": describe(contenders), "host": [], "kernels": [],
    }  # fmt: skip
    if resumed is not None:
        _check_same_run(resumed, [site.name for site in contenders if site.ours], options.resume, results["machine"])
        results["host"] = [host_row for host_row in resumed["host"] if "problem" not in host_row]
        results["kernels"] = [row for row in resumed["kernels"] if "problem" not in row]
    turn = Turn(options.turns)
    prefix = "" if turn.is_alone else f"{options.label}: "
    print(prefix + report.title(results["machine"]))
    if resumed is not None:
        print(f"{prefix}{len(results['host']) + len(results['kernels'])} rows are there already")

    def print_row(index: int, head: str, line: str) -> None:
        if index == 0:
            print(f"\n{prefix}{head}" if turn.is_alone else f"{prefix}{head}")
        print(prefix + line, flush=True)
        _write(options, results)  # after every row, because the process may be killed

    interrupted = False
    options.begun = time.monotonic()
    try:
        done_names = {row["name"] for row in results["host"]}
        later_rows = len(cases) - len(results["kernels"])
        for index, host_row in enumerate(host_rows(options, contenders, turn, done_names, later_rows)):
            results["host"].append(host_row)
            print_row(index, report.HOST_HEAD, report.host_line(host_row, paint))
        for index, row in enumerate(kernel_rows(options, contenders, cases, turn, list(results["kernels"]))):
            results["kernels"].append(row)
            _add_roof_shares(results, row)
            print_row(index, report.KERNEL_HEAD, report.kernel_line(row, paint))
        if options.suite == "train":
            results["curves"], results["timelines"] = record_steps(options, contenders)
    except KeyboardInterrupt:
        if turn.is_alone:
            print("\ninterrupted: what was measured so far is kept", file=sys.stderr)
        interrupted = True
    return results, interrupted


def _check_same_run(resumed: Report, names: list[str], path: Path, machine: Machine | None = None) -> None:
    """Raise ArgumentError unless the resumed run had the same devices, machine and versions.

    Args:
        resumed: The report of the earlier run.
        names: The devices of this run.
        path: The file of `resumed`.
        machine: Description of this machine. None in the process that controls one process per device: it compares
            only the names of devices.
    """
    old_machine = resumed["machine"]
    differences = []
    old_devices = [device["device"] for device in old_machine["devices"]]
    if machine is None:  # the processes of the devices compare the rest
        if not set(old_devices) <= set(names):
            differences.append(f"devices: {', '.join(old_devices)} then, {', '.join(names)} now")
    else:
        if old_devices != names:
            differences.append(f"devices: {', '.join(old_devices)} then, {', '.join(names)} now")
        else:
            for old_device, new_device in zip(old_machine["devices"], machine["devices"], strict=True):
                differences += [f"{new_device['device']}: {old_device.get(key)} then, {new_device.get(key)} now"
                                for key in ("name", "driver")
                                if old_device.get(key) != new_device.get(key)]  # fmt: skip
        for key in ("system", "python", "cores", "threads", "commit", "specs", "driver"):
            if old_machine.get(key) != machine.get(key):
                differences.append(f"{key}: {old_machine.get(key)} then, {machine.get(key)} now")
        for name, version in machine["versions"].items():
            if old_machine["versions"].get(name) != version:
                differences.append(f"{name}: {old_machine['versions'].get(name)} then, {version} now")
    if differences:
        raise ArgumentError(
            f"bench: --resume: {path} is of another run, and its rows do not belong beside new ones ("
            + "; ".join(differences)
            + "): leave --resume away and give another --output"
        )


def _add_roof_shares(results: Report, row: KernelRow | None = None) -> None:
    """Add each device's share of the measured roofline to one row, or to all rows."""
    # lazy: start-up of the command line
    from .roofline import roofs, share
    from .rows import entries

    all_entries = entries([results])
    roofs_by_hardware = roofs(all_entries)
    entries_by_name = {(e.group, e.name, e.device): e for e in all_entries if e.part == "kernel"}
    for kernel_row in results["kernels"] if row is None else [row]:
        for device in kernel_row.get("times", ()):
            entry = entries_by_name.get((kernel_row["group"], kernel_row["name"], device))
            roof_share = share(entry, roofs_by_hardware.get(entry.hardware)) if entry is not None else None
            if roof_share is not None:
                kernel_row.setdefault("share", {})[device] = roof_share.value
                kernel_row.setdefault("limit", {})[device] = roof_share.limit


def _finish(
    options: argparse.Namespace, results: Report, interrupted: bool, baseline: Report | None
) -> int:  # fmt: skip
    """Write and print the summary of all rows. Return the exit status."""
    # lazy: start-up of the command line
    from .rows import entries

    if results["kernels"]:
        _add_roof_shares(results)
    _write(options, results)
    if options.part:
        return 130 if interrupted else 0
    written = [path for path in (options.output, options.markdown) if path]
    if len(results["machine"]["devices"]) > 1:
        # The rows above show one device each, or compare the first with the others: print tables of all.
        outputs.show(entries([results]))
    elif results["kernels"]:
        outputs.print_summary(entries([results]))
    if results["host"] or results["kernels"]:
        written += outputs.write(options, [results])
    print(*(f"written to {path}" for path in written), sep="\n")
    if interrupted:
        if options.output:
            print(f"go on with: --resume {options.output}", file=sys.stderr)
        return 130  # the shell's status for Ctrl-C
    if baseline is not None and outputs.print_comparison(baseline, results, options.threshold):
        return 1
    return 1 if any(row.get("wrong") for row in (*results["host"], *results["kernels"])) else 0


def _write(options: argparse.Namespace, results: Report) -> None:
    """Write the requested files atomically: a reader never sees a partial file, even if this process is killed."""
    # lazy: start-up of the command line
    from .markdown import as_markdown
    from .report_files import as_bytes
    from .rows import entries

    for path, content in ((options.output, lambda: as_bytes(results, options.output)),
                          (options.part, lambda: as_bytes(results, options.part, indent=None)),
                          (options.markdown, lambda: as_markdown([results], entries([results])).encode())):  # fmt: skip
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_bytes(content())
            temporary.replace(path)
