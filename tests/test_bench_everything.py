"""All suites by one command, with the checks of every op: limits of time, interruptions, and what is repeated."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from weftgrad.bench import (
    everything,
    op_checks,
)
from weftgrad.bench.audit import command as audit_command


def test_the_audit_of_all_suites_is_a_command() -> None:
    """Its options are those of `weftgrad audit`, which moved once, and was left out silently."""
    parser = argparse.ArgumentParser()
    audit_command.register(parser.add_subparsers())
    assert parser.parse_args(["audit", "--output", "audit.json"]).run is audit_command.run
    assert everything._available_steps(["audit", "core"])[-1] == "core"


def test_all_suites_in_one_command(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step gets its share of the time. A second run resumes, and a failing suite does not affect the others."""
    command_lines: list[list[str]] = []
    checks: list[float] = []

    def run(words: Sequence[str]) -> int:
        command_lines.append(list(words))
        if "--output" in words and "ops" not in words:
            Path(words[words.index("--output") + 1]).write_text("{}")
        return 2 if "ops" in words else 0

    def check(folder: Path, seconds: float) -> int:
        assert folder.is_dir()
        checks.append(seconds)
        return 1

    def audit(words: Sequence[str], seconds: float) -> int:
        assert list(words) == ["--output", str(tmp_path / "out" / "audit.json")]
        checks.append(seconds)
        return 0

    monkeypatch.setattr(everything, "_installed", lambda name: True)
    arguments = ["--output", str(tmp_path / "out"), "--time", "200s", "--", "--peers", "none"]
    assert everything.main(arguments, run, check, audit) == 2
    core, ops, train, models, page = command_lines
    assert checks == [pytest.approx(49.1, abs=1), pytest.approx(45, abs=1)]  # 6 of 22 parts of 180 s, 4 of 16 of 180 s
    assert core[:6] == ["--suite", "core", "--device", "gpus", "--time", "75"]
    assert core[-2:] == ["--peers", "none"]
    assert [words[words.index("--time") + 1] for words in (ops, train, models)] == ["77", "90", "180"]  # none was used
    paths = [str(tmp_path / "out" / f"{suite}.json") for suite in ("core", "train", "models")]
    assert page[:4] == ["--report", *paths]
    command_lines.clear()
    assert (
        everything.main(
            [*arguments[:4], "--suites", "core,train"], lambda words: command_lines.append(list(words)) or 130
        )
        == 130
    )
    assert [words[words.index("--resume") + 1] for words in command_lines[:1]] == paths[:1]
    assert command_lines[1][0] == "--report"
    assert len(command_lines) == 2
    assert "the same command goes on" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        everything.main(["--output", str(tmp_path), "--suites", "cores"])


class SlowProcess:
    """A process that does not end before it is interrupted, or, if `stubborn`, before it is killed."""

    stubborn = False
    pid = 4321
    actions: list[object]

    def __init__(self, words: Sequence[str], **options: Any):
        SlowProcess.actions = [words[2]]

    def wait(self, seconds: float | None = None) -> int:
        self.actions.append(seconds)
        if "kill" in self.actions or (signal.SIGINT in self.actions and not self.stubborn):
            return -2
        raise subprocess.TimeoutExpired("process", seconds or 0.0)

    def send_signal(self, number: int) -> None:
        self.actions.append(number)

    @classmethod
    def kill_group(cls, pid: int, number: int) -> None:
        assert (pid, number) == (cls.pid, signal.SIGKILL)
        cls.actions.append("kill")


