"""Reports of benchmark rows: rooflines, HTML page, plots, CSV and JSON lines. Nothing is measured here."""

from __future__ import annotations

import argparse
import base64
import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from weftgrad.bench import bar_plots, command, page, plots, report_files, rows, tables
from weftgrad.bench.colours import painter, plain
from weftgrad.bench.report import host_line, kernel_line
from weftgrad.bench.roofline import Share, roofs, share
from weftgrad.runtime.errors import ArgumentError

HOSTILE = "<script>alert(1)</script>\"'&$x^2"


def timing(least: float, median: float | None = None, spread: float = 0.02) -> dict[str, Any]:
    """Return a timing in seconds whose samples are close to each other."""
    median = median or least * 1.03
    return {"least": least, "median": median, "p20": least * (1 + spread / 2), "p80": median * (1 + spread),
            "samples": 15, "late": 0}  # fmt: skip


def kernel(name: str, group: str = "elementwise", **facts: Any) -> dict[str, Any]:
    times = facts.pop("times", {"cpu": timing(1e-3), "torch": timing(2e-3), "numpy": timing(5e-4)})
    first, *other_names = times or {"": {}}
    computed = {"least": times[first]["least"], "times": times, "ratios": {
        n: [times[n][k] / times[first][k] for k in ("least", "median")] for n in other_names
    }} if times else {}  # fmt: skip
    return {"group": group, "name": name, "bytes": 0, "flops": 0, "target": None, "precision": "highest",
            "clock": "device", "errors": {"cpu": 1e-7}, "notes": [], "missed": []} | computed | facts  # fmt: skip


def report(*kernels: dict[str, Any], hosts: tuple[dict[str, Any], ...] = (), **machine: Any) -> dict[str, Any]:
    head = {"date": "2026-01-02T03:04:05+00:00", "devices": [{"device": "cpu", "name": "Cores", "cores": 2,
            "memory": 1 << 30}], "torch": "cpu", "cores": 2, "system": "Linux", "python": "3.12", "driver": None,
            "versions": {"weftgrad": "0.1.0", "numpy": "2.4", "torch": "2.13"}}  # fmt: skip
    return {"suite": "core", "machine": head | machine, "host": list(hosts), "kernels": list(kernels)}


@pytest.fixture
def sample() -> dict[str, Any]:
    return all_kinds_of_rows()


def all_kinds_of_rows() -> dict[str, Any]:
    """Return a report with rows of all kinds: with bytes, flops, both or neither, missed, broken, hostile names."""
    sizes = [kernel(f"add fp32 {n}M", bytes=12 * n << 20, times={"cpu": timing(2e-4 * n), "torch": timing(3e-4 * n)})
             for n in (1, 4, 16)]  # fmt: skip
    host = {"name": "add", "target_us": [8, 12], "met": False, "peers": {"torch": timing(1e-6)}} | timing(9e-6)
    return report(
        *sizes,
        kernel("NN 512", "matmul", flops=2 * 512**3, bytes=12 * 512**2, target={"torch": 2.5}, missed=["torch"]),
        kernel("bf16 NN 512", "matmul", flops=2 * 512**3),
        kernel("sort 1M", "sort"),
        kernel(HOSTILE, "hostile", notes=[HOSTILE]),
        kernel("wrong", problem="WRONG: relative error 1", times={}),
        hosts=(host, {"name": "view", "wrong": True, "problem": "broken"}),
        devices=[{"device": "cpu", "name": f"Cores {HOSTILE}", "cores": 2, "memory": 1 << 30}],
    )


class Page(HTMLParser):
    """Parser that fails on elements that are not closed in order, and collects tags, texts and attributes."""

    VOID = frozenset({"meta", "input", "img", "br", "link"})

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert len({name for name, _ in attrs}) == len(attrs)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def run(*arguments: str) -> int:
    args = command.options(argparse.ArgumentParser()).parse_args(arguments)
    return int(args.run(args))


def save(path: Path, content: dict[str, Any]) -> str:
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


# Reading


