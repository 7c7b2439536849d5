"""Compare factorizations and linear systems with PyTorch: results, gradients and second gradients, shapes, errors.

Skipped where torch is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

torch = pytest.importorskip("torch")


def _random(*shape: int, seed: int = 0) -> Any:
    matrices = np.random.default_rng(seed).standard_normal(shape)
    return matrices + 3 * np.eye(*shape[-2:]) if len(shape) > 1 else matrices


# Functions of a library and its tensors, and the shapes of these.
CALLS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "cholesky": (lambda t, a: t.linalg.cholesky(a @ a.mT), ((2, 4, 4),)),
    "cholesky of an unsymmetric matrix": (lambda t, a: t.linalg.cholesky(a + 9 * t.eye(4, dtype=a.dtype)), ((4, 4),)),
    "upper cholesky": (lambda t, a: t.linalg.cholesky(a @ a.mT, upper=True), ((2, 4, 4),)),
    "cholesky_ex": (lambda t, a: t.linalg.cholesky_ex(a @ a.mT).L, ((4, 4),)),
    "solve": (lambda t, a, b: t.linalg.solve(a, b), ((3, 4, 4), (4, 2))),
    "solve from the right": (lambda t, a, b: t.linalg.solve(a, b, left=False), ((4, 4), (3, 2, 4))),
    "solve for vectors": (lambda t, a, b: t.linalg.solve(a, b), ((3, 4, 4), (3, 4))),
    "solve_ex": (lambda t, a, b: t.linalg.solve_ex(a, b).result, ((4, 4), (4,))),
    "inv": (lambda t, a: t.linalg.inv(a), ((2, 3, 4, 4),)),
    "inv_ex": (lambda t, a: t.linalg.inv_ex(a).inverse, ((4, 4),)),
    "det": (lambda t, a: t.linalg.det(a), ((2, 4, 4),)),
    "slogdet": (lambda t, a: t.linalg.slogdet(a).logabsdet, ((2, 4, 4),)),
    "logdet": (lambda t, a: t.logdet(a @ a.mT), ((2, 4, 4),)),
    "lu_factor": (lambda t, a: t.linalg.lu_factor(a).LU, ((2, 4, 4),)),
    "wide lu_factor": (lambda t, a: t.linalg.lu_factor_ex(a).LU, ((2, 3, 5),)),
    "tall lu_factor": (lambda t, a: t.linalg.lu_factor_ex(a)[0], ((2, 5, 3),)),
    "lower factor": (lambda t, a: t.linalg.lu(a).L, ((2, 4, 4),)),
    "upper factor": (lambda t, a: t.linalg.lu(a)[2], ((2, 4, 4),)),
    "lu_solve": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b), ((2, 4, 4), (2, 4, 3))),
    "adjoint lu_solve": (
        lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b, adjoint=True, left=False), ((4, 4), (3, 4)),
    ),
    "solve_triangular": (lambda t, a, b: t.linalg.solve_triangular(a, b, upper=True), ((2, 4, 4), (4, 3))),
    "unit solve_triangular": (
        lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False, left=False, unitriangular=True), ((4, 4), (3, 4)),
    ),
    "cholesky_solve": (lambda t, b, a: t.cholesky_solve(b, a.tril()), ((4, 2), (4, 4))),
    "cholesky_inverse": (lambda t, a: t.cholesky_inverse(a.triu(), upper=True), ((4, 4),)),
    "tensorinv": (lambda t, a: t.linalg.tensorinv(a.reshape(2, 3, 6)), ((6, 6),)),
    "tensorsolve": (lambda t, a, b: t.linalg.tensorsolve(a.reshape(2, 3, 6), b.reshape(2, 3)), ((6, 6), (6,))),
    "matrix_power": (lambda t, a: t.linalg.matrix_power(a, -2), ((2, 3, 3),)),
    "svdvals": (lambda t, a: t.linalg.svdvals(a), ((2, 3, 4),)),
    "left singular vectors": (lambda t, a: t.linalg.svd(a, full_matrices=False).U.abs(), ((2, 4, 3),)),
    "right singular vectors": (lambda t, a: t.linalg.svd(a).Vh[..., :3, :].abs(), ((2, 3, 4),)),
    "product of a decomposition": (lambda t, a: (lambda u, s, v: (u * s.exp()) @ v)(*t.linalg.svd(a)), ((3, 3),)),
    "eigenvalues": (lambda t, a: t.linalg.eigvalsh(a), ((2, 4, 4),)),
    "eigenvectors": (lambda t, a: t.linalg.eigh(a + a.mT, UPLO="U").eigenvectors.abs(), ((2, 4, 4),)),
    "pinv": (lambda t, a: t.linalg.pinv(a), ((2, 5, 3),)),
    "pinv of less than full rank": (lambda t, a: t.linalg.pinv(a @ a.mT, rtol=1e-9), ((5, 3),)),
    "older svd": (lambda t, a: t.svd(a).V.abs(), ((2, 4, 3),)),
    "square svd": (lambda t, a: a.svd(some=False)[0][..., :3].abs(), ((4, 3),)),
    "svd without vectors": (lambda t, a: sum(part.sum() for part in t.svd(a, compute_uv=False)), ((4, 3),)),
    "pinverse": (lambda t, a: a.pinverse(), ((3, 4),)),
    "qr": (lambda t, a: (lambda q, r: q @ r.sin())(*t.linalg.qr(a)), ((2, 4, 4),)),
    "tall qr": (lambda t, a: (lambda q, r: q.exp() @ r)(*t.linalg.qr(a)), ((2, 5, 3),)),
    "wide qr": (lambda t, a: (lambda q, r: q.exp() @ r.cos())(*t.linalg.qr(a, "complete")), ((2, 3, 5),)),
    "cond": (lambda t, a: t.linalg.cond(a), ((2, 3, 3),)),
    "nuclear norm": (lambda t, a: t.linalg.matrix_norm(a, "nuc"), ((2, 3, 5),)),
    "lu_unpack": (lambda t, a: t.lu_unpack(*t.linalg.lu_factor(a))[1], ((2, 4, 4),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name: str) -> None:
    function, shapes = CALLS[name]
    results = []
    for library in (wg, torch):
        leaves = [
            library.tensor(_random(*shape, seed=i), dtype=library.float64, requires_grad=True)
            for i, shape in enumerate(shapes)
        ]
        output = function(library, *leaves)
        first = library.autograd.grad(output.sin().sum(), leaves, create_graph=True)
        second = library.autograd.grad(sum(g.cos().sum() for g in first), leaves)
        results.append([x.detach().numpy() for x in (output, *first, *second)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9 * max(1, np.abs(theirs).max()))


# Calls that raise an error, and what both messages say.
ERRORS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "singular inv": (
        lambda t: t.linalg.inv(t.tensor([[[1.0, 0], [0, 1]], [[1, 2], [2, 4]]])),
        r"linalg.inv: \(Batch element 1\): The diagonal element 2 is zero, the inversion could not be completed "
        "because the input matrix is singular.",
    ),
    "singular solve": (
        lambda t: t.linalg.solve(t.ones(2, 2), t.ones(2)),
        "linalg.solve: The solver failed because the input matrix is singular.",
    ),
    "cholesky": (
        lambda t: t.linalg.cholesky(t.tensor([[1.0, 2], [2, 1]])),
        r"linalg.cholesky: The factorization could not be completed because the input is not positive-definite \(the "
        r"leading minor of order 2 is not positive-definite\)",
    ),
    "singular lu_factor": (lambda t: t.linalg.lu_factor(t.ones(2, 2)), r"linalg.lu_factor: U\[2,2\] is zero"),
    "not square": (
        lambda t: t.linalg.det(t.ones(2, 3)),
        "linalg.det: A must be batches of square matrices, but they are 2 by 3 matrices",
    ),
    "one dimension": (
        lambda t: t.linalg.inv(t.ones(2)), "linalg.inv: The input tensor A must have at least 2 dimensions",
    ),
    "integers": (lambda t: t.linalg.solve(t.eye(2).int(), t.ones(2, 1).int()), "Expected a floating point"),
    "half": (lambda t: t.linalg.inv(t.eye(2).half()), "Low precision dtypes"),
    "sizes": (
        lambda t: t.linalg.solve(t.eye(2), t.ones(3, 1)),
        r"linalg.solve: Incompatible shapes of A and B for the equation AX = B \(2x2 and 3x1\)",
    ),
    "NaN": (lambda t: t.linalg.svd(t.full((2, 2), np.nan)), "linalg.svd: The algorithm failed to converge because"),
    "UPLO": (lambda t: t.linalg.eigh(t.eye(2), UPLO="X"), "Expected UPLO argument to be 'L' or 'U', but got '?X"),
    "dtypes": (lambda t: t.linalg.solve(t.eye(2), t.ones(2, 1).double()), "Expected A and B to have the same dtype"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    function, message = ERRORS[name]
    for library in (torch, wg):
        with pytest.raises(RuntimeError, match=f"(?i){message}"):
            function(library)
    assert issubclass(wg.linalg.LinAlgError, RuntimeError)


def test_shapes_without_elements() -> None:
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        for name in (
            "inv",
            "det",
            "cholesky",
            "lu_factor",
            "slogdet",
            "lu",
            "qr",
            "svd",
            "svdvals",
            "eigh",
            "pinv",
            "matrix_rank",
        ):
            results = []
            for library in (wg, torch):
                result = getattr(library.linalg, name)(library.ones(shape))
                parts = result if isinstance(result, tuple) else (result,)
                results.append([(tuple(x.shape), x.tolist()) for x in parts])
            assert results[0] == results[1], (shape, name)
