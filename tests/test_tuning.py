"""Schedules as data, and the search for better ones: every candidate is right, what is found is kept and used, and
nothing is tuned where that would disturb what runs."""

from __future__ import annotations

import atexit
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vendors
from op_running import THOROUGH

import weftgrad as wg
from weftgrad.cli import main, tune_program
from weftgrad.cli.compile import compile_step, planning_device
from weftgrad.cli.samples import capture_steps
from weftgrad.codegen import schedules as declared
from weftgrad.nn import functional as F
from weftgrad.runtime import schedules
from weftgrad.runtime.backends.protocol import Step
from weftgrad.runtime.context import set_stream, state
from weftgrad.runtime.device import device
from weftgrad.runtime.dispatch import plan_for
from weftgrad.runtime.errors import ArgumentError, CompileError
from weftgrad.runtime.kinds import many
from weftgrad.runtime.multi_tensor import MultiTensor
from weftgrad.runtime.records import registry
from weftgrad.runtime.tuning import autotune, search, store
from weftgrad.runtime.tuning.evidence import Evidence, compare_samples, sign_test_p_value
from weftgrad.runtime.tuning.measure import Call, Trials, differ
from weftgrad.runtime.tuning.program import record_uses, run_trial
from weftgrad.runtime.tuning.record import Recording
from weftgrad.runtime.tuning.trial import Trial

CPU: Any = device("cpu")
STYLES: dict[str, dict[str, Any]] = {
    "cpu": {"cores": 16, "stream": 10 << 20, "stream_rows": 40 << 20, "lanes": 16, "registers": 32},
    "gpu": {"style": "gpu", "lanes": 4, "max_group": 512, "local_memory": 48 * 1024, "cores": 40},
    "triton": {"style": "triton", "sm": 90, "cores": 132, "lanes": 4, "max_group": 1024, "local_memory": 227 * 1024},
}
PREFIX = {"cpu": "opencl-cpu/", "gpu": "opencl-gpu/", "triton": "triton/"}


@pytest.fixture(autouse=True)
def tuned_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Tuned schedules in a file of the test's own, and none known afterwards. Kernels stay in the user's cache."""
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("WEFTGRAD_TUNE", raising=False)
    schedules.forget()
    yield tmp_path / "cache" / "schedules.json"
    monkeypatch.undo()
    schedules.forget()


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`cpu` as a device of this style. What is planned for Triton does not run there."""
    pose = vendors.change_capabilities(STYLES[request.param], monkeypatch)
    next(pose)
    if request.param == "triton":
        monkeypatch.setattr(CPU.driver, "target", "triton", raising=False)
    yield request.param
    next(pose, None)


def recorded(run: Callable[[], object], every: bool = False) -> list[Call]:
    """The calls of `run` that have a choice on this device, or all of them, without running them."""
    with capture_steps(CPU), Recording() as recording:
        run()
    return [use.call for use in recording.uses() if (use.questions or every) and use.call.record.kind != "random"]


def products() -> None:
    for m, n, k in ((70, 150, 37), (5, 70, 300)):
        wg.mm(wg.empty(m, k), wg.empty(k, n))
        wg.mm(wg.empty(k, m).t(), wg.empty(k, n))
        wg.mm(wg.empty(m, k), wg.empty(n, k).t())


def convolutions() -> None:
    for ins, outs in ((3, 9), (1, 1)):
        x, w = wg.empty(2, ins, 9, 9, requires_grad=True), wg.empty(outs, ins, 3, 3, requires_grad=True)
        F.conv2d(x, w, padding=1).sum().backward()


def rows() -> None:
    wg.empty(13, 37).softmax(-1)
    wg.empty(37, 40).softmax(0)
    wg.empty(40, 300).sum(1)
    wg.empty(300, 40).sum(0)
    wg.empty(3, 20000).amax(1)
    wg.empty(33, 70) + wg.empty(70, 33).t()
    wg.empty(33, 70) * wg.empty(33, 70)


def lines() -> None:
    wg.empty(5, 300).cumsum(1)
    wg.empty(70, 20).cumsum(0)
    wg.empty(2, 9000).cumsum(1)
    wg.empty(3, 300).sort(1)
    wg.empty(1, 5000).sort(1)


