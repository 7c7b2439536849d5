"""Check tensors shared between processes: which memory is shared, its lifetime, and concurrent training."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
import types
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import loader_data
import numpy as np
import pytest

import weftgrad as wg
import weftgrad.multiprocessing as mp
from weftgrad import nn
from weftgrad.multiprocessing import sharing
from weftgrad.runtime import errors
from weftgrad.runtime.device import device


@pytest.fixture(autouse=True)
def _main_without_file(monkeypatch):
    """Replace the main module by one without a file, so that new processes need not import pytest."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


def descriptors_released(limit):
    """Wait until at most `limit` descriptors are open. A desk closes its descriptor shortly after it has answered."""
    end = time.monotonic() + 60
    while descriptors() > limit and time.monotonic() < end:
        time.sleep(0.01)
    return descriptors() <= limit


def descriptors():
    device("cpu").driver.synchronize()
    gc.collect()
    return sum("memfd:weftgrad" in _target(fd) for fd in os.listdir("/proc/self/fd"))


def _target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def numbers(*shape, dtype=wg.float32):
    return wg.tensor(np.arange(np.prod(shape)).reshape(shape), dtype=dtype, device="cpu")


def round_trip(value):
    """Pickle and unpickle `value` as if another process received it, which does not know the memory yet."""
    return load_without_tables(ForkingPickler.dumps(value))


def load_without_tables(data):
    saved_tables = dict(sharing._storages), dict(sharing._segments)
    sharing._storages.clear()
    sharing._segments.clear()
    try:
        return ForkingPickler.loads(data)
    finally:
        for table, entries in zip((sharing._storages, sharing._segments), saved_tables, strict=True):
            table.update(entries)


# In one process -------------------------------------------------------------------------------------------------------


def test_sharing_moves_a_storage_and_all_its_views():
    first, tensor = numbers(100), numbers(4, 3)
    assert tensor.start != first.start  # at least one is not at the start of its buffer
    view, array, version = tensor[1:], tensor.numpy(), tensor._version
    first.share_memory_()
    address = tensor.data_ptr()
    assert not tensor.is_shared()
    assert tensor.share_memory_() is tensor
    assert tensor.is_shared()
    assert view.is_shared()
    assert tensor.data_ptr() != address
    assert tensor._version == version
    assert view.tolist() == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    tensor.add_(1.0)  # a kernel on memory that starts inside its buffer
    assert view.tolist() == [[4, 5, 6], [7, 8, 9], [10, 11, 12]]
    tensors = [wg.tensor(np.full((4, 3), -1.0, np.float32), device="cpu") for _ in range(8)]
    assert array.tolist() == np.arange(12).reshape(4, 3).tolist()  # the array still shows its original memory
    array_address = array.__array_interface__["data"][0]
    assert array_address not in [t.data_ptr() for t in tensors]
    del array
    tensors += [wg.tensor(np.full((4, 3), -1.0, np.float32), device="cpu") for _ in range(8)]
    assert array_address in [t.data_ptr() for t in tensors]  # the original memory is free again
    location = sharing.find_location(tensor.storage)
    assert tensor.share_memory_() is tensor
    assert sharing.find_location(tensor.storage) is location


def test_storages_of_every_origin_are_shared():
    source = np.arange(5, dtype=np.float32)
    adopted = wg.from_numpy(source)
    adopted.share_memory_()
    adopted.add_(1.0)
    assert adopted.tolist() == [1, 2, 3, 4, 5]
    assert source.tolist() == [0, 1, 2, 3, 4]
    adopted = wg.from_numpy(np.arange(10000.0))
    array = adopted.numpy()
    adopted.share_memory_()
    np.full(10000, -1.0)
    assert array.tolist() == list(range(10000))
    halves = numbers(3, dtype=wg.bfloat16).share_memory_()
    assert (halves.dtype, halves.tolist()) == (wg.bfloat16, [0, 1, 2])
    empty = wg.empty(0, 3, device="cpu").share_memory_()
    assert empty.shape == (0, 3)
    assert round_trip(empty).shape == (0, 3)
    flag = wg.tensor(True, device="cpu")
    assert round_trip(flag).item() is True


