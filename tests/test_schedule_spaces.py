"""Schedules as data: every parameter changes a plan, every candidate gives the same results, and defaults hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import vendors
from op_devices import THOROUGH
from tuning_calls import CPU

import weftgrad as wg
from weftgrad.cli.compile import compile_step, planning_device
from weftgrad.cli.samples import capture_steps
from weftgrad.codegen import schedules as declared
from weftgrad.nn import functional as F
from weftgrad.runtime import schedules
from weftgrad.runtime.backends.protocol import Step
from weftgrad.runtime.device import device
from weftgrad.runtime.dispatch import plan_for
from weftgrad.runtime.kinds import many
from weftgrad.runtime.multi_tensor import MultiTensor
from weftgrad.runtime.records import registry
from weftgrad.runtime.tuning import search
from weftgrad.runtime.tuning.measure import Call, Trials, differ
from weftgrad.runtime.tuning.record import Recording

pytestmark = pytest.mark.usefixtures("tuned_file")


STYLES: dict[str, dict[str, Any]] = {
    "cpu": {"cores": 16, "stream": 10 << 20, "stream_rows": 40 << 20, "lanes": 16, "registers": 32},
    "gpu": {"style": "gpu", "lanes": 4, "max_group": 512, "local_memory": 48 * 1024, "cores": 40},
    "triton": {"style": "triton", "sm": 90, "cores": 132, "lanes": 4, "max_group": 1024, "local_memory": 227 * 1024},
}

PREFIX = {"cpu": "opencl-cpu/", "gpu": "opencl-gpu/", "triton": "triton/"}


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