def test_a_suite_that_exceeds_its_share_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row of a model may take longer than the share. What was measured before is kept, and the next suite begins."""
    monkeypatch.setattr(subprocess, "Popen", SlowProcess)
    assert everything._run(["--suite", "models", "--time", "50"]) == 0
    assert SlowProcess.actions == ["weftgrad.bench", 60.0, signal.SIGINT, 90.0]
    assert "time is up in the middle of a row" in capsys.readouterr().err
    monkeypatch.setattr(SlowProcess, "stubborn", True)
    monkeypatch.setattr(os, "killpg", SlowProcess.kill_group)
    assert everything._run(["--suite", "models", "--time", "50"]) == 0
    assert SlowProcess.actions[-3:] == [90.0, "kill", None]


LOG = """
tests/test_gpu.py::test_values[add] PASSED                               [  0%]
../t/tests/test_gpu.py::test_values[sub two] FAILED                      [  1%]
tests/test_gpu.py::test_derivatives[add] SKIPPED (no second GPU)         [  2%]
tests/test_gpu.py::test_values[mul]
"""

LOG_OF_WORKERS = """
tests/test_gpu.py::test_values[add] \n[gw1] [  0%] FAILED tests/test_gpu.py::test_values[add] \n[gw0] [  1%] PASSED \
../t/tests/test_gpu.py::test_values[sub two] \ntests/test_gpu.py::test_pool PASSED      [ 50%]
"""


def test_outcomes_are_read_with_and_without_workers(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG + LOG_OF_WORKERS)
    assert op_checks.outcomes(tmp_path / "log") == {
        "test_values[add]": "failed", "test_values[sub two]": "passed", "test_derivatives[add]": "skipped",
        "test_pool": "passed",
    }  # fmt: skip


def test_checks_of_every_op_go_on_where_they_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A check that failed, or was cut off, runs again; one that passed does not."""
    command_lines: list[list[str]] = []

    def run(words: Sequence[str], log: Path, seconds: float) -> int:
        command_lines.append(list(words))
        with log.open("a") as file:
            file.write(LOG if len(command_lines) < 3 else LOG.replace("FAILED", "PASSED").replace("[add]", "[mul]"))
        return 1

    if op_checks.tests_folder() is None:
        pytest.skip("installed without the tree")
    assert op_checks.check_ops(tmp_path, 60.0, run) == 1
    assert "1 checks passed, values of 1 ops among them, 1 failed, 1 skipped" in capsys.readouterr().out
    assert json.loads((tmp_path / "correctness.json").read_text())["failed"] == ["test_values[sub two]"]
    assert op_checks.check_ops(tmp_path, 60.0, run) == 0
    first, memory_and_streams, second, _ = command_lines
    passed_names = Path(first[first.index("--passed-tests") + 1])
    assert second[second.index("--passed-tests") + 1] == str(passed_names)
    assert json.loads(passed_names.read_text()) == ["test_values[add]"]  # before the last run
    assert first[first.index("-k") + 1].startswith("test_values or ")
    assert memory_and_streams[-2:] == ["-k", f"not ({first[first.index('-k') + 1]})"]
    assert json.loads((tmp_path / "correctness.json").read_text())["passed"] == [
        "test_values[add]", "test_values[sub two]", "test_values[mul]"
    ]  # fmt: skip


def test_checks_that_passed_are_left_out_by_their_whole_names(tmp_path: Path) -> None:
    """`test_a` has passed; the names of the others begin with it."""
    (tmp_path / "test_gpu.py").write_text(
        "import pytest\n"
        "def test_a(): assert False\n"
        "def test_ab(): pass\n"
        "@pytest.mark.parametrize('op', ['add', 'add two', 'mul'])\n"
        "def test_a_value(op): assert op != 'add'\n"
    )
    (tmp_path / "passed.json").write_text(json.dumps(["test_a", "test_a_value[add]"]))
    words = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "weftgrad.bench.skip_passed",
             "--passed-tests", str(tmp_path / "passed.json"), "--rootdir", str(tmp_path), str(tmp_path)]  # fmt: skip
    assert op_checks._run_limited(words, tmp_path / "log", 60.0) == 0
    assert op_checks.outcomes(tmp_path / "log") == {
        "test_ab": "passed", "test_a_value[add two]": "passed", "test_a_value[mul]": "passed"
    }  # fmt: skip
    assert "3 passed, 2 deselected" in (tmp_path / "log").read_text()


def test_a_process_that_ignores_an_interrupt_ends_with_its_workers() -> None:
    """As of pytest and the workers of pytest-xdist: both ignore Ctrl-C here."""
    program = textwrap.dedent("""
        import signal, subprocess, sys
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        worker = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"])
        print("ready", flush=True)
        worker.wait()
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, process_group=0)
    assert process.stdout is not None
    with process.stdout as output:
        assert sorted(output.readline().split() for _ in range(2)) == [[], [b"ready"]]
        op_checks.interrupt(process, 0.1)
        assert process.returncode == -signal.SIGKILL
        assert output.read() == b""  # the end of the pipe: no process is left that could write to it


def test_a_crash_of_the_checks_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that a signal ends has written only what passed before."""

    def run(words: Sequence[str], log: Path, seconds: float) -> int:
        log.write_text("tests/test_gpu.py::test_values[add] PASSED [  0%]\n")
        return -11

    if op_checks.tests_folder() is None:
        pytest.skip("installed without the tree")
    assert op_checks.check_ops(tmp_path, 60.0, run) == 1
    assert "ended with status -11" in capsys.readouterr().out


def test_checks_of_every_op_end_at_the_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process is interrupted, not killed, so that its log has a summary."""
    monkeypatch.setattr(subprocess, "Popen", SlowProcess)
    assert op_checks._run_limited([sys.executable, "-m", "pytest"], tmp_path / "log", 3.0) == 0
    assert SlowProcess.actions == ["pytest", 3.0, signal.SIGINT, 20.0]
