"""Check captured graphs of the CUDA backend on a stand-in for the driver library."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_running import Compiler, MiB, address, buffers, capture, driver_of, make_step
from cuda_standin import Standin
from cuda_standin_objects import CUresult

import weftgrad as wg
from weftgrad.runtime import errors
from weftgrad.runtime.backends.arguments import Scratch


def test_a_graph_runs_when_replayed(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    run, operands, stream = driver.launcher([make_step()], ()), buffers(driver), driver.default_stream
    run(operands, [0, 0, 0], stream)
    stream.synchronize()

    def work() -> None:
        for number in (1, 2):
            run(operands, [number, 0, 0], stream)

    graph, _ = capture(driver, work)
    stream.synchronize()
    first, second = cuda.launches[1:]
    assert (first.ran, second.ran) == ([], [])
    graph.replay()
    graph.replay(driver.new_stream())
    driver.synchronize()
    assert len(first.ran) == len(second.ran) == 2
    assert first.ran[0] < second.ran[0]
    assert first.values("QQiiiffqQQ")[5] == 1


def test_a_graph_has_memory_of_its_own(cuda: Standin, compiled: Compiler) -> None:
    driver, nbytes = driver_of(), 100_000
    stream = driver.default_stream
    usual_pool = stream.pool
    run = driver.launcher([make_step()], ())
    run(buffers(driver), [0, 0, 0], stream)
    spare = driver.allocate(nbytes, stream)
    spare_address = spare.buffer + spare.start
    del spare

    def work() -> Any:
        first = driver.allocate(nbytes, stream)
        assert first.buffer + first.start != spare_address
        result_address = first.buffer + first.start
        run([Scratch(first)] * 2, [0, 0, 0], stream)
        del first
        second = driver.allocate(nbytes, stream)
        assert second.buffer + second.start == result_address  # the pool of the capture reuses it
        run([Scratch(second)] * 2, [0, 0, 0], stream)
        return second

    graph, result = capture(driver, work)
    assert stream.pool is usual_pool
    result_address = result.buffer + result.start
    del result
    later = [driver.allocate(nbytes, stream) for _ in range(5)]
    assert result_address not in [h.buffer + h.start for h in later]  # nobody outside of the graph gets it
    driver.budget.empty_cache()
    graph.replay()  # the stand-in reports a violation if its memory was freed
    stream.synchronize()
    assert graph.nbytes >= nbytes
    reserved = cuda.held()
    size = graph.nbytes
    del graph
    gc.collect()
    driver.budget.empty_cache()
    driver.synchronize()
    assert cuda.held() == reserved - size
    assert "cuGraphExecDestroy" in cuda.calls


def test_a_graph_keeps_its_operands_alive(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    run, operands, stream = driver.launcher([make_step()], ()), buffers(driver), driver.default_stream
    run(operands, [0, 0, 0], stream)

    def work() -> set[int]:
        graph_buffers = buffers(driver)  # allocated from the graph's pool
        run([operands.pop(), graph_buffers[0]], [1, 0, 0], stream)
        return {address(b) for b in graph_buffers}

    operand_addresses = {address(b) for b in operands[1:]}
    graph, graph_addresses = capture(driver, work)
    assert not (operand_addresses | graph_addresses) & {address(b) for b in buffers(driver, 10)}
    driver.budget.empty_cache()
    graph.replay()
    driver.synchronize()


def test_calls_that_a_capture_forbids(cuda: Standin, compiled: Compiler) -> None:
    x = wg.ones(3, device="cuda")
    driver, stream = x.device.driver, x.device.driver.default_stream
    timed = driver.new_event(True)
    forbidden: dict[str, Callable[[], Any]] = {
        "synchronize": lambda: wg.synchronize("cuda:0"),
        "stream.synchronize": stream.synchronize,
        "stream.query": stream.query,
        "item": lambda: x[0].item(),
        "tolist": x.tolist,
        "event.query": lambda: stream.record_event().query(),
        "event.synchronize": lambda: stream.record_event(timed).synchronize(),
        "begin again": stream.begin_capture,
    }
    for name, call in forbidden.items():
        try:
            capture(driver, call)
        except errors.CaptureError:
            continue
        pytest.fail(f"{name} went through")
    graph, y = capture(driver, lambda: x + 1)  # the stream works again
    graph.replay()
    assert y.tolist() is not None
    with pytest.raises(errors.CaptureError, match="no graph is being captured"):
        stream.end_capture()


def test_a_capture_may_allocate_and_load(cuda: Standin, compiled: Compiler) -> None:
    """The driver forbids both in a capture by default."""
    driver = driver_of()
    run, operands, stream = driver.launcher([make_step()], ()), buffers(driver), driver.default_stream

    def work() -> None:
        run(operands, [1, 0, 0], stream)  # the kernel is compiled and loaded inside the capture
        storages = [driver.allocate(5 * MiB, stream) for _ in range(3)]
        other_storage = driver.allocate(5 * MiB, driver.new_stream())
        other_storage.block.pool.record_stream(other_storage.block, driver.new_stream().record_event())
        del storages, other_storage
        driver.budget.empty_cache()

    graph, _ = capture(driver, work)
    graph.replay()
    driver.synchronize()
    assert cuda.launches[-1].ran


def test_a_capture_may_release_the_memory_of_deleted_streams(cuda: Standin, compiled: Compiler) -> None:
    """The release waits for the other streams, which a capture forbids by default. Seen on an H200."""
    driver = driver_of()
    stream, other_stream = driver.new_stream(), driver.new_stream()
    driver.allocate(5 * MiB, stream)
    del stream
    gc.collect()
    assert driver.budget.pending_release
    graph, _ = capture(driver, lambda: driver.allocate(50 * MiB, driver.default_stream))
    assert not driver.budget.pending_release
    assert other_stream.query()
    graph.replay()
    driver.synchronize()


def test_a_copy_in_a_graph_keeps_its_values(cuda: Standin) -> None:
    driver = driver_of()
    storage = driver.allocate(400, driver.default_stream)
    array = np.full(100, 5, np.float32)
    graph, _ = capture(driver, lambda: driver.write(storage, 0, array, driver.default_stream))
    array[:] = 0
    gc.collect()
    read_back = np.empty(100, np.float32)
    for _ in range(2):
        driver.write(storage, 0, np.zeros(100, np.float32), driver.default_stream)
        graph.replay()
        driver.read(storage, 0, read_back, driver.default_stream)
        assert (read_back == 5).all()


def test_a_graph_over_two_streams(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    first, second = driver.default_stream, driver.new_stream()
    run, operands = driver.launcher([make_step()], ()), buffers(driver)
    run(operands, [0, 0, 0], first)
    own_pool = second.pool

    def work(join: bool) -> None:
        run(operands, [1, 0, 0], first)
        second.wait_stream(first)
        assert second.pool is not own_pool
        run(operands, [2, 0, 0], second)
        if join:
            first.wait_stream(second)
        run(operands, [3, 0, 0], first)

    graph, _ = capture(driver, lambda: work(True))
    assert second.pool is own_pool
    assert second.capture is None
    graph.replay()
    driver.synchronize()
    assert [launch.values("QQiiiffqQQ")[5] for launch in cuda.launches if launch.ran] == [0, 1, 2, 3]
    with pytest.raises(errors.CaptureError, match="UNJOINED"):
        capture(driver, lambda: work(False))
    assert second.pool is own_pool
    second.synchronize()


def test_another_thread_works_on_during_a_capture(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    run, operands, stream = driver.launcher([make_step()], ()), buffers(driver), driver.default_stream
    run(operands, [0, 0, 0], stream)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with wg.stream(wg.Stream("cuda:0")):
                assert wg.tensor([1.0, 2.0], device="cuda").tolist() == [1.0, 2.0]
                driver.budget.empty_cache()
        except BaseException as error:
            failures.append(error)

    def captured_work() -> None:
        run(operands, [1, 0, 0], stream)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    graph, _ = capture(driver, captured_work)
    assert not failures
    graph.replay()
    driver.synchronize()


def test_an_event_of_a_capture_is_of_no_use_outside(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    _, event = capture(driver, driver.default_stream.record_event)
    with pytest.raises(errors.CaptureError):
        event.synchronize()
    with pytest.raises(errors.CaptureError):
        driver.new_stream().wait_event(event)


def test_a_graph_that_cannot_be_made(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    cuda.fail("cuGraphInstantiate", CUresult.CUDA_ERROR_OUT_OF_MEMORY)
    with pytest.raises(MemoryError):
        capture(driver, lambda: None)
    assert driver.captures == 0
    capture(driver, lambda: None)[0].replay()
