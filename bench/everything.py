"""`python -m weftgrad.bench.everything`: the core, the op library and training on every GPU, in ten minutes.

    python -m weftgrad.bench.everything --output results            on a machine with GPUs
    python -m weftgrad.bench.everything --output results --device all --time 30m
    python -m weftgrad.bench.everything --output results -- --peers none --dtypes float32

Each suite is a run of `weftgrad bench` with a share of the time, and writes its own report. At the end all reports
become one HTML page. Run the same command again to resume after an interruption or after the time ran out.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from ..runtime.errors import WeftgradError
from .time_budget import parse_seconds

__all__ = ["main"]

_WEIGHTS = {"core": 5, "ops": 3, "train": 2}
_PAGE_SECONDS = 20.0  # reserved for starting processes and writing the page
_WRITE_SECONDS = 90.0  # an interrupted suite gets this long to write its rows
_MISSING_PACKAGE_EFFECTS = {
    "torch": "no row has it beside (pip install torch)", "pyopencl": "OpenCL is left out (pip install pyopencl)",
    "triton": "CUDA is left out (pip install triton)", "cuda.bindings": "CUDA is left out (pip install cuda-bindings)",
    "matplotlib": "the page has no plots (pip install matplotlib)",
}  # fmt: skip

Run = Callable[[Sequence[str]], int]


def main(words: Sequence[str] | None = None, run: Run | None = None) -> int:
    """Measure all suites and write the page.

    Returns:
        The exit status: 0, 1 if a result is wrong, 2 if nothing could be measured, 130 if interrupted.
    """
    options = _options().parse_args(words)
    run = run or _run
    end = time.monotonic() + parse_seconds(options.time) - min(_PAGE_SECONDS, parse_seconds(options.time) / 10)
    for name, consequence in _MISSING_PACKAGE_EFFECTS.items():
        if not _installed(name):
            print(f"{name} is not installed: {consequence}")
    suites = options.suites.split(",")
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    status = 0
    for i, suite in enumerate(suites):
        seconds_left = end - time.monotonic()
        share = seconds_left * _WEIGHTS[suite] / sum(_WEIGHTS[suite_name] for suite_name in suites[i:])
        if share < 1:
            print(f"time is up: the suite {suite} is not measured")
            continue
        file = folder / f"{suite}.json"
        command = ["--suite", suite, "--device", options.device, "--time", f"{share:.0f}", "--output", str(file)]
        command += ["--resume", str(file)] if file.exists() else []
        suite_status = run([*command, *(word for word in options.rest if word != "--")])
        status = max(status, suite_status)
        if suite_status == 130:
            print("interrupted: the same command goes on", file=sys.stderr)
            break
    reports = [str(folder / f"{suite}.json") for suite in suites if (folder / f"{suite}.json").exists()]
    if reports:
        page = ["--html", str(folder / "report.html"), "--markdown", str(folder / "report.md")]
        status = max(status, run(["--report", *reports, *page]))
    return status


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftgrad.bench.everything", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FOLDER", help="for a report a suite, and the page"
    )
    parser.add_argument("--time", default="10m", metavar="10m", help="how long in all (default: 10m)")
    parser.add_argument("--device", default="gpus", help="as of `weftgrad bench` (default: gpus)")
    parser.add_argument("--suites", type=_suites, default=",".join(_WEIGHTS), metavar="core,ops,train")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="-- …", help="more options of `weftgrad bench`")
    return parser


def _suites(text: str) -> str:
    if not text or set(text.split(",")) - set(_WEIGHTS):
        raise argparse.ArgumentTypeError(f"{text!r}: give some of {', '.join(_WEIGHTS)}")
    return text


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _run(words: Sequence[str]) -> int:
    """Run `weftgrad bench` in a new process group. This process receives Ctrl-C and passes it on once."""
    print(f"\nweftgrad bench {' '.join(words)}", flush=True)
    process = subprocess.Popen([sys.executable, "-m", "weftgrad.bench", *words], process_group=0)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_WRITE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        return 130


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WeftgradError as error:
        print(f"weftgrad: {error}", file=sys.stderr)
        sys.exit(2)
