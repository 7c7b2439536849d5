"""Check data loading in one process: data sets, batches, collating and positions that are restored."""

from __future__ import annotations

import pickle
from collections import OrderedDict, UserDict, UserList

import loader_data
import numpy as np
import pytest
from dataloader_running import replace_main, seeded
from loader_data import Images, Numbers, Pair

import weftgrad as wg
from weftgrad.utils import data
from weftgrad.utils.data import DataLoader, default_collate, default_convert


@pytest.fixture(autouse=True)
def main(monkeypatch):
    with replace_main(monkeypatch) as module:
        yield module


# Data sets


def test_data_sets_side_by_side_and_one_after_the_other():
    x, y = wg.arange(10, device="cpu"), wg.arange(10, 20, device="cpu")
    stacked = data.StackDataset(data.TensorDataset(x), y)
    assert [stacked[3][0][0].item(), stacked[3][1].item(), len(stacked)] == [3, 13, 10]
    named = data.StackDataset(a=data.Subset([5, 6, 7], [2, 0]), b="xy")
    assert named[0] == {"a": 7, "b": "x"}
    assert named.__getitems__([1, 0]) == [{"a": 5, "b": "y"}, {"a": 7, "b": "x"}]
    chain = Numbers(3) + Numbers(2)
    assert list(chain) == [0, 1, 2, 0, 1]
    assert len(chain) == 5
    joined = data.ConcatDataset([[1, 2], [3]])
    assert [joined[i] for i in range(-3, 3)] == [1, 2, 3, 1, 2, 3]
    assert joined.cumulative_sizes == [2, 3]
    for bad_index in (3, -4):
        with pytest.raises(IndexError):
            joined[bad_index]
    for call in (
        lambda: data.ConcatDataset([Numbers(2)]), lambda: data.ConcatDataset([]), lambda: data.StackDataset(),
        lambda: data.StackDataset([1], [1, 2]), lambda: data.StackDataset([1], b=[1]),
        lambda: list(data.ChainDataset([[1]])), lambda: data.random_split([1, 2], [1, 2]),
        lambda: data.random_split([1, 2], [1.5, -0.5]),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            call()

    class Half(data.Subset):
        def __getitem__(self, index):
            return 1

    with pytest.raises(NotImplementedError, match="__getitems__"):
        Half([1], [0])


def test_random_split_takes_lengths_and_fractions():
    splits = data.random_split(range(11), [0.5, 0.25, 0.25], seeded(1))
    assert [len(p) for p in splits] == [6, 3, 2]
    assert sorted(i for p in splits for i in p) == list(range(11))
    by_lengths = data.random_split(range(11), [6, 3, 2], seeded(1))
    assert [p.indices for p in by_lengths] == [p.indices for p in splits]
    with pytest.warns(UserWarning, match="empty"):
        data.random_split(range(3), [0.9, 0.1, 0.0])


# Batches


def test_collate_makes_every_type_a_batch():
    pairs = default_collate([Pair(1, np.float32(2)), Pair(3, np.float32(4))])
    assert (type(pairs), pairs.left.dtype, pairs.right.dtype) == (Pair, wg.int64, wg.float32)
    batch = default_collate([(True, 2, 0.5, "a", b"b", [1, 2.5]), (False, 3, 1.5, "c", b"d", [2, 3.5])])
    assert type(batch) is list
    assert [t.dtype for t in batch[:3]] == [wg.bool, wg.int64, wg.float64]
    assert [t.tolist() for t in batch[:3]] == [[True, False], [2, 3], [0.5, 1.5]]
    assert [batch[3], batch[4]] == [("a", "c"), (b"b", b"d")]
    assert [t.tolist() for t in batch[5]] == [[1, 2], [2.5, 3.5]]
    halves = default_collate([wg.tensor([1.5], dtype=wg.bfloat16), wg.tensor([-2.0], dtype=wg.bfloat16)])
    assert (halves.dtype, halves.tolist()) == (wg.bfloat16, [[1.5], [-2.0]])
    mixed = default_collate([wg.tensor([1]), wg.tensor([0.5])])
    assert (mixed.dtype, mixed.tolist()) == (wg.float32, [[1.0], [0.5]])
    assert default_collate([np.zeros((0, 2), np.uint8)] * 3).shape == (3, 0, 2)
    assert default_collate([1, 2.5]).dtype is wg.float32
    parameter = wg.ones(2, requires_grad=True)
    assert default_collate([parameter, parameter]).requires_grad


def test_collate_keeps_containers_and_takes_custom_types():
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
    converted = default_convert({"a": np.arange(3), "b": (1, "x", Pair(np.float32(2), None)), "c": [np.array(1.5)]})
    assert converted["a"].tolist() == [0, 1, 2]
    assert converted["b"][:2] == [1, "x"]
    assert (type(converted["b"][2]), converted["b"][2].left.dtype) == (Pair, wg.float32)
    assert (converted["c"][0].dtype, converted["c"][0].shape) == (wg.float64, ())


def test_the_loader_refuses_contradictory_options():
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
    subset = data.Subset(data.TensorDataset(wg.arange(10)), [9, 3, 5])
    assert [x.tolist() for (x,) in DataLoader(subset, 2)] == [[9, 3], [5]]
    (row,) = next(iter(DataLoader(subset, 3, pin_memory=True)))  # without a GPU pin_memory changes nothing
    assert row.tolist() == [9, 3, 5]
    overlong = DataLoader(Numbers(3), None)
    overlong.dataset.__class__.__len__, original_len = (lambda self: 2), Numbers.__len__
    try:
        assert len(overlong) == 2
        with pytest.warns(UserWarning, match="length is 2"):
            list(overlong)
    finally:
        Numbers.__len__ = original_len
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Images(3, {1: "stop"})))