def test_sender_and_receiver_share_memory():
    tensor = numbers(2, 3)
    sent = [tensor, tensor[:, 1], tensor.T]
    received = round_trip(sent)
    assert received[0].storage is received[1].storage is received[2].storage is not tensor.storage
    assert (received[1].stride(), received[2].shape) == ((3,), (3, 2))
    tensor.add_(10.0)
    assert received[2].tolist() == [[10, 13], [11, 14], [12, 15]]
    received[1].numpy()[...] = -1  # a strided view
    assert tensor.tolist() == [[10, -1, 12], [13, -1, 15]]
    # Back in the process that owns it.
    assert ForkingPickler.loads(ForkingPickler.dumps(tensor)).storage is tensor.storage


def test_classes_and_requires_grad_survive():
    class LocalTensor(wg.Tensor):
        pass

    weight = nn.Parameter(numbers(3))
    buffer = nn.Buffer(numbers(3), persistent=False)
    received = round_trip([weight, buffer, numbers(2).requires_grad_(), nn.Parameter(numbers(2), requires_grad=False)])
    assert [type(t) for t in received] == [nn.Parameter, nn.Buffer, wg.Tensor, nn.Parameter]
    assert [t.requires_grad for t in received] == [True, False, True, False]
    assert received[1].persistent is False
    with pytest.raises(AttributeError, match="LocalTensor"):  # sent with its class, and a local class cannot be pickled
        ForkingPickler.dumps(LocalTensor(weight.storage, weight.meta, weight.start))
    with pytest.raises(RuntimeError, match="detach"):
        ForkingPickler.dumps(weight * 2)
    device_tensor = wg.ones(2, device="interpreter") if "interpreter" in map(str, wg.devices()) else None
    if device_tensor is not None:
        with pytest.raises(RuntimeError, match=r"interpreter.*x\.cpu\(\)"):
            device_tensor.share_memory_()
        with pytest.raises(RuntimeError, match="interpreter"):
            ForkingPickler.dumps(device_tensor)


def test_a_module_is_shared_in_one_segment():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    descriptors_before = descriptors()
    values = [p.tolist() for p in model.parameters()]
    assert model.share_memory() is model
    assert all(t.is_shared() for t in (*model.parameters(), *model.buffers()))
    assert len({sharing.find_location(p.storage).token for p in model.parameters()}) == 1
    assert descriptors() - descriptors_before <= 2
    assert [p.tolist() for p in model.parameters()] == values
    copied = round_trip(model)
    copied[0].weight.detach().add_(1.0)
    assert np.allclose(model[0].weight.tolist(), np.array(values[0]) + 1)
    assert copied[1].running_var.tolist() == [1] * 4
    del model, copied
    assert descriptors_released(descriptors_before)


def test_memory_is_freed_with_the_last_tensor():
    descriptors_before = descriptors()
    for _ in range(3):
        tensor = numbers(1000)
        received = round_trip(tensor)
        del tensor
        assert received.tolist() == list(range(1000))
        del received
    assert descriptors_released(descriptors_before)
    unreceived = ForkingPickler.dumps(numbers(10))  # not received yet: the desk holds it
    assert descriptors() > descriptors_before
    assert ForkingPickler.loads(unreceived).tolist() == list(range(10))
    assert descriptors_released(descriptors_before)
    with pytest.raises(errors.WorkerError, match="second time"):
        ForkingPickler.loads(unreceived)


def test_the_error_names_a_sender_that_has_ended():
    data = bytes(ForkingPickler.dumps(numbers(4)))
    address = sharing.desk.address
    forged = data.replace(address.encode(), address.encode().replace(b"weftgrad-", b"weftgrax-"))
    gc.collect()
    with pytest.raises(errors.WorkerError, match=rf"process {os.getpid()} sent.*join it after"):
        load_without_tables(forged)
    ForkingPickler.loads(data)


