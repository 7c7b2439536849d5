"""Loading data: samplers, collating, and worker processes with everything that may happen to them."""

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
import types
from collections import OrderedDict, UserDict, UserList
from pathlib import Path

import loader_data
import numpy as np
import pytest
from loader_data import Gated, Images, Kept, Kinds, Locked, Numbers, Pair, Report

import weftgrad as wg
import weftgrad.multiprocessing as mp
from weftgrad.runtime import errors
from weftgrad.runtime.shared import Segment
from weftgrad.utils import data
from weftgrad.utils.data import DataLoader, default_collate, default_convert
from weftgrad.utils.data.channel import Channel, pair
from weftgrad.utils.data.iterating import pin
from weftgrad.utils.data.packing import Arena

SHM = Path("/dev/shm")


def segments():
    return {name.name for name in SHM.iterdir() if not name.name.startswith("sem.")} if SHM.is_dir() else set()


@pytest.fixture(autouse=True)
def main(monkeypatch):
    """A main module without a file: workers need not import pytest. Nothing may be left behind."""
    made = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", made)
    before = segments()
    yield made
    gc.collect()
    assert not [p for p in mp.active_children() if p.name.startswith("DataLoader")]
    assert segments() <= before


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pids, seconds=20):
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(alive, pids))


def seeded(number=0):
    return wg.Generator().manual_seed(number)


# Order ----------------------------------------------------------------------------------------------------------------


