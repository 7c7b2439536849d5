"""The suites that other benchmarks are known by: BabelStream's kernels and table, TritonBench's operators and units."""

from __future__ import annotations

import os
from typing import Any

import pytest

from weftgrad.bench import babelstream, markdown, page, tritonbench
from weftgrad.bench.cases import Case, error_of
from weftgrad.bench.rows import entries
from weftgrad.bench.running import measure_case
from weftgrad.bench.sites import OurSite

DEVICE = os.environ.get("WEFTGRAD_TEST_DEVICE", "cpu")
SCALE = 32
KERNELS = ("copy", "mul", "add", "triad", "dot")


def is_right(case: Case) -> bool:
    """Return True if a case has right values, False if it runs on other sites only."""
    work = case.on(OurSite(DEVICE, SCALE))
    if work is not None:
        work.call()
        error = error_of(work.pairs())
        assert error <= case.tolerance, f"{case.name}: {error}"
    return work is not None


def stream_cases() -> list[Case]:
    return list(babelstream.cases([OurSite(DEVICE, SCALE)], 1024))


@pytest.mark.parametrize("case", stream_cases(), ids=lambda case: case.name)
def test_kernels_of_babelstream(case: Case) -> None:
    assert is_right(case)


@pytest.mark.parametrize("case", list(tritonbench.cases(DEVICE != "cpu", SCALE)), ids=lambda case: case.name)
def test_operators_of_tritonbench(case: Case) -> None:
    assert is_right(case)


def test_bytes_are_counted_as_babelstream_does() -> None:
    cases = {case.name: case for case in babelstream.cases([OurSite("cpu")])}
    length = babelstream.array_length([0], 8)
    assert [cases[f"{name} double {length}"].bytes / (8 * length) for name in KERNELS] == [2, 2, 3, 3, 2]
    assert [cases[f"{name} float {babelstream.array_length([0], 4)}"].dtype for name in KERNELS] == ["float32"] * 5


def test_arrays_have_2_to_the_25_elements_or_what_fits() -> None:
    """Three arrays of doubles take 768 MiB, and may take a quarter of the memory."""
    gibibyte = 1 << 30
    assert babelstream.array_length([80 * gibibyte], 8) == 1 << 25
    assert babelstream.array_length([3 * gibibyte], 8) == 1 << 25
    assert babelstream.array_length([3 * gibibyte - 1], 8) == 1 << 24
    assert babelstream.array_length([80 * gibibyte, gibibyte], 8) == 1 << 23
    assert babelstream.array_length([3 * gibibyte - 1], 4) == 1 << 25


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {case.name.partition(" ")[0]: case for case in stream_cases()[:5]}
    for name, case in cases.items():
        kernel = case.make.args[0]  # type: ignore[attr-defined]
        wrong = babelstream._Kernel(name, kernel.arrays, kernel.run, kernel.numpy, kernel.result,
                                    lambda a, b, c, e=kernel.expected: 1.001 * e(a, b, c))  # fmt: skip
        work = babelstream._work(wrong, 4096, "float64" if DEVICE == "cpu" else "float32", OurSite(DEVICE, SCALE))
        assert work is not None
        assert error_of(work.pairs()) > case.tolerance


def test_calls_are_timed_one_by_one() -> None:
    """A hundred samples of a call, as BabelStream takes, have a maximum and a mean."""
    case = next(case for case in stream_cases() if case.name.startswith("triad"))
    row = measure_case(case, [OurSite(DEVICE, SCALE)], 5, [])
    assert row is not None
    time = row["times"][DEVICE]
    assert time["samples"] == 100
    assert time["least"] <= time["mean"] <= time["largest"]


def stored(suite: str, *rows: dict[str, Any]) -> dict[str, Any]:
    head = {"date": "2026-01-02T03:04:05", "devices": [{"device": "cuda:0", "name": "NVIDIA `H200`", "kind": "GPU"}],
            "torch": "cuda:0", "cores": 2, "system": "Linux", "versions": {}}  # fmt: skip
    return {"suite": suite, "machine": head, "host": [], "kernels": list(rows)}


def kernel(group: str, name: str, times: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"group": group, "name": name, "bytes": 0, "flops": 0, "target": None, "clock": "wall", "errors": {},
            "notes": [], "missed": [], "least": times["cuda:0"]["least"], "times": times, "ratios": {},
            } | facts  # fmt: skip


def timing(least: float, median: float) -> dict[str, Any]:
    return {"least": least, "median": median, "p20": least, "p80": median, "samples": 100, "mean": 1.1 * least,
            "largest": 2 * least}  # fmt: skip


def test_the_table_of_babelstream() -> None:
    """The columns are those of BabelStream: its words, widths and digits."""
    rows = [kernel(name, f"{name} double 33554432", {"cuda:0": timing(2e-4, 2e-4), "torch": timing(4e-4, 4e-4)},
                   dtype="float64", bytes=2 << 28) for name in ("copy", "mul")]  # fmt: skip
    all_entries = entries([stored("babelstream", *rows)])
    assert babelstream.table_lines(all_entries)[:7] == [
        "", "BabelStream: NVIDIA `H200` (cuda:0), weftgrad", "Precision: double",
        "Array size: 268.4 MB, total size: 805.3 MB",
        "Function    GBytes/sec  Min (sec)   Max         Average",
        "Copy        2684.355    0.00020     0.00040     0.00022",
        "Mul         2684.355    0.00020     0.00040     0.00022",
    ]  # fmt: skip
    assert "BabelStream: NVIDIA `H200` (cuda:0), torch" in babelstream.table_lines(all_entries)
    in_markdown = markdown.as_markdown([], all_entries)
    assert "```text\nBabelStream: NVIDIA 'H200' (cuda:0), weftgrad" in in_markdown  # a name ends no block
    assert "Copy        2684.355" in page.html([stored("babelstream", *rows)], all_entries, None)


def test_the_table_of_tritonbench() -> None:
    """Latencies in ms, GB/s, TFLOP/s and the speedup over torch, by medians."""
    gemm = kernel("gemm", "gemm fp16 1024x1024x1024", {"cuda:0": timing(1e-5, 2e-5), "torch": timing(3e-5, 3e-5)},
                  flops=2 << 30, bytes=6 << 20)  # fmt: skip
    copy = kernel("roofline", "copy fp32 16M", {"cuda:0": timing(1e-5, 2e-5)}, bytes=1 << 27)
    lines = tritonbench.table_lines(entries([stored("tritonbench", copy, gemm)]))
    assert lines[:2] == ["", "TritonBench: gemm on NVIDIA `H200` (cuda:0)"]
    assert len(lines) == 4
    heads = ["x_val", "weftgrad-latency (ms)", "weftgrad-gbps", "weftgrad-tflops", "weftgrad-speedup",
             "torch-latency (ms)", "torch-gbps", "torch-tflops"]  # fmt: skip
    assert "  ".join(lines[2].split()) == "  ".join(" ".join(heads).split())
    assert lines[3].split() == ["fp16", "1024x1024x1024", "0.02", "315", "107", "1.50", "0.03", "210", "71.6"]
