"""Check singular values, eigenvalues and what follows from them against NumPy, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weftgrad as wg
from weftgrad import testing
from weftgrad.autograd import gradcheck, gradgradcheck

Array = Any
DEVICES = ("cpu", "opencl-gpu-schedules", "interpreter")


def device_named(name: str) -> Any:
    if name == "interpreter":
        pytest.importorskip("triton")
    if name == "opencl-gpu-schedules":
        pytest.importorskip("pyopencl")
        return testing.synthetic_device(931, "style=gpu,lanes=4,max_group=256,builtins=1,optimize=0")
    return wg.device(name)


def random_array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def assert_close(actual: Any, expected: Array, tolerance: float = 1e-11) -> None:
    actual = actual.detach().cpu().numpy() if isinstance(actual, wg.Tensor) else actual
    assert actual.shape == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max(initial=0)))


def assert_orthogonal(columns: Array, tolerance: float) -> None:
    product = columns.swapaxes(-1, -2) @ columns
    assert_close(product, np.broadcast_to(np.eye(columns.shape[-1]), product.shape), tolerance)


def check_svd(x: Array, device: Any, tolerance: float = 1e-11) -> None:
    """Check that the factors are orthogonal, and that their product is the matrix."""
    expected = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    for full in (False, True):
        U, S, Vh = (part.cpu().numpy() for part in wg.linalg.svd(wg.tensor(x, device=device), full))
        k = S.shape[-1]
        assert_close(S, expected, tolerance)
        assert_close(U[..., :k] * S[..., None, :] @ Vh[..., :k, :], x, tolerance)
        assert_orthogonal(U, tolerance)
        assert_orthogonal(Vh.swapaxes(-1, -2), tolerance)
        assert U.shape[-1] == (x.shape[-2] if full else k)
        assert Vh.shape[-2] == (x.shape[-1] if full else k)


@pytest.mark.parametrize("device_name", DEVICES)
@pytest.mark.parametrize("shape", [(2, 1, 1), (2, 2, 2), (3, 9), (9, 3), (2, 17, 17), (64, 64), (130, 130)])
def test_sizes(shape: tuple[int, ...], device_name: str) -> None:
    if device_name != "cpu" and max(shape) > 17:
        shape = (20, 20) if device_name == "opencl-gpu-schedules" else (10, 10)
    device = device_named(device_name)
    x = random_array(*shape)
    check_svd(x, device)
    symmetric = x @ x.swapaxes(-1, -2) - 2 * np.eye(shape[-2])
    values, vectors = wg.linalg.eigh(wg.tensor(symmetric, device=device))
    assert_close(values, np.linalg.eigvalsh(symmetric))
    vectors = vectors.cpu().numpy()
    assert_close(symmetric @ vectors, vectors * values.cpu().numpy()[..., None, :])
    assert_close(vectors.swapaxes(-1, -2) @ vectors, np.broadcast_to(np.eye(shape[-2]), vectors.shape))


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(0, 12), n=st.integers(0, 12), batch=st.sampled_from([(), (2,), (2, 1), (0,)]),
    rank=st.integers(0, 12), scale=st.sampled_from([1.0, 1e-150, 1e150]),
    dtype=st.sampled_from(["float32", "float64"]), by_columns=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape_and_rank(
    m: int, n: int, batch: tuple[int, ...], rank: int, scale: float, dtype: str, by_columns: bool, seed: int
) -> None:
    """Matrices of less than full rank have orthogonal singular vectors, too; very small and large ones lose nothing."""
    x = random_array(*batch, m, rank, seed=seed) @ random_array(*batch, rank, n, seed=seed + 1)
    x = x.astype(dtype)
    tolerance = 1e-11 if dtype == "float64" else 1e-4
    check_svd(np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if by_columns else x, "cpu", tolerance)
    if x.size and dtype == "float64":
        expected = np.linalg.svd(x, compute_uv=False)
        values = wg.linalg.svdvals(wg.tensor(x * scale)).numpy() / scale
        assert_close(values, expected, tolerance)
        assert wg.linalg.matrix_rank(wg.tensor(x)).tolist() == np.linalg.matrix_rank(x).tolist()
        if min(m, n) <= rank:
            assert_close(wg.linalg.pinv(wg.tensor(x)), np.linalg.pinv(x), 1e-8)


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_equal_and_opposite_eigenvalues(n: int) -> None:
    for matrix in (np.eye(n), np.zeros((n, n)), np.eye(n)[::-1].copy(), np.ones((n, n)), -np.eye(n)):
        values, vectors = wg.linalg.eigh(wg.tensor(matrix))
        assert_close(values, np.linalg.eigvalsh(matrix), 1e-14)
        assert_close(vectors @ wg.diag(values) @ vectors.T, matrix, 1e-14)
        check_svd(matrix, "cpu", 1e-14)
    lower = np.tril(random_array(n, n))
    assert_close(wg.linalg.eigvalsh(wg.tensor(lower)), np.linalg.eigvalsh(lower))
    assert_close(wg.linalg.eigvalsh(wg.tensor(lower.T.copy()), UPLO="U"), np.linalg.eigvalsh(lower))


def test_norms_conditions_and_ranks() -> None:
    x = random_array(2, 3, 4, 4)
    t = wg.tensor(x)
    for order in (2, -2, "nuc"):
        assert_close(wg.linalg.matrix_norm(t, order), np.linalg.norm(x, order, axis=(-2, -1)))
        expected = np.linalg.norm(x, order, axis=(1, 3), keepdims=True)
        assert_close(wg.linalg.matrix_norm(t, order, (1, 3), True), expected)
        assert_close(wg.linalg.norm(t[0, 0], order), np.linalg.norm(x[0, 0], order))
    for order in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"):
        assert_close(wg.linalg.cond(t, order), np.linalg.cond(x, order), 1e-9)
    assert wg.linalg.cond(wg.ones(2, 2), 1).item() == np.inf
    diagonal = wg.diag(wg.tensor([4.0, -2.0, 1e-3]))
    assert wg.linalg.matrix_rank(diagonal).item() == 3
    assert wg.linalg.matrix_rank(diagonal, atol=0.01).item() == 2
    assert wg.linalg.matrix_rank(diagonal, rtol=0.6).item() == 1
    assert wg.linalg.matrix_rank(diagonal, hermitian=True, rtol=0.4).item() == 2
    assert wg.linalg.matrix_rank(wg.zeros(2, 3, 0)).tolist() == [0, 0]
    symmetric = x + x.swapaxes(-1, -2)
    assert_close(wg.linalg.pinv(wg.tensor(symmetric), hermitian=True), np.linalg.pinv(symmetric), 1e-9)
    assert_close(wg.linalg.pinv(diagonal.double(), rtol=0.1), np.diag([0.25, -0.5, 0]), 1e-12)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda: wg.linalg.svd(wg.full((2, 2), np.nan)), wg.linalg.LinAlgError, "linalg.svd: .*non-finite values"),
        (lambda: wg.linalg.svdvals(wg.ones(2)), RuntimeError, "linalg.svdvals: .*at least 2 dimensions"),
        (lambda: wg.linalg.eigh(wg.ones(2, 3)), RuntimeError, "linalg.eigh: .*2 by 3 matrices"),
        (lambda: wg.linalg.eigh(wg.eye(2), "X"), RuntimeError, "'L' or 'U', but got 'X'"),
        (lambda: wg.linalg.svd(wg.eye(2).half()), NotImplementedError, "low precision"),
        (lambda: wg.linalg.pinv(wg.eye(2).int()), RuntimeError, "linalg.pinv: expected a floating point"),
        (lambda: wg.linalg.matrix_norm(wg.eye(2), 3), ValueError, "'nuc'"),
    ],
)
def test_errors(function: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        function()
    assert wg.linalg.eigvalsh(wg.full((2, 2), np.nan)).isnan().all()


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (wg.linalg.svdvals, (2, 3, 4)),
        (lambda x: [part.abs() for part in wg.linalg.svd(x, False)], (3, 3)),
        (lambda x: [part.abs() for part in wg.linalg.svd(x, False)], (2, 4)),
        (lambda x: [part.abs() for part in wg.linalg.svd(x, False)], (2, 4, 2)),
        (lambda x: wg.linalg.svd(x).U[:, :2].abs(), (4, 2)),
        (lambda x: [part.abs() for part in wg.linalg.eigh(x + x.mT)], (2, 3, 3)),
        (lambda x: wg.linalg.eigvalsh(x + x.mT), (3, 3)),
        (wg.linalg.pinv, (2, 3, 4)),
        (wg.linalg.pinv, (4, 2)),
        (lambda x: wg.linalg.matrix_norm(x, "nuc"), (3, 4)),
        (lambda x: wg.linalg.matrix_norm(x, 2), (3, 4)),
        (wg.linalg.cond, (3, 3)),
    ],
)
def test_gradients(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    x = wg.tensor(random_array(*shape), requires_grad=True)
    assert gradcheck(function, (x,))
    assert gradgradcheck(function, (x,))


def test_equal_singular_values_have_gradients() -> None:
    x = wg.eye(3, dtype=wg.float64).requires_grad_()
    wg.linalg.svdvals(x).sum().backward()
    assert_close(x.grad, np.eye(3))


@pytest.mark.parametrize("device_name", DEVICES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 17, 17), (2, 3, 9, 4), (4, 9), (130, 130)])
def test_qr(shape: tuple[int, ...], device_name: str) -> None:
    if device_name != "cpu" and max(shape) > 17:
        shape = (20, 20) if device_name == "opencl-gpu-schedules" else (10, 10)
    x = random_array(*shape)
    for array in (x, np.zeros(shape), np.ones(shape), np.triu(x)):
        t = wg.tensor(array, device=device_named(device_name))
        for mode in ("reduced", "complete"):
            Q, R = (part.cpu().numpy() for part in wg.linalg.qr(t, mode))
            expected = np.linalg.qr(array, mode)
            assert Q.shape == expected.Q.shape
            assert_close(Q @ R, array)
            assert_orthogonal(Q, 1e-12)
            assert (np.tril(R, -1) == 0).all()
            if array is x:
                assert_close(R, expected.R)
        assert wg.linalg.qr(t, "r").Q.shape == (0,)
    with pytest.raises(ValueError, match="'reduced', 'complete' or 'r', not 'full'"):
        wg.linalg.qr(wg.eye(2), "full")


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 2), (2, 2, 4)])
def test_gradients_of_qr(shape: tuple[int, ...]) -> None:
    x = wg.tensor(random_array(*shape), requires_grad=True)
    assert gradcheck(wg.linalg.qr, (x,))
    assert gradgradcheck(wg.linalg.qr, (x,))
    with pytest.raises(RuntimeError, match="mode='reduced'"):
        wg.linalg.qr(wg.ones(3, 2, requires_grad=True), "complete").Q.sum().backward()
