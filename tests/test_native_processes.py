"""Check the C implementation of op calls under threads, forks, interrupts and the end of a process."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from native_calls import cpu, needs_c, run_program

import weftgrad as wg
from weftgrad.runtime import context, native
from weftgrad.runtime.records import registry


def count_objects() -> int:
    """Collect garbage, and return the number of objects that the collector tracks.

    A collection stops tracking tuples of untracked objects, one layer of nested tuples at a time. So tuples of tests
    that ran before let the number fall with each collection, until there is nothing left to do.
    """
    gc.collect()
    counts = [len(gc.get_objects())]
    while len(counts) < 2 or (counts[-1] < counts[-2] and len(counts) < 50):
        gc.collect()
        counts.append(len(gc.get_objects()))
    return counts[-1]


@needs_c
def test_nothing_leaks() -> None:
    x, y = cpu(64, grad=True), cpu(64)
    number = 4711.5

    def work() -> None:
        z = (x + y) * number
        (z.view(8, 8).transpose(0, 1).sum()).backward()
        x.grad = None

    for _ in range(20):
        work()
    wg.cpu.synchronize()  # wait for kernels that are compiled for the first time
    objects = (x.meta, y.meta, registry["add"], number, None, x.storage, x, y)
    num_objects_before = count_objects()
    refcounts_before = [sys.getrefcount(o) for o in objects]
    allocated = wg.memory_allocated("cpu")
    for _ in range(500):
        work()
    num_objects_after = count_objects()
    refcounts_after = [sys.getrefcount(o) for o in objects]
    assert wg.memory_allocated("cpu") == allocated
    # A leak would appear 500 times; caches of the interpreter change counts by a few dozen.
    assert max(abs(a - b) for a, b in zip(refcounts_before, refcounts_after, strict=True)) < 250
    assert abs(num_objects_after - num_objects_before) < 250


@needs_c
def test_threads_share_a_pool() -> None:
    """Threads that allocate in C and in Python at once get correct results, and the pool's statistics stay correct."""
    wg.cpu.synchronize()
    gc.collect()
    allocated = wg.memory_allocated("cpu")
    mismatches: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for size in rng.integers(1, 5000, 300):
            x = wg.full((int(size),), float(seed), device="cpu")
            y = x + x * 2
            if float(y[-1]) != 3 * seed:
                mismatches.append((seed, int(size)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not mismatches
    assert wg.memory_allocated("cpu") == allocated


PROGRAM = """
import json, sys
import weftgrad as wg
from weftgrad import nn
wg.manual_seed(3)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to("cpu")
optimizer = wg.optim.SGD(model.parameters(), lr=1e-2)
for step in range(4):
    x, y = wg.rand(32, 64, device="cpu"), wg.randint(0, 10, (32,), device="cpu")
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
stats = wg.memory_stats("cpu")
counters = {k: v for k, v in stats.items() if "allocated" in k or "reserved" in k or "allocations" in k}
from weftgrad.runtime.device import device
print(json.dumps([float(loss).hex(), [float(p.sum()).hex() for p in model.parameters()], counters,
    device("cpu").driver.launches]))
"""


@needs_c
def test_a_training_program_is_the_same() -> None:
    results = []
    for native_switch in ("1", "0"):
        process = run_program(PROGRAM, native_switch)
        assert process.returncode == 0, process.stderr
        results.append(json.loads(process.stdout))
    assert results[0] == results[1]


@pytest.mark.parametrize("device_name", ["cpu", "opencl:0"])
def test_a_process_may_end_with_work_queued(device_name: str) -> None:
    """The interpreter frees its memory at exit, so it must first wait for the kernels that still use it."""
    process = run_program(
        f"""
        import weftgrad as wg
        a = wg.rand(1 << 20, device="{device_name}")
        for _ in range(200):
            b = a * a
        """.replace("\n        ", "\n"),
        os.environ.get("WEFTGRAD_NATIVE", "1"),
    )
    assert process.returncode == 0, (process.returncode, process.stderr)


@needs_c
def test_nodes_from_c_store_stacks_in_anomaly_mode():
    x = wg.ones(2, requires_grad=True)
    with wg.autograd.detect_anomaly():
        y, z = x * x, wg.relu(x)
    assert "test_nodes_from_c_store_stacks" in y.grad_fn.trace
    assert "test_nodes_from_c_store_stacks" in z.grad_fn.trace
    assert (x * x).grad_fn.trace is None


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt: a process that a shell started in the background ignores it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@needs_c
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_in_a_finalizer_reaches_the_program(monkeypatch):
    """Python drops exceptions of finalizers; Ctrl-C while a storage is deleted must stop the program all the same."""
    tensors = [wg.from_numpy(np.zeros(4))]
    retired = []

    def retire(driver, owner, buffer):
        retired.append(buffer)
        if len(retired) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(type(wg.device("cpu").driver), "retire", retire)
    with pytest.raises(KeyboardInterrupt):
        tensors.clear()
    assert len(retired) == 2  # the memory of an interrupted call is retired again


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_planned_call_after_a_fork() -> None:
    process = run_program(
        """
        import os, warnings
        import weftgrad as wg
        warnings.simplefilter("ignore", DeprecationWarning)
        x = wg.rand(1 << 18, device="cpu")
        y = x + x
        child = os.fork()
        if child == 0:
            y = x + x
            os._exit(7 if bool((y == 2 * x).all()) else 8)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """.replace("\n        ", "\n"),
        os.environ.get("WEFTGRAD_NATIVE", "1"),
    )
    assert process.stdout.strip() == "7", process


def test_a_mismatch_of_c_and_python_is_an_error() -> None:
    process = run_program(
        """
        from weftgrad.runtime import native_dispatch
        class Other: pass
        try:
            native_dispatch.bind(Other, *[lambda: None] * 3)
        except ImportError as error:
            print("WEFTGRAD_NATIVE=0" in str(error))
        """.replace("\n        ", "\n"),
        "1",
    )
    assert process.stdout.strip() == "True" or not native.present, process


@needs_c
def test_launchers_need_the_opencl_functions() -> None:
    """A launcher that is created before C knows OpenCL's functions would jump to address 0 at its first call."""
    process = run_program(
        """
        import weftgrad.runtime.dispatch
        from weftgrad.runtime import _native
        from weftgrad.runtime.backends.queues import Counter
        try:
            _native.Launcher(object(), 1, b"", (1,), None, (), (), (), "f", print, Counter())
        except RuntimeError as error:
            print("set_opencl_functions" in str(error))
        """.replace("\n        ", "\n"),
        "1",
    )
    assert process.stdout.strip() == "True", process


@needs_c
@pytest.mark.parametrize(
    ("statement", "call", "error"),
    [
        ("x.extra = {'name': 'weight'}", "x + 1", "AttributeError"),
        ("x.extra = 5", "x.add_(1)", "AttributeError"),
        ("x.extra = None", "view + 1", "AttributeError"),
        ("x.extra = object()", "view + 1", "AttributeError"),
        ("x.start = '0'", "x + 1", "error"),  # struct.error
        ("x.start = 1 << 70", "x + 1", "error"),
        ("x.storage = 5", "x.add_(1)", "AttributeError"),
        ("del x.node", "x + 1", "AttributeError"),
    ],
)
def test_attributes_of_a_wrong_type_are_errors(statement: str, call: str, error: str) -> None:
    """C reads tensors' slots by their offset; a value of another type must reach Python, which raises."""
    process = run_program(
        f"""
        import weftgrad as wg
        x = wg.ones(4, device="cpu", requires_grad=True)
        view = x[1:]
        with wg.no_grad():
            x.add_(1)  # C makes only calls that were made before
            x + 1, view + 1
        (x + 1).tolist(), (view + 1).tolist()  # wait until their kernels are compiled
        {statement}
        try:
            with wg.set_grad_enabled("_" not in {call!r}):
                {call}
        except Exception as error:
            print(type(error).__name__)
        """.replace("\n        ", "\n"),
        "1",
    )
    assert (process.returncode, process.stdout.strip()) == (0, error), (statement, call, process)


@needs_c
def test_a_dying_state_gives_way_to_other_threads() -> None:
    """Destroying a thread's state may run Python code and switch threads; the caller must keep its own state."""
    dying, finish = threading.Event(), threading.Event()

    class Slow:
        def __del__(self) -> None:
            dying.set()
            time.sleep(0.2)

    def first() -> None:
        x + x
        context.state().plans[("slow",)] = Slow()

    def second() -> None:
        dying.wait(60)
        with wg.no_grad():
            x + x
            finish.wait(60)

    x = cpu(4)
    thread = threading.Thread(target=first)
    thread.start()
    thread.join()
    del thread
    thread = threading.Thread(target=second)
    thread.start()
    try:
        p = cpu(4, grad=True)
        assert [(p + x).requires_grad for _ in range(3)] == [True] * 3
    finally:
        finish.set()
        thread.join()
