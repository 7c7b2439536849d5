"""What a benchmark says about uncertain rows, rows that fit a cache, several machines, and runs without rows."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from weftgrad.bench import (
    command,
    doubts,
    limits,
    machine_load,
    markdown,
    overview,
    page,
    running,
    selection,
    summary,
    tables,
    terminal,
)
from weftgrad.bench.alternation import Turn
from weftgrad.bench.cases import Case, Work, error_of
from weftgrad.bench.colours import plain
from weftgrad.bench.machine_load import LoadMeter
from weftgrad.bench.report import host_line, kernel_line
from weftgrad.bench.roofline import roofs, share
from weftgrad.bench.rows import entries, sections
from weftgrad.bench.sites import OurSite
from weftgrad.runtime.errors import ArgumentError

MEMORY_COPY, CACHE_COPY = "copy fp32 16M", "copy fp32 32K in a cache"


def timing(least: float, rounds: tuple[float, ...] = ()) -> dict[str, Any]:
    """Return times in seconds. rounds: each round's minimum, as a multiple of `least`."""
    return {"least": least, "median": least * 1.02, "p20": least, "p80": least * 1.05, "samples": 15, "late": 0,
            "rounds": [least * factor for factor in rounds]}  # fmt: skip


def kernel(name: str, group: str = "elementwise", *, device: str = "cpu", least: float = 1e-3,
           rounds: tuple[float, ...] = (1.0, 1.01, 1.02), **facts: Any) -> dict[str, Any]:  # fmt: skip
    return {"group": group, "name": name, "bytes": 0, "flops": 0, "target": None, "clock": "device", "errors": {},
            "notes": [], "missed": [], "least": least, "times": {device: timing(least, rounds)}, "ratios": {},
            } | facts  # fmt: skip


def report(*kernels: dict[str, Any], name: str = "Cores", device: str = "cpu", **machine: Any) -> dict[str, Any]:
    head = {"date": "2026-01-02T03:04:05", "devices": [{"device": device, "name": name, "kind": "CPU"}], "torch": None,
            "cores": 2, "cache": 32 << 20, "system": "Linux", "python": "3.12", "driver": None,
            "versions": {"weftgrad": "0.1.0"}}  # fmt: skip
    return {"suite": "core", "machine": head | machine, "host": [], "kernels": list(kernels)}


def run(*arguments: str) -> int:
    args = command.options(argparse.ArgumentParser()).parse_args(arguments)
    return int(args.run(args))


# Load


def test_load_is_what_others_used() -> None:
    """In the first 2 s the cores together were busy for 3 s, 1 s of it ours; in the next 2 s only we ran.

    So the load is 1.0 in the first interval and 0.5 over both. Between intervals nothing counts.
    """
    counters = iter([(10.0, 1.0, 0.0), (13.0, 2.0, 2.0), (99.0, 2.0, 50.0), (100.0, 3.0, 52.0)])
    meter = LoadMeter(lambda: next(counters))
    assert meter.load is None
    for expected in (1.0, 0.5):
        meter.start()
        meter.stop()
        assert meter.load == expected


def test_load_is_unknown_without_counters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine_load, "_PROC", tmp_path)
    assert machine_load.load_now(0.0) is None


@pytest.mark.skipif(machine_load.read_counters() is None, reason="no /proc")
def test_own_processes_are_no_load() -> None:
    """A child's processor time counts as ours while it runs and after it has ended."""
    begin = machine_load.read_counters()
    child = subprocess.Popen([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass\ninput()"],
                             stdin=subprocess.PIPE)  # fmt: skip
    deadline = time.monotonic() + 30
    own = 0.0
    while own < 0.45 and time.monotonic() < deadline:
        time.sleep(0.05)
        own = machine_load.read_counters()[1] - begin[1]  # type: ignore[index]
    child.communicate(b"\n")
    after_end = machine_load.read_counters()
    assert own >= 0.45
    assert after_end is not None
    assert begin is not None
    assert after_end[1] - begin[1] >= 0.45


def test_large_machines_bear_more_load() -> None:
    assert machine_load.is_loaded(0.25, 2)
    assert not machine_load.is_loaded(0.24, 2)
    assert not machine_load.is_loaded(1.9, 64)
    assert machine_load.is_loaded(2.0, 64)
    assert not machine_load.is_loaded(None, 2)
    (entry,) = entries([report(kernel("add", load=1.9), cores=64)])
    assert not entry.doubts


def test_rows_record_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_load, "read_counters", _counters_of_load(0.5))
    case = Case("g", "x", lambda site: Work(lambda: None, list))
    row = running.measure_case(case, [OurSite("cpu")], 1, [])
    assert row is not None
    assert row["load"] == pytest.approx(0.5)


