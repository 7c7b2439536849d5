"""Rows of many small kernels in sequence: a chain of additions, a training step, its replay as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from . import references
from .cases import Case, Pairs, Work
from .sites import Site

if TYPE_CHECKING:
    from .library_types import Tensor

__all__ = ["chain", "training_cases"]

_LEARNING_RATE = 1e-3


def chain(x: Tensor) -> Tensor:
    """Run 200 dependent additions."""
    y = x
    for _ in range(200):
        y = y + x
    return y


def training_cases(side: Callable[[int], int]) -> Iterator[Case]:
    """Yield rows measured by wall time, host and device together.

    Args:
        side: Scales a size for quick runs: returns it, or a smaller one.
    """
    yield Case("latency", "200 adds of 1K", _chain_work, clock="wall")
    sizes = [side(784), side(1024), side(1024), side(10)]
    batch = side(256)
    # Three products for each layer: forward, gradients of weight and input. The input of the first needs none.
    flops = sum(6 * batch * n * m for n, m in pairwise(sizes)) - 2 * batch * sizes[0] * sizes[1]
    for name, replayed in (("training step", False), ("training step, replayed", True)):
        yield Case("training", f"{name}: MLP 784-1024-1024-10 of 256", partial(_training_step, sizes, batch, replayed),
                   flops=flops, tolerance=1e-4, clock="wall")  # fmt: skip


def _chain_work(site: Site) -> Work | None:
    small, run = site.normal(1024), site.ready(lambda _, x: chain(x))
    return Work(lambda: run(small), lambda: [(site.host(run(small)), site.host(small) * 201)])


def _training_step(sizes: list[int], batch: int, replayed: bool, site: Site) -> Work | None:
    if not site.modules or (replayed and not site.graphs):
        return None
    rng = np.random.default_rng(0)
    shapes = [shape for n, m in pairwise(sizes) for shape in ((m, n), (m,))]
    initial_arrays = [rng.standard_normal(s, dtype=np.float32) * np.float32(s[-1] ** -0.5) for s in shapes]
    x, target = site.normal(batch, sizes[0]), site.integers(sizes[-1], batch)
    parameters = [site.tensor(array, grad=True) for array in initial_arrays]
    initial_tensors = [site.tensor(array) for array in initial_arrays]
    library = site.library
    functional = library.nn.functional
    optimizer = library.optim.SGD(parameters, lr=_LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        y = x
        for i in range(0, len(parameters), 2):
            y = functional.linear(y, parameters[i], parameters[i + 1])
            y = functional.relu(y) if i + 2 < len(parameters) else y
        loss = functional.cross_entropy(y, target)
        loss.backward()
        optimizer.step()

    call = site.replayed(step) if replayed else step

    def pairs() -> Pairs:
        """Compare gradients and parameters after one step from the initial parameters."""
        with library.no_grad():
            for p, value in zip(parameters, initial_tensors, strict=True):
                p.copy_(value)
        call()
        expected = references.mlp_grads(site.host(x), site.host(target), [a.astype(np.float64) for a in initial_arrays])
        gradients = [(site.host(p.grad), g) for p, g in zip(parameters, expected, strict=True)]
        updated = [
            (site.host(p), array - _LEARNING_RATE * g)
            for p, array, g in zip(parameters, initial_arrays, expected, strict=True)
        ]
        return [*gradients, *updated]

    return Work(call, pairs)
