"""Check every op against its reference on an NVIDIA GPU, and behaviour that needs a real device.

Run with `pytest -m gpu`. Needs Python, NumPy, triton, cuda-bindings, pytest, Jinja2 and PyYAML; uses SciPy, pyopencl
and a second GPU if they are present. The first run compiles some thousands of kernels; later ones load them from the
cache.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import op_cases as cases
import pytest
from op_running import _TOLERANCE

import weftgrad as wg
from weftgrad.runtime import dispatch
from weftgrad.runtime.backends import cuda_api
from weftgrad.runtime.device import Device
from weftgrad.runtime.errors import CaptureError, DeviceError, OutOfMemoryError
from weftgrad.runtime.records import registry

# On a line of its own, because `-m gpu` searches for this line to select the modules to import.
pytestmark = pytest.mark.gpu

MiB = 1 << 20
NAMES = cases.names()
# Ops of these kinds launch no kernel.
KINDS_WITHOUT_LAUNCH = ("view",)


def gpu(index: int = 0) -> Device:
    return wg.device(f"cuda:{index}")


@pytest.fixture(autouse=True)
def synchronized() -> Iterator[None]:
    """Wait for the device after each test, so that an asynchronous failure is reported in the test that caused it."""
    yield
    if cuda_api._library is not None:
        wg.synchronize("cuda:0")


def randn(*shape: int, seed: int = 0, **options: Any) -> Any:
    return wg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), device="cuda", **options)


# Ops


@pytest.mark.parametrize("name", NAMES)
def test_values(name: str) -> None:
    """Compare every op with its float64 reference, and check that kernels were launched."""
    launches_before = wg.launches("cuda:0")
    cases.check(name, gpu(), "full")
    assert wg.launches("cuda:0") > launches_before or cases.specs()[name].kind in KINDS_WITHOUT_LAUNCH


@pytest.mark.parametrize("name", [n for n in NAMES if cases.differentiable(cases.specs()[n])])
def test_derivatives(name: str) -> None:
    """Compare first and second derivatives with central differences in float64."""
    cases.check_derivatives(name, gpu())


def other_backends() -> list[str]:
    """Return the devices of other backends on this machine: `cpu` if it can compile, and NVIDIA's OpenCL."""
    try:
        from weftgrad.runtime.backends import opencl

        names = [f"opencl:{i}" for i, info in enumerate(opencl.devices()) if "NVIDIA" in info.platform]
    except (ImportError, DeviceError):
        return []
    try:
        wg.device("cpu").driver.require()  # type: ignore[attr-defined]
    except (ImportError, DeviceError):
        return names
    return ["cpu", *names]


@pytest.mark.parametrize("name", NAMES)
def test_backends_agree(name: str) -> None:
    """Run the same cases on every backend of the machine, in one process, and compare the results."""
    other_names = other_backends() if cuda_api.may_exist() else []
    if not other_names:
        pytest.skip("no other backend here: neither pyopencl with PoCL nor NVIDIA's OpenCL")
    op, call = cases.specs()[name], cases.caller(cases.specs()[name])

    def results(device: Device) -> list[tuple[Any, Any]]:
        outputs = []
        for case in cases.cases(name, device, "small"):
            result = call(*case.operands) if case.statics is None else call(*case.operands, statics=case.statics)
            result_tensors = result if isinstance(result, tuple) else (result,)
            outputs.append((case, [(t.dtype.name, cases.host(t)) for t in result_tensors]))
        return outputs

    cuda_results = results(gpu())
    for other_name in other_names:
        other_results = {
            case.label + str(i): tensors for i, (case, tensors) in enumerate(results(wg.device(other_name)))
        }
        for i, (case, tensors) in enumerate(cuda_results):
            for (dtype, actual), (_, expected) in zip(
                tensors, other_results.get(case.label + str(i), tensors), strict=True
            ):
                rtol, atol = case.tolerance or _TOLERANCE.get(dtype, (0.0, 0.0))
                label = f"{op.name}, {case.label}: cuda:0 and {other_name}"
                cases.compare(actual, expected, dtype, label, (2 * rtol, 2 * atol))


@pytest.mark.parametrize("device_name", [n for n in other_backends() if n != "cpu"] if cuda_api.may_exist() else [])
@pytest.mark.parametrize("name", NAMES)
def test_nvidias_opencl(name: str, device_name: str) -> None:
    """Run the GPU schedules on NVIDIA's OpenCL, beside CUDA in one process."""
    cases.check(name, wg.device(device_name), "schedules")