def test_files_that_are_no_reports_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    for text, words in (("{", "not JSON"), ("[]", "no report"), ('{"kernels": [], "host": []}', "no report")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ArgumentError, match=words):
            report_files.load(path)
    with pytest.raises(ArgumentError, match="cannot be read"):
        report_files.load(tmp_path / "missing.json")
    with pytest.raises(ArgumentError, match="no report"):
        report_files.load(Path(save(path, report(kernel("add", times={"cpu": timing(0.0)})))))


def test_compressed_reports_are_equal_byte_for_byte_and_are_read(tmp_path: Path) -> None:
    content = report(kernel("add", times={"cpu": timing(1e-3)}))
    path = tmp_path / "report.json.gz"
    path.write_bytes(report_files.as_bytes(content, path))
    assert path.read_bytes() == report_files.as_bytes(content, path)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert report_files.load(path) == content
    renamed = path.rename(tmp_path / "report.json")
    assert report_files.load(renamed) == content
    for size in (5, len(renamed.read_bytes()) - 9):
        renamed.write_bytes(report_files.as_bytes(content, path)[:size])
        with pytest.raises(ArgumentError, match="damaged or truncated gzip"):
            report_files.load(renamed)


def test_suites_of_reports_that_do_not_name_them() -> None:
    for group, suite in (("matmul", "core"), ("scan", "ops"), ("optimizer", "train")):
        old = report(kernel("x", group))
        del old["suite"]
        assert rows.suite_of(old) == suite
    assert rows.suite_of(report(kernel("x", "scan"))) == "core"  # the report names its suite


def test_control_characters_in_names_are_replaced() -> None:
    (entry,) = rows.entries([report(kernel("a\x1b[2J\nb\u202e"))])
    assert entry.name == "a\ufffd[2J\ufffdb\ufffd"


def test_the_latest_of_equal_rows_is_kept() -> None:
    reports = [report(kernel("add", times={"cpu": timing(seconds)}), date=date)
               for seconds, date in ((2.0, "2026-02"), (1.0, "2026-01"))]  # fmt: skip
    (entry,) = rows.entries(reports)
    assert entry.time
    assert entry.time["least"] == 2.0


