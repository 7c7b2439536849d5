"""Launches of the CUDA backend against a stand-in for the driver library, and the compiler behind them."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import op_cases as cases
import pytest
from cuda_running import TEXT, Compiler, KiB, address, buffers, captured, driver_of, in_place, make_step
from cuda_standin import CUresult, Gpu, Interpreting, Standin, parameter_sizes

import weftgrad as wg
from weftgrad.runtime import errors
from weftgrad.runtime.backends import available, best_device, cuda_api
from weftgrad.runtime.device import known_devices
from weftgrad.runtime.triton import compile as compiler
from weftgrad.runtime.triton.signature import signature

# Launches


def test_parameters_arrive_in_the_kernels_order(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    x, y = buffers(driver)
    run = driver.launcher([make_step()], ())
    run([x, y], [1.5, -2.0, 7], driver.default_stream)
    (launch,) = cuda.launches
    values = launch.values("QQiiiffqQQ")
    assert values == [address(x), address(y), 300, 5, 60, 1.5, -2.0, 7, 0, 0]
    assert (launch.function, launch.grid, launch.threads, launch.shared) == ("scale_flat", (3, 1, 1), 128, 0)
    assert launch.stream is driver.default_stream.handle
    assert driver.launches == 1


@pytest.mark.parametrize(
    ("element", "dtype", "index", "codes", "numbers"),
    [
        ("double", "float64", "int64", "QQqqqddqQQ", (0.1, 1e300)),
        ("long", "int64", "int32", "QQiiiqqqQQ", (2**62, -1)),
        ("char", "int8", "int32", "QQiiiqqqQQ", (127, -128)),
        ("uchar", "bool", "int64", "QQqqqqqqQQ", (True, False)),
    ],
)
def test_numbers_have_the_compute_type(
    cuda: Standin, compiled: Compiler, element: str, dtype: str, index: str, codes: str, numbers: tuple[Any, Any]
) -> None:
    driver = driver_of()
    x, y = buffers(driver)
    driver.launcher([make_step(element, dtype, index)], ())([x, y], [*numbers, 2**64 - 1], driver.default_stream)
    values = cuda.launches[-1].values(codes)
    assert values[2:8] == [300, 5, 60, *numbers, -1]  # an integer is 64 bits, whatever its sign


def test_numbers_that_do_not_fit(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    given = buffers(driver)
    driver.launcher([make_step()], ())(given, [1e39, -1e39, 0], driver.default_stream)
    assert cuda.launches[-1].values("QQiiiffqQQ")[5:7] == [float("inf"), float("-inf")]
    for element, dtype, number in (("char", "int8", 128), ("int", "int32", 1 << 31), ("long", "int64", 1 << 63)):
        with pytest.raises(errors.ArgumentError, match=rf"scale: the number {number} does not fit"):
            driver.launcher([make_step(element, dtype)], ())(given, [0, number, 0], driver.default_stream)
    assert len(cuda.launches) == 1


def test_each_call_writes_its_own_arguments(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    run = driver.launcher([make_step()], ())
    pairs = [buffers(driver) for _ in range(3)]
    for i, pair in enumerate(pairs):
        run(pair, [i, -i, i], driver.default_stream)
    found = [launch.values("QQiiiffqQQ") for launch in cuda.launches]
    assert [v[:2] for v in found] == [[address(x), address(y)] for x, y in pairs]
    assert [v[5:8] for v in found] == [[i, -i, i] for i in range(3)]


def test_unaligned_buffers_have_a_kernel_of_their_own(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    run = driver.launcher([make_step()], ())
    assert compiled.asked == []
    (x, y), (u, _) = buffers(driver), buffers(driver, at=4)
    for pair in ([x, y], [u, y], [x, y], [x, u]):
        run(pair, [1, 1, 1], driver.default_stream)
        assert cuda.launches[-1].values("QQiiiffqQQ")[:2] == [address(b) for b in pair]
    assert compiled.asked == [("scale_flat", True), ("scale_flat", False)]
    images = [launch.image for launch in cuda.launches]
    assert images[0] == images[2] != images[1] == images[3]


def test_kernels_are_shared_by_shapes_of_one_kind(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    given = buffers(driver)
    for n in (300, 301, 302):
        driver.launcher([make_step(n=n)], ())(given, [1, 1, 1], driver.default_stream)
    assert len(compiled.asked) == 1
    driver.launcher([make_step(n=320)], ())(given, [1, 1, 1], driver.default_stream)  # divisible by 16
    assert len(compiled.asked) == 2


def test_threads_and_shared_memory_are_the_compilers(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    compiled.options = {"threads": 256, "shared": 200 * KiB}
    driver.launcher([make_step(grid=(2, 3, 4))], ())(buffers(driver), [1, 1, 1], driver.default_stream)
    launch = cuda.launches[-1]
    assert (launch.grid, launch.threads, launch.shared) == ((2, 3, 4), 256, 200 * KiB)
    assert "cuFuncSetAttribute" in cuda.calls


def test_too_much_shared_memory(cuda: Standin, compiled: Compiler) -> None:
    compiled.options = {"shared": 200 * KiB}
    driver = driver_of(1)
    with pytest.raises(errors.CompileError, match=r"scale: scale_flat needs 200 KiB .* A100 \(cuda:1\) has 163 KiB"):
        driver.launcher([make_step()], ())(buffers(driver), [1, 1, 1], driver.default_stream)


def test_global_scratch(cuda: Standin, compiled: Compiler) -> None:
    compiled.options = {"scratch": 384}
    driver = driver_of()
    given = buffers(driver)
    before = driver.budget.stats().requested
    run = driver.launcher([make_step(grid=(7, 2))], ())
    run(given, [1, 1, 1], driver.default_stream)
    room, profile = cuda.launches[-1].values("QQiiiffqQQ")[-2:]
    assert room % 128 == 0
    assert profile == 0
    held = cuda._at(room, 384 * 14)
    assert held is not None
    assert driver.budget.stats().requested == before  # and is free again
    assert all(not address(b) <= room < address(b) + 4096 for b in given)


def test_scratch_between_steps(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    (x, y) = buffers(driver)
    steps = [replace(make_step(), buffers=(0, 2)), replace(make_step(), buffers=(2, 1))]
    driver.launcher(steps, (5000,))([x, y], [1, 1, 1], driver.default_stream)
    first, second = [launch.values("QQiiiffqQQ")[:2] for launch in cuda.launches]
    assert first[0] == address(x)
    assert second[1] == address(y)
    assert first[1] == second[0]
    assert cuda._at(first[1], 5000) is not None


def test_a_refused_launch_says_what_it_was(cuda: Standin, compiled: Compiler) -> None:
    x = wg.zeros(3, 100, device="cuda")
    driver = driver_of()
    cuda.fail("cuLaunchKernel", CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
    with pytest.raises(errors.LaunchError) as caught:
        driver.launcher([make_step(num_warps=4)], ())([x, x], [1, 1, 1], driver.default_stream)
    for part in (
        "scale(float32[3, 100], float32[3, 100])", "scale_flat", "cuda:0", "Stand-in H200", "(3,)", "128 threads",
        "num_warps=4", "OUT_OF_RESOURCES",
    ):  # fmt: skip
        assert part in str(caught.value)
    driver.launcher([make_step()], ())([x, x], [1, 1, 1], driver.default_stream)  # and the next one goes through


def test_another_librarys_context_is_no_obstacle(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    given = buffers(driver)
    run = driver.launcher([make_step()], ())
    run(given, [1, 1, 1], driver.default_stream)
    cuda.cuCtxSetCurrent(cuda.contexts[1])  # behind our back
    run(given, [2, 2, 2], driver.default_stream)
    assert [launch.values("QQiiiffqQQ")[5] for launch in cuda.launches] == [1, 2]


def test_a_kernel_that_goes_wrong_later(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    driver.launcher([make_step()], ())(buffers(driver), [1, 1, 1], driver.default_stream)
    cuda.corrupt(CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    with pytest.raises(errors.LaunchError, match=r"memory that is not its own \(.*scale_flat\)(.|\n)*LAUNCH_BLOCKING"):
        wg.synchronize("cuda:0")
    cuda.lost = None


def test_machine_code_that_does_not_load(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    compiled.options = {"image": b"nonsense"}
    with pytest.raises(errors.CompileError, match=r"scale: the machine code of scale_flat does not load on .*sm_90"):
        driver.launcher([make_step()], ())(buffers(driver), [1, 1, 1], driver.default_stream)


def test_what_a_launch_costs_the_host(cuda: Standin, compiled: Compiler) -> None:
    """Above the driver's own time: 3 us at most for four buffers and two numbers."""
    cuda.cuLaunchKernel = lambda *arguments: (0,)
    driver = driver_of()
    text = TEXT.replace("x0, y0,", "x0, x1, x2, y0,")
    step = make_step()
    slots = step.instance.slots * 2
    step = replace(step, instance=replace(step.instance, text=text, slots=slots), buffers=(0, 1, 2, 3))
    given, numbers, stream = buffers(driver, 4), [1.5, 2.5, 3], driver.default_stream
    run = driver.launcher([step], ())
    run(given, numbers, stream)
    best = min(_seconds(lambda: run(given, numbers, stream)) for _ in range(50))
    print(f"{best * 1e6:.2f} us a launch")
    assert best < 3e-6


