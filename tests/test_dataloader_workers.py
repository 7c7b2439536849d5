"""Check data loading by worker processes, with all their failures."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections import OrderedDict, UserDict
from pathlib import Path

import loader_data
import numpy as np
import pytest
from dataloader_running import replace_main, seeded
from loader_data import CachingDataset, Gated, Images, Kinds, Locked, Numbers, Pair, Report

import weftgrad as wg
import weftgrad.multiprocessing as mp
from weftgrad.runtime import errors
from weftgrad.runtime.device import drivers_survive_fork
from weftgrad.runtime.shared import Segment
from weftgrad.utils import data
from weftgrad.utils.data import DataLoader, workers
from weftgrad.utils.data.channel import Channel, pair
from weftgrad.utils.data.iterating import pin
from weftgrad.utils.data.packing import Arena


@pytest.fixture(autouse=True)
def main(monkeypatch):
    with replace_main(monkeypatch) as module:
        yield module


@pytest.fixture(params=["fork", "forkserver"])
def start_method(request, monkeypatch):
    """How workers start if the loader does not say it: without and with a driver that does not survive a fork."""
    if request.param == "fork":
        skip_with_open_drivers()
    monkeypatch.setattr(workers, "drivers_survive_fork", lambda: request.param == "fork")
    return request.param


def skip_with_open_drivers():
    """Skip a test that forks, if another test opened OpenCL here: drivers hang in children, and catch their signals."""
    if not drivers_survive_fork():
        pytest.skip("a driver is open; test_forked_workers_in_a_new_process runs this")


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def all_ended(pids, seconds=60):
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(alive, pids))


# Workers


def test_workers_give_the_batches_of_one_process_epoch_after_epoch(start_method):
    """Check order and values; memory is reused, but never that of a batch that is still referenced."""
    loaders = [
        DataLoader(Images(64), 4, shuffle=True, generator=seeded(9), **options)
        for options in ({}, {"num_workers": 2, "persistent_workers": True, "timeout": 60})
    ]
    saved_batches, pids, epochs = [], set(), []
    for _ in range(3):
        orders = []
        for loader in loaders:
            iterator = iter(loader)
            order = []
            for images, numbers in iterator:
                assert images.device == wg.device("cpu")
                assert (images.numpy() == numbers.numpy()[:, None, None] + 1).all()
                order.append(numbers.tolist())
                if loader.num_workers and len(order) % 5 == 0:
                    saved_batches.append((images, numbers.tolist()))
            orders.append(order)
        assert orders[0] == orders[1]
        assert sorted(n for batch in orders[0] for n in batch) == list(range(64))
        epochs.append(orders[0])
        pids |= set(iterator.pids())
    assert len(pids) == 2
    assert epochs[0] != epochs[1] != epochs[2]
    for images, numbers in saved_batches:  # their memory was not reused
        assert (images.numpy() == np.array(numbers)[:, None, None] + 1).all()
    workers = iterator._workers._workers
    assert max(len(w.slots) for w in workers) < 16  # for 24 batches each: most reused a slot
    assert loaders[0].generator.offset == loaders[1].generator.offset
    images.add_(1.0)  # a batch is a tensor like any other
    assert images.sum().item() > 0
    for _ in iter(loaders[1]):
        break
    assert [n for _, y in loaders[1] for n in y.tolist()] != []  # an abandoned epoch does not leak into the next
    del iterator, loaders, loader, workers
    gc.collect()
    assert all_ended(pids)


def test_workers_are_set_up_as_promised(main, start_method):
    wg.manual_seed(11)
    loader = DataLoader(Report(), 1, num_workers=2, collate_fn=loader_data.as_list, worker_init_fn=loader_data.mark)
    first = [b[0] for b in loader]
    wg.manual_seed(11)
    repeated = [b[0] for b in DataLoader(Report(), 1, num_workers=2, collate_fn=loader_data.as_list)]
    assert [r["i"] for r in first] == list(range(8))
    assert [r["id"] for r in first] == [0, 1] * 4  # batches are dealt out in turn
    assert all(r["own"] and r["workers"] == 2 and r["device"] == "cpu" for r in first)
    if start_method == "forkserver":
        assert not any(r["opened"] for r in first)
    assert [r["marked"] for r in first] == [0, 1] * 4
    assert first[1]["seed"] == first[0]["seed"] + 1 == first[1]["drawn"][0]
    assert [r["drawn"] for r in first] == [r["drawn"] for r in repeated]
    assert len({r["drawn"] for r in first}) == 8
    assert data.get_worker_info() is None


def test_everything_a_batch_may_hold_comes_across(start_method):
    expected_batches = list(DataLoader(Kinds(), 4))
    actual_batches = list(DataLoader(Kinds(), 4, num_workers=1))
    for expected, actual in zip(expected_batches, actual_batches, strict=True):
        assert list(expected) == list(actual)
        assert actual["worker"].tolist() == [0] * 4
        for name in ("array", "tensor", "bfloat16", "number", "flag", "scalar"):
            assert (expected[name].dtype, expected[name].tolist()) == (actual[name].dtype, actual[name].tolist()), name
        assert expected["name"] == actual["name"]
        assert type(actual["pair"]) is Pair
        assert actual["pair"].right[1][1] == (b"x",) * 4


def test_batches_cached_by_a_data_set_are_not_overwritten(start_method):
    contents = [np.unique(t.numpy()).tolist() for t in DataLoader(CachingDataset(), None, num_workers=1)]
    assert contents == [[i] for i in range(16)] * 2


def test_iterable_data_sets_are_shared_out(start_method):
    assert sorted(n for b in DataLoader(Numbers(11), 2, num_workers=2) for n in b.tolist()) == list(range(11))
    loader = DataLoader(Numbers(4, shared=False), 3, num_workers=2, drop_last=True, persistent_workers=True)
    for _ in range(2):
        assert [b.tolist() for b in loader] == [[0, 1, 2]] * 2
    assert len(loader) == 1
    loader = DataLoader(Numbers(2, shared=False), num_workers=2)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="takes its share"):
        assert len(list(loader)) == 4


def test_batches_out_of_order_come_as_they_are_ready(start_method):
    gate = mp.Event()
    batches = iter(DataLoader(Gated(gate, 12), num_workers=2, in_order=False))
    unblocked = [int(next(batches)) for _ in range(2)]
    assert unblocked == [1, 3]  # from the worker that is not blocked
    gate.set()
    assert sorted(unblocked + [int(b) for b in batches]) == list(range(12))


def test_tensor_data_sets_are_shared_with_workers_and_locks_too():
    x = wg.arange(40000, device="cpu").reshape(10, 4000)
    small = wg.arange(10, device="cpu")
    batches = list(DataLoader(data.TensorDataset(x, small), 3, num_workers=1, multiprocessing_context="forkserver"))
    assert (x.is_shared(), small.is_shared()) == (True, False)
    assert np.array_equal(np.concatenate([a.numpy() for a, _ in batches]), np.arange(40000).reshape(10, 4000))
    assert [n for _, b in batches for n in b.tolist()] == list(range(10))
    x.add_(1)
    assert int(x[0, 0]) == 1
    count = mp.Value("i", 0)
    assert len(list(DataLoader(Locked(count, 7), num_workers=2))) == 7
    assert count.value == 7


def test_long_lists_of_indices(start_method):
    """A list of indices may be longer than one packet of the channel."""
    order = list(range(5000, 0, -1))
    (batch,) = DataLoader(range(10000), num_workers=1, batch_sampler=[order], collate_fn=loader_data.as_list)
    assert batch == order


class Computed(data.Dataset):
    """Sample i is computed by kernels in the worker, from a tensor of the loader."""

    def __init__(self, weights):
        self.weights = weights

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return (self.weights @ self.weights.T).sum() + index


def test_forked_workers_inherit_what_cannot_be_pickled_and_compute():
    skip_with_open_drivers()

    class Local(Computed):
        pass

    weights = wg.arange(12, device="cpu").reshape(3, 4).float() * 2  # may still be computed by another thread
    expected = float((weights.numpy() @ weights.numpy().T).sum())
    loader = DataLoader(Local(weights), 2, num_workers=2, collate_fn=lambda samples: [float(x) for x in samples])
    for _ in range(2):
        assert [x for batch in loader for x in batch] == [expected + i for i in range(6)]
    assert not weights.is_shared()


def test_forked_workers_in_a_new_process():
    if drivers_survive_fork():
        pytest.skip("the other tests fork in this process")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "fork and not server and not process"]
    command = [sys.executable, "-m", "pytest", *options, __file__]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0, result.stdout
    assert "skipped" not in result.stdout.splitlines()[-1]


def test_processes_are_not_forked_once_a_driver_is_open(monkeypatch):
    monkeypatch.setattr(workers, "drivers_survive_fork", lambda: False)
    assert workers.start_context(None).get_start_method() == "forkserver"
    with pytest.raises(ValueError, match=r"library of OpenCL or CUDA has been loaded.*forkserver"):
        DataLoader(Images(4), num_workers=1, multiprocessing_context="fork")


@pytest.mark.parametrize("runner", [[], ["-m", "weftgrad.as_torch"]], ids=["script", "as_torch"])
def test_scripts_need_no_main_guard(runner, tmp_path):
    script = tmp_path / "script.py"
    library = "torch" if runner else "weftgrad"
    script.write_text(f"""
