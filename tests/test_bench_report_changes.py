"""Two reports compared: a regression is flagged, and what a shared machine does to times is not."""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from weftgrad.bench import command
from weftgrad.bench.changes import compare
from weftgrad.bench.rows import entries
from weftgrad.runtime.errors import ArgumentError

NAMES = [f"row {i}" for i in range(12)]


def sampled(rng: random.Random, seconds: float, noise: float, n: int = 15) -> dict[str, Any]:
    """A timing of `n` samples: a fifth of them meet something else that runs, and none is below `seconds`."""
    values = sorted(
        seconds * (1 + rng.expovariate(1 / noise) + (rng.random() < 0.2) * rng.uniform(0.3, 2)) for _ in range(n)
    )
    return {"least": values[0], "median": statistics.median(values), "p20": values[(n - 1) // 5],
            "p80": values[(n - 1) * 4 // 5], "samples": n, "late": 0}  # fmt: skip


def report(seed: int, *, factors: dict[str, float] | None = None, machine: float = 1.0, noise: float = 0.05,
           peers: bool = True, versions: dict[str, str] | None = None) -> dict[str, Any]:  # fmt: skip
    """Rows of 1 ms, times `factors` by name; `machine`: how much slower everything is."""
    rng = random.Random(seed)
    kernels = []
    for name in NAMES:
        seconds = machine * (factors or {}).get(name, 1.0) * 1e-3
        times = {"cpu": sampled(rng, seconds, noise)}
        if peers:
            times |= {peer: sampled(rng, machine * 8e-4, noise) for peer in ("torch", "numpy")}
        kernels.append({"group": "g", "name": name, "bytes": 0, "flops": 0, "times": times})
    head = {"date": "2026", "devices": [{"device": "cpu", "name": "Cores"}], "torch": "cpu",
            "versions": versions or {"numpy": "2", "torch": "2"}}  # fmt: skip
    return {"suite": "core", "machine": head, "host": [], "kernels": kernels}


def slower(old: dict[str, Any], new: dict[str, Any], **options: Any) -> list[str]:
    return [change.new.name for change in compare(old, new, **options).regressions]


@pytest.mark.parametrize("peers", [True, False])
def test_noise_is_no_regression(peers: bool) -> None:
    """40 pairs of runs of the same code, of 12 rows each, on a machine that is busy now and then."""
    for seed in range(40):
        assert not slower(report(seed, peers=peers), report(seed + 100, peers=peers))


@pytest.mark.parametrize("peers", [True, False])
def test_a_regression_is_flagged(peers: bool) -> None:
    """A row that takes 1.8 times as long, in the same noise; the others are left alone, and so is the way back."""
    for seed in range(40):
        old, new = report(seed, peers=peers), report(seed + 100, peers=peers, factors={"row 3": 1.8})
        assert slower(old, new) == ["row 3"]
        found = compare(new, old)
        assert not found.regressions
        assert [c.new.name for c in found.changes if c.verdict == "faster"] == ["row 3"]


def test_a_slower_machine_is_no_regression() -> None:
    """All rows and peers take 1.8 times as long; a row that slowed down on top of that is still found."""
    old = report(1)
    found = compare(old, report(2, machine=1.8))
    assert not found.regressions
    assert found.drift == pytest.approx(1.8, rel=0.1)
    assert slower(old, report(2, machine=1.8, factors={"row 5": 1.8})) == ["row 5"]
    assert len(slower(report(1, peers=False), report(2, peers=False, machine=1.8))) == len(NAMES)


def test_peers_of_another_version_are_no_control() -> None:
    other = report(2, machine=1.8, versions={"numpy": "3", "torch": "3"})
    assert len(slower(report(1), other)) == len(NAMES)


def test_peers_that_moved_are_no_control() -> None:
    old, new = report(1), report(2, machine=1.8)
    for found, place in ((old, "cpu"), (new, "cuda:0")):
        found["machine"]["places"] = {"torch": place, "numpy": place}
    assert len(slower(old, new)) == len(NAMES)


def test_a_faster_peer_flags_nothing() -> None:
    """Only what became slower itself is a regression, whatever peers did."""
    new = report(2)
    for row in new["kernels"]:
        for peer in ("torch", "numpy"):
            row["times"][peer] = {k: v / 2 for k, v in row["times"][peer].items()}
    assert not slower(report(1), new)


def test_samples_that_spread_leave_more_open() -> None:
    """The minimum of samples that lie far from each other is not known well."""
    old, new = report(1, noise=0.01), report(2, noise=0.01, factors={"row 3": 1.7})
    assert slower(old, new) == ["row 3"]
    for row in (old["kernels"][3], new["kernels"][3]):
        row["times"]["cpu"]["p20"] = row["times"]["cpu"]["least"] * 1.4
    assert not slower(old, new)


def test_the_threshold() -> None:
    old, new = report(1, noise=0.001), report(2, noise=0.001, factors={"row 3": 1.15})
    assert not slower(old, new)
    assert slower(old, new, threshold=0.1) == ["row 3"]
    with pytest.raises(ArgumentError, match="above 0"):
        compare(old, new, 0.0)


def test_medians_have_to_go_the_same_way() -> None:
    """One lucky sample of the old report makes no regression."""
    old, new = report(1), report(2, factors={"row 3": 1.8})
    for change, found in ((0.99, []), (1.02, []), (1.3, ["row 3"])):
        new["kernels"][3]["times"]["cpu"]["median"] = old["kernels"][3]["times"]["cpu"]["median"] * change
        assert slower(old, new) == found


def test_a_row_that_is_wrong_now() -> None:
    old, new = report(1), report(1)
    new["kernels"][2] = {"group": "g", "name": "row 2", "bytes": 0, "flops": 0, "problem": "WRONG"}
    assert slower(old, new) == ["row 2"]
    assert compare(new, old).changes[2].verdict == "mended"
    assert not slower(new, new)


def test_rows_are_matched() -> None:
    old, new = report(1), report(2)
    del old["kernels"][0], new["kernels"][-1]
    found = compare(old, new)
    assert (found.added, found.missing) == (["row 0 (cpu)"], ["row 11 (cpu)"])
    assert [c.new.name for c in found.changes] == NAMES[1:-1]
    with pytest.raises(ArgumentError, match="no row in common"):
        compare(old, report(2) | {"suite": "ops"})


def test_another_device_is_told() -> None:
    other = report(2)
    other["machine"]["devices"][0]["name"] = "More cores"
    assert compare(report(1), other).moved == ["cpu was Cores, is More cores"]
    assert compare(report(1), report(2)).moved == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {}
    for name, found in {"old": report(1), "same": report(2), "new": report(3, factors={"row 3": 2.0})}.items():
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps(found), encoding="utf-8")

    def run(*given: str) -> int:
        chosen = command.options(argparse.ArgumentParser()).parse_args(["--compare", *given])
        return int(chosen.run(chosen))

    assert run(str(files["old"]), str(files["same"])) == 0
    assert "12 rows; peers" in capsys.readouterr().out
    assert run(str(files["old"]), str(files["new"])) == 1
    out = capsys.readouterr().out
    assert re.search(r"row 3 \(cpu\) .* \+\d+% .* slower\n", out)
    assert "12 rows, 1 slower" in out
    assert run(str(files["old"]), str(files["new"]), "--threshold", "3") == 0
    with pytest.raises(ArgumentError, match="one or two"):
        run(*map(str, files.values()))
    with pytest.raises(ArgumentError, match="give --suite core"):  # told before anything is measured
        run(str(files["old"]), "--suite", "ops")


# What else reports may be


def kept() -> dict[str, Any]:
    """A report that was really measured."""
    path = min((Path(command.__file__).parent / "results").glob("*ops*.json"))
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_a_kept_report_beside_itself() -> None:
    found = compare(kept(), kept())
    assert [change.new.key for change in found.changes] == [entry.key for entry in entries([kept()])]
    assert {change.verdict for change in found.changes} == {"same"}
    assert (found.missing, found.added, found.moved) == ([], [], [])


def test_every_row_ten_times_slower_is_found() -> None:
    """In a real report, whose samples spread as they do: every row whose peers kept their times."""
    new = kept()
    own = [device["device"] for device in new["machine"]["devices"]]
    count = 0
    for times in (row["times"] for row in new["kernels"] if "times" in row):
        for device in set(own) & set(times):
            times[device] |= {k: times[device][k] * 10 for k in ("least", "median", "p20", "p80")}
            count += 1
    assert len(compare(kept(), new).regressions) == count > 40


def test_what_was_skipped_is_not_broken() -> None:
    old, new = report(1), report(1)
    new["kernels"][2] = {"group": "g", "name": "row 2", "bytes": 0, "flops": 0, "problem": "skipped: too large"}
    found = compare(old, new)
    assert found.changes[2].verdict == "skipped"
    assert not found.regressions
    assert not compare(new, old).regressions


def test_a_wrong_row_is_no_control_for_others() -> None:
    """Peers of rows that are wrong have no times that count; the rest decides."""
    old, new = report(1), report(2, factors={"row 3": 1.8})
    for at in (0, 1):
        new["kernels"][at] = {"group": "g", "name": f"row {at}", "bytes": 0, "flops": 0, "problem": "WRONG"}
    assert sorted(slower(old, new)) == ["row 0", "row 1", "row 3"]


def test_one_sample_each() -> None:
    """As of a run with little time: no spread is known, the threshold alone decides."""
    old, new = report(1, peers=False), report(1, peers=False)
    for found, seconds in ((old, 1e-3), (new, 1.4e-3)):
        for row in found["kernels"]:
            row["times"]["cpu"] = dict.fromkeys(("least", "median", "p20", "p80"), seconds) | {"samples": 1, "late": 0}
    assert not slower(old, new)
    assert len(slower(old, new, threshold=0.3)) == len(NAMES)


def test_rows_of_one_name() -> None:
    """The last one of a report counts, and nothing is counted twice."""
    old, new = report(1), report(1)
    new["kernels"].append(new["kernels"][0] | {"times": {"cpu": sampled(random.Random(5), 5e-3, 0.05)}})
    assert slower(old, new) == ["row 0"]


@pytest.mark.parametrize("threshold", ["0", "-1", "nan", "inf"])
def test_thresholds_that_are_none(threshold: str) -> None:
    with pytest.raises(ArgumentError, match="above 0"):
        compare(report(1), report(1), float(threshold))


@pytest.mark.parametrize("given", [[], [0.0], [-1e-3], [float("nan")], [float("inf")]])
def test_times_that_are_none(given: list[float], tmp_path: Path) -> None:
    """Reports are refused as they are read, with the file's name, by the command too; its status is that of misuse."""
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    found = report(1)
    for seconds in given:
        found["kernels"][0]["times"]["cpu"]["least"] = seconds
    good.write_text(json.dumps(report(1)), encoding="utf-8")
    bad.write_text(json.dumps(found) if given else "", encoding="utf-8")
    for files in ((bad, good), (good, bad)):
        chosen = command.options(argparse.ArgumentParser()).parse_args(["--compare", *map(str, files)])
        with pytest.raises(ArgumentError, match=r"bad\.json"):
            chosen.run(chosen)


def test_reports_of_different_suites(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"no row in common \(suites core, ops; .* the same suite"):
        compare(report(1), report(1) | {"suite": "ops"})
