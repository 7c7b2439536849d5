"""Timelines of host and device, and memory curves: measured, saved in reports, drawn, shown on the page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

import weftgrad as wg
from weftgrad.bench import command, outputs, page, plots, report_files, steps, tables
from weftgrad.runtime import tracing
from weftgrad.runtime.errors import ArgumentError

HEAD = {"date": "2026", "devices": [{"device": "cpu", "name": "Cores"}], "torch": None, "versions": {}}
CURVE = {"name": "step", "device": "cpu", "steps": [
    {"allocated": 1 << 20, "peak": 3 << 20, "reserved": 4 << 20, "driver_allocations": 2, "driver_frees": 0},
    {"allocated": 1 << 20, "peak": 3 << 20, "reserved": 4 << 20, "driver_allocations": 0, "driver_frees": 1},
]}  # fmt: skip
LINE = {"name": "step", "device": "cpu", "span": 100.0, "bars": {
    "host": ["0.0 30.0 a name with spaces", "10.0 10.0 inner"], "calls": ["0.0 5.0 mul"],
    "cpu": ["20.0 40.0 mul_rows", "50.0 30.0 other", "90.0 5.0 mul_rows"],
}}  # fmt: skip


def report(**fields: Any) -> dict[str, Any]:
    return {"suite": "train", "machine": HEAD, "host": [], "kernels": []} | fields


def run(*arguments: str) -> int:
    args = command.options(argparse.ArgumentParser()).parse_args(arguments)
    return int(args.run(args))


def test_busy_time_of_lanes() -> None:
    (line,) = steps.timelines(report(timelines=[LINE]))
    assert line.bars["host"][0] == (0.0, 30.0, "a name with spaces")
    assert line.busy("host") == 30.0  # nested spans count once
    assert line.busy("cpu") == pytest.approx(65.0)  # overlapping spans count once
    assert line.summary == "100 us; busy: host 30%, cpu 65%"


def test_memory_of_steps() -> None:
    """Each step keeps one more tensor: memory in use grows by it, the peak is higher, and the driver allocates."""
    tensors: list[Any] = []

    def make() -> Any:
        def step() -> None:
            tensors.append(wg.ones(1 << 20, device="cpu"))
            wg.ones(1 << 20, device="cpu")

        return step

    _, curve = steps.record_memory("growing", "cpu", make)
    (memory_curve,) = steps.curves({"curves": [curve]})
    growth = [b["allocated"] - a["allocated"] for a, b in zip(memory_curve.steps, memory_curve.steps[1:], strict=False)]
    assert growth == [4 << 20] * (len(memory_curve.steps) - 1)
    assert all(s["allocated"] + (4 << 20) <= s["peak"] <= s["reserved"] for s in memory_curve.steps[1:])
    assert sum(s["driver_allocations"] for s in memory_curve.steps) >= 3


def test_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeline of a program: it gets its arguments, and its kernels are in the trace and the report."""
    monkeypatch.setattr(plots, "available", lambda: False)
    program = tmp_path / "program.py"
    program.write_text("import sys\nimport weftgrad as wg\nassert sys.argv[1:] == ['--n', '2']\n"
                       "(wg.ones(70000, device='cpu') + 1.0).tolist()\nsys.exit(0)\n")  # fmt: skip
    trace, report_path = tmp_path / "new" / "trace.json", tmp_path / "report.json"
    page_path = tmp_path / "page.html"
    assert run("--device", "cpu", "--timeline", str(trace), "--output", str(report_path), "--html", str(page_path),
               "--program", str(program), "--n", "2") == 0  # fmt: skip
    out = capsys.readouterr().out
    assert "busy: host" in out
    names = {e["name"] for e in json.loads(trace.read_text())["traceEvents"] if e.get("cat") == "kernel"}
    (line,) = steps.timelines(report_files.load(report_path))
    assert {name for _, _, name in line.bars["cpu"]} == names
    assert any(name.startswith("add") for name in names)
    assert "--n 2" in page_path.read_text()
    missing = str(tmp_path / "none.py")
    for arguments, words in ((["--program", missing], "is no file"), (["--only", "x y"], "no training")):
        with pytest.raises(ArgumentError, match=words):
            run("--device", "cpu", "--timeline", str(trace), *arguments)
    with pytest.raises(AssertionError):  # raised by the program itself
        run("--device", "cpu", "--timeline", str(trace), "--program", str(program))
    assert tracing.current is None


def test_curves_and_timelines_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    images = plots.svg([], [report(curves=[CURVE], timelines=[LINE])])
    assert set(images) == {"Memory, step (cpu)", "Timeline, step (cpu)"}
    assert "mul_rows 45%" in images["Timeline, step (cpu)"]
    assert "busy 65%" in images["Timeline, step (cpu)"]
    assert "MiB" in images["Memory, step (cpu)"]


def test_curves_and_timelines_as_json_lines() -> None:
    text = tables.as_json_lines([report(curves=[CURVE], timelines=[LINE])], [])
    head, first, second, line = map(json.loads, text.splitlines())
    assert [record["part"] for record in (head, first, second, line)] == ["machine", "memory", "memory", "timeline"]
    assert (first["step"], second["step"], second["driver_frees"]) == (1, 2, 1)
    assert line["bars"] == LINE["bars"]


def test_curves_and_timelines_on_the_page() -> None:
    text = page.html([report(curves=[CURVE], timelines=[LINE])], [], None)
    assert "100 us; busy: host 30%, cpu 65%" in text
    assert "3.00 MiB" in text


def test_malformed_curves_and_timelines_raise() -> None:
    for content in ({"timelines": [LINE | {"bars": {"cpu": ["x"]}}]}, {"curves": [CURVE | {"steps": [{}]}]}):
        with pytest.raises((KeyError, ValueError)):
            [*steps.timelines(content), *steps.curves(content)]


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below, file = str(tmp_path / "file" / "a"), str(tmp_path / "file")
    for arguments, words in ((["--csv", str(tmp_path)], "it is a folder"), (["--html", below], "is no folder"),
                         (["--plots", file], "it is no folder")):  # fmt: skip
        args = command.options(argparse.ArgumentParser()).parse_args(arguments)
        with pytest.raises(ArgumentError, match=words):
            outputs.check(args)