def test_every_device_has_its_rows_and_the_first_one_the_aims() -> None:
    row = kernel("add", times={"cuda:0": timing(1e-3), "opencl:0": timing(4e-3), "torch": timing(2e-3)},
                 target={"torch": 2.5}, missed=["torch"], ratios={"copy": [0.5, 0.4]})  # fmt: skip
    devices = [{"device": name, "name": "Card"} for name in ("cuda:0", "opencl:0")]
    first, second = rows.entries([report(row, devices=devices, torch="cuda:0")])
    assert first.ratio("torch") == pytest.approx((2.0, 2.0))
    assert second.ratio("torch") == pytest.approx((0.5, 0.5))
    assert first.ratio("opencl:0") == pytest.approx((4.0, 4.0))
    assert (first.missed, first.copy, first.same_hardware) == (("torch",), (0.5, 0.4), {"torch"})
    assert (second.missed, second.copy, second.same_hardware) == ((), None, set())
    assert [s.title for s in rows.sections([first, second])] == ["Card (cuda:0): core", "Card (opencl:0): core"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.0123"), (0.92, "0.920"), (4.5678, "4.57"), (12.34, "12.3"), (1234.5, "1234"), (0, "0")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert rows.number(value) == text


# Rooflines


def test_a_roof_is_what_was_measured() -> None:
    """Bandwidth comes from copies or large rows, and each precision has its peak. Torch on the same CPU counts."""
    large = kernel("large", bytes=64 << 20, times={"cpu": timing(2e-3), "torch": timing(1e-3)})
    cached = kernel("cached", bytes=1 << 20, times={"cpu": timing(1e-6)})
    product = kernel("mm", flops=10**9, bytes=1 << 20, times={"cpu": timing(1e-2), "torch": timing(5e-3)})
    half = kernel("mm bf16", flops=10**9, times={"cpu": timing(2e-3)})
    entries = rows.entries([report(large, cached, product, half)])
    roof = roofs(entries)["Cores"]
    assert roof.bandwidth
    assert (roof.bandwidth.rate, roof.bandwidth.row) == (pytest.approx((64 << 20) / 1e-3), "large (torch)")
    assert {kind: best.rate for kind, best in roof.peaks.items()} == pytest.approx({"fp32": 2e11, "bf16": 5e11})
    shares = {e.name: part.value for e in entries if (part := share(e, roof))}
    assert shares["large"] == pytest.approx(0.5)
    assert shares["mm"] == pytest.approx(0.5)  # relative to the peak: it is compute-bound
    assert shares["mm bf16"] == pytest.approx(1.0)
    copy = kernel("copy", "roofline", bytes=1 << 20, times={"cpu": timing(1e-4)})
    bandwidth = roofs(rows.entries([report(large, cached, copy)]))["Cores"].bandwidth
    assert bandwidth
    assert bandwidth.row == "copy (cpu)"


def test_transfers_are_below_no_roof() -> None:
    """Transfers between host and device do not use the bandwidth of the device's memory."""
    transfer = kernel("host to device 64 MiB", "transfer", bytes=64 << 20, times={"cpu": timing(1e-5)})
    entries = rows.entries([report(transfer, kernel("large", bytes=64 << 20, times={"cpu": timing(2e-3)}))])
    roof = roofs(entries)["Cores"]
    assert roof.bandwidth
    assert roof.bandwidth.row == "large (cpu)"
    assert [share(entry, roof) for entry in entries] == [None, Share(1.0, "memory")]


def test_torch_on_other_hardware_is_no_roof() -> None:
    row = kernel("large", bytes=64 << 20, times={"cpu": timing(2e-3), "torch": timing(1e-5)})
    roof = roofs(rows.entries([report(row, torch="cuda:0")]))["Cores"]
    assert roof.bandwidth
    assert roof.bandwidth.row == "large (cpu)"


# Lines of text


def test_csv_and_json_lines(sample: dict[str, Any]) -> None:
    entries = rows.entries([sample])
    lines = list(csv.DictReader(io.StringIO(tables.as_csv(entries))))
    assert tuple(lines[0]) == tables.FIELDS
    torch = next(r for r in lines if r["name"] == "NN 512" and r["contender"] == "torch")
    assert (torch["aim"], torch["missed"], torch["ours"]) == ("2.5", "True", "False")
    assert float(torch["ratio_least"]) == pytest.approx(2.0)
    assert {r["name"]: r["problem"] for r in lines}["wrong"].startswith("WRONG")
    head, *records = map(json.loads, tables.as_json_lines([sample], entries).splitlines())
    assert (head["part"], head["cores"]) == ("machine", 2)
    assert [r["name"] for r in records] == [r["name"] for r in lines]
    assert next(r for r in records if r["name"] == "add fp32 4M")["gb_per_s"] == pytest.approx((48 << 20) / 8e-4 * 1e-9)


def test_csv_cells_are_no_formulas() -> None:
    text = tables.as_csv(rows.entries([report(kernel("=1+1"), kernel("a,b"))]))
    assert {r["name"] for r in csv.DictReader(io.StringIO(text))} == {"'=1+1", "a,b"}


# The page


@pytest.fixture
def page_text(sample: dict[str, Any]) -> str:
    """Return the page, with one placeholder plot."""
    entries = rows.entries([sample])
    return page.html([sample], entries, {"A <plot>": '<svg xmlns="http://www.w3.org/2000/svg"/>'})


def test_the_page_is_well_formed_and_needs_nothing_else(page_text: str) -> None:
    parsed_page = Page(page_text)
    assert {"link", "iframe", "object", "base"}.isdisjoint(parsed_page.tags)
    assert "//" not in "".join(value for name, value in parsed_page.attributes if name in ("src", "href", "action"))
    assert not re.findall(r"https?:|url\(|@import|\bfetch\b|XMLHttpRequest|\bimport\b", page_text)
    sources = [value for name, value in parsed_page.attributes if name == "src"]
    assert [source.partition(",")[0] for source in sources] == ["data:image/svg+xml;base64"]
    (policy,) = (
        value for name, value in parsed_page.attributes if name == "content" and value.startswith("default-src")
    )
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy


def test_names_are_text_on_the_page(page_text: str) -> None:
    parsed_page = Page(page_text)
    assert parsed_page.tags.count("script") == 1
    assert "alert(1)</script>" not in page_text
    assert any(HOSTILE in text for text in parsed_page.texts)
    assert not {name for name, _ in parsed_page.attributes if name.startswith("on")}


def test_the_page_shows_rows(page_text: str) -> None:
    parsed_page = Page(page_text)
    assert parsed_page.tags.count("tr") == page_text.count("data-missed") + page_text.count(
        "<thead>"
    ) + page_text.count('<th scope="row">')
    assert page_text.count('data-missed="1"') == 4  # NN 512, wrong, and both host costs
    assert "WRONG: relative error 1" in parsed_page.texts
    assert {"torch / ours", "torch, medians", "numpy / ours", "of roofline", "aim"} <= set(parsed_page.texts)


def test_the_page_does_without_plots(sample: dict[str, Any]) -> None:
    text = page.html([sample], rows.entries([sample]), None)
    assert "matplotlib is not installed" in text
    assert "img" not in Page(text).tags


# Plots


def test_plots(sample: dict[str, Any], tmp_path: Path) -> None:
    """One plot of each kind, as SVG that parses and uses no network, and as PNG that is not empty."""
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    entries = rows.entries([sample])
    files = {path.name: path for path in plots.write(entries, tmp_path / "made")}
    stems = {name.partition(".")[0] for name in files}
    assert {stem.partition("-")[0] for stem in stems} == {"roofline", "sizes", "ratios", "overview"}
    assert set(files) == {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}
    for name, path in files.items():
        if name.endswith("png"):
            image = imread(path)
            assert min(image.shape[:2]) > 200
            assert image[..., :3].std() > 0.02  # something is drawn
        else:
            ElementTree.parse(path)
            references = re.findall(r"(\S*)=?[\"'(](https?://[^\"')\s]+)", path.read_text(encoding="utf-8"))
            assert all(name.startswith("xmlns") or "DTD" in address for name, address in references)


def test_plots_of_several_devices_and_of_nothing() -> None:
    pytest.importorskip("matplotlib")
    row = kernel("add 4M", bytes=48 << 20, times={"cuda:0": timing(1e-3), "torch": timing(2e-3)})
    reports = [report(row, devices=[{"device": "cuda:0", "name": name}], torch="cuda:0") for name in ("One", "Other")]
    images = plots.svg(rows.entries(reports))
    assert set(images) == {
        *(f"Roofline, {name} (cuda:0)" for name in ("One", "Other")), "Devices, core",
        *(f"Ratios to peers, core, {name} (cuda:0)" for name in ("One", "Other")),
    }  # fmt: skip
    assert "One (cuda:0), minima" in images["Devices, core"]
    assert all(text.startswith("<svg") for text in images.values())
    assert plots.svg(rows.entries([report()])) == {}


def test_overviews_are_geometric_means_of_groups() -> None:
    """Rows that take torch 2 and 8 times as long as `cpu` are a bar of 4."""
    timings = [("add", "a", 2e-3), ("add", "b", 8e-3), ("exp", "c", 3e-3)]
    entries = rows.entries([report(*(
        kernel(name, group, times={"cpu": timing(1e-3), "torch": timing(seconds)}) for group, name, seconds in timings
    ))])  # fmt: skip
    means = bar_plots._group_means(entries, {"cpu"})
    assert {group: ratios["torch"][0] for group, ratios in means.items()} == {
        "add": pytest.approx((4.0, 4.0)), "exp": pytest.approx((3.0, 3.0)),
    }  # fmt: skip


def test_sizes_are_found_in_names() -> None:
    names = ("exp float32 1K", "exp float32 256x16", "exp float32 64", "exp float32 64, gradient", "NN 512", "1x8x64")
    (section,) = rows.sections(rows.entries([report(*(kernel(name, "g") for name in names))]))
    sweeps = {op: [(size, label) for size, label, _ in sizes] for op, sizes in plots._sweeps(section).items()}
    assert sweeps == {"g: exp float32": [(64, "64"), (1024, "1K"), (4096, "256x16")],
                     "g: exp float32, gradient": [(64, "64")], "g: NN": [(512, "512")]}  # fmt: skip


# The command


def test_reports_become_files(sample: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Write files from a report, without opening a device or measuring."""
    files = {name: tmp_path / "to" / name for name in ("a.html", "a.csv", "a.jsonl", "a.md")}
    source = save(tmp_path / "found.json", sample)
    assert run("--report", source, "--csv", str(files["a.csv"]), "--jsonl", str(files["a.jsonl"]),
               "--markdown", str(files["a.md"])) == 0  # fmt: skip
    out = capsys.readouterr().out
    assert re.search(r"NN 512 +1000 +1030 .* 2\.00 +\(2\.00\)", out)
    assert "measured: " in out
    assert "\x1b" not in out
    assert all(path.stat().st_size for name, path in files.items() if name != "a.html")
    with pytest.raises(ArgumentError, match="--output"):
        run("--report", source, "--output", str(tmp_path / "x.json"))


def test_an_html_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "available", lambda: False)
    source = save(tmp_path / "found.json", report(kernel("add")))
    assert run("--report", source, "--html", str(tmp_path / "a.html")) == 0
    assert "Cores (cpu): core" in Page((tmp_path / "a.html").read_text(encoding="utf-8")).texts
    with pytest.raises(ArgumentError, match="matplotlib"):
        run("--report", source, "--plots", str(tmp_path / "plots"))


# Colours


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert painter(Terminal())("x", "bad") == "\x1b[31mx\x1b[0m"
    assert painter(Terminal())("x", "") == "x"
    assert painter(io.StringIO()) is plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert painter(Terminal()) is plain


def test_lines_are_coloured_by_aims_and_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coloured lines differ from plain ones by the colour codes only."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    paint = painter(Terminal())
    row = kernel("add", bytes=3000, least=1e-6, missed=["torch"], target={"torch": 1.0, "numpy": 1.0, "copy": 0.9},
                 ratios={"copy": [0.95, 0.9], "torch": [0.5, 0.5], "numpy": [2.0, 2.0]})  # fmt: skip
    host = {"name": "exp", "target_us": (12, 12), "met": True, "peers": {}} | timing(9e-6)
    for line, entry in ((kernel_line, row), (host_line, host), (kernel_line, {"name": "mm", "problem": "WRONG"})):
        assert re.sub(r"\x1b\[\d+m", "", line(entry, paint)) == line(entry)  # type: ignore[operator]
    assert "\x1b[31mtorch 0.50" in kernel_line(row, paint)
    assert "\x1b[32mnumpy 2.00" in kernel_line(row, paint)
    assert re.search(r"\x1b\[32m +0\.95\x1b", kernel_line(row, paint))


def test_plots_on_the_page_are_the_drawn_ones(page_text: str) -> None:
    (data,) = re.findall(r"base64,([^\"]+)", page_text)
    assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("svg")


def test_kept_pages_ask_no_network() -> None:
    """The saved pages and their drawings contain no URL except names of XML namespaces."""
    pages = sorted((Path(page.__file__).parent / "results").glob("*.html"))
    assert pages
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert "http" not in text.replace("http-equiv", "")
        drawings = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", text)
        assert drawings
        for data in drawings:
            svg = base64.b64decode(data).decode()
            ElementTree.fromstring(svg)
            assert not re.findall(r"(?<!xmlns=\")(?<!xmlns:xlink=\")https?://", svg)
            assert "<script" not in svg
