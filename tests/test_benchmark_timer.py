"""Check `utils.benchmark`: what a Timer runs, statistics of measured times, and tables."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.utils import benchmark

TIMES = [1.0e-3, 1.5e-3, 1.2e-3, 1.1e-3, 1.15e-3]


class Clock:
    """A clock that advances by a second at each reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_timeit_runs_setup_and_statement() -> None:
    runs: list[Any] = []
    timer = benchmark.Timer(
        """
            runs.append(x)
        """,
        setup="x = len(runs)",
        globals={"runs": runs},
        timer=Clock(),
    )
    measurement = timer.timeit(200)
    assert runs == [0, 0] + [2] * 200
    assert (measurement.raw_times, measurement.number_per_run) == ([1.0], 200)
    assert measurement.stmt == "runs.append(x)"
    assert measurement.times == [1 / 200]


def test_statements_see_the_package_and_threads() -> None:
    thread_counts: list[int] = []
    before = wg.get_num_threads()
    globals_ = {"thread_counts": thread_counts}
    benchmark.Timer("thread_counts.append(torch.get_num_threads() + 0 * wg.ones(1).numel())", globals=globals_).timeit(
        1
    )
    assert set(thread_counts) == {1}
    assert wg.get_num_threads() == before
    assert globals_ == {"thread_counts": thread_counts}


def test_blocked_autorange() -> None:
    calls: list[tuple[int, float]] = []
    measurement = benchmark.Timer("x + x", globals={"x": wg.ones(100)}).blocked_autorange(
        lambda number, seconds: calls.append((number, seconds)), min_run_time=0.02
    )
    assert sum(measurement.raw_times) >= 0.02
    assert calls == [(measurement.number_per_run, seconds) for seconds in measurement.raw_times]
    assert 0 < measurement.median < 0.01
    adaptive = benchmark.Timer("1 + 1").adaptive_autorange(1e-9, max_run_time=0.02)
    assert 0.02 < sum(adaptive.raw_times) < 2  # the threshold is never met


def test_the_clock_waits_for_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[None] = []
    monkeypatch.setattr(benchmark, "synchronize", lambda: waits.append(None))
    benchmark.Timer().timeit(3)
    assert len(waits) == 4  # two times, of the runs before and of the measured ones


def test_statistics() -> None:
    measurement = benchmark.Measurement(10, TIMES, benchmark.TaskSpec("x", "pass"))
    times = np.array(TIMES) / 10
    np.testing.assert_allclose(measurement.median, np.median(times), rtol=1e-12)
    np.testing.assert_allclose(measurement.mean, times.mean(), rtol=1e-12)
    np.testing.assert_allclose(measurement.iqr, np.subtract(*np.quantile(times, [0.75, 0.25])), rtol=1e-12)
    assert pickle.loads(pickle.dumps(measurement)) == copy.deepcopy(measurement) == measurement
    assert repr(measurement).splitlines()[1:] == [
        "x", "  Median: 115.00 us", "  IQR:    10.00 us (110.00 to 120.00)",
        "  5 measurements, 10 runs per measurement, 1 thread",
    ]  # fmt: skip
    with pytest.raises(AttributeError, match="other"):
        _ = measurement.other


def test_errors() -> None:
    for create, error in (
        (lambda: benchmark.Timer(len), ValueError),  # type: ignore[arg-type]
        (lambda: benchmark.Timer(language="c++"), NotImplementedError),
        (lambda: benchmark.Timer(global_setup="x = 1"), ValueError),
        (lambda: benchmark.Compare([1]), ValueError),  # type: ignore[list-item]
        (lambda: benchmark.Timer().repeat(), NotImplementedError),
        (lambda: benchmark.Timer().autorange(), NotImplementedError),
    ):
        with pytest.raises(error):
            create()
