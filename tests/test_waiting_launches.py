"""Check launches on `cpu` that wait for their kernels, with threads, signals, forks and the end of the process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weftgrad as wg
from weftgrad.runtime import host_data
from weftgrad.runtime.backends.cpu import kernels, objects
from weftgrad.runtime.backends.cpu.launching import ClangExecutor
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.errors import CompileError
from weftgrad.runtime.lazy_modules import import_lazily

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The `cpu` device with no kernel loaded; `executor.kernels.store.compile` takes them from the cache if it can."""
    driver: Any = wg.device("cpu").driver  # type: ignore[attr-defined]
    driver.require()
    if not isinstance(driver.executor, ClangExecutor):
        pytest.skip("kernels are OpenCL's")
    driver.synchronize()
    store = objects.ObjectStore(driver.executor.kernels.store.compiler, driver.capabilities)
    load, compile_missing = store.load, store.compile
    compiled: Counter[Any] = Counter()

    def compile_or_load(instances: Any) -> Any:
        compiled.update(instances)
        missing = [i for i in instances if load(i) is None]
        return compile_missing(missing) if missing else {}

    monkeypatch.setattr(store, "load", lambda instance: load(instance) if instance in compiled else None)
    monkeypatch.setattr(store, "compile", compile_or_load)
    store.times_compiled = compiled  # type: ignore[attr-defined]
    monkeypatch.setattr(driver, "executor", ClangExecutor(store, driver.counter))
    forget_plans()
    yield driver.executor
    driver.synchronize()
    forget_plans()


