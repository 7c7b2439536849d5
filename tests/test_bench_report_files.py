"""Reports on terminals of any width, all facts of rows in every format, and malformed report files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_bench_report import Page, Terminal, all_kinds_of_rows, kernel, report, timing

from weftgrad.bench import markdown, outputs, page, report_files, rows, tables, terminal
from weftgrad.bench.colours import painter, plain
from weftgrad.bench.roofline import roofs
from weftgrad.runtime.errors import ArgumentError


@pytest.fixture
def sample() -> dict[str, Any]:
    return all_kinds_of_rows()


# Terminals


def test_lines_are_as_wide_as_the_terminal(sample: dict[str, Any]) -> None:
    """Narrow terminals drop less important columns, then cut names in the middle. Other outputs have everything."""
    sample["kernels"] += [kernel("加算 of wide letters and a long name that goes on", bytes=1 << 26)]
    entries = rows.entries([sample])
    rooflines = roofs(entries)
    for section in rows.sections(entries):
        roof = rooflines.get(section.hardware)
        full = terminal.section_lines(section, roof, plain)
        for width in (200, 120, 80, 60, 40):
            lines = terminal.section_lines(section, roof, plain, width)
            assert len(lines) == len(full)
            assert max(map(terminal.display_width, lines)) <= width
            assert "min us" in lines[0]
        assert terminal.section_lines(section, roof, plain, 1000) == full
    kernels = rows.sections(entries)[1]
    assert "torch / ours" in terminal.section_lines(kernels, roof, plain, 80)[0]
    assert "of roof" in terminal.section_lines(kernels, roof, plain, 60)[0]
    assert "…" in terminal.section_lines(kernels, roof, plain, 40)[-1]


def test_lines_are_coloured_by_their_share_of_the_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    kernels = [kernel(f"row {i}", bytes=64 << 20, times={"cpu": timing(1e-3 / part)})
            for i, part in enumerate((1.0, 0.6, 0.1))]  # fmt: skip
    entries = rows.entries([report(*kernels)])
    (section,) = rows.sections(entries)
    coloured = terminal.section_lines(section, roofs(entries)["Cores"], painter(Terminal()))[1:]
    assert [re.findall(r"\x1b\[(\d+)m *(\d+%)", line) for line in coloured] == [
        [("32", "100%")], [("33", "60%")], [("31", "10%")]
    ]  # fmt: skip
    uncoloured = terminal.section_lines(section, roofs(entries)["Cores"], plain)[1:]
    assert [re.sub(r"\x1b\[\d*m", "", line) for line in coloured] == uncoloured


def test_a_table_for_each_device(capsys: pytest.CaptureFixture[str]) -> None:
    times = {"cuda:0": timing(1e-3), "opencl:0": timing(2e-3)}
    kernels = [kernel(f"row {i}", bytes=1 << 26, times=times) for i in range(3)]
    devices = [{"device": name, "name": "Card"} for name in ("cuda:0", "opencl:0")]
    outputs.show(rows.entries([report(*kernels, devices=devices, torch=None)]))
    out = capsys.readouterr().out
    first, second = out.split("Card (cuda:0): core")[1].split("Card (opencl:0): core")
    assert re.findall(r"^row (\d) +1000 .* 100% .* 2\.00 ", first, re.M) == ["0", "1", "2"]
    assert re.findall(r"^row (\d) +2000 .* 50% .* 0\.50 ", second, re.M) == ["0", "1", "2"]
    assert "Card, measured: 67.1 GB/s by row 0 (cuda:0)" in second
    assert "opencl:0 takes 2.00 of the time of cuda:0" in second


# Everything a row has


def test_every_fact_is_in_every_format(sample: dict[str, Any]) -> None:
    """Facts other than times are in CSV, JSON lines and on the page."""
    row = sample["kernels"][0]
    row |= {"dtype": "float32", "against": "NumPy in float64", "facts": {"cpu": {
        "schedule": ["add_rows x2", "sum_columns"], "launches": 3, "cold_ms": 41.5, "warm_ms": 1.25,
        "peak_bytes": 3 << 20, "driver_allocations": 7, "accuracy": {"abs": 1e-6, "rel": 2e-6, "ulp": 1.5},
    }}}  # fmt: skip
    row["times"]["cpu"]["host"] = 4.5e-6
    entries = rows.entries([sample])
    first = next(csv.DictReader(io.StringIO(tables.as_csv([e for e in entries if e.part == "kernel"]))))
    expected = {"dtype": "float32", "against": "NumPy in float64", "schedule": "add_rows x2, sum_columns",
                "launches": "3", "cold_ms": "41.5", "warm_ms": "1.25", "peak_bytes": str(3 << 20),
                "driver_allocations": "7", "error_abs": "1e-06", "error_rel": "2e-06", "error_ulp": "1.5",
                "host_s": "4.5e-06"}  # fmt: skip
    assert {name: first[name] for name in expected} == expected
    parsed_page = Page(page.html([sample], entries, {}))
    assert {"add_rows x2, sum_columns", "41.5", "1.25", "3.00 MiB", "7", "1.5", "4.50"} <= set(parsed_page.texts)
    assert {"kernels", "cold ms", "peak", "ulp", "host µs"} <= set(parsed_page.texts)


def test_markdown(sample: dict[str, Any]) -> None:
    """Rows have as many cells as their heads, missed targets are bold, and empty columns are left out."""
    row = sample["kernels"][0]
    row |= {"facts": {"cpu": {"schedule": ["add_rows x2"], "peak_bytes": 3 << 20, "accuracy": {"ulp": 1.5}}}}
    sample |= {"timelines": [{"name": "step", "device": "cpu", "span": 9.0, "bars": {"cpu": ["0.0 9.0 k"]}}]}
    sample["kernels"][-2]["name"] = "a | b <i> `c` d_e"
    text = markdown.as_markdown([sample], rows.entries([sample]))
    tables_ = re.findall(r"(?:^\|.*\n)+", text, re.M)
    assert len(tables_) == 2
    for lines in (table.splitlines() for table in tables_):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    host, kernels = tables_
    assert "| add | **9.00** | **9.27** | 0.11 | 0.11 | 8.00 / 12.0 µs |" in host
    assert re.search(r"^\| NN 512 \|.*\| \*\*2\.00\*\* \|.*torch 2\.5 \|", kernels, re.M)
    assert "a \\| b \\<i> \\`c\\` d\\_e" in kernels
    assert "WRONG: relative error 1" in kernels
    assert {"of roofline", "peak", "ulp", "kernels"} <= set(kernels.splitlines()[0].split(" | "))
    assert "cold ms" not in kernels
    assert "3.00 MiB" in kernels
    assert "Cores \\<script>" in text
    assert "- step on cpu: 9 us; busy: host 0%, cpu 100%" in text


# Malformed files


INVALID_VALUES = (None, "text", float("nan"), [], -1, {}, float("inf"))


def all_paths(node: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of keys to every value in a report."""
    if keys:
        yield keys
    if isinstance(node, dict | list):
        for key in node if isinstance(node, dict) else range(len(node)):
            yield from all_paths(node[key], (*keys, key))


