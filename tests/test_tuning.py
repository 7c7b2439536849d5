"""Search for faster schedules: what is measured and kept, the file of tuned schedules, and when nothing is tuned."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuning_calls import CPU, exp_call

import weftgrad as wg
from weftgrad.runtime import schedules
from weftgrad.runtime.context import set_stream, state
from weftgrad.runtime.dispatch import plan_for
from weftgrad.runtime.errors import ArgumentError, CompileError
from weftgrad.runtime.records import registry
from weftgrad.runtime.tuning import autotune, search, store
from weftgrad.runtime.tuning.measure import Call

pytestmark = pytest.mark.usefixtures("tuned_file")

# The search


def test_the_fastest_that_is_right_is_found_and_kept(scripted: Any, tuned_file: Path) -> None:
    cores = CPU.driver.capabilities.cores
    # The fastest gives other results; then comes what has 4 parts a core. What is slow is measured least.
    scripted.seconds = staticmethod(lambda parts: {2 * cores: 1e-3, 4 * cores: 2e-3, 8 * cores: 9e-3}.get(parts, 3e-3))
    scripted.wrong = staticmethod(lambda parts: parts == 2 * cores)
    outcome = search.tune(exp_call(), 60.0)
    assert outcome is not None
    (choice,) = outcome.choices.values()
    assert choice is not None
    assert choice["parts"] == 4
    assert (outcome.baseline_seconds, outcome.candidate_seconds) == (3e-3, 2e-3)
    assert outcome.wrong >= 1
    assert scripted.samples[8 * cores] < scripted.samples[4 * cores]
    default_plan = plan_for(registry["exp"], [wg.empty(40_000)])
    y = wg.ones(40_000).exp()
    plans = len(state().plans)
    assert plans
    assert search.keep_outcomes([outcome])
    assert not state().plans
    tuned_plan = plan_for(registry["exp"], [wg.empty(40_000)])
    assert default_plan.steps[0].global_size == (cores,)
    assert tuned_plan.steps[0].global_size == (4 * cores,)
    assert plan_for(registry["exp"], [wg.empty(33_000)]).steps[0].global_size == (4 * cores,)  # of the same class
    assert plan_for(registry["exp"], [wg.empty(70_000)]).steps[0].global_size == (cores,)
    assert np.array_equal(wg.ones(40_000).exp().numpy(), y.numpy())
    schedules.forget()  # another process reads the file
    assert plan_for(registry["exp"], [wg.empty(40_000)]).steps == tuned_plan.steps
    assert list(json.loads(tuned_file.read_text())["devices"]) == [schedules.device_key(CPU.driver)]


def test_what_is_not_faster_beyond_noise_is_not_kept(scripted: Any) -> None:
    scripted.seconds = staticmethod(lambda parts: 1e-3 if parts == CPU.driver.capabilities.cores else 0.985e-3)
    outcome = search.tune(exp_call(), 60.0)
    assert outcome is not None
    assert list(outcome.choices.values()) == [None]
    assert outcome.gain == 1.0


def test_a_budget_is_kept_to(scripted: Any) -> None:
    """A search with less time takes fewer samples. Every sample takes 5 ms, and no candidate is better than another."""

    def slow(parts: int) -> float:
        time.sleep(0.005)
        return 5e-3

    scripted.seconds = staticmethod(slow)
    counts = []
    for budget in (0.01, 60.0):
        scripted.samples.clear()
        assert search.tune(exp_call(), budget) is not None
        counts.append(sum(scripted.samples.values()))
    assert counts[0] < counts[1] / 2, counts


def test_a_candidate_that_fails_is_dropped(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = CPU.driver.capabilities.cores
    scripted.seconds = staticmethod(lambda parts: {2 * cores: 1e-3, 4 * cores: 2e-3}.get(parts, 3e-3))
    prepare = scripted.prepare

    def failing(self: Any, planned: Any) -> Any:
        if planned.steps[0].global_size[0] == 2 * cores:
            raise CompileError("not this one")
        return prepare(self, planned)

    monkeypatch.setattr(scripted, "prepare", failing)
    outcome = search.tune(exp_call(), 60.0)
    assert outcome is not None
    (choice,) = outcome.choices.values()
    assert choice is not None
    assert (choice["parts"], outcome.failed > 0) == (4, True)


# What is kept

WRITER = """
import sys
from weftgrad.runtime.tuning import store

for i in range(40):
    assert store.merge("some device", {f"{sys.argv[1]} {i}": {"choice": None}})
