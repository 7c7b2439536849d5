"""Kernels of `cpu` called as functions, by one thread and by a team, beside NumPy and beside the driver's launches."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime import native, program
from weftgrad.runtime.backends import processor, workgroups
from weftgrad.runtime.backends.opencl_cpu import HELD, CpuDriver
from weftgrad.runtime.backends.protocol import Instance, Slot
from weftgrad.runtime.device import device

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def driver() -> CpuDriver:
    found: Any = device("cpu").driver
    found.require()
    if found._calls is None:
        pytest.skip("kernels are not called as functions here: no C, or a driver of which none are known")
    return found


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def code(driver: CpuDriver, entry: str) -> list[Any]:
    return [f for i, f in driver._functions.items() if i.entry == entry and f.find()]


@pytest.mark.parametrize("size", [1, 1000, 32 * 1024 + 1, 65536, 131071, 1 << 18, 700001])
def test_the_first_call_and_later_ones_agree(size: int, driver: CpuDriver) -> None:
    """The first goes by the driver, the others by the function: alone up to 32K elements, then in equal shares."""
    a, b = values(size, seed=size), values(size, seed=size + 1)
    x, y = wg.tensor(a, device="cpu"), wg.tensor(b, device="cpu")
    for again in range(4):
        np.testing.assert_array_equal((x - y).numpy(), a - b, err_msg=f"call {again} of {size} elements")
    assert code(driver, "sub_contiguous")


def test_every_item_is_run_once(driver: CpuDriver) -> None:
    """In place, an item that is run twice, or never, shows."""
    shares = [(1 << 16, 400), (1 << 18, 200), ((512, 513), 100)]
    for shape, times in shares:
        x = wg.zeros(shape, device="cpu")
        step = np.float32(0.25)
        for _ in range(times):
            x += 0.25
        assert (x.numpy() == step * times).all(), shape


def test_products_and_rows_by_a_team(driver: CpuDriver) -> None:
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


def test_what_pends_goes_first(driver: CpuDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step behind work of the pool waits for it: here that is work of kernels that are not called."""
    monkeypatch.setattr(driver, "_is_called", lambda step: "mul" not in step.instance.entry)
    big, small = wg.ones(1 << 23, device="cpu"), wg.zeros(1 << 17, device="cpu")
    for again in range(4):
        made = big
        for _ in range(5):
            made = made * 2
        assert driver.default_stream.pending is not None
        head = made[: 1 << 17] + small
        if again:  # with memory that launches know: not queued behind it, and what follows neither
            assert driver.default_stream.pending is None
        assert (head.numpy() == 32).all()
    wg.mul(big, 1.0)
    driver.synchronize()


def test_threads_take_turns(driver: CpuDriver) -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        a = np.full(1 << 17, number, np.float32)
        x = wg.tensor(a, device="cpu")
        for i in range(100):
            found = (x * x + i).numpy()
            if not (found == number * number + i).all():
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(sys.platform != "linux", reason="needs libm.so.6")
def test_rounding_is_that_of_the_driver(driver: CpuDriver) -> None:
    """Whatever the calling thread rounds to: kernels round to nearest, and the thread's own mode stays."""
    libm = ctypes.CDLL("libm.so.6")
    upward = 0x800  # FE_UPWARD of x86
    for size in (1000, 1 << 17):
        a, b = values(size, seed=3), values(size, seed=4)
        x, y = wg.tensor(a, device="cpu"), wg.tensor(b, device="cpu")
        x * y  # launched: a function from now on
        before = libm.fegetround()
        try:
            assert libm.fesetround(upward) == 0
            found = x * y
            assert libm.fegetround() == upward
        finally:
            libm.fesetround(before)
        np.testing.assert_array_equal(found.numpy(), a * b)


def test_signals_are_handled_by_the_interpreter(driver: CpuDriver) -> None:
    """A helper takes none: Ctrl-C arrives while it spins or sleeps."""
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        x = wg.ones(1 << 17, device="cpu")
        for _ in range(20):
            y = x + x
            os.kill(os.getpid(), signal.SIGUSR1)
        end = time.monotonic() + 10
        while not seen and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen
    assert (y.numpy() == 2).all()