def _counters_of_load(load: float) -> Any:
    """Return a function whose counters show that others keep `load` cores busy."""
    seconds = iter(range(10**6))

    def read() -> tuple[float, float, float]:
        now = next(seconds)
        return load * now, 0.0, float(now)

    return read


def test_uncertain_rows_are_marked_in_every_format() -> None:
    loaded = kernel("loaded", load=150.0)
    wide = kernel("wide", rounds=(1.0, 1.3, 1.4))
    quiet = kernel("quiet", load=0.1)
    stored = report(loaded, wide, quiet, load_before=0.75)
    all_entries = entries([stored])
    assert {e.name: bool(e.doubts) for e in all_entries} == {"loaded": True, "wide": True, "quiet": False}
    (section,) = sections(all_entries)
    printed = "\n".join(terminal.section_lines(section, None, plain))
    console = "\n".join(kernel_line(row) for row in (loaded, wide, quiet))
    in_markdown = markdown.as_markdown([stored], all_entries)
    html = page.html([stored], all_entries, None)
    assert printed.count("~") == console.count("~") == 2
    for text in (console, in_markdown, html, tables.as_csv(all_entries)):
        assert "under load: others used 150 cores" in text
        assert "samples disagree: usually 30% slower" in text
    assert in_markdown.count("~1") == 2
    assert "of 3 rows 1 were measured under load, of 1 the samples disagree" in in_markdown
    assert html.count('class="number doubtful"') == 2
    for text in (in_markdown, html):
        assert "0.750 cores used by other programs" in text
        assert "at most 150" in text


def test_three_samples_in_a_row_are_judged_by_their_median() -> None:
    """Of three samples in one round the minimum is also p20. A burst of load in the others must be visible."""
    burst = timing(1e-6) | {"median": 969e-6, "p80": 969e-6, "samples": 3, "rounds": [1e-6]}
    assert doubts.sample_doubts(burst) == ("samples disagree: usually 96800% slower",)
    assert not doubts.sample_doubts(burst | {"median": 1.1e-6})
    assert doubts.sample_doubts(timing(1e-3, (1.0, 1.3, 1.4)), "torch") == (
        "torch's samples disagree: usually 30% slower",
    )


def test_a_ratio_whose_peer_is_uncertain_is_marked() -> None:
    row = kernel("gelu 64K", times={"cpu": timing(1e-3, (1.0, 1.0, 1.0)), "torch": timing(2e-3, (1.0, 9.0, 9.0))},
                 ratios={"torch": [2.0, 2.0]})  # fmt: skip
    (entry,) = all_entries = entries([report(row)])
    assert not entry.doubts
    assert entry.ratio_range("torch") == (2.0, 18.0)
    (section,) = sections(all_entries)
    for text in ("\n".join(terminal.section_lines(section, None, plain)), kernel_line(row),
                 markdown.as_markdown([], all_entries), page.html([report(row)], all_entries, None)):  # fmt: skip
        assert "~2.00" in text
    assert "torch's samples disagree: usually 800% slower" in kernel_line(row)
    assert "2.00 to 18.0" in page.html([report(row)], all_entries, None)
    assert summary.legend(all_entries) == ["~: uncertain; of 1 rows 0 were measured under load, of 1 the samples "
                                           "disagree"]  # fmt: skip


