"""Check profiles: which op ran which kernels, and when; a profile must not change the program."""

from __future__ import annotations

import gc
import gzip
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule
from weftgrad.runtime import tracing
from weftgrad.runtime.backends import opencl
from weftgrad.runtime.backends.cpu.launching import CpuTracer
from weftgrad.runtime.context import state
from weftgrad.runtime.errors import ArgumentError

_ROWS, _COLUMNS = 64, 4096  # too many elements for the calling thread alone


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert tracing.current is None
    assert state().mode is None
    assert opencl.enqueue is opencl.cl.enqueue_nd_range_kernel
    assert CpuTracer.launches is None


def program(x: Any) -> Any:
    """Run a forward and a backward pass."""
    with record_function("forward"):
        loss = (x * 2.0 + 1.0).sum()
    loss.backward()
    return loss


def operand() -> Any:
    return wg.tensor(np.linspace(0, 1, _ROWS * _COLUMNS, dtype=np.float32).reshape(_ROWS, _COLUMNS), device="cpu",
                     requires_grad=True)  # fmt: skip


def event_named(events: Any, key: str) -> Any:
    return next(event for event in events if event.key == key)


def test_calls_and_the_kernels_they_queued() -> None:
    x = operand()
    program(x)
    with profile(record_shapes=True) as prof:
        program(x)
        with record_function("wait"):
            wg.synchronize()
    events = prof.events()
    mul = event_named(events, "mul")
    assert mul.cpu_parent.key == "forward"
    assert mul.input_shapes == ([_ROWS, _COLUMNS], [])
    assert [child.key for child in mul.cpu_children] == ["launch"]
    assert [kernel.name.startswith("mul") for kernel in mul.kernels] == [True]
    assert event_named(events, "sum_backward").category == "backward"
    kernels = [event for event in events if event.is_kernel]
    launches = {event.launch: event for event in events if event.category == "launch"}
    assert len(kernels) == len(launches) >= 4
    wait_end = event_named(events, "wait").time_range.end
    for kernel in kernels:  # device times converted to the host clock: after the launch, before the wait ended
        assert launches[kernel.launch].time_range.start - 5000 < kernel.time_range.start < kernel.time_range.end
        assert kernel.time_range.end < wait_end + 5000
    forward = event_named(events, "forward")
    assert forward.device_time_total == pytest.approx(sum(
        k.duration for e in events for k in e.kernels if not e.is_kernel and _is_in(e, forward)
    ))  # fmt: skip
    assert forward.cpu_time_total == pytest.approx(
        forward.self_cpu_time_total + sum(c.cpu_time_total for c in forward.cpu_children)
    )


def _is_in(event: Any, outer: Any) -> bool:
    while event is not None and event is not outer:
        event = event.cpu_parent
    return event is outer


def test_kernel_times_grow_with_the_work() -> None:
    """A kernel with 64 times the work takes longer (minimum of six). Kernels of one stream do not overlap."""
    small, large = wg.ones(1 << 17, device="cpu"), wg.ones(1 << 23, device="cpu")
    with profile() as prof:
        for _ in range(6):
            small + 1.0
            large + 1.0
        wg.synchronize()
    kernels = [event for event in prof.events() if event.is_kernel]
    times = [kernel.device_time_total for kernel in kernels]
    assert min(times[1::2]) > 4 * min(times[::2]) > 0
    assert all(b.time_range.start >= a.time_range.end - 1 for a, b in pairwise(kernels))


def test_a_profile_changes_nothing() -> None:
    """Results, launches and multi-tensor optimizer steps are the same with and without a profile."""

    def run() -> tuple[list[Any], int]:
        rng = np.random.default_rng(0)
        weights = [wg.tensor(rng.standard_normal((8, 8), dtype=np.float32), device="cpu", requires_grad=True)
                   for _ in range(3)]  # fmt: skip
        optimizer = wg.optim.SGD(weights, lr=0.1)
        launches_before = wg.launches("cpu")
        x = wg.ones(8, 8, device="cpu")
        for weight in weights:
            x = x @ weight
        x.sum().backward()
        optimizer.step()
        return [w.tolist() for w in weights], wg.launches("cpu") - launches_before

    expected = run()
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        actual = run()
    assert actual == expected
    step = event_named(prof.events(), "Optimizer.step#SGD.step")
    assert len(step.kernels) == 1  # one kernel for all three parameters
    assert run() == expected


