"""Check the order of samples: samplers, their generators, and shares of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from dataloader_running import seeded

import weftgrad as wg
from weftgrad.runtime import errors
from weftgrad.utils import data


def test_orders_are_permutations_and_repeat():
    ten = range(10)
    for make_sampler in (
        lambda g: data.RandomSampler(ten, generator=g),
        lambda g: data.SubsetRandomSampler(list(ten), generator=g),
        lambda g: data.WeightedRandomSampler([1.0] * 10, 10, replacement=False, generator=g),
    ):
        orders = [list(make_sampler(seeded(n))) for n in (1, 1, 2)]
        assert orders[0] == orders[1] != orders[2]
        assert sorted(orders[0]) == sorted(orders[2]) == list(ten) != orders[0]
    sampler = data.RandomSampler(ten, generator=seeded())
    assert list(sampler) != list(sampler)
    draws = list(data.RandomSampler(ten, num_samples=25, generator=seeded()))
    assert [sorted(draws[:10]), sorted(draws[10:20]), len(set(draws[20:]))] == [list(ten), list(ten), 5]
    assert list(data.BatchSampler(data.SequentialSampler(ten), 4, False)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(data.BatchSampler(iter(ten), 4, True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [len(data.BatchSampler(ten, 4, drop)) for drop in (False, True)] == [3, 2]


def test_draws_with_replacement_have_their_probabilities():
    counts = np.bincount(list(data.RandomSampler(range(4), True, 8000, seeded())), minlength=4)
    assert abs(counts - 2000).max() < 200  # five standard deviations
    weights = np.array([1, 0, 3, 4])
    counts = np.bincount(list(data.WeightedRandomSampler(weights, 8000, generator=seeded())), minlength=4)
    assert counts[1] == 0
    assert abs(counts - weights * 1000).max() < 230


def test_an_order_without_a_generator_is_one_draw_of_the_default_one():
    wg.manual_seed(5)
    first = []
    for i in data.RandomSampler(range(6)):
        wg.manual_seed(i)  # numbers drawn during the iteration do not change the order
        first.append(i)
    wg.manual_seed(5)
    assert list(data.RandomSampler(range(6))) == first
    assert wg.runtime.tensor is not None
    assert len(wg.get_rng_state()) == 16


@pytest.mark.parametrize(("count", "ranks", "drop"), [(10, 3, False), (10, 3, True), (2, 5, False), (9, 3, True)])
def test_ranks_share_out_the_samples(count, ranks, drop):
    samplers = [data.DistributedSampler(range(count), ranks, r, seed=3, drop_last=drop) for r in range(ranks)]
    orders = [list(p) for p in samplers]
    samples_per_rank = count // ranks if drop else -(-count // ranks)
    assert [len(e) for e in orders] == [len(p) for p in samplers] == [samples_per_rank] * ranks
    merged = [i for row in zip(*orders, strict=True) for i in row]
    assert sorted(set(merged[:count])) == sorted(merged[: min(count, samples_per_rank * ranks)])
    assert drop or merged[count:] == (merged[:count] * ranks)[: samples_per_rank * ranks - count]
    samplers[0].set_epoch(1)
    assert count < 9 or list(samplers[0]) != orders[0]
    unshuffled = data.DistributedSampler(range(count), ranks, 1, shuffle=False, drop_last=drop)
    assert next(iter(unshuffled)) == 1


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
        (lambda: data.DistributedSampler(range(3)), ValueError, "num_replicas"),
    ]
    for call, builtin, word in cases:
        with pytest.raises(errors.WeftgradError, match=word) as caught:
            call()
        assert isinstance(caught.value, builtin)