def test_a_process_may_end_beside_its_helpers() -> None:
    text = (
        "import os, sys, weftgrad as wg\n"
        "x = wg.ones(1 << 17, device='cpu')\n"
        "for _ in range(100): y = x + x\n"
        "if os.fork() == 0:\n"  # without the helpers: it must not wait for one
        "    os._exit(0)\n"
        "os.wait()\n"
        "for _ in range(100): y = x + x\n"
        "print(float(y.sum()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "262144.0"), done.stderr


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="affinities are Linux's")
def test_helpers_are_kept_from_the_callers_core(driver: CpuDriver) -> None:
    if processor.cores() < 2:
        pytest.skip("one core: there are no helpers")
    everywhere = os.sched_getaffinity(0)
    x = wg.ones(1 << 17, device="cpu")
    end = time.monotonic() + 10
    fewer: list[set[int]] = []
    while not fewer and time.monotonic() < end:  # helpers are woken once work has lasted for a while
        for _ in range(200):
            x = x + 0.5
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        fewer = [masked for t in threads if len(masked := os.sched_getaffinity(t)) == len(everywhere) - 1]
    assert fewer, "no thread is kept from any core"
    assert all(masked < everywhere for masked in fewer)
    assert os.sched_getaffinity(0) == everywhere  # the caller's own is left alone


def test_other_versions_are_left_to_the_driver(driver: CpuDriver) -> None:
    if not isinstance(driver._calls, workgroups.Named):
        pytest.skip("functions here are not PoCL's")
    given = (driver._opencl.cl, driver.context, driver.default_stream.quick)
    version = driver._handles[0].platform.version
    assert workgroups.can_call(*given, workgroups.Named(driver.quick_compiler, version))
    for other in ("OpenCL 3.0 PoCL 7.0", "OpenCL 2.0 pocl 1.4", "OpenCL 3.0 LINUX", ""):
        assert not workgroups.can_call(*given, workgroups.Named(driver.quick_compiler, other)), other


def test_a_kernel_has_a_name_of_its_own() -> None:
    probe = workgroups.PROBE
    names = {program.entry_name(probe)}
    for change in ({"element": "int"}, {"lanes": 4}, {"text": probe.text + " "}, {"defines": (("A", "1"),)}):
        names.add(program.entry_name(type(probe)(**{**{n: getattr(probe, n) for n in probe.__slots__}, **change})))
    assert len(names) == 5
    assert all(name.startswith("probe_") and len(name) == len("probe_") + 12 for name in names)


@pytest.mark.skipif(not native.present, reason="compiled without C")
def test_a_kernel_that_was_never_launched_cannot_be_called() -> None:
    unknown = native.function("no_such_kernel_anywhere")
    assert not unknown.find()
    with pytest.raises(RuntimeError, match="cannot be called"):
        unknown.try_call((), (1, 1, 1), (0, 0, 0))


def test_other_threads_go_on_beside_long_work(driver: CpuDriver) -> None:
    """Work of more than a millisecond is done without the interpreter's lock."""
    x = wg.ones(1 << 24, device="cpu")
    assert planned("sin", x).work > HELD
    wg.sin(x)
    seen: list[float] = []
    ends = threading.Event()

    def watch() -> None:
        while not ends.is_set():
            seen.append(time.perf_counter())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        spans = []
        for _ in range(10):
            begin = time.perf_counter()
            wg.sin(x)
            spans.append((begin, time.perf_counter()))
    finally:
        ends.set()
        thread.join()
    within = [sum(begin + 1e-3 < at < end - 1e-3 for at in seen) for begin, end in spans]
    assert max(within) > 10, within


def test_two_threads_of_long_work(driver: CpuDriver) -> None:
    """The team serves one of them, the other works alone."""
    wrong: list[Any] = []

    def work(number: int) -> None:
        x = wg.full((1 << 22,), number, device="cpu")
        for i in range(10):
            if not ((x * x + i).numpy() == number * number + i).all():
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def planned(name: str, *operands: Any) -> Any:
    from weftgrad.runtime import dispatch
    from weftgrad.runtime.records import registry

    (found,) = dispatch.plan_for(registry[name], operands).steps
    return found


def test_the_calling_thread_does_it_all(driver: CpuDriver) -> None:
    for size in (1000, 1 << 18, 1 << 23):
        x = wg.empty(size, device="cpu")
        assert driver.is_quick(planned("add", x, x)), size
    wg.ones(1 << 23, device="cpu") + 1
    assert driver.default_stream.pending is None


def test_events_of_work_that_is_done(driver: CpuDriver) -> None:
    begin, end = wg.Event(enable_timing=True), wg.Event(enable_timing=True)
    x = wg.ones(1 << 22, device="cpu")
    begin.record()
    before = time.perf_counter()
    for _ in range(3):
        x = x + 1
    taken = time.perf_counter() - before
    end.record()
    assert begin.query()
    assert end.query()
    end.synchronize()
    assert 0.5e3 * taken < begin.elapsed_time(end) < 1e3 * taken + 50


