"""Check functions that are composed of other ops against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime.errors import GradientError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 6))


def tensor(values: Any = X) -> Any:
    """Return a float64 tensor on `cpu`; of the random matrix X by default."""
    return wg.tensor(values, dtype=wg.float64, device="cpu")


def assert_close(actual: Any, expected: Any) -> None:
    assert actual.shape == np.shape(expected)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_covariances_and_correlations():
    counts, weights = np.array([1, 2, 0, 1, 3, 1]), RNG.random(6)
    assert_close(wg.cov(tensor()), np.cov(X))
    assert_close(tensor()[0].cov(correction=0), np.cov(X[0], ddof=0))
    covariance = wg.cov(tensor(), fweights=wg.tensor(counts), aweights=tensor(weights))
    assert_close(covariance, np.cov(X, fweights=counts, aweights=weights))
    assert_close(wg.corrcoef(tensor()), np.corrcoef(X))
    with pytest.raises(ShapeError, match="fweights"):
        wg.cov(tensor(), fweights=wg.ones(2, dtype=wg.int64))


def test_the_gradient_of_a_standard_deviation_is_0_where_all_elements_are_equal():
    """The gradient of a standard deviation s of n elements is (x - mean) / ((n - 1) s), or 0 where s is 0."""
    row = np.array([1.0, 2.0, 4.0])
    x = wg.tensor([[3.0, 3.0, 3.0], row], dtype=wg.float64, requires_grad=True)
    biased_factor = (3 / 2) ** 0.5  # the deviation without correction, times this, is the one with correction
    for function in (lambda: x.std(1), lambda: wg.std_mean(x, 1)[0], lambda: x.std(1, correction=0) * biased_factor):
        x.grad = None
        function().sum().backward()
        assert_close(x.grad[0], np.zeros(3))
        assert_close(x.grad[1], (row - row.mean()) / (2 * np.std(row, ddof=1)))
    empty_deviations = wg.ones(3).std(correction=3), wg.ones(1).std(), wg.ones(0).std()
    assert all(d.isnan() for d in empty_deviations)


@pytest.mark.parametrize("p", [0.5, 1.5, 2, 3])
def test_the_gradient_of_a_norm_is_0_at_zeros(p):
    x = wg.tensor([[0.0, 0.0], [0.0, 2.0]], dtype=wg.float64, requires_grad=True)
    norms = x.norm(p, 1)
    norms.sum().backward()
    assert_close(norms.detach(), np.array([0.0, 2.0]))
    assert_close(x.grad, np.array([[0.0, 0.0], [0.0, 1.0]]))


def test_the_gradient_of_atan2_is_0_at_the_origin():
    x, y = (wg.tensor([0.0, n], dtype=wg.float64, requires_grad=True) for n in (1.0, -2.0))
    wg.atan2(x, y).sum().backward()
    assert_close(x.grad, np.array([0.0, -0.4]))
    assert_close(y.grad, np.array([0.0, -0.2]))


def test_elementwise_functions_and_distances():
    probabilities = np.array([[0.25, 0.5, 0.999]])
    assert_close(wg.logit(tensor(probabilities)), np.log(probabilities / (1 - probabilities)))
    assert_close(tensor([0.0, 1.0]).logit(0.25), np.log([1 / 3, 3]))
    assert_close(wg.deg2rad(tensor()), np.deg2rad(X))
    assert_close(tensor().rad2deg(), np.rad2deg(X))
    assert_close(wg.sgn(tensor()), np.sign(X))
    assert_close(wg.dist(tensor(), tensor(X[:1]), 1), np.abs(X - X[:1]).sum())


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_powers_of_matrices(n):
    assert_close(wg.matrix_power(tensor(X[:, :3]), n), np.linalg.matrix_power(X[:, :3], n))


def test_shapes_change_in_place():
    x = tensor()
    assert x.unsqueeze_(1).transpose_(0, 2) is x
    assert_close(x, X[:, None].swapaxes(0, 2))
    assert x.squeeze_(1).t_().multiply_(2) is x
    assert_close(x, X * 2)
    with pytest.raises(GradientError, match="unsqueeze"):
        tensor().requires_grad_().unsqueeze_(0)