def test_a_range_without_rounds_is_of_the_samples() -> None:
    times = [timing(1e-3, ()) | {"p80": 2e-3}, timing(3e-3, ()) | {"p80": 9e-3}]
    assert doubts.ratio_range(*times) == (1.5, 9.0)


def _paired(name: str, ratio: float, **facts: Any) -> dict[str, Any]:
    """Return a row whose rounds' ratios to torch are 0.9, 1.0 and 1.1 times `ratio`."""
    torch = timing(ratio * 1e-3, (1.0, 1.0, 1.0)) | {"rounds": [f * ratio * 1e-3 for f in (1.0, 0.9, 1.1)]}
    times = {"cpu": timing(1e-3, (1.0, 1.0, 1.0)), "torch": torch}
    return kernel(name, times=times, ratios={"torch": [ratio, ratio]}, **facts)


def test_means_leave_marked_rows_out_and_say_how_many() -> None:
    certain = [_paired("a", 2.0), _paired("b", 2.0), _paired("c", 2.0)]
    jumping = kernel("gelu 64K", rounds=(1.0, 9.0, 9.0)) | {"ratios": {"torch": [969, 969]}}
    jumping["times"]["torch"] = timing(0.969, (1.0, 1.0, 1.0))
    text = "\n".join(summary.lines(entries([report(*certain, jumping, _paired("d", 8.0, load=1.0))])))
    assert "over 3 rows that passed checks, of least times (2 marked ~ left out)" in text
    assert "torch 2.00 (1.80 to 2.20)" in text


def test_means_on_a_busy_machine_are_of_rows_whose_samples_agree() -> None:
    """Where nearly all rows were measured under load, the few others would be an arbitrary choice."""
    loaded = [_paired(name, 2.0, load=1.5) for name in "abcd"]
    jumping = kernel("gelu 64K", rounds=(1.0, 9.0, 9.0)) | {"ratios": {"torch": [969, 969]}}
    jumping["times"]["torch"] = timing(0.969, (1.0, 1.0, 1.0))
    text = "\n".join(summary.lines(entries([report(*loaded, jumping, _paired("quiet", 9.0))])))
    assert "over 5 rows" in text
    assert "1 whose samples disagree left out; most rows were measured under load, so the means are uncertain" in text
    others = [jumping | {"name": f"gelu {n}K"} for n in range(8)]
    text = "\n".join(summary.lines(entries([report(*loaded, *others)])))
    assert "over 12 rows" in text
    assert "uncertain: 8 are marked ~ because samples disagree, too many to leave out" in text


def test_host_costs_under_load_are_marked() -> None:
    row = {"name": "add", "target_us": [8, 12], "met": True, "peers": {}, "load": 200.0} | timing(1e-6)
    assert "~1.00" in host_line(row)
    stored = report() | {"host": [row]}
    (entry,) = entries([stored])
    assert "others used 200 cores" in page.html([stored], [entry], None)


def test_roofs_that_were_measured_under_load_are_marked() -> None:
    copy = kernel(MEMORY_COPY, "roofline", bytes=128 << 20, load=1.0)
    all_entries = entries([report(copy, kernel("add 4M", bytes=48 << 20))])
    text = page.roof_text(roofs(all_entries)["Cores"])
    assert "by copy fp32 16M (cpu), uncertain (under load: others used 1.00 cores)" in text
    assert text in markdown.as_markdown([], all_entries)


def test_comparisons_mark_uncertain_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(report(kernel("quiet"), kernel("loaded", load=1.0))))
    new.write_text(json.dumps(report(kernel("quiet"), kernel("loaded"))))
    assert run("--compare", str(old), str(new)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("~") for line in lines if "(cpu)" in line] == [False, True]
    assert "~: 1 of 2 rows uncertain: measured under load, or samples disagree" in lines


# Caches


