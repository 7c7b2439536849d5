"""Check training steps of small benchmark models: losses equal NumPy's in float64; memory is allocated once."""

from __future__ import annotations

import gc
from functools import partial

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.bench import train
from weftgrad.bench.cases import Case, error_of
from weftgrad.bench.running import measure_case
from weftgrad.bench.sites import OurSite

MODELS = {
    "convolutional": partial(train.convolutional, 6, channels=(4, 8)),
    "transformer": partial(train.transformer, layers=2, width=32, heads=4, rows=16, batch=4, words=24),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_steps(make):
    """Four steps give the float64 losses; after the first step, all memory comes from the pool."""
    site = OurSite("cpu")
    pairs = make(site).pairs()
    assert abs(pairs[1][1]).min() > 1e-3  # the loss changes
    assert error_of(pairs) < 1e-4
    gc.collect()
    wg.empty_cache("cpu")
    work = make(site)
    work.call()
    allocations = wg.memory_stats("cpu")["driver_allocations"]
    for _ in range(5):
        work.call()
    assert wg.memory_stats("cpu")["driver_allocations"] == allocations


def test_results_are_checked_before_other_measurements():
    """Other measurements of a row would change the parameters, so results are checked first."""
    make = partial(train._optimizer, "SGD", {"momentum": 0.9})
    row = measure_case(Case("optimizer", "SGD", make, tolerance=1e-3, clock="wall"), [OurSite("cpu")], 1, ())
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


@pytest.mark.parametrize("zero_grad_position", ["before", "zeroed", "between", "after"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("make", "batch"),
    [(partial(_perceptron, 200), 4), (partial(_perceptron, 200), 600), (_Recurrent, 40)],
    ids=["small", "large", "recurrent"],
)
def test_loops_allocate_all_memory_in_the_first_step(make, batch, optimizer, zero_grad_position):
    """Loops with any optimizer and batch size allocate all memory in the first step.

    It makes no difference where gradients are freed or zeroed. The loop replaces `x`, `target` and `loss` without
    freeing them first.
    """
    gc.collect()
    wg.empty_cache("cpu")
    wg.reset_peak_memory_stats("cpu")
    rng = np.random.default_rng(0)
    model = make()
    update = OPTIMIZERS[optimizer](model.parameters())
    allocations = []
    for _ in range(6):
        x = wg.tensor(rng.standard_normal((batch, 16), dtype=np.float32))
        target = wg.tensor(rng.integers(0, 10, batch))
        if zero_grad_position in ("before", "zeroed"):
            update.zero_grad(set_to_none=zero_grad_position == "before")
        loss = wg.nn.functional.cross_entropy(model(x), target)
        if zero_grad_position == "between":
            update.zero_grad()
        loss.backward()
        update.step()
        if zero_grad_position == "after":
            update.zero_grad()
        allocations.append(wg.memory_stats("cpu")["driver_allocations"])
    assert allocations[0] == allocations[-1], allocations
    assert np.isfinite(float(loss))
