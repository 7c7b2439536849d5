"""Training steps of the benchmark's models, small: losses as NumPy's in float64, and all memory taken in the first."""

from __future__ import annotations

import gc
from functools import partial

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.bench import train
from weftgrad.bench.cases import Case, error_of
from weftgrad.bench.running import measured
from weftgrad.bench.sites import OurSite

MODELS = {
    "convolutional": partial(train.convolutional, 6, channels=(4, 8)),
    "transformer": partial(train.transformer, layers=2, width=32, heads=4, rows=16, batch=4, words=24),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_steps(make):
    """Four steps change the loss as they do in float64; after one, memory comes from the pool alone."""
    site = OurSite("cpu")
    pairs = make(site).pairs()
    assert abs(pairs[1][1]).min() > 1e-3  # the loss moves
    assert error_of(pairs) < 1e-4
    gc.collect()
    wg.empty_cache("cpu")
    work = make(site)
    work.call()
    taken = wg.memory_stats("cpu")["driver_allocations"]
    for _ in range(5):
        work.call()
    assert wg.memory_stats("cpu")["driver_allocations"] == taken


def test_steps_are_checked_before_any_other():
    """What a row does beside checking would move the parameters."""
    make = partial(train._optimizer, "SGD", {"momentum": 0.9})
    row = measured(Case("optimizer", "SGD", make, tolerance=1e-3, clock="wall"), [OurSite("cpu")], 1, ())
    assert row is not None
    assert "problem" not in row


def _perceptron(width):
    nn = wg.nn
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


class _Recurrent(wg.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = wg.nn.LSTM(2, 24, batch_first=True), wg.nn.Linear(24, 10)

    def forward(self, x):
        return self.head(self.layer(x.reshape(-1, 8, 2))[0][:, -1])


OPTIMIZERS = {
    "SGD": lambda p: wg.optim.SGD(p, 0.1),
    "momentum": lambda p: wg.optim.SGD(p, 0.1, momentum=0.9),
    "AdamW": lambda p: wg.optim.AdamW(p, 1e-3),
}


@pytest.mark.parametrize("style", ["before", "kept", "between", "after"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("make", "batch"),
    [(partial(_perceptron, 200), 4), (partial(_perceptron, 200), 600), (_Recurrent, 40)],
    ids=["small", "large", "recurrent"],
)
def test_loops_take_their_memory_in_the_first_step(make, batch, optimizer, style):
    """Of any optimizer and batch size; wherever gradients are dropped, or not; batch and loss replaced, not freed."""
    gc.collect()
    wg.empty_cache("cpu")
    wg.reset_peak_memory_stats("cpu")
    rng = np.random.default_rng(0)
    model = make()
    update = OPTIMIZERS[optimizer](model.parameters())
    taken = []
    for _ in range(6):
        x = wg.tensor(rng.standard_normal((batch, 16), dtype=np.float32))
        target = wg.tensor(rng.integers(0, 10, batch))
        if style in ("before", "kept"):
            update.zero_grad(set_to_none=style == "before")
        loss = wg.nn.functional.cross_entropy(model(x), target)
        if style == "between":
            update.zero_grad()
        loss.backward()
        update.step()
        if style == "after":
            update.zero_grad()
        taken.append(wg.memory_stats("cpu")["driver_allocations"])
    assert taken[0] == taken[-1], taken
    assert np.isfinite(float(loss))