def test_the_standard_modules_names_exist():
    for name in multiprocessing.__all__:
        assert hasattr(mp, name), name
    assert mp.get_start_method() == "forkserver"
    assert isinstance(mp.get_context("spawn"), multiprocessing.context.BaseContext)
    assert mp.pool.ThreadPool is not None
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    with pytest.raises(ValueError, match="strateg"):
        mp.set_sharing_strategy("mail")
    error = pickle_round_trip(mp.ProcessExitedException("m", 1, 2, -9, "SIGKILL"))
    assert (error.error_index, error.exit_code, error.signal_name) == (1, -9, "SIGKILL")


def pickle_round_trip(value):
    return ForkingPickler.loads(ForkingPickler.dumps(value))


# Between processes ----------------------------------------------------------------------------------------------------


def test_queues_carry_tensors_and_writes_are_seen():
    inbox, outbox = mp.Queue(), mp.Queue()
    process = mp.Process(target=loader_data.echo, args=(inbox, outbox), daemon=True)
    process.start()
    descriptors_before = descriptors()
    weight = nn.Parameter(numbers(2, 3))
    theirs = None
    for sent in (weight, weight, weight.detach()[1], numbers(4)):
        value = sent.tolist()
        inbox.put(sent)
        received = outbox.get(timeout=60)
        assert received.tolist() == (np.array(value) + 1).tolist()
        assert sent.tolist() == received.tolist()  # both share one memory
        assert received.storage is sent.storage
        assert type(received) is type(sent)
        inbox.put(True)
        theirs = received
    inbox.put(None)
    process.join(60)
    assert process.exitcode == 0
    for queue in (inbox, outbox):
        queue.close()
        queue.join_thread()
    del weight, sent, received, theirs
    assert descriptors_released(descriptors_before)


def test_pools_work_on_tensors():
    with mp.Pool(1) as pool:
        squares, shared, needs_grad = pool.map(loader_data.square, [numbers(3).requires_grad_().detach()])[0]
        assert (squares.tolist(), shared, needs_grad) == ([0, 1, 4], True, False)
        pool.close()
        pool.join()


def test_spawned_processes_share_arguments_and_report_failures():
    weights = wg.zeros(4, device="cpu")
    assert mp.start_processes(loader_data.add_one, (3, weights), nprocs=1, start_method="forkserver") is None
    assert weights.tolist() == [3] * 4
    with pytest.raises(mp.ProcessRaisedException, match=r"(?s)process 1 \(pid.*three") as excinfo:
        mp.start_processes(loader_data.fail, ("raise", 1), nprocs=2, start_method="forkserver")
    assert excinfo.value.error_index == 1
    with pytest.raises(mp.ProcessRaisedException, match="\N{SNOWMAN}"):  # more than a pipe buffers
        mp.spawn(loader_data.fail, ("raise at length", 0), nprocs=1)
    context = mp.spawn(loader_data.fail, ("kill", 0), nprocs=1, join=False)
    with pytest.raises(mp.ProcessExitedException, match="SIGTERM") as excinfo:
        context.join(timeout=60)
    assert excinfo.value.error_pid == context.pids()[0]
    assert not any(Path(f"/proc/{pid}").exists() for pid in context.pids())


def test_two_processes_train_one_model_at_once():
    """Hogwild (Niu et al., 2011): both processes update the same weights without locks."""
    rng = np.random.default_rng(0)
    truth = np.array([[1.0, -2.0, 0.5, 3.0]], np.float32)
    samples = rng.standard_normal((64, 4), np.float32)
    xs, ys = wg.tensor(samples, device="cpu"), wg.tensor(samples @ truth.T, device="cpu")
    model = nn.Linear(4, 1, bias=False, device="cpu")
    loader_data.hogwild(0, model, xs, ys, 1)  # build the kernels once, before both processes need them
    start_weights = np.array(model.weight.tolist())
    assert abs(start_weights - truth).max() > 0.5
    model.share_memory()
    mp.start_processes(loader_data.hogwild, (model, xs, ys, 60), nprocs=2, start_method="forkserver")
    assert np.allclose(model.weight.tolist(), truth, atol=1e-3)
