"""Rows of benchmarks that are made from specs, what is measured of a call, and the limits of a device."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from bench_options import options, run

import weftgrad as wg
from weftgrad.bench import (
    facts,
    limits,
    running,
    sweep,
)
from weftgrad.bench.cases import error_of
from weftgrad.bench.sites import OurSite

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


# Facts


def test_accuracy_by_three_measures() -> None:
    expected = np.array([1.0, 4.0, 0.0, 1000.0])
    actual = np.array([1.0 + 2.0**-23, 4.0, 2.0**-149, 1000.0])
    measures = facts.accuracy([(actual, expected)], "float32")
    assert measures == {"abs": 2.0**-23, "rel": 2.0**-23, "ulp": 1.0}
    assert facts.accuracy([(np.array([1.0 + 2.0**-7]), np.array([1.0]))], "bfloat16")["ulp"] == 1.0
    # The spacing of subnormal numbers is that of the smallest normal one.
    assert facts.accuracy([(np.array([2.0**-149]), np.array([0.0]))], "float32")["ulp"] == 1.0
    assert facts.accuracy([(np.array([np.inf]), np.array([np.inf]))], "float32")["abs"] == 0


def test_what_a_kernel_leaves_unwritten_is_not_a_number() -> None:
    site = OurSite("cpu")
    for dtype in (wg.float32, wg.bfloat16, wg.int32):
        filled = wg.ones(5000, dtype=dtype)
        facts.poison(site, filled)
        unwritten = wg.empty(5000, dtype=dtype)
        assert error_of([(site.host(unwritten), site.host(filled))]) != 0
        assert bool(unwritten.isnan().all()) if dtype.is_floating_point else bool((unwritten == -1).all())


def test_facts_of_a_call() -> None:
    site = OurSite("cpu")
    x = wg.randn(40, 70)
    call_facts = facts.facts(site, lambda: wg.softmax(x + 1, 1))
    assert call_facts["launches"] == 2
    assert any(name.startswith("softmax") for name in call_facts["schedule"])
    assert 0 < call_facts["warm_ms"] < call_facts["cold_ms"]
    assert call_facts["peak_bytes"] >= 3 * 40 * 70 * 4
    assert call_facts["driver_allocations"] == 0
    assert facts.steps_of(site, lambda: x.t()) == []
    assert site.device.driver.launcher.__self__ is site.device.driver  # the original launcher is restored


# Specs


def test_rows_of_a_spec_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Forward and backward in two dtypes; each row names the reference that it was checked against."""
    path, output = tmp_path / "mine.yaml", tmp_path / "found.json"
    path.write_text(SPEC)
    assert run(str(path), "--device", "cpu", "--dtypes", "float32,bfloat16", "--shapes", "24", "--only", "bench_",
               "--rounds", "1", "--peers", "numpy", "--output", str(output)) == 0  # fmt: skip
    entries = {entry["name"]: entry for entry in json.loads(output.read_text())["kernels"]}
    assert len(entries) == 12
    assert entries["bench_swish float32 24"]["against"] == "its own float64"
    assert entries["bench_total bfloat16 24, gradient"]["against"] == "numpy.add in float64"
    assert entries["bench_gram float32 24"]["flops"] == 2 * 24**3
    assert entries["bench_gram float32 24"]["bytes"] == 3 * 4 * 24**2
    assert set(entries["bench_total float32 24"]["times"]) == {"cpu", "numpy"}
    assert entries["bench_swish bfloat16 24"]["facts"]["cpu"]["accuracy"]["ulp"] <= 1
    assert 0 < entries["bench_swish float32 24"]["facts"]["cpu"]["accuracy"]["ulp"] < 8
    assert "bench_swish bfloat16 24, gradient" in capsys.readouterr().out


def test_ops_that_cannot_be_measured_are_listed_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ops without rules for their operands, or without a shape or dtype of the options, have a row with the reason."""
    path, output = tmp_path / "mine.yaml", tmp_path / "report.json"
    path.write_text(SPEC + """
- op: "bench_blur(input, SIZES)"
  kind: window
  dtypes: float
  doc: Mean of each window.
  grad: none
  window: {over: windows, identity: 0, map: input, combine: a + b, finish: acc / n}
