"""Check factorizations and linear systems of `linalg` against NumPy and SciPy, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as sl
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import weftgrad as wg
from weftgrad import testing
from weftgrad.autograd import gradcheck, gradgradcheck

Array = Any
SIZES = (0, 1, 2, 17, 64, 130)
DEVICES = ("cpu", "opencl-gpu-schedules", "interpreter")


def device_named(name: str) -> Any:
    if name == "interpreter":
        pytest.importorskip("triton")
    if name == "opencl-gpu-schedules":
        pytest.importorskip("pyopencl")
        return testing.synthetic_device(930, "style=gpu,lanes=4,max_group=256,builtins=1,optimize=0")
    return wg.device(name)


def random_matrices(*shape: int, seed: int = 0) -> Array:
    """Return random matrices with small condition numbers, whose factorization exchanges rows."""
    rng = np.random.default_rng(seed)
    shift = np.roll(np.eye(*shape[-2:]), 1, axis=0)
    return rng.standard_normal(shape) + shift * (2 + max(shape[-2:]) ** 0.5)


def definite_matrices(*shape: int) -> Array:
    x = random_matrices(*shape)
    return x @ x.swapaxes(-1, -2) + np.eye(shape[-1])


def assert_close(actual: Any, expected: Array, tolerance: float = 1e-10) -> None:
    actual = actual.detach().cpu().numpy()
    assert actual.shape == np.shape(expected)
    np.testing.assert_allclose(
        actual, expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max(initial=0))
    )


@pytest.mark.parametrize("device_name", DEVICES)
@pytest.mark.parametrize("n", SIZES)
def test_sizes(n: int, device_name: str) -> None:
    if device_name == "interpreter" and n > 17:
        n = min(n, 37)  # two tiles of rows; the interpreter is slow
    device = device_named(device_name)
    x = random_matrices(2, n, n)
    definite = definite_matrices(2, n, n)
    A, S = wg.tensor(x, device=device), wg.tensor(definite, device=device)
    LU, pivots, info = wg.linalg.lu_factor_ex(A)
    assert info.tolist() == [0, 0]
    for b in range(2 if n else 0):
        packed, rows = sl.lu_factor(x[b])
        assert_close(LU[b], packed)
        assert (pivots[b].cpu().numpy() == rows + 1).all()
    P, L, U = wg.linalg.lu(A)
    assert_close(P @ L @ U, x)
    assert_close(wg.linalg.cholesky(S), np.linalg.cholesky(definite))
    assert_close(wg.linalg.cholesky(S, upper=True), np.linalg.cholesky(definite).swapaxes(1, 2))
    sign, logabsdet = wg.linalg.slogdet(A)
    expected = np.linalg.slogdet(x)
    assert_close(sign, expected.sign)
    assert_close(logabsdet, expected.logabsdet)
    assert_close(wg.linalg.det(A), np.linalg.det(x))
    assert_close(wg.linalg.inv(A), np.linalg.inv(x))
    right = np.random.default_rng(1).standard_normal((2, n, 3))
    B = wg.tensor(right, device=device)
    assert_close(wg.linalg.solve(A, B), np.linalg.solve(x, right))
    assert_close(wg.linalg.lu_solve(LU, pivots, B), np.linalg.solve(x, right))


@pytest.mark.parametrize("device_name", DEVICES)
def test_triangular_systems(device_name: str) -> None:
    device = device_named(device_name)
    n = 19
    x = random_matrices(2, n, n) / 4 + 3 * np.eye(n)
    for upper, left, unit, k in itertools.product((False, True), (False, True), (False, True), (1, 5, 50)):
        triangle = np.triu(x) if upper else np.tril(x)
        if unit:
            triangle[:, range(n), range(n)] = 1
        right = np.random.default_rng(k).standard_normal((2, n, k) if left else (2, k, n))
        A, B = wg.tensor(x, device=device), wg.tensor(right, device=device)
        solution = wg.linalg.solve_triangular(A, B, upper=upper, left=left, unitriangular=unit)
        assert_close(solution, _triangular_solution(triangle, right, left), 1e-8)


def _triangular_solution(triangle: Array, right: Array, left: bool) -> Array:
    if left:
        return np.linalg.solve(triangle, right)
    return np.linalg.solve(triangle.swapaxes(1, 2), right.swapaxes(1, 2)).swapaxes(1, 2)


_BATCHES = st.sampled_from(
    [((), ()), ((3,), (3,)), ((4, 1), (3,)), ((1,), (2, 3)), ((), (3,)), ((2,), ()), ((0,), (1,))]
)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 20), k=st.integers(0, 20), batches=_BATCHES, dtype=st.sampled_from(["float32", "float64"]),
    by_columns=st.booleans(), left=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_systems_of_any_shape_and_layout(
    n: int, k: int, batches: Any, dtype: str, by_columns: bool, left: bool, seed: int
) -> None:
    """Batches broadcast, and matrices may be stored by columns."""
    right_shape = (*batches[1], n, k) if left else (*batches[1], k, n)
    assume(right_shape != (*batches[0], n))  # such a B is a batch of vectors, as in PyTorch
    x = random_matrices(*batches[0], n, n, seed=seed).astype(dtype)
    right = np.random.default_rng(seed).standard_normal((*batches[1], n, k)).astype(dtype)
    tolerance = 1e-9 if dtype == "float64" else 2e-3
    expected = np.linalg.solve(x.astype(np.float64), right.astype(np.float64))

    def strided(array: Array) -> Any:
        if by_columns:
            return wg.tensor(np.ascontiguousarray(array.swapaxes(-1, -2))).mT
        return wg.tensor(array)

    A, B = strided(x), strided(right)
    solution = wg.linalg.solve(A, B) if left else wg.linalg.solve(A.mT, B.mT, left=False).mT
    assert_close(solution, expected, tolerance)
    LU, pivots = wg.linalg.lu_factor(A)
    assert_close(wg.linalg.lu_solve(LU, pivots, B), expected, tolerance)
    adjoint = np.linalg.solve(x.swapaxes(-1, -2).astype(np.float64), right.astype(np.float64))
    assert_close(wg.linalg.lu_solve(LU, pivots, B, adjoint=True), adjoint, tolerance)
    assert_close(wg.linalg.lu_solve(LU, pivots, B.mT, left=False).mT, adjoint, tolerance)
    definite = (x.astype(np.float64) @ x.swapaxes(-1, -2) + np.eye(n)).astype(dtype)
    L = wg.linalg.cholesky(strided(definite))
    expected = np.linalg.solve(definite.astype(np.float64), right.astype(np.float64))
    assert_close(wg.cholesky_solve(B, L), expected, tolerance * 10)
    assert_close(wg.cholesky_solve(B, L.mT, upper=True), expected, tolerance * 10)
    assert_close(wg.cholesky_inverse(L), np.linalg.inv(definite.astype(np.float64)), tolerance * 10)


@settings(max_examples=30, deadline=None)
@given(m=st.integers(0, 20), n=st.integers(0, 20), batch=st.sampled_from([(), (2,), (2, 3)]), seed=st.integers(0, 99))
def test_rectangular_factors(m: int, n: int, batch: tuple[int, ...], seed: int) -> None:
    x = random_matrices(*batch, m, n, seed=seed)
    LU, pivots = wg.linalg.lu_factor(wg.tensor(x))
    P, L, U = wg.lu_unpack(LU, pivots)
    for ours, reference in zip((P, L, U), wg.linalg.lu(wg.tensor(x)), strict=True):
        assert (ours == reference).all()
    assert P.shape == (*batch, m, m)
    assert L.shape == (*batch, m, min(m, n))
    assert U.shape == (*batch, min(m, n), n)
    assert_close(P @ L @ U, x)
    assert (L.triu(1) == 0).all()
    assert (abs(L) <= 1).all()


@pytest.mark.parametrize("n", [2, 9, 17])
def test_ill_conditioned_systems_have_small_residuals(n: int) -> None:
    """The backward error of LU with partial pivoting is small whatever the condition number is."""
    hilbert = sl.hilbert(n)
    right = np.ones(n)
    solution = wg.linalg.solve(wg.tensor(hilbert), wg.tensor(right)).numpy()
    residual = np.abs(hilbert @ solution - right).max()
    assert residual <= 100 * n * 2.0**-52 * np.abs(hilbert).sum(1).max() * max(1, np.abs(solution).max())


def test_singular_matrices() -> None:
    singular = wg.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]]])
    b = wg.ones(2, 2, 1)
    for function, message in (
        (lambda: wg.linalg.inv(singular), r"linalg.inv: \(Batch element 1\): The diagonal element 2 is zero"),
        (lambda: wg.linalg.solve(singular, b), r"linalg.solve: \(Batch element 1\): The solver failed"),
        (lambda: wg.linalg.lu_factor(singular), r"lu_factor: \(Batch element 1\): U\[2,2\] is zero"),
        (lambda: wg.linalg.inv(singular[1]), "linalg.inv: The diagonal element 2 is zero"),
        (lambda: wg.linalg.matrix_power(singular, -2), "diagonal element 2"),
        (lambda: wg.linalg.inv_ex(singular, check_errors=True), "diagonal element 2"),
        (lambda: wg.linalg.solve_ex(singular, b, check_errors=True), "is singular"),
        (lambda: wg.linalg.lu_factor_ex(singular, check_errors=True), "is zero"),
    ):
        with pytest.raises(wg.linalg.LinAlgError, match=message):
            function()
    assert issubclass(wg.linalg.LinAlgError, RuntimeError)
    assert wg.linalg.inv_ex(singular).info.tolist() == [0, 2]
    assert wg.linalg.solve_ex(singular, b).info.tolist() == [0, 2]
    assert wg.linalg.det(singular).tolist() == [1, 0]
    assert wg.linalg.slogdet(singular).sign.tolist() == [1, 0]
    assert wg.linalg.slogdet(singular).logabsdet.tolist() == [0, -np.inf]
    assert wg.linalg.lu_factor_ex(wg.zeros(3, 3)).info.item() == 1
    np.testing.assert_array_equal(wg.logdet(wg.tensor([[0.0, 1.0], [1.0, 0.0]])).numpy(), np.nan)
    assert wg.logdet(singular[1]).item() == -np.inf


def test_matrices_that_are_not_positive_definite() -> None:
    matrices = wg.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]]])
    with pytest.raises(
        wg.linalg.LinAlgError, match=r"linalg.cholesky: \(Batch element 1\): .*leading minor of order 2"
    ):
        wg.linalg.cholesky(matrices)
    with pytest.raises(RuntimeError, match="minor of order 1 is not positive-definite"):
        matrices[2].cholesky()
    with pytest.raises(RuntimeError, match="order 2"):
        wg.linalg.cholesky_ex(matrices, check_errors=True)
    assert wg.linalg.cholesky_ex(matrices).info.tolist() == [0, 2, 1]


def test_nan() -> None:
    """NaN is no pivot where the column has numbers, and the results that depend on it are NaN."""
    x = np.eye(3)
    x[1, 1] = np.nan
    A = wg.tensor(x)
    assert wg.linalg.det(A).isnan()
    assert wg.linalg.slogdet(A).logabsdet.isnan()
    assert wg.linalg.inv_ex(A).inverse.isnan().any()
    assert wg.linalg.cholesky_ex(A).info.item() == 2
    assert wg.linalg.solve_ex(A, wg.ones(3, 1, dtype=wg.float64)).result.isnan().any()
    assert wg.linalg.lu_factor_ex(wg.full((2, 2), np.nan)).pivots.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda: wg.linalg.inv(wg.ones(2, 3)), RuntimeError,
         r"linalg.inv: A must be batches of square matrices, but they are 2 by 3 matrices, of shape \[2, 3\]"),
        (lambda: wg.linalg.cholesky(wg.ones(2)), RuntimeError, "linalg.cholesky: .* at least 2 dimensions.*unsqueeze"),
        (lambda: wg.linalg.det(wg.ones(2, 2, dtype=wg.int64)), RuntimeError, r"linalg.det: expected a floating point"),
        (lambda: wg.linalg.inv(wg.eye(2).half()), NotImplementedError, r"low precision dtypes.*float16.*\.float\(\)"),
        (lambda: wg.linalg.solve(wg.eye(2), wg.ones(3, 1)), RuntimeError, r"AX = B \(2x2 and 3x1\).*2 rows"),
        (lambda: wg.linalg.solve(wg.eye(2), wg.ones(1, 3), left=False), RuntimeError, r"XA = B.*2 columns"),
        (lambda: wg.linalg.solve(wg.eye(2), wg.ones(2, 1).double()), RuntimeError, "same dtype, but found float32 and"),
        (lambda: wg.linalg.solve(wg.ones(2, 3, 3), wg.ones(4, 3, 1)), RuntimeError, "batch dimensions.*broadcast"),
        (lambda: wg.linalg.solve_triangular(wg.eye(2), wg.ones(2), upper=True), RuntimeError, "B must have at least 2"),
        (lambda: wg.linalg.lu_solve(wg.eye(2), wg.tensor([1, 2]), wg.ones(2, 1)), RuntimeError, "int32, not int64"),
        (lambda: wg.linalg.lu_solve(wg.eye(2), wg.tensor([1]).int(), wg.ones(2, 1)), RuntimeError, "do not fit LU"),
        (lambda: wg.linalg.lu(wg.eye(2), pivot=False), NotImplementedError, "pivot=True"),
        (lambda: wg.linalg.inv("a"), TypeError, "linalg.inv"),
        (lambda: wg.linalg.tensorinv(wg.ones(2, 3, 2, 2)), RuntimeError, r"tensorinv: the sizes \[2, 3\] and \[2, 2\]"),
        (lambda: wg.linalg.tensorsolve(wg.ones(2, 3), wg.ones(2)), RuntimeError, "tensorsolve: A of shape"),
        (lambda: wg.linalg.tensorsolve(wg.ones(2, 3, 6), wg.ones(2, 2)), RuntimeError, "tensorsolve: A of shape"),
        (lambda: wg.linalg.tensorsolve(wg.ones(2, 3, 6), wg.ones(6)), RuntimeError, "tensorsolve: A of shape"),
        (lambda: wg.linalg.inv(wg.eye(2), out=wg.empty(3, 3)), RuntimeError, r"result has shape \[2, 2\], out has"),
        (lambda: wg.linalg.inv(wg.eye(2), out=wg.empty(2, 2).int()), RuntimeError, "cannot be written to int32"),
        (lambda: wg.linalg.inv(wg.eye(2, requires_grad=True), out=wg.empty(2, 2)), RuntimeError, "does not record"),
        (lambda: wg.linalg.inv_ex(wg.eye(2), out=(wg.empty(2, 2),)), ValueError, "a tuple of 2 tensors, not 1 of them"),
        (lambda: wg.linalg.inv_ex(wg.eye(2), out=wg.empty(2, 2)), TypeError, "a tuple of 2 tensors, not Tensor"),
        (lambda: wg.lu_unpack(wg.eye(2), wg.tensor([1]).int()), RuntimeError, r"lu_unpack: .*\[2\], not \[1\]"),
    ],
)  # fmt: skip
def test_errors(function: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        function()


def test_names_of_results_and_methods() -> None:
    A = wg.tensor(definite_matrices(3, 3))
    assert wg.linalg.slogdet(A)._fields == ("sign", "logabsdet")
    assert wg.linalg.cholesky_ex(A)._fields == ("L", "info")
    assert wg.linalg.lu_factor(A)._fields == ("LU", "pivots")
    assert wg.linalg.lu_factor_ex(A)._fields == ("LU", "pivots", "info")
    assert wg.linalg.inv_ex(A)._fields == ("inverse", "info")
    assert wg.linalg.solve_ex(A, A)._fields == ("result", "info")
    assert wg.linalg.lu(A)._fields == ("P", "L", "U")
    for name in ("cholesky", "det", "inverse", "logdet", "cholesky_inverse"):
        np.testing.assert_array_equal(getattr(A, name)().numpy(), getattr(wg, name)(A).numpy())
    np.testing.assert_allclose(A.slogdet()[1].numpy(), A.logdet().numpy())
    B = wg.ones(3, 2, dtype=wg.float64)
    LU, pivots = wg.linalg.lu_factor(A)
    np.testing.assert_array_equal(B.lu_solve(LU, pivots).numpy(), wg.linalg.lu_solve(LU, pivots, B).numpy())
    np.testing.assert_array_equal(B.cholesky_solve(A.cholesky()).numpy(), wg.cholesky_solve(B, A.cholesky()).numpy())
    out, info = wg.empty(3, 3, dtype=wg.float64), wg.empty((), dtype=wg.int32)
    assert wg.linalg.inv(A, out=out) is out
    assert_close(out, np.linalg.inv(A.numpy()))
    assert wg.linalg.cholesky_ex(A, out=(out, info)).L is out
    assert_close(wg.linalg.matrix_power(A, -3), np.linalg.matrix_power(A.numpy(), -3))


def test_vectors_and_tensors() -> None:
    x = random_matrices(3, 4, 4)
    A, b = wg.tensor(x), wg.tensor(np.arange(12.0).reshape(3, 4))
    assert_close(wg.linalg.solve(A, b), np.linalg.solve(x, np.arange(12.0).reshape(3, 4, 1))[..., 0])
    assert_close(wg.linalg.solve(A, b[0]), np.linalg.solve(x, np.arange(4.0)[:, None])[..., 0])
    a = random_matrices(24, 24)
    t = a.reshape(2, 3, 4, 6, 4)
    assert_close(wg.linalg.tensorinv(wg.tensor(t), ind=3), np.linalg.tensorinv(t, 3))
    right = np.arange(24.0).reshape(2, 3, 4)
    assert_close(wg.linalg.tensorsolve(wg.tensor(t), wg.tensor(right)), np.linalg.tensorsolve(t, right))
    other_sizes = right.reshape(4, 3, 2)  # only the numbers of elements must fit
    assert_close(wg.linalg.tensorsolve(wg.tensor(t), wg.tensor(other_sizes)), np.linalg.tensorsolve(t, right))
    moved = np.moveaxis(t, 3, 0)
    result = wg.linalg.tensorsolve(wg.tensor(moved), wg.tensor(np.arange(24.0).reshape(2, 3, 4)), dims=(0, 4))
    assert_close(result, np.linalg.tensorsolve(moved, right, axes=(0, 4)))


def _leaf(array: Array) -> Any:
    return wg.tensor(array, dtype=wg.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("name", "function", "shapes"),
    [
        ("cholesky", lambda x: wg.linalg.cholesky(x @ x.mT + wg.eye(3, dtype=wg.float64)), [(2, 3, 3)]),
        ("cholesky upper", lambda x: wg.linalg.cholesky(x @ x.mT, upper=True), [(3, 3)]),
        ("solve", wg.linalg.solve, [(2, 3, 3), (3, 2)]),
        ("solve right", lambda a, b: wg.linalg.solve(a, b, left=False), [(3, 3), (2, 2, 3)]),
        ("solve vector", wg.linalg.solve, [(3, 3), (3,)]),
        ("triangular", lambda a, b: wg.linalg.solve_triangular(a, b, upper=True, left=False), [(3, 3), (2, 2, 3)]),
        ("inv", wg.linalg.inv, [(2, 3, 3)]),
        ("det", wg.linalg.det, [(2, 3, 3)]),
        ("slogdet", lambda a: wg.linalg.slogdet(a).logabsdet, [(2, 3, 3)]),
        ("logdet", lambda a: wg.logdet(a @ a.mT), [(3, 3)]),
        ("lu", lambda a: wg.linalg.lu(a)[1:], [(2, 3, 3)]),
        ("lu wide", lambda a: wg.linalg.lu(a)[1:], [(2, 4)]),
        ("lu tall", lambda a: wg.linalg.lu(a)[1:], [(4, 2)]),
        ("lu_solve", lambda a, b: wg.linalg.lu_solve(*wg.linalg.lu_factor(a), b), [(2, 3, 3), (2, 3, 2)]),
        (
            "lu_solve adjoint",
            lambda a, b: wg.linalg.lu_solve(*wg.linalg.lu_factor(a), b, adjoint=True),
            [(3, 3), (3, 2)],
        ),
        ("cholesky_solve", lambda b, a: wg.cholesky_solve(b, wg.cholesky(a @ a.mT)), [(3, 2), (3, 3)]),
        ("cholesky_inverse", wg.cholesky_inverse, [(3, 3)]),
    ],
)
def test_gradients(name: str, function: Callable[..., Any], shapes: list[tuple[int, ...]]) -> None:
    inputs = [
        _leaf(random_matrices(*shape, seed=i) if len(shape) > 1 else np.arange(1.0, 1 + shape[0]))
        for i, shape in enumerate(shapes)
    ]
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


def test_the_gradient_of_a_singular_determinant_is_the_adjugate() -> None:
    x = _leaf(np.array([[1.0, 2, 3], [2, 4, 6], [7, 8, 1]]))
    wg.linalg.det(x).backward()
    cofactors = np.array([[-44.0, 40, -12], [22, -20, 6], [0, 0, 0]])
    np.testing.assert_allclose(x.grad.numpy(), cofactors, atol=1e-12)


def test_meta_tensors() -> None:
    A = wg.empty(2, 3, 3, device="meta")
    assert wg.linalg.inv(A).shape == (2, 3, 3)
    assert wg.linalg.solve(A, wg.empty(3, 2, device="meta")).shape == (2, 3, 2)
    assert wg.linalg.det(A).shape == (2,)
