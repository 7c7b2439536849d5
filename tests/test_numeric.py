"""Check functions composed of several ops against NumPy, and their errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weftgrad as wg

RNG = np.random.default_rng(8)
X = RNG.standard_normal((4, 5)).astype(np.float32)


def assert_close(actual, expected):
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=2e-5, atol=2e-6)


def test_nansum_and_nanmean():
    x = X.copy()
    x[0, 1] = x[3] = np.nan
    leaf = wg.tensor(x, requires_grad=True)
    total = wg.nansum(leaf, 1)
    assert_close(total, np.nansum(x, 1))
    total.sum().backward()
    assert_close(leaf.grad, ~np.isnan(x))
    assert_close(wg.nanmean(wg.tensor(x[:3]), 1, True), np.nanmean(x[:3], 1, keepdims=True))
    assert math.isnan(wg.nanmean(wg.tensor(x[3])).item())
    assert wg.nansum(wg.arange(4)).dtype is wg.int64
    with pytest.raises(RuntimeError, match="float"):
        wg.nanmean(wg.arange(4))


def test_sums_of_products():
    a, b = RNG.standard_normal((3, 4, 2)).astype(np.float32), RNG.standard_normal((3, 2, 5)).astype(np.float32)
    assert_close(wg.addbmm(wg.tensor(X), wg.tensor(a), wg.tensor(b), beta=2, alpha=0.5), 2 * X + 0.5 * (a @ b).sum(0))
    assert_close(wg.tensor(X).addr(wg.tensor(X[:, 0]), wg.tensor(X[0]), alpha=3), X + 3 * np.outer(X[:, 0], X[0]))
    assert not np.isnan(wg.addr(wg.full((5,), math.nan), wg.ones(4), wg.ones(5), beta=0).numpy()).any()
    for run in (
        lambda: wg.addbmm(wg.ones(2, 2), wg.ones(3, 2, 4), wg.ones(3, 2, 4)),
        lambda: wg.addr(wg.ones(3, 3), wg.ones(3), wg.ones(2)),
        lambda: wg.addr(wg.arange(3), wg.arange(2), wg.arange(3), alpha=0.5),
    ):
        with pytest.raises(RuntimeError):
            run()


def test_frexp_ldexp_and_heaviside():
    values = np.array([0.0, 1.0, 0.75, -3.0, 8.0, 1e-40, 3e38, -1e-45, np.inf, np.nan, 1 - 2**-24], np.float32)
    mantissa, exponent = wg.frexp(wg.tensor(values))
    expected = np.frexp(values)
    np.testing.assert_array_equal(mantissa.numpy(), expected[0])
    np.testing.assert_array_equal(exponent.numpy()[:-3], expected[1][:-3])
    assert exponent.dtype is wg.int32
    assert_close(wg.ldexp(wg.tensor(X), wg.arange(5)), np.ldexp(X, np.arange(5)))
    steps = wg.heaviside(wg.tensor([-2.0, 0.0, 3.0, math.nan]), wg.tensor(0.5))
    assert steps.tolist() == [0, 0.5, 1, 0]
    with pytest.raises(RuntimeError, match="one with"):
        wg.heaviside(wg.ones(2), wg.tensor(1))
    with pytest.raises(RuntimeError, match="derivative"):
        wg.heaviside(wg.ones(2, requires_grad=True), wg.tensor(1.0))


def test_renorm_in_place_is_differentiable():
    gradients = []
    for run in (lambda x: x.renorm(2, 1, 1.5), lambda x: (x * 1).renorm_(2, 1, 1.5)):
        leaf = wg.tensor(X, requires_grad=True)
        run(leaf).square().sum().backward()
        gradients.append(leaf.grad)
    assert gradients[0].abs().max() > 0
    assert_close(*gradients)


def test_norms_and_powers():
    norms = np.linalg.norm(X, axis=0)
    assert_close(wg.renorm(wg.tensor(X), 2, 1, 1.5), X * np.minimum(1, 1.5 / norms))
    assert_close(wg.vander(wg.tensor(X[0]), 4), np.vander(X[0], 4))
    assert wg.vander(wg.tensor([2, 3]), increasing=True).tolist() == [[1, 2], [1, 3]]
    for order in ("fro", 1, -1, math.inf, -math.inf):
        assert_close(wg.linalg.norm(wg.tensor(X), order), np.linalg.norm(X, order))
    assert_close(wg.linalg.vector_norm(wg.tensor(X), 3, 1), np.linalg.norm(X, 3, 1))
    assert_close(wg.linalg.norm(wg.tensor(X)), np.linalg.norm(X))
    for run, kind in (
        (lambda: wg.linalg.norm(wg.ones(2, 2, 2), 1), RuntimeError),
        (lambda: wg.linalg.matrix_norm(wg.ones(2, 2), "nuclear"), ValueError),
        (lambda: wg.linalg.vector_norm(wg.arange(3)), RuntimeError),
        (lambda: wg.renorm(wg.ones(2), 2, 0, 1), RuntimeError),
        (lambda: wg.vander(wg.ones(2, 2)), RuntimeError),
    ):  # fmt: skip
        with pytest.raises(kind):
            run()


def test_nextafter():
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 0.5], np.float32)
    for dtype in (np.float32, np.float16):
        a, b = (v.reshape(-1).astype(dtype) for v in np.meshgrid(values, values))
        actual = wg.nextafter(wg.tensor(a), wg.tensor(b)).numpy()
        expected = np.nextafter(a, b)
        np.testing.assert_array_equal(actual, expected)
        signs = ~np.isnan(a) & ~np.isnan(b) & (a != b)  # for equal numbers C returns the second
        np.testing.assert_array_equal(np.signbit(actual)[signs], np.signbit(expected)[signs])
    unit = wg.ones(1, dtype=wg.bfloat16)
    assert unit.nextafter_(unit * 2).item() == wg.nextafter(wg.ones(1, dtype=wg.bfloat16), unit * 4).item() == 1.0078125
    assert wg.nextafter(wg.ones(1), wg.zeros(1, dtype=wg.float64)).dtype is wg.float64
    for operands, kind in (((wg.ones(1, requires_grad=True), wg.ones(1)), RuntimeError), ((wg.ones(1), 2.0), TypeError),
                        ((wg.arange(2), wg.arange(2)), NotImplementedError)):  # fmt: skip
        with pytest.raises(kind, match="nextafter"):
            wg.nextafter(*operands)


def test_shifts_and_divisors():
    x = wg.tensor([1, 2, -5])
    assert (x << 1).tolist() == x.bitwise_left_shift(1).tolist() == [2, 4, -10]
    assert (x >> 1).tolist() == [0, 1, -3]
    assert (2 << x).tolist() == [4, 8, 0]
    assert (16 >> wg.tensor([1, 2, 70])).tolist() == [8, 4, 0]
    y = x.clone()
    y <<= 2
    y >>= wg.tensor([1, 0, 1])
    assert y.tolist() == [2, 8, -10]
    assert (wg.tensor([True]) << 1).dtype is wg.int64
    assert wg.nextafter(wg.tensor([-0.0]), wg.tensor([0.0])).signbit().item() is False
    assert wg.gcd(wg.tensor([12, -8, 0, 0]), wg.tensor([18, 12, 5, 0])).tolist() == [6, 4, 5, 0]
    assert wg.lcm(wg.tensor([4, -6, 0]), wg.tensor([6, 4, 3])).tolist() == [12, 12, 0]
    assert wg.tensor([4]).gcd_(wg.tensor([6])).item() == 2
    for call in (lambda: wg.ones(1) << 1, lambda: x >> 1.0, lambda: wg.gcd(wg.ones(1), wg.ones(1)),
                  lambda: wg.lcm(x > 0, x > 0)):  # fmt: skip
        with pytest.raises(NotImplementedError):
            call()


def test_diagonals_in_place():
    for shape, wrap in (((7, 3), True), ((3, 5), False), ((3, 3, 3), False)):
        expected = np.zeros(shape, np.float32)
        np.fill_diagonal(expected, 2.5, wrap)
        np.testing.assert_array_equal(wg.zeros(*shape).fill_diagonal_(2.5, wrap).numpy(), expected)
    for base, view in ((wg.zeros(9, 3), lambda t: t[:, :2]), (wg.zeros(2, 9), lambda t: t.t())):
        expected = base.numpy().copy()
        np.fill_diagonal(view(expected) if base.shape[0] == 9 else expected.T, 2.5, wrap=True)
        view(base).fill_diagonal_(2.5, wrap=True)
        np.testing.assert_array_equal(base.numpy(), expected)
    with pytest.raises(RuntimeError, match="one size"):
        wg.zeros(2, 3, 3).fill_diagonal_(1)


def test_integer_results_of_tensors_that_require_grad():
    leaf = wg.ones(3, requires_grad=True)
    for run in (lambda: leaf.sum(dtype=wg.int64), lambda: wg.cumsum(leaf, 0, dtype=wg.int64)):
        with pytest.raises(RuntimeError, match="no gradient"):
            run()
    with wg.no_grad():
        assert leaf.sum(dtype=wg.int64).item() == 3
    with pytest.raises(RuntimeError, match="floating"):
        wg.mean(wg.ones(3), out=wg.zeros((), dtype=wg.int64))


def test_layer_functions_in_the_top_level_namespace():
    x = wg.tensor(X)
    assert_close(wg.layer_norm(x, (5,)), wg.nn.functional.layer_norm(x, (5,)).numpy())
    assert wg.dropout(x, 0.5, False) is x
    outputs = wg.embedding_bag(x, wg.tensor([0, 1, 3]), wg.tensor([0, 2]), False, 2)
    assert_close(outputs[0], [X[:2].max(0), X[3]])
    assert outputs[1].tolist() == [0, 0, 1]
    assert outputs[2].tolist() == [2, 1]
    assert outputs[3].tolist() == [X[:2].argmax(0).tolist(), [3] * 5]
    assert "celu_" in dir(wg)