from {library}.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return index ** 2

print("start")
print([int(x) for x in DataLoader(Squares(), num_workers=2)])
""")
    result = subprocess.run([sys.executable, *runner, str(script)], capture_output=True, text=True, timeout=120)
    assert (result.stdout, result.stderr) == ("start\n[0, 1, 4, 9, 16]\n", "")


def test_a_forked_worker_ends_with_its_loader_although_others_were_forked_later(start_method):
    """Two loaders at once: workers of the second inherit what the first one holds open."""
    first = iter(DataLoader(Images(8), 1, num_workers=2))
    second = iter(DataLoader(Images(8), 1, num_workers=1))
    next(first), next(second)
    pids = first.pids()
    del first
    assert all_ended(pids)
    assert [int(y) for _, y in second] == list(range(1, 8))


# Faults


def test_worker_exceptions_are_raised_in_the_parent(start_method):
    loader = DataLoader(Images(10, {2: "raise", 4: "key", 6: "odd", 8: "stop"}), 2, num_workers=2, timeout=60)
    batches = iter(loader)
    assert next(batches)[1].tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"(?s)DataLoader worker process 1.*loader_data.py.*sample 2 is broken"):
        next(batches)
    with pytest.raises(KeyError) as caught:
        next(batches)
    assert "in __getitem__\n" in str(caught.value)  # the traceback as text, not its repr
    with pytest.raises(RuntimeError, match="Caught Odd"):
        next(batches)
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    with pytest.raises(LookupError, match="licence"):
        next(iter(DataLoader(Images(4), num_workers=2, worker_init_fn=loader_data.no_init)))


@pytest.mark.parametrize(
    ("fault", "words"), [("kill", "SIGKILL.*memory"), ("segv", "SIGSEGV"), ("exit", "exit code 7")]
)
def test_a_worker_that_ends_is_an_error_at_once(fault, words, start_method):
    batches = iter(DataLoader(Images(1000, {5: fault, 6: "hang"}), 1, num_workers=2, prefetch_factor=8))
    pids = batches.pids()
    start_time = time.monotonic()
    with pytest.raises(errors.WorkerError, match=f"pid {pids[1]}.*{words}"):
        list(batches)
    assert time.monotonic() - start_time < 60  # although the other worker hangs
    assert all_ended(pids)
    assert list(batches) == []


def test_a_worker_that_hangs_is_an_error_in_time_and_ends_with_the_iterator(start_method):
    batches = iter(DataLoader(Images(8, {3: "hang"}), 1, num_workers=2, timeout=60))
    pids = batches.pids()
    assert [int(next(batches)[1]) for _ in range(3)] == [0, 1, 2]
    batches._workers.timeout = 0.5  # set only now: the start of a worker may take longer
    start_time = time.monotonic()
    with pytest.raises(TimeoutError, match=rf"timed out after 0.5 seconds: batch 3 of worker 1 \(pid {pids[1]}\)"):
        list(batches)
    assert 0.4 < time.monotonic() - start_time < 60
    assert all_ended(pids)
    batches = iter(DataLoader(Images(8, {3: "hang"}), 1, num_workers=2))
    pids = batches.pids()
    assert int(next(batches)[1]) == 0
    for pid in pids:
        os.kill(pid, signal.SIGINT)  # as Ctrl-C would
    time.sleep(0.1)
    assert all(map(alive, pids))
    assert int(next(batches)[1]) == 1
    start_time = time.monotonic()
    del batches
    assert time.monotonic() - start_time < 60
    assert all_ended(pids)


def test_full_shared_memory_says_so(monkeypatch):
    loader = DataLoader(Images(8, side=512), 4, num_workers=1, worker_init_fn=loader_data.small_files)
    with pytest.raises(errors.SharedMemoryError, match=r"shared memory is full: 4\.00 MiB for a batch.*File too large"):
        next(iter(loader))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"full: 1\.00 MiB.*No space left on device.*prefetch_factor") as caught:
        Segment(1 << 20)
    assert caught.value.errno == errno.ENOSPC
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    del caught
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_objects_that_cannot_be_pickled_are_named(main):
    class Local(Images):
        pass

    for options, words in [
        ({"collate_fn": lambda b: b}, "collate_fn.*lambda.*num_workers=0"), ({"dataset": Local(4)}, "dataset.*Local"),
        ({"dataset": [sys.stdout]}, "dataset.*cannot pickle"),
        ({"worker_init_fn": lambda i: None}, "worker_init_fn.*lambda"),
    ]:  # fmt: skip
        with pytest.raises(pickle.PicklingError, match=words):
            iter(DataLoader(**{"dataset": Images(4), "num_workers": 1, "multiprocessing_context": "spawn"} | options))
    main.Typed = Typed = type("Typed", (Images,), {"__module__": "__main__", "__qualname__": "Typed"})
    with pytest.raises(errors.NotPicklable, match="interactive session"):
        next(iter(DataLoader(Typed(4), num_workers=1, multiprocessing_context="forkserver")))


def test_workers_that_are_starting_do_not_heed_ctrl_c(main, tmp_path):
    """A starting worker ignores SIGINT: the parent decides what an interrupt means."""
    script, started_file = tmp_path / "slow.py", tmp_path / "begun"
    script.write_text(f"import pathlib, time; pathlib.Path({str(started_file)!r}).touch(); time.sleep(0.5)")
    main.__file__ = str(script)  # what workers import first
    batches = iter(DataLoader(range(4), num_workers=1, multiprocessing_context="forkserver"))
    end = time.monotonic() + 60
    while not started_file.exists() and time.monotonic() < end:
        time.sleep(0.001)
    os.kill(batches.pids()[0], signal.SIGINT)
    assert [int(b) for b in batches] == [0, 1, 2, 3]


SCRIPT = """
    import signal, sys, time
    sys.path.insert(0, {tests!r})
    from loader_data import Images
    from weftgrad.utils.data import DataLoader, workers

    def main():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
        loader = DataLoader(Images(100, {{i: "slow" for i in range(2, 100)}}), 1, num_workers=2)
        try:
            batches = iter(loader)
            next(batches), next(batches)  # one of each worker: both run
            print(*batches.pids(), flush=True)
            for batch in batches:
                pass
        except KeyboardInterrupt:
            del batches
            print("interrupted", flush=True)
        batches = iter(DataLoader(Images(8, {{2: "hang"}}), 1, num_workers=2))
        next(batches)
        print(*batches.pids(), flush=True)
        list(batches)

    if __name__ == "__main__":
        main()
