"""Going through a benchmark's rows: budgets of time, progress, resuming, processes of their own, facts of a row."""

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
from weftgrad.bench import apart, command, core, everything, facts, limits, peers, running, summary, sweep, turns
from weftgrad.bench.cases import Case, Work, error_of
from weftgrad.bench.peers.tables import Names
from weftgrad.bench.report import title
from weftgrad.bench.rows import entries
from weftgrad.bench.running import Allowance, Progress, seconds_of
from weftgrad.bench.sites import NotOffered, OurSite, Site
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


def options(*given: str) -> argparse.Namespace:
    return command.options(argparse.ArgumentParser()).parse_args(given)


def run(*given: str) -> int:
    chosen = options(*given)
    return int(chosen.run(chosen))


def row(name: str, **facts: Any) -> Case:
    """A row that is right and does nothing."""
    return Case("g", name, lambda site: Work(lambda: None, lambda: [(np.ones(2), np.ones(2))]), **facts)


# Time


def test_times_are_read() -> None:
    assert [seconds_of(text) for text in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]
    for text in ("", "0", "-1", "m", "1d", "1 0"):
        with pytest.raises(ArgumentError, match="--time"):
            seconds_of(text)


def test_rows_get_as_many_rounds_as_there_is_time_for() -> None:
    """A clock of which a row takes 2 s with ten rounds, 1 s of it whatever the rounds."""
    for budget, least, most in ((1000.0, 10, 10), (30.0, 3, 6), (12.0, 1, 1)):
        clock = [0.0]
        allowance = Allowance(budget, lambda clock=clock: clock[0])  # type: ignore[misc]
        given = []
        for i in range(20):
            rounds = allowance.rounds(10, 20 - i)
            given.append(rounds)
            if not rounds:
                break
            clock[0] += 1 + rounds / 10
            allowance.took(1 + rounds / 10, rounds, 10)
        assert given[0] == 10
        assert all(least <= n <= most for n in given[1:-1])
        assert clock[0] <= budget + 2
        assert bool(given[-1]) == (budget > 20)
    assert Allowance(None).rounds(7, 1000) == 7


def test_rows_that_there_is_no_time_for_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "selected", lambda *_: [row(f"{i}") for i in range(5)])
    clock = iter(range(0, 1000, 20))
    chosen = options("--time", "1m", "--rounds", "1")
    found = list(running.kernel_rows(chosen, [OurSite("cpu")], turns.Turn(), (), lambda: next(clock)))
    assert [each["name"] for each in found] == ["0"]
    assert "4 of 5 rows are not measured" in capsys.readouterr().err


def test_groups_take_turns_where_time_is_short() -> None:
    chosen = options("--suite", "core", "--time", "1m", "--only", "64K")
    assert {case.group for case in running.selected(chosen, [OurSite("cpu")])[:2]} == {"elementwise"}
    chosen = options("--suite", "core", "--time", "1m", "--only", "1")
    groups = [case.group for case in running.selected(chosen, [OurSite("cpu")])[:4]]
    assert len(set(groups)) == 4


def test_progress_is_for_terminals() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        progress = Progress(3, stream)
        progress.show("exp", None)
        progress.done += 1
        progress.show("add", 130.0)
        progress.clear()
        text = stream.getvalue()
        assert ("[1/3] exp" in text) == ("[2/3, 3 min left] add" in text) == text.endswith("\x1b[K") == shown
        assert shown or not text
    assert [running._duration(s) for s in (3, 89.5, 91, 3900)] == ["3 s", "90 s", "2 min", "1 h 05 min"]


# What goes together


def test_options_that_do_not_go_together() -> None:
    for given, words in (
        (("--suite", "core", "--ops", "exp"), "--ops is for the suite specs"),
        (("--shapes", "4x"), "--shapes takes shapes"), (("--dtypes", "fp8"), "no 'fp8'"),
        (("--peers", "pandas"), "no 'pandas'"), (("--ops", "no_such_op"), "no op 'no_such_op'"),
        (("--ops", "gather"), "of kind index"), (("nowhere.yaml",), "no spec file"), (("--rounds", "0"), "1 or more"),
        (("--ops", "mm", "--shapes", "2x3"), "none for mm"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=words):
            run("--device", "cpu", *given)


def test_peers_are_chosen() -> None:
    assert [peers.parse(text) for text in (None, "all", "none", "jax, numpy,jax")] == [None, None, [], ["jax", "numpy"]]
    own = [OurSite("cpu")]
    assert [site.name for site in peers.beside(own, 1, ["numpy"])] == ["numpy"]
    assert peers.beside(own, 1, []) == []


def test_a_peer_that_is_asked_for_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ArgumentError, match="--peers cupy: it does not import"):
        peers.beside([OurSite("cpu")], 1, ["cupy"])
    assert "cupy" not in {site.name for site in peers.beside([OurSite("cpu")], 1, None)}


