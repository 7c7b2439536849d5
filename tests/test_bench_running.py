"""Running the rows of a benchmark: time budgets, progress, options, peers and resuming."""

from __future__ import annotations

import io
import json
import math
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_options import make_report, options, row, run

from weftgrad.bench import (
    alternation,
    core,
    limits,
    peers,
    running,
    selection,
    time_budget,
)
from weftgrad.bench.cases import Case, Work
from weftgrad.bench.measure import Timing
from weftgrad.bench.peers.function_namespace import FunctionNamespace
from weftgrad.bench.report import title
from weftgrad.bench.sites import NotOffered, OurSite, Site
from weftgrad.bench.time_budget import Allowance, Progress, parse_seconds
from weftgrad.runtime.errors import ArgumentError

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
