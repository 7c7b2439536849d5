"""Running the rows of a benchmark: time budgets, progress, resuming, child processes, and the facts of a row."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.bench import (
    alternation,
    command,
    core,
    device_listing,
    device_processes,
    everything,
    facts,
    limits,
    merging,
    op_checks,
    peers,
    running,
    selection,
    summary,
    sweep,
    time_budget,
)
from weftgrad.bench.audit import command as audit_command
from weftgrad.bench.cases import Case, Work, error_of
from weftgrad.bench.measure import Timing
from weftgrad.bench.peers.function_namespace import FunctionNamespace
from weftgrad.bench.report import title
from weftgrad.bench.rows import entries
from weftgrad.bench.sites import NotOffered, OurSite, Site
from weftgrad.bench.time_budget import Allowance, Progress, parse_seconds
from weftgrad.runtime.errors import ArgumentError

SPEC = textwrap.dedent("""
    - op: "bench_swish(input, beta: float = 1.0)"
      kind: pointwise
      doc: The input times its sigmoid.
      dtypes: float
      out: input / (1 + exp(-beta * input))

    - op: "bench_total(input, other)"
      kind: pointwise
      doc: A sum, of which NumPy knows what it is.
      out: input + other
      reference: numpy.add

    - op: "bench_gram(input, other)"
      kind: contraction
      doc: The product with a transpose.
      out: "mk,nk->mn"
""")


def options(*arguments: str) -> argparse.Namespace:
    return command.options(argparse.ArgumentParser()).parse_args(arguments)


def run(*arguments: str) -> int:
    args = options(*arguments)
    return int(args.run(args))


def row(name: str, **facts: Any) -> Case:
    """Return a row that does nothing and has right values."""
    return Case("g", name, lambda site: Work(lambda: None, lambda: [(np.ones(2), np.ones(2))]), **facts)


# Time


def test_times_are_read() -> None:
    assert [parse_seconds(text) for text in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]
    for text in ("", "0", "-1", "m", "1d", "1 0"):
        with pytest.raises(ArgumentError, match="--time"):
            parse_seconds(text)


def test_rows_get_as_many_rounds_as_there_is_time_for() -> None:
    """By a fake clock, a row takes 1 s plus 0.1 s per round, so 2 s with ten rounds."""
    for budget, min_rounds, max_rounds in ((1000.0, 10, 10), (30.0, 3, 6), (12.0, 1, 1)):
        clock = [0.0]
        allowance = Allowance(budget, lambda clock=clock: clock[0])  # type: ignore[misc]
        rounds_per_row = []
        for i in range(20):
            rounds = allowance.rounds(10, 20 - i)
            rounds_per_row.append(rounds)
            if not rounds:
                break
            clock[0] += 1 + rounds / 10
            allowance.record(1 + rounds / 10, rounds, 10)
        assert rounds_per_row[0] == 10
        assert all(min_rounds <= n <= max_rounds for n in rounds_per_row[1:-1])
        assert clock[0] <= budget + 2
        assert bool(rounds_per_row[-1]) == (budget > 20)
    assert Allowance(None).rounds(7, 1000) == 7


def test_rows_without_time_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [row(f"{i}") for i in range(5)]
    clock = iter(range(0, 1000, 20))
    args = options("--time", "1m", "--rounds", "1")
    measured = list(running.kernel_rows(args, [OurSite("cpu")], cases, alternation.Turn(), (), lambda: next(clock)))
    assert [entry["name"] for entry in measured] == ["0"]
    assert "4 of 5 rows are not measured" in capsys.readouterr().err


@pytest.fixture
def host_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of a fake clock, by which a row of host costs takes 3 s plus 0.1 s per round, so 6 s with 30 rounds."""
    clock = [0.0]

    def cost(run: Any, settle: Any, *, calls: int, rounds: int) -> Timing:
        clock[0] += 3 + rounds / 10
        return Timing(1e-6, 1e-6, 1e-6, 1e-6, rounds)

    monkeypatch.setattr(running, "host_cost", cost)
    return clock