def test_a_file_is_refused_or_shown(tmp_path: Path, sample: dict[str, Any]) -> None:
    """If any value is missing or has another type, the file is refused with a message, or it can be shown."""
    facts = {"schedule": ["a"], "launches": 1, "peak_bytes": 1, "accuracy": {"ulp": 1, "abs": 1, "rel": 1}}
    sample["kernels"] = [sample["kernels"][3] | {"facts": {"cpu": facts}}]
    sample |= {"curves": [{"name": "a", "device": "cpu", "steps": [dict.fromkeys(
        ("allocated", "peak", "reserved", "driver_allocations", "driver_frees"), 1)]}],
        "timelines": [{"name": "a", "device": "cpu", "span": 1.0, "bars": {"cpu": ["0.0 1.0 k"]}}]}  # fmt: skip
    text, path = json.dumps(sample), tmp_path / "found.json"
    outcomes = {"refused": 0, "shown": 0}
    for i, keys in enumerate(all_paths(sample)):
        for value in ("gone", INVALID_VALUES[i % 3], INVALID_VALUES[3 + i % 4]):
            content = json.loads(text)
            container = content
            for key in keys[:-1]:
                container = container[key]
            if value == "gone":
                del container[keys[-1]]
            else:
                container[keys[-1]] = value
            path.write_text(json.dumps(content), encoding="utf-8")
            try:
                loaded = report_files.load(path)
            except ArgumentError as error:
                outcomes["refused"] += str(path) in str(error)
                continue
            entries = rows.entries([loaded])
            rooflines = roofs(entries)
            for section in rows.sections(entries):
                terminal.section_lines(section, rooflines.get(section.hardware), plain, 80)
            tables.as_csv(entries)
            tables.as_json_lines([loaded], entries)
            markdown.as_markdown([loaded], entries)
            outcomes["shown"] += 1
    assert min(outcomes.values()) > 50


def test_unreadable_files(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    for text, words in (("", "is empty"), ('{"kernels": [', "ends too early"), ("[" * 100000, "nested too deeply"),
                        (json.dumps(report() | {"format": rows.FORMAT + 1}), "newer weftgrad")):  # fmt: skip
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ArgumentError, match=words):
            report_files.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentError, match="no text"):
        report_files.load(path)
