"""Compare `utils.benchmark` with PyTorch, if installed: texts of measurements and tables, statistics, signatures."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from weftgrad.utils import benchmark

torch = pytest.importorskip("torch")
from torch.utils import benchmark as reference  # noqa: E402  # after the check that torch is there

RNG = np.random.default_rng(0)
SPECS: list[dict[str, Any]] = [
    {"stmt": "x + y", "setup": "pass"},
    {"stmt": "x + y", "setup": "x = 1", "label": "add", "sub_label": "float", "description": "n=1", "num_threads": 4},
    {"stmt": "x = 1\nx + y", "setup": "y = 1\nz = 2", "sub_label": "int"},
]
TIMES: list[list[float]] = [
    [3.0e-6], [1e-3, 1.01e-3, 1.02e-3], [0.5, 0.7, 0.52, 0.9, 0.4], [2e-7, 2.3e-7, 2.1e-7, 1.9e-7, 2.25e-7],
    list(1 + RNG.uniform(0, 1e-3, 50)),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=["plain", "labels", "lines"])
@pytest.mark.parametrize("times", TIMES, ids=lambda times: f"{len(times)} from {times[0]:.1g}")
def test_measurements(spec: dict[str, Any], times: list[float]) -> None:
    own = benchmark.Measurement(10, times, benchmark.TaskSpec(**spec))
    expected = reference.Measurement(10, times, reference.TaskSpec(**spec))
    assert repr(own).splitlines()[1:] == repr(expected).splitlines()[1:]
    assert own.significant_figures == expected.significant_figures
    assert (own.has_warnings, own.title, own.as_row_name) == (
        expected.has_warnings,
        expected.title,
        expected.as_row_name,
    )
    for name in ("mean", "median", "iqr", "times"):
        np.testing.assert_allclose(getattr(own, name), getattr(expected, name), rtol=1e-9, atol=1e-18, err_msg=name)


@pytest.mark.parametrize("options", [(), ("trim_significant_figures",), ("colorize", "highlight_warnings")], ids=str)
@pytest.mark.parametrize("envs", [(None,), ("old", "newer")], ids=str)
def test_tables(options: tuple[str, ...], envs: tuple[str | None, ...]) -> None:
    rng = np.random.default_rng(1)
    tables = []
    statements, descriptions = (("x", None), ("y", "int")), ("n=1", "n=10")
    rows = [
        ((stmt, label, sub, description, env, threads), list(rng.uniform(1, 1.3, 5) * 10.0 ** rng.uniform(-5, -3)))
        for label in ("add", "mul") for stmt, sub in statements for description in descriptions
        for env in envs for threads in (1, 4) if (stmt, description) != ("x", "n=10")
    ]  # fmt: skip
    for library in (benchmark, reference):
        specs = [
            library.TaskSpec(s, "pass", "", label, sub, text, env, threads)
            for (s, label, sub, text, env, threads), _ in rows
        ]  # fmt: skip
        results = [library.Measurement(2, times, spec) for spec, (_, times) in zip(specs, rows, strict=True)]
        table = library.Compare(results)
        for option in options:
            getattr(table, option)()
        tables.append(str(table))
    assert tables[0] == tables[1]


def test_signatures() -> None:
    for name in ("Timer", "Compare", "Measurement", "TaskSpec", "select_unit", "trim_sigfig", "unit_to_english"):
        own = list(inspect.signature(getattr(benchmark, name)).parameters)
        assert own == list(inspect.signature(getattr(reference, name)).parameters), name
    for name in ("timeit", "blocked_autorange", "adaptive_autorange", "repeat", "autorange"):
        own, expected = (inspect.signature(getattr(m.Timer, name)).parameters for m in (benchmark, reference))
        assert [(p.name, p.default, p.kind) for p in own.values()] == [
            (p.name, p.default, p.kind) for p in expected.values()
        ]
