"""Check launches and whole ops of the CUDA backend on a stand-in for the driver library."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import op_cases as cases
import pytest
from cuda_interpreting import Interpreting
from cuda_running import TEXT, Compiler, KiB, address, buffers, capture, driver_of, make_step
from cuda_standin import Standin
from cuda_standin_objects import CUresult

import weftgrad as wg
from weftgrad.runtime import errors

# The parameters of the kernel `scale_flat`, as codes of `struct`: two buffers, three sizes, three numbers, and two
# addresses that Triton adds (scratch, profile).
PARAMETERS = "QQiiiffqQQ"


# Launches


def test_parameters_arrive_in_the_kernels_order(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    x, y = buffers(driver)
    run = driver.launcher([make_step()], ())
    run([x, y], [1.5, -2.0, 7], driver.default_stream)
    (launch,) = cuda.launches
    values = launch.values(PARAMETERS)
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
    assert values[2:8] == [300, 5, 60, *numbers, -1]  # integers are passed as 64 bits: 2**64 - 1 arrives as -1


def test_numbers_that_do_not_fit(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    operands = buffers(driver)
    driver.launcher([make_step()], ())(operands, [1e39, -1e39, 0], driver.default_stream)
    assert cuda.launches[-1].values(PARAMETERS)[5:7] == [float("inf"), float("-inf")]
    for element, dtype, number in (("char", "int8", 128), ("int", "int32", 1 << 31), ("long", "int64", 1 << 63)):
        with pytest.raises(errors.ArgumentError, match=rf"scale: the number {number} does not fit"):
            driver.launcher([make_step(element, dtype)], ())(operands, [0, number, 0], driver.default_stream)
    assert len(cuda.launches) == 1


def test_each_call_writes_its_own_arguments(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    run = driver.launcher([make_step()], ())
    pairs = [buffers(driver) for _ in range(3)]
    for i, pair in enumerate(pairs):
        run(pair, [i, -i, i], driver.default_stream)
    parameters = [launch.values(PARAMETERS) for launch in cuda.launches]
    assert [v[:2] for v in parameters] == [[address(x), address(y)] for x, y in pairs]
    assert [v[5:8] for v in parameters] == [[i, -i, i] for i in range(3)]


def test_unaligned_buffers_have_a_kernel_of_their_own(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    run = driver.launcher([make_step()], ())
    assert compiled.requests == []
    (x, y), (u, _) = buffers(driver), buffers(driver, at=4)
    for pair in ([x, y], [u, y], [x, y], [x, u]):
        run(pair, [1, 1, 1], driver.default_stream)
        assert cuda.launches[-1].values(PARAMETERS)[:2] == [address(b) for b in pair]
    assert compiled.requests == [("scale_flat", True), ("scale_flat", False)]
    images = [launch.image for launch in cuda.launches]
    assert images[0] == images[2] != images[1] == images[3]


def test_kernels_are_shared_by_shapes_of_one_kind(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    operands = buffers(driver)
    for n in (300, 301, 302):
        driver.launcher([make_step(n=n)], ())(operands, [1, 1, 1], driver.default_stream)
    assert len(compiled.requests) == 1
    driver.launcher([make_step(n=320)], ())(operands, [1, 1, 1], driver.default_stream)  # divisible by 16
    assert len(compiled.requests) == 2


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
    operands = buffers(driver)
    requested_before = driver.budget.stats().requested
    run = driver.launcher([make_step(grid=(7, 2))], ())
    run(operands, [1, 1, 1], driver.default_stream)
    scratch_address, profile = cuda.launches[-1].values(PARAMETERS)[-2:]
    assert scratch_address % 128 == 0
    assert profile == 0
    scratch = cuda._find_allocation(scratch_address, 384 * 14)
    assert scratch is not None
    assert driver.budget.stats().requested == requested_before  # the scratch memory is free again
    assert all(not address(b) <= scratch_address < address(b) + 4096 for b in operands)


def test_scratch_between_steps(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    (x, y) = buffers(driver)
    steps = [replace(make_step(), buffers=(0, 2)), replace(make_step(), buffers=(2, 1))]
    driver.launcher(steps, (5000,))([x, y], [1, 1, 1], driver.default_stream)
    first, second = [launch.values(PARAMETERS)[:2] for launch in cuda.launches]
    assert first[0] == address(x)
    assert second[1] == address(y)
    assert first[1] == second[0]
    assert cuda._find_allocation(first[1], 5000) is not None


def test_a_refused_launch_says_what_it_was(cuda: Standin, compiled: Compiler) -> None:
    x = wg.zeros(3, 100, device="cuda")
    driver = driver_of()
    cuda.fail("cuLaunchKernel", CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
    with pytest.raises(errors.LaunchError) as caught:
        driver.launcher([make_step(num_warps=4)], ())([x, x], [1, 1, 1], driver.default_stream)
    for phrase in (
        "scale(float32[3, 100], float32[3, 100])", "scale_flat", "cuda:0", "Stand-in H200", "(3,)", "128 threads",
        "num_warps=4", "OUT_OF_RESOURCES",
    ):  # fmt: skip
        assert phrase in str(caught.value)
    driver.launcher([make_step()], ())([x, x], [1, 1, 1], driver.default_stream)  # the next launch succeeds


def test_another_librarys_context_is_no_obstacle(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    operands = buffers(driver)
    run = driver.launcher([make_step()], ())
    run(operands, [1, 1, 1], driver.default_stream)
    cuda.cuCtxSetCurrent(cuda.contexts[1])  # as another library would do
    run(operands, [2, 2, 2], driver.default_stream)
    assert [launch.values(PARAMETERS)[5] for launch in cuda.launches] == [1, 2]


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


def test_host_cost_of_a_launch(cuda: Standin, compiled: Compiler) -> None:
    """A launch of four buffers and two numbers takes at most 3 us of host time besides the driver call."""
    cuda.cuLaunchKernel = lambda *arguments: (0,)
    driver = driver_of()
    text = TEXT.replace("x0, y0,", "x0, x1, x2, y0,")
    step = make_step()
    slots = step.instance.slots * 2
    step = replace(step, instance=replace(step.instance, text=text, slots=slots), buffers=(0, 1, 2, 3))
    operands, numbers, stream = buffers(driver, 4), [1.5, 2.5, 3], driver.default_stream
    run = driver.launcher([step], ())
    run(operands, numbers, stream)
    best = min(_seconds(lambda: run(operands, numbers, stream)) for _ in range(50))
    print(f"{best * 1e6:.2f} us a launch")
    assert best < 3e-6


def _seconds(call: Callable[[], Any], times: int = 500) -> float:
    begin = time.thread_time()  # on a busy machine, a thread waits for a core
    for _ in range(times):
        call()
    return (time.thread_time() - begin) / times


def test_threads_have_blocks_of_their_own(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            run = driver.launcher([make_step()], ())
            operands = buffers(driver)
            start.wait()
            for i in range(200):
                run(operands, [number, i, number], driver.default_stream)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    parameters = [launch.values(PARAMETERS) for launch in cuda.launches]
    assert sorted((v[5], v[6]) for v in parameters) == sorted((n, i) for n in range(4) for i in range(200))
    assert all(v[5] == v[7] for v in parameters)
    assert len({(v[0], v[1], v[5]) for v in parameters}) == 4
    assert len(compiled.requests) == 1


def test_building_ahead(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    assert driver.build([make_step(), make_step("double", "float64"), make_step(n=400)]) == 3
    assert len(compiled.requests) == 3
    driver.launcher([make_step()], ())(buffers(driver), [1, 1, 1], driver.default_stream)
    assert len(compiled.requests) == 3


# Whole ops: the interpreter runs the kernels with the parameters that arrived at the launches


def test_kernels_built_by_several_threads_have_images_of_their_own(cuda: Standin) -> None:
    computing, step, usual_interval = Interpreting(cuda), make_step(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as workers:
            images = list(workers.map(lambda _: computing.binary(step, True, None).image, range(500)))
    finally:
        sys.setswitchinterval(usual_interval)
    assert len(set(images)) == len(images)


def test_ops_compute(cuda: Standin, computing: Interpreting) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 70)), rng.standard_normal(70)
    x, y = wg.tensor(a, device="cuda"), wg.tensor(b, device="cuda")
    np.testing.assert_allclose((x * y + 2.5).cpu().numpy(), a * b + 2.5, rtol=1e-12)
    np.testing.assert_allclose((x.T - 1).cpu().numpy(), a.T - 1, rtol=1e-12)
    np.testing.assert_allclose((x[1:, 3:] * 2).cpu().numpy(), a[1:, 3:] * 2, rtol=1e-12)  # not aligned to 16 bytes
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
    graph, y = capture(driver, lambda: x * x + 1)
    for value in (2.0, -3.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [value * value + 1] * 3


def test_a_captured_step_of_training(cuda: Standin, computing: Interpreting) -> None:
    """Targets, which are otherwise checked on the host, and cached seeds of ones work in a capture, too."""
    rng = np.random.default_rng(0)
    logits, target = rng.standard_normal((3, 5)).astype(np.float32), wg.tensor([1, 0, 4], device="cuda")
    x = wg.tensor(logits, device="cuda", requires_grad=True)

    def step() -> Any:
        loss = wg.nn.functional.cross_entropy(x, target)
        (grad,) = wg.autograd.grad(loss, x)
        return loss.detach(), grad

    graph, (loss, grad) = capture(x.device.driver, step)
    for turn in range(2):
        with wg.no_grad():
            x.copy_(wg.tensor(logits * (turn + 1), device="cuda"))
        graph.replay()
        replayed = loss.item(), grad.tolist()
        expected = step()
        np.testing.assert_allclose(replayed[0], expected[0].item(), rtol=1e-6)
        np.testing.assert_allclose(replayed[1], expected[1].tolist(), rtol=1e-6)
    target.copy_(wg.tensor([1, 0, 5], device="cuda"))
    graph.replay()  # replays the check of the targets, too
    with pytest.raises(errors.IndexOutOfRange, match="target 5"):
        loss.item()
    step()
    with pytest.raises(errors.IndexOutOfRange, match="target 5"):
        wg.synchronize("cuda")


def test_reading_kernels_note_wrong_indices(cuda: Standin, computing: Interpreting) -> None:
    """The word that they write is host memory; a graph's launches write it, too."""
    x, index = wg.ones(5, 3, device="cuda"), wg.tensor([1, 4], device="cuda")
    driver = x.device.driver
    launches = driver.launches
    wg.nn.functional.embedding(wg.tensor([1, 7], device="cuda"), x)
    assert driver.launches == launches + 1
    with pytest.raises(errors.IndexOutOfRange, match="embedding: index 7 is out of range for a dimension of size 5"):
        wg.synchronize("cuda")
    graph, rows = capture(driver, lambda: x.index_select(0, index))
    graph.replay()
    assert rows.tolist() == [[1.0] * 3] * 2
    index.copy_(wg.tensor([-3, 0], device="cuda"))
    graph.replay()
    with pytest.raises(errors.IndexOutOfRange, match="index_select: index -3"):
        rows.tolist()
    wg.synchronize("cuda")


@pytest.mark.parametrize("name", cases.names())
def test_every_op(name: str, cuda: Standin, computing: Interpreting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that packs launch parameters and the kernels that read them agree, for every op."""
    monkeypatch.setenv("WEFTGRAD_CAPABILITIES", "block=16384")  # fewer programs: the interpreter is slow per program
    cases.check(name, wg.device("cuda:0"), "small")
