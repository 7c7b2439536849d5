"""Compare two reports: regressions are flagged, and noise of a shared machine is not."""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from weftgrad.bench import command, report_files
from weftgrad.bench.changes import compare
from weftgrad.bench.rows import entries
from weftgrad.runtime.errors import ArgumentError

NAMES = [f"row {i}" for i in range(12)]


def noisy_timing(rng: random.Random, seconds: float, noise: float, n: int = 15) -> dict[str, Any]:
    """Return a timing as a report has it, of `n` samples of at least `seconds`.

    Each sample is longer by a random delay with mean `noise * seconds`. A fifth of them are disturbed by other
    processes, and take 1.3 to 3 times as long.
    """
    values = sorted(
        seconds * (1 + rng.expovariate(1 / noise) + (rng.random() < 0.2) * rng.uniform(0.3, 2)) for _ in range(n)
    )
    return {"least": values[0], "median": statistics.median(values), "p20": values[(n - 1) // 5],
            "p80": values[(n - 1) * 4 // 5], "samples": n, "late": 0}  # fmt: skip


def row(name: str, **outcome: Any) -> dict[str, Any]:
    """Return a row of a report with its times or its problem."""
    return {"group": "g", "name": name, "bytes": 0, "flops": 0, **outcome}


def report(seed: int, *, factors: dict[str, float] | None = None, machine: float = 1.0, noise: float = 0.05,
           peers: bool = True, versions: dict[str, str] | None = None) -> dict[str, Any]:  # fmt: skip
    """Return a report of the rows `NAMES`.

    Args:
        seed: Of the noise.
        factors: By row name, how many milliseconds the row takes; 1 for other rows.
        machine: A factor for all times, of peers too.
        noise: The mean delay of a sample, relative to its time.
        peers: The rows were also measured with torch and numpy, which take 0.8 ms.
        versions: Versions of these.
    """
    rng = random.Random(seed)
    kernels = []
    for name in NAMES:
        seconds = machine * (factors or {}).get(name, 1.0) * 1e-3
        times = {"cpu": noisy_timing(rng, seconds, noise)}
        if peers:
            times |= {peer: noisy_timing(rng, machine * 8e-4, noise) for peer in ("torch", "numpy")}
        kernels.append(row(name, times=times))
    machine_facts = {"date": "2026", "devices": [{"device": "cpu", "name": "Cores"}], "torch": "cpu",
            "versions": versions or {"numpy": "2", "torch": "2"}}  # fmt: skip
    return {"suite": "core", "machine": machine_facts, "host": [], "kernels": kernels}


def regressions(old: dict[str, Any], new: dict[str, Any], **options: Any) -> list[str]:
    """Return the names of the rows that are slower, or wrong, in `new`."""
    return [change.new.name for change in compare(old, new, **options).regressions]


@pytest.mark.parametrize("peers", [True, False])
def test_noise_is_no_regression(peers: bool) -> None:
    """Compare 40 pairs of runs of the same code, with 12 rows each, on a noisy machine."""
    for seed in range(40):
        assert not regressions(report(seed, peers=peers), report(seed + 100, peers=peers))


@pytest.mark.parametrize("peers", [True, False])
def test_a_regression_is_flagged(peers: bool) -> None:
    """One row takes 1.8 times as long, with the same noise: only it is flagged, and not if the reports are swapped."""
    for seed in range(40):
        old, new = report(seed, peers=peers), report(seed + 100, peers=peers, factors={"row 3": 1.8})
        assert regressions(old, new) == ["row 3"]
        comparison = compare(new, old)
        assert not comparison.regressions
        assert [c.new.name for c in comparison.changes if c.verdict == "faster"] == ["row 3"]


def test_a_slower_machine_is_no_regression() -> None:
    """All rows and peers take 1.8 times as long; a row that is slower still is flagged.

    Without peers nothing shows that the machine is slower, so all rows are flagged.
    """
    old = report(1)
    comparison = compare(old, report(2, machine=1.8))
    assert not comparison.regressions
    assert comparison.drift == pytest.approx(1.8, rel=0.1)
    assert regressions(old, report(2, machine=1.8, factors={"row 5": 1.8})) == ["row 5"]
    assert len(regressions(report(1, peers=False), report(2, peers=False, machine=1.8))) == len(NAMES)


def test_peers_of_another_version_do_not_measure_the_machine() -> None:
    """Times of peers correct for the speed of the machine only if the same version ran in both reports."""
    new = report(2, machine=1.8, versions={"numpy": "3", "torch": "3"})
    assert len(regressions(report(1), new)) == len(NAMES)


def test_peers_on_another_device_do_not_measure_the_machine() -> None:
    old, new = report(1), report(2, machine=1.8)
    for old_or_new, device in ((old, "cpu"), (new, "cuda:0")):
        old_or_new["machine"]["places"] = {"torch": device, "numpy": device}
    assert len(regressions(old, new)) == len(NAMES)


def test_a_faster_peer_flags_nothing() -> None:
    """A row is a regression only if its own time increased."""
    new = report(2)
    for kernel in new["kernels"]:
        for peer in ("torch", "numpy"):
            times = kernel["times"][peer]
            times |= {k: times[k] / 2 for k in ("least", "median", "p20", "p80")}
    assert not regressions(report(1), new)


def test_a_wide_spread_of_samples() -> None:
    """A wide spread of samples makes the minimum uncertain, so nothing is flagged."""
    old, new = report(1, noise=0.01), report(2, noise=0.01, factors={"row 3": 1.7})
    assert regressions(old, new) == ["row 3"]
    for kernel in (old["kernels"][3], new["kernels"][3]):
        kernel["times"]["cpu"]["p20"] = kernel["times"]["cpu"]["least"] * 1.4
    assert not regressions(old, new)


def test_the_threshold() -> None:
    old, new = report(1, noise=0.001), report(2, noise=0.001, factors={"row 3": 1.15})
    assert not regressions(old, new)
    assert regressions(old, new, threshold=0.1) == ["row 3"]
    with pytest.raises(ArgumentError, match="above 0"):
        compare(old, new, 0.0)


def test_the_median_must_increase_too() -> None:
    """A minimum that increases alone is one lucky sample in the old report, not a regression."""
    old, new = report(1), report(2, factors={"row 3": 1.8})
    for change, expected in ((0.99, []), (1.02, []), (1.3, ["row 3"])):
        new["kernels"][3]["times"]["cpu"]["median"] = old["kernels"][3]["times"]["cpu"]["median"] * change
        assert regressions(old, new) == expected


def test_a_row_whose_values_became_wrong() -> None:
    """It is a regression; the reverse is reported as fixed."""
    old, new = report(1), report(1)
    new["kernels"][2] = row("row 2", problem="WRONG")
    assert regressions(old, new) == ["row 2"]
    assert compare(new, old).changes[2].verdict == "fixed"
    assert not regressions(new, new)


def test_rows_are_matched_by_name() -> None:
    """Rows of one report only are listed as added or missing; reports of different suites have no row in common."""
    old, new = report(1), report(2)
    del old["kernels"][0], new["kernels"][-1]
    comparison = compare(old, new)
    assert (comparison.added, comparison.missing) == (["row 0 (cpu)"], ["row 11 (cpu)"])
    assert [c.new.name for c in comparison.changes] == NAMES[1:-1]
    with pytest.raises(ArgumentError, match="no row in common"):
        compare(old, report(2) | {"suite": "ops"})


def test_another_device_is_reported() -> None:
    new = report(2)
    new["machine"]["devices"][0]["name"] = "More cores"
    assert compare(report(1), new).hardware_changes == ["cpu was Cores, is More cores"]
    assert compare(report(1), report(2)).hardware_changes == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {}
    for name, content in {"old": report(1), "same": report(2), "new": report(3, factors={"row 3": 2.0})}.items():
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps(content), encoding="utf-8")

    def run(*arguments: str) -> int:
        args = command.options(argparse.ArgumentParser()).parse_args(["--compare", *arguments])
        return int(args.run(args))

    assert run(str(files["old"]), str(files["same"])) == 0
    assert "12 rows; peers" in capsys.readouterr().out
    assert run(str(files["old"]), str(files["new"])) == 1
    out = capsys.readouterr().out
    assert re.search(r"row 3 \(cpu\) .* \+\d+% .* slower\n", out)
    assert "12 rows, 1 slower" in out
    assert run(str(files["old"]), str(files["new"]), "--threshold", "3") == 0
    with pytest.raises(ArgumentError, match="one or two"):
        run(*map(str, files.values()))
    with pytest.raises(ArgumentError, match="give --suite core"):  # raised before anything is measured
        run(str(files["old"]), "--suite", "ops")


# --- Real and unusual reports -----------------------------------------------------------------------------------------


def measured_report() -> dict[str, Any]:
    """Return a saved report of a real run."""
    return report_files.load(min((Path(command.__file__).parent / "results").glob("*ops*.json.gz")))


def test_a_report_compared_with_itself() -> None:
    comparison = compare(measured_report(), measured_report())
    assert [change.new.key for change in comparison.changes] == [entry.key for entry in entries([measured_report()])]
    assert {change.verdict for change in comparison.changes} == {"same"}
    assert (comparison.missing, comparison.added, comparison.hardware_changes) == ([], [], [])


def test_every_row_ten_times_slower_is_found() -> None:
    """In a real report with real noise, every row that is ten times slower is flagged."""
    new = measured_report()
    device_names = [device["device"] for device in new["machine"]["devices"]]
    count = 0
    for times in (kernel["times"] for kernel in new["kernels"] if "times" in kernel):
        for device in set(device_names) & set(times):
            times[device] |= {k: times[device][k] * 10 for k in ("least", "median", "p20", "p80")}
            count += 1
    assert len(compare(measured_report(), new).regressions) == count > 40


def test_skipped_rows_are_no_regression() -> None:
    old, new = report(1), report(1)
    new["kernels"][2] = row("row 2", problem="skipped: too large")
    comparison = compare(old, new)
    assert comparison.changes[2].verdict == "skipped"
    assert not comparison.regressions
    assert not compare(new, old).regressions


def test_peer_times_of_wrong_rows_are_ignored() -> None:
    """The peers' times in the other rows measure the machine."""
    old, new = report(1), report(2, factors={"row 3": 1.8})
    for index in (0, 1):
        new["kernels"][index] = row(f"row {index}", problem="WRONG")
    assert sorted(regressions(old, new)) == ["row 0", "row 1", "row 3"]


def test_one_sample_each() -> None:
    """With one sample per row no spread is known, so the threshold alone decides."""
    old, new = report(1, peers=False), report(1, peers=False)
    for old_or_new, seconds in ((old, 1e-3), (new, 1.4e-3)):
        for kernel in old_or_new["kernels"]:
            times = {"least": seconds, "median": seconds, "p20": seconds, "p80": seconds}
            kernel["times"]["cpu"] = times | {"samples": 1, "late": 0}
    assert not regressions(old, new)
    assert len(regressions(old, new, threshold=0.3)) == len(NAMES)


def test_rows_of_one_name() -> None:
    """Of rows with the same name, the last one counts."""
    old, new = report(1), report(1)
    new["kernels"].append(new["kernels"][0] | {"times": {"cpu": noisy_timing(random.Random(5), 5e-3, 0.05)}})
    assert regressions(old, new) == ["row 0"]


@pytest.mark.parametrize("threshold", ["0", "-1", "nan", "inf"])
def test_invalid_thresholds(threshold: str) -> None:
    with pytest.raises(ArgumentError, match="above 0"):
        compare(report(1), report(1), float(threshold))


@pytest.mark.parametrize("seconds", [None, 0.0, -1e-3, float("nan"), float("inf")])
def test_invalid_times(seconds: float | None, tmp_path: Path) -> None:
    """The command refuses empty files (None) and reports with invalid times, and names the file."""
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    content = report(1)
    content["kernels"][0]["times"]["cpu"]["least"] = seconds
    good.write_text(json.dumps(report(1)), encoding="utf-8")
    bad.write_text("" if seconds is None else json.dumps(content), encoding="utf-8")
    for files in ((bad, good), (good, bad)):
        args = command.options(argparse.ArgumentParser()).parse_args(["--compare", *map(str, files)])
        with pytest.raises(ArgumentError, match=r"bad\.json"):
            args.run(args)


def test_reports_of_different_suites() -> None:
    with pytest.raises(ArgumentError, match=r"no row in common \(suites core, ops; .* the same suite"):
        compare(report(1), report(1) | {"suite": "ops"})
