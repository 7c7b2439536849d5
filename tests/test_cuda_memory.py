"""Check memory, copies, streams and devices of the CUDA backend on a stand-in for the driver library."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from cuda_running import Compiler, MiB, buffers, driver_of, make_step
from cuda_standin import Standin
from cuda_standin_objects import CUresult

import weftgrad as wg
from weftgrad.runtime import errors
from weftgrad.runtime.backends import cuda_api
from weftgrad.runtime.backends.arguments import Scratch

# Memory


def test_memory_is_pooled(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    cuda.calls.clear()
    for _ in range(20):
        storages = [driver.allocate(10_000, driver.default_stream) for _ in range(3)]
        del storages
    assert cuda.calls.count("cuMemAlloc") <= 2
    assert cuda.calls.count("cuMemFree") == 0
    assert driver.budget.stats().reserved == cuda.held()
    driver.budget.empty_cache()
    assert cuda.held() == 0
    assert "cuCtxSynchronize" in cuda.calls


def test_memory_is_freed_only_when_work_is_done(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    operands = buffers(driver)
    driver.launcher([make_step()], ())(operands, [1, 1, 1], driver.default_stream)
    del operands
    driver.budget.empty_cache()
    assert cuda.held() == 0
    assert cuda.launches[-1].ran


def test_out_of_memory(cuda: Standin) -> None:
    driver = driver_of(1)  # a device of 64 MiB
    stream = driver.default_stream
    first = driver.allocate(40 * MiB, stream)
    with pytest.raises(errors.OutOfMemoryError, match=r"out of memory on cuda:1: 30.0 MiB requested, 40.0 MiB in use"):
        driver.allocate(30 * MiB, stream)
    del first
    second = driver.allocate(60 * MiB, stream)  # cached blocks are freed to make room
    assert driver.budget.stats().retries > 0
    del second


def test_a_refused_allocation_is_tried_again(cuda: Standin) -> None:
    driver = driver_of()
    other_stream = driver.new_stream()
    driver.allocate(5 * MiB, other_stream)  # freed at once: the other stream's pool keeps the memory
    cuda.fail("cuMemAlloc", CUresult.CUDA_ERROR_OUT_OF_MEMORY)
    storage = driver.allocate(3 * MiB, driver.default_stream)
    assert cuda.calls.count("cuMemFree") == 1
    assert driver.budget.stats().retries == 1
    del storage
    cuda.fail("cuMemAlloc", CUresult.CUDA_ERROR_INVALID_VALUE)
    with pytest.raises(errors.DeviceError, match="cuMemAlloc failed: CUDA_ERROR_INVALID_VALUE"):
        driver.allocate(50 * MiB, driver.default_stream)


def test_memory_used_by_another_stream_is_not_reused_too_early(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    first, second = driver.default_stream, driver.new_stream()
    storage = driver.allocate(5 * MiB, first)
    first_address = storage.buffer + storage.start
    operands = [Scratch(storage), *buffers(driver, 1)]
    second.wait_stream(first)
    driver.launcher([make_step()], ())(operands, [1, 1, 1], second)
    storage.block.pool.record_stream(storage.block, second.record_event())
    del storage, operands
    meanwhile = driver.allocate(5 * MiB, first)
    assert meanwhile.buffer + meanwhile.start != first_address
    second.synchronize()
    reused = driver.allocate(5 * MiB, first)
    assert reused.buffer + reused.start == first_address


@pytest.mark.parametrize("count", [3, 1000, 200_000, 700_000])
def test_copies_are_safe_from_later_writes(cuda: Standin, count: int) -> None:
    """The source of a copy may change before the copy runs; `read` waits for its result."""
    driver = driver_of()
    array = np.arange(count, dtype=np.float32)
    storage = driver.allocate(array.nbytes, driver.default_stream)
    driver.write(storage, 0, array, driver.default_stream)
    array[:] = -1
    later_storages = [driver.allocate(4096, driver.default_stream) for _ in range(3)]
    for later_storage in later_storages:  # staging memory is reused, but only after its copy has run
        driver.write(later_storage, 0, np.full(100, 7, np.float32), driver.default_stream)
    read_back = np.zeros(count, np.float32)
    driver.read(storage, 0, read_back, driver.default_stream)
    np.testing.assert_array_equal(read_back, np.arange(count, dtype=np.float32))


def test_parts_of_a_storage(cuda: Standin) -> None:
    driver = driver_of()
    storage = driver.adopt(np.zeros(10, np.int16))
    driver.write(storage, 4, np.array([5, 6], np.int16), driver.default_stream)
    read_back = np.empty(3, np.int16)
    driver.read(storage, 4, read_back, driver.default_stream)
    assert read_back.tolist() == [5, 6, 0]


def test_pinned_memory_is_copied_without_staging(cuda: Standin) -> None:
    driver = driver_of()
    array = driver.pinned_array(4000).view(np.float32)
    array[:] = 3
    storage = driver.allocate(4000, driver.default_stream)
    cuda.calls.clear()
    driver.write(storage, 0, array, driver.default_stream)
    assert "cuStreamSynchronize" not in cuda.calls
    array[:] = 4  # too early: the copy reads this memory and has not run
    read_back = np.empty(1000, np.float32)
    driver.read(storage, 0, read_back, driver.default_stream)
    assert (read_back == 4).all()
    pinned_result = driver.pinned_array(4000).view(np.float32)
    pinned_result[:] = 0
    event = driver.read(storage, 0, pinned_result, driver.default_stream, wait=False)
    assert not event.query()
    assert (pinned_result == 0).all()
    event.synchronize()
    assert (pinned_result == 4).all()


def test_pinned_memory_is_kept_for_the_copy(cuda: Standin) -> None:
    driver = driver_of()
    storage = driver.allocate(400_000, driver.default_stream)
    array = driver.pinned_array(400_000)
    array[:] = 9
    for _ in range(5):
        driver.write(storage, 0, array, driver.default_stream)
    array_address = array.ctypes.data
    del array
    second_array = driver.pinned_array(400_000)
    assert second_array.ctypes.data != array_address
    second_array[:] = 1
    read_back = np.empty(400_000, np.uint8)
    driver.read(storage, 0, read_back, driver.default_stream)
    assert (read_back == 9).all()
    assert driver.pinned.pool.stats().waiting > 0
    driver.pinned_array(300_000)
    assert driver.pinned.pool.stats().waiting == 0  # five copies share one event, so the block is returned at once


def test_without_pinned_memory(cuda: Standin) -> None:
    cuda.fail("cuMemHostAlloc", CUresult.CUDA_ERROR_OUT_OF_MEMORY, times=50)
    driver = driver_of()
    storage = driver.adopt(np.arange(100, dtype=np.int32))
    read_back = np.empty(100, np.int32)
    driver.read(storage, 0, read_back, driver.default_stream)
    assert read_back.tolist() == list(range(100))


# Streams and events


def test_streams_are_independent_and_in_order(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    first, second = driver.default_stream, driver.new_stream()
    run, operands = driver.launcher([make_step()], ()), buffers(driver)
    for number in range(3):
        run(operands, [number, 0, 0], first)
    run(operands, [9, 0, 0], second)
    assert not first.query()
    second.synchronize()
    assert [bool(launch.ran) for launch in cuda.launches] == [False, False, False, True]
    assert second.query()
    first.synchronize()
    order = sorted(cuda.launches, key=lambda launch: launch.ran)
    assert [launch.values("QQiiiffqQQ")[5] for launch in order] == [9, 0, 1, 2]


def test_a_stream_waits_for_another(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    first, second = driver.default_stream, driver.new_stream()
    run, operands = driver.launcher([make_step()], ()), buffers(driver)
    run(operands, [0, 0, 0], first)
    event = first.record_event()
    run(operands, [1, 0, 0], first)  # after the event
    second.wait_event(event)
    run(operands, [2, 0, 0], second)
    second.synchronize()
    assert [bool(launch.ran) for launch in cuda.launches] == [True, False, True]
    assert cuda.launches[0].ran < cuda.launches[2].ran
    assert event.query()


def test_events(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    run, operands, stream = driver.launcher([make_step()], ()), buffers(driver), driver.default_stream
    begin, end = driver.new_event(True), driver.new_event(True)
    assert begin.query()  # never recorded
    begin.synchronize()
    stream.wait_event(begin)
    with pytest.raises(errors.LaunchError, match="two recorded events"):
        begin.elapsed_time(end)
    stream.record_event(begin)
    run(operands, [1, 1, 1], stream)
    stream.record_event(end)
    assert not end.query()
    assert begin.elapsed_time(end) > 0
    untimed = stream.record_event()
    with pytest.raises(errors.LaunchError, match="enable_timing"):
        begin.elapsed_time(untimed)


def test_events_are_used_again(cuda: Standin) -> None:
    driver = driver_of()
    cuda.calls.clear()
    for _ in range(50):
        driver.default_stream.record_event()
    assert cuda.calls.count("cuEventCreate") <= 2


def test_streams_are_destroyed(cuda: Standin) -> None:
    driver = driver_of()
    for _ in range(3):
        stream = driver.new_stream()
        driver.allocate(1000, stream)
    del stream
    gc.collect()
    driver.budget.empty_cache()
    driver.synchronize()
    assert cuda.calls.count("cuStreamDestroy") == 3
    assert cuda.held() == 0


def test_users_streams_and_events(cuda: Standin, compiled: Compiler) -> None:
    stream = wg.Stream("cuda:0")
    begin, end = wg.Event(enable_timing=True), wg.Event(enable_timing=True)
    with wg.stream(stream):
        begin.record()
        x = wg.ones(10, device="cuda") + 1
        end.record()
        assert wg.current_stream("cuda:0") == stream
    assert {launch.stream for launch in cuda.launches} == {stream._stream.handle}
    assert x.storage.block.pool is stream._stream.pool
    assert begin.device == end.device == stream.device  # events take the current stream's device
    end.synchronize()
    assert begin.elapsed_time(end) > 0
    with wg.stream(wg.Stream("cpu")), stream, stream:
        pass
    assert wg.current_stream("cuda:0") == wg.default_stream("cuda:0")
    point = wg.cuda.Event()
    point.record()
    assert point.device == stream.device  # a CUDA event takes a GPU although the default device is `cpu`
    wg.default_stream("cuda:0").wait_stream(stream)
    assert not stream.query()
    stream.synchronize()
    assert stream.query()


# Several devices


def test_two_devices(cuda: Standin, compiled: Compiler) -> None:
    """Alternate launches between devices: each uses its own device's stream, module and memory."""
    drivers = [driver_of(0), driver_of(1)]
    assert [d.info.sm for d in drivers] == [90, 80]
    runs = [d.launcher([make_step()], ()) for d in drivers]
    operands = [buffers(d) for d in drivers]
    for turn in range(6):
        runs[turn % 2](operands[turn % 2], [turn, 0, 0], drivers[turn % 2].default_stream)
    assert [launch.stream.context.device for launch in cuda.launches] == [0, 1] * 3
    for launch in cuda.launches:
        assert cuda._find_allocation(launch.values("QQiiiffqQQ")[0], 4).context is launch.stream.context
    assert len(compiled.requests) == 2