def test_orders_are_permutations_and_repeat():
    ten = range(10)
    for make in (
        lambda g: data.RandomSampler(ten, generator=g),
        lambda g: data.SubsetRandomSampler(list(ten), generator=g),
        lambda g: data.WeightedRandomSampler([1.0] * 10, 10, replacement=False, generator=g),
    ):
        orders = [list(make(seeded(n))) for n in (1, 1, 2)]
        assert orders[0] == orders[1] != orders[2]
        assert sorted(orders[0]) == sorted(orders[2]) == list(ten) != orders[0]
    again = data.RandomSampler(ten, generator=seeded())
    assert list(again) != list(again)
    long = list(data.RandomSampler(ten, num_samples=25, generator=seeded()))
    assert [sorted(long[:10]), sorted(long[10:20]), len(set(long[20:]))] == [list(ten), list(ten), 5]
    assert list(data.BatchSampler(data.SequentialSampler(ten), 4, False)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(data.BatchSampler(iter(ten), 4, True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [len(data.BatchSampler(ten, 4, drop)) for drop in (False, True)] == [3, 2]


def test_draws_with_replacement_have_their_probabilities():
    drawn = np.bincount(list(data.RandomSampler(range(4), True, 8000, seeded())), minlength=4)
    assert abs(drawn - 2000).max() < 200  # five standard deviations
    weights = np.array([1, 0, 3, 4])
    drawn = np.bincount(list(data.WeightedRandomSampler(weights, 8000, generator=seeded())), minlength=4)
    assert drawn[1] == 0
    assert abs(drawn - weights * 1000).max() < 230


def test_an_order_without_a_generator_is_one_draw_of_the_default_one():
    wg.manual_seed(5)
    first = []
    for i in data.RandomSampler(range(6)):
        wg.manual_seed(i)  # what is drawn meanwhile does not matter
        first.append(i)
    wg.manual_seed(5)
    assert list(data.RandomSampler(range(6))) == first
    assert wg.runtime.tensor is not None
    assert len(wg.get_rng_state()) == 16


@pytest.mark.parametrize(("count", "ranks", "drop"), [(10, 3, False), (10, 3, True), (2, 5, False), (9, 3, True)])
def test_ranks_share_out_the_samples(count, ranks, drop):
    parts = [data.DistributedSampler(range(count), ranks, r, seed=3, drop_last=drop) for r in range(ranks)]
    each = [list(p) for p in parts]
    wanted = count // ranks if drop else -(-count // ranks)
    assert [len(e) for e in each] == [len(p) for p in parts] == [wanted] * ranks
    together = [i for row in zip(*each, strict=True) for i in row]
    assert sorted(set(together[:count])) == sorted(together[: min(count, wanted * ranks)])
    assert drop or together[count:] == (together[:count] * ranks)[: wanted * ranks - count]
    parts[0].set_epoch(1)
    assert count < 9 or list(parts[0]) != each[0]
    plain = data.DistributedSampler(range(count), ranks, 1, shuffle=False, drop_last=drop)
    assert next(iter(plain)) == 1


def test_samplers_refuse():
    cases = [
        (lambda: data.RandomSampler(range(3), replacement=1), TypeError, "replacement"),
        (lambda: data.RandomSampler(range(3), num_samples=0), ValueError, "positive"),
        (lambda: data.RandomSampler([]), ValueError, "positive"),
        (lambda: data.WeightedRandomSampler([1.0], True), ValueError, "num_samples"),
        (lambda: data.WeightedRandomSampler([[1.0]], 1), ValueError, "shape"),
        (lambda: data.WeightedRandomSampler([1.0], 1, replacement=0), ValueError, "replacement"),
        (lambda: list(data.WeightedRandomSampler([1.0, 0.0], 3, False)), ValueError, "without replacement"),
        (lambda: data.BatchSampler([1], 1.0, False), ValueError, "positive"),
        (lambda: data.BatchSampler([1], 1, 0), ValueError, "drop_last"),
        (lambda: data.DistributedSampler(range(3), 2, 2), ValueError, "rank"),
        (lambda: data.DistributedSampler(range(3)), NotImplementedError, "num_replicas"),
    ]
    for make, kind, word in cases:
        with pytest.raises(errors.WeftgradError, match=word) as caught:
            make()
        assert isinstance(caught.value, kind)


# Data sets ------------------------------------------------------------------------------------------------------------


def test_data_sets_side_by_side_and_one_after_the_other():
    x, y = wg.arange(10, device="cpu"), wg.arange(10, 20, device="cpu")
    both = data.StackDataset(data.TensorDataset(x), y)
    assert [both[3][0][0].item(), both[3][1].item(), len(both)] == [3, 13, 10]
    named = data.StackDataset(a=data.Subset([5, 6, 7], [2, 0]), b="xy")
    assert named[0] == {"a": 7, "b": "x"}
    assert named.__getitems__([1, 0]) == [{"a": 5, "b": "y"}, {"a": 7, "b": "x"}]
    chain = Numbers(3) + Numbers(2)
    assert list(chain) == [0, 1, 2, 0, 1]
    assert len(chain) == 5
    joined = data.ConcatDataset([[1, 2], [3]])
    assert [joined[i] for i in range(-3, 3)] == [1, 2, 3, 1, 2, 3]
    assert joined.cumulative_sizes == [2, 3]
    for wrong in (3, -4):
        with pytest.raises(IndexError):
            joined[wrong]
    for make in (
        lambda: data.ConcatDataset([Numbers(2)]), lambda: data.ConcatDataset([]), lambda: data.StackDataset(),
        lambda: data.StackDataset([1], [1, 2]), lambda: data.StackDataset([1], b=[1]),
        lambda: list(data.ChainDataset([[1]])), lambda: data.random_split([1, 2], [1, 2]),
        lambda: data.random_split([1, 2], [1.5, -0.5]),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            make()

    class Half(data.Subset):
        def __getitem__(self, index):
            return 1

    with pytest.raises(NotImplementedError, match="__getitems__"):
        Half([1], [0])


def test_random_split_takes_lengths_and_fractions():
    parts = data.random_split(range(11), [0.5, 0.25, 0.25], seeded(1))
    assert [len(p) for p in parts] == [6, 3, 2]
    assert sorted(i for p in parts for i in p) == list(range(11))
    again = data.random_split(range(11), [6, 3, 2], seeded(1))
    assert [p.indices for p in again] == [p.indices for p in parts]
    with pytest.warns(UserWarning, match="empty"):
        data.random_split(range(3), [0.9, 0.1, 0.0])


# Batches --------------------------------------------------------------------------------------------------------------


def test_collate_makes_every_type_a_batch():
    pairs = default_collate([Pair(1, np.float32(2)), Pair(3, np.float32(4))])
    assert (type(pairs), pairs.left.dtype, pairs.right.dtype) == (Pair, wg.int64, wg.float32)
    got = default_collate([(True, 2, 0.5, "a", b"b", [1, 2.5]), (False, 3, 1.5, "c", b"d", [2, 3.5])])
    assert type(got) is list
    assert [t.dtype for t in got[:3]] == [wg.bool, wg.int64, wg.float64]
    assert [t.tolist() for t in got[:3]] == [[True, False], [2, 3], [0.5, 1.5]]
    assert [got[3], got[4]] == [("a", "c"), (b"b", b"d")]
    assert [t.tolist() for t in got[5]] == [[1, 2], [2.5, 3.5]]
    halves = default_collate([wg.tensor([1.5], dtype=wg.bfloat16), wg.tensor([-2.0], dtype=wg.bfloat16)])
    assert (halves.dtype, halves.tolist()) == (wg.bfloat16, [[1.5], [-2.0]])
    mixed = default_collate([wg.tensor([1]), wg.tensor([0.5])])
    assert (mixed.dtype, mixed.tolist()) == (wg.float32, [[1.0], [0.5]])
    assert default_collate([np.zeros((0, 2), np.uint8)] * 3).shape == (3, 0, 2)
    assert default_collate([1, 2.5]).dtype is wg.float32
    learned = wg.ones(2, requires_grad=True)
    assert default_collate([learned, learned]).requires_grad


def test_collate_keeps_containers_and_takes_types_of_ones_own():
    ordered = default_collate([OrderedDict(b=1, a=2)] * 2)
    assert (type(ordered), list(ordered)) == (OrderedDict, ["b", "a"])
    assert type(default_collate([UserDict(a=1)] * 2)) is UserDict
    assert type(default_collate([UserList([1, 2])] * 2)) is UserList
    table = data.default_collate_fn_map
    table[complex] = lambda batch, *, collate_fn_map: len(batch)
    try:
        assert default_collate([{"z": 1j}] * 3) == {"z": 3}
    finally:
        del table[complex]
    with pytest.raises(TypeError, match="complex"):
        default_collate([1j])
    with pytest.raises(RuntimeError, match=r"number 1 \[3\]"):
        default_collate([np.zeros(2), np.zeros(3)])
    with pytest.raises(RuntimeError, match="as many parts"):
        default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="U1"):
        default_collate([np.array(["a"])] * 2)


def test_convert_changes_arrays_only():
    got = default_convert({"a": np.arange(3), "b": (1, "x", Pair(np.float32(2), None)), "c": [np.array(1.5)]})
    assert got["a"].tolist() == [0, 1, 2]
    assert got["b"][:2] == [1, "x"]
    assert (type(got["b"][2]), got["b"][2].left.dtype) == (Pair, wg.float32)
    assert (got["c"][0].dtype, got["c"][0].shape) == (wg.float64, ())


def test_the_loader_refuses_what_does_not_go_together():
    images, numbers = Images(4), Numbers(4)
    cases = [
        (images, {"num_workers": -1}, "negative"), (images, {"timeout": -1}, "timeout"),
        (images, {"prefetch_factor": 2}, "prefetch_factor"), (images, {"persistent_workers": True}, "persistent"),
        (images, {"num_workers": 1, "prefetch_factor": 0}, "at least 1"),
        (images, {"shuffle": True, "sampler": [0]}, "not both"), (numbers, {"shuffle": True}, "own order"),
        (numbers, {"sampler": [0]}, "own order"), (numbers, {"batch_sampler": [[0]]}, "own order"),
        (images, {"batch_sampler": [[0]], "batch_size": 2}, "excludes"),
        (images, {"batch_sampler": [[0]], "drop_last": True}, "excludes"),
        (images, {"batch_size": None, "drop_last": True}, "batch_size=None"),
        (images, {"multiprocessing_context": "spawn"}, "num_workers"),
        (images, {"num_workers": 1, "multiprocessing_context": "threads"}, "threads"),
        (images, {"num_workers": 1, "multiprocessing_context": 3}, "int"),
        (images, {"num_workers": 1, "multiprocessing_context": "fork"}, "forkserver"),
    ]  # fmt: skip
    for dataset, options, word in cases:
        with pytest.raises(ValueError, match=word):
            DataLoader(dataset, **options)
    with pytest.raises(ValueError, match="cannot be changed"):
        DataLoader(images).batch_size = 3
    with pytest.warns(UserWarning, match="cores"):
        DataLoader(images, num_workers=1000)


def test_one_process_makes_batches_in_every_mode():
    images = Images(5, side=1)
    assert [y.tolist() for _, y in DataLoader(images, 2)] == [[0, 1], [2, 3], [4]]
    assert [y.tolist() for _, y in DataLoader(images, 2, drop_last=True)] == [[0, 1], [2, 3]]
    assert [y for _, y in DataLoader(images, None, sampler=[3, 1])] == [3, 1]
    assert [y.tolist() for _, y in DataLoader(images, batch_sampler=[[4, 0], [2]])] == [[4, 0], [2]]
    assert [b.tolist() for b in DataLoader(Numbers(5), 2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(DataLoader(Numbers(3), None)) == [0, 1, 2]
    assert list(DataLoader(Numbers(3), 2, collate_fn=loader_data.as_list)) == [[0, 1], [2]]
    assert [len(DataLoader(Numbers(5), n, drop_last=d)) for n, d in [(2, False), (2, True), (None, False)]] == [3, 2, 5]
    half = data.Subset(data.TensorDataset(wg.arange(10)), [9, 3, 5])
    assert [x.tolist() for (x,) in DataLoader(half, 2)] == [[9, 3], [5]]
    (row,) = next(iter(DataLoader(half, 3, pin_memory=True)))  # on this machine that changes nothing
    assert row.tolist() == [9, 3, 5]
    short = DataLoader(Numbers(3), None)
    short.dataset.__class__.__len__, kept = (lambda self: 2), Numbers.__len__
    try:
        assert len(short) == 2
        with pytest.warns(UserWarning, match="length is 2"):
            list(short)
    finally:
        Numbers.__len__ = kept
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Images(3, {1: "stop"})))


# Workers --------------------------------------------------------------------------------------------------------------


def test_workers_give_the_batches_of_one_process_epoch_after_epoch():
    """Order, values, memory that is used again, and what is kept of earlier batches."""
    loaders = [
        DataLoader(Images(64), 4, shuffle=True, generator=seeded(9), **options)
        for options in ({}, {"num_workers": 2, "persistent_workers": True, "timeout": 60})
    ]
    kept, pids, seen = [], set(), []
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
                    kept.append((images, numbers.tolist()))
            orders.append(order)
        assert orders[0] == orders[1]
        assert sorted(n for batch in orders[0] for n in batch) == list(range(64))
        seen.append(orders[0])
        pids |= set(iterator.pids())
    assert len(pids) == 2
    assert seen[0] != seen[1] != seen[2]
    for images, numbers in kept:  # nothing wrote over them since
        assert (images.numpy() == np.array(numbers)[:, None, None] + 1).all()
    workers = iterator._workers._workers
    assert max(len(w.slots) for w in workers) < 16  # of 24 batches each: most were put where others had been
    assert loaders[0].generator.offset == loaders[1].generator.offset
    images.add_(1.0)  # a batch is a tensor like any other
    assert images.sum().item() > 0
    for _ in iter(loaders[1]):
        break
    assert [n for _, y in loaders[1] for n in y.tolist()] != []  # an epoch that was left does not leak into the next
    del iterator, loaders, loader, workers
    gc.collect()
    assert gone(pids)


def test_workers_are_set_up_as_promised(main):
    wg.manual_seed(11)
    loader = DataLoader(Report(), 1, num_workers=2, collate_fn=loader_data.as_list, worker_init_fn=loader_data.mark)
    first = [b[0] for b in loader]
    wg.manual_seed(11)
    again = [b[0] for b in DataLoader(Report(), 1, num_workers=2, collate_fn=loader_data.as_list)]
    assert [r["i"] for r in first] == list(range(8))
    assert [r["id"] for r in first] == [0, 1] * 4  # batches go round
    assert all(r["own"] and r["workers"] == 2 and r["device"] == "cpu" and not r["opened"] for r in first)
    assert [r["marked"] for r in first] == [0, 1] * 4
    assert first[1]["seed"] == first[0]["seed"] + 1 == first[1]["drawn"][0]
    assert [r["drawn"] for r in first] == [r["drawn"] for r in again]
    assert len({r["drawn"] for r in first}) == 8
    assert data.get_worker_info() is None


def test_everything_a_batch_may_hold_comes_across():
    plain = list(DataLoader(Kinds(), 4))
    moved = list(DataLoader(Kinds(), 4, num_workers=1))
    for one, other in zip(plain, moved, strict=True):
        assert list(one) == list(other)
        assert other["worker"].tolist() == [0] * 4
        for name in ("array", "tensor", "bfloat16", "number", "flag", "scalar"):
            assert (one[name].dtype, one[name].tolist()) == (other[name].dtype, other[name].tolist()), name
        assert one["name"] == other["name"]
        assert type(other["pair"]) is Pair
        assert other["pair"].right[1][1] == (b"x",) * 4


def test_what_a_data_set_keeps_of_its_batches_is_not_written_over():
    got = [np.unique(t.numpy()).tolist() for t in DataLoader(Kept(), None, num_workers=1)]
    assert got == [[i] for i in range(16)] * 2


def test_iterable_data_sets_are_shared_out():
    assert sorted(n for b in DataLoader(Numbers(11), 2, num_workers=2) for n in b.tolist()) == list(range(11))
    loader = DataLoader(Numbers(4, shared=False), 3, num_workers=2, drop_last=True, persistent_workers=True)
    for _ in range(2):
        assert [b.tolist() for b in loader] == [[0, 1, 2]] * 2
    assert len(loader) == 1
    loader = DataLoader(Numbers(2, shared=False), num_workers=2)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="takes its share"):
        assert len(list(loader)) == 4


def test_batches_out_of_order_come_as_they_are_ready():
    gate = mp.Event()
    batches = iter(DataLoader(Gated(gate, 12), num_workers=2, in_order=False))
    first = [int(next(batches)) for _ in range(2)]
    assert first == [1, 3]  # of the other worker
    gate.set()
    assert sorted(first + [int(b) for b in batches]) == list(range(12))


def test_tensor_data_sets_are_shared_with_workers_and_locks_too():
    x = wg.arange(40000, device="cpu").reshape(10, 4000)
    small = wg.arange(10, device="cpu")
    got = list(DataLoader(data.TensorDataset(x, small), 3, num_workers=1))
    assert (x.is_shared(), small.is_shared()) == (True, False)
    assert np.array_equal(np.concatenate([a.numpy() for a, _ in got]), np.arange(40000).reshape(10, 4000))
    assert [n for _, b in got for n in b.tolist()] == list(range(10))
    x.add_(1)
    assert int(x[0, 0]) == 1
    count = mp.Value("i", 0)
    assert len(list(DataLoader(Locked(count, 7), num_workers=2))) == 7
    assert count.value == 7


def test_numbers_of_samples_may_be_long():
    """More of them than a packet holds."""
    order = list(range(5000, 0, -1))
    (got,) = DataLoader(range(10000), num_workers=1, batch_sampler=[order], collate_fn=loader_data.as_list)
    assert got == order


# Faults ---------------------------------------------------------------------------------------------------------------


def test_what_a_worker_raises_is_raised_here():
    loader = DataLoader(Images(10, {2: "raise", 4: "key", 6: "odd", 8: "stop"}), 2, num_workers=2, timeout=60)
    batches = iter(loader)
    assert next(batches)[1].tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"(?s)DataLoader worker process 1.*loader_data.py.*sample 2 is broken"):
        next(batches)
    with pytest.raises(KeyError) as caught:
        next(batches)
    assert "in __getitem__\n" in str(caught.value)  # a traceback, not its repr
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
def test_a_worker_that_ends_is_an_error_at_once(fault, words):
    batches = iter(DataLoader(Images(1000, {5: fault, 6: "hang"}), 1, num_workers=2, prefetch_factor=8))
    pids = batches.pids()
    begun = time.monotonic()
    with pytest.raises(errors.WorkerError, match=f"pid {pids[1]}.*{words}"):
        list(batches)
    assert time.monotonic() - begun < 60  # though the other one hangs
    assert gone(pids)
    assert list(batches) == []


def test_a_worker_that_hangs_is_an_error_in_time_and_ends_with_the_iterator():
    batches = iter(DataLoader(Images(8, {3: "hang"}), 1, num_workers=2, timeout=60))
    pids = batches.pids()
    assert [int(next(batches)[1]) for _ in range(3)] == [0, 1, 2]
    batches._workers.timeout = 0.5  # only now: how long workers take to start depends on what else runs here
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match=rf"timed out after 0.5 seconds: batch 3 of worker 1 \(pid {pids[1]}\)"):
        list(batches)
    assert 0.4 < time.monotonic() - begun < 60
    assert gone(pids)
    batches = iter(DataLoader(Images(8, {3: "hang"}), 1, num_workers=2))
    pids = batches.pids()
    assert int(next(batches)[1]) == 0
    for pid in pids:
        os.kill(pid, signal.SIGINT)  # as Ctrl-C would
    time.sleep(0.1)
    assert all(map(alive, pids))
    assert int(next(batches)[1]) == 1
    begun = time.monotonic()
    del batches
    assert time.monotonic() - begun < 60
    assert gone(pids)


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