def test_sums_and_their_table(tmp_path: Path) -> None:
    x = operand()
    with profile(with_stack=True, record_shapes=True) as prof:
        for _ in range(3):
            program(x)
    sums = prof.key_averages()
    total = next(e for e in sums if e.key == "sum")
    assert total.count == 3
    assert total.device_time == pytest.approx(total.device_time_total / 3)
    lines = sums.table(sort_by="self_cuda_time_total", row_limit=4).splitlines()
    assert lines[1].split()[0] == "Name"
    assert len(lines) == 4 + 4 + 2
    top = max(sums, key=lambda e: e.self_device_time_total)
    assert lines[3].split()[0] == top.key
    kernel_time = sum(e.self_device_time_total for e in sums if e.is_kernel)
    assert lines[-1] == f"Self Device time total: {wg.profiler.events.format_time(kernel_time)}"
    # Each kernel counts once.
    assert sum(e.self_device_time_total for e in sums if not e.is_kernel) == pytest.approx(kernel_time)
    assert "ms" not in sums.table(time_unit="us")
    for options, words in (({"sort_by": "wall"}, "sort_by is one of"), ({"time_unit": "h"}, "time_unit is s, ms")):
        with pytest.raises(ArgumentError, match=words):
            sums.table(**options)
    shaped = prof.key_averages(group_by_input_shape=True).table()
    assert f"[[{_ROWS}, {_COLUMNS}], []]" in shaped
    prof.export_stacks(tmp_path / "stacks")
    assert all("test_profiler.py" in line for line in (tmp_path / "stacks").read_text().splitlines())
    assert "dispatch.py" not in (tmp_path / "stacks").read_text()


def test_a_trace(tmp_path: Path) -> None:
    """Traces are in Perfetto's format: nested complete events, an arrow from each launch to its kernel, process names.

    Devices that ran nothing do not appear.
    """
    x = operand()
    opencl_tensor = wg.zeros(3, device="opencl:0")
    with profile(profile_memory=True) as prof:
        program(x)
    del opencl_tensor
    prof.add_metadata_json("origin", '{"a": 1}')
    for name in ("trace.json", "trace.json.gz"):
        prof.export_chrome_trace(tmp_path / name)
    trace = json.loads((tmp_path / "trace.json").read_text())
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        assert json.load(file) == trace
    assert trace["origin"] == {"a": 1}
    events = trace["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "s", "f", "C"}
    for end in "sf":
        arrow_ids = [e["id"] for e in events if e["ph"] == end]
        assert sorted(arrow_ids) == sorted(set(arrow_ids))
    kernels = {e["args"]["correlation"]: e for e in events if e.get("cat") == "kernel"}
    assert {e["id"] for e in events if e["ph"] == "f"} == set(kernels)
    titles = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert titles == {"host", "device cpu"}
    assert {e["name"] for e in events if e.get("cat") == "runtime"} >= {f"launch {k['name']}" for k in kernels.values()}
    levels = [e["args"] for e in events if e["ph"] == "C"]
    assert all(level["in use"] >= 0 and level["cached"] >= 0 for level in levels)
    with pytest.raises(ArgumentError, match="cannot be written: No such file"):
        prof.export_chrome_trace(tmp_path / "missing" / "trace.json")


def test_memory_of_calls() -> None:
    x = operand()
    program(x)
    x.grad = None
    with profile(profile_memory=True) as prof:
        y = x * 2.0
    (mul,) = (e for e in prof.key_averages() if e.key == "mul")
    assert mul.self_cpu_memory_usage == _ROWS * _COLUMNS * 4
    assert mul.self_device_memory_usage == 0
    del y


def test_a_schedule() -> None:
    action = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    none, warm, record, save = ProfilerAction
    assert [action(i) for i in range(11)] == [none, none, warm, record, save, none, warm, record, save, none, none]
    assert schedule(wait=2, warmup=0, active=1, skip_first_wait=1)(0) is save
    for invalid_options in ({"wait": -1, "warmup": 0, "active": 1}, {"wait": 0, "warmup": 0, "active": 0}):
        with pytest.raises(ArgumentError, match="numbers of steps"):
            schedule(**invalid_options)
    ready: list[tuple[int, list[str]]] = []
    x = operand()

    def record_steps(prof: profile) -> None:
        ready.append((prof.step_num, [e.name for e in prof.events() if e.name.startswith("ProfilerStep")]))

    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=record_steps) as prof:
        for _ in range(9):
            x * 2.0
            prof.step()
    assert ready == [(4, ["ProfilerStep#2", "ProfilerStep#3"]), (8, ["ProfilerStep#6", "ProfilerStep#7"])]
    assert next(e for e in prof.key_averages() if e.key == "mul").count == 2


def test_modes_entered_and_left_during_a_profile() -> None:
    """The profile is at the bottom of the mode stack, and can be removed from any position."""
    x = wg.ones(4, 4, device="cpu")
    outer = wg.autocast("cpu", dtype=wg.bfloat16)
    prof = profile()
    with outer:
        prof.start()
        x @ x
    x + 1.0
    with wg.autocast("cpu", dtype=wg.bfloat16):
        prof.stop()
        assert (x @ x).dtype is wg.bfloat16
    assert (x @ x).dtype is wg.float32
    names = [e.name for e in prof.events()]
    assert "mm" in names
    assert "add" in names