def test_tensors_move_between_devices(cuda: Standin) -> None:
    x = wg.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda:0")
    cuda.calls.clear()
    y = x.to("cuda:1")
    assert "cuMemcpyPeerAsync" in cuda.calls
    assert "cuStreamSynchronize" not in cuda.calls
    assert str(y.device) == "cuda:1"
    del x
    assert y.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert y.cpu().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    z = wg.tensor([1.0, 2.0]).cuda()
    assert str(z.device) == "cuda:0"
    with pytest.raises(errors.DeviceError, match="different devices"):
        z + y


def test_a_source_is_not_overwritten_before_it_was_copied(cuda: Standin) -> None:
    x = wg.tensor(np.arange(1000.0), device="cuda:0")
    y = x.to("cuda:1")
    x.device.driver.write(x.storage, 0, np.zeros(1000, np.float64), x.device.driver.default_stream)
    assert x.tolist() == [0.0] * 1000
    assert y.tolist() == list(range(1000))


def test_devices_in_threads(cuda: Standin, compiled: Compiler) -> None:
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for n in range(20):
                assert (wg.tensor(np.arange(50.0) + n, device=f"cuda:{index}")).tolist()[3] == 3 + n
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# What users call


def test_the_cuda_namespace(cuda: Standin, compiled: Compiler) -> None:
    assert wg.cuda.is_available()
    assert wg.cuda.device_count() == 2
    assert [wg.cuda.get_device_name(i) for i in range(2)] == ["Stand-in H200", "Stand-in A100"]
    assert wg.cuda.get_device_capability("cuda:1") == (8, 0)
    properties = wg.cuda.get_device_properties()
    assert (properties.total_memory, properties.multi_processor_count) == (1 << 28, 132)
    assert wg.cuda.current_device() == 0
    x = wg.empty(1 << 20, device="cuda:1")
    assert wg.cuda.memory_allocated(1) == 4 << 20
    assert wg.cuda.memory_allocated(0) == 0
    free, total = wg.cuda.mem_get_info(1)
    assert total - free == wg.cuda.memory_reserved(1) >= 4 << 20
    del x
    wg.cuda.empty_cache()
    assert wg.cuda.memory_reserved(1) == 0
    assert wg.cuda.max_memory_allocated(1) == 4 << 20
    wg.cuda.synchronize(1)
    with pytest.raises(errors.ArgumentError, match="cpu is no CUDA device"):
        wg.cuda.synchronize("cpu")