def heads() -> None:
    q, k, v = (wg.empty(1, 2, n, 8, requires_grad=True) for n in (37, 41, 41))
    F.scaled_dot_product_attention(q, k, v).sum().backward()


def places() -> None:
    """Windows, indices, distances, resampling."""
    x, index = wg.empty(1, 3, 12, 20, requires_grad=True), wg.empty(9, 20, dtype=wg.int64)
    (F.max_pool2d(x, 3, 2).sum() + F.interpolate(x, size=(17, 20), mode="bilinear").sum()).backward()
    wg.empty(40, 20).gather(0, index)
    wg.empty(40, 20).scatter_add(0, index, wg.empty(9, 20))
    wg.cdist(wg.empty(20, 30), wg.empty(40, 30))


SMALL = {f.__name__: f for f in (products, convolutions, rows, lines, heads, places)}


def large() -> None:
    """What is large enough, or of such a form, that each parameter makes a difference on some device."""
    for m, n, k in ((1024, 1024, 1024), (16, 4096, 4096), (3, 4096, 512), (300, 300, 300), (2, 900, 900), (8, 40, 900),
                    (100, 128, 4096)):  # fmt: skip
        wg.mm(wg.empty(m, k), wg.empty(k, n))
        wg.mm(wg.empty(k, m).t(), wg.empty(k, n))
        wg.mm(wg.empty(m, k), wg.empty(n, k).t())
    wg.mm(wg.empty(5000, 3), wg.empty(3, 4))
    wg.mm(wg.empty(2048, 1024, dtype=wg.float16), wg.empty(1024, 2048, dtype=wg.float16))
    wg.bmm(wg.empty(80, 100, 64), wg.empty(80, 64, 64))
    wg.mm(wg.empty(512, 128, dtype=wg.float16), wg.empty(128, 512, dtype=wg.float16))
    for ins, outs, side in ((3, 64, 64), (64, 128, 28), (1, 1, 200), (2, 4, 100), (256, 256, 14), (4, 48, 28)):
        x, w = wg.empty(16, ins, side, side, requires_grad=True), wg.empty(outs, ins, 3, 3, requires_grad=True)
        F.conv2d(x, w, padding=1).sum().backward()
    for ins, outs in ((3, 8), (12, 12)):  # volumes, whose kernels are not those of images
        x = wg.empty(8, ins, 24, 24, 24, requires_grad=True)
        F.conv3d(x, wg.empty(outs, ins, 3, 3, 3, requires_grad=True), padding=1).sum().backward()
    F.conv2d(wg.empty(4, 3, 30, 30, dtype=wg.float64), wg.empty(8, 3, 3, 3, dtype=wg.float64))
    F.conv2d(wg.empty(4, 2, 30, 30), wg.empty(3, 2, 5, 5), dilation=3)
    F.max_pool3d(wg.empty(8, 8, 24, 24, 24, requires_grad=True), 3, 2).sum().backward()
    for shape in ((4096, 3000), (64, 50257), (20, 14000), (4096, 5000), (4096, 3008), (1024, 3008), (4096, 100),
                  (4096, 2304), (1024, 2304)):  # fmt: skip
        wg.empty(*shape).softmax(-1)
        wg.empty(*shape) + wg.empty(*shape)
        for dim in (0, 1):
            wg.empty(*shape).sum(dim)
            wg.empty(*shape).cumsum(dim)
    wg.empty(1 << 22).sum()
    wg.empty(1, 1 << 22).cumsum(1)
    for n in (20000, 40000):
        wg.empty(1, n).cumsum(1)
    wg.empty(1, 1 << 22).sort(1)
    wg.empty(1, 1 << 19).sort(1)
    wg.empty(1, 3000).sort(1)
    for n in (6000, 20000):
        wg.empty(1, n).sort(1)
    wg.empty(1, 1 << 24).topk(64)
    wg.empty(2, 100).sort(1)
    for n in (16, 1024):
        q, k, v = (wg.empty(4, 8, n, 64, requires_grad=True) for _ in range(3))
        F.scaled_dot_product_attention(q, k, v).sum().backward()
    places()
    for n in (200, 1 << 12):  # few indices are compared with each position, many are sorted
        wg.empty(1, 1 << 16).scatter_add(1, wg.empty(1, n, dtype=wg.int64), wg.empty(1, n))
    F.interpolate(wg.empty(1, 8, 64, 64), scale_factor=2, mode="bilinear")
    wg.empty(4096, 64).gather(0, wg.empty(4096, 64, dtype=wg.int64))
    wg.cdist(wg.empty(100, 30), wg.empty(100, 30))


