"""Check kernels of `cpu` against NumPy, run by one thread and by a team of threads."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime import native
from weftgrad.runtime.backends import processor
from weftgrad.runtime.backends.cpu.launching import MAX_WORK_UNDER_LOCK

Array = np.ndarray[Any, Any]
needs_c = pytest.mark.skipif(not native.present, reason="compiled without C")


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 1000, 32 * 1024 + 1, 65536, 131071, 1 << 18, 700001])
def test_calls_by_one_thread_and_by_a_team_agree(size: int) -> None:
    a, b = values(size, seed=size), values(size, seed=size + 1)
    x, y = wg.tensor(a, device="cpu"), wg.tensor(b, device="cpu")
    for repetition in range(4):
        np.testing.assert_array_equal((x - y).numpy(), a - b, err_msg=f"call {repetition} of {size} elements")


def test_every_item_is_run_once() -> None:
    """Add in place: a work-item that ran twice, or never, changes the result."""
    shares = [(1 << 16, 400), (1 << 18, 200), ((512, 513), 100)]
    for shape, times in shares:
        x = wg.zeros(shape, device="cpu")
        step = np.float32(0.25)
        for _ in range(times):
            x += 0.25
        assert (x.numpy() == step * times).all(), shape


def test_products_and_rows_by_a_team() -> None:
    a, b = values(200, 190), values(190, 210, seed=1)
    exact = a.astype(np.float64) @ b
    x, y = wg.tensor(a, device="cpu"), wg.tensor(b, device="cpu")
    rows = values(300, 500, seed=2)
    shifted = rows.astype(np.float64) - rows.max(1, keepdims=True)
    expected = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    z = wg.tensor(rows, device="cpu")
    for _ in range(5):
        np.testing.assert_allclose((x @ y).numpy(), exact, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(wg.softmax(z, 1).numpy(), expected, rtol=2e-6, atol=1e-9)


def test_several_threads_call_kernels() -> None:
    mismatches: list[Any] = []

    def work(number: int) -> None:
        a = np.full(1 << 17, number, np.float32)
        x = wg.tensor(a, device="cpu")
        for i in range(100):
            actual = (x * x + i).numpy()
            if not (actual == number * number + i).all():
                mismatches.append((number, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not mismatches


@pytest.mark.skipif(sys.platform != "linux", reason="needs libm.so.6")
@needs_c
def test_rounding_is_to_nearest() -> None:
    """Kernels round to nearest whatever mode the calling thread has set, and leave the thread's mode as it was."""
    libm = ctypes.CDLL("libm.so.6")
    upward = 0x400000 if platform.machine() in ("aarch64", "arm64") else 0x800  # FE_UPWARD of <fenv.h>
    for size in (1000, 1 << 17):
        a, b = values(size, seed=3), values(size, seed=4)
        x, y = wg.tensor(a, device="cpu"), wg.tensor(b, device="cpu")
        x * y  # compile: the next call runs the compiled function
        mode_before = libm.fegetround()
        try:
            assert libm.fesetround(upward) == 0
            product = x * y
            assert libm.fegetround() == upward
        finally:
            libm.fesetround(mode_before)
        np.testing.assert_array_equal(product.numpy(), a * b)


def test_signals_are_handled_by_the_interpreter() -> None:
    """Helper threads block signals, so Ctrl-C reaches the main thread while they spin or sleep."""
    signals: list[int] = []
    handler_before = signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))
    try:
        x = wg.ones(1 << 17, device="cpu")
        for _ in range(20):
            y = x + x
            os.kill(os.getpid(), signal.SIGUSR1)
        end = time.monotonic() + 60
        while not signals and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGUSR1, handler_before)
    assert signals
    assert (y.numpy() == 2).all()


def test_a_process_ends_while_its_helpers_wait() -> None:
    text = (
        "import os, sys, weftgrad as wg\n"
        "x = wg.ones(1 << 17, device='cpu')\n"
        "for _ in range(100): y = x + x\n"
        "if os.fork() == 0:\n"  # the child has no helper threads and must not wait for one
        "    os._exit(0)\n"
        "os.wait()\n"
        "for _ in range(100): y = x + x\n"
        "print(float(y.sum()))\n"
    )
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert (process.returncode, process.stdout.strip()) == (0, "262144.0"), process.stderr


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="affinities are Linux's")
@needs_c
def test_helpers_avoid_the_callers_core() -> None:
    if processor.cores() < 2:
        pytest.skip("one core: there are no helpers")
    all_cores = os.sched_getaffinity(0)
    x = wg.ones(1 << 17, device="cpu")
    end = time.monotonic() + 60
    restricted: list[set[int]] = []
    while not restricted and time.monotonic() < end:  # helpers are only woken for work that lasts for a while
        for _ in range(200):
            x = x + 0.5
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        restricted = [mask for t in threads if len(mask := os.sched_getaffinity(t)) == len(all_cores) - 1]
    assert restricted, "no thread is kept from any core"
    assert all(mask < all_cores for mask in restricted)
    assert os.sched_getaffinity(0) == all_cores  # the caller's own affinity is unchanged