# Checkpoints


@pytest.mark.parametrize("has_generator", [True, False])
@pytest.mark.parametrize("order", ["random", "weighted"])
def test_a_restored_position_continues_the_epoch(has_generator, order):
    def loader():
        generator = seeded(4) if has_generator else None
        if order == "random":
            return DataLoader(range(20), 3, shuffle=True, generator=generator)
        return DataLoader(range(20), 3, sampler=data.WeightedRandomSampler([1.0] * 20, 30, generator=generator))

    wg.manual_seed(7)
    complete = loader()
    expected, positions = [], {}
    for epoch in range(2):
        positions[epoch, 0] = complete.state_dict(), wg.get_rng_state()
        for i, batch in enumerate(complete):
            wg.rand(1, device="cpu")  # training draws random numbers, too
            expected.append(batch.tolist())
            positions[epoch, i + 1] = complete.state_dict(), wg.get_rng_state()
    final_seed = wg.initial_seed(), wg.default_generator.offset
    count = len(complete)
    for (epoch, i), (state, rng_state) in positions.items():
        if (epoch, i) not in ((0, 0), (0, 2), (0, count), (1, 0), (1, 4)):
            continue
        state = pickle.loads(pickle.dumps(state))
        wg.manual_seed(99)
        resumed = loader()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        wg.set_rng_state(rng_state)
        actual = []
        for _ in range(epoch, 2):
            for batch in resumed:
                wg.rand(1, device="cpu")
                actual.append(batch.tolist())
        assert actual == expected[epoch * count + i :], (epoch, i)
        assert (wg.initial_seed(), wg.default_generator.offset) == final_seed


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
    iterator_in_progress = iter(loader)
    first = int(next(iterator_in_progress))
    state = loader.state_dict()
    del iterator_in_progress
    resumed = DataLoader(range(8), 1, sampler=data.DistributedSampler(range(8), 2, 0), num_workers=1)
    resumed.load_state_dict(state)
    assert [first] + [int(b) for b in resumed] == batches
    with pytest.raises(ValueError, match="state_dict"):
        loader.load_state_dict({})
    with pytest.raises(ValueError, match="generators"):
        loader.load_state_dict({"yielded": 0, "generators": [[1, 2]], "default": [0, 0]})