def test_what_cannot_be_sent_to_workers_is_named(main):
    class Local(Images):
        pass

    for options, words in [
        ({"collate_fn": lambda b: b}, "collate_fn.*lambda.*num_workers=0"), ({"dataset": Local(4)}, "dataset.*Local"),
        ({"dataset": [sys.stdout]}, "dataset.*cannot pickle"),
        ({"worker_init_fn": lambda i: None}, "worker_init_fn.*lambda"),
    ]:  # fmt: skip
        with pytest.raises(pickle.PicklingError, match=words):
            iter(DataLoader(**{"dataset": Images(4), "num_workers": 1} | options))
    main.Typed = Typed = type("Typed", (Images,), {"__module__": "__main__", "__qualname__": "Typed"})
    with pytest.raises(errors.NotPicklable, match="interactive session"):
        next(iter(DataLoader(Typed(4), num_workers=1)))

def test_workers_that_are_starting_do_not_heed_ctrl_c(main, tmp_path):
    """It is the parent's, which may have its own way with it."""
    script, begun = tmp_path / "slow.py", tmp_path / "begun"
    script.write_text(f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(0.5)")
    main.__file__ = str(script)  # what workers import first
    batches = iter(DataLoader(range(4), num_workers=1))
    end = time.monotonic() + 20
    while not begun.exists() and time.monotonic() < end:
        time.sleep(0.001)
    os.kill(batches.pids()[0], signal.SIGINT)
    assert [int(b) for b in batches] == [0, 1, 2, 3]


SCRIPT = """
    import sys, time
    sys.path.insert(0, {tests!r})
    from loader_data import Images
    from weftgrad.utils.data import DataLoader

    def main():
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
    """Ctrl-C reaches every process of the terminal's group; SIGKILL only the loader's."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(tests=str(Path(__file__).parent))))
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    ) as running:  # fmt: skip
        try:
            first = [int(n) for n in running.stdout.readline().split()]
            os.killpg(running.pid, signal.SIGINT)
            assert running.stdout.readline() == "interrupted\n"
            assert gone(first)
            second = [int(n) for n in running.stdout.readline().split()]
            assert len(first) == len(second) == 2
            assert all(map(alive, second))
            running.kill()
            assert gone(second)
            assert running.stderr.read() == ""
        finally:
            running.kill()