def test_a_peer_is_left_out_of_rows_that_it_does_not_offer_or_gets_wrong() -> None:
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
        found = running.measured(Case("g", "x", make), [OurSite("cpu"), Peer(value)], 1, [])
        assert found is not None
        assert (set(found["times"]), len(found["notes"])) == (times, notes)
        assert "wrong" not in found or not found["wrong"]


def test_names_of_another_library() -> None:
    library = Names({"exp": math.exp, "nn.functional.relu": lambda x: max(x, 0)}, "other")
    assert library.exp(0) == library.nn.functional.relu(1) == 1
    for name in ("log", "nn.functional.gelu", "nn.Linear"):
        with pytest.raises(NotOffered, match=f"other: no {name}"):
            reduce(getattr, name.split("."), library)


def test_what_ran_is_told_with_its_version() -> None:
    found = part("cpu", 1e-3)["machine"]
    found["places"] = {"numpy": "cpu", "jax": "cpu"}
    found["versions"]["jax"] = "0.10"
    assert title(found) == "Cores (cpu; CPU), without torch, numpy 2.4 on cpu, jax 0.10 on cpu"


# Resuming


@pytest.fixture
def three_rows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The core suite has three rows; which of them were made is listed."""
    made: list[str] = []

    def noted(name: str) -> Case:
        def make(site: Site) -> Work:
            made.append(name)
            if name == "b" and len(made) == 2:
                raise KeyboardInterrupt
            return Work(lambda: None, lambda: [(np.ones(2), np.ones(2))])

        return Case("g", name, make)

    monkeypatch.setattr(core, "cases", lambda: [noted(name) for name in "abc"])
    monkeypatch.setattr(limits, "roofs", lambda *_: [])
    monkeypatch.setattr(core, "host_cases", lambda gpu: [])
    monkeypatch.setattr(core, "first_result", lambda device: 0.5)
    return made


def test_an_interrupted_run_goes_on(three_rows: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    given = ("--device", "cpu", "--rounds", "1", "--peers", "none")
    assert run(*given, "--output", str(path)) == 130
    before = json.loads(path.read_text())
    assert [each["name"] for each in before["kernels"]] == ["a"]
    assert f"--resume {path}" in capsys.readouterr().err
    assert run(*given, "--resume", str(path)) == 0
    after = json.loads(path.read_text())
    assert [each["name"] for each in after["kernels"]] == ["a", "b", "c"]
    assert after["kernels"][0]["times"] == before["kernels"][0]["times"]
    assert three_rows == ["a", "b", "b", "c"]
    assert [each["name"] for each in after["host"]] == ["first result, warm process"]
    for change, words in (({"cores": 96}, "cores: 96 then"), ({"devices": []}, "devices:"),
                          ({"versions": before["machine"]["versions"] | {"weftgrad": "0"}}, "weftgrad: 0 then")):
        path.write_text(json.dumps(before | {"machine": before["machine"] | change}))
        if "devices" not in change:
            with pytest.raises(ArgumentError, match=words):
                run(*given, "--resume", str(path))
    path.write_text(json.dumps(before))
    with pytest.raises(ArgumentError, match="has the suite core, not ops"):
        run(*given, "--suite", "ops", "--resume", str(path))


# Processes of their own


def test_every_driver_is_asked_and_no_device_is_listed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PoCL comes along with every driver; a card is seen by CUDA and by OpenCL."""
    pocl, intel, card = ["PoCL", "3", "CPU", "3"], ["Intel", "3", "CPU", "26"], ["NVIDIA", "3", "H", "5"]
    own, second = tmp_path / "libintelocl.so", tmp_path / "nvidia.icd"
    own.touch()
    second.write_text("libnvidia-opencl.so.1\n")
    monkeypatch.setattr(apart, "_VENDORS", tmp_path / "none")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    unlisted = tmp_path / "libnvidia-opencl.so.1"
    monkeypatch.setattr(apart, "_UNLISTED", (tmp_path / "nowhere.so", unlisted))

    def asked(library: str = "") -> list[dict[str, Any]]:
        found = {
            "": [{"device": "cpu", "identity": pocl}, {"device": "cuda:0", "identity": None, "gpu": True},
                 {"device": "cuda:1", "problem": "too old"}, {"device": "opencl:0", "identity": pocl},
                 {"device": "opencl:1", "identity": ["Oclgrind 21", "2", "CPU", "1"], "processor": True},
                 {"device": "opencl:2", "identity": ["Oclgrind 22", "2", "CPU", "1"], "processor": True}],
            str(own): [{"device": "opencl:0", "identity": pocl, "processor": True},
                       {"device": "opencl:1", "identity": intel, "processor": True}],
            "libnvidia-opencl.so.1": [
                {"device": "opencl:0", "identity": card, "gpu": True}, {"device": "cpu", "identity": pocl},
            ],
        }  # fmt: skip
        return found[library]

    monkeypatch.setattr(apart, "_asked", asked)
    found = apart.present([own, second], asked)
    assert [(place.name, place.device) for place in found] == [
        ("cpu", "cpu"), ("cuda:0", "cuda:0"), ("opencl:1", "opencl:1"), ("opencl:2", "opencl:2"),
        ("opencl:0@intelocl", "opencl:1"), ("opencl:0@nvidia-opencl", "opencl:0"),
    ]  # fmt: skip
    assert "cuda:1: left out: too old" in capsys.readouterr().err
    with pytest.raises(ArgumentError, match="does not exist"):
        apart.present([tmp_path / "missing.so"], asked)
    monkeypatch.setattr(apart, "present", partial(apart.present, asked=asked))
    assert [p.name for p in apart.chosen("gpus", [own, second])] == ["cuda:0", "opencl:0@nvidia-opencl"]
    unlisted.touch()  # a container without a file that names it
    assert apart.libraries([]) == [str(unlisted)]
    assert apart.libraries([second]) == [str(unlisted), "libnvidia-opencl.so.1"]