@needs_c
def test_other_threads_go_on_beside_long_work() -> None:
    """A call of more than a millisecond releases the GIL."""
    x = wg.ones(1 << 24, device="cpu")
    assert plan_step("sin", x).work > MAX_WORK_UNDER_LOCK
    wg.sin(x)
    wg.cpu.synchronize()  # wait until its kernel is compiled
    ticks: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        counts: list[int] = []
        last_begin = time.monotonic() + 60  # other programs may keep the thread from a core during a call
        while max(counts, default=0) <= 10 and time.monotonic() < last_begin:
            ticks.clear()
            begin = time.perf_counter()
            wg.sin(x)
            end = time.perf_counter()
            counts.append(sum(begin + 1e-3 < tick < end - 1e-3 for tick in list(ticks)))
    finally:
        stop.set()
        thread.join()
    assert max(counts) > 10, counts


def test_two_threads_of_long_work() -> None:
    """The team of helpers serves one thread; the others compute alone."""
    mismatches: list[Any] = []

    def work(number: int) -> None:
        x = wg.full((1 << 22,), number, device="cpu")
        for i in range(10):
            if not ((x * x + i).numpy() == number * number + i).all():
                mismatches.append((number, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not mismatches


def plan_step(name: str, *operands: Any) -> Any:
    from weftgrad.runtime import dispatch
    from weftgrad.runtime.records import registry

    (step,) = dispatch.plan_for(registry[name], operands).steps
    return step


def test_events_measure_elapsed_time() -> None:
    begin, end = wg.Event(enable_timing=True), wg.Event(enable_timing=True)
    x = wg.ones(1 << 22, device="cpu")
    x = x + 1
    outer_begin = time.perf_counter()
    begin.record()  # the kernel is compiled by now
    inner_begin = time.perf_counter()
    for _ in range(3):
        x = x + 1
    inner_seconds = time.perf_counter() - inner_begin
    end.record()
    assert begin.query()
    assert end.query()
    end.synchronize()
    outer_seconds = time.perf_counter() - outer_begin
    assert 0.5e3 * inner_seconds < begin.elapsed_time(end) < 1e3 * outer_seconds + 1


@needs_c
def test_set_num_threads() -> None:
    """With one thread the caller works alone: CPU time does not exceed wall time."""
    x = wg.ones(1 << 20, device="cpu")
    assert wg.get_num_threads() == processor.cores()
    try:
        wg.set_num_threads(1)
        assert wg.get_num_threads() == 1
        time.sleep(0.05)  # let the helpers go to sleep
        begin, used = time.perf_counter(), time.process_time()
        for _ in range(100):
            wg.sin(x)
        assert time.process_time() - used < 1.1 * (time.perf_counter() - begin) + 0.01
    finally:
        wg.set_num_threads(processor.cores())
    for bad_count in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="set_num_threads: takes a positive int"):
            wg.set_num_threads(bad_count)  # type: ignore[arg-type]
    wg.set_num_interop_threads(3)
    assert wg.get_num_interop_threads() == 3
    wg.set_num_interop_threads(1)


@pytest.mark.parametrize("native_enabled", ["1", "0"])
def test_arrays_over_tensors_share_their_memory(native_enabled: str) -> None:
    """An array over a tensor sees the kernels' results; a write to the array after a call does not change that call."""
    text = (
        "import numpy as np, weftgrad as wg\n"
        "q = wg.ones(1 << 23, device='cpu'); v = q.numpy(); q.add_(1); print(v[-1])\n"
        "w = q * 2; v[:] = 5; print(float(w[-1]))\n"
        "a = np.ones(1 << 23, np.float32); t = wg.from_numpy(a); u = t + 1; a[:] = 7; print(float(u[-1]))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | {"WEFTGRAD_NATIVE": native_enabled},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert process.stdout.split() == ["2.0", "4.0", "2.0"], process