def test_streams_of_the_namespace(cuda: Standin, compiled: Compiler) -> None:
    side = wg.cuda.Stream("cuda:1", priority=-1)
    with wg.cuda.stream(side):
        assert wg.cuda.current_stream(1) == side
        wg.ones(4, device="cuda:1")
    assert cuda.launches[-1].stream is side._stream.handle
    assert wg.cuda.current_stream(1) == wg.cuda.default_stream(1) != side


def test_no_gpu_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_api, "may_exist", lambda: False)
    assert not wg.cuda.is_available()
    assert wg.cuda.device_count() == 0
    wg.cuda.empty_cache()


def test_pinned_tensors(cuda: Standin) -> None:
    for dtype in (wg.float32, wg.bfloat16, wg.bool):
        x = wg.tensor([[1.0, 0.0, 3.0], [4.0, 5.0, 6.0]], device="cpu").to("cuda").cpu()
        y = wg.tensor(x.numpy(), dtype=dtype, device="cpu").pin_memory()
        assert y.is_pinned()
        assert not x.is_pinned()
        assert y.pin_memory() is y
        cuda.calls.clear()
        z = y.to("cuda", non_blocking=True)
        assert "cuStreamSynchronize" not in cuda.calls
        assert z.dtype is dtype
        expected = [[bool(v) if dtype is wg.bool else v for v in row] for row in x.tolist()]
        assert z.tolist() == y.tolist() == expected
    with pytest.raises(errors.DeviceError, match="pin_memory: takes a tensor on cpu"):
        z.pin_memory()


def test_graphs_by_their_pytorch_names(cuda: Standin, compiled: Compiler) -> None:
    x = wg.ones(5, device="cuda")
    x + 1
    cuda.launches.clear()
    graph = wg.cuda.CUDAGraph()
    with wg.cuda.graph(graph):
        assert wg.cuda.is_current_stream_capturing()
        y = x + 1
    assert not wg.cuda.is_current_stream_capturing()
    with pytest.raises(errors.CaptureError, match="reset"):
        graph.capture_begin()
    for _ in range(3):
        graph.replay()
    wg.cuda.synchronize()
    (launch,) = cuda.launches
    assert len(launch.ran) == 3
    assert y.shape == (5,)
    graph.reset()
    with pytest.raises(errors.CaptureError, match="nothing was captured"):
        graph.replay()
    with pytest.raises(errors.CaptureError, match="asked for while a graph is captured"), wg.cuda.graph(graph):
        (x + 1).tolist()
    assert not wg.cuda.is_current_stream_capturing()
    graph.capture_begin()
    graph.capture_end()
    graph.replay()
