"""Check distances and similarities of pairs of points."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from exact_comparison import assert_equal

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad import nn
from weftgrad.runtime.dispatch import plan_for
from weftgrad.runtime.records import registry

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("p", [0, 1, 2, 2.5, math.inf])
def test_distances(p: float) -> None:
    a, b = RNG.standard_normal((2, 1, 5, 3)), RNG.standard_normal((4, 6, 3))
    a[0, 0, 0] = b[0, 0]
    actual = wg.cdist(wg.tensor(a), wg.tensor(b), p)
    expected = np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], p, axis=-1)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-13, atol=1e-15)
    condensed = wg.pdist(wg.tensor(b[0]), p)
    rows = np.stack(list(itertools.combinations(range(6), 2)))
    np.testing.assert_allclose(
        condensed.numpy(), np.linalg.norm(b[0][rows[:, 0]] - b[0][rows[:, 1]], p, axis=-1), 1e-13
    )


@pytest.mark.parametrize("p", [1.5, math.inf])
def test_distances_have_derivatives_of_any_order(p: float) -> None:
    x, y = (wg.tensor(RNG.standard_normal(s), requires_grad=True) for s in ((3, 2), (2, 2)))
    wg.autograd.gradgradcheck(lambda a, b: wg.cdist(a, b, p), (x, y))


@pytest.mark.parametrize("p", [0, 1, 2, math.inf])
def test_a_distance_of_zero_has_the_gradient_zero(p: float) -> None:
    x = wg.ones(2, 3, requires_grad=True)
    (grad,) = wg.autograd.grad(wg.cdist(x, wg.ones(1, 3), p).sum(), x) if p else (wg.zeros(2, 3),)
    assert_equal(grad, np.zeros((2, 3), "float32"))


def test_distances_never_hold_all_differences() -> None:
    x, y = wg.empty(1, 300, 64), wg.empty(1, 200, 64)
    plan = plan_for(registry["pair_norms"], (x, y, 2.0), ("2",))
    assert sum(plan.scratch) <= 2 * 4 * 64 * (200 + 32)  # each of two row blocks has its own panels of y


def test_invalid_distances_raise() -> None:
    x = wg.ones(2, 3)
    for call in (
        lambda: wg.cdist(x, wg.ones(2, 4)), lambda: wg.cdist(x[0], x), lambda: wg.cdist(x, x, -1),
        lambda: wg.cdist(x.long(), x.long()), lambda: wg.pdist(x[0]), lambda: F.cosine_similarity(x.long(), x.long()),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(ValueError, match="compute_mode"):
        wg.cdist(x, x, compute_mode="fast")


def test_gradients_of_largest_differences_of_halves():
    """The distance is rounded to float16, but its gradient must still go to the element that it came from."""
    x = np.array([[1.0, 2.0009765625], [0.5, 0.25]], np.float16)
    y = np.array([[-1.0, -0.00030517578125]], np.float16)  # 2.00128... is not representable in float16
    leaf = wg.tensor(x, requires_grad=True)
    wg.cdist(leaf, wg.tensor(y), math.inf).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), [[0, 1], [1, 0]])


def test_similarities_of_pairs() -> None:
    a, b = RNG.standard_normal((4, 3)), RNG.standard_normal((3,))
    x, y = wg.tensor(a), wg.tensor(b)
    cosine = a @ b / np.linalg.norm(a, axis=1) / np.linalg.norm(b)
    np.testing.assert_allclose(F.cosine_similarity(x, y).numpy(), cosine, 1e-12)
    np.testing.assert_allclose(nn.CosineSimilarity(1)(x, y[None]).numpy(), cosine, 1e-12)
    for p in (1.0, 2.0):
        expected = np.linalg.norm(a - b + 1e-6, p, axis=1)
        np.testing.assert_allclose(F.pairwise_distance(x, y, p).numpy(), expected, 1e-12)
