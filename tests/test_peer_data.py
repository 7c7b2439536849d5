"""Compare data loading with PyTorch, if installed: signatures, batches, and types of errors."""

from __future__ import annotations

import inspect
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import weftgrad as wg
import weftgrad.multiprocessing as mp
from weftgrad.utils import data

torch = pytest.importorskip("torch")
peer = pytest.importorskip("torch.utils.data")

Pair = namedtuple("Pair", "left right")
CLASSES = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "DistributedSampler", "RandomSampler",
    "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
]  # fmt: skip


def parameters(function):
    signature = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default if not callable(p.default) else "…") for p in signature]


@pytest.mark.parametrize("name", CLASSES)
def test_constructors_take_the_same_arguments(name):
    assert parameters(getattr(data, name).__init__) == parameters(getattr(peer, name).__init__)


def test_functions_take_the_same_arguments():
    assert parameters(data.default_collate) == parameters(peer.default_collate)
    assert parameters(data.default_convert) == parameters(peer.default_convert)
    assert [p[0] for p in parameters(data.random_split)] == [p[0] for p in parameters(peer.random_split)]
    for name in ("spawn", "start_processes"):
        assert parameters(getattr(mp, name)) == parameters(getattr(torch.multiprocessing, name))
    missing = {"DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"}  # data pipes, which PyTorch has deprecated
    names = {n for n in peer.__all__ if n[0].isupper()} - missing
    assert names <= set(dir(data))
    assert set(torch.multiprocessing.__all__) <= set(dir(mp))


def assert_same(ours, theirs, path=""):
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, wg.Tensor), path
        assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2], path
        assert ours.tolist() == theirs.tolist(), path
        return
    assert type(ours) is type(theirs), path
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), path
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{path}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), path
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, b, f"{path}[{i}]")
    else:
        assert ours == theirs, path


SAMPLES = {
    "int": [1, 2], "bool": [True, False], "float": [0.5, 1], "mixed": [1, 0.5],
    "str": ["a", "b"], "bytes": [b"a", b"b"],
    "float32": [np.float32(1), np.float32(2)], "float64": [np.float64(1), np.float64(2)],
    "uint8": [np.zeros((2, 1), np.uint8), np.ones((2, 1), np.uint8)], "empty": [np.zeros((0, 2))] * 2,
    "tuple": [(1, "a", [1.5]), (2, "b", [2.5])], "list": [[1, (2, 3)], [4, (5, 6)]],
    "dict": [{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": {"c": "y"}}],
    "ordered": [OrderedDict(b=1, a=2)] * 2, "named": [Pair(1, np.arange(2)), Pair(2, np.arange(2))],
    "half": [np.float16(1)] * 2, "dtypes": [np.arange(2, dtype=np.int32), np.arange(2, dtype=np.int64)],
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_batches_are_the_same(name):
    assert_same(data.default_collate(SAMPLES[name]), peer.default_collate(SAMPLES[name]), name)
    assert_same(data.default_convert(SAMPLES[name]), peer.default_convert(SAMPLES[name]), name)
    assert_same(data.default_convert(SAMPLES[name][0]), peer.default_convert(SAMPLES[name][0]), name)


INVALID_CALLS = [
    lambda d: d.default_collate([np.zeros(2), np.zeros(3)]),
    lambda d: d.default_collate([[1], [1, 2]]),
    lambda d: d.default_collate([object()]),
    lambda d: d.default_collate([np.array(["a"])]),
    lambda d: d.DataLoader([1], num_workers=-1),
    lambda d: d.DataLoader([1], timeout=-1),
    lambda d: d.DataLoader([1], prefetch_factor=2),
    lambda d: d.DataLoader([1], persistent_workers=True),
    lambda d: d.DataLoader([1], shuffle=True, sampler=[0]),
    lambda d: d.DataLoader([1], batch_sampler=[[0]], drop_last=True),
    lambda d: d.DataLoader([1], None, drop_last=True),
    lambda d: d.DataLoader([1], multiprocessing_context="spawn"),
    lambda d: d.DataLoader([1], num_workers=1, multiprocessing_context="threads"),
    lambda d: d.DataLoader([1], num_workers=1, multiprocessing_context=1),
    lambda d: setattr(d.DataLoader([1]), "batch_size", 2),
    lambda d: d.DataLoader(d.IterableDataset(), shuffle=True),
    lambda d: d.DataLoader([1], 0),
    lambda d: d.RandomSampler([1], replacement=0),
    lambda d: d.RandomSampler([]),
    lambda d: d.RandomSampler([1], num_samples=0),
    lambda d: d.WeightedRandomSampler([1.0], 0),
    lambda d: d.WeightedRandomSampler([[1.0]], 1),
    lambda d: d.BatchSampler([1], 0, False),
    lambda d: d.BatchSampler([1], 1, 0),
    lambda d: d.DistributedSampler([1], 2, 2),
    lambda d: d.random_split([1, 2], [3]),
    lambda d: d.StackDataset(),
    lambda d: d.StackDataset([1], [1, 2]),
    lambda d: len(d.DataLoader(d.IterableDataset())),
    lambda d: iter(d.IterableDataset()),
]


@pytest.mark.parametrize("number", range(len(INVALID_CALLS)))
def test_invalid_calls_raise_the_same_errors(number):
    with pytest.raises(Exception) as theirs:
        INVALID_CALLS[number](peer)
    with pytest.raises(Exception) as ours:
        INVALID_CALLS[number](data)
    assert isinstance(ours.value, theirs.type), (ours.value, theirs.value)


class Samples:
    """A dataset that both loaders accept."""

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return {"x": np.full(3, i), "y": (i, f"{i}")}


OPTIONS = [
    {}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}, {"sampler": [3, 1]},
    {"batch_sampler": [[1, 2], [0]]}, {"batch_size": 2, "num_workers": 1, "multiprocessing_context": "spawn"},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loaders_give_the_same_batches(options):
    ours, theirs = data.DataLoader(Samples(), **options), peer.DataLoader(Samples(), **options)
    assert len(ours) == len(theirs)
    assert_same(list(ours), list(theirs))
    for name in ("batch_size", "num_workers", "prefetch_factor", "drop_last", "timeout", "persistent_workers"):
        assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.parametrize(("count", "ranks"), [(10, 3), (2, 5), (9, 3)])
@pytest.mark.parametrize("drop", [False, True])
def test_distributed_samplers_select_the_same_samples(count, ranks, drop):
    for rank in range(ranks):
        args = (range(count), ranks, rank, False, 0, drop)
        assert list(data.DistributedSampler(*args)) == list(peer.DistributedSampler(*args))


def test_splits_have_the_same_lengths():
    for lengths in ([0.5, 0.3, 0.2], [0.34, 0.33, 0.33], [3, 8]):
        ours, theirs = data.random_split(range(11), lengths), peer.random_split(range(11), lengths)
        assert [len(p) for p in ours] == [len(p) for p in theirs]


def test_states_of_tensors_in_shared_memory():
    for t in (torch, wg):
        tensor = t.ones(3)
        assert not tensor.is_shared()
        assert tensor.share_memory_() is tensor
        assert tensor.is_shared()
        layer = t.nn.Linear(2, 2)
        assert layer.share_memory() is layer
        assert layer.weight.is_shared()