# Position -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("make", ["random", "weighted"])
def test_a_position_goes_on_where_it_was(given, make):
    def loader():
        generator = seeded(4) if given else None
        if make == "random":
            return DataLoader(range(20), 3, shuffle=True, generator=generator)
        return DataLoader(range(20), 3, sampler=data.WeightedRandomSampler([1.0] * 20, 30, generator=generator))

    wg.manual_seed(7)
    whole = loader()
    wanted, at = [], {}
    for epoch in range(2):
        at[epoch, 0] = whole.state_dict(), wg.get_rng_state()
        for i, batch in enumerate(whole):
            wg.rand(1, device="cpu")  # what training draws
            wanted.append(batch.tolist())
            at[epoch, i + 1] = whole.state_dict(), wg.get_rng_state()
    after = wg.initial_seed(), wg.default_generator.offset
    count = len(whole)
    for (epoch, i), (state, drawn) in at.items():
        if (epoch, i) not in ((0, 0), (0, 2), (0, count), (1, 0), (1, 4)):
            continue
        state = pickle.loads(pickle.dumps(state))
        wg.manual_seed(99)
        other = loader()
        other.load_state_dict(state)
        assert other.state_dict() == state
        wg.set_rng_state(drawn)
        got = []
        for _ in range(epoch, 2):
            for batch in other:
                wg.rand(1, device="cpu")
                got.append(batch.tolist())
        assert got == wanted[epoch * count + i :], (epoch, i)
        assert (wg.initial_seed(), wg.default_generator.offset) == after