def test_no_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "present", lambda extra: [apart.Place("cpu", "cpu")])
    with pytest.raises(ArgumentError, match="finds no GPU; there are cpu"):
        apart.chosen("gpus")


def test_all_suites_in_one_command(tmp_path: Path, capsys: Any) -> None:
    """Each has its share of the time; a second time, what is there is gone on with; one that fails costs the others
    nothing."""
    ran: list[list[str]] = []

    def run(words: Sequence[str]) -> int:
        ran.append(list(words))
        if "--output" in words and "ops" not in words:
            Path(words[words.index("--output") + 1]).write_text("{}")
        return 2 if "ops" in words else 0

    given = ["--output", str(tmp_path / "out"), "--time", "100s", "--", "--peers", "none"]
    assert everything.main(given, run) == 2
    core, ops, train, page = ran
    assert core[:6] == ["--suite", "core", "--device", "gpus", "--time", "45"]
    assert core[-2:] == ["--peers", "none"]
    assert [words[words.index("--time") + 1] for words in (ops, train)] == ["54", "90"]  # nothing took any time
    made = [str(tmp_path / "out" / f"{suite}.json") for suite in ("core", "train")]
    assert page[:3] == ["--report", *made]
    ran.clear()
    assert everything.main([*given[:4], "--suites", "core,train"], lambda words: ran.append(list(words)) or 130) == 130
    assert [words[words.index("--resume") + 1] for words in ran[:1]] == made[:1]
    assert ran[1][0] == "--report"
    assert len(ran) == 2
    assert "the same command goes on" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        everything.main(["--output", str(tmp_path), "--suites", "cores"])


def part(device: str, least: float, *names: str) -> dict[str, Any]:
    """What a process measured: rows of one device beside numpy."""
    times = {n: {"least": t, "median": t, "p20": t, "p80": t, "samples": 3, "late": 0, "host": t}
             for n, t in ((device, least), ("numpy", 4e-3))}  # fmt: skip
    rows = [{"group": "sum", "name": n, "bytes": 8, "flops": 0, "target": None, "errors": {}, "notes": [], "missed": [],
             "clock": "wall", "least": least, "times": times, "ratios": {"numpy": [4e-3 / least] * 2}} for n in names]
    machine = {"date": "2026-01-02T03:04:05", "devices": [{"device": device, "name": "Cores", "kind": "CPU"}],
               "torch": None, "places": {"numpy": "cpu"}, "cores": 2, "system": "L", "python": "3.12", "driver": None,
               "versions": {"weftgrad": "0.1.0", "numpy": "2.4", "torch": None}}  # fmt: skip
    return {"suite": "core", "machine": machine, "host": [], "kernels": rows}


