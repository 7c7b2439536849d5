"""Tensors shared between processes: what is shared, how long it lives, and training by several processes at once."""

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
def _light(monkeypatch):
    """A main module without a file: new processes need not import pytest."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


def settled(before):
    """Whether no more descriptors are held than before; a desk lets go a moment after it has answered."""
    end = time.monotonic() + 10
    while descriptors() > before and time.monotonic() < end:
        time.sleep(0.01)
    return descriptors() <= before


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


def through(value):
    """What another process would have of `value`, made by this one as if it knew nothing of the memory."""
    return unknown(ForkingPickler.dumps(value))


def unknown(data):
    held = dict(sharing._storages), dict(sharing._segments)
    sharing._storages.clear()
    sharing._segments.clear()
    try:
        return ForkingPickler.loads(data)
    finally:
        for table, entries in zip((sharing._storages, sharing._segments), held, strict=True):
            table.update(entries)


# In one process -------------------------------------------------------------------------------------------------------


def test_sharing_moves_a_storage_and_all_its_views():
    first, whole = numbers(100), numbers(4, 3)
    assert whole.start != first.start  # one of them is not at the front of its buffer
    view, array, version = whole[1:], whole.numpy(), whole._version
    first.share_memory_()
    address = whole.data_ptr()
    assert not whole.is_shared()
    assert whole.share_memory_() is whole
    assert whole.is_shared()
    assert view.is_shared()
    assert whole.data_ptr() != address
    assert whole._version == version
    assert view.tolist() == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    whole.add_(1.0)  # a kernel on memory that begins in the middle of its buffer
    assert view.tolist() == [[4, 5, 6], [7, 8, 9], [10, 11, 12]]
    other = [wg.tensor(np.full((4, 3), -1.0, np.float32), device="cpu") for _ in range(8)]
    assert array.tolist() == np.arange(12).reshape(4, 3).tolist()  # an array shows the memory it was made of
    left = array.__array_interface__["data"][0]
    assert left not in [t.data_ptr() for t in other]
    del array
    other += [wg.tensor(np.full((4, 3), -1.0, np.float32), device="cpu") for _ in range(8)]
    assert left in [t.data_ptr() for t in other]  # free again
    place = sharing.place_of(whole.storage)
    assert whole.share_memory_() is whole
    assert sharing.place_of(whole.storage) is place


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
    assert through(empty).shape == (0, 3)
    flag = wg.tensor(True, device="cpu")
    assert through(flag).item() is True


def test_what_is_sent_shares_memory_both_ways():
    whole = numbers(2, 3)
    sent = [whole, whole[:, 1], whole.T]
    got = through(sent)
    assert got[0].storage is got[1].storage is got[2].storage is not whole.storage
    assert (got[1].stride(), got[2].shape) == ((3,), (3, 2))
    whole.add_(10.0)
    assert got[2].tolist() == [[10, 13], [11, 14], [12, 15]]
    got[1].numpy()[...] = -1  # a strided view
    assert whole.tolist() == [[10, -1, 12], [13, -1, 15]]
    assert ForkingPickler.loads(ForkingPickler.dumps(whole)).storage is whole.storage  # home again


def test_classes_and_gradients_wanted_are_kept():
    class Own(wg.Tensor):
        pass

    weight = nn.Parameter(numbers(3))
    buffer = nn.Buffer(numbers(3), persistent=False)
    got = through([weight, buffer, numbers(2).requires_grad_(), nn.Parameter(numbers(2), requires_grad=False)])
    assert [type(t) for t in got] == [nn.Parameter, nn.Buffer, wg.Tensor, nn.Parameter]
    assert [t.requires_grad for t in got] == [True, False, True, False]
    assert got[1].persistent is False
    with pytest.raises(AttributeError, match="Own"):  # sent as a tensor is, and a local class cannot be
        ForkingPickler.dumps(Own(weight.storage, weight.meta, weight.start))
    with pytest.raises(RuntimeError, match="detach"):
        ForkingPickler.dumps(weight * 2)
    away = wg.ones(2, device="interpreter") if "interpreter" in map(str, wg.devices()) else None
    if away is not None:
        with pytest.raises(RuntimeError, match=r"interpreter.*x\.cpu\(\)"):
            away.share_memory_()
        with pytest.raises(RuntimeError, match="interpreter"):
            ForkingPickler.dumps(away)


def test_a_module_is_shared_in_one_segment():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = descriptors()
    want = [p.tolist() for p in model.parameters()]
    assert model.share_memory() is model
    assert all(t.is_shared() for t in (*model.parameters(), *model.buffers()))
    assert len({sharing.place_of(p.storage).token for p in model.parameters()}) == 1
    assert descriptors() - before <= 2
    assert [p.tolist() for p in model.parameters()] == want
    copied = through(model)
    copied[0].weight.detach().add_(1.0)
    assert np.allclose(model[0].weight.tolist(), np.array(want[0]) + 1)
    assert copied[1].running_var.tolist() == [1] * 4
    del model, copied
    assert settled(before)


def test_memory_is_given_back_with_the_last_tensor():
    before = descriptors()
    for _ in range(3):
        tensor = numbers(1000)
        got = through(tensor)
        del tensor
        assert got.tolist() == list(range(1000))
        del got
    assert settled(before)
    lost = ForkingPickler.dumps(numbers(10))  # never received: the desk holds it
    assert descriptors() > before
    assert ForkingPickler.loads(lost).tolist() == list(range(10))
    assert settled(before)
    with pytest.raises(errors.WorkerError, match="second time"):
        ForkingPickler.loads(lost)


def test_a_sender_that_is_gone_is_named():
    data = bytes(ForkingPickler.dumps(numbers(4)))
    address = sharing.desk.address
    forged = data.replace(address.encode(), address.encode().replace(b"weftgrad-", b"weftgrax-"))
    gc.collect()
    with pytest.raises(errors.WorkerError, match=rf"process {os.getpid()} sent.*join it after"):
        unknown(forged)
    ForkingPickler.loads(data)


def test_the_standard_module_is_here():
    for name in multiprocessing.__all__:
        assert hasattr(mp, name), name
    assert mp.get_start_method() == "forkserver"
    assert isinstance(mp.get_context("spawn"), multiprocessing.context.BaseContext)
    assert mp.pool.ThreadPool is not None
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    with pytest.raises(ValueError, match="strateg"):
        mp.set_sharing_strategy("mail")
    error = pickled(mp.ProcessExitedException("m", 1, 2, -9, "SIGKILL"))
    assert (error.error_index, error.exit_code, error.signal_name) == (1, -9, "SIGKILL")


def pickled(value):
    return ForkingPickler.loads(ForkingPickler.dumps(value))


# Between processes ----------------------------------------------------------------------------------------------------


def test_queues_carry_tensors_and_writes_are_seen():
    inbox, outbox = mp.Queue(), mp.Queue()
    process = mp.Process(target=loader_data.echo, args=(inbox, outbox), daemon=True)
    process.start()
    before = descriptors()
    weight = nn.Parameter(numbers(2, 3))
    theirs = None
    for sent in (weight, weight, weight.detach()[1], numbers(4)):
        value = sent.tolist()
        inbox.put(sent)
        got = outbox.get(timeout=60)
        assert got.tolist() == (np.array(value) + 1).tolist()
        assert sent.tolist() == got.tolist()  # one memory
        assert got.storage is sent.storage
        assert type(got) is type(sent)
        inbox.put(True)
        theirs = got
    inbox.put(None)
    process.join(60)
    assert process.exitcode == 0
    for queue in (inbox, outbox):
        queue.close()
        queue.join_thread()
    del weight, sent, got, theirs
    assert settled(before)


def test_pools_work_on_tensors():
    with mp.Pool(1) as pool:
        made, shared, wanted = pool.map(loader_data.square, [numbers(3).requires_grad_().detach()])[0]
        assert (made.tolist(), shared, wanted) == ([0, 1, 4], True, False)
        pool.close()
        pool.join()


def test_spawned_processes_share_arguments_and_fail_by_name():
    weights = wg.zeros(4, device="cpu")
    assert mp.start_processes(loader_data.add_one, (3, weights), nprocs=1, start_method="forkserver") is None
    assert weights.tolist() == [3] * 4
    with pytest.raises(mp.ProcessRaisedException, match=r"(?s)process 1 \(pid.*three") as caught:
        mp.start_processes(loader_data.fail, ("raise", 1), nprocs=2, start_method="forkserver")
    assert caught.value.error_index == 1
    context = mp.spawn(loader_data.fail, ("kill", 0), nprocs=1, join=False)
    with pytest.raises(mp.ProcessExitedException, match="SIGTERM") as caught:
        context.join(timeout=60)
    assert caught.value.error_pid == context.pids()[0]
    assert not any(Path(f"/proc/{pid}").exists() for pid in context.pids())


def test_two_processes_train_one_model_at_once():
    """Hogwild (Niu et al., 2011): steps of both are written to the same weights, without locks."""
    random = np.random.default_rng(0)
    truth = np.array([[1.0, -2.0, 0.5, 3.0]], np.float32)
    samples = random.standard_normal((64, 4), np.float32)
    xs, ys = wg.tensor(samples, device="cpu"), wg.tensor(samples @ truth.T, device="cpu")
    model = nn.Linear(4, 1, bias=False, device="cpu")
    loader_data.hogwild(0, model, xs, ys, 1)  # the kernels are built here, and not by both
    before = np.array(model.weight.tolist())
    assert abs(before - truth).max() > 0.5
    model.share_memory()
    mp.start_processes(loader_data.hogwild, (model, xs, ys, 60), nprocs=2, start_method="forkserver")
    assert np.allclose(model.weight.tolist(), truth, atol=1e-3)
