"""Check least squares, matrix exponentials, products of reflections and `gradient` against NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as sl

import weftgrad as wg
from weftgrad.autograd import gradcheck, gradgradcheck

Array = Any
RNG = np.random.default_rng(0)


def assert_close(actual: wg.Tensor, expected: Array, tolerance: float = 1e-11) -> None:
    assert actual.shape == np.shape(expected)
    np.testing.assert_allclose(
        actual.detach().numpy(), expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max(initial=0))
    )


def leaf(*shape: int, seed: int = 0) -> wg.Tensor:
    return wg.tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=True)


# Least squares --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize(("m", "n"), [(7, 3), (4, 4), (3, 6)])
def test_lstsq_agrees_with_numpy(m: int, n: int, driver: str | None) -> None:
    a, b = RNG.standard_normal((2, m, n)), RNG.standard_normal((2, m, 3))
    result = wg.linalg.lstsq(wg.tensor(a), wg.tensor(b), driver=driver)
    expected = [np.linalg.lstsq(a[i], b[i], rcond=None) for i in range(2)]
    assert_close(result.solution, np.stack([x[0] for x in expected]))
    has_residuals = m > n and driver in ("gels", "gelsd", "gelss")
    assert_close(result.residuals, np.stack([x[1] for x in expected]) if has_residuals else np.empty(0))
    assert result.rank.tolist() == ([] if driver == "gels" else [min(m, n)] * 2)
    assert result.rank.dtype is wg.int64
    has_values = driver in ("gelsd", "gelss")
    assert_close(result.singular_values, np.stack([x[3] for x in expected]) if has_values else np.empty(0))


def test_lstsq_of_a_lower_rank_gives_the_smallest_solution() -> None:
    a = RNG.standard_normal((6, 2)) @ RNG.standard_normal((2, 4))
    b = RNG.standard_normal(6)
    result = wg.linalg.lstsq(wg.tensor(a), wg.tensor(b), driver="gelsd")
    assert_close(result.solution, np.linalg.lstsq(a, b, rcond=1e-10)[0])
    assert result.rank.item() == 2
    assert result.residuals.shape == (0,)
    assert wg.linalg.lstsq(wg.tensor(np.diag([1.0, 1e-3])), wg.ones(2, dtype=wg.float64), rcond=0.1).rank.item() == 1


def test_lstsq_refuses_what_does_not_fit() -> None:
    a = wg.ones(3, 2)
    for operands, options, error in (
        ((a, wg.ones(4, 1)), {}, "takes B of shape"),
        ((a, wg.ones(3, 1, dtype=wg.float64)), {}, "same dtype"),
        ((a, wg.ones(3, 1)), {"driver": "gelsx"}, "driver is one of"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=error):
            wg.linalg.lstsq(*operands, **options)


# Functions of matrices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 1e-9, 0.3, 3.0, 20.0, 40.0])
def test_matrix_exp_agrees_with_scipy(scale: float) -> None:
    for shape in ((1, 1), (5, 5), (2, 3, 4, 4)):
        a = RNG.standard_normal(shape) * scale
        assert_close(wg.linalg.matrix_exp(wg.tensor(a)), sl.expm(a), 1e-11)
        if scale > 20:
            continue  # beyond the range of float32
        single = wg.matrix_exp(wg.tensor(a, dtype=wg.float32))
        assert single.dtype is wg.float32
        assert_close(single, sl.expm(a.astype(np.float32).astype(np.float64)), 1e-5 * max(1, scale) * 8)


def test_matrix_exp_scales_every_matrix_by_itself() -> None:
    a = RNG.standard_normal((3, 4, 4)) * np.array([1e-6, 1.0, 30.0])[:, None, None]
    results = wg.tensor(a).matrix_exp()
    for result, matrix in zip(results, a, strict=True):
        assert_close(result, sl.expm(matrix), 1e-12)
    assert wg.matrix_exp(wg.empty(2, 0, 0)).shape == (2, 0, 0)
    assert_close(wg.matrix_exp(wg.tensor([[0.0, -np.pi], [np.pi, 0.0]], dtype=wg.float64)), -np.eye(2), 1e-14)
    with pytest.raises(wg.linalg.LinAlgError, match="not finite"):
        wg.matrix_exp(wg.tensor([[np.inf]]))
    with pytest.raises(RuntimeError, match="square"):
        wg.matrix_exp(wg.ones(2, 3))


@pytest.mark.parametrize("shape", [(5, 3), (4, 4), (2, 6, 2), (3, 0)])
def test_householder_product_restores_q(shape: tuple[int, ...]) -> None:
    a = RNG.standard_normal(shape)
    *lead, _, n = shape
    reflectors, factors = np.zeros(shape), np.zeros((*lead, n))
    q = np.zeros(shape)
    for i in np.ndindex(*lead):
        if n:
            (reflectors[i], factors[i]), _ = sl.qr(a[i], mode="raw")
            q[i] = sl.qr(a[i], mode="economic")[0]
    assert_close(wg.linalg.householder_product(wg.tensor(reflectors), wg.tensor(factors)), q, 1e-13)


def test_householder_product_of_fewer_reflections() -> None:
    vectors, factors = RNG.standard_normal((5, 4)), np.array([0.3, 0.0])
    expected = np.eye(5)
    for i, factor in enumerate(factors):
        v = np.concatenate([np.zeros(i), [1], vectors[i + 1 :, i]])
        expected = expected @ (np.eye(5) - factor * np.outer(v, v))
    for function in (wg.linalg.householder_product, wg.orgqr, wg.Tensor.orgqr):
        assert_close(function(wg.tensor(vectors), wg.tensor(factors)), expected[:, :4], 1e-13)
    with pytest.raises(RuntimeError, match="m >= n"):
        wg.orgqr(wg.ones(2, 3), wg.ones(2))


@pytest.mark.parametrize(
    ("name", "function", "operands"),
    [
        ("lstsq", lambda a, b: wg.linalg.lstsq(a, b).solution, [leaf(4, 2), leaf(4, 2, seed=1)]),
        ("lstsq gels", lambda a, b: wg.linalg.lstsq(a, b, driver="gels")[:2], [leaf(4, 2), leaf(4, 2, seed=1)]),
        ("lstsq wide", lambda a, b: wg.linalg.lstsq(a, b, driver="gels").solution, [leaf(2, 3), leaf(2, seed=1)]),
        ("matrix_exp", wg.matrix_exp, [leaf(2, 3, 3)]),
        ("matrix_exp scaled", lambda a: wg.matrix_exp(a * 3), [leaf(3, 3)]),
        ("householder_product", wg.linalg.householder_product, [leaf(4, 3), leaf(2, seed=1)]),
        ("gradient", lambda y, x: wg.gradient(y, spacing=[x.exp()], edge_order=2), [leaf(5), leaf(5, seed=1)]),
    ],
)
def test_derivatives(name: str, function: Callable[..., Any], operands: list[wg.Tensor]) -> None:
    assert gradcheck(function, operands)
    assert gradgradcheck(function, operands)


# Slopes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradient_agrees_with_numpy(edge_order: int) -> None:
    y = RNG.standard_normal((3, 5, 4))
    x = [np.cumsum(RNG.random(n) + 0.1) for n in y.shape]
    tensor = wg.tensor(y)
    coordinates = [wg.tensor(c) for c in x]
    for actual, expected in (
        (wg.gradient(tensor, edge_order=edge_order), np.gradient(y, edge_order=edge_order)),
        (wg.gradient(tensor, spacing=0.3, edge_order=edge_order), np.gradient(y, 0.3, edge_order=edge_order)),
        (
            wg.gradient(tensor, spacing=[1.5, 2.0, 0.5], edge_order=edge_order),
            np.gradient(y, 1.5, 2.0, 0.5, edge_order=edge_order),
        ),
        (wg.gradient(tensor, spacing=coordinates, edge_order=edge_order), np.gradient(y, *x, edge_order=edge_order)),
        (
            wg.gradient(tensor, spacing=[coordinates[2], 2.0], dim=(-1, 0), edge_order=edge_order),
            np.gradient(y, x[2], 2.0, axis=(-1, 0), edge_order=edge_order),
        ),
        (
            wg.gradient(tensor, dim=1, edge_order=edge_order),
            [np.gradient(y, axis=1, edge_order=edge_order)],
        ),
    ):  # fmt: skip
        assert isinstance(actual, tuple)
        for result, array in zip(actual, expected, strict=True):
            assert_close(result, array, 1e-12)


def test_gradient_of_few_points_and_integers() -> None:
    assert wg.gradient(wg.tensor([1, 4, 9]))[0].tolist() == [3, 4, 5]
    assert wg.gradient(wg.tensor([1.0, 4.0]), spacing=2)[0].tolist() == [1.5, 1.5]
    for call, error in (
        (lambda: wg.gradient(wg.tensor([1.0])), "takes 2 or more"),
        (lambda: wg.gradient(wg.tensor([1.0, 2.0]), edge_order=2), "takes 3 or more"),
        (lambda: wg.gradient(wg.ones(3), edge_order=3), "edge_order is 1 or 2"),
        (lambda: wg.gradient(wg.ones(3, 3), spacing=[1.0]), "as many elements of spacing"),
        (lambda: wg.gradient(wg.ones(3), spacing=[wg.ones(2)]), "its coordinates the shape"),
        (lambda: wg.gradient(wg.ones(3, dtype=wg.bool)), "is bool"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=error):
            call()
