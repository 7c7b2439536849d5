"""Benchmarks in child processes: devices, alternation, crashes, and merging of their reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench_options import make_report, options

from weftgrad.bench import (
    alternation,
    device_listing,
    device_processes,
    merging,
    summary,
)
from weftgrad.bench.rows import entries
from weftgrad.runtime.errors import ArgumentError


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