def _seconds(call: Callable[[], Any], times: int = 500) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def test_threads_have_blocks_of_their_own(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            run = driver.launcher([make_step()], ())
            given = buffers(driver)
            start.wait()
            for i in range(200):
                run(given, [number, i, number], driver.default_stream)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = [launch.values("QQiiiffqQQ") for launch in cuda.launches]
    assert sorted((v[5], v[6]) for v in found) == sorted((n, i) for n in range(4) for i in range(200))
    assert all(v[5] == v[7] for v in found)
    assert len({(v[0], v[1], v[5]) for v in found}) == 4
    assert len(compiled.asked) == 1


def test_building_ahead(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    assert driver.build([make_step(), make_step("double", "float64"), make_step(n=400)]) == 3
    assert len(compiled.asked) == 3
    driver.launcher([make_step()], ())(buffers(driver), [1, 1, 1], driver.default_stream)
    assert len(compiled.asked) == 3


# What is missing


def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_api.use(None)
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(errors.DriverNotFound, match=r"needs cuda-bindings.*pip install 'weftgrad\[cuda\]'"):
        cuda_api.library()


def test_no_driver_and_no_gpu() -> None:
    standin = Standin()
    standin.fail("cuInit", CUresult.CUDA_ERROR_NO_DEVICE)
    with pytest.raises(errors.DriverNotFound, match=r"no GPU that this process may use.*CUDA_VISIBLE_DEVICES"):
        cuda_api.initialise(standin)
    standin.fail("cuInit", CUresult.CUDA_ERROR_NOT_INITIALIZED)
    with pytest.raises(errors.DriverNotFound, match=r"does not start \(CUDA_ERROR_NOT_INITIALIZED"):
        cuda_api.initialise(standin)

    def absent(flags: int) -> Any:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    standin.cuInit = absent
    with pytest.raises(errors.DriverNotFound, match=r"libcuda.*install the NVIDIA driver"):
        cuda_api.initialise(standin)


def test_an_old_gpu_and_one_too_many() -> None:
    with in_place(Gpu("Stand-in V100", (7, 0))):
        with pytest.raises(errors.NotSupported, match=r"cuda:0 \(Stand-in V100\) has compute capability 7.0; .* 8.0"):
            driver_of()
        with pytest.raises(errors.UnknownDevice, match="cuda:1 does not exist: there are 1 CUDA devices"):
            driver_of(1)


def test_no_compiler(cuda: Standin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "compiler_installed", lambda: False)
    driver = driver_of()
    with pytest.raises(errors.DriverNotFound, match=r"needs triton.*pip install 'weftgrad\[cuda\]'"):
        driver.launcher([make_step()], ())(buffers(driver), [1, 1, 1], driver.default_stream)


def test_which_device_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compiler_installed", lambda: True)
    with in_place(Gpu("old", (7, 5)), Gpu("new", (9, 0))):
        assert str(best_device()) == "cuda:1"
        assert [str(d) for d in available()][:3] == ["cpu", "cuda:0", "cuda:1"]
        monkeypatch.setattr(compiler, "compiler_installed", lambda: False)
        assert best_device().type != "cuda"


def test_nothing_is_loaded_where_no_gpu_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_api.use(None)
    monkeypatch.setattr(cuda_api, "_load", lambda: pytest.fail("the library was loaded"))
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    assert not [d for d in available() if d.type == "cuda"]
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not [d for d in available() if d.type == "cuda"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    given = buffers(driver)
    run = driver.launcher([make_step()], ())
    run(given, [1, 1, 1], driver.default_stream)
    calls: list[Callable[[], Any]] = [
        lambda: run(given, [1, 1, 1], driver.default_stream),
        lambda: driver.launcher([make_step()], ()),
        driver.default_stream.synchronize,
        driver.default_stream.record_event,
        driver.synchronize,
        driver.new_stream,
        lambda: wg.ones(3, device="cuda"),
    ]
    child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except errors.ForkError as error:
                refused += "spawn" in str(error)
            except BaseException as error:
                print(call, repr(error), file=sys.stderr, flush=True)
        os._exit(0 if refused == len(calls) else 1)
    assert os.waitpid(child, 0)[1] == 0
    run(given, [1, 1, 1], driver.default_stream)  # the parent goes on


# Whole ops: what the kernels are given is what arrived at the launches


def test_kernels_built_by_several_threads_have_images_of_their_own(cuda: Standin) -> None:
    computing, step, before = Interpreting(cuda), make_step(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as workers:
            images = list(workers.map(lambda _: computing.binary(step, True, None).image, range(500)))
    finally:
        sys.setswitchinterval(before)
    assert len(set(images)) == len(images)


def test_ops_compute(cuda: Standin, computing: Interpreting) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 70)), rng.standard_normal(70)
    x, y = wg.tensor(a, device="cuda"), wg.tensor(b, device="cuda")
    np.testing.assert_allclose((x * y + 2.5).cpu().numpy(), a * b + 2.5, rtol=1e-12)
    np.testing.assert_allclose((x.T - 1).cpu().numpy(), a.T - 1, rtol=1e-12)
    np.testing.assert_allclose((x[1:, 3:] * 2).cpu().numpy(), a[1:, 3:] * 2, rtol=1e-12)  # not aligned
    z = wg.arange(10, device="cuda") + 2**40
    assert z.tolist() == [i + 2**40 for i in range(10)]


def test_gradients(cuda: Standin, computing: Interpreting) -> None:
    a = np.linspace(-1, 1, 24).reshape(4, 6)
    x = wg.tensor(a, device="cuda", requires_grad=True)
    (x * x * 0.5).backward(wg.ones(4, 6, dtype=wg.float64, device="cuda"))
    np.testing.assert_allclose(x.grad.cpu().numpy(), a, rtol=1e-12)


def test_a_captured_computation(cuda: Standin, computing: Interpreting) -> None:
    x = wg.tensor([1.0, 2.0, 3.0], device="cuda")
    (x * x + 1).tolist()
    driver = x.device.driver
    graph, y = captured(driver, lambda: x * x + 1)
    for value in (2.0, -3.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [value * value + 1] * 3


def test_a_captured_step_of_training(cuda: Standin, computing: Interpreting) -> None:
    """Also what otherwise looks at values on the host (targets), or keeps them for later (a gradient of ones)."""
    rng = np.random.default_rng(0)
    logits, target = rng.standard_normal((3, 5)).astype(np.float32), wg.tensor([1, 0, 4], device="cuda")
    x = wg.tensor(logits, device="cuda", requires_grad=True)

    def step() -> Any:
        loss = wg.nn.functional.cross_entropy(x, target)
        (grad,) = wg.autograd.grad(loss, x)
        return loss.detach(), grad

    graph, (loss, grad) = captured(x.device.driver, step)
    for turn in range(2):
        with wg.no_grad():
            x.copy_(wg.tensor(logits * (turn + 1), device="cuda"))
        graph.replay()
        found = loss.item(), grad.tolist()
        expected = step()
        np.testing.assert_allclose(found[0], expected[0].item(), rtol=1e-6)
        np.testing.assert_allclose(found[1], expected[1].tolist(), rtol=1e-6)
    target.copy_(wg.tensor([1, 0, 5], device="cuda"))
    graph.replay()  # which makes the check of the targets again
    with pytest.raises(errors.IndexOutOfRange, match="target 5"):
        loss.item()
    step()
    with pytest.raises(errors.IndexOutOfRange, match="target 5"):
        wg.synchronize("cuda")


@pytest.mark.parametrize("name", cases.names())
def test_every_op(name: str, cuda: Standin, computing: Interpreting, monkeypatch: pytest.MonkeyPatch) -> None:
    """What packs a launch's parameters and what reads them agree on every kernel there is."""
    monkeypatch.setenv("WEFTGRAD_CAPABILITIES", "block=16384")  # fewer programs: each takes its time
    cases.check(name, wg.device("cuda:0"), "small")


# The compiler, and the cache in front of it

_WARM = """
import sys
from cuda_standin import Standin
from weftgrad.runtime.backends import cuda_api
import weftgrad as wg
made = Standin()
cuda_api.use(made)
x = wg.tensor([1.0, 2.0, 3.0], device="cuda")
y = (x * 2 + x[1:2]).tolist()
wg.synchronize()
assert made.launches and not made.violations, made.violations
print(len(made.launches), [m for m in ("triton", "torch", "pyopencl") if m in sys.modules])
"""


def test_a_warm_start_does_without_the_compiler(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "WEFTGRAD_CACHE": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}

    def start() -> str:
        done = subprocess.run(
            [sys.executable, "-c", _WARM], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert "['triton']" in start()
    cold = set(tmp_path.rglob("*.bin"))
    assert start().endswith("[]")
    assert set(tmp_path.rglob("*.bin")) == cold


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_compiling_for_any_target(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    found = compiler.compile_for(make_step(num_warps=8), True, compiler.Target.named(target))
    assert 0 < found.registers < 256
    assert found.spills == 0
    assert found.binary.threads == (512 if target == "gfx942" else 256)
    assert str(found.target) == target
    if target == "gfx942":
        assert "scale_flat" in found.asm["amdgcn"]
        return
    assert f".target {target}" in found.asm["ptx"]
    sizes = [struct.calcsize("=" + c) for c in signature(make_step(), True).codes + "QQ"]
    assert parameter_sizes(found.binary.image) == {"scale_flat": sizes}


def test_a_kernel_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    step = make_step()
    bad = replace(step, instance=replace(step.instance, text=TEXT.replace("mask=mask, other=0", "mask=nothing")))
    with pytest.raises(errors.CompileError, match=r"scale_flat does not compile for sm_90 with Triton 3(.|\n)*nothing"):
        compiler.binary(bad, True, compiler.Target.named("sm_90"))


def test_the_cache_tells_kernels_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    target = compiler.Target.named("sm_90")
    first = compiler.binary(make_step(), True, target)
    assert compiler.is_cached(make_step(n=301), True, target)  # sizes do not matter
    for other in (make_step(n=320), make_step("double", "float64"), make_step(index="int64"), make_step(num_warps=8)):
        assert not compiler.is_cached(other, True, target)
    assert not compiler.is_cached(make_step(), False, target)
    assert not compiler.is_cached(make_step(), True, compiler.Target.named("sm_80"))
    assert compiler.binary(make_step(), True, target) == first


# What the stand-in claims about the library


def test_the_standin_is_like_the_library() -> None:
    """Names, parameters and numbers are those of the installed cuda-bindings."""
    driver = pytest.importorskip("cuda.bindings.driver")
    standin = Standin()
    for name in [n for n in dir(Standin) if n.startswith("cu")]:
        real = getattr(driver, name)
        head = real.__doc__.partition("\n")[0]
        given = head[head.index("(") + 1 : -1].replace("*", "").split(",")
        names = [part.split(":")[0].split()[-1] for part in given if part]
        code = getattr(standin, name).__func__.__code__
        assert list(code.co_varnames[1 : code.co_argcount]) == names, head
    for name in ("CUresult", "CUdevice_attribute", "CUfunction_attribute", "CUstreamCaptureMode"):
        for member in getattr(standin, name):
            assert int(getattr(getattr(driver, name), member.name)) == member, member


def test_devices_are_forgotten() -> None:
    """No test leaves a device of the stand-in behind."""
    assert all(d._driver is None for d in known_devices() if d.type == "cuda")