def test_rows_that_fit_a_cache_are_compared_with_its_bandwidth() -> None:
    """Memory has 100 GB/s, the first cache 400, the last 250. No share exceeds 1.

    Mark `c`: the operands fit a cache, and the share is of its bandwidth. Mark `>`: they do not, but the row was
    faster than memory, with a cache's help.
    """
    mb = 10**6
    rows = [
        kernel(MEMORY_COPY, "roofline", bytes=100 * mb, least=1e-3),
        kernel(CACHE_COPY, "cache", bytes=mb, least=2.5e-6),
        kernel("copy fp32 1M in a cache", "cache", bytes=8 * mb, least=32e-6),
        kernel("add 64K", bytes=mb, least=5e-6), kernel("exp 1M", bytes=8 * mb, least=64e-6),
        kernel("add 16M", bytes=200 * mb, least=4e-3),
        kernel("softmax", bytes=30 * mb, least=0.2e-3), kernel("sum 8M", bytes=32 * mb, least=0.16e-3),
    ]  # fmt: skip
    all_entries = entries([report(*rows)])
    roof = roofs(all_entries)["Cores"]
    best = roof.cache()
    assert best
    assert best.row == f"{CACHE_COPY} (cpu)"
    shares = {entry.name: str(share(entry, roof)) for entry in all_entries}
    assert shares == {MEMORY_COPY: "100%", CACHE_COPY: "100% c", "copy fp32 1M in a cache": "100% c",
                      "add 64K": "50% c", "exp 1M": "50% c", "add 16M": "50%", "softmax": "75% >",
                      "sum 8M": "100% >"}  # fmt: skip
    assert "400 GB/s in caches" in page.roof_text(roof)
    (section,) = sections(all_entries)
    assert "75% >" in "\n".join(terminal.section_lines(section, roof, plain))
    in_markdown = markdown.as_markdown([], all_entries)
    assert "50% c" in in_markdown
    assert "- c: operands fit a cache" in in_markdown
    limit_of = {record["name"]: record["limit"] for record in tables.records(all_entries)}
    assert limit_of["softmax"] == "above memory"
    assert limit_of["add 64K"] == "cache"


def test_operands_that_rotate_are_in_no_cache() -> None:
    """Operands of 8 MiB and more rotate, even if the cache is larger; a GPU's cache is not known."""
    large = kernel("add 2M", bytes=24 << 20)
    small = kernel("add 64K", bytes=768 << 10)
    copies = [kernel(MEMORY_COPY, "roofline", bytes=1 << 30), kernel(CACHE_COPY, "cache", bytes=1 << 20, least=1e-7)]
    for kind, expected in (("CPU", ["memory", "cache"]), ("GPU", ["memory", "memory"])):
        stored = report(large, small, *copies, devices=[{"device": "cpu", "name": "Cores", "kind": kind}])
        all_entries = entries([stored])
        roof = roofs(all_entries)["Cores"]
        assert [share(e, roof).limit for e in all_entries[:2]] == expected  # type: ignore[union-attr]


def test_rows_in_a_cache_say_nothing_about_memory() -> None:
    """If only single rows were measured, as with `--only`, memory's bandwidth may be unknown."""
    (entry,) = all_entries = entries([report(kernel("add 64K", bytes=768 << 10))])
    roof = roofs(all_entries)["Cores"]
    assert roof.bandwidth is None
    assert str(share(entry, roof)) == "100% c"


def test_limits_have_rows_in_a_cache() -> None:
    site = OurSite("cpu", scale=1)
    cases = [case for case in limits.roofs(gpu=False) if case.group == "cache"]
    assert len(cases) == 6
    for case in cases:
        work = case.on(site)
        assert work is not None
        assert work.call() is not None
        assert error_of(work.pairs()) <= case.tolerance


# Machines


def test_devices_of_several_machines_are_told_apart() -> None:
    reports = [report(*(kernel(n, least=least) for n in "ab"), name=name)
               for name, least in (("Xeon", 1e-3), ("EPYC", 0.64e-3))]  # fmt: skip
    all_entries = entries(reports)
    assert "  EPYC (cpu) takes 0.64 of the time of Xeon (cpu)" in "\n".join(summary.lines(all_entries))
    html = page.html(reports, all_entries, None)
    assert "<option>EPYC (cpu)</option>" in html
    assert 'data-device="Xeon (cpu)"' in html


