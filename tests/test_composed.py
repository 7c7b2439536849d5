"""Functions composed of other ops, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime.errors import GradientError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 6))


def made(values: Any = X) -> Any:
    return wg.tensor(values, dtype=wg.float64, device="cpu")


def close(found: Any, expected: Any) -> None:
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_covariances_and_correlations():
    counts, weights = np.array([1, 2, 0, 1, 3, 1]), RNG.random(6)
    close(wg.cov(made()), np.cov(X))
    close(made()[0].cov(correction=0), np.cov(X[0], ddof=0))
    found = wg.cov(made(), fweights=wg.tensor(counts), aweights=made(weights))
    close(found, np.cov(X, fweights=counts, aweights=weights))
    close(wg.corrcoef(made()), np.corrcoef(X))
    with pytest.raises(ShapeError, match="fweights"):
        wg.cov(made(), fweights=wg.ones(2, dtype=wg.int64))


def test_functions_of_elements():
    probabilities = np.array([[0.25, 0.5, 0.999]])
    close(wg.logit(made(probabilities)), np.log(probabilities / (1 - probabilities)))
    close(made([0.0, 1.0]).logit(0.25), np.log([1 / 3, 3]))
    close(wg.deg2rad(made()), np.deg2rad(X))
    close(made().rad2deg(), np.rad2deg(X))
    close(wg.sgn(made()), np.sign(X))
    close(wg.dist(made(), made(X[:1]), 1), np.abs(X - X[:1]).sum())


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_powers_of_matrices(n):
    close(wg.matrix_power(made(X[:, :3]), n), np.linalg.matrix_power(X[:, :3], n))


def test_shapes_change_in_place():
    x = made()
    assert x.unsqueeze_(1).transpose_(0, 2) is x
    close(x, X[:, None].swapaxes(0, 2))
    assert x.squeeze_(1).t_().multiply_(2) is x
    close(x, X * 2)
    with pytest.raises(GradientError, match="unsqueeze"):
        made().requires_grad_().unsqueeze_(0)
