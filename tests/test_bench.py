"""The benchmark: every row gives right values on small sizes, and times are reported correctly."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weftgrad.bench import command, core, gpu, library, references, running
from weftgrad.bench.cases import Case, Work, error_of, pieces, rotated
from weftgrad.bench.clocks import DeviceClock, WallClock
from weftgrad.bench.contenders import all_sites
from weftgrad.bench.measure import compare
from weftgrad.bench.peers.numpy import NumpySite
from weftgrad.bench.report import host_line, kernel_line
from weftgrad.bench.sites import OurSite, Site
from weftgrad.runtime.errors import ArgumentError

SCALE = 200  # not a power of two, so that some blocks are partial
# The interpreter adds into a table one element at a time.
ROWS = [*(c for c in gpu.cases(SCALE) if c.group != "index"), *(c for c in gpu.cases(2000) if c.group == "index")]
TRITON = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
HOST = pytest.mark.skipif(os.environ.get("WEFTGRAD_TEST_DEVICE", "cpu") != "cpu", reason="another device is tested")


def is_right(case: Case, site: Site) -> bool:
    """Return True if a row's values are right on a site, and False if the site does not run the row."""
    with site.precision(case.precision):
        work = case.on(site)
        if work is None:
            return False
        work.call()
        pairs = work.pairs()
    assert pairs
    assert all(expected.size and np.isfinite(expected).all() for _, expected in pairs)
    assert error_of(pairs) <= case.tolerance
    return True


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.name)
@pytest.mark.parametrize("device", [pytest.param("cpu", marks=HOST), pytest.param("interpreter", marks=TRITON)])
def test_gpu_rows(device: str, case: Case) -> None:
    assert is_right(case, OurSite(device, SCALE)) or "replayed" in case.name


def test_rows_with_numpy() -> None:
    site = NumpySite()
    assert {case.name.split()[0] for case in ROWS if is_right(case, site)} >= {"add", "exp", "fp32", "sum", "matmul"}


@TRITON
def test_a_training_step_is_replayed(cuda: Any, computing: Any) -> None:
    site = OurSite("cuda", SCALE)
    eager, replayed = (case for case in ROWS if case.group == "training")
    assert is_right(eager, site)
    assert "cuGraphLaunch" not in cuda.calls
    assert is_right(replayed, site)
    assert "cuGraphLaunch" in cuda.calls