def run_program(text: str, cache: Path) -> str:
    """Run a program in a new process with the cache folder `cache`, and return its output."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=300,
        check=False, env={**os.environ, "WEFTGRAD_CACHE": str(cache)},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def test_memory_at_an_address_is_up_to_date(executor: Any) -> None:
    x = wg.rand(4, device="cpu") * 0 + 2
    assert executor.has_queued_launches
    values_at_address = (ctypes.c_float * 4).from_address(x.data_ptr())
    assert list(values_at_address) == [2] * 4
    x.sqrt_().mul_(x)  # runs at once, without the queue
    assert list(values_at_address) == x.tolist()


def test_constants_that_the_host_wrote_do_not_keep_launches_from_the_queue(executor: Any) -> None:
    x = wg.empty(4, device="cpu")
    host_data.fill(x, 2.0)
    y = x * 3
    assert executor.has_queued_launches
    assert y.tolist() == [6.0] * 4


def test_an_address_is_written_after_earlier_launches(executor: Any) -> None:
    for _ in range(3):
        wg.rand(64, device="cpu").exp()  # freed before its launch has run
    assert executor.has_queued_launches
    x = wg.empty(64, device="cpu")
    (ctypes.c_float * 64).from_address(x.data_ptr())[:] = [7.0] * 64
    assert x.tolist() == [7.0] * 64


def test_threads_do_not_read_before_the_last_launch_has_run(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = wg.rand(1 << 10, device="cpu") * 0
    launcher = executor._queue[-1].launcher.__class__
    call, has_begun = launcher.call, threading.Event()

    def slow_call(self: Any, *args: Any) -> None:
        has_begun.set()
        time.sleep(0.05)
        call(self, *args)

    monkeypatch.setattr(launcher, "call", slow_call)
    thread = threading.Thread(target=executor.synchronize)
    thread.start()
    assert has_begun.wait(60)
    while len(executor._queue) > 1:
        time.sleep(0.001)
    assert x.tolist() == [0.0] * (1 << 10)
    thread.join()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_launch_runs_once_around_an_interrupt(executor: Any, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    x = wg.rand(100, device="cpu") * 0
    for _ in range(5):
        x.add_(1)
    launcher = executor._queue[-1].launcher.__class__
    call, calls = launcher.call, []

    def interrupted_call(self: Any, *args: Any) -> None:
        calls.append(self)
        if len(calls) == 5 and moment == "before":
            raise KeyboardInterrupt
        call(self, *args)
        if len(calls) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(launcher, "call", interrupted_call)
    with pytest.raises(KeyboardInterrupt):
        executor.synchronize()
    assert x.tolist() == [5.0] * 100


def test_a_handler_may_compute_while_the_queue_runs(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = wg.rand(100, device="cpu") * 0
    for _ in range(5):
        x.add_(1)
    launcher = executor._queue[-1].launcher.__class__
    call, calls, cosines, sums = launcher.call, [], [], []

    def call_and_handle_signal(self: Any, *args: Any) -> None:
        call(self, *args)
        calls.append(self)
        if len(calls) == 3:
            cosines.append(x.cos())  # nobody has waited for its kernel before
        if len(calls) == 4:
            sums.append(float(x.sum()))

    monkeypatch.setattr(launcher, "call", call_and_handle_signal)
    executor.synchronize()
    assert x.tolist() == [5.0] * 100
    assert sums == [500.0]


def test_kernels_that_are_being_compiled_are_not_requested_again(executor: Any) -> None:
    x = wg.rand(50, device="cpu")
    for _ in range(3):
        x = x.sin().exp()
        x.tolist()
    assert set(executor.kernels.store.times_compiled.values()) == {1}


def test_every_thread_that_waits_gets_the_error(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_kernels = executor.kernels.store.compile

    def fail(instances: Any) -> Any:
        time.sleep(0.2)
        return {i: CompileError("no") for i in instances}

    monkeypatch.setattr(executor.kernels.store, "compile", fail)
    x = wg.rand(10, device="cpu") * 0
    instances = [queued.launcher.instance for queued in executor._queue]
    errors: list[Any] = []

    def build() -> None:
        try:
            executor.build(instances)
        except CompileError as error:
            errors.append(error)

    threads = [threading.Thread(target=build, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 2
    monkeypatch.setattr(executor.kernels.store, "compile", compile_kernels)
    for _ in range(5):
        try:
            executor.synchronize()
            break
        except CompileError:  # the error of an earlier compilation; the next call tries again
            continue
    assert x.tolist() == [0.0] * 10


def test_kernels_are_compiled_if_no_thread_can_be_started(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(kernels.threading.Thread, "start", refuse)
    assert (wg.rand(3, device="cpu") * 0).tolist() == [0.0] * 3


def test_functions_that_run_at_exit_may_compute(tmp_path: Path) -> None:
    text = """
        import atexit, weftgrad as wg
        atexit.register(lambda: print(float(y.sum())))
        x = wg.rand(4, device="cpu")
        y = x * 0 + 2
    """
    assert run_program(text, tmp_path) == "8.0"


@needs_fork
def test_children_may_end_or_stay_while_a_compiler_runs(tmp_path: Path) -> None:
    text = """
        import os, subprocess, sys, threading, time, weftgrad as wg
        is_running, has_forked = threading.Event(), threading.Event()
        communicate = subprocess.Popen.communicate

        def communicate_late(*args, **options):
            if threading.current_thread().name == "weftgrad-compile":
                is_running.set()
                has_forked.wait(60)
            return communicate(*args, **options)

        subprocess.Popen.communicate = communicate_late
        x = wg.rand(4, device="cpu") * 0 + 2
        is_running.wait(60)
        leaving = os.fork()
        if leaving == 0:
            sys.exit(0)  # must not remove the parent's folders
        os.waitpid(leaving, 0)
        staying = os.fork()
        if staying == 0:
            time.sleep(600)
            os._exit(0)
        has_forked.set()
        begin = time.monotonic()
        print(float(x.sum()), time.monotonic() - begin < 200)  # the child did not keep the compiler's pipe open
        os.kill(staying, 9)
    """
    assert run_program(text, tmp_path) == "8.0 True"


@pytest.mark.skipif(not hasattr(os, "kill") or os.name != "posix", reason="no signals")
def test_a_handler_may_compute_while_a_kernel_is_looked_up(tmp_path: Path) -> None:
    text = """
        import os, signal, threading, weftgrad as wg
        from weftgrad.runtime.backends.cpu.objects import ObjectStore
        wg.device("cpu").driver.require()
        get_source, values = ObjectStore._source, []

        def get_source_and_signal(self, instances):
            if threading.current_thread() is threading.main_thread():  # not a thread that compiles the kernel of `rand`
                ObjectStore._source = get_source
                os.kill(os.getpid(), signal.SIGUSR1)
            return get_source(self, instances)

        signal.signal(signal.SIGUSR1, lambda *_: values.append(float((wg.rand(3, device="cpu") * 0).sum())))
        x = wg.rand(3, device="cpu")
        ObjectStore._source = get_source_and_signal
        print(float((x * 0 + 2).sum()), values)
    """
    assert run_program(text, tmp_path) == "6.0 [0.0]"


@pytest.mark.skipif(not hasattr(os, "kill") or os.name != "posix", reason="no signals")
def test_a_handler_may_import_the_module_whose_import_it_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planners are imported like this; the thread that imports one sends the signal in the middle of it."""
    (tmp_path / "weftgrad_half.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGUSR1)\ntime.sleep(0.05)\nplan = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    values: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda *_: values.append(import_lazily("weftgrad_half").plan))
    try:
        assert import_lazily("weftgrad_half").plan == 1
    finally:
        signal.signal(signal.SIGUSR1, old)
        sys.modules.pop("weftgrad_half", None)
    assert values == [1]
    with pytest.raises(ModuleNotFoundError, match="weftgrad_none"):
        import_lazily("weftgrad_none")