def test_positions_of_other_loaders(main):
    loader = DataLoader(Numbers(7), 2)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    assert state["yielded"] == 2
    loader.load_state_dict(state)
    assert [b.tolist() for b in loader] == [[4, 5], [6]]
    assert loader.state_dict()["yielded"] == 0
    sampler = data.DistributedSampler(range(8), 2, 0)
    sampler.set_epoch(3)
    loader = DataLoader(range(8), 1, sampler=sampler, num_workers=1)
    batches = [int(b) for b in loader]
    begun = iter(loader)
    first = int(next(begun))
    state = loader.state_dict()
    del begun
    other = DataLoader(range(8), 1, sampler=data.DistributedSampler(range(8), 2, 0), num_workers=1)
    other.load_state_dict(state)
    assert [first] + [int(b) for b in other] == batches
    with pytest.raises(ValueError, match="state_dict"):
        loader.load_state_dict({})
    with pytest.raises(ValueError, match="generators"):
        loader.load_state_dict({"yielded": 0, "generators": [[1, 2]], "default": [0, 0]})


# Packets and slots ----------------------------------------------------------------------------------------------------


def test_a_last_message_arrives_though_the_sender_left_others_unread():
    here, end = pair()
    there = Channel(end)
    here.send("unread")
    there.send(["x" * 5000])  # more than a packet holds
    there.send("last")
    there.close()
    assert here.receive()[0] == ["x" * 5000]
    assert here.receive(wait=False)[0] == "last"
    for _ in range(2):
        with pytest.raises(EOFError):
            here.receive(wait=False)
    here.close()