@cache
def large_calls() -> tuple[Call, ...]:
    return tuple(recorded(large, every=True))


# --- Spaces -----------------------------------------------------------------------------------------------------------


def test_every_parameter_of_every_space_changes_some_plan(style: str) -> None:
    """A parameter that no planner reads, or a value that nothing follows from, would be searched for nothing."""
    moved: set[tuple[str, str, Any]] = set()
    for call in large_calls():
        planned, questions = call.plan()
        for space, names in {q.space.name: (q.space, q.names) for q in questions}.values():
            for parameter, (_, values) in space.parameters.items():
                for value in values:
                    changed = {**space.fallback, parameter: value}
                    if (space.name, parameter, value) in moved or not space.allows(changed, names):
                        continue
                    if call.plan({space.name: changed})[0] != planned:
                        moved.add((space.name, parameter, value))
    for name, space in schedules.spaces.items():
        if name == PREFIX[style] + "many":
            moved |= {(name, parameter, value) for parameter, value in tables(space)}
    ours = [space for name, space in schedules.spaces.items() if name.startswith(PREFIX[style])]
    assert ours
    every = {(s.name, p, v) for s in ours for p, (_, values) in s.parameters.items() for v in values}
    shipped = {(s.name, p, v) for s in ours for p, v in s.fallback.items()}
    assert sorted(every - moved - shipped, key=repr) == []


def tables(space: schedules.Space) -> Iterator[tuple[str, Any]]:
    """Parameters and values of many tensors' schedule that make another table of runs."""

    def run_tables(choice: Any) -> list[Any]:
        with schedules.planning({space.name: choice}):
            tables = [
                many.divide_into_runs(registry["sgd_step"], [wg.float32] * 2, CPU, [n, 5]) for n in (1 << 22, 1 << 28)
            ]
        return [(runs.group, runs.items, runs.count.tolist()) for runs in tables]

    shipped = run_tables(space.fallback)
    for parameter, (_, values) in space.parameters.items():
        yield from ((parameter, v) for v in values if run_tables({**space.fallback, parameter: v}) != shipped)