"""


def test_interrupted_and_killed_loaders_leave_nobody_behind(tmp_path):
    """No worker outlives its loader. Ctrl-C reaches the whole process group, SIGKILL only the parent."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(tests=str(Path(__file__).parent))))
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            first_pids = [int(n) for n in process.stdout.readline().split()]
            os.killpg(process.pid, signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            assert all_ended(first_pids)
            second_pids = [int(n) for n in process.stdout.readline().split()]
            assert len(first_pids) == len(second_pids) == 2
            assert all(map(alive, second_pids))
            process.kill()
            assert all_ended(second_pids)
            assert process.stderr.read() == ""
        finally:
            process.kill()


# Packets and slots


def test_a_last_message_arrives_after_the_sender_closed():
    local, end = pair()
    remote = Channel(end)
    local.send("unread")
    remote.send(["x" * 5000])  # longer than one packet
    remote.send("last")
    remote.close()
    assert local.receive()[0] == ["x" * 5000]
    assert local.receive(wait=False)[0] == "last"
    for _ in range(2):
        with pytest.raises(EOFError):
            local.receive(wait=False)
    local.close()


def test_slots_are_reused_grow_and_are_dropped():
    arena = Arena(max_free_slots=2)
    slots = []
    for nbytes in (1000, 1000, 100_000):
        arena.begin()
        block = arena.take(nbytes)
        if block is None:
            block = np.empty(nbytes, np.uint8)
        block[:] = 7
        slot, segment, offsets = arena.place([block])
        slots.append((slot, segment is not None))
        del block, segment
        arena.settle()
        assert offsets == [(0, nbytes)]
        if nbytes == 1000:
            arena.release([slot])
    assert slots[0] == (1, True)
    assert slots[1] == (1, False)
    assert slots[2] == (2, True)  # the first slot was too small and is dropped
    assert arena.dropped == [1]
    assert arena.place([]) == (None, None, [])


def test_batches_are_pinned_where_there_is_a_gpu(cuda):
    """Batches are page-locked for the named GPU, on the stand-in for the driver library."""
    batches, samples = iter(DataLoader(Kinds(), 2, pin_memory=True)), iter(DataLoader(Images(4), None, pin_memory=True))
    batch = next(batches)
    assert all(batch[name].is_pinned() for name in ("array", "tensor", "bfloat16", "flag"))
    assert batch["pair"].right[0].is_pinned()
    assert batch["name"] == ["n0", "n1"]
    assert batch["tensor"].tolist() == [[0, 0.5], [1, 1.5]]
    image, number = next(samples)
    assert image.is_pinned()
    assert number == 0

    class Own:
        def pin_memory(self):
            return "mine"

    assert pin([Own(), UserDict(a=wg.ones(1, device="cpu"))], "cuda:1")[0] == "mine"
    assert pin(OrderedDict(a=(wg.ones(1, device="cpu"),)), "cuda:1")["a"][0].is_pinned("cuda:1")