def test_ranges() -> None:
    @record_function("decorated")
    def work(n: int) -> int:
        return work(n - 1) if n else 0

    work(2)  # no profile is active
    with profile() as prof:
        work(2)
        with pytest.raises(ZeroDivisionError), wg.autograd.profiler.record_function("raises"):
            1 / 0
    (average,) = (e for e in prof.key_averages() if e.key == "decorated")
    assert average.count == 3
    assert average.is_user_annotation
    assert [e.name for e in prof.events() if e.cpu_parent is None][-1] == "raises"


def test_errors() -> None:
    prof = profile()
    with pytest.raises(ArgumentError, match="nothing was recorded"):
        prof.key_averages()
    with profile(), pytest.raises(ArgumentError, match="another profile lasts"):
        prof.start()
    for options, words in (({"activities": ["cpu"]}, "ProfilerActivity"), ({"with_flops": True}, "with_flops")):
        with pytest.raises(ArgumentError, match=words):
            profile(**options)
    with pytest.raises(RuntimeError, match=r"^mine$"), profile():
        raise RuntimeError("mine")


def test_a_device_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error reaches the caller, and the driver's methods are restored."""
    x = wg.ones(8, device="cpu")
    driver: Any = wg.device("cpu").driver
    attributes = set(vars(driver))

    def fail() -> None:
        raise RuntimeError("lost")

    prof = profile()
    prof.start()
    x + 1.0
    with monkeypatch.context() as patch:
        patch.setattr(driver, "synchronize", fail)
        with pytest.raises(RuntimeError, match="lost"):
            prof.stop()
    assert set(vars(driver)) == attributes
    assert CpuTracer.launches is None
    with profile() as prof:
        x + 1.0
    assert "add" in [e.name for e in prof.events()]


def test_activities() -> None:
    x = wg.ones(8, device="cpu")
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        x + 1.0
    assert prof.events() == []  # cpu's kernels run on the host's cores
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x + 1.0
    assert {e.category for e in prof.events()} == {"op", "launch", "kernel"}


def test_the_autograd_profiler(tmp_path: Path) -> None:
    x = wg.ones(8, device="cpu")
    with wg.autograd.profiler.profile(record_shapes=True, use_cuda=True) as prof:
        x + 1.0
    assert next(e for e in prof.key_averages() if e.key == "add").count == 1
    assert "add" in prof.table(sort_by="cpu_time_total")
    assert prof.total_average().cpu_time_total >= prof.self_cpu_time_total > 0
    prof.export_chrome_trace(tmp_path / "trace.json")
    with wg.autograd.profiler.profile(enabled=False) as prof:
        assert tracing.current is None
    with pytest.raises(ArgumentError, match="not enabled"):
        prof.table()


def test_sums_of_events_can_be_summed_again() -> None:
    x = wg.ones(1 << 16, device="cpu")
    gc.collect()  # the memory of tensors of other tests, if it were freed inside, would be subtracted
    with profile(profile_memory=True, record_shapes=True) as prof:
        results = [x + 1.0, x * 2.0, x + 2.0]
    sums, total = prof.key_averages(group_by_input_shape=True), prof.events().total_average()
    assert len(results) == 3
    assert total.cpu_memory_usage >= 3 * x.nbytes
    assert sums.total_average().count == total.count == len(prof.events())
    for name in ("cpu_time_total", "self_device_time_total", "cpu_memory_usage", "self_cpu_memory_usage"):
        assert getattr(sums.total_average(), name) == pytest.approx(getattr(total, name))
    assert {(row.key, row.count) for row in sums.key_averages() if row.key in ("add", "mul")} == {
        ("add", 2),
        ("mul", 1),
    }


def test_common_midpoint_of_clock_ranges() -> None:
    from weftgrad.runtime.backends.opencl_tracing import common_midpoint

    assert common_midpoint([(0, 100), (40, 60), (50, 90)]) == 55
    assert common_midpoint([(0, 10), (20, 24)]) == 22  # disjoint ranges, as clocks drift: take the shortest


def test_cuda(cuda: Any, compiled: Any) -> None:
    """On the fake CUDA driver, whose clock counts queued work, events time each launch and each graph replay."""
    from cuda_running import buffers, capture, driver_of, make_step

    driver = driver_of()
    run = driver.launcher([make_step()], ())
    operands = buffers(driver)
    stream = driver.default_stream
    with profile() as prof:
        for _ in range(2):
            run(operands, [1, 1, 1], stream)
        graph = capture(driver, lambda: run(operands, [1, 1, 1], stream))[0]
        graph.replay()
    kernels = [e for e in prof.events() if e.is_kernel]
    assert [(e.name, e.device) for e in kernels] == [("scale_flat", "cuda:0")] * 2 + [("graph replay", "cuda:0")]
    for event, later in pairwise(kernels):  # a kernel starts at its first event and ends at its second
        assert 0 < event.device_time_total <= 2000.001
        assert event.time_range.end <= later.time_range.start + 0.001
    launches_before = len(cuda.launches)
    run(operands, [1, 1, 1], stream)
    driver.synchronize()
    assert len(cuda.launches) == launches_before + 1
    assert len(prof.events()) == len([e for e in prof.events() if not e.is_kernel]) + 3
