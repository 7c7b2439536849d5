"""`python -m weftgrad.bench.everything`: what a day with a GPU is for, in one command and ten minutes.

    python -m weftgrad.bench.everything --output results            on a machine with GPUs
    python -m weftgrad.bench.everything --output results --device all --time 30m
    python -m weftgrad.bench.everything --output results -- --peers none --dtypes float32

In the order of what matters: the correctness of every op on `cuda:0`, the audit of kernels beside their measured
times, then the suites core, ops, train and models, on every GPU by CUDA and by NVIDIA's OpenCL if its library is
there. Each suite is a run of `weftgrad bench` with a share of the time, and writes its own report. All reports become
one HTML page. Run the same command again after an interruption or when the time ran out: checks that passed and rows
that were measured are not repeated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ..runtime.errors import WeftgradError
from .op_checks import check_ops, interrupt
from .time_budget import parse_seconds

__all__ = ["main"]

# Steps in their order, and their shares of the time.
_WEIGHTS = {"correctness": 6, "audit": 4, "core": 5, "ops": 3, "train": 2, "models": 2}
_OPTIONAL_WEIGHTS = {"babelstream": 1, "tritonbench": 1}  # measured if --suites names them
_ALL_WEIGHTS = _WEIGHTS | _OPTIONAL_WEIGHTS
_PAGE_SECONDS = 20.0  # reserved for starting processes and writing the page
_LAST_ROW_SECONDS = 10.0  # a suite may take so much longer than its share, to end its last row
_WRITE_SECONDS = 90.0  # an interrupted suite gets this long to write its rows
_MISSING_PACKAGE_EFFECTS = {
    "torch": "no row has it beside (pip install torch)", "pyopencl": "OpenCL is left out (pip install pyopencl)",
    "triton": "CUDA and the audit are left out (pip install triton)",
    "cuda.bindings": "CUDA is left out (pip install cuda-bindings)",
    "matplotlib": "the page has no plots (pip install matplotlib)",
}  # fmt: skip

Run = Callable[[Sequence[str]], int]
Check = Callable[[Path, float], int]
Audit = Callable[[Sequence[str], float], int]


def main(
    words: Sequence[str] | None = None, run: Run | None = None, check: Check | None = None, audit: Audit | None = None
) -> int:
    """Check the ops, measure all suites and write the page.

    Args:
        words: the command line; None for that of the process.
        run: runs `weftgrad bench` with these words; tests replace it.
        check: checks every op, given a folder and seconds; tests replace it.
        audit: runs `weftgrad audit` with these words for at most so many seconds; tests replace it.

    Returns:
        The exit status: 0, 1 if a result is wrong, 2 if nothing could be measured, 130 if interrupted.
    """
    options = _options().parse_args(words)
    run, check, audit = run or _run, check or check_ops, audit or partial(_run_command, "audit")
    end = time.monotonic() + parse_seconds(options.time) - min(_PAGE_SECONDS, parse_seconds(options.time) / 10)
    for name, consequence in _MISSING_PACKAGE_EFFECTS.items():
        if not _installed(name):
            print(f"{name} is not installed: {consequence}")
    steps = _available_steps(options.suites.split(","))
    suites = [step for step in steps if step not in ("correctness", "audit")]
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    status = 0
    for i, step in enumerate(steps):
        seconds_left = end - time.monotonic()
        share = seconds_left * _ALL_WEIGHTS[step] / sum(_ALL_WEIGHTS[name] for name in steps[i:])
        if share < 1:
            print(f"time is up: {step} is left out; the same command goes on")
            continue
        if step == "correctness":
            step_status = check(folder, share)
        elif step == "audit":
            step_status = audit(["--output", str(folder / "audit.json")], share)
        else:
            file = folder / f"{step}.json"
            command = ["--suite", step, "--device", options.device, "--time", f"{share:.0f}", "--output", str(file)]
            command += ["--resume", str(file)] if file.exists() else []
            step_status = run([*command, *(word for word in options.rest if word != "--")])
        status = max(status, step_status)
        if step_status == 130:
            print("interrupted: the same command goes on", file=sys.stderr)
            break
    reports = [str(folder / f"{suite}.json") for suite in suites if (folder / f"{suite}.json").exists()]
    if reports:
        page = ["--html", str(folder / "report.html"), "--markdown", str(folder / "report.md")]
        status = max(status, run(["--report", *reports, *page]))
    return status


def _available_steps(names: Sequence[str]) -> list[str]:
    """Return the steps, without the audit if there is nothing that compiles."""
    return [name for name in names if name != "audit" or _installed("triton")]


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftgrad.bench.everything", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FOLDER", help="for a report a suite, and the page"
    )
    parser.add_argument("--time", default="10m", metavar="10m", help="how long in all (default: 10m)")
    parser.add_argument("--device", default="gpus", help="as of `weftgrad bench` (default: gpus)")
    parser.add_argument(
        "--suites",
        type=_suites,
        default=",".join(_WEIGHTS),
        metavar="core,ops",
        help=f"only these steps, in this order: {', '.join(_ALL_WEIGHTS)} (default: the first six)",
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="-- …", help="more options of `weftgrad bench`")
    return parser


def _suites(text: str) -> str:
    if not text or set(text.split(",")) - set(_ALL_WEIGHTS):
        raise argparse.ArgumentTypeError(f"{text!r}: give some of {', '.join(_ALL_WEIGHTS)}")
    return text


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _run(words: Sequence[str]) -> int:
    """Run `weftgrad bench`, at most for its `--time` and a little longer, because a row is not cut off by `--time`."""
    seconds = parse_seconds(words[words.index("--time") + 1]) + _LAST_ROW_SECONDS if "--time" in words else None
    return _run_command("bench", words, seconds)


def _run_command(name: str, words: Sequence[str], seconds: float | None = None) -> int:
    """Run a command of `weftgrad` in a new process group. This process receives Ctrl-C and passes it on once.

    Args:
        name: the command.
        words: its options.
        seconds: when the command is interrupted, so that it writes what it has; None for no limit.

    Returns:
        The exit status; 0 if the time was up, 130 if this process was interrupted.
    """
    print(f"\nweftgrad {name} {' '.join(words)}", flush=True)
    module = ["weftgrad.bench"] if name == "bench" else ["weftgrad.cli", name]
    process = subprocess.Popen([sys.executable, "-m", *module, *words], process_group=0)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        print("time is up in the middle of a row; the same command goes on", file=sys.stderr)
        interrupt(process, _WRITE_SECONDS)
        return 0
    except KeyboardInterrupt:
        interrupt(process, _WRITE_SECONDS)
        return 130


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WeftgradError as error:
        print(f"weftgrad: {error}", file=sys.stderr)
        sys.exit(2)
