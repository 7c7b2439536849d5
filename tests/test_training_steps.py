"""Training steps of the benchmark's models, small: losses as NumPy's in float64, memory of the pool's."""

from __future__ import annotations

from functools import partial

import pytest

import weftgrad as wg
from weftgrad.bench import train
from weftgrad.bench.cases import error_of
from weftgrad.bench.sites import OurSite

MODELS = {
    "convolutional": partial(train.convolutional, 6, channels=(4, 8)),
    "transformer": partial(train.transformer, layers=2, width=32, heads=4, rows=16, batch=4, words=24),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_steps(make):
    """Four steps change the loss as they do in float64; after three, memory comes from the pool alone."""
    site = OurSite("cpu")
    pairs = make(site).pairs()
    assert abs(pairs[1][1]).min() > 1e-3  # the loss moves
    assert error_of(pairs) < 1e-4
    work = make(site)
    wg.empty_cache("cpu")
    for _ in range(3):  # in the first one there is no state of the optimizer beside the activations
        work.call()
    taken = wg.memory_stats("cpu")["driver_allocations"]
    for _ in range(5):
        work.call()
    assert wg.memory_stats("cpu")["driver_allocations"] == taken