@TRITON
def test_the_command_on_a_gpu(cuda: Any, computing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in's events measure no time, but kernels, events and graphs are used as on a GPU."""
    cuda.cuDriverGetVersion = lambda: (0, 13010)
    monkeypatch.setattr(DeviceClock, "max_calls", 2)
    output = tmp_path / "found.json"
    for only, rows, expected_peers in (("exp fp32 16M", 4, {"cpu"}), ("replayed", 1, set()), ("host view", 0, set())):
        args = options("--device", "cuda,cpu", "--scale", "1000", "--rounds", "1", "--only", only,
                         "--output", str(output))  # fmt: skip
        assert args.run(args) == 0
        report = json.loads(output.read_text())
        assert report["machine"]["devices"][0]["driver"] == "CUDA 13.1"
        assert len(report["kernels"]) == rows
        assert all({"cuda:0"} | expected_peers <= set(row["times"]) for row in report["kernels"])
    assert report["host"][0]["peers"].keys() >= {"cpu"}


@HOST
def test_cpu_rows() -> None:
    """The rows for CPUs, at the smallest size of each group."""
    groups = {case.group for case in core.cases() if case.matches(" 64K") or case.matches(" 512") or case.matches("1K")
            if is_right(case, OurSite("cpu"))}  # fmt: skip
    assert groups == {"elementwise", "latency", "matmul"}


SMALL_ROWS = ("3x3 32x1x28x28", "average 3x3/2", "scatter_add 1M", "logcumsumexp", "topk 100", "1x8x512x64", "tril")


@HOST
def test_rows_of_the_op_library() -> None:
    """One or two rows of each group have right values and gradients."""
    cases = [case for case in library.cases() if any(case.matches(text) for text in SMALL_ROWS)]
    assert {case.group for case in cases} == {case.group for case in library.cases()}
    assert sum("gradient" in case.name for case in cases) > 3
    assert all(is_right(case, OurSite("cpu")) for case in cases)


def test_rows_differ_by_name() -> None:
    for rows in (list(core.cases()), list(library.cases()), ROWS):
        assert len({case.name for case in rows}) == len(rows)


# References


def test_references_of_gradients() -> None:
    """Compare the gradients with finite differences of the functions."""
    rng = np.random.default_rng(1)
    x, w, b, g = (rng.standard_normal(shape) for shape in ((3, 5), (5,), (5,), (3, 5)))
    target = np.array([1, 4, 0])

    def numerical_gradient(function: Any, point: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        gradient = np.empty_like(point)
        for i in np.ndindex(point.shape):
            step = np.zeros_like(point)
            step[i] = 1e-5
            gradient[i] = (function(point + step) - function(point - step)) / 2e-5
        return gradient

    close = {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(
        references.softmax_grad(x, g), numerical_gradient(lambda v: (g * references.softmax(v)).sum(), x), **close
    )
    grads = references.layer_norm_grads(x, w, b, g)
    for i, actual in enumerate(grads):

        def perturbed(value: Any, i: int = i) -> float:
            return float((g * references.layer_norm(*[value if i == j else a for j, a in enumerate((x, w, b))])).sum())

        np.testing.assert_allclose(actual, numerical_gradient(perturbed, (x, w, b)[i]), **close)
    np.testing.assert_allclose(
        references.cross_entropy_grad(x, target, 3),
        numerical_gradient(lambda v: references.cross_entropy(v, target), x),
        **close,
    )
    parameters = [rng.standard_normal(shape) for shape in ((7, 5), (7,), (4, 7), (4,), (6, 4), (6,))]
    for i, actual in enumerate(references.mlp_grads(x, target, parameters)):

        def loss(v: Any, i: int = i) -> float:
            used = [v if i == j else a for j, a in enumerate(parameters)]
            y = np.maximum(x @ used[0].T + used[1], 0)
            y = np.maximum(y @ used[2].T + used[3], 0)
            return float(references.cross_entropy(y @ used[4].T + used[5], target))

        np.testing.assert_allclose(actual, numerical_gradient(loss, parameters[i]), rtol=1e-6, atol=1e-8)


def test_reference_of_an_embedding() -> None:
    index, grad_output = np.array([3, 0, 3, 5]), np.arange(8.0).reshape(4, 2)
    expected = [[2, 3], [0, 0], [0, 0], [4, 6], [0, 0], [6, 7], [0, 0]]
    assert references.embedding_grad(index, grad_output, 7).tolist() == expected


def test_reference_of_a_convolution() -> None:
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((2, 3, 5, 4)), rng.standard_normal((4, 3, 3, 3))
    output = references.conv2d(x, w)
    inner = (x[1, :, 1:4, 0:3] * w[2]).sum()
    corner = (x[0, :, 0:2, 2:4] * w[3, :, 1:, :2]).sum()
    assert output.shape == (2, 4, 5, 4)
    assert math.isclose(output[1, 2, 2, 1], inner)
    assert math.isclose(output[0, 3, 0, 3], corner)


# Measuring


class Event:
    """An event of a fake device, whose clock advances when work is queued."""

    now = 0.0  # the device's time when all queued work will be done
    host = 0.0

    def __init__(self) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = Event.now

    def query(self) -> bool:
        return self.at <= Event.host

    def synchronize(self) -> None:
        Event.host = max(Event.host, Event.now)

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1e3


def test_a_device_clock_keeps_the_device_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call takes 1 s on the host and 0.25 s on the device; the clock measures the device time."""
    from weftgrad.bench import clocks

    Event.now = Event.host = 0.0
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: Event.host)

    def queue(host_seconds: float, device_seconds: float) -> None:
        Event.host += host_seconds
        Event.now = max(Event.now, Event.host) + device_seconds

    clock = DeviceClock(Event, lambda: queue(0.01, 0.5), lambda: Event().synchronize())
    assert clock.time(lambda: queue(1.0, 0.25), 10) == (pytest.approx(2.5), False)
    assert clock.host == pytest.approx(1.0)
    slow = DeviceClock(Event, lambda: queue(0.01, 0.01), lambda: Event().synchronize())
    seconds, late = slow.time(lambda: queue(1.0, 0.25), 10)
    assert late
    assert seconds > 2.5


def test_slow_contenders_are_measured_once() -> None:
    class Clock:
        pause, max_calls, host, sample_seconds, max_samples = 0.0, 7, 0.0, 0.01, 3

        def __init__(self, seconds: float):
            self.seconds = seconds
            self.calls = 0

        def time(self, call: Any, n: int) -> tuple[float, bool]:
            self.calls += n
            return self.seconds * n, n > 3

    slow, fast = Clock(5.0), Clock(1e-4)
    timings = compare({"slow": (lambda: None, slow), "fast": (lambda: None, fast)}, rounds=2)
    assert slow.calls == 2
    assert (timings["slow"].least, timings["slow"].samples) == (5.0, 1)
    assert timings["fast"].samples == timings["fast"].late == 6
    assert timings["fast"].least == pytest.approx(1e-4)


def test_short_calls_have_many_short_samples_on_a_busy_host() -> None:
    """A sample of 2 ms fits between two interruptions by the scheduler; twelve of them are a round."""

    class Clock:
        pause, host, max_calls = 0.0, 0.0, WallClock.max_calls
        sample_seconds, max_samples = WallClock.sample_seconds, WallClock.max_samples

        def __init__(self, seconds: float):
            self.seconds, self.counts = seconds, list[int]()

        def time(self, call: Any, n: int) -> tuple[float, bool]:
            self.counts.append(n)
            return self.seconds * n, False

    clocks = {"short": Clock(1e-4), "long": Clock(0.02)}
    timings = compare({name: (lambda: None, clock) for name, clock in clocks.items()}, rounds=3)
    assert clocks["short"].counts[-1] == 20
    assert clocks["long"].counts[-1] == 1
    assert (timings["short"].samples, timings["long"].samples) == (36, 9)
    assert [len(timing.rounds) for timing in timings.values()] == [3, 3]
    single = compare({"short": (lambda: None, clocks["short"])}, rounds=2, single_calls=20)["short"]
    assert clocks["short"].counts[-1] == 1
    assert (single.samples, len(single.rounds)) == (40, 2)


def test_operands_take_turns() -> None:
    site = OurSite("cpu")
    site.cache = 1000
    operands: list[Any] = []
    first, call = rotated(site, lambda: [site.normal(10, 10)], operands.append)
    for _ in range(5):
        call()
    assert operands[0] is operands[4] is first[0]
    assert len({id(x) for x in operands}) == 4  # between two uses of one operand, three others fill the cache


def test_pieces() -> None:
    assert pieces(5, 6) == [slice(0, 5)]
    assert pieces(100, 6) == [slice(0, 2), slice(49, 51), slice(98, 100)]


def test_errors_are_found() -> None:
    good, bad = np.ones(3), np.array([1.0, np.nan, 1.0])
    assert error_of([(good, good)]) == 0
    assert error_of([(good, good), (good * 1.5, good)]) == 0.5
    assert math.isnan(error_of([(bad, good)]))
    with pytest.raises(ValueError, match="shape"):
        error_of([(good, np.ones((3, 1)))])


# The command


def options(*arguments: str) -> argparse.Namespace:
    return command.options(argparse.ArgumentParser()).parse_args(arguments)


def test_an_interrupted_run_keeps_its_rows_and_says_so_by_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(running, "host_rows", interrupted)
    path = tmp_path / "rows.json"
    args = options("--device", "cpu", "--output", str(path))
    assert args.run(args) == 130
    assert json.loads(path.read_text())["host"] == []
    assert "interrupted" in capsys.readouterr().err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run GPU rows on `cpu`. The selected row is compared with copies, so those rows are measured too."""
    files = {name: tmp_path / "made" / name for name in ("found.json", "found.md")}
    args = options("--device", "cpu", "--cases", "gpu", "--scale", "512", "--rounds", "1", "--only", "add fp32 16M",
                     "--output", str(files["found.json"]), "--markdown", str(files["found.md"]))  # fmt: skip
    assert args.run(args) == 0
    report = json.loads(files["found.json"].read_text())
    assert [row["name"] for row in report["kernels"]] == [
        "copy fp32 16M", "copy fp32 64M", "copy fp32 256M", "add fp32 16M"
    ]  # fmt: skip
    last = report["kernels"][-1]
    assert {"cpu", "numpy"} <= set(last["times"])
    bandwidth = [r["bytes"] / min(t["least"] for n, t in r["times"].items() if n in ("cpu", "torch"))
                 for r in report["kernels"]]  # fmt: skip
    assert last["ratios"]["copy"][0] == pytest.approx(last["bytes"] / last["least"] / bandwidth[1])
    assert report["machine"]["devices"][0]["device"] == "cpu"
    assert report["machine"]["versions"]["numpy"] == np.__version__
    assert "| add fp32 16M |" in files["found.md"].read_text()
    assert "add fp32 16M" in capsys.readouterr().out


def test_a_wrong_result_has_no_speed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = Case("g", "right", lambda site: Work(lambda: None, lambda: [(np.ones(2), np.ones(2))]))
    wrong = replace(right, name="wrong", make=lambda site: Work(lambda: None, lambda: [(np.ones(2), np.zeros(2))]))

    def refuse(site: Site) -> Work:
        raise ArgumentError("not here\nnor there")

    monkeypatch.setattr(core, "host_cases", lambda gpu: [core.HostCase("g broken", refuse, 1, (1.0, 1.0))])
    monkeypatch.setattr(core, "cases", lambda: [right, wrong, replace(right, name="refused", make=refuse)])
    args = options("--device", "cpu", "--only", "g ", "--rounds", "1")
    assert args.run(args) == 1
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "WRONG: relative error" in lines["wrong"]
    assert lines["refused"].endswith("ArgumentError: not here")
    assert lines["g"].endswith("ArgumentError: not here")
    assert "WRONG" not in lines["right"]


def test_devices_are_named_once() -> None:
    with pytest.raises(ArgumentError, match="twice"):
        command.run(options("--device", "cpu,cpu"))
    assert [site.name for site in all_sites(["cpu"]) if site.name != "torch"] == ["cpu", "numpy"]


def test_missed_targets_are_marked() -> None:
    row = {"name": "add", "bytes": 3000, "flops": 0, "least": 1e-6, "missed": ["copy"],
           "ratios": {"copy": [0.5, 0.4], "torch": [1.5, 1.25]}, "target": {"copy": 0.9, "torch": 1.0},
           "notes": ["torch: host late in 1 of 3"]}  # fmt: skip
    host = {"name": "exp", "least": 9e-6, "median": 13e-6, "target_us": (12, 12), "met": False,
            "peers": {"torch": {"least": 4e-6}}}  # fmt: skip
    line = kernel_line(row)
    assert "x copy 0.9" in line
    assert "torch 1.50 (1.25)" in line
    assert line.endswith("host late in 1 of 3")
    assert host_line(host).split() == ["exp", "9.00", "13.00", "12", "/", "12", "x", "torch", "4.00"]
