"""Check the caching allocator on training loops: rehearsed steps, changing sizes and fragmentation."""

import random
from itertools import pairwise

import pytest
from pool_checks import MiB, Owner, check, make_pool

from weftgrad.runtime.rehearsal import rehearse


def layers(widths, batch):
    return [(4 * a * b, 4 * b, 4 * batch * a, 4 * batch * b) for a, b in pairwise(widths)]


def train(pool, model, iterations, rehearsed=False):
    """Simulate training steps, and return the driver allocations of each step and the blocks that stay alive.

    Weights and optimiser state live throughout, activations until backward, gradients until the next step.
    """
    allocate, free = pool.allocate, pool.free
    weights = [(allocate(w), allocate(b)) for w, b, _, _ in model]
    state, gradients, growth, owner = None, [], [], Owner()
    rehearsal = rehearse(pool, owner) if rehearsed else None
    allocate = pool.allocate  # the recording version, while a rehearsal runs
    for _ in range(iterations):
        allocations_before = pool.stats().driver_allocations
        saved = []
        for _, _, x, y in model:
            product = allocate(y)
            saved.append((allocate(x), allocate(y)))
            free(product)
        for gradient in gradients:
            free(gradient)
        gradients = []
        upstream = allocate(model[-1][3])
        for (w, b, x, y), activations in zip(reversed(model), reversed(saved), strict=True):
            grad_product = allocate(y)
            gradients += [allocate(w), allocate(b)]
            downstream = allocate(x)
            for block in (grad_product, upstream, *activations):
                free(block)
            upstream = downstream
        free(upstream)
        if state is None:
            if rehearsal is not None:
                rehearsal.provide(size for w, b, _, _ in model for size in (w, b, w, b))
            state = [allocate(size) for w, b, _, _ in model for size in (w, b, w, b)]
        for w, b, _, _ in model:
            for size in (w, b):
                scratch = allocate(size), allocate(size)
                free(scratch[0])
                free(scratch[1])
        if rehearsal is not None:
            rehearsal.end_step(owner, [*sum(weights, ()), *state], gradients, keeps_gradients=False)
            rehearsal, allocate = None, pool.allocate
        growth.append(pool.stats().driver_allocations - allocations_before)
    return growth, (weights, state, gradients)


NETWORKS = pytest.mark.parametrize(
    ("widths", "batch"),
    [
        ([784, 512, 256, 10], 128),
        ([784, 700, 333, 517, 129, 10], 100),
        ([64, 300, 300, 300, 300, 10], 64),
        ([256] * 12, 512),
        ([1024] * 10, 256),
        ([4096] * 6, 1024),
        ([3000, 100, 3000, 100, 3000], 2000),
        ([50000, 128, 128, 50000], 64),
    ],
    ids=str,
)


@NETWORKS
def test_a_rehearsed_loop_takes_its_memory_in_the_first_step(widths, batch):
    source, budget, pool = make_pool()
    growth, live_parts = train(pool, layers(widths, batch), 16, rehearsed=True)
    stats = pool.stats()
    print(growth, stats.reserved_peak / stats.allocated_peak)  # shown when it fails
    assert sum(growth[1:]) == 0
    assert stats.reserved_peak <= 1.3 * stats.allocated_peak
    assert "allocate" not in vars(pool)  # nothing is recorded any longer
    check(
        source,
        budget,
        pool,
        live=[b for part in live_parts for b in (sum(part, ()) if type(part[0]) is tuple else part)],
    )


def test_other_batch_sizes_after_a_rehearsal():
    """Memory grows for twice the batch and stays constant for half of it; blocks never overlap."""
    source, budget, pool = make_pool()
    widths = [784, 700, 333, 517, 129, 10]
    train(pool, layers(widths, 100), 3, rehearsed=True)
    reserved = pool.stats().reserved
    train(pool, layers(widths, 200), 3)
    assert pool.stats().reserved > reserved
    growth, _ = train(pool, layers(widths, 50), 8)
    assert sum(growth[4:]) == 0
    assert source.violations == []
    assert budget.reserved == source.held


def test_two_optimizers_rehearse_one_loop():
    """As in adversarial training: gradients of one optimizer live until its next step, and all sizes are equal."""
    _, _, pool = make_pool()
    owners = Owner(), Owner()
    rehearsal = rehearse(pool, owners[0])
    assert rehearse(pool, owners[1]) is rehearsal
    weights = [[pool.allocate((1 + i) * MiB) for i in range(4)] for _ in owners]
    gradients = [[], []]
    growth = []
    for _ in range(5):
        allocations_before = pool.stats().driver_allocations
        for index, owner in enumerate(owners):
            for block in gradients[index]:
                pool.free(block)
            gradients[index] = [pool.allocate(block.size) for block in weights[index]]
            work = [pool.allocate(block.size) for block in weights[index] * (2 - index)]
            for block in work:
                pool.free(block)
            if not growth:
                rehearsal.end_step(owner, weights[index], gradients[index], keeps_gradients=False)
        growth.append(pool.stats().driver_allocations - allocations_before)
    assert growth[1:] == [0, 0, 0, 0]
    assert pool.rehearsal is None


def test_a_rehearsal_ends_without_its_memory():
    """A rehearsal ends without effect if memory is short, its owner dies, or it records too many calls."""
    source, budget, pool = make_pool(limit=16 * MiB)
    owner = Owner()
    rehearsal = rehearse(pool, owner)
    live_block = pool.allocate(6 * MiB)
    pool.free(pool.allocate(6 * MiB))
    rehearsal.provide([10 * MiB])  # over the limit
    budget.set_limit(6 * MiB)
    rehearsal.end_step(owner, [], [], keeps_gradients=False)
    assert pool.rehearsal is None
    check(source, budget, pool, live=[live_block])
    rehearse(pool, Owner())  # dies at once
    later_block = pool.allocate(MiB) if budget.set_limit(None) is None else None
    assert pool.rehearsal is None
    long_rehearsal = rehearse(pool, owner)
    for _ in range(1 << 15):
        pool.free(pool.allocate(1000))
    pool.allocate(1000)
    assert pool.rehearsal is not long_rehearsal
    assert "allocate" not in vars(pool)
    assert later_block is not None


@NETWORKS
def test_training_stops_allocating(widths, batch):
    source, budget, pool = make_pool()
    growth, live_parts = train(pool, layers(widths, batch), 16)
    stats = pool.stats()
    print(growth, stats.reserved_peak / stats.allocated_peak)  # shown when it fails
    assert sum(growth[8:]) == 0  # by then merging is lazy, after one relapse at most
    assert stats.reserved_peak <= 1.3 * stats.allocated_peak
    check(
        source,
        budget,
        pool,
        live=[b for part in live_parts for b in (sum(part, ()) if type(part[0]) is tuple else part)],
    )


def test_ragged_sizes_fragment_little():
    """Sizes never repeat, so the bins never hit. They must not accumulate either."""
    rng = random.Random(0)
    source, budget, pool = make_pool()
    live = []
    for _ in range(8000):
        live.append(pool.allocate(int(2 ** rng.uniform(9, 24))))
        if len(live) > 40:
            pool.free(live.pop(rng.randrange(len(live))))
    stats = pool.stats()
    assert stats.reserved_peak <= 1.5 * stats.allocated_peak
    assert len(pool._bins) < 500
    check(source, budget, pool, live=live)