def test_devices_of_one_machine_have_short_names() -> None:
    first, second = (
        report(kernel("a"), kernel("b")),
        report(kernel("a", device="opencl:0"), kernel("b", device="opencl:0"), device="opencl:0"),
    )
    assert "  opencl:0 takes 1.00 of the time of cpu" in "\n".join(summary.lines(entries([first, second])))
    second["machine"]["system"] = "another Linux"
    means = "\n".join(summary.lines(entries([first, second])))
    assert "  Cores, machine 2 (opencl:0) takes 1.00 of the time of Cores, machine 1 (cpu)" in means


def test_machines_whose_processors_have_one_name_get_numbers() -> None:
    """A report must not replace the rows of another machine whose processor has the same name."""
    first = report(kernel("a"), kernel("b"), processor="family 23")
    second = report(kernel("a", least=2e-3), kernel("b", least=2e-3), processor="family 25")
    all_entries = entries([first, second])
    assert len(all_entries) == 4
    means = "\n".join(summary.lines(all_entries))
    assert "Cores, machine 2 (cpu) takes 2.00 of the time of Cores, machine 1 (cpu)" in means
    html = page.html([first, second], all_entries, None)
    assert html.count('<details class="machine">') == 2
    assert "<td>family 25</td>" in html
    assert len(entries([first, report(kernel("a"), kernel("b"), processor="family 23")])) == 2


def test_facts_of_a_machine_are_shown_once() -> None:
    reports = [report(kernel("a"), load_before=0.5), report(kernel("b"), load_before=1.5) | {"suite": "ops"}]
    html = page.html(reports, entries(reports), None)
    assert html.count('<details class="machine">') == 1
    assert html.count("<td>Linux</td>") == 1
    assert "load before: 0.500 cores used by other programs" in html
    assert "load before: 1.50 cores used by other programs" in html
    in_markdown = markdown.as_markdown(reports, entries(reports))
    assert in_markdown.count("- system: Linux") == 1


def test_the_merged_table_has_a_row_for_each_op_and_the_picture_a_bar_for_each_device() -> None:
    torch = {"torch": timing(2e-3, (1.0, 1.0, 1.0))}
    reports = [report(kernel("copy fp32 16M", "roofline", bytes=100, least=least / 2),
                      kernel("add", bytes=100, times={"cpu": timing(least, (1.0, 1.0, 1.0))} | torch),
                      kernel("sum", "reduction", bytes=50, times={"cpu": timing(least, (1.0, 1.0, 1.0))}, load=load),
                      name=name, load_before=0.0)
               for name, least, load in (("Xeon", 1e-3, 0.0), ("EPYC", 4e-3, 1.0))]  # fmt: skip
    all_entries = entries(reports)
    table = overview.table(all_entries)
    assert table is not None
    assert [row["group"] for row in table["rows"]] == ["elementwise", "reduction"]
    assert [column["name"] for column in table["columns"]] == [
        "row", "class", "min µs, Xeon (cpu)", "ratio, Xeon (cpu)", "of roofline, Xeon (cpu)", "min µs, EPYC (cpu)",
        "ratio, EPYC (cpu)", "of roofline, EPYC (cpu)",
    ]  # fmt: skip
    assert [cell["text"] for cell in table["rows"][0]["cells"]] == [
        "add", "elementwise", "1000", "2.00 (2 to 2)", "50%", "4000", "0.50 (0.5 to 0.5)", "50%"
    ]  # fmt: skip
    assert table["rows"][1]["cells"][5]["text"] == "~4000"
    ratios, shares = overview.panels(all_entries)
    assert [bar["text"] for bar in ratios["bars"]] == ["add, Xeon (cpu): torch / ours 2.00",
                                                       "add, EPYC (cpu): torch / ours 0.50"]  # fmt: skip
    assert [bar["doubtful"] for bar in shares["bars"]] == [False, False, False, True]
    assert ratios["bands"] == shares["bands"]  # the classes of both panels stand beside each other
    assert ratios["bars"][0]["x"] == ratios["origin"]
    assert ratios["bars"][1]["x"] + ratios["bars"][1]["width"] == pytest.approx(ratios["origin"], abs=0.11)
    html = page.html(reports, all_entries, None)
    assert html.index("All devices") < html.index('id="table-2"')
    assert html.index('class="panels"') < html.index('<details class="machine">')
    assert overview.table(entries(reports[:1])) is None