def test_parts_make_one_report_and_come_out_of_it_again() -> None:
    first, second = part("cpu", 1e-3, "a", "b", "c"), part("opencl:0@intelocl", 2e-3, "a", "b")
    whole = apart.merged([first, second])
    found = {(e.device, e.name): e for e in entries([whole])}
    assert len(found) == 5
    assert found["opencl:0@intelocl", "a"].ratio("numpy") == pytest.approx((2.0, 2.0))
    assert found["cpu", "a"].beside == found["opencl:0@intelocl", "b"].beside == {"numpy"}
    assert found["cpu", "a"].facts == {"host_us": 1e3}
    assert [e["name"] for e in apart.part_of(whole, "opencl:0@intelocl")["kernels"]] == ["a", "b"]  # type: ignore[index]
    again = apart.merged([apart.part_of(whole, name) for name in ("cpu", "opencl:0@intelocl")])  # type: ignore[misc]
    assert again == whole
    assert apart.part_of(whole, "cuda:0") is None
    # Rows that only one device has count nowhere.
    words = "\n".join(summary.lines(entries([whole])))
    assert "2 rows that passed on every device" in words
    assert "cpu: others' time by ours: numpy 4.00" in words
    assert "opencl:0@intelocl takes 2.00 of the time of cpu" in words


def test_what_becomes_of_processes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Processors take turns, then GPUs. One of three ends by a signal after a row, and its rows are kept; a wish to
    stop stops the rest."""
    places = [apart.Place("cpu", "cpu"), apart.Place("cuda:0", "cuda:0", gpu=True),
              apart.Place("opencl:0@x", "opencl:0", "x.so")]  # fmt: skip
    asked: list[list[str]] = []

    def rotate(starts: Sequence[Any], look: Any) -> tuple[list[int], bool]:
        asked.append([start.args[1].name for start in starts])
        for start in starts:
            _, place, file, share, environment = start.args
            assert share is None
            assert ("OCL_ICD_VENDORS" in environment) >= bool(place.library)
            file.write_text(json.dumps(part(place.name, 1e-3, "a")))
            look()
            look()  # nothing new
        return [0, -signal.SIGSEGV][: len(starts)], "cuda:0" in asked[-1]

    monkeypatch.setattr(apart, "rotate", rotate)
    kept: list[Any] = []
    found, interrupted = apart.measure(options(), places, None, kept.append)
    assert asked == [["cpu", "opencl:0@x"], ["cuda:0"]]
    assert interrupted
    assert [len(each["machine"]["devices"]) for each in kept] == [1, 2, 3]
    problems = [(e["device"], e.get("problem", "")) for e in found["kernels"] if e.get("problem")]
    assert problems == [("opencl:0@x", "the device's process ended by SIGSEGV")]
    assert apart.part_of(found, "opencl:0@x")["kernels"][0]["name"] == "a"  # type: ignore[index]
    assert "interrupted: what was measured so far is kept" in capsys.readouterr().err


PLAYER = textwrap.dedent("""
    import os, signal, sys
    from weftgrad.bench.turns import Turn
    name, rows, log, ends = sys.argv[1:]
    turn = Turn(ends)
    def note(row):
        with open(log, "a") as file:
            file.write(f"{name}{row} ")
    try:
        for row in rows:
            turn.take(1, int(row, 16))
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
    """Processes that are at these rows in turn, for two rounds each, and note it; at row e they die."""

    def start(name: str, rows: str, ends: tuple[int, int]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PLAYER, name, rows, str(log), "{},{}".format(*ends)]
        return subprocess.Popen(command, pass_fds=ends, process_group=0)

    return [partial(start, name, own) for name, own in rows.items()]


