"""Models, batches and references of one process for checks of training, and the table of checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import weftgrad as wg
from weftgrad import distributed as dist
from weftgrad import nn
from weftgrad.distributed.fsdp import fully_shard
from weftgrad.nn import functional as F

__all__ = [
    "CHECKS",
    "CLASSES",
    "FEATURES",
    "Partial",
    "Reentrant",
    "assert_close",
    "check",
    "make_batch",
    "make_model",
    "own_part",
    "reference",
    "shard_model",
    "train",
    "values_of",
    "whole_values",
]

BATCH, FEATURES, CLASSES = 16, 6, 3
CHECKS: dict[str, Callable[[Path], None]] = {}


def check(function: Callable[[Path], None]) -> Callable[[Path], None]:
    CHECKS[function.__name__] = function
    return function


def make_model(seed: int = 0) -> nn.Module:
    wg.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 16, bias=False), nn.Tanh(), nn.Linear(16, CLASSES)
    )


def make_batch(steps: int = 3) -> list[tuple[wg.Tensor, wg.Tensor]]:
    rng = np.random.default_rng(7)
    return [
        (
            wg.from_numpy(rng.standard_normal((BATCH, FEATURES)).astype(np.float32)),
            wg.from_numpy(rng.standard_normal((BATCH, CLASSES)).astype(np.float32)),
        )
        for _ in range(steps)
    ]


def own_part(tensor: wg.Tensor) -> wg.Tensor:
    return tensor[dist.get_rank() :: dist.get_world_size()]


def values_of(model: nn.Module) -> list[np.ndarray]:
    return [p.detach().numpy().copy() for p in model.parameters()]


def train(model, optimizer, steps=3, select=own_part, loss=F.mse_loss):
    for inputs, targets in make_batch(steps):
        optimizer.zero_grad()
        loss(model(select(inputs)), select(targets)).backward()
        optimizer.step()
    return model


def reference(steps: int = 3, optimizer=wg.optim.SGD, lr: float = 0.2, model: nn.Module | None = None):
    model = make_model() if model is None else model
    return values_of(train(model, optimizer(model.parameters(), lr=lr), steps, select=lambda batch: batch))


def assert_close(actual, expected, rtol=2e-5, atol=2e-6):
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=atol)


class Passes(wg.autograd.Function):
    """Returns its first operand; the second one's gradient is None."""

    @staticmethod
    def forward(ctx, x, unused):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Partial(nn.Module):
    """The graph reaches `weight`, but gives it no gradient."""

    def __init__(self):
        super().__init__()
        wg.manual_seed(4)
        self.layer, self.weight = nn.Linear(FEATURES, CLASSES), nn.Parameter(wg.ones(1000))

    def forward(self, x):
        return Passes.apply(self.layer(x), self.weight)


class Reentrant(nn.Module):
    """Three layers, of which a reentrant checkpoint calls the middle one."""

    def __init__(self):
        super().__init__()
        wg.manual_seed(5)
        self.a, self.b, self.c = nn.Linear(FEATURES, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.spare = nn.Linear(2, 2)

    def forward(self, x):
        return self.c(wg.utils.checkpoint.checkpoint(self.b, self.a(x), use_reentrant=True))


def shard_model(reshard=None):
    model = make_model()
    for layer in model[:4]:
        if list(layer.parameters()):
            fully_shard(layer, reshard_after_forward=reshard)
    return fully_shard(model, reshard_after_forward=reshard)


def whole_values(model):
    return [p.full_tensor().numpy() for p in model.parameters()]
