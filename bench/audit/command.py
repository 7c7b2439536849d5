"""`weftgrad audit`: estimate real calls on described GPUs from the machine code of their kernels. No GPU is needed."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.errors import ArgumentError

if TYPE_CHECKING:
    from .auditing import Row

__all__ = ["register", "run"]


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `audit` to the command line."""
    parser = subparsers.add_parser(
        "audit", help="estimate calls on GPUs that need not be present, by their machine code"
    )
    parser.description = (
        "Compiles the kernels of some 150 calls for described GPUs, reads their machine code, and estimates how much "
        "of the GPU's limit each call can reach. Every time is an estimate; where a GPU is present, the measured time "
        "stands beside it."
    )
    parser.add_argument(
        "--target", nargs="+", metavar="NAME",
        help="machines (H100, H200, A100, B200, MI300X) or architectures (sm_80, sm_90, sm_100, gfx942); default: the "
        "GPU that is present, or H100",
    )  # fmt: skip
    parser.add_argument(
        "--case", nargs="+", default=[], metavar="PATTERN",
        help="only calls whose group or name contains one of these, such as attention or 'conv 3x3'; default: all",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="only list the calls")
    parser.add_argument("--launches", action="store_true", help="print each launch of a call, too")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument(
        "--output", type=Path, metavar="FILE",
        help="write a file: all figures (.json), or the tables (.md), between the marker comments if it has them",
    )  # fmt: skip
    parser.add_argument(
        "--bars", type=Path, metavar="FILE", help="write the bars that the calls reach now, and check none"
    )
    parser.add_argument(
        "--measured", type=Path, metavar="FILE",
        help="set beside the estimates the times that an earlier audit measured on a GPU (.json, .json.gz)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of processes (default: one per core)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Audit and print. Return 1 if a call misses a bar or fails.

    Raises:
        ArgumentError: There is no such machine or call, or Triton is missing.
    """
    from ...runtime.triton.compile import compiler_installed  # lazy: start-up
    from . import auditing, bars, gpu_timing, table  # lazy: start-up
    from .machines import MACHINES, machines_of  # lazy: start-up

    machines = machines_of(options.target) if options.target else [gpu_timing.present_machine() or MACHINES["H100"]]
    names = auditing.matching_cases(options.case)
    if not names:
        raise ArgumentError(f"audit: no call has {' or '.join(options.case)} in its group or name: see --list")
    times = gpu_timing.read(options.measured) if options.measured else None
    if options.output and options.output.suffix not in (".json", ".md"):
        raise ArgumentError(f"audit: --output writes .json and .md, not {options.output}")
    if options.list:
        print("\n".join(names))
        return 0
    if not compiler_installed():
        raise ArgumentError("audit: kernels are compiled by triton, which is missing: pip install 'weftgrad[cuda]'")
    begin = time.perf_counter()
    rows: list[auditing.Row] = []
    try:
        for row in auditing.audit(names, machines, options.jobs, times):
            rows.append(row)
            if not options.json:
                print(table.line(row), flush=True)
                if options.launches and row.figures is not None:
                    print("\n".join(table.launch_lines(row.figures)))
    except KeyboardInterrupt:
        if options.output and rows:
            _write(options.output, rows)
            print(f"audit: interrupted after {len(rows)} calls, which are in {options.output}", file=sys.stderr)
        return 130
    if options.json:
        print(table.as_json(rows), end="")
    if options.output:
        _write(options.output, rows)
    if options.bars:
        figures = [(row.case, row.figures) for row in rows if row.figures is not None]
        options.bars.write_text(bars.bars_text(figures), encoding="utf-8")
        return 0
    misses = table.explanation(rows)
    seconds = time.perf_counter() - begin
    print(f"{len(rows)} estimates in {seconds:.0f} s; {len(misses)} bars missed", file=sys.stderr)
    print("".join(f"  {text}\n" for text in misses), end="", file=sys.stderr)
    return 1 if misses else 0


def _write(file: Path, rows: Sequence[Row]) -> None:
    from . import table  # lazy: start-up

    if file.suffix == ".json":
        file.write_text(table.as_json(rows), encoding="utf-8")
    else:
        table.write_markdown(file, table.as_markdown(rows))