def test_slots_are_used_again_grow_and_are_given_up():
    arena = Arena(keep=2)
    used = []
    for nbytes in (1000, 1000, 100_000):
        arena.begin()
        made = arena.take(nbytes)
        if made is None:
            made = np.empty(nbytes, np.uint8)
        made[:] = 7
        slot, segment, places = arena.place([made])
        used.append((slot, segment is not None))
        del made, segment
        arena.settle()
        assert places == [(0, nbytes)]
        if nbytes == 1000:
            arena.release([slot])
    assert used[0] == (1, True)
    assert used[1] == (1, False)
    assert used[2] == (2, True)  # the first was too small, and is given up
    assert arena.dropped == [1]
    assert arena.place([]) == (None, None, [])


def test_batches_are_pinned_where_there_is_a_gpu(cuda):
    """By the stand-in for the driver library: memory is page-locked, for the GPU that is named."""
    one, other = iter(DataLoader(Kinds(), 2, pin_memory=True)), iter(DataLoader(Images(4), None, pin_memory=True))
    batch = next(one)
    assert all(batch[name].is_pinned() for name in ("array", "tensor", "bfloat16", "flag"))
    assert batch["pair"].right[0].is_pinned()
    assert batch["name"] == ["n0", "n1"]
    assert batch["tensor"].tolist() == [[0, 0.5], [1, 1.5]]
    image, number = next(other)
    assert image.is_pinned()
    assert number == 0

    class Own:
        def pin_memory(self):
            return "mine"

    assert pin([Own(), UserDict(a=wg.ones(1, device="cpu"))], "cuda:1")[0] == "mine"
    assert pin(OrderedDict(a=(wg.ones(1, device="cpu"),)), "cuda:1")["a"][0].is_pinned("cuda:1")