@pytest.mark.parametrize("shape", [(1,), (3, 5), (1 << 20,), (257, 1023), (2, 3, 4, 5, 6)])
def test_large_and_odd(shape: tuple[int, ...]) -> None:
    x, y = randn(*shape), randn(*shape, seed=1)
    a, b = x.cpu().numpy().astype(np.float64), y.cpu().numpy().astype(np.float64)
    np.testing.assert_allclose((x * y + 1.5).cpu().numpy(), a * b + 1.5, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(x.sum().item(), a.sum(), rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(x.softmax(-1).cpu().numpy(), _softmax(a), rtol=2e-5, atol=1e-7)
    view = x[..., 1:] if shape[-1] > 1 else x  # four bytes off the alignment
    np.testing.assert_allclose((view + 1).cpu().numpy(), (a[..., 1:] if shape[-1] > 1 else a) + 1, rtol=1e-6, atol=1e-6)


def _softmax(a: Any) -> Any:
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("n", [64, 1000, 2048])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_products(n: int, dtype: str) -> None:
    """Compare with float64, within a bound of n rounding errors of the accumulator."""
    element_type = getattr(wg, dtype)
    x, y = randn(n, n).to(element_type), randn(n, n, seed=1).to(element_type)
    expected = x.double().cpu().numpy() @ y.double().cpu().numpy()
    actual = (x @ y).double().cpu().numpy()
    rounding = {"float32": 2.0**-24, "float64": 2.0**-53, "bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    acc_unit = {"float64": 2.0**-53}.get(dtype, 2.0**-24)
    max_error = np.abs(actual - expected).max()
    assert max_error <= 2 * rounding * np.abs(expected).max() * (dtype in ("bfloat16", "float16")) + 8 * n * acc_unit


# Streams, events, copies


def test_streams_wait_for_each_other() -> None:
    side = wg.cuda.Stream()
    x = randn(1 << 22)
    total = x.sum().item()
    for _ in range(20):
        side.wait_stream(wg.cuda.current_stream())
        with wg.cuda.stream(side):
            y = x * 2
            z = y + x
        wg.cuda.current_stream().wait_stream(side)
        z.record_stream(wg.cuda.current_stream())
        w = z - x
        np.testing.assert_allclose(w.sum().item(), 2 * total, rtol=1e-4)


def test_memory_of_another_stream_is_not_reused_too_early() -> None:
    side = wg.cuda.Stream()
    for i in range(30):
        x = wg.full((1 << 22,), float(i), device="cuda")
        side.wait_stream(wg.cuda.current_stream())
        with wg.cuda.stream(side):
            y = x
            for _ in range(5):
                y = y + 0.0
        x.record_stream(side)
        del x
        spoil = wg.full((1 << 22,), -1.0, device="cuda")
        side.synchronize()
        assert y[12345].item() == i
        del spoil


def test_events_measure() -> None:
    begin, end = wg.Event(enable_timing=True), wg.Event(enable_timing=True)
    x = randn(1 << 24)
    x + 1
    begin.record()
    for _ in range(20):
        x = x + 1.0
    end.record()
    end.synchronize()
    elapsed_ms = begin.elapsed_time(end)
    assert 0.1 < elapsed_ms < 1000  # 20 times 128 MiB of traffic: 0.6 ms at 4.3 TB/s


@pytest.mark.parametrize("count", [1, 1000, 300_000, 20_000_000])
def test_copies(count: int) -> None:
    array = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    expected = array.copy()
    x = wg.tensor(array, device="cuda")
    array[:] = 0
    np.testing.assert_array_equal(x.cpu().numpy(), expected)
    pinned = wg.tensor(expected, device="cpu").pin_memory()
    assert pinned.is_pinned()
    y = pinned.to("cuda", non_blocking=True)
    del pinned
    gc.collect()
    np.testing.assert_array_equal(y.cpu().numpy(), expected)


def test_copies_through_reused_staging_memory() -> None:
    """Make many small copies in a row, each from memory that changes right after the call."""
    array = np.empty(1000, np.float32)
    tensors = []
    for i in range(2000):
        array[:] = i
        tensors.append(wg.tensor(array, device="cuda"))
    assert all((t.cpu().numpy() == i).all() for i, t in enumerate(tensors))


def test_two_gpus() -> None:
    if wg.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = randn(1 << 20)
    y = x.to("cuda:1")
    np.testing.assert_array_equal((y * 2).cpu().numpy(), x.cpu().numpy() * 2)
    round_trip = y.to("cuda:0")
    np.testing.assert_array_equal(round_trip.cpu().numpy(), x.cpu().numpy())


def test_threads() -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with wg.cuda.stream(wg.cuda.Stream()):
                x = randn(500, 300, seed=seed, requires_grad=True)
                for _ in range(20):
                    (x.sin() * x).sum().backward()
                a = x.detach().cpu().numpy().astype(np.float64)
                np.testing.assert_allclose(x.grad.cpu().numpy(), 20 * (a * np.cos(a) + np.sin(a)), rtol=1e-4, atol=1e-4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


# Memory


def test_the_pool() -> None:
    wg.empty_cache("cuda:0")
    allocated_before = wg.memory_allocated("cuda:0")
    wg.reset_peak_memory_stats("cuda:0")
    for _ in range(50):
        x = randn(1 << 20)
        y = (x * x).sum()
        del x, y
    stats = wg.memory_stats("cuda:0")
    assert stats["allocated"] <= allocated_before + MiB
    assert stats["allocated_peak"] < allocated_before + 64 * MiB
    free_before = wg.cuda.mem_get_info()[0]
    big = wg.empty(1 << 28, device="cuda")  # 1 GiB
    assert wg.cuda.mem_get_info()[0] <= free_before - (1 << 30) + 64 * MiB
    del big
    assert wg.empty_cache("cuda:0") >= 1 << 30
    assert wg.cuda.mem_get_info()[0] >= free_before - 64 * MiB


def test_out_of_memory() -> None:
    total = wg.cuda.mem_get_info()[1]
    with pytest.raises(OutOfMemoryError, match=r"out of memory on cuda:0.*requested"):
        wg.empty(total, dtype=wg.float64, device="cuda")
    assert (wg.ones(10, device="cuda") + 1).tolist() == [2.0] * 10
    wg.set_memory_limit(wg.memory_reserved("cuda:0") + 64 * MiB, "cuda:0")
    try:
        with pytest.raises(OutOfMemoryError, match="limit"):
            wg.empty(1 << 30, device="cuda")
    finally:
        wg.set_memory_limit(None, "cuda:0")


# Graphs


def test_a_graph_of_a_training_step() -> None:
    """Replaying a captured training step gives the losses and weights of the same steps run without a graph."""
    target, x = randn(64, 1, seed=3), randn(64, 100)

    def step(w: Any) -> Any:
        loss = ((x @ w - target) ** 2).mean()
        (grad,) = wg.autograd.grad(loss, w)
        with wg.no_grad():
            w -= 0.01 * grad
        return loss.detach()

    eager = randn(100, 1, seed=1, requires_grad=True)
    expected = [step(eager).item() for _ in range(10)]
    w = randn(100, 1, seed=1, requires_grad=True)
    start = w.detach().clone()
    step(w)
    with wg.no_grad():
        w.copy_(start)
    graph = wg.cuda.CUDAGraph()
    with wg.cuda.graph(graph):
        loss = step(w)
    losses = []
    for _ in range(10):
        graph.replay()
        losses.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(w.detach().cpu().numpy(), eager.detach().cpu().numpy(), rtol=1e-3, atol=1e-4)


def test_a_graph_of_a_network() -> None:
    """Capture without a warm-up step: kernels are compiled and loaded, and memory is allocated, in the capture."""
    wg.manual_seed(0)
    net = wg.nn.Sequential(wg.nn.Linear(33, 65), wg.nn.GELU(), wg.nn.LayerNorm(65), wg.nn.Linear(65, 7)).to("cuda")
    x, target = randn(50, 33), wg.tensor(np.arange(50) % 7, device="cuda")

    def step() -> list[Any]:
        loss = wg.nn.functional.cross_entropy(net(x), target)
        return [loss.detach(), *wg.autograd.grad(loss, list(net.parameters()))]

    graph = wg.cuda.CUDAGraph()
    with wg.cuda.graph(graph):
        results = step()
    for seed in (5, 6):
        x.copy_(randn(50, 33, seed=seed))
        graph.replay()
        for actual, expected in zip(results, step(), strict=True):
            np.testing.assert_allclose(actual.cpu().numpy(), expected.cpu().numpy(), rtol=1e-5, atol=1e-6)


def test_a_graph_keeps_its_memory() -> None:
    x = wg.full((MiB,), 2.0, device="cuda")
    x * x + 1
    graph = wg.cuda.CUDAGraph()
    with wg.cuda.graph(graph):
        y = x * x + 1
    for value in (3.0, 4.0):
        x.fill_(value)
        wg.empty_cache("cuda:0")
        spoil = [wg.full((MiB,), -1.0, device="cuda") for _ in range(10)]
        graph.replay()
        assert y[777].item() == value * value + 1
        del spoil


def test_a_capture_refuses_what_it_cannot_hold() -> None:
    x = wg.ones(10, device="cuda")
    x + 1
    for call in (lambda: (x + 1).tolist(), lambda: wg.synchronize("cuda:0"), lambda: (x + 1).sum().item()):
        graph = wg.cuda.CUDAGraph()
        with pytest.raises(CaptureError), wg.cuda.graph(graph):
            call()
    assert (x + 1).tolist() == [2.0] * 10


def test_a_capture_may_load_kernels_and_allocate() -> None:
    """A capture loads a new kernel and allocates new memory, which the driver forbids by default."""
    x = wg.ones(1 << 20, device="cuda")
    wg.empty_cache("cuda:0")
    graph = wg.cuda.CUDAGraph()
    with wg.cuda.graph(graph):
        y = (x * 3).atan2(x * 5) + wg.full((1 << 20,), 7.0, device="cuda")
    graph.replay()
    np.testing.assert_allclose(y[5].item(), np.arctan2(3.0, 5.0) + 7, rtol=1e-6)


# Starting, launching, training


def test_a_warm_start_does_without_the_compiler(tmp_path: Path) -> None:
    code = (
        "import sys, weftgrad as wg\n"
        "x = wg.ones(100, device='cuda')\n"
        "print((x.sin() + 1).sum().item(), 'triton' in sys.modules)\n"
    )
    environment = {**os.environ, "WEFTGRAD_CACHE": str(tmp_path)}

    def start() -> list[str]:
        process = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert process.returncode == 0, process.stderr
        return process.stdout.split()

    cold, warm = start(), start()
    assert cold[1] == "True"
    assert warm == [cold[0], "False"]


def _seconds(call: Callable[[], Any], times: int = 200) -> float:
    best = float("inf")
    for _ in range(20):
        wg.synchronize("cuda:0")
        begin = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, (time.perf_counter() - begin) / times)
    wg.synchronize("cuda:0")
    return best


def test_host_cost_of_a_launch() -> None:
    """A launch takes at most 3 us of host time more than the driver call alone."""
    x = wg.ones(64, device="cuda")
    y, out = wg.ones(64, device="cuda"), wg.empty(64, device="cuda")
    driver: Any = gpu().driver
    operands = [x, y, *[1] * (len(registry["add"].operands) - 2)]
    (step,) = dispatch.plan_for(registry["add"], operands).steps
    run = driver.launcher([step], ())
    numbers = [1] * (max(step.scalars, default=-1) + 1)
    stream = driver.default_stream
    run([x, y, out], numbers, stream)
    kernel = driver.kernel(step, True)
    block = run.__globals__["block"]
    launch = cuda_api.library().cuLaunchKernel
    grid = (*step.global_size, 1, 1)[:3]

    def bare() -> None:
        launch(kernel.function, *grid, kernel.threads, 1, 1, kernel.shared, stream.handle, block.address, 0)

    driver_seconds, total_seconds = _seconds(bare), _seconds(lambda: run([x, y, out], numbers, stream))
    print(f"cuLaunchKernel {driver_seconds * 1e6:.2f} us, with arguments {total_seconds * 1e6:.2f} us")
    assert total_seconds - driver_seconds <= 3e-6


def test_the_demo_learns() -> None:
    from weftgrad.demo import train

    report = train.train(epochs=3, seed=0, device="cuda")
    assert report.accuracy > 0.9
    assert report.losses[-1] < report.losses[0] / 2
    assert not any(report.driver_allocations[1:])