def test_as_many_threads_as_were_asked_for(driver: CpuDriver) -> None:
    """With one, the caller works alone: the process takes no more time of cores than has passed."""
    x = wg.ones(1 << 20, device="cpu")
    assert wg.get_num_threads() == processor.cores()
    try:
        wg.set_num_threads(1)
        assert wg.get_num_threads() == 1
        time.sleep(0.05)  # helpers go to sleep
        begin, used = time.perf_counter(), time.process_time()
        for _ in range(100):
            wg.sin(x)
        assert time.process_time() - used < 1.1 * (time.perf_counter() - begin) + 0.01
    finally:
        wg.set_num_threads(processor.cores())
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="set_num_threads: takes a positive int"):
            wg.set_num_threads(wrong)  # type: ignore[arg-type]
    wg.set_num_interop_threads(3)
    assert wg.get_num_interop_threads() == 3
    wg.set_num_interop_threads(1)


@pytest.mark.parametrize("c", ["1", "0"])
def test_arrays_over_tensors_see_what_kernels_write(c: str) -> None:
    """And kernels see what is written to arrays after a call: never before it."""
    text = (
        "import numpy as np, weftgrad as wg\n"
        "q = wg.ones(1 << 23, device='cpu'); v = q.numpy(); q.add_(1); print(v[-1])\n"
        "w = q * 2; v[:] = 5; print(float(w[-1]))\n"
        "a = np.ones(1 << 23, np.float32); t = wg.from_numpy(a); u = t + 1; a[:] = 7; print(float(u[-1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | {"WEFTGRAD_NATIVE": c}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["2.0", "4.0", "2.0"], done


# What PoCL says of its devices' versions, on machines with AVX-512.
_VERSION = "OpenCL 3.0 PoCL HSTR: {}"


@pytest.mark.parametrize(
    ("target", "knows"),
    [
        ("pthread-x86_64-unknown-linux-gnu-znver3", False), ("cpu-x86_64-pc-linux-gnu-znver4", True),
        ("pthread-x86_64-unknown-linux-gnu-skylake-avx512", True), ("cpu-x86_64-pc-linux-gnu-znver5", True),
        ("cpu-x86_64-pc-linux-gnu-sapphirerapids", True), ("pthread-x86_64-pc-linux-gnu-icelake-server", True),
        ("pthread-x86_64-pc-linux-gnu-cascadelake", True), ("cpu-x86_64-pc-linux-gnu-haswell", False),
    ],
)  # fmt: skip
def test_compilers_that_do_not_know_the_processor_are_told(
    target: str, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = _VERSION.format(target)
    monkeypatch.setattr(processor, "has_avx512", lambda: True)
    assert processor.must_be_told(version) is not knows
    assert processor.vectors() == (16, 32)
    monkeypatch.setattr(processor, "has_avx512", lambda: False)
    assert not processor.must_be_told(version)
    assert processor.vectors() == (8, 16)


def test_vectors_are_the_compilers(driver: CpuDriver) -> None:
    """Once it was told what it may not know, the compiler adds vectors of 64 bytes as one where the processor can."""
    able = driver.capabilities
    if "WEFTGRAD_CAPABILITIES" in os.environ or "Portable" not in driver.compiler._handle.platform.name:
        pytest.skip("other capabilities are claimed, or binaries are no machine code")
    assert (able.lanes, able.registers) == processor.vectors()
    text = """typedef struct { long a; } NAME(Geometry), NAME(Dynamic);
WG_ONE kernel void NAME(adds)(global float *p0, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global float16_u *at = (global float16_u *)p0 + get_global_id(0);
    *at = *at + (V)(geo.a);
}
"""
    instance = Instance("adds", text, "adds", "float", 16, (Slot("float32", "raw"),))
    found, a, nothing = np.arange(32, dtype=np.float32), np.full(1, 5), np.zeros(1, np.int64)
    cl, queue, kernel = driver._opencl.cl, driver.default_stream.queue, driver.compiler.kernel(instance)
    buffer = driver.buffer_over(found)
    kernel.set_args(buffer, a, nothing)
    cl.enqueue_nd_range_kernel(queue, kernel, (2,), (1,))
    cl.enqueue_copy(queue, found, buffer)
    np.testing.assert_array_equal(found, np.arange(5, 37))
    binaries = driver.compiler.program_of(instance)[0].get_info(cl.program_info.BINARIES)
    # EVEX, three bytes of operands of which the last says 512 bits, and vaddps.
    adds = [re.findall(rb"\x62.[\x04-\x7f]\x48\x58", bytes(each), re.DOTALL) for each in binaries]
    assert any(adds) == processor.has_avx512()
