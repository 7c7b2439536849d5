"""Check products of few rows or columns.

Their kernels read whole vectors where an operand has fewer elements. The numbers beside the operand must not change the
result, and nothing may be stored beside the result.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from contraction_records import MATMUL, compare, draw, fetch, record_for, tensor

import weftgrad as wg
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.backends.protocol import Capabilities
from weftgrad.runtime.device import meta
from weftgrad.runtime.kinds import contraction_plan
from weftgrad.runtime.tensor import Tensor

CPU = Capabilities("cpu", 2, lanes=16)
FALLBACK = contraction_plan.spaces["opencl-cpu/contraction"].fallback


def among_nan(rng: np.random.Generator, *shape: int, transposed: bool, is_compact: bool) -> np.ndarray[Any, Any]:
    """Return random matrices of this shape in memory that is NaN everywhere else.

    With `is_compact`, NaN lies only before the first and after the last element, otherwise beside every row too.
    """
    *batch, rows, columns = (*shape[:-2], *reversed(shape[-2:])) if transposed else shape
    size = int(np.prod(shape))
    if is_compact:
        memory = np.full(size + 64, np.nan, np.float32)
        matrix = memory[32 : 32 + size].reshape(*batch, rows, columns)
    else:
        memory = np.full((*batch, rows + 2, columns + 5), np.nan, np.float32)
        matrix = memory[..., 1:-1, 2:-3]
    matrix[...] = rng.standard_normal(matrix.shape)
    return matrix.swapaxes(-1, -2) if transposed else matrix


NARROW = [  # m, n, k
    (1, 3, 40),
    (2, 16, 33),
    (3, 8, 200),
    (4, 4, 100),
    (3, 200, 8),
    (8, 30, 17),
    (20, 5, 64),
    (16, 16, 15),
    (130, 4, 70),
]


def test_memory_beside_operands_is_ignored() -> None:
    """NaN beside the operands does not reach the result: matrices, batches of five, and rows that share memory."""
    rng = np.random.default_rng(40)
    cases = []
    transpositions = ((False, False), (False, True), (True, False))
    for (m, n, k), (transpose_a, transpose_b), is_compact in itertools.product(NARROW, transpositions, (True, False)):
        a = among_nan(rng, m, k, transposed=transpose_a, is_compact=is_compact)
        b = among_nan(rng, k, n, transposed=transpose_b, is_compact=is_compact)
        cases.append((MATMUL, a, b))
    for (m, n, k), transpose_b in itertools.product(((3, 8, 20), (3, 20, 8), (4, 4, 5)), (False, True)):
        a = among_nan(rng, 5, m, k, transposed=False, is_compact=True)
        b = among_nan(rng, 5, k, n, transposed=transpose_b, is_compact=True)
        cases.append((MATMUL, a, b))
    row = among_nan(rng, 5, 1, 8, transposed=False, is_compact=True)
    cases.append((MATMUL, draw(rng, (5, 3, 20), np.float32), np.broadcast_to(row, (5, 20, 8))))  # all rows share memory
    compare(*cases)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_products_of_many_short_rows(dtype: Any) -> None:
    """Multiply many short rows, also with gaps between them, by one small matrix or a batch, in either layout."""
    rng = np.random.default_rng(44)
    sizes = [(3, 3), (4, 2), (1, 8)]
    if dtype is np.float32:
        sizes = [(k, n) for k in range(1, 9) for n in (1, 2, 3, 4, 7, 8)]
    cases = []
    for case_index, (k, n) in enumerate(sizes):
        matrix = draw(rng, (n, k), dtype).T if case_index % 2 else draw(rng, (k, n), dtype)
        cases.append((MATMUL, draw(rng, (256 + case_index, k), dtype), matrix))
    cases.append((MATMUL, draw(rng, (5, 300, 3), dtype), draw(rng, (5, 3, 4), dtype)))
    cases.append((MATMUL, draw(rng, (5, 300, 3), dtype), draw(rng, (5, 4, 3), dtype).swapaxes(1, 2)))
    cases.append((MATMUL, draw(rng, (300, 5), dtype)[:, 1:4], draw(rng, (3, 4), dtype)))
    cases.append((MATMUL, draw(rng, (600, 3), dtype)[::2], draw(rng, (3, 4), dtype)))
    compare(*cases)


def test_products_that_use_the_points_schedule() -> None:
    """At least 256 rows, and a matrix of at most 8 x 8."""

    def schedule_name(m: int, n: int, k: int) -> str | None:
        schedule = contraction_plan.points_schedule(contraction_plan.Product(m, n, k, 1, True, False), CPU, FALLBACK)
        return schedule and schedule.name

    assert [schedule_name(1000, 3, 3), schedule_name(256, 8, 1), schedule_name(1 << 20, 1, 8)] == ["points"] * 3
    assert [schedule_name(255, 3, 3), schedule_name(1000, 9, 3), schedule_name(1000, 3, 9)] == [None] * 3


def test_points_through_an_epilogue() -> None:
    """A linear layer with bias and tanh on many short rows: values, and the gradients of all three operands."""
    leaves = [wg.randn(*shape, requires_grad=True) for shape in ((500, 3), (4, 3), (4,))]
    output = wg.nn.functional.linear(*leaves).tanh()
    x, weight, bias = (leaf.detach().numpy().astype(np.float64) for leaf in leaves)
    y = np.tanh(x @ weight.T + bias)
    tanh_grad = 1 - y * y
    np.testing.assert_allclose(output.detach().numpy(), y, rtol=2e-6, atol=1e-6)
    expected = (tanh_grad @ weight, tanh_grad.T @ x, tanh_grad.sum(0))
    for actual, expected_grad in zip(wg.autograd.grad(output.sum(), leaves), expected, strict=True):
        np.testing.assert_allclose(actual.numpy(), expected_grad, rtol=1e-5, atol=1e-4)


def test_infinities_of_the_last_elements_of_rows_stay_in_their_row() -> None:
    """The last vector of a dot product overlaps the one before; the shared elements count once, even if infinite."""
    a, b = np.ones((5, 37), np.float32), np.ones((6, 37), np.float32)
    a[1, 22], a[2, 36], b[3, 21] = np.inf, np.nan, -np.inf
    actual = fetch(dispatch.call(record_for(MATMUL), (tensor(a), tensor(b.T))))
    expected = np.full((5, 6), 37.0)
    expected[1], expected[2], expected[:, 3] = np.inf, np.nan, -np.inf
    expected[1:3, 3] = np.nan
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("m", "n", "k"), [(30, 4, 20), (3, 21, 9), (5, 7, 300)])
def test_nothing_is_stored_beside_the_result(m: int, n: int, k: int) -> None:
    """The result lies in a plane of sevens with one more row above and below, and `gap` more columns."""
    rng = np.random.default_rng(41)
    a, b = draw(rng, (m, k), np.float32), draw(rng, (k, n), np.float32)
    for gap in (0, 3):
        plane = np.full((m + 2) * (n + gap), 7.0, np.float32)
        out = tensor(plane.reshape(m + 2, n + gap)[1:-1, :n])
        dispatch.call_into(record_for(MATMUL), (tensor(a), tensor(b)), (), (out,), in_place=False)
        surroundings = Tensor(
            out.storage, meta(dtypes.float32, plane.shape, None, out.device), out.start - 4 * (n + gap)
        )
        actual = fetch(surroundings).reshape(m + 2, n + gap)
        np.testing.assert_allclose(actual[1:-1, :n], a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
        actual[1:-1, :n] = 7.0
        assert (actual == 7.0).all()


def test_register_tiles_of_narrow_results() -> None:
    """The tile of `mr` rows by `nv` vectors is no larger than the result needs."""
    for (m, n, k), tile in {
        (2, 16, 4096): (4, 1),
        (4, 30, 500): (4, 2),
        (8, 10, 300): (8, 1),
        (1, 500, 64): (1, 4),
    }.items():
        schedule = contraction_plan.choose(contraction_plan.Product(m, n, k, 1, True, False), CPU, 16)
        assert (schedule.name, schedule.mr, schedule.nv) == ("gemm", *tile)


def test_short_rows_of_a_transposed_operand_are_packed() -> None:
    for (m, n, k), name in {
        (8, 64, 8): "gemm",
        (3, 200, 8): "gemm",
        (4, 64, 128): "dots",
        (1, 300, 40): "dots",
    }.items():
        assert contraction_plan.choose(contraction_plan.Product(m, n, k, 1, True, True), CPU, 16).name == name


def test_repacking_of_operands_with_few_columns() -> None:
    """B is repacked, or the result transposed, only if enough rows of A share the cost."""
    product = contraction_plan.Product
    assert contraction_plan.should_repack_b(product(4096, 4, 64, 1, True, False), 16)
    assert not contraction_plan.should_repack_b(product(64, 4, 64, 1, True, False), 16)
    assert not contraction_plan.should_repack_b(product(4096, 64, 64, 1, True, False), 16)
    assert contraction_plan.should_transpose_result(product(1024, 16, 1024, 1, False, False), CPU, 16, FALLBACK)
    assert not contraction_plan.should_transpose_result(product(16, 16, 4096, 1, False, False), CPU, 16, FALLBACK)
    rng = np.random.default_rng(42)
    a, b = draw(rng, (700, 129), np.float32), draw(rng, (129, 3), np.float32)
    compare((MATMUL, a, b), (MATMUL, np.asfortranarray(a), b), (MATMUL, draw(rng, (2, 700, 129), np.float32), b))
