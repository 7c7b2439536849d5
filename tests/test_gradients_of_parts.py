"""Check that gradients of slices are accumulated in place, without one tensor of zeros per slice."""

from __future__ import annotations

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime.autograd import engine, view_rules


def _leaf():
    return wg.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), requires_grad=True)


def test_parts_overlap_and_meet_other_gradients():
    """Mix gradients of slices with a gradient of the whole tensor, for a leaf and for a computed tensor."""
    for scale in (1.0, 2.0):
        leaf = _leaf()
        x = leaf if scale == 1 else leaf * scale
        square = x * x
        loss = x[0].sum() * 3 + (x[1:, ::2] * x[1:, 1:3]).sum() + square.sum() + x.narrow(1, 3, 1).sum()
        (loss + x.diagonal().sum() + x[2, 1]).backward()
        v = np.arange(12, dtype=np.float64).reshape(3, 4) * scale
        expected = 2 * v
        expected[0] += 3
        expected[1:, ::2] += v[1:, 1:3]
        expected[1:, 1:3] += v[1:, ::2]
        expected[:, 3] += 1
        expected[[0, 1, 2], [0, 1, 2]] += 1
        expected[2, 1] += 1
        np.testing.assert_allclose(leaf.grad.numpy(), scale * expected, rtol=1e-6)


def test_each_pass_has_memory_of_its_own():
    """A later pass does not write to a gradient that is still referenced, and no pass writes to its seeds."""
    leaf, seed = _leaf(), wg.ones(2, 4)
    x = leaf * 1.0
    rows = x[1:]
    rows.backward(seed, retain_graph=True)
    first_grad = leaf.grad
    saved = first_grad.numpy().copy()
    leaf.grad = None
    (rows * 2).sum().backward(retain_graph=True)
    wg.autograd.backward([rows, x], [seed, wg.ones(3, 4)])
    assert (first_grad.numpy() == saved).all()
    assert (seed.numpy() == 1).all()
    np.testing.assert_array_equal(leaf.grad.numpy(), np.array([[1.0] * 4, [4.0] * 4, [4.0] * 4]))
    with pytest.raises(RuntimeError, match="freed"):
        rows.backward(seed)


def test_zeros_are_written_once(monkeypatch):
    """Three slices and an overlapping fourth share one tensor of zeros.

    `test_backward_engine` checks that C takes as many launches.
    """
    monkeypatch.setattr(engine, "_advance", None)
    leaf = _leaf()
    x = leaf * 1.0
    total = sum((x[i] * float(i + 1)).sum() for i in range(3)) + x[1:].sum()
    calls = []
    for module in (engine, view_rules):
        monkeypatch.setattr(
            module, "zeros", lambda layout, make=module.zeros, **o: calls.append(1) or make(layout, **o)
        )
    total.backward()
    assert len(calls) == 1
    np.testing.assert_array_equal(leaf.grad.numpy(), np.repeat([[1.0], [3.0], [4.0]], 4, 1))
