"""Check every op on `cuda:0` by the project's GPU tests, within a time limit; a second run goes on where one stopped.

The tests (`tests/test_gpu.py` of a copy of the tree) compare every op with an independent reference in float64, then
derivatives with differences, then backends with each other. They spend their time on compiling, so each core runs a
part of them where pytest-xdist is installed. The tests of streams, memory and graphs follow, one at a time, because
they look at all of the GPU's memory and at times. Outcomes are read from pytest's log, line by line, so that a run
that the limit cuts short keeps what it did.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

__all__ = ["check_ops", "interrupt", "outcomes", "tests_folder"]

_OUTCOMES = "PASSED|FAILED|ERROR|SKIPPED"
_OUTCOME = re.compile(
    rf"^\S*test_gpu\.py::(?P<name>\S.*?) (?P<outcome>{_OUTCOMES})\b"
    rf"|^\[gw\d+\] \[ *\d+%\] (?P<outcome_of_worker>{_OUTCOMES}) \S*test_gpu\.py::(?P<name_of_worker>\S.*?) *$",
    re.MULTILINE,
)
_OP_TESTS = "test_values or test_derivatives or test_backends_agree or test_nvidias_opencl"
_OP_SHARE = 0.8  # of the time, for the tests of ops
_MAX_WORKERS = 16  # each holds half a GiB of the GPU's memory
_PYTEST_STATUSES = (0, 1, 5)  # all passed, or the limit was reached; some failed; none was selected
_MAX_LISTED = 20  # failed checks on the terminal; the JSON file has all
_END_SECONDS = 20.0  # that an interrupted pytest gets to write its summary

Command = Callable[[Sequence[str], Path, float], int]
"""Run a command line with its output in a file, at most so many seconds, and return its exit status."""


def tests_folder() -> Path | None:
    """Return the folder of the GPU tests, of the package's tree or the working directory; None if neither has it."""
    folders = Path(__file__).resolve().parent.parent / "tests", Path("tests").resolve()
    return next((folder for folder in folders if (folder / "test_gpu.py").is_file()), None)


def check_ops(folder: Path, seconds: float, run: Command | None = None) -> int:
    """Run the checks that have not passed yet, print how many passed, and write `correctness.json`.

    Args:
        folder: for `correctness.log`, to which each run appends, and `correctness.json`.
        seconds: the time limit.
        run: runs the command line; tests replace it.

    Returns:
        The exit status: 1 if a check failed, 130 if this process was interrupted, else 0, also if nothing could be run.
    """
    tests = tests_folder()
    if tests is None or find_spec("pytest") is None:
        need = "a copy of the tree" if tests is None else "pytest (pip install pytest)"
        print(
            f"correctness: ops are not checked one by one: this needs {need}; rows of suites are checked all the same"
        )
        return 0
    log = folder / "correctness.log"
    done = [name for name, outcome in outcomes(log).items() if outcome == "passed"]
    words = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "--no-header", "--tb=short", "-o", "addopts=",
             "-p", "no:cacheprovider", "-p", "no:benchmark", str(tests / "test_gpu.py")]  # fmt: skip
    passed_names = folder / "passed.json"
    passed_names.write_text(json.dumps(done), encoding="utf-8")
    words += ["-p", "weftgrad.bench.skip_passed", "--passed-tests", str(passed_names)]
    workers = min(os.cpu_count() or 1, _MAX_WORKERS) if find_spec("xdist") else 1
    print(f"correctness: {len(done)} checks passed before; the others run for at most {seconds:.0f} s, those of ops in "
          f"{workers} processes", flush=True)  # fmt: skip
    run = run or _run_limited
    begin = time.monotonic()
    parallel = ["-n", str(workers)] if workers > 1 else []
    statuses = [run([*words, "-k", _OP_TESTS, *parallel], log, seconds * _OP_SHARE)]
    if 130 not in statuses:
        seconds_left = max(1.0, seconds - (time.monotonic() - begin))
        statuses.append(run([*words, "-k", f"not ({_OP_TESTS})"], log, seconds_left))
    if 130 in statuses:
        return 130
    crashes = [status for status in statuses if status not in _PYTEST_STATUSES]
    if crashes:
        print(f"correctness: pytest ended with status {crashes[0]}, so checks are missing; {log} says where")
    return max(_report(outcomes(log), folder / "correctness.json", log), int(bool(crashes)))


def outcomes(log: Path) -> dict[str, str]:
    """Return the last outcome of each test in a log of `pytest -v`, with or without workers.

    Outcomes are passed, failed, error and skipped.
    """
    if not log.exists():
        return {}
    text = log.read_text(encoding="utf-8", errors="replace")
    return {
        match["name"] or match["name_of_worker"]: (match["outcome"] or match["outcome_of_worker"]).lower()
        for match in _OUTCOME.finditer(text)
    }


def _report(results: Mapping[str, str], file: Path, log: Path) -> int:
    """Print and write the outcomes. Return 1 if a check failed."""
    by_outcome = {outcome: [name for name, value in results.items() if value == outcome]
                  for outcome in ("passed", "failed", "error", "skipped")}  # fmt: skip
    file.write_text(json.dumps(by_outcome, indent=1) + "\n", encoding="utf-8")
    failed = by_outcome["failed"] + by_outcome["error"]
    values = [name for name in by_outcome["passed"] if name.startswith("test_values[")]
    print(f"correctness: {len(by_outcome['passed'])} checks passed, values of {len(values)} ops among them, "
          f"{len(failed)} failed, {len(by_outcome['skipped'])} skipped; {log}")  # fmt: skip
    if not results:
        print(f"correctness: no check ended; {log} says why")
    for name in failed[:_MAX_LISTED]:
        print(f"  failed: {name}")
    if len(failed) > _MAX_LISTED:
        print(f"  and {len(failed) - _MAX_LISTED} more in {file}")
    return int(bool(failed))


def _run_limited(words: Sequence[str], log: Path, seconds: float) -> int:
    """Run a command line and append its output to `log`. It is interrupted at the limit, and by Ctrl-C."""
    with log.open("ab") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, process_group=0)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            interrupt(process, _END_SECONDS)
            return 0
        except KeyboardInterrupt:
            interrupt(process, _END_SECONDS)
            return 130


def interrupt(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Send a process a Ctrl-C, so that it writes what it has; kill its group if it has not ended in so many seconds.

    Args:
        process: the leader of a process group (`process_group=0`), to which also pytest-xdist's workers belong.
        seconds: that it gets for writing.
    """
    process.send_signal(signal.SIGINT)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