@pytest.mark.parametrize("style", ["gpu"], indirect=True)
def test_every_table_of_many_tensors_is_the_same_update(style: str) -> None:
    space = schedules.spaces["opencl-gpu/many"]
    start_values = [np.linspace(0, 1, n, dtype=np.float32) for n in (70_000, 3, 1500)]
    for parameter, value in tables(space):
        with schedules.planning({space.name: {**space.fallback, parameter: value}}):
            tensors = [wg.tensor(x) for x in start_values]
            MultiTensor(registry["sgd_step"])([tensors, [wg.ones(len(x)) for x in start_values]], (0.5, 0.0, 1.0))
        for x, tensor in zip(start_values, tensors, strict=True):
            np.testing.assert_allclose(tensor.numpy(), x - 0.5, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("style", ["cpu", "gpu"], indirect=True)
@pytest.mark.parametrize(
    "group", [pytest.param(n, marks=pytest.mark.thorough) if n in ("heads", "convolutions") else n for n in SMALL]
)
def test_every_candidate_gives_the_same_results(style: str, group: str) -> None:
    """All choices that differ from the shipped one in one parameter; those of several are made of the same parts."""
    compared_steps: set[tuple[Step, ...]] = set()
    assert sum(candidates_agree(call, compared_steps) for call in recorded(SMALL[group])) > 3


def test_every_candidate_gives_the_same_results_on_triton() -> None:
    """By the interpreter; sorts, whose candidates differ in numbers of programs only, would take it half a minute."""
    pytest.importorskip("triton")
    place = device("interpreter")

    def empty(*shape: int, **more: Any) -> Any:
        return wg.empty(*shape, device=place, **more)

    with capture_steps(place), Recording() as recording:
        empty(33, 70) + empty(70, 33).t()
        wg.mm(empty(20, 33).t(), empty(20, 40))
        empty(13, 37).softmax(-1)
        empty(40, 30).sum(1)
        empty(5, 30).cumsum(1)
        q, k, v = (empty(1, 2, n, 8, requires_grad=True) for n in (17, 21, 21))
        F.scaled_dot_product_attention(q, k, v).sum().backward()
        F.conv2d(empty(2, 3, 5, 5, requires_grad=True), empty(4, 3, 3, 3, requires_grad=True)).sum().backward()
        F.avg_pool2d(empty(1, 3, 12, 20), 3)
        F.interpolate(empty(1, 2, 9, 40), size=(9, 60), mode="bilinear")
        empty(40, 20).scatter_add(0, empty(9, 20, dtype=wg.int64), empty(9, 20))
        wg.cdist(empty(17, 9), empty(33, 9))
    calls = [use.call for use in recording.uses() if use.questions]
    assert sum(candidates_agree(call, set()) for call in calls) > 40


def candidates_agree(call: Call, compared_steps: set[tuple[Step, ...]]) -> int:
    """How many plans differ from the shipped one, by one parameter; all give the same results."""
    planned, questions = call.plan()
    trials = Trials(call, planned)
    plans = {planned: "shipped"}
    for space, names in {q.space.name: (q.space, q.names) for q in questions}.values():
        for choice in search.neighbours(space, space.fallback, names):
            changes = {k: v for k, v in choice.items() if v != space.fallback[k]}
            plans.setdefault(call.plan({space.name: choice})[0], f"{space.name} {changes}")
    plans = {p: how for p, how in plans.items() if p.steps not in compared_steps}
    different = len(plans) - 1
    if not THOROUGH:  # each candidate is a kernel to compile: .ci/run goes through all of them
        plans = dict(list(plans.items())[::3])
    compared_steps.update(p.steps for p in plans)
    trials.build(list(plans))
    expected = trials.results(trials.prepare(planned))
    assert all(np.isfinite(e).all() for e in expected)
    for plan, how in plans.items():
        assert not differ(expected, trials.results(trials.prepare(plan)), planned.outputs), f"{call}: {how}"
    return different


def test_defaults_for_gpus_spill_nothing_at_sizes_that_fill_tiles() -> None:
    """`weftgrad compile` sees the calls of the tests, which are smaller, and have no dropout."""
    pytest.importorskip("triton")
    device = planning_device("sm_80")
    assert [schedules.device_class(planning_device(sm).driver) for sm in ("sm_80", "sm_90")] == ["sm_80", "sm_90"]
    image, weight = (wg.empty(*shape, device=device) for shape in ((8, 64, 56, 56), (64, 64, 3, 3)))
    with capture_steps(device) as steps:
        F.conv2d(image, weight, padding=1)
        q, k, v = (wg.empty(2, 8, 512, 64, dtype=wg.float16, device=device, requires_grad=True) for _ in range(3))
        F.scaled_dot_product_attention(q, k, v, dropout_p=0.1).sum().backward()
    entries = ("convolution_channels", "attention_query")
    steps_by_entry = {s.instance.entry: s for s in steps if s.instance.entry in entries}
    assert len(steps_by_entry) == 2
    for step in steps_by_entry.values():
        row = compile_step("sm_80", step)
        assert row.is_good, row


def test_what_is_declared_is_checked() -> None:
    good: dict[str, Any] = {
        "sizes": ["n"], "parameters": {"p": {"values": ["auto", 1, [2, 3]]}}, "constraints": ["p is None or n > 1"],
        "defaults": {"fallback": {"p": "auto"}, "pocl": [{"when": "n <= 8", "set": {"p": [2, 3]}}]},
    }  # fmt: skip
    (space,) = declared.parse({"triton/some": good})
    assert space.parameters[0].values == (None, 1, (2, 3))
    assert space.defaults["pocl"][0].choice == {"p": (2, 3)}
    for changes, complaint in (
        ({"constraints": ["__import__('os')"]}, "calls something|names"), ({"constraints": ["q > 1"]}, "names 'q'"),
        ({"constraints": ["[n for n in (1,)]"]}, "no arithmetic"), ({"constraints": ["n >"]}, "no expression"),
        ({"defaults": {"fallback": {}}}, "each of p"), ({"defaults": {"fallback": {"p": 7}}}, "no value 7"),
        ({"defaults": {"fallback": {"p": 1}, "sm_70": {}}}, "sm_80"), ({"more": 1}, "has the fields"),
        ({"parameters": {"n": {"values": [1]}}}, "the name of another"), ({"parameters": {"p": {}}}, "list of values"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=complaint):
            declared.parse({"triton/some": {**good, **changes}})
    with pytest.raises(ValueError, match="TARGET/KIND"):
        declared.parse({"cuda/some": good})


def test_defaults_of_a_class_of_devices_hold_where_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    space = schedules.spaces["opencl-cpu/pointwise"]
    rule = (compile("numel <= 4096", "<test>", "eval"), {"parts": 8})
    changed = schedules.Space(
        space.name, "", space.sizes, space.parameters, space.fallback, space.constraints, {"pocl": (rule,)}
    )
    monkeypatch.setitem(schedules.spaces, space.name, changed)
    monkeypatch.setattr(type(CPU.driver), "identity", "Portable Computing Language, of the test")
    schedules._device_keys.clear()
    assert schedules.device_class(CPU.driver) == "pocl"
    parts = [plan_for(registry["exp"], [wg.empty(n)]).steps[0].global_size[0] for n in (4096, 4097)]
    assert parts == [8 * CPU.driver.capabilities.cores, 1]
    for identity, which in (("Intel(R) OpenCL, of the test", "intel_cpu"), ("clang 22.1.8, of the test", "clang")):
        monkeypatch.setattr(type(CPU.driver), "identity", identity)
        schedules._device_keys.clear()
        assert schedules.device_class(CPU.driver) == which
    monkeypatch.undo()
    schedules._device_keys.clear()
    for space in schedules.spaces.values():
        assert set(space.defaults) <= set(declared.CLASSES)


# --- The search -------------------------------------------------------------------------------------------------------


class Scripted(Trials):
    """A clock that tells what a choice is said to take, and results that are wrong where it says so."""

    seconds: Callable[[Any], float]
    wrong: Callable[[Any], bool]
    samples: dict[Any, int]

    def prepare(self, planned: Any) -> Any:
        run = super().prepare(planned)

        def ran(*args: Any) -> None:
            run(*args)

        ran.planned = planned  # type: ignore[attr-defined]
        return ran

    def sample(self, run: Any, n: int) -> float:
        parts = run.planned.steps[0].global_size[0]
        Scripted.samples[parts] = Scripted.samples.get(parts, 0) + 1
        return Scripted.seconds(parts)

    def results(self, run: Any) -> list[Any]:
        outputs = super().results(run)
        return [f + 1 for f in outputs] if Scripted.wrong(run.planned.steps[0].global_size[0]) else outputs


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    monkeypatch.setattr(search, "Trials", Scripted)
    Scripted.samples = {}
    Scripted.wrong = staticmethod(lambda parts: False)  # type: ignore[method-assign,assignment]
    return Scripted


def some(numel: int = 40_000) -> Call:
    return Call(registry["exp"], (wg.empty(numel).meta,), (), CPU)


def test_the_fastest_that_is_right_is_found_and_kept(scripted: Any, tuned_file: Path) -> None:
    cores = CPU.driver.capabilities.cores
    # The fastest gives other results; then comes what has 4 parts a core. What is slow is measured least.
    scripted.seconds = staticmethod(lambda parts: {2 * cores: 1e-3, 4 * cores: 2e-3, 8 * cores: 9e-3}.get(parts, 3e-3))
    scripted.wrong = staticmethod(lambda parts: parts == 2 * cores)
    outcome = search.tune(some(), 60.0)
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
    outcome = search.tune(some(), 60.0)
    assert outcome is not None
    assert list(outcome.choices.values()) == [None]
    assert outcome.gain == 1.0


def test_a_budget_is_kept_to(scripted: Any) -> None:
    def slow(parts: int) -> float:
        time.sleep(0.005)
        return 5e-3

    scripted.seconds = staticmethod(slow)
    begin = time.perf_counter()
    assert search.tune(some(), 0.05) is not None
    assert time.perf_counter() - begin < 5.0  # with what is built, and the last race


def test_a_candidate_that_fails_is_dropped(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = CPU.driver.capabilities.cores
    scripted.seconds = staticmethod(lambda parts: {2 * cores: 1e-3, 4 * cores: 2e-3}.get(parts, 3e-3))
    prepare = scripted.prepare

    def failing(self: Any, planned: Any) -> Any:
        if planned.steps[0].global_size[0] == 2 * cores:
            raise CompileError("not this one")
        return prepare(self, planned)

    monkeypatch.setattr(scripted, "prepare", failing)
    outcome = search.tune(some(), 60.0)
    assert outcome is not None
    (choice,) = outcome.choices.values()
    assert choice is not None
    assert (choice["parts"], outcome.failed > 0) == (4, True)


# --- What is kept -----------------------------------------------------------------------------------------------------

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
    key = next(q.key for q in some().plan()[1])
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
        outcome = search.tune(some(), 60.0)
        assert outcome is not None
        assert not search.keep_outcomes([outcome])
        assert plan_for(registry["exp"], [wg.empty(40_000)]).steps[0].global_size == (4 * cores,)
        assert store.entries() == {}


# --- When nothing is tuned --------------------------------------------------------------------------------------------


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """`WEFTGRAD_TUNE=1`, with a search that finds what it is told; the calls it was asked about."""
    calls: list[Call] = []

    def tune(call: Call, seconds: float) -> search.Outcome:
        assert seconds == 0.5
        calls.append(call)
        _, questions = call.plan()
        choices = {q.key: {**q.answer, "parts": 8} for q in questions}
        return search.Outcome(call, choices, 2e-3, 1e-3, 1, 0, 0)

    monkeypatch.setattr(search, "tune", tune)
    monkeypatch.setattr(schedules, "on_plan", autotune.tune)
    monkeypatch.setattr(autotune, "_report", autotune._ProgressReport())
    monkeypatch.setattr(atexit, "register", lambda function: None)
    return calls


def test_misses_are_tuned_once(asked_for: list[Call], tuned_file: Path, capsys: Any) -> None:
    cores = CPU.driver.capabilities.cores
    x = wg.ones(40_000)
    asked_for.clear()
    for _ in range(3):
        y = x.exp()
    assert [c.record.name for c in asked_for] == ["exp"]
    assert plan_for(registry["exp"], [x]).steps[0].global_size == (8 * cores,)
    wg.ones(39_000).exp()  # of the same class
    assert [c.record.name for c in asked_for] == ["exp"]
    np.testing.assert_allclose(y.numpy(), np.e, rtol=1e-6)
    message = capsys.readouterr().err
    assert message.count("calls are tuned when they are first planned, up to 0.5 s each") == 1
    assert str(tuned_file) in message
    autotune._report.print_summary()
    assert re.fullmatch(r"weftgrad: tuned \d calls in 0\.\d s; of \d something faster.*\n", capsys.readouterr().err)


def test_nothing_is_tuned_where_it_would_disturb(asked_for: list[Call], monkeypatch: pytest.MonkeyPatch) -> None:
    x = wg.ones(40_000)
    asked_for.clear()
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
    assert asked_for == []
    assert schedules.tuned_choices(schedules.device_key(CPU.driver)) == before_all


@pytest.mark.parametrize("text", ["", "-1", "soon", "inf", "nan"])
def test_a_budget_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WEFTGRAD_TUNE_SECONDS", text)
    with pytest.raises(ArgumentError, match="WEFTGRAD_TUNE_SECONDS"):
        autotune.seconds()


# --- What a program uses, and the command -----------------------------------------------------------------------------

PROGRAM = """
import sys
import weftgrad as wg
import helper
x = wg.ones(64, 30, requires_grad=True)
for _ in range(int(sys.argv[1])):
    helper.step(x)
print("ran", sys.argv[1:])
"""
HELPER = """
import weftgrad as wg
def step(x):
    (x @ wg.ones(30, 50)).exp().sum().backward()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


def test_modules_of_a_program_that_changes_its_folder_are_unloaded(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text("import os, helper\nos.mkdir('inner')\nos.chdir('inner')\n")
    monkeypatch.chdir(tmp_path)  # also restores the working directory
    record_uses(["program.py"])
    assert "helper" not in sys.modules


def test_what_a_program_calls_is_recorded_with_its_gradients(program: Path, capsys: Any) -> None:
    uses_by_call = {(u.call.record.name, str(u.call)): u for u in record_uses([str(program), "5", "--fast"])}
    assert capsys.readouterr().out == "ran ['5', '--fast']\n"
    counts = {name: use.count for (name, _), use in uses_by_call.items()}
    assert counts["mm"] == counts["exp"] == counts["mm_grad_input"] == counts["sum"] == 5
    assert all(use.seconds > 0 for use in uses_by_call.values())
    uses = [use for (name, _), use in uses_by_call.items() if name == "mm"]
    assert "float32 64x64x32x1 NN" in uses[0].questions[0].key
    assert schedules.on_plan is None
    with Recording(), pytest.raises(ArgumentError, match="goes on already"), Recording():
        pass


@pytest.mark.thorough
def test_a_program_is_tuned_for_what_it_calls(scripted: Any, program: Path, tuned_file: Path, capsys: Any) -> None:
    scripted.seconds = staticmethod(lambda size: 1e-3)
    assert main(["tune", "--time", "2s", "--verify", "--from", str(program), "3"]) == 0
    shown = capsys.readouterr().out
    assert "have a choice of schedules" in shown
    assert "as shipped" in shown
    assert "there is nothing to verify" in shown
    keys = next(iter(json.loads(tuned_file.read_text())["devices"].values()))
    assert all(key.startswith("opencl-cpu/") and " float32 " in key for key in keys)
    assert main(["tune", "--show"]) == 0
    listed = capsys.readouterr().out
    assert all(key in listed for key in keys)
    assert main(["tune", "--clear"]) == 0
    assert f"{len(keys)} tuned schedules forgotten" in capsys.readouterr().out
    assert main(["tune", "--show"]) == 0
    assert "nothing is saved" in capsys.readouterr().out


PLANTED = """
import dataclasses
import weftgrad as wg
from weftgrad.runtime import schedules
space = schedules.spaces["opencl-cpu/contraction"]
bad = {**space.fallback, "tile": (1, 4, 256)}
schedules.spaces[space.name] = dataclasses.replace(space, fallback=bad, defaults={})
x, y = wg.ones(200, 256), wg.ones(256, 256)
for _ in range(200):
    z = x @ y
"""


# Where nothing is built yet, building takes most of the first; a machine that does something else needs more samples.
BUDGETS = ("2s", "6s", "20s")


@pytest.mark.thorough
def test_a_default_that_is_bad_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The program comes with it; measured, not scripted."""
    name = "opencl-cpu/contraction"
    space = schedules.spaces[name]
    monkeypatch.setitem(schedules.spaces, name, space)
    path = tmp_path / "planted.py"
    path.write_text(PLANTED)
    for budget in BUDGETS:
        assert main(["tune", "--time", budget, "--from", str(path)]) == 0
        shown = capsys.readouterr().out
        if re.search(r"choices \d are faster there, 0 are not", shown):
            break
        assert main(["tune", "--clear"]) == 0
        capsys.readouterr()
    else:
        pytest.fail(f"not found in any of {', '.join(BUDGETS)}; at last:\n{shown}")
    tuned = schedules.tuned_choices(schedules.device_key(CPU.driver))
    ((key, choice),) = ((key, choice) for key, choice in tuned.items() if key.startswith(name))
    assert choice is not None
    assert choice["tile"] != (1, 4, 256)
    ((evidence, _),) = run_trial([str(path)], [key]).evidence(20)[key]
    assert evidence.gain > 1.2
    assert evidence.is_faster(0.2, 0.01)


@pytest.mark.parametrize(("gain", "wins"), [(0.9, 2), (1.2, 5), (1.005, 12)])
def test_what_is_not_faster_in_the_program_is_dropped(
    gain: float, wins: int, tmp_path: Path, scripted: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The search's clock says that 8 parts a core are fastest; in the program they are not."""
    evidence = Trial.evidence

    def slower(trial: Trial, fewest: int) -> dict[str, Any]:
        return {key: [(Evidence(gain, 1.0, gain, wins, 12), 1.0)] for key in evidence(trial, fewest)}

    monkeypatch.setattr(Trial, "evidence", slower)
    cores = CPU.driver.capabilities.cores
    scripted.seconds = staticmethod(lambda parts: 1e-3 if parts == 8 * cores else 2e-3)
    path = tmp_path / "exp.py"
    path.write_text("import weftgrad as wg\nx = wg.ones(1000)\nfor _ in range(100):\n    y = x.exp()\n")
    assert main(["tune", "--from", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "of 2 choices 0 are faster there, 1 are not and are dropped, 1 are called too seldom" in shown
    choices = schedules.tuned_choices(schedules.device_key(CPU.driver))
    tuned = {key.split()[1]: choice for key, choice in choices.items()}
    assert tuned["exp"] is None
    assert tuned["fill"] is not None


@pytest.mark.parametrize(
    ("tuned", "verdict", "is_kept"), [(0.9, "1.11x faster", True), (0.999, "no significant change", True),
                                   (1.25, "1.25x slower", False)],
)  # fmt: skip
def test_whole_programs_are_compared_in_pairs(
    tuned: float, verdict: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A machine gets slower while it measures: that is no change."""
    call = some()
    (question,) = call.plan()[1]
    outcome = search.Outcome(call, {question.key: {**question.answer, "parts": 8}}, 2e-3, 1e-3, 1, 0, 0)
    search.keep_outcomes([outcome])
    off = [1 + 0.2 * i for i in range(6)]
    runs = off, [tuned * t for t in off]
    monkeypatch.setattr(tune_program, "_time_runs", lambda program: (runs, runs))
    tune_program.restore_shipped_if_slower(["train.py"], [(None, outcome)])
    assert capsys.readouterr().out.count(verdict) == 2
    assert (schedules.tuned_choices(schedules.device_key(CPU.driver))[question.key] is not None) is is_kept


def test_what_samples_are_evidence_of() -> None:
    quiet, other = [1.0, 1.1, 5.0, 1.0, 1.2] * 8, [0.9, 1.0, 4.0, 0.9, 1.0] * 8
    evidence = compare_samples(quiet, other, quiet[::-1])
    assert (evidence.baseline_seconds, evidence.candidate_seconds, evidence.wins, evidence.blocks) == (1.0, 0.9, 13, 13)
    assert 1.09 < evidence.gain < 1.12
    assert evidence.is_faster(0.03, 0.002)
    assert not evidence.is_faster(0.15, 0.002)
    # The baseline differs as much from itself.
    assert not compare_samples(quiet, other, [1.2 * t for t in quiet]).is_faster(0.03, 0.002)
    assert not compare_samples(quiet[:5], other[:5]).is_faster(0.03, 0.002)  # five of five turns may be won by chance
    bursts = [1.0 if i % 4 else 9.0 for i in range(48)]  # in which every fourth sample is lost, of either in turn
    assert compare_samples(bursts, [0.9 * t for t in bursts[1:] + bursts[:1]]).wins == 12
    assert sign_test_p_value(5, 5) == 1 / 32
    assert sign_test_p_value(0, 7) == 1
    assert sign_test_p_value(3, 4) == 5 / 16


def test_an_interrupted_search_keeps_what_it_found(asked_for: list[Call], monkeypatch: pytest.MonkeyPatch,
                                                   capsys: Any) -> None:  # fmt: skip
    tune = search.tune

    def once(call: Call, seconds: float) -> Any:
        if asked_for:
            raise KeyboardInterrupt
        return tune(call, 0.5)

    monkeypatch.setattr(schedules, "on_plan", None)
    monkeypatch.setattr(search, "tune", once)
    assert main(["tune", "--ops", "exp,add", "--shapes", "300x300"]) == 130
    shown = capsys.readouterr().out
    assert "interrupted" in shown
    assert "2.00x" in shown
    assert len(schedules.tuned_choices(schedules.device_key(CPU.driver))) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["--ops", "nothing"], "no common shapes"), (["--ops", "conv2d", "--shapes", "7"], "takes none of these shapes"),
     (["--verify"], "--verify runs the program"), (["--from", "/nowhere.py"], "no program"),
     (["--from"], "needs a program")],
)  # fmt: skip
def test_what_cannot_be_tuned_is_told(words: list[str], complaint: str, capsys: Any) -> None:
    assert main(["tune", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_no_warning_without_a_file() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.entries() == {}
        assert store.clear() == 0