def test_processes_take_turns_by_rounds_and_wait_for_those_behind(tmp_path: Path) -> None:
    """One leaves row 1 out, one dies in its last row; the others go on, each row with those that are at it."""
    looks: list[None] = []
    statuses, interrupted = turns.rotate(
        players(tmp_path / "log", a="012", b="02", c="01e"), lambda: looks.append(None)
    )
    found = (tmp_path / "log").read_text()
    assert found == "a0 b0 c0 a0 b0 c0 a1 c1 a1 c1 b2 a2 b2 a2 ce "
    assert (statuses, interrupted) == ([0, 0, -signal.SIGKILL], False)
    assert len(looks) == found.count(" ")


def test_a_wish_to_stop_reaches_those_that_wait(tmp_path: Path) -> None:
    def look() -> None:
        if (tmp_path / "log").exists() and "a1" in (tmp_path / "log").read_text():
            raise KeyboardInterrupt

    statuses, interrupted = turns.rotate(players(tmp_path / "log", a="0123", b="0123"), look)
    assert (statuses, interrupted) == ([130, 130], True)
    assert (tmp_path / "log").read_text().count("!") == 2


def test_nobody_measures_on_when_turns_are_no_longer_given() -> None:
    reads, grants = os.pipe()
    requests, writes = os.pipe()
    turn = turns.Turn(f"{reads},{writes}")
    os.write(grants, b"!")
    turn.take(1, 7)
    os.close(grants)
    with pytest.raises(KeyboardInterrupt):
        turn.pass_on()
    os.close(requests)
    with pytest.raises(KeyboardInterrupt):
        turn.take(1, 8)
    os.close(reads)
    os.close(writes)


def test_devices_that_took_turns_are_compared_by_rounds() -> None:
    reports = [part("cpu", 1e-3, "a", "b"), part("cpu@x", 2e-3, "a", "b")]
    for report, rounds in zip(reports, ([1e-3, 2e-3, 4e-3], [3e-3, 3e-3, 4e-3]), strict=True):
        for each in report["kernels"]:
            each["times"][report["machine"]["devices"][0]["device"]]["rounds"] = rounds
    words = "\n".join(summary.lines(entries([apart.merged(reports)])))
    assert "cpu@x takes 2.00 of the time of cpu (1.50 by medians of rounds, which took turns)" in words
    reports[1]["kernels"][0]["times"]["cpu@x"]["rounds"] = [3e-3]  # a call so long that it was timed once
    assert "rounds" not in "\n".join(summary.lines(entries([apart.merged(reports)])))


def test_a_process_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """For once a real one, with the least there is to measure."""
    path = tmp_path / "found.json"
    chosen = options("--suite", "device", "--only", "one element, queued", "--rounds", "1", "--peers", "none",
                     "--output", str(path))  # fmt: skip
    found, interrupted = apart.measure(chosen, [apart.Place("cpu@here", "cpu")], None, lambda report: None)
    assert not interrupted
    assert [(e["device"], e["name"]) for e in found["kernels"]] == [("cpu@here", "one element, queued")]
    assert set(found["kernels"][0]["times"]) == {"cpu@here"}
    assert "one element, queued" in capfd.readouterr().out


# Facts


def test_accuracy_by_three_measures() -> None:
    expected = np.array([1.0, 4.0, 0.0, 1000.0])
    found = np.array([1.0 + 2.0**-23, 4.0, 2.0**-149, 1000.0])
    measures = facts.accuracy([(found, expected)], "float32")
    assert measures == {"abs": 2.0**-23, "rel": 2.0**-23, "ulp": 1.0}
    assert facts.accuracy([(np.array([1.0 + 2.0**-7]), np.array([1.0]))], "bfloat16")["ulp"] == 1.0
    # A subnormal number's neighbours are as far away as the least normal one's.
    assert facts.accuracy([(np.array([2.0**-149]), np.array([0.0]))], "float32")["ulp"] == 1.0
    assert facts.accuracy([(np.array([np.inf]), np.array([np.inf]))], "float32")["abs"] == 0


def test_what_a_kernel_leaves_unwritten_is_not_a_number() -> None:
    site = OurSite("cpu")
    for dtype in (wg.float32, wg.bfloat16, wg.int32):
        right = wg.ones(5000, dtype=dtype)
        facts.poison(site, right)
        left = wg.empty(5000, dtype=dtype)
        assert error_of([(site.host(left), site.host(right))]) != 0
        assert bool(left.isnan().all()) if dtype.is_floating_point else bool((left == -1).all())