# Nothing to measure, and options


def test_a_name_that_no_row_has_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    words = ("--suite", "device", "--peers", "none", "--device", "cpu", "--output", str(path))
    assert run(*words, "--only", "cpy") == 1
    captured = capsys.readouterr()
    assert "no row of the suite device has 'cpy' in its group or name (--only)" in captured.err
    assert "roofline, cache, peak, transfer, launch" in captured.err
    assert not captured.out
    assert not path.exists()
    assert run("--suite", "core", *words[2:], "--dtypes", "int64", "--only", "add 64K") == 1
    assert "is of dtype int64 (--dtypes)" in capsys.readouterr().err


def test_processes_without_rows_are_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--suite", "device", "--peers", "none", "--device", "all", "--only", "cpy") == 1
    assert "no device has a row of the suite device with 'cpy'" in capfd.readouterr().err


def test_selecting_only_the_first_result_is_no_error() -> None:
    """The first result is a row of host costs and no case, so the selection of cases is empty."""
    args = command.options(argparse.ArgumentParser()).parse_args(["--suite", "core", "--only", "first result"])
    assert selection.select_cases(args, [OurSite("cpu")]) == []


def test_too_little_time_for_a_row_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    words = ("--suite", "device", "--peers", "none", "--device", "cpu", "--only", "one element", "--output", str(path))
    assert run(*words, "--time", "0.000001s") == 1
    assert "no row was measured in --time 0.000001s: give more time" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize(("words", "message"), [
    (("--threshold", "-1"), "--threshold"), (("--scale", "0"), "--scale"), (("--shapes", "0"), "--shapes"),
    (("--program", "train.py"), "--program"), (("--icd", "x.so"), "--icd"), (("--rounds", "0"), "--rounds"),
    (("--ops", "no_such_op"), "no_such_op"), (("--device", "all", "--ops", "no_such_op"), "no_such_op"),
    (("--device", "all", "--peers", "cupy"), "--peers"), (("--peers", "torch.compile"), "suite models"),
    (("--suite", "models", "--peers", "torch.compile"), "pip install torch"),
])  # fmt: skip
def test_options_are_checked_before_anything_is_measured(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("weftgrad.bench.peers.find_spec", lambda name: None)
    folder = tmp_path / "new"
    with pytest.raises(ArgumentError, match=message):
        run("--output", str(folder / "report.json"), *words)
    assert not folder.exists()
    assert not capsys.readouterr().out


def test_the_load_before_the_run_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine_load, "read_counters", _counters_of_load(99.5))
    path = tmp_path / "report.json"
    case = Case("g", "x", lambda site: Work(lambda: None, list))
    monkeypatch.setattr(selection, "select_cases", lambda *_: [case])
    words = ("--suite", "device", "--peers", "none", "--device", "cpu", "--rounds", "1", "--output", str(path))
    assert run(*words) == 0
    stored = json.loads(path.read_text())
    assert stored["machine"]["load_before"] == 99.5
    assert [row["load"] for row in stored["kernels"]] == [99.5]
    captured = capsys.readouterr()
    assert "other programs use 99.5 cores" in captured.err
    assert "under load: others used 99.5 cores" in captured.out


# Turns


def test_a_process_without_pipes_works_alone() -> None:
    reads, writes = os.pipe()
    assert not Turn(f"{reads},{writes}").is_alone
    os.close(reads)
    os.close(writes)
    turn = Turn()
    assert turn.is_alone
    turn.wait_at(0, 1)  # returns at once