@pytest.mark.parametrize(
    ("time", "later_rows", "min_rounds", "max_rounds"),
    [
        ((), 90, 30, 30),
        (("--time", "1h"), 90, 30, 30),
        (("--time", "500s"), 90, 1, 29),
        (("--time", "500s"), 0, 30, 30),
    ],
)
def test_rows_of_host_costs_and_of_kernels_share_the_time(
    monkeypatch: pytest.MonkeyPatch, host_clock: list[float], time: tuple[str, ...], later_rows: int, min_rounds: int,
    max_rounds: int,
) -> None:  # fmt: skip
    limits_of_first_result: list[float | None] = []
    monkeypatch.setattr(core, "first_result", lambda device, seconds: limits_of_first_result.append(seconds) or 0.5)
    arguments = [options("--suite", "core", *time), [OurSite("cpu")], alternation.Turn(), (), later_rows]
    *rows, last = running.host_rows(*arguments, lambda: host_clock[0])  # type: ignore[arg-type]
    assert [entry["name"] for entry in rows] == [case.name for case in core.host_cases(False)]
    assert last["name"] == "first result, warm process"
    rounds = [entry["samples"] for entry in rows]
    assert rounds[0] == 30
    assert all(min_rounds <= count <= max_rounds for count in rounds[1:]), rounds
    seconds_left = (500 if "500s" in time else 3600) - host_clock[0]
    assert limits_of_first_result == [pytest.approx(seconds_left / (1 + later_rows)) if time else None]