""".replace("SIZES", "size: tuple[int, ...], kernel: tuple[int, ...] | None, stride: tuple[int, ...], padding: "
                     "tuple[int, ...], counted: bool, divisor: int"))  # fmt: skip
    words = (str(path), "--device", "cpu", "--shapes", "24x24", "--only", "bench_", "--rounds", "1", "--peers", "none")
    assert run(*words, "--output", str(output)) == 0
    rows = {row["name"]: row for row in json.loads(output.read_text())["kernels"]}
    assert "problem" not in rows["bench_swish float32 24x24"]
    assert rows["bench_blur"]["problem"].startswith("not measured: it is of kind window")
    assert "not measured: --shapes has none for bench_gram" in capsys.readouterr().out
    assert run(*words, "--ops", "bench_blur,bench_gram") == 1
    assert "no op can be measured: bench_blur: it is of kind window" in capsys.readouterr().err
    assert run("--ops", "gather", "--device", "cpu", "--peers", "none") == 1
    assert "gather: it is of kind index" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", sweep.DTYPES)
def test_every_dtype_has_rows(dtype: str) -> None:
    dtypes = [value for name, value in vars(wg).items() if isinstance(value, type(wg.float32)) and name[0] != "_"]
    assert set(sweep.DTYPES) == {str(value).rpartition(".")[2] for value in dtypes}
    site = OurSite("cpu")
    cases = [case for case in sweep.cases(options("--ops", "add,eq", "--dtypes", "all", "--shapes", "9"))
             if case.element == dtype and "gradient" not in case.name]  # fmt: skip
    assert cases
    for case in cases:
        work = case.on(site)
        assert work is not None
        assert error_of(work.pairs()) <= case.tolerance


def test_a_wrong_formula_is_found_where_a_spec_names_its_reference(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SPEC.replace("out: input + other", "out: input - other").replace("bench_", "bench_wrong_"))
    assert run(str(path), "--device", "cpu", "--ops", "bench_wrong_total", "--shapes", "24", "--only", "bench_",
               "--rounds", "1", "--peers", "none") == 1  # fmt: skip


def test_a_wrong_derivative_is_found_without_a_reference(tmp_path: Path) -> None:
    """Gradients are compared with finite differences of the op in float64, not with the spec's gradient."""
    path = tmp_path / "mine.yaml"
    text = SPEC.replace("  out: input / (1", "  grad: {input: grad * input}\n  out: input / (1")
    path.write_text(text.replace("bench_", "bench_sloping_"))
    forward, backward = sweep.cases(options(str(path), "--ops", "bench_sloping_swish", "--shapes", "24"))
    rows = [running.measure_case(case, [OurSite("cpu")], 1, []) for case in (forward, backward)]
    assert ["problem" in (entry or {}) for entry in rows] == [False, True]


def test_ops_of_the_package_by_name() -> None:
    assert {case.group for case in sweep.cases(options("--suite", "specs"))} == {
        "pointwise", "rowwise", "reduction", "contraction", "scan"
    }  # fmt: skip
    args = options("--ops", "softmax,mm,cumsum", "--shapes", "9,8x9,4x5x6")
    cases_by_name = {case.name: case for case in sweep.cases(args)}
    assert {"softmax float32 8x9", "mm float32 4x5x6, gradient", "cumsum float32 9"} <= set(cases_by_name)
    assert "mm float32 8x9" not in cases_by_name
    site = OurSite("cpu")
    for name in ("softmax float32 8x9", "mm float32 4x5x6, gradient", "cumsum float32 9"):
        work = cases_by_name[name].on(site)
        assert work is not None
        assert error_of(work.pairs()) <= cases_by_name[name].tolerance


# Limits


def test_limits_are_checked_like_any_row() -> None:
    site = OurSite("cpu", 512)
    cases_by_group = {}
    for case in limits.cases(gpu=False, scale=512):
        work = case.on(site)
        assert work is not None
        work.call()
        assert error_of(work.pairs()) <= case.tolerance
        cases_by_group[case.group] = case
    assert set(cases_by_group) == {"roofline", "cache", "peak", "transfer", "launch"}
    # Each of 8 chains has one product and 16 multiply-adds (2 operations each); then the chains are added.
    (case,) = (case for case in limits.cases(gpu=False, scale=1024) if case.name == "multiply-add fp32")
    assert case.flops == 8 * (8 * 33 + 7)