"""


def test_processes_that_write_at_once_lose_nothing(tuned_file: Path, tmp_path: Path) -> None:
    import os

    environment = {**os.environ, "WEFTGRAD_CACHE": str(tuned_file.parent)}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name], env=environment, cwd=tmp_path) for name in "ab"]
    assert [w.wait(60) for w in writers] == [0, 0]
    assert sorted(store.choices("some device")) == sorted(f"{name} {i}" for name in "ab" for i in range(40))
    assert {p.name for p in tuned_file.parent.iterdir()} == {"schedules.json", "schedules.lock"}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 99, "devices": {}}',
        '{"version": 2, "devices": {"d": {"k": 7}}}',
        "\0" * 10,
        # Version 1 had other names of parameters.
        '{"version": 1, "devices": {"d": {"k": {"choice": {"parts": 4, "width": null, "stream": 8388608}}}}}',
    ],
)
def test_a_file_that_cannot_be_read_is_put_aside(tuned_file: Path, text: str) -> None:
    tuned_file.parent.mkdir()
    tuned_file.write_text(text)
    with pytest.warns(UserWarning, match="holds no tuned schedules"):
        wg.ones(3).exp()
    schedules.forget()
    assert wg.ones(4).exp().shape == (4,)  # without another warning
    assert tuned_file.with_suffix(".unreadable").read_text() == text
    assert store.merge("d", {"k": {"choice": {"tile": (1, 2)}}})
    assert store.choices("d") == {"k": {"tile": (1, 2)}}


def test_a_choice_of_another_version_is_not_used() -> None:
    device = schedules.device_key(CPU.driver)
    key = next(q.key for q in exp_call().plan()[1])
    shipped = plan_for(registry["exp"], [wg.empty(40_000)])
    whole = {"parts": 4, "width": None, "min_streamed_nbytes": 8388608}
    for choice in ({"parts": 4}, {**whole, "parts": 5}, {**whole, "width": 64}, {**whole, "more": 1}):
        schedules.add_tuned_choices(device, {key: choice})
        assert plan_for(registry["exp"], [wg.empty(40_000)]) == shipped


def test_without_a_place_to_write_it_lasts_as_long_as_the_process(scripted: Any, monkeypatch: pytest.MonkeyPatch,
                                                                  tmp_path: Path) -> None:  # fmt: skip
    cores = CPU.driver.capabilities.cores
    scripted.seconds = staticmethod(lambda parts: 2e-3 if parts == 4 * cores else 3e-3)
    (tmp_path / "file").write_text("")
    for folder in (None, tmp_path / "file" / "cache"):
        monkeypatch.setattr(store, "cache_folder", lambda f=folder: f)
        schedules.forget()
        outcome = search.tune(exp_call(), 60.0)
        assert outcome is not None
        assert not search.keep_outcomes([outcome])
        assert plan_for(registry["exp"], [wg.empty(40_000)]).steps[0].global_size == (4 * cores,)
        assert store.entries() == {}


# When nothing is tuned


def test_misses_are_tuned_once(tuned_calls: list[Call], tuned_file: Path, capsys: Any) -> None:
    cores = CPU.driver.capabilities.cores
    x = wg.ones(40_000)
    tuned_calls.clear()
    for _ in range(3):
        y = x.exp()
    assert [c.record.name for c in tuned_calls] == ["exp"]
    assert plan_for(registry["exp"], [x]).steps[0].global_size == (8 * cores,)
    wg.ones(39_000).exp()  # of the same class
    assert [c.record.name for c in tuned_calls] == ["exp"]
    np.testing.assert_allclose(y.numpy(), np.e, rtol=1e-6)
    message = capsys.readouterr().err
    assert message.count("calls are tuned when they are first planned, up to 0.5 s each") == 1
    assert str(tuned_file) in message
    autotune._report.print_summary()
    assert re.fullmatch(r"weftgrad: tuned \d calls in 0\.\d s; of \d something faster.*\n", capsys.readouterr().err)


def test_nothing_is_tuned_where_it_would_disturb(tuned_calls: list[Call], monkeypatch: pytest.MonkeyPatch) -> None:
    x = wg.ones(40_000)
    tuned_calls.clear()
    before_all = schedules.tuned_choices(schedules.device_key(CPU.driver))
    with schedules.frozen():  # a region that is timed
        x.exp()
    monkeypatch.setattr(CPU.driver, "captures", 1, raising=False)  # a graph is captured
    x.sin()
    monkeypatch.undo()
    monkeypatch.setattr(schedules, "on_plan", autotune.tune)
    own_stream = set_stream(CPU, CPU.driver.new_stream())
    try:
        x.cos()
        CPU.driver.synchronize()
    finally:
        set_stream(CPU, own_stream)
    with wg.profiler.profile():
        x.tan()
    with autotune._lock:  # another thread tunes
        x.tanh()
    assert tuned_calls == []
    assert schedules.tuned_choices(schedules.device_key(CPU.driver)) == before_all


@pytest.mark.parametrize("text", ["", "-1", "soon", "inf", "nan"])
def test_a_budget_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WEFTGRAD_TUNE_SECONDS", text)
    with pytest.raises(ArgumentError, match="WEFTGRAD_TUNE_SECONDS"):
        autotune.seconds()
