"""Gradients of parts of a tensor are summed where they belong, without a tensor of zeros for each."""

from __future__ import annotations

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime.autograd import engine, view_rules


def _leaf():
    return wg.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), requires_grad=True)


def test_parts_overlap_and_meet_other_gradients():
    """Parts before, after and beside a gradient of the whole, of a leaf and of what was computed."""
    for scale in (1.0, 2.0):
        leaf = _leaf()
        x = leaf if scale == 1 else leaf * scale
        whole = x * x
        loss = x[0].sum() * 3 + (x[1:, ::2] * x[1:, 1:3]).sum() + whole.sum() + x.narrow(1, 3, 1).sum()
        (loss + x.diagonal().sum() + x[2, 1]).backward()
        v = np.arange(12, dtype=np.float64).reshape(3, 4) * scale
        right = 2 * v
        right[0] += 3
        right[1:, ::2] += v[1:, 1:3]
        right[1:, 1:3] += v[1:, ::2]
        right[:, 3] += 1
        right[[0, 1, 2], [0, 1, 2]] += 1
        right[2, 1] += 1
        np.testing.assert_allclose(leaf.grad.numpy(), scale * right, rtol=1e-6)


def test_each_pass_has_memory_of_its_own():
    """A gradient that somebody holds is not written by a later pass; seeds are not written at all."""
    leaf, seed = _leaf(), wg.ones(2, 4)
    x = leaf * 1.0
    part = x[1:]
    part.backward(seed, retain_graph=True)
    first = leaf.grad
    kept = first.numpy().copy()
    leaf.grad = None
    (part * 2).sum().backward(retain_graph=True)
    wg.autograd.backward([part, x], [seed, wg.ones(3, 4)])
    assert (first.numpy() == kept).all()
    assert (seed.numpy() == 1).all()
    np.testing.assert_array_equal(leaf.grad.numpy(), np.array([[1.0] * 4, [4.0] * 4, [4.0] * 4]))
    with pytest.raises(RuntimeError, match="freed"):
        part.backward(seed)


def test_zeros_are_written_once(monkeypatch):
    """Three parts, and a fourth that overlaps: one tensor of zeros."""
    leaf = _leaf()
    x = leaf * 1.0
    total = sum((x[i] * float(i + 1)).sum() for i in range(3)) + x[1:].sum()
    made = []
    for module in (engine, view_rules):
        monkeypatch.setattr(module, "zeros", lambda layout, make=module.zeros, **o: made.append(1) or make(layout, **o))
    total.backward()
    assert len(made) == 1
    np.testing.assert_array_equal(leaf.grad.numpy(), np.repeat([[1.0], [3.0], [4.0]], 4, 1))