def test_rows_of_host_costs_without_time_are_reported(
    host_clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    args = options("--suite", "core", "--time", "10s")
    rows = list(running.host_rows(args, [OurSite("cpu")], alternation.Turn(), ("exp",), 90, lambda: host_clock[0]))
    assert [entry["name"] for entry in rows] == ["add", "add number", "add row"]  # 6 s, and then twice 3.1 s
    left = len(list(core.host_cases(False))) - 4 + 1  # all but `exp` and the measured ones, and the first result
    assert f"time is up: {left} rows of host costs are not measured" in capsys.readouterr().err


def test_groups_take_turns_where_time_is_short() -> None:
    args = options("--suite", "core", "--time", "1m", "--only", "64K")
    assert {case.group for case in selection.select_cases(args, [OurSite("cpu")])[:2]} == {"elementwise"}
    args = options("--suite", "core", "--time", "1m", "--only", "1")
    groups = [case.group for case in selection.select_cases(args, [OurSite("cpu")])[:4]]
    assert len(set(groups)) == 4
    args = options("--suite", "core", "--time", "1m", "--cases", "cpu")
    groups = [case.group for case in selection.select_cases(args, [OurSite("cpu")])[:8]]
    assert len(set(groups)) == 8  # rows of the roofline, which all shares need, and rows of ops


def test_progress_is_for_terminals() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, is_terminal in ((Terminal(), True), (io.StringIO(), False)):
        progress = Progress(3, stream)
        progress.show("exp", None)
        progress.done += 1
        progress.show("add", 130.0)
        progress.clear()
        text = stream.getvalue()
        assert ("[1/3] exp" in text) == ("[2/3, 3 min left] add" in text) == text.endswith("\x1b[K") == is_terminal
        assert is_terminal or not text
    assert [time_budget._duration(s) for s in (3, 89.5, 91, 3900)] == ["3 s", "90 s", "2 min", "1 h 05 min"]


# Options


def test_options_that_do_not_go_together() -> None:
    for arguments, words in (
        (("--suite", "core", "--ops", "exp"), "--ops is for the suite specs"),
        (("--shapes", "4x"), "--shapes takes shapes"), (("--dtypes", "fp8"), "no 'fp8'"),
        (("--peers", "pandas"), "no 'pandas'"), (("--ops", "no_such_op"), "no op 'no_such_op'"),
        (("nowhere.yaml",), "no spec file"), (("--rounds", "0"), "1 or more"), (("--dtypes", ","), "no dtype"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=words):
            run("--device", "cpu", *arguments)


def test_peers_are_chosen() -> None:
    assert [peers.parse(text) for text in (None, "all", "none", "jax, numpy,jax")] == [None, None, [], ["jax", "numpy"]]
    our_sites = [OurSite("cpu")]
    assert [site.name for site in peers.peer_sites(our_sites, 1, ["numpy"])] == ["numpy"]
    assert peers.peer_sites(our_sites, 1, []) == []


def test_requested_peer_must_be_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ArgumentError, match="--peers cupy: it does not import"):
        peers.peer_sites([OurSite("cpu")], 1, ["cupy"])
    assert "cupy" not in {site.name for site in peers.peer_sites([OurSite("cpu")], 1, None)}


def test_peer_without_the_op_or_with_wrong_values_is_left_out() -> None:
    class Peer(Site):
        name, modules, checked = "peer", False, True

        def __init__(self, value: float):
            super().__init__()
            self.value = value

        def seed(self) -> None:
            pass

        def precision(self, name: str) -> Any:
            return OurSite("cpu").precision(name)

    def make(site: Site) -> Work:
        if site.ours:
            return Work(lambda: None, lambda: [(np.ones(2), np.ones(2))])
        value = site.value  # type: ignore[attr-defined]
        if not value:
            raise NotOffered("no such function")
        return Work(lambda: None, lambda: [(np.full(2, value), np.ones(2))])

    for value, times, notes in ((1.0, {"cpu", "peer"}, 0), (0.0, {"cpu"}, 0), (2.0, {"cpu"}, 1)):
        result = running.measure_case(Case("g", "x", make), [OurSite("cpu"), Peer(value)], 1, [])
        assert result is not None
        assert (set(result["times"]), len(result["notes"])) == (times, notes)
        assert "wrong" not in result or not result["wrong"]


def test_names_of_another_library() -> None:
    library = FunctionNamespace({"exp": math.exp, "nn.functional.relu": lambda x: max(x, 0)}, "other")
    assert library.exp(0) == library.nn.functional.relu(1) == 1
    for name in ("log", "nn.functional.gelu", "nn.Linear"):
        with pytest.raises(NotOffered, match=f"other: no {name}"):
            reduce(getattr, name.split("."), library)


def test_title_names_libraries_with_their_versions() -> None:
    machine = make_report("cpu", 1e-3)["machine"]
    machine["places"] = {"numpy": "cpu", "jax": "cpu"}
    machine["versions"]["jax"] = "0.10"
    assert title(machine) == "Cores (cpu; CPU), without torch, numpy 2.4 on cpu, jax 0.10 on cpu"


# Resuming


@pytest.fixture
def three_rows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the core suite three rows, and list the calls that make them."""
    calls: list[str] = []

    def recording_case(name: str) -> Case:
        def make(site: Site) -> Work:
            calls.append(name)
            if name == "b" and len(calls) == 2:
                raise KeyboardInterrupt
            return Work(lambda: None, lambda: [(np.ones(2), np.ones(2))])

        return Case("g", name, make)

    monkeypatch.setattr(core, "cases", lambda: [recording_case(name) for name in "abc"])
    monkeypatch.setattr(limits, "roofs", lambda *_: [])
    monkeypatch.setattr(core, "host_cases", lambda gpu: [])
    monkeypatch.setattr(core, "first_result", lambda device, seconds: 0.5)
    return calls


def test_a_first_result_takes_no_more_processes_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fake clock, a process takes 2 s."""
    starts: list[float] = []
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(core.subprocess, "run", lambda *words, **settings: starts.append(0))
    monkeypatch.setattr(core.time, "perf_counter", lambda: next(clock))
    for seconds, count in ((None, 4), (100.0, 4), (5.0, 2), (0.1, 1)):
        starts.clear()
        assert core.first_result("cpu", seconds) == 2
        assert len(starts) == count


def test_an_interrupted_run_goes_on(three_rows: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    arguments = ("--device", "cpu", "--rounds", "1", "--peers", "none")
    assert run(*arguments, "--output", str(path)) == 130
    first = json.loads(path.read_text())
    assert [entry["name"] for entry in first["kernels"]] == ["a"]
    assert f"--resume {path}" in capsys.readouterr().err
    assert run(*arguments, "--resume", str(path)) == 0
    resumed = json.loads(path.read_text())
    assert [entry["name"] for entry in resumed["kernels"]] == ["a", "b", "c"]
    assert resumed["kernels"][0]["times"] == first["kernels"][0]["times"]
    assert three_rows == ["a", "b", "b", "c"]
    assert [entry["name"] for entry in resumed["host"]] == ["first result, warm process"]
    for change, words in (
        ({"cores": 96}, "cores: 96 then"),
        ({"devices": []}, "devices:"),
        ({"versions": first["machine"]["versions"] | {"weftgrad": "0"}}, "weftgrad: 0 then"),
    ):
        path.write_text(json.dumps(first | {"machine": first["machine"] | change}))
        if "devices" not in change:
            with pytest.raises(ArgumentError, match=words):
                run(*arguments, "--resume", str(path))
    path.write_text(json.dumps(first))
    with pytest.raises(ArgumentError, match="has the suite core, not ops"):
        run(*arguments, "--suite", "ops", "--resume", str(path))


# Child processes


def test_every_driver_is_queried_and_no_device_is_listed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PoCL appears with every driver, and a GPU in both CUDA and OpenCL."""
    pocl, intel, card = ["PoCL", "3", "CPU", "3"], ["Intel", "3", "CPU", "26"], ["NVIDIA", "3", "H", "5"]
    intel_library, nvidia_icd = tmp_path / "libintelocl.so", tmp_path / "nvidia.icd"
    intel_library.touch()
    nvidia_icd.write_text("libnvidia-opencl.so.1\n")
    monkeypatch.setattr(device_listing, "_VENDORS", tmp_path / "none")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    unlisted = tmp_path / "libnvidia-opencl.so.1"
    monkeypatch.setattr(device_listing, "_NVIDIA_LIBRARIES", (tmp_path / "nowhere.so", unlisted))

    def query_devices(library: str = "") -> list[dict[str, Any]]:
        answers = {
            "": [{"device": "cpu", "identity": pocl}, {"device": "cuda:0", "identity": None, "gpu": True},
                 {"device": "cuda:1", "problem": "too old"}, {"device": "opencl:0", "identity": pocl},
                 {"device": "opencl:1", "identity": ["Oclgrind 21", "2", "CPU", "1"], "processor": True},
                 {"device": "opencl:2", "identity": ["Oclgrind 22", "2", "CPU", "1"], "processor": True}],
            str(intel_library): [{"device": "opencl:0", "identity": pocl, "processor": True},
                       {"device": "opencl:1", "identity": intel, "processor": True}],
            "libnvidia-opencl.so.1": [
                {"device": "opencl:0", "identity": card, "gpu": True}, {"device": "cpu", "identity": pocl},
            ],
        }  # fmt: skip
        return answers[library]

    monkeypatch.setattr(device_listing, "_query_devices", query_devices)
    devices = device_listing.list_devices([intel_library, nvidia_icd], query_devices)
    assert [(bench_device.name, bench_device.device) for bench_device in devices] == [
        ("cpu", "cpu"), ("cuda:0", "cuda:0"), ("opencl:1", "opencl:1"), ("opencl:2", "opencl:2"),
        ("opencl:0@intelocl", "opencl:1"), ("opencl:0@nvidia-opencl", "opencl:0"),
    ]  # fmt: skip
    assert "cuda:1: left out: too old" in capsys.readouterr().err
    with pytest.raises(ArgumentError, match="does not exist"):
        device_listing.list_devices([tmp_path / "missing.so"], query_devices)
    monkeypatch.setattr(device_listing, "list_devices", partial(device_listing.list_devices, query=query_devices))
    assert [p.name for p in device_listing.select_devices("gpus", [intel_library, nvidia_icd])] == [
        "cuda:0", "opencl:0@nvidia-opencl"
    ]  # fmt: skip
    unlisted.touch()  # a container without an .icd file for this library
    assert device_listing.libraries([]) == [str(unlisted)]
    assert device_listing.libraries([nvidia_icd]) == [str(unlisted), "libnvidia-opencl.so.1"]


def test_missing_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_listing, "list_devices", lambda extra: [device_listing.BenchDevice("cpu", "cpu")])
    with pytest.raises(ArgumentError, match="finds no GPU; there are cpu"):
        device_listing.select_devices("gpus")


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


def make_report(device: str, least: float, *names: str) -> dict[str, Any]:
    """Return the report of one process: rows of one device and of numpy."""
    times = {n: {"least": t, "median": t, "p20": t, "p80": t, "samples": 3, "late": 0, "host": t}
             for n, t in ((device, least), ("numpy", 4e-3))}  # fmt: skip
    rows = [
        {
            "group": "sum",
            "name": n,
            "bytes": 8,
            "flops": 0,
            "target": None,
            "errors": {},
            "notes": [],
            "missed": [],
            "clock": "wall",
            "least": least,
            "times": times,
            "ratios": {"numpy": [4e-3 / least] * 2},
        }
        for n in names
    ]
    machine = {"date": "2026-01-02T03:04:05", "devices": [{"device": device, "name": "Cores", "kind": "CPU"}],
               "torch": None, "places": {"numpy": "cpu"}, "cores": 2, "system": "L", "python": "3.12", "driver": None,
               "versions": {"weftgrad": "0.1.0", "numpy": "2.4", "torch": None}}  # fmt: skip
    return {"suite": "core", "machine": machine, "host": [], "kernels": rows}


def test_reports_merge_and_split() -> None:
    first, second = make_report("cpu", 1e-3, "a", "b", "c"), make_report("opencl:0@intelocl", 2e-3, "a", "b")
    merged = merging.merge_reports([first, second])
    rows = {(e.device, e.name): e for e in entries([merged])}
    assert len(rows) == 5
    assert rows["opencl:0@intelocl", "a"].ratio("numpy") == pytest.approx((2.0, 2.0))
    assert rows["cpu", "a"].same_hardware == rows["opencl:0@intelocl", "b"].same_hardware == {"numpy"}
    assert rows["cpu", "a"].facts == {"host_us": 1e3}
    assert [e["name"] for e in merging.device_report(merged, "opencl:0@intelocl")["kernels"]] == ["a", "b"]  # type: ignore[index]
    parts = [merging.device_report(merged, name) for name in ("cpu", "opencl:0@intelocl")]
    merged_again = merging.merge_reports(parts)  # type: ignore[arg-type]
    assert merged_again == merged
    assert merging.device_report(merged, "cuda:0") is None
    # Rows that only one device has are not compared.
    words = "\n".join(summary.lines(entries([merged])))
    assert "2 rows that passed on every device" in words
    assert "cpu: others' time by ours: numpy 4.00" in words
    assert "opencl:0@intelocl takes 2.00 of the time of cpu" in words


def test_processes_that_crash_keep_their_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CPUs alternate, then GPUs. The rows of a crashed process are kept, and an interrupt stops the others."""
    devices = [device_listing.BenchDevice("cpu", "cpu"), device_listing.BenchDevice("cuda:0", "cuda:0", gpu=True),
              device_listing.BenchDevice("opencl:0@x", "opencl:0", "x.so")]  # fmt: skip
    started: list[list[str]] = []

    def rotate(starts: Sequence[Any], look: Any) -> tuple[list[int], bool]:
        started.append([start.args[1].name for start in starts])
        for start in starts:
            _, device, file, share, environment = start.args
            assert share is None
            assert ("OCL_ICD_VENDORS" in environment) >= bool(device.library)
            file.write_text(json.dumps(make_report(device.name, 1e-3, "a")))
            look()
            look()  # the file has not changed
        return [0, -signal.SIGSEGV][: len(starts)], "cuda:0" in started[-1]

    monkeypatch.setattr(device_processes, "rotate", rotate)
    reports: list[Any] = []
    final_report, interrupted = device_processes.measure(options(), devices, None, reports.append)
    assert started == [["cpu", "opencl:0@x"], ["cuda:0"]]
    assert interrupted
    assert [len(report["machine"]["devices"]) for report in reports] == [1, 2, 3]
    problems = [(e["device"], e.get("problem", "")) for e in final_report["kernels"] if e.get("problem")]
    assert problems == [("opencl:0@x", "the device's process ended by SIGSEGV")]
    assert merging.device_report(final_report, "opencl:0@x")["kernels"][0]["name"] == "a"  # type: ignore[index]
    assert "interrupted: what was measured so far is kept" in capsys.readouterr().err


PLAYER = textwrap.dedent("""
    import os, signal, sys
    from weftgrad.bench.alternation import Turn
    name, rows, log, ends = sys.argv[1:]
    turn = Turn(ends)
    def note(row):
        with open(log, "a") as file:
            file.write(f"{name}{row} ")
    try:
        for row in rows:
            turn.wait_at(1, int(row, 16))
            note(row)
            if row == "e":
                os.kill(os.getpid(), signal.SIGKILL)
            turn.pass_on()
            note(row)
    except KeyboardInterrupt:
        note("!")
        sys.exit(130)
""")


def players(log: Path, **rows: str) -> list[Callable[[tuple[int, int]], subprocess.Popen[bytes]]]:
    """Return starters of processes that log each of their rows for two rounds, and die at row `e`."""

    def start(name: str, rows: str, ends: tuple[int, int]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PLAYER, name, rows, str(log), "{},{}".format(*ends)]
        return subprocess.Popen(command, pass_fds=ends, process_group=0)

    return [partial(start, name, row_names) for name, row_names in rows.items()]


def test_processes_alternate_by_rounds_and_wait_for_slower_ones(tmp_path: Path) -> None:
    """One process skips row 1 and one dies in its last row; the others continue with the processes at the same row."""
    looks: list[None] = []
    statuses, interrupted = alternation.rotate(
        players(tmp_path / "log", a="012", b="02", c="01e"), lambda: looks.append(None)
    )
    log = (tmp_path / "log").read_text()
    assert log == "a0 b0 c0 a0 b0 c0 a1 c1 a1 c1 b2 a2 b2 a2 ce "
    assert (statuses, interrupted) == ([0, 0, -signal.SIGKILL], False)
    assert len(looks) == log.count(" ")


def test_an_interrupt_reaches_waiting_processes(tmp_path: Path) -> None:
    def look() -> None:
        if (tmp_path / "log").exists() and "a1" in (tmp_path / "log").read_text():
            raise KeyboardInterrupt

    statuses, interrupted = alternation.rotate(players(tmp_path / "log", a="0123", b="0123"), look)
    assert (statuses, interrupted) == ([130, 130], True)
    assert (tmp_path / "log").read_text().count("!") == 2


def test_a_lost_coordinator_interrupts_the_player() -> None:
    reads, grants = os.pipe()
    requests, writes = os.pipe()
    turn = alternation.Turn(f"{reads},{writes}")
    os.write(grants, b"!")
    turn.wait_at(1, 7)
    os.close(grants)
    with pytest.raises(KeyboardInterrupt):
        turn.pass_on()
    os.close(requests)
    with pytest.raises(KeyboardInterrupt):
        turn.wait_at(1, 8)
    os.close(reads)
    os.close(writes)


def test_devices_that_took_turns_are_compared_by_rounds() -> None:
    reports = [make_report("cpu", 1e-3, "a", "b"), make_report("cpu@x", 2e-3, "a", "b")]
    for report, rounds in zip(reports, ([1e-3, 2e-3, 4e-3], [3e-3, 3e-3, 4e-3]), strict=True):
        for entry in report["kernels"]:
            entry["times"][report["machine"]["devices"][0]["device"]]["rounds"] = rounds
    words = "\n".join(summary.lines(entries([merging.merge_reports(reports)])))
    assert "cpu@x takes 2.00 of the time of cpu (1.00 to 3.00; 1.50 by medians of rounds, which took turns)" in words
    reports[1]["kernels"][0]["times"]["cpu@x"]["rounds"] = [3e-3]  # a call that takes so long that it is timed once
    assert "rounds" not in "\n".join(summary.lines(entries([merging.merge_reports(reports)])))


def test_measuring_in_a_child_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Start a real child process, with the smallest measurement."""
    path = tmp_path / "found.json"
    args = options("--suite", "device", "--only", "one element, queued", "--rounds", "1", "--peers", "none",
                     "--output", str(path))  # fmt: skip
    devices = [device_listing.BenchDevice("cpu@here", "cpu")]
    report, interrupted = device_processes.measure(args, devices, None, lambda partial_report: None)
    assert not interrupted
    assert [(e["device"], e["name"]) for e in report["kernels"]] == [("cpu@here", "one element, queued")]
    assert set(report["kernels"][0]["times"]) == {"cpu@here"}
    assert "one element, queued" in capfd.readouterr().out


# Facts


def test_accuracy_by_three_measures() -> None:
    expected = np.array([1.0, 4.0, 0.0, 1000.0])
    actual = np.array([1.0 + 2.0**-23, 4.0, 2.0**-149, 1000.0])
    measures = facts.accuracy([(actual, expected)], "float32")
    assert measures == {"abs": 2.0**-23, "rel": 2.0**-23, "ulp": 1.0}
    assert facts.accuracy([(np.array([1.0 + 2.0**-7]), np.array([1.0]))], "bfloat16")["ulp"] == 1.0
    # The spacing of subnormal numbers is that of the smallest normal one.
    assert facts.accuracy([(np.array([2.0**-149]), np.array([0.0]))], "float32")["ulp"] == 1.0
    assert facts.accuracy([(np.array([np.inf]), np.array([np.inf]))], "float32")["abs"] == 0


def test_what_a_kernel_leaves_unwritten_is_not_a_number() -> None:
    site = OurSite("cpu")
    for dtype in (wg.float32, wg.bfloat16, wg.int32):
        filled = wg.ones(5000, dtype=dtype)
        facts.poison(site, filled)
        unwritten = wg.empty(5000, dtype=dtype)
        assert error_of([(site.host(unwritten), site.host(filled))]) != 0
        assert bool(unwritten.isnan().all()) if dtype.is_floating_point else bool((unwritten == -1).all())


def test_facts_of_a_call() -> None:
    site = OurSite("cpu")
    x = wg.randn(40, 70)
    call_facts = facts.facts(site, lambda: wg.softmax(x + 1, 1))
    assert call_facts["launches"] == 2
    assert any(name.startswith("softmax") for name in call_facts["schedule"])
    assert 0 < call_facts["warm_ms"] < call_facts["cold_ms"]
    assert call_facts["peak_bytes"] >= 3 * 40 * 70 * 4
    assert call_facts["driver_allocations"] == 0
    assert facts.steps_of(site, lambda: x.t()) == []
    assert site.device.driver.launcher.__self__ is site.device.driver  # the original launcher is restored


# Specs


def test_rows_of_a_spec_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Forward and backward in two dtypes; each row names the reference that it was checked against."""
    path, output = tmp_path / "mine.yaml", tmp_path / "found.json"
    path.write_text(SPEC)
    assert run(str(path), "--device", "cpu", "--dtypes", "float32,bfloat16", "--shapes", "24", "--only", "bench_",
               "--rounds", "1", "--peers", "numpy", "--output", str(output)) == 0  # fmt: skip
    entries = {entry["name"]: entry for entry in json.loads(output.read_text())["kernels"]}
    assert len(entries) == 12
    assert entries["bench_swish float32 24"]["against"] == "its own float64"
    assert entries["bench_total bfloat16 24, gradient"]["against"] == "numpy.add in float64"
    assert entries["bench_gram float32 24"]["flops"] == 2 * 24**3
    assert entries["bench_gram float32 24"]["bytes"] == 3 * 4 * 24**2
    assert set(entries["bench_total float32 24"]["times"]) == {"cpu", "numpy"}
    assert entries["bench_swish bfloat16 24"]["facts"]["cpu"]["accuracy"]["ulp"] <= 1
    assert 0 < entries["bench_swish float32 24"]["facts"]["cpu"]["accuracy"]["ulp"] < 8
    assert "bench_swish bfloat16 24, gradient" in capsys.readouterr().out


def test_ops_that_cannot_be_measured_are_listed_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ops without rules for their operands, or without a shape or dtype of the options, have a row with the reason."""
    path, output = tmp_path / "mine.yaml", tmp_path / "report.json"
    path.write_text(SPEC + """
- op: "bench_blur(input, SIZES)"
  kind: window
  dtypes: float
  doc: Mean of each window.
  grad: none
  window: {over: windows, identity: 0, map: input, combine: a + b, finish: acc / n}
""".replace("SIZES", "size: tuple[int, ...], kernel: tuple[int, ...] | None, stride: tuple[int, ...], padding: "
                     "tuple[int, ...], counted: bool, divisor: int"))  # fmt: skip
    words = (str(path), "--device", "cpu", "--shapes", "24x24", "--only", "bench_", "--rounds", "1", "--peers", "none")
    assert run(*words, "--output", str(output)) == 0
    rows = {row["name"]: row for row in json.loads(output.read_text())["kernels"]}
    assert "problem" not in rows["bench_swish float32 24x24"]
    assert rows["bench_blur"]["problem"].startswith("not measured: it is of kind window")
    assert "not measured: --shapes has none for bench_gram" in capsys.readouterr().out
    assert run(*words, "--ops", "bench_blur,bench_gram") == 1
    assert "no op can be measured: bench_blur: it is of kind window" in capsys.readouterr().err
    assert run("--ops", "gather", "--device", "cpu", "--peers", "none") == 1
    assert "gather: it is of kind index" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", sweep.DTYPES)
def test_every_dtype_has_rows(dtype: str) -> None:
    dtypes = [value for name, value in vars(wg).items() if isinstance(value, type(wg.float32)) and name[0] != "_"]
    assert set(sweep.DTYPES) == {str(value).rpartition(".")[2] for value in dtypes}
    site = OurSite("cpu")
    cases = [case for case in sweep.cases(options("--ops", "add,eq", "--dtypes", "all", "--shapes", "9"))
             if case.element == dtype and "gradient" not in case.name]  # fmt: skip
    assert cases
    for case in cases:
        work = case.on(site)
        assert work is not None
        assert error_of(work.pairs()) <= case.tolerance


def test_a_wrong_formula_is_found_where_a_spec_names_its_reference(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SPEC.replace("out: input + other", "out: input - other").replace("bench_", "bench_wrong_"))
    assert run(str(path), "--device", "cpu", "--ops", "bench_wrong_total", "--shapes", "24", "--only", "bench_",
               "--rounds", "1", "--peers", "none") == 1  # fmt: skip


def test_a_wrong_derivative_is_found_without_a_reference(tmp_path: Path) -> None:
    """Gradients are compared with finite differences of the op in float64, not with the spec's gradient."""
    path = tmp_path / "mine.yaml"
    text = SPEC.replace("  out: input / (1", "  grad: {input: grad * input}\n  out: input / (1")
    path.write_text(text.replace("bench_", "bench_sloping_"))
    forward, backward = sweep.cases(options(str(path), "--ops", "bench_sloping_swish", "--shapes", "24"))
    rows = [running.measure_case(case, [OurSite("cpu")], 1, []) for case in (forward, backward)]
    assert ["problem" in (entry or {}) for entry in rows] == [False, True]


def test_ops_of_the_package_by_name() -> None:
    assert {case.group for case in sweep.cases(options("--suite", "specs"))} == {
        "pointwise", "rowwise", "reduction", "contraction", "scan"
    }  # fmt: skip
    args = options("--ops", "softmax,mm,cumsum", "--shapes", "9,8x9,4x5x6")
    cases_by_name = {case.name: case for case in sweep.cases(args)}
    assert {"softmax float32 8x9", "mm float32 4x5x6, gradient", "cumsum float32 9"} <= set(cases_by_name)
    assert "mm float32 8x9" not in cases_by_name
    site = OurSite("cpu")
    for name in ("softmax float32 8x9", "mm float32 4x5x6, gradient", "cumsum float32 9"):
        work = cases_by_name[name].on(site)
        assert work is not None
        assert error_of(work.pairs()) <= cases_by_name[name].tolerance


# Limits


def test_limits_are_checked_like_any_row() -> None:
    site = OurSite("cpu", 512)
    cases_by_group = {}
    for case in limits.cases(gpu=False, scale=512):
        work = case.on(site)
        assert work is not None
        work.call()
        assert error_of(work.pairs()) <= case.tolerance
        cases_by_group[case.group] = case
    assert set(cases_by_group) == {"roofline", "cache", "peak", "transfer", "launch"}
    # Each of 8 chains has one product and 16 multiply-adds (2 operations each); then the chains are added.
    (case,) = (case for case in limits.cases(gpu=False, scale=1024) if case.name == "multiply-add fp32")
    assert case.flops == 8 * (8 * 33 + 7)