def test_facts_of_a_call() -> None:
    site = OurSite("cpu")
    x = wg.randn(40, 70)
    found = facts.facts(site, lambda: wg.softmax(x + 1, 1))
    assert found["launches"] == 2
    assert any(name.startswith("softmax") for name in found["schedule"])
    assert 0 < found["warm_ms"] < found["cold_ms"]
    assert found["peak_bytes"] >= 3 * 40 * 70 * 4
    assert found["driver_allocations"] == 0
    assert facts.steps_of(site, lambda: x.t()) == []
    assert site.device.driver.launcher.__self__ is site.device.driver  # nothing is left in its place


# Specs


def test_rows_of_a_spec_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Forward and backward, in two dtypes, each checked; what with stands in the row."""
    path, output = tmp_path / "mine.yaml", tmp_path / "found.json"
    path.write_text(SPEC)
    assert run(str(path), "--device", "cpu", "--dtypes", "float32,bfloat16", "--shapes", "24", "--only", "bench_",
               "--rounds", "1", "--peers", "numpy", "--output", str(output)) == 0  # fmt: skip
    found = {each["name"]: each for each in json.loads(output.read_text())["kernels"]}
    assert len(found) == 12
    assert found["bench_swish float32 24"]["against"] == "its own float64"
    assert found["bench_total bfloat16 24, gradient"]["against"] == "numpy.add in float64"
    assert found["bench_gram float32 24"]["flops"] == 2 * 24**3
    assert found["bench_gram float32 24"]["bytes"] == 3 * 4 * 24**2
    assert set(found["bench_total float32 24"]["times"]) == {"cpu", "numpy"}
    assert found["bench_swish bfloat16 24"]["facts"]["cpu"]["accuracy"]["ulp"] <= 1
    assert 0 < found["bench_swish float32 24"]["facts"]["cpu"]["accuracy"]["ulp"] < 8
    assert "bench_swish bfloat16 24, gradient" in capsys.readouterr().out


def test_a_wrong_formula_is_found_where_a_spec_names_its_reference(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SPEC.replace("out: input + other", "out: input - other").replace("bench_", "bench_wrong_"))
    assert run(str(path), "--device", "cpu", "--ops", "bench_wrong_total", "--shapes", "24", "--only", "bench_",
               "--rounds", "1", "--peers", "none") == 1  # fmt: skip


def test_a_wrong_derivative_is_found_without_a_reference(tmp_path: Path) -> None:
    """By differences of the op in float64, whatever the spec says its gradient is."""
    path = tmp_path / "mine.yaml"
    text = SPEC.replace("  out: input / (1", "  grad: {input: grad * input}\n  out: input / (1")
    path.write_text(text.replace("bench_", "bench_sloping_"))
    forward, backward = sweep.cases(options(str(path), "--ops", "bench_sloping_swish", "--shapes", "24"))
    rows = [running.measured(case, [OurSite("cpu")], 1, []) for case in (forward, backward)]
    assert ["problem" in (each or {}) for each in rows] == [False, True]


def test_ops_of_the_package_by_name() -> None:
    assert {case.group for case in sweep.cases(options("--suite", "specs"))} == {
        "pointwise", "rowwise", "reduction", "contraction", "scan"
    }  # fmt: skip
    chosen = options("--ops", "softmax,mm,cumsum", "--shapes", "9,8x9,4x5x6")
    found = {case.name: case for case in sweep.cases(chosen)}
    assert {"softmax float32 8x9", "mm float32 4x5x6, gradient", "cumsum float32 9"} <= set(found)
    assert "mm float32 8x9" not in found
    site = OurSite("cpu")
    for name in ("softmax float32 8x9", "mm float32 4x5x6, gradient", "cumsum float32 9"):
        work = found[name].on(site)
        assert work is not None
        assert error_of(work.pairs()) <= found[name].tolerance


# Limits


def test_limits_are_checked_like_any_row() -> None:
    site = OurSite("cpu", 512)
    done = {}
    for case in limits.cases(gpu=False, scale=512):
        work = case.on(site)
        assert work is not None
        work.call()
        assert error_of(work.pairs()) <= case.tolerance
        done[case.group] = case
    assert set(done) == {"roofline", "peak", "transfer", "launch"}
    # Of every chain a product and 16 multiply-adds, and the sums of 8 chains.
    (case,) = (case for case in limits.cases(gpu=False, scale=1024) if case.name == "multiply-add fp32")
    assert case.flops == 8 * (8 * 33 + 7)
